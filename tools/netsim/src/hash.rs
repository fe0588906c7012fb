//! Hash maps with keys of small numbers: flows, ports, vertices. Their hash needs no protection against chosen keys and is computed for
//! every packet, so it is one multiplication per number. Nothing depends on the order of such a map.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Map with keys of numbers.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Hash of numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // The golden ratio, as in Fibonacci hashing.
        self.0 = (self.0.rotate_left(32) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // Tables take the lowest bits and the highest seven.
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn number_hasher_neighbouring_pairs_spread_over_table() {
        let hasher = BuildHasherDefault::<NumberHasher>::default();
        let pairs = (0..256_u32).flat_map(|flow| (0..256_u32).map(move |port| (flow, port)));
        let places: HashSet<u64> = pairs.map(|pair| hasher.hash_one(pair) & 0xFFFF).collect();
        // Random places: 63 % of them have a pair.
        assert!(places.len() > 1 << 15, "{} of 65536 places", places.len());
    }
}
