"""pytest fixtures with simulated cards, for tests of applications.

Load them in ``conftest.py``::

    pytest_plugins = ["fpga_rdma.testing"]

================  ====================================================================================================================
Fixture           Value
================  ====================================================================================================================
``fpga_network``  :class:`fpga_rdma.sim.Network` of one card, or as the mark ``fpga`` says
``fpga_card``     the first card of that network, opened
``fpga_cards``    all cards of that network, opened; two cards without a mark
================  ====================================================================================================================

The mark takes the arguments of :class:`~fpga_rdma.sim.Network`, and ``faults``, a fault plan of the first card::

    @pytest.mark.fpga(cards=["us-x8"], faults="list: [{fault: stall, channel: h2c0}]")
    def test_stalled_write_is_reported(fpga_card): ...

Cards are closed after the test, whether it has passed or failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ._native import Card
from .sim import Network

__all__ = ["fpga_card", "fpga_cards", "fpga_network"]


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark."""
    config.addinivalue_line("markers", "fpga(cards, faults, ...): arguments of the network of simulated cards")


def _network(request: pytest.FixtureRequest, cards: int) -> Network:
    mark = request.node.get_closest_marker("fpga")
    arguments = {"cards": cards, **(mark.kwargs if mark else {})}
    faults = arguments.pop("faults", None)
    network = Network(*(mark.args if mark else ()), **arguments)
    if faults is not None:
        network[0].set_faults(faults)
    return network


@pytest.fixture
def fpga_network(request: pytest.FixtureRequest) -> Network:
    """Network of simulated cards."""
    return _network(request, 2 if "fpga_cards" in request.fixturenames else 1)


@pytest.fixture
def fpga_card(fpga_network: Network) -> Iterator[Card]:
    """First card of the network, opened."""
    with fpga_network[0].open() as card:
        yield card


@pytest.fixture
def fpga_cards(fpga_network: Network) -> Iterator[list[Card]]:
    """All cards of the network, opened."""
    with ExitStack() as stack:
        yield [stack.enter_context(card) for card in fpga_network.open()]
