//! Surviving bus errors: what an access to a mapped BAR raises (SIGBUS) when the device was removed, is being reset or has
//! memory decoding off; and an access to a mapped file when its owner has made it shorter, or has punched a hole into huge pages
//! that the system has none left to fill with.
//!
//! Without this module's handler the process dies. With it, the page that was accessed is replaced by a private one that
//! is all ones, the area it belongs to is marked, and the access goes on. Every later access through that area finds the
//! mark (it is the number that is compared with the device's generation anyway), so the price is paid by nobody but the one
//! that fails.
//!
//! # What the handler does not touch
//!
//! It acts on faults at addresses inside mapped BARs and files of this package, and on nothing else: any other SIGBUS, and one that
//! was sent with `kill`, goes to the handler that was there before, or does what it does without one.
//!
//! # Inside the handler
//!
//! No lock, no allocation, nothing of the C library: a walk over a list that only ever grows, one `mmap` system call. The
//! entries are re-used; a sequence number tells the walk of an entry that is being changed.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::OsError;

/// The generation that no device reaches: the area is gone.
pub(super) const GONE: u64 = u64::MAX;

/// What the handler needs, made before it is installed. Never freed.
struct HandlerState {
    /// One page of ones.
    ones: Arc<OwnedFd>,
    /// What was there before.
    before: libc::sigaction,
}

/// The current one; null before the first installation.
static GUARD: AtomicPtr<HandlerState> = AtomicPtr::new(ptr::null_mut());
static INSTALLED: Installed = Installed::new();

/// Whether something is in force: true only after it is, however many threads ask for it at once.
struct Installed {
    done: AtomicBool,
    /// Held while it is being put in force.
    busy: Mutex<()>,
}

impl Installed {
    const fn new() -> Self {
        Self { done: AtomicBool::new(false), busy: Mutex::new(()) }
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Calls `install` unless an earlier call has succeeded. Threads that come meanwhile wait for its outcome.
    fn once<E>(&self, install: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let _busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_done() {
            install()?;
            self.done.store(true, Ordering::Release);
        }
        Ok(())
    }
}

/// First entry of the list of mapped areas.
static AREAS: AtomicPtr<WatchedArea> = AtomicPtr::new(ptr::null_mut());

/// A mapped area, as the handler sees it. Never freed.
pub(crate) struct WatchedArea {
    next: AtomicPtr<WatchedArea>,
    used: AtomicBool,
    /// Odd while the range is being changed.
    sequence: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Bytes of a page of a file; 0 for a BAR, whose pages are the system's.
    page: AtomicUsize,
    /// The device's generation that the area belongs to, or [`GONE`].
    generation: AtomicU64,
}

/// An area that is watched while this lives. Drop it before the area is unmapped: somebody else's mapping may take its place.
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

    /// Whether an access has raised a bus error, this thread's last one included.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        // The access before may have read the page that the handler put there: not to be moved behind this look. The
        // handler marks the area first, so whoever reads the page finds the mark.
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
    /// An entry that nobody uses, or a new one.
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

    /// Changes the range. Only whoever has claimed the entry does.
    fn set(&self, start: usize, end: usize) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.sequence.store((sequence | 1).wrapping_add(1), Ordering::Release);
    }

    /// Whether `address` is in the range. An entry that is being changed is not one that a thread is accessing.
    fn contains(&self, address: usize) -> bool {
        let before = self.sequence.load(Ordering::Acquire);
        let range = self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        before & 1 == 0 && self.sequence.load(Ordering::Relaxed) == before && range.contains(&address)
    }

    /// The area that `address` is in.
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
/// [`MmioError::Gone`](crate::MmioError::Gone) instead of killing the process with SIGBUS. Accesses to a
/// [mapped file](crate::SharedMemory::from_file) that somebody has made shorter find zeros
/// ([`SharedMemory::is_lost`](crate::SharedMemory::is_lost)). Once on, it stays on for the life of the
/// process, for what is mapped already too; calling it again does nothing.
///
/// This installs a handler for SIGBUS, which is the process's and not this package's: hence only on request. The handler that
/// was there before gets every SIGBUS that is not about either. Whoever installs a handler afterwards takes the
/// signal away, unless that handler passes on what it does not know.
///
/// Without it, BARs are read and written by system calls, which fail cleanly and take about a microsecond each, unless a program
/// insists on the mapping ([`BarAccess`](crate::vfio::BarAccess)). Call it before cards are opened.
///
/// # Errors
/// The system's reason for giving no memory file, or for refusing the handler.
pub fn catch_bus_errors() -> Result<(), OsError> {
    INSTALLED.once(install)
}

/// Puts the handler in force, with all that it needs.
fn install() -> Result<(), OsError> {
    let before = action(None)?;
    let ones = Arc::new(page_of_ones()?);
    HandlerState::publish(&ones, before);
    let mut ours = before;
    ours.sa_sigaction = on_bus_error as *const () as usize;
    // On the signal stack where the thread has one, as the handler of the standard library wants it, to which this one may
    // pass a stack overflow.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    let replaced = action(Some(&ours))?;
    // Somebody may have installed another one since it was asked for.
    if replaced.sa_sigaction != before.sa_sigaction || replaced.sa_flags != before.sa_flags {
        HandlerState::publish(&ones, replaced);
    }
    Ok(())
}

