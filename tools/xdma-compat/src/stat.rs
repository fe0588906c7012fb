//! File status of device files, and of the folders and links that belong to them: that of their stand-ins, as one of a character device.

use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, open};
use rustix::io::Errno;

use crate::files::{Files, Object};
use crate::listener::last_error;
use crate::memory::Memory;
use crate::node::{DeviceFile, Node};

/// Major number of the devices: the first of those for local use (Linux, `Documentation/admin-guide/devices.txt`).
const MAJOR: u32 = 240;
/// Inode number of a link, apart from that of its device file.
const LINK: u64 = 1 << 40;

/// Object of a status.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Object(Object),
    Link(DeviceFile),
    /// The folder of device files.
    Parent,
}

impl Kind {
    /// File that has its owner, mode and times.
    fn file(self, files: &Files) -> Result<Arc<OwnedFd>, Errno> {
        match self {
            Self::Object(object) => files.stand_in(object),
            Self::Link(file) => files.stand_in(Object::File(file)),
            Self::Parent => open("/dev", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map(Arc::new),
        }
    }

    /// Mode, number of links and length, for the stand-in's mode; `None`: the file's own.
    fn fields(self, mode: u32) -> Option<(u32, u32, u64)> {
        match self {
            Self::Object(Object::File(_)) => Some((libc::S_IFCHR | mode & 0o7777, 1, 0)),
            Self::Object(Object::Folder(_)) => Some((mode, 2, 0)),
            Self::Link(file) => Some((libc::S_IFLNK | 0o777, 1, file.link_target().len() as u64)),
            Self::Parent => None,
        }
    }

    /// Minor number of the device: different for all files of a card.
    fn device(self) -> Option<u32> {
        let Self::Object(Object::File(file)) = self else { return None };
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
        Some(u32::try_from(file.card).unwrap_or(0) * 256 + own)
    }
}

/// `stat`: writes the status to `address`.
pub(crate) fn write(memory: Memory<'_>, address: u64, files: &Files, kind: Kind) -> Result<u64, Errno> {
    let stand_in = kind.file(files)?;
    // SAFETY: the structure consists of integers.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: `status` is valid for a write.
    if unsafe { libc::fstat(stand_in.as_fd().as_raw_fd(), &raw mut status) } < 0 {
        return Err(last_error());
    }
    if let Some((mode, links, length)) = kind.fields(status.st_mode) {
        status.st_mode = mode;
        status.st_nlink = links.into();
        status.st_size = i64::try_from(length).unwrap_or(0);
        status.st_blocks = 0;
    }
    if let Some(minor) = kind.device() {
        status.st_rdev = libc::makedev(MAJOR, minor);
    }
    if matches!(kind, Kind::Link(_)) {
        status.st_ino |= LINK;
    }
    memory.write(address, bytes(&status))?;
    Ok(0)
}

/// `statx`: the same. The kernel checks `flags` and `mask`.
pub(crate) fn write_extended(
    memory: Memory<'_>,
    address: u64,
    files: &Files,
    kind: Kind,
    flags: u64,
    mask: u64,
) -> Result<u64, Errno> {
    let stand_in = kind.file(files)?;
    // SAFETY: the structure consists of integers.
    let mut status: libc::statx = unsafe { core::mem::zeroed() };
    let flags = i32::try_from(flags & 0x7FFF_FFFF).unwrap_or(0)
        & !AtFlags::SYMLINK_NOFOLLOW.bits().cast_signed()
        | AtFlags::EMPTY_PATH.bits().cast_signed();
    let mask = u32::try_from(mask & u64::from(u32::MAX)).unwrap_or(0);
    let result =
        // SAFETY: the empty path and `status` live during the call.
        unsafe { libc::statx(stand_in.as_fd().as_raw_fd(), c"".as_ptr(), flags, mask, &raw mut status) };
    if result < 0 {
        return Err(last_error());
    }
    if let Some((mode, links, length)) = kind.fields(status.stx_mode.into()) {
        // The type and the permissions have 16 bits.
        status.stx_mode = u16::try_from(mode).unwrap_or(0);
        status.stx_nlink = links;
        status.stx_size = length;
        status.stx_blocks = 0;
    }
    if let Some(minor) = kind.device() {
        (status.stx_rdev_major, status.stx_rdev_minor) = (MAJOR, minor);
    }
    if matches!(kind, Kind::Link(_)) {
        status.stx_ino |= LINK;
    }
    memory.write(address, bytes(&status))?;
    Ok(0)
}

/// `statfs`: that of the folder of device files.
pub(crate) fn write_file_system(memory: Memory<'_>, address: u64) -> Result<u64, Errno> {
    let path = CString::new("/dev").map_err(|_| Errno::INVAL)?;
    // SAFETY: the structure consists of integers.
    let mut status: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: the path and `status` live during the call.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut status) } < 0 {
        return Err(last_error());
    }
    memory.write(address, bytes(&status))?;
    Ok(0)
}

/// Bytes of a structure of the kernel's interface.
fn bytes<T>(value: &T) -> &[u8] {
    // SAFETY: all callers pass a structure that began as zeros in all its bytes, padding included.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) }
}
