//! Flow control of a sender: rate and priority towards each receiver. Rates are lowered when links are congested, and
//! raised when delays are short again.
//!
//! This file is longer than most: acknowledgements, reports of links and checks at intervals change the same rates.
//!
//! A sender with several path identifiers towards the receiver avoids the path of a congested link first, and lowers its rate only if the
//! link is the last hop or the other paths are congested, too ([`PathSet::avoid`]).
//!
//! # Increase of a rate
//!
//! Source 002 (docs/protocol.md 12) checks the controlled list at a fixed interval, compares the wait with 1.25 x the mean of the last
//! delays, and raises the rate by an eighth of the line. With 32 senders to one receiver, three properties of that rule
//! leave the link underused:
//!
//! * An eighth of the line is four times the share of each sender. Therefore a rate is at most doubled in one step.
//! * The mean follows the congestion: with it, rates rise in the middle of a congestion. 1.25 x the *minimum* delay, on
//!   the other hand, means an almost empty queue: the link becomes idle before any rate rises. Therefore there are two
//!   steps: a large one where the path is free, and a small one, equal for all senders, while the delay is in the lower
//!   half of the recent range. Since the small step is equal for all and halving is not, rates converge.
//! * An interval of four round trips is the time in which a queue becomes empty. The interval here is one round trip,
//!   with proportionally smaller steps.

use super::{Limits, LinkLoad, LinkPacket, Word};
use crate::spray::PathSet;
use crate::time::Nanos;
use alloc::boxed::Box;
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::wire::{Common, Flags};

/// Full rate; other rates are fractions of it.
pub const FULL: u32 = 1024;
/// Number of checks after which a receiver without packets and answers gets its full rate again: its state is outdated,
/// and its slot is needed for another receiver.
const IDLE: u64 = 1024;
/// Maximum number of links per inquiry that are distinguished.
const LINKS: usize = 8;

/// Parameters of the flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FlowConfig {
    /// Line rate in bits per second, which corresponds to [`FULL`].
    pub line: u64,
    /// Round trip time without queues.
    pub round_trip: Nanos,
    /// Minimum rate, of [`FULL`]: not 0, so that falling delays can be measured (4) [E2-7].
    pub floor: u32,
    /// Maximum increase where the path is free, of [`FULL`] (an eighth); a rate is at most doubled.
    pub step: u32,
    /// Increase where packets wait, but less than half as long as the recent maximum, of [`FULL`] (1/256).
    pub small_step: u32,
    /// Interval between two checks of the controlled list (a round trip).
    pub walk: Nanos,
    /// Number of congested links on a path above which the sender slows down by itself; up to it, it reports them to
    /// the controller (2).
    pub links: u32,
    /// Limits from which a link is congested.
    pub limits: Limits,
    /// Maximum number of receivers with state of their own (64).
    pub receivers: u32,
    /// Node with the controller, if there is one.
    pub controller: Option<NodeId>,
}

impl FlowConfig {
    /// Returns the specification's values for links of `line` bits per second and a round trip of `round_trip`.
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

/// State of a receiver.
#[derive(Clone, Copy, Debug)]
struct Receiver {
    node: NodeId,
    /// Rate of [`FULL`]; `reported`: the rate last reported.
    rate: u32,
    reported: u32,
    /// Time at which the next packet may be sent.
    next: Nanos,
    /// Last delay measured since the last check of the list; `None` without one.
    wait: Option<Nanos>,
    /// Minimum delay: the path without queues. [`Nanos::MAX`] before the first sample.
    least: Nanos,
    /// Recent maximum; it decays by 1/512 with each sample.
    longest: Nanos,
    /// Time of the last decrease of the rate; `active`: time of the last activity.
    lowered: Nanos,
    active: Nanos,
    /// Number of the last inquiry, its time, and the congested links that it has found.
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

    /// Returns the increase of the rate after the last delay, which counts once.
    fn rate_increase(&mut self, config: &FlowConfig) -> u32 {
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

/// State of a receiver, as listings show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RateView {
    /// Receiver.
    pub node: NodeId,
    /// Rate towards it, of [`FULL`].
    pub rate: u32,
    /// Minimum delay of its answers; `None` before the first one.
    pub min_delay: Option<Nanos>,
    /// Recent maximum delay.
    pub max_delay: Nanos,
    /// Number of the last inquiry; 0 before the first one.
    pub inquiry: u32,
    /// Different congested links that answered it.
    pub congested: u32,
}

impl RateView {
    /// Creates a view from its parts.
    #[must_use]
    pub const fn new(node: NodeId, rate: u32) -> Self {
        Self { node, rate, min_delay: None, max_delay: Nanos::ZERO, inquiry: 0, congested: 0 }
    }

