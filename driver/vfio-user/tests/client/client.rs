//! The client with a correct server.

use std::sync::Arc;

use fpga_pci::{
    Backend, BarError, BarKind, ConfigSpaceError, ConnectionError, DeviceEvent, DmaAccess, DmaMapError,
    DmaPool, DmaPoolOptions, HugePages, InterruptError, MmioError, ResetError, ResetLevel, ServerError,
    SharedMemory, config,
};
use fpga_registers::{BarOffset, Iova};
use fpga_vfio_user::wire::{Command, SparseArea, Version, dma_map_flags, region};
use fpga_vfio_user::{VfioUserBackend, VfioUserOpenError, VfioUserOptions};

use crate::alone;
use crate::server::{BAR, Device, LONG_TIMEOUT, Server, ServerFault, ServerRequest};

const COMMAND: usize = 4;
const MEMORY: u8 = 2;
const MASTER: u8 = 4;

fn open(server: &Server) -> VfioUserBackend {
    VfioUserBackend::open_with(&server.path, VfioUserOptions::default().deadline(LONG_TIMEOUT)).unwrap()
}

#[test]
fn client_device_open_use_close() {
    let _alone = alone();
    let server = Server::start(Device { config: bus_master_left_on(), ..Device::default() });
    let backend = open(&server);
    // As a kernel hands it over: memory decoding on, bus mastering off, independent of the previous state.
    assert_eq!(server.with(|device| device.config[COMMAND]), MEMORY);
    assert!(backend.name().starts_with("vfio-user:/"));
    let bars = backend.bars();
    assert_eq!(bars[0].map(|bar| (bar.size, bar.kind)), Some((BAR as u64, BarKind::Memory64)));
    assert!(bars[1..].iter().all(Option::is_none));
    assert_eq!(config::identity(&backend).unwrap(), (0x10EE, 0x9038));
    let beyond = backend.config_read(254, &mut [0; 4]);
    assert_eq!(beyond, Err(ConfigSpaceError::OutOfRange { at: 254, length: 4, size: 256 }));

    let bar = backend.open_bar(0).unwrap();
    assert_eq!(bar.read32(BarOffset::new(4)).unwrap(), 0x0706_0504);
    assert_eq!(bar.read64(BarOffset::new(8)).unwrap(), 0x0F0E_0D0C_0B0A_0908);
    bar.write32(BarOffset::new(16), 0x1122_3344).unwrap();
    bar.write64(BarOffset::new(24), 5).unwrap();
    // A read waits for the preceding writes.
    assert_eq!(bar.read32(BarOffset::new(16)).unwrap(), 0x1122_3344);
    let writes = server.with(|device| device.writes.split_off(device.writes.len() - 2));
    let written = |at, bytes: &[u8]| (region::BAR0, at, bytes.to_vec());
    assert_eq!(writes, [written(16, &[0x44, 0x33, 0x22, 0x11]), written(24, &5_u64.to_le_bytes())]);
    // Blocks are words, one message each.
    let mut block = [0; 12];
    bar.read_block(BarOffset::new(4), &mut block).unwrap();
    assert_eq!(block, [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    let (at, width, end) = (BarOffset::new(BAR as u64), 4, BAR as u64);
    assert_eq!(bar.read32(at), Err(MmioError::OutOfRange { at, width, end }));
    assert!(matches!(bar.read32(BarOffset::new(2)), Err(MmioError::Misaligned { .. })));
    assert!(matches!(backend.open_bar(1), Err(BarError::Absent { index: 1 })));
    assert!(matches!(backend.open_bar(6), Err(BarError::BadIndex { index: 6 })));

    backend.set_bus_master(true).unwrap();
    assert_eq!(server.with(|device| device.config[COMMAND]), MEMORY | MASTER);
    drop(backend);
    assert_eq!(server.with(|device| device.config[COMMAND]), MEMORY);
    let left = bar.read32(BarOffset::new(0)).unwrap_err();
    assert!(
        matches!(
            left,
            MmioError::Server {
                source: ServerError::Disconnected { cause: ConnectionError::ClosedLocally, .. },
                ..
            }
        ),
        "{left}"
    );
    server.finish();
}

/// A read that the server answers late holds up nothing of other threads, and gets its own reply.
#[test]
fn client_requests_pass_outstanding_read() {
    let _alone = alone();
    let server = Server::start(Device::default());
    let backend = open(&server);
    let bar = backend.open_bar(0).unwrap();
    server.with(|device| device.twist = Some((Command::REGION_READ, ServerFault::HoldReply)));
    std::thread::scope(|scope| {
        let late = scope.spawn(|| bar.read32(BarOffset::new(4)));
        while server.with(|device| device.held.is_none()) {
            std::thread::yield_now();
        }
        // Reads, writes and requests of other kinds, of this thread and another one.
        for _ in 0..2 {
            assert_eq!(config::identity(&backend).unwrap(), (0x10EE, 0x9038));
            assert_eq!(bar.read32(BarOffset::new(8)).unwrap(), 0x0B0A_0908);
            bar.write32(BarOffset::new(16), 7).unwrap();
            let other = scope.spawn(|| bar.read32(BarOffset::new(12)));
            assert_eq!(other.join().unwrap(), Ok(0x0F0E_0D0C));
            backend.reset(ResetLevel::Hot).unwrap_err();
        }
        assert!(!late.is_finished());
        server.with(Device::send_held);
        assert_eq!(late.join().unwrap(), Ok(0x0706_0504));
    });
    drop((bar, backend));
    server.finish();
}

/// Threads with requests outstanding at the same time each get their own replies.
#[test]
fn client_threads_get_their_own_replies() {
    let _alone = alone();
    let server = Server::start(Device::default());
    let backend = open(&server);
    let bar = backend.open_bar(0).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let bar = &bar;
            scope.spawn(move || {
                for round in 0..400_u32 {
                    let at = 64 * thread + 4 * u8::try_from(round % 16).unwrap();
                    let value = u32::from_le_bytes([at, at + 1, at + 2, at + 3]);
                    assert_eq!(bar.read32(BarOffset::new(at.into())), Ok(value));
                }
            });
        }
    });
    drop((bar, backend));
    server.finish();
}

