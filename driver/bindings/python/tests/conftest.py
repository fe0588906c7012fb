from __future__ import annotations

from collections.abc import Iterator

import pytest

import fpga_rdma

pytest_plugins = ["fpga_rdma.testing"]

_DELAYS: dict[str, float] = {}


@pytest.fixture
def card() -> Iterator[fpga_rdma.Card]:
    with fpga_rdma.open("mock") as opened:
        yield opened


@pytest.fixture
def delays() -> dict[str, float]:
    """Delays between an event and the end of a wait in seconds, by their case. The summary has the longest ones."""
    return _DELAYS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _DELAYS:
        return
    longest = sorted(_DELAYS, key=lambda case: -_DELAYS[case])[:5]
    terminalreporter.write_line(f"ends of waits: {len(_DELAYS)} cases; longest delays:")
    for case in longest:
        terminalreporter.write_line(f"  {1000 * _DELAYS[case]:6.1f} ms  {case}")