    /// Whether the receiver is on the controlled list.
    #[must_use]
    pub const fn is_controlled(&self) -> bool {
        self.rate < FULL
    }
}

/// Path identifiers of a sender towards one receiver.
#[derive(Debug)]
pub struct Paths<'a> {
    /// Identifiers.
    pub set: &'a mut PathSet,
    /// Mean round trip, if it is known.
    pub trip: Option<Nanos>,
}

/// Flow control; see [the module](self).
#[derive(Clone, Debug)]
pub struct FlowControl {
    config: FlowConfig,
    node: NodeId,
    incarnation: Incarnation,
    receivers: Box<[Option<Receiver>]>,
    /// Time of the next check of the controlled list.
    walk: Nanos,
    /// Packets to be sent; `None`: free slot. At most one for each receiver's path and one for the controller.
    words: Box<[Option<LinkPacket>]>,
    lowered: u64,
    raised: u64,
    inquiries: u64,
    avoided: u64,
}

impl FlowControl {
    /// Creates the flow control of `node` with `incarnation`. All rates are full.
    #[must_use]
    pub fn new(config: FlowConfig, node: NodeId, incarnation: Incarnation) -> Self {
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
            avoided: 0,
        }
    }

    /// Sets this node's number and incarnation.
    pub const fn set_identity(&mut self, node: NodeId, incarnation: Incarnation) {
        (self.node, self.incarnation) = (node, incarnation);
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &FlowConfig {
        &self.config
    }

    /// Returns the state of the receiver in `slot`, below [`FlowConfig::receivers`]; `None` if the slot is free.
    #[must_use]
    pub fn receiver(&self, slot: u32) -> Option<RateView> {
        let place = self.receivers.get(fpga_registers::cast::index(slot))?;
        place.as_ref().map(|receiver| RateView {
            node: receiver.node,
            rate: receiver.rate,
            min_delay: (receiver.least != Nanos::MAX).then_some(receiver.least),
            max_delay: receiver.longest,
            inquiry: receiver.inquiry,
            congested: u32::try_from(receiver.found.iter().flatten().count()).unwrap_or(u32::MAX),
        })
    }

    /// Returns the states of all receivers that have a slot.
    pub fn receivers(&self) -> impl Iterator<Item = RateView> + '_ {
        (0..self.config.receivers.max(1)).filter_map(|slot| self.receiver(slot))
    }

    /// Whether the controlled list has an entry.
    #[must_use]
    pub const fn is_controlling(&self) -> bool {
        self.walk.get() != Nanos::MAX.get()
    }

    /// Returns the time after `now` at which the next packet to a controlled receiver may be sent, the earliest of all
    /// of them.
    #[must_use]
    pub fn next_release(&self, now: Nanos) -> Option<Nanos> {
        let controlled = self.receivers.iter().flatten().filter(|receiver| receiver.rate < FULL);
        controlled.map(|receiver| receiver.next).filter(|next| *next > now).min()
    }

    fn of(&mut self, node: NodeId) -> Option<&mut Receiver> {
        self.receivers.iter_mut().flatten().find(|receiver| receiver.node == node)
    }

    /// Returns the rate towards a receiver, of [`FULL`]. A receiver without a slot is not controlled.
    #[must_use]
    pub fn rate(&self, node: NodeId) -> u32 {
        let known = self.receivers.iter().flatten().find(|receiver| receiver.node == node);
        known.map_or(FULL, |receiver| receiver.rate)
    }

    /// Returns the number of rate decreases, rate increases and inquiries.
    #[must_use]
    pub const fn changes(&self) -> (u64, u64, u64) {
        (self.lowered, self.raised, self.inquiries)
    }

    /// Returns the number of reports after which the sender avoided a path instead of lowering its rate.
    #[must_use]
    pub const fn avoided(&self) -> u64 {
        self.avoided
    }

    /// Returns the time at which a packet for `node` may be sent; `None`: now, and before those to controlled
    /// receivers.
    #[must_use]
    pub fn release_time(&self, now: Nanos, node: NodeId) -> Option<Nanos> {
        let receiver = self.receivers.iter().flatten().find(|receiver| receiver.node == node)?;
        (receiver.rate < FULL && receiver.next > now).then_some(receiver.next)
    }

    /// Records that a packet of `bytes` is sent to `node`.
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

