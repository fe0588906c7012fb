"""Cost of the Python package: transfers by ``fpga_rdma`` against the same by ``fpga_driver``, on simulated cards.

    cargo xtask python --release --build-only
    cargo bench -p fpga-python --no-run                # prints the path of the Rust side
    target/python/bin/python driver/bindings/python/benches/overhead.py target/release/deps/peer-...

Rounds of both come in pairs, in alternating order, so that a slower or faster time of the machine concerns both. Each side has a card of
its own in its process. A figure is the median over the pairs, with the quartiles of the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from collections.abc import Callable

import numpy as np

import fpga_rdma

MEMORY = 4 << 20
"""Size of the memory of both sides in bytes."""
CASES = [
    # name, size in bytes, operations of a round
    ("copy", 4096, 500),
    ("copy", 1 << 20, 10),
    ("direct", 4096, 1000),
    ("direct", 1 << 20, 20),
    ("batch", 64, 20_000),
]


def main() -> None:
    parser = argparse.ArgumentParser(description="cost of the Python package")
    parser.add_argument("peer", help="program of the Rust side (benches/peer.rs)")
    parser.add_argument("--pairs", type=int, default=31, help="pairs of rounds")
    arguments = parser.parse_args()

    card = fpga_rdma.open("mock")
    channel = card.h2c[0]
    direct = card.allocate(MEMORY)
    private = np.ones(MEMORY, "u1")

    def repeat(memory: np.ndarray, count: int) -> None:
        write = channel.write
        for _ in range(count):
            write(memory, 0)

    def call(case: str, size: int, count: int) -> Callable[[], None]:
        if case == "batch":
            offsets = np.arange(count, dtype=np.uint64) * size % MEMORY
            return lambda: channel.write_batch(direct, offsets, offsets, size)
        memory = (direct if case == "direct" else private)[:size]
        return lambda: repeat(memory, count)

    with subprocess.Popen([arguments.peer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin is not None and peer.stdout is not None
        print(f"{'case':8} {'bytes':>8} {'Rust ns':>10} {'Python ns':>10} {'added ns':>9} {'Rust/Python':>12} {'quartiles':>13}")
        for case, size, count in CASES:
            python = call(case, size, count)

            def rust(case: str = case, size: int = size, count: int = count) -> float:
                assert peer.stdin is not None and peer.stdout is not None
                peer.stdin.write(f"{case} {size} {count}\n")
                peer.stdin.flush()
                return float(peer.stdout.readline())

            def ours(python: Callable[[], None] = python, count: int = count) -> float:
                begin = time.perf_counter_ns()
                python()
                return (time.perf_counter_ns() - begin) / count

            rust(), ours()
            pairs = []
            for number in range(arguments.pairs):
                first, second = (rust, ours) if number % 2 else (ours, rust)
                one, other = first(), second()
                pairs.append((one, other) if number % 2 else (other, one))
            ratios = sorted(one / other for one, other in pairs)
            low, _, high = statistics.quantiles(ratios, n=4)
            by_rust = statistics.median(one for one, _ in pairs)
            by_python = statistics.median(other for _, other in pairs)
            added = statistics.median(other - one for one, other in pairs)
            ratio = statistics.median(ratios)
            print(f"{case:8} {size:8} {by_rust:10.0f} {by_python:10.0f} {added:9.0f} {ratio:12.2f} {low:6.2f}-{high:.2f}")
        peer.stdin.close()


if __name__ == "__main__":
    main()
