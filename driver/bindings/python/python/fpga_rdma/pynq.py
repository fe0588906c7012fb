"""The names of PYNQ, for programs and notebooks that move from it: change the import, and name the card.

>>> from fpga_rdma import pynq
>>> overlay = pynq.Overlay("loopback.bit", card="mock:us-plus-x8-stream")  # a simulated card that loops its streams back
>>> dma = overlay.axi_dma_0
>>> sent, got = pynq.allocate((4,), "u4"), pynq.allocate((4,), "u4")
>>> sent[:] = [1, 2, 3, 4]
>>> dma.sendchannel.transfer(sent)
>>> dma.recvchannel.transfer(got)
>>> dma.sendchannel.wait()
>>> dma.recvchannel.wait()
>>> got.tolist(), dma.recvchannel.transferred
([1, 2, 3, 4], 16)
>>> overlay.free()

Four things differ, because the card is at the other end of PCIe:

* The bitstream is on the card already: :class:`Overlay` opens a card, and does not program it. Without ``card`` it uses the card that this
  module used last, or the one that the environment variable ``FPGA_CARD`` names.
* :class:`DMA` needs a design with stream channels. Other cards have memory of their own: a buffer has a place in it (``allocate(...,
  address=0x1000)``), which ``sync_to_device`` writes and ``sync_from_device`` reads.
* A buffer has what was received after ``wait()``, or when the channel is ``idle``: not before the program asks.
* Addresses of :class:`MMIO` are offsets in the user BAR.
"""

from __future__ import annotations

import asyncio
import operator
import os
import re
import weakref
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np

from ._native import Card, _nbytes, open
from .errors import FpgaError, TimedOutError, UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from ._native import C2hStream, H2cStream

__all__ = ["DMA", "MMIO", "Overlay", "PynqBuffer", "allocate"]

_PART = 0.001
"""Seconds for which a wait lets one direction work before it looks at the other one."""
_MOMENT = 0.0002
"""Seconds that a new transfer gets to end at once, as notebooks expect that read the buffer without a wait."""
_MIN_RING = 4 << 20
"""Smallest size of the buffers of a receiving stream together, in bytes."""
_MAX_RING = 64 << 20
_active: weakref.ref[Card] | None = None


def _last() -> Card | None:
    """The card that was used last."""
    return None if _active is None else _active()


def _use(card: Card | None) -> Card:
    """Returns the card to use, which becomes the one that later calls use."""
    global _active
    found = card if card is not None else _last()
    if found is None or (card is None and found.closed):
        raise UnsupportedError(
            "no card is in use",
            "make pynq.Overlay(name, card=...) first, or name the card: allocate(..., target=card), DMA(card), MMIO(card, offset, length)",
        )
    if not isinstance(found, Card):
        raise TypeError(f"a card is expected, not an object of type {type(found).__name__}: see fpga_rdma.open")
    _active = weakref.ref(found)
    return found


class Overlay:
    """A card with its design. Attributes with ``dma`` in their name are :class:`DMA` engines, numbered by their end: ``axi_dma_1``.

    ``bitfile_name`` is not read: the design must be on the card. ``card``: a card or its name, as for :func:`fpga_rdma.open`; ``None``: see
    the module.
    """

    card: Card
    """The card."""

    def __init__(self, bitfile_name: str = "", *_unused: Any, card: Card | str | None = None, **_others: Any) -> None:
        self.bitfile_name = bitfile_name
        used = _last()
        if card is None and (used is None or used.closed):
            card = os.environ.get("FPGA_CARD")
        self.card = _use(open(card) if isinstance(card, str) else card)

    def __getattr__(self, name: str) -> DMA:
        if name.startswith("_") or "dma" not in name.lower():
            raise AttributeError(
                f"the overlay has no {name}: attributes with 'dma' in their name are DMA engines; registers are at pynq.MMIO(offset, length), or card.load_map(path)"
            )
        number = re.search(r"_(\d+)$", name)
        return _dma(self.card, int(number[1]) if number else 0)

    @property
    def ip_dict(self) -> dict[str, dict[str, Any]]:
        """The DMA engines, by the names of their attributes."""
        info = self.card.info
        pairs = max(info.h2c_channels, info.c2h_channels) if info.stream else 0
        return {f"axi_dma_{number}": {"driver": DMA, "fullpath": f"axi_dma_{number}", "number": number} for number in range(pairs)}

    def is_loaded(self) -> bool:
        """Whether the card is open."""
        return not self.card.closed

    def download(self) -> None:
        """Refused: this package does not program cards."""
        raise UnsupportedError(
            "this package does not program cards", "program the card with the vendor's tool, and rescan the PCI bus", self.card.name
        )

    def free(self) -> None:
        """Closes the card."""
        self.card.close()