fn bus_master_left_on() -> Vec<u8> {
    let mut config = Device::default().config;
    config[COMMAND] = MASTER;
    config
}

#[test]
fn client_memory_is_shared_with_rights_and_offset() {
    let _alone = alone();
    let server = Server::start(Device::default());
    let backend = open(&server);
    let memory = SharedMemory::memfd("fpga-dma", 8192).unwrap();
    memory.write(4096, b"seen by both").unwrap();
    let iova = Iova::new(0x10_0000);
    backend.map_dma(iova, &memory, DmaAccess::ReadByDevice).unwrap();
    let (flags, seen) = server.with(|device| {
        let (map, file) = device.maps.get_mut(&0x10_0000).unwrap();
        let file = file.take().unwrap();
        let seen = SharedMemory::from_file(file, map.offset, usize::try_from(map.size).unwrap()).unwrap();
        (map.flags, seen)
    });
    assert_eq!(flags, dma_map_flags::READ);
    let mut bytes = [0; 12];
    seen.read(4096, &mut bytes).unwrap();
    assert_eq!(&bytes, b"seen by both");

    // A part of a file: the server receives its offset.
    let part = SharedMemory::from_file(memory.file().unwrap().try_clone_to_owned().unwrap(), 4096, 4096);
    let part = part.unwrap();
    let other = Iova::new(0x20_0000);
    backend.map_dma(other, &part, DmaAccess::WriteByDevice).unwrap();
    let map = server.with(|device| device.maps[&0x20_0000].0);
    assert_eq!((map.offset, map.size, map.flags), (4096, 4096, dma_map_flags::WRITE));

    let length = 4096;
    let overlap = backend.map_dma(Iova::new(0x10_1000), &part, DmaAccess::Both);
    assert_eq!(overlap, Err(DmaMapError::Overlap { iova: Iova::new(0x10_1000), length }));
    let misaligned = backend.map_dma(Iova::new(0x800), &part, DmaAccess::Both);
    assert!(matches!(misaligned, Err(DmaMapError::Misaligned { .. })));
    for outside in [0, 1 << 48, u64::MAX - 4095] {
        let refused = backend.map_dma(Iova::new(outside), &part, DmaAccess::Both);
        assert!(matches!(refused, Err(DmaMapError::OutsideRanges { .. })), "{outside:#x}: {refused:?}");
    }
    assert_eq!(backend.unmap_dma(iova, length), Err(DmaMapError::NotMapped { iova, length }));
    backend.unmap_dma(iova, 8192).unwrap();
    backend.unmap_dma(other, length).unwrap();
    assert!(server.with(|device| device.maps.is_empty()));
    drop(backend);
    server.finish();
}

