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

impl Part {
    /// The part as an argument of `process_vm_readv`.
    fn remote(&self) -> Result<libc::iovec, Errno> {
        let address = usize::try_from(self.address).map_err(|_| Errno::FAULT)?;
        let length = usize::try_from(self.length).map_err(|_| Errno::FAULT)?;
        Ok(libc::iovec { iov_base: core::ptr::without_provenance_mut::<c_void>(address), iov_len: length })
    }
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

    /// Copies parts of `N` bytes, at most 1024 of them. Returns those before the first that the program cannot read.
    ///
    /// # Errors
    /// As [`read`](Self::read): the first part cannot be read.
    pub(crate) fn values<const N: usize>(
        self,
        addresses: impl Iterator<Item = u64>,
    ) -> Result<Vec<[u8; N]>, Errno> {
        let part = |address| Part { address, length: N as u64 }.remote();
        let remote = addresses.map(part).collect::<Result<Vec<_>, _>>()?;
        let mut values = vec![[0; N]; remote.len()];
        let local = libc::iovec { iov_base: values.as_mut_ptr().cast(), iov_len: N * values.len() };
        // SAFETY: `local` is `values`, which nothing else uses.
        let moved = unsafe { self.copy_parts(Way::FromProgram, local, &remote) }?;
        values.truncate(moved / N);
        Ok(values)
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

    /// Copies parts to shared memory, in order. Returns how many bytes: those of all parts before the first that the program cannot read.
    ///
    /// # Errors
    /// As [`read`](Self::read): the first part cannot be read.
    pub(crate) fn gather(self, parts: &[Part], into: SharedSlice<'_>) -> Result<u64, Errno> {
        // SAFETY: the slice covers live shared memory, which the kernel may write at any time, as the card may.
        unsafe { self.move_parts(Way::FromProgram, shared(into), parts) }
    }

    /// Copies shared memory to parts, in order. Returns how many bytes: those of all parts before the first that the program cannot write.
    ///
    /// # Errors
    /// As [`write`](Self::write): the first part cannot be written.
    pub(crate) fn scatter(self, parts: &[Part], from: SharedSlice<'_>) -> Result<u64, Errno> {
        // SAFETY: the slice covers live shared memory, which is only read.
        unsafe { self.move_parts(Way::ToProgram, shared(from), parts) }
    }

    /// Copies between shared memory and parts.
    ///
    /// # Safety
    /// As [`copy_parts`](Self::copy_parts).
    unsafe fn move_parts(self, way: Way, local: libc::iovec, parts: &[Part]) -> Result<u64, Errno> {
        let moved = match parts {
            // No memory for a list.
            // SAFETY: the caller vouches for `local`.
            [part] => unsafe { self.copy_parts(way, local, &[part.remote()?]) },
            parts => {
                let remote = parts.iter().map(|part| part.remote()).collect::<Result<Vec<_>, _>>()?;
                // SAFETY: the caller vouches for `local`.
                unsafe { self.copy_parts(way, local, &remote) }
            }
        }?;
        let mut whole = 0;
        for part in parts {
            if moved as u64 - whole < part.length {
                break;
            }
            whole += part.length;
        }
        if whole == 0 { Err(Errno::FAULT) } else { Ok(whole) }
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
    /// As [`copy_parts`](Self::copy_parts).
    unsafe fn copy(self, way: Way, local: libc::iovec, address: u64) -> Result<(), Errno> {
        if local.iov_len == 0 {
            return Ok(());
        }
        let remote = Part { address, length: local.iov_len as u64 }.remote()?;
        // SAFETY: the caller vouches for `local`.
        match unsafe { self.copy_parts(way, local, &[remote]) }? {
            moved if moved == local.iov_len => Ok(()),
            _ => Err(Errno::FAULT),
        }
    }

    /// Copies the bytes of `local` from or to parts of the program's memory, in order. Returns how many: all up to a part that the program
    /// cannot access.
    ///
    /// # Safety
    /// `local` must be valid for writes (from the program) or reads (to the program) during the call.
    unsafe fn copy_parts(self, way: Way, local: libc::iovec, remote: &[libc::iovec]) -> Result<usize, Errno> {
        let (local, count) = (&raw const local, remote.len() as libc::c_ulong);
        // Before a write, so that no other process's memory changes.
        if way == Way::ToProgram {
            self.check()?;
        }
        // SAFETY: the caller vouches for `local`. `remote` is in the other process: the kernel checks it against that process's mappings.
        let moved = unsafe {
            match way {
                Way::FromProgram => libc::process_vm_readv(self.thread, local, 1, remote.as_ptr(), count, 0),
                Way::ToProgram => libc::process_vm_writev(self.thread, local, 1, remote.as_ptr(), count, 0),
            }
        };
        let moved = usize::try_from(moved).map_err(|_| last_error());
        // After a read: the caller still waits, so it was its memory.
        if way == Way::FromProgram {
            self.check()?;
        }
        moved
    }
}

fn shared(slice: SharedSlice<'_>) -> libc::iovec {
    libc::iovec {
        iov_base: core::ptr::with_exposed_provenance_mut::<c_void>(slice.host_address()),
        iov_len: slice.len(),
    }
}
