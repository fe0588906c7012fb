//! The copy engine's descriptor ring against a simulated engine that knows nothing but card memory and its pointers, and
//! against a list of what was asked for.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on may as well stop the test")]

use std::collections::VecDeque;

use fpga_core::cdma_ring::{
    Batch, ConfigError, DescriptorImage, ENTRY_BYTES, ProgressFault, RefusalReason, Ring, RingConfig, Segment,
};
use fpga_registers::CardAddr;
use fpga_registers::cdma::{SgDescriptor, SgStatus};
use proptest::prelude::*;

const BASE: u64 = 0x1_0000;
/// Where data lies: 8 KiB from address 0 on.
const DATA: u16 = 0x2000;

fn at(address: u64) -> CardAddr {
    CardAddr::new(address)
}

fn segment(source: u64, destination: u64, length: u64) -> Segment {
    Segment::new(at(source), at(destination), length)
}

/// Eight length bits and a data path of 4 bytes: at most 252 bytes per descriptor.
fn config(entries: u32) -> RingConfig {
    let mut config = RingConfig::new(at(BASE), entries);
    config.length_bits = 8;
    config.data_bytes = 4;
    config
}

/// The host's copy of the ring.
struct Image(Vec<[u32; 16]>);

impl DescriptorImage for Image {
    fn write(&mut self, index: u32, words: [u32; 16]) {
        self.0[index as usize] = words;
    }
}

/// How the engine stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Halt {
    /// A descriptor that was complete already.
    Stale,
    /// A copy failed.
    Copy,
}

/// PG034's engine: card memory, a current and a tail pointer.
struct Engine {
    entries: Vec<[u32; 16]>,
    data: Vec<u8>,
    current: u64,
    next: u64,
    tail: u64,
    running: bool,
    halt: Option<Halt>,
    executed: u64,
    /// The so-manieth descriptor from now on fails.
    fail_in: Option<u64>,
}

impl Engine {
    fn new(config: &RingConfig) -> Self {
        let mut data = vec![0; DATA.into()];
        for (place, value) in data.iter_mut().zip((0..=255_u8).cycle()) {
            *place = value;
        }
        Self {
            entries: vec![[0; 16]; config.entries as usize],
            data,
            current: 0,
            next: 0,
            tail: 0,
            running: false,
            halt: None,
            executed: 0,
            fail_in: None,
        }
    }

    fn start_at(&mut self, first: CardAddr) {
        (self.current, self.next) = (first.get(), first.get());
        (self.running, self.halt, self.fail_in) = (false, None, None);
    }

    fn write(&mut self, image: &Image, batch: Batch) {
        for piece in batch.pieces() {
            assert_eq!(piece.card.get(), BASE + piece.offset());
            assert_eq!(piece.bytes(), u64::from(piece.descriptors) * 64);
            for n in piece.index..piece.index + piece.descriptors {
                self.entries[n as usize] = image.0[n as usize];
            }
        }
        assert_eq!(self.word(batch.arrival.0), batch.arrival.1, "what the read-back has to show");
    }

    fn word(&self, address: CardAddr) -> u32 {
        let offset = usize::try_from(address.get() - BASE).unwrap();
        self.entries[offset / 64][offset % 64 / 4]
    }

    fn set_tail(&mut self, tail: CardAddr) {
        self.tail = tail.get();
        self.running = self.halt.is_none();
    }

    /// One descriptor.
    fn step(&mut self) {
        if !self.running {
            return;
        }
        self.current = self.next;
        let entry = usize::try_from((self.current - BASE) / ENTRY_BYTES).unwrap();
        let descriptor = SgDescriptor::from_words(self.entries[entry]);
        if descriptor.status.completed() {
            (self.halt, self.running) = (Some(Halt::Stale), false);
            return;
        }
        assert_eq!(descriptor.status, SgStatus::new());
        let fails = self.fail_in == Some(0);
        self.fail_in = self.fail_in.and_then(|left| left.checked_sub(1));
        if fails {
            self.entries[entry][7] = SgStatus::new().with_dma_slave_error(true).into_bits();
            (self.halt, self.running) = (Some(Halt::Copy), false);
            return;
        }
        let from = usize::try_from(descriptor.source.get()).unwrap();
        let to = usize::try_from(descriptor.destination.get()).unwrap();
        let length = descriptor.control.bytes() as usize;
        assert!(length > 0 && length <= 252);
        self.data.copy_within(from..from + length, to);
        self.entries[entry][7] = SgStatus::new().with_completed(true).into_bits();
        self.executed += 1;
        self.next = descriptor.next.get();
        if self.current == self.tail {
            self.running = false;
        }
    }
}

