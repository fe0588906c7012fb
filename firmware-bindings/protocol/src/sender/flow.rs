//! Flow control by link feedback (docs/protocol.md 9): inquiries after late packets, and lowered rates.
//!
//! A controlled receiver gets one new packet per window, at its rate, after the new packets of all other receivers.
//! Its retransmissions keep to the rate as well: until their time comes, they wait as if the receiver were busy.

use alloc::boxed::Box;

use fpga_firmware::event::Event;
use fpga_firmware::ids::{NodeId, OpNumber, TransferId};
use fpga_firmware::wire::{CRC_LENGTH, DATA_HEADER_LENGTH, START_HEADER_LENGTH};
use fpga_registers::CardAddr;
use fpga_registers::cast::index;

use super::{Notify, Ops, SendTicket, Sender, Transmit, TransmitKind};
use crate::feedback::LinkPacket;
use crate::feedback::flow::{FULL, FlowConfig, FlowControl, Paths};
use crate::op_table::OpState;
use crate::time::Nanos;

/// Late packets of a destination in one round trip, above which an inquiry is sent.
const LATE_PACKETS: u32 = 3;

/// Flow control with the sender's part of its state.
#[derive(Clone, Debug)]
pub(super) struct Pacing {
    flow: FlowControl,
    /// Per destination: late packets, and the end of the round trip in which they are counted.
    late: Box<[(u32, Nanos)]>,
    /// Time of the current call.
    now: Nanos,
    /// Whether the current search for packets excludes controlled receivers.
    others_only: bool,
}

impl Sender {
    /// Enables flow control by link feedback ([`crate::feedback`]); `node` is this node's number.
    pub fn control_flow(&mut self, node: NodeId, config: FlowConfig) {
        self.pacing = Some(Box::new(Pacing {
            flow: FlowControl::new(config, node, self.incarnation),
            late: alloc::vec![(0, Nanos::ZERO); index(self.config.destinations)].into_boxed_slice(),
            now: Nanos::ZERO,
            others_only: false,
        }));
    }

    /// Returns the rates towards receivers, if they are controlled.
    #[must_use]
    pub fn flow(&self) -> Option<&FlowControl> {
        self.pacing.as_ref().map(|pacing| &pacing.flow)
    }

    /// Like [`Self::flow`], for a caller that reports the changes of rates.
    pub fn flow_mut(&mut self) -> Option<&mut FlowControl> {
        self.pacing.as_mut().map(|pacing| &mut pacing.flow)
    }

    /// Handles a link packet for this node.
    pub fn handle_link_packet(&mut self, now: Nanos, packet: &LinkPacket) {
        let destination = packet.word.receiver().and_then(|node| self.destinations.find(node));
        if let Some(pacing) = &mut self.pacing {
            let paths = destination.and_then(|slot| {
                let trip = self.destinations.get(slot).trip.known_mean();
                self.routes.set_mut(slot).map(|set| Paths { set, trip })
            });
            pacing.flow.handle(now, packet, paths);
        }
    }

    /// Handles the NI's event about a link packet; returns whether it was one.
    pub(super) fn handle_link_event(&mut self, now: Nanos, event: &Event) -> bool {
        let Some(packet) = event.link_packet() else { return false };
        self.handle_link_packet(now, &packet);
        true
    }

    /// Returns the maximum number of new packets that may leave for a node now.
    pub(super) fn flow_limit(&self, node: NodeId) -> u32 {
        let Some(pacing) = &self.pacing else { return u32::MAX };
        if pacing.flow.rate(node) >= FULL {
            u32::MAX
        } else {
            u32::from(!pacing.others_only && pacing.flow.release_time(pacing.now, node).is_none())
        }
    }

    /// Excludes controlled receivers from the next search for packets, or includes them again. Returns whether there
    /// are any.
    pub(super) fn exclude_controlled(&mut self, exclude: bool) -> bool {
        let Some(pacing) = &mut self.pacing else { return false };
        pacing.others_only = exclude;
        pacing.flow.is_controlling()
    }

