//! Memory that a device, or another process, may access at any time.
//!
//! There is never a `&[u8]` or `&mut [u8]` into it, in this crate or outside: what has it gives copies, atomic words and
//! [`SharedSlice`]s. All accesses are relaxed (or stronger) atomic accesses, so whatever the other side does at the same time, the worst outcome is a wrong or torn *value*. Word accesses, and
//! copies of exactly 4 or 8 bytes to or from an address that is a multiple of as many, are never torn. Longer copies
//! are made as fast as the machine can; of them only each byte is atomic, and their bytes are accessed in no
//! particular order.
//!
//! Words are little endian in memory, as devices on PCI Express expect; the functions take and return values in the
//! host's byte order.

use core::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::mmio::AreaGuard;
use crate::{MemoryError, OsError};

/// Size, and so alignment, of the large pages that the kernel puts together by itself.
const HUGE: usize = 2 << 20;

mod copy;
mod slice;
mod span;
mod stream;

pub use slice::{CHUNK, SharedSlice};
pub use span::{Span, gather, scatter};
pub use stream::{Bounced, ReadVolatile, WriteVolatile};

/// Kind of memory that a backend can map for its device; [`SharedMemory::of_kind`] makes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Memory of this process alone.
    #[default]
    Anonymous,
    /// Memory behind a file descriptor, which can be passed to the process that the device lives in.
    File,
}

/// Which page size to ask for. Large pages need fewer entries in the IOMMU's cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HugePages {
    /// The system's normal pages.
    #[default]
    No,
    /// Normal pages that the kernel may replace by 2 MiB pages as they are touched, if it has some at hand
    /// ("transparent huge pages"): the memory is aligned for it and the kernel is told. Memory below 2 MiB has none.
    Transparent,
    /// 2 MiB pages if the system has some reserved, else as [`Transparent`](Self::Transparent).
    Prefer2MiB,
    /// 1 GiB pages if the system has some reserved, else as [`Transparent`](Self::Transparent).
    Prefer1GiB,
}

impl HugePages {
    /// log2 of the page size to take from the system's reserve, `None` to leave that alone.
    const fn bits(self) -> Option<u8> {
        match self {
            Self::No | Self::Transparent => None,
            Self::Prefer2MiB => Some(21),
            Self::Prefer1GiB => Some(30),
        }
    }
}

/// Shared memory: mapped once, freed when the last clone goes. Clones access the same bytes.
///
/// ```
/// use fpga_pci::{HugePages, SharedMemory};
/// let memory = SharedMemory::anonymous(4096, HugePages::No)?;
/// memory.write(16, b"abc")?;
/// let mut back = [0; 3];
/// memory.read(16, &mut back)?;
/// assert_eq!(&back, b"abc");
/// # Ok::<(), fpga_pci::MemoryError>(())
/// ```
#[derive(Clone)]
pub struct SharedMemory {
    mapping: Arc<Mapping>,
    /// Where the bytes in use begin, inside `mapping`: kept here so that an access need not look there.
    start: BaseAddress,
    /// Bytes in use: as many are mapped from `start` on, for as long as `mapping` lives.
    length: usize,
    /// Pages can vanish ([`is_lost`](Self::is_lost)): kept here for the same reason.
    watched: bool,
}

struct Mapping {
    /// Before the mapping, so that it goes first. For memory of a file that somebody else made.
    watched: Option<AreaGuard>,
    /// Never read again: it unmaps when the last clone goes.
    _raw: MmapRaw,
    /// The file behind it and where in the file this begins, for memory that can be passed on.
    file: Option<(OwnedFd, u64)>,
}

/// The address of shared memory, next to whatever keeps that memory mapped.
#[derive(Clone, Copy)]
pub(crate) struct BaseAddress(*mut u8);

