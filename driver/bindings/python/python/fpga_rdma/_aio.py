"""Waiting in asyncio: nothing here blocks the loop or starts a thread.

Every awaitable of the package is a source: ``poll`` returns its value, or ``None`` while there is none, and raises what has gone wrong, such
as the end of the card. A task polls, lets others run for a moment, then waits for the descriptor of the source. A cancelled task has taken
nothing from its source.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from ._native import Ticket, UserInterrupt, _Transfer
    from .frames import Ended, Fault, Frame, Gap, Subscriber

T = TypeVar("T")

_SPIN = 0.001
"""Seconds without a result for which other tasks run, but the loop does not sleep: the latency of a busy source."""
_MAX_SLEEP = 0.02
"""Limit of a sleep in seconds: an interrupt can be lost, and a card that is gone or closed sends none."""
_MAX_PAUSE = 0.002
"""Limit of a sleep in seconds without a descriptor: the result waits as long."""

_readers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, list[asyncio.Future[None]]]] = WeakKeyDictionary()
"""Tasks that wait for a descriptor: an event loop has one reader for each."""


async def until(poll: Callable[[], T | None], arm: Callable[[], int | None]) -> T:
    """Call ``poll`` until it returns a value.

    ``arm`` enables an interrupt for what arrives from then on, and returns the descriptor that it makes readable; ``None`` if there is none.
    """
    began, sleep = time.monotonic(), _SPIN
    while True:
        found = poll()
        if found is not None:
            return found
        if time.monotonic() - began < _SPIN:
            await asyncio.sleep(0)
            continue
        descriptor = arm()
        # What arrived before that does not signal.
        found = poll()
        if found is not None:
            return found
        if descriptor is None:
            await asyncio.sleep(min(sleep, _MAX_PAUSE))
        elif await _is_readable(descriptor, sleep):
            began, sleep = time.monotonic(), _SPIN
            continue
        sleep = min(2 * sleep, _MAX_SLEEP)


async def result(poll: Callable[[], T | None]) -> T:
    """Call ``poll`` until it returns a value, for sources without a descriptor."""
    return await until(poll, lambda: None)


async def ended(ticket: Ticket) -> None:
    """Wait until a submitted transfer has ended."""
    await until(ticket._poll, ticket.channel._arm)


async def moved(transfer: _Transfer) -> None:
    """Move the bytes of an object. A cancelled task cancels the transfer, and does not wait for the engine."""
    try:
        await until(transfer._poll, transfer._arm)
    except BaseException:
        transfer._abandon()
        _settle(transfer, asyncio.get_running_loop())
        raise


def _settle(transfer: _Transfer, loop: asyncio.AbstractEventLoop, delay: float = 0.0005) -> None:
    """Go on with a cancellation in the background. Without a loop, the next call of the channel does."""
    if not transfer._settle():
        loop.call_later(delay, _settle, transfer, loop, min(2 * delay, _MAX_SLEEP))


async def interrupted(interrupt: UserInterrupt) -> dict[int, int]:
    """Wait until one of the lines has interrupted."""
    return await until(interrupt._poll, interrupt._arm)


class Frames:
    """Events of a subscriber, until its stream ends."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber

    def __aiter__(self) -> Frames:
        return self

    async def __anext__(self) -> Frame | Gap | Fault:
        from .frames import Ended

        event: Frame | Gap | Fault | Ended = await result(self._subscriber.poll)
        if isinstance(event, Ended):
            raise StopAsyncIteration
        return event


async def _is_readable(descriptor: int, limit: float) -> bool:
    """Wait until a descriptor is readable, for ``limit`` seconds at most."""
    loop = asyncio.get_running_loop()
    readers = _readers.setdefault(loop, {})
    readable: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        loop.remove_reader(descriptor)
        for waiting in readers.pop(descriptor, []):
            if not waiting.done():
                waiting.set_result(None)

    tasks = readers.get(descriptor)
    if tasks is None:
        try:
            loop.add_reader(descriptor, wake)
        except (OSError, ValueError):
            # Closed by another thread: the next poll says so.
            await asyncio.sleep(0)
            return False
        tasks = readers[descriptor] = []
    tasks.append(readable)
    try:
        done, _ = await asyncio.wait([readable], timeout=limit)
    finally:
        if readable in tasks:
            tasks.remove(readable)
            if not tasks and readers.get(descriptor) is tasks:
                del readers[descriptor]
                loop.remove_reader(descriptor)
    return bool(done)
