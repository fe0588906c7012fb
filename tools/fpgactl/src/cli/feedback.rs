//! Options of link feedback.

use std::time::Duration;

use clap::{Args, ValueEnum};
use fpga_netmodel::BitRate;
use fpga_sim::HopFeedback;

use super::values::whole;
use crate::units;

/// Support of link feedback at a hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum HopSupport {
    /// Answers inquiries, and reports a long queue to the controller
    #[default]
    Answers,
    /// Forwards link packets like any others
    Forwards,
    /// Drops link packets
    Drops,
}

impl From<HopSupport> for HopFeedback {
    fn from(support: HopSupport) -> Self {
        match support {
            HopSupport::Answers => Self::Answers,
            HopSupport::Forwards => Self::Forwards,
            HopSupport::Drops => Self::Drops,
        }
    }
}

/// Options of link feedback, and the hop of the simulated network that it needs.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Link feedback")]
pub struct FeedbackArgs {
    /// Avoid congested links by other path identifiers, or lower the rate to the receiver behind them and raise it again
    #[arg(long)]
    pub link_feedback: bool,
    /// Node to which congested links are reported [default: none, rates are lowered at once]
    #[arg(long, value_name = "NODE", value_parser = whole::<u32>(0, 4_294_967_294), requires = "link_feedback")]
    pub controller: Option<u32>,
    /// Hop of the simulated network in front of the receiving card, with this bit rate, for example 4Gbit
    #[arg(long, value_name = "RATE", value_parser = units::bit_rate)]
    pub hop: Option<BitRate>,
    /// Maximum queueing time of a packet at the hop; a packet that would wait longer is lost [default: 50us]
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "hop")]
    pub hop_queue: Option<Duration>,
    /// Support of link feedback at the hop [default: answers]
    #[arg(long, value_name = "SUPPORT", value_enum, requires = "hop")]
    pub hop_feedback: Option<HopSupport>,
}
