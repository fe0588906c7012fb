//! Control socket of a served card: injects faults and drives user logic while the card is served.
//!
//! A test of a driver makes a served card fail from outside: the card's bus has no register for that, because no real card has one.
//! Requests are JSON documents, one per line; each is answered by one line, an [`Answer`]. Up to sixteen clients may be connected; when
//! another one connects, the one that has been idle longest is disconnected.

mod client;
mod server;

use fpga_sim::FaultsDescription;
use serde::{Deserialize, Serialize};

pub use client::{ControlError, ask};
pub(crate) use server::{Limits, serve};

/// Request to a served card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// Replaces the fault plan; faults that have struck already stay in effect.
    Faults {
        /// The `faults` section of a card file.
        faults: FaultsDescription,
    },
    /// Removes the card from its slot (surprise removal).
    #[serde(rename = "pull-out")]
    Unplug {},
    /// Puts the card into its slot, in its power-on state.
    #[serde(rename = "put-back")]
    Replug {},
    /// Makes the card's user logic raise (or lower) an interrupt line, and hold it.
    UserInterrupt {
        /// Line number, 0 to 15.
        line: u8,
        /// Whether the line is high.
        on: bool,
    },
    /// Makes the card's user logic raise an interrupt line until its interrupt is acknowledged.
    PulseUserInterrupt {
        /// Line number, 0 to 15.
        line: u8,
    },
    /// Returns the counters and changes nothing.
    Stats {},
    /// Returns the state and changes nothing.
    State {},
}

/// Result of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Answer {
    /// Reason why the request failed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Faults of the plan in force, in its order.
    #[serde(default)]
    pub faults: Vec<Progress>,
    /// For a pulse: whether its interrupt is acknowledged. If not, the line is masked and stays high until the host enables it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<bool>,
    /// Counters of the card and its server: the document of `card serve --stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<serde_json::Value>,
}

/// Progress of a planned fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Progress {
    /// Number of opportunities so far.
    pub opportunities: u64,
    /// Number of strikes so far.
    pub strikes: u64,
}
