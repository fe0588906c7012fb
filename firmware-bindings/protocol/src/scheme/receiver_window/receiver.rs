//! Receiver of one message.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{FIRST, RETRANSMISSION, ReceiverWindowConfig};
use crate::scheme::bits::{bit, down, low, width};
use crate::scheme::mapping::ones;
use crate::scheme::{Answer, AnswerQueue, Disposition, MessageReceiver, Packet, ReceivePath};
use crate::sender::RoundTrip;
use crate::state::StateTable;
use crate::time::Nanos;
use fpga_registers::cast::low16;

/// Number of packets whose times are stored, by the low bits of their numbers: the maximum window.
const SLOTS: usize = 128;
/// Number of dropped packets that are requested together before the window reaches them.
const BATCH: u32 = 8;
/// Packets after the highest one received that are requested when nothing arrives any more. The arrival of one of them
/// shows which others are missing.
const AHEAD: u32 = 8;
/// Maximum number of answers per input; further requests follow at once with the timer.
const MAX_ANSWERS: Allowance = Allowance(3);
/// Maximum number of doublings of a wait: a sender that has ended is asked less and less.
const MAX_DOUBLINGS: u8 = 12;

/// Number of answers that may follow an input. Without influence on later ones: states that differ only in it have
/// equal hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Allowance(u8);

impl core::hash::Hash for Allowance {
    fn hash<H: core::hash::Hasher>(&self, _state: &mut H) {}
}

/// Receiver of one message.
///
/// ```text
///                 base                     highest      base + W
///   received       | hole  received  hole     |  not seen   |  dropped ...
///   ---------------+--------------------------+-------------+---------------->  packet numbers
///                    overtaken: requested       requested      requested when the
///                    after the reorder window   when silent    window reaches them
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    config: ReceiverWindowConfig,
    /// Lowest missing packet.
    base: u32,
    /// Bit `i` is packet `base + i`; bit 0 is never set between two packets.
    here: u128,
    /// Missing packets that were requested, and those of them that were requested more than once.
    requested: u128,
    repeated: u128,
    /// Missing packets whose requests are to be sent.
    wanted: u128,
    /// Packets dropped beyond the window: bit `i` is packet `base + window + i`.
    dropped: u128,
    /// First and last packet dropped beyond those.
    far: Option<(u32, u32)>,
    /// One above the highest packet that has arrived.
    highest: u32,
    /// Number of packets of the message, known from its tail on.
    count: Option<u32>,
    /// The same, as announced.
    announced: Option<u32>,
    /// Of each missing packet: time of the first arrival of a later one, or of the last request.
    since: Box<[Nanos; SLOTS]>,
    /// Time of the announcement's first answer, until the first packet gives a sample of the round trip.
    accepted: Option<Nanos>,
    /// Time of the last new packet, or of the last request because of silence.
    active: Nanos,
    /// Time of the next check for lost packets.
    due: Nanos,
    /// Expired waits for the lowest missing packet, since the last slide or request for everything from there on.
    strikes: u8,
    /// Requests for everything from there on.
    ranges: u8,
    path: ReceivePath,
    answers: AnswerQueue,
    /// Number of answers that may follow this input.
    allowance: Allowance,
}

impl Receiver {
    /// Creates a receiver for a message that was announced at `now`.
    #[must_use]
    pub fn new(config: ReceiverWindowConfig, now: Nanos) -> Self {
        Self {
            base: 0,
            here: 0,
            requested: 0,
            repeated: 0,
            wanted: 0,
            dropped: 0,
            far: None,
            highest: 0,
            count: None,
            announced: None,
            since: Box::new([Nanos::ZERO; SLOTS]),
            accepted: Some(now),
            active: now,
            due: Nanos::MAX,
            strikes: 0,
            ranges: 0,
            path: ReceivePath::default(),
            answers: AnswerQueue::NONE,
            allowance: MAX_ANSWERS,
            config,
        }
    }

    /// Restarts with another message of `count` packets, of a sender with the path measurements `path`.
    pub fn begin(&mut self, now: Nanos, count: u32, path: ReceivePath) {
        self.base = 0;
        (self.here, self.requested, self.repeated, self.wanted, self.dropped) = (0, 0, 0, 0, 0);
        self.far = None;
        self.highest = 0;
        self.count = None;
        self.announced = Some(count);
        self.since.fill(Nanos::ZERO);
        self.accepted = Some(now);
        self.active = now;
        self.due = Nanos::MAX;
        (self.strikes, self.ranges) = (0, 0);
        self.path = path;
        self.answers = AnswerQueue::NONE;
        self.allowance = MAX_ANSWERS;
    }

