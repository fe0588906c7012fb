//! Controller: receives reports of congested links, and reroutes packets or slows senders down.

use super::{LinkLoad, LinkPacket, Word};
use crate::time::Nanos;
use alloc::boxed::Box;
use fpga_firmware::ids::NodeId;
use fpga_firmware::wire::{Common, Flags};

/// Routing operations of a controller [E2-9].
pub trait Routing {
    /// Routes packets from `sender` to `receiver` around `link` from now on. Returns whether there is another path.
    fn avoid(&mut self, link: u32, sender: NodeId, receiver: NodeId) -> bool;
}

/// Routing with a single path for every pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StaticRouting;

impl Routing for StaticRouting {
    fn avoid(&mut self, _link: u32, _sender: NodeId, _receiver: NodeId) -> bool {
        false
    }
}

/// Parameters of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ControllerConfig {
    /// Number of congested links above which other paths are assumed to be as bad: senders slow down instead (2).
    pub links: u32,
    /// Time without a report after which a link counts as congested no more (4 round trips).
    pub memory: Nanos,
}

/// Maximum number of congested links that are recorded.
const LINKS: usize = 256;

/// Controller; see [the module](self).
#[derive(Clone, Debug)]
pub struct Controller {
    config: ControllerConfig,
    /// Congested links and the time of the last report of each. Beyond the maximum, the oldest entries are overwritten.
    links: Box<[Option<(u32, Nanos)>]>,
    /// Reroutings; `slowed`: requests to senders to slow down.
    rerouted: u64,
    slowed: u64,
}

impl Controller {
    /// Creates a controller without reports.
    #[must_use]
    pub fn new(config: ControllerConfig) -> Self {
        Self { config, links: alloc::vec![None; LINKS].into_boxed_slice(), rerouted: 0, slowed: 0 }
    }

    /// Returns the number of reroutings, and of requests to senders to slow down.
    #[must_use]
    pub const fn actions(&self) -> (u64, u64) {
        (self.rerouted, self.slowed)
    }

    /// Processes a report. Returns the request to its sender if that has to avoid the path or to slow down; the caller adds source and
    /// incarnation. Path and last hop are those of the report: a sender that can choose its path avoids it by itself.
    ///
    /// The rule of source 002 (docs/protocol.md 12) uses only the number of congested links. Where there is no other path, as in front of a
    /// receiver with many senders, rerouting cannot relieve a link: in that case its senders slow down, too.
    pub fn report(
        &mut self,
        now: Nanos,
        report: &LinkPacket,
        routing: &mut impl Routing,
    ) -> Option<LinkPacket> {
        let Word::Active { sender, receiver, state } = report.word else { return None };
        let congested = self.note(now, state);
        if congested <= self.config.links && routing.avoid(state.link, sender, receiver) {
            self.rerouted += 1;
            return None;
        }
        self.slowed += 1;
        let Common { path, flags, .. } = report.common;
        let flags = if flags.contains(Flags::LAST_HOP) { Flags::LAST_HOP } else { Flags::NONE };
        let common = Common { destination: sender, path, flags, ..Common::default() };
        Some(LinkPacket { common, word: Word::Slow { receiver } })
    }

    /// Records a congested link. Returns the current number of congested links.
    fn note(&mut self, now: Nanos, state: LinkLoad) -> u32 {
        let memory = self.config.memory;
        let mut count = 0;
        let (mut own, mut free, mut oldest) = (None, None, (Nanos::MAX, 0));
        for (at, place) in self.links.iter_mut().enumerate() {
            match *place {
                Some((link, _)) if link == state.link => own = Some(at),
                Some((_, heard)) if heard.saturating_add(memory) < now => {
                    *place = None;
                    free = Some(at);
                }
                Some((_, heard)) => {
                    count += 1;
                    oldest = oldest.min((heard, at));
                }
                None => free = Some(at),
            }
        }
        if let Some(place) = self.links.get_mut(own.or(free).unwrap_or(oldest.1)) {
            *place = Some((state.link, now));
        }
        count + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path around every link but one.
    struct Ways(u32);

    impl Routing for Ways {
        fn avoid(&mut self, link: u32, _sender: NodeId, _receiver: NodeId) -> bool {
            link != self.0
        }
    }

    fn active(link: u32) -> LinkPacket {
        let state = LinkLoad { link, rate: 1000, queue: 900 };
        let flags = Flags::LAST_HOP.with(Flags::MARKED);
        let common = Common { source: NodeId::new(2), flags, path: 77, ..Common::default() };
        LinkPacket { common, word: Word::Active { sender: NodeId::new(1), receiver: NodeId::new(2), state } }
    }

    #[test]
    fn e2_9_controller_links_up_to_threshold_rerouted_more_slow_senders() {
        let config = ControllerConfig { links: 2, memory: Nanos::new(100) };
        let mut controller = Controller::new(config);
        let word = Word::Slow { receiver: NodeId::new(2) };
        let common =
            Common { destination: NodeId::new(1), flags: Flags::LAST_HOP, path: 77, ..Common::default() };
        let slow = Some(LinkPacket { common, word });
        assert_eq!(controller.report(Nanos::new(0), &active(7), &mut Ways(9)), None);
        // A repeated report of a link counts once.
        assert_eq!(controller.report(Nanos::new(50), &active(7), &mut Ways(9)), None);
        // The threshold itself is not exceeded.
        assert_eq!(controller.report(Nanos::new(60), &active(8), &mut Ways(9)), None);
        assert_eq!(controller.report(Nanos::new(70), &active(6), &mut Ways(9)), slow);
        // The earlier reports have expired.
        assert_eq!(controller.report(Nanos::new(200), &active(8), &mut Ways(9)), None);
        assert_eq!(controller.report(Nanos::new(400), &active(9), &mut Ways(9)), slow, "no way round it");
        assert_eq!(controller.report(Nanos::new(800), &active(7), &mut StaticRouting), slow);
        assert_eq!(controller.actions(), (4, 3));
        let other = LinkPacket { common, word };
        assert_eq!(controller.report(Nanos::new(800), &other, &mut Ways(9)), None);
    }

    #[test]
    fn controller_link_table_full_drops_oldest() {
        let mut controller = Controller::new(ControllerConfig { links: 2, memory: Nanos::from_secs(1) });
        for link in 0..2000 {
            controller.report(Nanos::new(u64::from(link)), &active(link), &mut StaticRouting);
        }
        let kept: alloc::vec::Vec<_> = controller.links.iter().flatten().map(|(link, _)| *link).collect();
        assert!(kept.len() == LINKS && kept.iter().all(|link| *link >= 2000 - 256));
    }
}
