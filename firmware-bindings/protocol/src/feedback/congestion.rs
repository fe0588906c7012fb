//! Congestion window towards one destination: the number of its packets that may be in the network.
//!
//! The window needs no help from switches. Its signals are the round trips that a sender measures anyway, and losses:
//!
//! | Signal | Reaction |
//! |---|---|
//! | first acknowledgements | their spacing is the rate that the path grants: the window becomes what it delivers per round trip; that of a sender alone at its receiver does not shrink |
//! | even the fastest packet of a round trip waited in a queue | the window moves to the size that keeps a few packets in that queue |
//! | no queue | the window grows by one packet per round trip, after four of them by a quarter; it doubles for a sender alone at its receiver if more than a quarter of the packets arrive out of order |
//! | more than an eighth of the packets were lost | the window shrinks to the share that arrived, once per round trip |
//! | packets carry marks of switches (ECN), or their payload was cut off | for 64 round trips, the rules of such paths (`congestion/marked.rs`) replace these |
//! | the receiver names the number of its senders | with a queue, the window is at most the share of [`CongestionConfig::shared`] |
//! | more than a quarter of the packets arrive out of order, or delays vary and the sender is alone at its receiver | delays are ignored, unless many packets were lost |
//! | the receiver has no table entry for a segment | the window becomes at most four packets, unless the sender is alone at its receiver |
//! | nothing was answered for a timeout | the window is halved, at most once per round trip |
//!
//! The minimum delay of a round trip decides, not the mean: a queue delays all of its packets, jitter and reordering
//! only some. A few lost packets do not shrink the window, because random loss says nothing about queues.
//!
//! With `base` the minimum delay of the path and `delay` that of the last round trip, the window becomes
//! `window * base / delay + window / 16 + 1/2`; down to it, it moves half of the way. At its fixed point each sender keeps half a packet and a sixteenth
//! of its window in the queue. The rule is that of FAST TCP (Wei, Jin, Low and Hegde, 2006), which converges to equal
//! shares; the first term leaves space for hundreds of senders in a short queue.
//!
//! A window below one packet is a pause between packets. It is never 0: every destination gets a packet from time to
//! time, and with it a new measurement.

mod marked;

use crate::time::Nanos;
use fpga_registers::cast::low32;
use marked::{Arrival, MARKED_ROUNDS, MarkedPath};

/// One packet; windows are multiples of 1/256 packet.
const ONE: u32 = 256;
/// Packets that a sender keeps in the queue in addition to a share of its window: half a packet.
const STANDING: u32 = ONE / 2;
/// Round trips after which the minimum delay of a path is measured anew: routes change.
const EPOCH: u64 = 4096;
/// Round trips without a packet after which the window is outdated, and the minimum: a short pause says nothing about a network of short
/// round trips.
const IDLE: u64 = 256;
const MIN_IDLE: Nanos = Nanos::from_millis(1);
/// Acknowledgements from whose spacing the first window is computed.
const TRAIN: u32 = 8;
/// Rounds between two that drain the queue: at first, and at most. The interval doubles each time.
const FIRST_DRAIN_ROUNDS: u8 = 4;
const LAST_DRAIN_ROUNDS: u8 = 64;
/// Rounds without a queue in which the window grows by one packet each, before it grows by a quarter: the minimum delay
/// of a path that was never without a queue is too large, and its window must not take the others' share.
const QUIET: u8 = 4;
/// Maximum pause between two packets: a host that was suspended measures round trips of any length.
const MAX_PAUSE: u64 = Nanos::from_millis(10).get();
/// Rounds for which a path counts as noisy after packets were out of order, or delays varied by more than the minimum.
const NOISY: u8 = 64;
/// Minimum delays by which all packets of a round are late on a path whose delays vary.
const LATE: u64 = 3;
/// Windows down to which losses without a queue, and delay without losses, reduce a window.
const LOSSY_FLOOR: u32 = 16 * ONE;
const DELAY_FLOOR: u32 = 4 * ONE;
/// Window of a sender whose segments are refused because the receiver's tables are full.
const REFUSED: u32 = 4 * ONE;
/// First window of a host in bytes.
const HOST_BYTES: u32 = 64 << 10;
/// Bytes of headers and checksum of a packet.
const HEADER_BYTES: u64 = 40;
/// Minimum number of lost packets that is more than chance.
const MIN_LOST: u32 = 2;

