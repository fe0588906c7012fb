//! Time saved if the receiver notifies its own application, instead of the sender after the last acknowledgement.
//!
//! Each further hop adds the delay of a hop; frames are not stored on the way, so that only the delay grows.

use fpga_protocol::Nanos;
use fpga_protocol::sender::{Notify, SendFailure};
use fpga_registers::quantity;

use crate::{Scenario, Simulation, SimulationError, Topology};

/// Saving for one path length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatencySaving {
    /// Number of hops from one end to the other.
    pub hops: u64,
    /// Round-trip time, without the time that frames take on the link.
    pub round_trip: Nanos,
    /// Time at which the receiving application was notified by its own node.
    pub own: Nanos,
    /// Time at which it was notified by the sender.
    pub told: Nanos,
}

impl LatencySaving {
    /// Time by which the notification of its own node is earlier.
    #[must_use]
    pub const fn saved(&self) -> Nanos {
        self.told.saturating_sub(self.own)
    }
}

/// Reasons why there is nothing to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoticeError {
    /// A run failed. This includes schemes other than the registry's: only the registry has a sender that notifies.
    #[error("{hops}: {source}", hops = quantity(*hops, "hop"))]
    Run {
        /// Number of hops of the run.
        hops: u64,
        /// Reason.
        r#source: SimulationError,
    },
    /// The transfer failed.
    #[error("{hops}: the transfer failed: {source}", hops = quantity(*hops, "hop"))]
    Transfer {
        /// Number of hops of the run.
        hops: u64,
        /// Reason.
        r#source: SendFailure,
    },
    /// The scenario's time limit came first.
    #[error(
        "{hops}: the receiving application was not notified within the scenario's limit of {limit}: raise the limit",
        hops = quantity(*hops, "hop"),
    )]
    Limit {
        /// Number of hops of the run.
        hops: u64,
        /// Time limit of the scenario.
        limit: Nanos,
    },
}

/// Runs `scenario`'s first flow with both notifications over 1 to `hops` hops of its delay, regardless of its topology: two hosts and a
/// cable. Times count from the submission of the transfer.
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
