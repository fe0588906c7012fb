//! Packets as the simulator carries them: headers whole, payload by its length.

use fpga_core::impair::{self, Class};
use fpga_core::sender::{Answer, Transmit, TransmitKind};
use fpga_firmware::event::NackReason;
use fpga_firmware::wire::{Arrived, CRC_LENGTH, Common, Control, DataHeader, Flags, StartFields};
use fpga_firmware::{Incarnation, OpNumber, SegmentIndex, TransferId};
use fpga_registers::CardAddr;

use crate::scenario::SENDER;

/// The sender's life. One run has one.
pub(crate) const LIFE: Incarnation = Incarnation::new(1);

/// As long as the longest packet's payload.
static PAYLOAD: [u8; 1 << 12] = [0; 1 << 12];

/// A packet on the way.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    Data {
        header: DataHeader,
        payload: usize,
    },
    Control(Control),
    /// One whose checksum will not fit.
    Damaged,
}

impl impair::Frame for Frame {
    fn class(&self) -> Class {
        if matches!(self, Self::Data { .. }) { Class::Data } else { Class::Control }
    }

    fn length(&self) -> u64 {
        let bytes = match self {
            Self::Data { header, payload } => header.length() + payload + CRC_LENGTH,
            Self::Control(control) => control.length(),
            // Damage comes after everything that asks for a length.
            Self::Damaged => 0,
        };
        bytes as u64
    }

    fn flip(&mut self, _bit: u64) {
        *self = Self::Damaged;
    }
}

/// `length` bytes that stand for a packet's payload.
pub(crate) fn payload(length: usize) -> &'static [u8] {
    PAYLOAD.get(..length).unwrap_or(&PAYLOAD)
}

/// What a network interface makes of a transmit window.
pub(crate) fn packets(transmit: &Transmit, life: Incarnation, mut send: impl FnMut(Frame)) {
    let flags = if transmit.receiver_notifies() { Flags::NOTIFY_RECEIVER } else { Flags::NONE };
    let common = Common { source: SENDER, destination: transmit.node, incarnation: life, flags };
    if transmit.kind == TransmitKind::Arrival {
        send(Frame::Control(Control::Arrived(Arrived {
            common: Common { flags: Flags::NONE, ..common },
            transfer: transmit.transfer,
            address: transmit.transfer_base,
            length: transmit.transfer_length,
            key: transmit.key,
        })));
        return;
    }
    let start = StartFields {
        base: transmit.segment_base,
        segment_length: transmit.segment_length,
        packets: transmit.segment_packets,
        transfer_base: transmit.transfer_base,
        transfer_length: transmit.transfer_length,
    };
    let size = 1u32 << transmit.packet_size_log2;
    let mut left = transmit.payload_length;
    for (packet, op) in (u64::from(transmit.first_packet)..).zip(transmit.ops.as_slice()) {
        let payload = left.min(size);
        left -= payload;
        let header = DataHeader {
            common,
            transfer: transmit.transfer,
            oldest_live: transmit.oldest_live,
            segment: transmit.segment,
            segment_count: transmit.segment_count,
            // Inside the transfer, whose end was checked when it was submitted.
            address: CardAddr::new(transmit.segment_base.get() + packet * u64::from(size)),
            key: transmit.key,
            op: *op,
            tries: transmit.tries,
            packet_size_log2: transmit.packet_size_log2,
            start: (packet == 0).then_some(start),
        };
        send(Frame::Data { header, payload: payload as usize });
    }
}

/// What an answer says.
pub(crate) enum Told {
    Here,
    Refused(NackReason),
    Done(TransferId, SegmentIndex),
}

/// A control packet as the sender takes it; `None` if it is no answer to a sender.
pub(crate) fn answer(control: &Control) -> Option<(Answer, Told)> {
    let Common { source: node, incarnation: life, .. } = control.common();
    let (incarnation, op, tries, told) = match control {
        Control::Ack(ack) => (ack.peer_incarnation, ack.op, ack.tries, Told::Here),
        Control::Nack(nack) => (nack.peer_incarnation, nack.op, nack.tries, Told::Refused(nack.reason)),
        Control::SegmentDone(done) => {
            let told = Told::Done(done.transfer, done.segment);
            (done.peer_incarnation, OpNumber::new(0), 0, told)
        }
        _ => return None,
    };
    Some((Answer { node, incarnation, op, tries, life }, told))
}