    /// Returns the record of a receiver, inserting one if there is a free slot. A receiver that has never answered is
    /// the first to which less has to be sent.
    fn find_or_insert(&mut self, now: Nanos, node: NodeId) -> Option<&mut Receiver> {
        if self.of(node).is_none() {
            // The record of a receiver at the full rate holds only its delays and can be overwritten.
            let place = self.receivers.iter_mut().find(|place| place.is_none_or(|other| other.rate >= FULL));
            *place? = Some(Receiver::new(node, now));
        }
        self.of(node)
    }

    /// Adds a delay sample: an answer of `node` took `delay`.
    pub fn sample(&mut self, now: Nanos, node: NodeId, delay: Nanos) {
        if let Some(receiver) = self.find_or_insert(now, node) {
            receiver.least = receiver.least.min(delay);
            let faded = receiver.longest.get() - receiver.longest.get() / 512;
            receiver.longest = Nanos::new(faded.max(delay.get()));
            receiver.wait = Some(delay);
            receiver.active = now;
        }
    }

    fn queue_feedback(&mut self, to: NodeId, path: u8, word: Word) {
        let common = Common {
            source: self.node,
            destination: to,
            incarnation: self.incarnation,
            flags: Flags::NONE,
            path,
        };
        // Without a free slot the packet is dropped, as if lost in the network.
        if let Some(place) = self.words.iter_mut().find(|place| place.is_none()) {
            *place = Some(LinkPacket { common, word });
        }
    }

    /// Sends an inquiry to the links of the path with identifier `path` after many late packets to `node`, once per round trip.
    pub fn inquire(&mut self, now: Nanos, node: NodeId, path: u8) {
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
        self.queue_feedback(node, path, Word::Inquiry { number });
    }

    /// Halves the rate towards `node`, once per round trip, and adds it to the controlled list.
    fn lower_rate(&mut self, now: Nanos, node: NodeId) {
        let FlowConfig { floor, round_trip, walk, .. } = self.config;
        let Some(receiver) = self.find_or_insert(now, node) else { return };
        let first = receiver.lowered == Nanos::ZERO;
        if !first && receiver.lowered.saturating_add(round_trip) > now {
            return;
        }
        receiver.lowered = now.max(Nanos::new(1));
        receiver.active = now;
        receiver.rate = (receiver.rate / 2).max(floor.max(1));
        // Packets that waited longer were sent at the old rate.
        receiver.wait = None;
        receiver.next = receiver.next.max(now);
        self.lowered += 1;
        self.walk = self.walk.min(now.saturating_add(walk));
    }

    /// Processes a feedback packet for this node. A sender with several path identifiers towards the receiver (`paths`) avoids the packet's
    /// path and keeps its rate, unless the link is the last hop or the other paths are congested, too.
    pub fn handle(&mut self, now: Nanos, packet: &LinkPacket, paths: Option<Paths<'_>>) {
        match packet.word {
            Word::Slow { receiver } => {
                if !self.avoid(now, &packet.common, paths) {
                    self.lower_rate(now, receiver);
                }
            }
            Word::Passive { number, receiver, state } => {
                self.passive(now, &packet.common, (number, receiver, state), paths);
            }
            // Only hops answer an inquiry.
            Word::Inquiry { .. } | Word::Active { .. } => {}
        }
    }

    /// Avoids the path that a packet reports. Returns whether there is another one.
    fn avoid(&mut self, now: Nanos, common: &Common, paths: Option<Paths<'_>>) -> bool {
        let Some(Paths { set, trip }) = paths else { return false };
        let avoided = !common.flags.contains(Flags::LAST_HOP) && set.avoid(now, common.path, trip);
        self.avoided += u64::from(avoided);
        avoided
    }

    fn passive(
        &mut self,
        now: Nanos,
        common: &Common,
        (number, node, state): (u32, NodeId, LinkLoad),
        paths: Option<Paths<'_>>,
    ) {
        let FlowConfig { limits, links, controller, .. } = self.config;
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
        let chooses = paths.as_ref().is_some_and(|paths| paths.set.count() > 1);
        if self.avoid(now, common, paths) {
            return;
        }
        match controller {
            // A sender that can choose its path has found no other one.
            Some(controller) if !chooses && congested <= fpga_registers::cast::index(links) => {
                let word = Word::Active { sender: self.node, receiver: node, state };
                self.queue_feedback(controller, common.path, word);
            }
            // No controller can find another path.
            _ => self.lower_rate(now, node),
        }
    }

    /// Processes expired timers: checks the controlled list. Receivers with short delays get a part of their rate back,
    /// by the rule of [the module](self).
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.walk > now {
            return;
        }
        // At most once per nanosecond, for every configuration.
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

