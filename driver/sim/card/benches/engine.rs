//! Cost of a descriptor in the simulated card: one channel in credit mode, flat host memory in the same process.
//!
//! `cargo bench -p fpga-card [-- FILTER]`. Columns: nanoseconds per descriptor one unit at a time and in bursts, and
//! of a plain copy of the same bytes between the same addresses without a card. The best of several rounds counts,
//! because a disturbance can only make a round longer.

use std::hint::black_box;
use std::time::Instant;

use fpga_card::{Card, CardDescription, DmaFault, DmaSpace, HostPort, Interrupt};
use fpga_protocol::time::Nanos;
use fpga_registers::Iova;

/// IOVA of host memory.
const HOST: u64 = 0x1_0000_0000;
const RING: u64 = 512;
const WRITEBACK: u64 = HOST + RING * 32;
const DATA: u64 = HOST + 0x1_0000;
/// Data size of both sides: larger than the inner caches, smaller than the last-level cache.
const SPAN: u64 = 4 << 20;
const DMA_BAR: u8 = 1;
const NOW: Nanos = Nanos::new(1);

/// Flat memory without permissions.
struct FlatMemory(Vec<u8>);

impl FlatMemory {
    fn range(at: Iova, length: usize) -> Option<core::ops::Range<usize>> {
        let start = usize::try_from(at.get().wrapping_sub(HOST)).ok()?;
        Some(start..start.checked_add(length)?)
    }
}

impl DmaSpace for FlatMemory {
    #[inline]
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        let from = Self::range(at, into.len()).and_then(|range| self.0.get(range));
        copy(from.ok_or(DmaFault { at, write: false })?, into);
        Ok(())
    }

    #[inline]
    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault> {
        let into = Self::range(at, from.len()).and_then(|range| self.0.get_mut(range));
        copy(from, into.ok_or(DmaFault { at, write: true })?);
        Ok(())
    }
}

/// Short copies without a call, because the call costs more than the copy.
#[inline]
fn copy(from: &[u8], into: &mut [u8]) {
    match (from.len(), into.len()) {
        (4, 4) => copy_all::<4>(from, into),
        (64, 64) => copy_all::<64>(from, into),
        _ => into.copy_from_slice(from),
    }
}

#[inline]
fn copy_all<const LENGTH: usize>(from: &[u8], into: &mut [u8]) {
    if let (Some(from), Some(into)) = (from.first_chunk::<LENGTH>(), into.first_chunk_mut()) {
        *into = *from;
    }
}

impl HostPort for FlatMemory {
    fn interrupt(&mut self, _interrupt: Interrupt) {}
}

#[derive(Clone, Copy)]
enum Direction {
    ToCard,
    ToHost,
}

impl Direction {
    const fn name(self) -> &'static str {
        match self {
            Self::ToCard => "h2c",
            Self::ToHost => "c2h",
        }
    }

    const fn channel(self) -> u64 {
        match self {
            Self::ToCard => 0,
            Self::ToHost => 0x1000,
        }
    }

    const fn credit_mode(self) -> u32 {
        match self {
            Self::ToCard => 1,
            Self::ToHost => 1 << 16,
        }
    }
}

/// A card whose channel waits for credits on a ring of `RING` descriptors of `length` bytes; every `flagged`-th
/// descriptor requests a write-back.
struct TestBed {
    card: Card,
    host: FlatMemory,
    direction: Direction,
}

impl TestBed {
    fn new(direction: Direction, length: u64, flagged: u64) -> Self {
        #[expect(clippy::expect_used, reason = "the benchmark needs a card")]
        let card = Card::new(CardDescription::default()).expect("the built-in card");
        let mut host = FlatMemory(vec![1; usize::try_from(DATA - HOST + SPAN).unwrap_or(0)]);
        for index in 0..RING {
            let next = (index + 1) % RING;
            let adjacent = 63 - next % 64;
            let completed = u64::from((index + 1) % flagged == 0) << 1;
            let place = index * length % SPAN;
            let (source, destination) = match direction {
                Direction::ToCard => (DATA + place, place),
                Direction::ToHost => (place, DATA + place),
            };
            let first = 0xAD4B_0000 | adjacent << 8 | completed | length << 32;
            for (word, value) in [first, source, destination, HOST + 32 * next].into_iter().enumerate() {
                let at = Iova::new(HOST + 32 * index + 8 * word as u64);
                let _ = host.write(at, &value.to_le_bytes());
            }
        }
        let mut bed = Self { card, host, direction };
        bed.card.set_command(true, true);
        let channel = direction.channel();
        bed.write(0x6020, direction.credit_mode());
        bed.write(channel + 0x4080, u32::try_from(HOST & 0xFFFF_FFFF).unwrap_or(0));
        bed.write(channel + 0x4084, u32::try_from(HOST >> 32).unwrap_or(0));
        bed.write(channel + 0x4088, 63);
        bed.write(channel + 0x88, u32::try_from(WRITEBACK & 0xFFFF_FFFF).unwrap_or(0));
        bed.write(channel + 0x8C, u32::try_from(WRITEBACK >> 32).unwrap_or(0));
        bed.write(channel + 0x04, 0x04F8_3E1F);
        bed
    }

