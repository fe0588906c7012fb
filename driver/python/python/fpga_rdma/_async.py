"""Waiting in asyncio.

A channel whose card has interrupts gives the event loop its descriptor: one reader for each channel and loop, which serves all tasks that
await tickets of it. Without interrupts, and for simulated cards inside this thread, which work only while they are polled, a timer polls
with growing delays. There are no threads and no busy loops.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ._native import _nbytes

if TYPE_CHECKING:
    from ._native import Card, Channel, Memory, Ticket, UserInterrupt

MAX_DELAY = 0.010
"""Longest delay between two polls, in seconds."""
FIRST_POLLS = 16
"""Number of polls without a delay: a short transfer has ended by then."""


def delay(polls: int) -> float:
    """Delay before the next poll in seconds, after ``polls`` of them."""
    return 0.0 if polls < FIRST_POLLS else min(50e-6 * (polls - FIRST_POLLS + 1), MAX_DELAY)


class _Waiters:
    """Tasks of one event loop that await tickets of one channel."""

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: Channel) -> None:
        self.loop = loop
        self.channel = channel
        self.tasks: list[tuple[Ticket, asyncio.Future[None]]] = []
        self.descriptor = channel._descriptor()
        self.timer: asyncio.Handle | None = None
        self.polls = 0

    def add(self, ticket: Ticket) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self.loop.create_future()
        if not self.tasks:
            self.start()
        self.tasks.append((ticket, future))
        # Earlier transfers do not signal, and queued ones have to start.
        self.polls = 0
        self.turn()
        return future

    def start(self) -> None:
        if self.descriptor is not None:
            self.loop.add_reader(self.descriptor, self.turn)

    def turn(self) -> None:
        """Polls once, and resolves what has ended."""
        try:
            self.channel._step() if self.descriptor is None else self.channel._serve()
        except Exception as error:
            for _, future in self.tasks:
                if not future.done():
                    future.set_exception(error)
            self.tasks.clear()
        self.tasks = [waiting for waiting in self.tasks if not self.ended(*waiting)]
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if not self.tasks:
            self.stop()
        elif self.descriptor is None:
            self.polls += 1
            self.timer = self.loop.call_later(delay(self.polls), self.turn)
        else:
            # An interrupt can be lost: look from time to time.
            self.timer = self.loop.call_later(0.1, self.turn)

    def ended(self, ticket: Ticket, future: asyncio.Future[None]) -> bool:
        if future.done():
            return True
        if not ticket.done():
            return False
        try:
            ticket.wait(0)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return True

    def stop(self) -> None:
        if self.descriptor is not None:
            self.loop.remove_reader(self.descriptor)
            if not self.channel.closed:
                self.channel._rest()


_waiters: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Channel, _Waiters]] = WeakKeyDictionary()


async def ended(ticket: Ticket) -> None:
    """Waits until the transfer has ended."""
    loop = asyncio.get_running_loop()
    channels = _waiters.setdefault(loop, {})
    channel = ticket.channel
    waiters = channels.get(channel)
    if waiters is None:
        for known in [known for known in channels if known.closed]:
            del channels[known]
        waiters = channels[channel] = _Waiters(loop, channel)
    await waiters.add(ticket)


async def _moved(channel: Channel, memory: Memory, address: int) -> None:
    """Transfers DMA memory. A cancelled task cancels the transfer."""
    ticket = channel.submit(memory, address)
    try:
        await ticket
    except asyncio.CancelledError:
        ticket.cancel()
        raise


def _is_dma(card: Card, memory: Memory) -> bool:
    try:
        card.device_address(memory)
    except ValueError:
        return False
    return True


async def write(card: Card, channel: Channel, data: Memory, address: int) -> None:
    """``Channel.write_async``."""
    length = _nbytes(data, False)
    if length == 0:
        return
    if _is_dma(card, data):
        await _moved(channel, data, address)
        return
    buffer = card.buffer(length)
    buffer._load(data)
    await _moved(channel, buffer, address)


async def read(card: Card, channel: Channel, into: Memory, address: int) -> None:
    """``Channel.read_async``."""
    length = _nbytes(into, True)
    if length == 0:
        return
    if _is_dma(card, into):
        await _moved(channel, into, address)
        return
    buffer = card.buffer(length)
    await _moved(channel, buffer, address)
    buffer._store(into)


async def interrupted(interrupt: UserInterrupt) -> dict[int, int]:
    """Waits until one of the lines has interrupted."""
    loop = asyncio.get_running_loop()
    if not interrupt._has_descriptor():
        for polls in itertools.count():
            if taken := interrupt.take():
                return taken
            interrupt._step()
            await asyncio.sleep(delay(polls))
    descriptor = interrupt.fileno()
    arrived = asyncio.Event()
    loop.add_reader(descriptor, arrived.set)
    try:
        while not (taken := interrupt.take()):
            arrived.clear()
            await arrived.wait()
    finally:
        loop.remove_reader(descriptor)
    return taken
