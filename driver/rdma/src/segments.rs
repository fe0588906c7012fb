//! Reports of complete segments, for applications that process parts of a transfer.

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::{Incarnation, NodeId, SegmentIndex, TransferId};
use fpga_protocol::mirror::Operation;
use fpga_registers::CardAddr;

use super::Endpoint;

/// Arrival of a segment in this card's memory. Other segments of its transfer may be incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentArrival {
    /// Sending node.
    pub node: NodeId,
    /// Incarnation of the sender.
    pub incarnation: Incarnation,
    /// Number of the transfer at its sender.
    pub transfer: TransferId,
    /// Index of the segment. Under message schemes, the number of a message, which does not give its position.
    pub segment: SegmentIndex,
    /// Number of segments of the transfer. Under message schemes, the number of its messages that were incomplete when this one began.
    pub segment_count: u32,
    /// Card address of the data.
    pub address: CardAddr,
    /// Length in bytes.
    pub length: u64,
    /// Card time of the completion, in nanoseconds.
    pub time: u64,
}

impl Endpoint {
    /// Returns the oldest complete segment that was not taken yet, if the endpoint was opened with
    /// [`EndpointOptions::segment_arrivals`](super::EndpointOptions::segment_arrivals). All segments of a transfer come before its
    /// notification. Segments of reads are not reported.
    #[must_use]
    pub fn next_segment(&mut self) -> Option<SegmentArrival> {
        self.queues.segments.as_mut()?.pop_front()
    }

    /// Records the segment of a completion event; its range is known from its registration. Call it before the mirror processes the event.
    pub(super) fn note_segment(&mut self, event: &Event) {
        if self.queues.segments.is_none() || event.kind != EventKind::Completed {
            return;
        }
        let Some(&operation) = self.receiving.mirror.operation(event.index) else { return };
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
        self.queues.segments.get_or_insert_default().push_back(arrival);
    }
}
