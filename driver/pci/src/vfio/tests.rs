use super::fake::{ADDRESS, BAR, CONFIG, Call, Fake, GROUP};
use super::kernel::{LockedMemory, Request};
use super::*;
use crate::config::ConfigSpace;
use crate::{DeviceEvent, DmaPool, DmaPoolOptions, HugePages, MmioError};
use fpga_registers::BarOffset;
use rustix::fs::MemfdFlags;
use std::time::Duration;

const BOTH: [VfioInterface; 2] = [VfioInterface::Group, VfioInterface::Iommufd];

/// File that stands in for a device: configuration space of 256 bytes at offset 4 KiB.
fn device() -> DeviceFile {
    let file = rustix::fs::memfd_create("device", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 4096 + 256).unwrap();
    rustix::io::pwrite(&file, &[0xEE, 0x10, 0x38, 0x90, 2], 4096).unwrap();
    DeviceFile { file: Arc::new(file), config_offset: 4096, config_size: 256, generation: AtomicU64::new(0) }
}

#[test]
fn vfio_config_space_reads_at_offset_and_ends() {
    let device = device();
    assert_eq!(config::identity(&device), Ok((0x10EE, 0x9038)));
    let mut last = [0; 4];
    assert_eq!(device.read(252, &mut last), Ok(()));
    assert_eq!(
        device.read(253, &mut last),
        Err(ConfigSpaceError::OutOfRange { at: 253, length: 4, size: 256 })
    );
    assert!(device.read(u16::MAX, &mut last).is_err());
}

#[test]
fn vfio_file_failures_are_errors() {
    let device = device();
    rustix::fs::ftruncate(&*device.file, 4096).unwrap();
    let short = Err(ConfigSpaceError::Refused { at: 4, source: OsError::from_raw(0) });
    assert_eq!(device.read(4, &mut [0; 2]), short, "a short read is not taken for zeros");
    let far = DeviceFile { config_offset: u64::MAX, ..device };
    assert!(matches!(far.read(4, &mut [0; 2]), Err(ConfigSpaceError::Refused { .. })));
}

#[test]
fn vfio_presence_follows_config_space() {
    let device = device();
    assert!(device.is_present());
    rustix::io::pwrite(&*device.file, &[0], 4096 + 4).unwrap();
    assert!(!device.is_present(), "memory decoding is off");
    rustix::io::pwrite(&*device.file, &[2], 4096 + 4).unwrap();
    assert!(device.is_present());
    rustix::io::pwrite(&*device.file, &[0xFF; 4], 4096).unwrap();
    assert!(!device.is_present());
}

#[test]
fn vfio_clock_is_monotonic_and_shared() {
    let first = crate::wait::monotonic_ns();
    assert!(crate::wait::monotonic_ns() >= first);
}

fn bus_master(fake: &Fake) -> bool {
    let mut command = [0; 2];
    rustix::io::pread(fake.device(), &mut command[..], CONFIG + 4).unwrap();
    command[0] & 4 != 0
}

#[test]
fn vfio_device_open_use_close() {
    for interface in BOTH {
        let fake = Fake::new();
        let backend = fake.open(fake.options().interface(interface)).unwrap();
        assert!(!bus_master(&fake), "a former user's setting does not survive");
        backend.set_bus_master(true).unwrap();
        let bars = backend.bars();
        assert_eq!(bars[0].map(|bar| bar.size), Some(0x10000));
        assert!(bars[1..].iter().all(Option::is_none));
        let bar = backend.open_bar(0).unwrap();
        for at in [0x2000, 0x7FFC, 0x8000, 0x9000] {
            let value = u32::try_from(at).unwrap();
            bar.write32(BarOffset::new(at), value).unwrap();
            let mut bytes = [0; 4];
            rustix::io::pread(fake.device(), &mut bytes[..], BAR + at).unwrap();
            assert_eq!((bar.read32(BarOffset::new(at)), bytes), (Ok(value), value.to_le_bytes()));
        }
        let interrupts = backend.enable_interrupts(4).unwrap();
        assert_eq!(interrupts.len(), 4);
        drop(bar);
        drop(backend);
        assert!(!bus_master(&fake), "switched off before closing");
        let state = fake.state();
        let order: Vec<_> = state.irq_files.keys().map(|(index, _)| *index).collect();
        assert_eq!(order, [3, 4], "vectors off; what reports errors and requests ends with the file");
        drop(state);
        assert_eq!(fake.open_files(), 0);
    }
}

