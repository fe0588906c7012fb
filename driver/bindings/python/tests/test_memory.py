from __future__ import annotations

import gc
import mmap

import numpy as np
import pytest

import fpga_rdma


def test_allocated_array_round_trips_without_copy(card: fpga_rdma.Card) -> None:
    sent = card.allocate((4, 1000), "<u2")
    got = card.allocate((4, 1000), np.uint16)
    assert sent.shape == (4, 1000) and not sent.any()
    sent[:] = np.arange(4000).reshape(4, 1000)
    card.h2c[0].write(sent, 0x1000)
    card.c2h[0].read(got, 0x1000)
    assert (sent == got).all()
    assert card.device_address(sent[1:]) == card.device_address(sent) + 2000


def test_part_of_allocated_array_is_transferred(card: fpga_rdma.Card) -> None:
    data = card.allocate((16, 8), "u8")
    data[:] = np.arange(128).reshape(16, 8)
    card.h2c[0].write(data[3:5], 0)
    got = np.zeros(16, "u8")
    card.c2h[0].read(got, 0)
    assert (got == np.arange(24, 40)).all()


def test_transfer_of_dma_memory_allocates_nothing_in_pool(card: fpga_rdma.Card) -> None:
    data = card.allocate(1 << 20)
    card.h2c[0].write(data, 0)
    before = card.dma_memory.in_use_bytes
    tickets = [card.h2c[0].submit(data, 0) for _ in range(8)]
    assert card.dma_memory.in_use_bytes == before
    for ticket in tickets:
        ticket.wait()


def test_allocate_impossible_types_are_refused(card: fpga_rdma.Card) -> None:
    with pytest.raises(ValueError, match="Python objects"):
        card.allocate(4, object)
    with pytest.raises(ValueError, match="too large"):
        card.allocate((1 << 62, 1 << 62))
    with pytest.raises(ValueError, match="0 bytes"):
        card.buffer(0)
    with pytest.raises(fpga_rdma.DmaMemoryError):
        card.buffer(1 << 45)
    assert card.allocate((0, 3), "f4").shape == (0, 3)


def test_allocate_structured_dtype_keeps_fields(card: fpga_rdma.Card) -> None:
    record = np.dtype([("a", ">u4"), ("b", "u1")])
    data = card.allocate(3, record)
    data["a"] = 0x01020304
    card.h2c[0].write(data, 0)
    got = bytearray(5)
    card.c2h[0].read(got, 0)
    assert got == b"\1\2\3\4\0"


def test_array_outlives_its_card() -> None:
    card = fpga_rdma.open("mock")
    data = card.allocate(4096)
    card.h2c[0].write(data, 0)
    card.close()
    data[:] = 3
    assert data.sum() == 3 * 4096
    with pytest.raises(fpga_rdma.ClosedError):
        card.allocate(1)


def test_freed_array_returns_memory(card: fpga_rdma.Card) -> None:
    before = card.dma_memory.in_use_bytes
    data = card.allocate(1 << 16)
    card.h2c[0].write(data, 0)
    assert card.dma_memory.in_use_bytes >= before + (1 << 16)
    used = card.dma_memory.in_use_bytes - (1 << 16)
    del data
    gc.collect()
    assert card.dma_memory.in_use_bytes == used


def test_freed_array_in_flight_is_kept_until_transfer_has_ended(card: fpga_rdma.Card) -> None:
    data = card.allocate(1 << 16)
    data[:] = 5
    ticket = card.h2c[0].submit(data, 0)
    used = card.dma_memory.in_use_bytes
    del data
    gc.collect()
    assert card.dma_memory.in_use_bytes == used
    ticket.wait()
    got = np.zeros(1 << 16, "u1")
    card.c2h[0].read(got, 0)
    assert (got == 5).all()
    assert card.h2c[0].poll() == 0
    assert card.dma_memory.in_use_bytes <= used


def test_buffer_refuses_writes_while_transfer_is_in_flight(card: fpga_rdma.Card) -> None:
    buffer = card.buffer(4096)
    buffer[0:4] = b"abcd"
    assert (buffer[0], buffer[1:3], len(buffer)) == (ord("a"), b"bc", 4096)
    ticket = card.h2c[0].submit(buffer, 0)
    assert buffer.in_flight
    with pytest.raises(fpga_rdma.InUseError):
        buffer[0] = 1
    with pytest.raises(fpga_rdma.InUseError):
        buffer.close()
    assert memoryview(buffer).readonly
    assert not buffer.array("u2").flags.writeable
    ticket.wait()
    assert not buffer.in_flight
    buffer[0] = 1
    assert not memoryview(buffer).readonly


def test_buffer_is_read_while_in_flight_into_itself(card: fpga_rdma.Card) -> None:
    buffer = card.buffer(64)
    first = card.c2h[0].submit(buffer, 0)
    card.c2h[0].read(buffer, 0)
    assert first.done()


def test_closed_buffer_is_refused_and_views_prevent_it(card: fpga_rdma.Card) -> None:
    buffer = card.buffer(4096)
    view = memoryview(buffer)
    with pytest.raises(BufferError, match="views"):
        buffer.close()
    view.release()
    with buffer:
        card.h2c[0].write(buffer, 0)
    assert buffer.closed and "closed" in repr(buffer)
    with pytest.raises(fpga_rdma.ClosedError):
        memoryview(buffer)
    buffer.close()


def test_buffer_speaks_dlpack(card: fpga_rdma.Card) -> None:
    buffer = card.buffer(4)
    buffer[:] = b"\1\2\3\4"
    array = np.from_dlpack(buffer)
    assert array.tolist() == [1, 2, 3, 4]
    array[0] = 9
    assert buffer[0] == 9


def test_registered_pages_are_transferred_in_place(card: fpga_rdma.Card) -> None:
    pages = mmap.mmap(-1, 8192)
    pages[:4] = b"page"
    with card.register(pages) as registered:
        assert card.device_address(pages) == registered.device_address
        ticket = card.h2c[0].submit(memoryview(pages)[:4], 0x40)
        ticket.wait()
        with pytest.raises(BufferError):
            pages.resize(4096)
        with pytest.raises(fpga_rdma.InUseError, match="registered already"):
            card.register(pages)
    with pytest.raises(ValueError, match="not in DMA memory"):
        card.device_address(pages)
    pages.resize(4096)
    got = bytearray(4)
    card.c2h[0].read(got, 0x40)
    assert got == b"page"


def test_registered_memory_needs_whole_pages_and_permission(card: fpga_rdma.Card) -> None:
    pages = np.frombuffer(mmap.mmap(-1, 8192), "u1")
    with pytest.raises(fpga_rdma.DmaMemoryError) as caught:
        card.register(pages[1:5000])
    assert caught.value.advice is not None and "4096" in caught.value.advice
    with pytest.raises(ValueError, match="access"):
        card.register(pages, access="all")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with card.register(pages, access="read"):
        card.h2c[0].write(pages, 0)
        with pytest.raises(fpga_rdma.RangeError, match="needs"):
            card.c2h[0].read(pages, 0)
