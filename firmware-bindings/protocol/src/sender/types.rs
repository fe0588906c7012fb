//! Commands, answers and completions of a sender.

use alloc::borrow::Cow;

use fpga_firmware::event::NackReason;
use fpga_firmware::generated::Scheme;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, SegmentIndex, TransferId};
use fpga_firmware::wire::{AnswerNotes, LinkFeedback};
use fpga_registers::{CardAddr, quantity};

use crate::time::Nanos;

/// Handle of one submitted transfer at its sender: slot and generation, so that a stale ticket never names a later
/// transfer.
///
/// It differs from the wire's [`TransferId`], which is assigned per destination when the first packet is sent, so that
/// the ids that a receiver gets from one sender have no gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SendTicket {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl SendTicket {
    /// Returns the slot in the sender's transfer table, below `SenderConfig::transfers`. A caller can keep its own data
    /// per transfer in an array of that size.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// Returns the number of earlier uses of the slot.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

/// Node that notifies the receiving application of a transfer's arrival [E1-11].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Notify {
    /// The receiver, on completion: saves a round trip.
    #[default]
    Receiver,
    /// The sender, by one unacknowledged packet when all segments are acknowledged.
    Sender,
    /// No notification. The transfer does not depend on the receiving host.
    None,
}

/// Transfer request: `length` bytes from the local `source` to `destination` at `node`.
///
/// The source memory must not change until the completion: a retransmission reads it again [E0-20].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Address of the first byte in the local card's memory.
    pub source: CardAddr,
    /// Receiving node.
    pub node: NodeId,
    /// Address of the first byte in the receiving card's memory.
    pub destination: CardAddr,
    /// Length in bytes; a transfer of length zero completes at once and sends nothing.
    pub length: u64,
    /// Key of the receiver's memory window.
    pub key: u64,
    /// Notification of the receiving application.
    pub notify: Notify,
    /// Time at which the transfer is given up even with progress.
    pub deadline: Option<Nanos>,
    /// Priority among transfers that wait in the same class, regular or big; 0 is the lowest and the default. It is
    /// strict: lower priorities wait while higher ones are queued. A transfer in progress is finished first.
    pub priority: u8,
}

/// Command that was not accepted; it is `Copy`, so nothing is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// Back-pressure: poll completions, then submit again.
    #[error("all {capacity} transfer slots are in use: poll completions, then submit again")]
    Full {
        /// Number of slots of the sender.
        capacity: u32,
    },
    /// Back-pressure: too many different destinations have transfers.
    #[error(
        "all {capacity} destination slots have transfers: wait for one to finish before using node {node}"
    )]
    Destinations {
        /// Maximum number of destinations.
        capacity: u32,
        /// Destination that exceeds it.
        node: NodeId,
    },
    /// The source or the destination ends beyond the address space.
    #[error(
        "the range of {length} from {start} exceeds the 64-bit address space: check address and length of source and destination",
        length = quantity(*length, "byte"),
    )]
    Address {
        /// Start of the invalid range.
        start: CardAddr,
        /// Length given, in bytes.
        length: u64,
    },
    /// More than 2^32 - 1 segments.
    #[error(
        "a transfer of {length} needs more segments than a transfer can number: split it",
        length = quantity(*length, "byte"),
    )]
    TooLong {
        /// Length given, in bytes.
        length: u64,
    },
    /// Only the registry scheme supports notification by the sender.
    #[error(
        "a notification by the sender is not possible: in this scheme the receiver notifies its own application"
    )]
    Notify,
    /// The transfer asks for a scheme that the sender does not have.
    #[error("this sender does not run the scheme {scheme}: name a scheme that it was set up with, or none")]
    Scheme {
        /// Scheme given.
        scheme: Scheme,
    },
    /// [`NodeId::ANY`] is not a destination.
    #[error("node {node} is not a valid destination: name one node")]
    Node {
        /// Node given.
        node: NodeId,
    },
}

/// Op numbers of one [`Transmit`], in packet order.
#[derive(Clone, Copy)]
pub struct Ops {
    numbers: [OpNumber; 256],
    paths: [u8; 256],
    len: u16,
}

impl Ops {
    pub(crate) const NONE: Self = Self { numbers: [OpNumber::new(0); 256], paths: [0; 256], len: 0 };

    pub(super) fn push(&mut self, number: OpNumber) {
        if let Some(place) = self.numbers.get_mut(usize::from(self.len)) {
            *place = number;
            self.len += 1;
        }
    }