/// Parameters of a congestion window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CongestionConfig {
    /// Window before the first measurement, in packets (32: 16 KiB in packets of 512 bytes leave at once). A larger one
    /// starts faster on a free path; many senders that start at the same time lose most of their first windows. Hosts that
    /// send through a card take more ([`Self::for_host`]).
    pub initial: u32,
    /// Maximum window, in packets (4096).
    pub most: u32,
    /// Packets in the network that all senders to one receiver share while its port is congested (128). A sender that
    /// knows their number ([`CongestionWindow::note_senders`]) takes its share of them.
    pub shared: u32,
    /// Time of a full packet on the sender's link in picoseconds (44,160: 512 bytes and headers at 100 Gbit/s). With the round trip,
    /// it gives the packets that a free path holds. Only for paths with marks.
    pub packet_ps: u32,
    /// Payload bytes of a full packet (512).
    pub packet_bytes: u32,
}

impl CongestionConfig {
    /// Default values.
    pub const DEFAULT: Self =
        Self { initial: 32, most: 4096, shared: 128, packet_ps: 44_160, packet_bytes: 512 };

    /// Returns the default values of a host that sends packets of `packet_size` bytes through a card: 64 KiB leave at once,
    /// at least 32 packets. Its round trip includes PCIe twice, about 6 us; at 80 Gbit/s, this path holds as much.
    #[must_use]
    pub const fn for_host(packet_size: u32) -> Self {
        let packets = HOST_BYTES.div_ceil(if packet_size == 0 { 1 } else { packet_size });
        let initial = if packets < Self::DEFAULT.initial { Self::DEFAULT.initial } else { packets };
        Self { initial, ..Self::DEFAULT.with_packets(packet_size, 100_000_000_000) }
    }

    /// Sets the payload bytes of full packets, and the rate of the sender's link in bit/s, at least 1 Mbit/s.
    #[must_use]
    pub const fn with_packets(mut self, packet_size: u32, rate: u64) -> Self {
        let megabits = if rate < 1_000_000 { 1 } else { rate / 1_000_000 };
        let ps = (packet_size as u64 + HEADER_BYTES) * 8_000_000 / megabits;
        self.packet_ps = if ps > u32::MAX as u64 { u32::MAX } else { low32(ps) };
        self.packet_bytes = packet_size;
        self
    }
}

impl Default for CongestionConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Answer to the question whether a packet may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permit {
    /// Now.
    Now,
    /// At this time.
    At(Nanos),
    /// After an acknowledgement.
    Closed,
}

