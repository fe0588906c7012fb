//! Model of the applications: what was asked for, and what must be true of card memory and reports.
//!
//! Every transfer has a range of its own at its receiver. Once a transfer is known to be complete, its bytes are compared and replaced by
//! others (the marks of the application that has consumed them), which must stay: a byte that is written twice overwrites a mark.

use fpga_firmware::generated::Scheme;
use fpga_protocol::Nanos;
use fpga_rdma::{NackReason, SendFailure, SendTicket};

use crate::choices::{Trace, mix};
use crate::coverage::Coverage;
use crate::plan::{Mismatch, Notice};

/// Byte of memory that nobody has written.
pub const UNTOUCHED: u8 = 0xC3;

/// Violation of a guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// Result of a world without a violation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Hash of all frames, completions and notifications.
    pub trace: Trace,
    /// States that the world reached.
    pub coverage: Coverage,
    /// Virtual time at the end.
    pub time: Nanos,
}

/// Result of a check.
pub type Checked = Result<(), Violation>;

/// Returns a violation unless `holds`.
pub fn check(holds: bool, text: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation(text())) }
}

/// Data byte of transfer `number` at `offset`.
#[must_use]
pub const fn data_byte(number: usize, offset: u64) -> u8 {
    mix((number as u64) << 32 | offset >> 3).to_le_bytes()[(offset & 7) as usize]
}

/// Data of a transfer.
#[must_use]
pub fn data(number: usize, length: u64) -> Vec<u8> {
    (0..length).map(|offset| data_byte(number, offset)).collect()
}

/// State of the memory of a transfer at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Any part may be written.
    Open,
    /// Complete, and consumed.
    Consumed,
    /// The card was removed: its content is lost.
    Lost,
    /// Nothing may be written.
    Forbidden,
}

/// A transfer, or the answer to a read.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Number of its data.
    pub number: usize,
    /// Offset in this data: 0, except for reads.
    pub data_offset: u64,
    /// Sending node.
    pub from: usize,
    /// Receiving node.
    pub to: usize,
    /// Incarnations of both at the submission, counted from 0.
    pub lives: (u32, u32),
    /// First address at the receiver.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// Notification.
    pub notice: Notice,
    /// Time of the submission.
    pub submitted: Nanos,
    /// Ticket, while it is in progress.
    pub ticket: Option<SendTicket>,
    /// Result, once it has ended.
    pub result: Option<Result<(), SendFailure>>,
    /// Notifications.
    pub notified: u32,
    /// Its memory.
    pub memory: Memory,
    /// Content of its memory when a transfer of a later incarnation of its sender was complete.
    pub frozen: Option<Vec<u8>>,
    /// Scheme.
    pub scheme: Scheme,
    /// Whether the application has cancelled it.
    pub is_cancelled: bool,
    /// Whether it has a deadline.
    pub has_deadline: bool,
    /// Whether it must be refused.
    pub is_wrong: bool,
    /// Whether the receiver does not have its scheme.
    pub is_unsupported: bool,
    /// Reason why it may fail between these nodes.
    pub mismatch: Option<Mismatch>,
    /// Whether it must succeed in any case.
    pub is_probe: bool,
}

/// What has happened to the nodes of a transfer while it was in progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    /// One of them was restarted, or its card was removed.
    pub is_restarted: bool,
    /// Part of the give-up time for which they could not communicate, or did not poll, in thousandths.
    pub silence: u64,
    /// The network of the world is so bad that answers may be missing for the give-up time.
    pub is_harsh: bool,
    /// The give-up time has passed, and the network has lost packets.
    pub lacks_answers: bool,
}

/// Share of the give-up time, in thousandths, from which a silence excuses a failure.
const EXCUSE: u64 = 400;

impl Transfer {
    /// Returns the bytes that must arrive.
    pub fn data(&self) -> impl Iterator<Item = u8> {
        (0..self.length).map(|offset| data_byte(self.number, self.data_offset + offset))
    }

    /// Returns the bytes with which the application replaces them.
    #[must_use]
    pub fn marks(&self) -> Vec<u8> {
        self.data().map(|byte| !byte).collect()
    }

    /// Checks the result of a transfer that has ended.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn check_result(&self, result: Result<(), SendFailure>, trouble: &Trouble) -> Checked {
        check(self.result.is_none(), || format!("second completion of {self:?}: {result:?}"))?;
        let excused = trouble.is_restarted || trouble.silence >= EXCUSE;
        let is_allowed = match result {
            Ok(()) => !(self.is_wrong || self.is_unsupported) || self.length == 0,
            Err(SendFailure::Scheme { .. }) => self.is_unsupported,
            Err(SendFailure::Refused { reason: NackReason::BadPacket, .. }) => {
                self.mismatch == Some(Mismatch::PacketSize)
            }
            Err(SendFailure::Superseded { .. }) => {
                self.mismatch == Some(Mismatch::Sender) && self.lives.0 > 0 || trouble.is_restarted
            }
            Err(SendFailure::Cancelled { .. }) => self.is_cancelled,
            Err(SendFailure::Deadline { .. }) => self.has_deadline,
            // The wrong key or range, or the key of an earlier incarnation.
            Err(SendFailure::Refused { reason: NackReason::Violation, .. }) => {
                self.is_wrong || trouble.is_restarted
            }
            // Answers of an earlier incarnation are ignored until a transfer is given up (docs/protocol/incarnations.md 6.3).
            Err(SendFailure::Unanswered { .. }) => {
                let is_ignored = self.mismatch == Some(Mismatch::Receiver) && self.lives.1 > 0;
                excused || trouble.is_harsh || is_ignored
            }
            Err(SendFailure::ReceiverNotReady { .. }) => excused || self.has_deadline || trouble.is_harsh,
            // Tables may be full for longer than the give-up time: then it matters whether an answer was lost.
            Err(SendFailure::Forgotten { .. }) => excused || trouble.is_harsh || trouble.lacks_answers,
            Err(_) => trouble.is_restarted,
        };
        check(is_allowed && (!self.is_probe || result == Ok(())), || {
            format!("{result:?} without a cause ({trouble:?}): {self:?}")
        })
    }

    /// Checks bytes of its memory after everything has ended.
    ///
    /// # Errors
    /// [`Violation`].
    pub fn check_memory(&self, found: &[u8]) -> Checked {
        for (offset, (data, byte)) in self.data().zip(found).enumerate() {
            let is_allowed = match self.memory {
                Memory::Open | Memory::Lost => *byte == data || *byte == UNTOUCHED,
                Memory::Consumed => *byte == !data,
                Memory::Forbidden => *byte == UNTOUCHED,
            };
            check(is_allowed, || format!("byte {offset} is {byte:#x} at the end, data {data:#x}: {self:?}"))?;
        }
        let is_late =
            self.memory == Memory::Open && self.frozen.as_ref().is_some_and(|frozen| frozen != found);
        check(!is_late, || format!("written after transfers of a later incarnation: {self:?}"))?;
        Ok(())
    }
}