#[test]
fn client_pool_uses_shareable_memory() {
    let _alone = alone();
    let server = Server::start(Device::default());
    let backend: Arc<dyn Backend> = Arc::new(open(&server));
    let pool = DmaPool::new(Arc::clone(&backend), DmaPoolOptions::default());
    let buffer = pool.allocate(100).unwrap();
    assert!(server.with(|device| device.maps.values().all(|(_, file)| file.is_some())));
    drop((buffer, pool, backend));
    server.finish();
}

#[test]
fn client_mapping_limit_is_respected() {
    let _alone = alone();
    let mut device = Device::default();
    device.version.capabilities.max_dma_maps = Some(1);
    let server = Server::start(device);
    let backend = open(&server);
    let memory = SharedMemory::memfd("fpga-dma", 4096).unwrap();
    backend.map_dma(Iova::new(0x1000), &memory, DmaAccess::Both).unwrap();
    let second = backend.map_dma(Iova::new(0x9000), &memory, DmaAccess::Both);
    assert!(matches!(second, Err(DmaMapError::LimitReached { .. })), "{second:?}");
    drop(backend);
    server.finish();
}

/// Memory without a file: accessed by messages, at any time, within its rights and its bounds.
#[test]
fn client_memory_without_file_is_served_by_messages() {
    let _alone = alone();
    let server = Server::start(Device::default());
    let backend = open(&server);
    let [source, target] = [1, 2].map(|_| SharedMemory::anonymous(4096, HugePages::No).unwrap());
    source.write(4090, b"abcdef").unwrap();
    backend.map_dma(Iova::new(0x10_0000), &source, DmaAccess::ReadByDevice).unwrap();
    // Adjacent: one transfer may span both.
    backend.map_dma(Iova::new(0x10_1000), &target, DmaAccess::Both).unwrap();
    let ask = |questions: &[ServerRequest]| {
        server.with(|device| device.questions = questions.to_vec());
        config::identity(&backend).unwrap();
        server.with(|device| std::mem::take(&mut device.answers))
    };
    let read = |address, count| ServerRequest::Read(address, count);
    assert_eq!(ask(&[read(0x10_0FFA, 8)]), [Ok(b"abcdef\0\0".to_vec())]);
    assert_eq!(ask(&[ServerRequest::Write(0x10_1000, b"xyz".to_vec())]), [Ok(Vec::new())]);
    let mut bytes = [0; 3];
    target.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"xyz");
    let (fault, access, unsupported) = (14, 13, 95);
    let refused = ask(&[
        read(0x10_1FFF, 2),
        read(0x20_0000, 1),
        read(u64::MAX, 2),
        ServerRequest::Write(0x10_0FFF, vec![1; 2]),
        ServerRequest::Write(0x10_1FFF, vec![9; 2]),
        ServerRequest::Unknown,
    ]);
    let errors = [fault, fault, fault, access, fault, unsupported].map(Err);
    assert_eq!(refused, errors);
    // A write that would only partly succeed changes nothing.
    let mut last = [0; 1];
    target.read(4095, &mut last).unwrap();
    assert_eq!(last, [0]);
    drop(backend);
    server.finish();
}

