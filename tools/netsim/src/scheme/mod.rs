//! Schemes of the simulator: those of cards, and the comparison baselines of source 004, which no card offers.

pub mod receiver_counter;
pub mod sender_window;

use fpga_firmware::generated::Scheme as WireScheme;
use fpga_protocol::Nanos;
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::mapping::WIDTH;
use fpga_protocol::scheme::message_scheme::{MessageScheme, ReusableReceiver, ReusableSender};
use fpga_protocol::scheme::tuning::max_window;
use fpga_protocol::state::StateTable;
use receiver_counter::ReceiverCounterConfig;
use sender_window::SenderWindowConfig;
use serde::Deserialize;

/// Scheme in packets of the baselines, which have no number in the contract: no packet of a card's message scheme has this one.
const BASELINE: WireScheme = WireScheme::Registry;

/// Pair of sender and receiver rules by which transfers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// Receive registry and escape channel.
    Registry,
    /// The receiver slides a window over its packets and requests missing ones.
    ReceiverWindow,
    /// Baseline: the sender keeps a window and retransmits all of it.
    SenderWindow,
    /// Baseline: the receiver counts; if one packet is missing, the whole message is retransmitted.
    ReceiverCounter,
    /// Bitmaps in every acknowledgement, a timeout that follows the measured delays.
    AdaptiveWindow,
    /// Loss detection by sending order, an adaptive reorder window, a tail probe.
    Selective,
}

impl Scheme {
    /// Every scheme.
    pub const ALL: &'static [Self] = &[
        Self::Registry,
        Self::ReceiverWindow,
        Self::SenderWindow,
        Self::ReceiverCounter,
        Self::AdaptiveWindow,
        Self::Selective,
    ];

    /// Returns the name in scenario files, on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Registry => "registry",
            Self::ReceiverWindow => "receiver-window",
            Self::SenderWindow => "sender-window",
            Self::ReceiverCounter => "receiver-counter",
            Self::AdaptiveWindow => "adaptive-window",
            Self::Selective => "selective",
        }
    }

    /// Returns the maximum window in packets; `None` for a scheme without a window.
    #[must_use]
    pub const fn max_window(self) -> Option<u32> {
        match self {
            Self::SenderWindow => Some(WIDTH),
            Self::ReceiverWindow => max_window(WireScheme::ReceiverWindow),
            Self::AdaptiveWindow => max_window(WireScheme::AdaptiveWindow),
            Self::Selective => max_window(WireScheme::Selective),
            Self::Registry | Self::ReceiverCounter => None,
        }
    }
}

impl core::fmt::Display for Scheme {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

/// Message scheme with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// A scheme of cards.
    Card(SchemeConfig),
    /// See [`sender_window`].
    SenderWindow(SenderWindowConfig),
    /// See [`receiver_counter`].
    ReceiverCounter(ReceiverCounterConfig),
}

impl Rules {
    /// Returns the specification's parameters of `scheme` for a round trip of `round_trip`; `None` for the registry scheme, which has no
    /// messages.
    #[must_use]
    pub fn new(scheme: Scheme, round_trip: Nanos) -> Option<Self> {
        let card = match scheme {
            Scheme::SenderWindow => return Some(Self::SenderWindow(SenderWindowConfig::new(round_trip))),
            Scheme::ReceiverCounter => {
                return Some(Self::ReceiverCounter(ReceiverCounterConfig::new(round_trip)));
            }
            Scheme::Registry => WireScheme::Registry,
            Scheme::ReceiverWindow => WireScheme::ReceiverWindow,
            Scheme::AdaptiveWindow => WireScheme::AdaptiveWindow,
            Scheme::Selective => WireScheme::Selective,
        };
        SchemeConfig::new(card, round_trip).map(Self::Card)
    }

    /// Returns the scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        match self {
            Self::Card(config) => match config.scheme() {
                WireScheme::ReceiverWindow => Scheme::ReceiverWindow,
                WireScheme::AdaptiveWindow => Scheme::AdaptiveWindow,
                _ => Scheme::Selective,
            },
            Self::SenderWindow(_) => Scheme::SenderWindow,
            Self::ReceiverCounter(_) => Scheme::ReceiverCounter,
        }
    }

    /// Sets the window in packets, if the scheme has one.
    pub const fn set_window(&mut self, window: u32) {
        match self {
            Self::Card(SchemeConfig::ReceiverWindow(config)) => config.window = window,
            Self::Card(SchemeConfig::AdaptiveWindow { sender, .. }) => sender.window = window,
            Self::Card(SchemeConfig::Selective(config)) => config.window = window,
            Self::SenderWindow(config) => config.window = window,
            _ => {}
        }
    }

    /// Returns the fields of the state of sender and receiver with their sizes in memory.
    #[must_use]
    pub fn state(&self) -> [Vec<StateTable>; 2] {
        fn of(rules: &impl MessageScheme) -> [Vec<StateTable>; 2] {
            [rules.sending().state(), rules.receiving().state()]
        }
        match self {
            Self::Card(config) => of(config),
            Self::SenderWindow(config) => of(config),
            Self::ReceiverCounter(config) => of(config),
        }
    }
}

impl From<SchemeConfig> for Rules {
    fn from(config: SchemeConfig) -> Self {
        Self::Card(config)
    }
}

impl From<SenderWindowConfig> for Rules {
    fn from(config: SenderWindowConfig) -> Self {
        Self::SenderWindow(config)
    }
}
