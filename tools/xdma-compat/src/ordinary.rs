//! Asynchronous I/O on ordinary files, in one list with device files (`io_submit(2)`).
//!
//! The kernel would take the whole list, so the supervisor executes these requests, too, as the kernel does: on the caller's open file.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;

use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags};

use crate::memory::{Memory, Part};

/// Number of bytes that are copied at a time.
const CHUNK: usize = 1 << 20;
/// Alignment of the copy, for files without a cache (`O_DIRECT`).
const ALIGNMENT: usize = 4096;

/// Operation of a request on its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
    Sync,
    SyncData,
}

/// Whether requests on a file end by themselves: those on pipes and sockets may wait for ever.
pub(crate) fn is_supported(file: impl AsFd) -> bool {
    let kind = rustix::fs::fstat(file).map(|status| FileType::from_raw_mode(status.st_mode));
    matches!(kind, Ok(FileType::RegularFile | FileType::BlockDevice))
}

/// Executes a request. Returns its result.
///
/// # Errors
/// Those of the kernel.
pub(crate) fn execute(
    file: impl AsFd,
    operation: Operation,
    memory: Memory<'_>,
    parts: &[Part],
    offset: u64,
    flags: ReadWriteFlags,
) -> Result<u64, Errno> {
    match operation {
        Operation::Sync => return rustix::fs::fsync(file).map(|()| 0),
        Operation::SyncData => return rustix::fs::fdatasync(file).map(|()| 0),
        Operation::Read | Operation::Write => {}
    }
    let mut buffer = vec![0; CHUNK + ALIGNMENT];
    let aligned = buffer.as_ptr().align_offset(ALIGNMENT);
    let buffer = buffer.get_mut(aligned..).and_then(|buffer| buffer.get_mut(..CHUNK)).ok_or(Errno::NOMEM)?;
    let mut done = 0;
    for part in parts {
        let mut at = 0;
        while at < part.length {
            let length = usize::try_from(part.length - at).unwrap_or(CHUNK).min(CHUNK);
            let chunk = buffer.get_mut(..length).unwrap_or_default();
            memory.check()?;
            let step = move_chunk(&file, operation, memory, part.address + at, chunk, offset + done, flags);
            match step {
                Ok(moved) => {
                    done += moved as u64;
                    at += moved as u64;
                    if moved < length {
                        return Ok(done);
                    }
                }
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(done)
}

fn move_chunk(
    file: impl AsFd,
    operation: Operation,
    memory: Memory<'_>,
    address: u64,
    chunk: &mut [u8],
    offset: u64,
    flags: ReadWriteFlags,
) -> Result<usize, Errno> {
    if operation == Operation::Write {
        memory.read(address, chunk)?;
        return rustix::io::pwritev2(file, &[IoSlice::new(chunk)], offset, flags);
    }
    let moved = rustix::io::preadv2(file, &mut [IoSliceMut::new(chunk)], offset, flags)?;
    memory.write(address, chunk.get(..moved).unwrap_or_default())?;
    Ok(moved)
}