#[test]
fn client_interrupts_arrive_and_end() {
    let _alone = alone();
    let server = Server::start(Device::default());
    let backend = open(&server);
    assert_eq!(backend.interrupt_vectors(), 8);
    assert!(matches!(backend.enable_interrupts(9), Err(InterruptError::TooMany { asked: 9, available: 8 })));
    assert!(backend.enable_interrupts(0).is_err());
    let interrupts = backend.enable_interrupts(7).unwrap();
    assert!(matches!(backend.enable_interrupts(1), Err(InterruptError::AlreadyEnabled)));
    // The server accepts three descriptors at a time.
    assert_eq!(server.with(|device| (device.irqs.len(), device.max_fds_seen)), (7, 3));
    for (vector, interrupt) in interrupts.iter().enumerate() {
        server.with(|device| {
            let file = &device.irqs[&u32::try_from(vector).unwrap()];
            rustix::io::write(file, &1_u64.to_ne_bytes()).unwrap();
        });
        assert_eq!(backend.wait_interrupt(interrupt, LONG_TIMEOUT).unwrap(), Some(1));
    }
    backend.disable_interrupts().unwrap();
    assert!(server.with(|device| device.irqs.is_empty()));
    backend.disable_interrupts().unwrap();
    assert_eq!(backend.enable_interrupts(1).unwrap().len(), 1);
    drop(backend);
    server.finish();
}

#[test]
fn client_device_without_interrupts_has_none() {
    let _alone = alone();
    let server = Server::start(Device { vectors: 0, ..Device::default() });
    let backend = open(&server);
    assert_eq!(backend.interrupt_vectors(), 0);
    let refused = backend.enable_interrupts(1);
    assert!(matches!(refused, Err(InterruptError::TooMany { asked: 1, available: 0 })));
    drop(backend);
    server.finish();
}

#[test]
fn client_intx_only_device_is_unmasked_by_message() {
    let _alone = alone();
    let server = Server::start(Device { vectors: 0, line: true, ..Device::default() });
    let backend = open(&server);
    assert_eq!(backend.interrupt_vectors(), 1);
    let line = backend.enable_interrupts(1).unwrap();
    let fire = || {
        server.with(|device| rustix::io::write(&device.irqs[&0], &1_u64.to_ne_bytes()).unwrap());
    };
    for round in 1..=2 {
        fire();
        assert_eq!(backend.wait_interrupt(&line[0], LONG_TIMEOUT).unwrap(), Some(1));
        assert_eq!(server.with(|device| device.unmasked), round - 1, "only once it is asked for");
        line[0].rearm();
        assert_eq!(server.with(|device| device.unmasked), round);
    }
    // Users of the line may outlive the device.
    let users = line[0].clone().share(2).unwrap();
    backend.disable_interrupts().unwrap();
    drop(backend);
    users[1].rearm();
    server.finish();
}

#[test]
fn client_release_request_is_reported() {
    let _alone = alone();
    let server = Server::start(Device { wanted_back: true, ..Device::default() });
    let backend = open(&server);
    let events = backend.events().unwrap();
    assert!(events.can_have(DeviceEvent::ReleaseRequested) && !events.can_have(DeviceEvent::BusError));
    assert_eq!(events.poll(), None);
    let signal =
        || server.with(|device| rustix::io::write(device.request.as_ref().unwrap(), &1_u64.to_ne_bytes()));
    signal().unwrap();
    assert_eq!(events.wait(LONG_TIMEOUT), Ok(Some(DeviceEvent::ReleaseRequested)));
    // A reset may lose the descriptor; it is passed again.
    server.with(|device| device.request = None);
    backend.reset(ResetLevel::Function).unwrap();
    signal().unwrap();
    assert_eq!(events.wait(LONG_TIMEOUT), Ok(Some(DeviceEvent::ReleaseRequested)));
    drop((backend, events));
    server.finish();
}

#[test]
fn client_reset_makes_handles_stale() {
    let _alone = alone();
    let server = Server::start(Device::default());
    let backend = open(&server);
    let bar = backend.open_bar(0).unwrap();
    backend.set_bus_master(true).unwrap();
    let _interrupts = backend.enable_interrupts(2).unwrap();
    assert_eq!(backend.reset(ResetLevel::Hot), Err(ResetError::Unsupported { level: ResetLevel::Hot }));
    backend.reset(ResetLevel::Function).unwrap();
    assert_eq!(server.with(|device| (device.resets, device.config[COMMAND])), (1, MEMORY));
    assert!(server.with(|device| device.irqs.is_empty()));
    let at = BarOffset::new(0);
    assert_eq!(bar.read32(at), Err(MmioError::Stale { at }));
    assert_eq!(bar.write32(at, 0), Err(MmioError::Stale { at }));
    backend.open_bar(0).unwrap().read32(at).unwrap();
    assert_eq!(backend.enable_interrupts(2).unwrap().len(), 2);
    drop(backend);
    server.finish();

    let server = Server::start(Device { flags: 2, ..Device::default() });
    let backend = open(&server);
    let level = ResetLevel::Function;
    assert_eq!(backend.reset(level), Err(ResetError::Unsupported { level }));
    drop(backend);
    server.finish();
}

