//! Transfers of a sender and their progress.

use alloc::boxed::Box;

use fpga_firmware::generated::Scheme;
use fpga_firmware::ids::{Incarnation, NodeId, TransferId};
use fpga_registers::CardAddr;

use crate::list::{List, ListLinks};
use crate::sender::{Command, CommandCompletion, CommandError, Notify, SendFailure, SendTicket};
use crate::time::Nanos;
use fpga_registers::cast::index;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scheme) enum Stage {
    Free,
    /// Some of its messages have not begun; it is in the queue.
    Waiting,
    /// All its messages have begun.
    Started,
    Finished,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::scheme) struct Transfer {
    pub(in crate::scheme) generation: u32,
    pub(in crate::scheme) stage: Stage,
    pub(in crate::scheme) command: Command,
    pub(in crate::scheme) id: TransferId,
    /// Read that it answers; 0: none.
    pub(in crate::scheme) read: u32,
    /// Scheme; `None`: the sender's default.
    pub(in crate::scheme) scheme: Option<Scheme>,
    pub(in crate::scheme) messages: u32,
    pub(in crate::scheme) begun: u32,
    pub(in crate::scheme) done: u32,
    /// Incarnation of the receiver, once it has answered.
    pub(in crate::scheme) incarnation: Option<Incarnation>,
    /// Packets of complete messages.
    pub(in crate::scheme) acknowledged: u64,
    pub(in crate::scheme) packets: u64,
    pub(in crate::scheme) retransmits: u64,
    /// Time of the first of the consecutive "receiver not ready" answers.
    pub(in crate::scheme) not_ready: Option<Nanos>,
    pub(in crate::scheme) started: Nanos,
    finished: Nanos,
    result: Result<(), SendFailure>,
}

const NO_COMMAND: Command = Command {
    source: CardAddr::new(0),
    node: NodeId::ANY,
    destination: CardAddr::new(0),
    length: 0,
    key: 0,
    notify: Notify::Receiver,
    deadline: None,
    priority: 0,
};

impl Transfer {
    pub(in crate::scheme) const EMPTY: Self = Self {
        generation: 0,
        stage: Stage::Free,
        command: NO_COMMAND,
        id: TransferId::new(0),
        read: 0,
        scheme: None,
        messages: 0,
        begun: 0,
        done: 0,
        incarnation: None,
        acknowledged: 0,
        packets: 0,
        retransmits: 0,
        started: Nanos::ZERO,
        not_ready: None,
        finished: Nanos::ZERO,
        result: Ok(()),
    };

    /// Whether its next message needs a slot of the receiving host's event ring.
    pub(in crate::scheme) const fn needs_slot(&self) -> bool {
        self.begun + 1 == self.messages && !matches!(self.command.notify, Notify::None)
    }

    /// Whether a message may begin: the last one waits for the completion of all others.
    pub(in crate::scheme) const fn may_begin(&self) -> bool {
        self.begun + 1 < self.messages || self.begun + 1 == self.messages && self.done == self.begun
    }
}

/// Returns the number of messages of up to `span` bytes into which a transfer is cut.
pub(in crate::scheme) fn messages_of(command: &Command, span: u64) -> Result<u32, CommandError> {
    let &Command { source, destination, node, length, notify, .. } = command;
    if node == NodeId::ANY {
        return Err(CommandError::Node { node });
    }
    if notify == Notify::Sender {
        return Err(CommandError::Notify);
    }
    for start in [source, destination] {
        start.checked_add(length).ok_or(CommandError::Address { start, length })?;
    }
    u32::try_from(length.div_ceil(span)).map_err(|_| CommandError::TooLong { length })
}

/// Table of transfers, with the queues of the waiting and of the ended ones.
#[derive(Clone, Debug)]
pub(in crate::scheme) struct Transfers {
    records: Box<[Transfer]>,
    links: ListLinks,
    free: List,
    queue: List,
    finished: List,
    next_id: TransferId,
}

impl Transfers {
    pub(in crate::scheme) fn new(count: u32) -> Self {
        let mut links = ListLinks::new(count);
        let mut free = List::EMPTY;
        for slot in 0..count {
            free.push_back(&mut links, slot);
        }
        Self {
            records: alloc::vec![Transfer::EMPTY; index(count)].into_boxed_slice(),
            links,
            free,
            queue: List::EMPTY,
            finished: List::EMPTY,
            next_id: TransferId::new(0),
        }
    }

