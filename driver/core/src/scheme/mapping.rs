//! What the schemes with bitmaps share: a receiving end that says all it has in every acknowledgement, and the sending end's memory
//! of what it has sent when.

use super::bits::{bit, down, low};
use super::{Answer, Answers, Fate, Incoming, Map, Packet};
use crate::cast::index;
use crate::time::Nanos;
use alloc::boxed::Box;

/// Packets that a map can speak of: the width of both ends' windows.
pub const WIDTH: u32 = 128;

/// The receiving end of [`adaptive_window`](super::adaptive_window) and [`selective`](super::selective).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    /// The lowest missing packet.
    base: u32,
    /// Bit `i` is packet `base + i`; bit 0 is never set between two packets.
    here: u128,
    count: Option<u32>,
    /// How long a gap may stay before its packets are wanted; `None`: the sender decides alone.
    patience: Option<Nanos>,
    /// One behind the highest packet seen: now, at the last mark and at the one before.
    highest: [u32; 3],
    /// When the last mark was made.
    mark: Nanos,
    answers: Answers,
}

impl Receiver {
    /// For a message of any length. With a `patience`, packets that are missing for longer than that are wanted at once [E2-4]: the
    /// gap is seen between one and one and a half times as late.
    #[must_use]
    pub const fn new(patience: Option<Nanos>) -> Self {
        Self {
            base: 0,
            here: 0,
            count: None,
            patience,
            highest: [0; 3],
            mark: Nanos::ZERO,
            answers: Answers::NONE,
        }
    }

    /// Starts over with another message.
    pub const fn begin(&mut self) {
        *self = Self::new(self.patience);
    }

    /// Whether this packet is here, as far as the map tells.
    #[must_use]
    pub const fn holds(&self, index: u32) -> bool {
        index < self.base || self.here & bit(index - self.base) != 0
    }

    /// The packets from the base on that should have been here by now.
    fn wanted(&mut self, now: Nanos) -> u128 {
        let Some(patience) = self.patience else { return 0 };
        let half = Nanos::new(patience.get() / 2).max(Nanos::new(1));
        let [highest, last, before] = self.highest;
        let since = now.saturating_sub(self.mark);
        if since >= half {
            // Two halves or more without a packet: all that was seen then is old.
            let old = if since >= half.saturating_mul(2) { highest } else { last };
            self.highest = [highest, highest, old.max(before)];
            self.mark = now;
        }
        let [.., old] = self.highest;
        low(old.saturating_sub(self.base)) & !self.here
    }
}

impl Incoming for Receiver {
    fn handle_packet(&mut self, now: Nanos, packet: &Packet) -> Fate {
        let fate = match packet.index.checked_sub(self.base) {
            _ if self.is_complete() => Fate::Duplicate,
            None => Fate::Duplicate,
            Some(ahead) if ahead >= WIDTH => return Fate::Dropped,
            Some(ahead) if self.here & bit(ahead) != 0 => Fate::Duplicate,
            Some(ahead) => {
                if packet.tail {
                    self.count = Some(packet.index + 1);
                }
                self.here |= bit(ahead);
                let slide = self.here.trailing_ones();
                self.base += slide;
                self.here = down(self.here, slide);
                Fate::Write
            }
        };
        let wanted = self.wanted(now);
        let [highest, ..] = &mut self.highest;
        *highest = (*highest).max(packet.index.saturating_add(1));
        self.answers.say(Answer::Map(Map {
            base: self.base,
            here: self.here,
            wanted,
            echo: packet.sequence,
            again: fate == Fate::Duplicate,
        }));
        fate
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.take()
    }

    fn is_complete(&self) -> bool {
        self.count == Some(self.base)
    }
}

/// One sending of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sending {
    pub(super) sequence: u32,
    pub(super) index: u32,
    pub(super) at: Nanos,
}

/// What of a message is in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flight {
    pub(super) count: u32,
    /// The lowest packet that is not acknowledged.
    pub(super) base: u32,
    /// The lowest that was never sent.
    pub(super) next: u32,
    /// Bit `i` is packet `base + i`.
    here: u128,
    /// To be sent again.
    again: u128,
    sequence: u32,
    /// Each packet's last sending and how often it was sent again, by the low bits of its number.
    packets: Box<[(Sending, u8)]>,
    /// Sendings by the low bits of their numbers: an answer echoes one, not always a packet's last.
    sendings: Box<[Sending]>,
}

/// Sendings that are remembered for each packet that can be in flight.
const SENDINGS: u32 = 4;
const NONE: Sending = Sending { sequence: 0, index: 0, at: Nanos::ZERO };

