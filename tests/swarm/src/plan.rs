//! Plan of a world: everything that is chosen before it runs. A seed gives a plan; a reduction removes parts of it.

mod choosing;
mod extras;
mod network;

use std::time::Duration;

use fpga_firmware::generated::Scheme;
use fpga_protocol::Nanos;

pub use crate::choices::Timed;
use crate::messages::plan::Messages;
use crate::streams::plan::Streams;
pub use network::{Cards, Conditions, Topology};

/// First address of the memory from which a node sends.
pub const SOURCES: u64 = 0x1000;
/// First address of the memory that other nodes may write.
pub const TARGETS: u64 = 0x10_0000;
/// Distance of two memory windows. Between their ends lies memory that no node may write.
pub const WINDOW_STRIDE: u64 = 0x2_0000;
/// Length of a memory window in bytes.
pub const WINDOW_LENGTH: u64 = 0x1_8000;
/// Length of the part of a window that planned transfers use. The rest is for transfers after the world has healed.
pub const PLANNED_LENGTH: u64 = 0x1_4000;
/// Maximum number of nodes.
pub const MAX_NODES: usize = 16;
/// Size of a card's memory in bytes: below that of a huge page, which the system would clear as a whole.
pub const CARD_MEMORY: u64 = 0x1F_0000;

/// Maximum time in the queue of a slow link.
pub const QUEUE: Nanos = Nanos::from_millis(1);
/// Maximum time for which a link holds a frame to deliver it in another order.
pub const PATIENCE: Nanos = Nanos::from_micros(50);

/// How a transfer names its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// The window of the node's newest incarnation.
    Window,
    /// The window of the incarnation at the start, which a restart closes.
    FirstWindow,
    /// A wrong key.
    WrongKey,
    /// A range that exceeds the window.
    Beyond,
}

/// Notification of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// By the receiver.
    Receiver,
    /// By the sender.
    Sender,
    /// None.
    None,
}

/// A transfer from one node to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Send {
    /// Sending node.
    pub from: usize,
    /// Receiving node.
    pub to: usize,
    /// Address of the data.
    pub source: u64,
    /// Window at the receiver.
    pub window: usize,
    /// Offset in the window.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Destination.
    pub aim: Aim,
    /// Scheme.
    pub scheme: Scheme,
    /// Notification.
    pub notice: Notice,
    /// Priority.
    pub priority: u8,
    /// Time after which it is given up.
    pub deadline: Option<Duration>,
    /// Whether it is sent from host memory.
    pub from_host: bool,
    /// Time after which it is cancelled.
    pub cancel: Option<Nanos>,
}

/// A read of another node's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// Reading node.
    pub reader: usize,
    /// Node that owns the data.
    pub owner: usize,
    /// Offset in the readable range.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Address of the destination.
    pub to: u64,
    /// Scheme.
    pub scheme: Scheme,
    /// Time after which it is given up.
    pub deadline: Duration,
}

/// Work of the applications.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A transfer.
    Send(Send),
    /// A read.
    Read(Read),
}

impl Action {
    /// Length of its data in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        match self {
            Self::Send(send) => send.length,
            Self::Read(read) => read.length,
        }
    }
}

/// Failure that the world suffers for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No frames pass from one node to another.
    Cut {
        /// Sending node.
        from: usize,
        /// Receiving node.
        to: usize,
    },
    /// No frames pass between the nodes below `below` and the others.
    Partition {
        /// Number of nodes on one side.
        below: usize,
    },
    /// A host does not poll.
    Pause {
        /// The node.
        node: usize,
    },
    /// The endpoint is dropped, and opened again at the end.
    Restart {
        /// The node.
        node: usize,
    },
    /// The card leaves the bus, and is inserted again at the end.
    Removal {
        /// The node.
        node: usize,
    },
}

impl Fault {
    /// Whether it concerns the first `nodes` nodes alone.
    #[must_use]
    pub const fn fits(self, nodes: usize) -> bool {
        match self {
            Self::Cut { from, to } => from < nodes && to < nodes,
            Self::Partition { below } => below < nodes,
            Self::Pause { node } | Self::Restart { node } | Self::Removal { node } => node < nodes,
        }
    }
}

/// A failure and its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The failure.
    pub fault: Fault,
    /// Duration.
    pub span: Nanos,
}

/// Applications of a world.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Transfers and reads of endpoints: the plan's actions.
    Transfers,
    /// Messages.
    Messages(Messages),
    /// Frame streams.
    Streams(Streams),
}

impl Work {
    /// Name of the kind of applications.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Transfers => "transfers",
            Self::Messages(_) => "messages",
            Self::Streams(_) => "streams",
        }
    }
}

/// Reason why transfers from one node to another may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// Their packet sizes differ.
    PacketSize,
    /// The sender may have had a later incarnation.
    Sender,
    /// The receiver may have had a later incarnation.
    Receiver,
}