// SAFETY: an address and nothing else. Accesses are made through views, and whoever makes a view vouches for the
// memory.
unsafe impl Send for BaseAddress {}
// SAFETY: as above.
unsafe impl Sync for BaseAddress {}

impl BaseAddress {
    /// The first byte of a view, to be kept beyond the view's life.
    #[inline]
    pub(crate) fn of(view: SharedSlice<'_>) -> Self {
        Self(view.as_mut_ptr())
    }

    /// A view of `length` bytes.
    ///
    /// # Safety
    /// As [`SharedSlice::from_raw`].
    #[inline]
    pub(crate) unsafe fn view<'a>(self, length: usize) -> SharedSlice<'a> {
        // SAFETY: the caller's promise is passed on.
        unsafe { SharedSlice::from_raw(self.0, length) }
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory")
            .field("len", &format_args!("{:#x}", self.len()))
            .field("file", &self.mapping.file.as_ref().map(|(file, _)| file.as_raw_fd()))
            .finish()
    }
}

impl SharedMemory {
    /// Zeroed memory of at least `length` bytes of `kind`. Only [`MemoryKind::Anonymous`] heeds `huge`: pages of files are of the
    /// size that the system gives.
    ///
    /// # Errors
    /// [`MemoryError::BadLength`], [`MemoryError::Unavailable`].
    pub fn of_kind(kind: MemoryKind, length: usize, huge: HugePages) -> Result<Self, MemoryError> {
        match kind {
            MemoryKind::Anonymous => Self::anonymous(length, huge),
            MemoryKind::File => Self::memfd("fpga-dma", length),
        }
    }

    /// Zeroed memory of this process alone. `length` is rounded up to whole pages.
    ///
    /// It is not inherited by child processes: a fork would otherwise make it copy-on-write, and the next write here
    /// would move this process to a copy while the device keeps the original.
    ///
    /// # Errors
    /// [`MemoryError::BadLength`], [`MemoryError::Unavailable`].
    pub fn anonymous(length: usize, huge: HugePages) -> Result<Self, MemoryError> {
        let from_reserve = huge.bits().and_then(|bits| {
            let length = round_up(length, 1 << bits).ok()?;
            match MmapOptions::new().len(length).huge(Some(bits)).map_anon() {
                Ok(mapping) => Some((mapping, 0, length)),
                Err(error) => {
                    let (page, folder) = (1_u64 << bits, (1_u64 << bits) >> 10);
                    tracing::warn!(length, page, %error,
                        "no such huge pages are left, normal ones are taken; to reserve some, write how many to /sys/kernel/mm/hugepages/hugepages-{folder}kB/nr_hugepages");
                    None
                }
            }
        });
        let (mapping, skip, length) = match from_reserve {
            Some(got) => got,
            None => {
                let length = round_up(length, rustix::param::page_size())?;
                let unavailable =
                    |error: std::io::Error| MemoryError::Unavailable { length, source: error.into() };
                let (mapping, skip) = match huge {
                    HugePages::No => (MmapOptions::new().len(length).map_anon().map_err(unavailable)?, 0),
                    _ => advised(length).map_err(unavailable)?,
                };
                (mapping, skip, length)
            }
        };
        Self::of_mapping(mapping, skip, length)
    }

    /// Takes over memory that the caller has mapped: anonymous (with pages of any size) or of a file, all of it,
    /// without copying. Others may go on accessing the file.
    ///
    /// Like all shared memory it is not inherited by child processes from now on. If somebody shrinks the file,
    /// accesses beyond its new end raise SIGBUS. A private mapping of a file (`map_copy`) is a bad idea where the
    /// device only reads: the first write here may move this process to a copy while the device keeps the original.
    ///
    /// # Errors
    /// [`MemoryError::BadLength`] for an empty mapping, [`MemoryError::Unavailable`] if the kernel refuses to keep it
    /// from children. The mapping is gone then.
    pub fn from_mapping(mapping: MmapMut) -> Result<Self, MemoryError> {
        let length = mapping.len();
        if length == 0 {
            return Err(MemoryError::BadLength { length });
        }
        Self::of_mapping(mapping, 0, length)
    }

