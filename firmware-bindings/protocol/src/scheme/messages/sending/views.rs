//! Counters and views of a sender.

use fpga_firmware::generated::Scheme;
use fpga_firmware::ids::{MessageId, NodeId, TransferId};
use fpga_firmware::wire::Announcement;

use crate::sender::SendTicket;
use crate::time::Nanos;

/// Running counts of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderCounters {
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets retransmitted.
    pub retransmits: u64,
    /// Requests for a context, repeated ones included.
    pub requests: u64,
    /// Waits for an answer that timed out: to a request, to a packet, or to a whole message, depending on the timers of
    /// the scheme.
    pub timeouts: u64,
    /// "Busy" answers.
    pub busy: u64,
    /// "Receiver not ready" answers.
    pub not_ready: u64,
    /// Stale answers: their message is not in progress.
    pub stale: u64,
    /// Messages completed.
    pub messages: u64,
    /// Transfers that succeeded.
    pub completed: u64,
    /// Transfers that failed.
    pub failed: u64,
}

/// View of a message in progress, for a display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextView {
    /// Scheme of the message.
    pub scheme: Scheme,
    /// Whether a context was requested from the receiver, without an answer so far.
    pub asking: bool,
    /// Whether the receiver refused the message because it had no free context.
    pub held: bool,
    /// Receiving node.
    pub node: NodeId,
    /// Message id.
    pub message: MessageId,
    /// Context of the receiver, if it is known.
    pub peer_limit: Option<u32>,
    /// Ticket of its transfer.
    pub ticket: SendTicket,
    /// Announcement of the message.
    pub announcement: Announcement,
    /// Number of packets.
    pub packets: u32,
    /// First packet that was never sent.
    pub fresh: u32,
    /// First packet that is not known to be received; 0 where the scheme does not report it.
    pub base: u32,
    /// Packets sent, retransmissions included.
    pub sent: u64,
    /// Consecutive requests, or starts of the message.
    pub tries: u8,
    /// Time since the last answer of the receiver.
    pub age: Nanos,
}

/// Progress of a transfer of which one more message is complete, and others are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Ticket of the transfer.
    pub ticket: SendTicket,
    /// Id of the transfer on the wire.
    pub transfer: TransferId,
    /// Receiving node.
    pub node: NodeId,
    /// Number of complete messages.
    pub messages: u32,
    /// Number of packets of the complete messages.
    pub acknowledged: u64,
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets retransmitted.
    pub retransmits: u64,
}