/// What was asked for, in order, with nothing of a ring.
#[derive(Clone, Debug)]
struct Asked {
    payload: u32,
    segments: Vec<Segment>,
    /// Descriptors asked for up to and including this.
    end: u64,
}

struct Bench {
    ring: Ring<u32>,
    image: Image,
    engine: Engine,
    flying: VecDeque<Asked>,
    reference: Vec<u8>,
    asked: u64,
    /// Descriptors of operations that came back.
    returned: u64,
    batch: Option<Batch>,
    payloads: u32,
}

fn pieces(segment: &Segment) -> u64 {
    segment.length.div_ceil(252)
}

impl Bench {
    fn new(entries: u32) -> Self {
        let config = config(entries);
        let mut bench = Self {
            ring: Ring::new(config).unwrap(),
            image: Image(vec![[0; 16]; entries as usize]),
            engine: Engine::new(&config),
            flying: VecDeque::new(),
            reference: Vec::new(),
            asked: 0,
            returned: 0,
            batch: None,
            payloads: 0,
        };
        bench.reference.clone_from(&bench.engine.data);
        bench.restart();
        bench
    }

    fn restart(&mut self) {
        self.ring.guard(&mut self.image);
        self.engine.entries.clone_from(&self.image.0);
        self.engine.start_at(self.ring.start_address());
        self.batch = None;
    }

    fn submit(&mut self, segments: &[Segment]) -> Result<(), RefusalReason> {
        let payload = self.payloads;
        let needed: u64 = segments.iter().map(pieces).sum();
        let free = self.ring.free_entries();
        match self.ring.submit(segments, payload) {
            Ok(_) => {
                assert!(needed <= u64::from(free));
                assert_eq!(u64::from(self.ring.free_entries()), u64::from(free) - needed);
                self.asked += needed;
                self.flying.push_back(Asked { payload, segments: segments.to_vec(), end: self.asked });
                self.payloads += 1;
                Ok(())
            }
            Err(refusal) => {
                assert_eq!(refusal.payload, payload, "handed back");
                assert_eq!(self.ring.free_entries(), free, "no trace");
                if let RefusalReason::Full { needed: said, free: left } = refusal.reason {
                    assert!(u64::from(said) == needed && left == free && needed > u64::from(free));
                }
                Err(refusal.reason)
            }
        }
    }

    fn publish(&mut self) {
        if let Some(batch) = self.ring.publish(&mut self.image) {
            assert!(self.batch.is_none(), "one batch at a time");
            self.engine.write(&self.image, batch);
            self.batch = Some(batch);
        }
    }

    fn post(&mut self) {
        if let Some(tail) = self.ring.post() {
            assert!(self.batch.take().is_some());
            self.engine.set_tail(tail);
        }
    }

    fn collect(&mut self) {
        while let Some(done) = self.ring.poll_completion() {
            let asked = self.flying.pop_front().unwrap();
            assert_eq!(done.payload, asked.payload, "in order, exactly once");
            let lengths: u64 = asked.segments.iter().map(|segment| segment.length).sum();
            assert_eq!((done.length, u64::from(done.descriptors)), (lengths, asked.end - self.returned));
            self.returned = asked.end;
            assert!(asked.end <= self.engine.executed, "reported before it was executed");
            for segment in &asked.segments {
                copy(&mut self.reference, segment, segment.length);
            }
        }
    }

    fn by_status(&mut self) -> Result<u32, ProgressFault> {
        let Some(probe) = self.ring.probe() else { return Ok(0) };
        let word = self.engine.word(probe.status);
        self.ring.complete_status(probe, word)
    }

    fn by_pointer(&mut self) -> Result<u32, ProgressFault> {
        if self.ring.outstanding() == 0 {
            return Ok(0);
        }
        let idle = !self.engine.running && self.engine.halt.is_none();
        self.ring.complete_current(at(self.engine.current), idle)
    }

