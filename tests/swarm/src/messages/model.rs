//! Model of the applications: requests, and what their completions must report.

use fpga_messages::{Completion, CompletionKind, Failure};
use fpga_protocol::Nanos;

use super::plan::{Call, End, Get};
use crate::model::{Checked, Trouble, UNTOUCHED, check, data_byte};

/// Byte of memory whose request has ended.
pub(crate) const ENDED: u8 = 0x3C;

/// A request that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Number of its data.
    pub(crate) number: usize,
    pub(crate) call: Call,
    /// Incarnations at the submission, of the requester and of the other node, counted from 0.
    pub(crate) lives: (u32, u32),
    /// Buffer in the requester's memory.
    pub(crate) address: u64,
    pub(crate) submitted: Nanos,
    /// Key that was current, for accesses.
    pub(crate) key: u64,
    pub(crate) result: Option<Result<(), Failure>>,
    /// Position of the receive of a message, or of the message of a receive.
    pub(crate) partner: Option<usize>,
    pub(crate) is_cancelled: bool,
    /// Whether the owner has changed the key of the memory.
    pub(crate) is_renewed: bool,
    /// Whether it must succeed in any case.
    pub(crate) is_probe: bool,
    /// Number of completions at the owner of the memory.
    pub(crate) reports: u32,
    /// Content of the owner's memory when its key was changed.
    pub(crate) frozen: Option<Vec<u8>>,
    /// Used parts of a buffer for several messages: offset and length.
    pub(crate) parts: Vec<(u64, u64)>,
}

impl Request {
    /// Bytes of a message or a write.
    pub(crate) fn data(&self) -> Vec<u8> {
        (0..self.call.length()).map(|offset| data_byte(self.number, offset)).collect()
    }

    /// Other node of the request, if there is only one.
    pub(crate) const fn other(&self) -> Option<usize> {
        match self.call {
            Call::Send { to, .. } | Call::Write { to, .. } | Call::Read { to, .. } | Call::Add { to, .. } => {
                Some(to)
            }
            Call::Receive { from, .. } => from,
            Call::Renew { .. } => None,
        }
    }

    pub(crate) const fn is_receive(&self) -> bool {
        matches!(self.call, Call::Receive { .. })
    }

    /// How a receive gets a message.
    pub(crate) const fn get(&self) -> Get {
        if let Call::Receive { get, .. } = self.call { get } else { Get::One }
    }

    const fn kind(&self) -> CompletionKind {
        match self.call {
            Call::Send { .. } => CompletionKind::Send,
            Call::Receive { .. } | Call::Renew { .. } => CompletionKind::Receive,
            Call::Write { .. } => CompletionKind::Write,
            Call::Read { .. } => CompletionKind::Read,
            Call::Add { .. } => CompletionKind::Atomic,
        }
    }

    const fn is_wrong(&self) -> bool {
        matches!(self.call, Call::Write { is_wrong: true, .. } | Call::Read { is_wrong: true, .. })
    }

    /// Whether a receive accepts a message of `from` with this tag.
    pub(crate) fn accepts(&self, sender: usize, sent: Option<u64>) -> bool {
        let Call::Receive { from, tag, .. } = self.call else { return false };
        let tags_match = match (tag, sent) {
            (None, None) => true,
            (Some((tag, ignore)), Some(sent)) => (tag ^ sent) & !ignore == 0,
            _ => false,
        };
        tags_match && from.is_none_or(|from| from == sender)
    }

    /// Checks the result of a request that has ended.
    ///
    /// `trouble`: since the submission; `whole`: since the start, whose effects the end of a session may show late.
    pub(crate) fn check_result(
        &self,
        done: &Completion,
        trouble: &Trouble,
        whole: &Trouble,
        is_excused: bool,
    ) -> Checked {
        check(self.result.is_none(), || format!("second completion of {self:?}: {done:?}"))?;
        check(done.kind == self.kind(), || format!("completion of another kind: {done:?} of {self:?}"))?;
        let is_allowed = match &done.result {
            Ok(()) => !self.is_wrong() || self.call.length() == 0,
            Err(Failure::Truncated) => self.is_receive(),
            Err(Failure::Cancelled) => self.is_cancelled,
            Err(Failure::NoMessage) => {
                self.partner.is_none() && !matches!(self.get(), Get::One | Get::Several(_))
            }
            Err(Failure::KeyRefused { .. }) => {
                self.is_wrong() || self.is_renewed || trouble.is_restarted && self.key != 0
            }
            // A process that is started again closes its messenger first.
            Err(Failure::Restarted { .. } | Failure::Closed { .. }) => whole.is_restarted,
            Err(Failure::Unreachable { .. }) => is_excused,
            Err(_) => false,
        };
        check(is_allowed && (!self.is_probe || done.result.is_ok()), || {
            format!("{:?} without a cause ({trouble:?}): {self:?}", done.result)
        })?;
        let is_injected = matches!(self.call, Call::Send { end: End::Injected, .. });
        check(!is_injected || done.result.is_err(), || format!("completion of an injected message: {self:?}"))
    }
}

/// Checks the content of a buffer: `data` and then bytes that nobody has written. After a failure any part of the data may be missing.
pub(crate) fn check_buffer(found: &[u8], data: &[u8], is_partial: bool, request: &Request) -> Checked {
    let wrong = found.iter().enumerate().find(|(offset, byte)| {
        let expected = data.get(*offset).copied().unwrap_or(UNTOUCHED);
        **byte != expected && (!is_partial || **byte != UNTOUCHED)
    });
    check(wrong.is_none(), || {
        let (offset, byte) = wrong.unwrap_or((0, &0));
        format!("byte {offset} of a buffer is {byte:#x} instead of {:?}: {request:?}", data.get(offset))
    })
}
