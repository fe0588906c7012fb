//! How accesses of any width become accesses to registers.
//!
//! The DMA BAR knows aligned dwords only, the user BAR is AXI4-Lite (dwords, of which a write may strobe single bytes), the bypass BAR
//! takes anything. Firmware and kernels probe with every width, so nothing here may cause a side effect that the access did not ask
//! for: a narrow or crooked read sees the bytes but clears nothing; a narrow or crooked write is dropped and noted, unless it goes to
//! registers of the user BAR that do nothing but hold what is written.
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

/// A write that is not made of whole dwords, as AXI4-Lite carries it: dword by dword, with strobes for the bytes that it has.
/// `write` gets the address, the bytes in their places and a mask of them. All dwords have to be `plain` (a slave without byte
/// strobes would take the other bytes for written, and a register with effects would have them); otherwise the answer is `false`,
/// and nothing is written.
pub(crate) fn write_strobed(
    offset: u64,
    from: &[u8],
    plain: impl Fn(u32) -> bool,
    mut write: impl FnMut(u32, u32, u32),
) -> bool {
    let dwords = || {
        let end = offset.saturating_add(from.len() as u64);
        (offset & !3..end).step_by(4).map(|at| u32::try_from(at).ok())
    };
    if !dwords().all(|at| at.is_some_and(&plain)) {
        return false;
    }
    for at in dwords().flatten() {
        let (mut value, mut strobes) = (0, 0);
        for lane in 0..4 {
            let place =
                (u64::from(at) + lane).checked_sub(offset).and_then(|place| usize::try_from(place).ok());
            if let Some(byte) = place.and_then(|place| from.get(place)) {
                value |= u32::from(*byte) << (8 * lane);
                strobes |= 0xFF << (8 * lane);
            }
        }
        write(at, value, strobes);
    }
    true
}

const fn is_whole(offset: u64, length: usize) -> bool {
    offset.is_multiple_of(4) && length.is_multiple_of(4)
}
