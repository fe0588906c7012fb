//! Transfers between simulated cards, for figures that compare them with a model. This package does not depend on the cards: its caller
//! runs them.

use fpga_netmodel::{Conditions, Delay, Impairments, Loss, Probability};
use fpga_protocol::Nanos;

/// Properties of both cards that differ from the built-in card description. Names and units as in card files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardDesign {
    /// Name in figures.
    pub name: &'static str,
    /// `link.speed` (generation) and `link.width`.
    pub link: (u8, u8),
    /// `link.read_latency_ns`.
    pub read_latency_ns: u32,
    /// `cdma.data_width` in bits.
    pub copy_width: u16,
    /// `cdma.descriptor_ns`.
    pub copy_descriptor_ns: u32,
    /// `memory.megabytes_per_second`.
    pub memory_rate: u64,
    /// `ni.megabits_per_second`.
    pub network_rate: u64,
    /// `ni.packet_size` in bytes.
    pub packet: u32,
    /// `ni.mask_bits`.
    pub mask_bits: u16,
    /// Number of packets in flight; `None`: the endpoint's default.
    pub in_flight: Option<u32>,
}

impl CardDesign {
    /// The built-in card description.
    pub const DEFAULT: Self = Self {
        name: "default card",
        link: (3, 16),
        read_latency_ns: 600,
        copy_width: 512,
        copy_descriptor_ns: 100,
        memory_rate: 17_000,
        network_rate: 100_000,
        packet: 512,
        mask_bits: 32,
        in_flight: None,
    };

    /// Maximum segment length in bytes.
    #[must_use]
    pub fn longest(&self) -> u64 {
        u64::from(self.packet) * u64::from(self.mask_bits)
    }
}

/// Network between the cards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CardNetwork {
    /// Name in figures.
    pub name: &'static str,
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Delay of each frame, one way, in addition to that of the ports.
    pub delay: Nanos,
}

impl CardNetwork {
    /// No loss, no delay.
    pub const CLEAN: Self = Self { name: "clean network", loss: 0.0, delay: Nanos::ZERO };

    /// Impairments of both directions, for all frames.
    #[must_use]
    pub fn impairments(&self) -> Impairments {
        let loss = Probability::new(self.loss).unwrap_or_default();
        let conditions = Conditions::default().loss(Loss::Independent(loss));
        Impairments::both(conditions.delay(Delay::Constant(self.delay)))
    }
}

/// One transfer of the registry scheme from one card to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CardTransfer {
    /// Both cards.
    pub design: CardDesign,
    /// Network between them.
    pub network: CardNetwork,
    /// Bytes.
    pub length: u64,
    /// Segment length in bytes; `None`: chosen by the driver.
    pub segment: Option<u64>,
    /// Seed of the network.
    pub seed: u64,
}

/// Result of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardTime {
    /// Virtual time from the submission until the receiving application was notified.
    pub time: Nanos,
    /// Length of the segments in bytes.
    pub segment: u64,
    /// Packets retransmitted.
    pub retransmits: u64,
}

/// Runs a transfer in virtual time. An error is text for people.
pub type CardRunner = fn(&CardTransfer) -> Result<CardTime, String>;
