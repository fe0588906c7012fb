//! Handling of bus errors (SIGBUS). An access to a mapped BAR raises one when the device was removed, is being reset or has memory decoding
//! off. An access to a mapped file raises one when its owner has shortened it, or has punched a hole into huge pages that the system cannot
//! refill.
//!
//! Without this module's handler the process is killed. With it, the accessed page is replaced by a private one that is all ones, its area
//! is marked, and the access continues. Every later access through that area finds the mark. The mark is the number that is compared with
//! the device's generation anyway, so only failing accesses have a cost.
//!
//! # Scope of the handler
//!
//! It handles faults at addresses inside mapped BARs and files of this package, and no others: any other SIGBUS, and one that was sent with
//! `kill`, is passed to the earlier handler, or has its default effect if there was none.
//!
//! # Inside the handler
//!
//! No lock, no allocation, no C library call: a walk over a list that only grows, and one `mmap` system call. List entries are reused; a
//! sequence number shows that an entry is being changed.

use crate::lock;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::OsError;

/// Generation that no device reaches: the area is gone.
pub(super) const GONE: u64 = u64::MAX;

/// State that the handler needs, created before it is installed. Never freed.
struct HandlerState {
    /// File with one page of ones.
    ones: Arc<OwnedFd>,
    /// Earlier action for SIGBUS.
    before: libc::sigaction,
}

/// Current state; null before the first installation.
static GUARD: AtomicPtr<HandlerState> = AtomicPtr::new(ptr::null_mut());
static INSTALLED: Installed = Installed::new();

/// Whether an installation is complete: true only afterwards, also when several threads request it at once.
struct Installed {
    done: AtomicBool,
    /// Held during the installation.
    busy: Mutex<()>,
}

impl Installed {
    const fn new() -> Self {
        Self { done: AtomicBool::new(false), busy: Mutex::new(()) }
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Calls `install` unless an earlier call has succeeded. Concurrent callers wait for its outcome.
    fn once<E>(&self, install: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let _busy = lock(&self.busy);
        if !self.is_done() {
            install()?;
            self.done.store(true, Ordering::Release);
        }
        Ok(())
    }
}

/// First entry of the list of mapped areas.
static AREAS: AtomicPtr<WatchedArea> = AtomicPtr::new(ptr::null_mut());

/// Mapped area, as the handler sees it. Never freed.
pub(crate) struct WatchedArea {
    next: AtomicPtr<WatchedArea>,
    used: AtomicBool,
    /// Odd while the range is being changed.
    sequence: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Page size of a file in bytes; 0 for a BAR, which has the system's pages.
    page: AtomicUsize,
    /// Generation of the device at the time of mapping, or [`GONE`].
    generation: AtomicU64,
}

/// Watches an area during its lifetime. Drop it before the area is unmapped: another mapping may be placed there.
pub(crate) struct AreaGuard(&'static WatchedArea);

impl AreaGuard {
    /// Watches `length` bytes from `start` on, which belong to the device's `generation`.
    pub(super) fn new(start: usize, length: usize, generation: u64) -> Self {
        Self::area(start, length, 0, generation)
    }

    /// Watches a mapped file of `length` bytes from `start` on, whose pages have `page` bytes.
    pub(crate) fn file(start: usize, length: usize, page: usize) -> Self {
        Self::area(start, length, page, 0)
    }

    fn area(start: usize, length: usize, page: usize, generation: u64) -> Self {
        let watch = WatchedArea::claim();
        watch.generation.store(generation, Ordering::Relaxed);
        watch.page.store(page, Ordering::Relaxed);
        watch.set(start, start.saturating_add(length));
        Self(watch)
    }

    /// The generation, or [`GONE`].
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Relaxed)
    }

    /// Returns whether an access has raised a bus error, this thread's last one included.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        // The preceding access may have read the page that the handler put there, and must not be moved behind this check. The handler
        // marks the area first, so a thread that reads the page finds the mark.
        fence(Ordering::Acquire);
        self.generation() == GONE
    }
}

impl Drop for AreaGuard {
    fn drop(&mut self) {
        self.0.set(0, 0);
        self.0.used.store(false, Ordering::Release);
    }
}

