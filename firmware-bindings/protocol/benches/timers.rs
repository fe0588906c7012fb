//! Timers with a million of them running: start and stop, in the order in which a network acknowledges and at random.
//!
//! Time advances as in real traffic: a packet is acknowledged long before its timer expires, and a stopped timer is found in
//! the wheel when the time of its slot comes. The result includes that work.
//!
//! In random order the benchmark measures memory latency, which depends on the machine and its load. Therefore the same runs
//! alternate the timers with dependent random reads of as much memory; compare the ratio.

use std::hint::black_box;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fpga_protocol::Nanos;
use fpga_protocol::timers::Timers;

const RUNNING: u32 = 1_000_000;
/// 100 Gbit/s in packets of 512 bytes.
const PACKET_TIME_NS: u64 = 41;
const TIMEOUT_NS: u64 = 100_000_000;
/// Size of a cache line in 32-bit words.
const LINE: usize = 16;

/// The numbers below `count`, in an order that is the same in every run.
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

/// A million running timers.
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
            timers.start(timer, Nanos::new(now + TIMEOUT_NS));
            now += PACKET_TIME_NS;
        }
        Self { timers, now, order, at: 0 }
    }

    /// Acknowledges a packet and sends the next one in its slot.
    #[inline]
    fn restart(&mut self) {
        let timer = self.order[self.at];
        self.at = if self.at + 1 == self.order.len() { 0 } else { self.at + 1 };
        self.now += PACKET_TIME_NS;
        self.timers.stop(timer);
        self.timers.start(timer, Nanos::new(self.now + TIMEOUT_NS));
        // As a sender does: a poll for expired timers, which finds none.
        if self.timers.next().is_some_and(|next| next.get() <= self.now) {
            while self.timers.expired(Nanos::new(self.now)).is_some() {}
        }
    }
}

/// As much memory as the timers use, read line by line in random order; each line contains the number of the next.
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

/// Alternating runs, each long enough to pass the slots of several levels.
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
    // The first run warms up caches and tables.
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
