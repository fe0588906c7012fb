from __future__ import annotations

from pathlib import Path

import pytest

import fpga_rdma

MAP = Path(__file__).parents[4] / "examples/maps/simulated-card.yaml"
ARRAYS = """
schema_version: 1
name: arrays
blocks:
  - name: lane
    offset: 0x1018
    size: 8
    count: 2
    registers: [{name: gain, offset: 0, count: 2}]
"""


def test_register_is_written_and_read_by_name(card: fpga_rdma.Card) -> None:
    regs = card.load_map(MAP)
    regs.copier.control.threshold = 5
    assert regs.copier.control.threshold == 5
    assert int(card.regs.copier.control) >> 16 & 0xFF == 5
    assert card.regs["copier.control.threshold"].value == 5
    assert repr(regs.copier.control.threshold) == "<copier.control.threshold = 0x5>"


def test_named_value_is_written_and_compared(card: fpga_rdma.Card) -> None:
    regs = card.load_map(str(MAP))
    regs.copier.control.mode = "scatter_gather"
    assert regs.copier.control.mode == "scatter_gather" and regs.copier.control.mode == 1
    assert regs["copier.control.mode"].info.values == {"simple": 0, "scatter_gather": 1}
    with pytest.raises(fpga_rdma.RangeError, match="simple, scatter_gather"):
        regs.copier.control.mode = "scatter"


def test_completion_lists_names_without_access(card: fpga_rdma.Card) -> None:
    regs = card.load_map(MAP)
    assert "copier" in dir(regs) and "threshold" in dir(regs.copier.control)
    assert regs.copier.control.info.offset == 0x1000


def test_unknown_name_is_attribute_error_with_suggestion(card: fpga_rdma.Card) -> None:
    regs = card.load_map(MAP)
    with pytest.raises(AttributeError, match="did you mean copier.control") as caught:
        _ = regs.copier.contrl
    assert isinstance(caught.value, fpga_rdma.NoRegisterError)
    assert not hasattr(regs, "nothing_like_it")
    with pytest.raises(fpga_rdma.NoRegisterError, match="group"):
        regs.copier = 1


def test_value_that_does_not_fit_is_refused(card: fpga_rdma.Card) -> None:
    regs = card.load_map(MAP)
    for wrong in (256, -1, 1 << 40):
        with pytest.raises(fpga_rdma.RangeError, match="0xff"):
            regs.copier.control.threshold = wrong


def test_elements_of_arrays_have_numbers(card: fpga_rdma.Card) -> None:
    regs = card.parse_map(ARRAYS)
    assert repr(regs) == "<Registers arrays: lane>" and len(regs.lane) == 2
    regs.lane[1].gain[0] = 7
    assert regs["lane[1].gain[0]"] == 7 and card.user_bar[0x1020] == 7
    with pytest.raises(fpga_rdma.NoRegisterError):
        _ = regs.lane[2]


def test_wrong_map_names_line_and_key(card: fpga_rdma.Card) -> None:
    with pytest.raises(fpga_rdma.MapError, match="mine:1:.*schema_version"):
        card.parse_map("schema_version: 9\nname: x\nblocks: []\n", "mine")
    with pytest.raises(fpga_rdma.UnsupportedError, match="no register map"):
        _ = card.regs
