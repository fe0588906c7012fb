//! Common parts of the schemes with bitmaps: a receiver that reports its received packets in every acknowledgement (a
//! *map*), and the sender's record of its transmissions.
//!
//! A map has [`WIDTH`] (128) bits, and a window may have more packets. Then the map ends at the answered packet:
//! each packet is in the map that answers it and in the maps that answer the 127 packets after it.
//!
//! This file is longer than most: both ends of a map are defined by each other.

use super::bits::{PacketWindow, down, low};
use super::{AckMap, Answer, AnswerQueue, Disposition, MessageReceiver, Packet, ReceivePath, UnhashedCount};
use crate::disorder::Disorder;
use crate::sender::RoundTrip;
use crate::state::StateTable;
use crate::time::Nanos;
use alloc::boxed::Box;
use alloc::vec::Vec;
use fpga_registers::cast::index;

/// Number of packets that a map covers.
pub const WIDTH: u32 = 128;

/// Receiver of [`adaptive_window`](super::adaptive_window) and [`selective`](super::selective).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    /// Lowest missing packet.
    base: u32,
    /// Received packets above the base.
    received: PacketWindow,
    /// Number of packets from the base on that are accepted.
    window: u32,
    /// Number of packets of the message; known after its last packet was received.
    count: Option<u32>,
    /// Age of a gap at which its packets are requested; `None`: only the sender decides.
    gap_timeout: Option<Nanos>,
    /// One above the highest packet received: now, at the last mark and at the one before.
    highest: [u32; 3],
    /// Time of the last mark.
    mark: Nanos,
    gaps: Option<Gaps>,
    answers: AnswerQueue,
}

/// Ages of the gaps of a window of at most [`WIDTH`] packets, and the disorder of the path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Gaps {
    /// Of each missing packet, by the low bits of its number: time of the first arrival of a later one, or time at which
    /// it was first reported as overdue.
    since: Box<[Nanos; 128]>,
    /// Missing packets that were reported as overdue, by the low bits of their numbers.
    reported: u128,
    /// Maximum of the window in the first epoch, before a round trip is known.
    guess: Nanos,
    trip: RoundTrip,
    /// One above the highest packet received.
    highest: u32,
    /// Latest transmission received.
    latest: u32,
    disorder: Disorder,
}

impl Gaps {
    fn new(guess: Nanos) -> Self {
        Self {
            guess,
            since: Box::new([Nanos::ZERO; 128]),
            reported: 0,
            trip: RoundTrip::UNKNOWN,
            highest: 0,
            latest: 0,
            disorder: Disorder::default(),
        }
    }

    fn since(&self, number: u32) -> Nanos {
        self.since.get(place(number, 128)).copied().unwrap_or(Nanos::ZERO)
    }

    /// Records the arrival of a new packet, in a window from `base` on.
    fn note(&mut self, now: Nanos, packet: &Packet, base: u32) {
        let number = packet.index;
        let own = 1_u128 << (number % 128);
        let reported = self.reported & own != 0;
        self.reported &= !own;
        if number >= self.highest {
            for missing in self.highest.max(base)..number {
                if let Some(since) = self.since.get_mut(place(missing, 128)) {
                    *since = now;
                }
            }
            self.highest = number + 1;
            self.disorder.sample(Nanos::ZERO);
        } else if before(packet.sequence, self.latest) {
            if !reported {
                self.disorder.sample(now.saturating_sub(self.since(number)));
            }
        } else {
            self.disorder.note_useful();
            if reported {
                self.trip.sample(now.saturating_sub(self.since(number)));
            }
        }
        if self.latest == 0 || before(self.latest, packet.sequence) {
            self.latest = packet.sequence;
        }
    }

    /// Returns the packets of `missing` whose gaps are older than the reorder window; bit `i` is packet `base + i`.
    ///
    /// The window is at least the round trip from a report to the retransmission: in congestion, immediate
    /// retransmissions would be lost again.
    fn overdue(&mut self, now: Nanos, base: u32, missing: u128) -> u128 {
        let missing = missing & low(self.highest.saturating_sub(base));
        if missing == 0 {
            return 0;
        }
        let age = |ahead: u32| now.saturating_sub(self.since(base + ahead));
        let late = if self.disorder.is_new() {
            ones(missing).map(|ahead| age(ahead).get()).fold(0, u64::saturating_add)
        } else {
            0
        };
        let mut window = self.disorder.window(self.trip.mean, late, false);
        if self.disorder.is_new() {
            // Where most packets are lost, the estimate from the missing ones would never let them be requested.
            window = window.min(self.trip.usual().unwrap_or(self.guess));
        }
        let is_reported = |ahead: u32| self.reported >> ((base + ahead) % 128) & 1 != 0;
        let overdue = ones(missing)
            .filter(|ahead| is_reported(*ahead) || age(*ahead) >= window)
            .fold(0, |all, ahead| all | 1 << ahead);
        for ahead in ones(overdue) {
            let number = base + ahead;
            if self.reported >> (number % 128) & 1 == 0 {
                self.reported |= 1 << (number % 128);
                if let Some(since) = self.since.get_mut(place(number, 128)) {
                    *since = now;
                }
            }
        }
        overdue
    }
}

