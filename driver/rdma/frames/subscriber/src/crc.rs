//! CRC-32C (Castagnoli), eight bytes per step by tables.
#![expect(
    clippy::indexing_slicing,
    reason = "tables of 256 entries are indexed by bytes; the rest is computed at compile time"
)]

/// Polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// `TABLES[n][byte]`: effect of `byte` followed by `n` zero bytes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0_u32; 256]; 8];
    let mut index = 0;
    while index < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ POLYNOMIAL };
            bit += 1;
        }
        tables[0][index] = crc;
        index += 1;
    }
    let mut index = 0;
    while index < 256 {
        let mut table = 1;
        while table < 8 {
            let before = tables[table - 1][index];
            tables[table][index] = before >> 8 ^ tables[0][(before & 0xFF) as usize];
            table += 1;
        }
        index += 1;
    }
    tables
}

/// Returns the CRC-32C of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    let (chunks, rest) = bytes.as_chunks::<8>();
    for chunk in chunks {
        let word = u64::from_le_bytes(*chunk) ^ u64::from(crc);
        crc = 0;
        for (table, byte) in TABLES.iter().rev().zip(word.to_le_bytes()) {
            crc ^= table[usize::from(byte)];
        }
    }
    for byte in rest {
        let [low, ..] = crc.to_le_bytes();
        crc = crc >> 8 ^ TABLES[0][usize::from(low ^ byte)];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check value of the CRC catalogue, and the test patterns of RFC 3720, B.4.
    #[test]
    fn crc_published_values_match() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&rising), 0x46DD_794E);
    }
}
