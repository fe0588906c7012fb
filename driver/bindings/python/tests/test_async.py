from __future__ import annotations

import asyncio

import numpy as np
import pytest

import fpga_rdma


@pytest.fixture(params=["in process", "interrupts", "threaded", "threaded with interrupts"])
def any_card(request: pytest.FixtureRequest) -> fpga_rdma.Card:
    kind: str = request.param
    network = fpga_rdma.sim.Network(threaded="threaded" in kind)
    return network[0].open(interrupts="interrupts" in kind)


def test_await_of_ticket_ends_with_transfer(any_card: fpga_rdma.Card) -> None:
    async def main() -> None:
        data = any_card.allocate(1 << 16)
        data[:] = 7
        ticket = any_card.h2c[0].submit(data, 0)
        await asyncio.wait_for(ticket, 10)
        await asyncio.wait_for(ticket, 10)
        assert ticket.done()
        got = bytearray(1 << 16)
        await any_card.c2h[0].read_async(got, 0)
        assert got == b"\7" * (1 << 16)

    with any_card:
        asyncio.run(main())


def test_tasks_share_channels(any_card: fpga_rdma.Card) -> None:
    async def one(number: int) -> None:
        sent = np.full(2000, number, "u2") if number % 2 else any_card.allocate(2000, "u2")
        sent[:] = number
        got = np.zeros(2000, "u2")
        for _ in range(5):
            await any_card.h2c[number % 2].write_async(sent, number * 4000)
            await any_card.c2h[0].read_async(got, number * 4000)
            assert (got == number).all()

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(*(one(number) for number in range(8))), 60)

    with any_card:
        asyncio.run(main())


def test_failure_is_raised_by_await() -> None:
    async def main() -> None:
        with pytest.raises(fpga_rdma.TransferFault):
            await card.h2c[0].write_async(b"1234", 0x2000)
        await card.h2c[0].write_async(b"1234", 0)

    network = fpga_rdma.sim.Network()
    network[0].poison(0x2000, 64)
    with network[0].open() as card:
        asyncio.run(main())


def test_cancelled_task_cancels_transfer() -> None:
    async def main() -> None:
        task = asyncio.create_task(card.h2c[0].write_async(bytes(4096), 0))
        await asyncio.sleep(0.01)
        assert card.h2c[0].in_flight == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The engine stops, or counts as hung, while other tasks run.
        while card.h2c[0].in_flight > 0:
            await asyncio.sleep(0.01)

    network = fpga_rdma.sim.Network(threaded=True)
    network[0].set_faults("list: [{fault: stall, channel: h2c0}]")
    with network[0].open() as card:
        asyncio.run(main())


def test_waiting_task_lets_others_run() -> None:
    async def main() -> int:
        turns = 0
        waiting = asyncio.ensure_future(card.h2c[0].write_async(bytes(4096), 0))
        for _ in range(20):
            await asyncio.sleep(0.001)
            turns += 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return turns

    network = fpga_rdma.sim.Network(threaded=True)
    network[0].set_faults("list: [{fault: stall, channel: h2c0}]")
    with network[0].open(interrupts=True) as card:
        assert asyncio.run(main()) == 20
