//! The client with a foreign server: the crate `vfio_user`.

use std::fs::File;
use std::io::{Error, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use fpga_pci::{Backend, DmaAccess, ResetLevel, SharedMemory, config};
use fpga_registers::{BarOffset, Iova};
use fpga_vfio_user::{VfioUserBackend, VfioUserOptions};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion};

use crate::alone;
use crate::server::LONG_TIMEOUT;

const BAR: usize = 4096;

#[derive(Default)]
struct Device {
    config: Vec<u8>,
    bar: Vec<u8>,
    resets: u32,
    irqs: Vec<File>,
    memory: Option<(u64, SharedMemory)>,
}

struct ForeignServer(Arc<Mutex<Device>>);

impl ForeignServer {
    fn with(&self, region: u32, offset: u64, length: usize, f: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        let mut device = self.0.lock().unwrap();
        let bytes = if region == 7 { &mut device.config } else { &mut device.bar };
        let start = usize::try_from(offset).unwrap();
        let part = bytes.get_mut(start..start + length).ok_or_else(|| Error::from_raw_os_error(22))?;
        f(part);
        Ok(())
    }
}

impl ServerBackend for ForeignServer {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        self.with(region, offset, data.len(), |part| data.copy_from_slice(part))
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.with(region, offset, data.len(), |part| part.copy_from_slice(data))
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> Result<(), Error> {
        assert_eq!(flags, DmaMapFlags::READ_WRITE);
        let file = file.ok_or_else(|| Error::from_raw_os_error(22))?;
        let memory = SharedMemory::from_file(file.into(), offset, usize::try_from(size).unwrap()).unwrap();
        self.0.lock().unwrap().memory = Some((address, memory));
        Ok(())
    }

    fn dma_unmap(&mut self, _flags: DmaUnmapFlags, _address: u64, _size: u64) -> Result<(), Error> {
        self.0.lock().unwrap().memory = None;
        Ok(())
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.0.lock().unwrap().resets += 1;
        Ok(())
    }

    fn set_irqs(
        &mut self,
        _index: u32,
        _flags: u32,
        _start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> Result<(), Error> {
        let mut device = self.0.lock().unwrap();
        if count == 0 {
            device.irqs.clear();
        }
        device.irqs.extend(fds);
        Ok(())
    }
}

fn serve(path: &Path, device: &Arc<Mutex<Device>>) -> std::thread::JoinHandle<()> {
    let size = |index| match index {
        0 => BAR as u64,
        7 => 256,
        _ => 0,
    };
    let regions = (0..9).map(|index| ServerRegion {
        region_info: vfio_region_info {
            argsz: 32,
            index,
            size: size(index),
            flags: VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE,
            ..Default::default()
        },
        sparse_areas: Vec::new(),
        mmap_fd: None,
    });
    let irqs = (0..5).map(|index| IrqInfo {
        index,
        flags: VFIO_IRQ_INFO_EVENTFD,
        count: if index == 2 { 4 } else { 0 },
    });
    let server = Server::new(path, true, irqs.collect(), regions.collect()).unwrap();
    let mut backend = ForeignServer(Arc::clone(device));
    std::thread::spawn(move || {
        // Ends with its own error when the client disconnects.
        let _ = server.run(&mut backend);
    })
}

#[test]
fn foreign_server_serves_client() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("foreign.sock");
    let mut configuration = vec![0; 256];
    configuration[..4].copy_from_slice(&[0xEE, 0x10, 0x38, 0x90]);
    let device = Device { config: configuration, bar: vec![0; BAR], ..Device::default() };
    let device = Arc::new(Mutex::new(device));
    let server = serve(&path, &device);

    let backend =
        VfioUserBackend::open_with(&path, VfioUserOptions::default().deadline(LONG_TIMEOUT)).unwrap();
    assert_eq!(config::identity(&backend).unwrap(), (0x10EE, 0x9038));
    let bar = backend.open_bar(0).unwrap();
    let at = BarOffset::new(0x40);
    bar.write32(at, 0xABCD).unwrap();
    assert_eq!(bar.read32(at).unwrap(), 0xABCD);
    bar.write64(at, 0x1_0000_0002).unwrap();
    assert_eq!(bar.read64(at).unwrap(), 0x1_0000_0002);

    let memory = SharedMemory::memfd("fpga-dma", 8192).unwrap();
    memory.store_u32(4096, 7).unwrap();
    backend.map_dma(Iova::new(0x10_0000), &memory, DmaAccess::Both).unwrap();
    {
        let device = device.lock().unwrap();
        let (address, seen) = device.memory.as_ref().unwrap();
        assert_eq!((*address, seen.load_u32(4096).unwrap()), (0x10_0000, 7));
        seen.store_u32(0, 9).unwrap();
    }
    assert_eq!(memory.load_u32(0).unwrap(), 9);
    backend.unmap_dma(Iova::new(0x10_0000), 8192).unwrap();

    let interrupts = backend.enable_interrupts(3).unwrap();
    let triggers = std::mem::take(&mut device.lock().unwrap().irqs);
    assert_eq!(triggers.len(), 3);
    for (interrupt, mut trigger) in interrupts.iter().zip(&triggers) {
        trigger.write_all(&1_u64.to_ne_bytes()).unwrap();
        assert_eq!(backend.wait_interrupt(interrupt, LONG_TIMEOUT).unwrap(), Some(1));
    }
    backend.disable_interrupts().unwrap();
    backend.reset(ResetLevel::Function).unwrap();
    assert_eq!(device.lock().unwrap().resets, 1);
    drop(backend);
    server.join().unwrap();
}
