from __future__ import annotations

import pytest

import fpga_rdma


def test_open_unknown_name_names_forms() -> None:
    with pytest.raises(fpga_rdma.OpenError) as caught:
        fpga_rdma.open("mock:no-such-card")
    assert "no-such-card" in caught.value.message
    with pytest.raises(fpga_rdma.OpenError) as caught:
        fpga_rdma.open("nonsense")
    assert caught.value.advice is not None and "vfio-user:SOCKET" in caught.value.advice
    assert str(caught.value).endswith(caught.value.advice)


def test_closed_card_refuses_calls_and_closes_again() -> None:
    card = fpga_rdma.open("mock")
    channel = card.h2c[0]
    card.close()
    card.close()
    assert card.closed and "closed" in repr(card) and "closed" in repr(channel)
    for call in (lambda: card.h2c[0], lambda: channel.write(b"x", 0), lambda: card.dma_bar[0]):
        with pytest.raises(fpga_rdma.ClosedError):
            call()


def test_context_manager_closes_after_exception() -> None:
    with pytest.raises(KeyError), fpga_rdma.open("mock") as card:
        raise KeyError
    assert card.closed


def test_repr_describes_card(card: fpga_rdma.Card) -> None:
    assert repr(card) == "<Card mock:0: 4 H2C and 4 C2H memory channels, network interface>"
    assert repr(card.c2h) == "<4 c2h channels of mock:0>"
    assert repr(card.h2c[1]) == "<Channel h2c1 of mock:0: 0 in flight>"


def test_bar_access_reads_identifier_and_refuses_outside(card: fpga_rdma.Card) -> None:
    assert card.dma_bar[0x0000] >> 16 == 0x1FC0
    assert card.dma_bar.read64(0) & 0xFFFF_FFFF == card.dma_bar.read32(0)
    with pytest.raises(fpga_rdma.RangeError) as caught:
        card.dma_bar.read32(len(card.dma_bar))
    assert caught.value.card == "mock:0"


def test_channel_index_beyond_last_is_index_error(card: fpga_rdma.Card) -> None:
    assert [channel.name for channel in card.h2c] == ["h2c0", "h2c1", "h2c2", "h2c3"]
    for wrong in (4, -1, 1 << 40):
        with pytest.raises(IndexError, match="the card has 4"):
            card.h2c[wrong]


def test_channel_is_same_until_closed(card: fpga_rdma.Card) -> None:
    first = card.h2c[0]
    assert card.h2c[0] == first and hash(card.h2c[0]) == hash(first)
    first.close()
    assert card.h2c[0] != first
