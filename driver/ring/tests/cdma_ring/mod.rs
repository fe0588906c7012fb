//! The copy engine's descriptor ring, compared with a simulated engine that knows only card memory and its pointers, and with a list of the
//! requests.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

mod faults;
mod model;
mod progress;
mod requests;

use std::collections::VecDeque;

use fpga_registers::CardAddr;
use fpga_registers::cdma::{SgDescriptor, SgStatus};
use fpga_ring::cdma_ring::{
    Batch, CdmaRingConfigError, CopyEntry, DescriptorImage, ENTRY_BYTES, ProgressFault, RefusalReason, Ring,
    RingConfig,
};
use proptest::prelude::*;

const BASE: u64 = 0x1_0000;

/// Size of the data area: 8 KiB from address 0.
const DATA: u16 = 0x2000;

fn at(address: u64) -> CardAddr {
    CardAddr::new(address)
}

fn segment(source: u64, destination: u64, length: u64) -> CopyEntry {
    CopyEntry::new(at(source), at(destination), length)
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

/// Reason for the engine's stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Halt {
    /// A descriptor that was already complete.
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
    /// Number of descriptors until one fails.
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
        assert_eq!(self.word(batch.arrival.0), batch.arrival.1, "expected read-back value");
    }

    fn word(&self, address: CardAddr) -> u32 {
        let offset = usize::try_from(address.get() - BASE).unwrap();
        self.entries[offset / 64][offset % 64 / 4]
    }

    fn set_tail(&mut self, tail: CardAddr) {
        self.tail = tail.get();
        self.running = self.halt.is_none();
    }

    /// Executes one descriptor.
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

/// Requested operations in order, independent of a ring.
#[derive(Clone, Debug)]
struct RequestModel {
    payload: u32,
    segments: Vec<CopyEntry>,
    /// Number of requested descriptors up to and including this operation.
    end: u64,
}

struct CdmaTestbed {
    ring: Ring<u32>,
    image: Image,
    engine: Engine,
    flying: VecDeque<RequestModel>,
    reference: Vec<u8>,
    asked: u64,
    /// Descriptors of returned operations.
    returned: u64,
    batch: Option<Batch>,
    payloads: u32,
}

fn pieces(segment: &CopyEntry) -> u64 {
    segment.length.div_ceil(252)
}

impl CdmaTestbed {
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

    fn submit(&mut self, segments: &[CopyEntry]) -> Result<(), RefusalReason> {
        let payload = self.payloads;
        let needed: u64 = segments.iter().map(pieces).sum();
        let free = self.ring.free_entries();
        match self.ring.submit(segments, payload) {
            Ok(_) => {
                assert!(needed <= u64::from(free));
                assert_eq!(u64::from(self.ring.free_entries()), u64::from(free) - needed);
                self.asked += needed;
                self.flying.push_back(RequestModel { payload, segments: segments.to_vec(), end: self.asked });
                self.payloads += 1;
                Ok(())
            }
            Err(refusal) => {
                assert_eq!(refusal.payload, payload, "returned to the caller");
                assert_eq!(self.ring.free_entries(), free, "ring unchanged");
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

    /// Compares the ring's counts with the list.
    fn check_counts(&self) {
        let (submitted, in_flight) = (u64::from(self.payloads), self.flying.len() as u64);
        assert_eq!((self.ring.submitted(), self.ring.ended()), (submitted, submitted - in_flight));
        assert_eq!(u64::from(self.ring.operations()), in_flight);
        assert!((self.returned..=self.engine.executed).contains(&self.ring.completed()));
    }

    /// Recovers from a halt: processes the finished descriptors, drains the ring, restarts. The executed part of operations that are
    /// returned unfinished is accounted for.
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
            // The executed part must match the engine; replay it descriptor by descriptor.
            let mut left = executed.saturating_sub(self.returned);
            for segment in &asked.segments {
                let done = left.min(pieces(segment));
                copy(&mut self.reference, segment, segment.length.min(done * 252));
                left -= done;
            }
            assert!(drained.posted || left == 0 || executed >= asked.end);
            self.returned = asked.end;
        }
        // Descriptors that were not executed never will be.
        self.engine.executed = self.asked;
        self.returned = self.asked;
        assert_eq!(self.ring.operations(), 0);
        assert_eq!(self.ring.free_entries(), self.ring.config().entries - 1);
        self.restart();
    }
}

fn copy(data: &mut [u8], segment: &CopyEntry, length: u64) {
    let place = |value: u64| usize::try_from(value).unwrap();
    let from = place(segment.source.get());
    data.copy_within(from..from + place(length), place(segment.destination.get()));
}
