//! How accesses of any width become accesses to registers.
//!
//! The DMA BAR knows aligned dwords only, the user BAR is AXI4-Lite (dwords), the bypass BAR takes anything. Firmware
//! and kernels probe with every width, so nothing here may cause a side effect that the access did not ask for:
//! a narrow or crooked read sees the bytes but clears nothing; a narrow or crooked write is dropped and noted.
//! An aligned access of several dwords is carried out dword by dword, low address first, as a bridge would split it.

/// What an access does to one dword.
pub(crate) enum DwordAccess {
    /// Aligned and whole: side effects included.
    Whole,
    /// Part of a dword: no side effects.
    Peek,
}

/// Splits a read of `into.len()` bytes at `offset` into dword reads.
pub(crate) fn read_dwords(offset: u64, into: &mut [u8], mut read: impl FnMut(u64, DwordAccess) -> u32) {
    if is_whole(offset, into.len()) {
        for (index, chunk) in into.chunks_exact_mut(4).enumerate() {
            let at = offset.wrapping_add(4 * index as u64);
            chunk.copy_from_slice(&read(at, DwordAccess::Whole).to_le_bytes());
        }
        return;
    }
    let mut held: Option<(u64, [u8; 4])> = None;
    for (index, byte) in into.iter_mut().enumerate() {
        let at = offset.wrapping_add(index as u64);
        let dword = at & !3;
        let bytes = match held {
            Some((address, bytes)) if address == dword => bytes,
            _ => read(dword, DwordAccess::Peek).to_le_bytes(),
        };
        held = Some((dword, bytes));
        let [a, b, c, d] = bytes;
        *byte = match at & 3 {
            0 => a,
            1 => b,
            2 => c,
            _ => d,
        };
    }
}

/// Splits a write into dword writes; `false` if it is not made of whole dwords (nothing is written then).
pub(crate) fn write_dwords(offset: u64, from: &[u8], mut write: impl FnMut(u64, u32)) -> bool {
    if !is_whole(offset, from.len()) {
        return false;
    }
    for (index, chunk) in from.chunks_exact(4).enumerate() {
        let value = chunk.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
        write(offset.wrapping_add(4 * index as u64), value);
    }
    true
}

const fn is_whole(offset: u64, length: usize) -> bool {
    offset.is_multiple_of(4) && length.is_multiple_of(4)
}
