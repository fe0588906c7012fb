//! AXI4-Stream channels at the level of registers and descriptors.

use crate::support::*;
use crate::xdma::{C2H0, DATA, DESCRIPTORS, H2C0, START_INTERRUPT, START_POLL, WRITEBACK};
use fpga_card::description::StreamLogic;
use fpga_card::{CardDescription, FaultKind, Unit};
use fpga_protocol::time::Nanos;

/// Address of the metadata of C2H descriptors.
const METADATA: u64 = WRITEBACK + 0x1000;
/// Address of the data of C2H descriptors.
const TARGET: u64 = DATA + 0x2_0000;
const C2H_DESCRIPTORS: u64 = DESCRIPTORS + 0x1000;
const EOP: u32 = 1 << 4;
/// Bit 5 enables recording of `invalid_length`.
const LENGTH_RECORDED: u32 = 1 << 5;
const BEAT: u32 = 64;

fn described(change: impl FnOnce(&mut CardDescription)) -> CardTestbed {
    let mut description = small();
    description.xdma.stream = true;
    change(&mut description);
    CardTestbed::with(description)
}

fn loopback() -> CardTestbed {
    described(|_| ())
}

/// One H2C descriptor for every length; the last one ends the packet and the run.
fn send(testbed: &mut CardTestbed, channel: u64, lengths: &[u32], last: u32) {
    let mut source = DATA;
    for (n, length) in lengths.iter().enumerate() {
        let at = DESCRIPTORS + 32 * n as u64;
        let ends = n + 1 == lengths.len();
        let control = MAGIC | if ends { STOP | COMPLETED | last } else { 0 };
        // The destination is ignored.
        testbed.host.descriptor(at, control, *length, source, u64::MAX, at + 32);
        source += u64::from(*length);
    }
    testbed.start(H2C0 + 0x100 * channel, DESCRIPTORS, 0, START_INTERRUPT | LENGTH_RECORDED);
}

/// C2H descriptors of `length` bytes each.
fn receive(testbed: &mut CardTestbed, channel: u64, lengths: &[u32], control: u32) {
    let mut target = TARGET;
    testbed.host.put(METADATA, &[0; 512]);
    for (n, length) in lengths.iter().enumerate() {
        let at = C2H_DESCRIPTORS + 32 * n as u64;
        let ends = if n + 1 == lengths.len() { STOP | COMPLETED } else { COMPLETED };
        testbed.host.descriptor(at, MAGIC | ends, *length, METADATA + 32 * n as u64, target, at + 32);
        target += u64::from(*length);
    }
    let base = C2H0 + 0x100 * channel;
    testbed.write(DMA, base + 0x88, (WRITEBACK + 4 * channel) as u32);
    testbed.start(base, C2H_DESCRIPTORS, 0, control);
}

fn metadata(testbed: &mut CardTestbed, n: u64) -> (u32, u32) {
    (testbed.host.get_word(METADATA + 32 * n), testbed.host.get_word(METADATA + 32 * n + 4))
}

const NOT_WRITTEN: (u32, u32) = (0, 0);

fn ended(length: u32) -> (u32, u32) {
    (0x52B4_0001, length)
}

fn goes_on(length: u32) -> (u32, u32) {
    (0x52B4_0000, length)
}

/// Advances time by `nanoseconds`, from one deadline of the card to the next as a network does.
fn pass(testbed: &mut CardTestbed, nanoseconds: u64) {
    let end = testbed.now + nanoseconds;
    while testbed.now < end {
        let next = testbed.card.next_deadline().map_or(end, Nanos::get);
        testbed.now = next.clamp(testbed.now + 1, end);
        testbed.card.work(Nanos::new(testbed.now), &mut testbed.host, 1000);
    }
}

#[test]
fn stream_packet_loops_back() {
    for length in [1, 63, 64, 65, 4096, 5001] {
        let mut testbed = loopback();
        let data = pattern(length as usize, length);
        testbed.host.put(DATA, &data);
        send(&mut testbed, 1, &[length], EOP);
        receive(&mut testbed, 1, &[8192], START_INTERRUPT);
        testbed.run();
        assert_eq!(metadata(&mut testbed, 0), ended(length));
        assert_eq!(testbed.host.get(TARGET, length as usize), data);
        assert_eq!((testbed.read(DMA, H2C0 + 0x140), testbed.read(DMA, C2H0 + 0x140)), (0b110, 0b110));
        let counters = testbed.card.counters();
        assert_eq!((counters.packets_taken, counters.packets_given, counters.stream_writebacks), (1, 1, 1));
        assert_eq!((counters.h2c_bytes, counters.c2h_bytes), (length.into(), length.into()));
    }
}