    /// The engine has halted: takes up what it finished, takes everything out, starts again. What was executed of operations
    /// that come back unfinished is accounted for.
    fn recover(&mut self) {
        let executed = self.engine.executed;
        if self.engine.halt == Some(Halt::Copy) {
            self.ring.complete_current(at(self.engine.current), false).unwrap();
            assert!(u64::from(self.ring.outstanding()) >= 1);
            let pending = self.ring.pending_descriptor().unwrap();
            assert_eq!(BASE + u64::from(pending.index) * 64, self.engine.current);
            let words = SgDescriptor::from_words(self.engine.entries[pending.index as usize]);
            assert_eq!(
                (words.source, words.destination, words.control.bytes()),
                (pending.source, pending.destination, pending.length)
            );
        }
        self.collect();
        let drained: Vec<_> = self.ring.drain().collect();
        assert_eq!(drained.len(), self.flying.len());
        for drained in drained {
            let asked = self.flying.pop_front().unwrap();
            assert_eq!(drained.payload, asked.payload, "in order, exactly once");
            assert!(drained.completed_bytes <= drained.length);
            // What was executed of it must be what the engine did; replay it descriptor by descriptor.
            let mut left = executed.saturating_sub(self.returned);
            for segment in &asked.segments {
                let done = left.min(pieces(segment));
                copy(&mut self.reference, segment, segment.length.min(done * 252));
                left -= done;
            }
            assert!(drained.posted || left == 0 || executed >= asked.end);
            self.returned = asked.end;
        }
        // What was not executed never will be.
        self.engine.executed = self.asked;
        self.returned = self.asked;
        assert_eq!(self.ring.operations(), 0);
        assert_eq!(self.ring.free_entries(), self.ring.config().entries - 1);
        self.restart();
    }
}

fn copy(data: &mut [u8], segment: &Segment, length: u64) {
    let place = |value: u64| usize::try_from(value).unwrap();
    let from = place(segment.source.get());
    data.copy_within(from..from + place(length), place(segment.destination.get()));
}

#[derive(Clone, Debug)]
enum Command {
    Submit(Vec<Segment>),
    Publish,
    Post,
    Step(u8),
    Status,
    Pointer,
    Collect,
    FailIn(u8),
    GiveUp,
}

fn segments() -> impl Strategy<Value = Segment> {
    let half = u64::from(DATA) / 2;
    // Source in the lower half, destination in the upper: no overlap.
    (0..half - 900, 0..half - 900, prop_oneof![4 => 1..300_u64, 1 => 0..900_u64])
        .prop_map(move |(source, destination, length)| segment(source, half + destination, length))
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    prop::collection::vec(
        prop_oneof![
            6 => prop::collection::vec(segments(), 0..4).prop_map(Command::Submit),
            4 => Just(Command::Publish),
            4 => Just(Command::Post),
            6 => (0..5_u8).prop_map(Command::Step),
            3 => Just(Command::Status),
            3 => Just(Command::Pointer),
            3 => Just(Command::Collect),
            1 => (0..6_u8).prop_map(Command::FailIn),
            1 => Just(Command::GiveUp),
        ],
        1..200,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(0xCD3A), ..ProptestConfig::default() })]

    #[test]
    fn every_payload_comes_back_once_and_memory_is_as_asked(size in 1..5_u32, commands in commands()) {
        let mut bench = Bench::new(1 << size);
        for command in commands {
            match command {
                Command::Submit(segments) => { let _ = bench.submit(&segments); }
                Command::Publish => bench.publish(),
                Command::Post => bench.post(),
                Command::Step(count) => (0..count).for_each(|_| bench.engine.step()),
                Command::Status => {
                    let seen = bench.by_status();
                    if let Err(fault) = seen {
                        prop_assert!(matches!(fault, ProgressFault::Descriptor { .. }), "{}", fault);
                        prop_assert_eq!(bench.engine.halt, Some(Halt::Copy));
                        bench.recover();
                    }
                }
                Command::Pointer => { bench.by_pointer().unwrap(); }
                Command::Collect => bench.collect(),
                Command::FailIn(count) => bench.engine.fail_in = Some(count.into()),
                Command::GiveUp => bench.recover(),
            }
            prop_assert_ne!(bench.engine.halt, Some(Halt::Stale), "a status was not cleared");
            if bench.engine.halt.is_some() {
                bench.recover();
            }
        }
        // Everything left comes to its end.
        bench.engine.fail_in = None;
        bench.post();
        bench.publish();
        bench.post();
        while bench.ring.outstanding() != 0 {
            bench.engine.step();
            bench.by_pointer().unwrap();
        }
        bench.collect();
        prop_assert!(bench.flying.is_empty());
        prop_assert!(bench.engine.data == bench.reference);
    }
}

