//! Format of a read request in card memory, in little-endian words.
//!
//! | Bytes of a request | Content |
//! |---|---|
//! | 0..4 | [`MAGIC`] |
//! | 4..8 | [`VERSION`] |
//! | 8..16 | offset in the readable range |
//! | 16..24 | length in bytes |
//! | 24..32 | card address at the reader |
//! | 32..40 | key of the reader's window |
//! | 40..44 | scheme of the answer |
//! | 44..64 | 0 |

use fpga_firmware::generated::Scheme;
use fpga_registers::CardAddr;

/// First word of a request: the letters READ in memory order.
const MAGIC: u32 = u32::from_le_bytes(*b"READ");
/// Version of the format.
const VERSION: u32 = 2;
/// Size of a request, and of a slot, in bytes.
pub(super) const SLOT: u64 = 64;
/// The same as a `usize`.
pub(super) const SLOT_BYTES: usize = 64;

/// Read request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) to: CardAddr,
    pub(super) key: u64,
    /// Scheme of the request and of the answer. Both nodes run it, or the request does not arrive.
    pub(super) scheme: Scheme,
}

impl Request {
    pub(super) fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        let head = u64::from(MAGIC) | u64::from(VERSION) << 32;
        let scheme = u64::from(self.scheme.value());
        let words = [head, self.offset, self.length, self.to.get(), self.key, scheme];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes a request; `None` if the bytes are not a request.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; SLOT_BYTES] = bytes.try_into().ok()?;
        let (words, _) = bytes.as_chunks::<8>();
        let [head, offset, length, to, key, scheme, rest @ ..] = words else { return None };
        let value = |word: &[u8; 8]| u64::from_le_bytes(*word);
        let sound = value(head) == u64::from(MAGIC) | u64::from(VERSION) << 32
            && rest.iter().all(|word| value(word) == 0)
            && value(length) != 0;
        let scheme = u32::try_from(value(scheme)).ok().and_then(|scheme| Scheme::try_from(scheme).ok())?;
        let (to, key) = (CardAddr::new(value(to)), value(key));
        sound.then(|| Self { offset: value(offset), length: value(length), to, key, scheme })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_request_is_64_bytes_and_others_are_refused() {
        let (to, scheme) = (CardAddr::new(0x1_0000_0001), Scheme::Selective);
        let request = Request { offset: 3, length: 70_000, to, key: 0xFEED, scheme };
        let bytes = request.encode();
        assert_eq!(bytes[..8], *b"READ\x02\0\0\0");
        assert_eq!((bytes[8], bytes[24], bytes[28], bytes[32]), (3, 1, 1, 0xED));
        assert_eq!(Request::decode(&bytes), Some(request));
        assert_eq!(bytes[40..48], [5, 0, 0, 0, 0, 0, 0, 0]);
        for (at, value) in [(0, b'r'), (4, 1), (7, 1), (40, 6), (44, 1), (48, 1), (63, 1)] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert_eq!(Request::decode(&wrong), None, "byte {at}");
        }
        assert_eq!(Request::decode(&Request { length: 0, ..request }.encode()), None);
        assert_eq!(Request::decode(&bytes[..63]), None);
        assert_eq!(Request::decode(&[0; 64]), None);
    }
}
