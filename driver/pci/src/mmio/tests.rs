use super::*;
use proptest::prelude::*;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::OsError;
use rustix::fs::MemfdFlags;

const SIZE: u64 = 0x4000;
/// The first page is mapped; the others are not.
const FIRST_PAGE: [core::ops::Range<u64>; 1] = [core::ops::Range { start: 0, end: 0x1000 }];

/// Device that can be present or absent, and can be reset.
struct Switch {
    present: AtomicBool,
    generation: AtomicU64,
}

impl Liveness for Switch {
    fn is_present(&self) -> bool {
        self.present.load(Ordering::Relaxed)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }
}

/// File that stands in for a device, with the BAR at an offset of one page.
fn mapped(areas: &[core::ops::Range<u64>]) -> (Bar, Arc<Switch>, Arc<OwnedFd>) {
    let file = rustix::fs::memfd_create("bar", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 0x1000 + SIZE).unwrap();
    let file = Arc::new(file);
    let switch = Arc::new(Switch { present: AtomicBool::new(true), generation: AtomicU64::new(3) });
    let presence: Arc<dyn Liveness> = Arc::<Switch>::clone(&switch);
    let bar = MappedBar::map(Arc::clone(&file), 0x1000, SIZE, areas, presence).unwrap();
    (Bar::new(Arc::new(bar)), switch, file)
}

fn at(offset: u64) -> BarOffset {
    BarOffset::new(offset)
}

#[test]
fn bar_mapped_areas_and_holes_act_as_one() {
    // The second page is not mapped, as a page with an MSI-X table.
    let (bar, _, file) = mapped(&[0..0x1000, 0x2000..SIZE]);
    for offset in [0, 0xFFC, 0x1000, 0x1FFC, 0x2000, SIZE - 4] {
        let value = u32::try_from(offset).unwrap() | 0xA000_0000;
        bar.write32(at(offset), value).unwrap();
        assert_eq!(bar.read32(at(offset)), Ok(value));
        let mut bytes = [0; 4];
        rustix::io::pread(&*file, &mut bytes[..], 0x1000 + offset).unwrap();
        assert_eq!(bytes, value.to_le_bytes(), "little endian, at its place in the file");
    }
    bar.write64(at(0x1008), 0x1122_3344_5566_7788).unwrap();
    bar.write64(at(0x2008), 0x1122_3344_5566_7788).unwrap();
    assert_eq!(bar.read64(at(0x1008)), bar.read64(at(0x2008)));
    assert_eq!(bar.read32(at(0x200C)), Ok(0x1122_3344));
    let block: Vec<u8> = (0..=255).collect();
    bar.write_block(at(0xF80), &block).unwrap();
    let mut back = vec![0; 256];
    bar.read_block(at(0xF80), &mut back).unwrap();
    assert_eq!(back, block, "across the edge of an area");
}

#[test]
fn bar_all_ones_is_gone_only_if_device_absent() {
    let (bar, switch, _) = mapped(&FIRST_PAGE);
    for offset in [8, 0x1008] {
        bar.write64(at(offset), u64::MAX).unwrap();
        assert_eq!(bar.read32(at(offset)), Ok(u32::MAX), "a value like any other");
        assert_eq!(bar.read64(at(offset)), Ok(u64::MAX));
        switch.present.store(false, Ordering::Relaxed);
        assert_eq!(bar.read32(at(offset)), Err(MmioError::Gone { at: at(offset) }));
        assert_eq!(bar.read64(at(offset)), Err(MmioError::Gone { at: at(offset) }));
        assert_eq!(bar.read32(at(offset + 16)), Ok(0), "a value that is not all ones came from somewhere");
        switch.present.store(true, Ordering::Relaxed);
    }
}

#[test]
fn bar_handle_before_reset_is_stale() {
    let (bar, switch, _) = mapped(&FIRST_PAGE);
    let part = bar.slice(at(0x100), 0x100).unwrap();
    switch.generation.store(4, Ordering::Relaxed);
    assert_eq!(bar.read32(at(0)), Err(MmioError::Stale { at: at(0) }));
    assert_eq!(part.write32(at(4), 1), Err(MmioError::Stale { at: at(0x104) }));
    assert_eq!(bar.read64(at(0x1000)), Err(MmioError::Stale { at: at(0x1000) }), "by file as well");
}