/// What an acknowledgement taught.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Learnt {
    /// The sending that it answers, if that is remembered.
    pub(super) sending: Option<Sending>,
    /// Packets that it is the first to acknowledge.
    pub(super) new: u32,
}

/// Where a number belongs among `size` places, which are a power of two.
fn place(number: u32, size: usize) -> usize {
    index(number) & (size - 1)
}

impl Flight {
    pub(super) fn new(count: u32) -> Self {
        // Powers of two, so that numbers that turn over keep their places.
        let width = count.clamp(1, WIDTH).next_power_of_two();
        Self {
            count,
            base: 0,
            next: 0,
            here: 0,
            again: 0,
            sequence: 0,
            packets: alloc::vec![(NONE, 0); index(width)].into_boxed_slice(),
            sendings: alloc::vec![NONE; index(width * SENDINGS)].into_boxed_slice(),
        }
    }

    /// Starts over with another message. What was sent before stays remembered, but sequence numbers go on, so that no answer to
    /// this message can name it.
    pub(super) const fn begin(&mut self, count: u32) {
        self.count = count;
        self.base = 0;
        self.next = 0;
        self.here = 0;
        self.again = 0;
    }

    pub(super) const fn is_done(&self) -> bool {
        self.base == self.count
    }

    /// Packets that were sent and not acknowledged.
    pub(super) const fn waiting(&self) -> u128 {
        low(self.next - self.base) & !self.here
    }

    /// Those of them that are not to be sent again already.
    pub(super) const fn out(&self) -> u128 {
        self.waiting() & !self.again
    }

    /// Last sending of packet `base + ahead`, and how often it was sent again.
    pub(super) fn last(&self, ahead: u32) -> (Sending, u8) {
        self.packets.get(place(self.base + ahead, self.packets.len())).copied().unwrap_or((NONE, 0))
    }

    /// Whether a sending is a packet's last one, and not its first.
    pub(super) fn is_repeat(&self, sending: Sending) -> bool {
        let packet = self.packets.get(place(sending.index, self.packets.len()));
        packet.is_some_and(|(last, tries)| *last == sending && *tries > 0)
    }

    /// Has packet `base + ahead` sent again.
    pub(super) const fn repeat(&mut self, ahead: u32) {
        self.again |= bit(ahead) & self.waiting();
    }

    /// Takes in what is here by now. Words that older than what is known say nothing.
    pub(super) fn acknowledge(&mut self, map: &Map) -> Learnt {
        let at = place(map.echo, self.sendings.len());
        let remembered =
            self.sendings.get_mut(at).filter(|sending| sending.sequence == map.echo && map.echo != 0);
        // Once: a second answer is one to a copy that the network made, whose way says nothing of this one's.
        let sending = remembered.map(|sending| core::mem::replace(sending, NONE));
        let before = self.waiting().count_ones();
        // More than was sent is not here, whoever says so.
        if map.base > self.next {
            return Learnt::default();
        }
        if map.base > self.base {
            let slide = map.base - self.base;
            self.base = map.base;
            self.here = down(self.here, slide);
            self.again = down(self.again, slide);
        }
        let here = down(map.here, self.base - map.base);
        self.here |= here & low(self.next - self.base);
        let slide = self.here.trailing_ones();
        self.base += slide;
        self.here = down(self.here, slide);
        self.again = down(self.again, slide) & self.waiting();
        Learnt { sending, new: before - self.waiting().count_ones() }
    }

    fn packet_mut(&mut self, number: u32) -> Option<&mut (Sending, u8)> {
        let place = place(number, self.packets.len());
        self.packets.get_mut(place)
    }

    /// The next packet: one that is to be sent again, or the next in order.
    pub(super) fn poll(&mut self, now: Nanos, width: u32) -> Option<Packet> {
        let number = if self.again != 0 {
            let ahead = self.again.trailing_zeros();
            self.again &= self.again - 1;
            let number = self.base + ahead;
            if let Some((_, tries)) = self.packet_mut(number) {
                *tries = tries.saturating_add(1);
            }
            number
        } else if self.next < self.count && self.next - self.base < width.min(WIDTH) {
            self.next += 1;
            let number = self.next - 1;
            if let Some((_, tries)) = self.packet_mut(number) {
                *tries = 0;
            }
            number
        } else {
            return None;
        };
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let sending = Sending { sequence: self.sequence, index: number, at: now };
        if let Some((last, _)) = self.packet_mut(number) {
            *last = sending;
        }
        let place = place(sending.sequence, self.sendings.len());
        if let Some(place) = self.sendings.get_mut(place) {
            *place = sending;
        }
        Some(Packet { index: number, tail: number + 1 == self.count, round: 0, sequence: sending.sequence })
    }
}

/// The places of the ones.
pub(super) fn ones(mut bits: u128) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let place = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(place)
    })
}
