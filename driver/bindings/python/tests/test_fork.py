"""Fork: a child uses nothing of its parent's cards, and changes nothing for the parent when it ends."""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scene import KINDS, Scene, program

import fpga_rdma

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
LIMIT = 60.0
"""Seconds after which a child counts as hung."""
KINDS_HERE = [
    pytest.param(kind, marks=pytest.mark.skipif(kind == "served" and program() is None, reason="no fpgactl"))
    for kind in KINDS
]


def moves(scene: Scene, seed: int) -> None:
    """Check that the card of this process works."""
    sent = np.random.default_rng(seed).integers(0, 256, 5000, np.uint8)
    memory, got = scene.card.allocate(5000), bytearray(5000)
    memory[:] = sent
    ticket = scene.card.h2c[0].submit(memory, 0x2000)
    ticket.wait(LIMIT)
    scene.card.c2h[0].read(got, 0x2000, LIMIT)
    assert bytes(got) == sent.tobytes()


def calls_of_memory(scene: Scene) -> dict[str, Callable[[], object]]:
    """Calls of every kind of object of a card, by their names."""
    card = scene.card
    channel, memory = card.h2c[0], card.allocate(4096)
    buffer = card.buffer(4096)
    interrupt, endpoint = card.user_interrupt(3), card.endpoint()
    registers = card.parse_map("{schema_version: 1, name: d, blocks: [{name: b, offset: 0, registers: [{name: r, offset: 0}]}]}")
    in_flight = channel.submit(memory, 0)

    async def write() -> None:
        await channel.write_async(bytes(64), 0)

    async def of(awaitable: Any) -> None:
        await awaitable

    return {
        "info": lambda: card.info,
        "h2c": lambda: card.h2c[0],
        "len": lambda: len(card.c2h),
        "channel": lambda: card.c2h[1],
        "read32": lambda: card.dma_bar[0],
        "write32": lambda: card.dma_bar.write32(0x2000, 0),
        "register": lambda: int(registers.b.r),
        "allocate": lambda: card.allocate(64),
        "buffer": lambda: card.buffer(64),
        "register memory": lambda: card.register(bytearray(8192)),
        "view": lambda: memoryview(buffer),
        "buffer.close": buffer.close,
        "device_address": lambda: card.device_address(memory),
        "write": lambda: channel.write(bytes(64), 0),
        "write in place": lambda: channel.write(memory, 0, None),
        "submit": lambda: channel.submit(memory, 0),
        "write_batch": lambda: channel.write_batch(memory, [0], [0], 64),
        "in_flight": lambda: channel.in_flight,
        "poll": channel.poll,
        "wait": lambda: channel.wait(None),
        "abort": channel.abort,
        "ticket.done": in_flight.done,
        "ticket.wait": lambda: in_flight.wait(None),
        "ticket.cancel": in_flight.cancel,
        "write_async": lambda: asyncio.run(write()),
        "await ticket": lambda: asyncio.run(of(in_flight)),
        "interrupt.wait": interrupt.wait,
        "interrupt.take": interrupt.take,
        "await interrupt": lambda: asyncio.run(of(interrupt)),
        "endpoint.poll": endpoint.poll,
        "notifications": lambda: endpoint.notifications.wait(None),
        "endpoint.close": endpoint.close,
        "interrupt.close": interrupt.close,
        "channel.close": channel.close,
        "recover": lambda: card.recover(),
        "card.close": card.close,
    }


def calls_of_streams(scene: Scene) -> dict[str, Callable[[], object]]:
    send, receive = scene.card.h2c_stream(0), scene.card.c2h_stream(0)

    async def packet() -> None:
        await anext(aiter(receive))

    return {
        "send": lambda: send.send(bytes(64), None),
        "submit": lambda: send.submit(bytes(64)),
        "flush": lambda: send.flush(None),
        "send.poll": send.poll,
        "send.abort": send.abort,
        "receive": lambda: receive.receive(None),
        "receive_into": lambda: receive.receive_into(bytearray(64)),
        "try_receive": receive.try_receive,
        "packets": lambda: next(iter(receive)),
        "async for": lambda: asyncio.run(packet()),
        "stop": receive.stop,
        "receive.close": receive.close,
        "send.close": send.close,
    }


