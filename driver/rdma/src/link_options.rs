//! Option for link feedback.

use std::time::Duration;

use fpga_firmware::NodeId;
use fpga_protocol::Nanos;
use fpga_protocol::feedback::flow::FlowConfig;

/// Link feedback and flow control (docs/protocol.md 9): hops of the network report congested links, and the sender avoids them by
/// other path identifiers ([`crate::EndpointOptions::paths`]) or lowers its rate to the receivers behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkFeedback {
    /// Node of the controller, to which congested links are reported; if it is this node, the card is the controller. Default: none, and
    /// this node lowers its rates at once.
    pub controller: Option<NodeId>,
    /// Line rate in Mbit/s, to which rates refer, at least 1. Default 100000 (100 Gbit/s).
    pub line_rate_mbps: u32,
}

impl Default for LinkFeedback {
    fn default() -> Self {
        Self { controller: None, line_rate_mbps: 100_000 }
    }
}

impl LinkFeedback {
    /// Returns the configuration of the host's flow control.
    pub(super) fn flow(self, round_trip: Duration) -> FlowConfig {
        let round_trip = Nanos::from(round_trip).max(Nanos::new(1));
        let mut config = FlowConfig::new(u64::from(self.line_rate_mbps) * 1_000_000, round_trip);
        config.controller = self.controller;
        config
    }
}

fpga_registers::setters! {
    impl LinkFeedback {
        /// Sets the node of the controller.
        controller: NodeId => Some;
        /// Sets the line rate in Mbit/s.
        line_rate_mbps: u32;
    }
}
