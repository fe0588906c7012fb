"""Clients of a shared card: each has a view of its own, and the card moves what the clients have asked for."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np
import pytest

import fpga_rdma
from scene import STREAM, program

WAIT = 120.0


class Shared:
    """A card that another process serves, and its owner."""

    def __init__(self, folder: Path, *, stream: bool = False) -> None:
        path = program()
        assert path is not None
        self._control = str(folder / "control")
        card = ["--card-file", STREAM] if stream else []
        served = str(folder / "served")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start([path, "card", "serve", "--socket", served, "--control", self._control, *card])
        self.name = f"vfio-user:{folder / 'shared'}"
        self._start([path, "card", "share", "--no-ni", "--card", f"vfio-user:{served}", "--socket", str(folder / "shared")])

    def _start(self, command: list[str]) -> None:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr)
        self._processes.append(process)
        assert process.stdout is not None and process.stdout.readline().startswith(b"ready")

    def moved(self) -> tuple[int, int]:
        """Bytes that the card has moved: from the host, to the host."""
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(self._control)
            control.sendall(b'{"do":"stats"}\n')
            answer = json.loads(control.makefile().readline())
        answer = answer.get("stats", answer)
        return answer["h2c_bytes"], answer["c2h_bytes"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.terminate()
            process.wait(WAIT)
            assert process.stdout is not None
            process.stdout.close()


pytestmark = pytest.mark.skipif(program() is None, reason="fpgactl is not built")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Shared]:
    with Shared(tmp_path) as shared:
        yield shared


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Shared]:
    with Shared(tmp_path, stream=True) as shared:
        yield shared


def data(length: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, length, np.uint8)


@pytest.mark.parametrize("run_mode", ["batch", "credit"])
def test_descriptors_in_flight_move_each_byte_once(memory: Shared, run_mode: Literal["batch", "credit"]) -> None:
    with fpga_rdma.open(memory.name) as card:
        out, back = card.h2c.open(0, run_mode=run_mode), card.c2h.open(3, run_mode=run_mode)
        before = memory.moved()
        sent, got = card.allocate((40, 5000), "u1"), card.allocate((40, 5000), "u1")
        sent[:] = data(40 * 5000, 1).reshape(40, 5000)
        tickets = [out.submit(row, 0x1000 + 5000 * number) for number, row in enumerate(sent)]
        for ticket in tickets:
            ticket.wait(WAIT)
        for ticket in [back.submit(row, 0x1000 + 5000 * number) for number, row in enumerate(got)]:
            ticket.wait(WAIT)
        assert (sent == got).all()
        after = memory.moved()
        assert (after[0] - before[0], after[1] - before[1]) == (200_000, 200_000)


def test_constant_address_mode_writes_each_beat_there(memory: Shared) -> None:
    with fpga_rdma.open(memory.name) as card:
        before = memory.moved()
        sent = data(8192, 2)
        with_beats = card.h2c.open(1, fixed_address=True)
        with_beats.write(sent, 0x400, WAIT)
        got = np.zeros(8192, "u1")
        card.c2h.open(1, fixed_address=True).read(got, 0x400, WAIT)
        assert (got.reshape(-1, 64) == sent[-64:]).all()
        around = np.ones(192, "u1")
        card.c2h[0].read(around, 0x3C0, WAIT)
        assert not around[:64].any() and (around[64:128] == sent[-64:]).all() and not around[128:].any()
        after = memory.moved()
        assert (after[0] - before[0], after[1] - before[1]) == (8192, 8192 + 192)


def test_packets_larger_than_buffers_arrive(streams: Shared) -> None:
    with fpga_rdma.open(streams.name) as card:
        tx, rx = card.h2c_stream(1), card.c2h_stream(1, buffers=256, buffer_size=4096)
        assert rx.try_receive() is None
        before = streams.moved()
        total = 0
        for length in (1, 64, 4095, 4097, 70_001, 400_000):
            sent = data(length, length)
            tx.submit(sent)
            while (got := rx.try_receive()) is None:
                tx.poll()
            assert got == sent.tobytes()
            total += length
        after = streams.moved()
        assert (after[0] - before[0], after[1] - before[1]) == (total, total)


def test_client_killed_in_packet_leaves_whole_packets(streams: Shared) -> None:
    client = textwrap.dedent(f"""
        import fpga_rdma, time
        card = fpga_rdma.open("{streams.name}")
        tx = card.h2c_stream(0)
        tx.submit(bytes(1_000_000))
        while True:
            tx.poll()
    """)
    killed = subprocess.Popen([sys.executable, "-c", client])
    while streams.moved()[0] == 0:
        assert killed.poll() is None
    killed.kill()
    killed.wait(WAIT)
    with fpga_rdma.open(streams.name) as card:
        rx = card.c2h_stream(0)
        # The owner ends the packet after what the card has taken.
        got = rx.receive(WAIT)
        assert 0 < len(got) < 1_000_000 and not any(got)
        tx = card.h2c_stream(0)
        sent = data(3000, 3)
        tx.send(sent, WAIT)
        assert rx.receive(WAIT) == sent.tobytes()
