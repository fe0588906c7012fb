//! Memory that a device, or another process, may access at any time.
//!
//! No `&[u8]` or `&mut [u8]` into it ever exists, in this crate or outside: its owners offer copies, atomic words and [`SharedSlice`]s. All
//! accesses are relaxed (or stronger) atomic accesses, so a concurrent change by the other side leads at worst to a wrong or torn *value*.
//! Word accesses, and copies of exactly 4 or 8 bytes to or from an address that is a multiple of their length, are never torn. Longer
//! copies are made as fast as the machine can; only each byte of them is atomic, and their bytes are accessed in no particular order.
//!
//! Words are little endian in memory, as devices on PCI Express expect; the functions take and return values in the host's byte order.

use core::any::Any;
use core::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::mmio::AreaGuard;
use crate::{MemoryError, OsError};

/// Size and alignment of transparent huge pages.
const HUGE: usize = 2 << 20;

mod copy;
mod ring;
mod slice;
mod span;
mod stream;

pub use copy::{
    CopyLimit, CopyRoutine, CopyRoutines, MeasuredRoutine, PageKind, RoutineTable, UnknownRoutine,
};
pub use ring::{RingError, RingLayout, RingReader, RingRecord, RingWriter};
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
    /// Memory behind a file descriptor, which can be passed to the process of the device.
    File,
}

/// Requested page size. Large pages need fewer entries in the IOMMU's TLB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HugePages {
    /// The system's normal pages.
    #[default]
    No,
    /// Normal pages that the kernel may replace by 2 MiB pages as they are touched, if it has some available ("transparent huge pages"):
    /// the memory is aligned for it, and the kernel is advised. Not for memory below 2 MiB.
    Transparent,
    /// 2 MiB pages if the system has some reserved, else as [`Transparent`](Self::Transparent).
    Prefer2MiB,
    /// 1 GiB pages if the system has some reserved, else as [`Transparent`](Self::Transparent).
    Prefer1GiB,
}

impl HugePages {
    /// log2 of the page size to take from the system's reserve; `None` does not use the reserve.
    const fn bits(self) -> Option<u8> {
        match self {
            Self::No | Self::Transparent => None,
            Self::Prefer2MiB => Some(21),
            Self::Prefer1GiB => Some(30),
        }
    }
}

/// Shared memory: mapped once, freed when the last clone is dropped. Clones access the same bytes.
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
    /// Start of the bytes in use inside `mapping`: kept here so that an access need not read it there.
    start: BaseAddress,
    /// Bytes in use: this many bytes from `start` on stay mapped while `mapping` exists.
    length: usize,
    /// Pages can vanish ([`is_lost`](Self::is_lost)): kept here for the same reason.
    watched: bool,
    pages: PageKind,
}

struct Mapping {
    /// Before the mapping, so that it is dropped first. For memory of a file that another process created.
    watched: Option<AreaGuard>,
    /// Never read again: it unmaps, or releases the memory of its owner, when the last clone is dropped.
    _backing: Backing,
    /// File behind the mapping and the start of this memory in the file, for memory that can be passed to another process.
    file: Option<(OwnedFd, u64)>,
}

/// Origin of the bytes.
enum Backing {
    Mapped { _raw: MmapRaw },
    Foreign { _owner: Box<dyn Any + Send + Sync> },
}

/// Address of shared memory, stored next to the owner that keeps that memory mapped.
#[derive(Clone, Copy)]
pub(crate) struct BaseAddress(*mut u8);

// SAFETY: an address and nothing else. Accesses are made through views, and the code that makes a view vouches for the memory.
unsafe impl Send for BaseAddress {}
// SAFETY: as above.
unsafe impl Sync for BaseAddress {}

impl BaseAddress {
    /// Address of the first byte of a view, to be kept beyond the view's lifetime.
    #[inline]
    pub(crate) fn of(view: SharedSlice<'_>) -> Self {
        Self(view.as_mut_ptr())
    }

    /// Makes a view of `length` bytes.
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
    /// Allocates at least `length` bytes of zeroed memory of `kind`. Only [`MemoryKind::Anonymous`] uses `huge`: pages of files have the
    /// size that the system provides.
    ///
    /// # Errors
    /// [`MemoryError::BadLength`], [`MemoryError::Unavailable`].
    pub fn of_kind(kind: MemoryKind, length: usize, huge: HugePages) -> Result<Self, MemoryError> {
        match kind {
            MemoryKind::Anonymous => Self::anonymous(length, huge),
            MemoryKind::File => Self::memfd("fpga-dma", length),
        }
    }

