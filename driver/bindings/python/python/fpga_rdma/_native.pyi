from collections.abc import AsyncIterator, Coroutine, Generator, Iterator, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Generic, Literal, Self, SupportsIndex, TypeAlias, TypeVar, final, overload, type_check_only

import numpy as np
import typing_extensions
from numpy.typing import DTypeLike, NDArray

from .endpoint import (
    EndpointCounters,
    MemoryRange,
    Notification,
    Peer,
    ReadCompletion,
    RemoteReadable,
    RemoteRegion,
    SendCompletion,
    TransferView,
)
from .info import CardInfo, DmaMemory, RecoveryReport, RegisterInfo, UserInterruptState
from .registers import Registers
from .frames import (
    Ended,
    Fault,
    Frame,
    Gap,
    Published,
    PublisherEvent,
    PublisherStatistics,
    SubscriberState,
    SubscriberStatistics,
)
from .stream import ReceiveStatistics, SendStatistics

# numpy declares the buffer protocol of its arrays for Python 3.12 and newer only.
Memory: TypeAlias = typing_extensions.Buffer | NDArray[Any] | np.generic
Numbers: TypeAlias = Memory | Sequence[int]
T = TypeVar("T", bound=np.generic)

__version__: str

def _nbytes(object: Memory, writable: bool) -> int: ...

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

    ``name``: a PCI address bound to vfio-pci, ``mock``, ``mock:NAME``, ``mock:FILE.yaml``, ``vfio-user:SOCKET``,
    ``rtl:FOLDER`` or ``shared:CARD``.
    ``interrupts``: enable the card's interrupts, for waits that sleep and for ``await``.
    ``observe``: open for inspection only; nothing is stopped or configured, and channels cannot be taken.
    ``dma_bar``: number of the BAR with the XDMA registers, if it cannot be determined.
    ``cdma_offset``: offset in bytes of the CDMA's registers in the user BAR, for designs without an identity block.
    ``network_interface``: whether the design has this project's network interface; ``None`` decides by the PCI subsystem id.
    ``card_memory``: first address and length in bytes of the card's memory, for designs that do not report it.

    Raises OpenError, CardGoneError, WedgedError.
    """

@type_check_only
class _ContextManager:
    """Methods of objects that a ``with`` block closes."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class Card(_ContextManager):
    """An opened card. A context manager: it is closed at the end of a ``with`` block."""

    @property
    def name(self) -> str:
        """PCI address, or the name of a simulated card."""
    @property
    def closed(self) -> bool:
        """Whether the card was closed."""
    @property
    def info(self) -> CardInfo:
        """Properties of the card, read when it was opened."""
    @property
    def dma_memory(self) -> DmaMemory:
        """Host memory that is mapped for the card, now."""
    @property
    def h2c(self) -> Channels:
        """Channels from host to card."""
    @property
    def c2h(self) -> Channels:
        """Channels from card to host."""
    def endpoint(
        self,
        *,
        scheme: str = "registry",
        other_schemes: Sequence[str] = (),
        channel: int | None = None,
        read_channel: int | None = None,
        segment: int | None = None,
        big_threshold: int | None = None,
        event_ring: int = 16384,
        event_line: int = 0,
        incarnation: int | None = None,
        incarnation_file: str | PathLike[str] | None = None,
        packets: int | None = None,
        transfers: int | None = None,
        destinations: int | None = None,
        source_alignment: int | None = None,
        window: int | None = None,
        round_trip: float | None = None,
        timeout: float | None = None,
        give_up: float | None = None,
        registry_timeout: float | None = None,
        escape_timeout: float | None = None,
    ) -> Endpoint:
        """Open the card's endpoint on the network. A card has one at a time.

        ``scheme``: default scheme, which all nodes run: ``"registry"`` (this host sends), or ``"receiver-window"``, ``"adaptive-window"``,
        ``"selective"`` (the card sends by itself). ``other_schemes``: schemes that single transfers may use. ``channel``, ``read_channel``: H2C channel that the endpoint takes, C2H channel that it takes to serve reads;
        ``None``: the last ones. ``segment``, ``big_threshold``: bytes. ``event_ring``: entries, a power of two from 64. ``event_line``: user
        interrupt that ends a sleep. ``incarnation``: number of this incarnation; other nodes refuse one that is not later than every earlier
        one. ``None`` chooses it from the clock, the card and ``incarnation_file``, the file with the last number, which keeps the order when
        the clock is set back. The file is created if needed, and ignored if it cannot be used; ``None``: ``/var/lib/fpga/incarnation``, or
        ``fpga/incarnation`` in the user's state directory, and no file for simulated cards. ``packets``: largest number in flight.
        ``transfers``, ``destinations``: largest numbers at a time. ``source_alignment``: bytes, for a copy engine without data realignment. ``window``: packets.
        ``round_trip``, ``escape_timeout``: seconds. ``timeout``: seconds without an answer after which a packet is sent again; ``None`` adapts
        it. ``give_up``: seconds without an answer after which a transfer fails. ``registry_timeout``: seconds that this card keeps a partly
        received transfer of a silent sender.

        Raises UnsupportedError (no network interface, or not this scheme), InUseError, RangeError, DmaMemoryError.
        """
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
    @overload
    def allocate(self, shape: int | Sequence[int]) -> NDArray[np.uint8]: ...
    @overload
    def allocate(self, shape: int | Sequence[int], dtype: type[T] | np.dtype[T]) -> NDArray[T]: ...
    @overload
    def allocate(self, shape: int | Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """Allocate a numpy array of zeros in DMA memory. Transfers of it, and of its contiguous parts, copy nothing.

        >>> import fpga_rdma
        >>> card = fpga_rdma.open("mock")
        >>> frame = card.allocate((480, 640), "u2")
        >>> frame[:] = 7
        >>> card.h2c[0].write(frame, 0x10000)
        >>> card.h2c[0].write(frame[10:20], 0x10000)
        >>> card.close()

        Raises DmaMemoryError.
        """
    def buffer(self, length: int) -> Buffer:
        """Allocate ``length`` bytes of DMA memory, all 0."""
    def register(self, memory: Memory, *, access: Literal["read", "write", "both"] = "both") -> Buffer:
        """Pin memory of another origin, so that transfers of it copy nothing. Close the result to unpin it; a context manager.

        ``memory``: whole pages, such as an ``mmap`` or an aligned array. ``access``: what the card may do: ``"read"`` for H2C, ``"write"``
        for C2H. The memory can be neither freed nor resized until the result is closed. During a transfer leave it alone: nothing checks.

        Raises DmaMemoryError (not whole pages, or no more can be locked), InUseError (registered already).
        """
    def device_address(self, memory: Memory) -> int:
        """Address for the card (IOVA) of an object in DMA memory. Raises ValueError for other memory."""
    def load_map(self, path: str | PathLike[str]) -> Registers:
        """Load a register map of the design, a YAML file. Its registers are the attributes of the result, and of :attr:`regs`.

        Raises MapError with line and key.
        """
    def parse_map(self, text: str, name: str = "map") -> Registers:
        """As :meth:`load_map`, from text; ``name`` stands for the file in messages."""
    @property
    def regs(self) -> Registers:
        """Registers of the design by name: ``card.regs.scaler.window = 3``. See :mod:`fpga_rdma.registers`.

        Raises UnsupportedError before :meth:`load_map`.
        """
    def user_interrupt(self, *lines: int) -> UserInterrupt:
        """Take one or several user interrupts, and enable them. A line that is already high interrupts at once.

        Raises UnsupportedError (no such line), InUseError.
        """
    @property
    def user_interrupt_states(self) -> list[UserInterruptState]:
        """Levels and masks of all user interrupts, read now."""
    def cdma(self, offset: int | None = None) -> Cdma:
        """Take the copy engine. ``offset``: of its registers in the user BAR in bytes, for designs that do not report it.

        Raises UnsupportedError, InUseError.
        """
    def recover(
        self,
        max_level: Literal["channel", "function", "bus"] = "channel",
        *,
        at_least: Literal["channel", "function", "bus"] | None = None,
        channel: str | None = None,
        force: bool = False,
    ) -> RecoveryReport:
        """Recover a card that does not work, no further than needed and at most to ``max_level``.

        ``"channel"`` stops and checks the engines, ``"function"`` resets the function, ``"bus"`` resets the bus. ``at_least``: level that
        is executed even if the card is healthy before. ``channel``: recover only this one, such as ``"h2c0"``. ``force``: proceed although
        channels are open; their transfers end. After a reset (``report.reopen``) close the card, and open it again.

        Raises InUseError, CardGoneError, WedgedError. A failed step is no error: see ``report.healthy``.
        """
    def publisher(
        self,
        max_data_length: int,
        *,
        max_value_length: int = 8,
        slots: int | None = None,
        subscribers: int | None = None,
        heartbeat: float | None = None,
        max_silence: float | None = None,
    ) -> Publisher:
        """Take the network interface for a publisher of frames. See :mod:`fpga_rdma.frames`.

        ``max_data_length``, ``max_value_length``: of a frame, in bytes. ``slots``: number of frames that can be in flight. ``subscribers``:
        their maximum number, at most 64. ``heartbeat``: interval in seconds in which a silent stream shows that it lives.
        ``max_silence``: time in seconds for which frames may fail to reach a subscriber before it is dropped, 20 by default.

        Raises RangeError, InUseError, UnsupportedError (no network interface).
        """
    def subscribe(
        self,
        host: str,
        port: int,
        *,
        slots: int | None = None,
        timeout: float | None = 10.0,
        poll: Sequence[Publisher] = ...,
        max_silence: float | None = None,
    ) -> Subscriber:
        """Take the network interface, and join the stream of the publisher that listens at ``host`` (an IP address) and ``port``.

        ``slots``: number of frames that this node can hold. ``poll``: publishers of this program that the wait polls.
        ``max_silence``: time in seconds without a message, and at least six heartbeats, after which the publisher counts as failed, 20 by
        default. Time in which this program does not poll the subscriber does not count.

        Raises TimedOutError, RefusedError, InUseError, UnsupportedError.
        """
    def close(self) -> None:
        """Close the card and everything that was taken from it, and give the device back. Waits of other threads end with ClosedError,
        transfers in flight are aborted. Arrays and buffers stay readable. Can be called again.
        """

@final
class Channels:
    """Channels of one direction. A channel is taken when it is first indexed; it has one owner at a time."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int, /) -> Channel: ...
    def __iter__(self) -> Iterator[Channel]: ...
    def open(
        self,
        number: int,
        *,
        descriptors: int = 1024,
        transfers: int = 256,
        run_mode: Literal["batch", "credit"] = "batch",
        fixed_address: bool = False,
        report_each: bool = False,
    ) -> Channel:
        """Take a channel with options; indexing takes it with the defaults.

        ``descriptors``: size of the ring, a power of two, 2 to 65536. ``transfers``: maximum number in flight, a power of two.
        ``run_mode``: ``"credit"`` keeps one run going, on cards that support it. ``fixed_address``: use the same card address for every
        beat, as for a FIFO. ``report_each``: report every transfer as it ends, not only the last one of a batch.

        Raises InUseError if it is open, RangeError for invalid options.
        """

@final
class Channel:
    """A DMA channel. Threads may share it: a call waits for a call of another thread.

    Memory of ``Card.allocate``, ``Card.buffer`` and ``Card.register``, and every contiguous part of it, is moved without a copy. Other
    memory is copied through a buffer of the driver.
    """

    @property
    def name(self) -> str:
        """``h2c0``, ``c2h1``."""
    @property
    def number(self) -> int:
        """Number in its direction, from 0."""
    @property
    def closed(self) -> bool:
        """Whether the channel was closed."""
    @property
    def in_flight(self) -> int:
        """Number of transfers that were submitted and have not ended."""
    def write(self, data: Memory, address: int, timeout: float | None = 10.0) -> None:
        """Write all bytes of ``data`` to card memory from ``address`` on, and wait.

        ``data``: any object with the buffer protocol, of any type of elements except Python objects, contiguous in C order: a transposed
        array is refused, because its memory has another order. ``timeout`` is in seconds; ``None`` waits without a limit. Do not change ``data`` during the call. When the call ends early, the transfer is cancelled; an unknown part was written.

        Raises RangeError (nothing was written), TimedOutError, TransferFault, CardGoneError, WedgedError.
        """
    def read(self, into: Memory, address: int, timeout: float | None = 10.0) -> None:
        """Read card memory from ``address`` on into all bytes of ``into``, and wait.

        ``into``: as ``data`` of :meth:`write`, and writable. When the call ends early, an unknown part was read.

        Raises as :meth:`write`.
        """
    def submit(self, memory: Memory, address: int) -> Ticket:
        """Queue a transfer of DMA memory to or from card memory at ``address``.

        The engine starts with the next ``poll`` or wait, so that transfers queued together run together. Until the transfer has ended,
        leave the memory alone. Views that exist already are not protected; a new writable view of its :class:`Buffer` is refused.

        >>> import fpga_rdma
        >>> card = fpga_rdma.open("mock")
        >>> data = card.allocate(1024, "u4")
        >>> tickets = [card.h2c[0].submit(part, 0x1000 + 256 * number) for number, part in enumerate(data.reshape(16, -1))]
        >>> for ticket in tickets:
        ...     ticket.wait()
        >>> card.close()

        Raises RefusedError for memory that is not DMA memory of this card, RangeError, RingFullError.
        """
    def submit_list(self, parts: Sequence[tuple[Memory, int]]) -> Ticket:
        """Queue a scatter-gather list as one transfer: pairs of DMA memory and card address.

        Raises as :meth:`submit`; RangeError if two parts overlap at their destination. Nothing is queued then.
        """
    def write_batch(
        self, memory: Memory, offsets: Numbers, addresses: Numbers, length: int, timeout: float | None = 10.0
    ) -> None:
        """Write many parts of DMA memory in one call: ``length`` bytes at each of ``offsets`` to the card address at the same position.

        ``offsets`` (in bytes) and ``addresses``: arrays of integers of any width, byte order and step, or sequences of integers. ``timeout`` limits each wait for
        the ring. When the call ends early, an unknown part was moved.

        >>> import numpy as np, fpga_rdma
        >>> card = fpga_rdma.open("mock")
        >>> data = card.allocate((1000, 16), "u4")
        >>> data[:] = np.arange(1000)[:, None]
        >>> offsets = np.arange(1000) * 64
        >>> card.h2c[0].write_batch(data, offsets, offsets + 0x10000, 64)
        >>> card.close()

        Raises as :meth:`submit` and :meth:`write`.
        """
    def read_batch(
        self, memory: Memory, offsets: Numbers, addresses: Numbers, length: int, timeout: float | None = 10.0
    ) -> None:
        """Read many parts of card memory in one call; see :meth:`write_batch`."""
    async def write_async(self, data: Memory, address: int) -> None:
        """As :meth:`write`, for asyncio. Other memory than DMA memory is copied first. A cancelled task cancels the transfer.

        The task sleeps until the channel's interrupt if the card was opened with ``interrupts=True``, and polls by a timer otherwise.
        """
    async def read_async(self, into: Memory, address: int) -> None:
        """As :meth:`read`, for asyncio; see :meth:`write_async`."""
    def poll(self) -> int:
        """Start queued transfers. Returns the number of transfers that have ended since the last call."""
    def wait(self, timeout: float | None = 10.0) -> None:
        """Wait until everything submitted has ended. Raises the first failure that no ticket has reported. Tickets keep their failures."""
    def abort(self) -> int:
        """Stop the engine and end everything in flight as aborted. Returns the number of transfers that ended. Raises WedgedError."""
    def close(self) -> None:
        """Give the channel back. Waits end with ClosedError, transfers in flight are aborted. Indexing the card again takes it anew."""
    def _arm(self) -> int | None: ...

@final
class Ticket:
    """A submitted transfer. It can be awaited in asyncio: ``await ticket``. Transfers of a channel end in submission order."""

    @property
    def channel(self) -> Channel: ...
    @property
    def number(self) -> int:
        """Number of the transfer on its channel, from 0."""
    @property
    def nbytes(self) -> int:
        """Length in bytes."""
    def done(self) -> bool:
        """Poll the channel, and return whether the transfer has ended, with success or not."""
    def wait(self, timeout: float | None = 10.0) -> None:
        """Wait until the transfer has ended. Its failure is raised by every call.

        Raises TimedOutError (it stays in flight: wait again, or cancel it), TransferFault, CardGoneError, WedgedError.
        """
    def cancel(self) -> bool:
        """Cancel the transfer; others continue. Returns False if it had ended. ``wait`` raises TransferFault then, also in other threads.

        Raises WedgedError if the engine does not stop within 2 s.
        """
    def _poll(self) -> bool | None: ...
    def __await__(self) -> Generator[Any, None, None]: ...

@final
class _Transfer:
    def _poll(self) -> bool | None: ...
    def _arm(self) -> int | None: ...
    def _abandon(self) -> None: ...
    def _settle(self) -> bool: ...

@final
class Buffer(_ContextManager):
    """DMA memory of a card, with the buffer protocol and DLPack: ``buffer.array("f4")``, ``memoryview(buffer)``, ``torch.from_dlpack(buffer)``.

    While a transfer of it is in flight, assignments and new writable views are refused. It is freed with its last view, after the last
    transfer has ended; nothing under DMA is freed or resized.
    """

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
    @property
    def device_address(self) -> int:
        """Address of the first byte for the card (IOVA)."""
    @property
    def in_flight(self) -> bool:
        """Whether a submitted transfer of it has not ended, as far as the channels have been polled."""
    @property
    def closed(self) -> bool: ...
    @overload
    def array(self) -> NDArray[np.uint8]: ...
    @overload
    def array(self, dtype: type[T] | np.dtype[T]) -> NDArray[T]: ...
    @overload
    def array(self, dtype: DTypeLike) -> NDArray[Any]:
        """Return a numpy array of one dimension over the memory; read-only while a transfer is in flight."""
    def close(self) -> None:
        """Free the memory now. Raises BufferError while views exist, InUseError while a transfer is in flight."""
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> bytes: ...
    @overload
    def __setitem__(self, key: SupportsIndex, value: SupportsIndex, /) -> None: ...
    @overload
    def __setitem__(self, key: slice, value: Memory, /) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(self, **arguments: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class UserInterrupt(_ContextManager):
    """One or several user interrupts. Awaitable: ``counts = await interrupt``. A context manager."""

    @property
    def lines(self) -> list[int]: ...
    @property
    def delivery(self) -> Literal["message", "shared message", "level", "polled"]:
        """How the interrupts reach the program."""
    @property
    def count(self) -> int:
        """Number of interrupts reported since the lines were taken."""
    @property
    def pending(self) -> bool:
        """Whether the design holds one of the lines high, read now."""
    @property
    def closed(self) -> bool: ...
    def take(self) -> dict[int, int]:
        """Take the interrupts since the last call: their number by line. Does not wait."""
    def wait(self, timeout: float | None = None) -> dict[int, int]:
        """Wait until one of the lines has interrupted, and take all interrupts: their number by line. Of several waits, one gets them.

        Raises TimedOutError, UnsupportedError (a line is disabled), CardGoneError (also after a reset).
        """
    def rearm(self) -> None:
        """Call it after the cause was served: a line that is still high interrupts again."""
    def enable(self) -> None:
        """Unmask the lines. They are unmasked when they are taken."""
    def disable(self) -> None:
        """Mask the lines."""
    def fileno(self) -> int:
        """Descriptor that becomes readable when a line may have interrupted, for ``select`` and event loops; then call :meth:`take`.

        On a simulated card in this thread, it changes only while the card is used: ``await`` and :meth:`wait` let it work.
        """
    def close(self) -> None:
        """Give the lines back, masked."""
    def __await__(self) -> Generator[Any, None, dict[int, int]]: ...
    def _poll(self) -> dict[int, int] | None: ...
    def _arm(self) -> int | None: ...

@final
class Cdma(_ContextManager):
    """Copy engine of a card. It has one owner at a time. A context manager.

    >>> import fpga_rdma
    >>> card = fpga_rdma.open("mock")
    >>> card.h2c[0].write(b"1234", 0x1000)
    >>> with card.cdma() as cdma:
    ...     cdma.copy(0x1000, 0x2000, 4)
    >>> data = bytearray(4)
    >>> card.c2h[0].read(data, 0x2000)
    >>> data
    bytearray(b'1234')
    >>> card.close()
    """

    def copy(self, source: int, destination: int, length: int, timeout: float | None = 10.0) -> None:
        """Copy ``length`` bytes of card memory, and wait. Ctrl-C ends it at the next 4 MiB.

        Raises RangeError (nothing was copied), TransferFault and TimedOutError (the engine was reset), WedgedError.
        """
    def reset(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...

@final
class Map:
    """Register map of a card's design, by full names; :class:`fpga_rdma.registers.Registers` makes attributes of them."""

    @property
    def name(self) -> str: ...
    @property
    def doc(self) -> str: ...
    @property
    def card(self) -> str: ...
    def names(self) -> list[str]: ...
    def kind(self, name: str) -> Literal["register", "field", "group"]: ...
    def children(self, name: str) -> list[str]: ...
    def read(self, name: str) -> int: ...
    def take(self, name: str) -> int: ...
    def write(self, name: str, value: SupportsIndex | str) -> None: ...
    def label(self, name: str, value: int) -> str | None: ...
    def describe(self, name: str) -> RegisterInfo: ...

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
class H2cStream(_ContextManager):
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

@final
class C2hStream(_ContextManager):
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

@final
class Packets:
    """Iterator over the packets of a stream."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...

_C = TypeVar("_C")

@final
class Endpoint(_ContextManager):
    """Endpoint of a card on the network. A context manager. Threads may share it: a thread that waits polls it for all others."""

    @property
    def node(self) -> int:
        """Number of this node on the network."""
    @property
    def incarnation(self) -> int:
        """Number of this incarnation of the node."""
    @property
    def usable_memory(self) -> MemoryRange:
        """Card memory that transfers may use."""
    @property
    def closed(self) -> bool:
        """Whether the endpoint was closed."""
    @property
    def notifications(self) -> Notifications:
        """Arrivals. Each one is returned to one caller."""
    @property
    def counters(self) -> EndpointCounters:
        """Counters since the endpoint was opened."""
    @property
    def transfers(self) -> list[TransferView]:
        """Transfers that have not ended."""
    def open_region(self, peer: int, address: int, length: int) -> Region[RemoteRegion]:
        """Let node ``peer`` write ``length`` bytes of this card's memory from ``address`` on.

        Raises RangeError (not inside :attr:`usable_memory`), RingFullError (all memory windows are open).
        """
    def open_readable(self, peer: int, address: int, length: int) -> Region[RemoteReadable]:
        """Let node ``peer`` read ``length`` bytes of this card's memory from ``address`` on. Polls of this endpoint answer it.

        Raises as :meth:`open_region`; InUseError if the C2H channel for requests is taken.
        """
    def send(
        self,
        address: int,
        remote: RemoteRegion,
        offset: int = 0,
        length: int | None = None,
        *,
        notify: str = "receiver",
        priority: int = 0,
        scheme: str | None = None,
        deadline: float | None = None,
    ) -> Pending[SendCompletion]:
        """Send ``length`` bytes of this card's memory at ``address`` to ``offset`` bytes into ``remote``.

        Do not change the source until the end: a retransmission reads it again. ``length``: ``None`` fills the region. ``notify``: who notifies
        the receiving program of the arrival: the ``"receiver"``'s card, the ``"sender"`` by one more packet, or ``"none"``. ``priority``: 0
        to 255; higher ones go first. ``scheme``: one of the endpoint's schemes. ``deadline``: seconds after which the transfer is given up.

        Raises RangeError, UnsupportedError, RefusedError (the node cannot receive it), RingFullError (poll, then send again). Nothing was sent.
        """
    def read(
        self,
        remote: RemoteReadable,
        offset: int,
        address: int,
        length: int,
        *,
        priority: int = 0,
        scheme: str | None = None,
        deadline: float | None = None,
    ) -> Pending[ReadCompletion]:
        """Read ``length`` bytes at ``offset`` of ``remote`` into this card's memory at ``address``. The other node has to poll its endpoint.

        Raises as :meth:`send`; InUseError if another read has that destination.
        """
    def peer(self, node: int, timeout: float = 1.0, *, poll: Sequence[Endpoint] = ()) -> Peer:
        """Ask another node for its capabilities. Later sends that it cannot receive are refused. Raises TimedOutError."""
    def poll(self) -> int:
        """Drive the endpoint once: events, retransmissions, transmit windows, answers to reads. Returns the amount of work done."""
    def close(self) -> None:
        """Close the endpoint. Regions are closed, and transfers in progress end without a completion. Can be called again."""

@final
class Region(Generic[_C], _ContextManager):
    """Memory that is open for another node, until :meth:`close` or the end of the endpoint. A context manager."""

    @property
    def remote(self) -> _C:
        """Description for the other node."""
    def close(self) -> None:
        """Close it: later packets for it are refused. Can be called again."""

@final
class Pending(Generic[_C]):
    """Transfer or read in progress, with its one completion: wait for it, poll it, or await it. Without this object it goes on."""

    def wait(self, timeout: float | None = 10.0, *, poll: Sequence[Endpoint] = ()) -> _C:
        """Wait for the completion. ``timeout`` is in seconds; ``None`` waits without a limit.

        ``poll``: endpoints of other nodes in this thread, which are polled meanwhile.

        Raises SendFailedError or ReadFailedError if it failed; TimedOutError: it is still in progress, and can be waited for again.
        """
    def poll(self) -> _C | None:
        """Return the completion if it has ended. Drives the endpoint. Raises as :meth:`wait`."""
    def cancel(self) -> None:
        """Withdraw a transfer: if it had not ended, it fails with the reason ``"cancelled"``. A read goes on."""
    def __await__(self) -> Generator[Any, None, _C]: ...

@final
class Notifications:
    """Arrivals at an endpoint. ``for`` and ``async for`` wait for one after the other, without an end."""

    def poll(self) -> Notification | None:
        """Return the oldest arrival. Drives the endpoint."""
    def wait(self, timeout: float | None = 10.0, *, poll: Sequence[Endpoint] = ()) -> Notification:
        """Wait for an arrival. ``timeout`` is in seconds. ``poll``: as for :meth:`Pending.wait`. Raises TimedOutError."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Notification: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Notification]: ...

@final
class Publisher(_ContextManager):
    """Sends frames to subscribers. It works while it is polled. A context manager."""

    @property
    def node(self) -> int: ...
    @property
    def next_sequence(self) -> int:
        """Sequence number of the next frame."""
    @property
    def closed(self) -> bool: ...
    @property
    def ended(self) -> bool:
        """Whether the stream has ended for all subscribers, after :meth:`end`."""
    @property
    def subscribers(self) -> list[SubscriberState]:
        """Current subscribers."""
    @property
    def statistics(self) -> PublisherStatistics: ...
    def listen(self, host: str = "127.0.0.1", port: int = 0) -> tuple[str, int]:
        """Listen for subscribers on an IP address; port 0 takes any. Returns the address."""
    def publish(self, data: Memory, value: Memory | None = None) -> Published:
        """Send a frame: ``value`` in front, then ``data``. Copies both, and never waits: a subscriber without a free slot misses the frame.

        Raises RangeError if it is too long, RingFullError if all slots are in flight: poll, then publish again.
        """
    def poll(self) -> int:
        """Move frames on, accept subscribers. Returns the amount of work that was done; 0 if there was none."""
    def next_event(self) -> PublisherEvent | None:
        """Oldest event that was not taken."""
    def end(self) -> None:
        """Begin to end the stream: poll until :attr:`ended`. Frames in flight still arrive."""
    def close(self) -> None:
        """Give the network interface back. Subscribers find out by the silence; use :meth:`end` first."""

@final
class Subscriber(_ContextManager):
    """Receives the frames of one publisher. ``for`` and ``async for`` end with the stream. A context manager."""

    @property
    def node(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def statistics(self) -> SubscriberStatistics: ...
    def poll(self) -> Frame | Gap | Fault | Ended | None:
        """Next event, if there is one. Does not wait."""
    def wait(
        self, timeout: float | None = 10.0, *, poll: Sequence[Publisher] = ...
    ) -> Frame | Gap | Fault | Ended:
        """Wait for the next event. ``poll``: publishers of this program that the wait polls.

        Raises TimedOutError, RefusedError (the publisher does not answer), CardGoneError.
        """
    def leave(self, timeout: float | None = 1.0) -> None:
        """Leave the stream, tell the publisher, and close."""
    def close(self) -> None:
        """Leave the stream without notice."""
    def __iter__(self) -> Iterator[Frame | Gap | Fault]: ...
    def __next__(self) -> Frame | Gap | Fault: ...
    def __aiter__(self) -> AsyncIterator[Frame | Gap | Fault]: ...
