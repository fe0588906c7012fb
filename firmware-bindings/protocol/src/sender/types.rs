//! What goes into a sender and what comes out.

use fpga_firmware::event::NackReason;
use fpga_firmware::generated::Scheme;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, SegmentIndex, TransferId};
use fpga_registers::CardAddr;

use crate::time::Nanos;

/// Names one submitted transfer at its sender: slot and generation, so that a stale ticket never names a later one.
///
/// Not the wire's [`TransferId`]: that one is numbered per destination, when the first packet leaves, so that the ids a
/// receiver sees from one sender follow each other without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Ticket {
    /// Slot in the sender's transfer table, below `SenderConfig::transfers`: a caller can keep its own per-transfer
    /// data in an array of that size.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// How often the slot had been used before.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

/// Who tells the receiving application that a transfer has arrived [E1-11].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Notify {
    /// The receiver, by its own completion: saves a round trip.
    #[default]
    Receiver,
    /// The sender, by one unacknowledged packet when all segments are acknowledged.
    Sender,
    /// Nobody. The transfer needs nothing of the receiving host.
    None,
}

/// A transfer to be made: `length` bytes from the local `source` to `destination` at `node`.
///
/// The source memory must not change until the completion: a resend reads it again [E0-20].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// First byte in the local card's memory.
    pub source: CardAddr,
    /// The receiving node.
    pub node: NodeId,
    /// First byte in the receiving card's memory.
    pub destination: CardAddr,
    /// Bytes; zero completes at once and sends nothing.
    pub length: u64,
    /// Key of the receiver's memory window.
    pub key: u64,
    /// Who notifies the receiving application.
    pub notify: Notify,
    /// Give up at this time even if there is progress.
    pub deadline: Option<Nanos>,
    /// Goes before transfers of a lower priority that wait in the same class, regular or big; 0 is the lowest and the usual.
    /// Strict: as long as higher ones wait, lower ones do too. A transfer that has begun is finished first.
    pub priority: u8,
}

/// A command that was not taken; it is `Copy`, so nothing is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Back-pressure: poll completions, then submit again.
    #[error("all {capacity} transfer slots are in use: poll completions, then submit again")]
    Full {
        /// Slots of the sender.
        capacity: u32,
    },
    /// Back-pressure: too many different destinations have transfers.
    #[error(
        "{capacity} destinations have transfers already: wait for one to finish before using node {node}"
    )]
    Destinations {
        /// Destinations that the sender can hold.
        capacity: u32,
        /// The one that did not fit.
        node: NodeId,
    },
    /// The source or the destination ends beyond the address space.
    #[error(
        "{length} bytes from {start} leave the 64-bit address space: check address and length of source and destination"
    )]
    Address {
        /// Start of the range at fault.
        start: CardAddr,
        /// Bytes asked for.
        length: u64,
    },
    /// More than 2^32 - 1 segments.
    #[error("{length} bytes are more segments than a transfer can number: split it")]
    TooLong {
        /// Bytes asked for.
        length: u64,
    },
    /// Only the registry scheme has senders' notices.
    #[error(
        "a notice by the sender: in this scheme the receiver tells its own application; use Notify::Receiver"
    )]
    Notify,
    /// The transfer asks for a scheme that the sender was not made for.
    #[error("the scheme {scheme}: this sender does not go by it; name one that it was set up with, or none")]
    Scheme {
        /// The scheme asked for.
        scheme: Scheme,
    },
    /// [`NodeId::ANY`] is no node.
    #[error("node {node} cannot be a destination: name one node")]
    Node {
        /// The node asked for.
        node: NodeId,
    },
}

/// The op numbers of one [`Transmit`], in packet order.
#[derive(Clone, Copy)]
pub struct Ops {
    numbers: [OpNumber; 256],
    len: u16,
}

impl Ops {
    pub(crate) const NONE: Self = Self { numbers: [OpNumber::new(0); 256], len: 0 };

    pub(super) fn push(&mut self, number: OpNumber) {
        if let Some(place) = self.numbers.get_mut(usize::from(self.len)) {
            *place = number;
            self.len += 1;
        }
    }

