//! Memory behind mappings: memory of this process, or files that a client passed.
//!
//! A client's file is mapped once, as a whole, for all mappings that are parts of it: a guest's kernel with an IOMMU passes the same file
//! in each of its hundred thousand messages. Only a file that is sealed against shrinking is mapped: truncating a mapped file would end the
//! process that accesses it (SIGBUS). All other files are accessed by system calls, which return a short count if the file is too short.
//!
//! A sealed file of huge pages can still lose pages: its owner punches a hole, and the system may have no free page to fill it. With
//! [`fpga_pci::catch_bus_errors`], which the program may enable, accesses then read zeros or are refused; without it the process ends.

use crate::dma::blocks::SLOTS;
use core::fmt;
use fpga_pci::{DmaAccess, OsError, SharedMemory};
use fpga_registers::Iova;
use fpga_registers::invariant::DebugExpect as _;
use rustix::fs::{FileType, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Location of a mapping's bytes.
#[derive(Debug)]
pub(crate) enum Backing {
    /// Memory mapped in this process.
    Mapped(SharedMemory),
    /// File that could become shorter at any time.
    File(OwnedFd),
    /// Memory that only its owner can access.
    Remote(Arc<dyn RemoteMemory>),
    /// Unreachable memory: mapped without a file by a client that cannot be asked.
    Nothing,
}

/// Memory of another process, mapped without a file: its owner is asked for every access.
pub trait RemoteMemory: fmt::Debug + Send + Sync {
    /// Copies as many bytes as available from `at` on; returns the number of bytes.
    fn read(&self, at: Iova, into: &mut [u8]) -> usize;

    /// Writes as many bytes as accepted from `at` on; returns the number of bytes.
    fn write(&self, at: Iova, from: &[u8]) -> usize;

    /// Begins a unit of the card's work.
    fn begin_unit(&self) {}

    /// Returns whether the owner has used the time budget of this unit, so that the unit should end.
    fn is_budget_used(&self) -> bool {
        false
    }
}

/// Identity of a file as the kernel distinguishes files. Writable and read-only mappings of a file are separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    device: u64,
    inode: u64,
    writable: bool,
}

#[derive(Debug)]
struct Slot {
    backing: Backing,
    /// Number of mappings that are parts of it.
    uses: u64,
    /// File that this is the current mapping of.
    key: Option<FileKey>,
}

/// All memory behind the mappings of one card, by number.
#[derive(Debug, Default)]
pub(crate) struct Backings {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    files: HashMap<FileKey, u32>,
    /// Slot of the remote memory: all of it belongs to one owner.
    remote: Option<u32>,
    /// Slots that hold a file descriptor.
    open_files: usize,
    /// Whether the warning about a huge-page file that cannot be written was logged.
    huge_page_warning_sent: bool,
}

/// Reason why a client's file cannot be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file has fewer bytes than the message claims.
    #[error(
        "the file has {size:#x} bytes, but the mapping needs {length:#x} bytes from offset {offset:#x} on"
    )]
    TooShort {
        /// Size of the file in bytes.
        size: u64,
        /// Offset of the mapping's first byte.
        offset: u64,
        /// Length of the mapping in bytes.
        length: u64,
    },
    /// The descriptor is not a file: a directory, a device, a pipe, a socket.
    #[error("the descriptor is not one of a file that can be mapped")]
    NotAFile,
    /// The descriptor does not permit the requested access.
    #[error("the descriptor was not opened for {}", if *write { "writing" } else { "reading" })]
    NoAccess {
        /// Whether writing was requested.
        write: bool,
    },
    /// More files than the card can distinguish.
    #[error("{SLOTS} different files are already in use, which is the maximum")]
    TooMany,
    /// Too many files: each holds a descriptor of this process, which needs some for itself.
    #[error(
        "{limit} different files are already in use, half of this process's limit on open files; map fewer files, or raise the limit (ulimit -n)"
    )]
    TooManyOpen {
        /// Maximum number of files in use.
        limit: usize,
    },
    /// The system refused to map the file.
    #[error("the file cannot be mapped: {source}")]
    Refused {
        /// Error of the system.
        r#source: OsError,
    },
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> Self {
        Self::Refused { source: errno.into() }
    }
}

