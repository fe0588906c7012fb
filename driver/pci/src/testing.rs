//! Test support: a counting global allocator, with which packages that forbid unsafe code show that a path does not use the heap, a PCI
//! function without a device, and reports of skipped tests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Display;
use std::io::Write as _;

mod function;

/// Reports that the calling test is skipped, and why, past the test harness, which would capture the line. `.ci/run` lists all such lines at
/// its end.
pub fn skipped(reason: impl Display) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {reason}\n", thread.name().unwrap_or("a thread of a test"));
    // Without a standard error there is no reader.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Reports that the calling test is skipped without a program, and names the Debian package that has it.
pub fn skipped_without(program: &str, package: &str) {
    skipped(format_args!("{program} is not installed (Debian: apt-get install {package})"));
}

pub use function::StubBackend;

thread_local! {
    // Const-initialised and without a destructor: using it allocates nothing, which is required inside an allocator.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    // Signed: a thread may free what another one allocated.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// System allocator that counts calls and bytes per thread. Install it in a test binary:
///
/// ```
/// use fpga_pci::testing::CountingAllocator;
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator = CountingAllocator;
///
/// let (count, _) = CountingAllocator::count(|| Box::new(1));
/// assert_eq!(count, 1);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingAllocator;

impl CountingAllocator {
    /// Returns the number of allocations and reallocations of this thread so far. Frees are not counted.
    #[must_use]
    pub fn allocations() -> u64 {
        ALLOCATIONS.with(Cell::get)
    }

    /// Runs `work`. Returns the number of this thread's allocations during the call.
    pub fn count<T>(work: impl FnOnce() -> T) -> (u64, T) {
        let before = Self::allocations();
        let result = work();
        (Self::allocations() - before, result)
    }

    /// Runs `work`. Returns the maximum number of heap bytes that this thread held during the call, beyond those held before.
    pub fn peak<T>(work: impl FnOnce() -> T) -> (u64, T) {
        let before = LIVE.with(Cell::get);
        PEAK.with(|peak| peak.set(before));
        let result = work();
        let grown = PEAK.with(Cell::get) - before;
        (u64::try_from(grown).unwrap_or(0), result)
    }
}

fn count_allocation(bytes: usize) {
    ALLOCATIONS.with(|count| count.set(count.get() + 1));
    grow(bytes);
}

fn grow(bytes: usize) {
    LIVE.with(|live| {
        // No block is larger than isize::MAX.
        let now = live.get() + i64::try_from(bytes).unwrap_or(i64::MAX);
        live.set(now);
        PEAK.with(|peak| peak.set(peak.get().max(now)));
    });
}

fn shrink(bytes: usize) {
    LIVE.with(|live| live.set(live.get() - i64::try_from(bytes).unwrap_or(i64::MAX)));
}

// SAFETY: every call is forwarded to the system's allocator with the arguments unchanged, so its guarantees hold here; the counter neither
// allocates nor panics nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // The old block exists until the new one is filled.
        count_allocation(new_size);
        shrink(layout.size());
        // SAFETY: the block came from `System` through this allocator; the caller's promises are passed on.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the block came from `System` through this allocator; the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }
}