/// Plan of a world.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Seed of the plan, and of the network.
    pub seed: u64,
    /// Number of nodes.
    pub nodes: usize,
    /// Form of the network.
    pub topology: Topology,
    /// Delay of a link.
    pub hop: Nanos,
    /// Impairments before the world heals.
    pub conditions: Conditions,
    /// Cards and endpoints.
    pub cards: Cards,
    /// Applications of the nodes.
    pub work: Work,
    /// Transfers and reads, by time.
    pub actions: Vec<Timed<Action>>,
    /// Failures, by time.
    pub faults: Vec<Timed<Outage>>,
    /// Time at which the world heals.
    pub heal: Nanos,
    /// Node that has the first scheme alone.
    pub limited: Option<usize>,
    /// Node whose card has another packet size.
    pub other_packet_size: Option<usize>,
    /// Node whose incarnations go back at its restarts.
    pub clock_back: Option<usize>,
    /// Difference of the rates of the hosts' clocks from that of the network in thousandths.
    pub clock_spread: u64,
}

impl Plan {
    /// Number of hops between two nodes.
    #[must_use]
    pub const fn hops(&self, from: usize, to: usize) -> u64 {
        let count = match self.topology {
            Topology::Mesh => 1,
            Topology::Star => 2,
            Topology::Ring => {
                let way = from.abs_diff(to);
                let other = self.nodes - way;
                1 + if way < other { way } else { other }
            }
            Topology::Tree => {
                let (mut one, mut other, mut hops) = (from + 1, to + 1, 1);
                while one != other {
                    if one > other {
                        one /= 2;
                    } else {
                        other /= 2;
                    }
                    hops += 1;
                }
                hops
            }
        };
        count as u64
    }

    /// Payload bytes of a packet of node `number`.
    #[must_use]
    pub fn packet_size(&self, number: usize) -> u32 {
        let size = self.cards.packet_size;
        if self.other_packet_size != Some(number) {
            size
        } else if size > 512 {
            size / 2
        } else {
            size * 2
        }
    }

    /// Returns the reason why transfers between two nodes may fail.
    #[must_use]
    pub fn mismatch(&self, from: usize, to: usize) -> Option<Mismatch> {
        let is_one = |node: Option<usize>| node == Some(from) || node == Some(to);
        if from == to {
            None
        } else if is_one(self.other_packet_size) {
            Some(Mismatch::PacketSize)
        } else if is_one(self.clock_back) {
            Some(if self.clock_back == Some(from) { Mismatch::Sender } else { Mismatch::Receiver })
        } else {
            None
        }
    }

    /// Maximum time of a frame between two nodes of this plan, in the queues included.
    #[must_use]
    pub fn longest_way(&self) -> Nanos {
        let pairs = (0..self.nodes).flat_map(|from| (0..self.nodes).map(move |to| (from, to)));
        let hops = pairs.map(|(from, to)| self.hops(from, to)).max().unwrap_or(1);
        let conditions = &self.conditions;
        let queue = if conditions.slow == 0 { Nanos::ZERO } else { QUEUE };
        let order = if conditions.disorder > 1 { PATIENCE } else { Nanos::ZERO };
        let steps = [conditions.delay, queue, order];
        steps.into_iter().fold(Nanos::new(self.hop.get() * hops), Nanos::saturating_add)
    }

    /// Maximum time from a packet to its answer.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.longest_way().saturating_mul(2).saturating_add(Nanos::from_micros(10)).into()
    }

    /// Maximum time for which the data of all applications is in transmission: a round trip for each packet, if one at a time is in flight
    /// (docs/protocol.md 4.8).
    #[must_use]
    pub fn transmission(&self) -> Duration {
        let lengths: Vec<u64> = match &self.work {
            Work::Transfers => self.actions.iter().map(|action| action.item.length()).collect(),
            Work::Messages(messages) => messages.calls.iter().map(|call| call.item.length()).collect(),
            Work::Streams(streams) => streams.acts.iter().map(|act| act.item.length()).collect(),
        };
        // Requests, records, doorbells.
        let size = (0..self.nodes).map(|node| self.packet_size(node)).min().unwrap_or(1);
        let packets = |length: u64| length / u64::from(size) + 8;
        let packets: u64 = lengths.into_iter().map(packets).sum();
        self.round_trip() * u32::try_from(packets).unwrap_or(u32::MAX)
    }

    /// Time without an answer after which a transfer is given up: an endpoint waits for at least eight round trips.
    #[must_use]
    pub fn give_up(&self) -> Duration {
        self.cards.give_up.max(self.round_trip() * 8)
    }

    /// Registry timeout of all nodes: the least that the give-up time allows, and some time more.
    #[must_use]
    pub fn registry_timeout(&self) -> Duration {
        self.give_up() + Duration::from_millis(40)
    }

    /// Time after which a read is given up. A receiver keeps the entry of an abandoned transfer for its registry timeout, and may have no other.
    #[must_use]
    pub fn read_deadline(&self) -> Duration {
        self.registry_timeout() * 2 + self.give_up()
    }
}

/// Length of the range that other nodes may read, in bytes. It ends where the targets begin.
pub const READABLE_LENGTH: u64 = 0x4000;
/// First address of that range.
pub const READABLE: u64 = TARGETS - READABLE_LENGTH;
