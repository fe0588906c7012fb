//! What a sender has under way, for listings. Nothing here is on the path of a packet.

use fpga_firmware::ids::{NodeId, OpNumber, SegmentIndex, TransferId};
use fpga_registers::CardAddr;

use super::table::TransferState;
use super::{Sender, Ticket};
use crate::op_table::OpState;
use crate::segment::{TransferClass, packet_span};
use crate::time::Nanos;
use fpga_registers::cast::index;

/// One packet in flight: an entry of the op table with what it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketView {
    /// Its op number.
    pub op: OpNumber,
    /// Its state.
    pub state: OpState,
    /// The receiving node.
    pub node: NodeId,
    /// Its transfer on the wire.
    pub transfer: TransferId,
    /// The segment within the transfer.
    pub segment: SegmentIndex,
    /// The packet within the segment.
    pub packet: u16,
    /// Where its payload goes.
    pub address: CardAddr,
    /// Payload bytes.
    pub length: u32,
    /// How often it was sent.
    pub tries: u8,
    /// Time-outs in a row.
    pub silent: u8,
    /// "Busy" answers in a row.
    pub busy: u8,
    /// When it was last sent.
    pub sent: Nanos,
    /// When it is looked at again; `None`: it waits for a transmit window.
    pub deadline: Option<Nanos>,
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransferStage {
    /// Nothing of it was sent.
    Queued,
    /// Packets were sent, and not all are acknowledged.
    InProgress,
    /// All are acknowledged; the receiver is to be told.
    Announcing,
}

/// One transfer that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferView {
    /// What `submit` returned.
    pub ticket: Ticket,
    /// Its id on the wire; `None` while nothing of it was sent.
    pub transfer: Option<TransferId>,
    /// The receiving node.
    pub node: NodeId,
    /// Which queue it came by.
    pub class: TransferClass,
    /// How far it is.
    pub stage: TransferStage,
    /// First byte at the receiver.
    pub destination: CardAddr,
    /// Bytes asked for.
    pub length: u64,
    /// Bytes of which no segment was cut: what the transfer at the head of a queue still has there.
    pub remaining: u64,
    /// Segments it is cut into.
    pub segments: u32,
    /// Segments cut and not acknowledged.
    pub outstanding: u32,
    /// Packets acknowledged.
    pub acknowledged: u64,
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// When it was submitted.
    pub started: Nanos,
    /// Its own deadline.
    pub deadline: Option<Nanos>,
}

impl Sender {
    /// The packets in flight.
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

    /// The transfers that have not ended, by slot.
    pub fn transfers(&self) -> impl Iterator<Item = TransferView> + '_ {
        (0..).zip(&self.transfers).filter_map(|(slot, transfer)| {
            let stage = match transfer.state {
                TransferState::Queued => TransferStage::Queued,
                TransferState::InProgress => TransferStage::InProgress,
                TransferState::Announcing => TransferStage::Announcing,
                TransferState::Free | TransferState::Finished => return None,
            };
            Some(TransferView {
                ticket: Ticket { slot, generation: transfer.generation },
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
