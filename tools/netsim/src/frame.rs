//! Packets of the registry scheme as the soak test carries them.

use fpga_firmware::event::NackReason;
use fpga_firmware::wire::{AnswerNotes, Common, Control, DataHeader};
use fpga_firmware::{Incarnation, OpNumber};
use fpga_protocol::scheme::traits::{Header, packet_of};
use fpga_protocol::sender::{Answer, Transmit};

use crate::scenario::SENDER;

/// Packet to be encoded.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    Data { header: DataHeader, payload: usize },
    Control(Control),
}

/// Splits a transmit window into packets, as a network interface does.
pub(crate) fn packets(transmit: &Transmit, incarnation: Incarnation, mut send: impl FnMut(Frame)) {
    for number in 0..=u16::MAX {
        let Some(departure) = packet_of(transmit, SENDER, incarnation, number) else { return };
        match departure.header {
            Header::Data(header) => send(Frame::Data { header, payload: departure.payload as usize }),
            Header::Control(control) => send(Frame::Control(control)),
            Header::Message(_) | Header::Link(_) => {}
        }
    }
}

/// Content of an answer.
pub(crate) enum AnswerKind {
    Acknowledged,
    Refused(NackReason),
    Done,
}

/// Converts a control packet to the sender's form; `None` if it is not an answer to a sender.
pub(crate) fn answer(control: &Control) -> Option<(Answer, AnswerKind)> {
    let Common { source: node, incarnation: peer_incarnation, .. } = control.common();
    let (incarnation, (transfer, segment), op, tries, notes, kind) = match control {
        Control::Ack(ack) => {
            let about = (ack.transfer, ack.segment);
            (ack.peer_incarnation, about, ack.op, ack.tries, ack.into(), AnswerKind::Acknowledged)
        }
        Control::Nack(nack) => {
            let kind = AnswerKind::Refused(nack.reason);
            (nack.peer_incarnation, (nack.transfer, nack.segment), nack.op, nack.tries, nack.into(), kind)
        }
        Control::SegmentDone(done) => {
            let about = (done.transfer, done.segment);
            (done.peer_incarnation, about, OpNumber::new(0), 0, AnswerNotes::default(), AnswerKind::Done)
        }
        _ => return None,
    };
    Some((Answer { node, incarnation, op, transfer, segment, tries, peer_incarnation, notes }, kind))
}
