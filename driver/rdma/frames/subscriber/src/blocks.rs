//! Blocks of 64 bytes: frame header and status (read), credit (written). Each ends in a CRC-32C. The layouts are in
//! `driver/rdma/frames/src/blocks.rs`, which this module does not use.

use std::error::Error;
use std::fmt;

use crate::fields::{Reader, Writer};
use fpga_firmware::crc::crc32c;

/// Version of the blocks and of the bootstrap.
pub const VERSION: u16 = 4;

/// Length of a block in bytes.
pub(crate) const BLOCK: usize = 64;
/// `BLOCK` as a length of memory.
pub(crate) const BLOCK_BYTES: u64 = BLOCK as u64;

const MAGIC: [u8; 4] = *b"FRM1";
const FRAME: u16 = 1;
const STATUS: u16 = 2;
const CREDIT: u16 = 3;

/// Invalid data of the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidData {
    /// The checksum of a block is wrong.
    Checksum,
    /// A block of another kind, version or stream.
    Foreign,
    /// The lengths in a frame header contradict each other or the received length.
    Lengths,
    /// A frame arrived at an address where no slot begins, or in a slot that was not returned.
    Slot {
        /// Address of the transfer.
        address: u64,
        /// Length of the transfer in bytes.
        length: u64,
    },
    /// A frame or a status that precedes what was received before.
    Sequence {
        /// Sequence number found.
        found: u64,
        /// Expected sequence number.
        expected: u64,
    },
    /// The publisher reports the end of frames for which it had no free slot.
    Settled {
        /// Reported position.
        found: u32,
    },
}

impl fmt::Display for InvalidData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checksum => f.write_str("the checksum of a block is wrong"),
            Self::Foreign => f.write_str(
                "a block has another kind, version or stream: join again if the publisher was restarted",
            ),
            Self::Lengths => f.write_str("the lengths in a frame header contradict the received length"),
            Self::Slot { address, length } => {
                write!(f, "{length} bytes arrived at {address:#x}, where no free slot begins")
            }
            Self::Sequence { found, expected } => {
                write!(f, "frame {found} arrived where frame {expected} or a later one was expected")
            }
            Self::Settled { found } => {
                write!(
                    f,
                    "the publisher reports the end of all frames before position {found}, which it cannot have sent"
                )
            }
        }
    }
}

impl Error for InvalidData {}

fn open(bytes: &[u8], kind: u16, stream: u64) -> Result<Reader<'_>, InvalidData> {
    let block = bytes.first_chunk::<BLOCK>().ok_or(InvalidData::Lengths)?;
    let (body, crc) = block.split_last_chunk::<4>().ok_or(InvalidData::Lengths)?;
    if crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(InvalidData::Checksum);
    }
    let mut reader = Reader(body);
    let head = (reader.take::<4>(), reader.u16(), reader.u16(), reader.u64());
    if head != (Some(MAGIC), Some(VERSION), Some(kind), Some(stream)) {
        return Err(InvalidData::Foreign);
    }
    Ok(reader)
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameHeader {
    /// Number of the stream.
    pub stream: u64,
    /// Sequence number of the frame.
    pub sequence: u64,
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
    /// Parses the header of a frame at the start of `frame`, which is longer if another frame follows in the same transfer.
    pub(crate) fn decode(frame: &[u8], stream: u64) -> Result<Self, InvalidData> {
        let mut reader = open(frame, FRAME, stream)?;
        let mut number = || reader.u64().ok_or(InvalidData::Lengths);
        let (sequence, data_length) = (number()?, number()?);
        let value_length = reader.u32().ok_or(InvalidData::Lengths)?;
        let max_value_length = reader.u32().ok_or(InvalidData::Lengths)?;
        let time = reader.u64().ok_or(InvalidData::Lengths)?;
        let whole = data_length.checked_add(BLOCK_BYTES + u64::from(max_value_length));
        let fits = whole.is_some_and(|whole| usize::try_from(whole).is_ok_and(|whole| whole <= frame.len()));
        if !fits || value_length > max_value_length {
            return Err(InvalidData::Lengths);
        }
        Ok(Self { stream, sequence, data_length, value_length, max_value_length, time })
    }
}

