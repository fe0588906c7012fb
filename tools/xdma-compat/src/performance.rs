//! The vendor driver's measurement of a channel (`IOCTL_XDMA_PERF_START`, `STOP`, `GET`): the channel repeats one transfer, while its
//! counters count clock and data cycles (PG195, "Performance Monitor Control").

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use fpga_driver::Direction;
use fpga_pci::Bar;
use fpga_registers::BarOffset;
use rustix::io::Errno;

use crate::device::Device;
use crate::layout::{half, put};
use crate::node::{DeviceFile, Node};
use crate::registers::error_number;

/// Bytes of `struct xdma_performance_ioctl`.
pub(crate) const RESULT_BYTES: usize = 40;
/// Version of that structure.
const VERSION: u32 = 1;
/// Maximum transfer size of the vendor's driver: 128 descriptors of 32 KiB.
const MAX_SIZE: u32 = 4 << 20;
/// Registers of a channel: control of the counters, and the counters (low word, high word).
const CONTROL: u64 = 0xC0;
const CLOCK: u64 = 0xC4;
const DATA: u64 = 0xCC;
/// Control: clear the counters; count, over the ends of runs.
const CLEAR: u32 = 1 << 1;
const RUN: u32 = 1 << 2;
/// Counted bits of the high word.
const HIGH: u32 = 0x3FF;

/// Measurements that run.
#[derive(Debug, Default)]
pub(crate) struct Measurements(Mutex<HashMap<DeviceFile, Measurement>>);

#[derive(Debug)]
struct Measurement {
    size: u32,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    iterations: AtomicU32,
}

impl Measurements {
    /// Starts a measurement with the program's structure `wanted`.
    ///
    /// # Errors
    /// As the vendor's driver: `EBUSY` while another one runs, `EINVAL` for another version or a size above 4 MiB.
    pub(crate) fn start(
        &self,
        devices: &Arc<[Device]>,
        file: DeviceFile,
        wanted: [u8; RESULT_BYTES],
    ) -> Result<(), Errno> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running.contains_key(&file) {
            return Err(Errno::BUSY);
        }
        let (version, size) = (half(&wanted, 0), half(&wanted, 4));
        if version != VERSION || size == 0 || size > MAX_SIZE {
            return Err(Errno::INVAL);
        }
        let device = devices.get(file.card).ok_or(Errno::NODEV)?;
        let (bar, base) = counters(device, file.node)?;
        for command in [CLEAR, RUN] {
            bar.write32(BarOffset::new(base + CONTROL), command).map_err(|error| error_number(&error))?;
        }
        let shared = Arc::new(Shared::default());
        let (devices, flags) = (Arc::clone(devices), Arc::clone(&shared));
        let thread = std::thread::Builder::new()
            .name("measurement".to_owned())
            .spawn(move || repeat(&devices, file, size, &flags));
        let thread = thread.map_err(|_| Errno::NOMEM)?;
        running.insert(file, Measurement { size, shared, thread });
        Ok(())
    }

    /// Results so far.
    ///
    /// # Errors
    /// `EPROTO` if none runs.
    pub(crate) fn get(&self, device: &Device, file: DeviceFile) -> Result<[u8; RESULT_BYTES], Errno> {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let measurement = running.get(&file).ok_or(Errno::PROTO)?;
        results(device, file.node, measurement, false)
    }

    /// Ends a measurement, and returns its results.
    ///
    /// # Errors
    /// `EINVAL` if none runs.
    pub(crate) fn stop(&self, device: &Device, file: DeviceFile) -> Result<[u8; RESULT_BYTES], Errno> {
        let removed = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&file);
        let measurement = removed.ok_or(Errno::INVAL)?;
        measurement.shared.ends.store(true, Ordering::Relaxed);
        let results = results(device, file.node, &measurement, true);
        // The channel is free for others only then.
        let _ = measurement.thread.join();
        results
    }
}

/// Repeats a transfer at card address 0 until the measurement ends.
fn repeat(devices: &[Device], file: DeviceFile, size: u32, shared: &Shared) {
    let Some(device) = devices.get(file.card) else { return };
    let Some(channel) = device.channel(file.node) else { return };
    while !shared.ends.load(Ordering::Relaxed) {
        if let Err(error) = channel.lock().channel.repeat(&device.card, size, device.timeout) {
            tracing::error!("{file}: the measurement ends: {error:?}");
            return;
        }
        shared.iterations.fetch_add(1, Ordering::Relaxed);
    }
}

/// The channel's counters, in the vendor's structure.
fn results(
    device: &Device,
    node: Node,
    measurement: &Measurement,
    stopped: bool,
) -> Result<[u8; RESULT_BYTES], Errno> {
    let (bar, base) = counters(device, node)?;
    let read = |at| bar.read32(BarOffset::new(base + at)).map_err(|error| error_number(&error));
    let counter = |at| Ok(u64::from(read(at + 4)? & HIGH) << 32 | u64::from(read(at)?));
    let mut bytes = [0; RESULT_BYTES];
    put(&mut bytes, 0, &VERSION.to_ne_bytes());
    put(&mut bytes, 4, &measurement.size.to_ne_bytes());
    put(&mut bytes, 8, &u32::from(stopped).to_ne_bytes());
    put(&mut bytes, 12, &measurement.shared.iterations.load(Ordering::Relaxed).to_ne_bytes());
    put(&mut bytes, 16, &u64::to_ne_bytes(counter(CLOCK)?));
    put(&mut bytes, 24, &u64::to_ne_bytes(counter(DATA)?));
    Ok(bytes)
}

/// DMA BAR, and offset of a channel's registers in it.
fn counters(device: &Device, node: Node) -> Result<(&Bar, u64), Errno> {
    let (direction, number) = match node {
        Node::H2c(number) => (Direction::H2c, number),
        Node::C2h(number) => (Direction::C2h, number),
        _ => return Err(Errno::NODEV),
    };
    let target = u64::from(direction == Direction::C2h);
    Ok((device.card.dma_bar(), target << 12 | u64::from(number) << 8))
}
