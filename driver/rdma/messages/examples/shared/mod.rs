//! Memory of the applications, and their atomic operations: none.

use fpga_driver::{SharedMemory, SharedSlice};
use fpga_messages::{AtomicCall, AtomicUnit, HostMemory};

pub(crate) const LARGEST: usize = 4 << 20;

/// Memory of the application: addresses are positions.
pub(crate) struct Memory(pub(crate) SharedMemory);

impl HostMemory for Memory {
    fn read(&self, from: u64, to: SharedSlice<'_>) {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let _ = to.copy_from(0, self.0.view(), from, to.len());
    }

    fn write(&self, to: u64, from: SharedSlice<'_>) {
        let to = usize::try_from(to).unwrap_or(usize::MAX);
        let _ = self.0.view().copy_from(to, from, 0, from.len());
    }

    fn lend(&self, from: u64, length: u64) -> Option<SharedMemory> {
        self.0.part(usize::try_from(from).ok()?, usize::try_from(length).ok()?).ok()
    }
}

pub(crate) struct NoAtomics;

impl AtomicUnit for NoAtomics {
    fn apply(&self, _: AtomicCall<'_>) -> bool {
        false
    }
}
