//! Receiver windows as documents 000 and 004 word them: specimens, of which tests show that they hang or complete falsely.
//!
//! Nothing else may use them. Common to all (spec 3): a packet below the base is dropped; the tail at the base completes at
//! once; a packet above the base sets its bit and, if it is the tail, completes if all ones of the vector lie together from its
//! start. They differ in where the vector starts and in what a packet at the base does.

use super::bits::{bit, down};
use super::{Answer, Answers, Fate, Incoming, Packet};
use crate::time::Nanos;

/// Which document is read literally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading {
    /// Document 000: bit `i` is packet `base + i`, and nobody sets bit 0 [E0-2].
    Document000,
    /// The same with bit 0 set before the ones are counted: no completion after a slide [E0-4].
    Document000BaseBit,
    /// Document 004: bits count from 1, and the base moves by the ones from there [E0-3].
    Document004,
}

/// A receiving end without timers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    reading: Reading,
    window: u32,
    base: u32,
    vector: u128,
    tail_seen: bool,
    complete: bool,
    answers: Answers,
}

impl Receiver {
    /// With a vector of `window` bits, up to 128.
    #[must_use]
    pub const fn new(reading: Reading, window: u32) -> Self {
        Self {
            reading,
            window,
            base: 0,
            vector: 0,
            tail_seen: false,
            complete: false,
            answers: Answers::NONE,
        }
    }

    /// Where in the vector the packet `ahead` of the base has its bit.
    const fn place(&self, ahead: u32) -> u128 {
        match self.reading {
            Reading::Document000 | Reading::Document000BaseBit => bit(ahead),
            // Counted from 1: there is none for the base.
            Reading::Document004 => bit(ahead - 1),
        }
    }

    fn complete(&mut self) {
        self.complete = true;
        self.answers.say(Answer::Done);
    }
}

impl Incoming for Receiver {
    fn handle_packet(&mut self, _now: Nanos, packet: &Packet) -> Fate {
        let Some(ahead) = packet.index.checked_sub(self.base) else { return Fate::Dropped };
        if self.complete || ahead >= self.window {
            return Fate::Dropped;
        }
        if ahead == 0 && packet.tail {
            self.complete();
        } else if ahead == 0 {
            if self.reading == Reading::Document000BaseBit {
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
        Fate::Write
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.take()
    }

    fn is_complete(&self) -> bool {
        self.complete
    }
}