impl HandlerState {
    /// Makes this the current one. The former is leaked: a handler may be using it.
    fn publish(ones: &Arc<OwnedFd>, before: libc::sigaction) {
        let guard = Box::leak(Box::new(Self { ones: Arc::clone(ones), before }));
        GUARD.store(ptr::from_mut(guard), Ordering::Release);
    }

    fn current() -> Option<&'static Self> {
        // SAFETY: null, or a leaked box that nobody changes.
        unsafe { GUARD.load(Ordering::Acquire).as_ref() }
    }
}

/// Whether the handler of [`catch_bus_errors`] is in force.
#[must_use]
pub fn bus_errors_caught() -> bool {
    INSTALLED.is_done()
}

/// A file of one page that is all ones, and stays so.
fn page_of_ones() -> Result<OwnedFd, OsError> {
    let file = rustix::fs::memfd_create("all-ones", MemfdFlags::CLOEXEC)?;
    let page = vec![0xFF; rustix::param::page_size()];
    match rustix::io::pwrite(&file, &page, 0) {
        Ok(written) if written == page.len() => Ok(file),
        Ok(_) => Err(Errno::NOSPC.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// What happens on SIGBUS; and changes it to `new`.
fn action(new: Option<&libc::sigaction>) -> Result<libc::sigaction, OsError> {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: both addresses are null or those of a `sigaction` that lives beyond the call. A new action is `on_bus_error`,
    // which has the signature that SA_SIGINFO asks for and keeps to what a handler may do, or one that was in force before.
    let result =
        unsafe { libc::sigaction(libc::SIGBUS, new.map_or(ptr::null(), ptr::from_ref), old.as_mut_ptr()) };
    if result != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: the call succeeded and has filled it in; all zeros are valid too.
    Ok(unsafe { old.assume_init() })
}

/// The handler.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel hands over a valid structure, whose address field is set for SIGBUS.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // Positive codes are the kernel's: nobody can send them.
    if code > 0
        && let Some(watch) = WatchedArea::find(address)
        && let Some(guard) = HandlerState::current()
    {
        // First the mark, then the page: whoever reads the page finds the mark.
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

/// Puts ones in the place of the page with `address`.
fn replace_page(address: usize, guard: &HandlerState) -> bool {
    let page = rustix::param::page_size();
    let start = ptr::without_provenance_mut(address - address % page);
    // SAFETY: the page belongs to a mapped BAR that some thread of this process is accessing just now, so it stays that BAR's
    // until that access is over; BARs are accessed by volatile loads and stores only, whatever is behind them. What takes
    // its place is readable, writable and private, and is unmapped with the BAR.
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

/// Puts private zeros in the place of the file's page with `address`.
fn replace_file_page(address: usize, page: usize) -> bool {
    let start = ptr::without_provenance_mut(address - address % page);
    // SAFETY: the page belongs to a mapped file that some thread of this process is accessing just now, so it stays that file's until
    // the access is over; such memory is accessed by atomics and copies only, whatever is behind it. What takes its place is readable,
    // writable and private, and is unmapped with the rest. Pages of a file that the system gives in larger pieces are replaced as such.
    let mapped = unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        rustix::mm::mmap_anonymous(start, page, access, MapFlags::PRIVATE | MapFlags::FIXED)
    };
    mapped.is_ok()
}

/// Does what would have happened without this handler.
fn chain_handler(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, code: c_int) {
    let Some(guard) = HandlerState::current() else { return };
    let before = &guard.before;
    match before.sa_sigaction {
        libc::SIG_IGN if code <= 0 => {}
        // The kernel ignores no bus error: it kills.
        libc::SIG_DFL | libc::SIG_IGN => {
            let mut default = *before;
            default.sa_sigaction = libc::SIG_DFL;
            let _ = action(Some(&default));
            // A fault comes again as soon as this returns; a signal that somebody sent does not.
            if code <= 0 {
                // SAFETY: sends a signal to this thread; it arrives when the handler returns.
                unsafe { libc::raise(signal) };
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: whoever installed it with SA_SIGINFO gave a function of this signature, which the kernel would have
            // called with the same arguments.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { core::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO the function takes the signal's number alone.
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
            assert!(!installed.is_done(), "somebody would map BARs without a handler");
            Err(7)
        };
        assert_eq!(installed.once(during), Err(7));
        assert!(!installed.is_done(), "a refusal is no installation");
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
        // Addresses that no mapping has: above what user space gets.
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
        // Some entry that was given back is used again, so the list does not grow with every BAR that is opened.
        assert!(!second.is_gone());
        drop(second);
        // SAFETY: entries are never freed.
        assert!(unsafe { &*entry }.sequence.load(Ordering::Relaxed).is_multiple_of(2));
    }
}
