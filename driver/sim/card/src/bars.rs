//! Conversion of accesses of any width to register accesses.
//!
//! The DMA BAR accepts aligned dwords only. The user BAR is AXI4-Lite: dwords, with byte strobes for writes. The bypass BAR accepts any
//! access. Firmware and kernels probe with every width, so an access must not cause a side effect that it did not ask for. A narrow or
//! misaligned read returns the bytes but clears nothing. A narrow or misaligned write is dropped and logged, unless it goes to registers
//! of the user BAR that only hold what is written.
//! An aligned access of several dwords is carried out dword by dword, low address first, as a bridge would split it.

/// Effect of an access on one dword.
pub(crate) enum DwordAccess {
    /// Aligned access to a whole dword, with side effects.
    Whole,
    /// Access to part of a dword, without side effects.
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

/// Splits a write into dword writes. Returns `false` and writes nothing if the access does not consist of whole dwords.
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

/// Splits a write that does not consist of whole dwords into dword writes with byte strobes, as AXI4-Lite carries it. `write` gets the
/// address, the bytes at their positions and the strobe mask. Returns `false` and writes nothing unless all dwords are `plain`: a slave
/// without byte strobes would write the other bytes too, and in a register with side effects that would have an effect.
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

/// Splits a write into dword writes with byte strobes (WSTRB). `write` gets the address, the bytes at their positions and the strobes.
pub(crate) fn write_bytes(offset: u64, from: &[u8], mut write: impl FnMut(u64, u32, u8)) {
    let end = offset.saturating_add(from.len() as u64);
    for at in (offset & !3..end).step_by(4) {
        let (mut value, mut strobes) = (0, 0);
        for lane in 0..4 {
            let place = (at + lane).checked_sub(offset).and_then(|place| usize::try_from(place).ok());
            if let Some(byte) = place.and_then(|place| from.get(place)) {
                value |= u32::from(*byte) << (8 * lane);
                strobes |= 1 << lane;
            }
        }
        write(at, value, strobes);
    }
}

const fn is_whole(offset: u64, length: usize) -> bool {
    offset.is_multiple_of(4) && length.is_multiple_of(4)
}