    /// Records that the announcement was answered again. It is not known which answer the first packet follows: the
    /// time since the first one is a sample only if there is no better one.
    pub const fn note_repeated_request(&mut self) {
        if self.path.trip.samples != 0 {
            self.accepted = None;
        }
    }

    /// Returns the measurements of the path from the sender.
    #[must_use]
    pub const fn path(&self) -> ReceivePath {
        self.path
    }

    /// Returns the lowest missing packet.
    #[must_use]
    pub const fn base(&self) -> u32 {
        self.base
    }

    /// Whether packet `index` is received, as far as the window covers it.
    #[must_use]
    pub const fn has_packet(&self, index: u32) -> bool {
        index < self.base || self.here & bit(index - self.base) != 0
    }

    const fn window(&self) -> u32 {
        width(self.config.window)
    }

    fn since(&self, index: u32) -> Nanos {
        self.since.get(fpga_registers::cast::index(index) % SLOTS).copied().unwrap_or(Nanos::ZERO)
    }

    fn set_since(&mut self, index: u32, at: Nanos) {
        if let Some(since) = self.since.get_mut(fpga_registers::cast::index(index) % SLOTS) {
            *since = at;
        }
    }

    /// Missing packets that a later one has overtaken.
    const fn overtaken(&self) -> u128 {
        let span = self.highest.saturating_sub(self.base);
        low(if span < self.window() { span } else { self.window() }) & !self.here
    }

    /// Returns the round trip: the smoothed mean, or the configured one before the first sample.
    fn round_trip(&self) -> Nanos {
        let trip = &self.path.trip;
        if trip.samples == 0 { Nanos::new(self.config.hole_timeout.get() / 2) } else { trip.mean }
    }

    /// Returns the reorder window: the time for which an overtaken packet may be late.
    fn reorder_window(&self, now: Nanos) -> Nanos {
        let floor = Nanos::new(self.round_trip().get() / 8);
        if !self.config.adaptive {
            return floor;
        }
        let late = if self.path.disorder.is_new() {
            let waits = ones(self.overtaken() & !self.requested)
                .map(|ahead| now.saturating_sub(self.since(self.base + ahead)).get());
            waits.fold(0, u64::saturating_add)
        } else {
            0
        };
        // Everything was sent: a spurious request delays no other packet.
        let haste = self.count.or(self.announced) == Some(self.highest);
        let window = self.path.disorder.window(floor, late, haste);
        // The ages of packets lost together would widen the window as fast as they grow.
        match self.path.trip.careful() {
            Some(careful) if late > 0 => window.min(careful.max(self.path.disorder.window(floor, 0, haste))),
            _ => window,
        }
    }

    /// Returns the time after which a requested packet, or silence, is over.
    fn wait(&self, reorder: Nanos) -> Nanos {
        let usual = if self.config.adaptive { self.path.trip.usual() } else { None };
        let once = usual.map_or(self.config.hole_timeout, |usual| usual.saturating_add(reorder));
        once.saturating_mul(1 << self.ranges.min(MAX_DOUBLINGS))
    }

    /// Records that packet `index` has arrived: missing packets below it are overtaken from now on.
    fn note_highest(&mut self, now: Nanos, index: u32) {
        let end = index.min(self.base.saturating_add(self.window()));
        for missing in self.highest.max(self.base)..end {
            // A request for it is more recent than its evidence.
            if self.requested & bit(missing - self.base) == 0 {
                self.set_since(missing, now);
                self.due = self.due.min(now);
            }
        }
        self.highest = self.highest.max(index + 1);
    }

    /// Takes measurements from a packet that fills packet `ahead` of the window.
    fn measure(&mut self, now: Nanos, packet: &Packet, ahead: u32) {
        // A packet that was sent again has waited for the sender's timer.
        if let Some(accepted) = self.accepted.take()
            && packet.sequence != RETRANSMISSION
        {
            self.path.trip.sample(now.saturating_sub(accepted));
        }
        let since = self.since(packet.index);
        let waited = now.saturating_sub(since);
        if self.requested & bit(ahead) == 0 {
            let late = if packet.index < self.highest { waited } else { Nanos::ZERO };
            self.path.disorder.sample(late);
        } else if packet.sequence == RETRANSMISSION {
            self.path.disorder.note_useful();
            if self.repeated & bit(ahead) == 0 {
                self.path.trip.sample(waited);
            }
        } else if packet.sequence == FIRST {
            // It was late, not lost.
            self.path.disorder.note_wasted();
        }
    }

    /// Requests missing packets of the window.
    fn request(&mut self, now: Nanos, missing: u128) {
        let missing = missing & !self.here & low(self.window());
        self.repeated |= self.requested & missing;
        self.requested |= missing;
        self.wanted |= missing;
        for ahead in ones(missing) {
            self.set_since(self.base + ahead, now);
        }
    }

