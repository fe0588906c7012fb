"""Multiplies a vector on the card: data to its memory by DMA, start by a register, end by a user interrupt, result by DMA.

    python host.py rtl:model
"""

import sys
from pathlib import Path

import fpga_rdma
import numpy as np

SOURCE, RESULT = 0x0000, 0x8000


def scale(card: fpga_rdma.Card, vector: np.ndarray, factor: int) -> np.ndarray:
    scaler = card.load_map(Path(__file__).with_name("scaler.yaml")).scaler
    card.h2c[0].write(vector, SOURCE)
    with card.user_interrupt(0) as finished:
        scaler.source = SOURCE
        scaler.destination = RESULT
        scaler.length = len(vector) // 2
        scaler.factor = factor
        scaler.control.start = 1
        finished.wait(timeout=20)
        assert scaler.status.busy == 0
        # The request is a level: clear its cause, then let the line interrupt again.
        scaler.status.done = 1
        finished.rearm()
        assert not finished.pending
    result = np.empty_like(vector)
    card.c2h[0].read(result, RESULT)
    return result


def main() -> None:
    vector = np.arange(1000, dtype=np.uint32)
    with fpga_rdma.open(sys.argv[1]) as card:
        for factor in (3, 0x10001):
            result = scale(card, vector, factor)
            assert (result == vector * np.uint32(factor)).all()
            print(f"{len(vector)} numbers times {factor}: last {result[-1]}")


if __name__ == "__main__":
    main()
