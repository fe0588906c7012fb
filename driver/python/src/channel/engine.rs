//! A channel and its transfers of registered memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use fpga_driver::errors::{ChannelFault, FaultCause};
use fpga_driver::{
    C2hChannel, CardAddr, ChannelError, ChannelOptions, Error, H2cChannel, MemoryHandle, ScatterGatherEntry,
    SubmitError, Ticket, TransferError, WaitOptions,
};
use pyo3::prelude::*;

use crate::card::CardState;
use crate::error::{Class, Failure, Problem};
use crate::memory::{Place, Region, Regions, Use, brief};
use crate::wait;

/// Direction of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    H2c,
    C2h,
}

impl Side {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::H2c => "h2c",
            Self::C2h => "c2h",
        }
    }
}

/// The driver's channel.
pub(super) enum Direct {
    H2c(H2cChannel),
    C2h(C2hChannel),
}

/// Calls the same method of either direction.
macro_rules! either {
    ($engine:expr, $channel:ident => $call:expr) => {
        match &mut $engine.direct {
            $crate::channel::engine::Direct::H2c($channel) => $call,
            $crate::channel::engine::Direct::C2h($channel) => $call,
        }
    };
}
pub(super) use either;

/// How a transfer has ended: `None` for success. Shared by the engine, until then, and the ticket.
pub(super) type Outcome = Arc<OnceLock<Option<Problem>>>;

/// Maximum number of failures that no call has reported; then the oldest are dropped. Tickets keep their own.
const MAX_FAILURES: usize = 1024;

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
    pub(super) direct: Direct,
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
}

/// Channel that Python threads share.
pub(crate) struct Shared {
    pub(crate) side: Side,
    pub(crate) number: u8,
    /// Name of the card.
    pub(crate) card: String,
    pub(crate) regions: Arc<Regions>,
    /// `None`: closed.
    pub(crate) engine: Mutex<Option<Engine>>,
    /// Regions whose objects are gone, to be deregistered by the next call.
    retired: Mutex<Vec<u64>>,
    has_retired: AtomicBool,
}

impl Shared {
    /// Takes a channel of a card.
    pub(crate) fn open(
        py: Python<'_>,
        card: &CardState,
        side: Side,
        number: u8,
        options: ChannelOptions,
    ) -> Result<Arc<Self>, Failure> {
        let opened = card.get()?;
        let direct = wait::detached(py, || match side {
            Side::H2c => opened.h2c_with(number, options).map(Direct::H2c),
            Side::C2h => opened.c2h_with(number, options).map(Direct::C2h),
        })?;
        let (handles, flights, failures) = Default::default();
        let engine = Engine { card: opened, direct, handles, flights, failures, cause: None, lost: None };
        let shared = Arc::new(Self {
            side,
            number,
            card: card.name().to_owned(),
            regions: Arc::clone(card.regions()),
            engine: Mutex::new(Some(engine)),
            retired: Mutex::default(),
            has_retired: AtomicBool::new(false),
        });
        card.regions().attach(&shared);
        Ok(shared)
    }

    pub(crate) fn label(&self) -> String {
        format!("{}{}", self.side.name(), self.number)
    }

    pub(crate) fn closed(&self) -> Failure {
        wait::closed(&self.label()).on_card(&self.card)
    }

    pub(crate) fn is_open(&self, py: Python<'_>) -> Result<bool, Failure> {
        Ok(wait::lock(py, &self.engine)?.is_some())
    }

    /// Gives the channel back.
    pub(crate) fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        let engine = wait::lock(py, &self.engine)?.take();
        py.detach(|| drop(engine));
        Ok(())
    }

    /// Locks the channel for one call.
    pub(super) fn lock<'a>(&'a self, py: Python<'_>) -> Result<Locked<'a>, Failure> {
        let mut guard = wait::lock(py, &self.engine)?;
        if self.has_retired.swap(false, Ordering::AcqRel)
            && let Some(engine) = guard.as_mut()
        {
            self.deregister(engine);
        }
        if guard.is_none() {
            return Err(self.closed());
        }
        Ok(Locked { guard, shared: self })
    }

    /// Deregisters retired regions, except those that a transfer still uses.
    #[cold]
    fn deregister(&self, engine: &mut Engine) {
        let mut retired = brief(&self.retired);
        retired.retain(|number| !engine.deregister(*number));
        self.has_retired.store(!retired.is_empty(), Ordering::Release);
    }

    /// Deregisters a region whose object is gone: now, or with the next call if another thread uses the channel.
    pub(crate) fn forget(&self, py: Python<'_>, number: u64) {
        brief(&self.retired).push(number);
        self.has_retired.store(true, Ordering::Release);
        let Ok(mut guard) = self.engine.try_lock() else { return };
        match guard.as_mut() {
            Some(engine) => py.detach(|| self.deregister(engine)),
            None => brief(&self.retired).clear(),
        }
    }
}

/// Open channel that is locked.
pub(super) struct Locked<'a> {
    guard: MutexGuard<'a, Option<Engine>>,
    shared: &'a Shared,
}

