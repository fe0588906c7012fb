//! Mapped registers of a process.
//!
//! Nothing is remembered between two accesses: the kernel is asked at each of them, since the program may have unmapped, moved or replaced
//! the mapping, in any of its threads.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;

use rustix::ioctl::opcode;

use crate::files::{Files, Inode, Object};
use crate::node::DeviceFile;

/// Mapping that contains an address (`struct procmap_query`, `linux/fs.h`, Linux 6.11).
#[repr(C)]
#[derive(Debug, Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    major: u32,
    minor: u32,
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const QUERY: rustix::ioctl::Opcode = opcode::read_write::<Query>(b'f', 17);

/// Registers mapped at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapped {
    /// First address.
    start: u64,
    /// Address behind the last byte.
    end: u64,
    /// Offset of the first byte in the BAR.
    offset: u64,
    pub(super) file: DeviceFile,
}

impl Mapped {
    /// Registers mapped at `address` in the process of `thread`, which has stopped.
    pub(super) fn find(thread: i32, files: &Files, address: u64) -> Option<Self> {
        let mut maps = File::open(format!("/proc/{thread}/maps")).ok()?;
        let mut query = Query { size: size_of::<Query>() as u64, address, ..Query::default() };
        // SAFETY: the kernel reads and writes one structure of the size that it contains.
        let found = unsafe { libc::ioctl(maps.as_raw_fd(), QUERY.into(), &raw mut query) };
        if found == 0 {
            let inode = Inode::new(query.major, query.minor, query.inode);
            let Query { start, end, offset, .. } = query;
            return Some(Self { start, end, offset, file: file_of(files, inode)? });
        }
        if std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT) {
            return None;
        }
        // An older kernel.
        let mut text = String::new();
        maps.read_to_string(&mut text).ok()?;
        let mapped = text.lines().filter_map(|line| parse(line, files));
        mapped.into_iter().find(|mapped| (mapped.start..mapped.end).contains(&address))
    }

    /// Offset in the BAR of the byte at `address`.
    pub(super) const fn offset_of(&self, address: u64) -> u64 {
        self.offset.wrapping_add(address.wrapping_sub(self.start))
    }

    /// Whether it contains `length` bytes at `address`.
    pub(super) fn contains(&self, address: u64, length: usize) -> bool {
        self.start <= address && address.checked_add(length as u64).is_some_and(|end| end <= self.end)
    }
}

/// One line: `start-end permissions offset device inode name`; all numbers but the inode in hexadecimal.
fn parse(line: &str, files: &Files) -> Option<Mapped> {
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let offset = hexadecimal(fields.nth(1)?)?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let inode = Inode::new(number(major)?, number(minor)?, fields.next()?.parse().ok()?);
    let file = file_of(files, inode)?;
    Some(Mapped { start: hexadecimal(start)?, end: hexadecimal(end)?, offset, file })
}

fn file_of(files: &Files, inode: Inode) -> Option<DeviceFile> {
    match files.of_inode(inode)? {
        Object::File(file) => Some(file),
        Object::Folder(_) => None,
    }
}
