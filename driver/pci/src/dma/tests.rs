use super::*;
use crate::testing::StubBackend;
use crate::{DmaMapError, IovaError};
use proptest::prelude::*;

const REGION: usize = 64 << 10;

fn options(limit: usize) -> DmaPoolOptions {
    DmaPoolOptions { region_size: REGION, limit, ..DmaPoolOptions::default() }
}

fn function(first: u64, last: u64) -> Arc<StubBackend> {
    Arc::new(StubBackend::new(vec![Iova::new(first)..=Iova::new(last)]))
}

fn pool_on(function: &Arc<StubBackend>, options: DmaPoolOptions) -> DmaPool {
    let backend: Arc<dyn Backend> = Arc::<StubBackend>::clone(function);
    DmaPool::new(backend, options)
}

fn pool(limit: usize) -> (Arc<StubBackend>, DmaPool) {
    let function = function(0, u64::MAX);
    let pool = pool_on(&function, options(limit));
    (function, pool)
}

#[test]
fn pool_device_sees_owner_writes() {
    let (function, pool) = pool(REGION);
    let mut buffer = pool.allocate(100).unwrap();
    assert_eq!((buffer.len(), buffer.capacity()), (100, 128));
    buffer.fill(0xA5);
    buffer.write(98, &[1, 2]).unwrap();
    let mut seen = [0; 4];
    function.dma_read(Iova::new(buffer.iova().get() + 96), &mut seen).unwrap();
    assert_eq!(seen, [0xA5, 0xA5, 1, 2]);
    assert_eq!(buffer.to_vec()[96..], seen);
    assert!(buffer.write(99, &[0; 2]).is_err());
    buffer.set_len(128).unwrap();
    assert_eq!((buffer.to_vec().len(), buffer.memory().len()), (128, 128));
    assert_eq!(buffer.set_len(129), Err(MemoryError::OutOfRange { offset: 0, length: 129, size: 128 }));
}

#[test]
fn pool_memory_is_mapped_once_and_reused() {
    let (function, pool) = pool(REGION);
    let first = pool.allocate(4096).unwrap().iova();
    for _ in 0..1000 {
        let buffer = pool.allocate(4096).unwrap();
        assert_eq!(buffer.iova(), first, "what came back is handed out again");
    }
    assert_eq!(function.mapped().len(), 1);
    let stats = pool.stats();
    assert_eq!((stats.regions, stats.mapped_bytes, stats.in_use, stats.in_use_bytes), (1, REGION, 0, 0));
}

#[test]
fn registered_memory_returns_with_last_clone() {
    let (_function, pool) = pool(REGION);
    let first = pool.allocate_registered(4096, 64).unwrap();
    let second = first.clone();
    assert_eq!((first.iova(), first.len()), (second.iova(), second.len()));
    first.memory().store_u32(8, 7).unwrap();
    drop(first);
    assert_eq!((pool.stats().in_use, second.memory().load_u32(8)), (1, Ok(7)));
    assert_ne!(pool.allocate(4096).unwrap().iova(), second.iova());
    drop(second);
    assert_eq!(pool.stats().in_use_bytes, 0);
}

#[test]
fn registered_memory_into_host_outlives_pool() {
    let (function, pool) = pool(2 * REGION);
    let first = pool.allocate_registered(4096, 64).unwrap();
    first.memory().store_u32(8, 7).unwrap();
    let (iova, address) = (first.iova(), first.memory().host_address());
    let memory = first.into_host().unwrap();
    assert_ne!(pool.allocate(4096).unwrap().iova(), iova, "it is not allocated again");
    drop(pool);
    assert_eq!(function.mapped(), []);
    assert_eq!(Arc::strong_count(&function), 1, "the device is given back");
    assert_eq!((memory.len(), memory.view().host_address()), (4096, address));
    assert_eq!(memory.view().load_u32(8), Ok(7));
}

#[test]
fn registered_memory_quarantine_of_clones_is_recorded_once() {
    let (_function, pool) = pool(REGION);
    let kept = pool.allocate_registered(64, 64).unwrap();
    let iova = kept.iova();
    kept.clone().quarantine(QuarantineReason::IdleNotConfirmed);
    kept.clone().quarantine(QuarantineReason::DeviceGone);
    drop(kept);
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.quarantined, stats.quarantined_bytes), (0, 1, 64));
    assert_eq!(pool.quarantined().iter().map(|record| record.iova).collect::<Vec<_>>(), [iova]);
    assert_ne!(pool.allocate(64).unwrap().iova(), iova);
}

