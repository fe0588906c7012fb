//! Division of a segment into packets and its position in its transfer: rules that a start packet and a window header share.

use fpga_registers::{CardAddr, quantity};

use crate::generated::{PACKET_SIZE_LOG2_MAX, PACKET_SIZE_LOG2_MIN, SEGMENT_PACKETS_MAX};
use crate::ids::SegmentIndex;

/// One segment of one transfer, as its sender describes it. Addresses are the destination's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Payload bytes of a full packet, as a power of two.
    pub packet_size_log2: u8,
    /// Number of packets of the segment.
    pub packets: u16,
    /// Index of the segment.
    pub segment: SegmentIndex,
    /// Number of segments of the transfer.
    pub segment_count: u32,
    /// First byte of the segment.
    pub base: CardAddr,
    /// Length of the segment in bytes.
    pub segment_length: u32,
    /// First byte of the transfer.
    pub transfer_base: CardAddr,
    /// Length of the transfer in bytes.
    pub transfer_length: u64,
}

/// Contradiction within a segment's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// The packet size is outside 2^6 to 2^15.
    #[error(
        "packet size 2^{log2} is not within 2^{PACKET_SIZE_LOG2_MIN} to 2^{PACKET_SIZE_LOG2_MAX} bytes: set both nodes to a size in that range"
    )]
    PacketSize {
        /// Exponent found.
        log2: u8,
    },
    /// The segment's index is not below the count.
    #[error(
        "segment {segment} of a transfer of {count} does not exist: give an index from 0 to the count minus 1",
        count = quantity(*count, "segment"),
    )]
    SegmentIndex {
        /// Index found.
        segment: SegmentIndex,
        /// Count found.
        count: u32,
    },
    /// The segment's length is 0 or more than 256 packets.
    #[error(
        "segment of {length} in packets of {packet_size} is out of range: give 1 byte to 256 packets",
        length = quantity(*length, "byte"),
        packet_size = quantity(*packet_size, "byte"),
    )]
    SegmentLength {
        /// Bytes found.
        length: u32,
        /// Bytes of a full packet.
        packet_size: u32,
    },
    /// The packet count does not match length and packet size.
    #[error(
        "{found} announced, but the segment's length gives {expected}",
        found = quantity(*found, "packet"),
    )]
    PacketCount {
        /// Count found.
        found: u16,
        /// Length / packet size, rounded up.
        expected: u16,
    },
    /// A range goes beyond the end of the 64-bit address space.
    #[error("the range of {length} at {address} exceeds the address space", length = quantity(*length, "byte"))]
    AddressRange {
        /// First byte.
        address: CardAddr,
        /// Bytes.
        length: u64,
    },
    /// The segment is not inside its transfer.
    #[error("segment {base} + {length} is outside its transfer {transfer_base} + {transfer_length}")]
    OutsideTransfer {
        /// First byte of the segment.
        base: CardAddr,
        /// Bytes of the segment.
        length: u32,
        /// First byte of the transfer.
        transfer_base: CardAddr,
        /// Bytes of the transfer.
        transfer_length: u64,
    },
    /// The first segment does not start with the transfer, or another one does; or the same for the last segment and the end.
    #[error(
        "segment {segment} of {count} is not at the offset that its index gives: segments follow each other without gaps"
    )]
    SegmentOffset {
        /// Index of the segment.
        segment: SegmentIndex,
        /// Segments of the transfer.
        count: u32,
    },
}

/// Returns the payload bytes of a full packet.
///
/// # Errors
///
/// [`GeometryError::PacketSize`] outside 2^6 to 2^15.
#[inline]
pub const fn packet_size(log2: u8) -> Result<u32, GeometryError> {
    if log2 < PACKET_SIZE_LOG2_MIN || log2 > PACKET_SIZE_LOG2_MAX {
        return Err(GeometryError::PacketSize { log2 });
    }
    Ok(1 << log2)
}

/// Refuses an index that is not below the count.
#[inline]
pub(crate) const fn check_index(segment: SegmentIndex, count: u32) -> Result<(), GeometryError> {
    if segment < count { Ok(()) } else { Err(GeometryError::SegmentIndex { segment, count }) }
}

/// Exclusive end of a range. The address space's last byte cannot be part of a range: its end would not be an address.
#[inline]
pub(crate) fn range_end(address: CardAddr, length: u64) -> Result<CardAddr, GeometryError> {
    address.checked_add(length).ok_or(GeometryError::AddressRange { address, length })
}

/// Returns the number of packets that hold `length` bytes.
///
/// # Errors
///
/// [`GeometryError::SegmentLength`] if the number is 0 or more than 256, [`GeometryError::PacketSize`].
#[inline]
pub fn packets_of(length: u32, packet_size_log2: u8) -> Result<u16, GeometryError> {
    let packet_size = packet_size(packet_size_log2)?;
    u16::try_from(length.div_ceil(packet_size))
        .ok()
        .filter(|packets| (1..=SEGMENT_PACKETS_MAX).contains(packets))
        .ok_or(GeometryError::SegmentLength { length, packet_size })
}

impl Geometry {
    /// Checks that the description is consistent.
    ///
    /// # Errors
    ///
    /// The first contradiction.
    #[inline]
    pub fn check(&self) -> Result<(), GeometryError> {
        let expected = packets_of(self.segment_length, self.packet_size_log2)?;
        if self.packets != expected {
            return Err(GeometryError::PacketCount { found: self.packets, expected });
        }
        check_index(self.segment, self.segment_count)?;
        let end = range_end(self.base, self.segment_length.into())?;
        let transfer_end = range_end(self.transfer_base, self.transfer_length)?;
        if self.base < self.transfer_base || end > transfer_end {
            return Err(GeometryError::OutsideTransfer {
                base: self.base,
                length: self.segment_length,
                transfer_base: self.transfer_base,
                transfer_length: self.transfer_length,
            });
        }
        let is_first = self.segment == 0;
        // The index is below the count, so adding one cannot wrap.
        let is_last = self.segment + 1 == self.segment_count;
        if is_first != (self.base == self.transfer_base) || is_last != (end == transfer_end) {
            return Err(GeometryError::SegmentOffset { segment: self.segment, count: self.segment_count });
        }
        Ok(())
    }
}
