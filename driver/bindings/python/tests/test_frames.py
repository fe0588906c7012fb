from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import fpga_rdma
from fpga_rdma.frames import Ended, Frame, Gap, Publisher, Subscriber


@pytest.fixture
def cards() -> Iterator[list[fpga_rdma.Card]]:
    cards = fpga_rdma.sim.Network(3, reorder=8, seed=2).open()
    yield cards
    for card in cards:
        card.close()


def stream(cards: list[fpga_rdma.Card], slots: int | None = None) -> tuple[Publisher, list[Subscriber]]:
    publisher = cards[0].publisher(16_000)
    host, port = publisher.listen()
    return publisher, [card.subscribe(host, port, slots=slots, poll=[publisher]) for card in cards[1:]]


def test_frames_of_numpy_arrays_arrive_in_order(cards: list[fpga_rdma.Card]) -> None:
    publisher, subscribers = stream(cards)
    for number in range(20):
        sent = publisher.publish(np.full(4000, number, "<u4"), number.to_bytes(8, "little"))
        assert sent.sent == [subscriber.node for subscriber in subscribers] and sent.skipped == []
        for subscriber in subscribers:
            frame = subscriber.wait(poll=[publisher])
            assert isinstance(frame, Frame) and frame.sequence == sent.sequence
            assert (np.frombuffer(frame.data, "<u4") == number).all() and len(frame.data) == 16_000
            assert frame.value == number.to_bytes(8, "little")
    publisher.end()
    for subscriber in subscribers:
        assert isinstance(subscriber.wait(poll=[publisher]), Ended)
        assert list(subscriber) == []
        assert subscriber.statistics.frames == 20
    assert publisher.statistics.published == 20


def test_slow_subscriber_sees_gap_of_exactly_missed_frames(cards: list[fpga_rdma.Card]) -> None:
    publisher, (fast, slow) = stream(cards, slots=2)
    missed = 0
    for number in range(30):
        sent = publisher.publish(bytes([number]) * 100)
        missed += slow.node in sent.skipped
        assert isinstance(fast.wait(poll=[publisher]), Frame)
    publisher.end()
    events = []
    while not isinstance(event := slow.wait(poll=[publisher]), Ended):
        events.append(event)
    assert sum(event.missed for event in events if isinstance(event, Gap)) == missed > 0
    assert sum(isinstance(event, Frame) for event in events) == 30 - missed


def test_iteration_in_thread_ends_with_stream() -> None:
    network = fpga_rdma.sim.Network(2, threaded=True)
    near, far = network.open()
    publisher = near.publisher(1000)
    host, port = publisher.listen()
    got: list[object] = []

    def receive() -> None:
        with far.subscribe(host, port) as subscriber:
            got.extend(subscriber)

    thread = threading.Thread(target=receive)
    thread.start()
    while not publisher.subscribers:
        publisher.poll()
    publisher.publish(b"one")
    publisher.end()
    while thread.is_alive():
        publisher.poll()
    thread.join()
    assert [event.data for event in got if isinstance(event, Frame)] == [b"one"]
    near.close()
    far.close()


def test_async_iteration_receives_frames(cards: list[fpga_rdma.Card]) -> None:
    publisher, subscribers = stream(cards)

    async def publish() -> None:
        for number in range(5):
            publisher.publish(bytes([number]))
            await asyncio.sleep(0)
        publisher.end()
        while not publisher.ended:
            publisher.poll()
            await asyncio.sleep(0)

    async def receive(subscriber: Subscriber) -> list[bytes]:
        return [event.data async for event in subscriber if isinstance(event, Frame)]

    async def main() -> None:
        _, *received = await asyncio.gather(publish(), *(receive(subscriber) for subscriber in subscribers))
        assert received == [[bytes([number]) for number in range(5)]] * 2

    asyncio.run(main())


def test_misuse_is_refused(cards: list[fpga_rdma.Card]) -> None:
    publisher, (subscriber, _) = stream(cards)
    with pytest.raises(fpga_rdma.RangeError):
        publisher.publish(bytes(16_001))
    with pytest.raises(fpga_rdma.RangeError):
        publisher.publish(b"x", bytes(9))
    with pytest.raises(fpga_rdma.TimedOutError, match="no frame"):
        subscriber.wait(timeout=0.01)
    with pytest.raises(ValueError, match="IP address"):
        publisher.listen("nowhere.invalid")
    subscriber.close()
    with pytest.raises(fpga_rdma.ClosedError):
        subscriber.poll()
    publisher.close()
    with pytest.raises(fpga_rdma.ClosedError):
        publisher.publish(b"x")


def test_events_tell_of_joined_and_left_subscribers(cards: list[fpga_rdma.Card]) -> None:
    publisher, (first, second) = stream(cards)
    joined = [publisher.next_event(), publisher.next_event()]
    assert [(event.kind, event.node) for event in joined if event] == [("joined", first.node), ("joined", second.node)]
    assert publisher.next_event() is None
    assert [state.node for state in publisher.subscribers] == [first.node, second.node]
