//! A channel and its transfers of registered memory.

pub(super) mod stops;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use fpga_driver::errors::{ChannelFault, FaultCause};
use fpga_driver::{
    CardAddr, Channel, ChannelError, Direction, DmaBuffer, Error, MemoryHandle, ScatterGatherEntry,
    SubmitError, Ticket, TransferError,
};

use crate::error::{Class, Failure, Problem};
use crate::memory::{Place, Region, Use};
use crate::wait::{self, Limit, Pause};
use stops::Stops;

/// How a transfer has ended: `None` for success. Shared by the engine, until then, and the ticket.
pub(super) type Outcome = Arc<OnceLock<Option<Problem>>>;

/// Maximum number of failures that no call has reported; then the oldest are dropped. Tickets keep their own.
const MAX_FAILURES: usize = 1024;

/// Transfer of a call of this package, such as a blocking write.
struct Call {
    ticket: Ticket,
    /// Buffer and failure, once it has ended with either.
    ended: Option<(Option<DmaBuffer>, Option<Problem>)>,
}

/// A submitted transfer.
struct Flight {
    last: Ticket,
    outcome: Outcome,
    /// Declared for its drop: the memory is in use until then.
    _memory: Vec<Use>,
}

/// Channel with the memory that is registered with it.
pub(crate) struct Engine {
    pub(super) card: fpga_driver::Card,
    pub(super) direct: Channel,
    /// Handles of registered regions, by their numbers.
    handles: BTreeMap<u64, MemoryHandle>,
    /// Groups of transfers in flight, in submission order.
    flights: VecDeque<Flight>,
    /// Transfers that failed and were not waited for, by ticket.
    failures: BTreeMap<Ticket, Problem>,
    /// The last transfer that failed for a reason of its own, and the reason.
    cause: Option<(Ticket, String)>,
    /// Why the channel as a whole has failed.
    lost: Option<Problem>,
    /// Transfers of calls.
    calls: Vec<Call>,
    /// Transfers that are being cancelled, and an abort.
    pub(super) stops: Stops,
}

impl Engine {
    pub(super) fn new(card: fpga_driver::Card, direct: Channel) -> Self {
        let (handles, flights, failures) = Default::default();
        let (cause, lost, calls, stops) = Default::default();
        Self { card, direct, handles, flights, failures, cause, lost, calls, stops }
    }

    pub(super) fn direction(&self) -> Direction {
        self.direct.name().direction
    }

    pub(super) fn label(&self) -> String {
        self.direct.name().to_string()
    }

    pub(super) fn in_flight(&mut self) -> u32 {
        self.direct.in_flight()
    }

    /// Number of transfers that have ended.
    pub(super) fn ended(&mut self) -> u64 {
        self.direct.ended()
    }

    /// The oldest transfer in flight.
    pub(super) fn oldest(&mut self) -> Option<Ticket> {
        let ended = self.direct.ended();
        (self.in_flight() > 0).then(|| Ticket::from_number(ended))
    }

    /// The transfer that was submitted last, if any.
    pub(super) fn last(&mut self) -> Option<Ticket> {
        let submitted = self.direct.ended() + u64::from(self.direct.in_flight());
        submitted.checked_sub(1).map(Ticket::from_number)
    }

    /// The handle of a region, which is registered with the channel at its first transfer.
    pub(super) fn handle(&mut self, region: &Region) -> Result<MemoryHandle, Failure> {
        if let Some(handle) = self.handles.get(&region.number) {
            return Ok(*handle);
        }
        let Some(memory) = region.dma() else {
            return Err(wait::closed("the memory's card"));
        };
        let handle = self.direct.register_memory(memory).map_err(|refused| refused.error)?;
        self.handles.insert(region.number, handle);
        Ok(handle)
    }

    /// Deregisters a region. Returns false while a transfer uses it.
    pub(super) fn deregister(&mut self, number: u64) -> bool {
        let Some(handle) = self.handles.get(&number) else { return true };
        match self.direct.deregister_memory(*handle) {
            Err(Error { kind: ChannelError::MemoryInUse, .. }) => false,
            // After another error the channel does not know the memory.
            _ => {
                self.handles.remove(&number);
                true
            }
        }
    }