#[test]
fn vfio_map_uses_requested_access() {
    // vfio.h: read 1, write 2. iommufd.h: fixed address 1, writable 2, readable 4. From the device's point of view.
    for (interface, flags) in [(VfioInterface::Group, [1, 2, 3]), (VfioInterface::Iommufd, [5, 3, 7])] {
        let fake = Fake::new();
        let backend = fake.open(fake.options().interface(interface)).unwrap();
        let memory = SharedMemory::anonymous(4096, HugePages::No).unwrap();
        let accesses = [DmaAccess::ReadByDevice, DmaAccess::WriteByDevice, DmaAccess::Both];
        for ((access, flags), iova) in accesses.into_iter().zip(flags).zip((0x2000_0000..).step_by(4096)) {
            let iova = Iova::new(if interface == VfioInterface::Iommufd { iova | 1 << 32 } else { iova });
            backend.map_dma(iova, &memory, access).unwrap();
            assert_eq!(fake.state().mapped.get(&iova.get()), Some(&(4096, flags)));
            backend.unmap_dma(iova, 4096).unwrap();
            assert!(fake.state().mapped.is_empty());
        }
    }
}

#[test]
fn vfio_map_respects_kernel_ranges() {
    let fake = Fake::new();
    let backend = fake.open(fake.options().interface(VfioInterface::Iommufd)).unwrap();
    assert_eq!(backend.iova_ranges().len(), 41, "the number reported, not the number guessed");
    let backend = {
        drop(backend);
        fake.open(fake.options().interface(VfioInterface::Group)).unwrap()
    };
    let memory = SharedMemory::anonymous(8192, HugePages::No).unwrap();
    let asked = fake.state().requests.len();
    for iova in [0xFEDF_F000, 0xFEE0_0000, 0x80_0000_0000, u64::MAX - 4095] {
        let refused = backend.map_dma(Iova::new(iova), &memory, DmaAccess::Both);
        assert!(matches!(refused, Err(DmaMapError::OutsideRanges { .. })), "{iova:#x}");
    }
    let refused = backend.map_dma(Iova::new(0x1800), &memory, DmaAccess::Both);
    assert!(matches!(refused, Err(DmaMapError::Misaligned { .. })));
    assert_eq!(
        fake.state().requests.len(),
        asked,
        "the kernel, which says EINVAL to all of it, was not asked"
    );
    // A pool takes its addresses from the ranges, for any address width of its device.
    let narrow = DmaPoolOptions { address_bits: 30, ..DmaPoolOptions::default() };
    let pool = DmaPool::new(Arc::new(backend), narrow);
    assert!(pool.allocate(64).unwrap().iova().get() < 1 << 30);
}

