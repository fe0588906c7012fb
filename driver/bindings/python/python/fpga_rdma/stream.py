"""AXI4-Stream channels: packets into a card and out of it.

The bitstream determines whether a card's channels are streams.

>>> import fpga_rdma
>>> with fpga_rdma.open("mock:us-plus-x8-stream") as card:  # loops its streams back
...     tx, rx = card.h2c_stream(0), card.c2h_stream(0)
...     tx.send(b"one packet")
...     rx.receive()
b'one packet'
"""

from __future__ import annotations

from dataclasses import dataclass

from . import _aio
from ._native import C2hStream, H2cStream, Packets
from .errors import UnsupportedError

__all__ = ["C2hStream", "H2cStream", "Packets", "ReceiveStatistics", "SendStatistics"]


@dataclass(frozen=True)
class SendStatistics:
    """Counters of a sending stream and of back-pressure by the card."""

    packets: int
    """Packets that have ended, successfully or not."""
    refused: int
    """Packets refused because the ring was full of packets that the card had not taken."""
    still: int
    """Number of times that the card took nothing of the posted packets for a tenth of a second."""


@dataclass(frozen=True)
class ReceiveStatistics:
    """Counters of a receiving stream."""

    packets: int
    """Packets received."""
    bytes: int
    """Bytes in these packets."""
    lost: int
    """Lost packets, each of them reported by a PacketLostError."""
    discarded_bytes: int
    """Bytes of lost packets, and of a packet that had begun when the stream was opened."""
    starved: int
    """Number of times that the card had filled every posted buffer, so that its stream stalled."""


class _Packets:
    """Packets of a stream until it is stopped. A wait that is cancelled has taken none."""

    def __init__(self, stream: C2hStream) -> None:
        self._stream = stream

    def __aiter__(self) -> _Packets:
        return self

    async def __anext__(self) -> bytes:
        packet = await _aio.until(self._poll, self._arm)
        if not isinstance(packet, bytes):
            raise StopAsyncIteration
        return packet

    def _poll(self) -> bytes | bool | None:
        packet = self._stream.try_receive()
        if packet is None and self._stream.stopped:
            return False
        return packet

    def _arm(self) -> int | None:
        try:
            self._stream.arm()
        except UnsupportedError:
            return None
        return self._stream.fileno()
