//! Operations in progress.

use crate::address::PeerId;
use crate::buffers::BufferId;
use crate::completion::Failure;
use crate::request::{CompleteWhen, HostRanges, Token};
use crate::wire::{Grant, Header, MAX_GRANT};
use fpga_driver::MemoryHandle;
use fpga_rdma::HostSource;
use std::collections::VecDeque;

/// Identifier of an operation. The generation tells operations apart that use the same index in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OperationId {
    pub(crate) index: u32,
    generation: u32,
}

/// Role of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Sends a message.
    Send,
    /// Writes the peer's memory.
    Write,
    /// Reads the peer's memory.
    Read,
    /// Has an atomic operation executed.
    Atomic,
    /// Receives a large message.
    Receive,
    /// Is written.
    Absorb,
    /// Is read.
    Serve,
}

impl Role {
    /// Whether an application of this side requested the operation.
    pub(crate) const fn is_own(self) -> bool {
        !matches!(self, Self::Absorb | Self::Serve)
    }
}

/// Memory of this side.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Local {
    Host(HostRanges),
    /// Copy of injected data, in the operation.
    Kept,
    /// Part of a region, checked at every access.
    Region {
        key: u64,
        address: u64,
    },
}

/// Memory of an operation that is mapped for the card. `start`: offset of the operation's first byte in it, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Registered {
    /// The endpoint sends it.
    Source { source: HostSource, start: u64 },
    /// The C2H channel writes it.
    Target { handle: MemoryHandle, start: u64 },
}

impl Registered {
    /// Returns the mapped memory, and the position in it of the operation's byte `offset`, if the card reads it.
    pub(crate) fn source_at(&self, offset: u64) -> Option<(HostSource, u64)> {
        match self {
            Self::Source { source, start } => Some((*source, start.checked_add(offset)?)),
            Self::Target { .. } => None,
        }
    }

    /// Returns the mapped memory, and the position in it of the operation's byte `offset`, if the card writes it.
    pub(crate) fn target_at(&self, offset: u64) -> Option<(MemoryHandle, usize)> {
        match self {
            Self::Target { handle, start } => {
                Some((*handle, usize::try_from(start.checked_add(offset)?).ok()?))
            }
            Self::Source { .. } => None,
        }
    }
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) role: Role,
    pub(crate) peer: PeerId,
    pub(crate) token: Token,
    pub(crate) complete: CompleteWhen,
    pub(crate) local: Local,
    /// Data of [`Local::Kept`].
    pub(crate) kept: Vec<u8>,
    /// Bytes to move.
    pub(crate) length: u64,
    /// Bytes of a message that do not fit.
    pub(crate) cut: u64,
    pub(crate) tag: u64,
    pub(crate) is_tagged: bool,
    pub(crate) immediate: Option<u64>,
    /// Buffer for several messages.
    pub(crate) buffer: Option<BufferId>,
    /// The peer waits for the end.
    pub(crate) wants_done: bool,
    /// Number at the peer.
    pub(crate) peer_operation: u32,
    /// Request that waits for landing slots.
    pub(crate) request: Option<Header>,
    /// Landing slots: of the peer, for a side that sends; of this side otherwise.
    pub(crate) grant: Grant,
    /// Which of them can be written now.
    pub(crate) writable: [bool; MAX_GRANT],
    /// Bytes whose sending has begun.
    pub(crate) sent: u64,
    /// Parts that were sent and have not arrived, and the record.
    pub(crate) in_flight: u32,
    /// Bytes that have arrived.
    pub(crate) arrived: u64,
    /// Whether the peer has granted landing slots, or needs no data.
    pub(crate) is_granted: bool,
    /// Whether the peer has reported the end.
    pub(crate) is_done: bool,
    /// Reason for which one side has refused the operation: it ends when no part of it is in flight any more.
    pub(crate) refused: Option<Failure>,
    /// Its memory, if it is mapped for the card.
    pub(crate) registered: Option<Registered>,
}

impl Operation {
    pub(crate) fn new(role: Role, peer: PeerId, token: Token, local: Local, length: u64) -> Self {
        Self {
            role,
            peer,
            token,
            complete: CompleteWhen::Transmitted,
            local,
            kept: Vec::new(),
            length,
            cut: 0,
            tag: 0,
            is_tagged: false,
            immediate: None,
            buffer: None,
            wants_done: false,
            peer_operation: 0,
            request: None,
            grant: Grant::default(),
            writable: [false; MAX_GRANT],
            sent: 0,
            in_flight: 0,
            arrived: 0,
            is_granted: false,
            is_done: false,
            refused: None,
            registered: None,
        }
    }
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    operation: Option<Operation>,
}

/// Table of the operations. It grows to the maximum number of operations in progress at once.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    count: usize,
}

impl Operations {
    pub(crate) fn insert(&mut self, operation: Operation) -> Option<OperationId> {
        let index = match self.free.pop_front() {
            Some(index) => index,
            None if self.slots.len() < crate::layout::MAX_OPERATIONS as usize => {
                self.slots.push(Slot { generation: 0, operation: None });
                u32::try_from(self.slots.len() - 1).ok()?
            }
            None => return None,
        };
        let slot = self.slots.get_mut(index as usize)?;
        slot.operation = Some(operation);
        self.count += 1;
        Some(OperationId { index, generation: slot.generation })
    }

    pub(crate) fn get(&self, id: OperationId) -> Option<&Operation> {
        self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation)?.operation.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: OperationId) -> Option<&mut Operation> {
        let slot = self.slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        slot.operation.as_mut()
    }

    /// Returns the operation that a peer names by its index.
    pub(crate) fn named(&self, index: u32, peer: PeerId) -> Option<OperationId> {
        let slot = self.slots.get(index as usize)?;
        slot.operation.as_ref().filter(|operation| operation.peer == peer)?;
        Some(OperationId { index, generation: slot.generation })
    }

    pub(crate) fn remove(&mut self, id: OperationId) -> Option<Operation> {
        let slot = self.slots.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        let operation = slot.operation.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push_back(id.index);
        self.count -= 1;
        Some(operation)
    }

    /// Returns the peers of all operations.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.slots.iter().filter_map(|slot| slot.operation.as_ref()).map(|operation| operation.peer)
    }

    /// Returns the operations with `peer`, or all of them.
    pub(crate) fn of_peer(&self, peer: Option<PeerId>) -> Vec<OperationId> {
        let all = self.slots.iter().zip(0_u32..);
        all.filter(|(slot, _)| {
            slot.operation.as_ref().is_some_and(|operation| peer.is_none_or(|peer| operation.peer == peer))
        })
        .map(|(slot, index)| OperationId { index, generation: slot.generation })
        .collect()
    }

    pub(crate) const fn len(&self) -> usize {
        self.count
    }
}