#[test]
fn vfio_map_limits_are_reported_with_advice() {
    let fake = Fake::new();
    let backend = fake.open(fake.options().interface(VfioInterface::Group)).unwrap();
    let memory = SharedMemory::anonymous(1 << 20, HugePages::No).unwrap();
    let map = |index: u64| backend.map_dma(Iova::new(index << 20), &memory, DmaAccess::Both);
    assert!(matches!(map(0), Ok(())));
    assert!(matches!(map(0), Err(DmaMapError::Overlap { .. })));
    assert!(map(1).is_ok() && map(2).is_ok());
    let error = map(3).unwrap_err();
    assert!(matches!(error, DmaMapError::TooManyMappings { in_use: 3, limit: 3, .. }), "{error}");
    fake.state().max_mappings = 100;
    fake.state().locked = LockedMemory { locked: 1 << 20, limit: Some(0x3F_F000) };
    let error = map(3).unwrap_err();
    assert!(
        matches!(error, DmaMapError::LockedMemory { limit: 0x3F_F000, needed: 0x40_0000, .. }),
        "{error}"
    );
    // Text that a program displays after a failed allocation.
    let shown = crate::DmaAllocError::from(error);
    assert!(shown.to_string().contains(&error.to_string()), "{shown}");
    let help = shown.help().unwrap_or_default();
    assert!(help.contains("ulimit -l 4096") && help.contains("LimitMEMLOCK=4194304"), "{help}");
    // The kernel is short of memory, without a limit.
    fake.state().locked.limit = None;
    fake.fail(Call::Request(Request::IommuMap), Errno::NOMEM);
    assert!(matches!(map(3), Err(DmaMapError::LimitReached { .. })));
    fake.state().failures.clear();
    fake.fail(Call::Request(Request::IommuMap), Errno::FAULT);
    assert!(matches!(map(3), Err(DmaMapError::Refused { .. })));
    assert_eq!(fake.state().mapped.len(), 3, "a mapping that failed leaves nothing");
}

/// An iommufd counts by user: a process whose mapping is refused may itself have locked almost nothing.
#[test]
fn vfio_map_limit_used_by_other_programs_is_named() {
    let fake = Fake::new();
    let backend = fake.open(fake.options().interface(VfioInterface::Iommufd)).unwrap();
    let memory = SharedMemory::anonymous(4096, HugePages::No).unwrap();
    fake.state().locked = LockedMemory { locked: 0, limit: Some(1 << 30) };
    fake.fail(Call::Request(Request::IoasMap), Errno::NOMEM);
    let error = backend.map_dma(Iova::ZERO, &memory, DmaAccess::Both).unwrap_err();
    assert!(matches!(error, DmaMapError::LockedMemoryOfUser { limit: 0x4000_0000, .. }), "{error}");
    assert!(error.help().is_some_and(|help| help.contains("ulimit -l")), "{error}");
}

#[test]
fn vfio_failed_unmap_stays_recorded() {
    for interface in BOTH {
        let fake = Fake::new();
        let backend = fake.open(fake.options().interface(interface)).unwrap();
        let memory = SharedMemory::anonymous(4096, HugePages::No).unwrap();
        let iova = Iova::new(0x1_0000_0000);
        backend.map_dma(iova, &memory, DmaAccess::Both).unwrap();
        assert!(matches!(backend.unmap_dma(iova, 8192), Err(DmaMapError::NotMapped { .. })));
        fake.fail(Call::Unmap, Errno::IO);
        assert!(matches!(backend.unmap_dma(iova, 4096), Err(DmaMapError::Refused { .. })));
        fake.state().failures.clear();
        backend.unmap_dma(iova, 4096).unwrap();
        assert!(matches!(backend.unmap_dma(iova, 4096), Err(DmaMapError::NotMapped { .. })));
    }
}

#[test]
fn vfio_interrupts_grant_available_vectors() {
    let fake = Fake::new();
    fake.state().vectors_left = 5;
    let backend = fake.open(fake.options()).unwrap();
    assert_eq!(backend.interrupt_vectors(), 32);
    let asked = |asked, available| Err(InterruptError::TooMany { asked, available });
    assert_eq!(backend.enable_interrupts(33).map(drop), asked(33, 32));
    assert_eq!(backend.enable_interrupts(8).map(drop), asked(8, 5), "the kernel's answer is an error");
    assert_eq!(backend.enable_interrupts(5).unwrap().len(), 5);
    assert_eq!(backend.enable_interrupts(1).map(drop), Err(InterruptError::AlreadyEnabled));
    backend.disable_interrupts().unwrap();
    backend.disable_interrupts().unwrap();
    assert_eq!(backend.enable_interrupts(1).unwrap().len(), 1);
}

