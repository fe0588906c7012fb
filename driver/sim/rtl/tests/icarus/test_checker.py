"""Traffic of a foreign master and slave past the protocol checker: no violations."""

import logging
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiBus, AxiMaster, AxiRam

SIZE = 1 << 16


def pauses(seed: int, probability: float):
    choice = random.Random(seed)
    while True:
        yield choice.random() < probability


@cocotb.test()
async def random_traffic_has_no_violations(dut) -> None:
    # One line per burst.
    logging.getLogger("cocotb.checker_bench").setLevel(logging.WARNING)
    cocotb.start_soon(Clock(dut.clk, 4, units="ns").start())
    bus = AxiBus.from_prefix(dut, "axi")
    dut.rst_n.value = 0
    master = AxiMaster(bus, dut.clk, dut.rst_n, reset_active_level=False)
    ram = AxiRam(bus, dut.clk, dut.rst_n, reset_active_level=False, size=SIZE)
    for seed, (side, first) in enumerate([(master, "source"), (ram, "sink")]):
        channels = [side.write_if.aw_channel, side.write_if.w_channel, side.write_if.b_channel, side.read_if.ar_channel, side.read_if.r_channel]
        for number, channel in enumerate(channels):
            channel.set_pause_generator(pauses(10 * seed + number, 0.3))
    await ClockCycles(dut.clk, 4)
    dut.rst_n.value = 1
    await ClockCycles(dut.clk, 2)
    choice = random.Random(1)
    memory = bytearray(SIZE)
    for _ in range(300):
        length = choice.choice([1, 2, 3, 7, 8, 9, choice.randrange(1, 300), choice.randrange(1, 5000)])
        at = choice.randrange(SIZE - length)
        size = choice.choice([0, 1, 2, 3, 3, 3]) if length < 300 else 3
        if choice.random() < 0.5:
            data = choice.randbytes(length)
            await master.write(at, data, size=size, awid=choice.randrange(16))
            memory[at : at + length] = data
        else:
            found = await master.read(at, length, size=size, arid=choice.randrange(16))
            assert found.data == memory[at : at + length], f"{length} bytes at {at:#x}"
    # Several at once.
    writes = [cocotb.start_soon(master.write(4096 * number + 5, bytes([number] * 1000))) for number in range(8)]
    reads = [cocotb.start_soon(master.read(40000 + 700 * number, 700)) for number in range(8)]
    for number, write in enumerate(writes):
        await write
        memory[4096 * number + 5 : 4096 * number + 1005] = bytes([number] * 1000)
    for number, read in enumerate(reads):
        at = 40000 + 700 * number
        assert (await read).data == memory[at : at + 700]
    assert ram.read(0, SIZE) == memory
    assert dut.checker_i.violations.value == 0
    assert int(dut.checker_i.bursts.value) > 300
