//! One channel of the shared card, with buffers for several transfers of all views.
//!
//! A slot is a buffer and its transfer. It is free, in flight, or done until its view takes the result.

use std::time::Duration;

use fpga_driver::errors::FaultCause;
use fpga_driver::{Card, CardAddr, Channel, ChannelOptions, Direction, MemoryHandle, Ticket};
use fpga_pci::{LogLimit, log_limited};

use crate::error::ShareError;

/// Bytes of a slot's buffer: the longest access of a view.
pub(crate) const BUFFER: usize = 64 << 10;
/// Slots of a channel.
const SLOTS: usize = 8;
/// Engines of a view whose accesses are in order each, as the low part of [`ChannelAccesses::chain`](crate::channel::ChannelAccesses::chain): H2C,
/// C2H, copy engine.
pub(crate) const CHAINS: u64 = 16;
/// Maximum number of submissions of a transfer that did not run because an earlier one of the channel failed.
const MAX_SUBMISSIONS: u32 = 16;

/// A transfer that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransferRefused;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    InFlight(Transfer),
    Done(Result<(), TransferRefused>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Transfer {
    ticket: Ticket,
    at: CardAddr,
    length: usize,
    /// Transfers of one view that are executed in order, and none after one that has failed.
    chain: u64,
    /// Time of the submission on the card's clock.
    began: Duration,
    submissions: u32,
}

#[derive(Debug)]
struct Slot {
    state: State,
    /// Its view does not take the result any more.
    is_abandoned: bool,
}

/// A channel with its slots.
#[derive(Debug)]
pub(crate) struct Lane {
    card: Card,
    channel: Channel,
    memory: MemoryHandle,
    slots: [Slot; SLOTS],
    log: LogLimit,
}

impl Lane {
    pub(crate) fn open(card: &Card, direction: Direction, number: u8) -> Result<Self, ShareError> {
        let mut channel = card.channel(direction, number, ChannelOptions::default())?;
        let memory = channel.register_memory(card.registered_memory(SLOTS * BUFFER)?);
        let memory = memory.map_err(|refused| refused.error)?;
        let slots = [(); SLOTS].map(|()| Slot { state: State::Free, is_abandoned: false });
        Ok(Self { card: card.clone(), channel, memory, slots, log: LogLimit::new("clients' transfers") })
    }

    /// Number of free slots. The second half of them is for views without a transfer in flight.
    pub(crate) fn free_slots(&self, has_transfers: bool) -> usize {
        let free = self.slots.iter().filter(|slot| slot.state == State::Free).count();
        if has_transfers { free.saturating_sub(SLOTS / 2) } else { free }
    }

    /// Starts a transfer at card address `at`, of `from`, or of `length` bytes into the slot. Returns the slot; `None` without a free one.
    pub(crate) fn start(
        &mut self,
        at: CardAddr,
        length: usize,
        from: Option<&[u8]>,
        chain: u64,
    ) -> Result<Option<usize>, TransferRefused> {
        let Some(number) = self.slots.iter().position(|slot| slot.state == State::Free) else {
            return Ok(None);
        };
        if let Some(from) = from {
            let memory = self.channel.memory(self.memory).ok_or(TransferRefused)?;
            memory.write(number * BUFFER, from).map_err(|_| TransferRefused)?;
        }
        let transfer = self.submit(number, at, length, chain, 1)?;
        if let Some(slot) = self.slots.get_mut(number) {
            *slot = Slot { state: State::InFlight(transfer), is_abandoned: false };
        }
        Ok(Some(number))
    }

    fn submit(
        &mut self,
        number: usize,
        at: CardAddr,
        length: usize,
        chain: u64,
        submissions: u32,
    ) -> Result<Transfer, TransferRefused> {
        let began = self.card.now();
        match self.channel.submit_at(self.memory, number * BUFFER, length, at) {
            Ok(ticket) => {
                // Rings the doorbell, unless a run is in progress. A failure of the channel is found by the next poll.
                let _ = self.channel.poll();
                Ok(Transfer { ticket, at, length, chain, began, submissions })
            }
            Err(error) => {
                self.warn(chain, at, length, &format_args!("failed: {error}"));
                Err(TransferRefused)
            }
        }
    }

    /// Looks for transfers that have ended. One that lasts longer than `timeout` is cancelled.
    pub(crate) fn poll(&mut self, timeout: Duration) {
        let failed = self.channel.poll().err();
        let ended = self.slots.iter().any(|slot| match slot.state {
            State::InFlight(transfer) => self.channel.has_ended(transfer.ticket),
            _ => false,
        });
        if !ended && failed.is_none() {
            // A simulated card may work in this call.
            self.channel.relax();
            self.cancel_overdue(timeout);
            return;
        }
        let mut failed_chains = Vec::new();
        while let Some(completion) = self.channel.next_completion() {
            if let Err(fault) = completion.outcome {
                self.fail(completion.ticket, &fault.to_string(), &fault.kind.cause, &mut failed_chains);
            }
        }
        for number in 0..SLOTS {
            let State::InFlight(transfer) = self.state(number) else { continue };
            if let Some(error) = &failed {
                self.warn(transfer.chain, transfer.at, transfer.length, &format_args!("failed: {error}"));
                self.end(number, Err(TransferRefused));
            } else if self.channel.has_ended(transfer.ticket) {
                self.end(number, Ok(()));
            }
        }
    }

    /// Ends the transfer of `ticket` with its fault. Transfers of other chains after the faulty one have not run: they are repeated.
    fn fail(&mut self, ticket: Ticket, fault: &str, cause: &FaultCause, failed_chains: &mut Vec<u64>) {
        for number in 0..SLOTS {
            let State::InFlight(transfer) = self.state(number) else { continue };
            if transfer.ticket != ticket {
                continue;
            }
            let Transfer { at, length, chain, submissions, .. } = transfer;
            let repeats = matches!(cause, FaultCause::EarlierFault)
                && submissions < MAX_SUBMISSIONS
                && !failed_chains.contains(&chain);
            let repeated = repeats.then(|| self.submit(number, at, length, chain, submissions + 1));
            match repeated {
                Some(Ok(transfer)) => {
                    if let Some(slot) = self.slots.get_mut(number) {
                        slot.state = State::InFlight(transfer);
                    }
                }
                _ => {
                    self.warn(chain, at, length, &format_args!("failed: {fault}"));
                    failed_chains.push(chain);
                    self.end(number, Err(TransferRefused));
                }
            }
        }
    }

    fn cancel_overdue(&mut self, timeout: Duration) {
        let now = self.card.now();
        for number in 0..SLOTS {
            if let State::InFlight(transfer) = self.state(number)
                && now.saturating_sub(transfer.began) > timeout
            {
                // The next poll finds its completion.
                if let Err(error) = self.channel.cancel(transfer.ticket) {
                    self.warn(
                        transfer.chain,
                        transfer.at,
                        transfer.length,
                        &format_args!("does not end: {error}"),
                    );
                    self.end(number, Err(TransferRefused));
                }
            }
        }
    }

    /// Logs the failure of a client's transfer: a client may cause any number of them.
    fn warn(&self, chain: u64, at: CardAddr, length: usize, reason: &std::fmt::Arguments<'_>) {
        log_limited!(self.log, WARN, client = chain / CHAINS, %at, length, "the transfer of a client {reason}");
    }

    fn state(&self, number: usize) -> State {
        self.slots.get(number).map_or(State::Free, |slot| slot.state)
    }

    fn end(&mut self, number: usize, result: Result<(), TransferRefused>) {
        if let Some(slot) = self.slots.get_mut(number) {
            slot.state = if slot.is_abandoned { State::Free } else { State::Done(result) };
        }
    }

    /// Result of the transfer in slot `number`, if it has ended.
    pub(crate) fn result(&self, number: usize) -> Option<Result<(), TransferRefused>> {
        match self.state(number) {
            State::Free => Some(Err(TransferRefused)),
            State::InFlight(_) => None,
            State::Done(result) => Some(result),
        }
    }

    /// Takes the result of a transfer that has ended, and the data that it has read. The slot is free afterwards.
    pub(crate) fn take(&mut self, number: usize, into: &mut [u8]) -> Option<Result<(), TransferRefused>> {
        let result = self.result(number)?;
        let result = result.and_then(|()| {
            let memory = self.channel.memory(self.memory).ok_or(TransferRefused)?;
            memory.read(number * BUFFER, into).map_err(|_| TransferRefused)
        });
        self.abandon(number);
        Some(result)
    }

    /// Frees slot `number`, or has it freed when its transfer ends.
    pub(crate) fn abandon(&mut self, number: usize) {
        if let Some(slot) = self.slots.get_mut(number) {
            match slot.state {
                State::InFlight(_) => slot.is_abandoned = true,
                _ => slot.state = State::Free,
            }
        }
    }
}
