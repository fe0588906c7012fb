//! Timers with a million of them running: start and stop, in the order in which a network acknowledges and at random.
//!
//! Time goes on as it would: a packet is acknowledged long before its timer runs out, and what was stopped is found in the
//! wheel when its slot's time comes; that is part of the figure.
//!
//! At random it is memory that is measured, and what memory costs depends on the machine and on who else uses it. So the same
//! runs measure a read of as much memory, each where the last one says, in turn with the timers; the ratio is what to compare.

use std::hint::black_box;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fpga_protocol::Nanos;
use fpga_protocol::timers::Timers;

const RUNNING: u32 = 1_000_000;
/// 100 Gbit/s in packets of 512 bytes.
const PACKET_TIME: u64 = 41;
const TIMEOUT: u64 = 100_000_000;
/// Bytes of a line of the cache, in words of 32 bits.
const LINE: usize = 16;

/// The numbers below `count`, in an order that is the same every time.
fn shuffled(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut dice = 1u64;
    for at in (1..order.len()).rev() {
        dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let other = usize::try_from((dice >> 33) % (at as u64 + 1)).unwrap_or(0);
        order.swap(at, other);
    }
    order
}

/// A million timers that run, and what is done with them.
struct Sender {
    timers: Timers,
    now: u64,
    order: Vec<u32>,
    at: usize,
}

impl Sender {
    fn new(order: Vec<u32>) -> Self {
        let mut timers = Timers::new(RUNNING);
        let mut now = 0;
        for timer in 0..RUNNING {
            timers.start(timer, Nanos::new(now + TIMEOUT));
            now += PACKET_TIME;
        }
        Self { timers, now, order, at: 0 }
    }

    /// A packet is acknowledged, and the next one takes its place.
    #[inline]
    fn restart(&mut self) {
        let timer = self.order[self.at];
        self.at = if self.at + 1 == self.order.len() { 0 } else { self.at + 1 };
        self.now += PACKET_TIME;
        self.timers.stop(timer);
        self.timers.start(timer, Nanos::new(self.now + TIMEOUT));
        // As a sender does: a look at what has run out, which is nothing.
        if self.timers.next().is_some_and(|next| next.get() <= self.now) {
            while self.timers.expired(Nanos::new(self.now)).is_some() {}
        }
    }
}

/// As much memory as the timers take, read line by line at random, where each says which is next.
struct Walk {
    lines: Vec<[u32; LINE]>,
    at: u32,
}

impl Walk {
    fn new() -> Self {
        let count = RUNNING as usize * Timers::BYTES_PER_TIMER / size_of::<[u32; LINE]>();
        let order = shuffled(u32::try_from(count).unwrap_or(0));
        let mut lines = vec![[0; LINE]; count];
        for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
            lines[*from as usize][0] = *to;
        }
        Self { lines, at: 0 }
    }

    #[inline]
    fn step(&mut self) {
        self.at = self.lines[self.at as usize][0];
    }
}

fn start_and_stop(c: &mut Criterion) {
    let mut group = c.benchmark_group("timers");
    group.throughput(Throughput::Elements(1));
    for (name, order) in
        [("in acknowledgement order", (0..RUNNING).collect()), ("at random", shuffled(RUNNING))]
    {
        let mut sender = Sender::new(order);
        group.bench_function(format!("stop+start of a million, {name}"), |b| b.iter(|| sender.restart()));
    }
    group.finish();
}

/// Runs in turn, each long enough to pass the slots of several levels.
const PAIRS: usize = 21;
const ROUNDS: u32 = 500_000;

fn nanoseconds(mut operation: impl FnMut()) -> f64 {
    let began = Instant::now();
    for _ in 0..ROUNDS {
        operation();
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn against_memory(_: &mut Criterion) {
    let (mut sender, mut walk) = (Sender::new(shuffled(RUNNING)), Walk::new());
    let (mut timers, mut memory, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The first run is there to fill what can be filled.
    for pair in 0..=PAIRS {
        let timer = nanoseconds(|| sender.restart());
        let read = nanoseconds(|| walk.step());
        black_box(walk.at);
        if pair > 0 {
            timers.push(timer);
            memory.push(read);
            ratios.push(timer / read);
        }
    }
    println!(
        "timers/a million at random, in turn with memory: {:.1} ns stop+start, {:.1} ns random read of as much memory",
        median(timers),
        median(memory)
    );
    println!("timers/ratio of the two, pair by pair: {:.2}", median(ratios));
}

criterion_group!(benches, start_and_stop, against_memory);
criterion_main!(benches);
