//! Withdrawal of one operation, and requeueing of interrupted descriptors.

use super::{OperationKind, Ring, Token};
use fpga_registers::cast::{index, low32};

/// Reason why an operation cannot be withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WithdrawError {
    /// The operation has ended, or was never submitted.
    #[error("operation {number} is not in the ring: it has completed or was never submitted")]
    Unknown {
        /// Number of the operation.
        number: u64,
    },
    /// The engine may have seen some of its descriptors: stop it, then [`Ring::halt`].
    #[error("operation {number} is posted, and the engine has not been stopped")]
    Posted {
        /// Number of the operation.
        number: u64,
    },
    /// A part of the packet is in the card. Without the rest, the next packet would continue it.
    #[error("operation {number} is a partly sent packet, which has to complete")]
    Started {
        /// Number of the operation.
        number: u64,
    },
}

impl<T> Ring<T> {
    /// Requeues everything posted and not reported as complete, to be posted again by the next run.
    ///
    /// The engine must be idle, and its final count processed ([`Ring::complete`]): an engine stops between descriptors, so it has not
    /// moved, or will move again, the data of uncounted descriptors.
    pub const fn halt(&mut self) {
        self.run_end = self.completed;
        self.run_start = self.completed;
        self.written_back = self.completed;
        self.open = false;
        self.single_descriptor_blocks = false;
    }

    /// Withdraws operation `token`. Its descriptors that have not been executed are dropped; it ends in order, with
    /// [`Completion::withdrawn`](super::Completion::withdrawn) set. An operation whose descriptors have all been executed is unchanged.
    ///
    /// # Errors
    /// [`WithdrawError`]; nothing changes then.
    pub fn withdraw(&mut self, token: Token) -> Result<(), WithdrawError> {
        let number = token.number();
        if !self.operations.numbers().contains(&number) {
            return Err(WithdrawError::Unknown { number });
        }
        let before: u64 = (self.operations.ended()..number)
            .map(|earlier| u64::from(self.operations.slot(earlier).descriptors))
            .sum();
        let first = self.freed + before;
        let end = first + u64::from(self.operations.slot(number).descriptors);
        let from = first.max(self.completed);
        if from >= end {
            return Ok(());
        }
        if from < self.run_end {
            return Err(WithdrawError::Posted { number });
        }
        if from > first && self.sends_packets() {
            return Err(WithdrawError::Started { number });
        }
        for count in end..self.staged {
            let moved = self.entry(count);
            self.staged_entries[index(low32(count - (end - from)) & self.entry_mask)] = moved;
        }
        self.staged -= end - from;
        self.irregular_until = self.irregular_until.max(number + 1);
        let slot = self.operations.slot_mut(number);
        slot.descriptors = low32(from - first);
        slot.kind = OperationKind::Withdrawn;
        Ok(())
    }

    /// Returns the payload of a withdrawn operation ahead of its order: no descriptor of it remains that the device could
    /// execute. The operation is then only counted, as one without payload. `None` if it was not withdrawn, or has ended.
    pub fn reclaim(&mut self, token: Token) -> Option<T> {
        let number = token.number();
        if !self.operations.numbers().contains(&number) {
            return None;
        }
        let at = self.operations.index(number);
        let slot = self.operations.slot_mut(number);
        if slot.kind != OperationKind::Withdrawn {
            return None;
        }
        let payload = self.payloads[at].take()?;
        slot.kind = OperationKind::Plain;
        Some(payload)
    }
}
