"""Every integer argument, and every array of integers: any width, byte order and step, or an error that names the argument."""

from __future__ import annotations

import array
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fpga_rdma
from fpga_rdma import endpoint, pynq

COUNT = 8
STEP = 8  # bytes of one transfer
LAYOUTS: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "in order": lambda numbers: numbers,
    "every second": lambda numbers: np.repeat(numbers, 2)[::2],
    "reversed": lambda numbers: numbers[::-1].copy()[::-1],
    "field of a structure": lambda numbers: np.array(list(zip(numbers, numbers, strict=True)), [("a", "u1"), ("b", numbers.dtype)])["b"],
    "read-only": lambda numbers: np.frombuffer(numbers.tobytes(), numbers.dtype),
    "memoryview": lambda numbers: memoryview(numbers),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
}
INTEGERS = [order + letters for letters in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8") for order in "<>"]


@dataclass
class Place:
    """Cards of the calls under test."""

    network: fpga_rdma.sim.Network
    card: fpga_rdma.Card
    data: Any


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    network = fpga_rdma.sim.Network()
    with network[0].open() as card:
        data = card.allocate((16, STEP))
        data[:] = np.arange(16 * STEP).reshape(16, STEP) + 1
        yield Place(network, card, data)


def moved(place: Place, offsets: Any, addresses: Any, expected: list[tuple[int, int]]) -> None:
    """Checks both directions of a batch."""
    place.network[0].poke(0, bytes(4096))
    place.card.h2c[0].write_batch(place.data, offsets, addresses, STEP)
    memory = bytearray(4096)
    for offset, address in expected:
        memory[address : address + STEP] = bytes(place.data.reshape(-1)[offset : offset + STEP])
    assert place.network[0].peek(0, 4096) == memory
    got = place.card.allocate((16, STEP))
    place.card.c2h[0].read_batch(got, offsets, addresses, STEP)
    for offset, _ in expected:
        assert (got.reshape(-1)[offset : offset + STEP] == place.data.reshape(-1)[offset : offset + STEP]).all()


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_array_of_integers_is_read_as_the_program_sees_it(place: Place, dtype: str, layout: str) -> None:
    offsets = np.random.default_rng(1).permutation(COUNT) * STEP
    addresses = np.random.default_rng(2).permutation(COUNT) * STEP + 8
    expected = list(zip(offsets.tolist(), addresses.tolist(), strict=True))
    make = LAYOUTS[layout]
    moved(place, make(offsets.astype(dtype)), make(addresses.astype(dtype)), expected)
    moved(place, offsets, make(addresses.astype(dtype)), expected)


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        lambda numbers: range(numbers[0], numbers[-1] + 1, numbers[1] - numbers[0]),
        lambda numbers: array.array("q", numbers),
        lambda numbers: array.array("H", numbers),
        lambda numbers: (ctypes.c_uint32 * len(numbers))(*numbers),
        lambda numbers: (ctypes.c_int16.__ctype_be__ * len(numbers))(*numbers),
        lambda numbers: np.array(numbers, object),
        lambda numbers: [np.uint16(number) for number in numbers],
        lambda numbers: [np.array(number) for number in numbers],
        lambda numbers: np.array(numbers)[:, None][:, 0],
        bytes,
        bytearray,
    ],
)
def test_container_of_integers_is_read(place: Place, make: Callable[[list[int]], Any]) -> None:
    numbers = [8, 24, 40, 56]
    moved(place, make(numbers), make(numbers), list(zip(numbers, numbers, strict=True)))


