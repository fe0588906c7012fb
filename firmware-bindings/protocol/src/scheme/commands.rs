//! NI commands: whole transfers that the NI sends by itself. The host's side, and the events of both sides.
//!
//! Where a scheme's sender runs in the NI ([`messages::Sender`](super::messages::Sender)), its host hands over whole
//! transfers, one transmit window each, and learns their progress and completion from events. This table holds the
//! transfers that have not ended. Its size is the NI's number of transfers, so that the NI never refuses one because it
//! has no free slot.
//!
//! Order of calls: as in [`crate::sender`].

use fpga_firmware::event::{Event, EventKind, NackReason, Outcome};
use fpga_firmware::generated::{PACKET_SIZE_LOG2_MAX, Scheme};
use fpga_firmware::ids::{Incarnation, OpNumber, TransferId};
use fpga_registers::CardAddr;

use super::messages::Progress;
use super::messages::transfers::{Stage, Transfer, Transfers, messages_of};
use crate::segment::TransferClass;
use crate::sender::{
    Command, CommandCompletion, CommandError, Ops, SendFailure, SendTicket, SenderCounters, TransferStage,
    TransferView, Transmit, TransmitKind,
};
use crate::time::Nanos;
use fpga_registers::cast::low32;

/// Maximum number of transfers: 12 bits of a command's number are its slot.
pub const MAX_COMMANDS: u32 = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 12;
/// First slot number in tickets. A host that also sends by itself has fewer transfers, so that the two kinds of tickets
/// never overlap.
const FIRST_SLOT: u32 = 1 << 24;

/// Result of withdrawing a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Withdrawal {
    /// The transfer had ended before.
    Ended,
    /// The transfer had not left the host, and has ended now.
    AtHost,
    /// The NI has the transfer: the caller has to send it a request to give up this number.
    Interface(u32),
}

/// Table of NI commands; see [the module](self).
#[derive(Clone, Debug)]
pub struct CommandTable {
    transfers: Transfers,
    capacity: u32,
    packet_size_log2: u8,
    /// Payload bytes of a full message.
    span: u64,
    counters: SenderCounters,
}

impl CommandTable {
    /// Creates the table for an NI with space for `capacity` transfers, at most [`MAX_COMMANDS`], that cuts them into
    /// messages of `message_packets` packets.
    #[must_use]
    pub fn new(capacity: u32, packet_size_log2: u8, message_packets: u32) -> Self {
        let capacity = capacity.clamp(1, MAX_COMMANDS);
        let span = u64::from(message_packets.max(1)) << packet_size_log2.min(PACKET_SIZE_LOG2_MAX);
        Self {
            transfers: Transfers::new(capacity),
            capacity,
            packet_size_log2,
            span,
            counters: SenderCounters::default(),
        }
    }

    /// Queues a transfer that runs `scheme` or, with `None`, the NI's default. The caller checks that the NI supports
    /// the scheme.
    ///
    /// # Errors
    /// See [`CommandError`]; the table is unchanged.
    pub fn submit(
        &mut self,
        now: Nanos,
        command: Command,
        scheme: Option<Scheme>,
    ) -> Result<SendTicket, CommandError> {
        let messages = messages_of(&command, self.span)?;
        let full = CommandError::Full { capacity: self.capacity };
        let ticket = self.transfers.add(now, command, scheme, 0, messages).ok_or(full)?;
        if messages == 0 {
            self.end(now, ticket.slot, Ok(()));
        }
        Ok(to_host_ticket(ticket))
    }

    /// Whether a ticket belongs to an NI command and not to a transfer that the host sends by itself.
    #[must_use]
    pub const fn owns(ticket: SendTicket) -> bool {
        ticket.slot >= FIRST_SLOT
    }

    /// Cancels a transfer. It completes with an error, unless it succeeds before the NI processes the request.
    pub fn cancel(&mut self, now: Nanos, ticket: SendTicket) -> Withdrawal {
        let Some(ticket) = to_table_ticket(ticket) else { return Withdrawal::Ended };
        let Some(slot) = self.transfers.find(ticket) else { return Withdrawal::Ended };
        let transfer = self.transfers.get(slot);
        if transfer.stage == Stage::Started {
            return Withdrawal::Interface(number_of(ticket));
        }
        let Command { node, destination: address, .. } = transfer.command;
        self.end(now, slot, Err(SendFailure::Cancelled { node, address, acknowledged: 0 }));
        Withdrawal::AtHost
    }

