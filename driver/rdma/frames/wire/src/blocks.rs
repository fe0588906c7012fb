//! Blocks in card memory besides data: the frame header, and the two cells in which publisher and subscriber report their progress to each
//! other. All numbers are little-endian. Each of the three is a block of 64 bytes that ends in a CRC-32C of the rest, so that a
//! half-written or foreign block is detected.
//!
//! ```text
//! frame       0 magic "FRM1"  4 version u16  6 kind u16   8 stream u64  16 sequence u64  24 data bytes u64
//!            32 value bytes u32  36 space for the value u32  40 time u64  48 zeros                       60 CRC
//! status      0 magic "FRM1"  4 version u16  6 kind u16   8 stream u64  16 next sequence u64  24 settled u32  28 sent u32
//!            32 ended u32  36 number u32  40 zeros                                                       60 CRC
//! credit      0 magic "FRM1"  4 version u16  6 kind u16   8 key u64     16 consumed u32  20 leaving u32
//!            24 heard u32  28 zeros                                                                      60 CRC
//! ```
//!
//! A frame's value follows its header in a space of fixed size, and the data follows the value. Both are therefore written in place, in any
//! order.
//!
//! A transfer carries one frame, or several that lie in adjacent slots: all slots of its range but the last are transferred whole, and the
//! bytes after the frames in them mean nothing.

use fpga_firmware::crc::crc32c;
use fpga_registers::quantity;

use crate::sequence::Sequence;

/// Version of everything that is exchanged: these blocks and the [`messages`](crate::messages) of the bootstrap.
pub const VERSION: u16 = 4;

/// Length of a block in bytes.
pub const BLOCK: usize = 64;
/// `BLOCK` as a card memory length.
pub const BLOCK_BYTES: u64 = BLOCK as u64;

const MAGIC: [u8; 4] = *b"FRM1";
const CRC_AT: usize = BLOCK - 4;

/// Reason why a block is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// Fewer than 64 bytes.
    #[error("it has {found}", found = quantity(*found, "byte"))]
    Short {
        /// Number of bytes.
        found: usize,
    },
    /// The CRC does not match.
    #[error(
        "its CRC-32C is {found:#010x} instead of {computed:#010x}: it is damaged or incompletely written"
    )]
    Crc {
        /// CRC in the block.
        found: u32,
        /// CRC computed over the block.
        computed: u32,
    },
    /// Not a block of frame streams.
    #[error("it begins with {found:02x?}")]
    Magic {
        /// First bytes of the block.
        found: [u8; 4],
    },
    /// Another version.
    #[error("its version is {found}, but only version {VERSION} is supported")]
    Version {
        /// Version in the block.
        found: u16,
    },
    /// Another kind of block.
    #[error("its kind is {found} instead of {expected}")]
    Kind {
        /// Kind in the block.
        found: u16,
        /// Expected kind.
        expected: u16,
    },
    /// A block of another stream.
    #[error(
        "it belongs to stream {found:#x}, not to {expected:#x}: a restarted publisher has another stream; join again"
    )]
    Stream {
        /// Stream in the block.
        found: u64,
        /// Stream that was joined.
        expected: u64,
    },
    /// The lengths contradict each other.
    #[error("its lengths contradict each other or the received length")]
    Lengths,
}

/// Reads numbers from the front of a byte slice.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// Writes numbers one behind the other. A number that does not fit is omitted; the constant sizes of all callers exclude this.
pub(crate) struct Writer<'a>(pub(crate) &'a mut [u8]);

