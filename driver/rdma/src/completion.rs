//! Completion of a transfer, and the retransmission timeout, in the units of the API.

use std::time::Duration;

use fpga_firmware::{NodeId, TransferId};
use fpga_protocol::sender::{CommandCompletion, SendFailure, SendTicket, TimeoutPolicy};

/// Completion of a transfer: exactly one per accepted transfer. Times are on the clock of [`Endpoint::now`](super::Endpoint::now).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendCompletion {
    /// Ticket that [`Endpoint::send`](super::Endpoint::send) returned.
    pub ticket: SendTicket,
    /// Id on the wire; `None` if no packet of it was ever sent.
    pub transfer: Option<TransferId>,
    /// Receiving node.
    pub node: NodeId,
    /// Result of the transfer.
    pub result: Result<(), SendFailure>,
    /// Length in bytes.
    pub length: u64,
    /// Number of segments.
    pub segments: u32,
    /// Number of segments whose completion raised no event.
    pub silent_segments: u32,
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets retransmitted.
    pub retransmits: u64,
    /// Time of submission.
    pub started: Duration,
    /// Time at which its last segment was acknowledged, or at which it was given up.
    pub finished: Duration,
}

impl SendCompletion {
    pub(super) fn of(done: CommandCompletion) -> Self {
        let CommandCompletion { ticket, transfer, node, result, length, segments, silent_segments, .. } =
            done;
        Self {
            ticket,
            transfer,
            node,
            result,
            length,
            segments,
            silent_segments,
            packets: done.packets,
            retransmits: done.retransmits,
            started: done.started.into(),
            finished: done.finished.into(),
        }
    }
}

/// Time without an acknowledgement after which a packet is retransmitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendTimeout {
    /// Derived per destination from measured round trips (RFC 6298), doubled with each unanswered try of the packet.
    Adaptive {
        /// Timeout before the first sample. Default 1 ms.
        initial: Duration,
        /// Minimum. Default 100 us.
        min: Duration,
        /// Maximum, also when doubled. Default 100 ms.
        max: Duration,
    },
    /// Constant timeout with a limit of tries.
    Fixed {
        /// Timeout.
        timeout: Duration,
        /// Consecutive unanswered tries of one packet after which its transfer is given up; 0 for no limit. A "busy" answer resets the
        /// count.
        max_tries: u8,
    },
}

impl Default for SendTimeout {
    /// Adaptive, but never shorter than a host that polls occasionally needs to see an answer, and than a full pipe needs to carry it.
    fn default() -> Self {
        Self::Adaptive {
            initial: Duration::from_millis(1),
            min: Duration::from_micros(100),
            max: Duration::from_millis(100),
        }
    }
}

impl SendTimeout {
    /// The same in the units of the protocol.
    pub(super) fn policy(self) -> TimeoutPolicy {
        match self {
            Self::Adaptive { initial, min, max } => {
                TimeoutPolicy::Adaptive { initial: initial.into(), least: min.into(), most: max.into() }
            }
            Self::Fixed { timeout, max_tries } => TimeoutPolicy::Fixed { timeout: timeout.into(), max_tries },
        }
    }
}
