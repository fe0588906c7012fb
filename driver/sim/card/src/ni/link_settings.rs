//! Settings of link feedback, which the host writes to its registers.

use fpga_firmware::generated::{NODE_ANY, ni};
use fpga_firmware::ids::NodeId;
use fpga_protocol::feedback::flow::FlowConfig;
use fpga_protocol::time::Nanos;

/// Maximum number of receivers whose rate is controlled.
pub(super) const MAX_RECEIVERS: u32 = FlowConfig::new(1, Nanos::new(1)).receivers;

/// Settings of the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkSettings {
    control: u32,
    controller: u32,
    rate_mbps: u32,
}

impl LinkSettings {
    /// Reset values of the map.
    pub(super) const RESET: Self = Self { control: 0, controller: NODE_ANY, rate_mbps: 100_000 };

    /// Returns the node of the controller; [`NODE_ANY`] for none.
    pub(super) const fn controller(&self) -> u32 {
        self.controller
    }

    /// Returns whether the host has enabled link feedback.
    pub(super) const fn is_on(&self) -> bool {
        self.control & ni::link_control::ENABLE != 0
    }

    /// Returns whether `register` is one of these settings.
    pub(super) const fn has(register: u32) -> bool {
        Self::RESET.read(register).is_some()
    }

    pub(super) const fn read(&self, register: u32) -> Option<u32> {
        match register {
            ni::LINK_CONTROL => Some(self.control),
            ni::LINK_CONTROLLER => Some(self.controller),
            ni::LINK_RATE_MBPS => Some(self.rate_mbps),
            _ => None,
        }
    }

    /// Returns the word behind `register`, for a write of the host.
    pub(super) const fn word_mut(&mut self, register: u32) -> Option<&mut u32> {
        match register {
            ni::LINK_CONTROL => Some(&mut self.control),
            ni::LINK_CONTROLLER => Some(&mut self.controller),
            ni::LINK_RATE_MBPS => Some(&mut self.rate_mbps),
            _ => None,
        }
    }

    /// Returns whether the register accepts this value.
    pub(super) const fn allows(register: u32, value: u32) -> bool {
        match register {
            ni::LINK_CONTROL => value & !ni::link_control::ENABLE == 0,
            ni::LINK_RATE_MBPS => value > 0,
            _ => true,
        }
    }

    /// Returns the configuration of the message sender's flow control; `None` if link feedback is off.
    pub(super) fn flow(&self, round_trip: Nanos) -> Option<FlowConfig> {
        let mut config = FlowConfig::new(u64::from(self.rate_mbps) * 1_000_000, round_trip);
        config.controller = (self.controller != NODE_ANY).then(|| NodeId::new(self.controller));
        self.is_on().then_some(config)
    }
}
