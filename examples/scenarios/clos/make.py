#!/usr/bin/env python3
"""Writes the flow lists of this folder: connection matrices for 144 hosts below 12 leaves.

    python3 make.py

The lists are the same on every run: the random numbers have a fixed seed.
"""

import random
from pathlib import Path

HOSTS, LEAF = 144, 12
# Flow sizes in bytes, with the share of flows up to each size: web search (Alizadeh et al., DCTCP, 2010).
WEB_SEARCH = [
    (6_000, 0.15), (13_000, 0.20), (19_000, 0.30), (33_000, 0.40), (53_000, 0.53), (133_000, 0.60),
    (667_000, 0.70), (1_333_000, 0.80), (3_333_000, 0.90), (6_667_000, 0.97), (20_000_000, 1.0),
]
# Load of the hosts' links, and their rate in bytes per second.
LOAD, RATE = 0.5, 12.5e9


def write(name, flows):
    lines = [f"Nodes {HOSTS}", f"Connections {len(flows)}"]
    for number, (source, destination, size, start_ps) in enumerate(flows, 1):
        lines.append(f"{source}->{destination} id {number} start {start_ps} size {size}")
    Path(__file__).with_name(name + ".cm").write_text("\n".join(lines) + "\n")


def permutation(size, seed=1):
    """Every host sends to one host below another leaf, and receives from one."""
    numbers = random.Random(seed)
    while True:
        targets = list(range(HOSTS))
        numbers.shuffle(targets)
        if all(host // LEAF != target // LEAF for host, target in enumerate(targets)):
            return [(host, target, size, 0) for host, target in enumerate(targets)]


def incast(senders, size):
    """Hosts below other leaves send to host 0."""
    return [(LEAF + 4 * sender, 0, size, 0) for sender in range(senders)]


def all_to_all(size):
    """Three hosts of every leaf: each sends to all others, in rotation."""
    hosts = [leaf * LEAF + host for leaf in range(HOSTS // LEAF) for host in range(3)]
    count = len(hosts)
    return [(hosts[at], hosts[(at + step) % count], size, 0) for step in range(1, count) for at in range(count)]


def web_search(count, seed=2):
    numbers = random.Random(seed)
    mean, before, share = 0.0, 0, 0.0
    for size, until in WEB_SEARCH:
        mean += (until - share) * (before + size) / 2
        before, share = size, until
    rate = LOAD * RATE * HOSTS / mean
    flows, now = [], 0.0
    for _ in range(count):
        now += numbers.expovariate(rate)
        draw, before, share = numbers.random(), 0, 0.0
        for size, until in WEB_SEARCH:
            if draw <= until:
                size = before + (size - before) * (draw - share) / (until - share)
                break
            before, share = size, until
        source, destination = numbers.sample(range(HOSTS), 2)
        flows.append((source, destination, max(int(size), 64), int(now * 1e6) * 1_000_000))
    return flows


def long_and_short():
    """A permutation of 2 MB, and 4 flows of 64 KiB from every third host while it runs."""
    numbers = random.Random(3)
    flows = permutation(2_000_000)
    for host in range(0, HOSTS, 3):
        for turn in range(4):
            target = numbers.choice([other for other in range(HOSTS) if other // LEAF != host // LEAF])
            flows.append((host, target, 65_536, (20 + 30 * turn) * 1_000_000))
    return flows


def short_and_incast():
    """32 hosts send 1 MiB to host 0; others send 64 KiB to hosts of the same leaf."""
    numbers = random.Random(4)
    flows = incast(32, 1 << 20)
    senders = [host for host in range(LEAF, HOSTS) if (host - LEAF) % 4]
    for turn in range(48):
        flows.append((numbers.choice(senders), 1 + turn % (LEAF - 1), 65_536, (20 + 10 * turn) * 1_000_000))
    return flows


def main():
    write("permutation-2MB", permutation(2_000_000))
    write("permutation-64KiB", permutation(65_536))
    write("permutation-16MB", permutation(16_000_000))
    write("incast-32x64KiB", incast(32, 65_536))
    write("incast-32x256KiB", incast(32, 1 << 18))
    write("incast-32x1MiB", incast(32, 1 << 20))
    write("all-to-all-64KiB", all_to_all(65_536))
    write("web-search", web_search(1000))
    write("long-and-short", long_and_short())
    write("short-and-incast", short_and_incast())


if __name__ == "__main__":
    main()