class MMIO:
    """Registers of ``length`` bytes from ``base_addr`` on in the user BAR. Offsets of accesses count from there."""

    base_addr: int
    """Offset in the user BAR."""
    length: int
    """Length in bytes."""

    @overload
    def __init__(self, base_addr: int, length: int = 4, device: Card | None = None, **_unused: Any) -> None: ...
    @overload
    def __init__(self, card: Card, offset: int, length: int = 4, /) -> None: ...
    def __init__(self, base_addr: Any, length: Any = None, device: Any = None, **_unused: Any) -> None:
        if isinstance(base_addr, Card):
            device, base_addr, length = base_addr, length, device
        bar = _use(device).user_bar
        self.base_addr, self.length = operator.index(base_addr), 4 if length is None else operator.index(length)
        begin, size = self.base_addr, self.length
        if begin % 4 or size % 4 or begin < 0 or size < 4 or begin + size > len(bar):
            raise ValueError(f"{size} bytes at offset {begin:#x}: give multiples of 4 inside the user BAR of {len(bar)} bytes")
        self._bar = bar

    def _offset(self, offset: int, length: int = 4) -> int:
        if not 0 <= offset <= self.length - length or offset % 4:
            raise ValueError(f"offset {offset:#x}: {length} bytes there are not a multiple of 4 inside the {self.length} bytes")
        return self.base_addr + offset

    def read(self, offset: int = 0, length: int = 4, word_order: Literal["little", "big"] = "little") -> int:
        """Reads ``length`` bytes (1, 2, 4 or 8) of the registers at ``offset``. ``word_order``: of the two registers of 8 bytes."""
        if length not in (1, 2, 4, 8) or word_order not in ("little", "big"):
            raise ValueError(f"length {length}, word_order {word_order!r}: give 1, 2, 4 or 8 bytes, and 'little' or 'big'")
        at = self._offset(offset, max(length, 4))
        if length < 8:
            return self._bar.read32(at) & ((1 << 8 * length) - 1)
        low, high = self._bar.read32(at), self._bar.read32(at + 4)
        return low << 32 | high if word_order == "big" else high << 32 | low

    def write(self, offset: int, data: int | bytes) -> None:
        """Writes the register at ``offset``; bytes, four of them for each register, write several."""
        if not isinstance(data, bytes | bytearray | memoryview):
            self._bar.write32(self._offset(offset), data)
            return
        words = bytes(data)
        if len(words) % 4:
            raise ValueError(f"{len(words)} bytes: give a multiple of 4")
        at = self._offset(offset, len(words)) if words else self.base_addr
        for part in range(0, len(words), 4):
            self._bar.write32(at + part, int.from_bytes(words[part : part + 4], "little"))

    @property
    def array(self) -> RegisterArray:
        """The registers as an array of 32-bit numbers: reads and assignments of elements access the card."""
        return RegisterArray(self)