    /// The numbers.
    #[must_use]
    pub fn as_slice(&self) -> &[OpNumber] {
        self.numbers.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// How many packets: at most 256.
    #[must_use]
    pub const fn len(&self) -> u16 {
        self.len
    }

    /// Whether there are none, as for an arrival notice.
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

/// What a transmit window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransmitKind {
    /// Packets of one segment.
    Data,
    /// The notice "data arrived at ..." of a transfer with [`Notify::Sender`]; no payload and no op numbers.
    Arrival,
    /// A whole transfer from `source`, which the interface makes by itself; no payload and no op numbers.
    Command {
        /// Comes back in the events about it.
        number: u32,
        /// Goes before waiting ones of a lower priority.
        priority: u8,
        /// After this it is given up whatever the progress; 0: never.
        patience: Nanos,
        /// By which rules; `None`: the interface's default.
        scheme: Option<Scheme>,
    },
}

/// One transmit window's worth of work: consecutive packets of one segment. A retransmission is one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// What for.
    pub kind: TransmitKind,
    /// The transfer, as `submit` named it.
    pub ticket: Ticket,
    /// The transfer, as the wire names it.
    pub transfer: TransferId,
    /// The oldest transfer to this node that is not complete.
    pub oldest_live: TransferId,
    /// The receiving node.
    pub node: NodeId,
    /// Key of the receiver's memory window.
    pub key: u64,
    /// Local card address of the first packet's payload.
    pub source: CardAddr,
    /// Bytes of payload of all packets together.
    pub payload_length: u32,
    /// Card address of the whole *segment* at the receiver.
    pub segment_base: CardAddr,
    /// Index of the segment.
    pub segment: SegmentIndex,
    /// Segments of the transfer.
    pub segment_count: u32,
    /// Bytes of the whole segment.
    pub segment_length: u32,
    /// Packets of the whole segment.
    pub segment_packets: u16,
    /// Index within the segment of the first packet here.
    pub first_packet: u16,
    /// One op number per packet here.
    pub ops: Ops,
    /// Payload bytes of a full packet, as a power of two.
    pub packet_size_log2: u8,
    /// How often these packets have been sent, this time included.
    pub tries: u8,
    /// The segment's completion posts no local notice: every segment but a transfer's last.
    pub silent: bool,
    /// Who notifies the receiving application.
    pub notify: Notify,
    /// Card address of the transfer at the receiver.
    pub transfer_base: CardAddr,
    /// Bytes of the transfer.
    pub transfer_length: u64,
}

/// An answer to one packet, from an acknowledgement packet or event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The node that answers.
    pub node: NodeId,
    /// The incarnation that the answered packet carried.
    pub incarnation: Incarnation,
    /// The answered packet.
    pub op: OpNumber,
    /// Its transfer and segment: an op number may name another packet by then, where the answer left late.
    pub transfer: TransferId,
    /// See `transfer`.
    pub segment: SegmentIndex,
    /// The try that is answered.
    pub tries: u8,
    /// The life of the node that answers; 0 if it does not tell.
    pub peer_incarnation: Incarnation,
}

/// The end of a transfer: exactly one per accepted command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What `submit` returned.
    pub ticket: Ticket,
    /// Its id on the wire; `None` if no packet of it was ever sent.
    pub transfer: Option<TransferId>,
    /// The receiving node.
    pub node: NodeId,
    /// How it ended.
    pub result: Result<(), TransferError>,
    /// Bytes asked for.
    pub length: u64,
    /// Segments it was cut into.
    pub segments: u32,
    /// Those among them that carried the silent flag.
    pub silent_segments: u32,
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// When it was submitted.
    pub started: Nanos,
    /// When its last segment was acknowledged, or when it was given up.
    pub finished: Nanos,
}

