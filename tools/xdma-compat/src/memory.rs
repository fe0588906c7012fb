//! Memory of a supervised thread, which its system calls point to.

use core::ffi::c_void;

use fpga_pci::SharedSlice;
use rustix::io::Errno;

use crate::listener::{Call, Listener, last_error};

/// Maximum length of a path (`linux/limits.h`).
const PATH_MAX: usize = 4096;
/// A string is read up to the end of such a unit: the smallest page of any machine, so the read never leaves mapped memory.
const PAGE: u64 = 4096;

/// Memory of the program that a thread belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory<'a> {
    thread: libc::pid_t,
    /// The call that the memory is accessed for. Only while it waits, the thread's number is certainly its own.
    call: Option<(&'a Listener, &'a Call)>,
}

/// Part of a program's memory, as `readv` names it (`struct iovec`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Address of the first byte.
    pub(crate) address: u64,
    /// Number of bytes.
    pub(crate) length: u64,
}

/// Direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    FromProgram,
    ToProgram,
}

impl Memory<'static> {
    /// Memory of a thread that this process traces, and that has stopped.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn of_stopped(thread: libc::pid_t) -> Self {
        Self { thread, call: None }
    }

    /// Memory of this process.
    pub(crate) fn own() -> Self {
        // Process numbers are positive and have at most 22 bits.
        Self { thread: libc::pid_t::try_from(std::process::id()).unwrap_or(-1), call: None }
    }
}

impl<'a> Memory<'a> {
    /// Memory of the caller of `call`, while the call waits.
    pub(crate) fn of(listener: &'a Listener, call: &'a Call) -> Self {
        Self { thread: libc::pid_t::try_from(call.thread).unwrap_or(-1), call: Some((listener, call)) }
    }

    /// Checks that the memory is still that of the caller.
    ///
    /// # Errors
    /// `ESRCH`: the caller has ended.
    pub(crate) fn check(self) -> Result<(), Errno> {
        match self.call {
            Some((listener, call)) if !listener.is_waiting(call) => Err(Errno::SRCH),
            _ => Ok(()),
        }
    }

    /// Copies `into.len()` bytes at `address` to `into`.
    ///
    /// # Errors
    /// `EFAULT` for memory that the program cannot read; `ESRCH` if it has ended.
    pub(crate) fn read(self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        // SAFETY: `local` is `into`, which this function borrows mutably.
        unsafe { self.copy(Way::FromProgram, local, address) }
    }

    /// Copies `from` to `address`.
    ///
    /// # Errors
    /// `EFAULT` for memory that the program cannot write; `ESRCH` if it has ended.
    pub(crate) fn write(self, address: u64, from: &[u8]) -> Result<(), Errno> {
        let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
        // SAFETY: `local` is `from`, which is only read.
        unsafe { self.copy(Way::ToProgram, local, address) }
    }

    /// Copies the bytes at `address` to shared memory.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_shared(self, address: u64, into: SharedSlice<'_>) -> Result<(), Errno> {
        // SAFETY: the slice covers live shared memory, which the kernel may write at any time, as the card may.
        unsafe { self.copy(Way::FromProgram, shared(into), address) }
    }

    /// Copies shared memory to `address`.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn write_shared(self, address: u64, from: SharedSlice<'_>) -> Result<(), Errno> {
        // SAFETY: the slice covers live shared memory, which is only read.
        unsafe { self.copy(Way::ToProgram, shared(from), address) }
    }

    /// Reads the path at `address`, without the zero at its end.
    ///
    /// # Errors
    /// As [`read`](Self::read); `ENAMETOOLONG`.
    pub(crate) fn path(self, address: u64) -> Result<Vec<u8>, Errno> {
        let mut path = Vec::with_capacity(256);
        while path.len() < PATH_MAX {
            let at = address.wrapping_add(path.len() as u64);
            let length = usize::try_from((PAGE - at % PAGE).min(256)).unwrap_or(256);
            let start = path.len();
            path.resize(start + length, 0);
            let unit = path.get_mut(start..).unwrap_or_default();
            self.read(at, unit)?;
            if let Some(end) = unit.iter().position(|byte| *byte == 0) {
                path.truncate(start + end);
                return Ok(path);
            }
        }
        Err(Errno::NAMETOOLONG)
    }

    /// Reads the `count` parts of a list (`struct iovec`) at `address`.
    ///
    /// # Errors
    /// As [`read`](Self::read); `EINVAL` for more parts than the kernel allows (1024), or too many bytes together.
    pub(crate) fn parts(self, address: u64, count: u64) -> Result<Vec<Part>, Errno> {
        let count = usize::try_from(count).ok().filter(|count| *count <= 1024).ok_or(Errno::INVAL)?;
        let mut bytes = vec![0; 16 * count];
        self.read(address, &mut bytes)?;
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        let parts: Vec<Part> = bytes
            .chunks_exact(16)
            .map(|part| Part { address: word(part), length: word(part.get(8..).unwrap_or_default()) })
            .collect();
        let total = parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.length));
        total.filter(|total| i64::try_from(*total).is_ok()).ok_or(Errno::INVAL)?;
        Ok(parts)
    }

    /// Reads a value that consists of `N` bytes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn value<const N: usize>(self, address: u64) -> Result<[u8; N], Errno> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies all bytes of `local` from or to `address`.
    ///
    /// # Safety
    /// `local` must be valid for writes (from the program) or reads (to the program) during the call.
    unsafe fn copy(self, way: Way, local: libc::iovec, address: u64) -> Result<(), Errno> {
        if local.iov_len == 0 {
            return Ok(());
        }
        let Ok(at) = usize::try_from(address) else { return Err(Errno::FAULT) };
        self.check()?;
        let remote =
            libc::iovec { iov_base: core::ptr::without_provenance_mut::<c_void>(at), iov_len: local.iov_len };
        // SAFETY: the caller vouches for `local`. `remote` is in the other process: the kernel checks it against that process's mappings.
        let moved = unsafe {
            match way {
                Way::FromProgram => {
                    libc::process_vm_readv(self.thread, &raw const local, 1, &raw const remote, 1, 0)
                }
                Way::ToProgram => {
                    libc::process_vm_writev(self.thread, &raw const local, 1, &raw const remote, 1, 0)
                }
            }
        };
        match usize::try_from(moved) {
            Ok(moved) if moved == local.iov_len => Ok(()),
            Ok(_) => Err(Errno::FAULT),
            Err(_) => Err(last_error()),
        }
    }
}

fn shared(slice: SharedSlice<'_>) -> libc::iovec {
    libc::iovec {
        iov_base: core::ptr::with_exposed_provenance_mut::<c_void>(slice.host_address()),
        iov_len: slice.len(),
    }
}