#[test]
fn pool_limit_reached_unmaps_free_regions() {
    let (function, pool) = pool(4 * REGION);
    let small: Vec<_> = (0..4).map(|_| pool.allocate(REGION).unwrap()).collect();
    assert_eq!(function.mapped().len(), 4);
    drop(small);
    assert_eq!(function.mapped().len(), 4, "regions stay mapped below the limit");
    let large = pool.allocate(4 * REGION).unwrap();
    assert_eq!((function.mapped().len(), pool.stats().mapped_bytes), (1, 4 * REGION));
    drop(large);
    // A region that is in use in part stays.
    let one = pool.allocate_for(64, DmaAccess::ReadByDevice).unwrap();
    let error = pool.allocate(4 * REGION).unwrap_err();
    assert!(matches!(error, DmaAllocError::Exhausted { in_use: 64, mapped: REGION, .. }), "{error}");
    one.read(0, &mut [0; 64]).unwrap();
    drop(one);
    let mut again = pool.allocate(4 * REGION).unwrap();
    again.fill(7);
    let mut seen = [0; 4];
    function.dma_read(again.iova(), &mut seen).unwrap();
    assert_eq!(seen, [7; 4]);
}

#[test]
fn pool_limit_reached_keeps_quarantined_regions() {
    let (function, pool) = pool(2 * REGION);
    pool.quarantine(pool.allocate(64).unwrap(), QuarantineReason::IdleNotConfirmed);
    drop(pool.allocate(REGION).unwrap());
    let error = pool.allocate(2 * REGION).unwrap_err();
    assert!(matches!(error, DmaAllocError::Exhausted { mapped: REGION, quarantined: 64, .. }), "{error}");
    assert_eq!(function.mapped().len(), 1);
    pool.allocate(REGION).unwrap();
}

#[test]
fn pool_grows_to_limit_and_reports_it() {
    let (function, pool) = pool(2 * REGION);
    let first = pool.allocate(REGION).unwrap();
    let second = pool.allocate(REGION).unwrap();
    assert_eq!(function.mapped().len(), 2);
    let full = DmaAllocError::Exhausted {
        length: 64,
        in_use: 2 * REGION,
        mapped: 2 * REGION,
        limit: 2 * REGION,
        quarantined: 0,
    };
    assert_eq!(pool.allocate(1).unwrap_err(), full);
    drop(first);
    assert!(pool.allocate(1).is_ok());
    drop(second);
    assert!(pool.allocate(2 * REGION).is_ok(), "free regions make space");
}

#[test]
fn pool_large_buffer_gets_own_region() {
    let (function, pool) = pool(8 * REGION);
    let large = pool.allocate(3 * REGION + 1).unwrap();
    assert_eq!(
        large.runs().collect::<Vec<_>>(),
        [IovaRange { iova: large.iova(), length: 3 * REGION as u64 + 1 }]
    );
    assert_eq!(function.mapped().len(), 1);
    assert!(pool.stats().mapped_bytes > 3 * REGION);
    let run = large.run(REGION, 2 * REGION).unwrap();
    assert_eq!(run.iova.distance_from(large.iova()), Some(REGION as u64));
    assert!(large.run(3 * REGION, 2).is_err() && large.run(usize::MAX, 2).is_err());
}

#[test]
fn pool_invalid_request_is_refused() {
    let (_, pool) = pool(REGION);
    for (length, alignment) in [(0, 64), (64, 0), (64, 3), (64, 8192), (usize::MAX, 64)] {
        let bad = DmaAllocError::BadRequest { length, alignment, largest: 4096 };
        assert_eq!(pool.allocate_aligned(length, alignment).unwrap_err(), bad);
    }
    assert_eq!(pool.allocate_aligned(64, 4096).unwrap().iova().get() % 4096, 0);
}