/// Congestion window towards one destination; see [the module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CongestionWindow {
    /// Size in 1/256 packets, at least [`Self::MIN`].
    size: u32,
    /// Packets that may leave although the window is full: probes.
    extra: u32,
    /// Minimum delay in this epoch and in the last one; [`Nanos::MAX`] before the first sample.
    base: [Nanos; 2],
    epoch: Nanos,
    /// Minimum delay of this round, and that of the last one.
    least: Nanos,
    delay: Nanos,
    /// The round ends when a packet sent from this time on is acknowledged.
    mark: Nanos,
    /// Packets acknowledged and lost; older ones count half per round.
    arrived: u32,
    lost: u32,
    /// Whether the window is still the initial one. Then `train` is the time of the first acknowledgement, and
    /// `acks` the number of those after it.
    starting: bool,
    train: Nanos,
    acks: u32,
    /// Whether the window held a packet back in this round.
    limited: bool,
    /// Rounds in which it did, up to the next draining one; `draining`: this round sends less, so that the queue runs empty
    /// and `base` is measured again.
    rounds: u8,
    /// Rounds without a queue.
    quiet: u8,
    interval: u8,
    draining: bool,
    /// Number of nodes that send to the same receiver; 0: not known. It follows a decrease of the last number that the
    /// receiver `named` in steps: between two transfers of a node, the node does not count.
    senders: u8,
    named: u8,
    /// Rounds in which the path still counts as one whose delays say little about queues; maximum delay of this round.
    noisy: u8,
    /// Rounds since many packets were lost, counted down: then delays count, even those of a noisy path.
    lossy: u8,
    longest: Nanos,
    /// Packets of this round that arrived after one that was sent later, and the send time of the latest arrival.
    late: u32,
    samples: u32,
    latest: Nanos,
    /// Rules of a path whose switches mark packets or cut off payloads.
    marked: MarkedPath,
    /// Time of the last sample.
    heard: Nanos,
    /// Time of the last packet; with a window below one packet, time from which the next one may leave.
    sent: Nanos,
    next: Nanos,
}

impl CongestionWindow {
    /// Minimum size: one packet in 64 round trips.
    const MIN: u32 = ONE / 64;

    /// Creates the window of a destination without measurements.
    #[must_use]
    pub const fn new(config: &CongestionConfig) -> Self {
        Self {
            size: Self::limit(config, config.initial.saturating_mul(ONE)),
            extra: 0,
            base: [Nanos::MAX; 2],
            epoch: Nanos::ZERO,
            least: Nanos::MAX,
            delay: Nanos::ZERO,
            mark: Nanos::ZERO,
            arrived: 0,
            lost: 0,
            starting: true,
            train: Nanos::MAX,
            acks: 0,
            limited: false,
            rounds: 0,
            quiet: 0,
            interval: FIRST_DRAIN_ROUNDS,
            draining: false,
            senders: 0,
            named: 0,
            noisy: 0,
            lossy: 0,
            longest: Nanos::ZERO,
            late: 0,
            samples: 0,
            latest: Nanos::ZERO,
            marked: MarkedPath::NONE,
            heard: Nanos::ZERO,
            sent: Nanos::ZERO,
            next: Nanos::ZERO,
        }
    }

    const fn limit(config: &CongestionConfig, size: u32) -> u32 {
        let most = config.most.saturating_mul(ONE);
        let size = if size > most { most } else { size };
        if size < Self::MIN { Self::MIN } else { size }
    }

    /// Returns the window in packets, rounded up.
    #[must_use]
    pub const fn packets(&self) -> u32 {
        self.size.div_ceil(ONE)
    }

    /// Returns the minimum delay of the path; `None` before the first sample.
    #[must_use]
    pub fn base(&self) -> Option<Nanos> {
        let [now, before] = self.base;
        now.min(before).as_timer()
    }

    /// Returns the number of packets that may be in flight in this round.
    const fn allowance(&self) -> u32 {
        let size = if self.draining { self.size - self.size / 8 * 3 } else { self.size } / ONE;
        if size == 0 { 1 } else { size }
    }

    /// Returns whether a packet may be sent while `in_flight` others are in the network.
    pub fn permit(&mut self, now: Nanos, in_flight: u32) -> Permit {
        if self.extra > 0 {
            return Permit::Now;
        }
        if in_flight >= self.allowance() {
            self.limited = true;
            return Permit::Closed;
        }
        if self.next > now {
            self.limited = true;
            return Permit::At(self.next);
        }
        Permit::Now
    }

    /// Returns the number of packets that may be sent now, like [`Self::permit`].
    #[must_use]
    pub fn room(&self, now: Nanos, in_flight: u32) -> u32 {
        if self.next > now {
            return self.extra;
        }
        self.allowance().saturating_sub(in_flight).max(self.extra)
    }

