from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import fpga_rdma
from fpga_rdma.endpoint import ANY_NODE, Endpoint, RemoteReadable, RemoteRegion

SOURCE, TARGET = 0x10_0000, 0x200_0000


class Pair:
    def __init__(self) -> None:
        self.network = fpga_rdma.sim.Network(2, reorder=16, seed=1)
        self.near, self.far = self.network.open()
        self.a, self.b = self.near.endpoint(), self.far.endpoint()

    def fill(self, data: bytes) -> None:
        self.near.h2c[0].write(data, SOURCE)

    def received(self, length: int) -> bytes:
        got = bytearray(length)
        self.far.c2h[0].read(got, TARGET)
        return bytes(got)


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.near.close()
    pair.far.close()


def test_send_between_cards_arrives_with_notification(pair: Pair) -> None:
    data = bytes(n % 251 for n in range(100_000))
    pair.fill(data)
    region = pair.b.open_region(pair.a.node, TARGET, len(data))
    done = pair.a.send(SOURCE, region.remote).wait()
    assert (done.node, done.length) == (pair.b.node, len(data))
    assert done.packets > 50 and done.segments > 5 and done.finished > done.started
    arrived = pair.b.notifications.wait()
    assert (arrived.node, arrived.address, arrived.length) == (pair.a.node, TARGET, len(data))
    assert arrived.incarnation == pair.a.incarnation
    assert pair.received(len(data)) == data
    assert pair.b.notifications.poll() is None
    assert pair.a.counters.completed == 1 and pair.b.counters.notifications == 1
    assert pair.a.transfers == []


def test_remote_region_survives_pickle_and_bytes(pair: Pair) -> None:
    remote = pair.b.open_region(pair.a.node, TARGET, 64).remote
    assert pickle.loads(pickle.dumps(remote)) == remote
    assert RemoteRegion.from_bytes(remote.to_bytes()) == remote
    assert str(remote.key) not in repr(remote)
    readable = pair.b.open_readable(pair.a.node, TARGET, 64).remote
    assert RemoteReadable.from_bytes(readable.to_bytes()) == readable
    for wrong in (b"", remote.to_bytes()[:-1], b"X" + remote.to_bytes()[1:]):
        with pytest.raises(ValueError, match="not a region"):
            RemoteRegion.from_bytes(wrong)
        with pytest.raises(ValueError, match="not a readable range"):
            RemoteReadable.from_bytes(wrong)
    pair.fill(b"x" * 64)
    assert pair.a.send(SOURCE, RemoteRegion.from_bytes(remote.to_bytes())).wait().length == 64


def test_closed_region_refuses_transfer_with_node_and_address(pair: Pair) -> None:
    with pair.b.open_region(pair.a.node, TARGET, 4096) as region:
        remote = region.remote
    region.close()
    with pytest.raises(fpga_rdma.SendFailedError) as caught:
        pair.a.send(SOURCE, remote, 64, 100).wait()
    error = caught.value
    assert (error.node, error.address, error.reason) == (pair.b.node, TARGET + 64, "refused")
    assert error.completion is not None and error.completion.length == 100
    assert error.card == "mock:0" and error.advice == "check address, length and key"
    again = pickle.loads(pickle.dumps(error))
    assert (again.node, again.reason, str(again)) == (error.node, error.reason, str(error))


def test_impossible_transfers_are_refused(pair: Pair) -> None:
    remote = pair.b.open_region(pair.a.node, TARGET, 4096).remote
    with pytest.raises(fpga_rdma.RangeError, match="not inside the 4096 bytes"):
        pair.a.send(SOURCE, remote, 1, 4096)
    with pytest.raises(fpga_rdma.RangeError):
        pair.a.send(1 << 60, remote)
    with pytest.raises(ValueError, match="give 'receiver', 'sender' or 'none'"):
        pair.a.send(SOURCE, remote, notify="nobody")
    for scheme in ("none such", "sender-window", "receiver-counter"):
        with pytest.raises(ValueError, match="receiver-window"):
            pair.a.send(SOURCE, remote, scheme=scheme)
    with pytest.raises(fpga_rdma.UnsupportedError):
        pair.a.send(SOURCE, remote, scheme="selective")
    with pytest.raises(ValueError, match="deadline"):
        pair.a.send(SOURCE, remote, deadline=-1.0)
    usable = pair.b.usable_memory
    with pytest.raises(fpga_rdma.RangeError):
        pair.b.open_region(pair.a.node, usable.start + usable.length, 1)
    with pytest.raises(AttributeError):
        pair.a.send(SOURCE, "no region")  # type: ignore[arg-type]


