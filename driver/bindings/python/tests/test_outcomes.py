"""Each transfer keeps its own outcome, and each failure names the first cause."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpga_rdma
from fpga_rdma.sim import Network

STALL = "list: [{fault: stall, channel: h2c0}]"


def submitted(network: Network, card: fpga_rdma.Card) -> list[fpga_rdma.Ticket]:
    """Five transfers of one run, of which number 2 fails."""
    network[0].poison(0x2000, 64)
    data = card.allocate((5, 64))
    return [card.h2c[0].submit(data[number], address) for number, address in enumerate((0, 64, 0x2000, 128, 192))]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 2, 4, 0, 3]])
@pytest.mark.parametrize("channel_first", [False, True])
def test_every_ticket_keeps_its_outcome(order: list[int], channel_first: bool) -> None:
    network = Network()
    with network[0].open() as card:
        tickets = submitted(network, card)
        if channel_first:
            with pytest.raises(fpga_rdma.TransferFault, match="AXI slave error"):
                card.h2c[0].wait()
            card.h2c[0].wait()
        for _ in range(2):
            for number in order:
                if number < 2:
                    tickets[number].wait()
                    continue
                with pytest.raises(fpga_rdma.TransferFault, match="AXI slave error") as caught:
                    tickets[number].wait()
                assert ("transfer 2 failed" in str(caught.value)) == (number > 2)
                assert tickets[number].done()
        if sorted(order) == [0, 1, 2, 3, 4]:
            card.h2c[0].wait()  # The tickets have reported everything.
        card.h2c[0].close()
        tickets[0].wait()
        with pytest.raises(fpga_rdma.TransferFault):
            tickets[3].wait()


def test_awaited_tickets_keep_their_outcomes() -> None:
    async def outcome(ticket: fpga_rdma.Ticket) -> None:
        await ticket

    async def main() -> list[Any]:
        network = Network()
        with network[0].open() as card:
            tickets = submitted(network, card)
            return await asyncio.gather(*map(outcome, tickets), return_exceptions=True)

    outcomes = asyncio.run(main())
    assert [type(outcome) for outcome in outcomes] == [type(None)] * 2 + [fpga_rdma.TransferFault] * 3


def test_failures_of_forgotten_tickets_do_not_hide_later_ones() -> None:
    network = Network()
    with network[0].open() as card:
        network[0].poison(0x2000, 64)
        data = card.allocate(64)
        kept = card.h2c[0].submit(data, 0x2000)
        for _ in range(20):
            for _ in range(100):
                card.h2c[0].submit(data, 0x2000)
            with pytest.raises(fpga_rdma.TransferFault):
                card.h2c[0].submit(data, 0x2000).wait()
        with pytest.raises(fpga_rdma.TransferFault):
            card.h2c[0].write(data, 0x2000)
        with pytest.raises(fpga_rdma.TransferFault):
            card.h2c[0].write_batch(data, [0], [0x2000], 64)
        with pytest.raises(fpga_rdma.TransferFault):
            kept.wait()


CALLS: dict[str, Callable[[fpga_rdma.Card, Any], object]] = {
    "write": lambda card, data: card.h2c[0].write(data, 0),
    "write of other memory": lambda card, _: card.h2c[0].write(bytes(4096), 0),
    "long write of other memory": lambda card, _: card.h2c[0].write(bytes(3 << 20), 0),
    "write_batch": lambda card, data: card.h2c[0].write_batch(data, [0, 64], [0, 64], 64),
    "long write_batch": lambda card, data: card.h2c[0].write_batch(data, [0] * 3000, [0] * 3000, 64),
    "read": lambda card, data: card.c2h[0].read(data, 0),
    "read_batch": lambda card, data: card.c2h[0].read_batch(data, [0, 64], [0, 64], 64),
    "wait": lambda card, data: [card.h2c[0].submit(data, 0)] and card.h2c[0].wait(),  # type: ignore[func-returns-value]
    "ticket": lambda card, data: card.h2c[0].submit(data, 0).wait(),
    "list": lambda card, data: card.h2c[0].submit_list([(data, 0)]).wait(),
    "abort": lambda card, data: (card.h2c[0].submit(data, 0), card.h2c[0].poll(), card.h2c[0].abort()),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("how", ["gone", "all-ones"])
def test_every_call_on_removed_card_says_so(name: str, how: str) -> None:
    network = Network()
    with network[0].open() as card:
        data = card.allocate(4096)
        card.h2c[0].write(data, 0)
        card.c2h[0].read(data, 0)
        network[0].fail(how)
        for _ in range(2):
            with pytest.raises(fpga_rdma.CardGoneError) as caught:
                CALLS[name](card, data)
            assert caught.value.advice is not None and "open" in caught.value.advice


def test_every_ticket_of_removed_card_says_so() -> None:
    network = Network()
    with network[0].open() as card:
        data = card.allocate((6, 64))
        tickets = [card.h2c[0].submit(part, 0) for part in data]
        network[0].fail("gone")
        for ticket in [tickets[3], *tickets, tickets[0]]:
            with pytest.raises(fpga_rdma.CardGoneError):
                ticket.wait()
        with pytest.raises(fpga_rdma.CardGoneError):
            card.h2c[0].wait()


def test_every_ticket_of_stuck_engine_says_so() -> None:
    network = Network()
    network[0].set_faults(STALL)
    with network[0].open() as card:
        data = card.allocate((3, 64))
        tickets = [card.h2c[0].submit(part, 0) for part in data]
        with pytest.raises(fpga_rdma.TimedOutError):
            tickets[1].wait(0.01)
        with pytest.raises(fpga_rdma.WedgedError):
            card.h2c[0].abort()
        for ticket in tickets:
            with pytest.raises(fpga_rdma.WedgedError):
                ticket.wait()


def test_failed_batch_reports_its_own_first_fault() -> None:
    network = Network()
    with network[0].open() as card:
        network[0].poison(0x2000, 64)
        data = card.allocate(4096)
        with pytest.raises(fpga_rdma.TransferFault, match=r"AXI slave error.*0x2000"):
            card.h2c[0].write_batch(data, [0] * 50, [0] * 20 + [0x2000] + [0] * 29, 64)
        card.h2c[0].wait()
        card.h2c[0].write_batch(data, [0, 64], [0, 64], 64)


def test_flush_waits_for_packets_whose_send_has_timed_out() -> None:
    with fpga_rdma.open("mock:us-plus-x8-stream") as card:
        tx, rx = card.h2c_stream(0), card.c2h_stream(0)
        big = bytes(1 << 20)
        with pytest.raises(fpga_rdma.TimedOutError):
            for _ in range(100):
                tx.send(big, timeout=0.02)
        for _ in range(2):
            with pytest.raises(fpga_rdma.TimedOutError):
                tx.flush(0.02)
        assert tx.in_flight == 1
        while tx.in_flight:
            try:
                rx.try_receive()
            except fpga_rdma.PacketLostError:
                pass
            tx.poll()
        tx.flush(0)


@pytest.mark.parametrize("how", ["gone", "all-ones"])
def test_every_call_of_stream_of_removed_card_says_so(how: str) -> None:
    network = Network(["us-plus-x8-stream"])
    with network[0].open() as card:
        tx, rx = card.h2c_stream(0), card.c2h_stream(0)
        with pytest.raises(fpga_rdma.TimedOutError):
            rx.receive(0.001)
        tx.submit(b"packet")
        tx.submit(b"packet")
        network[0].fail(how)
        sending = (tx.flush, tx.poll, lambda: tx.send(b"packet"), lambda: tx.submit(b"packet"), tx.abort)
        receiving = (rx.receive, rx.try_receive, lambda: rx.receive_into(bytearray(64)), rx.abort)
        for _ in range(2):
            for call in (*sending, *receiving):
                with pytest.raises(fpga_rdma.CardGoneError):
                    call()


def test_completion_of_transfer_is_returned_again() -> None:
    a_card, b_card = Network(2).open()
    with a_card, b_card:
        a, b = a_card.endpoint(), b_card.endpoint()
        region = b.open_region(a.node, 0x20000, 64)
        sent = a.send(0x10000, region.remote)
        done = sent.wait(poll=[b])
        assert sent.wait(1e6) == done and sent.poll() == done
        readable = b.open_readable(a.node, 0x20000, 64)
        pending = a.read(readable.remote, 0, 0x10000, 64)
        read = pending.wait(poll=[b])
        assert pending.wait(1e6) == read and pending.poll() == read
        cancelled = a.send(0x10000, region.remote)
        cancelled.cancel()
        for _ in range(2):
            with pytest.raises(fpga_rdma.SendFailedError, match="cancel"):
                cancelled.wait(1e6, poll=[b])
        with pytest.raises(fpga_rdma.SendFailedError):
            cancelled.poll()
        a.close()
        assert sent.wait() == done


class Stop(Exception):
    pass


def test_signal_ends_opening_of_socket_that_nobody_answers(tmp_path: Path) -> None:
    def handler(*_: object) -> None:
        raise Stop

    path = tmp_path / "socket"
    old = signal.signal(signal.SIGALRM, handler)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            began = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Stop):
                fpga_rdma.open(f"vfio-user:{path}")
            # Without the signal it takes 5 s; usual are 0.1 s.
            assert time.monotonic() - began < 4
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_reset_card_is_gone_and_not_a_wrong_range() -> None:
    network = Network()
    with network[0].open() as card:
        ticket = card.h2c[0].submit(card.allocate(64), 0)
        assert card.recover("bus", at_least="bus", force=True).reopen
        with pytest.raises(fpga_rdma.FpgaError) as caught:
            ticket.wait()
        assert not isinstance(caught.value, fpga_rdma.RangeError)
        assert np.size(caught.value.args) == 4
