//! What the schemes with bitmaps share: a receiving end that says what it has in every acknowledgement, and the sending end's memory
//! of what it has sent when.
//!
//! A map has [`WIDTH`] bits, and a window may be wider: then the map speaks of the packets up to the one that it answers, so that each
//! packet is spoken of again in the answers to the 127 behind it.

use super::bits::{PacketWindow, down, low};
use super::{AckMap, Answer, AnswerQueue, Disposition, MessageReceiver, Packet, UnhashedCount};
use crate::time::Nanos;
use alloc::boxed::Box;
use fpga_registers::cast::index;

/// Packets that a map can speak of.
pub const WIDTH: u32 = 128;

/// The receiving end of [`adaptive_window`](super::adaptive_window) and [`selective`](super::selective).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    /// The lowest missing packet.
    base: u32,
    /// Packets beyond it that are here.
    received: PacketWindow,
    /// How far beyond the base packets are taken.
    window: u32,
    count: Option<u32>,
    /// How long a gap may stay before its packets are wanted; `None`: the sender decides alone.
    patience: Option<Nanos>,
    /// One behind the highest packet seen: now, at the last mark and at the one before.
    highest: [u32; 3],
    /// When the last mark was made.
    mark: Nanos,
    answers: AnswerQueue,
}

impl Receiver {
    /// For a message of any length, with a window of 1 to 512 packets. With a `patience`, packets that are missing for longer than that
    /// are wanted at once [E2-4]: the gap is seen between one and one and a half times as late.
    #[must_use]
    pub const fn new(window: u32, patience: Option<Nanos>) -> Self {
        Self {
            base: 0,
            received: PacketWindow::EMPTY,
            window,
            count: None,
            patience,
            highest: [0; 3],
            mark: Nanos::ZERO,
            answers: AnswerQueue::NONE,
        }
    }

    /// Starts over with another message.
    pub const fn begin(&mut self) {
        *self = Self::new(self.window, self.patience);
    }

    /// Whether this packet is here.
    #[must_use]
    pub fn has_packet(&self, index: u32) -> bool {
        index < self.base || index - self.base < PacketWindow::WIDTH && self.received.contains(index)
    }

    /// The packets from the base on that should have been here by now.
    fn overdue_packets(&mut self, now: Nanos) -> u128 {
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
        low(old.saturating_sub(self.base)) & !self.received.bits(self.base)
    }
}