impl Receiver {
    /// Creates a receiver for a message of any length, with a window of 1 to 512 packets. With a `gap_timeout`, packets
    /// that are missing for longer than that are requested at once [E2-4]; a gap is detected after 1 to 1.5 times that
    /// time.
    #[must_use]
    pub const fn new(window: u32, gap_timeout: Option<Nanos>) -> Self {
        Self {
            base: 0,
            received: PacketWindow::EMPTY,
            window,
            count: None,
            gap_timeout,
            highest: [0; 3],
            mark: Nanos::ZERO,
            gaps: None,
            answers: AnswerQueue::NONE,
        }
    }

    /// Like [`Self::new`], with a gap timeout that follows the disorder of the path, for windows of at most [`WIDTH`].
    /// `guess`: maximum before a round trip is known.
    #[must_use]
    pub fn adaptive(window: u32, guess: Nanos) -> Self {
        Self { gaps: Some(Gaps::new(guess)), ..Self::new(window.min(WIDTH), None) }
    }

    /// Restarts with another message, of a sender with the path measurements `path`.
    pub fn begin(&mut self, path: ReceivePath) {
        let gaps = self.gaps.take().map(|mut gaps| {
            gaps.since.fill(Nanos::ZERO);
            Gaps { highest: 0, latest: 0, reported: 0, trip: path.trip, disorder: path.disorder, ..gaps }
        });
        *self = Self { gaps, ..Self::new(self.window, self.gap_timeout) };
    }

    /// Returns the measurements of the path from the sender; `None` if nothing is measured.
    #[must_use]
    pub const fn path(&self) -> Option<ReceivePath> {
        match &self.gaps {
            Some(Gaps { trip, disorder, .. }) => Some(ReceivePath { trip: *trip, disorder: *disorder }),
            None => None,
        }
    }

    /// Whether packet `index` has been received.
    #[must_use]
    pub fn has_packet(&self, index: u32) -> bool {
        index < self.base || index - self.base < PacketWindow::WIDTH && self.received.contains(index)
    }

    /// Returns the packets that are missing for longer than the gap timeout; bit `i` is packet `base + i`.
    fn overdue_packets(&mut self, now: Nanos) -> u128 {
        let Some(gap_timeout) = self.gap_timeout else { return 0 };
        let half = Nanos::new(gap_timeout.get() / 2).max(Nanos::new(1));
        let [highest, last, before] = self.highest;
        let since = now.saturating_sub(self.mark);
        if since >= half {
            // The last mark is two half timeouts old: every gap below the highest packet is overdue.
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
        let disposition = match index.checked_sub(self.base) {
            _ if self.is_complete() => Disposition::Duplicate,
            None => Disposition::Duplicate,
            Some(ahead) if ahead >= span(self.window) => return Disposition::Dropped,
            Some(_) if self.received.contains(index) => Disposition::Duplicate,
            Some(_) => {
                if packet.tail {
                    self.count = Some(index + 1);
                }
                if let Some(gaps) = &mut self.gaps {
                    gaps.note(now, packet, self.base);
                }
                self.received.insert(index);
                let slide = self.received.run(self.base);
                self.received.clear(self.base, self.base + slide);
                self.base += slide;
                Disposition::Write
            }
        };
        let wanted = match &mut self.gaps {
            Some(gaps) => {
                if disposition == Disposition::Duplicate {
                    gaps.disorder.note_wasted();
                }
                gaps.overdue(now, self.base, !self.received.bits(self.base))
            }
            None => self.overdue_packets(now),
        };
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
            duplicate: disposition == Disposition::Duplicate,
        }));
        disposition
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.take()
    }

    fn is_complete(&self) -> bool {
        self.count == Some(self.base)
    }
}

/// Limits a window to 1 to [`PacketWindow::WIDTH`] packets.
const fn span(window: u32) -> u32 {
    if window > PacketWindow::WIDTH {
        PacketWindow::WIDTH
    } else if window == 0 {
        1
    } else {
        window
    }
}

/// One transmission of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transmission {
    pub(super) sequence: u32,
    pub(super) index: u32,
    pub(super) at: Nanos,
}