    /// `length` bytes from byte `skip` on of a mapping that has them.
    fn of_mapping(mapping: MmapMut, skip: usize, length: usize) -> Result<Self, MemoryError> {
        mapping
            .advise(Advice::DontFork)
            .map_err(|error| MemoryError::Unavailable { length, source: error.into() })?;
        Self::of_raw(MmapRaw::from(mapping), skip, length, None, None)
    }

    /// The one place where the fields are put together.
    fn of_raw(
        raw: MmapRaw,
        skip: usize,
        length: usize,
        file: Option<(OwnedFd, u64)>,
        watched: Option<AreaGuard>,
    ) -> Result<Self, MemoryError> {
        if skip.checked_add(length).is_none_or(|end| end > raw.len()) {
            return Err(MemoryError::OutOfRange { offset: skip, length, size: raw.len() });
        }
        let start = BaseAddress(raw.as_mut_ptr().wrapping_add(skip));
        let is_watched = watched.is_some();
        Ok(Self {
            mapping: Arc::new(Mapping { watched, _raw: raw, file }),
            start,
            length,
            watched: is_watched,
        })
    }

    /// Zeroed memory behind a file descriptor ([`file`](Self::file)) that can be passed to another process. `length`
    /// is rounded up to whole pages. The file is sealed against changes of its size, so that nobody can take the
    /// pages away from under this mapping.
    ///
    /// # Errors
    /// [`MemoryError::BadLength`], [`MemoryError::Unavailable`].
    pub fn memfd(name: &str, length: usize) -> Result<Self, MemoryError> {
        let length = round_up(length, rustix::param::page_size())?;
        let unavailable = |source: OsError| MemoryError::Unavailable { length, source };
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(|errno| unavailable(errno.into()))?;
        rustix::fs::ftruncate(&file, length as u64).map_err(|errno| unavailable(errno.into()))?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|errno| unavailable(errno.into()))?;
        Self::from_file(file, 0, length)
    }

    /// Maps `length` bytes from `offset` on of a file that somebody else made, for example the memory of a virtual
    /// machine. `offset` is a multiple of the page size; `length` is taken as it is.
    ///
    /// If the other side shrinks the file later, accesses beyond its new end raise SIGBUS. A file sealed against shrinking cannot do
    /// that, but one of huge pages can lose pages to a hole that is punched into it. With
    /// [`catch_bus_errors`](crate::catch_bus_errors) such accesses find private zeros: see [`is_lost`](Self::is_lost).
    ///
    /// # Errors
    /// [`MemoryError::BadLength`] for a length of 0 or beyond the file's end, [`MemoryError::Unavailable`].
    pub fn from_file(file: OwnedFd, offset: u64, length: usize) -> Result<Self, MemoryError> {
        let unavailable = |source: OsError| MemoryError::Unavailable { length, source };
        let size = rustix::fs::fstat(&file).map_err(|errno| unavailable(errno.into()))?.st_size;
        let end = offset.checked_add(length as u64).ok_or(MemoryError::BadLength { length })?;
        if length == 0 || u64::try_from(size).unwrap_or(0) < end {
            return Err(MemoryError::BadLength { length });
        }
        if !offset.is_multiple_of(rustix::param::page_size() as u64) {
            return Err(unavailable(rustix::io::Errno::INVAL.into()));
        }
        let mapping = MmapOptions::new()
            .offset(offset)
            .len(length)
            .map_raw(file.as_raw_fd())
            .map_err(|error| unavailable(error.into()))?;
        mapping.advise(Advice::DontFork).map_err(|error| unavailable(error.into()))?;
        let page = page_size_of(&file);
        let whole = length.next_multiple_of(page);
        let watched = AreaGuard::file(mapping.as_mut_ptr().addr(), whole, page);
        Self::of_raw(mapping, 0, length, Some((file, offset)), Some(watched))
    }

    /// Whether a page of its file was gone when it was accessed. Zeros of this process alone are in its place since then, for all
    /// handles to this memory. Without [`catch_bus_errors`](crate::catch_bus_errors) such an access ends the process.
    #[must_use]
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.watched && self.mapping.watched.as_ref().is_some_and(AreaGuard::is_gone)
    }

    /// Size in bytes.
    #[must_use]
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "shared memory is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// The file behind memory made by [`memfd`](Self::memfd) or [`from_file`](Self::from_file).
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.mapping.file.as_ref().map(|(file, _)| file.as_fd())
    }

    /// Where in its [`file`](Self::file) this memory begins, in bytes; 0 without one.
    #[must_use]
    pub fn file_offset(&self) -> u64 {
        self.mapping.file.as_ref().map_or(0, |(_, offset)| *offset)
    }

    /// The `length` bytes from `offset` on, as shared memory of their own: another handle to the same bytes, which keeps
    /// the whole mapping alive. Nothing is mapped or copied.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; [`MemoryError::BadLength`] for no bytes at all, which no shared memory has.
    pub fn part(&self, offset: usize, length: usize) -> Result<Self, MemoryError> {
        if length == 0 {
            return Err(MemoryError::BadLength { length });
        }
        let start = BaseAddress::of(self.view().slice(offset, length)?);
        Ok(Self { mapping: Arc::clone(&self.mapping), start, length, watched: self.watched })
    }

    /// Whether both are clones of one memory. A [`part`](Self::part) is not the same memory as the whole.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mapping, &other.mapping)
            && (self.start.0, self.length) == (other.start.0, other.length)
    }

    /// The whole memory as a borrowed view, which can be narrowed and carries the same operations.
    #[must_use]
    #[inline]
    pub fn view(&self) -> SharedSlice<'_> {
        // SAFETY: `length` bytes from `start` on lie inside the mapping (checked when they were put together, in `of_raw`
        // or as a part of a larger view in `part`, and neither ever changes), readable and writable, and stay mapped as long as the Arc that `self` holds, to
        // which the view's lifetime is bound. The bytes are initialised (zero pages, file, or what the caller wrote).
        unsafe { self.start.view(self.length) }
    }

    /// Address of the first byte in this process, for the kernel's mapping call.
    pub(crate) fn host_pointer(&self) -> *mut u8 {
        self.start.0
    }
}

