//! Descriptor ring of the copy engine: submit, publish, post and complete, 255 copies per batch.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fpga_registers::CardAddr;
use fpga_ring::cdma_ring::{CopyEntry, DescriptorImage, Ring, RingConfig};
use std::hint::black_box;

struct Image(Vec<[u32; 16]>);

impl DescriptorImage for Image {
    #[inline]
    fn write(&mut self, index: u32, words: [u32; 16]) {
        if let Some(place) = self.0.get_mut(index as usize) {
            *place = words;
        }
    }
}

fn batches(c: &mut Criterion) {
    let Ok(mut ring) = Ring::<u64>::new(RingConfig::new(CardAddr::new(0x10_0000), 256)) else { return };
    let mut image = Image(vec![[0; 16]; 256]);
    let mut group = c.benchmark_group("cdma_ring");
    group.throughput(Throughput::Elements(255));
    group.bench_function("submit+publish+complete x255", |b| {
        b.iter(|| {
            for n in 0..255u64 {
                let copy = CopyEntry::new(CardAddr::new(n << 12), CardAddr::new((n + 256) << 12), 4096);
                let _ = black_box(ring.submit(&[copy], n));
            }
            let _ = black_box(ring.publish(&mut image));
            let _ = black_box(ring.post());
            if let Some(probe) = ring.probe() {
                let _ = black_box(ring.complete_status(probe, 1 << 31));
            }
            let mut sum = 0;
            while let Some(completion) = ring.poll_completion() {
                sum += completion.payload;
            }
            sum
        });
    });
    group.finish();
}

criterion_group!(benches, batches);
criterion_main!(benches);
