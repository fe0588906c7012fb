//! Views of a sender's packets and transfers, for listings. Not on the path of a packet.

use fpga_firmware::ids::{NodeId, OpNumber, SegmentIndex, TransferId};
use fpga_registers::CardAddr;

use super::table::TransferState;
use super::{SendTicket, Sender};
use crate::op_table::OpState;
use crate::segment::{TransferClass, packet_span};
use crate::time::Nanos;
use fpga_registers::cast::index;

/// View of one packet in flight: an entry of the op table with its transfer and segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketView {
    /// Op number.
    pub op: OpNumber,
    /// State of the entry.
    pub state: OpState,
    /// Receiving node.
    pub node: NodeId,
    /// Transfer id on the wire.
    pub transfer: TransferId,
    /// Segment within the transfer.
    pub segment: SegmentIndex,
    /// Packet within the segment.
    pub packet: u16,
    /// Destination address of its payload.
    pub address: CardAddr,
    /// Payload bytes.
    pub length: u32,
    /// Number of times that it was sent.
    pub tries: u8,
    /// Consecutive timeouts.
    pub silent: u8,
    /// Consecutive "busy" answers.
    pub busy: u8,
    /// Time of the last sending.
    pub sent: Nanos,
    /// Deadline; `None`: it waits for a transmit window.
    pub deadline: Option<Nanos>,
}

/// Progress of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransferStage {
    /// No packet was sent.
    Queued,
    /// Packets were sent, and not all are acknowledged.
    InProgress,
    /// All packets are acknowledged; the arrival notice is to be sent.
    Announcing,
}

/// View of one transfer that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferView {
    /// Ticket that `submit` returned.
    pub ticket: SendTicket,
    /// Id on the wire; `None` while no packet was sent.
    pub transfer: Option<TransferId>,
    /// Receiving node.
    pub node: NodeId,
    /// Queue of the transfer.
    pub class: TransferClass,
    /// Progress.
    pub stage: TransferStage,
    /// Address of the first byte at the receiver.
    pub destination: CardAddr,
    /// Length in bytes.
    pub length: u64,
    /// Bytes that are not cut into segments yet.
    pub remaining: u64,
    /// Number of segments.
    pub segments: u32,
    /// Segments cut and not acknowledged.
    pub outstanding: u32,
    /// Packets acknowledged.
    pub acknowledged: u64,
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets retransmitted.
    pub retransmits: u64,
    /// Time of submission.
    pub started: Nanos,
    /// Deadline given with the command.
    pub deadline: Option<Nanos>,
}

impl Sender {
    /// Returns the packets in flight.
    pub fn packets(&self) -> impl Iterator<Item = PacketView> + '_ {
        self.ops.iter().map(|op| {
            let segment = self.segments.get(op.segment);
            let transfer = &self.transfers[index(segment.transfer)];
            let (offset, length) = packet_span(segment.length, self.config.packet_size_log2, op.packet, 1);
            PacketView {
                op: op.number,
                state: op.state,
                node: transfer.command.node,
                transfer: transfer.id,
                segment: segment.index,
                packet: op.packet,
                address: CardAddr::new(segment.base.get() + u64::from(offset)),
                length,
                tries: op.tries,
                silent: op.silent,
                busy: op.busy,
                sent: op.sent,
                deadline: op.deadline.as_timer(),
            }
        })
    }

    /// Returns the transfers that have not ended, by slot.
    pub fn transfers(&self) -> impl Iterator<Item = TransferView> + '_ {
        (0..).zip(&self.transfers).filter_map(|(slot, transfer)| {
            let stage = match transfer.state {
                TransferState::Queued => TransferStage::Queued,
                TransferState::InProgress => TransferStage::InProgress,
                TransferState::Announcing => TransferStage::Announcing,
                TransferState::Free | TransferState::Finished => return None,
            };
            Some(TransferView {
                ticket: SendTicket { slot, generation: transfer.generation },
                transfer: (transfer.packets + transfer.retransmits != 0).then_some(transfer.id),
                node: transfer.command.node,
                class: transfer.class,
                stage,
                destination: transfer.command.destination,
                length: transfer.command.length,
                remaining: transfer.remaining,
                segments: transfer.segments,
                outstanding: transfer.outstanding,
                acknowledged: transfer.acknowledged,
                packets: transfer.packets,
                retransmits: transfer.retransmits,
                started: transfer.started,
                deadline: transfer.command.deadline,
            })
        })
    }
}
