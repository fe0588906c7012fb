//! CRC-32C (Castagnoli), used at the end of every packet and as the contract's checksum.
//!
//! Polynomial 0x1EDC6F41, reflected (0x82F63B78), start value and final exclusive or all ones: CRC-32/ISCSI of the usual catalogs;
//! `"123456789"` gives 0xE3069283. It detects every burst of up to 32 bits and every error of up to three bits in any packet of this
//! protocol (Hamming distance 4 up to 2^31 - 1 bits). It does not protect against intentional changes.
//!
//! With the feature `std` the `crc-fast` package computes it: carry-less multiplication where the processor supports it, its CRC
//! instruction for short inputs and remainders. Time for the 568 bytes of a usual packet on a core with AVX-512 and VPCLMULQDQ (Zen 4): 22
//! ns; with the instruction alone in one chain, 53 ns. Without those extensions `crc-fast` is about as fast as the instruction alone (on
//! Cascade Lake 64 ns against 51). Splitting a message into parts and combining their checksums is not faster, because the parts' chains
//! fill the processor's scheduler one after the other; it is used where header and payload are not contiguous. Without `std`, for which
//! `crc-fast` 1.10 does not compile on x86-64, tables are used, which takes about 335 ns.

/// Returns the CRC-32C of `bytes`.
#[must_use]
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(feature = "std")]
    {
        crc_fast::crc32_iscsi(bytes)
    }
    #[cfg(not(feature = "std"))]
    {
        table::crc32c(bytes)
    }
}

/// Returns the CRC-32C of a message with checksum `crc` followed by `bytes`. Fast for the payload lengths of full packets, from 512 bytes
/// on.
#[must_use]
#[inline]
pub fn crc32c_after(crc: u32, bytes: &[u8]) -> u32 {
    match append::zeros(crc, bytes.len()) {
        Some(effect) => effect ^ crc32c(bytes),
        None => continued(crc, bytes),
    }
}

/// As [`crc32c_after`], for any length.
fn continued(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(feature = "std")]
    {
        use crc_fast::{CrcAlgorithm, Digest};
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, (!crc).into());
        digest.update(bytes);
        fpga_registers::cast::low32(digest.finalize())
    }
    #[cfg(not(feature = "std"))]
    {
        table::continued(crc, bytes)
    }
}

/// Effect of trailing zeros on a checksum: remainders are linear, so it is looked up by nibbles.
mod append {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    const SHORTEST_LOG2: u32 = 9;
    const LENGTHS: usize = 7;

    /// `TABLES[l][k][n]`: effect of nibble `k` of a checksum with value `n` when 512 << `l` zeros follow.
    #[expect(
        clippy::indexing_slicing,
        reason = "evaluated at compile time: an index out of range cannot compile"
    )]
    static TABLES: [[[u32; 16]; 8]; LENGTHS] = {
        // Effect of each bit: after one zero byte, then after twice as many, and so on.
        let mut bits = [0; 32];
        let mut bit = 0;
        while bit < 32 {
            let mut remainder = 1u32 << bit;
            let mut step = 0;
            while step < 8 {
                remainder = (remainder >> 1) ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
                step += 1;
            }
            bits[bit] = remainder;
            bit += 1;
        }
        let mut doubled = 0;
        while doubled < SHORTEST_LOG2 {
            bits = twice(&bits);
            doubled += 1;
        }
        let mut tables = [[[0; 16]; 8]; LENGTHS];
        let mut length = 0;
        while length < LENGTHS {
            let mut nibble = 0;
            while nibble < 8 {
                let mut value = 0u32;
                while value < 16 {
                    tables[length][nibble][value as usize] = apply(&bits, value << (4 * nibble));
                    value += 1;
                }
                nibble += 1;
            }
            bits = twice(&bits);
            length += 1;
        }
        tables
    };

    #[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
    const fn apply(bits: &[u32; 32], crc: u32) -> u32 {
        let (mut sum, mut bit) = (0, 0);
        while bit < 32 {
            if crc >> bit & 1 == 1 {
                sum ^= bits[bit];
            }
            bit += 1;
        }
        sum
    }

    #[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
    const fn twice(bits: &[u32; 32]) -> [u32; 32] {
        let (mut result, mut bit) = ([0; 32], 0);
        while bit < 32 {
            result[bit] = apply(bits, bits[bit]);
            bit += 1;
        }
        result
    }

    #[inline]
    pub(super) fn zeros(crc: u32, length: usize) -> Option<u32> {
        if !length.is_power_of_two() {
            return None;
        }
        let table = TABLES.get(length.trailing_zeros().checked_sub(SHORTEST_LOG2)? as usize)?;
        Some((0..8).zip(table).fold(0, |sum, (nibble, entries)| {
            // Masked to the table's size: the default is never taken.
            sum ^ entries.get((crc >> (4 * nibble) & 15) as usize).copied().unwrap_or_default()
        }))
    }
}