@pytest.mark.parametrize("name", ["offsets", "addresses"])
@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (np.array([0, -8], "i1"), ValueError, "[1] is negative (-8)"),
        (np.array([0, -8], ">i8"), ValueError, "[1] is negative (-8)"),
        ([0, -8], ValueError, "[1] is negative (-8)"),
        ([0, -(1 << 70)], ValueError, "[1] is negative"),
        ([0, 1 << 64], ValueError, "[1] is 18446744073709551616"),
        ([1 << 20_000, 0], ValueError, "many digits"),
        (np.array([0, 1 << 64], object), ValueError, "[1] is 18446744073709551616"),
        (np.array([0.0, 8.0]), TypeError, "float64"),
        (np.array([0.0, 8.0], ">f4"), TypeError, ">f4"),
        (np.array([0, 8], "c8"), TypeError, "complex64"),
        (np.array([0, 8], "M8[s]"), TypeError, "date"),
        (np.array(["0", "8"]), TypeError, "U1"),
        (np.array([b"0", b"8"]), TypeError, "S1"),
        (np.array([(0, 1), (8, 1)], [("a", "i4"), ("b", "i4")]), TypeError, "integers"),
        (np.array([True, False]), TypeError, "bool"),
        ([False, True], TypeError, "[0] is of type bool"),
        ([0, 8.0], TypeError, "[1] is of type float"),
        ([0, "8"], TypeError, "[1] is of type str"),
        ([0, None], TypeError, "[1] is of type NoneType"),
        ([[0, 8]], TypeError, "[0] is of type list"),
        (np.array([[0, 8]]), ValueError, "2 dimensions"),
        (np.array(8), TypeError, "integers"),
        (np.uint64(8), TypeError, "integers"),
        (8, TypeError, "integers"),
        (None, TypeError, "integers"),
        ("08", TypeError, "integers"),
        ({0, 8}, TypeError, "integers"),
        (iter([0, 8]), TypeError, "integers"),
        ((ctypes.c_double * 2)(), TypeError, "integers"),
    ],
)
def test_what_is_no_array_of_integers_is_refused(place: Place, name: str, wrong: Any, kind: type[Exception], words: str) -> None:
    place.network[0].poke(0, bytes(64))
    right = np.array([0, 8])
    arguments = {"offsets": right, "addresses": right, name: wrong}
    for call in (place.card.h2c[0].write_batch, place.card.c2h[0].read_batch):
        with pytest.raises(kind) as caught:
            call(place.data, arguments["offsets"], arguments["addresses"], STEP)
        assert name in str(caught.value) and words in str(caught.value)
    assert place.network[0].peek(0, 64) == bytes(64)


def calls(place: Place) -> dict[str, tuple[str, Callable[[Any], object]]]:
    """Every argument that is one integer: its name, and a call with it."""
    card, network, data = place.card, place.network, bytearray(8)
    pair = fpga_rdma.sim.Network(2).open()
    near = pair[0].endpoint()
    region = near.open_region(near.node, near.usable_memory.start, 4096)
    readable = endpoint.RemoteReadable(2, 4096, region.remote)
    arguments: dict[str, tuple[str, Callable[[Any], object]]] = {
        "write": ("address", lambda n: card.h2c[0].write(data, n)),
        "read": ("address", lambda n: card.c2h[0].read(data, n)),
        "write_async": ("address", lambda n: card.h2c[0].write_async(data, n)),
        "read_async": ("address", lambda n: card.c2h[0].read_async(data, n)),
        "submit": ("address", lambda n: card.h2c[0].submit(place.data, n)),
        "submit_list": ("address", lambda n: card.h2c[0].submit_list([(place.data, n)])),
        "write_batch": ("length", lambda n: card.h2c[0].write_batch(place.data, [0], [0], n)),
        "read_batch": ("length", lambda n: card.c2h[0].read_batch(place.data, [0], [0], n)),
        "open descriptors": ("descriptors", lambda n: card.h2c.open(1, descriptors=n)),
        "open transfers": ("transfers", lambda n: card.h2c.open(1, transfers=n)),
        "buffer": ("length", card.buffer),
        "allocate": ("shape", card.allocate),
        "allocate sizes": ("shape", lambda n: card.allocate((2, n))),
        "read32": ("offset", card.user_bar.read32),
        "read64": ("offset", card.user_bar.read64),
        "bar": ("offset", lambda n: card.user_bar[n]),
        "write32": ("value", lambda n: card.user_bar.write32(0x1018, n)),
        "write64": ("value", lambda n: card.user_bar.write64(0x1018, n)),
        "copy source": ("source", lambda n: card.cdma().copy(n, 0, 4)),
        "copy destination": ("destination", lambda n: card.cdma().copy(0, n, 4)),
        "copy length": ("length", lambda n: card.cdma().copy(0, 4096, n)),
        "user_interrupt": ("line", card.user_interrupt),
        "c2h_stream": ("number", card.c2h_stream),
        "c2h_stream buffers": ("buffers", lambda n: card.c2h_stream(0, buffers=n)),
        "peek": ("address", lambda n: network[0].peek(n, 1)),
        "peek length": ("length", lambda n: network[0].peek(0, n)),
        "poke": ("address", lambda n: network[0].poke(n, b"1")),
        "poison": ("length", lambda n: network[0].poison(0, n)),
        "set_user_interrupt": ("line", lambda n: network[0].set_user_interrupt(n, False)),
        "open_region": ("peer", lambda n: near.open_region(n, near.usable_memory.start, 64)),
        "open_readable": ("length", lambda n: near.open_readable(1, near.usable_memory.start, n)),
        "send": ("offset", lambda n: near.send(near.usable_memory.start, region.remote, n, 4)),
        "send key": ("key", lambda n: near.send(near.usable_memory.start, endpoint.RemoteRegion(1, 0, 64, n))),
        "send priority": ("priority", lambda n: near.send(near.usable_memory.start, region.remote, priority=n)),
        "endpoint read": ("length", lambda n: near.read(readable, 0, near.usable_memory.start, n)),
        "peer": ("node", lambda n: near.peer(n, 0.0)),
        "endpoint": ("segment", lambda n: pair[1].endpoint(segment=n)),
        "publisher": ("max_data_length", pair[1].publisher),
        "subscribe": ("port", lambda n: pair[1].subscribe("127.0.0.1", n)),
        "open": ("dma_bar", lambda n: fpga_rdma.open("mock", dma_bar=n)),
        "open memory": ("card_memory", lambda n: fpga_rdma.open("mock", card_memory=(0, n))),
        "seed": ("seed", lambda n: fpga_rdma.sim.Network(seed=n)),
    }
    return arguments


