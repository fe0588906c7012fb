//! The memory behind mappings: what this process mapped, or files that a client handed over.
//!
//! A client's file is mapped once, as a whole, however many mappings are parts of it: a guest's kernel under an IOMMU names
//! one and the same file in every one of its hundred thousand messages. Only a file that is sealed against shrinking is
//! mapped at all: whoever can truncate a mapped file can kill the process that touches it (SIGBUS). All other files are
//! read and written by system calls, which a file that is too short answers with a short count.
//!
//! A sealed file of huge pages can still lose pages: its owner punches a hole, and the system may have no page left to fill it. With
//! [`fpga_pci::catch_bus_errors`], which is the program's choice, accesses find zeros then or are refused; without it the process ends.

use crate::dma::blocks::SLOTS;
use core::fmt;
use fpga_pci::{DmaAccess, OsError, SharedMemory};
use fpga_registers::Iova;
use rustix::fs::{FileType, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Where the bytes of a mapping are.
#[derive(Debug)]
pub(crate) enum Backing {
    /// Mapped here.
    Mapped(SharedMemory),
    /// A file that could become shorter at any time.
    File(OwnedFd),
    /// What only its owner reaches.
    Remote(Arc<dyn RemoteMemory>),
    /// Nothing that could be reached: mapped without a file by somebody who cannot be asked.
    Nothing,
}

/// Memory of another process's, mapped without a file: its owner is asked for every access.
pub trait RemoteMemory: fmt::Debug + Send + Sync {
    /// Copies out as much as can be had from `at` on; the number of bytes.
    fn read(&self, at: Iova, into: &mut [u8]) -> usize;

    /// Copies in as much as is taken from `at` on; the number of bytes.
    fn write(&self, at: Iova, from: &[u8]) -> usize;

    /// Begins a turn of the card's work.
    fn begin_unit(&self) {}

    /// Whether the owner has kept the card waiting in this turn, so that the turn should end.
    fn is_budget_used(&self) -> bool {
        false
    }
}

/// One file, as the kernel tells files apart. What may be written is another mapping than what may only be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    device: u64,
    inode: u64,
    writable: bool,
}

#[derive(Debug)]
struct Slot {
    backing: Backing,
    /// Mappings that are parts of it.
    uses: u64,
    /// The file that it is the current mapping of.
    key: Option<FileKey>,
}

/// All memory behind the mappings of one card, by number.
#[derive(Debug, Default)]
pub(crate) struct Backings {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    files: HashMap<FileKey, u32>,
    /// Remote memory: all of it is one owner's.
    remote: Option<u32>,
    /// Slots that hold a file descriptor.
    open_files: usize,
    /// A file of huge pages that cannot be written was warned of.
    huge_page_warning_sent: bool,
}

/// Why a client's file cannot be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file has fewer bytes than the message says.
    #[error("the file has {size:#x} bytes, and {length:#x} bytes from {offset:#x} on were to be mapped")]
    TooShort {
        /// Bytes of the file.
        size: u64,
        /// First byte of the mapping.
        offset: u64,
        /// Bytes of the mapping.
        length: u64,
    },
    /// A directory, a device, a pipe, a socket.
    #[error("the descriptor is not one of a file with memory behind it")]
    NotAFile,
    /// The descriptor does not allow what the mapping asks for.
    #[error("the descriptor was not opened for {}", if *write { "writing" } else { "reading" })]
    NoAccess {
        /// Writing was asked for.
        write: bool,
    },
    /// More files than the card can tell apart.
    #[error("there are {SLOTS} different files in use already")]
    TooMany,
    /// Each file holds a descriptor of this process, which needs some for itself.
    #[error(
        "there are {limit} different files in use already, half of what this process may open; map fewer files, or raise the limit on open files (ulimit -n)"
    )]
    TooManyOpen {
        /// Files that may be in use.
        limit: usize,
    },
    /// The system refused.
    #[error("the file cannot be mapped: {source}")]
    Refused {
        /// What the system says.
        source: OsError,
    },
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> Self {
        Self::Refused { source: errno.into() }
    }
}

impl Backing {
    /// Copies out as much as there is; the number of bytes. Offsets of remote memory are its addresses.
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

    /// Copies in as much as there is room for; the number of bytes.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> usize {
        match self {
            Self::Mapped(memory) => match usize::try_from(offset) {
                Ok(offset) if super::store(memory.view(), offset, from) && !memory.is_lost() => from.len(),
                _ => 0,
            },
            Self::File(file) => {
                // Writing beyond the end would make a file longer that the client has made shorter. Writing beyond this process's
                // limit would end it (SIGXFSZ, setrlimit(2)).
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

/// Repeats a transfer that may be short until `length` bytes are done, or nothing more comes.
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

/// Files of clients that may be open: half of what this process may open.
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

    /// Number for memory of this process, or for none at all; released by [`Self::release`].
    pub(crate) fn own(&mut self, backing: Backing) -> Result<u32, FileError> {
        self.add(Slot { backing, uses: 1, key: None })
    }

    /// Number for memory that its owner is asked for, the same one for all of it; released by [`Self::release`].
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

    /// Number for a client's file, of which `length` bytes from `offset` on are to be mapped; released by
    /// [`Self::release`]. The descriptor is closed unless it is the first one of its file.
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
        // New, or mapped when it was shorter: the old mapping stays for as long as it is used.
        let backing = self.open(file, size, writable)?;
        let number = self.add(Slot { backing, uses: 1, key: Some(key) })?;
        self.open_files += 1;
        self.files.insert(key, number);
        Ok(number)
    }

    /// One mapping less; the last one gives the memory back.
    pub(crate) fn release(&mut self, number: u32) {
        let Some(slot) = self.slot_mut(number) else { return };
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

    /// Memory that its owner is asked for, if any is mapped.
    #[inline]
    pub(crate) fn remote_memory(&self) -> Option<&Arc<dyn RemoteMemory>> {
        match self.get(self.remote?) {
            Some(Backing::Remote(memory)) => Some(memory),
            _ => None,
        }
    }

    /// Memories in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Maps all of a file that stays as long as it is, and keeps others as they are.
    fn open(&mut self, file: OwnedFd, size: u64, writable: bool) -> Result<Backing, FileError> {
        // Files without seals (EINVAL) are files that can be truncated.
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
    /// Whether a mapping up to byte `end` of the file can be a part of it.
    fn reaches(&self, end: u64) -> bool {
        match &self.backing {
            Backing::Mapped(memory) => end <= memory.len() as u64,
            // The size is looked at in every access.
            Backing::File(_) => true,
            Backing::Remote(_) | Backing::Nothing => false,
        }
    }
}

/// Whether a file lies in hugetlbfs, which has no `write` (the kernel's Documentation/admin-guide/mm/hugetlbpage.rst: write(2) is not supported there).
fn is_huge(file: &OwnedFd) -> bool {
    /// `HUGETLBFS_MAGIC` of linux/magic.h.
    const HUGETLBFS: u64 = 0x9584_58F6;
    rustix::fs::fstatfs(file)
        .is_ok_and(|system| u64::try_from(system.f_type).is_ok_and(|kind| kind == HUGETLBFS))
}
