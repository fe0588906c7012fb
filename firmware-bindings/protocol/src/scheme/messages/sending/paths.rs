//! Round trips of the paths to the nodes that get messages.

use alloc::boxed::Box;

use fpga_firmware::ids::NodeId;

use crate::sender::RoundTrip;
use crate::time::Nanos;
use fpga_registers::cast::index;

#[derive(Clone, Copy, Debug)]
struct Path {
    node: NodeId,
    /// Number of contexts that send to the node.
    contexts: u32,
    trip: RoundTrip,
}

/// One record per node, at most as many as contexts. A record without contexts may be replaced.
#[derive(Clone, Debug)]
pub(super) struct Paths(Box<[Path]>);

impl Paths {
    pub(super) fn new(contexts: u32) -> Self {
        let none = Path { node: NodeId::ANY, contexts: 0, trip: RoundTrip::UNKNOWN };
        Self(alloc::vec![none; index(contexts)].into_boxed_slice())
    }

    /// Returns the record of `node` for one more context. There is one: not all of them have contexts.
    pub(super) fn take(&mut self, node: NodeId) -> u32 {
        let known = self.0.iter().position(|path| path.node == node);
        let unused = || self.0.iter().position(|path| path.node == NodeId::ANY);
        let free = || self.0.iter().position(|path| path.contexts == 0);
        let at = known.or_else(unused).or_else(free).unwrap_or(0);
        if let Some(path) = self.0.get_mut(at) {
            if path.node != node {
                *path = Path { node, contexts: 0, trip: RoundTrip::UNKNOWN };
            }
            path.contexts += 1;
        }
        u32::try_from(at).unwrap_or(0)
    }

    /// Records that a context no longer sends to a node.
    pub(super) fn give_back(&mut self, path: u32) {
        if let Some(path) = self.0.get_mut(index(path)) {
            path.contexts = path.contexts.saturating_sub(1);
        }
    }

    pub(super) fn trip(&self, path: u32) -> RoundTrip {
        self.0.get(index(path)).map_or(RoundTrip::UNKNOWN, |path| path.trip)
    }

    /// Adds a sample. Returns whether it is the first.
    pub(super) fn sample(&mut self, path: u32, delay: Nanos) -> bool {
        let Some(path) = self.0.get_mut(index(path)) else { return false };
        path.trip.sample(delay);
        path.trip.samples == 1
    }
}
