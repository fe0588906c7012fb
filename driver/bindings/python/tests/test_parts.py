"""User interrupts, copies, recovery, helpers in the shape of PYNQ."""

from __future__ import annotations

import asyncio
import select
import signal
import threading

import numpy as np
import pytest

import fpga_rdma
from fpga_rdma import pynq


def test_wait_returns_lines_that_interrupted() -> None:
    network = fpga_rdma.sim.Network()
    with network[0].open() as card, card.user_interrupt(3, 5) as interrupt:
        assert interrupt.take() == {}
        network[0].pulse_user_interrupt(5)
        assert interrupt.wait(1.0) == {5: 1}
        assert (interrupt.count, interrupt.lines, interrupt.delivery) == (1, [3, 5], "message")


def test_wait_without_interrupt_times_out(card: fpga_rdma.Card) -> None:
    with card.user_interrupt(0) as interrupt, pytest.raises(fpga_rdma.TimedOutError, match="no user interrupt 0 within 0.1 s"):
        interrupt.wait(0.1)
    with pytest.raises(fpga_rdma.UnsupportedError):
        card.user_interrupt(16)
    with pytest.raises(ValueError, match="no line"):
        card.user_interrupt()


def test_line_has_one_owner_and_closes_with_card(card: fpga_rdma.Card) -> None:
    interrupt = card.user_interrupt(2)
    with pytest.raises(fpga_rdma.InUseError):
        card.user_interrupt(2)
    card.close()
    assert interrupt.closed
    with pytest.raises(fpga_rdma.ClosedError):
        interrupt.take()


@pytest.mark.parametrize("threaded", [False, True])
def test_await_of_interrupt_ends_with_it(threaded: bool) -> None:
    network = fpga_rdma.sim.Network(threaded=threaded)

    async def main() -> dict[int, int]:
        async def raise_line() -> None:
            network[0].set_user_interrupt(4, True)

        with card.user_interrupt(4) as interrupt:
            await asyncio.sleep(0)
            waiting = asyncio.ensure_future(interrupt)
            await asyncio.sleep(0)
            await raise_line()
            return await asyncio.wait_for(waiting, 10)

    with network[0].open(interrupts=True) as card:
        assert asyncio.run(main()) == {4: 1}


def test_descriptor_is_readable_after_interrupt() -> None:
    network = fpga_rdma.sim.Network(threaded=True)
    with network[0].open() as card, card.user_interrupt(1) as interrupt:
        threading.Thread(target=network[0].set_user_interrupt, args=(1, True)).start()
        assert select.select([interrupt], [], [], 10)[0] == [interrupt]
        assert interrupt.take() == {1: 1}
        assert card.user_interrupt_states[1].pending


def test_copy_inside_card_arrives(card: fpga_rdma.Card) -> None:
    data = np.arange(3 << 20, dtype=np.uint8)
    card.h2c[0].write(data, 0)
    with card.cdma() as cdma:
        cdma.copy(0, 8 << 20, data.nbytes)
        with pytest.raises(fpga_rdma.InUseError):
            card.cdma()
        with pytest.raises(fpga_rdma.RangeError, match="overlap"):
            cdma.copy(0, 64, 128)
    got = np.zeros_like(data)
    card.c2h[0].read(got, 8 << 20)
    assert (got == data).all()


def test_recovery_reports_steps(card: fpga_rdma.Card) -> None:
    report = card.recover()
    assert report.healthy and not report.reopen
    assert {"h2c0", "cdma"} <= {step.step for step in report.steps}
    with pytest.raises(ValueError, match="level"):
        card.recover("everything")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    card.h2c[0].write(b"1", 0)
    with pytest.raises(fpga_rdma.InUseError) as caught:
        card.recover()
    assert caught.value.advice is not None and "force=True" in caught.value.advice


def test_recovery_of_hung_engine_by_bus_reset() -> None:
    network = fpga_rdma.sim.Network()
    network[0].set_faults("list: [{fault: stall, channel: h2c0}]")
    with network[0].open() as card:
        with pytest.raises(fpga_rdma.WedgedError):
            card.h2c[0].write(bytes(64), 0, timeout=0.01)
        report = card.recover("bus", force=True)
        assert report.reopen and report.healthy
    network[0].set_faults("")
    with network[0].open() as card:
        card.h2c[0].write(bytes(64), 0)


def test_pynq_buffer_parts_know_their_address(card: fpga_rdma.Card) -> None:
    frame = pynq.allocate((4, 16), "u4", target=card, address=0x1000)
    frame[:] = np.arange(64).reshape(4, 16)
    frame.sync_to_device()
    frame[:] = 0
    frame[2].sync_from_device()
    assert frame[2].address == 0x1000 + 128 and frame[2].tolist() == list(range(32, 48)) and not frame[0].any()
    assert frame[2].physical_address == frame.device_address + 128
    with pytest.raises(ValueError, match="not in DMA memory"):
        pynq.PynqBuffer.sync_to_device((frame + 1).view(pynq.PynqBuffer))
    frame.freebuffer()


def test_pynq_mmio_counts_from_its_offset(card: fpga_rdma.Card) -> None:
    mmio = pynq.MMIO(card, 0x1000, 0x40)
    mmio.write(0x18, 5)
    assert mmio.read(0x18) == 5 and mmio.array[6] == 5 and mmio.array.size == 16
    with pytest.raises(ValueError, match="inside"):
        mmio.read(0x40)
    with pytest.raises(ValueError, match="multiples of 4"):
        pynq.MMIO(card, 2)


@pytest.mark.parametrize("part", ["interrupt", "stalled transfer"])
def test_exception_of_signal_handler_ends_wait(part: str) -> None:
    def handler(*_: object) -> None:
        raise KeyboardInterrupt

    network = fpga_rdma.sim.Network(threaded=True)
    network[0].set_faults("list: [{fault: stall, channel: h2c0}]")
    old = signal.signal(signal.SIGALRM, handler)
    try:
        with network[0].open() as card, card.user_interrupt(3) as interrupt:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                interrupt.wait() if part == "interrupt" else card.h2c[0].write(bytes(4096), 0, timeout=None)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