    /// Returns the time of the next call of [`Self::handle_timeout`].
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Nanos> {
        self.walk.as_timer()
    }

    /// Returns a receiver whose rate has changed since the last call, and the rate.
    pub fn poll_change(&mut self) -> Option<(NodeId, u32)> {
        let receiver =
            self.receivers.iter_mut().flatten().find(|receiver| receiver.rate != receiver.reported)?;
        receiver.reported = receiver.rate;
        Some((receiver.node, receiver.rate))
    }

    /// Returns the next feedback packet to send.
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
        let mut config = FlowConfig::new(8_000_000_000, ROUND_TRIP);
        config.controller = controller;
        let mut flow = FlowControl::new(config, NodeId::new(1), Incarnation::new(5));
        flow.sample(Nanos::ZERO, TO, ROUND_TRIP);
        flow
    }

    fn told(flow: &mut FlowControl, now: Nanos, word: Word) {
        let common = Common { source: TO, destination: NodeId::new(1), ..Common::default() };
        flow.handle(now, &LinkPacket { common, word }, None);
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
        assert_eq!(flow.release_time(Nanos::ZERO, TO), None, "the full rate is the line rate");
        told(&mut flow, Nanos::new(1), Word::Slow { receiver: TO });
        // A byte takes one nanosecond, at half the rate two.
        flow.sent(Nanos::new(10), TO, 100);
        assert_eq!(flow.release_time(Nanos::new(10), TO), Some(Nanos::new(210)));
        assert_eq!(flow.release_time(Nanos::new(210), TO), None);
    }

    /// Returns the rates after each check, with the delays measured before it.
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
        // First no sample, then repeatedly 1.25 x the minimum.
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
        // A delay counts once, and the maximum decays by 9000 / 512 with each sample, so that the middle falls from
        // 4992 to 4974.
        let rates = walks(&mut flow, &[Some(9000), None, Some(4991), Some(4991), Some(1251), Some(1250)]);
        assert_eq!(rates, [512, 512, 516, 516, 520, 648]);
    }

    /// All its packets were lost: it has no delay sample and the full rate.
    #[test]
    fn flow_unanswered_receiver_is_slowed_and_inquired() {
        let mut flow =
            FlowControl::new(FlowConfig::new(8_000_000_000, ROUND_TRIP), NodeId::new(1), Incarnation::new(5));
        told(&mut flow, Nanos::new(1), Word::Slow { receiver: TO });
        assert_eq!(flow.rate(TO), FULL / 2);
        assert_eq!(walks(&mut flow, &[None, None]), [512, 512]);
        flow.inquire(Nanos::new(5000), NodeId::new(7), 0);
        assert_eq!(flow.poll_feedback().map(|packet| packet.common.destination), Some(NodeId::new(7)));
    }

    #[test]
    fn flow_two_congested_links_go_to_controller_three_slow_sender() {
        let controller = NodeId::new(33);
        let mut flow = flow(Some(controller));
        let passive = |number, state| Word::Passive { number, receiver: TO, state };
        flow.inquire(Nanos::new(10), TO, 0);
        flow.inquire(Nanos::new(500), TO, 0);
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
        // Answers to an older or an unknown inquiry.
        told(&mut flow, Nanos::new(40), passive(0, bad(7)));
        assert_eq!(flow.rate(TO), FULL);
        assert_eq!(flow.poll_feedback(), Some(report), "the second answer about it");
        // The threshold itself is not exceeded.
        told(&mut flow, Nanos::new(50), passive(1, bad(7)));
        let report = flow.poll_feedback().map(|packet| packet.word);
        assert_eq!(report, Some(Word::Active { sender: NodeId::new(1), receiver: TO, state: bad(7) }));
        assert_eq!(flow.rate(TO), FULL);
        told(&mut flow, Nanos::new(60), passive(1, bad(8)));
        assert_eq!((flow.poll_feedback(), flow.rate(TO)), (None, FULL / 2));
        // Without a controller no other path can be found.
        let mut alone = self::flow(None);
        alone.inquire(Nanos::new(10), TO, 0);
        told(&mut alone, Nanos::new(20), passive(1, bad(6)));
        assert_eq!(alone.rate(TO), FULL / 2);
    }

    /// Reports of a network with four routes, of which one is congested, and of a link that all routes use.
    #[test]
    fn flow_several_paths_congested_one_is_avoided_before_rate_is_lowered() {
        let mut set = PathSet::new(8, 0);
        let mut flow = flow(Some(NodeId::new(33)));
        let mut tell = |flow: &mut FlowControl, now, path, flags, word| {
            let common = Common { source: TO, destination: NodeId::new(1), path, flags, ..Common::default() };
            let paths = Some(Paths { set: &mut set, trip: Some(ROUND_TRIP) });
            flow.handle(Nanos::new(now), &LinkPacket { common, word }, paths);
            (flow.rate(TO), set.evicted())
        };
        let slow = Word::Slow { receiver: TO };
        assert_eq!(tell(&mut flow, 1, 2, Flags::NONE, slow), (FULL, 1));
        assert_eq!(tell(&mut flow, 2, 2, Flags::NONE, slow), (FULL, 1), "sent before");
        // The inquiry has the path of the late packet. Its answers need no controller.
        flow.inquire(Nanos::new(3), TO, 5);
        assert_eq!(flow.poll_feedback().map(|packet| packet.common.path), Some(5));
        let passive = |state| Word::Passive { number: 1, receiver: TO, state };
        let good = LinkLoad { link: 6, rate: 1000, queue: 10 };
        assert_eq!(tell(&mut flow, 4, 5, Flags::NONE, passive(good)), (FULL, 1));
        assert_eq!(tell(&mut flow, 5, 5, Flags::NONE, passive(bad(6))), (FULL, 2));
        assert_eq!((flow.poll_feedback(), flow.avoided()), (None, 3));
        // No path avoids the link of the receiver.
        assert_eq!(tell(&mut flow, 6, 5, Flags::LAST_HOP, passive(bad(7))), (FULL / 2, 2));
        assert_eq!(tell(&mut flow, 2000, 6, Flags::LAST_HOP, slow), (FULL / 4, 2));
        // Reports about more than half of the paths.
        for (path, evicted) in [(0, 3), (1, 4)] {
            assert_eq!(tell(&mut flow, 4000, path, Flags::NONE, slow), (FULL / 4, evicted));
        }
        assert_eq!(tell(&mut flow, 4000, 3, Flags::NONE, slow), (FULL / 8, 4));
        assert_eq!(tell(&mut flow, 6000, 3, Flags::NONE, slow), (FULL / 16, 4));
        assert_eq!((flow.poll_feedback(), flow.changes().0, flow.avoided()), (None, 4, 5));
    }

    /// With one identifier, the report to the controller has the path of the answer.
    #[test]
    fn flow_one_path_reports_it_to_controller() {
        let mut set = PathSet::new(1, 0);
        let mut flow = flow(Some(NodeId::new(33)));
        flow.inquire(Nanos::new(3), TO, 9);
        let inquiry = flow.poll_feedback().unwrap();
        let word = Word::Passive { number: 1, receiver: TO, state: bad(6) };
        let common = Common { path: inquiry.common.path, ..Common::default() };
        flow.handle(Nanos::new(5), &LinkPacket { common, word }, Some(Paths { set: &mut set, trip: None }));
        let report = flow.poll_feedback().unwrap();
        assert_eq!((report.common.destination, report.common.path), (NodeId::new(33), 9));
        assert_eq!((flow.rate(TO), flow.avoided()), (FULL, 0));
    }

    /// Tables are bounded: a receiver without a slot is not controlled, and takes no slot of another receiver.
    #[test]
    fn flow_receiver_table_full_leaves_others_controlled() {
        let mut flow = flow(None);
        told(&mut flow, Nanos::new(1), Word::Slow { receiver: TO });
        for node in 10..1000 {
            flow.sample(Nanos::ZERO, NodeId::new(node), ROUND_TRIP);
            flow.inquire(Nanos::new(5), NodeId::new(node), 0);
        }
        assert_eq!(flow.rate(TO), FULL / 2);
        let words = core::iter::from_fn(|| flow.poll_feedback()).count();
        assert!(words <= 128, "{words}");
        for node in 5000..5100 {
            told(&mut flow, Nanos::new(1), Word::Slow { receiver: NodeId::new(node) });
        }
        let lowered = (5000..5100).filter(|node| flow.rate(NodeId::new(*node)) < FULL).count();
        assert_eq!((lowered, flow.rate(TO)), (63, FULL / 2), "64 places");
        // No packets are sent to any of them, so their slots become free.
        while let Some(at) = flow.poll_timeout() {
            assert!(at <= Nanos::new(1100 * ROUND_TRIP.get()), "{at}");
            flow.handle_timeout(at);
        }
        told(&mut flow, Nanos::new(2_000_000), Word::Slow { receiver: NodeId::new(9000) });
        assert_eq!((flow.rate(NodeId::new(9000)), flow.rate(TO)), (FULL / 2, FULL));
    }
}
