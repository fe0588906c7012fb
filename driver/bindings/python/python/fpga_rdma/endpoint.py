"""Endpoints: transfers between the memories of cards over the network (RDMA).

>>> import fpga_rdma
>>> a_card, b_card = fpga_rdma.sim.Network(2).open()
>>> a, b = a_card.endpoint(), b_card.endpoint()
>>> region = b.open_region(a.node, 0x20000, 5)
>>> a_card.h2c[0].write(b"hello", 0x10000)
>>> done = a.send(0x10000, region.remote).wait()
>>> done.length, done.retransmits
(5, 0)
>>> arrived = b.notifications.wait()
>>> hex(arrived.address), arrived.length, arrived.node == a.node
('0x20000', 5, True)

A transfer needs polls of the sending node, and none of the receiving one; a read needs polls of both. Every wait polls its own endpoint.
Where one thread has both, a wait polls the other one on request: ``read.wait(poll=[b])``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from ._native import Endpoint, Notifications, Pending, Region

__all__ = [
    "ANY_NODE",
    "Endpoint",
    "EndpointCounters",
    "MemoryRange",
    "Notification",
    "Notifications",
    "Peer",
    "Pending",
    "ReadCompletion",
    "Region",
    "RemoteReadable",
    "RemoteRegion",
    "SendCompletion",
    "TransferView",
]

ANY_NODE = 0xFFFF_FFFF
"""As a peer of ``open_region``: every node may write."""

_REGION = struct.Struct("<4sIQQQ")
_READABLE = struct.Struct("<4sIQ32s")


class MemoryRange(NamedTuple):
    """Range of card memory."""

    start: int
    """First address."""
    length: int
    """Length in bytes."""


@dataclass(frozen=True)
class RemoteRegion:
    """Region of a node's card memory that another node may write. Pass it to the sender: it can be pickled, and converted to bytes."""

    node: int
    """Node that owns the memory."""
    address: int
    """First address."""
    length: int
    """Length in bytes."""
    key: int = field(repr=False)
    """Key that packets must carry. It protects against accidents, not against a node that reads the network's traffic."""

    def to_bytes(self) -> bytes:
        """The region as 32 bytes, as C programs write it with ``fpga_region_encode``."""
        return _REGION.pack(b"RGN\x01", self.node, self.address, self.length, self.key)

    @classmethod
    def from_bytes(cls, data: bytes, /) -> Self:
        """Read a region from its bytes. Raises ValueError."""
        if len(data) != _REGION.size or data[:4] != b"RGN\x01":
            raise ValueError(f"these {len(data)} bytes are not a region: pass the result of RemoteRegion.to_bytes")
        _, node, address, length, key = _REGION.unpack(data)
        return cls(node, address, length, key)


@dataclass(frozen=True)
class RemoteReadable:
    """Range of a node's card memory that another node may read. Pass it to the reader: it can be pickled, and converted to bytes."""

    node: int
    """Node that owns the memory."""
    length: int
    """Length in bytes."""
    mailbox: RemoteRegion = field(repr=False)
    """Region for requests."""

    def to_bytes(self) -> bytes:
        """The range as 48 bytes, as C programs write it with ``fpga_readable_encode``."""
        return _READABLE.pack(b"RDB\x01", self.node, self.length, self.mailbox.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes, /) -> Self:
        """Read a readable range from its bytes. Raises ValueError."""
        if len(data) != _READABLE.size or data[:4] != b"RDB\x01":
            raise ValueError(f"these {len(data)} bytes are not a readable range: pass the result of RemoteReadable.to_bytes")
        _, node, length, mailbox = _READABLE.unpack(data)
        return cls(node, length, RemoteRegion.from_bytes(mailbox))


@dataclass(frozen=True)
class SendCompletion:
    """End of a transfer. Times are in seconds on the card's clock."""

    node: int
    """Receiving node."""
    length: int
    """Length in bytes."""
    segments: int
    """Number of segments."""
    silent_segments: int
    """Segments whose completion raised no event."""
    packets: int
    """Packets sent for the first time."""
    retransmits: int
    """Packets retransmitted."""
    started: float
    """Time of submission."""
    finished: float
    """Time at which the last segment was acknowledged, or at which the transfer was given up."""


@dataclass(frozen=True)
class ReadCompletion:
    """End of a read. Times are in seconds on the card's clock."""

    node: int
    """Node that owns the data."""
    length: int
    """Length in bytes."""
    started: float
    """Time of the call."""
    finished: float
    """Time at which the last byte was known to have arrived, or at which the read was given up."""


@dataclass(frozen=True)
class Notification:
    """Arrival of a whole transfer in this card's memory."""

    node: int
    """Sending node."""
    incarnation: int
    """Incarnation of the sender."""
    transfer: int
    """Number of the transfer at its sender."""
    address: int
    """Card address of the data."""
    length: int
    """Length in bytes."""
    time: int
    """Time of the arrival on the card's clock, in nanoseconds."""


@dataclass(frozen=True)
class Peer:
    """Capabilities of another node."""

    node: int
    incarnation: int
    """Incarnation of its endpoint."""
    wire_version: int
    """Newest wire version that it supports."""
    packet_size: int
    """Payload of a full packet in bytes."""
    mask_bits: int
    """Largest number of packets of a segment that it receives."""
    schemes: list[str]
    """Schemes of its endpoint."""
    registry_timeout: float
    """Time in seconds that its registry waits for a silent sender."""


@dataclass(frozen=True)
class TransferView:
    """A transfer that has not ended."""

    node: int
    """Receiving node."""
    address: int
    """Address of the first byte at the receiver."""
    length: int
    """Length in bytes."""
    remaining: int
    """Bytes that are not cut into segments yet."""
    segments: int
    """Number of segments."""
    outstanding: int
    """Segments sent and not acknowledged."""
    acknowledged: int
    """Packets acknowledged."""
    packets: int
    """Packets sent for the first time."""
    retransmits: int
    """Packets retransmitted."""


@dataclass(frozen=True)
class EndpointCounters:
    """Counters since the endpoint was opened."""

    packets: int
    """Packets sent for the first time."""
    retransmits: int
    """Packets retransmitted."""
    acknowledged: int
    """Packets acknowledged."""
    timeouts: int
    """Packets that were not answered in time."""
    busy: int
    """Answers of a receiver that was busy."""
    not_ready: int
    """Answers of a receiver without room for a notification."""
    trimmed: int
    """Answers about packets whose payload a switch had cut off."""
    refused: int
    """Packets refused for good."""
    segments: int
    """Segments acknowledged."""
    completed: int
    """Transfers that succeeded."""
    failed: int
    """Transfers that failed."""
    events: int
    """Events taken from the card."""
    notifications: int
    """Arrivals."""
    faults: int
    """Fault events of the card."""
    events_dropped: int
    """Events that the card dropped because the event ring was full."""
    reads_served: int
    """Requests of other nodes that were answered."""
    reads_refused: int
    """Requests of other nodes that were refused."""
