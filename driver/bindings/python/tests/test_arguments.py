"""Every argument with memory, by every kind of object: the right bytes arrive, or one error in the words of the caller."""

from __future__ import annotations

import array
import asyncio
import ctypes
import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import fpga_rdma
from fpga_rdma import pynq

SIZE = 48
PATTERN = bytes(range(1, SIZE + 1))
ORDER = "C order"
ELEMENTS = "Python objects"
NO_BYTES = "no bytes"
READ_ONLY = "read-only"


class Record(ctypes.Structure):
    _fields_ = [("first", ctypes.c_uint32), ("others", ctypes.c_uint16 * 22)]


class Choice(ctypes.Union):
    _fields_ = [("words", ctypes.c_uint32 * 12), ("bytes", ctypes.c_uint8 * 48)]


class Pointers(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint64), ("text", ctypes.c_char_p)]


def over(dtype: Any, shape: tuple[int, ...], **where: Any) -> Callable[[Any], Any]:
    """An array over the memory."""
    return lambda memory: np.ndarray(shape, dtype, memory, **where)


# Objects over given memory of 48 bytes, whose elements lie in the order of their indices.
IN_ORDER: dict[str, Callable[[Any], Any]] = {
    "the memory itself": lambda memory: memory,
    "memoryview": memoryview,
    "memoryview of halves": lambda memory: memoryview(memory).cast("H"),
    "memoryview of two dimensions": lambda memory: memoryview(memory).cast("B", (6, 8)),
    "memoryview of a number": lambda memory: memoryview(np.ndarray((), "V48", memory)),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    "array of one number": over("V48", ()),
    "array of two dimensions": over(">u4", (3, 4)),
    "array of three dimensions": over("<i2", (2, 3, 4)),
    "array in both orders": over("u1", (1, 48, 1), order="F"),
    "structured array": over([("a", ">u4"), ("O", "<u2")], (8,)),
    "aligned structure": over(np.dtype([("a", "u1"), ("b", "u4")], align=True), (6,)),
    "subarrays": over(np.dtype(("<u2", (2, 3))), (4,)),
    "nested structure": over([("a", [("b", ">i2"), ("c", "S6")])], (6,)),
    "structure with a date": over([("a", "M8[s]"), ("b", "<i8")], (3,)),
    "records": lambda memory: np.ndarray((6,), [("a", "u4"), ("b", "f4")], memory).view(np.recarray),
    "ctypes array": lambda memory: (ctypes.c_uint32 * 12).from_buffer(memory),
    "ctypes array in network order": lambda memory: (ctypes.c_uint32.__ctype_be__ * 12).from_buffer(memory),
    "ctypes array of two dimensions": lambda memory: ((ctypes.c_uint16 * 4) * 6).from_buffer(memory),
    "ctypes structure": Record.from_buffer,
    "ctypes union": Choice.from_buffer,
    "ctypes addresses as numbers": lambda memory: (ctypes.c_void_p * 6).from_buffer(memory),
}
for letters in ("?", "u1", "i1", "f2", "c8", "c16", "g", "S4", "U3", "V6", "M8[s]", "m8[us]"):
    IN_ORDER[f"array of {letters}"] = over(letters, (SIZE // np.dtype(letters).itemsize,))
for letters in ("u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", "U1"):
    for order in "<>":
        IN_ORDER[f"array of {order}{letters}"] = over(order + letters, (SIZE // np.dtype(letters).itemsize,))

# Objects over the memory that are refused, and a part of the error.
OUT_OF_ORDER: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda memory: np.ndarray((6, 4), "u2", memory).T,
    "Fortran order": over(">u4", (3, 4), order="F"),
    "reversed": lambda memory: np.ndarray((SIZE,), "u1", memory)[::-1],
    "every second element": lambda memory: np.ndarray((12,), "u4", memory)[::2],
    "columns": lambda memory: np.ndarray((6, 8), "u1", memory)[:, :3],
    "repeated": lambda memory: np.broadcast_to(np.ndarray((SIZE,), "u1", memory), (2, SIZE)),
    "field of a structure": lambda memory: np.ndarray((6,), [("a", "u4"), ("b", "u4")], memory)["a"],
    "transposed dates": lambda memory: np.ndarray((2, 3), "M8[s]", memory).T,
    "memoryview with a step": lambda memory: memoryview(memory)[::2],
}

# Objects with memory of their own, and their bytes or a part of the error.
OWN: dict[str, tuple[Callable[[], Any], bytes | str]] = {
    "bytes": (lambda: PATTERN, PATTERN),
    "bytearray": (lambda: bytearray(PATTERN), PATTERN),
    "read-only array": (lambda: np.frombuffer(PATTERN, "<u4"), PATTERN),
    "read-only memoryview": (lambda: memoryview(PATTERN), PATTERN),
    "numpy number": (lambda: np.uint32(0x01020304), b"\4\3\2\1"),
    "numpy number in network order": (lambda: np.array([1, 2], ">u4")[0], np.array([1], np.array([1], ">u4")[0].dtype).tobytes()),
    "numpy truth value": (lambda: np.True_, b"\1"),
    "numpy date": (lambda: np.datetime64(3, "s"), b"\3" + bytes(7)),
    "numpy record": (lambda: np.array([(1, 2)], [("a", "<u2"), ("b", ">u2")])[0], b"\1\0\0\2"),
    "ctypes number": (lambda: ctypes.c_uint16(0x0102), b"\2\1"),
    "pages": (lambda: mmap.mmap(-1, 4096), bytes(4096)),
    "empty bytes": (lambda: b"", b""),
    "empty array": (lambda: np.zeros((0, 3)), b""),
    "empty transposed array": (lambda: np.zeros((3, 0)).T, b""),
    "objects": (lambda: np.array([object(), None]), ELEMENTS),
    "structure with objects": (lambda: np.array([(1, "x")], [("a", "i4"), ("b", "O")]), ELEMENTS),
    "ctypes objects": (lambda: (ctypes.py_object * 2)(), ELEMENTS),
    "ctypes strings": (lambda: (ctypes.c_char_p * 2)(), ELEMENTS),
    "ctypes wide strings": (lambda: (ctypes.c_wchar_p * 2)(), ELEMENTS),
    "ctypes pointers": (lambda: (ctypes.POINTER(ctypes.c_int) * 2)(), ELEMENTS),
    "ctypes functions": (lambda: (ctypes.CFUNCTYPE(None) * 2)(), ELEMENTS),
    "structure with a pointer": (Pointers, ELEMENTS),
    "text": (lambda: "text", NO_BYTES),
    "number": (lambda: 5, NO_BYTES),
    "none": (lambda: None, NO_BYTES),
    "object": (object, NO_BYTES),
    "dictionary": (dict, NO_BYTES),
}
for letter in "bBhHiIlLqQfd":
    OWN[f"array.array of {letter}"] = (partial(array.array, letter, [1, 2, 3]), array.array(letter, [1, 2, 3]).tobytes())

# Words of interfaces that the caller does not use.
FOREIGN_WORDS = ("strides", "shape is", "suboffsets", "PyBuffer", "Sequence", "native format")


@dataclass
class Place:
    """Cards of the calls under test."""

    network: fpga_rdma.sim.Network
    card: fpga_rdma.Card
    streams: fpga_rdma.Card
    tx: fpga_rdma.stream.H2cStream
    rx: fpga_rdma.stream.C2hStream
    publisher: fpga_rdma.frames.Publisher
    subscriber: fpga_rdma.frames.Subscriber

    def at_card(self, length: int, address: int = 0x1000) -> bytes:
        return self.network[0].peek(address, length)

    def frame(self) -> fpga_rdma.frames.Frame:
        event = self.subscriber.wait(poll=[self.publisher])
        assert isinstance(event, fpga_rdma.frames.Frame)
        return event


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    network = fpga_rdma.sim.Network()
    # A publisher takes channels of its card.
    near, far = fpga_rdma.sim.Network(2).open()
    publisher = near.publisher(8192, max_value_length=8192)
    host, port = publisher.listen()
    subscriber = far.subscribe(host, port, poll=[publisher])
    with network[0].open() as card, fpga_rdma.open("mock:us-plus-x8-stream") as streams, near, far:
        yield Place(network, card, streams, streams.h2c_stream(0), streams.c2h_stream(0), publisher, subscriber)


def length_of(thing: Any) -> int:
    """Size of an object in bytes, by another way than the package's."""
    return thing.nbytes if isinstance(thing, np.ndarray | np.generic | fpga_rdma.Buffer) else memoryview(thing).nbytes


def is_read_only(thing: Any) -> bool:
    return isinstance(thing, np.generic) or memoryview(thing).readonly


def clear(place: Place) -> None:
    place.network[0].poke(0x1000, bytes(4096))


def write(place: Place, thing: Any) -> bytes:
    clear(place)
    place.card.h2c[0].write(thing, 0x1000)
    return place.at_card(length_of(thing))


def write_async(place: Place, thing: Any) -> bytes:
    clear(place)
    asyncio.run(place.card.h2c[0].write_async(thing, 0x1000))
    return place.at_card(length_of(thing))


def poke(place: Place, thing: Any) -> bytes:
    clear(place)
    place.network[0].poke(0x1000, thing)
    return place.at_card(length_of(thing))


def send(place: Place, thing: Any) -> bytes:
    place.tx.send(thing)
    return place.rx.receive()


def send_parts(place: Place, thing: Any) -> bytes:
    place.tx.send([b"head", thing])
    packet = place.rx.receive()
    assert packet[:4] == b"head"
    return packet[4:]


def submit_packet(place: Place, thing: Any) -> bytes:
    place.tx.submit((thing,))
    place.tx.flush()
    return place.rx.receive()


def publish(place: Place, thing: Any) -> bytes:
    place.publisher.publish(thing)
    return place.frame().data


def publish_value(place: Place, thing: Any) -> bytes:
    place.publisher.publish(b"data", thing)
    return place.frame().value


def submit(place: Place, thing: Any) -> bytes:
    clear(place)
    place.card.h2c[0].submit(thing, 0x1000).wait()
    return place.at_card(length_of(thing))


def submit_list(place: Place, thing: Any) -> bytes:
    clear(place)
    place.card.h2c[0].submit_list([(thing, 0x1000)]).wait()
    return place.at_card(length_of(thing))


def write_batch(place: Place, thing: Any) -> bytes:
    clear(place)
    half = length_of(thing) // 2
    place.card.h2c[0].write_batch(thing, [half, 0], [0x1000 + half, 0x1000], half)
    return place.at_card(2 * half)


def read(place: Place, thing: Any) -> None:
    place.card.c2h[0].read(thing, 0x3000)


def read_async(place: Place, thing: Any) -> None:
    asyncio.run(place.card.c2h[0].read_async(thing, 0x3000))


def submit_read(place: Place, thing: Any) -> None:
    place.card.c2h[0].submit(thing, 0x3000).wait()


def read_batch(place: Place, thing: Any) -> None:
    half = length_of(thing) // 2
    place.card.c2h[0].read_batch(thing, [half, 0], [0x3000 + half, 0x3000], half)


def receive_into(place: Place, thing: Any) -> None:
    place.tx.send(PATTERN[: length_of(thing)])
    try:
        assert place.rx.receive_into(thing) == length_of(thing)
    except (TypeError, ValueError):
        place.rx.receive()
        raise


COPYING = [write, write_async, poke, send, send_parts, submit_packet, publish, publish_value]
IN_PLACE = [submit, submit_list, write_batch]
READING = [read, read_async, receive_into]
READING_IN_PLACE = [submit_read, read_batch]


def check_words(error: Exception, words: str) -> None:
    text = str(error)
    assert words in text and not any(word in text for word in FOREIGN_WORDS), text


@pytest.mark.parametrize("name", IN_ORDER)
def test_object_in_order_moves_its_bytes(place: Place, name: str) -> None:
    make = IN_ORDER[name]
    for call in COPYING + IN_PLACE:
        memory: Any = bytearray(PATTERN) if call in COPYING else place.card.buffer(SIZE)
        memory[:] = PATTERN
        assert call(place, make(memory)) == PATTERN, call.__name__
    place.network[0].poke(0x3000, PATTERN)
    for reading in READING + READING_IN_PLACE:
        target: Any = bytearray(SIZE) if reading in READING else place.card.buffer(SIZE)
        reading(place, make(target))
        assert bytes(target[:]) == PATTERN, reading.__name__


@pytest.mark.parametrize("name", OUT_OF_ORDER)
def test_object_out_of_order_is_refused_everywhere(place: Place, name: str) -> None:
    make = OUT_OF_ORDER[name]
    for call in [*COPYING, *IN_PLACE, *READING, *READING_IN_PLACE]:
        in_place = call in IN_PLACE or call in READING_IN_PLACE
        memory: Any = place.card.buffer(SIZE) if in_place else bytearray(SIZE)
        memory[:] = PATTERN
        with pytest.raises(ValueError) as caught:
            call(place, make(memory))
        check_words(caught.value, ORDER)
        assert bytes(memory[:]) == PATTERN, call.__name__


@pytest.mark.parametrize("name", OWN)
def test_object_of_its_own_memory_moves_or_is_refused(place: Place, name: str) -> None:
    make, expected = OWN[name]
    for call in COPYING:
        if name == "none" and call is publish_value:
            continue  # A frame without a value.
        if isinstance(expected, str):
            with pytest.raises(TypeError) as caught:
                call(place, make())
            check_words(caught.value, expected)
        elif expected or call not in (send, submit_packet):
            assert call(place, make()) == expected, call.__name__
        else:
            with pytest.raises(ValueError, match="at least one byte"):
                call(place, make())
    in_place: list[Callable[[Place, Any], object]] = [*IN_PLACE, submit_read, read_batch]
    for moving in in_place:
        thing = make()
        if isinstance(expected, str):
            with pytest.raises(TypeError):
                place.card.h2c[0].submit(thing, 0)
            with pytest.raises(TypeError):
                place.card.c2h[0].submit(thing, 0)
        else:
            with pytest.raises((fpga_rdma.RefusedError, ValueError), match=r"not in DMA memory|read-only"):
                moving(place, thing)


@pytest.mark.parametrize("name", OWN)
def test_target_of_its_own_memory_is_filled_or_refused(place: Place, name: str) -> None:
    make, expected = OWN[name]
    thing: Any = make()
    place.network[0].poke(0x3000, PATTERN)
    for reading in READING:
        if isinstance(expected, str):
            if reading is not receive_into:
                with pytest.raises(TypeError) as caught:
                    reading(place, thing)
                check_words(caught.value, expected)
            with pytest.raises(TypeError):
                place.rx.receive_into(thing, 0)
            continue
        if reading is receive_into and not 0 < length_of(thing) <= SIZE:
            continue
        if is_read_only(thing):
            with pytest.raises(ValueError) as refused:
                reading(place, thing)
            check_words(refused.value, READ_ONLY)
            continue
        reading(place, thing)
        assert memoryview(thing).tobytes()[:SIZE] == PATTERN[: length_of(thing)], reading.__name__


@pytest.mark.parametrize("name", [*IN_ORDER, *OUT_OF_ORDER, *OWN])
def test_slice_of_buffer_is_assigned_the_same_bytes(place: Place, name: str) -> None:
    buffer = place.card.buffer(4096)
    if name in OWN:
        make, expected = OWN[name]
        thing: Any = make()
        if isinstance(expected, str):
            with pytest.raises(TypeError) as caught:
                buffer[:] = thing
            check_words(caught.value, expected)
            return
    else:
        thing = (IN_ORDER | OUT_OF_ORDER)[name](bytearray(PATTERN))
        expected = PATTERN
    if name in OUT_OF_ORDER:
        with pytest.raises(ValueError, match=ORDER):
            buffer[:] = thing
        return
    buffer[: len(expected)] = thing
    assert buffer[: len(expected)] == expected
    if len(expected) <= 1024:
        buffer[: 2 * len(expected) : 2] = thing
        assert buffer[: 2 * len(expected) : 2] == expected
    with pytest.raises(ValueError, match="give as many"):
        buffer[: len(expected) + 1] = bytes(len(expected) + 2)


def test_element_of_buffer_is_assigned_a_byte(place: Place) -> None:
    buffer = place.card.buffer(64)
    buffer[np.int16(3)] = np.uint8(9)
    assert buffer[3] == 9
    wrong: Any
    for wrong, kind in ((256, ValueError), (-1, ValueError), (2.5, TypeError), (b"1", TypeError), ("1", TypeError)):
        with pytest.raises(kind, match="value"):
            buffer[0] = wrong
    with pytest.raises(IndexError):
        buffer[64] = 1


def test_closed_and_released_memory_is_refused(place: Place) -> None:
    view = memoryview(bytearray(4))
    view.release()
    pages = mmap.mmap(-1, 4096)
    pages.close()
    for closed in (view, pages):
        with pytest.raises(ValueError, match=r"released|closed"):
            place.card.h2c[0].write(closed, 0)
    buffer = place.card.buffer(64)
    buffer.close()
    with pytest.raises(fpga_rdma.ClosedError):
        place.card.h2c[0].write(buffer, 0)


@pytest.mark.parametrize("name", [*OUT_OF_ORDER, "objects", "ctypes objects", "text", "empty bytes"])
def test_memory_without_whole_bytes_is_not_registered(place: Place, name: str) -> None:
    pages: Any = mmap.mmap(-1, 4096)
    gaps = ("reversed", "every second element", "columns", "repeated", "field of a structure", "memoryview with a step")
    thing = OUT_OF_ORDER[name](pages) if name in OUT_OF_ORDER else OWN[name][0]()
    for call in (place.card.register, place.card.device_address):
        if name in gaps or name in OWN:
            with pytest.raises((TypeError, ValueError)) as caught:
                call(thing)
            check_words(caught.value, "")
    if name == "transposed":
        whole = np.ndarray((64, 64), "u1", pages).T
        with place.card.register(whole) as registered:
            assert place.card.device_address(whole) == registered.device_address
            with pytest.raises(ValueError, match=ORDER):
                place.card.h2c[0].write(whole, 0)


def test_pynq_transfer_takes_the_same_objects() -> None:
    with fpga_rdma.open("mock:us-plus-x8-stream") as card:
        dma = pynq.DMA(card)
        for name, make in IN_ORDER.items():
            source, target = bytearray(PATTERN), bytearray(SIZE)
            dma.recvchannel.transfer(make(target))
            dma.sendchannel.transfer(make(source))
            dma.sendchannel.wait()
            dma.recvchannel.wait()
            assert target == PATTERN, name
        for make in OUT_OF_ORDER.values():
            with pytest.raises(ValueError, match=ORDER):
                dma.sendchannel.transfer(make(bytearray(SIZE)))
        for name in ("objects", "ctypes objects", "text", "none"):
            with pytest.raises(TypeError):
                dma.sendchannel.transfer(OWN[name][0]())
        with pytest.raises(ValueError, match=READ_ONLY):
            dma.recvchannel.transfer(PATTERN)