impl WatchedArea {
    /// Claims an unused entry, or allocates a new one.
    fn claim() -> &'static Self {
        let mut next = AREAS.load(Ordering::Acquire);
        // SAFETY: entries are leaked boxes: valid for ever, and changed through atomics only.
        while let Some(watch) = unsafe { next.as_ref() } {
            if watch.used.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return watch;
            }
            next = watch.next.load(Ordering::Acquire);
        }
        let watch: &'static Self = Box::leak(Box::new(Self {
            next: AtomicPtr::new(ptr::null_mut()),
            used: AtomicBool::new(true),
            sequence: AtomicU64::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            page: AtomicUsize::new(0),
            generation: AtomicU64::new(GONE),
        }));
        let mut head = AREAS.load(Ordering::Acquire);
        loop {
            watch.next.store(head, Ordering::Relaxed);
            let new = ptr::from_ref(watch).cast_mut();
            match AREAS.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return watch,
                Err(now) => head = now,
            }
        }
    }

    /// Changes the range. Only the claimant of the entry calls this.
    fn set(&self, start: usize, end: usize) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.sequence.store((sequence | 1).wrapping_add(1), Ordering::Release);
    }

    /// Returns whether `address` is in the range. An entry that is being changed is not one that a thread accesses.
    fn contains(&self, address: usize) -> bool {
        let before = self.sequence.load(Ordering::Acquire);
        let range = self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        before & 1 == 0 && self.sequence.load(Ordering::Relaxed) == before && range.contains(&address)
    }

    /// Returns the area that contains `address`.
    fn find(address: usize) -> Option<&'static Self> {
        let mut next = AREAS.load(Ordering::Acquire);
        // SAFETY: as in `claim`.
        while let Some(watch) = unsafe { next.as_ref() } {
            if watch.contains(address) {
                return Some(watch);
            }
            next = watch.next.load(Ordering::Acquire);
        }
        None
    }
}

/// Makes accesses to mapped BARs survive a device that is removed, reset or has memory decoding off: they end in
/// [`MmioError::Gone`](crate::MmioError::Gone), and SIGBUS does not kill the process. Accesses to a [mapped
/// file](crate::SharedMemory::from_file) that another process has shortened find zeros
/// ([`SharedMemory::is_lost`](crate::SharedMemory::is_lost)). It stays in force until the process ends, also for existing mappings; calling
/// it again does nothing.
///
/// This installs a handler for SIGBUS, a resource of the whole process: therefore only on request. The earlier handler receives every
/// SIGBUS that concerns neither. A handler that is installed later replaces this one, unless it passes on signals that it does not handle.
///
/// Without it, BARs are read and written by system calls, which fail cleanly and take about a microsecond each, unless a program requests
/// the mapping ([`BarAccess`](crate::vfio::BarAccess)). Call it before cards are opened.
///
/// # Errors
/// Error of the system when creating the memory file, or installing the handler.
pub fn catch_bus_errors() -> Result<(), OsError> {
    INSTALLED.once(install)
}

/// Installs the handler and its state.
fn install() -> Result<(), OsError> {
    let before = action(None)?;
    let ones = Arc::new(page_of_ones()?);
    HandlerState::publish(&ones, before);
    let mut ours = before;
    ours.sa_sigaction = on_bus_error as *const () as usize;
    // On the signal stack if the thread has one: the standard library's handler requires it, and this one may pass a stack overflow on to
    // it.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    let replaced = action(Some(&ours))?;
    // Another thread may have installed a handler since it was queried.
    if replaced.sa_sigaction != before.sa_sigaction || replaced.sa_flags != before.sa_flags {
        HandlerState::publish(&ones, replaced);
    }
    Ok(())
}

impl HandlerState {
    /// Makes this the current state. The earlier one is leaked: a handler may be using it.
    fn publish(ones: &Arc<OwnedFd>, before: libc::sigaction) {
        let guard = Box::leak(Box::new(Self { ones: Arc::clone(ones), before }));
        GUARD.store(ptr::from_mut(guard), Ordering::Release);
    }

    fn current() -> Option<&'static Self> {
        // SAFETY: null, or a leaked box that is never changed.
        unsafe { GUARD.load(Ordering::Acquire).as_ref() }
    }
}

/// Returns whether the handler of [`catch_bus_errors`] is in force.
#[must_use]
pub fn bus_errors_caught() -> bool {
    INSTALLED.is_done()
}