def test_lost_network_fails_transfer_as_unanswered() -> None:
    near, far = fpga_rdma.sim.Network(2, loss=1.0).open()
    with near, far:
        a, b = near.endpoint(give_up=0.01), far.endpoint()
        remote = b.open_region(a.node, TARGET, 64).remote
        send = a.send(SOURCE, remote)
        assert [(view.node, view.length) for view in a.transfers] == [(b.node, 64)]
        with pytest.raises(fpga_rdma.SendFailedError) as caught:
            send.wait()
        assert caught.value.reason == "unanswered"


def test_earlier_incarnation_fails_transfer_as_superseded_until_endpoint_is_opened_again() -> None:
    near, far = fpga_rdma.sim.Network(2).open()
    with near, far:
        b = far.endpoint()
        remote = b.open_region(ANY_NODE, TARGET, 64).remote
        with near.endpoint(incarnation=2_000_000_000) as a:
            a.send(SOURCE, remote).wait()
        with near.endpoint(incarnation=1_999_999_999) as a, pytest.raises(fpga_rdma.SendFailedError) as caught:
            a.send(SOURCE, remote).wait()
        error = caught.value
        assert (error.reason, error.node, error.address) == ("superseded", b.node, TARGET)
        assert f"incarnation {2_000_000_000:#010x}" in error.message
        assert error.advice is not None and "open it again without incarnation=..." in error.advice
        with near.endpoint() as a:
            assert a.incarnation > 2_000_000_000
            assert a.send(SOURCE, remote).wait().length == 64
        with pytest.raises(fpga_rdma.RangeError, match="the incarnation is 0"):
            near.endpoint(incarnation=0)


def test_incarnation_file_keeps_order_when_clock_is_set_back(tmp_path: Path) -> None:
    file = tmp_path / "state" / "incarnation"
    numbers = []
    for path in (file, str(file)):
        with fpga_rdma.open("mock") as card, card.endpoint(incarnation_file=path) as endpoint:
            numbers.append(endpoint.incarnation)
        assert file.read_text() == f"{numbers[-1]:010}\n"
    assert numbers[0] < numbers[1]
    # The number of the last start is a month ahead of the clock.
    last = numbers[1] + 30 * 86_400
    file.write_text(f"{last:010}\n")
    with fpga_rdma.open("mock") as card, card.endpoint(incarnation_file=file) as endpoint:
        assert endpoint.incarnation == last + 1
    # A file that cannot be used is ignored.
    with fpga_rdma.open("mock") as card, card.endpoint(incarnation_file=tmp_path) as endpoint:
        assert endpoint.incarnation > last + 1


def test_wait_that_times_out_leaves_transfer_in_progress_until_cancelled() -> None:
    near, far = fpga_rdma.sim.Network(2, loss=1.0).open()
    with near, far:
        a, b = near.endpoint(give_up=1.0), far.endpoint()
        send = a.send(SOURCE, b.open_region(a.node, TARGET, 64).remote)
        with pytest.raises(fpga_rdma.TimedOutError, match="has not ended after 1ms"):
            send.wait(0.001)
        send.cancel()
        with pytest.raises(fpga_rdma.SendFailedError) as caught:
            send.wait()
        assert caught.value.reason == "cancelled"
        # It keeps its outcome.
        with pytest.raises(fpga_rdma.SendFailedError) as again:
            send.wait(None)
        assert again.value.args[:7] == caught.value.args[:7]


def test_send_without_notification_notifies_nobody(pair: Pair) -> None:
    pair.fill(b"quiet")
    pair.a.send(SOURCE, pair.b.open_region(pair.a.node, TARGET, 5).remote, notify="none").wait()
    assert pair.received(5) == b"quiet"
    with pytest.raises(fpga_rdma.TimedOutError):
        pair.b.notifications.wait(0.0001)


def test_read_in_one_thread_polls_other_endpoint(pair: Pair) -> None:
    pair.far.h2c[0].write(b"from afar", SOURCE)
    readable = pair.b.open_readable(pair.a.node, SOURCE, 9)
    done = pair.a.read(readable.remote, 5, TARGET, 4).wait(poll=[pair.b])
    assert (done.node, done.length) == (pair.b.node, 4)
    got = bytearray(4)
    pair.near.c2h[0].read(got, TARGET)
    assert got == b"afar"
    # Served when the answer is acknowledged, which polls of its sender show.
    while pair.b.counters.reads_served == 0:
        pair.b.poll()
    with pytest.raises(fpga_rdma.RangeError):
        pair.a.read(readable.remote, 5, TARGET, 5)


