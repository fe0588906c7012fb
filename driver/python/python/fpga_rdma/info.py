"""Properties and reports, as dataclasses."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CardInfo", "DmaMemory"]


@dataclass(frozen=True, kw_only=True)
class CardInfo:
    """Properties of an opened card."""

    name: str
    """PCI address, or the simulated card's name."""
    vendor: int
    """PCI vendor id."""
    device: int
    """PCI device id."""
    subsystem_vendor: int
    """PCI subsystem vendor id."""
    subsystem_device: int
    """PCI subsystem device id."""
    h2c_channels: int
    """Number of channels from host to card, 0 to 4."""
    c2h_channels: int
    """Number of channels from card to host, 0 to 4."""
    stream: bool
    """The channels are AXI4-Stream, not memory mapped."""
    data_width: int | None
    """Width of the data path in bits; ``None`` if the card does not report it."""
    max_payload: int | None
    """Negotiated maximum payload of a PCIe packet in bytes."""
    max_read_request: int | None
    """Maximum PCIe read request in bytes."""
    dma_bar: int
    """Number of the BAR with the XDMA registers."""
    user_bar: int | None
    """Number of the BAR of the design, if there is one."""
    cdma_offset: int | None
    """Offset of the CDMA registers in the user BAR in bytes, if it is known."""
    memory: tuple[tuple[int, int], ...]
    """Ranges of card memory, as first address and length in bytes; empty if they are not known."""
    network_interface: bool
    """The card has this project's network interface."""


@dataclass(frozen=True, kw_only=True)
class DmaMemory:
    """Host memory that is mapped for a card."""

    mapped_bytes: int
    """Size of the card's pool in bytes."""
    in_use: int
    """Number of allocations: rings of channels, buffers, arrays."""
    in_use_bytes: int
    """Bytes of the allocations."""
    registered: int
    """Number of areas that ``Card.register`` has pinned."""
    registered_bytes: int
    """Bytes of these areas."""
    quarantined: int
    """Number of allocations that an engine may still reach, because it could not be stopped. They are never freed."""
    quarantined_bytes: int
    """Bytes of these allocations."""