#[test]
fn stream_packet_spans_descriptors_and_short_one_closes() {
    let mut testbed = loopback();
    let data = pattern(1000, 1);
    testbed.host.put(DATA, &data);
    send(&mut testbed, 0, &[128, 512, 360], EOP);
    testbed.run();
    // The packet of 1000 bytes fills two descriptors and a part of the third; 10 and 256 bytes follow, the latter exactly one descriptor.
    assert_eq!(testbed.card.push_stream(0, &pattern(10, 2), true), 10);
    assert_eq!(testbed.card.push_stream(0, &pattern(256, 3), true), 256);
    receive(&mut testbed, 0, &[384, 384, 384, 384, 256], START_POLL);
    testbed.run();
    let found: Vec<_> = (0..5).map(|n| metadata(&mut testbed, n)).collect();
    assert_eq!(found, [goes_on(384), goes_on(384), ended(232), ended(10), ended(256)]);
    assert_eq!(testbed.host.get(TARGET, 1000), data);
    assert_eq!(testbed.host.get(TARGET + 3 * 384, 10), pattern(10, 2));
    assert_eq!(testbed.host.get(TARGET + 4 * 384, 256), pattern(256, 3));
    assert_eq!(testbed.host.get_word(WRITEBACK), 5, "the write-back counts descriptors");
}

#[test]
fn stream_metadata_precedes_count_and_can_be_disabled() {
    let mut testbed = loopback();
    testbed.card.push_stream(0, &[1; 100], true);
    receive(&mut testbed, 0, &[256], START_POLL);
    testbed.run();
    let order: Vec<_> = testbed.host.writes.iter().map(|(at, _)| *at).collect();
    assert_eq!(order, [TARGET, METADATA, WRITEBACK]);
    let mut testbed = loopback();
    testbed.card.push_stream(0, &[1; 100], true);
    receive(&mut testbed, 0, &[256], START_POLL | 1 << 27);
    testbed.run();
    assert_eq!(metadata(&mut testbed, 0), NOT_WRITTEN);
    assert_eq!((testbed.host.get_word(WRITEBACK), testbed.card.counters().stream_writebacks), (1, 0));
}

#[test]
fn stream_partial_beats_are_recorded_and_continue() {
    for (lengths, last, partial) in [
        (&[BEAT, BEAT + 1, 64][..], EOP, 1),
        (&[4091, 5, 3, 61][..], EOP, 3),
        (&[BEAT + 1][..], 0, 1),
        (&[BEAT, 0, BEAT + 1][..], EOP, 0),
        (&[BEAT][..], 0, 0),
    ] {
        let total: u32 = lengths.iter().sum();
        let mut testbed = loopback();
        let data = pattern(total as usize, total);
        testbed.host.put(DATA, &data);
        send(&mut testbed, 0, lengths, last);
        receive(&mut testbed, 0, &[8192], START_INTERRUPT);
        testbed.run();
        let recorded = u32::from(partial > 0) << 5;
        assert_eq!(testbed.read(DMA, 0x48), lengths.len() as u32, "{lengths:?}");
        assert_eq!(testbed.read(DMA, 0x40), 0b110 | recorded, "{lengths:?}");
        assert_eq!((testbed.card.counters().partial_beats, testbed.card.faults().len()), (partial, 0));
        assert_eq!(testbed.host.get(TARGET, data.len()), data, "packed, as behind a width converter");
        if last == EOP {
            assert_eq!(metadata(&mut testbed, 0), ended(total));
        }
    }
    // Without control bit 5, which no known driver sets, only the card's own counter shows it.
    let mut testbed = loopback();
    testbed.host.descriptor(DESCRIPTORS, MAGIC | STOP, 65, DATA, 0, 0);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    testbed.run();
    assert_eq!((testbed.read(DMA, 0x40), testbed.read(DMA, 0x48)), (0b10, 1));
    assert_eq!(testbed.card.counters().partial_beats, 1);
}

#[test]
fn stream_empty_packet_end_is_refused() {
    for (recorded, control) in [(1 << 5, LENGTH_RECORDED), (0, 0)] {
        let mut testbed = loopback();
        testbed.host.descriptor(DESCRIPTORS, MAGIC, BEAT, DATA, 0, DESCRIPTORS + 32);
        testbed.host.descriptor(DESCRIPTORS + 32, MAGIC | STOP | EOP, 0, DATA + 64, 0, 0);
        testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT | control);
        testbed.run();
        assert_eq!((testbed.read(DMA, 0x40), testbed.read(DMA, 0x48)), (recorded, 1));
        let fault = *testbed.card.faults().iter().last().unwrap();
        assert_eq!(
            (fault.kind, fault.unit, fault.address),
            (FaultKind::EmptyPacket, Unit::H2c(0), DATA + 64)
        );
    }
}

