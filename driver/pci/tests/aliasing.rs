//! Memory that another party writes at any time: a backend in safe code keeps the memory that it maps and overwrites it, as a faulty card
//! or a hostile server does. At worst a program sees wrong bytes.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fpga_pci::testing::StubBackend;
use fpga_pci::{
    Backend, DmaAccess, DmaMapError, DmaPool, DmaPoolOptions, HugePages, Interrupt, InterruptError,
    MemoryKind, SharedMemory,
};
use fpga_registers::Iova;

const REGION: usize = 64 << 10;

/// Backend that breaks its contract: overlapping addresses, every mapping and unmapping accepted, all memory kept.
struct CorruptingBackend {
    inner: StubBackend,
    kind: MemoryKind,
    kept: Mutex<Vec<SharedMemory>>,
}

impl CorruptingBackend {
    fn new(kind: MemoryKind) -> Arc<Self> {
        Arc::new(Self { inner: StubBackend::new(Vec::new()), kind, kept: Mutex::new(Vec::new()) })
    }

    /// Overwrites all memory that was ever mapped.
    fn scribble(&self, value: u8) {
        for memory in self.kept.lock().unwrap().iter() {
            memory.fill(0, memory.len(), value).unwrap();
        }
    }
}

impl Backend for CorruptingBackend {
    fpga_pci::forward_backend!(inner: config_read, config_write, bars, open_bar, reset);

    fn name(&self) -> &'static str {
        "scribbler"
    }

    fn map_dma(&self, _: Iova, memory: &SharedMemory, _: DmaAccess) -> Result<(), DmaMapError> {
        self.kept.lock().unwrap().push(memory.clone());
        Ok(())
    }

    fn unmap_dma(&self, _: Iova, _: u64) -> Result<(), DmaMapError> {
        Ok(())
    }

    fn iova_ranges(&self) -> Vec<RangeInclusive<Iova>> {
        vec![Iova::new(0)..=Iova::new(u64::MAX), Iova::new(4096)..=Iova::new(1 << 30)]
    }

    fn memory_kind(&self) -> MemoryKind {
        self.kind
    }

    fn interrupt_vectors(&self) -> u32 {
        0
    }

    fn enable_interrupts(&self, _: u32) -> Result<Vec<Interrupt>, InterruptError> {
        Ok(Vec::new())
    }

    fn disable_interrupts(&self) -> Result<(), InterruptError> {
        Ok(())
    }

    fn now(&self) -> u64 {
        0
    }

    fn relax(&self) {}
}

fn pool(scribbler: &Arc<CorruptingBackend>) -> DmaPool {
    let mut options = DmaPoolOptions::default();
    options.region_size = REGION;
    DmaPool::new(Arc::<CorruptingBackend>::clone(scribbler), options)
}

#[test]
fn aliasing_safe_backend_cannot_make_two_buffers_of_one_memory() {
    for kind in [MemoryKind::Anonymous, MemoryKind::File] {
        let scribbler = CorruptingBackend::new(kind);
        let pools = [pool(&scribbler), pool(&scribbler)];
        // Two regions of each pool.
        let mut buffers: Vec<_> = pools
            .iter()
            .flat_map(|pool| [pool.allocate(REGION).unwrap(), pool.allocate(REGION).unwrap()])
            .collect();
        assert!(
            scribbler
                .kept
                .lock()
                .unwrap()
                .iter()
                .all(|memory| memory.file().is_some() == (kind == MemoryKind::File))
        );
        for (mark, buffer) in (1..).zip(&mut buffers) {
            buffer.fill(mark);
        }
        for (mark, buffer) in (1..).zip(&buffers) {
            assert!(buffer.to_vec().iter().all(|byte| *byte == mark), "{kind:?}: buffer {mark}");
        }
    }
}

#[test]
fn aliasing_backend_writes_change_values_only() {
    let scribbler = CorruptingBackend::new(MemoryKind::Anonymous);
    let pool = pool(&scribbler);
    let mut buffer = pool.allocate(REGION).unwrap();
    buffer.fill(1);
    let view = buffer.memory();
    let copy = view.to_vec();
    scribbler.scribble(2);
    assert!(copy.iter().all(|byte| *byte == 1), "a copy is the program's own");
    assert!(view.to_vec().iter().all(|byte| *byte == 2), "a view shows what is there now");
}

#[test]
fn aliasing_copies_during_writes_hold_existing_bytes() {
    const ROUNDS: usize = 200;
    let scribbler = CorruptingBackend::new(MemoryKind::Anonymous);
    let pool = pool(&scribbler);
    let buffer = pool.allocate(REGION).unwrap();
    scribbler.scribble(0xA5);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                scribbler.scribble(0x5A);
                scribbler.scribble(0xA5);
            }
        });
        for _ in 0..ROUNDS {
            assert!(buffer.to_vec().iter().all(|byte| matches!(byte, 0xA5 | 0x5A)));
            buffer.memory().read_chunks(|_, chunk| {
                // Both reads see the same bytes.
                assert_eq!(
                    chunk.iter().filter(|byte| **byte == 0xA5).count(),
                    chunk.iter().filter(|byte| **byte != 0x5A).count()
                );
            });
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn aliasing_caller_memory_stays_mapped_for_any_backend_answer() {
    let scribbler = CorruptingBackend::new(MemoryKind::Anonymous);
    let pool = pool(&scribbler);
    let area = || pool.map(SharedMemory::anonymous(4096, HugePages::No).unwrap(), DmaAccess::Both).unwrap();
    let (first, second, third) = (area(), area(), area());
    scribbler.kept.lock().unwrap().clear();
    first.memory().store_u32(0, 1).unwrap();
    second.memory().store_u32(0, 2).unwrap();
    third.memory().store_u32(0, 3).unwrap();
    drop(second);
    assert_eq!((first.memory().load_u32(0), third.memory().load_u32(0)), (Ok(1), Ok(3)));
    drop(first);
    drop(pool);
    assert_eq!(third.memory().load_u32(0), Ok(3));
}