    /// Requests the packets dropped beyond the window.
    fn request_dropped(&mut self) {
        if let Some((first, last)) = self.run_of_dropped() {
            self.answers.queue_answer(Answer::Resend { first, last });
        }
    }

    /// Removes and returns the first and the last of the packets dropped beyond the window. Packets between them that
    /// were not dropped are few: they are late.
    fn run_of_dropped(&mut self) -> Option<(u32, u32)> {
        let start = self.base + self.window();
        let near = (self.dropped != 0)
            .then(|| (start + self.dropped.trailing_zeros(), start + self.dropped.ilog2()));
        self.dropped = 0;
        let far = self.far.take();
        Some((near.or(far)?.0, far.or(near)?.1))
    }

    /// Remembers a packet dropped beyond the window.
    fn note_dropped(&mut self, index: u32, sequence: u32) {
        let beyond = index - self.base - self.window();
        if beyond < 128 {
            self.dropped |= bit(beyond);
        } else {
            let (first, last) = self.far.unwrap_or((index, index));
            self.far = Some((first.min(index), last.max(index)));
        }
        // A copy sent now arrives a round trip later. By then the window has moved, if the packet at its base was late.
        // After a retransmission that came too early nothing is known about that time: it waits for the window.
        if sequence != RETRANSMISSION && self.dropped.count_ones() + u32::from(self.far.is_some()) >= BATCH {
            self.request_dropped();
        }
    }

    /// Moves the window by `slide` packets, and requests the dropped packets that it reaches.
    fn slide(&mut self, now: Nanos, slide: u32) {
        for index in self.base..self.base + slide {
            self.set_since(index, Nanos::ZERO);
        }
        self.base += slide;
        self.here = down(self.here, slide);
        self.requested = down(self.requested, slide);
        self.repeated = down(self.repeated, slide);
        self.wanted = down(self.wanted, slide);
        let window = self.window();
        let reached = (self.dropped & low(slide)) << (window - slide);
        self.dropped = down(self.dropped, slide);
        if let Some((first, last)) = self.far {
            let end = self.base + window + 128;
            if first < end {
                self.dropped |= low(last.min(end - 1) - self.base - window + 1)
                    & !low(first.saturating_sub(self.base + window));
                self.far = (last >= end).then_some((end, last));
            }
        }
        // Packets that enter the window were overtaken if a later one has arrived.
        let entered = low(self.highest.saturating_sub(self.base).min(window)) & !low(window - slide);
        for ahead in ones(entered & !reached) {
            self.set_since(self.base + ahead, now);
            self.due = self.due.min(now);
        }
        self.request(now, reached);
        if reached != 0 {
            self.due = self.due.min(now);
        }
    }

    /// Requests the packets that count as lost, and sets the time of the next check.
    fn detect_losses(&mut self, now: Nanos) {
        self.due = Nanos::MAX;
        let reorder = self.reorder_window(now);
        let wait = self.wait(reorder);
        let mut lost = 0;
        for ahead in ones((self.overtaken() | self.requested) & !self.here) {
            let span = if self.requested & bit(ahead) == 0 { reorder } else { wait };
            let at = self.since(self.base + ahead).saturating_add(span);
            if at <= now {
                lost |= bit(ahead);
            } else {
                self.due = self.due.min(at);
            }
        }
        if lost == 0 {
            return;
        }
        if lost & self.requested & 1 != 0 && self.strike() {
            self.request_rest(now);
            return;
        }
        let first = lost & !self.requested & 1 != 0;
        self.request(now, lost);
        self.due = self.due.min(now.saturating_add(wait));
        if first {
            self.request_dropped();
        }
    }

    /// Counts an expired wait for the lowest missing packet. Returns whether everything from there on is to be
    /// requested.
    const fn strike(&mut self) -> bool {
        if self.strikes < self.config.patience {
            self.strikes += 1;
            return false;
        }
        // Restart the count after a request for everything, too [E0-18].
        self.strikes = 0;
        if self.ranges < MAX_DOUBLINGS {
            self.ranges += 1;
        }
        true
    }

    /// Requests everything from the base on.
    fn request_rest(&mut self, now: Nanos) {
        let last = self.count.map_or(u32::MAX, |count| count - 1);
        let span = last.saturating_sub(self.base).saturating_add(1);
        self.request(now, low(span.min(self.highest.saturating_sub(self.base).max(1))));
        (self.wanted, self.dropped, self.far) = (0, 0, None);
        self.answers.queue_answer(Answer::Resend { first: self.base, last });
        self.due = now.saturating_add(self.wait(self.reorder_window(now)));
    }