    fn end(&mut self, now: Nanos, slot: u32, result: Result<(), SendFailure>) {
        match result {
            Ok(()) => self.counters.completed += 1,
            Err(_) => self.counters.failed += 1,
        }
        self.transfers.finish(now, slot, result);
    }

    /// Processes an event of the NI if it concerns a transfer; returns whether it does. An event about a transfer that
    /// has ended is stale.
    pub fn handle_event(&mut self, now: Nanos, event: &Event) -> bool {
        let Some(outcome) = event.outcome() else { return false };
        let number = event.op.get();
        let slot = number & (MAX_COMMANDS - 1);
        let live = self.transfers.live(slot).is_some_and(|transfer| {
            transfer.stage == Stage::Started
                && number_of(SendTicket { slot, generation: transfer.generation }) == number
        });
        if !live {
            self.counters.stale += 1;
            return true;
        }
        let transfer = self.transfers.get_mut(slot);
        // Counts of one transfer never decrease: the difference is added to the sum.
        let newer = |new: u64, old: &mut u64| {
            let more = new.saturating_sub(*old);
            *old += more;
            more
        };
        transfer.id = event.transfer;
        self.counters.packets += newer(event.generation.into(), &mut transfer.packets);
        self.counters.retransmits += newer(event.count.into(), &mut transfer.retransmits);
        self.counters.acknowledged += newer(event.length, &mut transfer.acknowledged);
        let messages = event.segment.min(transfer.messages);
        self.counters.segments += u64::from(messages.saturating_sub(transfer.done));
        transfer.done = transfer.done.max(messages);
        let Command { node, .. } = transfer.command;
        let (acknowledged, tries, address) = (transfer.acknowledged, event.tries, event.address);
        let error = match outcome {
            Outcome::Progress => return true,
            Outcome::Done => {
                self.end(now, slot, Ok(()));
                return true;
            }
            Outcome::Unanswered => SendFailure::Unanswered { node, address, acknowledged, tries },
            Outcome::Refused => match u8::try_from(event.index).map(NackReason::try_from) {
                Ok(Ok(NackReason::Scheme)) => SendFailure::Scheme { node, address },
                Ok(Ok(NackReason::Superseded)) => {
                    SendFailure::Superseded { node, address, newest: event.incarnation }
                }
                Ok(Ok(reason)) => SendFailure::Refused { node, address, acknowledged, tries, reason },
                _ => SendFailure::NotTaken { node, address },
            },
            Outcome::Forgotten => SendFailure::Forgotten { node, address, acknowledged, tries },
            Outcome::Deadline => SendFailure::Deadline { node, address, acknowledged, tries },
            Outcome::NotReady => SendFailure::ReceiverNotReady { node, address, acknowledged, tries },
            Outcome::Cancelled => SendFailure::Cancelled { node, address, acknowledged },
            // Or a code of another version.
            _ => SendFailure::NotTaken { node, address },
        };
        if matches!(
            error,
            SendFailure::Refused { .. } | SendFailure::Scheme { .. } | SendFailure::Superseded { .. }
        ) {
            self.counters.refused += 1;
        }
        self.counters.not_ready += u64::from(matches!(error, SendFailure::ReceiverNotReady { .. }));
        self.end(now, slot, Err(error));
        true
    }

