//! MSI-X table and pending bits (PG195: fixed offsets 0x8000 and 0x8FE0 in the DMA BAR).

/// Entries of the table. The capability may advertise fewer; the hardware table has this length anyway.
const ENTRIES: usize = 32;
/// Words of an entry: address low, high, data, control.
const ENTRY_WORDS: usize = 4;
const CONTROL_MASKED: u32 = 1;

/// MSI-X table and pending bits.
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

    /// First word of the pending bit array; the second is 0 with at most 32 entries.
    pub(crate) const fn pending(&self) -> u32 {
        self.pending
    }

    /// Masks or unmasks `count` entries, starting at `first`, as the host's kernel does.
    pub(crate) fn set_masked(&mut self, first: u16, count: u16, masked: bool) {
        for entry in self.words.chunks_exact_mut(ENTRY_WORDS).skip(first.into()).take(count.into()) {
            if let Some(control) = entry.last_mut() {
                *control = if masked { *control | CONTROL_MASKED } else { *control & !CONTROL_MASKED };
            }
        }
    }

    /// Makes message `vector` pending. Returns `false` if the entry does not exist.
    pub(crate) const fn raise(&mut self, vector: u8) -> bool {
        let exists = (vector as u16) < self.vectors;
        if exists {
            self.pending |= 1 << (vector & 31);
        }
        exists
    }

    pub(crate) const fn drop_pending(&mut self) {
        self.pending = 0;
    }

    /// Pending messages whose entries are not masked, one bit each.
    pub(crate) fn sendable(&self) -> u32 {
        let entries = self.words.chunks_exact(ENTRY_WORDS).enumerate();
        let masked = entries.filter(|(_, entry)| entry.last().is_some_and(|word| word & CONTROL_MASKED != 0));
        self.pending & !masked.fold(0, |mask, (number, _)| mask | 1 << number)
    }

    /// Clears the pending bit of message `vector` after it was sent.
    pub(crate) const fn sent(&mut self, vector: u16) {
        self.pending &= !(1 << (vector & 31));
    }
}
