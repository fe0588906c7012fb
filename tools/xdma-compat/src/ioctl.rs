//! `ioctl` on device files (`cdev_sgdma.h`, `cdev_ctrl.h` of the vendor's driver).

use fpga_pci::PciAddress;
use rustix::io::Errno;

use crate::device::Device;
use crate::files::OpenFile;
use crate::layout::{half, put, word};
use crate::listener::Call;
use crate::memory::{Memory, Part};
use crate::node::Node;
use crate::performance::RESULT_BYTES;
use crate::process::Wait;
use crate::registers::Access;
use crate::server::{Reply, Supervisor, Turn};

const PERFORMANCE_START: u64 = 0x4008_7101;
const PERFORMANCE_STOP: u64 = 0x4008_7102;
const PERFORMANCE_GET: u64 = 0x8008_7103;
const ADDRESS_MODE_SET: u64 = 0x4004_7104;
const ADDRESS_MODE_GET: u64 = 0x8004_7105;
const ALIGNMENT_GET: u64 = 0x8004_7106;
const APERTURE_READ: u64 = 0x4008_7107;
const APERTURE_WRITE: u64 = 0x4008_7108;
const INFO: u64 = 0xC028_7801;
const OFFLINE: u64 = 0x7802;
const ONLINE: u64 = 0x7803;
/// First word of a program's information request (`XDMA_XCL_MAGIC`).
const INFO_MAGIC: u32 = 0x586C_0C6C;
/// Bytes of `struct xdma_ioc_info` and of `struct xdma_aperture_ioctl`.
const INFO_BYTES: usize = 40;
const APERTURE_BYTES: usize = 48;
/// Version of the driver whose interface this is, 2025.2.0 (`DRV_MOD_VERSION_NUMBER`).
const DRIVER_VERSION: u32 = 2025 * 1000 + 2 * 100;

impl Supervisor {
    /// An `ioctl`.
    pub(crate) fn control(
        &self,
        call: &Call,
        open: &OpenFile,
        request: u64,
        address: u64,
        turn: &mut Turn<'_>,
    ) -> Result<u64, Errno> {
        let device = self.devices.get(open.file.card).ok_or(Errno::NODEV)?;
        // The kernel takes the low 32 bits.
        let request = request & u64::from(u32::MAX);
        match open.file.node {
            Node::H2c(_) | Node::C2h(_) => self.channel_control(call, device, open, request, address, turn),
            Node::Control | Node::User => register_control(self.memory(call), device, request, address),
            Node::Bypass | Node::BypassOf(..) | Node::Events(_) => Err(Errno::NOTTY),
        }
    }

    fn channel_control(
        &self,
        call: &Call,
        device: &Device,
        open: &OpenFile,
        request: u64,
        address: u64,
        turn: &mut Turn<'_>,
    ) -> Result<u64, Errno> {
        let channel = device.channel(open.file.node).ok_or(Errno::NODEV)?;
        let (memory, mut wait) = (self.memory(call), Wait::new(&self.listener, call));
        match request {
            PERFORMANCE_START => {
                let wanted: [u8; RESULT_BYTES] = memory.value(address)?;
                self.measurements.start(&self.devices, open.file, wanted)?;
            }
            PERFORMANCE_STOP => {
                // Waits for the transfer in progress.
                turn.give_up();
                memory.write(address, &self.measurements.stop(device, open.file)?)?;
            }
            PERFORMANCE_GET => memory.write(address, &self.measurements.get(device, open.file)?)?,
            ADDRESS_MODE_SET => {
                let fixed = i32::from_ne_bytes(memory.value(address)?) != 0;
                channel.lock_for(|| turn.give_up(), &mut wait)?.channel.set_fixed(fixed);
            }
            ADDRESS_MODE_GET => {
                let fixed = i32::from(channel.lock_for(|| turn.give_up(), &mut wait)?.channel.fixed);
                memory.write(address, &fixed.to_ne_bytes())?;
            }
            ALIGNMENT_GET => {
                let alignment = i32::from(device.alignment());
                memory.write(address, &alignment.to_ne_bytes())?;
            }
            APERTURE_READ => self.aperture(call, open, Access::Read, address, turn)?,
            APERTURE_WRITE => self.aperture(call, open, Access::Write, address, turn)?,
            _ => return Err(Errno::NOTTY),
        }
        Ok(0)
    }

    /// Transfer to a window of card addresses that starts again at its end (`xdma_xfer_aperture`).
    fn aperture(
        &self,
        call: &Call,
        open: &OpenFile,
        access: Access,
        at: u64,
        turn: &mut Turn<'_>,
    ) -> Result<(), Errno> {
        let memory = self.memory(call);
        let mut request: [u8; APERTURE_BYTES] = memory.value(at)?;
        let (base, buffer, length) = (word(&request, 0), word(&request, 16), word(&request, 24));
        let aperture = half(&request, 8);
        if aperture == 0 {
            return Err(Errno::INVAL);
        }
        let mut done = 0;
        let mut result = Ok(());
        while done < length {
            let piece = (length - done).min(u64::from(aperture));
            let part = Part { address: buffer.wrapping_add(done), length: piece };
            match self.transfer(call, open, access, &[part], Some(base), Reply::Later, turn) {
                Ok(moved) if moved > 0 => done += moved,
                Ok(_) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        // The program finds both in its structure: `error` at 32, `done` at 40.
        let error = result.err().map_or(0, |error| -error.raw_os_error());
        put(&mut request, 32, &error.to_ne_bytes());
        put(&mut request, 40, &done.to_ne_bytes());
        memory.write(at, &request)?;
        result
    }
}

/// `ioctl` on a file of registers.
fn register_control(memory: Memory<'_>, device: &Device, request: u64, address: u64) -> Result<u64, Errno> {
    match request {
        INFO => {
            if u32::from_ne_bytes(memory.value(address)?) != INFO_MAGIC {
                return Err(Errno::NOTTY);
            }
            memory.write(address, &information(device))?;
            Ok(0)
        }
        // The card stays with the supervisor.
        OFFLINE | ONLINE => Ok(0),
        _ => Err(Errno::NOTTY),
    }
}

/// `struct xdma_ioc_info`, as `version_ioctl` fills it.
fn information(device: &Device) -> [u8; INFO_BYTES] {
    let info = device.card.info();
    let mut bytes = [0; INFO_BYTES];
    put(&mut bytes, 8, &info.ids.vendor.to_ne_bytes());
    put(&mut bytes, 10, &info.ids.device.to_ne_bytes());
    put(&mut bytes, 12, &info.ids.subsystem.0.to_ne_bytes());
    put(&mut bytes, 14, &info.ids.subsystem.1.to_ne_bytes());
    put(&mut bytes, 20, &DRIVER_VERSION.to_ne_bytes());
    if let Ok(address) = device.card.name().parse::<PciAddress>() {
        put(&mut bytes, 32, &u16::try_from(address.domain()).unwrap_or(0).to_ne_bytes());
        put(&mut bytes, 34, &[address.bus(), address.device(), address.function()]);
    }
    bytes
}
