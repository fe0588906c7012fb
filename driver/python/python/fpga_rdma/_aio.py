"""Waiting in asyncio: nothing here blocks the loop or starts a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from .frames import Fault, Frame, Gap, Subscriber

T = TypeVar("T")

_SPIN = 0.001
"""Seconds without a result for which other tasks run, but the loop does not sleep: the latency of a busy source."""
_MAX_SLEEP = 0.02
"""Limit of a sleep in seconds: an interrupt can be lost, and a card that is simulated in this process works only while it is polled."""
_MAX_PAUSE = 0.002
"""Limit of a sleep in seconds without a descriptor: the result waits as long."""


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


async def frames(subscriber: Subscriber) -> AsyncIterator[Frame | Gap | Fault]:
    """Iterate over the events of a subscriber, until its stream ends."""
    from .frames import Ended

    while True:
        event: Frame | Gap | Fault | Ended = await result(subscriber.poll)
        if isinstance(event, Ended):
            return
        yield event


async def _is_readable(descriptor: int, limit: float) -> bool:
    """Wait until a descriptor is readable, for ``limit`` seconds at most."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(descriptor, wake)
    try:
        done, _ = await asyncio.wait([readable], timeout=limit)
    finally:
        loop.remove_reader(descriptor)
    return bool(done)