    /// Requests missing packets that no later one has overtaken: nothing has arrived for a while.
    fn request_silent(&mut self, now: Nanos) {
        self.active = now;
        if self.config.credit {
            // The last limit may be lost.
            self.queue_limit(None);
        }
        if self.requested & 1 == 0 && self.strike() {
            self.request_rest(now);
            return;
        }
        let start = self.highest.saturating_sub(self.base);
        let mut missing = 1 | self.overtaken();
        if let Some(count) = self.count.or(self.announced) {
            let end = count.saturating_sub(self.base);
            missing |= low(end.min(start + AHEAD)) & !low(start);
            missing |= low(end) & !low(end.saturating_sub(1));
        }
        let missing = missing & !self.requested & !self.here;
        self.request(now, missing);
        if missing != 0 {
            self.due = self.due.min(now.saturating_add(self.wait(self.reorder_window(now))));
        }
    }

    /// Queues the sender's limit, in answer to packet `index`.
    fn queue_limit(&mut self, index: Option<u32>) {
        let (first, above) = (self.base + self.window(), low16(self.here.count_ones()));
        self.answers.queue_answer(Answer::Limit { first, above, index });
    }

    /// Time at which silence is over.
    fn silence(&self) -> Nanos {
        self.active.saturating_add(self.wait(self.reorder_window(self.active)))
    }
}

impl MessageReceiver for Receiver {
    fn handle_packet(&mut self, now: Nanos, packet: &Packet) -> Disposition {
        self.allowance = MAX_ANSWERS;
        let index = packet.index;
        if self.is_complete() || index < self.base {
            return Disposition::Duplicate;
        }
        let ahead = index - self.base;
        if ahead >= self.window() {
            if self.config.credit {
                // The sender knows its limit, or the answer with the limit was lost.
                self.queue_limit(Some(index));
            } else {
                self.note_dropped(index, packet.sequence);
            }
            self.note_highest(now, index);
            return Disposition::Dropped;
        }
        if self.here & bit(ahead) != 0 {
            return Disposition::Duplicate;
        }
        // Other packets do not end the silence: they could arrive for ever [E0-7].
        self.active = now;
        if packet.tail {
            self.count = Some(index + 1);
        }
        if self.config.adaptive {
            self.measure(now, packet, ahead);
        }
        self.note_highest(now, index);
        // Set the bit before the slide; otherwise the window never moves [E0-2].
        self.here |= bit(ahead);
        self.requested &= !bit(ahead);
        self.repeated &= !bit(ahead);
        self.wanted &= !bit(ahead);
        self.set_since(index, Nanos::ZERO);
        let slide = self.here.trailing_ones();
        if slide > 0 {
            self.slide(now, slide);
            (self.strikes, self.ranges) = (0, 0);
            // After every slide, independent of the packet [E0-4, E0-5].
            if self.is_complete() {
                self.answers = AnswerQueue::NONE;
                (self.wanted, self.requested, self.repeated, self.due) = (0, 0, 0, Nanos::MAX);
                self.answers.queue_answer(Answer::Done);
                return Disposition::Write;
            }
        }
        if self.config.credit {
            self.queue_limit(Some(index));
        }
        Disposition::Write
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.allowance = MAX_ANSWERS;
        if self.poll_timeout().is_none_or(|due| due > now) {
            return;
        }
        if self.due <= now {
            self.detect_losses(now);
        }
        if self.silence() <= now {
            self.request_silent(now);
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        if self.is_complete() {
            return None;
        }
        // Requests beyond the maximum of one input follow at once.
        let rest = if self.wanted == 0 { Nanos::MAX } else { self.active };
        Some(self.silence().min(self.due).min(rest))
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        let Allowance(left) = &mut self.allowance;
        *left = left.checked_sub(1)?;
        if let Some(answer) = self.answers.take() {
            return Some(answer);
        }
        if self.wanted == 0 {
            return None;
        }
        let start = self.wanted.trailing_zeros();
        let run = down(self.wanted, start).trailing_ones();
        self.wanted &= !(low(start + run) & !low(start));
        let first = self.base + start;
        Some(Answer::Resend { first, last: first + run - 1 })
    }

    fn is_complete(&self) -> bool {
        self.count == Some(self.base)
    }
}

impl Receiver {
    /// Returns the measured round trips, for a display.
    #[must_use]
    pub const fn trip(&self) -> &RoundTrip {
        &self.path.trip
    }
}

impl Receiver {
    /// Returns the fields of the state with their sizes in memory.
    #[must_use]
    pub fn state(&self) -> Vec<StateTable> {
        crate::state_fields!(self, without [config, answers, allowance], base, here, requested, repeated, wanted, dropped, far, highest, count, announced, since + size_of_val(&**since), accepted, active, due, strikes, ranges, path)
    }
}
