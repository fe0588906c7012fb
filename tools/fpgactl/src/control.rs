//! The control socket of a served card: what goes wrong with it, and what its user logic does, decided while it is served.
//!
//! Whoever tests a driver against a served card makes it fail from outside: the card's bus has no register for that, because no
//! real card has one. Requests are JSON documents, one a line; each is answered by one line, an [`Answer`]. Several may be connected:
//! sixteen, and when others wait, the one that has been idle for the longest time makes room.

mod client;
mod server;

use fpga_driver::sim::FaultsDescription;
use serde::{Deserialize, Serialize};

pub use client::{ControlError, ask};
pub(crate) use server::{Limits, serve};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Request {
    /// From now on this goes wrong, and nothing else; what has gone wrong stays so.
    Faults {
        /// The section `faults` of a card file.
        faults: FaultsDescription,
    },
    /// The card is out of its slot from one moment to the next.
    #[serde(rename = "pull-out")]
    Unplug {},
    /// It is in its slot, in its power-on state.
    #[serde(rename = "put-back")]
    Replug {},
    /// The card's user logic raises (or lowers) an interrupt line, and holds it.
    UserInterrupt {
        /// 0 to 15.
        line: u8,
        /// High.
        on: bool,
    },
    /// The card's user logic raises an interrupt line until its interrupt is acknowledged.
    PulseUserInterrupt {
        /// 0 to 15.
        line: u8,
    },
    /// Nothing: the answer says what was counted.
    Stats {},
    /// Nothing: the answer says how things are.
    State {},
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Answer {
    /// Why it was not done, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The faults of the plan in force, in its order.
    #[serde(default)]
    pub faults: Vec<Progress>,
    /// Of a pulse: whether its interrupt is acknowledged. If not, the line is masked, and stays high until the host enables it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<bool>,
    /// What the card and its server have counted: the document of `card serve --stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<serde_json::Value>,
}

/// How far a planned fault is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Progress {
    /// How often it could have struck so far.
    pub opportunities: u64,
    /// How often it has.
    pub strikes: u64,
}
