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


@dataclass(frozen=True, kw_only=True)
class RegisterInfo:
    """Description of a register or field, from a register map."""

    name: str
    """Full name: ``block.register`` or ``block.register.field``."""
    offset: int
    """Offset of the register in the user BAR in bytes."""
    low_bit: int
    """Lowest bit of the register that it has."""
    width: int
    """Number of bits."""
    access: str
    """Effect of reads and writes: ``rw``, ``ro``, ``wo``, ``rw1c``, ``rc``..."""
    reset: int | None
    """Value after a reset, if the map states it."""
    doc: str
    """Description."""
    values: dict[str, int]
    """Names of values."""


@dataclass(frozen=True, kw_only=True)
class UserInterruptState:
    """Level and mask of a user interrupt, read from the card."""

    line: int
    """Line number."""
    enabled: bool
    """The line is unmasked."""
    pending: bool
    """The design holds the line high."""
    vector: int
    """Vector that the card uses for it."""
    count: int | None
    """Number of interrupts that it has requested, on cards that count them."""


@dataclass(frozen=True, kw_only=True)
class RecoveryStep:
    """One step of a recovery."""

    step: str
    """Part or reset: ``h2c0``, ``cdma``, ``ni``, ``interrupts``, ``function``, ``bus``."""
    found: str
    """State before the step."""
    outcome: str
    """``recovered``, ``not-needed``, ``unsupported`` or ``failed``."""
    reason: str | None
    """Reason of the last two."""
    duration: float
    """Duration in seconds, on the card's clock."""


@dataclass(frozen=True, kw_only=True)
class RecoveryReport:
    """Report of a recovery."""

    card: str
    """Name of the card."""
    steps: tuple[RecoveryStep, ...]
    """Steps, in order."""
    healthy: bool
    """At the end the card answered, and no checked engine was busy."""
    reopen: bool
    """The card was reset: close it, then open it again."""
