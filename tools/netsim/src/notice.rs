//! What it saves that the receiver tells its own application, instead of the sender when it has all acknowledgements.
//!
//! The path of a hop more is longer by the delay of a hop; frames are not stored on the way, so that nothing but the delay grows.

use fpga_core::Nanos;
use fpga_core::sender::Notify;

use crate::{Scenario, Simulation, SimulationError};

/// One length of path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saving {
    /// Hops from one end to the other.
    pub hops: u64,
    /// There and back, without the time that frames take on the link.
    pub round_trip: Nanos,
    /// When the receiving application knew, told by its own node.
    pub own: Nanos,
    /// When it knew, told by the sender.
    pub told: Nanos,
}

impl Saving {
    /// How much earlier its own node tells it.
    #[must_use]
    pub const fn saved(&self) -> Nanos {
        self.told.saturating_sub(self.own)
    }
}

/// Runs `scenario` both ways over 1 to `hops` hops of its delay.
///
/// # Errors
/// The first run that fails.
pub fn by_hops(scenario: &Scenario, hops: u64) -> Result<Vec<Saving>, SimulationError> {
    let run = |hops, notify| {
        let delay = scenario.delay.saturating_mul(hops);
        Simulation::new(&scenario.clone().delay(delay).notify(notify))?.run()
    };
    (1..=hops)
        .map(|hops| {
            Ok(Saving {
                hops,
                round_trip: scenario.delay.saturating_mul(2 * hops),
                own: run(hops, Notify::Receiver)?.received,
                told: run(hops, Notify::Sender)?.received,
            })
        })
        .collect()
}
