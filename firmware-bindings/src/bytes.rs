//! Little-endian integers at fixed places of fixed-size arrays.
//!
//! The place is a constant and is checked against the array's length when the call is compiled: there is no bounds check
//! at run time, and none can fail.

#![warn(clippy::indexing_slicing)]

macro_rules! integer {
    ($integer:ty, $get:ident, $put:ident, $size:literal) => {
        /// Reads the integer at byte `AT`.
        #[inline]
        pub(crate) const fn $get<const AT: usize, const LENGTH: usize>(bytes: &[u8; LENGTH]) -> $integer {
            const { assert!(LENGTH - AT >= $size) };
            match bytes.split_at(AT).1.first_chunk() {
                Some(chunk) => <$integer>::from_le_bytes(*chunk),
                // Excluded by the assertion above.
                None => 0,
            }
        }

        /// Writes the integer at byte `AT`.
        #[inline]
        pub(crate) const fn $put<const AT: usize, const LENGTH: usize>(
            bytes: &mut [u8; LENGTH],
            value: $integer,
        ) {
            const { assert!(LENGTH - AT >= $size) };
            if let Some(chunk) = bytes.split_at_mut(AT).1.first_chunk_mut() {
                *chunk = value.to_le_bytes();
            }
        }
    };
}

integer!(u8, u8_at, put_u8, 1);
integer!(u16, u16_at, put_u16, 2);
integer!(u32, u32_at, put_u32, 4);
integer!(u64, u64_at, put_u64, 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_endian_in_place() {
        let mut bytes = [0xa5; 16];
        put_u8::<0, _>(&mut bytes, 0x01);
        put_u16::<1, _>(&mut bytes, 0x0203);
        put_u32::<3, _>(&mut bytes, 0x0405_0607);
        put_u64::<8, _>(&mut bytes, 0x0809_0a0b_0c0d_0e0f);
        assert_eq!(bytes, [1, 3, 2, 7, 6, 5, 4, 0xa5, 0xf, 0xe, 0xd, 0xc, 0xb, 0xa, 9, 8]);
        assert_eq!(u8_at::<0, _>(&bytes), 0x01);
        assert_eq!(u16_at::<1, _>(&bytes), 0x0203);
        assert_eq!(u32_at::<3, _>(&bytes), 0x0405_0607);
        assert_eq!(u64_at::<8, _>(&bytes), 0x0809_0a0b_0c0d_0e0f);
    }
}
