//! Timers with a million of them running: start and stop, in the order in which a network acknowledges and at random.
//!
//! Time goes on as it would: a packet is acknowledged long before its timer runs out, and what was stopped is found in the
//! wheel when its slot's time comes; that is part of the figure.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fpga_core::Nanos;
use fpga_core::timers::Timers;

const RUNNING: u32 = 1_000_000;
/// 100 Gbit/s in packets of 512 bytes.
const STEP: u64 = 41;
const TIMEOUT: u64 = 100_000_000;

/// A million timers that run, the time that starting them took, and a permutation of them.
fn running() -> (Timers, u64, Vec<u32>) {
    let mut timers = Timers::new(RUNNING);
    let mut now = 0;
    for timer in 0..RUNNING {
        timers.start(timer, Nanos::new(now + TIMEOUT));
        now += STEP;
    }
    let mut order: Vec<u32> = (0..RUNNING).collect();
    let mut dice = 1u64;
    for at in (1..order.len()).rev() {
        dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let other = usize::try_from((dice >> 33) % (at as u64 + 1)).unwrap_or(0);
        order.swap(at, other);
    }
    (timers, now, order)
}

fn start_and_stop(c: &mut Criterion) {
    let mut group = c.benchmark_group("timers");
    group.throughput(Throughput::Elements(1));
    for (name, random) in [("in acknowledgement order", false), ("at random", true)] {
        let (mut timers, mut now, order) = running();
        let mut at = 0;
        group.bench_function(format!("stop+start of a million, {name}"), |b| {
            b.iter(|| {
                let timer =
                    if random { order[at % order.len()] } else { u32::try_from(at).unwrap_or(0) % RUNNING };
                at += 1;
                now += STEP;
                timers.stop(timer);
                timers.start(timer, Nanos::new(now + TIMEOUT));
                // As a sender does: a look at what has run out, which is nothing.
                if timers.next().is_some_and(|next| next.get() <= now) {
                    while timers.expired(Nanos::new(now)).is_some() {}
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, start_and_stop);
criterion_main!(benches);
