//! Process of a handle: what a process has opened is not usable in its children.
//!
//! A fork copies all handles, and the child's copies lead to the same device: a register write, a message to a card's server, or closing a
//! handle would disturb the parent. So a handle remembers the process that made it ([`Process`]), and its functions fail in any other one
//! ([`OtherProcess`]). In another process dropping a handle accesses no device and takes no lock, which another thread may have held at the fork.
//!
//! The check compares a counter that the C library's fork increments in the child; it makes no system call. A child that is created by the
//! system call alone, past the C library, is not detected.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

/// Number of forks between the first process with a handle and this one, plus one; [`UNKNOWN`] if forks are not counted.
static GENERATION: AtomicU32 = AtomicU32::new(UNKNOWN);
/// The C library does not report forks: the numbers of processes are compared.
const UNKNOWN: u32 = 0;

/// Process that made a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    generation: u32,
    id: u32,
}

/// The handle was made by another process: by a parent, before a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this handle belongs to process {process}, and this is another process (after a fork)")]
pub struct OtherProcess {
    /// Number of the process that made the handle.
    pub process: u32,
}

impl OtherProcess {
    /// Returns what a person can do about it.
    #[must_use]
    pub const fn help(self) -> &'static str {
        "open the card in this process"
    }
}

impl Process {
    /// Returns the calling process.
    #[must_use]
    pub fn current() -> Self {
        static COUNTED: OnceLock<()> = OnceLock::new();
        COUNTED.get_or_init(|| {
            // SAFETY: the handler changes one atomic number, which is allowed in a child of a process with threads.
            if unsafe { libc::pthread_atfork(None, None, Some(count_fork)) } == 0 {
                GENERATION.store(UNKNOWN + 1, Ordering::Relaxed);
            }
        });
        Self { generation: GENERATION.load(Ordering::Relaxed), id: std::process::id() }
    }

    /// Returns whether it is the calling process.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        let generation = GENERATION.load(Ordering::Relaxed);
        self.generation == generation && (generation != UNKNOWN || self.id == std::process::id())
    }

    /// Returns it as a number, for tables of handles.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.id as u64
    }

    /// Returns the process of a number from [`to_bits`](Self::to_bits).
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the number")]
    pub const fn from_bits(bits: u64) -> Self {
        Self { generation: (bits >> 32) as u32, id: bits as u32 }
    }

    /// Returns an error unless it is the calling process.
    ///
    /// # Errors
    /// [`OtherProcess`].
    #[inline]
    pub fn check(self) -> Result<(), OtherProcess> {
        if self.is_current() { Ok(()) } else { Err(self.other()) }
    }

    #[cold]
    const fn other(self) -> OtherProcess {
        OtherProcess { process: self.id }
    }
}

/// Runs in the child of a fork.
unsafe extern "C" fn count_fork() {
    // Relaxed: the child has one thread.
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
