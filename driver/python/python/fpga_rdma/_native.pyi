from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias, final

from numpy.typing import NDArray
from typing_extensions import Buffer

# numpy declares the buffer protocol of its arrays for Python 3.12 and newer only.
Memory: TypeAlias = Buffer | NDArray[Any]

__version__: str

def open(
    name: str,
    *,
    interrupts: bool = False,
    observe: bool = False,
    dma_bar: int | None = None,
    cdma_offset: int | None = None,
    network_interface: bool | None = None,
    card_memory: tuple[int, int] | None = None,
) -> Card:
    """Open a card.

    ``name``: a PCI address bound to vfio-pci, ``mock``, ``mock:NAME``, ``mock:FILE.yaml`` or ``vfio-user:SOCKET``.
    ``interrupts``: enable the card's interrupts, for waits that sleep and for ``await``.
    ``observe``: open for inspection only; nothing is stopped or configured, and channels cannot be taken.
    ``dma_bar``: number of the BAR with the XDMA registers, if it cannot be determined.
    ``cdma_offset``: offset in bytes of the CDMA's registers in the user BAR, for designs without an identity block.
    ``network_interface``: whether the design has this project's network interface; ``None`` decides by the PCI subsystem id.
    ``card_memory``: first address and length in bytes of the card's memory, for designs that do not report it.

    Raises OpenError, CardGoneError, WedgedError.
    """

@final
class Card:
    """An opened card. A context manager: it is closed at the end of a ``with`` block."""

    @property
    def name(self) -> str:
        """PCI address, or the name of a simulated card."""
    @property
    def closed(self) -> bool:
        """Whether the card was closed."""
    @property
    def h2c(self) -> Channels:
        """Channels from host to card."""
    @property
    def c2h(self) -> Channels:
        """Channels from card to host."""
    @property
    def dma_bar(self) -> Bar:
        """Registers of the DMA engine (PG195)."""
    @property
    def user_bar(self) -> Bar:
        """Registers of the design (AXI-Lite master)."""
    def close(self) -> None:
        """Close the card and everything that was taken from it. Transfers in flight are aborted. Can be called again."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class Channels:
    """Channels of one direction. A channel is taken when it is first indexed; it has one owner at a time."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> Channel: ...
    def __iter__(self) -> Iterator[Channel]: ...

@final
class Channel:
    """A DMA channel. Threads may share it: a call waits for a call of another thread."""

    @property
    def name(self) -> str:
        """``h2c0``, ``c2h1``."""
    def write(self, data: Memory, address: int, timeout: float | None = 10.0) -> None:
        """Write all bytes of ``data`` to card memory from ``address`` on, and wait.

        ``data``: any contiguous object with the buffer protocol. ``timeout`` is in seconds; ``None`` waits without a limit. Do not
        change ``data`` during the call. When the call ends early, the engine is stopped; an unknown part was written.

        Raises RangeError (nothing was written), TimedOutError, TransferFault, CardGoneError, WedgedError.
        """
    def read(self, into: Memory, address: int, timeout: float | None = 10.0) -> None:
        """Read card memory from ``address`` on into all bytes of ``into``, and wait.

        ``into``: any contiguous writable object with the buffer protocol. When the call ends early, an unknown part was read.

        Raises as :meth:`write`.
        """
    def close(self) -> None:
        """Give the channel back. Transfers in flight are aborted. Indexing the card again takes it anew."""

@final
class Bar:
    """Registers in one BAR. Offsets are in bytes. Writes are posted: a write has been sent, and may not have arrived."""

    def __len__(self) -> int:
        """Size in bytes."""
    def read32(self, offset: int) -> int: ...
    def write32(self, offset: int, value: int) -> None: ...
    def read64(self, offset: int) -> int: ...
    def write64(self, offset: int, value: int) -> None: ...
    def __getitem__(self, offset: int, /) -> int:
        """As :meth:`read32`."""
    def __setitem__(self, offset: int, value: int, /) -> None:
        """As :meth:`write32`."""

@final
class Network:
    """Simulated cards and the network between them.

    ``cards``: their number, or a sequence of names: built-in cards (``"us-x8"``), files of card descriptions, ``"mock"``. Nodes are numbered
    from 1. ``loss``, ``duplicates``, ``damage``: probabilities per frame, 0 to 1. ``reorder``: number of frames from which the next one
    is drawn at random; 0 delivers in order. ``delay``: propagation delay in seconds. ``rate``: bits per second; ``None``: frames take no time.
    ``seed``: of all random choices. ``threaded``: the cards have a thread of their own, as hardware works beside the program; time is real.

    Raises OpenError, ValueError.
    """

    def __new__(
        cls,
        cards: int | Sequence[str] | None = None,
        *,
        loss: float = 0.0,
        duplicates: float = 0.0,
        damage: float = 0.0,
        reorder: int = 0,
        delay: float = 0.0,
        rate: float | None = None,
        seed: int = 0,
        threaded: bool = False,
    ) -> Self: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> SimulatedCard: ...
    def __iter__(self) -> Iterator[SimulatedCard]: ...
    def open(self, *, interrupts: bool = False) -> list[Card]:
        """Open all cards."""
    @property
    def threaded(self) -> bool:
        """Whether the cards have a thread of their own."""
    @property
    def now(self) -> float:
        """Virtual time in seconds; the time since the network was made if it is threaded."""
    @property
    def counters(self) -> dict[str, int]:
        """Numbers of frames ``sent``, ``lost``, ``duplicated``, ``damaged``, ``delivered``, and of ``bytes``."""
    def step(self) -> bool:
        """Do one unit of work. Returns whether there was any."""
    def step_until_idle(self) -> int:
        """Work until there is nothing to do now; timers do not count. Returns the number of units."""
    def advance(self, span: float) -> None:
        """Let ``span`` seconds pass, and do the work that falls due. Sleeps if the network is threaded."""

@final
class SimulatedCard:
    """One simulated card, from the side of its design and its slot."""

    @property
    def index(self) -> int:
        """Position in the network."""
    @property
    def fault_progress(self) -> list[tuple[int, int]]:
        """Opportunities and strikes of each fault of the plan."""
    def open(self, *, interrupts: bool = False) -> Card:
        """Open the card for a program. Open it once at a time."""
    def peek(self, address: int, length: int) -> bytes:
        """Read card memory without an access by software."""
    def poke(self, address: int, data: Memory) -> None:
        """Write card memory without an access by software."""
    def poison(self, address: int, length: int) -> None:
        """Make a range of card addresses answer with errors from now on; a length of 0 ends it."""
    def silence(self, address: int, length: int) -> None:
        """Make a range of card addresses never answer from now on: an engine that accesses it hangs until a reset."""
    def set_faults(self, plan: str) -> None:
        """Replace the fault plan: YAML text, the ``faults`` section of a card file. Empty text removes it."""
    def fail(self, how: str = "gone") -> None:
        """Make the card fail: ``"gone"`` removes it from the bus, ``"all-ones"`` lets its registers read as ones, ``"none"`` ends it."""
    def replug(self) -> None:
        """Insert the card again, in its power-on state."""
    def set_user_interrupt(self, line: int, asserted: bool) -> None:
        """Raise or lower a user interrupt line (0 to 15), and hold it."""
    def pulse_user_interrupt(self, line: int) -> bool:
        """Raise a user interrupt line until it is acknowledged. Returns whether it has been."""