impl Writer<'_> {
    pub(crate) fn put<const N: usize>(&mut self, bytes: [u8; N]) -> &mut Self {
        let place = core::mem::take(&mut self.0);
        match place.split_first_chunk_mut::<N>() {
            Some((head, rest)) => {
                *head = bytes;
                self.0 = rest;
            }
            None => debug_assert!(false, "a block has space for all its fields"),
        }
        self
    }

    pub(crate) fn u16(&mut self, number: u16) -> &mut Self {
        self.put(number.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, number: u32) -> &mut Self {
        self.put(number.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, number: u64) -> &mut Self {
        self.put(number.to_le_bytes())
    }
}

fn seal(kind: u16, stream: u64, fill: impl FnOnce(&mut Writer<'_>)) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    let mut writer = Writer(&mut bytes);
    writer.put(MAGIC).u16(VERSION).u16(kind).u64(stream);
    fill(&mut writer);
    if let Some((body, crc)) = bytes.split_last_chunk_mut::<4>() {
        *crc = crc32c(body).to_le_bytes();
    }
    bytes
}

/// Checks the fields that all blocks share. The returned reader is positioned after the stream number.
fn open(bytes: &[u8], kind: u16, stream: u64) -> Result<Reader<'_>, BlockError> {
    let short = BlockError::Short { found: bytes.len() };
    let block = bytes.first_chunk::<BLOCK>().ok_or(short)?;
    let (body, crc) = block.split_last_chunk::<4>().ok_or(short)?;
    debug_assert_eq!(body.len(), CRC_AT);
    let (found, computed) = (u32::from_le_bytes(*crc), crc32c(body));
    let mut reader = Reader(body);
    let magic = reader.take::<4>().ok_or(short)?;
    if magic != MAGIC {
        return Err(BlockError::Magic { found: magic });
    }
    if found != computed {
        return Err(BlockError::Crc { found, computed });
    }
    let version = reader.u16().ok_or(short)?;
    if version != VERSION {
        return Err(BlockError::Version { found: version });
    }
    let what = reader.u16().ok_or(short)?;
    if what != kind {
        return Err(BlockError::Kind { found: what, expected: kind });
    }
    match reader.u64().ok_or(short)? {
        found if found == stream => Ok(reader),
        found => Err(BlockError::Stream { found, expected: stream }),
    }
}

/// Frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Stream of the publisher.
    pub stream: u64,
    /// Sequence number of the frame.
    pub sequence: Sequence,
    /// Length of the data in bytes.
    pub data_length: u64,
    /// Length of the value in bytes.
    pub value_length: u32,
    /// Bytes between header and data.
    pub max_value_length: u32,
    /// Publication time by the clock of the publisher's card, in nanoseconds.
    pub time: u64,
}

impl FrameHeader {
    const KIND: u16 = 1;

    /// Serialises the header.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK] {
        seal(Self::KIND, self.stream, |out| {
            out.u64(self.sequence.get()).u64(self.data_length);
            out.u32(self.value_length).u32(self.max_value_length).u64(self.time);
        })
    }

    /// Parses the header of a frame at the start of `length` received bytes, header included. More bytes than the frame has are received
    /// if another frame follows in the same transfer.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn decode(head: &[u8], length: usize, stream: u64) -> Result<Self, BlockError> {
        let mut reader = open(head, Self::KIND, stream)?;
        let mut number = || reader.u64().ok_or(BlockError::Lengths);
        let (sequence, data_length) = (Sequence::new(number()?), number()?);
        let value_length = reader.u32().ok_or(BlockError::Lengths)?;
        let max_value_length = reader.u32().ok_or(BlockError::Lengths)?;
        let time = reader.u64().ok_or(BlockError::Lengths)?;
        let whole = data_length.checked_add(BLOCK_BYTES + u64::from(max_value_length));
        let fits = whole.is_some_and(|whole| usize::try_from(whole).is_ok_and(|whole| whole <= length));
        if !fits || value_length > max_value_length {
            return Err(BlockError::Lengths);
        }
        Ok(Self { stream, sequence, data_length, value_length, max_value_length, time })
    }
}

/// Status block: progress of a publisher, for one of its subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusBlock {
    /// Stream number.
    pub stream: u64,
    /// Sequence number of the next frame to be published.
    pub next: Sequence,
    /// Position before which all transfers have ended.
    pub settled: u32,
    /// Position after the last one that was sent.
    pub sent: u32,
    /// No more frames follow.
    pub ended: bool,
    /// Number of this status, counted modulo 2^32 for each subscriber separately.
    pub number: u32,
}

