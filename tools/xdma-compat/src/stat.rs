//! File status of device files.

use rustix::io::Errno;

use crate::listener::Call;
use crate::memory::Memory;
use crate::node::{DeviceFile, Node};

/// A character device that everybody may read and write.
const MODE: u32 = libc::S_IFCHR | 0o666;
/// Major number of the devices: the first of those for local use (Linux, `Documentation/admin-guide/devices.txt`).
const MAJOR: u32 = 240;
/// Block size for `stdio`. Fields have other widths on other architectures.
const BLOCK: u16 = 4096;

/// Minor number: different for all files of a card.
fn minor(file: DeviceFile) -> u32 {
    let own = match file.node {
        Node::Control => 0,
        Node::User => 1,
        Node::Bypass => 2,
        Node::Events(line) => 16 + u32::from(line),
        Node::H2c(channel) => 32 + u32::from(channel),
        Node::C2h(channel) => 36 + u32::from(channel),
        Node::BypassOf(true, channel) => 64 + u32::from(channel),
        Node::BypassOf(false, channel) => 68 + u32::from(channel),
    };
    u32::try_from(file.card).unwrap_or(0) * 256 + own
}

/// `stat`: writes the status to `address`.
pub(crate) fn write(call: &Call, file: DeviceFile, address: u64) -> Result<u64, Errno> {
    // SAFETY: the structure consists of integers.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    status.st_mode = MODE;
    status.st_nlink = 1;
    status.st_rdev = libc::makedev(MAJOR, minor(file));
    status.st_ino = u64::from(minor(file)) + 1;
    status.st_blksize = BLOCK.into();
    Memory::of(call.thread).write(address, bytes(&status))?;
    Ok(0)
}

/// `statx`: the same.
pub(crate) fn write_extended(call: &Call, file: DeviceFile, address: u64) -> Result<u64, Errno> {
    // SAFETY: the structure consists of integers.
    let mut status: libc::statx = unsafe { core::mem::zeroed() };
    status.stx_mask = libc::STATX_BASIC_STATS;
    // The type and the permissions have 16 bits.
    status.stx_mode = u16::try_from(MODE).unwrap_or(0);
    status.stx_nlink = 1;
    status.stx_ino = u64::from(minor(file)) + 1;
    status.stx_rdev_major = MAJOR;
    status.stx_rdev_minor = minor(file);
    status.stx_blksize = BLOCK.into();
    Memory::of(call.thread).write(address, bytes(&status))?;
    Ok(0)
}

/// Bytes of a structure of the kernel's interface.
fn bytes<T>(value: &T) -> &[u8] {
    // SAFETY: both callers pass a structure that began as zeros in all its bytes, padding included.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) }
}
