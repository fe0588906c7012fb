//! A sender's rate and priority towards each receiver: lowered when links are congested, given back when delays are short again.
//!
//! # How a rate comes back
//!
//! Document 002 walks the controlled list every so often, compares the wait with a quarter more than the mean of the last delays, and
//! gives an eighth of the line back. Where 32 send to one, three things of that keep the link from being used:
//!
//! * An eighth of the line is four times what each of them can have. So a rate is at most doubled at a time.
//! * The mean follows the congestion: by it, rates rise in the middle of one. A quarter above the *shortest* delay, on the other hand, is
//!   a queue that is all but empty: the link stands still before anybody gets his rate back. So there are two steps: a great one where
//!   the way is free, and a small one, the same for all, while the delay is in the lower half of those seen of late. The small one being
//!   the same for all, and halving not, is what makes rates alike.
//! * A walk every four round trips is a queue's time to run empty. It takes one round trip here, with steps as much smaller.

use super::{Limits, LinkLoad, LinkPacket, Word};
use crate::time::Nanos;
use alloc::boxed::Box;
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::wire::{Common, Flags};

/// The full rate; others are parts of it.
pub const FULL: u32 = 1024;
/// Walks after which a receiver that was sent nothing and has answered nothing gets all of its rate back: what was told of it is old, and its
/// place is another's.
const IDLE: u64 = 1024;
/// Links of one inquiry that are told apart.
const LINKS: usize = 8;

/// A flow control's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Config {
    /// Bits per second that a rate of [`FULL`] stands for.
    pub line: u64,
    /// Round trip without queues.
    pub round_trip: Nanos,
    /// The lowest rate, of [`FULL`]: not 0, so that delays can be seen to fall (4) [E2-7].
    pub floor: u32,
    /// What a rate rises by at most where the way is free, of [`FULL`] (an eighth); it is no more than doubled.
    pub step: u32,
    /// What it rises by where packets wait, but less than half as long as they did of late, of [`FULL`] (1/256).
    pub small_step: u32,
    /// Time between two walks of the controlled list (a round trip).
    pub walk: Nanos,
    /// With so many congested links on a way the sender slows down by itself; with fewer it asks the controller (2).
    pub links: u32,
    /// When a link is congested.
    pub limits: Limits,
    /// Receivers that are kept apart (64).
    pub receivers: u32,
    /// The node that has the controller, if there is one.
    pub controller: Option<NodeId>,
}

impl Config {
    /// The specification's values for links of `line` bits per second and a round trip of `round_trip`.
    #[must_use]
    pub const fn new(line: u64, round_trip: Nanos) -> Self {
        Self {
            line,
            round_trip,
            floor: 4,
            step: FULL / 8,
            small_step: FULL / 256,
            walk: round_trip,
            links: 2,
            limits: Limits { queue: 750, rate: 500 },
            receivers: 64,
            controller: None,
        }
    }
}

/// What is known of a receiver.
#[derive(Clone, Copy, Debug)]
struct Receiver {
    node: NodeId,
    /// Of [`FULL`], and what of it was told.
    rate: u32,
    reported: u32,
    /// When the next packet may leave.
    next: Nanos,
    /// The last packet's delay that was seen since the list was last walked; `None`: none was.
    wait: Option<Nanos>,
    /// The shortest delay ever seen: the way without queues. [`Nanos::MAX`] before there was any.
    least: Nanos,
    /// The longest of late; it fades by 1/512 with each sample.
    longest: Nanos,
    /// When the rate was last lowered, and when anything happened last.
    lowered: Nanos,
    active: Nanos,
    /// Running number of the last inquiry, when it was made, and the congested links that it has found.
    inquiry: u32,
    asked: Nanos,
    found: [Option<u32>; LINKS],
}

impl Receiver {
    const fn new(node: NodeId, now: Nanos) -> Self {
        Self {
            node,
            rate: FULL,
            reported: FULL,
            next: now,
            wait: None,
            least: Nanos::MAX,
            longest: Nanos::ZERO,
            lowered: Nanos::ZERO,
            active: now,
            inquiry: 0,
            asked: Nanos::ZERO,
            found: [None; LINKS],
        }
    }

