//! Open device files of the programs.
//!
//! A device file is open in a program as an empty memory file (events: as a pipe). Its name, which the kernel shows in `/proc`, contains the
//! number of an entry in this table. So every duplicate of the descriptor in any process is recognised, and nothing needs to be known of
//! `dup`, `fork`, `exec` and descriptors that are sent to other processes.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, OFlags, memfd_create};
use rustix::io::Errno;

use crate::node::{DeviceFile, Node};

/// Open file description of a device file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The device file.
    pub(crate) file: DeviceFile,
    /// Flags of the `open` call.
    pub(crate) flags: OFlags,
    /// File position.
    position: AtomicU64,
}

impl OpenFile {
    /// The file position.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Sets the file position. Not locked during calls, as with the vendor's driver: of calls at the same time the last one counts.
    pub(crate) fn set_position(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    /// Whether transfers of a channel advance the file position. With the vendor's driver they do not, and its programs, which open their
    /// channels for reading and writing, rely on that. Programs that know nothing of the driver (dd, xxd, cat) open a file for one
    /// direction, or as one that may have to be created, and expect a position that advances.
    pub(crate) fn advances(&self) -> bool {
        self.flags & OFlags::RWMODE != OFlags::RDWR || self.flags.contains(OFlags::CREATE)
    }
}

/// Table of the open files.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// By number in the name of the memory file.
    open: Mutex<HashMap<u64, Arc<OpenFile>>>,
    /// Pipes of events, by the number of their inode.
    pipes: Mutex<HashMap<u64, Arc<OpenFile>>>,
}

impl Files {
    /// Creates a memory file for `file`, opened with `flags`.
    ///
    /// # Errors
    /// Those of `memfd_create(2)`.
    pub(crate) fn create(&self, file: DeviceFile, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let number = open.len() as u64;
        let descriptor = memfd_create(format!("{file}#{number}"), MemfdFlags::CLOEXEC)?;
        open.insert(number, Arc::new(OpenFile { file, flags, position: AtomicU64::new(0) }));
        Ok(descriptor)
    }

    /// Registers the pipe of an event.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    pub(crate) fn add_pipe(&self, file: DeviceFile, pipe: impl AsFd) -> Result<(), Errno> {
        debug_assert!(matches!(file.node, Node::Events(_)));
        let inode = rustix::fs::fstat(pipe)?.st_ino;
        let open = OpenFile { file, flags: OFlags::RDONLY, position: AtomicU64::new(0) };
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner).insert(inode, Arc::new(open));
        Ok(())
    }

    /// The device file that descriptor `descriptor` of `thread` stands for, if it is one.
    pub(crate) fn find(&self, thread: u32, descriptor: u64) -> Option<Arc<OpenFile>> {
        // The kernel's calls take the low 32 bits.
        let descriptor = u32::try_from(descriptor & u64::from(u32::MAX)).ok()?;
        let mut link = [0_u8; 64];
        let target = read_link(thread, descriptor, &mut link)?;
        self.of_link(target)
    }

    fn of_link(&self, target: &[u8]) -> Option<Arc<OpenFile>> {
        if let Some(name) = target.strip_prefix(b"/memfd:xdma") {
            let text = core::str::from_utf8(name).ok()?;
            let (_, number) = text.strip_suffix(" (deleted)")?.split_once('#')?;
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            return open.get(&number.parse().ok()?).cloned();
        }
        let text = core::str::from_utf8(target.strip_prefix(b"pipe:[")?).ok()?;
        let inode = text.strip_suffix(']')?.parse().ok()?;
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner).get(&inode).cloned()
    }

    /// The device file mapped under this name (a line of `/proc/PID/maps`).
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn of_mapping(&self, name: &str) -> Option<Arc<OpenFile>> {
        self.of_link(name.as_bytes())
    }
}

/// Target of a descriptor's link in `/proc`. `None`: no such descriptor, or a longer target than any device file has.
fn read_link(thread: u32, descriptor: u32, into: &mut [u8; 64]) -> Option<&[u8]> {
    let path = format!("/proc/{thread}/fd/{descriptor}");
    let length = rustix::fs::readlinkat_raw(rustix::fs::CWD, path, into.as_mut_slice()).ok()?;
    into.get(..length).filter(|target| target.len() < 64)
}