#[test]
fn long_copies_are_cut_at_the_length_limit_and_the_data_width() {
    for (bits, data, longest) in
        [(23, 64, (1 << 23) - 64), (26, 64, (1 << 26) - 64), (26, 128, (1 << 26) - 128), (8, 4, 252)]
    {
        let mut config = RingConfig::new(at(BASE), 16);
        (config.length_bits, config.data_bytes) = (bits, data);
        assert_eq!(config.max_descriptor_length(), longest);
        let mut ring = Ring::new(config).unwrap();
        let mut image = Image(vec![[0; 16]; 16]);
        let length = u64::from(longest) * 2 + 5;
        ring.submit(&[segment(0x1000_0001, 0x5000_0003, length), segment(0, 0x200, 9)], ()).unwrap();
        let batch = ring.publish(&mut image).unwrap();
        assert_eq!(batch.descriptors, 4);
        let made: Vec<_> = image.0[..4].iter().map(|words| SgDescriptor::from_words(*words)).collect();
        let lengths: Vec<_> = made.iter().map(|descriptor| descriptor.control.bytes()).collect();
        assert_eq!(lengths, [longest, longest, 5, 9]);
        assert_eq!(made[1].source.get(), 0x1000_0001 + u64::from(longest));
        assert_eq!(made[2].destination.get(), 0x5000_0003 + 2 * u64::from(longest));
        for (n, descriptor) in made.iter().enumerate() {
            assert_eq!(descriptor.next.get(), BASE + (n as u64 + 1) * 64);
            assert_eq!(descriptor.status, SgStatus::new());
        }
    }
}

#[test]
fn the_circle_closes_and_a_wrapping_batch_has_two_pieces() {
    let mut bench = Bench::new(8);
    for _ in 0..50 {
        for n in 0..5 {
            bench.submit(&[segment(n * 10, 0x1000 + n * 10, 10)]).unwrap();
        }
        bench.publish();
        let batch = bench.batch.unwrap();
        let first = batch.pieces().next().unwrap();
        let wraps = first.index + 5 > 8;
        assert_eq!(batch.pieces().count(), if wraps { 2 } else { 1 });
        assert_eq!(batch.pieces().map(|piece| piece.descriptors).sum::<u32>(), 5);
        bench.post();
        (0..5).for_each(|_| bench.engine.step());
        assert_eq!(bench.by_status(), Ok(5));
        bench.collect();
    }
    assert_eq!(SgDescriptor::from_words(bench.image.0[7]).next, at(BASE));
}

#[test]
fn an_append_moves_the_tail_while_the_engine_runs() {
    let mut bench = Bench::new(8);
    bench.submit(&[segment(0, 0x1000, 600)]).unwrap();
    bench.publish();
    bench.post();
    bench.engine.step();
    bench.submit(&[segment(0, 0x1800, 10)]).unwrap();
    assert!(bench.ring.has_queued() && !bench.ring.has_published());
    bench.publish();
    assert!(!bench.ring.has_queued() && bench.ring.has_published());
    assert!(bench.ring.publish(&mut bench.image).is_none(), "one batch at a time");
    assert!(bench.engine.running);
    bench.post();
    (0..10).for_each(|_| bench.engine.step());
    assert_eq!((bench.engine.executed, bench.engine.running, bench.engine.halt), (4, false, None));
    assert_eq!(bench.by_pointer(), Ok(4));
    bench.collect();
    assert_eq!(bench.ring.operations(), 0);
}

