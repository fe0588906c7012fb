//! Sender window: the first baseline of source 004.
//!
//! The sender keeps a window of packets. *base* is its oldest unacknowledged packet; packets below base + window are sent once, in order.
//! One timer runs, for the base.
//!
//! | Event at the sender | Action |
//! |---|---|
//! | acknowledgement of a packet that was sent and is not below the base | mark; restart the timer; slide over marked packets |
//! | the same, of a packet that was sent once | sample; the doubling ends. Until then a doubled timer stays doubled (RFC 6298, 5): a timer shorter than the round trip would retransmit for ever |
//! | timer expires: [`careful`](RoundTrip::careful), or 2 round trips before a sample | all unacknowledged packets that were sent are retransmitted, lowest first; the timer doubles, up to 32 times, or 64 round trips before a sample |
//! | packet at the base is sent | start the timer |
//! | Done | complete |
//!
//! The receiver writes new packets to memory, keeps a bit per packet, and acknowledges every packet, new or not. The message is complete
//! when its last packet was seen and all below it are here.
//!
//! [`SenderWindowConfig::literal`] is the form of source 004: the timer is constant, doubled until the window slides, and a timeout
//! retransmits the whole buffer, acknowledged packets included. An answer takes a packet out of the buffer only when the base passes it.

use fpga_firmware::generated::Scheme as WireScheme;
use fpga_protocol::Nanos;
use fpga_protocol::scheme::bits::{PacketSet, bit, down, low, width};
use fpga_protocol::scheme::mapping::ones;
use fpga_protocol::scheme::message_scheme::{MessageScheme, ReusableReceiver, ReusableSender};
use fpga_protocol::scheme::{
    Answer, Disposition, MAX_MESSAGE_PACKETS, MessageReceiver, MessageSender, Packet, ReceivePath,
};
use fpga_protocol::sender::RoundTrip;
use fpga_protocol::state::StateTable;
use fpga_protocol::state_fields;
use fpga_registers::cast::index as place;

/// Number of packets whose times are stored, by the low bits of their numbers: the maximum window.
const SLOTS: usize = 128;

/// Parameters of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SenderWindowConfig {
    /// Maximum number of packets in flight, 1 to 128 (32).
    pub window: u32,
    /// Timeout of the oldest packet before the first sample (2 round trips); it doubles with each consecutive timeout.
    pub timeout: Nanos,
    /// Maximum doubled timeout before the first sample (64 round trips).
    pub longest: Nanos,
    /// Whether the timeout follows the measured round trips (true); otherwise it is constant, the literal form of
    /// source 004.
    pub adaptive: bool,
    /// Whether a timeout retransmits every packet in the buffer, acknowledged or not, the literal form of source 004;
    /// otherwise only the unacknowledged ones (false). Packets below the oldest unacknowledged one are not in the buffer.
    pub whole_buffer: bool,
}

impl SenderWindowConfig {
    /// Returns the specification's values for a round trip of `round_trip`.
    #[must_use]
    pub const fn new(round_trip: Nanos) -> Self {
        Self {
            window: 32,
            timeout: round_trip.saturating_mul(2),
            longest: round_trip.saturating_mul(64),
            adaptive: true,
            whole_buffer: false,
        }
    }

    /// Returns the literal form of source 004 with the same values: constant timeout, whole buffer retransmitted.
    #[must_use]
    pub const fn literal(round_trip: Nanos) -> Self {
        Self { adaptive: false, whole_buffer: true, ..Self::new(round_trip) }
    }
}

/// Returns the acknowledgement of packet `index`. The contract has no answer for it alone; this one limits nothing.
#[must_use]
pub const fn acknowledgement(index: u32) -> Answer {
    Answer::Limit { first: MAX_MESSAGE_PACKETS, above: 0, index: Some(index) }
}

impl MessageScheme for SenderWindowConfig {
    type Sender = Sender;
    type Receiver = Receiver;

