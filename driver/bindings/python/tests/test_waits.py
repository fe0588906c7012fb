"""Every wait x every way to end it x every kind of card. The summary of the run has the longest delay.

``FPGA_LONG=1`` runs each wait and ending on every kind of card; without it, each on one kind.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scene import KINDS, Scene, now, program

import fpga_rdma
from fpga_rdma.endpoint import RemoteRegion

LIMIT = 5.0
"""Longest delay that passes, in seconds: 100 times the goal of 50 ms, because the machine may be busy."""
LONG = bool(os.environ.get("FPGA_LONG"))
NEVER = 1e9
"""Limit of waits, in seconds."""


class Stop(Exception):
    """Raised by a signal handler."""


@dataclass
class Wait:
    """A wait of a card: a call, what closes its object, and what cancels it."""

    call: Callable[[], object]
    close: Callable[[], object]
    cancel: Callable[[], object] | None = None
    cancelled: type[Exception] = fpga_rdma.TransferFault


@dataclass
class Awaited:
    """An awaitable of a card, and what closes its object."""

    make: Callable[[], Coroutine[Any, Any, object]]
    close: Callable[[], object]


def _write(scene: Scene) -> Wait:
    channel = scene.card.h2c[0]
    return Wait(lambda: channel.write(bytes(4096), 0, None), channel.close, channel.abort)


def _write_in_chunks(scene: Scene) -> Wait:
    channel = scene.card.h2c[0]
    return Wait(lambda: channel.write(bytes(6 << 20), 0, None), channel.close, channel.abort)


def _read(scene: Scene) -> Wait:
    channel, into = scene.card.c2h[0], bytearray(4096)
    return Wait(lambda: channel.read(into, 0, None), channel.close, channel.abort)


def _write_in_place(scene: Scene) -> Wait:
    channel, memory = scene.card.h2c[0], scene.card.allocate(4096)
    return Wait(lambda: channel.write(memory, 0, None), channel.close, channel.abort)


def _write_batch(scene: Scene) -> Wait:
    channel, memory = scene.card.h2c[0], scene.card.allocate(64)
    zeros = [0] * 1000
    return Wait(lambda: channel.write_batch(memory, zeros, zeros, 64, None), channel.close, channel.abort)


def _ticket(scene: Scene) -> Wait:
    channel = scene.card.h2c[0]
    ticket = channel.submit(scene.card.allocate(64), 0)
    return Wait(lambda: ticket.wait(None), channel.close, ticket.cancel)


def _channel(scene: Scene) -> Wait:
    channel = scene.card.h2c[0]
    channel.submit(scene.card.allocate(64), 0)
    return Wait(lambda: channel.wait(None), channel.close, channel.abort)


def _interrupt(scene: Scene) -> Wait:
    interrupt = scene.card.user_interrupt(3)
    return Wait(interrupt.wait, interrupt.close)


def _notifications(scene: Scene) -> Wait:
    endpoint = scene.card.endpoint()
    return Wait(lambda: endpoint.notifications.wait(None), endpoint.close)


def _pending(scene: Scene) -> Wait:
    endpoint = scene.card.endpoint(give_up=NEVER)
    sent = endpoint.send(0x10000, RemoteRegion(77, 0x20000, 64, 5))
    return Wait(lambda: sent.wait(None), endpoint.close, sent.cancel, fpga_rdma.SendFailedError)


def _peer(scene: Scene) -> Wait:
    endpoint = scene.card.endpoint()
    return Wait(lambda: endpoint.peer(77, NEVER), endpoint.close)


def _receive(scene: Scene) -> Wait:
    stream = scene.card.c2h_stream(0)
    return Wait(lambda: stream.receive(None), stream.close)


def _packets(scene: Scene) -> Wait:
    stream = scene.card.c2h_stream(0)
    return Wait(lambda: next(iter(stream)), stream.close)


def _send(scene: Scene) -> Wait:
    stream = scene.card.h2c_stream(0)
    return Wait(lambda: stream.send(bytes(64), None), stream.close)


def _flush(scene: Scene) -> Wait:
    stream = scene.card.h2c_stream(0)
    stream.submit(bytes(64))
    return Wait(lambda: stream.flush(None), stream.close)


MEMORY: list[Callable[[Scene], Wait]] = [
    _write,
    _write_in_chunks,
    _read,
    _write_in_place,
    _write_batch,
    _ticket,
    _channel,
    _interrupt,
    _notifications,
    _pending,
    _peer,
]
STREAMS: list[Callable[[Scene], Wait]] = [_receive, _packets, _send, _flush]
ENDINGS = ("removal", "card.close", "close", "cancel", "signal", "handler closes", "two waiters")


async def _of(awaitable: Any) -> object:
    return await awaitable


def _await_ticket(scene: Scene) -> Awaited:
    channel = scene.card.h2c[0]
    ticket = channel.submit(scene.card.allocate(64), 0)
    return Awaited(lambda: _of(ticket), channel.close)


def _await_write(scene: Scene) -> Awaited:
    channel = scene.card.h2c[0]
    return Awaited(lambda: channel.write_async(bytes(4096), 0), channel.close)


def _await_read(scene: Scene) -> Awaited:
    channel = scene.card.c2h[0]
    return Awaited(lambda: channel.read_async(bytearray(3 << 20), 0), channel.close)


def _await_interrupt(scene: Scene) -> Awaited:
    interrupt = scene.card.user_interrupt(3)
    return Awaited(lambda: _of(interrupt), interrupt.close)


def _await_notification(scene: Scene) -> Awaited:
    endpoint = scene.card.endpoint()
    return Awaited(lambda: _of(anext(endpoint.notifications)), endpoint.close)


def _await_pending(scene: Scene) -> Awaited:
    endpoint = scene.card.endpoint(give_up=NEVER)
    sent = endpoint.send(0x10000, RemoteRegion(77, 0x20000, 64, 5))
    return Awaited(lambda: _of(sent), endpoint.close)


def _await_packet(scene: Scene) -> Awaited:
    stream = scene.card.c2h_stream(0)
    return Awaited(lambda: _of(anext(aiter(stream))), stream.close)


AWAITED: list[Callable[[Scene], Awaited]] = [
    _await_ticket,
    _await_write,
    _await_read,
    _await_interrupt,
    _await_notification,
    _await_pending,
    _await_packet,
]
ASYNC_ENDINGS = ("removal", "card.close", "close", "cancel", "two waiters")


def _table(waits: list[Any], endings: tuple[str, ...]) -> list[Any]:
    served, cases = program() is not None, []
    for row, wait in enumerate(waits):
        for column, ending in enumerate(endings):
            for number, kind in enumerate(KINDS):
                if not LONG and number != (row + column) % len(KINDS):
                    continue
                skip = pytest.mark.skipif(kind == "served" and not served, reason="no fpgactl: cargo build -p fpgactl")
                name = f"{wait.__name__[1:]}-{ending}-{kind}"
                cases.append(pytest.param(wait, ending, kind, id=name, marks=skip))
    return cases


def _scene(make: Callable[[Scene], object], kind: str, folder: Path) -> Scene:
    stream = make in STREAMS or make is _await_packet
    scene = Scene(kind, folder, stream=stream)
    scene.stall("h2c0", *([] if stream else ["c2h0"]))
    return scene


class Waiter(threading.Thread):
    """Thread in a wait."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.error: Exception | None = None
        self.ended = 0.0
        self.start()

    def run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self.error = error
        self.ended = now()

    def delay(self, began: float) -> float:
        self.join(60)
        assert not self.is_alive(), "the wait does not end"
        return self.ended - began


