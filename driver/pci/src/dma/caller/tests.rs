use super::super::DmaPoolStats;
use super::*;
use crate::testing::StubBackend;
use crate::{Backend, DmaPoolOptions, HugePages, IovaError, MemoryError};
use proptest::prelude::*;

const SIZE: usize = 16 << 10;

fn pool_with(options: DmaPoolOptions) -> (Arc<StubBackend>, DmaPool) {
    let function = Arc::new(StubBackend::new(vec![Iova::new(0)..=Iova::new(u64::MAX)]));
    let backend: Arc<dyn Backend> = Arc::<StubBackend>::clone(&function);
    (function, DmaPool::new(backend, options))
}

fn pool() -> (Arc<StubBackend>, DmaPool) {
    pool_with(DmaPoolOptions { region_size: 64 << 10, limit: 64 << 10, ..DmaPoolOptions::default() })
}

fn memory(length: usize) -> SharedMemory {
    SharedMemory::anonymous(length, HugePages::No).unwrap()
}

fn refused(result: Result<RegisteredMemory, MapRefused>) -> MapRefused {
    result.expect_err("refused")
}

#[test]
fn caller_memory_device_accesses_same_bytes() {
    let (function, pool) = pool();
    let mine = memory(SIZE);
    mine.write(100, b"abc").unwrap();
    let area = pool.map(mine.clone(), DmaAccess::Both).unwrap();
    assert_eq!((area.len(), area.memory().len()), (SIZE, SIZE));
    let at = |offset: u64| Iova::new(area.iova().get() + offset);
    let mut seen = [0; 3];
    function.dma_read(at(100), &mut seen).unwrap();
    assert_eq!(&seen, b"abc");
    function.dma_write(at(SIZE as u64 - 2), &[7, 8]).unwrap();
    assert_eq!(mine.load_u32(SIZE - 4), Ok(0x0807_0000));
    assert_eq!(area.memory().load_u32(SIZE - 4), Ok(0x0807_0000));
    assert!(function.dma_write(at(SIZE as u64 - 1), &[0; 2]).is_err());
    assert!(area.run(SIZE - 4, 4).is_ok() && area.run(SIZE - 4, 5).is_err());
}

#[test]
fn caller_memory_access_rights_are_enforced() {
    let (function, pool) = pool();
    for (access, reads, writes) in [
        (DmaAccess::ReadByDevice, true, false),
        (DmaAccess::WriteByDevice, false, true),
        (DmaAccess::Both, true, true),
    ] {
        let area = pool.map(memory(SIZE), access).unwrap();
        assert_eq!(function.dma_read(area.iova(), &mut [0; 8]).is_ok(), reads, "{access:?}");
        assert_eq!(function.dma_write(area.iova(), &[0; 8]).is_ok(), writes, "{access:?}");
    }
}

#[test]
fn caller_memory_drop_unmaps_and_frees_addresses() {
    // Address space for exactly one such memory: page 0 is excluded.
    let (function, pool) = pool_with(DmaPoolOptions { address_bits: 15, ..DmaPoolOptions::default() });
    let mine = memory(28 << 10);
    for _ in 0..3 {
        let area = pool.map(mine.clone(), DmaAccess::Both).unwrap();
        assert_eq!(function.mapped(), [(Iova::new(4096), 28 << 10)]);
        let full = refused(pool.map(memory(4096), DmaAccess::Both));
        assert!(matches!(full.error, DmaAllocError::Iova(IovaError::Exhausted { .. })));
        drop(area);
        assert_eq!(function.mapped(), []);
        assert_eq!(pool.stats(), DmaPoolStats::default());
    }
    mine.store_u32(0, 1).unwrap();
}

/// Foreign memory: pages of a vector that the owner holds.
fn foreign(owner: Arc<Vec<u64>>) -> SharedMemory {
    let address = owner.as_ptr().addr().next_multiple_of(4096);
    let pointer = owner.as_ptr().cast_mut().cast::<u8>().with_addr(address);
    // SAFETY: the vector has 4096 bytes more than this, it is not resized, and nothing but the returned memory accesses it.
    unsafe { SharedMemory::from_foreign(pointer, 8192, Box::new(owner)) }.unwrap()
}