    /// Queues a transfer of a part of a region.
    pub(super) fn submit(&mut self, place: &Place, card: CardAddr) -> Result<(Ticket, Outcome), Failure> {
        let ticket = self.submit_place(place, card)?;
        Ok((ticket, self.hold(ticket, vec![Use::of(&place.region)])))
    }

    /// As [`submit`](Self::submit), for a call that keeps the memory in use itself.
    pub(super) fn submit_place(&mut self, place: &Place, card: CardAddr) -> Result<Ticket, Failure> {
        let handle = self.handle(&place.region)?;
        let submitted = self.direct.submit_at(handle, place.offset, place.length, card);
        self.or_after_poll(submitted, |engine| {
            engine.direct.submit_at(handle, place.offset, place.length, card)
        })
    }

    /// Queues parts of regions as one transfer.
    pub(super) fn submit_list(&mut self, parts: &[(Place, CardAddr)]) -> Result<(Ticket, Outcome), Failure> {
        let mut entries = Vec::with_capacity(parts.len());
        for (Place { region, offset, length }, card) in parts {
            let (memory, offset, length, card) = (self.handle(region)?, *offset, *length, *card);
            entries.push(ScatterGatherEntry { memory, offset, length, card });
        }
        let submitted = self.direct.submit_list(&entries);
        let ticket = self.or_after_poll(submitted, |engine| engine.direct.submit_list(&entries))?;
        Ok((ticket, self.hold(ticket, parts.iter().map(|(place, _)| Use::of(&place.region)).collect())))
    }

    /// Submits once more after a poll if the ring was full: transfers that have ended leave their descriptors to the poll.
    fn or_after_poll(
        &mut self,
        submitted: Result<Ticket, Error<SubmitError>>,
        again: impl FnOnce(&mut Self) -> Result<Ticket, Error<SubmitError>>,
    ) -> Result<Ticket, Failure> {
        match submitted {
            Err(error) if error.is_full() => {
                self.poll()?;
                Ok(again(self)?)
            }
            other => Ok(other?),
        }
    }

    /// Keeps memory in use until a transfer has ended.
    fn hold(&mut self, last: Ticket, memory: Vec<Use>) -> Outcome {
        let outcome = Outcome::default();
        self.flights.push_back(Flight { last, outcome: Arc::clone(&outcome), _memory: memory });
        outcome
    }

    /// Polls, and takes what has ended. Returns the number of transfers that ended.
    pub(super) fn poll(&mut self) -> Result<usize, Failure> {
        let ended = self.direct.poll();
        self.settled(ended)
    }

    /// Takes what has ended, after a call of the channel: memory is free again, and failures wait for the owner of their ticket.
    pub(super) fn settled<T>(&mut self, result: Result<T, Error<ChannelError>>) -> Result<T, Failure> {
        let result = result.map_err(Problem::from);
        if let Err(problem) = &result
            && matches!(problem.class, Class::Gone | Class::Wedged)
        {
            self.lost.get_or_insert_with(|| problem.clone());
        }
        while let Some(done) = self.direct.next_completion() {
            let problem = done.outcome.err().map(|fault| self.problem(done.ticket, *fault));
            if let Some(call) = self.calls.iter_mut().find(|call| call.ticket == done.ticket) {
                call.ended = Some((done.buffer, problem));
            } else if self.stops.is_given_up(done.ticket) {
                // Its call has reported a failure.
            } else if let Some(problem) = problem {
                let at = self.flights.partition_point(|flight| flight.last < done.ticket);
                if let Some(flight) = self.flights.get(at).filter(|flight| flight.last == done.ticket) {
                    let _ = flight.outcome.set(Some(problem.clone()));
                }
                self.failures.insert(done.ticket, problem);
                if self.failures.len() > MAX_FAILURES {
                    self.failures.pop_first();
                }
            }
        }
        while let Some(flight) = self.flights.front()
            && self.direct.has_ended(flight.last)
        {
            if let Some(flight) = self.flights.pop_front() {
                // A transfer with a failure has its outcome already.
                let _ = flight.outcome.set(None);
            }
        }
        Ok(result?)
    }

