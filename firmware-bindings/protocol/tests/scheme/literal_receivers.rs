//! Receiver windows in the literal wording of the sources 000 and 004 (docs/protocol.md 8.8): specimens that tests show to hang or to complete falsely.
//!
//! Common to all: a packet below the base is dropped; the tail at the base completes at once; a packet above the base sets its
//! bit and, if it is the tail, completes if all ones of the vector are contiguous from its start. They differ in the start of the vector
//! and in the effect of a packet at the base.

use fpga_protocol::Nanos;
use fpga_protocol::scheme::bits::{bit, down};
use fpga_protocol::scheme::{Answer, Disposition, MessageReceiver, Packet};

/// Document that is read literally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LiteralVariant {
    /// Source 000: bit `i` is packet `base + i`, and bit 0 is never set [E0-2].
    Document000,
    /// The same with bit 0 set before the ones are counted: no completion after a slide [E0-4].
    Document000BaseBit,
    /// Source 004: bits count from 1, and the base moves by the ones from there [E0-3].
    Document004,
}

/// Receiving end without timers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Receiver {
    reading: LiteralVariant,
    window: u32,
    base: u32,
    vector: u128,
    tail_seen: bool,
    complete: bool,
    answer: Option<Answer>,
}

impl Receiver {
    /// Creates an end with a vector of `window` bits, up to 128.
    pub(crate) const fn new(reading: LiteralVariant, window: u32) -> Self {
        Self { reading, window, base: 0, vector: 0, tail_seen: false, complete: false, answer: None }
    }

    /// Bit in the vector of the packet `ahead` of the base.
    const fn place(&self, ahead: u32) -> u128 {
        match self.reading {
            LiteralVariant::Document000 | LiteralVariant::Document000BaseBit => bit(ahead),
            // Counted from 1: the base has no bit.
            LiteralVariant::Document004 => bit(ahead - 1),
        }
    }

    fn complete(&mut self) {
        self.complete = true;
        self.answer = Some(Answer::Done);
    }
}

impl MessageReceiver for Receiver {
    fn handle_packet(&mut self, _now: Nanos, packet: &Packet) -> Disposition {
        let Some(ahead) = packet.index.checked_sub(self.base) else { return Disposition::Dropped };
        if self.complete || ahead >= self.window {
            return Disposition::Dropped;
        }
        if ahead == 0 && packet.tail {
            self.complete();
        } else if ahead == 0 {
            if self.reading == LiteralVariant::Document000BaseBit {
                self.vector |= 1;
            }
            let ones = self.vector.trailing_ones();
            self.base += ones;
            self.vector = down(self.vector, ones);
        } else {
            self.vector |= self.place(ahead);
            if packet.tail {
                self.tail_seen = true;
                if self.vector.trailing_ones() == self.vector.count_ones() {
                    self.complete();
                }
            }
        }
        Disposition::Write
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        self.answer.take()
    }

    fn is_complete(&self) -> bool {
        self.complete
    }
}