    /// Allocates zeroed memory of this process alone. `length` is rounded up to whole pages.
    ///
    /// Child processes find zeros there (with reserved huge pages: no memory). A fork would otherwise make it copy-on-write, and the next
    /// write here would move this process to a copy while the device keeps the original.
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
                let made = if huge == HugePages::No { normal(length) } else { advised(length) };
                let (mapping, skip) = made.map_err(unavailable)?;
                (mapping, skip, length)
            }
        };
        let pages = if huge != HugePages::No && length >= HUGE { PageKind::Huge } else { PageKind::Normal };
        Ok(Self { pages, ..Self::of_mapping(mapping, skip, length)? })
    }

    /// Takes over memory that the caller has mapped: anonymous (with pages of any size) or the whole mapping of a file, without copying.
    /// Other processes may continue to access the file.
    ///
    /// Like all shared memory it is not inherited by child processes from now on. If another process shrinks the file, accesses beyond its
    /// new end raise SIGBUS. Do not use a private mapping of a file (`map_copy`) where the device only reads: the first write here may move
    /// this process to a copy while the device keeps the original.
    ///
    /// # Errors
    /// [`MemoryError::BadLength`] for an empty mapping, [`MemoryError::Unavailable`] if the kernel refuses to exclude it from child
    /// processes. The mapping is removed in this case.
    pub fn from_mapping(mapping: MmapMut) -> Result<Self, MemoryError> {
        let length = mapping.len();
        if length == 0 {
            return Err(MemoryError::BadLength { length });
        }
        Self::of_mapping(mapping, 0, length)
    }

    /// Uses memory of a program in another language, such as an array of C or Python, in place. `owner` is dropped with the last clone, and
    /// not before: it keeps the memory alive, or records that it is released. Memory in quarantine is never released.
    ///
    /// Unlike other shared memory it may be inherited by child processes: since Linux 5.12 the kernel copies pages that a device may reach
    /// for the child at once, and the parent keeps the originals.
    ///
    /// # Errors
    /// [`MemoryError::BadLength`] for a length of 0, or one beyond the end of the address space.
    ///
    /// # Safety
    /// `length` bytes at `pointer` are mapped, readable, writable and initialised until `owner` is dropped. Until then Rust code has no
    /// references to them: the other program may access them, as another process may.
    pub unsafe fn from_foreign(
        pointer: *mut u8,
        length: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, MemoryError> {
        let end = pointer.addr().checked_add(length);
        if length == 0 || isize::try_from(length).is_err() || pointer.is_null() || end.is_none() {
            return Err(MemoryError::BadLength { length });
        }
        let mapping = Mapping { watched: None, _backing: Backing::Foreign { _owner: owner }, file: None };
        let (mapping, start) = (Arc::new(mapping), BaseAddress(pointer));
        Ok(Self { mapping, start, length, watched: false, pages: PageKind::Normal })
    }

    /// Uses `length` bytes from byte `skip` on of a mapping, which has at least `skip + length` bytes.
    fn of_mapping(mapping: MmapMut, skip: usize, length: usize) -> Result<Self, MemoryError> {
        keep_from_children(&mapping)
            .map_err(|error| MemoryError::Unavailable { length, source: error.into() })?;
        Self::of_raw(MmapRaw::from(mapping), skip, length, None, None)
    }

    /// Assembles the fields for a mapping of this process.
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
            mapping: Arc::new(Mapping { watched, _backing: Backing::Mapped { _raw: raw }, file }),
            start,
            length,
            watched: is_watched,
            pages: PageKind::Normal,
        })
    }

    /// Allocates zeroed memory behind a file descriptor ([`file`](Self::file)) that can be passed to another process. `length` is rounded
    /// up to whole pages. The file is sealed against size changes, so that no process can remove the pages of this mapping.
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

    /// Maps `length` bytes from `offset` on of a file that another process created, for example the memory of a virtual machine. `offset`
    /// is a multiple of the page size; `length` is not rounded.
    ///
    /// If the other side shrinks the file later, accesses beyond its new end raise SIGBUS. A file sealed against shrinking excludes that,
    /// but one of huge pages can lose pages to a hole that is punched into it. With [`catch_bus_errors`](crate::catch_bus_errors) such
    /// accesses find private zeros: see [`is_lost`](Self::is_lost).
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
        let page = page_size_of(&file);
        let whole = length.next_multiple_of(page);
        let watched = AreaGuard::file(mapping.as_mut_ptr().addr(), whole, page);
        Self::of_raw(mapping, 0, length, Some((file, offset)), Some(watched))
    }

    /// As [`from_file`](Self::from_file), from the file's start. Refuses a file that is not sealed against shrinking, such as one of
    /// [`memfd`](Self::memfd) is: an access to a page that is gone would end this process.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file); [`MemoryError::Unavailable`] without the seal.
    pub fn from_sealed_file(file: OwnedFd, length: usize) -> Result<Self, MemoryError> {
        let unavailable =
            |errno: rustix::io::Errno| MemoryError::Unavailable { length, source: errno.into() };
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(unavailable)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(unavailable(rustix::io::Errno::PERM));
        }
        Self::from_file(file, 0, length)
    }

    /// Whether a page of its file was missing when it was accessed. Since then it is replaced by zeros of this process alone, for all
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

    /// Start of this memory in its [`file`](Self::file), in bytes; 0 without one.
    #[must_use]
    pub fn file_offset(&self) -> u64 {
        self.mapping.file.as_ref().map_or(0, |(_, offset)| *offset)
    }

    /// Returns the `length` bytes from `offset` on as separate shared memory: another handle to the same bytes, which keeps the whole
    /// mapping alive. Nothing is mapped or copied.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; [`MemoryError::BadLength`] for a length of 0, because shared memory is never empty.
    pub fn part(&self, offset: usize, length: usize) -> Result<Self, MemoryError> {
        if length == 0 {
            return Err(MemoryError::BadLength { length });
        }
        let start = BaseAddress::of(self.view().slice(offset, length)?);
        let mapping = Arc::clone(&self.mapping);
        Ok(Self { mapping, start, length, watched: self.watched, pages: self.pages })
    }

    /// Returns whether both are clones of one memory. A [`part`](Self::part) is not the same memory as the whole.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mapping, &other.mapping)
            && (self.start.0, self.length) == (other.start.0, other.length)
    }

    /// Borrowed view of the whole memory, which can be narrowed and has the same operations.
    #[must_use]
    #[inline]
    pub fn view(&self) -> SharedSlice<'_> {
        // SAFETY: `length` bytes from `start` on lie inside the mapping (checked when they were assembled, in `of_raw` or as a part of a
        // larger view in `part`, or promised by the caller of `from_foreign`, and neither ever changes), readable and writable, and stay mapped as long as the Arc that `self` holds, to
        // which the view's lifetime is bound. The bytes are initialised (zero pages, file, or bytes written by the caller).
        unsafe { self.start.view(self.length) }
    }

    /// Address of the first byte in this process, for the kernel's mapping call.
    pub(crate) fn host_pointer(&self) -> *mut u8 {
        self.start.0
    }
}

