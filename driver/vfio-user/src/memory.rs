//! Memory mapped for the device, and the device's access to memory without a file.

use fpga_registers::invariant::DebugExpect as _;
use std::collections::BTreeMap;

use rustix::io::Errno;

use super::wire::{Command, DmaTransfer, Reply, Request, encode_error, encode_reply};
use fpga_pci::{DmaAccess, SharedMemory};

/// Mappings by first address.
#[derive(Default)]
pub(super) struct Mapped(BTreeMap<u64, Mapping>);

struct Mapping {
    memory: SharedMemory,
    access: DmaAccess,
}

impl Mapped {
    /// Returns the number of mappings.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether any part of the `length` bytes from `address` is mapped.
    pub(super) fn overlaps(&self, address: u64, length: u64) -> bool {
        let Some(last) = length.checked_sub(1).and_then(|last| address.checked_add(last)) else {
            return true;
        };
        self.0
            .range(..=last)
            .next_back()
            .is_some_and(|(start, mapping)| start + (mapping.memory.len() as u64 - 1) >= address)
    }

    /// Adds a mapping that overlaps no other.
    pub(super) fn insert(&mut self, address: u64, memory: SharedMemory, access: DmaAccess) {
        self.0.insert(address, Mapping { memory, access });
    }

    /// Returns whether a mapping with exactly this range exists.
    pub(super) fn contains(&self, address: u64, length: u64) -> bool {
        self.0.get(&address).is_some_and(|mapping| mapping.memory.len() as u64 == length)
    }

    /// Returns whether the memory that begins at `address` can be accessed only through this process.
    pub(super) fn is_message_only(&self, address: u64) -> bool {
        self.0.get(&address).is_some_and(|mapping| mapping.memory.file().is_none())
    }

    pub(super) fn remove(&mut self, address: u64) -> Option<SharedMemory> {
        self.0.remove(&address).map(|mapping| mapping.memory)
    }

    /// Calls `each` with the parts of memory that make up the `length` bytes from `address`, in order: a transfer may span adjacent
    /// mappings. Returns `EFAULT` at an unmapped address, `EACCES` where `allowed` is false; earlier parts have been visited then.
    fn visit(
        &self,
        address: u64,
        length: usize,
        allowed: impl Fn(DmaAccess) -> bool,
        mut each: impl FnMut(&SharedMemory, usize, usize) -> Result<(), fpga_pci::MemoryError>,
    ) -> Result<(), Errno> {
        let mut done = 0;
        while done < length {
            let next = address.checked_add(done as u64).ok_or(Errno::FAULT)?;
            let (start, mapping) = self.0.range(..=next).next_back().ok_or(Errno::FAULT)?;
            let offset = usize::try_from(next - start).map_err(|_| Errno::FAULT)?;
            let left =
                mapping.memory.len().checked_sub(offset).filter(|left| *left != 0).ok_or(Errno::FAULT)?;
            if !allowed(mapping.access) {
                return Err(Errno::ACCESS);
            }
            let count = left.min(length - done);
            each(&mapping.memory, offset, count).map_err(|_| Errno::FAULT)?;
            done += count;
        }
        Ok(())
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        let mut done = 0;
        self.visit(address, into.len(), DmaAccess::device_reads, |memory, offset, count| {
            let part =
                into.get_mut(done..done + count).debug_expect("parts make up the whole").unwrap_or_default();
            done += count;
            memory.read(offset, part)
        })
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        // Partial writes are not performed.
        self.visit(address, from.len(), DmaAccess::device_writes, |_, _, _| Ok(()))?;
        let mut done = 0;
        self.visit(address, from.len(), DmaAccess::device_writes, |memory, offset, count| {
            let part =
                from.get(done..done + count).debug_expect("parts make up the whole").unwrap_or_default();
            done += count;
            memory.write(offset, part)
        })
    }

    /// Answers a request of the server on the device's behalf: appends the reply to `out`. A server may only send these two requests.
    pub(super) fn answer(&self, id: u16, command: Command, body: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let outcome = match Request::decode(command, body) {
            Ok(Request::DmaRead(transfer)) => {
                // At most MAX_DATA, otherwise it would not have been decoded.
                let mut data =
                    vec![0; usize::try_from(transfer.count).debug_expect("at most MAX_DATA").unwrap_or(0)];
                self.read(transfer.address, &mut data)
                    .map(|()| encode_reply(id, &Reply::DmaRead(transfer, &data), out))
            }
            Ok(Request::DmaWrite(transfer, data)) => self.write(transfer.address, data).map(|()| {
                let written = DmaTransfer { address: transfer.address, count: data.len() as u64 };
                encode_reply(id, &Reply::DmaWrite(written), out);
            }),
            Ok(_) => Err(Errno::OPNOTSUPP),
            Err(_) => Err(Errno::INVAL),
        };
        if let Err(errno) = outcome {
            tracing::warn!(%command, %errno, "a request of the card's server was refused");
            encode_error(id, command, errno.raw_os_error().unsigned_abs(), out);
        }
    }
}

#[cfg(test)]
mod tests;
