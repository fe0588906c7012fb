"""Random sequences of calls by several threads and tasks, with cancellations, removals and closes: no crash, no hang, no wrong bytes.

A sequence is determined by its seed, except for the order of the threads. ``FPGA_SEQUENCES=100000`` sets the number of sequences, and
``FPGA_SEED`` the first seed.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import random
import threading
from collections.abc import Callable
from typing import Any

import fpga_rdma
from fpga_rdma import sim

SEQUENCES = int(os.environ.get("FPGA_SEQUENCES", "150"))
SEED = int(os.environ.get("FPGA_SEED", "1"))
HANG = 60.0
"""Seconds after which a sequence counts as hung."""
SILENT = 0x100000


class Program:
    """State of one sequence: a card that several threads use."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        threaded = self.random.random() < 0.5
        self.network = sim.Network(1, threaded=threaded)
        # Some engines never end: their channels hang, which ends by a removal.
        self.stalls = self.random.random() < 0.3
        if self.stalls:
            self.network[0].silence(SILENT, 0x1000)
        self.card = self.network[0].open(interrupts=self.random.random() < 0.5)
        self.tickets: list[fpga_rdma.Ticket] = []
        self.memory = self.card.allocate(1 << 16)
        self.arrays = [self.memory]
        self.interrupt = self.card.user_interrupt(1)

    def address(self, random: random.Random) -> int:
        return SILENT if self.stalls and random.random() < 0.2 else random.randrange(0, 1 << 16, 64)

    def timeout(self, random: random.Random) -> float:
        return random.choice((0.0, 0.0005, 0.002, 0.01))

    def part(self, random: random.Random) -> Any:
        length = random.choice((1, 64, 4096, 1 << 15))
        return self.memory[:length]

    def write(self, random: random.Random) -> None:
        data = random.choice((bytes(100), self.part(random), bytearray(1 << 15)))
        self.card.h2c[random.randrange(2)].write(data, self.address(random), self.timeout(random))

    def read(self, random: random.Random) -> None:
        into = random.choice((bytearray(100), self.part(random)))
        self.card.c2h[random.randrange(2)].read(into, self.address(random), self.timeout(random))

    def submit(self, random: random.Random) -> None:
        channels = random.choice((self.card.h2c, self.card.c2h))
        self.tickets.append(channels[random.randrange(2)].submit(self.part(random), self.address(random)))

    def batch(self, random: random.Random) -> None:
        numbers = [64 * number for number in range(random.randrange(300))]
        self.card.h2c[random.randrange(2)].write_batch(self.memory, numbers, numbers, 64, self.timeout(random))

    def wait(self, random: random.Random) -> None:
        if self.tickets:
            random.choice(self.tickets).wait(self.timeout(random))

    def done(self, random: random.Random) -> None:
        for ticket in self.tickets[-3:]:
            assert ticket.done() in (False, True)

    def cancel(self, random: random.Random) -> None:
        if self.tickets:
            random.choice(self.tickets).cancel()

    def abort(self, random: random.Random) -> None:
        self.card.h2c[random.randrange(2)].abort()

    def wait_channel(self, random: random.Random) -> None:
        self.card.h2c[random.randrange(2)].wait(self.timeout(random))

    def look(self, random: random.Random) -> None:
        channel = random.choice((self.card.h2c, self.card.c2h))[random.randrange(2)]
        assert repr(channel) and repr(self.card) and channel.in_flight >= 0 and channel.closed in (False, True)

    def poll(self, random: random.Random) -> None:
        self.card.h2c[random.randrange(2)].poll()

    def close_channel(self, random: random.Random) -> None:
        random.choice((self.card.h2c, self.card.c2h))[random.randrange(2)].close()

    def close_card(self, random: random.Random) -> None:
        if random.random() < 0.1:
            self.card.close()

    def remove(self, random: random.Random) -> None:
        if random.random() < 0.1:
            self.network[0].fail(random.choice(("gone", "all-ones")))

    def interrupts(self, random: random.Random) -> None:
        if random.random() < 0.5:
            self.network[0].pulse_user_interrupt(1)
        self.interrupt.wait(self.timeout(random))

    def allocate(self, random: random.Random) -> None:
        self.arrays.append(self.card.allocate(random.choice((64, 5000, 1 << 16))))
        if len(self.arrays) > 3:
            del self.arrays[1]

    def tasks(self, random: random.Random) -> None:
        async def one() -> None:
            kind = random.randrange(4)
            if kind == 0:
                await self.card.h2c[random.randrange(2)].write_async(bytes(5000), self.address(random))
            elif kind == 1:
                await self.card.c2h[random.randrange(2)].read_async(bytearray(5000), self.address(random))
            elif kind == 2 and self.tickets:
                await random.choice(self.tickets)
            else:
                await self.interrupt

        async def main() -> None:
            tasks = [asyncio.create_task(one()) for _ in range(random.randrange(1, 4))]
            await asyncio.wait(tasks, timeout=self.timeout(random))
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception) and not isinstance(ended, (fpga_rdma.FpgaError, TimeoutError)):
                    raise ended

        asyncio.run(main())


CALLS: list[Callable[[Program, random.Random], None]] = [
    Program.write,
    Program.read,
    Program.submit,
    Program.batch,
    Program.wait,
    Program.done,
    Program.cancel,
    Program.abort,
    Program.wait_channel,
    Program.look,
    Program.poll,
    Program.close_channel,
    Program.close_card,
    Program.remove,
    Program.interrupts,
    Program.allocate,
    Program.tasks,
]


def run(seed: int) -> None:
    """Run the sequence of a seed."""
    program = Program(seed)
    problems: list[BaseException] = []

    def thread(own: random.Random) -> None:
        try:
            for _ in range(own.randrange(2, 10)):
                try:
                    own.choice(CALLS)(program, own)
                except fpga_rdma.FpgaError:
                    pass
        except BaseException as error:
            problems.append(error)

    randoms = [random.Random(program.random.random()) for _ in range(program.random.randrange(1, 4))]
    threads = [threading.Thread(target=thread, args=(own,), daemon=True) for own in randoms]
    for one in threads:
        one.start()
    for one in threads:
        one.join(HANG)
        if one.is_alive():
            faulthandler.dump_traceback(all_threads=True)
            raise AssertionError(f"sequence {seed} hangs")
    # An engine that does not stop is not waited for.
    program.network[0].fail("gone")
    program.card.close()
    assert not problems, (seed, problems)
    for array in program.arrays:
        array[:] = 1
        assert int(array.sum()) == array.size, seed


def test_random_calls_neither_hang_nor_crash() -> None:
    for seed in range(SEED, SEED + SEQUENCES):
        run(seed)
