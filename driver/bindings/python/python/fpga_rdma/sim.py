"""Simulated cards in this process, the network between them, and what a test does to them.

``fpga_rdma.open("mock")`` opens one simulated card. A test that looks into a card's memory, injects faults, raises interrupts or links several
cards makes a :class:`Network`:

>>> from fpga_rdma.sim import Network
>>> network = Network()
>>> card = network[0].open()
>>> card.h2c[0].write(b"frame", 0x3000)
>>> network[0].peek(0x3000, 5)
b'frame'
>>> card.close()

Time is virtual unless the network is threaded: it passes only while the driver waits, or by :meth:`Network.advance`. The same calls and the same
seed give the same run.
"""

from __future__ import annotations

from ._native import Network, SimulatedCard

__all__ = ["Network", "SimulatedCard"]
