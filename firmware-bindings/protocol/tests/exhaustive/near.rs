//! The sending end of a search.

use fpga_firmware::ids::{Incarnation, OpNumber, TransferId};
use fpga_protocol::Nanos;
use fpga_protocol::sender::{Answer, Sender, TransmitKind};

use crate::case::{Case, Flight, Name};
use crate::common::{RECEIVER, config};
use crate::ends::{End, Happening, Moved, fingerprint};

/// The sender, and which transfers of this life have ended.
#[derive(Clone, Hash)]
pub(crate) struct Near {
    sender: Sender,
    due: Option<Nanos>,
    ended: u8,
    /// Whether it was given transfers.
    has_work: bool,
}

impl Near {
    pub(crate) fn new(case: &Case) -> Self {
        Self { sender: case.sender(1, case.transfers, Nanos::ZERO), due: None, ended: 0, has_work: true }
    }

    pub(crate) fn life(&self) -> u32 {
        self.sender.incarnation().get()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sender.is_idle()
    }

    /// Transfers of this life that should have ended well when all is over, and those that have.
    pub(crate) fn ended(&self, case: &Case) -> (u8, u8) {
        (if self.has_work { (1 << case.transfers) - 1 } else { 0 }, self.ended)
    }

    /// When something will happen to a sender that is left alone. Its own timers may wake it before.
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

    fn answer(op: u32, (life, transfer): Name, segment: u32, tries: u8) -> Answer {
        Answer {
            node: RECEIVER,
            incarnation: Incarnation::new(life),
            op: OpNumber::new(op),
            transfer: TransferId::new(transfer),
            segment,
            tries,
            life: config().incarnation,
        }
    }

    fn take(&mut self, now: Nanos, flight: Flight) {
        let sender = &mut self.sender;
        match flight {
            Flight::Ack { name, segment, op, tries } => {
                sender.handle_ack(now, Self::answer(op, name, segment, tries));
            }
            Flight::Nack { name, segment, op, tries, full } => {
                sender.handle_nack(now, Self::answer(op, name, segment, tries), Flight::reason(full));
            }
            Flight::Done { name, segment } => {
                sender.handle_segment_done(now, Self::answer(0, name, segment, 0));
            }
            Flight::Data { .. } | Flight::Arrival { .. } => {}
        }
    }
}

impl End for Near {
    fn due(&self) -> Option<Nanos> {
        self.due
    }

    fn happen(&mut self, case: &Case, now: Nanos, happening: Happening) -> Moved {
        let mut moved = Moved::default();
        match happening {
            Happening::Begins => {}
            Happening::Arrives(flight) => self.take(now, flight),
            Happening::TimeOut => self.sender.handle_timeout(now),
            Happening::Restarts | Happening::Dies => {
                let life = self.life() + 1;
                self.has_work = happening == Happening::Restarts;
                self.sender = case.sender(life, if self.has_work { case.transfers } else { 0 }, now);
                self.ended = 0;
            }
        }
        while let Some(transmit) = self.sender.poll_transmit(now) {
            let name = (self.life(), transmit.transfer.get());
            if transmit.kind == TransmitKind::Arrival {
                moved.sent.push(Flight::Arrival { name });
            }
            for (packet, op) in (transmit.first_packet..).zip(transmit.ops.as_slice()) {
                moved.sent.push(Flight::Data {
                    name,
                    oldest_live: transmit.oldest_live.get(),
                    segment: transmit.segment,
                    packet,
                    op: op.get(),
                    tries: transmit.tries,
                });
            }
        }
        while let Some(completion) = self.sender.poll_completion() {
            let bit = completion.transfer.map_or(0, |transfer| 1 << transfer.get());
            // Once each, and well: nothing that may happen here is a reason to give up.
            moved.faults.hangs += usize::from(completion.result.is_err());
            moved.faults.false_completions += usize::from(self.ended & bit != 0 || bit == 0);
            moved.ended |= bit;
            self.ended |= bit;
        }
        self.due = self.next();
        moved
    }
}