    /// Returns the numbers as a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[OpNumber] {
        self.numbers.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Returns the path identifier of packet `number` of the window.
    #[must_use]
    pub fn path(&self, number: u16) -> u8 {
        self.paths().get(usize::from(number)).copied().unwrap_or(0)
    }

    /// Returns the path identifiers of the packets as a slice.
    #[must_use]
    pub fn paths(&self) -> &[u8] {
        self.paths.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Whether the packets have different path identifiers.
    #[must_use]
    pub fn differ_in_path(&self) -> bool {
        self.paths().iter().any(|path| *path != self.path(0))
    }

    pub(super) fn set_path(&mut self, number: usize, path: u8) {
        if let Some(kept) = self.paths.get_mut(number) {
            *kept = path;
        }
    }

    /// Returns the number of packets: at most 256.
    #[must_use]
    pub const fn len(&self) -> u16 {
        self.len
    }

    /// Whether there are no packets, as for an arrival notice.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl core::fmt::Debug for Ops {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl PartialEq for Ops {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Ops {}

/// Content of a transmit window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransmitKind {
    /// Packets of one segment.
    Data,
    /// Arrival notice of a transfer with [`Notify::Sender`]; no payload and no op numbers.
    Arrival,
    /// One link packet to the node: an inquiry or a report; no transfer, no payload and no op numbers.
    Link(LinkFeedback),
    /// NI command: a whole transfer from `source`, which the NI sends by itself; no payload and no op numbers.
    Command {
        /// Number that the events about it carry.
        number: u32,
        /// Priority over waiting commands with a lower value.
        priority: u8,
        /// Time after which it is given up, even with progress; 0: never.
        patience: Nanos,
        /// Scheme; `None`: the NI's default.
        scheme: Option<Scheme>,
    },
}

/// Work for one transmit window: consecutive packets of one segment. A retransmission is one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Content of the window.
    pub kind: TransmitKind,
    /// Ticket of the transfer.
    pub ticket: SendTicket,
    /// Id of the transfer on the wire.
    pub transfer: TransferId,
    /// Oldest transfer to this node that is not complete.
    pub oldest_live: TransferId,
    /// Receiving node.
    pub node: NodeId,
    /// Key of the receiver's memory window.
    pub key: u64,
    /// Local card address of the first packet's payload.
    pub source: CardAddr,
    /// Payload bytes of all packets together.
    pub payload_length: u32,
    /// Card address of the whole *segment* at the receiver.
    pub segment_base: CardAddr,
    /// Index of the segment.
    pub segment: SegmentIndex,
    /// Number of segments of the transfer.
    pub segment_count: u32,
    /// Length of the whole segment in bytes.
    pub segment_length: u32,
    /// Number of packets of the whole segment.
    pub segment_packets: u16,
    /// Index of the first packet within the segment.
    pub first_packet: u16,
    /// One op number per packet of this window.
    pub ops: Ops,
    /// Payload bytes of a full packet, as a power of two.
    pub packet_size_log2: u8,
    /// Number of times that these packets have been sent, including this time.
    pub tries: u8,
    /// Path identifier of the packet of a window without op numbers: arrival notice, link packet, or command. Of data, that of the first
    /// packet; each packet has its own one ([`Ops::path`]).
    pub path: u8,
    /// Whether the segment's completion raises no local event: every segment but a transfer's last.
    pub silent: bool,
    /// Notification of the receiving application.
    pub notify: Notify,
    /// Card address of the transfer at the receiver.
    pub transfer_base: CardAddr,
    /// Length of the transfer in bytes.
    pub transfer_length: u64,
}

/// Answer to one packet, from an acknowledgement packet or event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Answering node.
    pub node: NodeId,
    /// Incarnation that the answered packet carried.
    pub incarnation: Incarnation,
    /// Op number of the answered packet.
    pub op: OpNumber,
    /// Transfer of the answered packet: if the answer was sent late, its op number may name another packet by now.
    pub transfer: TransferId,
    /// Segment of the answered packet; see `transfer`.
    pub segment: SegmentIndex,
    /// Try count of the answered packet.
    pub tries: u8,
    /// Incarnation of the answering node; 0 if not given.
    pub peer_incarnation: Incarnation,
    /// Congestion signals that came with the answer.
    pub notes: AnswerNotes,
}