/// Packets in flight of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct InFlight {
    pub(super) count: u32,
    /// Lowest packet that is not acknowledged.
    pub(super) base: u32,
    /// Lowest packet that was never sent.
    pub(super) next: u32,
    /// Acknowledged packets from the base on.
    here: PacketWindow,
    /// Packets to be retransmitted.
    again: PacketWindow,
    window: u32,
    /// Number of the last transmission.
    sequence: u32,
    /// Lower bound of the sequence numbers of transmissions that may still be in flight; see [`Self::earliest`].
    oldest: u32,
    /// Number of retransmissions.
    repeats: UnhashedCount,
    /// Last transmission of each packet and its number of retransmissions, by the low bits of the packet number.
    packets: Box<[(u32, u8)]>,
    /// Transmissions by the low bits of their sequence numbers. An answer echoes a sequence number, which may be
    /// that of an earlier transmission of the packet.
    sendings: Box<[Transmission]>,
}

/// Number of stored transmissions per packet that can be in flight. Two are sufficient: an answer to a transmission
/// that is no longer stored acknowledges like any other, and only its delay sample is lost.
const TRANSMISSIONS_PER_PACKET: u32 = 2;
/// The same for windows of at most [`WIDTH`] packets, which may stay in the network for many round trips.
const TRANSMISSIONS_PER_PACKET_SHORT: u32 = 4;
const NONE: Transmission = Transmission { sequence: 0, index: 0, at: Nanos::ZERO };

/// Result of an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckInfo {
    /// Transmission that the acknowledgement answers, if it is stored.
    pub(super) sending: Option<Transmission>,
    /// Number of newly acknowledged packets.
    pub(super) new: u32,
}

/// Returns the slot of a number among `size` slots; `size` is a power of two.
fn place(number: u32, size: usize) -> usize {
    index(number) & (size - 1)
}

/// Returns the next number; 0 is reserved for "none".
const fn after(sequence: u32) -> u32 {
    match sequence.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// Whether sequence number `one` was assigned before `other`. Numbers wrap; two stored ones are less than 2^31 apart.
pub(super) const fn before(one: u32, other: u32) -> bool {
    one != other && other.wrapping_sub(one) < 1 << 31
}

impl InFlight {
    /// Creates the record for a message of `count` packets with `window` of them in flight.
    pub(super) fn new(count: u32, window: u32) -> Self {
        // Powers of two, so that numbers keep their slots when they wrap.
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

    /// Restarts with another message. Transmissions of the previous message stay stored. Sequence numbers continue,
    /// so no answer to this message echoes one of them.
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

    /// Returns the number of packets retransmitted so far.
    pub(super) const fn retransmits(&self) -> u64 {
        self.repeats.0
    }

    /// Returns the outstanding ones of the 128 packets from `first` on, which is not below the base: sent, not
    /// acknowledged, and not marked for retransmission.
    pub(super) fn outstanding(&self, first: u32) -> u128 {
        low(self.next.saturating_sub(first)) & !self.here.bits(first) & !self.again.bits(first)
    }

    /// Returns the number of outstanding packets, and of those marked for retransmission.
    pub(super) fn counts(&self) -> (u32, u32) {
        let marked = self.again.count();
        (self.next.saturating_sub(self.base).saturating_sub(self.here.count()).saturating_sub(marked), marked)
    }

    /// Returns the lowest and the highest outstanding packet.
    pub(super) fn ends(&self) -> Option<(u32, u32)> {
        let firsts =
            || (self.base..self.next).step_by(index(WIDTH)).map(|first| (first, self.outstanding(first)));
        let mut some = firsts().filter(|(_, out)| *out != 0);
        let (first, out) = some.next()?;
        let (last, others) = some.next_back().unwrap_or((first, out));
        Some((first + out.trailing_zeros(), last + others.ilog2()))
    }

    /// Returns the last transmission of an outstanding packet and its number of retransmissions.
    pub(super) fn last(&self, number: u32) -> (Transmission, u8) {
        let (sequence, tries) =
            self.packets.get(place(number, self.packets.len())).copied().unwrap_or((0, 0));
        let sending = self.sendings.get(place(sequence, self.sendings.len())).copied().unwrap_or(NONE);
        (sending, tries)
    }

    /// Whether a transmission is the last one of its packet, and not the first.
    pub(super) fn is_repeat(&self, sending: Transmission) -> bool {
        let packet = self.packets.get(place(sending.index, self.packets.len()));
        packet.is_some_and(|(last, tries)| *last == sending.sequence && *tries > 0)
    }

    /// Marks an outstanding packet for retransmission.
    pub(super) fn mark_retransmit(&mut self, number: u32) {
        if (self.base..self.next).contains(&number) && !self.here.contains(number) {
            self.again.insert(number);
        }
    }

    /// Whether a transmission is the last one of an outstanding packet.
    fn is_outstanding(&self, sending: &Transmission) -> bool {
        let number = sending.index;
        let last = self.packets.get(place(number, self.packets.len()));
        (self.base..self.next).contains(&number)
            && !self.here.contains(number)
            && !self.again.contains(number)
            && last.is_some_and(|(last, _)| *last == sending.sequence)
    }

    /// Returns the earliest transmission before `latest` that may still be in flight: its packet is outstanding, and
    /// was not retransmitted since. Transmissions have their sequence numbers in the order of sending, so the earliest
    /// one is the first to time out.
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

    /// Returns the sum of the times by which the outstanding packets were sent before `then`.
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

    /// Marks all packets below `base` as acknowledged. Returns how many were not before.
    fn advance_base(&mut self, base: u32) -> u32 {
        let known = self.here.clear(self.base, base);
        self.again.clear(self.base, base);
        let new = base - self.base - known;
        self.base = base;
        new
    }

    /// Processes a map. Maps older than the recorded state have no effect.
    pub(super) fn acknowledge(&mut self, map: &AckMap) -> AckInfo {
        // A receiver cannot have more than was sent.
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
        // Each transmission gives one delay sample: a second answer is for a duplicate made by the network, whose delay
        // differs. A map that does not acknowledge the packet of its echoed transmission is invalid as a sample.
        let at = place(map.echo, self.sendings.len());
        let remembered = self.sendings.get_mut(at).filter(|sending| {
            let known = sending.index < self.base || self.here.contains(sending.index);
            map.echo != 0 && sending.sequence == map.echo && known
        });
        let sending = remembered.map(|sending| core::mem::replace(sending, NONE));
        AckInfo { sending, new }
    }

    /// Returns the lowest packet marked for retransmission.
    fn next_retransmit(&self) -> Option<u32> {
        if self.again.is_empty() {
            return None;
        }
        let firsts = (self.base..self.next).step_by(index(WIDTH));
        let mut some = firsts.map(|first| (first, self.again.bits(first))).filter(|(_, bits)| *bits != 0);
        some.next().map(|(first, bits)| first + bits.trailing_zeros())
    }

    /// Returns the next packet: one marked for retransmission, or the next in order.
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
        // This transmission overwrites an older one. A packet whose last transmission is overwritten counts as lost.
        if let Some(old) = forgotten.filter(|old| old.sequence != 0 && self.is_outstanding(old)) {
            self.again.insert(old.index);
        }
        Some(Packet { index: number, tail: number + 1 == self.count, sequence })
    }
}

/// Returns the positions of the bits that are set.
pub fn ones(mut bits: u128) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let place = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(place)
    })
}