class RegisterArray(Sequence[int]):
    """Registers by number. An element is read when it is used, and an assignment writes the register."""

    dtype = np.dtype("u4")

    def __init__(self, mmio: MMIO) -> None:
        self._mmio = mmio

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    @property
    def size(self) -> int:
        return len(self)

    def __len__(self) -> int:
        return self._mmio.length // 4

    def _numbers(self, key: Any) -> range:
        if isinstance(key, slice):
            return range(len(self))[key]
        number = range(len(self))[key]
        return range(number, number + 1)

    def __getitem__(self, key: Any) -> Any:
        values = [self._mmio.read(4 * number) for number in self._numbers(key)]
        return np.array(values, np.uint32) if isinstance(key, slice) else values[0]

    def __setitem__(self, key: int | slice, value: Any) -> None:
        numbers = self._numbers(key)
        values = [value] * len(numbers) if np.ndim(value) == 0 else list(value)
        if len(values) != len(numbers):
            raise ValueError(f"{len(values)} values for {len(numbers)} registers: give one, or as many")
        for number, each in zip(numbers, values, strict=True):
            self._mmio.write(4 * number, operator.index(each))

    def __iter__(self) -> Iterator[int]:
        return (self._mmio.read(4 * number) for number in range(len(self)))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("registers are not memory: numpy gets a copy of their values")
        return np.array(list(self), dtype or np.uint32)

    def __repr__(self) -> str:
        return f"<{len(self)} registers at {self._mmio.base_addr:#x}>"


class PynqBuffer(np.ndarray[Any, np.dtype[Any]]):
    """numpy array in DMA memory. A context manager: its use ends with the ``with`` block."""

    card: Card | None
    """The card; ``None`` for results of computations, which are not in DMA memory."""
    address: int | None
    """Place of the first byte in the card's memory; ``None`` if it has none."""
    coherent = True
    """The card sees the memory as the processor does."""
    cacheable = True
    """The processor caches the memory."""

    def __array_finalize__(self, origin: object) -> None:
        self.card = None
        self.address = None
        if isinstance(origin, PynqBuffer) and origin.card is not None and np.may_share_memory(self, origin):
            self.card = origin.card
            if origin.address is not None:
                self.address = origin.address + self.ctypes.data - origin.ctypes.data

    def _card(self) -> Card:
        if self.card is None:
            raise ValueError("the array is not in DMA memory, or was freed: use pynq.allocate, or a part of such a buffer")
        return self.card

    def _place(self) -> int:
        if self.address is None:
            raise ValueError("the buffer has no place in card memory: allocate it with one, pynq.allocate(..., address=0x1000)")
        return self.address

    @property
    def device_address(self) -> int:
        """Address of the first byte for the card's DMA engine (IOVA)."""
        return self._card().device_address(self)

    physical_address = device_address

    def sync_to_device(self) -> None:
        """Writes the array to its place in card memory. A design with streams has no such memory: nothing is to be done."""
        card = self._card()
        if not card.info.stream:
            card.h2c[0].write(self, self._place())

    def sync_from_device(self) -> None:
        """Reads the array from its place in card memory; see :meth:`sync_to_device`."""
        card = self._card()
        if not card.info.stream:
            card.c2h[0].read(self, self._place())

    flush = sync_to_device
    invalidate = sync_from_device

    def freebuffer(self) -> None:
        """Ends the use of the buffer. The memory is freed with the last array over it."""
        self.card = None

    close = freebuffer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.freebuffer()


def allocate(
    shape: int | Sequence[int],
    dtype: DTypeLike = "u4",
    target: Card | None = None,
    *,
    address: int | None = None,
    cacheable: bool = True,
) -> PynqBuffer:
    """Allocates an array of zeros in DMA memory.

    ``target``: the card; ``None``: the one that this module used last. ``address``: place in the card's memory, for cards without streams.
    ``cacheable``: has no effect, the memory is coherent.
    """
    del cacheable
    card = _use(target)
    buffer = card.allocate(shape, dtype).view(PynqBuffer)
    buffer.card = card
    buffer.address = None if address is None else operator.index(address)
    return buffer


def _bytes(array: Any, writable: bool) -> NDArray[np.uint8]:
    """The bytes of an object in C order, without a copy."""
    if isinstance(array, PynqBuffer):
        array._card()
    length = _nbytes(array, writable)
    if isinstance(array, np.ndarray):
        return np.asarray(array).reshape(-1).view(np.uint8)
    return np.frombuffer(array, np.uint8) if length else np.empty(0, np.uint8)


