"""Cards for tests of waits: in process (virtual time), in threads, served by another process; with an engine that does not end."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import fpga_rdma

KINDS = ("mock", "threaded", "served")
STREAM = "us-plus-x8-stream"
_number = itertools.count()


def program() -> str | None:
    """The program that serves cards: built in this workspace, or installed."""
    target = Path(__file__).parents[4] / "target"
    built = [target / profile / "fpgactl" for profile in ("release", "debug")]
    found = max((path for path in built if path.exists()), key=lambda path: path.stat().st_mtime, default=None)
    return os.environ.get("FPGACTL") or (str(found) if found else shutil.which("fpgactl"))


class Scene:
    """One card of a kind, opened with interrupts, and what happens to it."""

    def __init__(self, kind: str, folder: Path, *, stream: bool = False) -> None:
        self.kind = kind
        self._server: subprocess.Popen[bytes] | None = None
        self._network: fpga_rdma.sim.Network | None = None
        if kind == "served":
            path = program()
            assert path is not None
            name = str(folder / f"card{next(_number)}")
            self._control = f"{name}.control"
            card = ["--card-file", STREAM] if stream else []
            command = [path, "card", "serve", "--socket", name, "--control", self._control, *card]
            self._server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr)
            assert self._server.stdout is not None
            # "ready", and the end of the line.
            self._server.stdout.readline()
            self.card = fpga_rdma.open(f"vfio-user:{name}", interrupts=True)
        else:
            self._network = fpga_rdma.sim.Network([STREAM if stream else "mock"], threaded=kind == "threaded")
            self.card = self._network[0].open(interrupts=True)

    def _do(self, request: dict[str, Any]) -> None:
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(self._control)
            control.sendall(json.dumps(request).encode() + b"\n")
            answer = control.recv(65536)
        assert b"error" not in answer, answer

    def stall(self, *channels: str) -> None:
        """Engines of ``channels`` end no transfer, and do not stop."""
        if self._network is None:
            faults = [{"fault": "stall", "channel": channel} for channel in channels]
            self._do({"do": "faults", "faults": {"list": faults}})
        else:
            faults_text = ", ".join(f"{{fault: stall, channel: {channel}}}" for channel in channels)
            self._network[0].set_faults(f"list: [{faults_text}]")

    def remove(self) -> None:
        """Take the card out of its slot."""
        if self._network is None:
            self._do({"do": "pull-out"})
        else:
            self._network[0].fail("gone")

    def pulse(self, line: int) -> None:
        if self._network is None:
            self._do({"do": "pulse-user-interrupt", "line": line})
        else:
            self._network[0].pulse_user_interrupt(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # A stalled engine that is gone is not waited for.
            self.remove()
            self.card.close()
        finally:
            if self._server is not None:
                self._server.terminate()
                self._server.wait(60)
                assert self._server.stdout is not None
                self._server.stdout.close()


def now() -> float:
    return time.monotonic()
