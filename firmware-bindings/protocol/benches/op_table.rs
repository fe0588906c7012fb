//! Op table: take and acknowledge, at half occupancy.

use criterion::{Criterion, criterion_group, criterion_main};
use fpga_protocol::Nanos;
use fpga_protocol::op_table::{OpTable, OpTableConfig};
use std::hint::black_box;

fn take_and_acknowledge(c: &mut Criterion) {
    let Ok(mut table) = OpTable::new(OpTableConfig::default()) else { return };
    let mut held = std::collections::VecDeque::new();
    for n in 0..128 {
        held.extend(table.take(Nanos::ZERO, 0, n, Nanos::from_millis(1)));
    }
    let mut now = 0;
    c.bench_function("op_table/take+acknowledge", |b| {
        b.iter(|| {
            now += 100;
            let at = Nanos::new(now);
            if let Some(number) = table.take(at, 1, 2, Nanos::new(now + 1_000_000)) {
                held.push_back(number);
            }
            held.pop_front().and_then(|oldest| table.acknowledge(at, black_box(oldest)))
        });
    });
}

criterion_group!(benches, take_and_acknowledge);
criterion_main!(benches);