    /// The failure of a transfer, with its first cause.
    fn problem(&mut self, ticket: Ticket, fault: Error<ChannelFault>) -> Problem {
        match (&fault.kind.cause, &self.cause, &self.lost) {
            // The driver ended it together with the channel.
            (cause, _, Some(lost)) if cause.is_loss() => lost.clone(),
            (FaultCause::Aborted, _, _) => fault.widen::<TransferError>().into(),
            (FaultCause::EarlierFault, Some((first, reason)), _) => {
                let reason = format!("; transfer {} failed: {reason}", first.number());
                let mut problem = Problem::from(fault.widen::<TransferError>());
                problem.message.push_str(&reason);
                problem
            }
            _ => {
                self.cause = Some((ticket, fault.kind.to_string()));
                fault.widen::<TransferError>().into()
            }
        }
    }

    /// Whether no transfers of other calls are in flight.
    pub(super) fn is_alone(&self) -> bool {
        self.flights.is_empty() && self.calls.is_empty()
    }

    pub(super) fn has_ended(&mut self, ticket: Ticket) -> bool {
        self.direct.has_ended(ticket)
    }

    /// A part of a wait until a transfer, and so every earlier one, has ended. Returns whether it has.
    ///
    /// # Errors
    /// As a wait of the channel; `TransferFault` if the transfer is being cancelled.
    #[inline]
    pub(super) fn wait_part(
        &mut self,
        ticket: Ticket,
        limit: &mut Limit,
        pause: &Pause<'_>,
    ) -> Result<bool, Failure> {
        if self.is_stopping() {
            return self.wait_stopping(ticket, limit);
        }
        let options = limit.options();
        let waited = self.direct.wait_ended_unless(ticket, options, &mut || pause.is_due());
        match self.settled(waited.map_err(|error| limit.in_all(error)))? {
            None => Ok(true),
            Some(waited) => {
                limit.waited(waited);
                Ok(false)
            }
        }
    }

    /// Takes the first failure of the transfers from `first` to `last`; the others fail for the same reason, and count as reported.
    pub(super) fn take_failure(&mut self, first: Ticket, last: Ticket) -> Option<Failure> {
        if self.failures.is_empty() {
            return None;
        }
        let mut later = self.failures.split_off(&first);
        let mut behind = later.split_off(&Ticket::from_number(last.number().saturating_add(1)));
        self.failures.append(&mut behind);
        later.pop_first().map(|(_, problem)| problem.into())
    }

    /// The failure of the channel as a whole, if it has failed.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.lost.clone().map_or(Ok(()), |problem| Err(problem.into()))
    }

    /// Takes the first failure of all. The others count as reported; their tickets keep them.
    pub(super) fn take_any_failure(&mut self) -> Option<Failure> {
        std::mem::take(&mut self.failures).pop_first().map(|(_, problem)| problem.into())
    }

    /// Whether a call of this package has submitted the transfer, and waits for it.
    pub(super) fn expect(&mut self, ticket: Ticket) {
        self.calls.push(Call { ticket, ended: None });
    }

    /// Takes what a transfer of a call has ended with: its buffer, if it has one, or its failure.
    pub(super) fn taken(&mut self, ticket: Ticket) -> Result<Option<DmaBuffer>, Failure> {
        let Some(at) = self.calls.iter().position(|call| call.ticket == ticket) else { return Ok(None) };
        match self.calls.swap_remove(at).ended {
            // Registered memory: a success is only counted.
            None | Some((None, None)) => Ok(None),
            Some((buffer, None)) => Ok(buffer),
            Some((_, Some(problem))) => Err(problem.into()),
        }
    }

    /// Gives up the transfers of a call: what they end with is dropped.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.calls.retain(|call| call.ticket != ticket);
    }
}
