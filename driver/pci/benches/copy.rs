//! Copies into, out of and between shared memories, next to `copy_from_slice`, over a working set of 16 MiB per side:
//! more than second-level caches hold, as when many buffers are in flight.
//!
//! Everything here is on pages of the system's normal size but what says `huge`: there the shared memory has huge
//! pages if the kernel assembles some. The plain side comes from the heap.

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use fpga_pci::{HugePages, SharedMemory};
use std::hint::black_box;

const WORKING_SET: usize = 16 << 20;
const SIZES: [usize; 5] = [64, 512, 4 << 10, 64 << 10, 1 << 20];

/// Measures `copy`, which is given the offset of the next block.
fn measure(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, size: usize, mut copy: impl FnMut(usize)) {
    let mut offset = 0;
    group.throughput(Throughput::Bytes(size as u64));
    group.bench_function(format!("{name}/{size}"), |b| {
        b.iter(|| {
            copy(offset);
            offset = (offset + size) % WORKING_SET;
        });
    });
}

fn copies(c: &mut Criterion) {
    let anonymous = |huge| SharedMemory::anonymous(WORKING_SET, huge);
    let (Ok(memory), Ok(other), Ok(huge)) =
        (anonymous(HugePages::No), anonymous(HugePages::No), anonymous(HugePages::Transparent))
    else {
        return;
    };
    // Pages that were never written would all be one page of zeros.
    let (mut plain, source) = (vec![1_u8; WORKING_SET], vec![2_u8; WORKING_SET]);
    for memory in [&memory, &other, &huge] {
        if memory.fill(0, WORKING_SET, 3).is_err() {
            return;
        }
    }
    let mut group = c.benchmark_group("copy");
    for size in SIZES {
        measure(&mut group, "copy_from_slice", size, |at| {
            if let (Some(into), Some(from)) = (plain.get_mut(at..at + size), source.get(at..at + size)) {
                black_box(into).copy_from_slice(black_box(from));
            }
        });
        for (name, memory) in [("", &memory), ("huge_", &huge)] {
            measure(&mut group, &format!("{name}read"), size, |at| {
                let _ = plain.get_mut(at..at + size).map(|into| memory.read(at, black_box(into)));
            });
            measure(&mut group, &format!("{name}write"), size, |at| {
                let _ = source.get(at..at + size).map(|from| memory.write(at, black_box(from)));
            });
        }
        measure(&mut group, "copy_from", size, |at| {
            let _ = memory.copy_from(at, black_box(&other), at, size);
        });
        measure(&mut group, "fill", size, |at| {
            let _ = memory.fill(at, black_box(size), 7);
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = copies
}
criterion_main!(benches);
