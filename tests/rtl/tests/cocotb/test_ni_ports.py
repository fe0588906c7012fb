"""Ports of `fpga_ni` with a foreign AXI4-Lite master, AXI4 master, memory, stream source and sink, each with random pauses.

Register offsets, layouts and the checksum are typed from firmware-bindings/map/ni.md: nothing is shared with the generated package or the
Rust encoder.
"""

import logging
import random
import struct

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, with_timeout
from cocotbext.axi import (
    AxiBus,
    AxiLiteBus,
    AxiLiteMaster,
    AxiMaster,
    AxiRamWrite,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
    AxiWriteBus,
)

NODE, PEER, INCARNATION, PEER_INCARNATION, KEY = 1, 2, 0x55, 0x77, 0x1122334455667788
PACKET_LOG2 = 6
PACKET = 1 << PACKET_LOG2
WINDOW_STRIDE, COMMIT_OFFSET, PAYLOAD_OFFSET = 0x2000, 0xFC0, 0x1000
WINDOW_BASE = 0x10_0000_0000
MEMORY_SIZE, RING, RING_ENTRIES = 1 << 18, 0x3_0000, 1024
DATA, START, ACK, NACK, SEGMENT_DONE = 1, 2, 3, 4, 5
NOTIFY_RECEIVER = 1 << 2
EVENT_WINDOW_FREE, EVENT_REGISTERED, EVENT_COMPLETED, EVENT_NOTICE, EVENT_FAULT = 4, 5, 7, 9, 10
NACK_VIOLATION = 3


def crc32c(data: bytes) -> int:
    register = 0xFFFF_FFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F6_3B78 if register & 1 else 0)
    return register ^ 0xFFFF_FFFF


def sealed(packet: bytes) -> bytes:
    return packet + struct.pack("<I", crc32c(packet))


class Segment:
    """A transfer of one segment."""

    def __init__(self, transfer: int, base: int, data: bytes, key: int = KEY) -> None:
        self.transfer, self.base, self.data, self.key = transfer, base, data, key
        self.count = -(-len(data) // PACKET)

    def packet(self, index: int, source: int, incarnation: int, destination: int, op: int, path: int) -> bytes:
        payload = self.data[index * PACKET : (index + 1) * PACKET]
        common = struct.pack("<BBBBIII", 4, DATA if index else START, NOTIFY_RECEIVER, path, source, destination, incarnation)
        address = self.base + index * PACKET
        fields = struct.pack("<IIIIQQIHBB", self.transfer, 0, 0, 1, address, self.key, op, len(payload), 1, PACKET_LOG2)
        start = b""
        if index == 0:
            start = struct.pack("<QIHHQQ", self.base, len(self.data), self.count, 0, self.base, len(self.data))
        return sealed(common + fields + start + payload)

    def window(self, sequence: int, ops: list[int], path: int) -> bytes:
        size = len(self.data)
        header = struct.pack("<IIIIIIII", sequence, NOTIFY_RECEIVER, PEER, self.transfer, 0, 0, 1, size)
        header += struct.pack("<QQQQ", self.base, self.key, self.base, size)
        header += struct.pack("<HHBBHBBBBIQ", 0, self.count, PACKET_LOG2, 0, self.count, 1, 0, 0, path, 0, 0)
        return header.ljust(128, b"\0") + struct.pack(f"<{len(ops)}I", *ops)


class Bench:
    def __init__(self, dut) -> None:
        self.dut, self.random = dut, random.Random(cocotb.RANDOM_SEED)
        logging.getLogger("cocotb.ni_ports_bench").setLevel(logging.WARNING)
        reset = {"reset": dut.rst_n, "reset_active_level": False}
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, **reset)
        self.windows = AxiMaster(AxiBus.from_prefix(dut, "s_axi"), dut.clk, **reset)
        self.memory = AxiRamWrite(AxiWriteBus.from_prefix(dut, "m_axi"), dut.clk, **reset, size=MEMORY_SIZE)
        self.source = AxiStreamSource(AxiStreamBus.from_prefix(dut, "s_axis"), dut.clk, **reset)
        self.sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis"), dut.clk, **reset)
        writes, reads = self.registers.write_if, self.registers.read_if
        channels = [writes.aw_channel, writes.w_channel, writes.b_channel, reads.ar_channel, reads.r_channel]
        writes, reads = self.windows.write_if, self.windows.read_if
        channels += [writes.aw_channel, writes.w_channel, writes.b_channel, reads.ar_channel, reads.r_channel]
        channels += [self.memory.aw_channel, self.memory.w_channel, self.memory.b_channel, self.source, self.sink]
        for channel in channels:
            channel.set_pause_generator(self.pauses())

    def pauses(self):
        """Pauses of a channel; their share changes every 64 cycles."""
        choice = random.Random(self.random.random())
        while True:
            share = choice.choice([0, 0.2, 0.5, 0.8])
            for _ in range(64):
                yield choice.random() < share

    async def write(self, offset: int, value: int) -> None:
        await self.registers.write_dword(offset, value)

    async def read(self, offset: int) -> int:
        return await self.registers.read_dword(offset)

    async def start(self) -> None:
        cocotb.start_soon(Clock(self.dut.clk, 4, units="ns").start())
        self.dut.rst_n.value = 0
        await ClockCycles(self.dut.clk, 8)
        self.dut.rst_n.value = 1
        await ClockCycles(self.dut.clk, 2)
        self.memory.write(0, bytes(self.random.randbytes(RING)))
        self.before = bytearray(self.memory.read(0, MEMORY_SIZE))
        # NODE_ID, INCARNATION, timeouts, event ring; CONTROL: ENABLE and EVENT_ENABLE.
        for offset, value in [(0, NODE), (4, INCARNATION), (0x64, 10**8), (0x68, 10**8), (0x80, RING), (0x88, RING_ENTRIES), (8, 5)]:
            await self.write(0x2000 + offset, value)
        # Memory window 1: the lower half of the memory for the peer.
        words = [(0, 1), (4, PEER), (8, 0x1000), (0x10, 0x2_0000), (0x18, KEY & 0xFFFF_FFFF), (0x1C, KEY >> 32), (0x20, 1), (0x24, 1)]
        for offset, value in words:
            await self.write(0x6000 + offset, value)
        assert await self.read(0x6028) == 1, "the memory window is not installed"

    async def frame(self) -> bytes:
        return bytes((await with_timeout(self.sink.recv(), 400, "us")).tdata)

    async def quiet(self) -> None:
        await ClockCycles(self.dut.clk, 500)

    def events(self) -> list[bytes]:
        found = []
        while len(found) < RING_ENTRIES:
            event = bytes(self.memory.read(RING + 64 * len(found), 64))
            if struct.unpack("<I", event[60:])[0] != len(found) + 1:
                return found
            found.append(event)
        return found