/// Bytes of the pages that the system maps a file by.
fn page_size_of(file: &OwnedFd) -> usize {
    /// `HUGETLBFS_MAGIC` of linux/magic.h.
    const HUGETLBFS: u64 = 0x9584_58F6;
    let page = rustix::param::page_size();
    let huge = rustix::fs::fstatfs(file).ok().filter(|system| u64::try_from(system.f_type) == Ok(HUGETLBFS));
    // There a block is a page (the kernel's hugetlbfs_statfs).
    let huge = huge.and_then(|system| usize::try_from(system.f_bsize).ok());
    huge.filter(|huge| huge.is_power_of_two() && *huge > page).unwrap_or(page)
}

/// Normal pages, aligned so that the kernel can put large ones in their place, and told so; and how many bytes to
/// skip at the start of the mapping.
fn advised(length: usize) -> std::io::Result<(MmapMut, usize)> {
    let mapping = MmapOptions::new().len(length).map_anon()?;
    let aligned = mapping.as_ptr().align_offset(HUGE) == 0;
    let (mapping, skip) = if length < HUGE || aligned {
        (mapping, 0)
    } else {
        // Kernels before 6.7, and later ones for odd lengths, put it anywhere. What is too much is never touched: it
        // costs address space only.
        match MmapOptions::new().len(length.saturating_add(HUGE)).map_anon() {
            Ok(larger) => {
                let skip = larger.as_ptr().align_offset(HUGE);
                (larger, skip)
            }
            Err(_) => (mapping, 0),
        }
    };
    // A refusal costs only speed.
    let _ = mapping.advise_range(Advice::HugePage, skip, length);
    Ok((mapping, skip))
}

