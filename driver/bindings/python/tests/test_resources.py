"""What cards hold of the process and of the device, and when it is given back."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from pathlib import Path

import numpy as np
import pytest
from scene import Scene, now, program

import fpga_rdma


def descriptors() -> list[str]:
    """What the descriptors of this process stand for."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            # That of the list itself.
            pass
    return sorted(found)


def resident() -> int:
    """Memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def use(card: fpga_rdma.Card) -> np.ndarray:
    """Use a card as a program that forgets to close it."""
    channel, memory = card.h2c[0], card.allocate(1 << 20)
    memory[:] = 1
    channel.submit(memory, 0)
    channel.write(bytes(5000), 0)
    card.c2h[0].read(memory, 0)
    card.user_interrupt(3)
    card.endpoint()
    return memory


def check_cards_that_are_dropped(threaded: bool) -> None:
    def once() -> None:
        use(fpga_rdma.sim.Network(1, threaded=threaded)[0].open(interrupts=True))
        gc.collect()

    for _ in range(3):
        once()
    before, memory = descriptors(), resident()
    for _ in range(12):
        once()
    assert descriptors() == before
    # A card has 5 MB.
    assert resident() - memory < 25 << 20


def test_cards_in_process_that_are_dropped_leave_nothing() -> None:
    check_cards_that_are_dropped(False)


def test_cards_in_threads_that_are_dropped_leave_nothing() -> None:
    check_cards_that_are_dropped(True)


@pytest.mark.skipif(program() is None, reason="no fpgactl: cargo build -p fpgactl")
def test_served_cards_that_are_dropped_leave_nothing(tmp_path: Path) -> None:
    with Scene("served", tmp_path) as scene:
        name = scene.card.name
        scene.card.close()
        before: list[str] = []
        for round in range(6):
            use(fpga_rdma.open(name, interrupts=True))
            gc.collect()
            before = before if round else descriptors()
        assert descriptors() == before


@pytest.mark.skipif(program() is None, reason="no fpgactl: cargo build -p fpgactl")
def test_served_card_opens_again_while_array_lives(tmp_path: Path) -> None:
    with Scene("served", tmp_path) as scene:
        name = scene.card.name
        memory = scene.card.allocate(5000)
        memory[:] = 7
        view = memory[100:200]
        scene.card.close()
        del memory
        for _ in range(2):
            with fpga_rdma.open(name) as again:
                other = again.allocate(100)
                again.h2c[0].write(view, 0x1000)
                again.c2h[0].read(other, 0x1000)
                assert (other == 7).all() and (view == 7).all()


def test_large_transfer_of_task_needs_little_dma_memory() -> None:
    """``FPGA_LONG=1``: 300 MiB, more than there is of DMA memory."""
    mebibytes = 300 if os.environ.get("FPGA_LONG") else 40
    length = mebibytes << 20
    sent = np.zeros(length, "u1")
    # One byte of each mebibyte, so that the pages of the rest are those of zeros.
    sent[:: 1 << 20] = np.arange(mebibytes) % 251 + 1

    async def main() -> np.ndarray:
        with fpga_rdma.open("mock") as card:
            got = np.empty(length, "u1")
            await card.h2c[0].write_async(sent, 0)
            await card.c2h[0].read_async(got, 0)
            # A call has four chunks of 1 MiB in flight.
            assert card.dma_memory.mapped_bytes <= 16 << 20, card.dma_memory
            return got

    assert (asyncio.run(main()) == sent).all()


def test_open_of_socket_without_answer_is_interrupted(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    began = 0.0

    def handler(*_: object) -> None:
        nonlocal began
        began = now()
        raise Stop

    path = str(tmp_path / "silent")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        old = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Stop):
                fpga_rdma.open(f"vfio-user:{path}")
            # Usually 20 ms; the limit of the connection is 4 s.
            assert now() - began < 2.0
        finally:
            signal.signal(signal.SIGALRM, old)
