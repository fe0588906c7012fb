from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from typing_extensions import Buffer

import fpga_rdma
from fpga_rdma.stream import C2hStream, H2cStream

NAME = "mock:us-plus-x8-stream"


@pytest.fixture
def streams() -> Iterator[tuple[H2cStream, C2hStream]]:
    with fpga_rdma.open(NAME) as card:
        yield card.h2c_stream(0), card.c2h_stream(0)


def test_packets_of_any_length_arrive_in_order(streams: tuple[H2cStream, C2hStream]) -> None:
    tx, rx = streams
    assert rx.try_receive() is None
    sent = [bytes([n % 251]) * (1 + n * 37 % 9000) for n in range(200)]
    received = []
    for packet in sent:
        tx.send(packet)
        received.append(rx.receive())
    assert received == sent
    statistics = rx.statistics
    assert (statistics.packets, statistics.bytes, statistics.lost) == (200, sum(map(len, sent)), 0)
    assert repr(statistics).startswith("ReceiveStatistics(packets=200, bytes=")
    assert tx.statistics.packets == 200


def test_gather_list_is_one_packet(streams: tuple[H2cStream, C2hStream]) -> None:
    tx, rx = streams
    payload = np.arange(1000, dtype=np.uint16)
    tx.send([b"head", memoryview(b"er"), payload])
    tx.send((bytearray(b"second"), b""))
    assert rx.receive() == b"header" + payload.tobytes()
    assert rx.receive() == b"second"
    empties: list[bytes | list[Buffer]] = [b"", [], [b"", bytearray()]]
    for empty in empties:
        with pytest.raises(ValueError, match="at least one byte"):
            tx.send(empty)


def test_receive_into_array_copies_packet(streams: tuple[H2cStream, C2hStream]) -> None:
    tx, rx = streams
    sent = np.arange(5000, dtype=np.uint32)
    tx.send(sent)
    got = np.zeros(6000, dtype=np.uint32)
    assert rx.receive_into(got) == sent.nbytes
    assert (got[:5000] == sent).all() and not got[5000:].any()


def test_packet_longer_than_memory_is_kept(streams: tuple[H2cStream, C2hStream]) -> None:
    tx, rx = streams
    tx.send(b"0123456789")
    for _ in range(2):
        with pytest.raises(fpga_rdma.RangeError, match="10 bytes, and there is space for 9") as caught:
            rx.receive_into(bytearray(9))
        assert (caught.value.card, caught.value.part) == ("mock:0", "c2h0")
    got = bytearray(10)
    assert rx.receive_into(got) == 10 and got == b"0123456789"


def test_packet_longer_than_ring_is_reported_lost() -> None:
    with fpga_rdma.open(NAME) as card:
        tx, rx = card.h2c_stream(0), card.c2h_stream(0, buffers=4, buffer_size=64)
        assert rx.try_receive() is None
        tx.submit(bytes(1000))
        tx.submit(b"after")
        with pytest.raises(fpga_rdma.PacketLostError):
            while rx.try_receive() is None:
                tx.poll()
        assert rx.receive() == b"after"
        assert rx.statistics.lost == 1


def test_receive_without_packet_times_out(streams: tuple[H2cStream, C2hStream]) -> None:
    tx, rx = streams
    for timeout, text in ((0.0, "0ns"), (0.05, "50ms")):
        with pytest.raises(fpga_rdma.TimedOutError, match=f"mock:0 c2h0: no packet within {text}"):
            rx.receive(timeout)
    with pytest.raises(TimeoutError):
        next(rx.packets(timeout=0.01))
    tx.send(b"late")
    assert next(rx.packets(timeout=1.0)) == b"late"
    with pytest.raises(ValueError, match="timeout"):
        rx.packets(timeout=-1.0)


def test_stopped_stream_ends_iteration_and_abort_restarts(streams: tuple[H2cStream, C2hStream]) -> None:
    tx, rx = streams
    for number in range(3):
        tx.submit(bytes([number]))
    tx.poll()
    assert rx.receive() == b"\0"
    tx.flush()
    rx.stop()
    assert list(rx) == [b"\1", b"\2"]
    assert rx.stopped and rx.posted == 0
    with pytest.raises(fpga_rdma.StreamStoppedError) as caught:
        rx.receive()
    assert isinstance(caught.value, EOFError)
    rx.abort()
    assert not rx.stopped
    tx.send(b"again")
    assert rx.receive() == b"again"


def test_full_ring_refuses_until_polled() -> None:
    with fpga_rdma.open(NAME) as card:
        tx, rx = card.h2c_stream(0), card.c2h_stream(0)
        submitted = 0
        with pytest.raises(fpga_rdma.RingFullError):
            while True:
                tx.submit(submitted.to_bytes(4, "little"))
                submitted += 1
        assert tx.in_flight == submitted and tx.statistics.refused == 1
        got: list[int] = []
        while len(got) < submitted:
            tx.poll()
            if (packet := rx.try_receive()) is not None:
                got.append(int.from_bytes(packet, "little"))
        assert got == list(range(submitted))
        tx.flush()
        assert tx.in_flight == 0