/// The second page of the BAR is shared memory; the rest is accessed by messages.
#[test]
fn client_shareable_bar_parts_are_mapped() {
    // Only a program that catches bus errors gets a mapping that may raise them.
    fpga_pci::catch_bus_errors().unwrap();
    let _alone = alone();
    let memory = SharedMemory::memfd("bar", 3 * 4096).unwrap();
    memory.store_u32(4096 + 8, 0xCAFE).unwrap();
    let server = Server::start(Device { shared: Some(memory.clone()), ..Device::default() });
    let backend = open(&server);
    let bar = backend.open_bar(0).unwrap();
    assert_eq!(bar.read32(BarOffset::new(4096 + 8)).unwrap(), 0xCAFE);
    bar.write64(BarOffset::new(4096 + 16), 77).unwrap();
    assert_eq!(memory.load_u64(4096 + 16).unwrap(), 77);
    assert_eq!(bar.read32(BarOffset::new(4)).unwrap(), 0x0706_0504, "not in the shared part");
    assert_eq!(bar.read32(BarOffset::new(8192)).unwrap(), 0x0302_0100);
    drop(backend);
    // The former mapping no longer represents registers.
    assert!(bar.read32(BarOffset::new(4096 + 8)).unwrap_err().is_gone());
    server.finish();
}

/// Memory that cannot be mapped safely is accessed by messages.
#[test]
fn client_unsafe_bar_parts_are_not_mapped() {
    let _alone = alone();
    let unsealed = {
        let file = rustix::fs::memfd_create("bar", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 3 * 4096).unwrap();
        SharedMemory::from_file(file, 0, 3 * 4096).unwrap()
    };
    let sealed = |pages: usize| SharedMemory::memfd("bar", pages * 4096).unwrap();
    let area = |offset, size| Some(vec![SparseArea { offset, size }]);
    for (shared, sparse) in [
        (unsealed, None),
        (sealed(1), None),
        (sealed(3), area(4096, 1 << 40)),
        (sealed(3), area(u64::MAX - 4095, 4096)),
        (sealed(3), area(4000, 96)),
        (sealed(3), area(0, 0)),
        (sealed(3), Some(Vec::new())),
    ] {
        let server =
            Server::start(Device { shared: Some(shared), sparse: sparse.clone(), ..Device::default() });
        let backend = open(&server);
        let bar = backend.open_bar(0).unwrap();
        assert_eq!(bar.read32(BarOffset::new(4096 + 4)).unwrap(), 0x0706_0504, "{sparse:?}");
        drop(backend);
        server.finish();
    }
}

/// All ones are verified in configuration space: they may be a value, or the sign of a removed device.
#[test]
fn client_all_ones_is_value_only_while_config_space_answers() {
    let _alone = alone();
    let mut device = Device::default();
    device.bar[..8].fill(0xFF);
    let server = Server::start(device);
    let backend = open(&server);
    let bar = backend.open_bar(0).unwrap();
    let at = BarOffset::new(0);
    assert_eq!(bar.read32(at), Ok(u32::MAX));
    server.with(|device| device.config.fill(0xFF));
    assert_eq!(bar.read32(at), Err(MmioError::Gone { at }));
    assert_eq!(bar.read64(at), Err(MmioError::Gone { at }));
    drop(backend);
    server.finish();
}

