//! Errors of opening a messenger and of adding peers.

use crate::address::Address;

/// Reason why a messenger cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessengerError {
    /// The card, its endpoint or its memory cannot be opened.
    #[error("{text}")]
    Card {
        /// The driver's error.
        text: String,
    },
    /// The card's memory is too small.
    #[error(
        "{available} bytes of card memory are not enough: messages need {needed}; use a card with more memory, or increase memory.size of its description"
    )]
    CardMemory {
        /// Usable card memory in bytes.
        available: u64,
        /// Card memory that one peer needs, in bytes.
        needed: u64,
    },
    /// The link of a simulated card cannot be opened.
    #[error("the link of the simulated card cannot be opened: {text}")]
    Link {
        /// Error of the link.
        text: String,
    },
    /// A key was given for a card of hardware, whose network has no tags.
    #[error(
        "{card} has no link by UDP that could use the key of FPGA_LINK_KEY: unset it if its network is private"
    )]
    NoLink {
        /// The card.
        card: String,
    },
    /// All numbers of the messengers on one card are used.
    #[error("{ports} messengers were opened on this card: drop all of them, and open the card again")]
    TooManyPorts {
        /// Maximum number of messengers that are opened while the card is open.
        ports: u8,
    },
    /// This messenger cannot reach the address.
    #[error(
        "{address} cannot be reached from {own}: both must be addresses of simulated cards, or both node ids of cards on one network"
    )]
    NoRoute {
        /// The address.
        address: Address,
        /// Address of this messenger.
        own: Address,
    },
    /// Two addresses have the same node id.
    #[error(
        "{address} has the same node id as {other}: use addresses that differ in their last 16 bits or in the port"
    )]
    SameNode {
        /// The address.
        address: Address,
        /// The known peer.
        other: Address,
    },
}

pub(crate) fn card_error(error: impl core::fmt::Display) -> MessengerError {
    MessengerError::Card { text: error.to_string() }
}