/// `length` rounded up to a multiple of `page`.
fn round_up(length: usize, page: usize) -> Result<usize, MemoryError> {
    match length.checked_next_multiple_of(page) {
        // Linux refuses mappings above this anyway; pointer arithmetic in Rust needs it.
        Some(rounded) if length != 0 && rounded <= isize::MAX.unsigned_abs() => Ok(rounded),
        _ => Err(MemoryError::BadLength { length }),
    }
}

/// The operations of [`SharedSlice`] over the whole memory.
macro_rules! forward {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        impl SharedMemory {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`MemoryError::OutOfRange`]; word accesses also [`MemoryError::Misaligned`].
                #[inline]
                pub fn $name(&self, $($argument: $kind),*) -> Result<$result, MemoryError> {
                    self.view().$name($($argument),*)
                }
            )*
        }
    };
}

forward! {
    /// Copies out of the memory.
    read(offset: usize, into: &mut [u8]) -> ();
    /// Copies into the memory.
    write(offset: usize, from: &[u8]) -> ();
    /// Sets `length` bytes to `value`.
    fill(offset: usize, length: usize, value: u8) -> ();
    /// Loads a word, relaxed. Offset: multiple of 4.
    load_u32(offset: usize) -> u32;
    /// Loads a word; later accesses of this thread are not moved before it.
    load_u32_acquire(offset: usize) -> u32;
    /// Stores a word, relaxed.
    store_u32(offset: usize, value: u32) -> ();
    /// Stores a word; earlier accesses of this thread are not moved after it.
    store_u32_release(offset: usize, value: u32) -> ();
    /// Loads a word, relaxed. Offset: multiple of 8.
    load_u64(offset: usize) -> u64;
    /// Loads a word; later accesses of this thread are not moved before it.
    load_u64_acquire(offset: usize) -> u64;
    /// Stores a word, relaxed.
    store_u64(offset: usize, value: u64) -> ();
    /// Stores a word; earlier accesses of this thread are not moved after it.
    store_u64_release(offset: usize, value: u64) -> ();
}

impl SharedMemory {
    /// Stores consecutive 32-bit words, such as a descriptor; see [`SharedSlice::store_words`].
    ///
    /// # Errors
    /// As [`SharedSlice::store_words`].
    #[inline]
    pub fn store_words<const N: usize>(&self, offset: usize, words: [u32; N]) -> Result<(), MemoryError> {
        self.view().store_words(offset, words)
    }

    /// Stores one descriptor of 32 bytes; see [`SharedSlice::store_descriptor`].
    ///
    /// # Errors
    /// As [`SharedSlice::store_descriptor`].
    #[inline]
    pub fn store_descriptor(&self, offset: usize, words: [u64; 4]) -> Result<(), MemoryError> {
        self.view().store_descriptor(offset, words)
    }

    /// Loads consecutive 32-bit words; see [`SharedSlice::load_words`].
    ///
    /// # Errors
    /// As [`SharedSlice::load_words`].
    #[inline]
    pub fn load_words<const N: usize>(&self, offset: usize) -> Result<[u32; N], MemoryError> {
        self.view().load_words(offset)
    }

    /// Copies `length` bytes at `source_offset` of `source` to `offset` of this memory.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`] for either side; nothing is copied then.
    #[inline]
    pub fn copy_from(
        &self,
        offset: usize,
        source: &Self,
        source_offset: usize,
        length: usize,
    ) -> Result<(), MemoryError> {
        self.view().copy_from(offset, source.view(), source_offset, length)
    }
}

#[cfg(test)]
mod tests;
