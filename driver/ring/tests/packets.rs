//! Packets of a C2H stream ring, with a model of the engine that fills its buffers.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

use std::collections::VecDeque;

use fpga_registers::xdma::StreamWriteback;
use fpga_ring::ring::{MetadataMemory, PacketFault, PacketSpan, Packets};
use proptest::prelude::*;

/// Metadata slots, written as by the engine.
struct Memory(Vec<[u32; 2]>);

impl MetadataMemory for Memory {
    fn read(&self, index: u32) -> [u32; 2] {
        self.0[index as usize]
    }

    fn clear(&mut self, index: u32) {
        self.0[index as usize] = [0; 2];
    }
}

/// The engine: fills the posted descriptors with arriving data.
struct Engine {
    memory: Memory,
    buffer: u32,
    posted: u64,
    done: u64,
    /// Bytes of the packets not taken yet, and whether the descriptor in flight got some of them.
    arriving: VecDeque<u32>,
    open: u32,
}

impl Engine {
    fn new(entries: u32, buffer: u32) -> Self {
        Self {
            memory: Memory(vec![[0; 2]; entries as usize]),
            buffer,
            posted: 0,
            done: 0,
            arriving: VecDeque::new(),
            open: 0,
        }
    }

    fn post(&mut self, until: u64) {
        while self.posted < until {
            let slot = self.slot(self.posted);
            self.memory.clear(slot);
            self.posted += 1;
        }
    }

    fn slot(&self, count: u64) -> u32 {
        u32::try_from(count % self.memory.0.len() as u64).unwrap()
    }

    fn close(&mut self, length: u32, end: bool) {
        let slot = self.slot(self.done) as usize;
        assert_eq!(self.memory.0[slot], [0; 2], "a buffer is filled once");
        self.memory.0[slot] = StreamWriteback::new(length, end).to_words();
        self.done += 1;
        self.open = 0;
    }

    /// Fills one descriptor, if one is posted and data has arrived.
    fn fill(&mut self) -> bool {
        let Some(front) = self.arriving.front_mut() else { return false };
        if self.done == self.posted {
            return false;
        }
        let room = self.buffer - self.open;
        if *front <= room {
            let length = self.open + *front;
            self.arriving.pop_front();
            self.close(length, true);
        } else {
            *front -= room;
            self.close(self.buffer, false);
        }
        true
    }

