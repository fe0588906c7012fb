//! Test data, and its comparison.

use fpga_registers::{CardAddr, quantity};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// Number of bytes before and after a transfer that must not change.
pub(super) const GUARD: usize = 64;
/// Value of the guard bytes.
pub(super) const GUARD_BYTE: u8 = 0xA5;

/// Test data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// One set bit of 64 that moves: shows data lines that are stuck or shorted.
    WalkingOnes,
    /// Every aligned word has its card address as value: shows address lines that are stuck or shorted.
    Address,
    /// Seeded random bytes: shows faults that depend on the data.
    Random,
}

impl Pattern {
    pub(super) const ALL: [Self; 3] = [Self::WalkingOnes, Self::Address, Self::Random];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::WalkingOnes => "walking ones",
            Self::Address => "addresses",
            Self::Random => "random bytes",
        }
    }

    /// Fills `into` with the data for card address `at`.
    pub(super) fn fill(self, seed: u64, at: CardAddr, into: &mut [u8]) {
        if self == Self::Random {
            // The same bytes for the same address, independent of earlier fills.
            Pcg32::new(seed, at.get()).fill_bytes(into);
            return;
        }
        let mut address = at.get() & !7;
        // The first word begins before `at` if `at` is not aligned.
        let mut skip = usize::try_from(at.get() % 8).unwrap_or(0);
        let mut rest = into;
        let mut bit = 0;
        while !rest.is_empty() {
            let word = if self == Self::Address { address } else { 1_u64 << bit };
            let bytes = word.to_le_bytes();
            let from = bytes.get(skip..).unwrap_or_default();
            let count = from.len().min(rest.len());
            let (head, tail) = rest.split_at_mut(count);
            head.copy_from_slice(from.get(..count).unwrap_or_default());
            rest = tail;
            skip = 0;
            address = address.wrapping_add(8);
            bit = (bit + 1) % 64;
        }
    }
}

/// Bytes that differ from the expected ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what}: byte {offset} of {length} (card {card}) is {found:#04x} instead of {expected:#04x}, {wrong} wrong in all{}",
    if *guard { ", and it lies outside the transfer" } else { "" }, wrong = quantity(*wrong, "byte"))]
pub(super) struct Mismatch {
    /// Transfer.
    pub(super) what: String,
    pub(super) offset: usize,
    pub(super) length: usize,
    pub(super) card: CardAddr,
    pub(super) expected: u8,
    pub(super) found: u8,
    pub(super) wrong: usize,
    pub(super) guard: bool,
}

/// Expected data of a comparison.
pub(super) struct Expected<'a> {
    /// Bytes, including guards.
    pub(super) bytes: &'a [u8],
    /// Number of guard bytes at either end.
    pub(super) guard: usize,
    /// Card address of the first byte.
    pub(super) card: CardAddr,
}

/// Compares all bytes.
pub(super) fn compare(
    what: impl FnOnce() -> String,
    expected: &Expected<'_>,
    found: &[u8],
) -> Result<(), Mismatch> {
    if expected.bytes == found {
        return Ok(());
    }
    let differ = || {
        let pairs = expected.bytes.iter().zip(found).enumerate();
        pairs.filter(|(_, (expected, found))| expected != found)
    };
    let length = expected.bytes.len();
    let (offset, (was, is)) = differ().next().unwrap_or((length, (&0, &0)));
    Err(Mismatch {
        what: what(),
        offset,
        length,
        card: expected.card.checked_add(offset as u64).unwrap_or(expected.card),
        expected: *was,
        found: *is,
        wrong: differ().count(),
        guard: offset < expected.guard || offset >= length.saturating_sub(expected.guard),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_address_matches_offset() {
        let mut bytes = [0; 21];
        Pattern::Address.fill(0, CardAddr::new(0x1005), &mut bytes);
        assert_eq!(bytes[3..11], 0x1008_u64.to_le_bytes());
        assert_eq!(bytes[11..19], 0x1010_u64.to_le_bytes());
        assert_eq!(bytes[..3], 0x1000_u64.to_le_bytes()[5..]);
    }

    #[test]
    fn pattern_walking_ones_moves_one_bit() {
        let mut bytes = [0; 512];
        Pattern::WalkingOnes.fill(0, CardAddr::ZERO, &mut bytes);
        for (n, word) in bytes.chunks_exact(8).enumerate() {
            assert_eq!(u64::from_le_bytes(word.try_into().unwrap_or_default()), 1 << n);
        }
    }

    #[test]
    fn pattern_random_depends_on_seed_and_offset() {
        let fill = |seed, at| {
            let mut bytes = [0; 64];
            Pattern::Random.fill(seed, CardAddr::new(at), &mut bytes);
            bytes
        };
        assert_eq!(fill(1, 0), fill(1, 0));
        assert_ne!(fill(1, 0), fill(2, 0));
        assert_ne!(fill(1, 0), fill(1, 64));
    }

    #[test]
    fn pattern_first_wrong_byte_is_named() {
        let expected = Expected { bytes: &[1, 2, 3, 4, 5], guard: 1, card: CardAddr::new(0x100) };
        assert_eq!(compare(String::new, &expected, &[1, 2, 3, 4, 5]), Ok(()));
        let found =
            compare(|| "it".to_owned(), &expected, &[1, 2, 9, 4, 6]).map_err(|error| error.to_string());
        let text = found.unwrap_err();
        for part in ["it: byte 2 of 5", "0x102", "0x09 instead of 0x03", "2 bytes"] {
            assert!(text.contains(part), "{text}");
        }
        let guard = compare(String::new, &expected, &[1, 2, 3, 4, 0]).map_err(|error| error.guard);
        assert_eq!(guard, Err(true));
    }
}
