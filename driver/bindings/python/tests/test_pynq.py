"""Programs and notebooks of PYNQ, with the import changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import fpga_rdma
from fpga_rdma import pynq

STREAMS = "mock:us-plus-x8-stream"


@pytest.fixture
def dma() -> Iterator[pynq.DMA]:
    with fpga_rdma.open(STREAMS) as card:
        yield pynq.DMA(card)


@pytest.fixture(autouse=True)
def no_card_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynq, "_active", None)
    monkeypatch.delenv("FPGA_CARD", raising=False)


@pytest.mark.parametrize("count", [1, 1000, 300_000, 2_000_000])
@pytest.mark.parametrize("receives_first", [False, True])
@pytest.mark.parametrize("waits_first", ["send", "recv"])
def test_loopback_gives_data_in_every_order(dma: pynq.DMA, count: int, receives_first: bool, waits_first: str) -> None:
    sent, got = pynq.allocate((count,), np.uint32), pynq.allocate((count,), np.uint32)
    sent[:] = np.arange(count) + 7
    send, recv = dma.sendchannel, dma.recvchannel
    if receives_first:
        recv.transfer(got)
        assert not recv.idle
    send.transfer(sent)
    if not receives_first:
        recv.transfer(got)
    for channel in (send, recv) if waits_first == "send" else (recv, send):
        channel.wait()
        assert channel.idle and channel.running and not channel.error and channel.transferred == sent.nbytes
        channel.wait()
    assert (sent == got).all()


def test_transfer_moves_a_part(dma: pynq.DMA) -> None:
    sent, got = pynq.allocate(64, "u1"), pynq.allocate(64, "u1")
    sent[:] = range(64)

    async def main() -> None:
        dma.sendchannel.transfer(sent, 8, 16)
        dma.recvchannel.transfer(got, start=4)
        await dma.sendchannel.wait_async()
        await dma.recvchannel.wait_async()

    asyncio.run(main())
    assert got.tolist() == [0] * 4 + list(range(8, 24)) + [0] * 44
    assert dma.recvchannel.transferred == 16 == dma.sendchannel.transferred
    for start, nbytes in ((0, 65), (60, 5), (-1, 4), (64, 0), (0, -4)):
        with pytest.raises(ValueError, match="part of the array"):
            dma.sendchannel.transfer(sent, start, nbytes)


def test_short_packet_is_counted_and_long_one_is_an_error(dma: pynq.DMA) -> None:
    sent, got = pynq.allocate(64, "u1"), pynq.allocate(64, "u1")
    sent[:] = range(64)
    dma.sendchannel.transfer(sent, 0, 10)
    dma.recvchannel.transfer(got)
    dma.recvchannel.wait()
    assert dma.recvchannel.transferred == 10
    dma.sendchannel.transfer(sent)
    dma.recvchannel.transfer(got, 0, 10)
    for _ in range(2):
        with pytest.raises(fpga_rdma.RangeError, match="64 bytes"):
            dma.recvchannel.wait()
    assert dma.recvchannel.error and dma.recvchannel.transferred == 0
    dma.recvchannel.transfer(got)  # The packet was kept.
    dma.recvchannel.wait()
    assert (sent == got).all() and not dma.recvchannel.error


def test_channel_states_are_those_of_pynq(dma: pynq.DMA) -> None:
    got = pynq.allocate(64, "u1")
    recv = dma.recvchannel
    recv.wait()
    recv.transfer(got)
    with pytest.raises(RuntimeError, match="in progress"):
        recv.transfer(got)
    assert dma.register_map.S2MM_DMASR.Idle == 0
    assert dma.register_map.S2MM_DA.Destination_Address == got.physical_address
    recv.stop()
    assert not recv.running
    with pytest.raises(RuntimeError, match="stopped"):
        recv.transfer(got)
    with pytest.raises(RuntimeError, match="stopped"):
        recv.wait()
    with pytest.raises(RuntimeError, match="stopped"):
        asyncio.run(recv.wait_async())
    recv.start()
    recv.transfer(got)
    dma.sendchannel.transfer(np.arange(64, dtype="u1"))
    recv.wait()
    assert got.tolist() == list(range(64))
    with pytest.raises(ValueError, match="max_size"):
        recv.transfer(np.zeros(8 << 20, "u1"))


def test_removed_card_is_reported_by_both_directions() -> None:
    network = fpga_rdma.sim.Network(["us-plus-x8-stream"])
    with network[0].open() as card:
        dma = pynq.DMA(card)
        dma.recvchannel.transfer(pynq.allocate(64))
        network[0].fail("gone")
        for _ in range(2):
            with pytest.raises(fpga_rdma.CardGoneError):
                dma.recvchannel.wait()
        assert dma.recvchannel.error and dma.recvchannel.idle
        with pytest.raises(fpga_rdma.CardGoneError):
            dma.sendchannel.transfer(bytes(64))
            dma.sendchannel.wait()


def test_memory_card_has_no_stream_dma(card: fpga_rdma.Card) -> None:
    with pytest.raises(fpga_rdma.UnsupportedError, match="sync_to_device"):
        pynq.DMA(card)


def test_buffer_needs_a_card_and_a_place(card: fpga_rdma.Card) -> None:
    with pytest.raises(fpga_rdma.UnsupportedError, match="no card is in use"):
        pynq.allocate(4)
    with pytest.raises(TypeError, match="card"):
        pynq.allocate(4, target="mock")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pynq.allocate((4,), target=card, address=0x100) as placed:
        placed[:] = 5
        placed.flush()
        other = pynq.allocate(4, "u4")  # on the same card
        with pytest.raises(ValueError, match="address=0x1000"):
            other.sync_to_device()
        assert placed[2:].view(pynq.PynqBuffer).address == 0x108
    with pytest.raises(ValueError, match="freed"):
        placed.sync_from_device()
    card.close()
    with pytest.raises(fpga_rdma.UnsupportedError):
        pynq.allocate(4)


def test_mmio_reads_and_writes_as_pynq(card: fpga_rdma.Card) -> None:
    mmio = pynq.MMIO(card, 0x1000, 0x40)
    same = pynq.MMIO(0x1000, 0x40)
    mmio.write(0x18, 0x11223344)
    assert [same.read(0x18, length) for length in (1, 2, 4)] == [0x44, 0x3344, 0x11223344]
    mmio.write(0x18, b"\1\2\3\4\5\6\7\x08")
    low, high = mmio.read(0x18), mmio.read(0x1C)
    assert low == 0x04030201
    assert mmio.read(0x18, 8) == high << 32 | low and mmio.read(0x18, 8, "big") == low << 32 | high
    mmio.array[6] = 9
    assert mmio.read(0x18) == 9 == card.user_bar[0x1018] == mmio.array[6]
    mmio.array[6:7] = [10]
    assert np.asarray(mmio.array)[6] == 10 and mmio.array[5:7].tolist()[1] == 10 and len(list(mmio.array)) == 16
    assert mmio.array[-10] == 10 and mmio.array.shape == (16,)
    for call in (
        lambda: mmio.read(0x3E),
        lambda: mmio.read(0x3C, 8),
        lambda: mmio.read(0, 3),
        lambda: mmio.read(-4),
        lambda: mmio.write(0, b"123"),
        lambda: mmio.write(0x3C, bytes(8)),
        lambda: mmio.write(0, -1),
        lambda: mmio.write(0, 1 << 32),
        lambda: pynq.MMIO(card, 1 << 30),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(IndexError):
        mmio.array[16] = 1
    with pytest.raises(ValueError, match="2 values for 3"):
        mmio.array[0:3] = [1, 2]


def test_overlay_opens_a_card_and_names_its_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fpga_rdma.UnsupportedError, match="card="):
        pynq.Overlay("loopback.bit")
    monkeypatch.setenv("FPGA_CARD", STREAMS)
    overlay = pynq.Overlay("loopback.bit")
    assert overlay.is_loaded() and "axi_dma_1" in overlay.ip_dict
    assert overlay.axi_dma is overlay.axi_dma_0 is overlay.axi_dma_from_pl_to_ps and overlay.axi_dma_1.number == 1
    again = pynq.Overlay("loopback.bit")
    dma = overlay.axi_dma
    assert again.card is overlay.card and again.axi_dma is dma
    with pytest.raises(AttributeError, match="scaler"):
        _ = overlay.scaler_0
    with pytest.raises(fpga_rdma.UnsupportedError, match="program"):
        overlay.download()
    overlay.free()
    assert not again.is_loaded()


CELLS = """
from fpga_rdma.pynq import Overlay
overlay = Overlay("loopback.bit")
---
dma = overlay.axi_dma
send, recv = overlay.axi_dma.sendchannel, overlay.axi_dma.recvchannel
---
from fpga_rdma.pynq import allocate
import numpy as np
source = allocate(shape=(1000,), dtype=np.uint32)
for i in range(1000):
    source[i] = i + 0xCAFE0000
send.transfer(source)
---
target = allocate(shape=(1000,), dtype=np.uint32)
recv.transfer(target)
---
np.array_equal(source, target), recv.error, recv.idle, hex(dma.register_map.MM2S_SA.Source_Address) == hex(source.physical_address)
---
del source, target
"""


def test_notebook_of_loopback_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of calls of PYNQ's DMA tutorial, which reads the buffer without a wait."""
    monkeypatch.setenv("FPGA_CARD", STREAMS)
    notebook: Any = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell.strip()) for cell in CELLS.split("---")]
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert notebook.cells[4].outputs[0]["data"]["text/plain"] == "(True, False, True, True)"
