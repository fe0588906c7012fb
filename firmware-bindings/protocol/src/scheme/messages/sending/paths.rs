//! Round trips of the paths to the nodes that get messages.

use alloc::boxed::Box;

use fpga_firmware::ids::NodeId;

use crate::feedback::congestion::{CongestionConfig, CongestionWindow, Permit};
use crate::feedback::flow;
use crate::sender::RoundTrip;
use crate::spray::PathSet;
use crate::time::Nanos;
use fpga_registers::cast::index;

#[derive(Clone, Copy, Debug)]
struct Path {
    node: NodeId,
    /// Number of contexts that send to the node.
    contexts: u32,
    trip: RoundTrip,
    /// Path identifiers of the packets.
    routes: PathSet,
    window: CongestionWindow,
    /// Packets in the network, as far as known.
    in_flight: u32,
}

/// Path identifiers of one message.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageRoutes {
    /// Identifier of packet 0.
    start: u8,
    /// Whether all packets of a round have the same identifier: the scheme repeats the packets of all routes for one that is lost.
    is_single: bool,
    /// Whether every packet is answered.
    answers_each: bool,
    /// Identifier of the last request for a context.
    request: u8,
    /// Packet that was sent last, and the first one that was never sent.
    last: u32,
    fresh: u32,
}

impl Default for MessageRoutes {
    fn default() -> Self {
        Self { start: 0, is_single: false, answers_each: false, request: 0, last: u32::MAX, fresh: 0 }
    }
}

/// One record per node, at most as many as contexts. A record without contexts may be replaced.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    records: Box<[Path]>,
    /// Number of path identifiers.
    routes: u16,
    congestion: Option<CongestionConfig>,
}

impl Paths {
    pub(super) fn new(contexts: u32, routes: u16, congestion: Option<CongestionConfig>) -> Self {
        let none = Self::blank(NodeId::ANY, routes, &congestion);
        Self { records: alloc::vec![none; index(contexts)].into_boxed_slice(), routes, congestion }
    }

    fn blank(node: NodeId, routes: u16, congestion: &Option<CongestionConfig>) -> Path {
        let routes = PathSet::new(routes, node.get());
        let window = CongestionWindow::new(&congestion.unwrap_or_default());
        Path { node, contexts: 0, trip: RoundTrip::UNKNOWN, routes, window, in_flight: 0 }
    }

    /// Returns the record of `node` for one more context. There is one: not all of them have contexts.
    pub(super) fn take(&mut self, node: NodeId) -> u32 {
        let known = self.records.iter().position(|path| path.node == node);
        let unused = || self.records.iter().position(|path| path.node == NodeId::ANY);
        let free = || self.records.iter().position(|path| path.contexts == 0);
        let at = known.or_else(unused).or_else(free).unwrap_or(0);
        if let Some(path) = self.records.get_mut(at) {
            if path.node != node {
                *path = Self::blank(node, self.routes, &self.congestion);
            }
            path.contexts += 1;
        }
        u32::try_from(at).unwrap_or(0)
    }

    /// Records that a context no longer sends to a node.
    pub(super) fn give_back(&mut self, path: u32) {
        if let Some(path) = self.records.get_mut(index(path)) {
            path.contexts = path.contexts.saturating_sub(1);
        }
    }

    #[inline]
    pub(super) fn trip(&self, path: u32) -> RoundTrip {
        self.records.get(index(path)).map_or(RoundTrip::UNKNOWN, |path| path.trip)
    }

    /// Returns the path identifier of packet `number` of a message, which is sent now.
    pub(super) fn choose_route(
        &mut self,
        now: Nanos,
        path: u32,
        message: &mut MessageRoutes,
        number: u32,
    ) -> u8 {
        let Some(Path { trip, routes, .. }) = self.records.get_mut(index(path)) else { return 0 };
        if routes.count() == 1 {
            if number < message.fresh {
                routes.note_lost(now, 0, trip.known_mean());
            }
            message.fresh = message.fresh.max(number.saturating_add(1));
            return routes.choose();
        }
        let follows = number == message.last.wrapping_add(1);
        let again = number < message.fresh;
        message.last = number;
        message.fresh = message.fresh.max(number.saturating_add(1));
        if message.is_single {
            if again && !follows {
                routes.note_lost(now, message.start, trip.known_mean());
                message.start = routes.choose();
            }
            return message.start;
        }
        let first = routes.first_of(message.start, number);
        // Of packets that are repeated in a row, perhaps only the first is lost: the receiver had no place for the others, or
        // the scheme repeats a whole window.
        if again && (!follows || message.answers_each && routes.is_unanswered(first)) {
            routes.note_lost(now, first, trip.known_mean());
        }
        let chosen = if again || routes.is_evicted(first) { routes.choose() } else { first };
        routes.note_sent(chosen);
        chosen
    }

