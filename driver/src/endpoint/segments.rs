//! For applications that want to know of parts of a transfer: each segment, when it is complete.

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::{Incarnation, NodeId, SegmentIndex, TransferId};
use fpga_protocol::mirror::Operation;
use fpga_registers::CardAddr;

use super::Endpoint;

/// A segment of a transfer is complete in this card's memory; others of its transfer may not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentArrival {
    /// Who sent it.
    pub node: NodeId,
    /// The sender's life.
    pub incarnation: Incarnation,
    /// The sender's number of the transfer.
    pub transfer: TransferId,
    /// Which segment of it. By other schemes than the registry's, the number of a message, which says nothing about its place.
    pub segment: SegmentIndex,
    /// Segments of the transfer. By other schemes, its messages that were not complete when this one began.
    pub segment_count: u32,
    /// Where it is.
    pub address: CardAddr,
    /// Bytes.
    pub length: u64,
    /// Card time at which it was complete, in nanoseconds.
    pub time: u64,
}

impl Endpoint {
    /// The oldest segment that is complete and was not handed out, where the endpoint was opened to tell of them
    /// ([`EndpointOptions::segment_arrivals`](super::EndpointOptions::segment_arrivals)). All of a transfer's come before its notification;
    /// those of reads are not told.
    #[must_use]
    pub fn next_segment(&mut self) -> Option<SegmentArrival> {
        self.segments.as_mut()?.pop_front()
    }

    /// Keeps what an event says of a complete segment: where it lies, its registration has told. To be called before the mirror takes the
    /// event.
    pub(super) fn note_segment(&mut self, event: &Event) {
        if self.segments.is_none() || event.kind != EventKind::Completed {
            return;
        }
        let Some(&operation) = self.mirror.operation(event.index) else { return };
        let Operation { node, incarnation, transfer, segment, segment_count, base, length, .. } = operation;
        let is_named = (node, incarnation, transfer, segment)
            == (event.node, event.incarnation, event.transfer, event.segment);
        if !is_named || self.is_of_read(node, base, length) {
            return;
        }
        let time = event.time;
        let arrival = SegmentArrival {
            node,
            incarnation,
            transfer,
            segment,
            segment_count,
            address: base,
            length,
            time,
        };
        self.segments.get_or_insert_default().push_back(arrival);
    }
}