#[test]
fn the_pointer_is_believed_only_where_it_can_be() {
    // A full ring: every entry but one is posted.
    let mut bench = Bench::new(8);
    let full = |bench: &mut Bench| {
        (0..7).for_each(|n| bench.submit(&[segment(n * 10, 0x1000 + n * 10, 10)]).unwrap());
        bench.publish();
        bench.post();
    };
    full(&mut bench);
    (0..7).for_each(|_| bench.engine.step());
    assert_eq!(bench.by_pointer(), Ok(7));
    bench.collect();
    full(&mut bench);
    // The engine has not moved: its pointer is where it stopped, at the entry before.
    assert_eq!(bench.by_pointer(), Ok(0));
    bench.engine.step();
    assert_eq!(bench.by_pointer(), Ok(0), "under way, not complete");
    bench.engine.step();
    assert_eq!(bench.by_pointer(), Ok(1));
    // At the tail but busy: the tail's own descriptor is not complete.
    let tail = at(BASE + 5 * 64);
    assert!(bench.ring.is_tail(tail));
    assert_eq!(bench.ring.complete_current(tail, false), Ok(5));
    assert_eq!(bench.ring.complete_current(tail, false), Ok(0));
    assert_eq!(bench.ring.outstanding(), 1);
    assert_eq!(bench.ring.complete_current(tail, true), Ok(1));
    assert_eq!(bench.ring.outstanding(), 0);

    for wrong in [0, BASE - 64, BASE + 8 * 64, BASE + 32, BASE + 3 * 64, u64::MAX, BASE + (1 << 40)] {
        let mut bench = Bench::new(8);
        bench.submit(&[segment(0, 0x1000, 252 * 3)]).unwrap();
        bench.publish();
        bench.post();
        let fault = ProgressFault::NotPosted { address: at(wrong) };
        assert_eq!(bench.ring.complete_current(at(wrong), true), Err(fault), "{wrong:#x}");
        assert!(bench.ring.is_faulted());
        assert_eq!(bench.submit(&[segment(0, 0x1000, 1)]), Err(RefusalReason::Faulted));
        assert_eq!(bench.ring.poll_completion(), None, "nothing is believed");
        bench.recover();
        assert!(!bench.ring.is_faulted());
    }
}

#[test]
fn status_words_that_cannot_be_are_faults() {
    for word in [u32::MAX, 1, 0x0800_0000, 0x8000_0001, 0xDEAD_BEEF] {
        let mut bench = Bench::new(4);
        bench.submit(&[segment(0, 0x1000, 1)]).unwrap();
        bench.publish();
        assert_eq!(bench.ring.probe(), None, "nothing is posted");
        bench.post();
        let probe = bench.ring.probe().unwrap();
        assert_eq!(probe.status, at(BASE + 0x1C));
        assert_eq!(bench.ring.complete_status(probe, 0), Ok(0));
        assert_eq!(bench.ring.complete_status(probe, word), Err(ProgressFault::NotAStatus { word }));
        assert!(bench.ring.is_faulted());
        assert_eq!(bench.ring.poll_completion(), None);
        bench.recover();
        // The old probe proves nothing after the ring was emptied.
        bench.submit(&[segment(0, 0x1000, 1)]).unwrap();
        bench.publish();
        bench.post();
        assert_eq!(bench.ring.complete_status(probe, 1 << 31), Ok(0));
    }
    for errors in [1 << 30, 1 << 29, 1 << 28, 1 << 31 | 1 << 29] {
        let mut bench = Bench::new(4);
        bench.submit(&[segment(0, 0x1000, 1)]).unwrap();
        bench.publish();
        bench.post();
        let probe = bench.ring.probe().unwrap();
        let fault = bench.ring.complete_status(probe, errors).unwrap_err();
        assert!(
            matches!(fault, ProgressFault::Descriptor { index: 0, status } if status.into_bits() == errors)
        );
    }
}