    pub(in crate::scheme) fn all_free(&self) -> bool {
        index(self.free.len()) == self.records.len()
    }

    pub(in crate::scheme) fn in_use(&self) -> u32 {
        u32::try_from(self.records.len()).unwrap_or(u32::MAX) - self.free.len()
    }

    /// Returns the ticket of the current or last transfer in `slot`.
    pub(in crate::scheme) fn ticket(&self, slot: u32) -> SendTicket {
        SendTicket { slot, generation: self.get(slot).generation }
    }

    /// Adds a transfer of `messages` messages; `None` without a free slot.
    pub(in crate::scheme) fn add(
        &mut self,
        now: Nanos,
        command: Command,
        scheme: Option<Scheme>,
        read: u32,
        messages: u32,
    ) -> Option<SendTicket> {
        let slot = self.free.pop_front(&mut self.links)?;
        let id = self.next_id;
        self.next_id = id.next();
        let generation = self.get(slot).generation;
        let stage = Stage::Waiting;
        self.records[index(slot)] = Transfer {
            generation,
            stage,
            command,
            id,
            read,
            scheme,
            messages,
            started: now,
            ..Transfer::EMPTY
        };
        let records = &self.records;
        self.queue.insert_sorted(&mut self.links, slot, |other| {
            let other = &records[index(other)];
            other.command.priority < command.priority && other.begun == 0
        });
        Some(SendTicket { slot, generation })
    }

    /// Returns the transfer in `slot`, if it has not ended.
    pub(in crate::scheme) fn live(&self, slot: u32) -> Option<&Transfer> {
        let record = self.records.get(index(slot))?;
        matches!(record.stage, Stage::Waiting | Stage::Started).then_some(record)
    }

    pub(in crate::scheme) fn get(&self, slot: u32) -> &Transfer {
        &self.records[index(slot)]
    }

    pub(in crate::scheme) fn get_mut(&mut self, slot: u32) -> &mut Transfer {
        &mut self.records[index(slot)]
    }

    /// Returns the slot of the live transfer that a ticket names.
    pub(in crate::scheme) fn find(&self, ticket: SendTicket) -> Option<u32> {
        let record = self.live(ticket.slot)?;
        (record.generation == ticket.generation).then_some(ticket.slot)
    }

    /// Returns the first transfer in the queue for which `suits` returns true.
    pub(in crate::scheme) fn first(&self, mut suits: impl FnMut(&Transfer) -> bool) -> Option<u32> {
        let mut slot = self.queue.head();
        while let Some(at) = slot {
            if suits(self.get(at)) {
                return Some(at);
            }
            slot = self.links.next(at);
        }
        None
    }

    /// Records that one more of its messages has begun.
    pub(in crate::scheme) fn begin_message(&mut self, slot: u32) {
        let record = &mut self.records[index(slot)];
        record.begun += 1;
        if record.begun == record.messages {
            record.stage = Stage::Started;
            self.queue.remove(&mut self.links, slot);
        }
    }

    /// Records that all of its messages are handed over.
    pub(in crate::scheme) fn begin_all(&mut self, slot: u32) {
        let record = &mut self.records[index(slot)];
        record.begun = record.messages;
        record.stage = Stage::Started;
        self.queue.remove(&mut self.links, slot);
    }

    pub(in crate::scheme) fn finish(&mut self, now: Nanos, slot: u32, result: Result<(), SendFailure>) {
        let record = &mut self.records[index(slot)];
        if record.stage == Stage::Waiting {
            self.queue.remove(&mut self.links, slot);
        }
        (record.stage, record.finished, record.result) = (Stage::Finished, now, result);
        self.finished.push_back(&mut self.links, slot);
    }

    pub(in crate::scheme) fn poll(&mut self) -> Option<CommandCompletion> {
        let slot = self.finished.pop_front(&mut self.links)?;
        self.free.push_back(&mut self.links, slot);
        let record = &mut self.records[index(slot)];
        let completion = CommandCompletion {
            ticket: SendTicket { slot, generation: record.generation },
            transfer: (record.packets != 0).then_some(record.id),
            node: record.command.node,
            source: record.command.source,
            result: record.result,
            length: record.command.length,
            segments: record.messages,
            silent_segments: record.messages.saturating_sub(1),
            packets: record.packets,
            retransmits: record.retransmits,
            started: record.started,
            finished: record.finished,
        };
        record.stage = Stage::Free;
        record.generation = record.generation.wrapping_add(1);
        Some(completion)
    }
}