#[test]
fn foreign_memory_owner_is_dropped_with_last_clone() {
    let (function, pool) = pool();
    let owner = Arc::new(vec![0_u64; (8192 + 4096) / 8]);
    let area = pool.map(foreign(Arc::clone(&owner)), DmaAccess::Both).unwrap();
    function.dma_write(area.iova(), &[1, 2, 3, 4]).unwrap();
    assert_eq!(area.memory().load_u32(0), Ok(0x0403_0201));
    let other = area.clone();
    drop(area);
    assert_eq!(Arc::strong_count(&owner), 2);
    drop(other);
    assert_eq!((Arc::strong_count(&owner), function.mapped().len()), (1, 0));
}

#[test]
fn foreign_memory_in_quarantine_keeps_owner() {
    let (function, pool) = pool();
    let owner = Arc::new(vec![0_u64; (8192 + 4096) / 8]);
    let area = pool.map(foreign(Arc::clone(&owner)), DmaAccess::Both).unwrap();
    area.quarantine(QuarantineReason::IdleNotConfirmed);
    drop(pool);
    assert_eq!((Arc::strong_count(&owner), function.mapped().len()), (2, 1));
}

#[test]
fn foreign_memory_impossible_range_is_refused() {
    for (pointer, length) in [
        (core::ptr::null_mut(), 4096),
        (core::ptr::dangling_mut(), 0),
        (core::ptr::dangling_mut(), usize::MAX),
    ] {
        // SAFETY: the ranges are refused, and never accessed.
        let refused = unsafe { SharedMemory::from_foreign(pointer, length, Box::new(())) };
        assert_eq!(refused.err(), Some(MemoryError::BadLength { length }));
    }
}

#[test]
fn caller_memory_partial_page_is_refused() {
    let (function, pool) = pool();
    let mapping = memmap2::MmapMut::map_anon(4097).unwrap();
    let odd = SharedMemory::from_mapping(mapping).unwrap();
    odd.store_u32(4, 77).unwrap();
    let MapRefused { error, memory } = refused(pool.map(odd, DmaAccess::Both));
    assert_eq!(error, DmaAllocError::NotWholePages { length: 4097, page: 4096 });
    assert_eq!(memory.load_u32(4), Ok(77), "it comes back as it was");
    assert_eq!((function.mapped(), pool.stats()), (vec![], DmaPoolStats::default()));
}

#[test]
fn caller_memory_unaligned_start_is_refused() {
    let (_, pool) = pool();
    let file = tempfile::tempfile().unwrap();
    file.set_len(3 * 4096).unwrap();
    // A mapping from the middle of a page on: whole pages long, but not made of whole pages.
    // SAFETY: no other process has this file, so its content and its size stay unchanged.
    let mapping = unsafe { memmap2::MmapOptions::new().offset(512).len(4096).map_mut(&file) }.unwrap();
    let odd = SharedMemory::from_mapping(mapping).unwrap();
    let error = refused(pool.map(odd, DmaAccess::Both)).error;
    assert_eq!(error, DmaAllocError::NotWholePages { length: 4096, page: 4096 });
}

#[test]
fn caller_memory_mapped_twice_is_refused() {
    let (function, pool) = pool();
    let mine = memory(SIZE);
    let area = pool.map(mine.clone(), DmaAccess::Both).unwrap();
    let MapRefused { error, memory: back } = refused(pool.map(mine.clone(), DmaAccess::Both));
    assert_eq!(error, DmaAllocError::AlreadyMapped { iova: area.iova(), length: SIZE });
    assert!(back.is_same(&mine));
    assert_eq!(function.mapped().len(), 1);
    // Another pool stands for another device.
    let (_, other) = self::pool();
    let elsewhere = other.map(back, DmaAccess::Both).unwrap();
    assert!(area.is_from(&pool) && !area.is_from(&other) && elsewhere.is_from(&other));
    drop(area);
    assert!(pool.map(mine, DmaAccess::Both).is_ok(), "and again when it is free");
}

