from __future__ import annotations

from pathlib import Path

import pytest

import fpga_rdma
from fpga_rdma.sim import Network


def test_memory_is_seen_from_both_sides() -> None:
    network = Network(["us-x8"])
    with network[0].open() as card:
        card.h2c[0].write(b"from the host", 0x100)
        assert network[0].peek(0x100, 13) == b"from the host"
        network[0].poke(0x200, bytearray(b"from the design"))
        got = bytearray(15)
        card.c2h[0].read(got, 0x200)
        assert got == b"from the design"


def test_same_seed_gives_same_time() -> None:
    def run(seed: int) -> float:
        network = Network(2, loss=0.2, reorder=8, seed=seed)
        with network[0].open() as card:
            card.h2c[0].write(bytes(100_000), 0)
        return network.now

    assert run(1) == run(1) > 0


def test_fault_plan_strikes_and_is_removed(fpga_network: Network, fpga_card: fpga_rdma.Card) -> None:
    simulated = fpga_network[0]
    simulated.set_faults("list: [{fault: refused_data, channel: h2c0}]")
    with pytest.raises(fpga_rdma.FpgaError):
        fpga_card.h2c[0].write(b"x", 0, timeout=0.01)
    assert simulated.fault_progress == [(1, 1)]
    simulated.set_faults("")
    assert simulated.fault_progress == []
    fpga_card.h2c[0].write(b"x", 0)


def test_invalid_fault_plans_name_entry() -> None:
    simulated = Network()[0]
    for wrong in ("list: [{fault: nonsense}]", "list: [{fault: stall}, 7]", "{", "list: [{fault: stall, gap: 1}]"):
        with pytest.raises(ValueError, match="fault plan: "):
            simulated.set_faults(wrong)


def test_poisoned_memory_faults_and_removed_card_is_gone(fpga_network: Network, fpga_card: fpga_rdma.Card) -> None:
    fpga_network[0].poison(0x8000, 64)
    with pytest.raises(fpga_rdma.TransferFault) as caught:
        fpga_card.h2c[0].write(bytes(4096), 0x8000)
    assert caught.value.part == "h2c0"
    fpga_network[0].poison(0x8000, 0)
    fpga_card.h2c[0].write(bytes(4096), 0x8000)
    fpga_network[0].fail()
    with pytest.raises(fpga_rdma.CardGoneError):
        fpga_card.h2c[0].write(bytes(4096), 0x8000)
    fpga_network[0].replug()


def test_impossible_arguments_are_refused() -> None:
    for arguments in ({"loss": 1.5}, {"loss": -0.1}, {"delay": -1.0}, {"rate": 0.0}, {"damage": float("nan")}):
        with pytest.raises(ValueError):
            Network(2, **arguments)  # type: ignore[arg-type]
    with pytest.raises(fpga_rdma.OpenError):
        Network(["no-such-card"])
    network = Network(2)
    with pytest.raises(IndexError, match="2 cards"):
        network[2]
    with pytest.raises(ValueError, match="0 to 15"):
        network[0].pulse_user_interrupt(16)
    with pytest.raises(ValueError, match="failure"):
        network[0].fail("burnt")
    with pytest.raises(fpga_rdma.RangeError):
        network[0].peek(1 << 60, 1)
    assert len(list(network)) == 2 and "2 simulated cards" in repr(network)


def test_card_description_file_is_opened(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text("schema_version: 3\nname: small\nxdma: { h2c_channels: 1, c2h_channels: 2 }\n")
    with Network([str(file)])[0].open() as card:
        assert (len(card.h2c), len(card.c2h)) == (1, 2)


@pytest.mark.fpga(cards=3, seed=4)
def test_mark_sets_arguments_of_network(fpga_network: Network, fpga_cards: list[fpga_rdma.Card]) -> None:
    assert len(fpga_network) == len(fpga_cards) == 3


@pytest.mark.fpga(faults="list: [{fault: stall, channel: h2c0}]")
def test_mark_sets_faults(fpga_card: fpga_rdma.Card) -> None:
    with pytest.raises(fpga_rdma.WedgedError):
        fpga_card.h2c[0].write(b"x", 0, timeout=0.01)


def test_fixture_of_cards_has_two(fpga_cards: list[fpga_rdma.Card]) -> None:
    assert len(fpga_cards) == 2


def test_threaded_network_works_by_itself() -> None:
    network = Network(threaded=True)
    with network[0].open(interrupts=True) as card:
        card.h2c[0].write(bytes(1 << 20), 0)
    assert network.threaded and "real time" in repr(network)