def _interrupted(scene: Scene, wait: Wait, ending: str) -> float:
    """Wait in the main thread that a signal ends."""
    began = 0.0

    def handler(*_: object) -> None:
        nonlocal began
        began = now()
        if ending == "signal":
            raise Stop
        # The engine of the case does not stop: a close would wait for it.
        scene.remove()
        scene.card.close()

    old = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.03)
        # The handler removes the card before it closes it: the wait may be told of either.
        closed = (fpga_rdma.ClosedError, fpga_rdma.CardGoneError)
        with pytest.raises(Stop if ending == "signal" else closed):
            wait.call()
        return now() - began
    finally:
        signal.signal(signal.SIGALRM, old)


@pytest.mark.parametrize("make, ending, kind", _table(MEMORY + STREAMS, ENDINGS))
def test_wait_ends(
    make: Callable[[Scene], Wait], ending: str, kind: str, tmp_path: Path, delays: dict[str, float]
) -> None:
    with _scene(make, kind, tmp_path) as scene:
        wait = make(scene)
        if ending in ("signal", "handler closes"):
            delay = _interrupted(scene, wait, ending)
        else:
            if ending == "cancel" and wait.cancel is None:
                pytest.skip("nothing to cancel")
            waiters = [Waiter(wait.call) for _ in range(2 if ending == "two waiters" else 1)]
            waiters[0].join(0.03)
            begun, expected = now(), wait.cancelled
            if ending in ("removal", "two waiters"):
                scene.remove()
                # Of two waiters, one may be told of the end of a transfer, and not of the card.
                expected = fpga_rdma.FpgaError if ending == "two waiters" else fpga_rdma.CardGoneError
                helper = None
            else:
                end = {"card.close": scene.card.close, "close": wait.close, "cancel": wait.cancel}[ending]
                expected = wait.cancelled if ending == "cancel" else fpga_rdma.ClosedError
                # The engine of the case does not stop, which the end waits for.
                helper = Waiter(end or scene.card.close)
            delay = max(waiter.delay(begun) for waiter in waiters)
            scene.remove()
            if helper is not None:
                helper.join(60)
                assert not helper.is_alive()
            for waiter in waiters:
                assert isinstance(waiter.error, expected), repr(waiter.error)
    delays[f"{make.__name__[1:]}, {ending}, {kind}"] = delay
    assert delay < LIMIT