    /// Returns the path identifiers of a message of `count` packets. `is_single`: all
    /// packets of a round have the same one; `answers_each`: the receiver answers every packet.
    pub(super) fn begin_routes(
        &mut self,
        path: u32,
        count: u32,
        is_single: bool,
        answers_each: bool,
    ) -> MessageRoutes {
        let Some(path) = self.records.get_mut(index(path)) else { return MessageRoutes::default() };
        let start = if is_single { path.routes.choose() } else { path.routes.reserve(count) };
        MessageRoutes { start, is_single, answers_each, ..MessageRoutes::default() }
    }

    /// Returns the path identifier of a request for a context. A repeated request avoids that of the last one.
    pub(super) fn request_route(
        &mut self,
        now: Nanos,
        path: u32,
        message: &mut MessageRoutes,
        again: bool,
    ) -> u8 {
        let Some(Path { trip, routes, .. }) = self.records.get_mut(index(path)) else { return 0 };
        if again {
            routes.note_lost(now, message.request, trip.known_mean());
        }
        message.request = routes.choose();
        message.request
    }

    /// Records an answer about a packet with path identifier `route`, and its delay if that was measured.
    pub(super) fn note_route(
        &mut self,
        now: Nanos,
        path: u32,
        route: u8,
        marked: bool,
        delay: Option<Nanos>,
    ) {
        if let Some(Path { trip, routes, .. }) = self.records.get_mut(index(path)) {
            routes.note_answer(now, route, marked, delay, trip.known_mean());
        }
    }

    /// Returns the path identifiers towards a node, if messages were sent to it.
    pub(super) fn routes_to(&mut self, node: NodeId) -> Option<flow::Paths<'_>> {
        let Path { trip, routes, .. } = self.records.iter_mut().find(|path| path.node == node)?;
        Some(flow::Paths { trip: trip.known_mean(), set: routes })
    }

    /// Returns the path identifier of an inquiry after late packets.
    pub(super) fn late_route(&self, path: u32) -> u8 {
        self.records.get(index(path)).map_or(0, |path| path.routes.unanswered())
    }

    /// Adds a sample. Returns whether it is the first.
    #[inline]
    pub(super) fn sample(&mut self, path: u32, delay: Nanos) -> bool {
        let Some(path) = self.records.get_mut(index(path)) else { return false };
        path.trip.sample(delay);
        path.trip.samples == 1
    }

    /// Returns whether a data packet may be sent on a path.
    #[inline]
    pub(super) fn permit(&mut self, now: Nanos, path: u32) -> Permit {
        match self.records.get_mut(index(path)) {
            Some(path) if self.congestion.is_some() => path.window.permit(now, path.in_flight),
            _ => Permit::Now,
        }
    }

    /// Records that a data packet leaves.
    pub(super) fn note_sent(&mut self, now: Nanos, path: u32) {
        if let (Some(config), Some(path)) = (&self.congestion, self.records.get_mut(index(path))) {
            path.window.note_sent(config, now, path.in_flight);
        }
    }

    /// Calls `change` with the congestion window of a path, if there is one.
    #[inline]
    pub(super) fn control(
        &mut self,
        path: u32,
        change: impl FnOnce(&CongestionConfig, &mut CongestionWindow),
    ) {
        if let (Some(config), Some(path)) = (&self.congestion, self.records.get_mut(index(path))) {
            change(config, &mut path.window);
        }
    }

    /// Replaces the number of packets that one context has in flight.
    #[inline]
    pub(super) fn recount(&mut self, path: u32, before: u32, now: u32) {
        if let Some(path) = self.records.get_mut(index(path)) {
            path.in_flight = path.in_flight.saturating_add(now).saturating_sub(before);
        }
    }
}