#[test]
fn caller_memory_is_counted_separately_and_unlimited() {
    let (function, pool) = pool();
    let whole = pool.allocate(64 << 10).unwrap();
    let area = pool.map(memory(256 << 10), DmaAccess::Both).unwrap();
    let stats = pool.stats();
    assert_eq!(
        (stats.regions, stats.mapped_bytes, stats.in_use, stats.in_use_bytes),
        (1, 64 << 10, 1, 64 << 10)
    );
    assert_eq!((stats.caller_areas, stats.caller_bytes), (1, 256 << 10));
    // The caller's memory is not used for other allocations.
    assert!(matches!(pool.allocate(64), Err(DmaAllocError::Exhausted { .. })));
    drop(whole);
    assert!(pool.allocate(64).is_ok());
    drop(area);
    assert_eq!((pool.stats().caller_areas, pool.stats().caller_bytes, function.mapped().len()), (0, 0, 1));
}

#[test]
fn caller_memory_refused_mapping_returns_memory() {
    let (function, pool) = pool_with(DmaPoolOptions { address_bits: 15, ..DmaPoolOptions::default() });
    function.refuse_map(true);
    let mut mine = memory(28 << 10);
    for _ in 0..3 {
        let refusal = refused(pool.map(mine, DmaAccess::Both));
        assert!(matches!(refusal.error, DmaAllocError::Map(DmaMapError::LimitReached { .. })));
        assert!(refusal.error.help().is_some() && refusal.to_string().contains("0x7000"));
        mine = refusal.memory;
    }
    assert_eq!(pool.stats(), DmaPoolStats::default());
    function.refuse_map(false);
    assert!(pool.map(mine, DmaAccess::Both).is_ok(), "its addresses came back");
}

#[test]
fn caller_memory_keeps_pool_alive() {
    let (function, pool) = pool();
    let buffer = pool.allocate(64).unwrap();
    let area = pool.map(memory(SIZE), DmaAccess::Both).unwrap();
    drop(pool);
    drop(buffer);
    assert_eq!(function.mapped().len(), 2, "nothing is unmapped while an area is out");
    area.memory().store_u32(0, 1).unwrap();
    drop(area);
    assert_eq!(function.mapped(), []);

    let (function, pool) = self::pool();
    let area = pool.map(memory(SIZE), DmaAccess::Both).unwrap();
    drop(area);
    assert_eq!(function.mapped(), []);
    drop(pool);
}

#[test]
fn caller_memory_quarantined_stays_mapped() {
    let (function, pool) = pool();
    let mine = memory(SIZE);
    let area = pool.map(mine.clone(), DmaAccess::Both).unwrap();
    let iova = area.iova();
    area.quarantine(QuarantineReason::IdleNotConfirmed);
    let stats = pool.stats();
    assert_eq!((stats.caller_areas, stats.caller_bytes), (0, 0));
    assert_eq!((stats.quarantined, stats.quarantined_bytes), (1, SIZE));
    let record = pool.quarantined()[0];
    assert_eq!((record.iova, record.length, record.reason), (iova, SIZE, QuarantineReason::IdleNotConfirmed));
    let again = refused(pool.map(mine.clone(), DmaAccess::Both)).error;
    assert_eq!(again, DmaAllocError::AlreadyMapped { iova, length: SIZE });
    // The limit of the pool's own memory is not affected.
    let whole = pool.allocate(64 << 10).unwrap();
    let full = pool.allocate(64).unwrap_err();
    assert!(matches!(full, DmaAllocError::Exhausted { quarantined: 0, .. }), "{full}");
    drop(whole);
    drop(pool);
    assert_eq!(function.mapped(), [(iova, SIZE as u64)]);
    function.dma_write(iova, &[5; 4]).unwrap();
    assert_eq!(mine.load_u32(0), Ok(0x0505_0505), "the caller's clone stays valid");
    drop(mine);
    assert!(function.dma_write(iova, &[6; 4]).is_ok(), "and the memory stays without it");
}

