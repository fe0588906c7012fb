from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias, final

from numpy.typing import NDArray
from typing_extensions import Buffer

from .stream import ReceiveStatistics, SendStatistics

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
    def h2c_stream(self, number: int) -> H2cStream:
        """Take stream channel ``number`` from host to card. Raises UnsupportedError if the channels access memory, InUseError."""
    def c2h_stream(self, number: int, *, buffers: int = 64, buffer_size: int = 4096) -> C2hStream:
        """Take stream channel ``number`` from card to host.

        ``buffers``: number of buffers that the card fills, a power of two from 2 to 65536. ``buffer_size``: size of each in bytes, a multiple
        of 64. A packet takes as many buffers as it needs; all of them together hold the longest packet.

        Raises UnsupportedError if the channels access memory, InUseError, RangeError, DmaMemoryError.
        """
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

@final
class H2cStream:
    """Stream channel from host to card. A context manager. Threads may share it.

    Every call sends one packet; packets arrive in order. Nothing is dropped: a card that takes no data lets sends time out.
    """

    @property
    def name(self) -> str:
        """``h2c0``."""
    @property
    def in_flight(self) -> int:
        """Number of submitted packets that the card has not taken."""
    @property
    def statistics(self) -> SendStatistics:
        """Counters since the stream was taken."""
    def send(self, data: Memory | Sequence[Memory], timeout: float | None = 10.0) -> None:
        """Send one packet, and wait until the card has taken it.

        ``data``: a contiguous object with the buffer protocol, or a list or tuple of them, such as ``[header, payload]``, which are sent
        one after the other. At least one byte. ``timeout`` is in seconds; ``None`` waits without a limit.

        Raises TimedOutError (the packet stays in flight, and is sent when the card takes it), TransferFault, DmaMemoryError, CardGoneError.
        """
    def submit(self, data: Memory | Sequence[Memory]) -> None:
        """Copy and queue a packet, as for :meth:`send`, without a wait. The next :meth:`poll`, :meth:`flush` or :meth:`send` starts it.

        Raises RingFullError (call ``poll()``, then submit again), and the error of an earlier packet that failed.
        """
    def poll(self) -> int:
        """Start queued packets. Returns the number in flight. Raises the error of an earlier packet that failed."""
    def flush(self, timeout: float | None = 10.0) -> None:
        """Wait until the card has taken every submitted packet. Raises TimedOutError, and the error of a packet that failed."""
    def abort(self) -> int:
        """Stop the engine and drop the packets in flight. Returns their number.

        A packet whose sending had begun stays open in the card: the next packet continues it. Raises WedgedError if the card takes no data.
        """
    def close(self) -> None:
        """Give the channel back. Packets in flight are dropped. Can be called again."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class C2hStream:
    """Stream channel from card to host. A context manager. Threads may share it.

    ``for packet in stream`` and ``async for packet in stream`` end after :meth:`stop`. The first call that receives posts the buffers; until
    then, and while all buffers are full, the card's stream stalls, and nothing is lost.
    """

    @property
    def name(self) -> str:
        """``c2h0``."""
    @property
    def posted(self) -> int:
        """Number of buffers that the card has not filled."""
    @property
    def stopped(self) -> bool:
        """Whether :meth:`stop` was called and nothing is posted any more."""
    @property
    def statistics(self) -> ReceiveStatistics:
        """Counters since the stream was taken."""
    def receive(self, timeout: float | None = 10.0) -> bytes:
        """Wait for the next packet. ``timeout`` is in seconds; ``None`` waits without a limit.

        Raises TimedOutError (the buffers stay posted), PacketLostError, StreamStoppedError, TransferFault, CardGoneError.
        """
    def receive_into(self, into: Memory, timeout: float | None = 10.0) -> int:
        """Wait for the next packet and copy it from the card's buffers into ``into``. Returns its length in bytes.

        ``into``: a contiguous writable object with the buffer protocol. Raises as :meth:`receive`; RangeError if the packet is longer: it is
        kept for the next call.
        """
    def try_receive(self) -> bytes | None:
        """Return the next packet if it has arrived. Raises as :meth:`receive`."""
    def packets(self, *, timeout: float | None = None) -> Packets:
        """Iterate over packets until the stream is stopped. Each one is waited for ``timeout`` seconds; then TimedOutError is raised."""
    def __iter__(self) -> Packets: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...
    def stop(self) -> None:
        """Post no more buffers. Packets that have arrived can still be received.

        Many cards close a waiting buffer at once; on others it waits for one more packet, so send a last one that fits into a buffer.
        """
    def abort(self) -> None:
        """Stop the engine and drop what was posted. Complete packets can still be received; the next call to receive starts again.

        Raises WedgedError if the engine waits for data: only data or a reset of the card ends that.
        """
    def fileno(self) -> int:
        """Descriptor that is readable after an interrupt, for ``select`` and event loops. Raises UnsupportedError without interrupts.

        In each round: :meth:`arm`, receive what has arrived, then wait until the descriptor is readable.
        """
    def arm(self) -> None:
        """Take the interrupts that have arrived, and enable one for every later packet. Raises UnsupportedError without interrupts."""
    def close(self) -> None:
        """Give the channel back. Ends waits of other threads with ClosedError. Can be called again."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class Packets:
    """Iterator over the packets of a stream."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...
