//! What a sending side shows of itself.

use fpga_firmware::generated::Scheme;
use fpga_firmware::ids::{MessageId, NodeId, TransferId};
use fpga_firmware::wire::Announcement;

use crate::sender::Ticket;
use crate::time::Nanos;

/// Running counts of a sending side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderCounters {
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Requests for a context, repeated ones included.
    pub requests: u64,
    /// Waits for an answer that were in vain: to a request, to a packet, or to all of a message, as the scheme has its timers.
    pub timeouts: u64,
    /// Answers "busy".
    pub busy: u64,
    /// Answers "receiver not ready".
    pub not_ready: u64,
    /// Answers to no message that is under way.
    pub stale: u64,
    /// Messages that ended well.
    pub messages: u64,
    /// Transfers that ended well, and others.
    pub completed: u64,
    /// Transfers that failed.
    pub failed: u64,
}

/// A message on its way, for a display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextView {
    /// By which rules it is sent.
    pub scheme: Scheme,
    /// The receiver was asked for a context and has not answered.
    pub asking: bool,
    /// The receiver had no room.
    pub held: bool,
    /// The receiver.
    pub node: NodeId,
    /// The message.
    pub message: MessageId,
    /// The receiver's context, if it is known.
    pub peer_limit: Option<u32>,
    /// The transfer that it belongs to, as `submit` named it.
    pub ticket: Ticket,
    /// What was announced of it.
    pub announcement: Announcement,
    /// Its packets.
    pub packets: u32,
    /// The first that was never sent.
    pub fresh: u32,
    /// The first that is not known to have arrived; 0 where the scheme does not tell.
    pub base: u32,
    /// Packets sent, repeated ones included.
    pub sent: u64,
    /// Requests, or beginnings, in a row.
    pub tries: u8,
    /// Time since the receiver was last heard.
    pub age: Nanos,
}

/// How far a transfer is of which one more message is complete, and others are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The transfer, as `submit` named it.
    pub ticket: Ticket,
    /// As the wire names it.
    pub transfer: TransferId,
    /// The receiver.
    pub node: NodeId,
    /// Messages that are complete.
    pub messages: u32,
    /// Packets of these.
    pub acknowledged: u64,
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets sent again.
    pub retransmits: u64,
}