#[test]
fn vfio_interrupts_fall_back_to_msi_then_intx() {
    let fake = Fake::new();
    fake.state().vectors = [Some(1), Some(4), Some(0), None, Some(1)];
    let backend = fake.open(fake.options()).unwrap();
    assert_eq!((backend.interrupts.kind, backend.interrupt_vectors()), (Some(interrupts::IrqKind::Msi), 4));
    drop(backend);
    fake.state().vectors = [Some(1), Some(0), Some(0), None, Some(1)];
    let backend = fake.open(fake.options()).unwrap();
    let line = backend.enable_interrupts(1).unwrap();
    assert_eq!(fake.state().irq_files.get(&(0, true)).map(Vec::len), Some(1), "with a way to unmask it");
    line[0].rearm();
    drop(backend);
    // A line that could not be unmasked would fire only once: it is switched off.
    fake.state().vectors = [Some(0), Some(0), Some(0), None, None];
    let backend = fake.open(fake.options()).unwrap();
    let none = backend.enable_interrupts(1).map(drop);
    assert_eq!(none, Err(InterruptError::TooMany { asked: 1, available: 0 }));
}

#[test]
fn vfio_events_are_armed_as_available() {
    let fake = Fake::new();
    let backend = fake.open(fake.options()).unwrap();
    let events = backend.events().unwrap();
    assert!(events.can_have(DeviceEvent::BusError) && events.can_have(DeviceEvent::ReleaseRequested));
    let request = fake.state().irq_files[&(4, false)][0];
    // SAFETY: the descriptor is the event's, which the backend keeps open.
    let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(request) };
    rustix::io::write(file, &1_u64.to_ne_bytes()).unwrap();
    assert_eq!(events.wait(Duration::from_secs(5)), Ok(Some(DeviceEvent::ReleaseRequested)));
    drop((backend, events));
    // A function without PCI Express has no error interrupt: the kernel returns EINVAL, or a count of 0.
    for vectors in [None, Some(0)] {
        fake.state().vectors[3] = vectors;
        let events = fake.open(fake.options()).unwrap().events().unwrap();
        assert!(!events.can_have(DeviceEvent::BusError) && events.can_have(DeviceEvent::ReleaseRequested));
    }
    fake.fail(Call::Request(Request::SetIrqs), Errno::INVAL);
    assert!(!fake.open(fake.options()).unwrap().events().unwrap().can_have(DeviceEvent::ReleaseRequested));
    assert_eq!(fake.open_files(), 0);
}

#[test]
fn vfio_function_reset_makes_handles_stale_or_reports() {
    let fake = Fake::new();
    let backend = fake.open(fake.options()).unwrap();
    let bar = backend.open_bar(0).unwrap();
    backend.set_bus_master(true).unwrap();
    backend.reset(ResetLevel::Function).unwrap();
    assert!(!bus_master(&fake));
    assert!(matches!(bar.read32(BarOffset::ZERO), Err(MmioError::Stale { .. })));
    assert!(backend.open_bar(0).unwrap().read32(BarOffset::ZERO).is_ok());
    fake.fail(Call::Request(Request::Reset), Errno::NOTTY);
    let source = Errno::NOTTY.into();
    let level = ResetLevel::Function;
    assert_eq!(backend.reset(level), Err(ResetError::Failed { level, source }));
    fake.set_config(0, &[0xFF; 4]);
    fake.state().failures.clear();
    assert_eq!(backend.reset(level), Err(ResetError::NoAnswer { level }));
    fake.set_config(0, &[0xEE, 0x10, 0x38, 0x90]);
    drop((backend, bar));
    fake.state().can_reset = false;
    let backend = fake.open(fake.options()).unwrap();
    let bar = backend.open_bar(0).unwrap();
    assert_eq!(backend.reset(level), Err(ResetError::Unsupported { level }));
    assert!(bar.read32(BarOffset::ZERO).is_ok(), "nothing happened to handles");
}