    fn scheme(&self) -> WireScheme {
        super::BASELINE
    }

    fn sending(&self) -> Sender {
        Sender::new(*self, MAX_MESSAGE_PACKETS)
    }

    fn receiving(&self) -> Receiver {
        Receiver::new(MAX_MESSAGE_PACKETS)
    }
}

/// Sender of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    config: SenderWindowConfig,
    count: u32,
    /// Oldest unacknowledged packet.
    base: u32,
    next: u32,
    /// Bit `i` is packet `base + i`.
    acknowledged: u128,
    /// Packets to be retransmitted.
    retransmit: u128,
    /// Packets that were sent more than once.
    repeated: u128,
    /// Times at which the packets were sent first.
    sent: Box<[Nanos; SLOTS]>,
    deadline: Nanos,
    /// Timeouts since the last sample.
    silent: u32,
    trip: RoundTrip,
    /// Delay of the last answer, until it is read.
    delay: Option<Nanos>,
}

impl Sender {
    /// Creates a sender for a message of `count` packets.
    #[must_use]
    pub fn new(config: SenderWindowConfig, count: u32) -> Self {
        Self {
            config,
            count,
            base: 0,
            next: 0,
            acknowledged: 0,
            retransmit: 0,
            repeated: 0,
            sent: Box::new([Nanos::ZERO; SLOTS]),
            deadline: Nanos::MAX,
            silent: 0,
            trip: RoundTrip::default(),
            delay: None,
        }
    }

    fn wait(&self) -> Nanos {
        let learnt = if self.config.adaptive { self.trip.careful() } else { None };
        let (once, longest) = match learnt {
            Some(once) => (once, once.saturating_mul(32)),
            None => (self.config.timeout, self.config.longest),
        };
        once.saturating_mul(1 << self.silent.min(20)).min(longest)
    }

    /// Measures the round trip of a packet that is acknowledged for the first time, if it was sent once.
    fn sample(&mut self, now: Nanos, ahead: u32) {
        let times = bit(ahead) & !self.acknowledged & !self.repeated;
        if times == 0 || !self.config.adaptive {
            return;
        }
        let slot = place(self.base + ahead) % SLOTS;
        let span = now.saturating_sub(self.sent.get(slot).copied().unwrap_or(now));
        self.trip.sample(span);
        self.delay = Some(span);
        self.silent = 0;
    }
}

impl MessageSender for Sender {
    fn handle_answer(&mut self, now: Nanos, answer: &Answer) {
        let index = match *answer {
            Answer::Limit { index: Some(index), .. } => index,
            Answer::Done => {
                (self.base, self.next, self.retransmit) = (self.count, self.count, 0);
                self.deadline = Nanos::MAX;
                return;
            }
            _ => return,
        };
        let Some(ahead) = index.checked_sub(self.base).filter(|_| index < self.next) else { return };
        self.sample(now, ahead);
        // While answers arrive, packets queue behind each other and are late together (RFC 6298, 5.3).
        if self.config.adaptive && self.acknowledged & bit(ahead) == 0 {
            self.deadline = now.saturating_add(self.wait());
        }
        self.acknowledged |= bit(ahead);
        if !self.config.whole_buffer {
            self.retransmit &= !bit(ahead);
        }
        let slide = self.acknowledged.trailing_ones();
        if slide > 0 {
            self.base += slide;
            self.acknowledged = down(self.acknowledged, slide);
            self.retransmit = down(self.retransmit, slide);
            self.repeated = down(self.repeated, slide);
            // The timer now applies to the next oldest packet.
            if !self.config.adaptive {
                self.silent = 0;
            }
            self.deadline = if self.base < self.next { now.saturating_add(self.wait()) } else { Nanos::MAX };
        }
    }

