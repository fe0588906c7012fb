//! Descriptor ring: submit and complete, 256 operations per run.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fpga_registers::xdma::Direction;
use fpga_registers::{CardAddr, Iova};
use fpga_ring::ring::{DescriptorMemory, HostRange, Request, Ring, RingConfig};
use std::hint::black_box;

struct Memory(Vec<[u64; 4]>);

impl DescriptorMemory for Memory {
    #[inline]
    fn write(&mut self, index: u32, words: [u64; 4]) {
        if let Some(place) = self.0.get_mut(index as usize) {
            *place = words;
        }
    }
}

fn submit_and_complete(c: &mut Criterion) {
    let mut config = RingConfig::new(Direction::H2c, Iova::new(0x10_0000), 256);
    config.long_run_descriptors = None;
    let Ok(mut ring) = Ring::<u64>::new(config) else { return };
    let mut memory = Memory(vec![[0; 4]; 256]);
    let mut group = c.benchmark_group("ring");
    group.throughput(Throughput::Elements(256));
    group.bench_function("submit+complete x256", |b| {
        b.iter(|| {
            for n in 0..256u64 {
                let host = [HostRange::new(Iova::new(n << 16), 4096)];
                let _ = black_box(ring.submit(Request { host: &host, card: CardAddr::new(n << 12) }, n));
            }
            let posted = ring.start_run(&mut memory).map_or(0, |run| run.descriptors);
            let _ = black_box(ring.complete(posted));
            let mut sum = 0;
            while let Some(completion) = ring.poll_completion() {
                sum += completion.payload.unwrap_or(0);
            }
            sum
        });
    });
    group.finish();
}

/// Operations whose memory stays with its owner: they are only counted.
fn plain(c: &mut Criterion) {
    let mut config = RingConfig::new(Direction::H2c, Iova::new(0x10_0000), 512);
    config.operations = 256;
    let mut group = c.benchmark_group("ring");
    group.throughput(Throughput::Elements(256));
    for credits in [false, true] {
        let Ok(mut ring) = Ring::<u64>::new(config) else { return };
        let mut memory = Memory(vec![[0; 4]; 512]);
        let name = if credits { "plain, credits x256" } else { "plain, batch mode x256" };
        let mut count = 0u32;
        group.bench_function(name, |b| {
            b.iter(|| {
                for n in 0..256u64 {
                    let host = HostRange::new(Iova::new(n << 16), 64);
                    let _ = black_box(ring.submit_without_payload(host, CardAddr::new(n << 12)));
                }
                if credits {
                    count += ring.post_credits(&mut memory).map_or(0, |more| more.credits);
                    let _ = black_box(ring.complete_writeback(count & 0x00FF_FFFF));
                } else {
                    let posted = ring.start_run(&mut memory).map_or(0, |run| run.descriptors);
                    let _ = black_box(ring.complete(posted));
                }
                ring.pop_without_payload()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, submit_and_complete, plain);
criterion_main!(benches);