#[test]
fn pool_addresses_fit_device_and_exclude_zero() {
    let below =
        |function: &StubBackend, end: u64| function.mapped().iter().all(|(at, size)| at.get() + size <= end);
    let narrow = function(0, u64::MAX);
    let pool = pool_on(&narrow, DmaPoolOptions { address_bits: 17, ..options(8 * REGION) });
    let buffer = pool.allocate(REGION).unwrap();
    assert!(buffer.iova().get() >= 4096 && below(&narrow, 1 << 17));
    assert!(matches!(pool.allocate(REGION), Err(DmaAllocError::Iova(IovaError::Exhausted { .. }))));
    for (first, last) in [(0, 0), (0, 4095), (5, 4096), (u64::MAX, u64::MAX), (8192, 8190)] {
        let useless = pool_on(&function(first, last), options(REGION));
        assert!(matches!(useless.allocate(1), Err(DmaAllocError::Iova(_))), "{first:#x}..={last:#x}");
    }
    let high = function(0xFFFF_FFFF_FFF0_0001, u64::MAX);
    assert!(pool_on(&high, options(REGION)).allocate(64).is_ok());
}

#[test]
fn pool_refused_mapping_leaks_nothing() {
    let (function, pool) = pool(REGION);
    function.refuse_map(true);
    for _ in 0..3 {
        assert!(matches!(pool.allocate(64), Err(DmaAllocError::Map(DmaMapError::LimitReached { .. }))));
    }
    assert_eq!(pool.stats(), DmaPoolStats::default());
    function.refuse_map(false);
    assert!(pool.allocate(64).is_ok());
}

#[test]
fn pool_quarantined_memory_is_never_reused() {
    let (function, pool) = pool(REGION);
    let bad = pool.allocate(4096).unwrap();
    let gone = bad.iova();
    pool.quarantine(bad, QuarantineReason::IdleNotConfirmed);
    pool.allocate_registered(64, 64).unwrap().quarantine(QuarantineReason::DeviceGone);
    let stats = pool.stats();
    assert_eq!(
        (stats.in_use, stats.in_use_bytes, stats.quarantined, stats.quarantined_bytes),
        (0, 0, 2, 4160)
    );
    let records = pool.quarantined();
    assert_eq!(
        (records[0].iova, records[0].length, records[0].reason),
        (gone, 4096, QuarantineReason::IdleNotConfirmed)
    );
    assert_eq!(records[1].reason, QuarantineReason::DeviceGone);
    assert!(records[0].to_string().contains("idle"));
    // The rest of the region is still usable, and no allocations overlap.
    let mut rest = Vec::new();
    while let Ok(buffer) = pool.allocate(64) {
        assert!(buffer.iova() >= Iova::new(gone.get() + 4096) || buffer.iova() < gone);
        rest.push(buffer);
    }
    assert_eq!(rest.len() * 64 + 4160, REGION);
    drop(rest);
    drop(pool);
    assert_eq!(function.mapped().len(), 1, "a region with quarantined buffers stays mapped");
    assert!(function.dma_read(gone, &mut [0; 64]).is_ok(), "and its memory stays");
}

#[test]
fn pool_ends_with_last_buffer() {
    let (function, pool) = pool(4 * REGION);
    let first = pool.allocate(REGION).unwrap();
    let second = pool.allocate(REGION).unwrap();
    drop(pool);
    drop(first);
    assert_eq!(function.mapped().len(), 2, "nothing is unmapped while a buffer is out");
    assert_eq!(second.to_vec().len(), REGION);
    drop(second);
    assert_eq!(function.mapped(), []);
}

#[test]
fn pool_failed_unmap_leaks_region() {
    let (function, pool) = pool(REGION);
    let iova = pool.allocate(64).unwrap().iova();
    function.refuse_unmap(true);
    drop(pool);
    assert!(function.dma_read(iova, &mut [0; 64]).is_ok());
}