#[test]
fn client_unusable_server_is_refused_by_reason() {
    let _alone = alone();
    let with_version = |change: &dyn Fn(&mut Version)| {
        let mut device = Device::default();
        change(&mut device.version);
        device
    };
    let mut gone = Device::default();
    gone.config.fill(0xFF);
    let cases: [(Device, &str); 10] = [
        (with_version(&|version| version.major = 1), "speaks version 1.1"),
        (with_version(&|version| version.minor = 2), "speaks version 0.2"),
        (with_version(&|version| version.capabilities.max_msg_fds = Some(0)), "max_msg_fds = 0"),
        (
            with_version(&|version| version.capabilities.max_data_xfer_size = Some(4)),
            "max_data_xfer_size = 4",
        ),
        (with_version(&|version| version.capabilities.max_dma_maps = Some(0)), "max_dma_maps = 0"),
        (with_version(&|version| version.capabilities.pgsizes = Some(0)), "pgsizes = 0"),
        (Device { flags: 1, ..Device::default() }, "does not call itself one"),
        (Device { regions: 7, ..Device::default() }, "no configuration space"),
        (Device { config: vec![0; 64], ..Device::default() }, "neither 256 nor 4096"),
        (gone, "configuration space"),
    ];
    for (device, part) in cases {
        let server = Server::start(device);
        let error = VfioUserBackend::open(&server.path).expect_err(part);
        assert!(error.to_string().contains(part), "{part}: {error}");
        server.finish();
    }
    let twist = Some((Command::VERSION, crate::server::ServerFault::Refuse(16)));
    let server = Server::start(Device { twist, ..Device::default() });
    let busy = VfioUserBackend::open(&server.path).unwrap_err();
    assert!(matches!(&busy, VfioUserOpenError::Busy { socket } if *socket == server.path), "{busy}");
    server.finish();
    let nowhere = VfioUserBackend::open(std::path::Path::new("/nonexistent/card.sock")).unwrap_err();
    assert!(matches!(nowhere, VfioUserOpenError::Connect(_)), "{nowhere}");
}

/// A server may announce a smaller limit than the size of a register access.
#[test]
fn client_transfers_respect_server_limit() {
    let _alone = alone();
    let mut device = Device::default();
    device.version.capabilities.max_data_xfer_size = Some(8);
    let server = Server::start(device);
    let backend = open(&server);
    let mut all = [0; 256];
    backend.config_read(0, &mut all).unwrap();
    assert_eq!(&all[..], server.with(|device| device.config.clone()));
    drop(backend);
    server.finish();
}

#[test]
fn client_refusal_is_reported_and_connection_continues() {
    let _alone = alone();
    let server = Server::start(Device::default());
    let backend = open(&server);
    let refuse =
        |command| server.with(|device| device.twist = Some((command, crate::server::ServerFault::Refuse(5))));
    let io = |command: Command| ServerError::Refused {
        request: command.name().unwrap(),
        source: fpga_pci::OsError::from_raw(5),
    };
    let bar = backend.open_bar(0).unwrap();
    let at = BarOffset::new(0);
    refuse(Command::REGION_READ);
    let refused = bar.read32(at);
    assert_eq!(refused, Err(MmioError::Server { at, source: io(Command::REGION_READ) }));
    assert!(!refused.unwrap_err().is_gone());
    bar.read32(at).unwrap();

    let memory = SharedMemory::memfd("fpga-dma", 4096).unwrap();
    let (iova, length) = (Iova::new(0x1000), 4096);
    refuse(Command::DMA_MAP);
    let source = io(Command::DMA_MAP);
    assert_eq!(
        backend.map_dma(iova, &memory, DmaAccess::Both),
        Err(DmaMapError::Server { iova, length, source })
    );
    backend.map_dma(iova, &memory, DmaAccess::Both).unwrap();
    refuse(Command::DMA_UNMAP);
    let source = io(Command::DMA_UNMAP);
    assert_eq!(backend.unmap_dma(iova, length), Err(DmaMapError::Server { iova, length, source }));
    backend.unmap_dma(iova, length).unwrap();

    refuse(Command::DEVICE_SET_IRQS);
    let refused = backend.enable_interrupts(5);
    assert!(matches!(refused, Err(InterruptError::Server { count: 5, .. })), "{refused:?}");
    assert!(server.with(|device| device.irqs.is_empty()), "no interrupt is partly set up");
    backend.enable_interrupts(5).unwrap();

    refuse(Command::DEVICE_RESET);
    let level = ResetLevel::Function;
    let source = io(Command::DEVICE_RESET);
    assert_eq!(backend.reset(level), Err(ResetError::Server { level, source }));
    drop(backend);
    server.finish();
}
