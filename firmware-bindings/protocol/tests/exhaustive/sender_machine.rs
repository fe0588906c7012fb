//! Sending end of a search.

use fpga_firmware::ids::{OpNumber, TransferId};
use fpga_protocol::Nanos;
use fpga_protocol::sender::{Answer, Sender, TransmitKind};

use crate::exhaustive::case::{Case, TransferName, WirePacket};
use crate::exhaustive::common::{RECEIVER, config};
use crate::exhaustive::machine::{Machine, Reaction, Stimulus, fingerprint};

/// The sender, and the transfers of this incarnation that have ended.
#[derive(Clone, Hash)]
pub(crate) struct SenderMachine {
    sender: Sender,
    incarnation: u32,
    due: Option<Nanos>,
    ended: u8,
    /// Whether it got transfers.
    has_work: bool,
}

impl SenderMachine {
    pub(crate) fn new(case: &Case) -> Self {
        Self {
            sender: case.sender(1, case.transfers, Nanos::ZERO),
            incarnation: 1,
            due: None,
            ended: 0,
            has_work: true,
        }
    }

    pub(crate) fn incarnation(&self) -> u32 {
        self.incarnation
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sender.is_idle()
    }

    /// Transfers of this incarnation that must have succeeded at the end, and those that have ended.
    pub(crate) fn ended(&self, case: &Case) -> (u8, u8) {
        (if self.has_work { (1 << case.transfers) - 1 } else { 0 }, self.ended)
    }

    /// Time of the sender's next action without input. Internal timers without effect may expire before.
    fn next(&self) -> Option<Nanos> {
        let mut sender = self.sender.clone();
        let now = fingerprint(&sender);
        loop {
            let due = sender.poll_timeout()?;
            sender.handle_timeout(due);
            if sender.poll_transmit(due).is_some() || fingerprint(&sender) != now {
                return Some(due);
            }
        }
    }

    fn answer(
        case: &Case,
        op: u32,
        (incarnation, transfer): TransferName,
        segment: u32,
        tries: u8,
    ) -> Answer {
        Answer {
            node: RECEIVER,
            incarnation: case.number(incarnation),
            op: OpNumber::new(op),
            transfer: TransferId::new(transfer),
            segment,
            tries,
            peer_incarnation: config().incarnation,
            notes: fpga_firmware::wire::AnswerNotes::default(),
        }
    }

    fn take(&mut self, case: &Case, now: Nanos, flight: WirePacket) {
        let sender = &mut self.sender;
        match flight {
            WirePacket::Ack { name, segment, op, tries } => {
                sender.handle_ack(now, Self::answer(case, op, name, segment, tries));
            }
            WirePacket::Nack { name, segment, op, tries, reason } => {
                sender.handle_nack(now, Self::answer(case, op, name, segment, tries), reason);
            }
            WirePacket::Done { name, segment } => {
                sender.handle_segment_done(now, Self::answer(case, 0, name, segment, 0));
            }
            WirePacket::Data { .. } | WirePacket::Arrival { .. } => {}
        }
    }
}

impl Machine for SenderMachine {
    fn due(&self) -> Option<Nanos> {
        self.due
    }

    fn happen(&mut self, case: &Case, now: Nanos, happening: Stimulus) -> Reaction {
        let mut moved = Reaction::default();
        match happening {
            Stimulus::Begins => {}
            Stimulus::Arrives(flight) => self.take(case, now, flight),
            Stimulus::TimeOut => self.sender.handle_timeout(now),
            Stimulus::Restarts | Stimulus::Dies => {
                let incarnation = self.incarnation() + 1;
                self.incarnation = incarnation;
                self.has_work = happening == Stimulus::Restarts;
                self.sender = case.sender(incarnation, if self.has_work { case.transfers } else { 0 }, now);
                self.ended = 0;
            }
        }
        while let Some(transmit) = self.sender.poll_transmit(now) {
            let name = (self.incarnation(), transmit.transfer.get());
            if transmit.kind == TransmitKind::Arrival {
                moved.sent.push(WirePacket::Arrival { name });
            }
            for (packet, op) in (transmit.first_packet..).zip(transmit.ops.as_slice()) {
                moved.sent.push(WirePacket::Data {
                    name,
                    oldest_live: transmit.oldest_live.get(),
                    segment: transmit.segment,
                    packet,
                    op: op.get(),
                    tries: transmit.tries,
                    trimmed: false,
                });
            }
        }
        while let Some(completion) = self.sender.poll_completion() {
            let bit = completion.transfer.map_or(0, |transfer| 1 << transfer.get());
            // Each transfer ends once, with success: none of the possible faults is a reason to give up.
            moved.faults.hangs += usize::from(completion.result.is_err());
            moved.faults.false_completions += usize::from(self.ended & bit != 0 || bit == 0);
            moved.ended |= bit;
            self.ended |= bit;
        }
        self.due = self.next();
        moved
    }
}
