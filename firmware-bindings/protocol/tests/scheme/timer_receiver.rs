//! The receiver window that requests only the lowest missing packet, by a timer, and each packet beyond its window by itself, as the
//! sources describe it; its slides are the corrected ones. A specimen: one loss costs a timer, and a timer that is too long costs as much
//! more. With `any_packet`, source 000's timer, which expires when *no packet at all* has arrived for the timeout [E0-7]: packets beyond the
//! window are dropped, requested, retransmitted and dropped again, and while that continues, the one packet that would end it is never
//! requested.

use fpga_protocol::Nanos;
use fpga_protocol::scheme::bits::{bit, down};
use fpga_protocol::scheme::receiver_window::ReceiverWindowConfig;
use fpga_protocol::scheme::{Answer, Disposition, MessageReceiver, Packet};

/// Receiver of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TimerReceiver {
    config: ReceiverWindowConfig,
    any_packet: bool,
    base: u32,
    here: u128,
    count: Option<u32>,
    deadline: Nanos,
    strikes: u8,
    answer: Option<Answer>,
}

impl TimerReceiver {
    /// Creates a receiver for a message that was announced at `now`.
    pub(crate) fn new(config: ReceiverWindowConfig, any_packet: bool, now: Nanos) -> Self {
        let deadline = now.saturating_add(config.hole_timeout);
        Self { config, any_packet, base: 0, here: 0, count: None, deadline, strikes: 0, answer: None }
    }
}

impl MessageReceiver for TimerReceiver {
    fn handle_packet(&mut self, now: Nanos, packet: &Packet) -> Disposition {
        let index = packet.index;
        if self.any_packet {
            self.deadline = now.saturating_add(self.config.hole_timeout);
        }
        let Some(ahead) = index.checked_sub(self.base).filter(|_| !self.is_complete()) else {
            return Disposition::Duplicate;
        };
        if ahead >= self.config.window {
            self.answer = Some(Answer::Resend { first: index, last: index });
            return Disposition::Dropped;
        }
        if self.here & bit(ahead) != 0 {
            return Disposition::Duplicate;
        }
        if packet.tail {
            self.count = Some(index + 1);
        }
        self.here |= bit(ahead);
        let slide = self.here.trailing_ones();
        if slide > 0 {
            self.base += slide;
            self.here = down(self.here, slide);
            self.deadline = now.saturating_add(self.config.hole_timeout);
            self.strikes = 0;
            if self.is_complete() {
                self.answer = Some(Answer::Done);
            }
        }
        Disposition::Write
    }

    fn handle_timeout(&mut self, now: Nanos) {
        if self.poll_timeout().is_none_or(|due| due > now) {
            return;
        }
        let all = self.count.map_or(u32::MAX, |count| count - 1);
        let last = if self.strikes < self.config.patience { self.base } else { all };
        self.strikes = if last == self.base { self.strikes + 1 } else { 0 };
        self.answer = Some(Answer::Resend { first: self.base, last });
        self.deadline = now.saturating_add(self.config.hole_timeout);
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        (!self.is_complete()).then_some(self.deadline)
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        self.answer.take()
    }

    fn is_complete(&self) -> bool {
        self.count == Some(self.base)
    }
}
