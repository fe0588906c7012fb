//! Parts of a subscriber's state.

use std::time::Duration;

use std::collections::VecDeque;

use fpga_driver::DmaBuffer;
use fpga_protocol::sender::SendFailure;
use fpga_rdma::{RemoteRegion, SendTicket};

use super::fetch::Fetch;
use super::frame::{ReceivedFrame, ReturnQueue};
use crate::blocks::StatusBlock;
use crate::error::RemoteError;
use crate::publisher::ControlBlock;
use crate::retries::RetryBackoff;

/// Frames in flight from card memory to the reader.
#[derive(Debug)]
pub(super) struct FrameFetching {
    /// Host memory by slot; `None` while the channel or a reader has it.
    pub(super) buffers: Box<[Option<DmaBuffer>]>,
    /// Slots whose frames the reader has dropped.
    pub(super) returned: ReturnQueue,
    /// In the order of the channel's ring, followed by the failed fetches, with their memory, that are to be repeated. (If one fails, all
    /// behind it do.)
    pub(super) fetches: VecDeque<(Fetch, Option<DmaBuffer>)>,
    pub(super) retries: RetryBackoff,
    /// Frames in host memory, in order.
    pub(super) ready: VecDeque<Result<ReceivedFrame, RemoteError>>,
}

/// Status of the publisher.
#[derive(Debug)]
pub(super) struct StatusReading {
    /// Buffer for the status; `None` while it is being fetched.
    pub(super) buffer: Option<DmaBuffer>,
    pub(super) changed: bool,
    pub(super) unreadable: u32,
    /// Number of the last status that was read.
    pub(super) heard: u32,
    /// Number of the status that was reported to the publisher as read.
    pub(super) reported: u32,
    /// Last status of the publisher, if it has ended the stream.
    pub(super) ended: Option<StatusBlock>,
}

/// Credit that is sent to the publisher.
#[derive(Debug)]
pub(super) struct CreditSending {
    pub(super) carrier: ControlBlock,
    /// Window of the publisher for the credit.
    pub(super) region: RemoteRegion,
    /// Transfer that carries the credit.
    pub(super) ticket: Option<SendTicket>,
    /// Count in the last credit.
    pub(super) sent: u32,
    /// Time since which the last credit is out of date.
    pub(super) changed_at: Option<Duration>,
    pub(super) due: bool,
    pub(super) failures: u32,
    pub(super) error: Option<SendFailure>,
    /// Retries of the credit's upload into the card.
    pub(super) retries: RetryBackoff,
}

/// Progress of leaving the stream.
#[derive(Debug, Default)]
pub(super) struct Departure {
    pub(super) requested: bool,
    pub(super) sent: bool,
    pub(super) done: bool,
}

/// Detection of a publisher that has ended without notice.
#[derive(Debug)]
pub(super) struct SilenceCheck {
    /// Time of the last message.
    pub(super) heard: Duration,
    /// Time of the last check.
    pub(super) looked: Duration,
}