@cocotb.test()
async def identity_is_that_of_the_contract(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    assert await bench.read(0) == 0x464E_4943
    assert await bench.read(4) >> 16 == 4
    blocks = {}
    for number in range(await bench.read(0x14)):
        kind, offset = await bench.read(0x18 + 16 * number), await bench.read(0x1C + 16 * number)
        blocks[kind & 0xFFFF] = offset
    assert blocks[1] == 0 and blocks[3] == 0x2000 and blocks[4] == 0x3000 and blocks[7] == 0x6000, blocks
    assert await bench.read(0x2010) == PACKET_LOG2 and await bench.read(0x2034) == WINDOW_STRIDE
    # Other words of the same registers are not changed by a write of some bytes.
    await bench.write(0x2060, 0x1234_5678)
    assert await bench.read(0x2060) == 0x1234_5678


@cocotb.test()
async def received_segments_are_in_memory_answered_and_reported(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    choice = bench.random
    segments, expected = [], bench.before
    for transfer in range(8):
        data = choice.randbytes(choice.choice([1, 63, 64, 65, choice.randrange(1, 8 * PACKET)]))
        segments.append(Segment(transfer, 0x1000 + 0x1000 * transfer + choice.randrange(64), data))
    # Two of them at a time, in random order, with repeated and damaged packets.
    sent, answered, damaged, refused = set(), set(), 0, 0
    for pair in zip(segments[::2], segments[1::2]):
        frames = []
        for segment in pair:
            op = segment.transfer << 16
            packets = [
                (op + index, segment.packet(index, PEER, PEER_INCARNATION, NODE, op + index, index)) for index in range(segment.count)
            ]
            frames += packets + choice.sample(packets, k=min(2, len(packets)))
        # At most eight packets wait for their START.
        choice.shuffle(frames)
        frames.sort(key=lambda frame: frame[1][1] != START)
        for index in range(len(frames) - 1):
            if choice.random() < 0.5:
                frames[index], frames[index + 1] = frames[index + 1], frames[index]
        for op, frame in frames:
            if choice.random() < 0.2:
                broken = bytearray(frame)
                broken[choice.randrange(len(frame))] ^= 1 << choice.randrange(8)
                await bench.source.send(AxiStreamFrame(bytes(broken)))
                damaged += 1
            await bench.source.send(AxiStreamFrame(frame))
        stranger = Segment(100 + pair[0].transfer, 0x1000, b"not allowed", key=KEY + 1)
        await bench.source.send(AxiStreamFrame(stranger.packet(0, PEER, PEER_INCARNATION, NODE, 0xBAD, 0)))
        done = set()
        sent |= {frame[0] for frame in frames}
        while not (done == {segment.transfer for segment in pair} and sent == answered and refused == pair[0].transfer // 2 + 1):
            answer = await bench.frame()
            assert answer == sealed(answer[:-4]), "checksum of an answer"
            version, kind, _, _, source, destination, incarnation = struct.unpack("<BBBBIII", answer[:16])
            assert (version, source, destination, incarnation) == (4, NODE, PEER, INCARNATION)
            if kind == SEGMENT_DONE:
                transfer, number, peer, reserved = struct.unpack("<IIII", answer[16:32])
                assert len(answer) == 36 and (number, peer, reserved) == (0, PEER_INCARNATION, 0) and transfer not in done
                done.add(transfer)
                continue
            op, transfer, number, peer, tries, reason, _ = struct.unpack("<IIIIBBH", answer[16:36])
            assert len(answer) == 40 and (number, peer, tries) == (0, PEER_INCARNATION, 1)
            if kind == NACK:
                assert (op, transfer, reason) == (0xBAD, 100 + pair[0].transfer, NACK_VIOLATION)
                refused += 1
            else:
                assert kind == ACK and op >> 16 == transfer and op in sent, answer.hex()
                # A packet is acknowledged when it is in memory.
                segment = segments[transfer]
                at = (op & 0xFFFF) * PACKET
                part = segment.data[at : at + PACKET]
                assert bytes(bench.memory.read(segment.base + at, len(part))) == part
                answered.add(op)
        for segment in pair:
            expected[segment.base : segment.base + len(segment.data)] = segment.data
    await bench.quiet()
    assert bytes(bench.memory.read(0, RING)) == bytes(expected[:RING]), "bytes beside the segments have changed"
    events = bench.events()
    assert len(events) == await bench.read(0x2090) == await bench.read(0x209C)
    by_kind = {kind: [event for event in events if event[0] == kind] for kind in range(16)}
    assert len(by_kind[EVENT_REGISTERED]) == len(by_kind[EVENT_COMPLETED]) == len(segments)
    notices = [struct.unpack("<QQ", event[32:48]) for event in by_kind[EVENT_NOTICE]]
    assert sorted(notices) == sorted((segment.base, len(segment.data)) for segment in segments)
    assert len(by_kind[EVENT_FAULT]) == 1, "one fault of a reason waits for the host"
    assert (await bench.read(0x3020), await bench.read(0x3028)) == (damaged, refused)


@cocotb.test()
async def windows_are_sent_as_the_packets_of_their_segments(dut) -> None:
    bench = Bench(dut)
    await bench.start()
    choice = bench.random

    async def fill(address: int, data: bytes) -> None:
        # Bursts of any length and beats of any size.
        while data:
            part = choice.randrange(1, len(data) + 1)
            await bench.windows.write(address, data[:part], size=choice.choice([2, 3, 4, 4]), awid=choice.randrange(16))
            address, data = address + part, data[part:]

    for sequence in range(1, 7):
        window = choice.randrange(2)
        data = choice.randbytes(choice.choice([1, 64, choice.randrange(1, 12 * PACKET)]))
        segment = Segment(sequence, choice.randrange(1 << 40), data)
        ops = [choice.randrange(1 << 32) for _ in range(segment.count)]
        path = choice.randrange(256)
        address = WINDOW_BASE + window * WINDOW_STRIDE
        header = segment.window(sequence, ops, path)
        await fill(address, header)
        await fill(address + PAYLOAD_OFFSET, data)
        found = await bench.windows.read(address, len(header), arid=choice.randrange(16))
        assert found.data == header, "a window that was written reads otherwise"
        found = await bench.windows.read(address + PAYLOAD_OFFSET, len(data), size=choice.choice([2, 3, 4]))
        assert found.data == data
        await bench.windows.write(address + COMMIT_OFFSET, struct.pack("<I", sequence))
        for index in range(segment.count):
            frame = await bench.frame()
            wanted = segment.packet(index, NODE, INCARNATION, PEER, ops[index], path)
            assert frame == wanted, f"packet {index}: {frame.hex()}, expected {wanted.hex()}"
        while not await bench.read(0x204C) >> window & 1:
            pass
    await bench.quiet()
    assert bench.sink.empty()
    events = bench.events()
    assert [event[0] for event in events] == [EVENT_WINDOW_FREE] * 6
    assert [struct.unpack("<I", event[24:28])[0] for event in events] == list(range(1, 7))
