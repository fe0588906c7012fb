//! MSI-X table and pending bits (PG195: fixed places 0x8000 and 0x8FE0 in the DMA BAR).

use crate::config_space::ConfigSpace;
use crate::counters::CardCounters;
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::host::HostPort;

/// Entries of the table; the capability may advertise fewer (the table stays this long in hardware).
const ENTRIES: usize = 32;
/// Words of an entry: address low, high, data, control.
const ENTRY_WORDS: usize = 4;
const CONTROL_MASKED: u32 = 1;

/// The table.
#[derive(Debug)]
pub(crate) struct Msix {
    words: [u32; ENTRIES * ENTRY_WORDS],
    pending: u32,
    vectors: u16,
}

impl Msix {
    pub(crate) fn new(vectors: u16) -> Self {
        let mut table = Self { words: [0; ENTRIES * ENTRY_WORDS], pending: 0, vectors };
        table.reset();
        table
    }

    pub(crate) fn reset(&mut self) {
        self.pending = 0;
        for entry in self.words.chunks_exact_mut(ENTRY_WORDS) {
            // PG195: the control word resets to all ones, so every entry starts masked.
            entry.copy_from_slice(&[0, 0, 0, u32::MAX]);
        }
    }

    /// Word at byte `offset` into the table.
    pub(crate) fn read(&self, offset: u32) -> u32 {
        usize::try_from(offset / 4).ok().and_then(|index| self.words.get(index)).copied().unwrap_or(0)
    }

    pub(crate) fn write(&mut self, offset: u32, value: u32) {
        if let Some(word) = usize::try_from(offset / 4).ok().and_then(|index| self.words.get_mut(index)) {
            *word = value;
        }
    }

    /// The first word of the pending bit array; the second is 0 with at most 32 entries.
    pub(crate) const fn pending(&self) -> u32 {
        self.pending
    }

    /// Masks or unmasks the first `count` entries, as the host's kernel does.
    pub(crate) fn set_masked(&mut self, count: u16, masked: bool) {
        for entry in self.words.chunks_exact_mut(ENTRY_WORDS).take(count.into()) {
            if let Some(control) = entry.last_mut() {
                *control = if masked { *control | CONTROL_MASKED } else { *control & !CONTROL_MASKED };
            }
        }
    }

    /// Asks for message `vector`.
    pub(crate) fn raise(&mut self, vector: u8, faults: &mut FaultLog) {
        if u16::from(vector) >= self.vectors {
            faults.push(FaultKind::NoSuchVector, Unit::Xdma, 0, vector.into());
            return;
        }
        self.pending |= 1_u32.checked_shl(vector.into()).unwrap_or(0);
    }

    pub(crate) const fn drop_pending(&mut self) {
        self.pending = 0;
    }

    /// Sends what is pending and allowed.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        config: &ConfigSpace,
        counters: &mut CardCounters,
        host: &mut dyn HostPort,
    ) -> bool {
        // A message is a memory write: without bus mastering it stays pending.
        self.pending != 0
            && config.msix_enabled()
            && !config.msix_function_masked()
            && config.bus_master()
            && self.send(counters, host)
    }

    fn send(&mut self, counters: &mut CardCounters, host: &mut dyn HostPort) -> bool {
        let mut sent = false;
        for vector in 0..self.vectors {
            let bit = 1_u32.checked_shl(vector.into()).unwrap_or(0);
            let control = self.read(u32::from(vector) * 16 + 12);
            if self.pending & bit != 0 && control & CONTROL_MASKED == 0 {
                self.pending &= !bit;
                counters.interrupts += 1;
                host.interrupt(vector);
                sent = true;
            }
        }
        sent
    }
}