#[test]
fn bar_refused_file_access_is_error() {
    let (bar, _, file) = mapped(&[]);
    assert_eq!(bar.read32(at(0)), Ok(0));
    rustix::fs::ftruncate(&*file, 0x1000).unwrap();
    assert_eq!(bar.read32(at(0)), Err(MmioError::Refused { at: at(0), source: OsError::from_raw(0) }));
}

#[test]
fn bar_areas_may_start_and_end_inside_page() {
    // A table from 0x800 to 0xA00, in a page that also holds registers.
    let (bar, _, file) = mapped(&[0..0x800, 0xA00..SIZE]);
    for offset in [0x7FC, 0x800, 0x9FC, 0xA00, 0xFFC, SIZE - 4] {
        let value = u32::try_from(offset).unwrap() | 0xB000_0000;
        bar.write32(at(offset), value).unwrap();
        let mut bytes = [0; 4];
        rustix::io::pread(&*file, &mut bytes[..], 0x1000 + offset).unwrap();
        assert_eq!((bar.read32(at(offset)), bytes), (Ok(value), value.to_le_bytes()));
    }
}

#[test]
fn bar_without_mapped_areas_raises_no_signal() {
    let (bar, switch, file) = mapped(&[]);
    bar.write32(at(8), 0x1234_5678).unwrap();
    assert_eq!((bar.read32(at(8)), bar.read64(at(8))), (Ok(0x1234_5678), Ok(0x1234_5678)));
    // A mapped access would raise SIGBUS here.
    rustix::fs::ftruncate(&*file, 0x1000).unwrap();
    assert!(matches!(bar.read32(at(8)), Err(MmioError::Refused { .. })));
    assert_eq!(bar.write32(at(8), 1), Ok(()), "a file grows again");
    switch.generation.store(9, Ordering::Relaxed);
    assert_eq!(bar.read32(at(8)), Err(MmioError::Stale { at: at(8) }));
}

#[test]
fn bar_area_outside_is_refused() {
    let file = Arc::new(rustix::fs::memfd_create("bar", MemfdFlags::CLOEXEC).unwrap());
    let backwards = core::ops::Range { start: 0x2000, end: 0x1000 };
    for area in [0..SIZE + 1, SIZE..SIZE, 4..0x1000, backwards] {
        let presence = Arc::new(Switch { present: AtomicBool::new(true), generation: AtomicU64::new(0) });
        let start = area.start;
        let error = MappedBar::map(Arc::clone(&file), 0, SIZE, &[area], presence).unwrap_err();
        assert_eq!(error, (start, rustix::io::Errno::INVAL.into()));
    }
    for file_offset in [1, 8, u64::MAX] {
        let presence = Arc::new(Switch { present: AtomicBool::new(true), generation: AtomicU64::new(0) });
        let error = MappedBar::map(Arc::clone(&file), file_offset, SIZE, &FIRST_PAGE, presence);
        assert!(error.is_err(), "cells would not be aligned");
    }
}

/// Backend with only the two required operations; records the requests.
struct Recorder(Mutex<Vec<(u64, Option<u32>)>>);

impl Mmio for Recorder {
    fn size(&self) -> u64 {
        0x100
    }

    fn read32(&self, at: BarOffset) -> Result<u32, MmioError> {
        self.0.lock().unwrap().push((at.get(), None));
        Ok(u32::try_from(at.get()).unwrap())
    }

    fn write32(&self, at: BarOffset, value: u32) -> Result<(), MmioError> {
        self.0.lock().unwrap().push((at.get(), Some(value)));
        Ok(())
    }
}

#[test]
fn bar_wide_and_block_accesses_are_ascending_words() {
    let recorder = Arc::new(Recorder(Mutex::new(Vec::new())));
    let backend: Arc<dyn Mmio> = Arc::<Recorder>::clone(&recorder);
    let bar = Bar::new(backend).slice(at(0x40), 0x40).unwrap();
    assert_eq!(bar.read64(at(8)), Ok(0x0000_004C_0000_0048));
    bar.write64(at(0), 0x2222_2222_1111_1111).unwrap();
    bar.write_block(at(0x10), &[1, 0, 0, 0, 2, 0, 0, 0]).unwrap();
    bar.read_block(at(0x20), &mut [0; 8]).unwrap();
    let expected = [
        (0x48, None),
        (0x4C, None),
        (0x40, Some(0x1111_1111)),
        (0x44, Some(0x2222_2222)),
        (0x50, Some(1)),
        (0x54, Some(2)),
        (0x60, None),
        (0x64, None),
    ];
    assert_eq!(*recorder.0.lock().unwrap(), expected);
    let ragged = bar.write_block(at(0x10), &[0; 6]);
    assert_eq!(ragged, Err(MmioError::Misaligned { at: at(0x50), width: 4 }));
    assert_eq!(recorder.0.lock().unwrap().len(), expected.len(), "refused before the first word");
}

