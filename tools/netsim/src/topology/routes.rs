//! Choice of a port among those on shortest routes.

use super::{Routing, SwitchFabric, Way};
use crate::statistics::seed_of;
use rustc_hash::FxHashMap;

/// Properties of a packet that a switch uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowKey {
    /// Source host.
    pub(crate) from: u32,
    /// Destination host.
    pub(crate) to: u32,
    /// Flow, or `u32::MAX` for a packet that belongs to none.
    pub(crate) flow: u32,
    /// Path identifier of the packet.
    pub(crate) path: u8,
}

/// Maximum number of flows and switches whose choice is kept; beyond it, the choice is made per packet.
const MAX_KEPT: usize = 1 << 20;

/// State of the choice.
#[derive(Debug, Default)]
pub(super) struct Choices {
    pub(super) seed: u64,
    /// Port by vertex, host pair and flow.
    kept: FxHashMap<(u32, FlowPair), u32>,
    /// Packets so far, by vertex.
    turns: Vec<u32>,
}

type FlowPair = (u32, u32, u32);

impl SwitchFabric {
    /// Sets the choice of routes; `seed` is that of hashes.
    pub(crate) const fn set_routing(&mut self, routing: Routing, seed: u64) {
        self.routing = routing;
        self.routes.seed = seed;
    }

    /// Chooses the port for a packet at `vertex`.
    #[inline]
    pub(crate) fn way(&mut self, vertex: u32, key: FlowKey, now: u64) -> Way {
        if self.routing == Routing::Adaptive && self.outages.is_none() {
            return self.route(vertex, key.to).map_or(Way::Here, Way::Through);
        }
        self.choose(vertex, key, now)
    }

    /// Returns whether a packet's route depends on more than its destination.
    #[inline]
    pub(crate) const fn needs_flow(&self) -> bool {
        !matches!(self.routing, Routing::Adaptive | Routing::RoundRobin)
    }

    fn choose(&mut self, vertex: u32, key: FlowKey, now: u64) -> Way {
        self.renew_outages(now);
        let FlowKey { from, to, flow, path } = key;
        let (mut all, mut count) = (0_u32, 0_u32);
        let mut best = (u64::MAX, u32::MAX);
        let pair = (vertex, (from, to, flow));
        let detour = match self.routing {
            Routing::Fixed => self.detours.get(&(vertex, from, to)).copied(),
            Routing::AdaptiveFlow => self.routes.kept.get(&pair).copied(),
            _ => None,
        };
        let mut has_detour = false;
        self.for_each_path(vertex, to, |port| {
            all += 1;
            if self.is_usable(port, to, now) {
                count += 1;
                best = best.min((self.free_at(port), port));
                has_detour |= detour == Some(port);
            }
        });
        if all == 0 {
            return Way::Here;
        }
        if let Some(port) = detour.filter(|_| has_detour) {
            return Way::Through(port);
        }
        let hash = match self.routing {
            Routing::Fixed => seed_of(u64::from(from) << 32 | u64::from(to), vertex.into()),
            Routing::Ecmp => {
                let pair = seed_of(u64::from(from) << 32 | u64::from(to), self.routes.seed);
                seed_of(pair ^ u64::from(flow) ^ u64::from(path) << 32, vertex.into())
            }
            Routing::RoundRobin => {
                let at = vertex as usize;
                if self.routes.turns.len() <= at {
                    self.routes.turns.resize(at + 1, 0);
                }
                let turn =
                    self.routes.turns.get_mut(at).map(|turn| core::mem::replace(turn, turn.wrapping_add(1)));
                turn.unwrap_or(0).into()
            }
            Routing::Adaptive | Routing::AdaptiveFlow => {
                if best.1 == u32::MAX {
                    return Way::Lost;
                }
                if self.routing == Routing::AdaptiveFlow && self.routes.kept.len() < MAX_KEPT {
                    self.routes.kept.insert(pair, best.1);
                }
                return Way::Through(best.1);
            }
        };
        let Some(chosen) = hash.checked_rem(count.into()) else { return Way::Lost };
        let (mut at, mut found) = (0, Way::Lost);
        self.for_each_path(vertex, to, |port| {
            if self.is_usable(port, to, now) {
                if at == chosen {
                    found = Way::Through(port);
                }
                at += 1;
            }
        });
        found
    }
}