#[test]
fn an_error_in_every_position_names_the_descriptor() {
    for start in 0..8 {
        for failing in 0..7 {
            let mut bench = Bench::new(8);
            for _ in 0..start {
                bench.submit(&[segment(0, 0x1000, 10)]).unwrap();
                bench.publish();
                bench.post();
                bench.engine.step();
                bench.by_status().unwrap();
                bench.collect();
            }
            // Three operations: of 2, 3 and 2 descriptors.
            for (source, length) in [(0, 300), (500, 600), (1200, 400)] {
                bench.submit(&[segment(source, 0x1000 + source, length)]).unwrap();
            }
            bench.publish();
            bench.post();
            bench.engine.fail_in = Some(failing);
            (0..8).for_each(|_| bench.engine.step());
            assert_eq!(bench.engine.halt, Some(Halt::Copy));
            assert_eq!(bench.by_pointer(), Ok(u32::try_from(failing).unwrap()));
            let pending = bench.ring.pending_descriptor().unwrap();
            assert_eq!(u64::from(pending.index), (start + failing) % 8);
            let (source, offset) = match failing {
                0 | 1 => (0, failing * 252),
                2..=4 => (500, (failing - 2) * 252),
                _ => (1200, (failing - 5) * 252),
            };
            assert_eq!((pending.source, pending.offset), (at(source + offset), offset));
            bench.recover();
            // And it works again.
            bench.submit(&[segment(0, 0x1700, 100)]).unwrap();
            bench.publish();
            bench.post();
            bench.engine.step();
            assert_eq!(bench.by_status(), Ok(1));
            bench.collect();
            assert_eq!(bench.engine.data, bench.reference);
        }
    }
}

#[test]
fn draining_in_every_state_says_what_the_engine_saw() {
    let mut bench = Bench::new(16);
    for payload in 0..4 {
        bench.submit(&[segment(payload * 300, 0x1000, 300)]).unwrap();
        if payload < 2 {
            bench.publish();
            bench.post();
        }
        if payload == 2 {
            bench.publish();
        }
    }
    (0..3).for_each(|_| bench.engine.step());
    bench.ring.complete_current(at(bench.engine.current), false).unwrap();
    bench.engine.step();
    bench.ring.complete_current(at(bench.engine.current), false).unwrap();
    // The first is complete and was not taken; the second is half way; the third is in card memory; the fourth is queued.
    let mut drain = bench.ring.drain();
    let first = drain.next().unwrap();
    assert_eq!((first.payload, first.posted, first.completed_bytes, first.length), (0, true, 300, 300));
    let _ = drain;
    assert!(bench.ring.is_faulted(), "half drained");
    let rest: Vec<_> = bench.ring.drain().map(|d| (d.payload, d.posted, d.completed_bytes)).collect();
    assert_eq!(rest, [(1, true, 252), (2, false, 0), (3, false, 0)]);
    assert!(!bench.ring.is_faulted() && !bench.ring.has_queued() && !bench.ring.has_published());
    assert_eq!((bench.ring.free_entries(), bench.ring.outstanding()), (15, 0));
    assert_eq!(bench.ring.start_address(), at(BASE + 8 * 64), "it goes on where it was");
}

#[test]
fn an_engine_that_runs_past_its_tail_halts_at_a_guard() {
    let mut bench = Bench::new(8);
    for start in 0..20 {
        bench.submit(&[segment(0, 0x1000, 300)]).unwrap();
        bench.publish();
        bench.post();
        (0..2).for_each(|_| bench.engine.step());
        // It starts although it has reached its tail: entries behind it are guards at first, used descriptors later.
        bench.engine.running = true;
        bench.engine.step();
        assert_eq!(bench.engine.halt, Some(Halt::Stale), "round {start}");
        assert!(bench.ring.is_past_tail(at(bench.engine.current)));
        assert_eq!(bench.ring.complete_all(), 2);
        bench.collect();
        bench.restart();
    }
    // After a failure nothing old is left that it could copy.
    bench.submit(&[segment(0, 0x1000, 252 * 5)]).unwrap();
    bench.publish();
    bench.post();
    bench.recover();
    bench.engine.running = true;
    bench.engine.step();
    assert_eq!(bench.engine.halt, Some(Halt::Stale));
}