/// Progress of the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    /// Sequence number of the next frame.
    pub(crate) next: u64,
    /// Position before which all transfers have ended.
    pub(crate) settled: u32,
    /// Position after the last frame that was sent.
    pub(crate) sent: u32,
    pub(crate) ended: bool,
    pub(crate) number: u32,
}

impl Status {
    pub(crate) fn decode(bytes: &[u8], stream: u64) -> Result<Self, InvalidData> {
        let mut reader = open(bytes, STATUS, stream)?;
        let next = reader.u64().ok_or(InvalidData::Lengths)?;
        let mut number = || reader.u32().ok_or(InvalidData::Lengths);
        let (settled, sent, ended) = (number()?, number()?, number()? != 0);
        Ok(Self { next, settled, sent, ended, number: number()? })
    }
}

/// Progress of a subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit {
    /// Key of the publisher's window for it.
    pub(crate) key: u64,
    /// Position before which every frame was returned.
    pub(crate) consumed: u32,
    pub(crate) leaving: bool,
    /// Number of the last status that was read.
    pub(crate) heard: u32,
}

impl Credit {
    pub(crate) fn encode(&self) -> [u8; BLOCK] {
        let mut out = Writer(Vec::with_capacity(BLOCK));
        out.put(&MAGIC).u16(VERSION).u16(CREDIT).u64(self.key);
        out.u32(self.consumed).u32(self.leaving.into()).u32(self.heard);
        out.0.resize(BLOCK - 4, 0);
        let crc = crc32c(&out.0);
        out.u32(crc);
        out.0.first_chunk().copied().unwrap_or([0; BLOCK])
    }
}

/// Compared with the codec of `fpga-frames`, which is written independently.
#[cfg(test)]
mod tests {
    use fpga_frames::Sequence;
    use fpga_frames::blocks;

    use super::*;

    #[test]
    fn blocks_match_those_of_publisher() {
        assert_eq!(VERSION, blocks::VERSION);
        let header = blocks::FrameHeader {
            stream: 4,
            sequence: Sequence::new(5),
            data_length: 30,
            value_length: 6,
            max_value_length: 10,
            time: 9,
        };
        let mut frame = header.encode().to_vec();
        frame.resize(BLOCK + 40, 0);
        let ours = FrameHeader::decode(&frame, 4).unwrap();
        assert_eq!((ours.sequence, ours.data_length, ours.value_length), (5, 30, 6));
        assert_eq!((ours.stream, ours.max_value_length, ours.time), (4, 10, 9));
        assert_eq!(FrameHeader::decode(&frame, 5), Err(InvalidData::Foreign));
        assert_eq!(FrameHeader::decode(&frame[..80], 4), Err(InvalidData::Lengths));
        frame[20] ^= 1;
        assert_eq!(FrameHeader::decode(&frame, 4), Err(InvalidData::Checksum));
        let status = blocks::StatusBlock {
            stream: 4,
            next: Sequence::new(6),
            settled: 7,
            sent: 8,
            ended: true,
            number: 9,
        };
        let ours = Status::decode(&status.encode(), 4).unwrap();
        assert_eq!(ours, Status { next: 6, settled: 7, sent: 8, ended: true, number: 9 });
        assert_eq!(FrameHeader::decode(&status.encode(), 4), Err(InvalidData::Foreign));
        let credit = Credit { key: 1, consumed: 2, leaving: true, heard: 3 }.encode();
        let theirs = blocks::CreditBlock { key: 1, consumed: 2, leaving: true, heard: 3 };
        assert_eq!(credit, theirs.encode());
    }
}
