//! A simulated network in partitions: each card has a clock of its own and may be driven by a thread of its own, and the same seed still
//! gives the same run.
//!
//! A frame that a card sends at time t reaches the network at t + `ni.latency_ns` at the earliest. Within a span of that length, the
//! horizon, no partition can affect another one, so each works up to the horizon by itself. There it waits for the others, and all exchange
//! the frames of the span (conservative synchronisation with lookahead; Chandy and Misra, 1979). What happens does not depend on which
//! thread comes first: the common network ([`wire`]) takes the frames in the order of time and of card.
//!
//! The threads meet every few microseconds, which is less than the wake-up of an idle CPU takes. So they take turns on one CPU, unless they
//! are measured to be faster with a CPU each (module `cpu`).
//!
//! Compared with a simulated network that is not partitioned, frames take the same time, with two exceptions: frames that an order of
//! delivery holds back although nothing else is in progress are delivered after a span without work, and a card with a latency below
//! 50 ns has 50 ns. The same seed gives another run than without partitions.

mod cpu;
pub(crate) mod port;
mod wire;

use crate::builder::SimNetworkBuilder;
use crate::error::SimNetworkError;
use crate::in_flight::FramesInFlight;
use crate::network::SimNetwork;
use fpga_netmodel::Impairments;
use fpga_protocol::time::Nanos;
use port::{Frames, Port};
use std::cell::RefCell;
use std::sync::Arc;
pub use wire::Board;
use wire::Wire;

/// Minimum of the span in which partitions work by themselves. On cards with less latency, frames arrive later by up to this time.
const MIN_LOOKAHEAD: Nanos = Nanos::new(50);

/// Simulated networks of one card each, with a common network between the cards. See
/// [`SimNetworkBuilder::build_partitioned`](crate::SimNetworkBuilder::build_partitioned).
#[derive(Debug)]
pub struct Partitions {
    networks: Vec<SimNetwork>,
    wire: Arc<Wire>,
}

impl SimNetworkBuilder {
    /// Builds one simulated network per card, each with its own clock, and the network between them. Each can be driven by a thread of its
    /// own, in virtual time, and the same seed gives the same run. See [`Partitions::join`].
    ///
    /// # Errors
    /// [`SimNetworkError`]; [`SimNetworkError::RealTime`] with [`threaded`](Self::threaded) or [`link`](Self::link).
    pub fn build_partitioned(mut self) -> Result<Partitions, SimNetworkError> {
        if self.is_real_time() {
            return Err(SimNetworkError::RealTime);
        }
        self.check_nodes()?;
        let path = self.take_path()?;
        let timed = path.is_timed();
        let (mut networks, mut nodes, mut lookahead) = (Vec::new(), Vec::new(), None);
        for (number, card) in self.take_cards().into_iter().enumerate() {
            let latency = Nanos::new(card.0.ni.latency_ns.into());
            lookahead = Some(lookahead.unwrap_or(latency).min(latency));
            nodes.push(card.0.ni.node_id);
            let slot = self.slot(number, card)?;
            let unused = FramesInFlight::new(Impairments::default(), Vec::new(), 0)?;
            networks.push(self.assemble(vec![slot], Frames::Path(unused))?);
        }
        let lookahead = lookahead.unwrap_or(MIN_LOOKAHEAD).max(MIN_LOOKAHEAD);
        let wire = Arc::new(Wire::new(path, nodes, lookahead));
        for (number, network) in networks.iter().enumerate() {
            network.lock().network = Frames::Port(Port::new(&wire, number, timed));
        }
        Ok(Partitions { networks, wire })
    }
}

impl Partitions {
    /// The simulated network of card `card`, in the order in which cards were added; its only card has number 0 there.
    #[must_use]
    pub fn network(&self, card: usize) -> Option<&SimNetwork> {
        self.networks.get(card)
    }

    /// Connects the partitions: from now on they have the same time, and exchange frames. Until then, and after a membership has ended, a
    /// partition's clock runs by itself, and its frames wait.
    ///
    /// Each membership belongs to a thread that drives the partition's card and must be the only one to do so. A thread that waits for a
    /// partition, in [`fpga_pci::Backend::relax`] and in everything that calls it, sleeps until the others have reached the same time. So
    /// each member must be driven, or dropped; a thread must not wait for another one in any other way. Call this once: a second call
    /// replaces the memberships of the first.
    ///
    /// These threads are bound to one CPU, where they take turns, or to a CPU each, if that is measured to be faster. A thread that drops its
    /// membership itself may then use the same CPUs as before. Threads that it starts meanwhile inherit the binding.
    #[must_use]
    pub fn join(&self) -> Vec<Membership> {
        let now = self.networks.iter().map(SimNetwork::now).max().unwrap_or(Nanos::ZERO);
        let horizon = self.wire.join(now);
        self.networks
            .iter()
            .enumerate()
            .map(|(number, network)| {
                let mut state = network.lock();
                state.horizon = Nanos::MAX;
                state.pass(now);
                state.horizon = horizon;
                let wire = Arc::clone(&self.wire);
                Membership { network: network.clone(), wire, number, seen: RefCell::default() }
            })
            .collect()
    }
}

/// A connected partition; dropping it disconnects the partition. See [`Partitions::join`].
#[derive(Debug)]
pub struct Membership {
    network: SimNetwork,
    wire: Arc<Wire>,
    number: usize,
    /// Boards since the last exchange.
    seen: RefCell<Seen>,
}

/// Boards of all partitions, and whether each is connected, after an exchange.
#[derive(Clone, Debug, Default)]
struct Seen {
    round: Option<u64>,
    boards: Vec<(Board, bool)>,
}

impl Membership {
    /// Shows `board` to the others, from the next exchange of frames on.
    pub fn show(&self, board: Board) {
        self.wire.show(self.number, board);
    }

    /// Board of partition `number` as it was at the last exchange, its own too, and whether the partition was connected then. After a
    /// partition was disconnected, its last board.
    #[must_use]
    pub fn board(&self, number: usize) -> (Board, bool) {
        let mut seen = self.seen.borrow_mut();
        let round = self.wire.round();
        // No exchange happens while this partition works.
        if seen.round != Some(round) {
            self.wire.copy_boards(&mut seen.boards);
            seen.round = Some(round);
        }
        seen.boards.get(number).copied().unwrap_or_default()
    }

    /// Returns the number of this partition.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.number
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if !self.network.is_own() {
            return;
        }
        let mut state = self.network.lock();
        state.horizon = Nanos::MAX;
        if let Frames::Port(port) = &mut state.network {
            port.leave();
        }
    }
}