#[test]
fn requests_that_cannot_be() {
    let mut config = config(8);
    config.address_bits = 40;
    let mut ring = Ring::new(config).unwrap();
    let mut refused =
        |segments: &[Segment]| ring.submit(segments, 7).map(|_| ()).map_err(|refusal| refusal.reason);
    assert_eq!(refused(&[]), Err(RefusalReason::Empty));
    assert_eq!(refused(&[segment(1, 1, 0), segment(2, 9, 0)]), Err(RefusalReason::Empty));
    let last = (1 << 40) - 1;
    for (source, destination, length, start) in [
        (u64::MAX, 0x2000, 2, u64::MAX),
        (last, 0, 2, last),
        (0, last, 2, last),
        (0, 1 << 40, 1, 1 << 40),
        (0, 1, u64::MAX, 1),
        (1, 0, u64::MAX, 1),
    ] {
        let reason = refused(&[segment(8, 0x2000, 1), segment(source, destination, length)]);
        let expected = RefusalReason::AddressRange { start: at(start), length, address_bits: 40 };
        assert!(
            reason == Err(expected)
                || matches!(reason, Err(RefusalReason::AddressRange { .. }) if length == u64::MAX),
            "{reason:?}"
        );
    }
    for (source, destination, length) in [(0, 0, 1), (0, 99, 100), (99, 0, 100), (50, 50, 9)] {
        let segment = segment(source, destination, length);
        assert_eq!(refused(&[segment]), Err(RefusalReason::Overlap { segment }));
    }
    for (destination, length) in [(BASE, 1), (BASE + 511, 1), (BASE - 1, 2), (BASE - 100, 200), (BASE + 7, 3)]
    {
        let segment = segment(0x8_0000, destination, length);
        assert_eq!(refused(&[segment]), Err(RefusalReason::DescriptorMemory { segment }));
    }
    assert_eq!(
        refused(&[segment(0, 0x2000, 252 * 7 + 1)]),
        Err(RefusalReason::TooManyDescriptors { needed: 8, usable: 7 })
    );
    assert_eq!(
        refused(&[segment(0, 1 << 39, 1 << 38)]),
        Err(RefusalReason::TooManyDescriptors { needed: (1_u64 << 38).div_ceil(252), usable: 7 })
    );
    // Side by side, to the last byte, around the descriptors: all of it is fine.
    assert_eq!(
        refused(&[
            segment(0, 100, 100),
            segment(last, BASE - 1, 1),
            segment(0, last, 1),
            segment(BASE, BASE + 512, 100)
        ]),
        Ok(())
    );
    assert_eq!(refused(&[segment(0, 0x2000, 252 * 3 + 1)]), Err(RefusalReason::Full { needed: 4, free: 3 }));
    assert_eq!(refused(&[segment(0, 0x2000, 252 * 3)]), Ok(()));
    assert_eq!(ring.free_entries(), 0);

    let mut whole = RingConfig::new(at(BASE), 4);
    whole.realignment = false;
    let mut ring = Ring::new(whole).unwrap();
    for (source, destination, wrong) in [(1, 0x2000, 1), (64, 0x2020, 0x2020), (u64::MAX, 0, u64::MAX)] {
        let refusal = ring.submit(&[segment(source, destination, 1)], ()).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::Misaligned { address: at(wrong), alignment: 64 });
    }
    ring.submit(&[segment(u64::MAX - 63, 0x2000, 64)], ()).unwrap();
    ring.submit(&[segment(0, 0x2000, 63)], ()).unwrap();

    let mut few = RingConfig::new(at(BASE), 8);
    few.operations = 2;
    let mut ring = Ring::new(few).unwrap();
    ring.submit(&[segment(0, 0x2000, 1)], ()).unwrap();
    ring.submit(&[segment(0, 0x2000, 1)], ()).unwrap();
    let refusal = ring.submit(&[segment(0, 0x2000, 1)], ()).unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::Full { needed: 1, free: 0 }, "of operation slots");
}

#[test]
fn one_look_per_batch_and_one_for_an_operation() {
    let mut bench = Bench::new(16);
    let mut token = None;
    for n in 0..3 {
        bench.submit(&[segment(n, 0x1000 + n, 1)]).unwrap();
        if n == 1 {
            token = Some(bench.ring.submit(&[segment(0, 0x1100, 300)], 99).unwrap());
        }
    }
    let token = token.unwrap();
    assert_eq!(bench.ring.probe_for(token), None, "not posted");
    bench.publish();
    bench.post();
    assert_eq!(bench.ring.probe().unwrap().index, 4);
    assert_eq!(bench.ring.probe_for(token).unwrap().index, 3);
    bench.ring.submit(&[segment(0, 0x1200, 1)], 100).unwrap();
    bench.publish();
    bench.post();
    assert_eq!(bench.ring.probe().unwrap().index, 4, "the look stays where it is");
    (0..4).for_each(|_| bench.engine.step());
    let probe = bench.ring.probe_for(token).unwrap();
    assert_eq!(bench.ring.complete_status(probe, bench.engine.word(probe.status)), Ok(4));
    assert_eq!(bench.ring.probe_for(token), None, "complete");
    (0..4).for_each(|_| bench.engine.step());
    assert_eq!(bench.by_status(), Ok(1));
    assert_eq!(bench.ring.probe().unwrap().index, 5, "then it goes to the newest");
    assert_eq!(bench.by_status(), Ok(1));
    let payloads: Vec<_> =
        std::iter::from_fn(|| bench.ring.poll_completion()).map(|done| done.payload).collect();
    assert_eq!(payloads, [0, 1, 99, 2, 100]);
}