impl Locked<'_> {
    /// The channel.
    ///
    /// # Errors
    /// `ClosedError`, which cannot happen while it is locked.
    pub(super) fn engine(&mut self) -> Result<&mut Engine, Failure> {
        self.guard.as_mut().ok_or_else(|| self.shared.closed())
    }
}

impl Engine {
    /// The handle of a region, which is registered with the channel at its first transfer.
    pub(super) fn handle(&mut self, region: &Region) -> Result<MemoryHandle, Failure> {
        if let Some(handle) = self.handles.get(&region.number) {
            return Ok(*handle);
        }
        let memory = region.memory.clone();
        let handle =
            either!(self, channel => channel.register_memory(memory)).map_err(|refused| refused.error)?;
        self.handles.insert(region.number, handle);
        Ok(handle)
    }

    /// Deregisters a region. Returns false while a transfer uses it.
    fn deregister(&mut self, number: u64) -> bool {
        let Some(handle) = self.handles.get(&number) else { return true };
        match either!(self, channel => channel.deregister_memory(*handle)) {
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
        let handle = self.handle(&place.region)?;
        let submitted = either!(self, channel => channel.submit_at(handle, place.offset, place.length, card));
        let ticket = self.or_after_poll(
            submitted,
            |engine| either!(engine, channel => channel.submit_at(handle, place.offset, place.length, card)),
        )?;
        Ok((ticket, self.hold(ticket, vec![Use::of(&place.region)])))
    }

    /// Queues parts of regions as one transfer.
    pub(super) fn submit_list(&mut self, parts: &[(Place, CardAddr)]) -> Result<(Ticket, Outcome), Failure> {
        let mut entries = Vec::with_capacity(parts.len());
        for (Place { region, offset, length }, card) in parts {
            let (memory, offset, length, card) = (self.handle(region)?, *offset, *length, *card);
            entries.push(ScatterGatherEntry { memory, offset, length, card });
        }
        let submitted = either!(self, channel => channel.submit_list(&entries));
        let ticket = self
            .or_after_poll(submitted, |engine| either!(engine, channel => channel.submit_list(&entries)))?;
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
        let ended = either!(self, channel => channel.poll());
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
        while let Some(done) = either!(self, channel => channel.next_completion()) {
            if let Err(fault) = done.outcome {
                let problem = self.problem(done.ticket, *fault);
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
            && either!(self, channel => channel.has_ended(flight.last))
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
            (FaultCause::Aborted, _, Some(lost)) => lost.clone(),
            (FaultCause::Aborted, _, None) => fault.widen::<TransferError>().into(),
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

    /// Whether no submitted transfers are in flight, except those of the call in progress.
    pub(super) fn is_alone(&self) -> bool {
        self.flights.is_empty()
    }

    pub(super) fn has_ended(&mut self, ticket: Ticket) -> bool {
        either!(self, channel => channel.has_ended(ticket))
    }

    /// Waits until a transfer, and so every earlier one, has ended.
    pub(super) fn wait_ended(&mut self, ticket: Ticket, options: WaitOptions) -> Result<(), Failure> {
        let waited = either!(self, channel => channel.wait_ended(ticket, options));
        self.settled(waited)
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

    /// Transfers DMA memory in place and waits. If the wait ends early, the transfer is cancelled.
    pub(super) fn transfer(
        &mut self,
        place: &Place,
        card: CardAddr,
        options: WaitOptions,
    ) -> Result<(), Failure> {
        if place.length == 0 {
            return Ok(());
        }
        let ticket = loop {
            match self.submit(place, card) {
                Ok((ticket, _)) => break ticket,
                // Transfers in flight occupy the ring: the oldest group ends first.
                Err(failure) if failure.is(Class::Full) && !self.flights.is_empty() => {
                    let oldest = self.flights.front().map_or(Ticket::from_number(0), |flight| flight.last);
                    self.wait_ended(oldest, options)?;
                }
                Err(failure) => return Err(failure),
            }
        };
        if let Err(failure) = self.wait_ended(ticket, options) {
            let _ = self.cancel(ticket);
            // The report of the cancelled transfer is this failure.
            self.take_failure(ticket, ticket);
            return Err(self.after_early_end(failure));
        }
        self.take_failure(ticket, ticket).map_or(Ok(()), Err)
    }

    /// Failure to report after a wait that ended early: if the engine could not be stopped either, the second one, which has the remedy.
    #[cold]
    pub(super) fn after_early_end(&mut self, failure: Failure) -> Failure {
        match self.poll() {
            Err(second) if failure.is(Class::TimedOut) => second,
            _ => failure,
        }
    }

    /// Stops the engine and ends everything in flight.
    pub(super) fn abort(&mut self) -> Result<usize, Failure> {
        let ended = either!(self, channel => channel.abort());
        self.settled(ended)
    }

    /// Cancels a transfer. Returns false if it had ended.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> Result<bool, Failure> {
        let cancelled = either!(self, channel => channel.cancel(ticket));
        self.settled(cancelled)
    }
}
