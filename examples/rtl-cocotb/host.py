"""Host program: takes samples and prints their sum.

    python host.py CARD COUNT...
"""

import sys
from pathlib import Path

import fpga_rdma


def main() -> None:
    with fpga_rdma.open(sys.argv[1]) as card, card.user_interrupt(0) as finished:
        sampler = card.load_map(Path(__file__).with_name("sampler.yaml")).sampler
        for count in map(int, sys.argv[2:]):
            sampler.count = count
            sampler.control.start = 1
            finished.wait(timeout=20)
            print(count, int(sampler.sum), flush=True)
            sampler.status.done = 1
            finished.rearm()


if __name__ == "__main__":
    main()
