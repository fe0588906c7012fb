from __future__ import annotations

import numpy as np
import pytest

import fpga_rdma


def test_submitted_transfers_end_in_order(card: fpga_rdma.Card) -> None:
    data = card.allocate((8, 512), "u1")
    data[:] = np.arange(8)[:, None]
    channel = card.h2c[0]
    tickets = [channel.submit(row, 512 * number) for number, row in enumerate(data)]
    assert [ticket.number for ticket in tickets] == list(range(8))
    assert channel.in_flight == 8
    tickets[-1].wait()
    assert all(ticket.done() for ticket in tickets)
    tickets[0].wait()
    got = np.zeros_like(data)
    card.c2h[0].read(got, 0)
    assert (got == data).all()


def test_submit_of_other_memory_is_refused(card: fpga_rdma.Card) -> None:
    with pytest.raises(fpga_rdma.RefusedError) as caught:
        card.h2c[0].submit(np.zeros(4096, "u1"), 0)
    assert caught.value.advice is not None and "card.allocate" in caught.value.advice


def test_memory_of_another_card_is_refused(card: fpga_rdma.Card) -> None:
    with fpga_rdma.open("mock") as other, pytest.raises(fpga_rdma.RefusedError):
        card.h2c[0].submit(other.allocate(64), 0)


def test_full_ring_raises_and_blocking_write_makes_room(card: fpga_rdma.Card) -> None:
    channel = card.h2c.open(0, descriptors=8, transfers=4)
    data = card.allocate(64)
    with pytest.raises(fpga_rdma.RingFullError):
        for _ in range(100):
            channel.submit(data, 0)
    channel.write(data, 64)
    channel.wait()
    assert channel.in_flight == 0


def test_scatter_gather_list_is_one_transfer(card: fpga_rdma.Card) -> None:
    data = card.allocate((4, 256), "u1")
    data[:] = np.arange(4)[:, None]
    ticket = card.h2c[0].submit_list([(data[3], 0), (data[0], 256), (data[2, :10], 1000)])
    ticket.wait()
    assert ticket.nbytes == 522
    got = bytearray(1010)
    card.c2h[0].read(got, 0)
    assert got[:512] == b"\3" * 256 + b"\0" * 256 and got[1000:] == b"\2" * 10


def test_overlapping_list_is_refused(card: fpga_rdma.Card) -> None:
    data = card.allocate(512)
    with pytest.raises(fpga_rdma.RangeError, match="overlap"):
        card.h2c[0].submit_list([(data[:256], 0), (data[256:], 128)])
    assert card.h2c[0].in_flight == 0


@pytest.mark.parametrize("dtype", ["i8", "u8", list])
def test_batch_moves_every_part(card: fpga_rdma.Card, dtype: str | type) -> None:
    count = 3000
    data = card.allocate((count, 16), "u4")
    data[:] = np.arange(count)[:, None]
    numbers = np.random.default_rng(1).permutation(count) * 64
    offsets = np.arange(count) * 64
    if isinstance(dtype, str):
        card.h2c[0].write_batch(data, offsets.astype(dtype), numbers.astype(dtype), 64)
    else:
        card.h2c[0].write_batch(data, offsets.tolist(), numbers.tolist(), 64)
    got = card.allocate((count, 16), "u4")
    card.c2h[0].read_batch(got, offsets, numbers, 64)
    assert (got == data).all()


def test_batch_with_wrong_arguments_moves_nothing(card: fpga_rdma.Card) -> None:
    data = card.allocate(4096)
    data[:] = 1
    with pytest.raises(fpga_rdma.RangeError, match="offset 4040"):
        card.h2c[0].write_batch(data, [0, 4040], [0, 64], 64)
    with pytest.raises(fpga_rdma.RangeError):
        card.h2c[0].write_batch(data, [0, 64], [0, 1 << 60], 64)
    with pytest.raises(ValueError, match="as many"):
        card.h2c[0].write_batch(data, [0, 64], [0], 64)
    with pytest.raises(ValueError, match="negative"):
        card.h2c[0].write_batch(data, np.array([-1]), np.array([0]), 64)
    got = bytearray(64)
    card.c2h[0].read(got, 0)
    assert got == bytes(64)
    card.h2c[0].write_batch(data, [], [], 64)


def test_failed_transfer_is_reported_by_its_ticket() -> None:
    network = fpga_rdma.sim.Network()
    with network[0].open() as card:
        network[0].poison(0x2000, 64)
        data = card.allocate(64)
        good = card.c2h[0].submit(data, 0)
        bad = card.h2c[0].submit(data, 0x2000)
        good.wait()
        with pytest.raises(fpga_rdma.TransferFault) as caught:
            bad.wait()
        assert caught.value.part == "h2c0"
        card.h2c[0].wait()
        card.h2c[0].submit(data, 0x2000)
        with pytest.raises(fpga_rdma.TransferFault):
            card.h2c[0].wait()
        card.h2c[0].write(data, 0)


def test_cancelled_transfer_raises_fault() -> None:
    network = fpga_rdma.sim.Network()
    with network[0].open() as card:
        data = card.allocate(64)
        ticket = card.h2c[0].submit(data, 0)
        assert ticket.cancel()
        assert not ticket.cancel()
        with pytest.raises(fpga_rdma.TransferFault, match="aborted"):
            ticket.wait()


def test_stalled_write_quarantines_its_memory() -> None:
    network = fpga_rdma.sim.Network()
    network[0].set_faults("list: [{fault: stall, channel: h2c0}]")
    with network[0].open() as card:
        data = card.allocate(4096)
        with pytest.raises(fpga_rdma.WedgedError) as caught:
            card.h2c[0].write(data, 0, timeout=0.01)
        assert caught.value.advice is not None and "recover" in caught.value.advice
        assert card.dma_memory.quarantined == 2  # and the ring
        del data
        assert card.dma_memory.quarantined == 2  # and the ring


def test_wait_of_stalled_transfer_times_out_and_leaves_it_in_flight() -> None:
    network = fpga_rdma.sim.Network()
    network[0].set_faults("list: [{fault: stall, channel: h2c0}]")
    with network[0].open() as card:
        ticket = card.h2c[0].submit(card.allocate(4096), 0)
        with pytest.raises(fpga_rdma.TimedOutError) as caught:
            ticket.wait(0.01)
        assert isinstance(caught.value, TimeoutError)
        assert card.h2c[0].in_flight == 1
