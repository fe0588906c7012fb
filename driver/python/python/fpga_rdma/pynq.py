"""Helpers with the names of PYNQ, for programs that move from it.

>>> import fpga_rdma
>>> from fpga_rdma import pynq
>>> card = fpga_rdma.open("mock")
>>> frame = pynq.allocate((16, 16), "u4", target=card, address=0x10000)
>>> frame[:] = 7
>>> frame.sync_to_device()
>>> frame[:] = 0
>>> frame.sync_from_device()
>>> int(frame.sum())
1792
>>> mmio = pynq.MMIO(card, 0x1000, 0x40)
>>> mmio.write(0x18, 0x2000)
>>> hex(mmio.read(0x18))
'0x2000'
>>> frame.freebuffer()
>>> card.close()

On a Zynq, program and design share one memory; a PCIe card has its own. A buffer here is host memory with a place in card memory
(``address``), which ``sync_to_device`` writes and ``sync_from_device`` reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from ._native import Card, Channel, Ticket

__all__ = ["DMA", "MMIO", "PynqBuffer", "allocate"]


class MMIO:
    """Registers of ``length`` bytes from ``offset`` on in the user BAR. Offsets of accesses count from there."""

    def __init__(self, card: Card, offset: int, length: int = 4) -> None:
        if offset % 4 or length % 4 or offset < 0 or length < 4 or offset + length > len(card.user_bar):
            raise ValueError(f"{length} bytes at offset {offset:#x}: give multiples of 4 inside the user BAR")
        self._bar = card.user_bar
        self.base_addr = offset
        self.length = length

    def _offset(self, offset: int) -> int:
        if not 0 <= offset <= self.length - 4:
            raise ValueError(f"offset {offset:#x} is not inside the {self.length} bytes")
        return self.base_addr + offset

    def read(self, offset: int = 0) -> int:
        """Reads the 32-bit register at ``offset``."""
        return self._bar.read32(self._offset(offset))

    def write(self, offset: int, data: int) -> None:
        """Writes the 32-bit register at ``offset``."""
        self._bar.write32(self._offset(offset), data)

    @property
    def array(self) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Copy of all registers, read now. (PYNQ's is a view; a design's registers are not memory.)"""
        return np.array([self.read(offset) for offset in range(0, self.length, 4)], np.uint32)


class PynqBuffer(np.ndarray[Any, np.dtype[Any]]):
    """numpy array in DMA memory, with a place in card memory."""

    card: Card | None
    """The card; ``None`` for results of computations, which are not in DMA memory."""
    address: int
    """Card address of the first byte."""

    def __array_finalize__(self, origin: object) -> None:
        self.card = None
        self.address = 0
        if isinstance(origin, PynqBuffer) and origin.card is not None and np.may_share_memory(self, origin):
            self.card = origin.card
            self.address = origin.address + self.ctypes.data - origin.ctypes.data

    def _card(self) -> Card:
        if self.card is None:
            raise ValueError("the array is not in DMA memory: use pynq.allocate, or a part of such a buffer")
        return self.card

    @property
    def device_address(self) -> int:
        """Address of the first byte for the card's DMA engine (IOVA)."""
        return self._card().device_address(self)

    physical_address = device_address

    def sync_to_device(self) -> None:
        """Writes the array to card memory."""
        self._card().h2c[0].write(self, self.address)

    def sync_from_device(self) -> None:
        """Reads the array from card memory."""
        self._card().c2h[0].read(self, self.address)

    flush = sync_to_device
    invalidate = sync_from_device

    def freebuffer(self) -> None:
        """Ends the use of the buffer. The memory is freed with the last array over it."""
        self.card = None


def allocate(shape: int | Sequence[int], dtype: DTypeLike = "u4", *, target: Card, address: int = 0) -> PynqBuffer:
    """Allocates an array of zeros in DMA memory, for card memory from ``address`` on."""
    buffer = target.allocate(shape, dtype).view(PynqBuffer)
    buffer.card = target
    buffer.address = address
    return buffer


class _DmaChannel:
    """One direction of :class:`DMA`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._ticket: Ticket | None = None

    @property
    def idle(self) -> bool:
        """Whether no transfer is in flight."""
        return self._ticket is None or self._ticket.done()

    def transfer(self, array: PynqBuffer) -> None:
        """Starts a transfer of the buffer from or to its place in card memory."""
        if not self.idle:
            raise RuntimeError("a transfer is in flight: call wait() first")
        self._ticket = self._channel.submit(array, array.address)
        self._channel.poll()

    def wait(self) -> None:
        """Waits until the transfer has ended."""
        if self._ticket is not None:
            self._ticket.wait()


class DMA:
    """Both directions of a card: ``sendchannel`` writes to the card (H2C), ``recvchannel`` reads from it (C2H)."""

    def __init__(self, card: Card, number: int = 0) -> None:
        self.sendchannel = _DmaChannel(card.h2c[number])
        self.recvchannel = _DmaChannel(card.c2h[number])