    /// Postpones the retransmissions of controlled receivers that are due to the times at which they may leave.
    pub(super) fn postpone_due(&mut self, now: Nanos) {
        let Some(pacing) = &mut self.pacing else { return };
        pacing.now = now;
        if !pacing.flow.is_controlling() {
            return;
        }
        for slot in 0..self.ops.capacity() {
            let due = u16::try_from(slot).ok().and_then(|slot| self.ops.slot(slot));
            let Some(op) = due.filter(|op| op.state == OpState::Due) else { continue };
            let destination = self.transfers[index(self.segments.get(op.segment).transfer)].destination;
            let node = self.destinations.get(destination).node;
            let release = self.pacing.as_ref().and_then(|pacing| pacing.flow.release_time(now, node));
            if let Some(at) = release {
                self.unhold(destination, slot);
                self.ops.postpone(op.number, at);
            }
        }
    }

    /// Records that packets of `transmit` leave now.
    pub(super) fn note_departure(&mut self, now: Nanos, transmit: &Transmit) {
        let Some(pacing) = &mut self.pacing else { return };
        let starts = u64::from(transmit.first_packet == 0);
        let headers = u64::from(transmit.ops.len()) * (DATA_HEADER_LENGTH + CRC_LENGTH) as u64
            + starts * (START_HEADER_LENGTH - DATA_HEADER_LENGTH) as u64;
        pacing.flow.sent(now, transmit.node, headers + u64::from(transmit.payload_length));
    }

    /// Records a packet whose answer is late. More than [`LATE_PACKETS`] in one round trip cause an inquiry on the path of the last one.
    pub(super) fn note_late(&mut self, now: Nanos, destination: u32, op: OpNumber) {
        let Some(pacing) = &mut self.pacing else { return };
        let record = self.destinations.get(destination);
        let Some((late, end)) = pacing.late.get_mut(index(destination)) else { return };
        if *end <= now {
            let known = record.trip.samples != 0;
            let trip = if known { record.trip.mean } else { pacing.flow.config().round_trip };
            (*late, *end) = (0, now.saturating_add(trip.max(Nanos::new(1))));
        }
        *late = late.saturating_add(1);
        if *late > LATE_PACKETS {
            pacing.flow.inquire(now, record.node, self.routes.last(op));
        }
    }

    /// Records the delay of an answer.
    pub(super) fn note_delay(&mut self, now: Nanos, destination: u32, delay: Nanos) {
        if let Some(pacing) = &mut self.pacing {
            pacing.flow.sample(now, self.destinations.get(destination).node, delay);
        }
    }

    /// Handles expired timers of the flow control.
    pub(super) fn handle_flow_timeout(&mut self, now: Nanos) {
        if let Some(pacing) = &mut self.pacing {
            pacing.now = now;
            pacing.flow.handle_timeout(now);
        }
    }

    /// Returns the time of the next change by the flow control: of a rate, or the end of a wait.
    pub(super) fn next_flow_time(&self) -> Option<Nanos> {
        let pacing = self.pacing.as_ref()?;
        [pacing.flow.poll_timeout(), pacing.flow.next_release(pacing.now)].into_iter().flatten().min()
    }

    /// Returns the next link packet to send.
    pub(super) fn poll_link(&mut self) -> Option<Transmit> {
        let LinkPacket { common, word } = self.pacing.as_mut()?.flow.poll_feedback()?;
        Some(Transmit {
            kind: TransmitKind::Link(word),
            ticket: SendTicket { slot: 0, generation: 0 },
            transfer: TransferId::new(0),
            oldest_live: TransferId::new(0),
            node: common.destination,
            path: common.path,
            key: 0,
            source: CardAddr::ZERO,
            payload_length: 0,
            segment_base: CardAddr::ZERO,
            segment: 0,
            segment_count: 0,
            segment_length: 0,
            segment_packets: 0,
            first_packet: 0,
            ops: Ops::NONE,
            packet_size_log2: self.config.packet_size_log2,
            tries: 0,
            silent: false,
            notify: Notify::Sender,
            transfer_base: CardAddr::ZERO,
            transfer_length: 0,
        })
    }
}