    /// By how much its rate rises after the delay seen last, which counts once.
    fn rate_increase(&mut self, config: &Config) -> u32 {
        let Some(wait) = self.wait.take() else { return 0 };
        let free = self.least.saturating_add(Nanos::new(self.least.get() / 4));
        if wait <= free {
            config.step.min(self.rate)
        } else if wait.get() <= self.least.get().midpoint(self.longest.get()) {
            config.small_step
        } else {
            0
        }
    }
}

/// See [the module](self).
#[derive(Clone, Debug)]
pub struct FlowControl {
    config: Config,
    node: NodeId,
    incarnation: Incarnation,
    receivers: Box<[Option<Receiver>]>,
    /// When the controlled list is walked.
    walk: Nanos,
    /// Words to be sent; `None`: room. One to each receiver's way at most, and one to the controller.
    words: Box<[Option<LinkPacket>]>,
    lowered: u64,
    raised: u64,
    inquiries: u64,
}

impl FlowControl {
    /// For the node `node` in its life `incarnation`: everything at the full rate.
    #[must_use]
    pub fn new(config: Config, node: NodeId, incarnation: Incarnation) -> Self {
        let places = fpga_registers::cast::index(config.receivers.max(1));
        Self {
            config,
            node,
            incarnation,
            receivers: alloc::vec![None; places].into_boxed_slice(),
            walk: Nanos::MAX,
            words: alloc::vec![None; 2 * places].into_boxed_slice(),
            lowered: 0,
            raised: 0,
            inquiries: 0,
        }
    }

    fn of(&mut self, node: NodeId) -> Option<&mut Receiver> {
        self.receivers.iter_mut().flatten().find(|receiver| receiver.node == node)
    }

    /// The rate towards a receiver, of [`FULL`]. One that there was no room for is not controlled.
    #[must_use]
    pub fn rate(&self, node: NodeId) -> u32 {
        let known = self.receivers.iter().flatten().find(|receiver| receiver.node == node);
        known.map_or(FULL, |receiver| receiver.rate)
    }

    /// How often a rate was lowered, how often raised, and inquiries made.
    #[must_use]
    pub const fn changes(&self) -> (u64, u64, u64) {
        (self.lowered, self.raised, self.inquiries)
    }

    /// When a packet may leave for `node`; `None`: now, and before those to controlled receivers.
    #[must_use]
    pub fn release_time(&self, now: Nanos, node: NodeId) -> Option<Nanos> {
        let receiver = self.receivers.iter().flatten().find(|receiver| receiver.node == node)?;
        (receiver.rate < FULL && receiver.next > now).then_some(receiver.next)
    }

