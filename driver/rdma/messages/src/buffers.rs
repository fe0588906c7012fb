//! Buffers for several messages.
//!
//! A buffer is returned to the application with its last completion. That need not be the one of the message that matched last: the data of
//! a large message arrives later than that of a small one that matched after it.

use crate::completion::Failure;
use crate::request::ReceiveRequest;

/// Number of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferId(usize);

#[derive(Debug, Default)]
struct Buffer {
    /// Messages that have matched and have not completed.
    in_progress: u32,
    /// No further message matches.
    is_used_up: bool,
    /// Failure of the receive itself, to be reported after the messages.
    failed: Option<(ReceiveRequest, Failure)>,
}

/// Result of the end of a message.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// The completion returns the buffer.
    pub(crate) is_last: bool,
    /// Receive that fails after the completion.
    pub(crate) failed: Option<(ReceiveRequest, Failure)>,
}

/// Buffers of receives that were posted, or whose messages are in progress.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    all: Vec<Buffer>,
    free: Vec<usize>,
}

impl Buffers {
    pub(crate) fn insert(&mut self) -> BufferId {
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(Buffer::default());
            self.all.len() - 1
        });
        BufferId(number)
    }

    /// Notes that a message has matched.
    pub(crate) fn matched(&mut self, id: BufferId, is_used_up: bool) {
        if let Some(buffer) = self.get_mut(id) {
            buffer.in_progress += 1;
            buffer.is_used_up = is_used_up;
        }
    }

    fn get_mut(&mut self, id: BufferId) -> Option<&mut Buffer> {
        let buffer = self.all.get_mut(id.0);
        debug_assert!(buffer.is_some(), "no buffer has the number {}", id.0);
        buffer
    }

    /// Processes the end of a message.
    pub(crate) fn ended(&mut self, id: BufferId) -> Ended {
        let Some(buffer) = self.get_mut(id) else { return Ended::default() };
        buffer.in_progress = buffer.in_progress.saturating_sub(1);
        if !buffer.is_used_up || buffer.in_progress > 0 {
            return Ended::default();
        }
        let failed = std::mem::take(buffer).failed;
        self.free.push(id.0);
        Ended { is_last: failed.is_none(), failed }
    }

    /// Fails the receive of a buffer. Returns `false` if that is to be reported after the messages in progress.
    pub(crate) fn fail(&mut self, id: BufferId, request: &ReceiveRequest, failure: &Failure) -> bool {
        let Some(buffer) = self.get_mut(id) else { return true };
        if buffer.in_progress > 0 {
            (buffer.is_used_up, buffer.failed) = (true, Some((*request, failure.clone())));
            return false;
        }
        *buffer = Buffer::default();
        self.free.push(id.0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{HostRanges, Token};

    #[test]
    fn buffer_is_returned_with_the_last_completion() {
        let mut buffers = Buffers::default();
        let id = buffers.insert();
        buffers.matched(id, false);
        buffers.matched(id, true);
        assert!(!buffers.ended(id).is_last);
        assert!(buffers.ended(id).is_last);
        assert_eq!(buffers.insert(), id);
    }

    #[test]
    fn buffer_failure_waits_for_messages_in_progress() {
        let (data, token) = (HostRanges::default(), Token { context: 7, user: 0 });
        let request = ReceiveRequest { from: None, tag: None, data, multi: Some(1), token };
        let mut buffers = Buffers::default();
        let id = buffers.insert();
        buffers.matched(id, false);
        assert!(!buffers.fail(id, &request, &Failure::Cancelled));
        let ended = buffers.ended(id);
        assert!(!ended.is_last);
        assert_eq!(ended.failed.unwrap().0.token.context, 7);
        let id = buffers.insert();
        assert!(buffers.fail(id, &request, &Failure::Cancelled));
    }
}