impl StatusBlock {
    const KIND: u16 = 2;

    /// Serialises the block.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK] {
        seal(Self::KIND, self.stream, |out| {
            out.u64(self.next.get()).u32(self.settled).u32(self.sent).u32(self.ended.into()).u32(self.number);
        })
    }

    /// Parses a block.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn decode(bytes: &[u8], stream: u64) -> Result<Self, BlockError> {
        let mut reader = open(bytes, Self::KIND, stream)?;
        let next = Sequence::new(reader.u64().ok_or(BlockError::Lengths)?);
        let mut number = || reader.u32().ok_or(BlockError::Lengths);
        let (settled, sent, ended) = (number()?, number()?, number()? != 0);
        Ok(Self { stream, next, settled, sent, ended, number: number()? })
    }
}

/// Credit block: progress of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditBlock {
    /// Key of the window into which the block is written. Another subscriber, or an earlier incarnation of the same node, has another key.
    pub key: u64,
    /// Position before which every frame was returned.
    pub consumed: u32,
    /// The subscriber leaves the stream.
    pub leaving: bool,
    /// Number of the last status that the subscriber has read. It shows the publisher that statuses are being read, so that unread ones do
    /// not accumulate.
    pub heard: u32,
}

impl CreditBlock {
    const KIND: u16 = 3;

    /// Serialises the block.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK] {
        seal(Self::KIND, self.key, |out| {
            out.u32(self.consumed).u32(self.leaving.into()).u32(self.heard);
        })
    }

    /// Parses a block.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn decode(bytes: &[u8], key: u64) -> Result<Self, BlockError> {
        let mut reader = open(bytes, Self::KIND, key)?;
        let mut number = || reader.u32().ok_or(BlockError::Lengths);
        Ok(Self { key, consumed: number()?, leaving: number()? != 0, heard: number()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn block_encode_decode_round_trips(
            stream: u64, number: u64, data in 0..200_usize, space in 0..100_u32, a: u32, b: u32, flag: bool, time: u64,
        ) {
            let header = FrameHeader {
                stream,
                sequence: Sequence::new(number),
                data_length: data as u64,
                value_length: space / 2,
                max_value_length: space,
                time,
            };
            let mut frame = header.encode().to_vec();
            frame.resize(BLOCK + space as usize + data, 7);
            prop_assert_eq!(FrameHeader::decode(&frame, frame.len(), stream), Ok(header));
            prop_assert_eq!(FrameHeader::decode(&frame, frame.len() + 1, stream), Ok(header));
            prop_assert_eq!(FrameHeader::decode(&frame, frame.len() - 1, stream), Err(BlockError::Lengths));
            let status = StatusBlock { stream, next: Sequence::new(number), settled: a, sent: b, ended: flag, number: b };
            prop_assert_eq!(StatusBlock::decode(&status.encode(), stream), Ok(status));
            let credit = CreditBlock { key: stream, consumed: a, leaving: flag, heard: b };
            prop_assert_eq!(CreditBlock::decode(&credit.encode(), stream), Ok(credit));
            // One kind is not accepted as another, nor a block of another stream.
            let kind = CreditBlock::decode(&status.encode(), stream);
            let is_kind = matches!(kind, Err(BlockError::Kind { found: 2, expected: 3 }));
            prop_assert!(is_kind);
            let other = CreditBlock::decode(&credit.encode(), stream ^ 1);
            let is_other = matches!(other, Err(BlockError::Stream { .. }));
            prop_assert!(is_other);
        }

        /// Every bit flip is detected: the CRC covers the whole block.
        #[test]
        fn block_any_bit_flip_is_refused(consumed: u32, bit in 0..BLOCK * 8) {
            let mut bytes = CreditBlock { key: 1, consumed, leaving: false, heard: 0 }.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(CreditBlock::decode(&bytes, 1).is_err());
        }

        #[test]
        fn block_random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(FrameHeader::decode(&bytes, bytes.len(), 0).is_err());
            prop_assert!(StatusBlock::decode(&bytes, 0).is_err());
        }
    }
}