    fn handle_timeout(&mut self, now: Nanos) -> u32 {
        if self.poll_timeout().is_none_or(|due| due > now) {
            return 0;
        }
        self.silent += 1;
        let spared = if self.config.whole_buffer { 0 } else { self.acknowledged };
        self.retransmit = low(self.next - self.base) & !spared;
        self.deadline = now.saturating_add(self.wait());
        1
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        (self.deadline != Nanos::MAX).then_some(self.deadline)
    }

    fn poll_packet(&mut self, now: Nanos) -> Option<Packet> {
        let index = if let Some(ahead) = ones(self.retransmit).next() {
            self.retransmit &= !bit(ahead);
            self.repeated |= bit(ahead);
            self.base + ahead
        } else if self.next < self.count && self.next - self.base < width(self.config.window) {
            let slot = place(self.next) % SLOTS;
            if let Some(sent) = self.sent.get_mut(slot) {
                *sent = now;
            }
            self.next += 1;
            self.next - 1
        } else {
            return None;
        };
        if index == self.base {
            self.deadline = now.saturating_add(self.wait());
        }
        Some(Packet { index, tail: index + 1 == self.count, sequence: 0 })
    }

    fn is_done(&self) -> bool {
        self.base == self.count
    }
}

impl ReusableSender for Sender {
    fn scheme(&self) -> WireScheme {
        super::BASELINE
    }

    fn begin(&mut self, _now: Nanos, count: u32, _new_node: bool, trip: &RoundTrip) {
        (self.count, self.base, self.next) = (count, 0, 0);
        (self.acknowledged, self.retransmit, self.repeated) = (0, 0, 0);
        self.sent.fill(Nanos::ZERO);
        self.deadline = Nanos::MAX;
        self.silent = 0;
        self.trip = *trip;
        self.delay = None;
    }

    fn learn(&mut self, now: Nanos, trip: &RoundTrip) {
        self.trip = *trip;
        if self.deadline != Nanos::MAX {
            self.deadline = self.deadline.min(now.saturating_add(self.wait()));
        }
    }

    fn state(&self) -> Vec<StateTable> {
        state_fields!(self, without [config, delay], count, base, next, acknowledged, retransmit, repeated, sent + size_of_val(&**sent), deadline, silent, trip)
    }

    fn take_delay(&mut self) -> Option<Nanos> {
        self.delay.take()
    }

    fn in_flight(&self) -> Option<(u32, u32)> {
        let marked = self.retransmit.count_ones();
        let known = (self.acknowledged | self.retransmit).count_ones();
        Some(((self.next - self.base).saturating_sub(known), marked))
    }

    fn base(&self) -> u32 {
        self.base
    }
}

/// Receiver of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    here: PacketSet,
    count: Option<u32>,
    answer: Option<Answer>,
}

impl Receiver {
    /// Creates a receiver for messages of up to `most` packets.
    #[must_use]
    pub fn new(most: u32) -> Self {
        Self { here: PacketSet::new(most), count: None, answer: None }
    }
}

impl MessageReceiver for Receiver {
    fn handle_packet(&mut self, _now: Nanos, packet: &Packet) -> Disposition {
        let index = packet.index;
        let new = self.here.insert(index);
        if !new && !self.here.contains(index) {
            return Disposition::Dropped;
        }
        if packet.tail {
            self.count = Some(index + 1);
        }
        self.answer = Some(acknowledgement(index));
        if new { Disposition::Write } else { Disposition::Duplicate }
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        self.answer.take()
    }

    fn is_complete(&self) -> bool {
        self.count == Some(self.here.count())
    }
}

impl ReusableReceiver for Receiver {
    fn begin(&mut self, _now: Nanos, _count: u32, _path: ReceivePath) {
        self.here.clear();
        (self.count, self.answer) = (None, None);
    }

    fn state(&self) -> Vec<StateTable> {
        state_fields!(self, without[answer], here + here.heap_bytes(), count)
    }

    fn has_packet(&self, index: u32) -> bool {
        self.here.contains(index)
    }
}
