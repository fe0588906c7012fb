//! Cost of finding one mapping among a million: `cargo bench -p fpga-sim --bench dma_map -- [part of a name]`.
//!
//! A million pages of one file are mapped one by one, at consecutive or scattered addresses. Then 8-byte reads access the pages in order
//! and at random. Each address depends on the result of the previous read, so reads do not overlap: the figure is the latency of one DMA
//! access. The writes do not depend on each other, like those of a card. All mappings share the same few pages of the file, so the data
//! itself stays in the cache and only the look-up is measured. The fastest and the median run are shown.
//!
//! For comparison, the same run measures one access to plain memory of the size that a million mappings need: a table that is read word by
//! word in an order that each word determines, in huge pages and in normal pages.
#![expect(clippy::expect_used, reason = "a failed preparation ends the benchmark")]
#![expect(clippy::print_stdout, reason = "prints its results")]
#![expect(clippy::cast_precision_loss, reason = "approximate figures for readers")]

use fpga_card::DmaSpace;
use fpga_pci::{DmaAccess, SharedMemory};
use fpga_registers::Iova;
use fpga_sim::{ClientMemory, DmaMap};
use memmap2::{Advice, MmapMut};
use std::time::Instant;

const PAGE: u64 = 4096;
const MAPPINGS: u64 = 1_000_000;
/// Pages of the file.
const PAGES: u64 = 8;
const RUNS: usize = 15;
const LOOKUPS: usize = 500_000;

/// Size of the memory that is read word by word, in bytes: that of the table of a million scattered pages.
const TABLE: usize = 32 << 20;

/// Marsaglia's xorshift, sufficient for this purpose.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Measures the time per `each` of `count` in nanoseconds. Prints the fastest and the median run and returns the fastest.
fn measure(name: &str, count: usize, mut run: impl FnMut()) -> f64 {
    let mut spans: Vec<f64> = (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            run();
            began.elapsed().as_secs_f64() * 1e9 / count as f64
        })
        .collect();
    spans.sort_by(f64::total_cmp);
    let [least, half] = [spans.first(), spans.get(RUNS / 2)].map(|span| span.copied().unwrap_or(0.0));
    println!("{name:<52} {half:8.1} ns, minimum {least:6.1} ns");
    least
}

/// Latency of one uncached memory access: a walk through all lines of a table in one random cycle (Sattolo's algorithm).
fn plain_access(name: &str, pages: Advice, state: &mut u64) -> f64 {
    const LINE: usize = 64;
    let lines = TABLE / LINE;
    let mut order: Vec<usize> = (0..lines).collect();
    for last in (1..lines).rev() {
        let other = usize::try_from(random(state) % last as u64).unwrap_or(0);
        order.swap(last, other);
    }
    let mut table = MmapMut::map_anon(TABLE).expect("memory");
    // Without huge pages from the system both tables are the same, which the figures show.
    let _ = table.advise(pages);
    for (line, next) in order.iter().enumerate() {
        if let Some(word) = table.get_mut(line * LINE..).and_then(|rest| rest.first_chunk_mut()) {
            *word = (next * LINE).to_ne_bytes();
        }
    }
    let mut at = 0;
    let least = measure(name, LOOKUPS, || {
        for _ in 0..LOOKUPS {
            let word = table.get(at..).and_then(|rest| rest.first_chunk());
            at = word.map_or(0, |word| usize::from_ne_bytes(*word));
        }
    });
    assert!(std::hint::black_box(at) < table.len());
    least
}

fn filled(file: &SharedMemory, addresses: &[u64]) -> DmaMap {
    let mut map = DmaMap::default();
    for (number, at) in addresses.iter().enumerate() {
        let descriptor = file.file().and_then(|file| file.try_clone_to_owned().ok()).expect("a descriptor");
        let memory = ClientMemory::File(descriptor, number as u64 % PAGES * PAGE);
        map.map_client(Iova::new(*at), PAGE, memory, DmaAccess::Both).expect("free addresses");
    }
    map
}

fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let length = usize::try_from(PAGES * PAGE).expect("some pages");
    let file = SharedMemory::memfd("a client's memory", length).expect("memory");
    let mut state = 88_172_645_463_325_252;
    let plain = [
        (
            "2 MiB",
            plain_access("one plain access in random order, pages of 2 MiB", Advice::HugePage, &mut state),
        ),
        ("4 KiB", plain_access("the same, pages of 4 KiB", Advice::NoHugePage, &mut state)),
    ];
    let dense: Vec<u64> = (0..MAPPINGS).map(|page| (1 << 32) + page * PAGE).collect();
    let mut sparse: Vec<u64> = (0..MAPPINGS).map(|_| random(&mut state) >> 28 << 12).collect();
    sparse.sort_unstable();
    sparse.dedup();
    for (name, addresses) in [("adjacent pages", dense), ("scattered pages", sparse)] {
        if !name.contains(&only) {
            continue;
        }
        let began = Instant::now();
        let mut map = filled(&file, &addresses);
        let each = began.elapsed().as_secs_f64() * 1e9 / addresses.len() as f64;
        println!("{name}: {} mappings, {each:.0} ns to create one", addresses.len());
        let count = addresses.len() as u64;
        let order: Vec<u64> = (0..LOOKUPS)
            .filter_map(|_| usize::try_from(random(&mut state) % count).ok())
            .filter_map(|index| addresses.get(index).copied())
            .collect();
        let mut reads = |name, order: &[u64]| {
            measure(name, order.len(), || {
                let mut bytes = [0; 8];
                for at in order {
                    // The file is empty; the compiler does not know this.
                    let at = at | u64::from_le_bytes(bytes) & 8;
                    map.read(Iova::new(at), &mut bytes).expect("mapped");
                }
            })
        };
        reads("  read of 8 bytes, page after page", addresses.get(..LOOKUPS).unwrap_or(&addresses));
        let read = reads("  read of 8 bytes, random order", &order);
        for (pages, access) in plain {
            println!("    {:.2} plain accesses to memory in pages of {pages}, minimum", read / access);
        }
        measure("  write of 64 bytes, random order", order.len(), || {
            for at in &order {
                map.write(Iova::new(*at), &[0; 64]).expect("mapped");
            }
        });
        let began = Instant::now();
        assert_eq!(map.unmap_range(Iova::ZERO, 1 << 48), Ok(count * PAGE));
        println!("  {:.0} ns to remove one", began.elapsed().as_secs_f64() * 1e9 / count as f64);
    }
}