    /// Returns the next transfer to hand over.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Transmit> {
        loop {
            let slot = self.transfers.first(|_| true)?;
            let Transfer { command, scheme, .. } = *self.transfers.get(slot);
            let Command { node, destination: address, priority, .. } = command;
            if command.deadline.is_some_and(|deadline| deadline <= now) {
                let error = SendFailure::Deadline { node, address, acknowledged: 0, tries: 0 };
                self.end(now, slot, Err(error));
                continue;
            }
            self.transfers.begin_all(slot);
            let ticket = self.transfers.ticket(slot);
            let patience = command.deadline.map_or(Nanos::ZERO, |deadline| deadline.saturating_sub(now));
            return Some(Transmit {
                kind: TransmitKind::Command { number: number_of(ticket), priority, patience, scheme },
                ticket: to_host_ticket(ticket),
                transfer: TransferId::new(0),
                oldest_live: TransferId::new(0),
                node,
                key: command.key,
                source: command.source,
                payload_length: 0,
                segment_base: command.source,
                segment: 0,
                segment_count: 0,
                segment_length: 0,
                segment_packets: 0,
                first_packet: 0,
                ops: Ops::NONE,
                packet_size_log2: self.packet_size_log2,
                tries: 0,
                path: 0,
                silent: false,
                notify: command.notify,
                transfer_base: address,
                transfer_length: command.length,
            });
        }
    }

    /// Removes and returns the completion of the transfer that ended first.
    pub fn poll_completion(&mut self) -> Option<CommandCompletion> {
        self.transfers.poll().map(|done| CommandCompletion { ticket: to_host_ticket(done.ticket), ..done })
    }

    /// Whether no transfer is queued, in progress or waiting to be polled.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.transfers.all_free()
    }

    /// Returns the running counts, as far as the NI has reported them.
    #[must_use]
    pub const fn counters(&self) -> &SenderCounters {
        &self.counters
    }

    /// Returns the payload bytes of a full message.
    #[must_use]
    pub const fn message_size(&self) -> u64 {
        self.span
    }

    /// Returns the maximum number of transfers.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the transfers that have not ended, by slot.
    pub fn transfers(&self) -> impl Iterator<Item = TransferView> + '_ {
        (0..self.capacity).filter_map(|slot| {
            let transfer = self.transfers.live(slot)?;
            let begun = transfer.stage == Stage::Started;
            Some(TransferView {
                ticket: to_host_ticket(self.transfers.ticket(slot)),
                transfer: (transfer.packets != 0).then_some(transfer.id),
                node: transfer.command.node,
                class: if transfer.messages > 1 { TransferClass::Big } else { TransferClass::Regular },
                stage: if begun { TransferStage::InProgress } else { TransferStage::Queued },
                destination: transfer.command.destination,
                length: transfer.command.length,
                remaining: if begun { 0 } else { transfer.command.length },
                segments: transfer.messages,
                outstanding: if begun { transfer.messages - transfer.done } else { 0 },
                acknowledged: transfer.acknowledged,
                packets: transfer.packets,
                retransmits: transfer.retransmits,
                started: transfer.started,
                deadline: transfer.command.deadline,
            })
        })
    }
}

/// Converts a ticket of the table to one of the host.
const fn to_host_ticket(ticket: SendTicket) -> SendTicket {
    SendTicket { slot: ticket.slot + FIRST_SLOT, generation: ticket.generation }
}

/// Converts a ticket of the host to one of the table; `None` if it belongs to another sender.
fn to_table_ticket(ticket: SendTicket) -> Option<SendTicket> {
    let slot = ticket.slot.checked_sub(FIRST_SLOT)?;
    Some(SendTicket { slot, generation: ticket.generation })
}

/// Returns a command's number: its slot, and the use count of the slot in the bits above.
const fn number_of(ticket: SendTicket) -> u32 {
    ticket.generation << SLOT_BITS | ticket.slot
}

fn counted(count: u64) -> u32 {
    low32(count.min(u32::MAX.into()))
}

/// Creates the event with which an NI reports that a message of command `number`'s transfer is complete.
#[must_use]
pub fn progress_event(number: u32, progress: &Progress) -> Event {
    Event {
        reason: Outcome::Progress.value(),
        op: OpNumber::new(number),
        node: progress.node,
        transfer: progress.transfer,
        segment: progress.messages,
        count: counted(progress.retransmits),
        generation: counted(progress.packets),
        length: progress.acknowledged,
        ..Event::new(EventKind::Sent)
    }
}