def test_integer_argument_outside_its_range_is_named(place: Place) -> None:
    for name, (argument, call) in calls(place).items():
        for wrong in (-1, -(1 << 70), 1 << 64, 1 << 200, np.int8(-1)):
            with pytest.raises(ValueError) as caught:
                call(wrong)
            assert argument in str(caught.value), (name, wrong, str(caught.value))


def test_argument_that_is_no_integer_is_named(place: Place) -> None:
    for name, (argument, call) in calls(place).items():
        for wrong in (2.5, np.float64(4096), "1", b"1", [1.5], 1j, object()):
            if argument == "shape" and isinstance(wrong, bytes):
                continue  # A sequence of integers.
            with pytest.raises(TypeError) as caught:
                call(wrong)
            assert argument in str(caught.value), (name, wrong, str(caught.value))


def test_position_outside_is_index_error(place: Place) -> None:
    for wrong in (-1, 4, 1 << 80, -(1 << 80)):
        for positions in (place.card.h2c, place.card.c2h, place.network):
            with pytest.raises(IndexError, match="there is no"):
                _ = positions[wrong]


@pytest.mark.parametrize("number", [4096, np.uint16(4096), np.int64(4096), np.array(4096), np.array(4096, ">u2"), ctypes.c_uint32(4096).value])
def test_every_kind_of_integer_is_an_address(place: Place, number: Any) -> None:
    place.card.h2c[0].write(b"right", number)
    assert place.network[0].peek(4096, 5) == b"right"


def test_registers_take_integers_alone(place: Place) -> None:
    regs = place.card.parse_map("schema_version: 1\nname: m\nblocks: [{name: b, offset: 0x1000, registers: [{name: r, offset: 0x18}]}]\n")
    regs.b.r = np.uint16(3)
    for wrong in (2.9, np.float32(2), 2.0, b"2", None, [2], np.array([2, 3])):
        for write in (lambda: setattr(regs.b, "r", wrong), lambda: setattr(regs.b.r, "value", wrong), lambda: regs.b.r.set(wrong)):
            with pytest.raises(TypeError, match="b.r: .* give an integer"):
                write()
    for beyond in (1 << 32, -1, 1 << 200):
        with pytest.raises(fpga_rdma.RangeError, match="does not fit"):
            regs.b.r = beyond
    with pytest.raises(TypeError, match="value"):
        place.card.user_bar[0x1018] = 2.9  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]
    mmio = pynq.MMIO(place.card, 0x1000, 0x40)
    with pytest.raises(TypeError):
        mmio.write(0x18, 2.9)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        mmio.array[6] = 2.9
    assert regs.b.r == 3


def test_allocate_refuses_impossible_shapes_and_types(place: Place) -> None:
    for shape, kind in ((-1, ValueError), ((2, -1), ValueError), (2.0, TypeError), ("4", TypeError), (None, TypeError), ((2, "3"), TypeError)):
        with pytest.raises(kind, match="shape"):
            place.card.allocate(shape)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    for dtype in ("S0", "U", "V0"):
        with pytest.raises(ValueError, match="0 bytes"):
            place.card.allocate(3, dtype)
    assert place.card.allocate(()).shape == ()
    assert place.card.allocate(np.array([2, 3]), np.dtype(("u2", (4,)))).shape == (2, 3, 4)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    dates = place.card.allocate(4, "M8[s]")
    dates[:] = np.arange(4)
    place.card.h2c[0].submit(dates, 0).wait()
    assert place.network[0].peek(0, 32) == np.arange(4).tobytes()