impl MessageReceiver for Receiver {
    fn handle_packet(&mut self, now: Nanos, packet: &Packet) -> Disposition {
        let index = packet.index;
        let fate = match index.checked_sub(self.base) {
            _ if self.is_complete() => Disposition::Duplicate,
            None => Disposition::Duplicate,
            Some(ahead) if ahead >= span(self.window) => return Disposition::Dropped,
            Some(_) if self.received.contains(index) => Disposition::Duplicate,
            Some(_) => {
                if packet.tail {
                    self.count = Some(index + 1);
                }
                self.received.insert(index);
                let slide = self.received.run(self.base);
                self.received.clear(self.base, self.base + slide);
                self.base += slide;
                Disposition::Write
            }
        };
        let wanted = self.overdue_packets(now);
        let [highest, ..] = &mut self.highest;
        *highest = (*highest).max(index.saturating_add(1));
        let ahead =
            index.saturating_add(1).saturating_sub(WIDTH).saturating_sub(self.base).min(PacketWindow::WIDTH);
        self.answers.queue_answer(Answer::Map(AckMap {
            base: self.base,
            ahead,
            here: self.received.bits(self.base + ahead),
            overdue: wanted,
            echo: packet.sequence,
            retransmit: fate == Disposition::Duplicate,
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

/// A window that there is room for: at least one packet.
const fn span(window: u32) -> u32 {
    if window > PacketWindow::WIDTH {
        PacketWindow::WIDTH
    } else if window == 0 {
        1
    } else {
        window
    }
}

/// One sending of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transmission {
    pub(super) sequence: u32,
    pub(super) index: u32,
    pub(super) at: Nanos,
}

/// What of a message is in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct InFlight {
    pub(super) count: u32,
    /// The lowest packet that is not acknowledged.
    pub(super) base: u32,
    /// The lowest that was never sent.
    pub(super) next: u32,
    /// Packets from the base on that are acknowledged.
    here: PacketWindow,
    /// Those to be sent again.
    again: PacketWindow,
    window: u32,
    /// The last sending's number.
    sequence: u32,
    /// No sending before this one is a packet's last one and without an answer.
    oldest: u32,
    /// Packets sent again.
    repeats: UnhashedCount,
    /// Each packet's last sending and how often it was sent again, by the low bits of its number.
    packets: Box<[(u32, u8)]>,
    /// Sendings by the low bits of their numbers: an answer echoes one, not always a packet's last.
    sendings: Box<[Transmission]>,
}

/// Sendings that are remembered, for each packet that can be in flight. An answer to one that is forgotten acknowledges as any
/// other does; all that is lost is how long it took. So two are enough, but where windows are short there are more, for
/// packets that wander for many round trips.
const TRANSMISSIONS_PER_PACKET: u32 = 2;
const TRANSMISSIONS_PER_PACKET_SHORT: u32 = 4;
const NONE: Transmission = Transmission { sequence: 0, index: 0, at: Nanos::ZERO };

/// What an acknowledgement taught.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckInfo {
    /// The sending that it answers, if that is remembered.
    pub(super) sending: Option<Transmission>,
    /// Packets that it is the first to acknowledge.
    pub(super) new: u32,
}

/// Where a number belongs among `size` places, which are a power of two.
fn place(number: u32, size: usize) -> usize {
    index(number) & (size - 1)
}

/// The number after this one: 0 is none.
const fn after(sequence: u32) -> u32 {
    match sequence.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// Whether a number was given before another: they are never half of all numbers apart.
pub(super) const fn before(one: u32, other: u32) -> bool {
    one != other && other.wrapping_sub(one) < 1 << 31
}

impl InFlight {
    /// For a message of `count` packets, `window` of them in flight.
    pub(super) fn new(count: u32, window: u32) -> Self {
        // Powers of two, so that numbers that turn over keep their places.
        let window = span(window);
        let width = count.clamp(1, window).next_power_of_two();
        let sendings = (width * TRANSMISSIONS_PER_PACKET)
            .max((width * TRANSMISSIONS_PER_PACKET_SHORT).min(WIDTH * TRANSMISSIONS_PER_PACKET_SHORT));
        Self {
            count,
            base: 0,
            next: 0,
            here: PacketWindow::EMPTY,
            again: PacketWindow::EMPTY,
            window,
            sequence: 0,
            oldest: 1,
            repeats: UnhashedCount(0),
            packets: alloc::vec![(0, 0); index(width)].into_boxed_slice(),
            sendings: alloc::vec![NONE; index(sendings)].into_boxed_slice(),
        }
    }

    /// Starts over with another message. What was sent before stays remembered, but sequence numbers go on, so that no answer to
    /// this message can name it.
    pub(super) const fn begin(&mut self, count: u32) {
        self.count = count;
        self.base = 0;
        self.next = 0;
        self.here = PacketWindow::EMPTY;
        self.again = PacketWindow::EMPTY;
        self.oldest = after(self.sequence);
    }

    pub(super) const fn is_done(&self) -> bool {
        self.base == self.count
    }

    /// Packets sent again so far.
    pub(super) const fn retransmits(&self) -> u64 {
        self.repeats.0
    }

    /// Of the 128 packets from `first` on, which is not below the base: those that were sent, are not acknowledged, and are not to be
    /// sent again already.
    pub(super) fn outstanding(&self, first: u32) -> u128 {
        low(self.next.saturating_sub(first)) & !self.here.bits(first) & !self.again.bits(first)
    }

    /// The lowest and the highest packet that is out.
    pub(super) fn ends(&self) -> Option<(u32, u32)> {
        let firsts =
            || (self.base..self.next).step_by(index(WIDTH)).map(|first| (first, self.outstanding(first)));
        let mut some = firsts().filter(|(_, out)| *out != 0);
        let (first, out) = some.next()?;
        let (last, others) = some.next_back().unwrap_or((first, out));
        Some((first + out.trailing_zeros(), last + others.ilog2()))
    }

    /// Last sending of a packet that is out, and how often it was sent again.
    pub(super) fn last(&self, number: u32) -> (Transmission, u8) {
        let (sequence, tries) =
            self.packets.get(place(number, self.packets.len())).copied().unwrap_or((0, 0));
        let sending = self.sendings.get(place(sequence, self.sendings.len())).copied().unwrap_or(NONE);
        (sending, tries)
    }

    /// Whether a sending is a packet's last one, and not its first.
    pub(super) fn is_repeat(&self, sending: Transmission) -> bool {
        let packet = self.packets.get(place(sending.index, self.packets.len()));
        packet.is_some_and(|(last, tries)| *last == sending.sequence && *tries > 0)
    }

    /// Has a packet that is out sent again.
    pub(super) fn mark_retransmit(&mut self, number: u32) {
        if (self.base..self.next).contains(&number) && !self.here.contains(number) {
            self.again.insert(number);
        }
    }

    /// Whether a sending is the last one of a packet that is out.
    fn is_outstanding(&self, sending: &Transmission) -> bool {
        let number = sending.index;
        let last = self.packets.get(place(number, self.packets.len()));
        (self.base..self.next).contains(&number)
            && !self.here.contains(number)
            && !self.again.contains(number)
            && last.is_some_and(|(last, _)| *last == sending.sequence)
    }

    /// The earliest sending before `latest` that may still be on its way: whose packet is out, and was not sent since. Packets leave in the
    /// order of these numbers, so what is not late here is late nowhere behind it.
    pub(super) fn earliest(&mut self, latest: u32) -> Option<Transmission> {
        while before(self.oldest, latest) {
            let sending = self.sendings.get(place(self.oldest, self.sendings.len()))?;
            if sending.sequence == self.oldest && self.is_outstanding(sending) {
                return Some(*sending);
            }
            self.oldest = after(self.oldest);
        }
        None
    }

    /// By how much the packets that are out were sent before `then`, all of them together.
    pub(super) fn lateness(&self, then: Nanos) -> u64 {
        let (mut sum, mut at) = (0_u64, self.oldest);
        while !before(self.sequence, at) {
            let Some(sending) = self.sendings.get(place(at, self.sendings.len())) else { break };
            if sending.sequence == at && self.is_outstanding(sending) {
                if sending.at >= then {
                    break;
                }
                sum = sum.saturating_add(then.saturating_sub(sending.at).get());
            }
            at = after(at);
        }
        sum
    }

    /// Packets below `base` are acknowledged, all of them; how many were not before.
    fn advance_base(&mut self, base: u32) -> u32 {
        let known = self.here.clear(self.base, base);
        self.again.clear(self.base, base);
        let new = base - self.base - known;
        self.base = base;
        new
    }

    /// Takes in what is here by now. Words that are older than what is known say nothing.
    pub(super) fn acknowledge(&mut self, map: &AckMap) -> AckInfo {
        // More than was sent is not here, whoever says so.
        if map.base > self.next {
            return AckInfo::default();
        }
        let mut new = if map.base > self.base { self.advance_base(map.base) } else { 0 };
        let first = map.base.saturating_add(map.ahead);
        let here = down(map.here, self.base.saturating_sub(first));
        let first = first.max(self.base);
        new += self.here.insert_bits(first, here & low(self.next.saturating_sub(first)));
        self.again.take_out(&self.here);
        let run = self.here.run(self.base);
        self.advance_base(self.base + run);
        // Once: a second answer is one to a copy that the network made, whose way says nothing of this one's. What does not say that
        // the packet is here is no answer to it.
        let at = place(map.echo, self.sendings.len());
        let remembered = self.sendings.get_mut(at).filter(|sending| {
            let known = sending.index < self.base || self.here.contains(sending.index);
            map.echo != 0 && sending.sequence == map.echo && known
        });
        let sending = remembered.map(|sending| core::mem::replace(sending, NONE));
        AckInfo { sending, new }
    }

    /// The lowest packet that is to be sent again.
    fn next_retransmit(&self) -> Option<u32> {
        if self.again.is_empty() {
            return None;
        }
        let firsts = (self.base..self.next).step_by(index(WIDTH));
        let mut some = firsts.map(|first| (first, self.again.bits(first))).filter(|(_, bits)| *bits != 0);
        some.next().map(|(first, bits)| first + bits.trailing_zeros())
    }

    /// The next packet: one that is to be sent again, or the next in order.
    pub(super) fn poll(&mut self, now: Nanos) -> Option<Packet> {
        let again = self.next_retransmit();
        let number = if let Some(number) = again {
            self.again.remove(number);
            self.repeats.add(1);
            number
        } else if self.next < self.count && self.next - self.base < self.window {
            self.next += 1;
            self.next - 1
        } else {
            return None;
        };
        self.sequence = after(self.sequence);
        let sequence = self.sequence;
        let size = self.packets.len();
        if let Some((last, tries)) = self.packets.get_mut(place(number, size)) {
            *last = sequence;
            *tries = if again.is_some() { tries.saturating_add(1) } else { 0 };
        }
        let size = self.sendings.len();
        let sending = Transmission { sequence, index: number, at: now };
        let forgotten =
            self.sendings.get_mut(place(sequence, size)).map(|place| core::mem::replace(place, sending));
        // One that is still out after so many others is lost, and nobody would look for it any more.
        if let Some(old) = forgotten.filter(|old| old.sequence != 0 && self.is_outstanding(old)) {
            self.again.insert(old.index);
        }
        Some(Packet { index: number, tail: number + 1 == self.count, round: 0, sequence })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The next packet's sending.
    fn send(flight: &mut InFlight, now: u64) -> Transmission {
        let at = Nanos::new(now);
        let Packet { sequence, index, .. } = flight.poll(at).unwrap();
        Transmission { sequence, index, at }
    }

    fn map(here: u128) -> AckMap {
        AckMap { base: 0, ahead: 0, here, overdue: 0, echo: 0, retransmit: false }
    }

    #[test]
    fn is_repeat_only_of_latest_sending_of_repeated_packet() {
        let mut flight = InFlight::new(2, 2);
        let first = send(&mut flight, 1);
        send(&mut flight, 1);
        assert!(!flight.is_repeat(first));
        flight.mark_retransmit(0);
        let second = send(&mut flight, 2);
        assert_eq!((first.index, second.index), (0, 0));
        assert!(flight.is_repeat(second) && !flight.is_repeat(first));
    }

    /// An outstanding packet whose last sending is forgotten counts as lost.
    #[test]
    fn outstanding_packet_with_forgotten_sending_sent_again() {
        let mut flight = InFlight::new(2, 2);
        assert_eq!([send(&mut flight, 0).index, send(&mut flight, 0).index], [0, 1]);
        let remembered = u64::try_from(flight.sendings.len()).unwrap();
        // The last of these takes the place of packet 0's sending.
        for now in 0..remembered - 1 {
            assert_eq!(flight.poll(Nanos::ZERO), None);
            flight.mark_retransmit(1);
            assert_eq!(send(&mut flight, now).index, 1);
        }
        assert_eq!(send(&mut flight, remembered).index, 0);
        assert_eq!(flight.poll(Nanos::ZERO), None);
    }

    /// Receivers state their lowest missing packet; a map with an older base is understood as well.
    #[test]
    fn map_with_bits_from_base_on_moves_base() {
        let mut flight = InFlight::new(3, 3);
        for index in 0..3 {
            assert_eq!(send(&mut flight, 0).index, index);
        }
        assert_eq!((flight.acknowledge(&map(0b011)).new, flight.base), (2, 2));
        assert_eq!((flight.acknowledge(&map(0b111)).new, flight.is_done()), (1, true));
    }

    #[test]
    fn late_sums_waits_of_outstanding_packets() {
        let mut flight = InFlight::new(3, 3);
        for now in [0, 10, 20] {
            send(&mut flight, now);
        }
        let late = |flight: &InFlight| [10, 100].map(|then| flight.lateness(Nanos::new(then)));
        assert_eq!(late(&flight), [10, 100 + 90 + 80]);
        flight.acknowledge(&map(0b010));
        assert_eq!(late(&flight), [10, 100 + 80]);
        // To be sent again, so not on its way.
        flight.mark_retransmit(0);
        assert_eq!(late(&flight), [0, 80]);
    }
}