    /// Records that the window held a packet back.
    pub const fn hold(&mut self) {
        self.limited = true;
    }

    /// Returns the time from which the next packet may leave, for windows below one packet.
    #[must_use]
    pub const fn release_time(&self) -> Nanos {
        self.next
    }

    /// Records that a packet leaves now, after which `in_flight` packets are in the network.
    pub fn note_sent(&mut self, config: &CongestionConfig, now: Nanos, in_flight: u32) {
        self.limited |= in_flight >= self.allowance();
        self.extra = self.extra.saturating_sub(1);
        if let Some(base) = self.base() {
            let idle = base.max(self.delay).saturating_mul(IDLE).max(MIN_IDLE);
            if self.sent.saturating_add(idle) <= now {
                // Half of the way back: the path may be as it was.
                let initial = config.initial.saturating_mul(ONE);
                self.size = Self::limit(config, initial.max(self.size.midpoint(initial)));
                (self.starting, self.train, self.next) = (true, Nanos::MAX, Nanos::ZERO);
                (self.arrived, self.lost, self.mark) = (0, 0, now);
            }
        }
        self.sent = now;
        if self.size < ONE {
            let trip = self.delay.max(self.base().unwrap_or(Nanos::ZERO));
            let pause = trip.saturating_mul(ONE.into()).get() / u64::from(self.size);
            self.next = now.saturating_add(Nanos::new(pause.min(MAX_PAUSE)));
        }
    }

    /// Records the number of nodes that send to the same receiver, as it answers; 0: not known.
    ///
    /// When it grows by more than a quarter, every sender starts again with half of its share of
    /// [`CongestionConfig::shared`]: for one round trip there is no queue, and all of them measure the same base.
    pub fn note_senders(&mut self, config: &CongestionConfig, senders: u8) {
        self.named = senders;
        if senders <= self.senders {
            return;
        }
        let before = core::mem::replace(&mut self.senders, senders);
        if u32::from(senders) > u32::from(before.max(1)) * 5 / 4 {
            self.size = self.size.min((self.share(config) / 2).max(Self::MIN));
        }
    }

    /// Whether the receiver has named other senders.
    #[must_use]
    pub const fn has_others(&self) -> bool {
        self.senders > 1
    }

    /// Returns the share of one sender in the packets in the network towards a congested receiver.
    fn share(&self, config: &CongestionConfig) -> u32 {
        config.shared.saturating_mul(ONE) / u32::from(self.senders.max(1))
    }

    /// Records an acknowledgement: a packet was answered after `delay`; `marked`: by a switch with a long queue.
    pub fn sample(&mut self, config: &CongestionConfig, now: Nanos, delay: Nanos, marked: bool) {
        let delay = delay.max(Nanos::new(1));
        let [base, before] = &mut self.base;
        *base = (*base).min(delay);
        let base = (*base).min(*before);
        if self.epoch <= now {
            let [now_least, before] = &mut self.base;
            (*before, *now_least) = (*now_least, delay);
            self.epoch = now.saturating_add(base.saturating_mul(EPOCH));
        }
        self.heard = now;
        self.least = self.least.min(delay);
        self.longest = self.longest.max(delay);
        self.arrived = self.arrived.saturating_add(1);
        self.samples = self.samples.saturating_add(1);
        let sent = now.saturating_sub(delay);
        let is_late = sent.saturating_add(Nanos::new(base.get() / 8)) < self.latest;
        self.late = self.late.saturating_add(u32::from(is_late));
        self.latest = self.latest.max(sent);
        if marked {
            self.marked.rounds = MARKED_ROUNDS;
        }
        if self.marked.rounds != 0 {
            self.starting = false;
            let arrival = Arrival { now, base, trip: delay, marked, limited: self.limited };
            let size = self.marked.note_arrival(config, &arrival, self.size);
            self.size = Self::limit(config, size);
            if sent >= self.mark {
                self.end_marked_round(now);
            }
            return;
        }
        if self.starting && self.late == 0 {
            self.measure_train(config, now, base);
        }
        if sent >= self.mark {
            self.end_round(config, now, base);
        }
    }