@pytest.mark.parametrize("make, ending, kind", _table(AWAITED, ASYNC_ENDINGS))
def test_await_ends(
    make: Callable[[Scene], Awaited], ending: str, kind: str, tmp_path: Path, delays: dict[str, float]
) -> None:
    async def main() -> float:
        wait = make(scene)
        tasks = [asyncio.create_task(wait.make()) for _ in range(2 if ending == "two waiters" else 1)]
        await asyncio.wait(tasks, timeout=0.03)
        began = now()
        expected: type[BaseException] = fpga_rdma.ClosedError
        helper = None
        if ending in ("removal", "two waiters"):
            scene.remove()
            expected = fpga_rdma.FpgaError if ending == "two waiters" else fpga_rdma.CardGoneError
        elif ending == "cancel":
            tasks[0].cancel()
            expected = asyncio.CancelledError
        else:
            helper = Waiter(scene.card.close if ending == "card.close" else wait.close)
        done, running = await asyncio.wait(tasks, timeout=60)
        delay = now() - began
        assert not running, "the wait does not end"
        scene.remove()
        for task in done:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            assert isinstance(error, expected), repr(error)
        while helper is not None and helper.is_alive():
            await asyncio.sleep(0.01)
        return delay

    with _scene(make, kind, tmp_path) as scene:
        delay = asyncio.run(main())
    delays[f"{make.__name__[1:]}, {ending}, {kind}"] = delay
    assert delay < LIMIT


@pytest.mark.parametrize("kind", KINDS[:2])
def test_interrupt_reaches_two_waiters(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        interrupt = scene.card.user_interrupt(3)
        tasks = [asyncio.create_task(_of(interrupt)) for _ in range(2)]
        pulses = 0
        while not all(task.done() for task in tasks):
            scene.pulse(3)
            pulses += 1
            await asyncio.sleep(0.01)
        counts = [task.result() for task in tasks]
        assert all(isinstance(count, dict) and list(count) == [3] for count in counts)

    with Scene(kind, tmp_path) as scene:
        asyncio.run(asyncio.wait_for(main(), 60))
        interrupt = scene.card.user_interrupt(4)
        waiters = [Waiter(interrupt.wait) for _ in range(2)]
        while any(waiter.is_alive() for waiter in waiters):
            scene.pulse(4)
            waiters[0].join(0.01)
        assert [waiter.error for waiter in waiters] == [None, None]
