"""A record's commands at a foreign slave with random back-pressure: the memory is that of the record."""

import logging
import os
import random
from collections import deque

import cocotb
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiBus, AxiRam

SIZE = 1 << 20
WIDTH = 32


def pauses(seed: int):
    choice = random.Random(seed)
    while True:
        yield choice.random() < 0.4


def written(record: str) -> bytearray:
    """Memory after the writes of the record, whose bursts are INCR."""
    memory, commands, beat = bytearray(SIZE), deque(), 0
    with open(record) as lines:
        for line in lines:
            words = line.split()[3:]
            if words[:2] == ["aw", "0"]:
                commands.append(words)
            elif words[:2] == ["w", "0"]:
                address, size = int(commands[0][3], 16), 1 << int(commands[0][5])
                at = address // size * size + beat * size
                data, strobes = bytes.fromhex(words[2])[::-1], int(words[3], 16)
                for lane in range(WIDTH):
                    if strobes >> lane & 1:
                        memory[at // WIDTH * WIDTH + lane] = data[lane]
                beat += 1
                if words[4] == "1":
                    assert beat == int(commands.popleft()[4]) + 1
                    beat = 0
    return memory


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def record_leaves_its_memory(dut) -> None:
    # One line per burst.
    logging.getLogger("cocotb.replay_bench").setLevel(logging.WARNING)
    ram = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.axi_aclk, dut.axi_aresetn, reset_active_level=False, size=SIZE)
    for number, channel in enumerate(
        [ram.write_if.aw_channel, ram.write_if.w_channel, ram.write_if.b_channel, ram.read_if.ar_channel, ram.read_if.r_channel]
    ):
        channel.set_pause_generator(pauses(number))
    replay = dut.xdma.replay
    while replay.is_finished.value != 1:
        await ClockCycles(dut.axi_aclk, 50)
    assert replay.is_complete.value == 1
    assert replay.differences.value == 0
    assert dut.checker_i.violations.value == 0
    expected = written(os.environ["RECORD"])
    assert any(expected)
    assert ram.read(0, SIZE) == expected
