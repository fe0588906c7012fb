//! Direct access of the card to the application's memory: large data is not copied through the messenger's own memory.
//!
//! Only memory of this side's requests is mapped, until the operation ends: the application keeps it valid until the completion. Therefore an
//! operation ends only when no DMA transfer uses its memory any more.

use super::CardMessenger;
use crate::completion::Failure;
use crate::operation::{Local, Operation, OperationId, Registered, Role};
use fpga_driver::DmaAccess;
use std::collections::VecDeque;

/// Size of a page of host memory in bytes. Mappings consist of whole pages.
const PAGE_BYTES: u64 = 4096;

/// Operations that have ended, whose memory the card still uses.
pub(super) type Closing = VecDeque<(Operation, Result<(), Failure>)>;

impl CardMessenger {
    /// Maps the memory of an operation for the card if it is one range of at least `direct` bytes. Otherwise, or if mapping fails, the data is
    /// copied.
    pub(super) fn register_memory(&mut self, id: OperationId) {
        let Some(min_length) = self.side.direct else { return };
        let Some(operation) = self.operations.get(id) else { return };
        let peer = operation.peer;
        let Local::Host(ranges) = operation.local else { return };
        let is_source = match operation.role {
            Role::Send | Role::Write => true,
            Role::Receive | Role::Read => false,
            Role::Atomic | Role::Absorb | Role::Serve => return,
        };
        let [range] = ranges.as_slice() else { return };
        let length = operation.length.min(range.length);
        if length < min_length || operation.registered.is_some() {
            return;
        }
        let first = range.address - range.address % PAGE_BYTES;
        let Some(end) =
            range.address.checked_add(length).and_then(|end| end.checked_next_multiple_of(PAGE_BYTES))
        else {
            return;
        };
        let Some(memory) = self.port_of(peer).options.memory.lend(first, end - first) else { return };
        let access = if is_source { DmaAccess::ReadByDevice } else { DmaAccess::WriteByDevice };
        let Ok(area) = self.side.card.map_memory(memory, access) else {
            // Most likely the limit of locked memory is reached, which does not change.
            self.side.direct = None;
            return;
        };
        let start = range.address - first;
        let registered = if is_source {
            let source = self.side.endpoint.register_source(area).ok();
            source.map(|source| Registered::Source { source, start })
        } else {
            self.side.c2h.register_memory(area).ok().map(|handle| Registered::Target { handle, start })
        };
        if let Some(operation) = self.operations.get_mut(id) {
            operation.registered = registered;
        }
    }

    /// Deregisters the memory. Returns `false` while the card uses it.
    fn deregister_memory(&mut self, registered: &Registered) -> bool {
        let result = match *registered {
            Registered::Source { source, .. } => self.side.endpoint.deregister_source(source).map(drop),
            Registered::Target { handle, .. } => self.side.c2h.deregister_memory(handle).map(drop),
        };
        // Memory of a channel that has failed stays mapped until the process ends.
        result.is_ok() || self.failed.is_some()
    }

    /// Ends an operation, as soon as the card no longer uses its memory.
    pub(super) fn finish(&mut self, id: OperationId, result: Result<(), Failure>) {
        let Some(mut operation) = self.operations.remove(id) else { return };
        self.recycle_bytes(std::mem::take(&mut operation.kept));
        self.release_landing(id, &operation);
        self.peers[operation.peer].granted_slots.retain(|(_, user)| *user != id);
        if result.is_err() && matches!(operation.registered, Some(Registered::Source { .. })) {
            self.cancel_parts(id);
        }
        if let Some(registered) = &operation.registered
            && !self.deregister_memory(registered)
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
            if operation.registered.is_none_or(|registered| self.deregister_memory(&registered)) {
                self.end(&operation, result);
            } else {
                self.closing.push_back((operation, result));
            }
        }
    }
}