def use(calls: dict[str, Callable[[], object]], said: Connection) -> None:
    """In the child: make the calls, and report those that are not refused."""
    wrong: list[str] = []
    for name, call in calls.items():
        try:
            call()
            wrong.append(f"{name}: not refused")
        except fpga_rdma.OtherProcessError as error:
            if error.advice != "open the card in this process" or "belongs to process" not in error.message:
                wrong.append(f"{name}: {error}")
        except BaseException as error:
            wrong.append(f"{name}: {error!r}")
    # A child has cards of its own.
    try:
        with fpga_rdma.open("mock") as own:
            own.h2c[0].write(bytes(64), 0)
    except BaseException as error:
        wrong.append(f"own card: {error!r}")
    said.send(wrong)


def in_child(work: Callable[..., None], *arguments: object) -> Any:
    """Run ``work`` in a forked child. Returns what it sends."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe(duplex=False)
    child = context.Process(target=work, args=(*arguments, its))
    child.start()
    its.close()
    try:
        assert mine.poll(LIMIT), "the child hangs"
        said = mine.recv()
        child.join(LIMIT)
        assert child.exitcode == 0
        return said
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("kind", KINDS_HERE)
def test_child_is_refused_and_parent_continues(kind: str, tmp_path: Path) -> None:
    with Scene(kind, tmp_path) as scene:
        calls = calls_of_memory(scene)
        assert in_child(use, calls) == []
        for seed in range(3):
            moves(scene, seed)


@pytest.mark.parametrize("kind", KINDS_HERE[:2])
def test_child_is_refused_streams(kind: str, tmp_path: Path) -> None:
    with Scene(kind, tmp_path, stream=True) as scene:
        calls = calls_of_streams(scene)
        assert in_child(use, calls) == []
        calls["submit"]()
        calls["flush"]()


@pytest.mark.parametrize("threaded", [False, True])
def test_child_is_refused_networks(threaded: bool) -> None:
    network = fpga_rdma.sim.Network(2, threaded=threaded)
    card = network[0]
    cdma = network[1].open().cdma()
    calls: dict[str, Callable[[], object]] = {
        "cdma.copy": lambda: cdma.copy(0, 4096, 64),
        "cdma.close": cdma.close,
        "len": lambda: len(network),
        "card": lambda: network[0],
        "open": network.open,
        "now": lambda: network.now,
        "step": network.step,
        "advance": lambda: network.advance(0.001),
        "counters": lambda: network.counters,
        "peek": lambda: card.peek(0, 4),
        "poke": lambda: card.poke(0, bytes(4)),
        "fail": lambda: card.fail("gone"),
        "replug": card.replug,
        "interrupt": lambda: card.pulse_user_interrupt(3),
        "card.open": card.open,
    }
    assert in_child(use, calls) == []
    card.poke(0, b"parent")
    assert card.peek(0, 6) == b"parent"


@pytest.mark.parametrize("kind", KINDS_HERE)
def test_fork_during_calls_of_other_threads(kind: str, tmp_path: Path) -> None:
    """Locks that other threads hold at the fork stay locked in the child."""
    with Scene(kind, tmp_path) as scene:
        calls = calls_of_memory(scene)
        # Another thread ends the transfer, and its ticket keeps the outcome.
        for name in ("ticket.done", "ticket.wait", "ticket.cancel", "await ticket"):
            del calls[name]
        stop, problems = threading.Event(), list[BaseException]()

        def work(number: int) -> None:
            memory = scene.card.allocate(1 << 16)
            try:
                while not stop.is_set():
                    (scene.card.h2c, scene.card.c2h)[number][0].submit(memory, 0).wait(LIMIT)
                    scene.card.allocate(5000)
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(8):
                assert in_child(use, calls) == []
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not problems
        moves(scene, 7)


ENDS = """
import gc, os, sys
from pathlib import Path
from scene import Scene
from test_fork import calls_of_memory, moves

kind, folder, end = sys.argv[1:]
scene = Scene(kind, Path(folder))
child = None
try:
    calls = calls_of_memory(scene)
    with scene.card:
        child = os.fork()
        if child == 0 and end == "exit":
            sys.exit(7)
        if child == 0:
            scene.card, calls = None, None
            gc.collect()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        for seed in range(3):
            moves(scene, seed)
finally:
    if child != 0:
        scene.__exit__(None, None, None)
"""


@pytest.mark.parametrize("end", ["exit", "collected"])
@pytest.mark.parametrize("kind", KINDS_HERE)
def test_end_of_child_leaves_card_of_parent(kind: str, end: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDS, kind, str(tmp_path), end]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, timeout=2 * LIMIT)
    assert done.returncode == 0, done.stderr