    fn write(&mut self, at: u64, value: u32) {
        self.card.bar_write(DMA_BAR, at, &value.to_le_bytes(), &mut self.host);
    }

    /// Grants `batch` credits and lets the card work until it is idle.
    fn batch(&mut self, batch: u32, work: fn(&mut Self) -> bool) {
        self.write(self.direction.channel() + 0x408C, batch);
        while work(self) {}
    }

    fn step(&mut self) -> bool {
        self.card.step(NOW, &mut self.host)
    }

    fn work(&mut self) -> bool {
        self.card.work(NOW, &mut self.host, u32::MAX) > 0
    }
}

/// Nanoseconds per item of the best of `rounds` rounds of `items` items.
fn best(rounds: u32, items: u32, mut round: impl FnMut()) -> f64 {
    round();
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let start = Instant::now();
        round();
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(items));
    }
    best
}

fn measure(direction: Direction, length: u32, flagged: u64) {
    const BATCH: u32 = 256;
    let batches = (1 << 24) / (BATCH * (length + 512)) + 1;
    let items = batches * BATCH;
    let run = |work: fn(&mut TestBed) -> bool| {
        let mut bed = TestBed::new(direction, length.into(), flagged);
        let time = best(40, items, || (0..batches).for_each(|_| bed.batch(BATCH, work)));
        assert_eq!(bed.card.counters().descriptors, 41 * u64::from(items), "all descriptors completed");
        assert!(bed.card.faults().is_empty());
        time
    };
    let (stepped, bursts) = (run(TestBed::step), run(TestBed::work));
    let plain = {
        let bytes = usize::try_from(SPAN).unwrap_or(0);
        let (from, mut into) = (vec![1_u8; bytes], vec![2_u8; bytes]);
        let length = usize::try_from(length).unwrap_or(0);
        let mut place = 0;
        best(40, items, || {
            for _ in 0..items {
                let range = place..place + length;
                if let (Some(from), Some(into)) = (from.get(range.clone()), into.get_mut(range)) {
                    copy(black_box(from), black_box(into));
                }
                place += length;
                place = if place == bytes.min(length * 512) { 0 } else { place };
            }
        })
    };
    println!(
        "{:>4} {length:>6} B, write-back every {flagged:>3}: {stepped:>9.2} ns stepped, {bursts:>9.2} ns in bursts, {plain:>9.2} ns copy alone",
        direction.name()
    );
}

/// Cost of one step of an idle card.
fn idle() {
    let mut bed = TestBed::new(Direction::ToCard, 64, 1);
    while bed.step() {}
    const MAX_POLLS: u32 = 100_000;
    let stepped = best(40, MAX_POLLS, || (0..MAX_POLLS).for_each(|_| assert!(!black_box(&mut bed).step())));
    let bursts = best(40, MAX_POLLS, || (0..MAX_POLLS).for_each(|_| assert!(!black_box(&mut bed).work())));
    println!("idle round: {stepped:.2} ns stepped, {bursts:.2} ns in bursts");
}

/// One doorbell per descriptor: the latency that the card adds to a transfer.
fn alone() {
    const TRANSFERS: u32 = 100_000;
    let time = |work: fn(&mut TestBed) -> bool| {
        let mut bed = TestBed::new(Direction::ToCard, 64, 1);
        best(40, TRANSFERS, || (0..TRANSFERS).for_each(|_| bed.batch(1, work)))
    };
    println!(
        "one transfer of 64 B, doorbell included: {:.2} ns stepped, {:.2} ns in bursts",
        time(TestBed::step),
        time(TestBed::work)
    );
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    if "idle".contains(&filter) {
        idle();
    }
    if "alone".contains(&filter) {
        alone();
    }
    for direction in [Direction::ToCard, Direction::ToHost] {
        for length in [64, 512, 4096, 65536] {
            if format!("{} {length}", direction.name()).contains(&filter) {
                for flagged in [32, 1] {
                    measure(direction, length, flagged);
                }
            }
        }
    }
}