/// Size of the pages of `memory`, as far as it is known: memory of files and of other programs counts as memory of normal pages.
#[must_use]
#[inline]
pub const fn page_kind(memory: &SharedMemory) -> PageKind {
    memory.pages
}

/// Size in bytes of the pages by which the system maps a file.
fn page_size_of(file: &OwnedFd) -> usize {
    /// `HUGETLBFS_MAGIC` of linux/magic.h.
    const HUGETLBFS: u64 = 0x9584_58F6;
    let page = rustix::param::page_size();
    let huge = rustix::fs::fstatfs(file).ok().filter(|system| u64::try_from(system.f_type) == Ok(HUGETLBFS));
    // On hugetlbfs a block is a page (the kernel's hugetlbfs_statfs).
    let huge = huge.and_then(|system| usize::try_from(system.f_bsize).ok());
    huge.filter(|huge| huge.is_power_of_two() && *huge > page).unwrap_or(page)
}

/// Maps normal pages. Returns the mapping and 0, as [`advised`] does.
fn normal(length: usize) -> std::io::Result<(MmapMut, usize)> {
    Ok((MmapOptions::new().len(length).map_anon()?, 0))
}

/// Maps normal pages, aligned and advised so that the kernel can replace them by large ones. Also returns the number of bytes to skip at
/// the start of the mapping.
fn advised(length: usize) -> std::io::Result<(MmapMut, usize)> {
    let mapping = MmapOptions::new().len(length).map_anon()?;
    let aligned = mapping.as_ptr().align_offset(HUGE) == 0;
    let (mapping, skip) = if length < HUGE || aligned {
        (mapping, 0)
    } else {
        // Kernels before 6.7, and later ones for odd lengths, choose any alignment. The excess is never touched: it costs address space
        // only.
        match MmapOptions::new().len(length.saturating_add(HUGE)).map_anon() {
            Ok(larger) => {
                let skip = larger.as_ptr().align_offset(HUGE);
                (larger, skip)
            }
            Err(_) => (mapping, 0),
        }
    };
    // A refusal only costs speed.
    let _ = mapping.advise_range(Advice::HugePage, skip, length);
    Ok((mapping, skip))
}

/// Excludes a private mapping from forks; see [`SharedMemory::anonymous`].
fn keep_from_children(mapping: &MmapMut) -> std::io::Result<()> {
    let start = mapping.as_ptr().cast_mut().cast();
    // SAFETY: the advice concerns children only: nothing changes in this process, and a child finds zeros, a valid content.
    match unsafe { rustix::mm::madvise(start, mapping.len(), rustix::mm::Advice::LinuxWipeOnFork) } {
        Ok(()) => Ok(()),
        // Reserved huge pages, and systems without this advice.
        Err(_) => mapping.advise(Advice::DontFork),
    }
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
    /// [`MemoryError::OutOfRange`] for either side; nothing is copied in this case.
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