/// Eight bytes per step with eight tables of 1 KiB, for builds that cannot query the processor's features.
#[cfg(any(test, not(feature = "std")))]
mod table {
    const POLYNOMIAL: u32 = 0x82f6_3b78;

    /// `TABLES[k][b]`: effect of byte `b` on the remainder when `k` more bytes follow it.
    #[expect(
        clippy::indexing_slicing,
        reason = "evaluated at compile time: an index out of range cannot compile"
    )]
    static TABLES: [[u32; 256]; 8] = {
        let mut tables = [[0; 256]; 8];
        let mut byte = 0;
        while byte < 256 {
            #[expect(clippy::cast_possible_truncation, reason = "at most 255")]
            let mut remainder = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                remainder = (remainder >> 1) ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
                bit += 1;
            }
            tables[0][byte] = remainder;
            byte += 1;
        }
        let mut following = 1;
        while following < 8 {
            let mut byte = 0;
            while byte < 256 {
                let shorter = tables[following - 1][byte];
                tables[following][byte] = (shorter >> 8) ^ tables[0][(shorter & 0xff) as usize];
                byte += 1;
            }
            following += 1;
        }
        tables
    };

    fn entry(following: usize, byte: u32) -> u32 {
        // Masked to the table's size: the default is never taken.
        TABLES.get(following).and_then(|table| table.get((byte & 0xff) as usize)).copied().unwrap_or_default()
    }

    pub(super) fn crc32c(bytes: &[u8]) -> u32 {
        continued(0, bytes)
    }

    pub(super) fn continued(crc: u32, bytes: &[u8]) -> u32 {
        let (steps, rest) = bytes.as_chunks::<8>();
        let crc = steps.iter().fold(!crc, |crc, step| {
            let [a, b, c, d, e, f, g, h] = *step;
            let low = crc ^ u32::from_le_bytes([a, b, c, d]);
            let high = u32::from_le_bytes([e, f, g, h]);
            entry(7, low)
                ^ entry(6, low >> 8)
                ^ entry(5, low >> 16)
                ^ entry(4, low >> 24)
                ^ entry(3, high)
                ^ entry(2, high >> 8)
                ^ entry(1, high >> 16)
                ^ entry(0, high >> 24)
        });
        !rest.iter().fold(crc, |crc, byte| (crc >> 8) ^ entry(0, crc ^ u32::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// One bit at a time, directly from the definition.
    fn bitwise(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |crc, byte| bitwise_step(crc, *byte))
    }

    fn bitwise_step(crc: u32, byte: u8) -> u32 {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    }

    #[test]
    fn crc_check_values_match() {
        // RFC 3720, B.4: 32 bytes each of zeros, ones, ascending, descending; and the catalogs' check string.
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        for (input, expected) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (&descending, 0x113f_db5c),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c(input), expected);
            assert_eq!(table::crc32c(input), expected);
            assert_eq!(bitwise(input), expected);
        }
    }

    /// Every length up to 2000 bytes, at every offset within a cache line: a fast implementation aligns itself first, then processes whole
    /// blocks, then the rest in steps of eight bytes and of one.
    #[test]
    fn crc_every_length_and_offset_matches_definition() {
        const MAX_INPUT: usize = 2000;
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let bytes: Vec<u8> = core::iter::repeat_with(|| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random.to_le_bytes()[0]
        })
        .take(MAX_INPUT + 64)
        .collect();
        for place in 0..64 {
            let mut crc = u32::MAX;
            for length in 0..=MAX_INPUT {
                let piece = &bytes[place..place + length];
                assert_eq!(crc32c(piece), !crc, "{length} bytes from {place}");
                if place == 0 {
                    assert_eq!(table::crc32c(piece), !crc, "{length} bytes");
                }
                crc = bitwise_step(crc, bytes[place + length]);
            }
        }
    }

    #[test]
    fn crc_continued_over_full_payload_matches() {
        let bytes: Vec<u8> = (0..33_000u32).map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()[3]).collect();
        for head in [0, 1, 7, 16, 64, 97, 100] {
            for length in [0, 1, 56, 256, 511, 512, 513, 1024, 1536, 2048, 4096, 4097, 8192, 16_384, 32_768] {
                let (head, rest) = bytes.split_at(head);
                let (expected, rest) = (bitwise(&bytes[..head.len() + length]), &rest[..length]);
                assert_eq!(crc32c_after(crc32c(head), rest), expected, "{length} bytes");
                assert_eq!(continued(crc32c(head), rest), expected, "{length} bytes");
                assert_eq!(table::continued(crc32c(head), rest), expected, "{length} bytes");
            }
        }
    }

    proptest! {
        #[test]
        fn crc_fast_variants_match_definition(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            prop_assert_eq!(crc32c(&bytes), bitwise(&bytes));
            prop_assert_eq!(table::crc32c(&bytes), bitwise(&bytes));
        }
    }
}
