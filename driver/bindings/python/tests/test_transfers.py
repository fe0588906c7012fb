from __future__ import annotations

import array
import signal
import threading

import numpy as np
import pytest

import fpga_rdma


@pytest.mark.parametrize("dtype", ["u1", "<u2", ">i4", "f8", "c16", "?"])
def test_round_trip_of_every_dtype_arrives(card: fpga_rdma.Card, dtype: str) -> None:
    rng = np.random.default_rng(1)
    sent = rng.integers(0, 2, 12_345).astype(dtype)
    got = np.zeros_like(sent)
    card.h2c[0].write(sent, 0x1003)
    card.c2h[1].read(got, 0x1003)
    assert sent.tobytes() == got.tobytes()


def test_objects_with_buffer_protocol_are_moved(card: fpga_rdma.Card) -> None:
    for source in (b"0123456789", bytearray(b"0123456789"), memoryview(b"0123456789"), array.array("B", b"0123456789")):
        into = bytearray(10)
        card.h2c[0].write(source, 64)
        card.c2h[0].read(memoryview(into), 64)
        assert into == b"0123456789"
    card.h2c[0].write(b"", 0)


def test_longer_than_chunk_transfer_arrives(card: fpga_rdma.Card) -> None:
    sent = np.arange(3 << 18, dtype=np.uint64)
    got = np.empty_like(sent)
    card.h2c[0].write(sent.reshape(3, -1), 0)
    card.c2h[0].read(got, 0)
    assert (sent == got).all()


def test_unsuitable_memory_is_refused(card: fpga_rdma.Card) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        card.h2c[0].write(np.arange(20, dtype=np.uint8)[::2], 0)
    with pytest.raises(ValueError, match="read-only"):
        card.c2h[0].read(b"read only", 0)
    with pytest.raises(TypeError):
        card.h2c[0].write("text", 0)  # type: ignore[arg-type]


def test_range_outside_card_memory_raises_with_place(card: fpga_rdma.Card) -> None:
    with pytest.raises(fpga_rdma.RangeError) as caught:
        card.h2c[0].write(b"x", 1 << 60)
    assert (caught.value.card, caught.value.part) == ("mock:0", "h2c0")
    assert caught.value.advice == "choose a value that fits the card: see card.info"


def test_wrong_direction_is_refused(card: fpga_rdma.Card) -> None:
    with pytest.raises(fpga_rdma.UnsupportedError):
        card.c2h[0].write(b"x", 0)
    with pytest.raises(fpga_rdma.UnsupportedError):
        card.h2c[0].read(bytearray(1), 0)


def test_impossible_timeouts_are_refused(card: fpga_rdma.Card) -> None:
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            card.h2c[0].write(b"x", 0, timeout=wrong)
    for right in (None, float("inf"), 1e30):
        card.h2c[0].write(b"x", 0, timeout=right)


def test_threads_share_channel(card: fpga_rdma.Card) -> None:
    def work(number: int) -> None:
        for _ in range(20):
            card.h2c[0].write(bytes([number]) * 5000, number * 8192)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = bytearray(5000)
    for number in range(4):
        card.c2h[0].read(got, number * 8192)
        assert got == bytes([number]) * 5000


def test_signal_handler_exception_ends_transfer(card: fpga_rdma.Card) -> None:
    class Stop(Exception):
        pass

    def handler(*_: object) -> None:
        raise Stop

    old = signal.signal(signal.SIGALRM, handler)
    data = np.zeros(256 << 20, dtype=np.uint8)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(Stop):
            while True:
                card.h2c[0].write(data, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    card.h2c[0].write(b"still works", 0)
