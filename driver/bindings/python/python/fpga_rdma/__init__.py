"""User-space driver for FPGA cards with Xilinx XDMA and AXI CDMA.

Names of cards: ``"0000:65:00.0"`` (bound to vfio-pci), ``"mock"`` (a simulated card in this process),
``"mock:us-x8"``, ``"mock:FILE.yaml"``, ``"vfio-user:SOCKET"``, ``"rtl:FOLDER"``,
``"shared:CARD"``.

>>> import fpga_rdma
>>> card = fpga_rdma.open("mock")
>>> card.h2c[0].write(b"twelve bytes", 0x1000)
>>> data = bytearray(12)
>>> card.c2h[0].read(data, 0x1000)
>>> data
bytearray(b'twelve bytes')
>>> card.close()

Addresses, offsets and lengths are in bytes, times in seconds.
"""

from __future__ import annotations

from . import endpoint, frames, sim, stream
from ._native import Bar, Buffer, Card, Cdma, Channel, Channels, Map, Ticket, UserInterrupt, __version__, open
from .errors import (
    CardGoneError,
    ClosedError,
    DmaMemoryError,
    FpgaError,
    InUseError,
    MapError,
    NoRegisterError,
    OpenError,
    OtherProcessError,
    PacketLostError,
    RangeError,
    ReadFailedError,
    RefusedError,
    RingFullError,
    SendFailedError,
    StreamStoppedError,
    TimedOutError,
    TransferFault,
    UnsupportedError,
    WedgedError,
)
from .info import CardInfo, DmaMemory, RecoveryReport, RecoveryStep, RegisterInfo, UserInterruptState

__all__ = [
    "Bar",
    "Buffer",
    "Card",
    "CardGoneError",
    "CardInfo",
    "Cdma",
    "Channel",
    "Channels",
    "ClosedError",
    "DmaMemory",
    "DmaMemoryError",
    "FpgaError",
    "InUseError",
    "Map",
    "MapError",
    "NoRegisterError",
    "OpenError",
    "OtherProcessError",
    "PacketLostError",
    "RangeError",
    "ReadFailedError",
    "RecoveryReport",
    "RecoveryStep",
    "RefusedError",
    "RegisterInfo",
    "RingFullError",
    "SendFailedError",
    "StreamStoppedError",
    "Ticket",
    "TimedOutError",
    "TransferFault",
    "UnsupportedError",
    "UserInterrupt",
    "UserInterruptState",
    "WedgedError",
    "__version__",
    "endpoint",
    "frames",
    "open",
    "sim",
    "stream",
]