#[test]
fn caller_memory_failed_unmap_is_leaked_and_recorded() {
    let (function, pool) = pool();
    let area = pool.map(memory(SIZE), DmaAccess::Both).unwrap();
    let iova = area.iova();
    function.refuse_unmap(true);
    drop(area);
    assert_eq!(pool.quarantined()[0].reason, QuarantineReason::UnmapRefused);
    assert_eq!((pool.stats().caller_areas, pool.stats().quarantined_bytes), (0, SIZE));
    function.refuse_unmap(false);
    let other = pool.map(memory(SIZE), DmaAccess::Both).unwrap();
    assert_ne!(other.iova(), iova, "its addresses are never used again");
    drop((other, pool));
    assert_eq!(function.mapped(), [(iova, SIZE as u64)]);
}

#[test]
fn caller_memory_avoids_addresses_of_earlier_pool() {
    let (function, first) = pool();
    let area = first.map(memory(SIZE), DmaAccess::Both).unwrap();
    let iova = area.iova();
    let backend: Arc<dyn Backend> = Arc::<StubBackend>::clone(&function);
    let second = DmaPool::new(backend, DmaPoolOptions::default());
    let mine = memory(SIZE);
    let beside = second.map(mine, DmaAccess::Both).unwrap();
    assert!(beside.iova().get().abs_diff(iova.get()) >= SIZE as u64);
    assert_eq!((function.mapped().len(), second.stats().caller_areas), (2, 1));
}

#[test]
fn caller_memory_large_gets_huge_page_alignment() {
    let (_, pool) = pool();
    let small = pool.map(memory(4096), DmaAccess::Both).unwrap();
    let large = pool.map(memory(3 << 20), DmaAccess::Both).unwrap();
    // No page is touched: it costs addresses only.
    let huge = pool.map(memory(1 << 30), DmaAccess::Both).unwrap();
    assert!(small.iova().get() < 2 << 20);
    assert!(large.iova().is_aligned_to(2 << 20) && huge.iova().is_aligned_to(1 << 30));
}

proptest! {
    /// Callers' areas and buffers of the pool are created and dropped in any order: none overlaps another, and everything is freed.
    #[test]
    fn caller_memory_and_buffers_never_overlap(steps in proptest::collection::vec((0_usize..4, 1_usize..9, any::<prop::sample::Index>()), 1..60)) {
        let (function, pool) = pool_with(DmaPoolOptions { address_bits: 18, region_size: 16 << 10, ..DmaPoolOptions::default() });
        let (mut areas, mut buffers, mut kept) = (Vec::new(), Vec::new(), 0);
        for (what, pages, index) in steps {
            match what {
                0 => areas.extend(pool.map(memory(pages * 4096), DmaAccess::Both)),
                1 => buffers.extend(pool.allocate(pages * 1000)),
                2 if !areas.is_empty() => drop(areas.swap_remove(index.index(areas.len()))),
                3 if !areas.is_empty() && pages == 1 => {
                    areas.swap_remove(index.index(areas.len())).quarantine(QuarantineReason::Dropped);
                    kept += 1;
                }
                _ if !buffers.is_empty() => drop(buffers.swap_remove(index.index(buffers.len()))),
                _ => {}
            }
            let mapped = function.mapped();
            prop_assert!(mapped.windows(2).all(|pair| pair[0].0.get() + pair[0].1 <= pair[1].0.get()));
            let stats = pool.stats();
            prop_assert_eq!(mapped.len(), stats.regions + areas.len() + kept);
            prop_assert_eq!((stats.caller_areas, stats.quarantined), (areas.len(), kept));
            prop_assert_eq!(stats.caller_bytes, areas.iter().map(RegisteredMemory::len).sum::<usize>());
            for area in &areas {
                prop_assert!(mapped.contains(&(area.iova(), area.len() as u64)));
            }
        }
        drop((areas, buffers, pool));
        prop_assert_eq!(function.mapped().len(), kept);
    }
}