#[test]
fn stream_odd_buffers_are_filled_and_counted() {
    // Half of PG195's granularity (64 bytes) is whole beats on a narrow data path, so bit 5 does not report it.
    for (width, recorded) in [(256, 0), (512, 1 << 5)] {
        let mut testbed = described(|description| description.xdma.data_width = width);
        let data = pattern(96, 3);
        testbed.card.push_stream(0, &data, true);
        receive(&mut testbed, 0, &[64, 32], START_INTERRUPT | LENGTH_RECORDED);
        testbed.run();
        assert_eq!(testbed.read(DMA, C2H0 + 0x40), 0b110 | recorded, "{width}");
        assert_eq!((metadata(&mut testbed, 0), metadata(&mut testbed, 1)), (goes_on(64), ended(32)));
        assert_eq!(testbed.host.get(TARGET, 96), data);
        assert_eq!(testbed.card.counters().odd_stream_buffers, 1);
    }
}

#[test]
fn stream_sink_not_ready_keeps_channel_busy() {
    let mut testbed = described(|description| description.stream.logic = StreamLogic::Source);
    testbed.card.set_stream_ready(0, false);
    send(&mut testbed, 0, &[4096], EOP);
    testbed.run();
    testbed.write(DMA, 0x0C, 1);
    testbed.run();
    assert_eq!(
        (testbed.read(DMA, 0x40), testbed.card.counters().h2c_bytes),
        (1, 0),
        "clearing run does not help"
    );
    testbed.card.set_stream_ready(0, true);
    testbed.run();
    assert_eq!(testbed.read(DMA, 0x40), 0b110);
    assert_eq!((testbed.card.counters().h2c_bytes, testbed.card.counters().packets_taken), (4096, 1));
}

#[test]
fn stream_channel_without_data_stays_busy() {
    let mut testbed = described(|description| description.stream.stop_drops_empty = false);
    receive(&mut testbed, 0, &[256, 256], START_INTERRUPT);
    testbed.run();
    assert_eq!(testbed.read(DMA, C2H0 + 0x40), 1);
    testbed.write(DMA, C2H0 + 0x0C, 1);
    testbed.write(DMA, 0x3060, 4);
    testbed.run();
    testbed.now += 1_000_000_000;
    testbed.run();
    assert_eq!(testbed.read(DMA, C2H0 + 0x40), 1, "nothing was received that could be flushed");
    // Data lets it finish only the descriptor in flight.
    testbed.card.push_stream(0, &[1; 300], true);
    testbed.run();
    assert_eq!((testbed.read(DMA, C2H0 + 0x40), testbed.read(DMA, C2H0 + 0x48)), (0b100, 1));
    assert_eq!((metadata(&mut testbed, 0), metadata(&mut testbed, 1)), (goes_on(256), NOT_WRITTEN));
    // The remaining data is available to the next run.
    receive(&mut testbed, 0, &[256], START_INTERRUPT);
    testbed.run();
    assert_eq!(metadata(&mut testbed, 0), ended(44));
    // Otherwise only a reset helps.
    receive(&mut testbed, 0, &[256], START_INTERRUPT);
    testbed.run();
    testbed.card.reset();
    testbed.card.set_command(true, true);
    assert_eq!(testbed.read(DMA, C2H0 + 0x40), 0);
}

/// A run is stopped with an open descriptor without data: the descriptor is dropped, and later data belongs to the next run, whether that
/// run is started before or after the engine becomes idle.
#[test]
fn stream_clear_run_drops_empty_descriptor() {
    for at_once in [false, true] {
        let mut testbed = loopback();
        receive(&mut testbed, 0, &[256, 256, 256], START_POLL);
        testbed.card.push_stream(0, &[1; 100], true);
        testbed.run();
        assert_eq!(testbed.read(DMA, C2H0 + 0x48), 1);
        testbed.write(DMA, C2H0 + 0x08, 1 << 6);
        testbed.write(DMA, C2H0 + 0x0C, 1);
        if !at_once {
            testbed.run();
            assert_eq!(testbed.read(DMA, C2H0 + 0x40), 1 << 6, "idle, because Run was cleared");
            assert_eq!(testbed.read(DMA, C2H0 + 0x48), 1, "dropped data is not counted");
        }
        assert_eq!((metadata(&mut testbed, 0), metadata(&mut testbed, 1)), (ended(100), NOT_WRITTEN));
        receive(&mut testbed, 0, &[64, 64], START_POLL);
        testbed.run();
        testbed.card.push_stream(0, &[2; 100], true);
        testbed.run();
        assert_eq!((metadata(&mut testbed, 0), metadata(&mut testbed, 1)), (goes_on(64), ended(36)));
        assert_eq!(testbed.read(DMA, C2H0 + 0x48), 2);
    }
}

