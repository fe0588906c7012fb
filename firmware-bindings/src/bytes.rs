//! Little-endian integers at fixed offsets of fixed-size arrays.
//!
//! The offset is a constant and is checked against the array's length at compile time: there is no bounds check at run time that could
//! fail.
//!
//! [`ByteImage`] assembles a structure in words before it is stored. Bytes that are read back at once, as a checksum does eight at a time,
//! must come from a single store: a processor cannot forward a load from several stores that are still pending, and waits until all of
//! them have reached its cache.

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

/// Number of words of the longest [`ByteImage`].
const WORDS: usize = 11;

/// Structure of `LENGTH` bytes, zero except for the integers written to it.
pub(crate) struct ByteImage<const LENGTH: usize>([u64; WORDS]);

impl<const LENGTH: usize> ByteImage<LENGTH> {
    #[inline]
    pub(crate) const fn new() -> Self {
        const { assert!(LENGTH <= WORDS * 8 && LENGTH.is_multiple_of(4)) };
        Self([0; WORDS])
    }

    /// Writes the integer at byte `AT`, which must not have been written before. It lies within one word.
    #[inline]
    pub(crate) fn put<const AT: usize, T: Into<u64>>(&mut self, value: T) {
        const { assert!(AT + size_of::<T>() <= LENGTH && AT % 8 + size_of::<T>() <= 8) };
        if let Some(word) = self.0.get_mut(AT / 8) {
            *word |= value.into() << (AT % 8 * 8);
        }
    }

    /// Stores the structure.
    #[inline]
    pub(crate) fn store(&self, bytes: &mut [u8; LENGTH]) {
        let (whole, rest) = bytes.as_chunks_mut::<8>();
        for (place, word) in whole.iter_mut().zip(&self.0) {
            *place = word.to_le_bytes();
        }
        if let (Some(word), Some(place)) = (self.0.get(LENGTH / 8), rest.first_chunk_mut::<4>())
            && let Some(low) = word.to_le_bytes().first_chunk::<4>()
        {
            *place = *low;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_words_are_integers_in_place() {
        let mut image = ByteImage::new();
        image.put::<0, _>(0x01u8);
        image.put::<1, _>(0x02u8);
        image.put::<2, _>(0x0304u16);
        image.put::<4, _>(0x0506_0708u32);
        image.put::<16, _>(0x090a_0b0c_0d0e_0f10u64);
        image.put::<24, _>(0x1112u16);
        let mut bytes = [0xa5; 28];
        image.store(&mut bytes);
        let first = [1, 2, 4, 3, 8, 7, 6, 5, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes[..16], first);
        assert_eq!(bytes[16..], [16, 15, 14, 13, 12, 11, 10, 9, 0x12, 0x11, 0, 0]);
    }

    #[test]
    fn image_is_little_endian() {
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
