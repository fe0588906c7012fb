//! Direct access of the card to the application's memory: large data is not copied to and from the messenger's own memory.
//!
//! Only memory of this side's requests is mapped, for the time of the operation: the application keeps it valid until the completion. The operation
//! therefore ends only when no copy of the card uses the memory any more.

use super::Messenger;
use crate::completion::Failure;
use crate::operation::{Lent, Local, Operation, OperationId, Role};
use fpga_driver::DmaAccess;
use std::collections::VecDeque;

/// Pages of host memory, which mappings consist of.
const PAGE: u64 = 4096;

/// Operations that have ended but for the card's use of their memory.
pub(super) type Closing = VecDeque<(Operation, Result<(), Failure>)>;

impl Messenger {
    /// Maps the memory of an operation if it is long enough. Otherwise, or if that is not possible, its data is copied.
    pub(super) fn lend(&mut self, id: OperationId) {
        let Some(least) = self.side.direct else { return };
        let Some(operation) = self.operations.get(id) else { return };
        let Local::Host(ranges) = operation.local else { return };
        let is_source = match operation.role {
            Role::Send | Role::Write => true,
            Role::Receive | Role::Read => false,
            Role::Atomic | Role::Absorb | Role::Serve => return,
        };
        let [range] = ranges.as_slice() else { return };
        let length = operation.length.min(range.length);
        if length < least || operation.lent.is_some() {
            return;
        }
        let first = range.address - range.address % PAGE;
        let Some(end) = range.address.checked_add(length).and_then(|end| end.checked_next_multiple_of(PAGE))
        else {
            return;
        };
        let Some(memory) = self.memory.lend(first, end - first) else { return };
        let access = if is_source { DmaAccess::ReadByDevice } else { DmaAccess::WriteByDevice };
        let Ok(area) = self.side.card.map_memory(memory, access) else {
            // The limit of locked memory, most likely. It does not change.
            self.side.direct = None;
            return;
        };
        let handle = if is_source {
            self.side.h2c.register_memory(area).ok()
        } else {
            self.side.c2h.register_memory(area).ok()
        };
        let start = range.address - first;
        if let Some(operation) = self.operations.get_mut(id) {
            operation.lent = handle.map(|handle| Lent { handle, start, is_source });
        }
    }

    /// Unmaps memory; `false` while the card uses it.
    fn give_back(&mut self, lent: &Lent) -> bool {
        let given = if lent.is_source {
            self.side.h2c.deregister_memory(lent.handle).map(drop)
        } else {
            self.side.c2h.deregister_memory(lent.handle).map(drop)
        };
        // Memory of a channel that has failed stays mapped until the process ends.
        given.is_ok() || self.failed.is_some()
    }

    /// Ends an operation.
    pub(super) fn finish(&mut self, id: OperationId, result: Result<(), Failure>) {
        let Some(operation) = self.operations.remove(id) else { return };
        self.release_landing(id, &operation);
        self.peers[operation.peer].lent.retain(|(_, user)| *user != id);
        if let Some(lent) = &operation.lent
            && !self.give_back(lent)
        {
            self.closing.push_back((operation, result));
            return;
        }
        self.end(&operation, result);
    }

    fn end(&mut self, operation: &Operation, result: Result<(), Failure>) {
        if result.is_ok() && operation.wants_done {
            self.ring(operation.peer, crate::layout::Doorbell::Done(operation.peer_operation));
        }
        self.report(operation, result);
    }

    /// Ends the operations whose memory the card no longer uses.
    pub(super) fn close_ended(&mut self) {
        for _ in 0..self.closing.len() {
            let Some((operation, result)) = self.closing.pop_front() else { return };
            if operation.lent.is_none_or(|lent| self.give_back(&lent)) {
                self.end(&operation, result);
            } else {
                self.closing.push_back((operation, result));
            }
        }
    }
}
