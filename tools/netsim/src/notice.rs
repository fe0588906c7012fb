//! What it saves that the receiver tells its own application, instead of the sender when it has all acknowledgements.
//!
//! The path of a hop more is longer by the delay of a hop; frames are not stored on the way, so that nothing but the delay grows.

use fpga_protocol::Nanos;
use fpga_protocol::sender::{Notify, TransferError};

use crate::{Scenario, Simulation, SimulationError, Topology};

/// One length of path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatencySaving {
    /// Hops from one end to the other.
    pub hops: u64,
    /// There and back, without the time that frames take on the link.
    pub round_trip: Nanos,
    /// When the receiving application knew, told by its own node.
    pub own: Nanos,
    /// When it knew, told by the sender.
    pub told: Nanos,
}

impl LatencySaving {
    /// How much earlier its own node tells it.
    #[must_use]
    pub const fn saved(&self) -> Nanos {
        self.told.saturating_sub(self.own)
    }
}

/// There is nothing to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoticeError {
    /// A run failed: also where the scheme is not the registry's, as no other has a sender that tells.
    #[error("{hops} hops: {source}")]
    Run {
        /// Hops of the run.
        hops: u64,
        /// Why.
        source: SimulationError,
    },
    /// The transfer failed.
    #[error("{hops} hops: the transfer failed: {source}")]
    Transfer {
        /// Hops of the run.
        hops: u64,
        /// Why.
        source: TransferError,
    },
    /// The scenario's limit came first.
    #[error("{hops} hops: the receiving application was not told in the scenario's {limit}: give it more")]
    Limit {
        /// Hops of the run.
        hops: u64,
        /// The scenario's.
        limit: Nanos,
    },
}

/// Runs `scenario`'s first flow both ways over 1 to `hops` hops of its delay, whatever its topology: two hosts and a cable. Times
/// are since the transfer was submitted.
///
/// # Errors
/// The first run that fails.
pub fn by_hops(scenario: &Scenario, hops: u64) -> Result<Vec<LatencySaving>, NoticeError> {
    let run = |hops, notify| {
        let delay = scenario.delay.saturating_mul(hops);
        let mut scenario = scenario.clone().topology(Topology::PointToPoint).delay(delay).notify(notify);
        scenario.flows.truncate(1);
        let run = Simulation::new(&scenario).and_then(Simulation::run);
        let report = run.map_err(|source| NoticeError::Run { hops, source })?;
        let flow = report.flows.first().copied().unwrap_or_default();
        match flow.error {
            Some(source) => Err(NoticeError::Transfer { hops, source }),
            None => flow.latency().ok_or(NoticeError::Limit { hops, limit: scenario.limit }),
        }
    };
    (1..=hops)
        .map(|hops| {
            Ok(LatencySaving {
                hops,
                round_trip: scenario.delay.saturating_mul(2 * hops),
                own: run(hops, Notify::Receiver)?,
                told: run(hops, Notify::Sender)?,
            })
        })
        .collect()
}