#[test]
fn pool_registered_memory_is_zeroed_and_returns() {
    let (function, pool) = pool(REGION);
    pool.allocate(REGION).unwrap().fill(0xFF);
    let area = pool.allocate_registered(128, 4096).unwrap();
    assert_eq!((area.len(), area.memory().len()), (128, 128));
    area.memory().store_words(32, [1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let mut seen = [0; 64];
    function.dma_read(area.iova(), &mut seen).unwrap();
    assert_eq!(seen[..32], [0; 32]);
    assert_eq!(seen[32..36], 1_u32.to_le_bytes());
    assert!(area.memory().load_u32(128).is_err());
    assert_eq!(area.memory().load_words::<1>(60).unwrap()[0].to_le_bytes()[0], 8);
}

#[test]
fn pool_reserve_maps_ahead() {
    let (function, pool) = pool(4 * REGION);
    pool.reserve(3 * REGION).unwrap();
    pool.reserve(REGION).unwrap();
    assert_eq!(function.mapped().len(), 3);
    assert!(matches!(pool.reserve(5 * REGION), Err(DmaAllocError::Exhausted { .. })));
}

#[test]
fn pool_last_region_may_be_smaller() {
    let (_, pool) = pool(REGION + 8192 + 100);
    let whole = pool.allocate(REGION).unwrap();
    assert!(pool.allocate(8192).is_ok());
    assert!(pool.allocate(8193).is_err());
    drop(whole);
}

proptest! {
    /// For any sequence of allocations and frees: buffers never overlap, keep their content, and everything is freed.
    #[test]
    fn pool_buffers_never_overlap(steps in proptest::collection::vec((1_usize..20_000, 0_u32..13, any::<prop::sample::Index>(), any::<bool>()), 1..80)) {
        let (function, pool) = pool(4 * REGION);
        let mut live: Vec<(DmaBuffer, u8)> = Vec::new();
        for (number, (length, alignment, index, free)) in steps.into_iter().enumerate() {
            if free && !live.is_empty() {
                let (buffer, mark) = live.swap_remove(index.index(live.len()));
                prop_assert!(buffer.to_vec().iter().all(|byte| *byte == mark));
                continue;
            }
            let alignment = 1 << alignment;
            if let Ok(mut buffer) = pool.allocate_aligned(length, alignment) {
                prop_assert!(buffer.iova().is_aligned_to(alignment as u64));
                prop_assert_eq!(buffer.memory().as_mut_ptr().addr() % alignment, 0);
                let mark = u8::try_from(number).unwrap();
                buffer.fill(mark);
                live.push((buffer, mark));
            }
            let mut places: Vec<(u64, u64)> =
                live.iter().map(|(buffer, _)| (buffer.iova().get(), buffer.capacity() as u64)).collect();
            places.sort_unstable();
            prop_assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            prop_assert_eq!(pool.stats().in_use_bytes as u64, places.iter().map(|(_, length)| length).sum::<u64>());
        }
        for (buffer, mark) in &live {
            let mut seen = vec![0; buffer.len()];
            function.dma_read(buffer.iova(), &mut seen).unwrap();
            prop_assert!(seen.iter().all(|byte| byte == mark));
        }
        drop(live);
        let stats = pool.stats();
        prop_assert_eq!((stats.in_use, stats.in_use_bytes), (0, 0));
        drop(pool);
        prop_assert_eq!(function.mapped(), []);
    }
}

#[test]
fn pool_directions_use_separate_regions() {
    let (function, pool) = pool(4 * REGION);
    let both = pool.allocate(64).unwrap();
    let source = pool.allocate_for(64, DmaAccess::ReadByDevice).unwrap();
    let target = pool.allocate_for(64, DmaAccess::WriteByDevice).unwrap();
    let access = |buffer: &DmaBuffer| {
        let read = function.dma_read(buffer.iova(), &mut [0; 64]).is_ok();
        (read, function.dma_write(buffer.iova(), &[1; 64]).is_ok(), buffer.access())
    };
    assert_eq!(access(&both), (true, true, DmaAccess::Both));
    assert_eq!(access(&source), (true, false, DmaAccess::ReadByDevice));
    assert_eq!(access(&target), (false, true, DmaAccess::WriteByDevice));
    assert_eq!(pool.stats().regions, 3);
    let again = (source.iova(), target.iova());
    drop((source, target));
    let source = pool.allocate_for(64, DmaAccess::ReadByDevice).unwrap();
    let target = pool.allocate_for(64, DmaAccess::WriteByDevice).unwrap();
    assert_eq!((source.iova(), target.iova()), again, "what came back is handed out again, for the same use");
    // `reserve` prepares for `allocate`.
    pool.reserve(REGION).unwrap();
    assert_eq!(pool.stats().regions, 4);
}

#[test]
fn pool_too_few_address_bits_is_reported() {
    let function = function(1 << 40, 1 << 41);
    let pool = pool_on(&function, DmaPoolOptions { address_bits: 32, ..options(REGION) });
    let narrow = DmaAllocError::AddressWidth { bits: 32, first: Iova::new(1 << 40) };
    assert_eq!(pool.allocate(64).unwrap_err(), narrow);
    let memory = SharedMemory::anonymous(4096, HugePages::No).unwrap();
    assert_eq!(pool.map(memory, DmaAccess::Both).unwrap_err().error, narrow);
    assert!(narrow.to_string().contains("32 address bits"), "{narrow}");
}