#[test]
fn vfio_hot_reset_passes_owned_groups() {
    for (interface, files) in [(VfioInterface::Group, 1), (VfioInterface::Iommufd, 0)] {
        let fake = Fake::new();
        // A second function of the card, in the same group, and not in use.
        fake.add_function("0000:65:00.1", "vfio-pci", GROUP);
        let id = if interface == VfioInterface::Group { GROUP } else { 0 };
        fake.state().dependents = Some(vec![(id, 0x65, 0), (id, 0x65, 1)]);
        let backend = fake.open(fake.options().interface(interface)).unwrap();
        let bar = backend.open_bar(0).unwrap();
        backend.reset(ResetLevel::Hot).unwrap();
        assert_eq!(fake.state().hot_groups, Some(files));
        assert!(matches!(bar.read32(BarOffset::ZERO), Err(MmioError::Stale { .. })));
        assert!(!bus_master(&fake));
    }
}

#[test]
fn vfio_hot_reset_of_foreign_functions_is_refused_with_names() {
    for (interface, other) in [(VfioInterface::Group, 9), (VfioInterface::Iommufd, u32::MAX)] {
        let fake = Fake::new();
        fake.add_function("0000:65:00.1", "nvme", 9);
        let own = if interface == VfioInterface::Group { GROUP } else { 1 };
        fake.state().dependents = Some(vec![(own, 0x65, 0), (other, 0x65, 1), (own, 0x65, 8)]);
        let backend = fake.open(fake.options().interface(interface)).unwrap();
        let bar = backend.open_bar(0).unwrap();
        let error = backend.reset(ResetLevel::Hot).unwrap_err();
        let ResetError::NotOwned { others, .. } = &error else { panic!("{error}") };
        assert_eq!(others.len(), 2);
        assert!(error.to_string().contains("0000:65:00.1 (nvme), 0000:65:01.0 (no driver)"), "{error}");
        assert!(bar.read32(BarOffset::ZERO).is_ok(), "nothing was done");
        assert_eq!(fake.state().hot_groups, None);
        // No bridge above.
        fake.state().dependents = None;
        let level = ResetLevel::Hot;
        assert_eq!(backend.reset(level), Err(ResetError::Unsupported { level }));
    }
}

#[test]
fn vfio_device_vanished_closes_and_reopens() {
    for interface in BOTH {
        let fake = Fake::new();
        let backend = fake.open(fake.options().interface(interface)).unwrap();
        let bar = backend.open_bar(0).unwrap();
        let _interrupts = backend.enable_interrupts(2).unwrap();
        // Removed from the bus and from sysfs; every request fails.
        fake.set_config(0, &[0xFF; 64]);
        let aside = fake.sysfs("aside");
        std::fs::rename(fake.sysfs(ADDRESS), &aside).unwrap();
        for request in [Request::SetIrqs, Request::Reset, Request::HotResetInfo] {
            fake.fail(Call::Request(request), Errno::NODEV);
        }
        bar.write32(BarOffset::ZERO, u32::MAX).unwrap();
        assert!(matches!(bar.read32(BarOffset::ZERO), Err(MmioError::Gone { .. })));
        assert!(matches!(backend.reset(ResetLevel::Hot), Err(ResetError::Unsupported { .. })));
        assert!(matches!(backend.set_bus_master(true), Err(ConfigSpaceError::Gone)));
        drop((backend, bar));
        assert_eq!(fake.open_files(), 0);
        let gone = fake.open(fake.options().interface(interface)).unwrap_err();
        assert!(matches!(gone, VfioOpenError::NotPresent { .. }));
        std::fs::rename(aside, fake.sysfs(ADDRESS)).unwrap();
        let unanswered = fake.open(fake.options().interface(interface)).unwrap_err();
        assert!(
            matches!(unanswered, VfioOpenError::Config { source: ConfigSpaceError::Gone, .. }),
            "{unanswered}"
        );
        fake.set_config(0, &[0xEE, 0x10, 0x38, 0x90, 0x02, 0, 0x10, 0]);
        fake.state().failures.clear();
        assert!(fake.open(fake.options().interface(interface)).unwrap().open_bar(0).is_ok());
        assert_eq!(fake.open_files(), 0);
    }
}