def test_read_without_answer_fails(pair: Pair) -> None:
    readable = pair.b.open_readable(pair.a.node, SOURCE, 9)
    readable.close()
    with pytest.raises(fpga_rdma.ReadFailedError) as caught:
        pair.a.read(readable.remote, 0, TARGET, 9).wait(poll=[pair.b])
    assert caught.value.node == pair.b.node and caught.value.reason == "refused"


def test_peer_reports_capabilities(pair: Pair) -> None:
    peer = pair.a.peer(pair.b.node, poll=[pair.b])
    assert (peer.node, peer.incarnation) == (pair.b.node, pair.b.incarnation)
    assert peer.schemes == ["Registry"] and peer.packet_size >= 64
    with pytest.raises(fpga_rdma.TimedOutError, match="node 77"):
        pair.a.peer(77, 0.01)


@pytest.mark.parametrize("scheme", ["registry", "receiver-window", "Selective"])
def test_every_kind_of_scheme_carries_transfer(scheme: str) -> None:
    near, far = fpga_rdma.sim.Network(2, loss=0.02, seed=3).open()
    with near, far:
        a, b = near.endpoint(scheme=scheme), far.endpoint(scheme=scheme)
        near.h2c[0].write(bytes(range(256)) * 100, SOURCE)
        a.send(SOURCE, b.open_region(a.node, TARGET, 25600).remote).wait()
        assert b.notifications.wait().length == 25600
        got = bytearray(25600)
        far.c2h[0].read(got, TARGET)
        assert got == bytes(range(256)) * 100


def test_tasks_await_transfers_and_arrivals(pair: Pair) -> None:
    async def receive(endpoint: Endpoint) -> list[int]:
        lengths = []
        async for arrived in endpoint.notifications:
            lengths.append(arrived.length)
            if len(lengths) == 5:
                return lengths
        return lengths

    async def main() -> list[int]:
        remote = pair.b.open_region(pair.a.node, TARGET, 10_000).remote
        receiving = asyncio.create_task(receive(pair.b))
        sends = [pair.a.send(SOURCE, remote, 0, 1000 * n + 1) for n in range(5)]
        assert {(await send).length for send in sends} == {1, 1001, 2001, 3001, 4001}
        return await asyncio.wait_for(receiving, 10)

    assert sorted(asyncio.run(main())) == [1, 1001, 2001, 3001, 4001]


def test_awaited_read_is_answered_by_other_task(pair: Pair) -> None:
    async def serve() -> None:
        while True:
            pair.b.poll()
            await asyncio.sleep(0)

    async def main() -> int:
        readable = pair.b.open_readable(pair.a.node, SOURCE, 500)
        serving = asyncio.create_task(serve())
        done = await pair.a.read(readable.remote, 0, TARGET, 500)
        serving.cancel()
        return done.length

    assert asyncio.run(main()) == 500


def test_threads_share_endpoint() -> None:
    near, far = fpga_rdma.sim.Network(2, threaded=True).open()
    with near, far:
        a, b = near.endpoint(), far.endpoint()
        remote = b.open_region(a.node, TARGET, 400_000).remote
        ended: list[int] = []

        def work(number: int) -> None:
            for _ in range(5):
                ended.append(a.send(SOURCE, remote, number * 100_000, 20_000).wait().length)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ended == [20_000] * 20
        assert [b.notifications.wait().length for _ in range(20)] == ended


def test_close_ends_waits_and_frees_endpoint(pair: Pair) -> None:
    with pytest.raises(fpga_rdma.InUseError):
        pair.near.endpoint()
    remote = pair.b.open_region(pair.a.node, TARGET, 64).remote
    send = pair.a.send(SOURCE, remote)
    caught: list[BaseException] = []
    started = threading.Event()

    def work() -> None:
        started.set()
        try:
            pair.b.notifications.wait(None, poll=[])
        except fpga_rdma.ClosedError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    pair.b.close()
    thread.join()
    assert len(caught) == 1
    pair.a.close()
    assert pair.a.closed and "closed" in repr(pair.a)
    for call in (send.wait, pair.a.poll, lambda: pair.a.send(SOURCE, remote)):
        with pytest.raises(fpga_rdma.ClosedError):
            call()
    with pair.near.endpoint() as again:
        assert not again.closed


def test_card_without_network_interface_has_no_endpoint() -> None:
    with fpga_rdma.open("mock", network_interface=False) as card:
        with pytest.raises(fpga_rdma.UnsupportedError):
            card.endpoint()