#[test]
fn bar_narrow_write_changes_its_bytes_only() {
    let areas: [&[core::ops::Range<u64>]; 2] = [&FIRST_PAGE, &[]];
    for areas in areas {
        let (bar, ..) = mapped(areas);
        bar.write32(at(8), 0x4433_2211).unwrap();
        bar.write_narrow(at(9), &[0x55]).unwrap();
        bar.write_narrow(at(10), &[0x66, 0x77]).unwrap();
        assert_eq!(bar.read32(at(8)), Ok(0x7766_5511));
        assert_eq!(bar.write_narrow(at(9), &[0; 2]), Err(MmioError::Misaligned { at: at(9), width: 2 }));
        assert_eq!(bar.write_narrow(at(8), &[0; 3]), Err(MmioError::Misaligned { at: at(8), width: 4 }));
        let beyond = MmioError::OutOfRange { at: at(SIZE), width: 1, end: SIZE };
        assert_eq!(bar.write_narrow(at(SIZE), &[0]), Err(beyond));
    }
    // A backend without byte enables refuses it, and writes nothing.
    let recorder = Arc::new(Recorder(Mutex::new(Vec::new())));
    let bar = Bar::new(Arc::<Recorder>::clone(&recorder) as Arc<dyn Mmio>);
    assert_eq!(bar.write_narrow(at(5), &[1]), Err(MmioError::Misaligned { at: at(5), width: 4 }));
    assert!(recorder.0.lock().unwrap().is_empty());
}

#[test]
fn bar_subview_access_beyond_end_is_refused() {
    let bar = Bar::new(Arc::new(Recorder(Mutex::new(Vec::new()))));
    let part = bar.slice(at(0x40), 0x20).unwrap();
    assert_eq!(part.size(), 0x20);
    assert_eq!(part.read32(at(0x1C)), Ok(0x5C));
    assert_eq!(part.read32(at(0x20)), Err(MmioError::OutOfRange { at: at(0x60), width: 4, end: 0x60 }));
    assert_eq!(
        part.slice(at(0x10), 0x11).unwrap_err(),
        MmioError::OutOfRange { at: at(0x50), width: 0x11, end: 0x60 }
    );
    assert_eq!(part.slice(at(2), 4).unwrap_err(), MmioError::Misaligned { at: at(0x42), width: 4 });
    assert_eq!(part.slice(at(0x10), 0x10).unwrap().read32(at(0)), Ok(0x50));
    assert!(part.read32(at(u64::MAX)).is_err());
}

proptest! {
    /// For any access: backend and view agree with plain arithmetic, and nothing outside is accessed.
    #[test]
    fn bar_bounds_and_alignment_match_arithmetic(base in 0_u64..0x30, length in 0_u64..0x120, offset in prop_oneof![0_u64..0x120, any::<u64>()], wide: bool) {
        let (base, width) = (base * 4, if wide { 8 } else { 4 });
        let (bar, ..) = mapped(&FIRST_PAGE);
        let bar = bar.slice(at(0), 0x100).unwrap();
        let part = bar.slice(at(base), length);
        prop_assert_eq!(part.is_ok(), base + length <= 0x100);
        if let Ok(part) = part {
            let got = if wide { part.read64(at(offset)).map(drop) } else { part.read32(at(offset)).map(drop) };
            let inside = offset.checked_add(width).is_some_and(|end| end <= length);
            match got {
                Ok(()) => prop_assert!(inside && (base + offset).is_multiple_of(width)),
                Err(MmioError::OutOfRange { .. }) => prop_assert!(!inside),
                Err(MmioError::Misaligned { .. }) => prop_assert!(inside && !(base + offset).is_multiple_of(width)),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
