//! Settings of the NI, which the host writes to its registers.

use super::link_settings::LinkSettings;
use super::parameters::Parameters;
use fpga_firmware::generated::{Scheme, ni};
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::time::Nanos;

/// Settings of the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(super) node_id: u32,
    pub(super) incarnation: u32,
    pub(super) control: u32,
    pub(super) threshold: u32,
    pub(super) escape_timeout_us: u32,
    pub(super) registry_timeout_us: u32,
    pub(super) packet_lifetime_us: u32,
    pub(super) scheme: u32,
    pub(super) schemes_on: u32,
    pub(super) give_up_us: u32,
    pub(super) round_trip_ns: u32,
    pub(super) message_packets: u32,
    pub(super) paths: u32,
    pub(super) congestion: u32,
    pub(super) parameters: Parameters,
    pub(super) link: LinkSettings,
}

impl Settings {
    /// Reset values of the map.
    pub(super) const fn new(node_id: u32) -> Self {
        Self {
            node_id,
            incarnation: 0,
            control: 0,
            threshold: 0x4000,
            escape_timeout_us: 1_000,
            registry_timeout_us: 2_000_000,
            packet_lifetime_us: 10_000,
            scheme: 0,
            schemes_on: 0,
            give_up_us: 1_000_000,
            round_trip_ns: 100_000,
            message_packets: 256,
            paths: 1,
            congestion: ni::congestion::WINDOW,
            parameters: Parameters::NONE,
            link: LinkSettings::RESET,
        }
    }

    /// Active schemes, as bits.
    pub(super) const fn active_schemes(&self) -> u32 {
        self.schemes_on | 1 << self.scheme
    }

    /// Configuration of a scheme; `None` for the registry scheme.
    pub(super) fn rules(&self, scheme: Scheme) -> Option<SchemeConfig> {
        let rules = self.parameters.rules(scheme, Nanos::new(self.round_trip_ns.into()))?;
        Some(if self.has_windows() { rules.acknowledging() } else { rules })
    }

    /// Returns whether message senders have congestion windows.
    pub(super) const fn has_windows(&self) -> bool {
        self.congestion & ni::congestion::WINDOW != 0
    }
}