class _Channel:
    """One direction of :class:`DMA`."""

    _receives = False

    def __init__(self, dma: DMA) -> None:
        self._dma = dma
        self._array: NDArray[np.uint8] | None = None
        self._address = 0
        self._length = 0
        self._failure: FpgaError | None = None
        self._transferred = 0
        self._running = True

    @property
    def running(self) -> bool:
        """Whether transfers can be started: until :meth:`stop`."""
        return self._running

    @property
    def idle(self) -> bool:
        """Whether no transfer is in progress. Lets the transfers work."""
        if self._array is not None:
            self._dma._work(0)
        return self._array is None

    @property
    def error(self) -> bool:
        """Whether the last transfer has failed."""
        return self._failure is not None

    @property
    def transferred(self) -> int:
        """Bytes of the last transfer that has ended. A received packet can be shorter than its buffer."""
        return self._transferred

    def start(self) -> None:
        """Lets transfers be started again after :meth:`stop`."""
        self._running = True

    def stop(self) -> None:
        """Ends the transfer in progress. A packet that arrives later belongs to the next transfer."""
        self._running, self._array = False, None

    def transfer(self, array: Any, start: int = 0, nbytes: int = 0) -> None:
        """Starts a transfer of ``nbytes`` bytes from byte ``start`` of the array on; 0: up to its end."""
        if not self._running:
            raise RuntimeError("the DMA channel was stopped: call start() first")
        if not self.idle:
            raise RuntimeError("a transfer is in progress: call wait() first")
        memory = _bytes(array, self._receives)
        start, nbytes = operator.index(start), operator.index(nbytes)
        length = nbytes or memory.nbytes - start
        if start < 0 or length <= 0 or start + length > memory.nbytes:
            raise ValueError(f"{length} bytes from byte {start} on are not a part of the array of {memory.nbytes} bytes")
        self._failure = None
        self._begin(memory[start : start + length])
        self._length = length
        try:
            self._address = self._dma.card.device_address(memory) + start
        except ValueError:
            self._address = 0
        self._dma._work(_MOMENT)

    def wait(self) -> None:
        """Waits until the transfer has ended. Raises its failure."""
        self._check()
        while self._array is not None:
            self._dma._work(_PART)
        if self._failure is not None:
            raise self._failure

    async def wait_async(self) -> None:
        """As :meth:`wait`, for asyncio."""
        self._check()
        turns = 0
        while not self.idle:
            turns += 1
            await asyncio.sleep(0 if turns < 16 else _PART)
        if self._failure is not None:
            raise self._failure

    def _check(self) -> None:
        if not self._running:
            raise RuntimeError("the DMA channel was stopped: call start(), and then transfer(array)")

    def _begin(self, memory: NDArray[np.uint8]) -> None:
        raise NotImplementedError

    def _end(self, transferred: int, failure: FpgaError | None = None) -> None:
        self._array, self._transferred, self._failure = None, transferred, failure

    def _status(self) -> SimpleNamespace:
        return SimpleNamespace(Halted=int(not self._running), Idle=int(self.idle), DMAIntErr=int(self.error))


class _SendChannel(_Channel):
    """Direction from host to card."""

    def __init__(self, dma: DMA) -> None:
        super().__init__(dma)
        self._stream: H2cStream | None = None

    def _begin(self, memory: NDArray[np.uint8]) -> None:
        if self._stream is None:
            self._stream = self._dma.card.h2c_stream(self._dma.number)
        self._stream.submit(memory)
        self._array = memory

    def _work(self, limit: float) -> None:
        if self._array is None or self._stream is None:
            return
        try:
            if limit:
                self._stream.flush(limit)
            elif self._stream.poll():
                return
        except TimedOutError:
            return
        except FpgaError as failure:
            return self._end(0, failure)
        self._end(self._array.nbytes)

    def stop(self) -> None:
        super().stop()
        if self._stream is not None:
            self._stream.abort()