    /// A packet of `bytes` leaves for `node`.
    pub fn sent(&mut self, now: Nanos, node: NodeId, bytes: u64) {
        let line = self.config.line.max(1);
        let Some(receiver) = self.of(node) else { return };
        if receiver.rate >= FULL {
            return;
        }
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 * u128::from(FULL)
            / (u128::from(line) * u128::from(receiver.rate.max(1)));
        let span = Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX));
        receiver.next = receiver.next.max(now).saturating_add(span);
        receiver.active = now;
    }

    /// The same, with a place for one that is not known yet, if there is room: somebody of whom nothing has ever come back is the first
    /// who has to send less.
    fn find_or_insert(&mut self, now: Nanos, node: NodeId) -> Option<&mut Receiver> {
        if self.of(node).is_none() {
            // A receiver at the full rate is only a memory of its delays.
            let place = self.receivers.iter_mut().find(|place| place.is_none_or(|other| other.rate >= FULL));
            *place? = Some(Receiver::new(node, now));
        }
        self.of(node)
    }

    /// An answer of `node` took so long.
    pub fn sample(&mut self, now: Nanos, node: NodeId, delay: Nanos) {
        if let Some(receiver) = self.find_or_insert(now, node) {
            receiver.least = receiver.least.min(delay);
            let faded = receiver.longest.get() - receiver.longest.get() / 512;
            receiver.longest = Nanos::new(faded.max(delay.get()));
            receiver.wait = Some(delay);
            receiver.active = now;
        }
    }

    fn queue_feedback(&mut self, to: NodeId, word: Word) {
        let common =
            Common { source: self.node, destination: to, incarnation: self.incarnation, flags: Flags::NONE };
        // Without room it is as if the network had lost it.
        if let Some(place) = self.words.iter_mut().find(|place| place.is_none()) {
            *place = Some(LinkPacket { common, word });
        }
    }

    /// Many packets to `node` are late: asks the links on the way, once in a round trip.
    pub fn inquire(&mut self, now: Nanos, node: NodeId) {
        let span = self.config.round_trip;
        let Some(receiver) = self.find_or_insert(now, node) else { return };
        if receiver.inquiry != 0 && receiver.asked.saturating_add(span) > now {
            return;
        }
        receiver.inquiry = receiver.inquiry.wrapping_add(1).max(1);
        receiver.asked = now;
        receiver.found = [None; LINKS];
        let number = receiver.inquiry;
        self.inquiries += 1;
        self.queue_feedback(node, Word::Inquiry { number });
    }

    /// Halves the rate towards `node`, once in a round trip, and puts it on the controlled list.
    fn lower_rate(&mut self, now: Nanos, node: NodeId) {
        let Config { floor, round_trip, walk, .. } = self.config;
        let Some(receiver) = self.find_or_insert(now, node) else { return };
        let first = receiver.lowered == Nanos::ZERO;
        if !first && receiver.lowered.saturating_add(round_trip) > now {
            return;
        }
        receiver.lowered = now.max(Nanos::new(1));
        receiver.active = now;
        receiver.rate = (receiver.rate / 2).max(floor.max(1));
        // What waited longer than this was sent at the old rate.
        receiver.wait = None;
        receiver.next = receiver.next.max(now);
        self.lowered += 1;
        self.walk = self.walk.min(now.saturating_add(walk));
    }

    /// Takes a word that came for this node.
    pub fn handle(&mut self, now: Nanos, packet: &LinkPacket) {
        match packet.word {
            Word::Slow { receiver } => self.lower_rate(now, receiver),
            Word::Passive { number, receiver, state } => self.passive(now, number, receiver, state),
            // A receiver has nothing to say to an inquiry: the hops have.
            Word::Inquiry { .. } | Word::Active { .. } => {}
        }
    }

    fn passive(&mut self, now: Nanos, number: u32, node: NodeId, state: LinkLoad) {
        let Config { limits, links, controller, .. } = self.config;
        let Some(receiver) = self.of(node).filter(|receiver| receiver.inquiry == number) else { return };
        if !limits.are_exceeded_by(&state) {
            return;
        }
        if !receiver.found.contains(&Some(state.link))
            && let Some(place) = receiver.found.iter_mut().find(|place| place.is_none())
        {
            *place = Some(state.link);
        }
        let congested = receiver.found.iter().flatten().count();
        match controller {
            Some(controller) if congested < fpga_registers::cast::index(links) => {
                self.queue_feedback(controller, Word::Active { sender: self.node, receiver: node, state });
            }
            // Nobody could find another way.
            _ => self.lower_rate(now, node),
        }
    }

    /// Time has passed: walks the controlled list. Receivers whose delays are short again get a part of their rate back, by what [the
    /// module](self) says of it.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.walk > now {
            return;
        }
        // Never twice within the same nanosecond, whatever the configuration says.
        let walk = self.config.walk.max(Nanos::new(1));
        let mut controlled = false;
        for receiver in self.receivers.iter_mut().flatten().filter(|receiver| receiver.rate < FULL) {
            let idle = receiver.active.saturating_add(walk.saturating_mul(IDLE)) <= now;
            let rise = if idle { FULL } else { receiver.rate_increase(&self.config) };
            receiver.rate = receiver.rate.saturating_add(rise).min(FULL);
            self.raised += u64::from(rise > 0);
            controlled |= receiver.rate < FULL;
        }
        self.walk = if controlled { now.saturating_add(walk) } else { Nanos::MAX };
    }

    /// When [`Self::handle_timeout`] wants to be called.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Nanos> {
        self.walk.as_timer()
    }

    /// A receiver whose rate has changed since this was last asked, and what it is.
    pub fn poll_change(&mut self) -> Option<(NodeId, u32)> {
        let receiver =
            self.receivers.iter_mut().flatten().find(|receiver| receiver.rate != receiver.reported)?;
        receiver.reported = receiver.rate;
        Some((receiver.node, receiver.rate))
    }

    /// The next word to send.
    pub fn poll_feedback(&mut self) -> Option<LinkPacket> {
        self.words.iter_mut().find_map(Option::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: NodeId = NodeId::new(2);
    const ROUND_TRIP: Nanos = Nanos::new(1000);

    fn flow(controller: Option<NodeId>) -> FlowControl {
        let mut config = Config::new(8_000_000_000, ROUND_TRIP);
        config.controller = controller;
        let mut flow = FlowControl::new(config, NodeId::new(1), Incarnation::new(5));
        flow.sample(Nanos::ZERO, TO, ROUND_TRIP);
        flow
    }

    fn told(flow: &mut FlowControl, now: Nanos, word: Word) {
        let common = Common { source: TO, destination: NodeId::new(1), ..Common::default() };
        flow.handle(now, &LinkPacket { common, word });
    }

    fn bad(link: u32) -> LinkLoad {
        LinkLoad { link, rate: 1000, queue: 900 }
    }

    #[test]
    fn e2_7_flow_slow_packet_halves_rate_once_per_round_trip_to_floor() {
        let mut flow = flow(None);
        for at in [1_u64, 500, 1000] {
            told(&mut flow, Nanos::new(at), Word::Slow { receiver: TO });
        }
        assert_eq!(flow.rate(TO), FULL / 2);
        for round in 2..40 {
            told(&mut flow, Nanos::new(1 + round * 1000), Word::Slow { receiver: TO });
        }
        assert_eq!((flow.rate(TO), flow.rate(NodeId::new(9))), (4, FULL));
        assert_eq!(flow.changes(), (39, 0, 0));
    }

    #[test]
    fn flow_packets_leave_at_configured_rate() {
        let mut flow = flow(None);
        assert_eq!(flow.release_time(Nanos::ZERO, TO), None);
        flow.sent(Nanos::ZERO, TO, 1000);
        assert_eq!(flow.release_time(Nanos::ZERO, TO), None, "the full rate is the line's own");
        told(&mut flow, Nanos::new(1), Word::Slow { receiver: TO });
        // A byte takes a nanosecond, at half the rate two.
        flow.sent(Nanos::new(10), TO, 100);
        assert_eq!(flow.release_time(Nanos::new(10), TO), Some(Nanos::new(210)));
        assert_eq!(flow.release_time(Nanos::new(210), TO), None);
    }

    /// Rates after each walk, with the delays seen last before them.
    fn walks(flow: &mut FlowControl, delays: &[Option<u64>]) -> alloc::vec::Vec<u32> {
        let walk = |delay: &Option<u64>| {
            let now = flow.poll_timeout()?;
            if let Some(delay) = delay {
                flow.sample(now, TO, Nanos::new(*delay));
            }
            flow.handle_timeout(now);
            Some(flow.rate(TO))
        };
        delays.iter().map_while(walk).collect()
    }

    #[test]
    fn flow_uncongested_path_doubles_rate_then_adds_eighths() {
        let mut flow = flow(None);
        for at in 0..8 {
            told(&mut flow, Nanos::new(1 + at * 1000), Word::Slow { receiver: TO });
        }
        assert_eq!(flow.rate(TO), 4);
        // None was seen, then a quarter above the shortest, again and again.
        let mut delays = alloc::vec![None];
        delays.extend([Some(1250); 14]);
        let rates = walks(&mut flow, &delays);
        assert_eq!(rates, [4, 8, 16, 32, 64, 128, 256, 384, 512, 640, 768, 896, 1024]);
        assert_eq!(flow.changes(), (8, 12, 0));
        assert_eq!(flow.poll_timeout(), None);
    }

    #[test]
    fn flow_delay_below_median_raises_rate_above_median_keeps_it() {
        let mut flow = flow(None);
        told(&mut flow, Nanos::new(1), Word::Slow { receiver: TO });
        flow.sample(Nanos::new(2), TO, Nanos::new(9000));
        // A delay counts once, and the longest fades: by 9000 / 512 with each of them, so that the middle moves down from 4992 to 4974.
        let rates = walks(&mut flow, &[Some(9000), None, Some(4991), Some(4991), Some(1251), Some(1250)]);
        assert_eq!(rates, [512, 512, 516, 516, 520, 648]);
    }

    /// Its packets were all lost: no delay of it is known, and it sends at the full rate.
    #[test]
    fn flow_unanswered_receiver_is_slowed_and_inquired() {
        let mut flow =
            FlowControl::new(Config::new(8_000_000_000, ROUND_TRIP), NodeId::new(1), Incarnation::new(5));
        told(&mut flow, Nanos::new(1), Word::Slow { receiver: TO });
        assert_eq!(flow.rate(TO), FULL / 2);
        assert_eq!(walks(&mut flow, &[None, None]), [512, 512]);
        flow.inquire(Nanos::new(5000), NodeId::new(7));
        assert_eq!(flow.poll_feedback().map(|packet| packet.common.destination), Some(NodeId::new(7)));
    }

    #[test]
    fn flow_one_congested_link_goes_to_controller_two_slow_sender() {
        let controller = NodeId::new(33);
        let mut flow = flow(Some(controller));
        let passive = |number, state| Word::Passive { number, receiver: TO, state };
        flow.inquire(Nanos::new(10), TO);
        flow.inquire(Nanos::new(500), TO);
        let inquiry = flow.poll_feedback().unwrap();
        assert_eq!((inquiry.word, inquiry.common.destination), (Word::Inquiry { number: 1 }, TO));
        assert_eq!(flow.poll_feedback(), None, "one in a round trip");
        assert_eq!(flow.changes(), (0, 0, 1));
        told(&mut flow, Nanos::new(20), passive(1, LinkLoad { link: 5, rate: 1000, queue: 10 }));
        assert_eq!(flow.poll_feedback(), None, "a good link");
        told(&mut flow, Nanos::new(30), passive(1, bad(6)));
        told(&mut flow, Nanos::new(31), passive(1, bad(6)));
        let report = flow.poll_feedback().unwrap();
        assert_eq!(report.common.destination, controller);
        assert_eq!(report.word, Word::Active { sender: NodeId::new(1), receiver: TO, state: bad(6) });
        assert_eq!(flow.rate(TO), FULL);
        // Of an older inquiry, or an unknown one.
        told(&mut flow, Nanos::new(40), passive(0, bad(7)));
        assert_eq!(flow.rate(TO), FULL);
        told(&mut flow, Nanos::new(50), passive(1, bad(7)));
        assert_eq!(flow.rate(TO), FULL / 2);
        // Without a controller nobody could find another way.
        let mut alone = self::flow(None);
        alone.inquire(Nanos::new(10), TO);
        told(&mut alone, Nanos::new(20), passive(1, bad(6)));
        assert_eq!(alone.rate(TO), FULL / 2);
    }

    /// Tables are bounded: whoever has no place is not controlled, and costs nobody his.
    #[test]
    fn flow_receiver_table_full_leaves_others_controlled() {
        let mut flow = flow(None);
        told(&mut flow, Nanos::new(1), Word::Slow { receiver: TO });
        for node in 10..1000 {
            flow.sample(Nanos::ZERO, NodeId::new(node), ROUND_TRIP);
            flow.inquire(Nanos::new(5), NodeId::new(node));
        }
        assert_eq!(flow.rate(TO), FULL / 2);
        let words = core::iter::from_fn(|| flow.poll_feedback()).count();
        assert!(words <= 128, "{words}");
        for node in 5000..5100 {
            told(&mut flow, Nanos::new(1), Word::Slow { receiver: NodeId::new(node) });
        }
        let lowered = (5000..5100).filter(|node| flow.rate(NodeId::new(*node)) < FULL).count();
        assert_eq!((lowered, flow.rate(TO)), (63, FULL / 2), "64 places");
        // Nobody sends to any of them: so their places are not taken for ever.
        while let Some(at) = flow.poll_timeout() {
            assert!(at <= Nanos::new(1100 * ROUND_TRIP.get()), "{at}");
            flow.handle_timeout(at);
        }
        told(&mut flow, Nanos::new(2_000_000), Word::Slow { receiver: NodeId::new(9000) });
        assert_eq!((flow.rate(NodeId::new(9000)), flow.rate(TO)), (FULL / 2, FULL));
    }
}