/// Completion of a transfer: exactly one per accepted command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandCompletion {
    /// Ticket that `submit` returned.
    pub ticket: SendTicket,
    /// Id on the wire; `None` if no packet of it was ever sent.
    pub transfer: Option<TransferId>,
    /// Receiving node.
    pub node: NodeId,
    /// Address from which it was sent.
    pub source: CardAddr,
    /// Result of the transfer.
    pub result: Result<(), SendFailure>,
    /// Length in bytes.
    pub length: u64,
    /// Number of segments.
    pub segments: u32,
    /// Number of segments with the silent flag.
    pub silent_segments: u32,
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets retransmitted.
    pub retransmits: u64,
    /// Time of submission.
    pub started: Nanos,
    /// Time at which its last segment was acknowledged, or at which it was given up.
    pub finished: Nanos,
}

impl CommandCompletion {
    /// Creates the completion of a command that an NI does not accept: no packet of it was sent.
    #[must_use]
    pub const fn refused(command: &Command, now: Nanos, error: SendFailure) -> Self {
        Self {
            ticket: SendTicket { slot: 0, generation: 0 },
            transfer: None,
            node: command.node,
            source: command.source,
            result: Err(error),
            length: command.length,
            segments: 0,
            silent_segments: 0,
            packets: 0,
            retransmits: 0,
            started: now,
            finished: now,
        }
    }
}

/// Reason for which a transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendFailure {
    /// No answer within the give-up time, or within the maximum number of tries of one packet.
    #[error(
        "node {node} does not answer: packet for {address} sent {tries}, {acknowledged} of the transfer acknowledged",
         acknowledged = quantity(*acknowledged, "packet"),
         tries = quantity(*tries, "time"),
     )]
    Unanswered {
        /// Receiving node.
        node: NodeId,
        /// Destination address of the packet.
        address: CardAddr,
        /// Packets of the transfer that were acknowledged.
        acknowledged: u64,
        /// Tries of the packet that was given up; 0 if the transfer got no op number for the give-up time, so that no
        /// packet was in flight.
        tries: u8,
    },
    /// The receiver refuses permanently.
    #[error(
        "node {node} refuses the packet for {address} ({reason}) after {tries}, {acknowledged} of the transfer acknowledged",
         acknowledged = quantity(*acknowledged, "packet"),
         tries = quantity(*tries, "try"),
     )]
    Refused {
        /// Receiving node.
        node: NodeId,
        /// Destination address of the packet.
        address: CardAddr,
        /// Packets of the transfer that were acknowledged.
        acknowledged: u64,
        /// Tries of the packet that was refused.
        tries: u8,
        /// The receiver's reason.
        reason: NackReason,
    },
    /// The receiving host had no event ring slot for the transfer's notification, until the transfer's deadline or,
    /// without one, for the give-up time.
    #[error(
        "node {node} is not ready for the notification of the transfer to {address}: {acknowledged} acknowledged, the last one refused {tries}",
         acknowledged = quantity(*acknowledged, "packet"),
         tries = quantity(*tries, "time"),
     )]
    ReceiverNotReady {
        /// Receiving node.
        node: NodeId,
        /// Destination address of the transfer.
        address: CardAddr,
        /// Packets of the transfer that were acknowledged.
        acknowledged: u64,
        /// Tries of the packet that was refused; 0 if the transfer waited for others that the node is not ready for.
        tries: u8,
    },
    /// The receiver has forgotten the transfer, or may have. This host did not process answers for longer than the
    /// give-up time, so that the segment's first packet, or the next segment, could have registered again a transfer
    /// that was complete.
    #[error(
        "node {node} may no longer know the transfer to {address} (reset, or silence): {acknowledged} acknowledged, the last one sent {tries}",
         acknowledged = quantity(*acknowledged, "packet"),
         tries = quantity(*tries, "time"),
     )]
    Forgotten {
        /// Receiving node.
        node: NodeId,
        /// Destination address of the packet.
        address: CardAddr,
        /// Packets of the transfer that were acknowledged.
        acknowledged: u64,
        /// Tries of the packet that was refused, or that was not retransmitted; 0 if no packet was in flight.
        tries: u8,
    },
    /// The receiver runs another scheme.
    #[error("node {node} does not receive with this scheme: nothing was written to {address}")]
    Scheme {
        /// Receiving node.
        node: NodeId,
        /// Destination address of the packet.
        address: CardAddr,
    },
    /// The receiver knows a later incarnation of this node, and refuses all packets of this one: the clock of this host
    /// was set back and its stored incarnation was lost, or another host uses the same node id.
    #[error(
        "node {node} refuses the transfer to {address}: it knows incarnation {newest} of this node, which is later than the current one"
    )]
    Superseded {
        /// Receiving node.
        node: NodeId,
        /// Destination address of the packet.
        address: CardAddr,
        /// Newest incarnation of this node that the receiver knows.
        newest: Incarnation,
    },
    /// The NI that was to send the transfer by itself refuses the command.
    #[error("the card's interface does not accept the transfer to {address} at node {node}")]
    NotTaken {
        /// Receiving node.
        node: NodeId,
        /// Destination address of the transfer.
        address: CardAddr,
    },
    /// The command's own deadline passed.
    #[error(
        "the transfer to {address} at node {node} missed its deadline: {acknowledged} acknowledged, the most repeated one was sent {tries}",
         acknowledged = quantity(*acknowledged, "packet"),
         tries = quantity(*tries, "time"),
     )]
    Deadline {
        /// Receiving node.
        node: NodeId,
        /// Destination address of the transfer.
        address: CardAddr,
        /// Packets of the transfer that were acknowledged.
        acknowledged: u64,
        /// Maximum number of tries of an unanswered packet; 0 without one.
        tries: u8,
    },
    /// The caller cancelled the transfer.
    #[error(
        "the transfer to {address} at node {node} was cancelled: {acknowledged} acknowledged, and a part of it may be written", acknowledged = quantity(*acknowledged, "packet"))]
    Cancelled {
        /// Receiving node.
        node: NodeId,
        /// Destination address of the transfer.
        address: CardAddr,
        /// Packets of the transfer that were acknowledged.
        acknowledged: u64,
    },
}

