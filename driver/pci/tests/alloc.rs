//! The operations of a transfer do not use the heap.

use std::sync::Arc;

use fpga_pci::testing::{CountingAllocator, StubBackend};
use fpga_pci::{Backend, DmaPool, DmaPoolOptions, HugePages, Interrupt, SharedMemory, barrier};
use fpga_registers::{BarOffset, Iova};

fn backend() -> Arc<dyn Backend> {
    Arc::new(StubBackend::new(vec![Iova::new(0)..=Iova::new(u64::MAX)]))
}

#[test]
fn counting_allocator_counts() {
    let (count, boxed) = CountingAllocator::count(|| Box::new(7));
    assert_eq!((count, *boxed), (1, 7));
    let (count, _) = CountingAllocator::count(|| 7);
    assert_eq!(count, 0);
}

#[test]
fn pool_allocate_and_free_without_heap() {
    let pool = DmaPool::new(backend(), DmaPoolOptions::default());
    pool.reserve(1 << 20).unwrap();
    let (count, ()) = CountingAllocator::count(|| {
        for round in 0_usize..10_000 {
            // Different sizes, freed in another order than allocated, so that free ranges are split and joined.
            let first = pool.allocate(64 + round * 7 % 9000).unwrap();
            let mut second = pool.allocate_aligned(100 + round * 13 % 5000, 4096).unwrap();
            let third = pool.allocate(1).unwrap();
            second.write(0, &[1]).unwrap();
            second.fill(2);
            assert_eq!(second.runs().count(), 1);
            drop(first);
            assert!(third.memory().store_u32(0, 1).is_err(), "one byte is too short for a word");
            drop(second);
            drop(third);
        }
    });
    assert_eq!(count, 0);
}

#[test]
fn registered_memory_takes_one_heap_block_and_clones_take_none() {
    let pool = DmaPool::new(backend(), DmaPoolOptions::default());
    pool.reserve(1 << 20).unwrap();
    let (count, ()) = CountingAllocator::count(|| {
        let area = pool.allocate(4096).unwrap().into_registered();
        let other = area.clone();
        drop(area);
        other.memory().store_u32(0, 1).unwrap();
    });
    assert_eq!(count, 1);
}

#[test]
fn descriptors_doorbells_interrupts_without_heap() {
    let backend = backend();
    let bar = backend.open_bar(0).unwrap();
    let ring = DmaPool::new(backend, DmaPoolOptions::default()).allocate_registered(4096, 4096).unwrap();
    let memory = SharedMemory::anonymous(8192, HugePages::No).unwrap();
    let (interrupt, trigger) = Interrupt::pair().unwrap();
    let (count, ()) = CountingAllocator::count(|| {
        for round in 0..1000 {
            ring.memory().prefetch_write(round % 128 * 32, 64);
            ring.memory().store_words(round % 128 * 32, [1; 8]).unwrap();
            ring.memory().store_descriptor(round % 128 * 32, [2; 4]).unwrap();
            barrier::descriptor_before_doorbell();
            bar.write32(BarOffset::new(0x40), 1).unwrap();
            assert!(bar.read32(BarOffset::new(0x1000)).is_err());
            trigger.signal();
            assert_eq!(interrupt.try_take(), 1);
            barrier::writeback_before_data();
            memory.copy_from(3, &memory, 4096, 2000).unwrap();
            memory.write(1, &[0; 100]).unwrap();
        }
    });
    assert_eq!(count, 0);
}