    /// Sets the window from the spacing of the first acknowledgements, which is that of the packets at the slowest link.
    fn measure_train(&mut self, config: &CongestionConfig, now: Nanos, base: Nanos) {
        if self.train > now || now.saturating_sub(self.train) > base {
            (self.train, self.acks) = (now, 0);
            return;
        }
        self.acks += 1;
        if self.acks >= TRAIN && self.limited {
            let span = now.saturating_sub(self.train).get().max(1);
            let share = base.get().saturating_mul(u64::from(self.acks.saturating_mul(ONE))) / span;
            let share = u32::try_from(share).unwrap_or(u32::MAX);
            // A sender alone at its receiver keeps its window: a queue of its own packets only delays them.
            let least = if self.senders == 1 { self.size } else { self.size / 2 };
            self.size = Self::limit(config, share.max(least));
            self.starting = false;
        }
    }

    /// Records that `count` packets have arrived whose delays are not known.
    pub const fn note_arrived(&mut self, count: u32) {
        self.arrived = self.arrived.saturating_add(count);
    }

    /// Records that `count` packets were lost.
    pub const fn note_lost(&mut self, count: u32) {
        self.lost = self.lost.saturating_add(count);
    }

    /// Records that the receiver has no table entry for a segment. Further segments would be refused as well: unless the sender
    /// is known to be alone at its receiver, the window becomes a small one.
    pub fn note_refused(&mut self, config: &CongestionConfig) {
        self.note_lost(1);
        if self.starting || self.senders != 1 {
            self.starting = false;
            self.size = Self::limit(config, self.size.min(REFUSED));
        }
    }

    /// Records that a queue was full when a packet came, and has cut off its payload.
    pub fn note_trimmed(&mut self, config: &CongestionConfig, now: Nanos) {
        self.heard = now;
        self.starting = false;
        self.marked.rounds = MARKED_ROUNDS;
        // Before any arrival, a second cut packet makes the window one packet: nothing came through.
        let base = self.base().unwrap_or(Nanos::new(1));
        self.size = Self::limit(config, self.marked.note_cut(config, now, base, self.size));
    }

    fn end_marked_round(&mut self, now: Nanos) {
        self.marked.rounds -= 1;
        (self.samples, self.late) = (0, 0);
        (self.arrived, self.lost) = (0, 0);
        self.senders = self.named.max(self.senders - self.senders.div_ceil(16));
        self.delay = self.least;
        (self.least, self.longest) = (Nanos::MAX, Nanos::ZERO);
        self.limited = false;
        self.draining = false;
        self.mark = now;
        if self.size >= ONE {
            self.next = Nanos::ZERO;
        }
    }

    /// Lets one packet leave although the window is full: a probe.
    pub const fn grant(&mut self) {
        self.extra = 2;
    }

    /// Records an expired timer: a probe may leave. If nothing was answered meanwhile, the window is halved.
    pub fn note_timeout(&mut self, config: &CongestionConfig, now: Nanos) {
        self.grant();
        let trip = self.delay.saturating_mul(2);
        if self.heard != Nanos::ZERO && self.heard.max(self.mark).saturating_add(trip) < now {
            self.size = Self::limit(config, (self.size / 2).max(ONE.min(self.size)));
            self.mark = now;
        }
    }