impl Backing {
    /// Copies as many bytes as available; returns the number of bytes. Offsets of remote memory are its addresses.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        match self {
            Self::Mapped(memory) => match usize::try_from(offset) {
                Ok(offset) if memory.read(offset, into).is_ok() && !memory.is_lost() => into.len(),
                _ => 0,
            },
            Self::File(file) => transfer(into.len(), |done| {
                rustix::io::pread(file, into.get_mut(done..).unwrap_or_default(), offset + done as u64)
            }),
            Self::Remote(memory) => memory.read(Iova::new(offset), into),
            Self::Nothing => 0,
        }
    }

    /// Writes as many bytes as there is space for; returns the number of bytes.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> usize {
        match self {
            Self::Mapped(memory) => match usize::try_from(offset) {
                Ok(offset) if super::store(memory.view(), offset, from) && !memory.is_lost() => from.len(),
                _ => 0,
            },
            Self::File(file) => {
                // A write beyond the end would extend a file that the client has shortened. A write beyond this process's file size limit
                // would end the process (SIGXFSZ, setrlimit(2)).
                let size = size_of(file).unwrap_or(0);
                let limit = rustix::process::getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
                let room = usize::try_from(size.min(limit).saturating_sub(offset)).unwrap_or(usize::MAX);
                let from = from.get(..room).unwrap_or(from);
                transfer(from.len(), |done| {
                    rustix::io::pwrite(file, from.get(done..).unwrap_or_default(), offset + done as u64)
                })
            }
            Self::Remote(memory) => memory.write(Iova::new(offset), from),
            Self::Nothing => 0,
        }
    }
}

/// Repeats a transfer that may be short until `length` bytes are done or no more bytes arrive.
fn transfer(length: usize, mut once: impl FnMut(usize) -> Result<usize, Errno>) -> usize {
    let mut done = 0;
    while done < length {
        match once(done) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    done
}

/// Maximum number of open client files: half of this process's limit on open files.
fn open_file_limit() -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit / 2).ok()).unwrap_or(usize::MAX)
}

fn size_of(file: &OwnedFd) -> Result<u64, Errno> {
    Ok(u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0))
}

impl Backings {
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&Backing> {
        let slot = self.slots.get(usize::try_from(slot).ok()?)?;
        slot.as_ref().map(|slot| &slot.backing)
    }

    /// Returns a number for memory of this process, or for unreachable memory; released by [`Self::release`].
    pub(crate) fn own(&mut self, backing: Backing) -> Result<u32, FileError> {
        self.add(Slot { backing, uses: 1, key: None })
    }

    /// Returns the number for remote memory, which is the same for all of it; released by [`Self::release`].
    pub(crate) fn remote(&mut self, memory: Arc<dyn RemoteMemory>) -> Result<u32, FileError> {
        if let Some(number) = self.remote
            && let Some(slot) = self.slot_mut(number)
        {
            slot.uses += 1;
            return Ok(number);
        }
        let number = self.own(Backing::Remote(memory))?;
        self.remote = Some(number);
        Ok(number)
    }

