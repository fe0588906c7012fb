//! Congestion signals of answers: the path of the packet that is answered, and the load of its receiver.

use super::{Ack, Common, Flags, Nack};

/// Congestion signals of an answer: they come with ACK and NACK, and with the events about them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct AnswerNotes {
    /// Path identifier of the packet that was answered.
    pub path: u8,
    /// Whether a switch had marked that packet because of a long queue.
    pub marked: bool,
    /// Number of nodes that send to the receiver, 255 for more; 0: not known.
    pub senders: u8,
    /// ACK: time between arrival and answer. NACK: time until the next try has a chance, 0 for not known. In units of
    /// [`DELAY_UNIT_NS`](crate::generated::DELAY_UNIT_NS).
    pub delay: u16,
}

impl AnswerNotes {
    const ECHO: u32 = 1 << 8;
    const PATH_SHIFT: u32 = 16;

    const fn new(common: &Common, senders: u8, delay: u16) -> Self {
        Self { path: common.path, marked: common.flags.contains(Flags::ECHO), senders, delay }
    }

    /// Delay in nanoseconds.
    #[must_use]
    pub const fn delay_ns(&self) -> u64 {
        self.delay as u64 * crate::generated::DELAY_UNIT_NS as u64
    }

    /// Fields INDEX and COUNT of the event about the answer.
    #[must_use]
    pub const fn event_fields(&self) -> (u16, u32) {
        let echo = if self.marked { Self::ECHO } else { 0 };
        (self.delay, self.senders as u32 | echo | (self.path as u32) << Self::PATH_SHIFT)
    }

    /// Reads the fields INDEX and COUNT of an event. Bits without a meaning are ignored.
    #[must_use]
    pub const fn from_event(index: u16, count: u32) -> Self {
        let [senders, _, path, _] = count.to_le_bytes();
        Self { path, marked: count & Self::ECHO != 0, senders, delay: index }
    }
}

impl From<&Ack> for AnswerNotes {
    fn from(ack: &Ack) -> Self {
        Self::new(&ack.common, ack.senders, ack.delay)
    }
}

impl From<&Nack> for AnswerNotes {
    fn from(nack: &Nack) -> Self {
        Self::new(&nack.common, 0, nack.delay)
    }
}
