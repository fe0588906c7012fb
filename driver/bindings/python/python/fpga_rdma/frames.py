"""Frame streams: one publisher sends live frames to many subscribers, without waiting for the slowest.

>>> import fpga_rdma
>>> near, far = fpga_rdma.sim.Network(2).open()
>>> publisher = near.publisher(1024)
>>> host, port = publisher.listen()
>>> subscriber = far.subscribe(host, port, poll=[publisher])
>>> publisher.publish(b"picture", b"12:00").sent == [subscriber.node]
True
>>> frame = subscriber.wait(poll=[publisher])
>>> frame.sequence, frame.value, frame.data
(0, b'12:00', b'picture')
>>> near.close(); far.close()

A publisher and a subscriber own the endpoint of their card. A publisher works while it is polled (``poll``); a subscriber polls itself in its
waits. Where one thread has both, the waits of the subscriber poll the publisher on request. A subscriber that is too slow misses frames, and
sees how many: :class:`Gap`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ._native import Publisher, Subscriber

__all__ = [
    "Ended",
    "Fault",
    "Frame",
    "Gap",
    "Published",
    "Publisher",
    "PublisherEvent",
    "PublisherStatistics",
    "Subscriber",
    "SubscriberState",
    "SubscriberStatistics",
]


@dataclass(frozen=True)
class Frame:
    """A received frame. Its bytes are the program's own: the slot was given back to the publisher."""

    sequence: int
    """Number in the stream."""
    value: bytes
    """Value in front of the data, which the publisher chose."""
    data: bytes
    """Data."""

    def __repr__(self) -> str:
        return f"Frame(sequence={self.sequence}, value={self.value!r}, data of {len(self.data)} bytes)"


@dataclass(frozen=True)
class Gap:
    """Frames that this subscriber does not get: it had no free slot, or they were lost in the network."""

    first: int
    """Sequence number of the first missed frame."""
    missed: int
    """Number of missed frames."""


@dataclass(frozen=True)
class Fault:
    """The publisher sent something invalid; the stream continues."""

    message: str
    """What was wrong."""


@dataclass(frozen=True)
class Ended:
    """The publisher has ended the stream, and all frames were read."""

    next: int
    """Sequence number that the next frame would have had."""


@dataclass(frozen=True)
class Published:
    """Which subscribers get a frame."""

    sequence: int
    """Number of the frame in the stream."""
    sent: list[int]
    """Nodes to which it is sent."""
    skipped: list[int]
    """Nodes that miss it, because they have no free slot."""


@dataclass(frozen=True)
class PublisherEvent:
    """Event of a publisher."""

    kind: str
    """``"joined"``, ``"dropped"``, ``"rejected"``, ``"upload-failed"``, ``"fault"``."""
    node: int | None
    """Node of the subscriber, if there is one."""
    message: str
    """What happened."""


@dataclass(frozen=True)
class PublisherStatistics:
    """Counters of a publisher since it was opened."""

    published: int
    """Frames published."""
    unsent: int
    """Frames that no subscriber was sent."""
    sent: int
    """Frames sent, counted per subscriber."""
    skipped: int
    """Frames skipped, counted per subscriber."""
    arrived: int
    """Frames that have arrived, counted per subscriber."""
    failed: int
    """Frames that failed in flight, counted per subscriber."""


@dataclass(frozen=True)
class SubscriberState:
    """Subscriber as its publisher sees it."""

    node: int
    """Its node."""
    slots: int
    """Number of its slots."""
    free_slots: int
    """Number of slots to which frames can be sent now."""
    sent: int
    """Frames sent to it."""
    skipped: int
    """Frames that it missed for want of a free slot."""
    arrived: int
    """Frames that have arrived."""
    failed: int
    """Frames that failed in flight."""


@dataclass(frozen=True)
class SubscriberStatistics:
    """Counters of a subscriber."""

    frames: int
    """Frames read."""
    bytes: int
    """Bytes of data in them."""
    gaps: int
    """Gaps."""
    missed: int
    """Frames missed in them."""