impl Completion {
    /// Of a command that an interface does not take: nothing of it was sent.
    #[must_use]
    pub const fn refused(command: &Command, now: Nanos, error: TransferError) -> Self {
        Self {
            ticket: Ticket { slot: 0, generation: 0 },
            transfer: None,
            node: command.node,
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

/// Why a transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// Nothing came back for too long, or for too many tries of one packet.
    #[error(
        "node {node} does not answer: packet for {address} sent {tries} times, {acknowledged} packets of the transfer \
         acknowledged; check the node and the path (or, for 0 times, what keeps the sender busy), then submit again"
    )]
    Unanswered {
        /// The receiving node.
        node: NodeId,
        /// Where the packet should have gone.
        address: CardAddr,
        /// Packets of the transfer that were acknowledged.
        acknowledged: u64,
        /// Tries of the packet that was given up; 0 if the transfer got no op number for so long that none was in flight.
        tries: u8,
    },
    /// The receiver refuses for good.
    #[error(
        "node {node} refuses the packet for {address} ({reason}) after {tries} tries, {acknowledged} packets of the \
         transfer acknowledged; check address, length and key"
    )]
    Refused {
        /// The receiving node.
        node: NodeId,
        /// Where the packet should have gone.
        address: CardAddr,
        /// Packets of the transfer that were acknowledged.
        acknowledged: u64,
        /// Tries of the packet that was refused.
        tries: u8,
        /// The receiver's reason.
        reason: NackReason,
    },
    /// The receiving host had no room in its event ring for the transfer's notification, until the transfer's deadline or, without one,
    /// for the time to give up.
    #[error(
        "node {node} is not ready for the notification of the transfer to {address}: the event ring of its host is full; \
         {acknowledged} packets were acknowledged, the last one was refused {tries} times; poll the endpoint of node {node}, open it \
         with a larger event ring (EndpointOptions::event_entries), or send without a notification (Notify::None)"
    )]
    ReceiverNotReady {
        /// The receiving node.
        node: NodeId,
        /// Where the transfer goes.
        address: CardAddr,
        /// Packets of the transfer that were acknowledged.
        acknowledged: u64,
        /// Tries of the packet that was refused; 0 if the transfer waited for others that the node is not ready for.
        tries: u8,
    },
    /// The receiver knew the transfer once and does not any more, or may not: this host did not look at answers for longer than the
    /// time to give up, and the segment's first packet, or the next segment, could have begun anew what was complete.
    #[error(
        "node {node} has forgotten the transfer to {address}, or may have: it was reset, or heard nothing for its registry \
         timeout, for instance because this host stood still; {acknowledged} packets were acknowledged, the last one sent \
         {tries} times; submit the transfer again"
    )]
    Forgotten {
        /// The receiving node.
        node: NodeId,
        /// Where the packet should have gone.
        address: CardAddr,
        /// Packets of the transfer that were acknowledged.
        acknowledged: u64,
        /// Tries of the packet that was refused, or that was not sent again; 0 if none was in flight.
        tries: u8,
    },
    /// The receiver goes by another scheme.
    #[error(
        "node {node} does not receive by this scheme: nothing was written to {address}; open the endpoints of both cards with \
         the same one"
    )]
    Scheme {
        /// The receiving node.
        node: NodeId,
        /// Where the packet should have gone.
        address: CardAddr,
    },
    /// The card's interface, which was to make the transfer by itself, does not take it.
    #[error(
        "the card's interface does not take the transfer to {address} at node {node}: its source is not in card memory, or it \
         has less room than it says; check the source, and the card's build"
    )]
    NotTaken {
        /// The receiving node.
        node: NodeId,
        /// Where the transfer should have gone.
        address: CardAddr,
    },
    /// The command's own deadline passed.
    #[error(
        "the transfer to {address} at node {node} missed its deadline: {acknowledged} packets were acknowledged, the one sent \
         most often was sent {tries} times; give it more time, a higher priority or less to wait for, and submit it again"
    )]
    Deadline {
        /// The receiving node.
        node: NodeId,
        /// Where the transfer should have gone.
        address: CardAddr,
        /// Packets of the transfer that were acknowledged.
        acknowledged: u64,
        /// Most tries of a packet that was still unanswered; 0 if none was.
        tries: u8,
    },
    /// The caller withdrew it.
    #[error(
        "the transfer to {address} at node {node} was cancelled, {acknowledged} packets acknowledged; a part of it may be in \
         place: submit it again to have it whole"
    )]
    Cancelled {
        /// The receiving node.
        node: NodeId,
        /// Where the transfer should have gone.
        address: CardAddr,
        /// Packets of the transfer that were acknowledged.
        acknowledged: u64,
    },
}

impl SenderCounters {
    /// The sum of what two senders have counted.
    #[must_use]
    pub const fn merged(&self, other: &Self) -> Self {
        macro_rules! sum {
            ($($field:ident),+) => {
                Self { $($field: self.$field.wrapping_add(other.$field)),+ }
            };
        }
        sum!(
            packets,
            retransmits,
            acknowledged,
            stale,
            busy,
            not_ready,
            refused,
            timeouts,
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
    /// Packets sent again.
    pub retransmits: u64,
    /// Acknowledgements that released an entry.
    pub acknowledged: u64,
    /// Answers to nothing: another incarnation or node, an op number released before or never given out.
    pub stale: u64,
    /// Negative answers "busy" and "escape full".
    pub busy: u64,
    /// Negative answers "receiver not ready": the receiving host's event ring was full.
    pub not_ready: u64,
    /// Negative answers that ended a transfer.
    pub refused: u64,
    /// Deadlines that passed without an answer.
    pub timeouts: u64,
    /// Deadlines that passed for packets that the receiver cannot take before their segment's first one, which was sent again
    /// instead.
    pub deferred: u64,
    /// Packets taken back because a transfer that had begun needed their op numbers; they were sent again under others.
    pub yielded: u64,
    /// Segments acknowledged.
    pub segments: u64,
    /// Transfers that ended well.
    pub completed: u64,
    /// Transfers that did not.
    pub failed: u64,
}