impl SendFailure {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub const fn help(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Unanswered { .. } => {
                "check the node and the path (for 0 times, the load of the sender), then submit again"
            }
            Self::Refused { .. } => "check address, length and key",
            Self::ReceiverNotReady { .. } => {
                "poll the endpoint of that node, open it with a larger event ring, or send without a notification"
            }
            Self::Forgotten { .. } => "submit the transfer again",
            Self::Scheme { .. } => "open the endpoints of both cards with the same scheme",
            Self::Superseded { .. } => {
                "open the endpoint again without a stated incarnation, or with a later one; check that no other node has this node id"
            }
            Self::NotTaken { .. } => {
                "check that the source is in card memory, and that the card's build has the slots that it reports"
            }
            Self::Deadline { .. } => {
                "give it a later deadline or a higher priority, or reduce the load, and submit it again"
            }
            Self::Cancelled { .. } => "submit it again to write all of it",
        }))
    }
}

impl SenderCounters {
    /// Returns the sums of the counters of two senders, and the maximum of their packets in flight.
    #[must_use]
    pub const fn merged(&self, other: &Self) -> Self {
        let most = [self.most_in_flight, other.most_in_flight];
        macro_rules! sum {
            ($($field:ident),+) => {
                Self {
                    most_in_flight: if most[0] > most[1] { most[0] } else { most[1] },
                    $($field: self.$field.wrapping_add(other.$field)),+
                }
            };
        }
        sum!(
            packets,
            retransmits,
            acknowledged,
            stale,
            busy,
            not_ready,
            trimmed,
            refused,
            timeouts,
            overtaken,
            probes,
            deferred,
            yielded,
            segments,
            completed,
            failed
        )
    }
}

/// Running counts of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderCounters {
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets retransmitted.
    pub retransmits: u64,
    /// Acknowledgements that released an entry.
    pub acknowledged: u64,
    /// Stale answers: for another incarnation or node, or an op number that is released or was never allocated.
    pub stale: u64,
    /// Negative answers "busy" and "escape full".
    pub busy: u64,
    /// Negative answers "receiver not ready": the receiving host's event ring was full.
    pub not_ready: u64,
    /// Negative answers about packets whose payload a switch had cut off.
    pub trimmed: u64,
    /// Negative answers that ended a transfer.
    pub refused: u64,
    /// Deadlines that passed without an answer.
    pub timeouts: u64,
    /// Packets retransmitted because a packet sent after them was acknowledged.
    pub overtaken: u64,
    /// Packets retransmitted as probes, without an answer for a while.
    pub probes: u64,
    /// Deadlines that passed for packets that the receiver cannot process before their segment's first one, which was
    /// retransmitted instead.
    pub deferred: u64,
    /// Packets withdrawn because a transfer in progress needed their op numbers; they were retransmitted under other
    /// numbers.
    pub yielded: u64,
    /// Largest number of packets in flight to one destination. If it reaches `SenderConfig::packets_per_destination`, the op
    /// table limits the rate.
    pub most_in_flight: u64,
    /// Segments acknowledged.
    pub segments: u64,
    /// Transfers that succeeded.
    pub completed: u64,
    /// Transfers that failed.
    pub failed: u64,
}