/// Creates a file with one page of ones that cannot be changed.
fn page_of_ones() -> Result<OwnedFd, OsError> {
    let file = rustix::fs::memfd_create("all-ones", MemfdFlags::CLOEXEC)?;
    let page = vec![0xFF; rustix::param::page_size()];
    match rustix::io::pwrite(&file, &page, 0) {
        Ok(written) if written == page.len() => Ok(file),
        Ok(_) => Err(Errno::NOSPC.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the action for SIGBUS, and changes it to `new`.
fn action(new: Option<&libc::sigaction>) -> Result<libc::sigaction, OsError> {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: both addresses are null or those of a `sigaction` that lives beyond the call. A new action is `on_bus_error`, which has the
    // signature that SA_SIGINFO requires and only does what a handler may do, or an action that was in force before.
    let result =
        unsafe { libc::sigaction(libc::SIGBUS, new.map_or(ptr::null(), ptr::from_ref), old.as_mut_ptr()) };
    if result != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: the call succeeded and has filled it in; all zeros are valid too.
    Ok(unsafe { old.assume_init() })
}

/// SIGBUS handler.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel hands over a valid structure, whose address field is set for SIGBUS.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // Positive codes come from the kernel: no process can send them.
    if code > 0
        && let Some(watch) = WatchedArea::find(address)
        && let Some(guard) = HandlerState::current()
    {
        // First the mark, then the page: a thread that reads the page finds the mark.
        watch.generation.store(GONE, Ordering::SeqCst);
        let replaced = match watch.page.load(Ordering::Relaxed) {
            0 => replace_page(address, guard),
            page => replace_file_page(address, page),
        };
        if replaced {
            return;
        }
    }
    chain_handler(signal, info, context, code);
}

/// Replaces the page of `address` by ones.
fn replace_page(address: usize, guard: &HandlerState) -> bool {
    let page = rustix::param::page_size();
    let start = ptr::without_provenance_mut(address - address % page);
    // SAFETY: the page belongs to a mapped BAR that some thread of this process is accessing at this moment, so it stays that BAR's until
    // that access is over; BARs are accessed by volatile loads and stores only, for any content. The replacement is readable, writable and
    // private, and is unmapped with the BAR.
    let mapped = unsafe {
        rustix::mm::mmap(
            start,
            page,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::FIXED,
            guard.ones.as_fd(),
            0,
        )
    };
    mapped.is_ok()
}

/// Replaces the file's page of `address` by private zeros.
fn replace_file_page(address: usize, page: usize) -> bool {
    let start = ptr::without_provenance_mut(address - address % page);
    // SAFETY: the page belongs to a mapped file that some thread of this process is accessing at this moment, so it stays that file's until
    // the access is over; such memory is accessed by atomics and copies only, for any content. The replacement is readable, writable and
    // private, and is unmapped with the rest. Huge pages of a file are replaced as a whole.
    let mapped = unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        rustix::mm::mmap_anonymous(start, page, access, MapFlags::PRIVATE | MapFlags::FIXED)
    };
    mapped.is_ok()
}

/// Passes the signal on to the earlier action.
fn chain_handler(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, code: c_int) {
    let Some(guard) = HandlerState::current() else { return };
    let before = &guard.before;
    match before.sa_sigaction {
        libc::SIG_IGN if code <= 0 => {}
        // The kernel does not ignore a bus error: it kills the process.
        libc::SIG_DFL | libc::SIG_IGN => {
            let mut default = *before;
            default.sa_sigaction = libc::SIG_DFL;
            let _ = action(Some(&default));
            // A fault is raised again as soon as this returns; a signal sent by a process is not.
            if code <= 0 {
                // SAFETY: sends a signal to this thread; it arrives when the handler returns.
                unsafe { libc::raise(signal) };
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: an action with SA_SIGINFO has a function of this signature, which the kernel would have called with the same
            // arguments.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { core::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO the function takes only the signal's number.
            let handler: extern "C" fn(c_int) = unsafe { core::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_error_handler_counts_as_installed_after_activation() {
        let installed = Installed::new();
        let during = || {
            assert!(!installed.is_done(), "BARs could be mapped without a handler");
            Err(7)
        };
        assert_eq!(installed.once(during), Err(7));
        assert!(!installed.is_done(), "a refused handler is not installed");
        let in_force = AtomicBool::new(false);
        let (inside, wait_inside) = std::sync::mpsc::channel();
        let (go_on, wait_go_on) = std::sync::mpsc::channel();
        let (installed, in_force) = (&installed, &in_force);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                installed.once(|| {
                    inside.send(()).unwrap();
                    wait_go_on.recv().unwrap();
                    in_force.store(true, Ordering::Relaxed);
                    Ok::<_, ()>(())
                })
            });
            wait_inside.recv().unwrap();
            assert!(!installed.is_done());
            let second = scope.spawn(move || {
                installed.once(|| -> Result<(), ()> { panic!("it is being installed already") }).unwrap();
                in_force.load(Ordering::Relaxed)
            });
            go_on.send(()).unwrap();
            assert!(second.join().unwrap(), "the second caller returned before the handler was in force");
        });
        assert!(installed.is_done());
    }

    #[test]
    fn bus_error_areas_are_found_while_watched() {
        // Addresses that no mapping has: above the user address space.
        let base = usize::MAX / 2;
        let first = AreaGuard::new(base, 0x1000, 3);
        let second = AreaGuard::new(base + 0x2000, 0x1000, 4);
        let found =
            |address| WatchedArea::find(address).map(|watch| watch.generation.load(Ordering::Relaxed));
        assert_eq!((found(base - 1), found(base), found(base + 0xFFF)), (None, Some(3), Some(3)));
        assert_eq!((found(base + 0x1000), found(base + 0x2FFF)), (None, Some(4)));
        let entry = ptr::from_ref(first.0);
        drop(first);
        assert_eq!((found(base), found(base + 0x2000)), (None, Some(4)));
        // Released entries are reused, so the list does not grow with every opened BAR.
        assert!(!second.is_gone());
        drop(second);
        // SAFETY: entries are never freed.
        assert!(unsafe { &*entry }.sequence.load(Ordering::Relaxed).is_multiple_of(2));
    }
}