    /// Simulates the flush timeout: a part of the packet arrives, followed by a pause.
    fn flush(&mut self, part: u32) {
        if self.done == self.posted {
            return;
        }
        if let Some(front) = self.arriving.front_mut().filter(|front| **front > part && part < self.buffer) {
            *front -= part;
            self.close(part, false);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(u32),
    Fill(u8),
    Flush(u32),
    Take,
    Post(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop_oneof![1_u32..64, 64_u32..1500, Just(256), Just(512)].prop_map(Step::Arrive),
        4 => (1_u8..6).prop_map(Step::Fill),
        1 => (1_u32..256).prop_map(Step::Flush),
        4 => Just(Step::Take),
        3 => (1_u8..8).prop_map(Step::Post),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    /// For any arriving data and any posting of buffers: every packet that fits is returned once, whole and in order. A packet that does
    /// not fit is reported once, and the next one is whole.
    #[test]
    fn stream_packets_arrive_whole_and_in_order(steps in prop::collection::vec(step(), 1..300), entries in 1_u32..4) {
        let entries = 1 << entries;
        let buffer = 256;
        let mut engine = Engine::new(entries, buffer);
        let mut packets = Packets::new(entries, buffer);
        let mut expected = VecDeque::new();
        let (mut whole, mut lost) = (0_u64, 0_u64);
        for step in steps {
            match step {
                Step::Arrive(length) => {
                    engine.arriving.push_back(length);
                    expected.push_back(u64::from(length));
                }
                Step::Fill(count) => (0..count).for_each(|_| { engine.fill(); }),
                Step::Flush(part) => engine.flush(part),
                Step::Take => loop {
                    match packets.next(engine.done, &engine.memory, true) {
                        Ok(Some(PacketSpan { first, descriptors, bytes })) => {
                            let sum: u64 = (first..first + u64::from(descriptors)).map(|n| u64::from(packets.length(n))).sum();
                            prop_assert_eq!((Some(bytes), sum), (expected.pop_front(), bytes));
                            prop_assert_eq!(first + u64::from(descriptors), packets.free());
                            whole += bytes;
                        }
                        Ok(None) => break,
                        Err(PacketFault::TooLong { bytes }) => {
                            // It filled every buffer without reaching its end.
                            let length = expected.pop_front().unwrap();
                            prop_assert!(bytes < length && packets.free() == packets.seen());
                            lost += length;
                        }
                        Err(fault) => prop_assert!(false, "{fault}"),
                    }
                },
                Step::Post(count) => {
                    let most = packets.free() + u64::from(entries);
                    let until = most.min(engine.posted + u64::from(count));
                    engine.post(until);
                }
            }
        }
        // To the end: no packet remains.
        for _ in 0..4000 {
            engine.post(packets.free() + u64::from(entries));
            engine.fill();
            match packets.next(engine.done, &engine.memory, true) {
                Ok(Some(packet)) => {
                    prop_assert_eq!(Some(packet.bytes), expected.pop_front());
                    whole += packet.bytes;
                }
                Ok(None) => {}
                Err(PacketFault::TooLong { .. }) => lost += expected.pop_front().unwrap(),
                Err(fault) => prop_assert!(false, "{fault}"),
            }
        }
        prop_assert!(expected.is_empty() && engine.arriving.is_empty());
        prop_assert_eq!(packets.discarded(), lost);
        prop_assert!(whole + lost > 0 || engine.done == 0);
    }

    /// For arbitrary words: no panic, no length beyond the buffer, and never more descriptors than posted.
    #[test]
    fn stream_arbitrary_metadata_keeps_bounds(words in prop::collection::vec(any::<[u32; 2]>(), 64), magic in any::<u64>(), flushed: bool) {
        let words = words.into_iter().enumerate().map(|(n, [status, length])| {
            if magic >> n & 1 != 0 { [0x52B4_0000 | status & 1, length % 80] } else { [status, length] }
        });
        let mut packets = Packets::new(64, 64);
        let memory = Memory(words.collect());
        for _ in 0..130 {
            if let Ok(Some(packet)) = packets.next(64, &memory, flushed) {
                prop_assert!(packet.bytes <= 64 * u64::from(packet.descriptors));
                prop_assert!((packet.first..packet.first + u64::from(packet.descriptors)).all(|n| packets.length(n) <= 64));
            }
        }
        prop_assert_eq!(packets.seen(), 64);
    }
}

#[test]
fn stream_invalid_metadata_is_reported_and_next_packet_is_whole() {
    let good = |length, end| StreamWriteback::new(length, end).to_words();
    for (bad, expected) in [
        ([0, 0], PacketFault::Missing { entry: 1 }),
        ([0, 64], PacketFault::Missing { entry: 1 }),
        ([0xAD4B_0001, 64], PacketFault::Magic { entry: 1, word: 0xAD4B_0001 }),
        ([u32::MAX; 2], PacketFault::Magic { entry: 1, word: u32::MAX }),
        (good(65, true), PacketFault::Length { entry: 1, length: 65, buffer: 64 }),
        (good(u32::MAX, false), PacketFault::Length { entry: 1, length: u32::MAX, buffer: 64 }),
        (good(0, true), PacketFault::Empty { entry: 1 }),
        (good(63, false), PacketFault::NoEnd { entry: 1, length: 63, buffer: 64 }),
    ] {
        let memory =
            Memory(vec![good(64, false), bad, good(9, false), good(64, true), good(5, true), [0; 2]]);
        let mut packets = Packets::new(8, 64);
        assert_eq!(packets.next(5, &memory, false), Err(expected));
        assert_eq!((packets.free(), packets.discarded(), packets.is_discarding()), (2, 64, true));
        let packet = packets.next(5, &memory, false).unwrap().unwrap();
        assert_eq!(packet, PacketSpan { first: 4, descriptors: 1, bytes: 5 });
        assert_eq!((packets.next(5, &memory, false), packets.discarded()), (Ok(None), 64 + 9 + 64));
    }
    // With the flush timeout on, a short descriptor inside a packet is normal.
    let memory = Memory(vec![good(63, false), good(0, false), good(1, true), [0; 2]]);
    let packet = Packets::new(4, 64).next(3, &memory, true).unwrap().unwrap();
    assert_eq!(packet, PacketSpan { first: 0, descriptors: 3, bytes: 64 });
}

#[test]
fn stream_stop_discards_rest_of_packet() {
    let good = |length, end| StreamWriteback::new(length, end).to_words();
    for begun in [false, true] {
        let memory = Memory(vec![good(64, !begun), good(7, true), good(8, true), [0; 2]]);
        let mut packets = Packets::new(4, 64);
        assert_eq!(packets.next(1, &memory, false).unwrap().is_some(), !begun);
        packets.restart(1);
        assert_eq!((packets.free(), packets.is_discarding()), (1, begun));
        let first = packets.next(3, &memory, false).unwrap().unwrap();
        assert_eq!(first.bytes, if begun { 8 } else { 7 });
    }
}