impl Receiver {
    /// Returns the fields of the state with their sizes in memory.
    #[must_use]
    pub fn state(&self) -> Vec<StateTable> {
        crate::state_fields!(self, without [window, gap_timeout, answers], base, received, count, highest, mark, gaps + gaps.as_ref().map_or(0, |gaps| size_of_val(&*gaps.since)))
    }
}

impl InFlight {
    /// Returns the bytes of the heap memory.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.packets) + size_of_val(&*self.sendings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends the next packet and returns its transmission.
    fn send(flight: &mut InFlight, now: u64) -> Transmission {
        let at = Nanos::new(now);
        let Packet { sequence, index, .. } = flight.poll(at).unwrap();
        Transmission { sequence, index, at }
    }

    fn map(here: u128) -> AckMap {
        AckMap { base: 0, ahead: 0, here, overdue: 0, echo: 0, duplicate: false }
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

    /// An outstanding packet counts as lost when its last transmission is no longer stored.
    #[test]
    fn outstanding_packet_with_forgotten_sending_sent_again() {
        let mut flight = InFlight::new(2, 2);
        assert_eq!([send(&mut flight, 0).index, send(&mut flight, 0).index], [0, 1]);
        let remembered = u64::try_from(flight.sendings.len()).unwrap();
        // The last of these overwrites the slot of packet 0's transmission.
        for now in 0..remembered - 1 {
            assert_eq!(flight.poll(Nanos::ZERO), None);
            flight.mark_retransmit(1);
            assert_eq!(send(&mut flight, now).index, 1);
        }
        assert_eq!(send(&mut flight, remembered).index, 0);
        assert_eq!(flight.poll(Nanos::ZERO), None);
    }

    /// Receivers report their lowest missing packet; a map with an older base is accepted as well.
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
        // Marked for retransmission, so not in flight.
        flight.mark_retransmit(0);
        assert_eq!(late(&flight), [0, 80]);
    }
}
