//! Duplicates of the programs' open device files.
//!
//! A duplicate is the same open file description, so `kcmp(2)` tells in one system call whether a descriptor of a program still is that file,
//! and its position is read and set without the program. To find the same in `/proc` takes eight system calls. A descriptor that is closed
//! or replaced by any means does not compare equal any more, so nothing else has to be noticed.

use std::collections::HashMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;

use crate::node::DeviceFile;

/// Maximum number of duplicates. Beyond it all are closed: those of programs that have ended, too.
const MAX_DUPLICATES: usize = 64;
/// Comparison of two open file descriptions (`KCMP_FILE`, `linux/kcmp.h`).
const COMPARE_FILES: libc::c_long = 0;

/// Open device file of a program, and the supervisor's duplicate of it.
#[derive(Debug, Clone)]
pub(crate) struct Duplicate {
    pub(crate) file: DeviceFile,
    /// Flags of the open file. Those that a program can change later are not used.
    pub(crate) flags: OFlags,
    pub(crate) own: Arc<OwnedFd>,
}

/// Duplicates by thread and descriptor.
#[derive(Debug)]
pub(crate) struct Descriptions {
    process: u32,
    /// `None`: no duplicates are kept.
    known: Mutex<Option<HashMap<(u32, u32), Duplicate>>>,
}

impl Default for Descriptions {
    fn default() -> Self {
        Self { process: std::process::id(), known: Mutex::new(Some(HashMap::new())) }
    }
}

impl Descriptions {
    /// The duplicate of the file behind a thread's descriptor. `None`: not known, or the descriptor is of another file now.
    pub(crate) fn find(&self, thread: u32, descriptor: u32) -> Option<Duplicate> {
        let found = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.as_ref()?.get(&(thread, descriptor))?.clone()
        };
        let own = found.own.as_raw_fd().unsigned_abs();
        let [process, thread, own, descriptor] =
            [self.process, thread, own, descriptor].map(libc::c_ulong::from);
        // SAFETY: the arguments are numbers, not addresses.
        let order = unsafe { libc::syscall(libc::SYS_kcmp, process, thread, COMPARE_FILES, own, descriptor) };
        (order == 0).then_some(found)
    }

    /// Whether duplicates are kept.
    pub(crate) fn are_kept(&self) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Keeps a duplicate.
    pub(crate) fn add(&self, thread: u32, descriptor: u32, duplicate: Duplicate) {
        if let Some(known) = &mut *self.known.lock().unwrap_or_else(PoisonError::into_inner) {
            if known.len() >= MAX_DUPLICATES {
                known.clear();
            }
            known.insert((thread, descriptor), duplicate);
        }
    }

    /// Closes all duplicates, and keeps none from now on. A lock of an open file description (`flock`) ends with its last descriptor, which
    /// must be the program's.
    pub(crate) fn close(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
