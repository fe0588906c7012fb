//! RDMA reads: a request that makes the other node write (docs/protocol.md 10.9).
//!
//! A node that lets another node read keeps a *mailbox* for it: slots of card memory that the reader may write. A read consists of
//!
//! 1. a memory window at the reader, for exactly the expected bytes and for that node, with its own key;
//! 2. a request of 64 bytes, sent into a slot of the mailbox like any transfer: acknowledged, retransmitted, delivered once. It names the
//!    scheme, which both nodes run and which the answer uses too;
//! 3. at the other node, when the request's arrival is seen: a check of the request, and a transfer into the reader's window.
//!
//! So reads need no further function of the network interface than writes, and have the same reliability. The window is closed when the
//! read ends, with or without an error: later packets are refused.

mod error;
mod request;
mod requester;
mod responder;

use std::time::Duration;

use fpga_firmware::NodeId;
use fpga_protocol::Nanos;
use fpga_registers::CardAddr;

use super::{Endpoint, EndpointError, Notification, SendCompletion};
pub use error::{ReadError, ReadFailure};
use request::SLOT;
use requester::ReadRequester;
pub use requester::{ReadCompletion, ReadTicket};
use responder::ReadResponder;
pub use responder::{ReadableHandle, RemoteReadable};

/// Maximum number of reads in progress: slots of a mailbox, and of the area from which requests are sent.
const SLOTS: usize = 8;
/// Size of a mailbox in bytes.
const MAILBOX: u64 = SLOT * SLOTS as u64;
/// Maximum number of nodes that may read at the same time.
const MAILBOXES: usize = 14;
/// Offset of mailboxes and requests in the card memory that the endpoint reserves: after the CDMA chain, before the event ring.
const MAILBOXES_AT: u64 = 8 << 10;
const REQUESTS_AT: u64 = MAILBOXES_AT + MAILBOX * MAILBOXES as u64;
const _: () = assert!(REQUESTS_AT + MAILBOX <= 16 << 10, "the event ring begins at 16 KiB");
/// Default timeout of an answer, and additional time for each of its bytes.
const TIMEOUT: Duration = Duration::from_secs(10);
const TIMEOUT_NS_PER_BYTE: u64 = 10;

/// Reads of an endpoint, as reader and as owner of the data.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pub(super) requester: ReadRequester,
    pub(super) responder: ReadResponder,
}

impl Reads {
    pub(super) fn is_idle(&self) -> bool {
        self.requester.is_idle() && self.responder.is_idle()
    }
}

impl Endpoint {
    fn reserved(&self, offset: u64) -> CardAddr {
        // The chain and the area after it were checked to be in card memory.
        CardAddr::new(self.transmit.chain().get().wrapping_add(offset))
    }

    /// Returns the mailbox and slot at an address, if there is one.
    fn mailbox_of(&self, address: CardAddr) -> Option<(usize, u64)> {
        let offset = address.get().checked_sub(self.reserved(MAILBOXES_AT).get())?;
        let index = usize::try_from(offset / MAILBOX).ok().filter(|index| *index < MAILBOXES)?;
        (offset % SLOT == 0).then_some((index, offset % MAILBOX / SLOT))
    }

    /// Processes an arrival that is a request or the answer to one. Returns false for arrivals of the application.
    pub(super) fn take_arrival(&mut self, now: Nanos, notice: &Notification) -> Result<bool, EndpointError> {
        Ok(self.take_request(notice) || self.take_answer(now, notice)?)
    }

    /// Returns whether `length` bytes at `address` from `node` belong to a request to this node, or to an answer to it.
    pub(super) fn is_of_read(&self, node: NodeId, address: CardAddr, length: u64) -> bool {
        self.mailbox_of(address).is_some() || self.reads.requester.is_answer(node, address, length)
    }

    /// Processes the completion of a transfer that is a request or an answer. Returns false for transfers of the application.
    pub(super) fn take_internal(&mut self, now: Nanos, done: &SendCompletion) -> Result<bool, EndpointError> {
        Ok(self.end_answer(done) || self.end_request(now, done)?)
    }

    /// Answers requests that have arrived, and ends reads whose deadline has passed. Returns the amount of work done.
    pub(super) fn poll_reads(&mut self, now: Nanos) -> Result<usize, EndpointError> {
        Ok(self.expire_reads(now)? + self.answer_requests(now)?)
    }
}