class _RecvChannel(_Channel):
    """Direction from card to host."""

    _receives = True

    def __init__(self, dma: DMA) -> None:
        super().__init__(dma)
        self._stream: C2hStream | None = None
        self._room = 0

    def _begin(self, memory: NDArray[np.uint8]) -> None:
        if self._stream is None:
            size = 64
            while 64 * size < max(_MIN_RING, memory.nbytes, self._dma.max_size):
                size *= 2
            self._room = min(64 * size, _MAX_RING)
            self._stream = self._dma.card.c2h_stream(self._dma.number, buffers=64, buffer_size=self._room // 64)
        if memory.nbytes > self._room:
            raise ValueError(
                f"{memory.nbytes} bytes are more than the {self._room} of the channel: give the largest size at first, DMA(card, max_size=...)"
            )
        self._array = memory

    def _work(self, limit: float) -> None:
        if self._array is None or self._stream is None:
            return
        try:
            self._end(self._stream.receive_into(self._array, limit or _PART / 100))
        except TimedOutError:
            pass
        except FpgaError as failure:
            self._end(0, failure)


class DMA:
    """Both directions of a pair of stream channels: ``sendchannel`` sends a packet to the card, ``recvchannel`` receives one from it.

    ``card``: ``None``: the one that this module used last. ``number``: of both channels. ``max_size``: length in bytes of the longest packet to
    receive, at most 64 MiB; at least 4 MiB, and what the first ``transfer`` asks for.

    Raises UnsupportedError if the card's channels access memory.
    """

    def __init__(self, card: Card | None = None, number: int = 0, *, max_size: int = 0) -> None:
        card = _use(card)
        if not card.info.stream:
            raise UnsupportedError(
                f"{card.name}: the channels of this design access memory; DMA is for streams",
                "use buffer.sync_to_device() and buffer.sync_from_device(), or card.h2c[0].write and card.c2h[0].read",
                card.name,
            )
        if max_size > _MAX_RING:
            raise ValueError(f"max_size is {max_size} bytes: give at most {_MAX_RING}")
        self.card = card
        self.number = number
        self.max_size = max_size
        self.sendchannel = _SendChannel(self)
        self.recvchannel = _RecvChannel(self)

    @property
    def register_map(self) -> SimpleNamespace:
        """State under the names of an AXI DMA's registers. The engine of the card has other ones, which are in ``card.dma_bar``.

        Addresses are those of the buffers of the last transfers, 0 for memory that is not DMA memory.
        """
        send, recv = self.sendchannel, self.recvchannel
        return SimpleNamespace(
            MM2S_DMACR=SimpleNamespace(RS=int(send.running)),
            MM2S_DMASR=send._status(),
            MM2S_SA=SimpleNamespace(Source_Address=send._address),
            MM2S_LENGTH=SimpleNamespace(Length=send._length),
            S2MM_DMACR=SimpleNamespace(RS=int(recv.running)),
            S2MM_DMASR=recv._status(),
            S2MM_DA=SimpleNamespace(Destination_Address=recv._address),
            S2MM_LENGTH=SimpleNamespace(Length=recv._length),
        )

    def _work(self, limit: float) -> None:
        """Lets both directions work, each for ``limit`` seconds: a loopback takes data only while what it returns is received."""
        sends = self.sendchannel._array is not None
        self.sendchannel._work(0 if self.recvchannel._array is not None else limit)
        self.recvchannel._work(min(limit, _PART / 10) if sends else limit)


_engines: weakref.WeakKeyDictionary[Card, weakref.WeakValueDictionary[int, DMA]] = weakref.WeakKeyDictionary()


def _dma(card: Card, number: int) -> DMA:
    """The DMA engine of a card, which notebooks name again and again."""
    engines = _engines.setdefault(card, weakref.WeakValueDictionary())
    dma = engines.get(number)
    if dma is None:
        dma = engines[number] = DMA(card, number)
    return dma
