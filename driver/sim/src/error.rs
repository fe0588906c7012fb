//! Errors of building a simulated network.

use fpga_card::CardError;
use fpga_netmodel::OrderError;
use fpga_pci::OsError;
use fpga_registers::quantity;

/// Reason why a simulated network cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimNetworkError {
    /// A card cannot be built.
    #[error("card {card}: {problem}")]
    Card {
        /// Card number.
        card: usize,
        /// Error of the card.
        problem: CardError,
    },
    /// The impairments are invalid.
    #[error("the delivery order of the network is invalid: {0}")]
    Network(OrderError),
    /// Two cards have the same node id, so that the network could not distinguish them.
    #[error("cards {first} and {second} both have node id {node}")]
    DuplicateNode {
        /// The node id.
        node: u32,
        /// The first card.
        first: usize,
        /// The second card.
        second: usize,
    },
    /// A card's packets do not fit the link's datagrams.
    #[error(
        "card {card}: its packets of {packet} make datagrams of up to {datagram}, and an MTU of {mtu} holds {largest}",
        packet = quantity(*packet, "byte"),
    )]
    Mtu {
        /// The card.
        card: usize,
        /// Payload bytes of the card's packets.
        packet: u32,
        /// Maximum datagram length in bytes.
        datagram: usize,
        /// Maximum datagram length that the link permits, in bytes.
        largest: usize,
        /// Maximum IP packet size in bytes.
        mtu: usize,
    },
    /// Partitions were requested together with an option that makes time real.
    #[error(
        "partitions have virtual time, but a thread of the network's own or a link to other processes makes time real"
    )]
    RealTime,
    /// The simulated network's thread cannot be started.
    #[error("the thread of the simulated network cannot be started: {source}")]
    Thread {
        /// Error of the system.
        r#source: OsError,
    },
    /// The simulated network's thread cannot be bound to its CPU.
    #[error("the thread of the simulated network cannot be bound to CPU {cpu}: {source}")]
    Affinity {
        /// Requested CPU.
        cpu: usize,
        /// Error of the system.
        r#source: OsError,
    },
}

impl SimNetworkError {
    /// Returns what to do about it; `None` if the problem leaves nothing to advise.
    #[must_use]
    pub const fn help(&self) -> Option<&'static str> {
        Some(match self {
            Self::Card { .. } | Self::Network(_) => return None,
            Self::DuplicateNode { .. } => "give each card a different ni.node_id",
            Self::Mtu { .. } => "lower ni.packet_size or raise the MTU",
            Self::RealTime => "omit one of the two",
            Self::Thread { .. } => "check the limits on processes and memory",
            Self::Affinity { .. } => "choose a CPU that this process may use",
        })
    }
}

impl From<OrderError> for SimNetworkError {
    fn from(error: OrderError) -> Self {
        Self::Network(error)
    }
}