    fn end_round(&mut self, config: &CongestionConfig, now: Nanos, base: Nanos) {
        let delay = self.least;
        let queue = delay.saturating_sub(base);
        let resolved = self.arrived.saturating_add(self.lost);
        let size = u64::from(self.size);
        let fair = u64::from(self.share(config));
        let was_draining = core::mem::replace(&mut self.draining, false);
        // Of a network that changes the order, even the minimum delay says little about queues.
        let reorders = self.late.saturating_mul(4) > self.samples;
        let varies = self.longest.saturating_sub(delay) > base;
        let is_noisy = self.late.saturating_mul(16) > self.samples || varies;
        self.noisy = if is_noisy { NOISY } else { self.noisy.saturating_sub(1) };
        self.lossy = self.lossy.saturating_sub(1);
        // Alone at its receiver, and no loss: what delays packets is not a queue that this sender has to share.
        let is_noisy = self.noisy != 0 && self.lossy == 0;
        let disorders = reorders || is_noisy && self.senders == 1;
        self.longest = Nanos::ZERO;
        let next = if self.lost >= MIN_LOST && self.lost.saturating_mul(8) > resolved {
            (self.starting, self.lossy) = (false, NOISY);
            let next = size * u64::from(self.arrived) / u64::from(resolved.max(1));
            (self.arrived, self.lost) = (0, 0);
            self.draining = !was_draining;
            // Losses without a queue are not caused by this sender alone.
            let floor = if queue.get() <= base.get() / 8 { fair.min(LOSSY_FLOOR.into()) } else { 0 };
            // Below one packet, a share of the few packets of a round would be chance.
            next.max((size / 2).min(ONE.into())).max(floor.min(size))
        } else if self.starting && !disorders && queue.get() <= base.get() / 8 {
            // The first round ends with the first acknowledgement.
            self.quiet = self.quiet.saturating_add(1);
            self.starting = self.quiet < 2;
            if self.senders > 1 && size < fair { size.midpoint(fair) } else { size }
        } else if disorders || queue.get() <= base.get() / 32 {
            self.starting = false;
            self.quiet = self.quiet.saturating_add(1);
            let grows = disorders || self.quiet > QUIET;
            // Alone on a path that changes the order, and no loss: the window that the path fills is found by doubling.
            let doubles = reorders && self.senders == 1 && self.lossy == 0;
            let more = if doubles {
                size
            } else if grows {
                size / 4 + u64::from(ONE)
            } else {
                ONE.into()
            };
            let next = size + more;
            match self.senders {
                // Alone at its receiver: delays do not hold it back.
                // If all packets of a round are late, there is a queue all the same: then not beyond the share.
                1 if disorders && queue.get() > base.get().saturating_mul(LATE) => next.min(size.max(fair)),
                1 if disorders => next.max(fair / 2),
                0 => next,
                1 if self.lossy != 0 => next,
                _ if size < fair => next.max(size.midpoint(fair)),
                _ => next,
            }
        } else {
            self.quiet = 0;
            let share = size * base.get() / delay.get().max(1);
            self.starting = false;
            let goal = share + size / 16 + u64::from(STANDING);
            let goal = if goal > size { goal } else { size.midpoint(goal) };
            // Delay alone does not stop a sender: without losses, the queue is not full.
            let floor = if is_noisy { fair / 2 } else { (fair / 2).min(DELAY_FLOOR.into()) };
            let goal = goal.max(floor.min(size));
            if self.senders > 1 { goal.min(fair) } else { goal }
        };
        (self.samples, self.late) = (0, 0);
        self.senders = self.named.max(self.senders - self.senders.div_ceil(16));
        let next = if next > size && !self.limited { size } else { next };
        self.size = Self::limit(config, u32::try_from(next).unwrap_or(u32::MAX));
        (self.arrived, self.lost) = (self.arrived / 2, self.lost / 2);
        self.delay = delay;
        self.least = Nanos::MAX;
        if self.limited && !self.starting && !was_draining {
            self.rounds += 1;
            if self.rounds >= self.interval {
                (self.rounds, self.draining) = (0, true);
                self.interval = self.interval.saturating_mul(2).min(LAST_DRAIN_ROUNDS);
            }
        }
        self.limited = false;
        self.mark = now;
        if self.size >= ONE {
            self.next = Nanos::ZERO;
        }
    }
}

#[cfg(test)]
mod tests;