def test_card_that_takes_nothing_times_out_and_sends_later() -> None:
    with fpga_rdma.open(NAME) as card:
        tx, rx = card.h2c_stream(0), card.c2h_stream(0)
        big = bytes(1 << 20)
        with pytest.raises(fpga_rdma.TimedOutError):
            for _ in range(100):
                tx.send(big, timeout=0.02)
        assert tx.in_flight == 1
        lost = 0
        while tx.in_flight:
            try:
                rx.try_receive()
            except fpga_rdma.PacketLostError:
                lost += 1
            tx.poll()
        assert tx.in_flight == 0 and lost > 0


def test_close_ends_wait_of_other_thread(streams: tuple[H2cStream, C2hStream]) -> None:
    _, rx = streams
    caught: list[BaseException] = []
    waiting = threading.Event()

    def work() -> None:
        waiting.set()
        try:
            rx.receive(None)
        except fpga_rdma.ClosedError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    waiting.wait()
    rx.close()
    thread.join()
    assert len(caught) == 1
    assert "closed" in repr(rx)


def test_closed_card_closes_streams() -> None:
    card = fpga_rdma.open(NAME)
    tx, rx = card.h2c_stream(0), card.c2h_stream(0)
    card.close()
    for call in (lambda: tx.send(b"x"), lambda: rx.receive(), lambda: card.h2c_stream(0)):
        with pytest.raises(fpga_rdma.ClosedError):
            call()
    tx.close()


def test_channel_is_taken_once_until_closed() -> None:
    with fpga_rdma.open(NAME) as card:
        with card.h2c_stream(0), pytest.raises(fpga_rdma.InUseError):
            card.h2c_stream(0)
        card.h2c_stream(0).close()


def test_memory_card_refuses_streams(card: fpga_rdma.Card) -> None:
    with pytest.raises(fpga_rdma.UnsupportedError):
        card.c2h_stream(0)
    with fpga_rdma.open(NAME) as stream_card:
        for wrong in ({"buffers": 3}, {"buffer_size": 100}, {"buffer_size": 0}):
            with pytest.raises(fpga_rdma.RangeError):
                stream_card.c2h_stream(0, **wrong)


def test_card_without_interrupts_has_no_descriptor(streams: tuple[H2cStream, C2hStream]) -> None:
    with pytest.raises(fpga_rdma.UnsupportedError) as caught:
        streams[1].fileno()
    assert caught.value.advice is not None and "interrupts=True" in caught.value.advice


def test_descriptor_is_readable_after_arrival() -> None:
    with fpga_rdma.open(NAME, interrupts=True) as card:
        tx, rx = card.h2c_stream(0), card.c2h_stream(0)
        rx.arm()
        assert rx.try_receive() is None
        assert select.select([rx], [], [], 0)[0] == []
        tx.send(b"signals")
        assert select.select([rx], [], [], 60)[0] == [rx]
        rx.arm()
        assert rx.try_receive() == b"signals"
        tx.send(b"with a wait that sleeps")
        assert rx.receive() == b"with a wait that sleeps"


@pytest.mark.parametrize("interrupts", [False, True])
def test_async_iteration_leaves_loop_to_other_tasks(interrupts: bool) -> None:
    async def consume(rx: C2hStream) -> list[bytes]:
        return [packet async for packet in rx]

    async def produce(tx: H2cStream, rx: C2hStream) -> None:
        for number in range(20):
            # Some gaps are longer than the time that the consumer polls without a sleep.
            await asyncio.sleep(0.003 if number % 5 == 0 else 0)
            tx.send(bytes([number]) * 100)
        while rx.statistics.packets < 20:
            await asyncio.sleep(0.001)
        rx.stop()

    async def main() -> list[bytes]:
        with fpga_rdma.open(NAME, interrupts=interrupts) as card:
            tx, rx = card.h2c_stream(0), card.c2h_stream(0)
            consumer = asyncio.create_task(consume(rx))
            await produce(tx, rx)
            return await asyncio.wait_for(consumer, 10)

    assert asyncio.run(main()) == [bytes([number]) * 100 for number in range(20)]


def test_async_wait_that_is_cancelled_loses_no_packet() -> None:
    async def main() -> None:
        with fpga_rdma.open(NAME, interrupts=True) as card:
            tx, rx = card.h2c_stream(0), card.c2h_stream(0)
            packets = aiter(rx)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(packets), 0.01)
            tx.send(b"kept")
            assert await anext(aiter(rx)) == b"kept"
            # The iterator whose wait was cancelled has not ended.
            tx.send(b"next")
            assert await anext(packets) == b"next"

    asyncio.run(main())