#[test]
fn tokens_of_the_past_match_nothing() {
    let mut config = config(4);
    config.operations = 1;
    let mut ring = Ring::new(config).unwrap();
    let mut image = Image(vec![[0; 16]; 4]);
    let mut tokens = Vec::new();
    for n in 0..10_u32 {
        let token = ring.submit(&[segment(0, 0x1000, 1)], n).unwrap();
        assert!(!tokens.contains(&token));
        assert_eq!(token.number(), u64::from(n));
        tokens.push(token);
        let _ = ring.publish(&mut image);
        ring.post();
        assert!(tokens[..tokens.len() - 1].iter().all(|old| ring.probe_for(*old).is_none()));
        let probe = ring.probe_for(token).unwrap();
        ring.complete_status(probe, 1 << 31).unwrap();
        assert_eq!(ring.poll_completion().map(|done| (done.token, done.payload)), Some((token, n)));
    }
}

#[test]
fn configurations_are_checked() {
    let changed = |change: fn(&mut RingConfig)| {
        let mut config = RingConfig::new(at(BASE), 8);
        change(&mut config);
        Ring::<()>::new(config).map(|_| ()).unwrap_err()
    };
    assert_eq!(changed(|c| c.entries = 3), ConfigError::Entries { found: 3 });
    assert_eq!(changed(|c| c.entries = 1), ConfigError::Entries { found: 1 });
    assert_eq!(changed(|c| c.entries = 1 << 17), ConfigError::Entries { found: 1 << 17 });
    assert_eq!(changed(|c| c.operations = 0), ConfigError::Operations { found: 0 });
    assert_eq!(changed(|c| c.operations = 1 << 17), ConfigError::Operations { found: 1 << 17 });
    assert_eq!(changed(|c| c.length_bits = 7), ConfigError::LengthBits { found: 7 });
    assert_eq!(changed(|c| c.length_bits = 27), ConfigError::LengthBits { found: 27 });
    assert_eq!(changed(|c| c.data_bytes = 2), ConfigError::DataBytes { found: 2 });
    assert_eq!(changed(|c| c.data_bytes = 48), ConfigError::DataBytes { found: 48 });
    assert_eq!(changed(|c| c.data_bytes = 256), ConfigError::DataBytes { found: 256 });
    assert_eq!(changed(|c| c.address_bits = 31), ConfigError::AddressBits { found: 31 });
    assert_eq!(changed(|c| c.address_bits = 65), ConfigError::AddressBits { found: 65 });
    for base in [BASE + 32, 1, u64::MAX - 63, 0xFFFF_FFC0, 0x1_FFFF_FE40] {
        let mut config = RingConfig::new(at(base), 8);
        assert_eq!(Ring::<()>::new(config).unwrap_err(), ConfigError::Base { found: at(base), bytes: 512 });
        config.address_bits = 32;
        assert!(Ring::<()>::new(config).is_err());
    }
    let mut narrow = RingConfig::new(at(0x1_0000_0000), 8);
    Ring::<()>::new(narrow).unwrap();
    narrow.address_bits = 32;
    assert_eq!(
        Ring::<()>::new(narrow).unwrap_err(),
        ConfigError::Base { found: at(0x1_0000_0000), bytes: 512 }
    );
    Ring::<()>::new(RingConfig::new(at(0xFFFF_FE00), 8)).unwrap();
    Ring::<()>::new(RingConfig::new(at(u64::MAX - 511), 8)).unwrap();
}