    /// Returns a number for a client's file, of which `length` bytes from `offset` on are to be mapped; released by [`Self::release`]. The
    /// descriptor is closed unless it is the first one of its file.
    pub(crate) fn file(
        &mut self,
        file: OwnedFd,
        offset: u64,
        length: u64,
        access: DmaAccess,
    ) -> Result<u32, FileError> {
        let status = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(FileError::NotAFile);
        }
        let size = u64::try_from(status.st_size).unwrap_or(0);
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(FileError::TooShort { size, offset, length });
        }
        let mode = rustix::fs::fcntl_getfl(&file)? & OFlags::RWMODE;
        let writable = mode == OFlags::RDWR;
        if mode == OFlags::WRONLY {
            return Err(FileError::NoAccess { write: false });
        }
        if access.device_writes() && !writable {
            return Err(FileError::NoAccess { write: true });
        }
        let key = FileKey { device: status.st_dev, inode: status.st_ino, writable };
        if let Some(number) = self.files.get(&key).copied()
            && let Some(slot) = self.slot_mut(number)
            && slot.reaches(offset.saturating_add(length))
        {
            slot.uses += 1;
            return Ok(number);
        }
        let limit = open_file_limit();
        if self.open_files >= limit {
            return Err(FileError::TooManyOpen { limit });
        }
        // The file is new, or was mapped when it was shorter: the old mapping stays while it is in use.
        let backing = self.open(file, size, writable)?;
        let number = self.add(Slot { backing, uses: 1, key: Some(key) })?;
        self.open_files += 1;
        self.files.insert(key, number);
        Ok(number)
    }

    /// Removes one use; the last one releases the memory.
    pub(crate) fn release(&mut self, number: u32) {
        let Some(slot) = self.slot_mut(number).debug_expect("a backing in use") else { return };
        slot.uses -= 1;
        if slot.uses > 0 {
            return;
        }
        let key = slot.key;
        if self.remote == Some(number) {
            self.remote = None;
        }
        if let Some(place) = usize::try_from(number).ok().and_then(|index| self.slots.get_mut(index)) {
            *place = None;
            self.free.push(number);
        }
        if let Some(key) = key {
            self.open_files -= 1;
            if self.files.get(&key) == Some(&number) {
                self.files.remove(&key);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { huge_page_warning_sent: self.huge_page_warning_sent, ..Self::default() };
    }

    /// Returns the remote memory, if any is mapped.
    #[inline]
    pub(crate) fn remote_memory(&self) -> Option<&Arc<dyn RemoteMemory>> {
        match self.get(self.remote?) {
            Some(Backing::Remote(memory)) => Some(memory),
            _ => None,
        }
    }

    /// Returns the number of memories in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Maps all of a file that is sealed against shrinking; keeps the descriptor of any other.
    fn open(&mut self, file: OwnedFd, size: u64, writable: bool) -> Result<Backing, FileError> {
        // Files without seals (EINVAL) can be truncated.
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        let stays = seals.contains(SealFlags::SHRINK)
            && writable
            && !seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE);
        if !stays {
            if writable && !self.huge_page_warning_sent && is_huge(&file) {
                self.huge_page_warning_sent = true;
                tracing::warn!(
                    "a client maps a file of huge pages that is not sealed against shrinking: such files are not written by system calls, \
                     so every write of the card into it will be refused; for QEMU use memory-backend-memfd,hugetlb=on, which seals it"
                );
            }
            return Ok(Backing::File(file));
        }
        let length = usize::try_from(size).map_err(|_| Errno::OVERFLOW)?;
        match SharedMemory::from_file(file, 0, length) {
            Ok(memory) => Ok(Backing::Mapped(memory)),
            Err(fpga_pci::MemoryError::Unavailable { source, .. }) => Err(FileError::Refused { source }),
            Err(_) => Err(Errno::INVAL.into()),
        }
    }

    fn slot_mut(&mut self, number: u32) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(number).ok()?)?.as_mut()
    }

    fn add(&mut self, slot: Slot) -> Result<u32, FileError> {
        if let Some(number) = self.free.pop()
            && let Some(place) = usize::try_from(number).ok().and_then(|index| self.slots.get_mut(index))
        {
            *place = Some(slot);
            return Ok(number);
        }
        let number = u32::try_from(self.slots.len()).ok().filter(|number| *number < SLOTS);
        let number = number.ok_or(FileError::TooMany)?;
        self.slots.push(Some(slot));
        Ok(number)
    }
}

impl Slot {
    /// Returns whether the file or mapping contains the bytes up to `end`.
    fn reaches(&self, end: u64) -> bool {
        match &self.backing {
            Backing::Mapped(memory) => end <= memory.len() as u64,
            // The size is checked at every access.
            Backing::File(_) => true,
            Backing::Remote(_) | Backing::Nothing => false,
        }
    }
}

/// Returns whether a file is in hugetlbfs, which does not support write(2) (the kernel's
/// Documentation/admin-guide/mm/hugetlbpage.rst).
fn is_huge(file: &OwnedFd) -> bool {
    /// `HUGETLBFS_MAGIC` of linux/magic.h.
    const HUGETLBFS: u64 = 0x9584_58F6;
    rustix::fs::fstatfs(file)
        .is_ok_and(|system| u64::try_from(system.f_type).is_ok_and(|kind| kind == HUGETLBFS))
}
