//! Classification and segmentation: pure arithmetic over lengths [E1-10].

/// Queue class of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransferClass {
    /// Transfer of one segment, served first.
    Regular,
    /// Transfer that is cut into segments at the head of its destination's queue.
    Big,
}

/// Classifies a transfer of `length` bytes: a transfer longer than `threshold` is big (docs/protocol.md 4.2).
#[must_use]
pub fn classify(length: u64, threshold: u32) -> TransferClass {
    if length > u64::from(threshold) { TransferClass::Big } else { TransferClass::Regular }
}

/// Returns the number of segments of a transfer: ceil(length / segment size); `None` beyond 2^32 - 1 or for a segment
/// size of zero.
#[must_use]
pub fn segment_count(length: u64, segment_size: u32) -> Option<u32> {
    if segment_size == 0 {
        return None;
    }
    u32::try_from(length.div_ceil(u64::from(segment_size))).ok()
}

/// Returns the number of packets of a segment: ceil(length / packet size); the last may be short.
#[must_use]
pub const fn packet_count(length: u32, packet_size_log2: u8) -> u32 {
    length.div_ceil(1 << packet_size_log2)
}

/// Returns the bytes that `count` packets from `first` on cover in a segment of `length` bytes: offset and length, both
/// within the segment.
#[must_use]
pub fn packet_span(length: u32, packet_size_log2: u8, first: u16, count: u16) -> (u32, u32) {
    let size = 1u64 << packet_size_log2;
    let start = (u64::from(first) * size).min(u64::from(length));
    let end = ((u64::from(first) + u64::from(count)) * size).min(u64::from(length));
    (fpga_registers::cast::low32(start), fpga_registers::cast::low32(end - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classify_threshold_itself_is_regular() {
        assert_eq!(classify(16384, 16384), TransferClass::Regular);
        assert_eq!(classify(16385, 16384), TransferClass::Big);
        assert_eq!(classify(0, 0), TransferClass::Regular);
    }

    #[test]
    fn e1_10_segment_last_packet_and_segment_may_be_short() {
        assert_eq!(segment_count(0, 16384), Some(0));
        assert_eq!(segment_count(16384, 16384), Some(1));
        assert_eq!(segment_count(16385, 16384), Some(2));
        assert_eq!(segment_count(u64::MAX, 1), None);
        assert_eq!(packet_count(1, 9), 1);
        assert_eq!(packet_count(512, 9), 1);
        assert_eq!(packet_count(513, 9), 2);
        assert_eq!(packet_span(513, 9, 1, 1), (512, 1));
        assert_eq!(packet_span(513, 9, 0, 2), (0, 513));
        assert_eq!(packet_span(513, 9, 7, 1), (513, 0));
    }
}
