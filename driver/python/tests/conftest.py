from __future__ import annotations

from collections.abc import Iterator

import pytest

import fpga_rdma

pytest_plugins = ["fpga_rdma.testing"]


@pytest.fixture
def card() -> Iterator[fpga_rdma.Card]:
    with fpga_rdma.open("mock") as opened:
        yield opened
