//! Splitting of a scattered transfer into the minimum number of descriptors.

use fpga_registers::CardAddr;

use super::config::PAGE;
use super::{HostRange, RefusalReason};

/// Entry of a scatter-gather list: host memory, and the card address of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SgEntry {
    /// Host memory.
    pub host: HostRange,
    /// First card address; ignored by streams.
    pub card: CardAddr,
}

/// Range that one descriptor covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DescriptorSpan {
    pub(super) host: u64,
    pub(super) card: u64,
    pub(super) length: u32,
}

/// Yields the spans of a list of segments in order: neighbours that touch on both sides are merged, and a range longer than one descriptor
/// is split so that every span but the first begins on a page of host memory. For a stream, spans have the full length, which is a multiple
/// of a beat.
#[derive(Clone, Debug)]
pub(super) struct DescriptorSpans<I> {
    segments: I,
    /// Merged range that was not yielded yet.
    host: u64,
    card: u64,
    remaining: u64,
    /// Segment that was read and does not touch the merged range.
    next: Option<SgEntry>,
    max: u64,
    /// Whether the card address advances with the bytes moved.
    card_moves: bool,
    page_cuts: bool,
}

impl<I: Iterator<Item = SgEntry>> DescriptorSpans<I> {
    /// `max`: maximum span length, a nonzero multiple of 4096. The segments have passed [`total_length`].
    pub(super) fn new(segments: I, max: u32, card_moves: bool, page_cuts: bool) -> Self {
        Self {
            segments,
            host: 0,
            card: 0,
            remaining: 0,
            next: None,
            max: u64::from(max),
            card_moves,
            page_cuts,
        }
    }

    /// Adds segments while they touch.
    fn gather(&mut self) {
        while let Some(segment) = self.next.take().or_else(|| self.segments.next()) {
            if segment.host.length == 0 {
                continue;
            }
            // Ranges beyond the address space were refused before, so these sums cannot wrap.
            let card_end = if self.card_moves { self.card.wrapping_add(self.remaining) } else { self.card };
            if self.remaining == 0 {
                (self.host, self.card) = (segment.host.start.get(), segment.card.get());
            } else if self.host + self.remaining != segment.host.start.get() || card_end != segment.card.get()
            {
                self.next = Some(segment);
                return;
            }
            self.remaining += segment.host.length;
        }
    }
}

impl<I: Iterator<Item = SgEntry>> Iterator for DescriptorSpans<I> {
    type Item = DescriptorSpan;

    #[inline]
    fn next(&mut self) -> Option<DescriptorSpan> {
        self.gather();
        if self.remaining == 0 {
            return None;
        }
        // Only the first span can begin inside a page; shortening it puts every later split on a page boundary.
        let longest = if self.page_cuts { self.max - self.host % PAGE } else { self.max };
        let taken = self.remaining.min(longest);
        let piece = DescriptorSpan { host: self.host, card: self.card, length: u32::try_from(taken).ok()? };
        self.host += taken;
        if self.card_moves {
            self.card = self.card.wrapping_add(taken);
        }
        self.remaining -= taken;
        Some(piece)
    }
}

/// Total bytes of all segments; every one must end inside both address spaces.
pub(super) fn total_length(
    segments: impl Iterator<Item = SgEntry>,
    card_moves: bool,
) -> Result<u64, RefusalReason> {
    let mut length = 0u64;
    for SgEntry { host, card } in segments {
        let ends_inside = host.start.get().checked_add(host.length).is_some();
        length = match length.checked_add(host.length) {
            Some(sum) if ends_inside => sum,
            _ => return Err(RefusalReason::HostAddress { range: host }),
        };
        if card_moves && card.get().checked_add(host.length).is_none() {
            return Err(RefusalReason::CardAddress { start: card, length: host.length, address_bits: 64 });
        }
    }
    if length == 0 { Err(RefusalReason::Empty) } else { Ok(length) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use fpga_registers::Iova;

    const CARD: u64 = 0x7000;

    /// Spans of host ranges at consecutive card addresses.
    fn cut(ranges: &[(u64, u64)], max: u32) -> Vec<(u64, u32)> {
        let mut card = CARD;
        let segments: Vec<_> = ranges
            .iter()
            .map(|&(start, length)| {
                let at = CardAddr::new(card);
                card += length;
                SgEntry { host: HostRange::new(Iova::new(start), length), card: at }
            })
            .collect();
        let pieces: Vec<_> = DescriptorSpans::new(segments.into_iter(), max, true, true).collect();
        let mut at = CARD;
        for piece in &pieces {
            assert_eq!(piece.card, at);
            at += u64::from(piece.length);
        }
        pieces.iter().map(|p| (p.host, p.length)).collect()
    }

    #[test]
    fn spans_touching_ranges_merge_and_gaps_split() {
        let long = super::super::MAX_DESCRIPTOR_LENGTH;
        assert_eq!(
            cut(&[(0x1000, 0x1000), (0x2000, 0x1000), (0x4000, 8)], long),
            [(0x1000, 0x2000), (0x4000, 8)]
        );
        assert_eq!(cut(&[(0x1000, 0), (0x9000, 4), (0, 0), (0x9004, 4)], long), [(0x9000, 8)]);
        assert_eq!(cut(&[], long), []);
        assert_eq!(cut(&[(5, 0)], long), []);
    }

    #[test]
    fn spans_gap_in_card_addresses_splits() {
        let segment =
            |host, card| SgEntry { host: HostRange::new(Iova::new(host), 0x100), card: CardAddr::new(card) };
        let list = [segment(0x1000, 0), segment(0x1100, 0x100), segment(0x1200, 0x900)];
        let pieces: Vec<_> = DescriptorSpans::new(list.into_iter(), 1 << 20, true, true).collect();
        assert_eq!(
            pieces,
            [
                DescriptorSpan { host: 0x1000, card: 0, length: 0x200 },
                DescriptorSpan { host: 0x1200, card: 0x900, length: 0x100 }
            ]
        );
        // For a fixed address, all touching host memory is one span.
        let list = [segment(0x1000, 0), segment(0x1100, 0), segment(0x1200, 8)];
        let pieces: Vec<_> =
            DescriptorSpans::new(list.into_iter(), 1 << 20, false, true).map(|p| p.length).collect();
        assert_eq!(pieces, [0x200, 0x100]);
    }

    #[test]
    fn spans_stream_packet_is_cut_into_whole_beats() {
        let packet = [SgEntry { host: HostRange::new(Iova::new(0x1808), 9000), card: CardAddr::new(0) }];
        let pieces: Vec<_> =
            DescriptorSpans::new(packet.into_iter(), 4096, false, false).map(|p| p.length).collect();
        assert_eq!(pieces, [4096, 4096, 808]);
    }

    #[test]
    fn spans_cuts_fall_on_page_boundaries() {
        assert_eq!(cut(&[(0x1800, 0x2000)], 4096), [(0x1800, 0x800), (0x2000, 0x1000), (0x3000, 0x800)]);
        let long = super::super::MAX_DESCRIPTOR_LENGTH;
        let whole = u64::from(long);
        assert_eq!(cut(&[(0x1001, whole + 1)], long), [(0x1001, long - 1), (0x1000 + whole, 2)]);
        assert_eq!(cut(&[(0, whole * 2)], long), [(0, long), (whole, long)]);
    }
}