/// Creates the event with which an NI reports that command `number`'s transfer has ended.
#[must_use]
pub fn end_event(number: u32, done: &CommandCompletion) -> Event {
    let nowhere = CardAddr::new(0);
    let (outcome, address, acknowledged, tries, reason) = match done.result {
        Ok(()) => (Outcome::Done, nowhere, done.packets, 0, 0),
        Err(error) => match error {
            SendFailure::Unanswered { address, acknowledged, tries, .. } => {
                (Outcome::Unanswered, address, acknowledged, tries, 0)
            }
            SendFailure::Refused { address, acknowledged, tries, reason, .. } => {
                (Outcome::Refused, address, acknowledged, tries, reason.value())
            }
            SendFailure::Scheme { address, .. } => {
                (Outcome::Refused, address, 0, 0, NackReason::Scheme.value())
            }
            SendFailure::Superseded { address, .. } => {
                (Outcome::Refused, address, 0, 0, NackReason::Superseded.value())
            }
            SendFailure::Forgotten { address, acknowledged, tries, .. } => {
                (Outcome::Forgotten, address, acknowledged, tries, 0)
            }
            SendFailure::Deadline { address, acknowledged, tries, .. } => {
                (Outcome::Deadline, address, acknowledged, tries, 0)
            }
            SendFailure::ReceiverNotReady { address, acknowledged, tries, .. } => {
                (Outcome::NotReady, address, acknowledged, tries, 0)
            }
            SendFailure::Cancelled { address, acknowledged, .. } => {
                (Outcome::Cancelled, address, acknowledged, 0, 0)
            }
            SendFailure::NotTaken { address, .. } => (Outcome::NotTaken, address, 0, 0, 0),
        },
    };
    let incarnation = match done.result {
        Err(SendFailure::Superseded { newest, .. }) => newest,
        _ => Incarnation::new(0),
    };
    Event {
        reason: outcome.value(),
        incarnation,
        index: reason.into(),
        op: OpNumber::new(number),
        node: done.node,
        transfer: done.transfer.unwrap_or(TransferId::new(0)),
        segment: if done.result.is_ok() { done.segments } else { 0 },
        count: counted(done.retransmits),
        generation: counted(done.packets),
        address,
        length: acknowledged,
        tries,
        ..Event::new(EventKind::Sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sender::Notify;
    use fpga_firmware::ids::NodeId;

    const NODE: NodeId = NodeId::new(7);

    fn command(length: u64) -> Command {
        Command {
            source: CardAddr::new(0x1000),
            node: NODE,
            destination: CardAddr::new(0x2000),
            length,
            key: 3,
            notify: Notify::Receiver,
            deadline: None,
            priority: 0,
        }
    }

    fn handed_over(commands: &mut CommandTable) -> u32 {
        match commands.poll_transmit(Nanos::ZERO).map(|transmit| transmit.kind) {
            Some(TransmitKind::Command { number, .. }) => number,
            other => panic!("{other:?}"),
        }
    }

    /// For every outcome, the host gets exactly what the NI reports.
    #[test]
    fn command_every_outcome_reaches_host_unchanged() {
        let (node, address, acknowledged, tries) = (NODE, CardAddr::new(0x2200), 5, 4);
        let ends = [
            Ok(()),
            Err(SendFailure::Unanswered { node, address, acknowledged, tries }),
            Err(SendFailure::Refused { node, address, acknowledged, tries, reason: NackReason::Violation }),
            Err(SendFailure::Refused { node, address, acknowledged, tries, reason: NackReason::BadPacket }),
            Err(SendFailure::Scheme { node, address }),
            Err(SendFailure::Forgotten { node, address, acknowledged, tries }),
            Err(SendFailure::Deadline { node, address, acknowledged, tries }),
            Err(SendFailure::Cancelled { node, address, acknowledged }),
            Err(SendFailure::NotTaken { node, address }),
        ];
        let mut commands = CommandTable::new(2, 9, 4);
        for result in ends {
            let ticket = commands.submit(Nanos::ZERO, command(5000), None).unwrap();
            let number = handed_over(&mut commands);
            let told = CommandCompletion {
                result,
                segments: 3,
                packets: 10,
                retransmits: 2,
                transfer: Some(TransferId::new(9)),
                ..CommandCompletion::refused(
                    &command(5000),
                    Nanos::ZERO,
                    SendFailure::NotTaken { node, address },
                )
            };
            let event = end_event(number, &told);
            assert!(commands.handle_event(Nanos::new(5), &event));
            let done = commands.poll_completion().unwrap();
            assert_eq!((done.ticket, done.result, done.segments), (ticket, result, 3));
            assert_eq!((done.packets, done.retransmits, done.transfer), (10, 2, Some(TransferId::new(9))));
            // A repeated event is stale.
            let stale = commands.counters().stale;
            assert!(commands.handle_event(Nanos::new(6), &event));
            assert_eq!((commands.counters().stale, commands.poll_completion()), (stale + 1, None));
        }
        let counters = commands.counters();
        assert_eq!((counters.completed, counters.failed, counters.refused), (1, 8, 3));
        assert!(commands.is_idle());
    }

    #[test]
    fn command_progress_is_counted_once() {
        let mut commands = CommandTable::new(1, 9, 4);
        let ticket = commands.submit(Nanos::ZERO, command(5000), None).unwrap();
        let number = handed_over(&mut commands);
        let progress = |messages, acknowledged| {
            let (packets, retransmits) = (acknowledged + 1, 1);
            let transfer = TransferId::new(0);
            Progress { ticket, transfer, node: NODE, messages, acknowledged, packets, retransmits }
        };
        for (messages, acknowledged) in [(1, 4), (1, 4), (2, 8), (1, 4)] {
            commands.handle_event(Nanos::ZERO, &progress_event(number, &progress(messages, acknowledged)));
        }
        let counters = commands.counters();
        assert_eq!((counters.acknowledged, counters.packets, counters.segments), (8, 9, 2));
        let [view] = commands.transfers().collect::<alloc::vec::Vec<_>>().try_into().unwrap();
        assert_eq!((view.outstanding, view.acknowledged, view.stage), (1, 8, TransferStage::InProgress));
        assert_eq!((view.class, view.segments), (TransferClass::Big, 3));
        assert!(!commands.handle_event(Nanos::ZERO, &Event::new(EventKind::Ack)));
    }

    #[test]
    fn transfers_of_one_message_shown_as_regular() {
        let mut commands = CommandTable::new(2, 9, 4);
        for (length, class) in [(2048, TransferClass::Regular), (2049, TransferClass::Big)] {
            let ticket = commands.submit(Nanos::ZERO, command(length), None).unwrap();
            let found = commands.transfers().find(|view| view.ticket == ticket).map(|view| view.class);
            assert_eq!(found, Some(class), "{length}");
        }
    }

    #[test]
    fn event_of_former_command_of_slot_stale() {
        let mut commands = CommandTable::new(1, 9, 4);
        let done = |number| Event {
            reason: Outcome::Done.value(),
            op: OpNumber::new(number),
            ..Event::new(EventKind::Sent)
        };
        commands.submit(Nanos::ZERO, command(1), None).unwrap();
        let former = handed_over(&mut commands);
        commands.handle_event(Nanos::ZERO, &done(former));
        assert!(commands.poll_completion().is_some());
        let ticket = commands.submit(Nanos::ZERO, command(1), None).unwrap();
        let current = handed_over(&mut commands);
        assert_ne!(former, current);
        assert!(commands.handle_event(Nanos::ZERO, &done(former)));
        assert_eq!((commands.counters().stale, commands.poll_completion()), (1, None));
        assert!(commands.handle_event(Nanos::ZERO, &done(current)));
        assert_eq!(commands.poll_completion().map(|done| done.ticket), Some(ticket));
    }

    #[test]
    fn command_invalid_is_refused_and_queued_is_withdrawn() {
        let mut commands = CommandTable::new(1, 9, 4);
        let away = Command { source: CardAddr::new(u64::MAX), ..command(2) };
        assert!(matches!(commands.submit(Nanos::ZERO, away, None), Err(CommandError::Address { .. })));
        let told = Command { notify: Notify::Sender, ..command(2) };
        assert_eq!(commands.submit(Nanos::ZERO, told, None), Err(CommandError::Notify));
        commands.submit(Nanos::ZERO, command(0), None).unwrap();
        assert_eq!(commands.poll_completion().unwrap().result, Ok(()));
        let first = commands.submit(Nanos::ZERO, command(1), None).unwrap();
        assert_eq!(commands.submit(Nanos::ZERO, command(1), None), Err(CommandError::Full { capacity: 1 }));
        assert_eq!(commands.cancel(Nanos::ZERO, first), Withdrawal::AtHost);
        assert_eq!(commands.cancel(Nanos::ZERO, first), Withdrawal::Ended);
        assert!(commands.poll_completion().is_some());
        // A transfer whose deadline passes before a window is free is never sent.
        let soon = Command { deadline: Some(Nanos::new(5)), ..command(1) };
        commands.submit(Nanos::ZERO, soon, None).unwrap();
        assert_eq!(commands.poll_transmit(Nanos::new(5)), None);
        let late = commands.poll_completion().unwrap().result;
        assert!(matches!(late, Err(SendFailure::Deadline { .. })), "{late:?}");
        let second = commands.submit(Nanos::ZERO, command(1), None).unwrap();
        let number = handed_over(&mut commands);
        assert_eq!(commands.cancel(Nanos::ZERO, second), Withdrawal::Interface(number));
    }
}
