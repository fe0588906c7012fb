"""Test bench: plays the converter while the host program runs."""

import os
import subprocess
import sys
import time
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

COUNTS = [1, 10, 300]


async def converter(dut) -> None:
    """Delivers 3, 6, 9, ... from each start, one sample every fourth cycle."""
    while True:
        dut.sample_valid.value = 0
        while dut.sample_ready.value != 1:
            await RisingEdge(dut.clk)
        sample = 0
        while dut.sample_ready.value == 1:
            sample += 3
            dut.sample.value = sample
            dut.sample_valid.value = 1
            await RisingEdge(dut.clk)
            dut.sample_valid.value = 0
            await ClockCycles(dut.clk, 3)


@cocotb.test()
async def host_program_takes_samples(dut) -> None:
    cocotb.start_soon(Clock(dut.clk, 4, units="ns").start())
    cocotb.start_soon(converter(dut))
    # The card is served from the start of the simulation.
    await ClockCycles(dut.clk, 1)
    socket = os.environ["FPGA_RTL_SOCKET"]
    host = Path(__file__).with_name("host.py")
    # A process of its own: the simulation continues while it waits for the card.
    words = [os.environ.get("HOST_PYTHON", sys.executable), host, f"vfio-user:{socket}", *map(str, COUNTS)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        limit = time.monotonic() + 60
        while program.poll() is None:
            await ClockCycles(dut.clk, 100)
            if time.monotonic() > limit:
                program.kill()
        said = program.stdout.read()
    expected = [f"{count} {3 * count * (count + 1) // 2}" for count in COUNTS]
    assert program.returncode == 0 and said.split("\n")[:-1] == expected, said