/// Received data is not dropped: the descriptor stays open for the rest.
#[test]
fn stream_clear_run_keeps_descriptor_with_data() {
    let mut testbed = loopback();
    receive(&mut testbed, 0, &[256, 256], START_POLL);
    testbed.card.push_stream(0, &[1; 100], false);
    testbed.run();
    testbed.write(DMA, C2H0 + 0x0C, 1);
    testbed.run();
    assert_eq!(testbed.read(DMA, C2H0 + 0x40) & 1, 1);
    testbed.card.push_stream(0, &[2; 28], true);
    testbed.run();
    assert_eq!((metadata(&mut testbed, 0), testbed.read(DMA, C2H0 + 0x40) & 1), (ended(128), 0));
}

#[test]
fn stream_run_without_credits_stops() {
    let mut testbed = loopback();
    testbed.write(DMA, 0x6024, 1 << 16);
    receive(&mut testbed, 0, &[256, 256], START_POLL);
    testbed.run();
    assert_eq!(testbed.read(DMA, C2H0 + 0x40), 1, "waiting is busy");
    testbed.write(DMA, C2H0 + 0x408C, 1);
    testbed.card.push_stream(0, &[9; 64], true);
    testbed.card.push_stream(0, &[9; 65], true);
    testbed.run();
    assert_eq!((metadata(&mut testbed, 0), metadata(&mut testbed, 1)), (ended(64), NOT_WRITTEN));
    testbed.write(DMA, C2H0 + 0x0C, 1);
    testbed.run();
    assert_eq!(testbed.read(DMA, C2H0 + 0x40) & 1, 0, "no descriptor is in flight");
}

#[test]
fn stream_flush_timeout_closes_descriptor_with_data() {
    const EXPONENT: u32 = 10;
    let clocks = (4 << EXPONENT) as u64;
    let mut testbed = loopback();
    testbed.write(DMA, 0x3060, EXPONENT);
    assert_eq!(testbed.read(DMA, 0x3060), EXPONENT);
    receive(&mut testbed, 0, &[256, 256], START_POLL);
    testbed.card.push_stream(0, &[1; 100], false);
    testbed.run();
    assert_eq!(metadata(&mut testbed, 0), NOT_WRITTEN);
    // The last byte came within the last 100 ns.
    pass(&mut testbed, clocks - 200);
    assert_eq!(metadata(&mut testbed, 0), NOT_WRITTEN, "not too early");
    pass(&mut testbed, 200);
    assert_eq!(metadata(&mut testbed, 0), goes_on(100));
    assert_eq!(testbed.read(DMA, C2H0 + 0x48), 1);
    // The packet continues in the next descriptor.
    testbed.card.push_stream(0, &[2; 50], true);
    testbed.run();
    assert_eq!(metadata(&mut testbed, 1), ended(50));
    // A build that also flushes empty descriptors.
    let mut testbed = described(|description| {
        description.stream.flush_empty = true;
        description.stream.stop_drops_empty = false;
    });
    testbed.write(DMA, 0x3060, EXPONENT);
    receive(&mut testbed, 0, &[256, 256], START_POLL);
    testbed.run();
    testbed.write(DMA, C2H0 + 0x0C, 1);
    pass(&mut testbed, clocks);
    assert_eq!(metadata(&mut testbed, 0), goes_on(0));
    assert_eq!(testbed.read(DMA, C2H0 + 0x40) & 1, 0);
}

#[test]
fn stream_source_keeps_rate() {
    let mut testbed = described(|description| {
        description.stream.logic = StreamLogic::Source;
        let source = &mut description.stream.source;
        (source.shortest, source.longest, source.bytes_per_us) = (1000, 1000, 100);
    });
    receive(&mut testbed, 0, &[1024; 16], START_POLL);
    while testbed.read(DMA, C2H0 + 0x48) < 16 {
        testbed.run();
        testbed.now = testbed.now.max(testbed.card.next_deadline().map_or(0, Nanos::get));
    }
    // The first of 16 packets comes at once, each of the others 10 us after its predecessor.
    assert!((150_000..151_000).contains(&testbed.now), "{}", testbed.now);
}

/// Steps and bursts give the same results: random packets through random descriptors, in either mode.
#[test]
fn stream_bursts_equal_steps() {
    for burst in [1, 64] {
        let mut testbed = loopback();
        let lengths: Vec<u32> = (0..60_u32).map(|n| n.wrapping_mul(2_654_435_761) % 700 + 1).collect();
        for length in &lengths {
            testbed.card.push_stream(3, &pattern(*length as usize, *length), true);
        }
        receive(&mut testbed, 3, &[704; 16], START_POLL);
        while testbed.card.work(Nanos::new(testbed.now), &mut testbed.host, burst) > 0 {}
        for (n, length) in (0..16).zip(&lengths) {
            assert_eq!(metadata(&mut testbed, n), ended(*length));
            assert_eq!(
                testbed.host.get(TARGET + 704 * n, *length as usize),
                pattern(*length as usize, *length)
            );
        }
    }
}
