//! Endpoint that many threads and tasks use at the same time.
//!
//! It is shared by a lock, not by a thread: a caller that waits drives the endpoint for all others. An [`Endpoint`](super::Endpoint) that
//! one thread owns has no lock.

mod pending;

pub use pending::{PendingRead, PendingSend};

use fpga_pci::Waited;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use fpga_firmware::NodeId;
use fpga_pci::{Backend, Deadline, DmaBuffer, Interrupt, lock};
use fpga_protocol::Nanos;
use fpga_registers::CardAddr;

use super::wait::{IdleWait, WaitAction};
use super::{
    Endpoint, EndpointCounters, EndpointError, Notification, Peer, ReadCompletion, ReadError, ReadTicket,
    ReadableHandle, RegionHandle, RemoteReadable, RemoteRegion, SegmentArrival, SendCompletion, SendError,
    SendOptions, SendTicket,
};
use fpga_driver::errors::CardPart;
use fpga_driver::extension::At as _;
use fpga_driver::{Cancellation, Card, CardRange, Error, ErrorPlace, TransferFailed};
use fpga_pci::wait::BackoffStep;

/// Endpoint behind a lock. Clones are handles to the same endpoint.
///
/// It is `Send` and `Sync` and starts no thread. A caller that waits polls the endpoint for all handles; completions of other
/// handles are kept for them. A call holds the lock for one poll of the endpoint, not for the time of the wait. An [`Endpoint`] that one
/// thread uses alone costs less: it takes no lock and allocates nothing.
///
/// Among threads that wait and find nothing to do, one (the sleeper) sleeps until an event of the card, as [`Endpoint::wait`] does. The
/// others sleep until the sleeper has a result for them or leaves; then one of them replaces it. A new transfer wakes the sleeper, which
/// then polls.
#[derive(Debug, Clone)]
pub struct SharedEndpoint {
    inner: Arc<Shared>,
    card: Card,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// Signalled when a result for a waiting thread is available, or when the sleeper has left.
    waiters: Condvar,
}

/// Time after its deadline at which a waiting thread ends its wait by itself.
const WAITER_DEADLINE_SLACK: Duration = Duration::from_millis(5);

/// Thread that sleeps until an event of the card (the sleeper).
#[derive(Debug)]
struct SleepState {
    /// Interrupt that ends the sleep; `None`: the thread wakes by itself after a short time.
    interrupt: Option<Interrupt>,
    until: Nanos,
}

/// State behind the lock. As long as threads wait, one other thread is the sleeper or is about to become it: a thread that leaves wakes
/// another.
#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    sleeper: Option<SleepState>,
    /// Deadlines of the waiting threads.
    limits: Vec<Nanos>,
    /// Number of results for any handle that the waiting threads were not notified of.
    unreported: u64,
    /// Transfers with a handle. `None`: in progress.
    sends: HashMap<SendTicket, Option<SendCompletion>>,
    /// Reads with a handle.
    reads: HashMap<ReadTicket, Option<ReadCompletion>>,
    notifications: VecDeque<Notification>,
}

impl Inner {
    /// Drives the endpoint and distributes its results, including results from before an error of the endpoint.
    fn drive(&mut self) -> Result<usize, Error<EndpointError>> {
        let answers = self.endpoint.peers.answers();
        let polled = self.endpoint.poll();
        self.unreported += self.endpoint.peers.answers() - answers;
        while let Some(done) = self.endpoint.next_completion() {
            // The completion of a transfer whose handle was dropped is discarded.
            if let Some(place) = self.sends.get_mut(&done.ticket) {
                *place = Some(done);
                self.unreported += 1;
            }
        }
        while let Some(done) = self.endpoint.next_read() {
            if let Some(place) = self.reads.get_mut(&done.ticket) {
                *place = Some(done);
                self.unreported += 1;
            }
        }
        let known = self.notifications.len();
        self.notifications.extend(std::iter::from_fn(|| self.endpoint.next_notification()));
        self.unreported += (self.notifications.len() - known) as u64;
        // All waiting threads must learn of the error.
        self.unreported += u64::from(polled.is_err());
        polled
    }

    /// Wakes the sleeper for work or a result that the card does not signal.
    fn wake_waiter(&self) {
        if let Some(interrupt) = self.sleeper.as_ref().and_then(|sleeper| sleeper.interrupt.as_ref()) {
            interrupt.wake();
        }
    }

    fn is_cancelled(&self) -> bool {
        self.endpoint.waits.cancel.is_some_and(|cancel| cancel.is_requested())
    }

    /// Returns the time at which a wait until `limit` looks again: a cancellation wakes no thread.
    fn next_look(&self, now: Nanos, limit: Nanos) -> Nanos {
        match self.endpoint.waits.cancel {
            Some(_) => limit.min(now.saturating_add(Nanos::from(Cancellation::CHECK_INTERVAL))),
            None => limit,
        }
    }

    /// Returns the earliest deadline of `limit` and those of the waiting threads.
    fn earliest(&self, limit: Nanos) -> Nanos {
        self.limits.iter().copied().fold(limit, Nanos::min)
    }

    fn take_read(&mut self, ticket: ReadTicket) -> Option<ReadCompletion> {
        let done = self.reads.get_mut(&ticket)?.take()?;
        self.reads.remove(&ticket);
        Some(done)
    }

    fn take_send(&mut self, ticket: SendTicket) -> Option<SendCompletion> {
        let done = self.sends.get_mut(&ticket)?.take()?;
        self.sends.remove(&ticket);
        Some(done)
    }
}

impl From<Endpoint> for SharedEndpoint {
    fn from(endpoint: Endpoint) -> Self {
        let card = endpoint.card().clone();
        let inner = Inner {
            endpoint,
            sleeper: None,
            limits: Vec::new(),
            unreported: 0,
            sends: HashMap::new(),
            reads: HashMap::new(),
            notifications: VecDeque::new(),
        };
        Self { inner: Arc::new(Shared { inner: Mutex::new(inner), waiters: Condvar::new() }), card }
    }
}

impl SharedEndpoint {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic of a thread that held the lock leaves no endpoint state incomplete: its calls run no foreign code.
        lock(&self.inner.inner)
    }

    /// Runs `change`, which gives the endpoint work, and wakes the sleeper.
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let changed = change(&mut inner);
        inner.wake_waiter();
        changed
    }

    fn backend(&self) -> &dyn Backend {
        &**self.card.backend()
    }

    fn place(&self) -> ErrorPlace {
        self.card.place().of_part(CardPart::Endpoint)
    }

    /// Returns the card.
    #[must_use]
    pub const fn card(&self) -> &Card {
        &self.card
    }

    /// Returns this node's id on the network.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.lock().endpoint.node()
    }

    /// Calls `look` with the endpoint, for listings and counters.
    pub fn inspect<T>(&self, look: impl FnOnce(&Endpoint) -> T) -> T {
        look(&self.lock().endpoint)
    }

    /// Returns the counters since the endpoint was opened.
    #[must_use]
    pub fn counters(&self) -> EndpointCounters {
        self.lock().endpoint.counters()
    }

    /// As [`Endpoint::open_region`].
    ///
    /// # Errors
    /// As [`Endpoint::open_region`].
    pub fn open_region(
        &self,
        source: NodeId,
        range: CardRange,
    ) -> Result<RegionHandle, Error<EndpointError>> {
        self.lock().endpoint.open_region(source, range)
    }

    /// As [`Endpoint::close_region`].
    ///
    /// # Errors
    /// As [`Endpoint::close_region`].
    pub fn close_region(&self, region: &RegionHandle) -> Result<(), Error<EndpointError>> {
        self.lock().endpoint.close_region(region)
    }

    /// As [`Endpoint::write`]. Holds the lock until the buffer is in card memory.
    ///
    /// # Errors
    /// As [`Endpoint::write`].
    pub fn write(&self, buffer: DmaBuffer, to: CardAddr) -> Result<DmaBuffer, TransferFailed> {
        self.lock().endpoint.write(buffer, to)
    }

    /// As [`Endpoint::send`]. The handle returns the completion.
    ///
    /// # Errors
    /// As [`Endpoint::send`]: nothing was started.
    pub fn send(
        &self,
        source: CardAddr,
        target: &RemoteRegion,
        offset: u64,
        length: u64,
        options: SendOptions,
    ) -> Result<PendingSend, Error<SendError>> {
        let ticket = self.change(|inner| {
            let ticket = inner.endpoint.send(source, target, offset, length, options)?;
            inner.sends.insert(ticket, None);
            Ok(ticket)
        })?;
        Ok(PendingSend { endpoint: self.clone(), ticket, idle: None })
    }

    /// As [`Endpoint::open_readable`].
    ///
    /// # Errors
    /// As [`Endpoint::open_readable`].
    pub fn open_readable(
        &self,
        reader: NodeId,
        range: CardRange,
    ) -> Result<ReadableHandle, Error<EndpointError>> {
        self.lock().endpoint.open_readable(reader, range)
    }

    /// As [`Endpoint::close_readable`].
    ///
    /// # Errors
    /// As [`Endpoint::close_readable`].
    pub fn close_readable(&self, readable: &ReadableHandle) -> Result<(), Error<EndpointError>> {
        self.lock().endpoint.close_readable(readable)
    }

    /// As [`Endpoint::read`]. The handle returns the completion.
    ///
    /// # Errors
    /// As [`Endpoint::read`]: nothing was started.
    pub fn read(
        &self,
        source: &RemoteReadable,
        offset: u64,
        to: CardAddr,
        length: u64,
        options: SendOptions,
    ) -> Result<PendingRead, Error<ReadError>> {
        let ticket = self.change(|inner| {
            let ticket = inner.endpoint.read(source, offset, to, length, options)?;
            inner.reads.insert(ticket, None);
            Ok::<_, Error<ReadError>>(ticket)
        })?;
        Ok(PendingRead { endpoint: self.clone(), ticket, idle: None })
    }

    /// As [`Endpoint::query_peer`].
    ///
    /// # Errors
    /// As [`Endpoint::query_peer`].
    pub fn query_peer(&self, node: NodeId, patience: Duration) -> Result<(), Error<EndpointError>> {
        self.change(|inner| inner.endpoint.query_peer(node, patience))
    }

    /// As [`Endpoint::peer`].
    #[must_use]
    pub fn peer(&self, node: NodeId) -> Option<Peer> {
        self.lock().endpoint.peer(node)
    }

    /// As [`Endpoint::wait_peer`]. Other callers can use the endpoint meanwhile.
    ///
    /// # Errors
    /// As [`Endpoint::wait_peer`].
    pub fn wait_peer(&self, node: NodeId, timeout: Duration) -> Result<Peer, Error<EndpointError>> {
        self.query_peer(node, timeout)?;
        let late = || EndpointError::NoPeer { node, waited: Waited::of(self.backend(), timeout) };
        self.wait_for(timeout, late, |inner| inner.endpoint.peer(node))
    }

    /// Drives the endpoint once. Returns the amount of work done.
    ///
    /// # Errors
    /// See [`EndpointError`]: the endpoint has failed. Earlier completions can still be taken.
    pub fn poll(&self) -> Result<usize, Error<EndpointError>> {
        let mut inner = self.lock();
        let polled = inner.drive();
        self.notify_waiters(&mut inner);
        polled
    }

    /// Returns the oldest arrival that was not taken yet. Does not drive the endpoint.
    #[must_use]
    pub fn next_notification(&self) -> Option<Notification> {
        self.lock().notifications.pop_front()
    }

    /// Returns the oldest complete segment that was not taken yet, as [`Endpoint::next_segment`]. Does not drive the endpoint.
    #[must_use]
    pub fn next_segment(&self) -> Option<SegmentArrival> {
        self.lock().endpoint.next_segment()
    }

    /// Waits for an arrival. Each arrival is returned to one caller.
    ///
    /// # Errors
    /// [`EndpointError::NoArrival`] after `timeout`, [`EndpointError::Cancelled`] on request ([`Endpoint::set_cancellation`]); any other error means that the endpoint has failed.
    pub fn wait_notification(&self, timeout: Duration) -> Result<Notification, Error<EndpointError>> {
        let late = || EndpointError::NoArrival { waited: Waited::of(self.backend(), timeout) };
        self.wait_for(timeout, late, |inner| inner.notifications.pop_front())
    }

    /// Returns the next arrival as a future. Like [`PendingSend`] it requests another poll. Dropping it takes no arrival.
    pub fn notification(
        &self,
    ) -> impl Future<Output = Result<Notification, Error<EndpointError>>> + Send + '_ {
        let mut idle = None;
        core::future::poll_fn(move |context| {
            self.poll_task(&mut idle, context, |inner| inner.notifications.pop_front())
        })
    }

    /// Notifies the waiting threads of results of the last poll.
    fn notify_waiters(&self, inner: &mut Inner) {
        if std::mem::take(&mut inner.unreported) == 0 {
            return;
        }
        if !inner.limits.is_empty() {
            self.inner.waiters.notify_all();
        }
        inner.wake_waiter();
    }

    /// Polls the endpoint once and calls `take`. Returns its result, or the amount of work done.
    fn drive_once<T>(
        &self,
        inner: &mut Inner,
        take: impl FnOnce(&mut Inner) -> Option<T>,
    ) -> Result<Result<T, usize>, Error<EndpointError>> {
        let polled = inner.drive();
        let found = take(inner);
        // The result that this caller takes is not for others.
        inner.unreported = inner.unreported.saturating_sub(found.is_some().into());
        self.notify_waiters(inner);
        match found {
            Some(found) => Ok(Ok(found)),
            None => polled.map(Err),
        }
    }

    /// Polls the endpoint once for a task.
    fn poll_task<T>(
        &self,
        idle: &mut Option<IdleWait>,
        context: &Context<'_>,
        take: impl FnOnce(&mut Inner) -> Option<T>,
    ) -> Poll<Result<T, Error<EndpointError>>> {
        let turned = self.drive_once(&mut self.lock(), take);
        match turned {
            Ok(Ok(found)) => return Poll::Ready(Ok(found)),
            Ok(Err(0)) => {
                idle.get_or_insert_with(|| IdleWait::from(self.now())).pause_in_task(self.backend())
            }
            Ok(Err(_)) => *idle = None,
            Err(error) => return Poll::Ready(Err(error)),
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn now(&self) -> Nanos {
        Nanos::new(self.backend().now())
    }

    fn wait_for<T>(
        &self,
        timeout: Duration,
        late: impl FnOnce() -> EndpointError,
        mut take: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Result<T, Error<EndpointError>> {
        let deadline = Deadline::after(self.backend(), timeout);
        let mut idle = IdleWait::from(self.now());
        let mut inner = self.lock();
        let result = loop {
            let turned = self.drive_once(&mut inner, &mut take);
            let now = self.now();
            match turned {
                Ok(Ok(found)) => break Ok(found),
                Ok(Err(_)) if inner.is_cancelled() => {
                    let waited = Waited::new(self.backend(), deadline.waited(now.get()));
                    break Err(Error::new(EndpointError::Cancelled { waited }, self.place()));
                }
                Ok(Err(_)) if deadline.is_over(now.get()) => break Err(Error::new(late(), self.place())),
                Ok(Err(0)) => match self.back_off(inner, &mut idle, &deadline) {
                    Ok(again) => inner = again,
                    Err(error) => {
                        inner = self.lock();
                        break Err(error);
                    }
                },
                Ok(Err(_)) => {
                    idle = IdleWait::from(now);
                    // The lock is released because a mutex may go to the same thread repeatedly.
                    drop(inner);
                    inner = self.lock();
                }
                Err(error) => break Err(error),
            }
        };
        if inner.sleeper.is_none() {
            inner.endpoint.disarm();
            // Another thread has to become the sleeper.
            self.inner.waiters.notify_one();
        }
        result
    }

    /// Waits, without the lock, until there may be work or a result.
    fn back_off<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        idle: &mut IdleWait,
        deadline: &Deadline,
    ) -> Result<MutexGuard<'a, Inner>, Error<EndpointError>> {
        let now = self.now();
        let limit = inner.next_look(now, Nanos::new(deadline.end()));
        if inner.limits.iter().any(|limit| *limit <= now) {
            // The waiting threads do not check the time themselves.
            self.inner.waiters.notify_all();
        }
        if let Some(sleeper) = &inner.sleeper
            && !idle.is_spinning(now)
        {
            if limit < sleeper.until {
                inner.wake_waiter();
            }
            inner.limits.push(limit);
            // The sleeper ends this wait in time. If the sleeper is delayed, the timeout ends it.
            let mut left = deadline.wall_time_left(now.get()).saturating_add(WAITER_DEADLINE_SLACK);
            if inner.endpoint.waits.cancel.is_some() {
                left = left.min(Cancellation::CHECK_INTERVAL);
            }
            let waited = self.inner.waiters.wait_timeout(inner, left);
            let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if let Some(own) = inner.limits.iter().position(|other| *other == limit) {
                inner.limits.swap_remove(own);
            }
            return Ok(inner);
        }
        let until = inner.earliest(limit);
        let rest = if inner.sleeper.is_some() {
            WaitAction::Step(BackoffStep::Spin)
        } else {
            inner.endpoint.begin_wait(idle, until).at(|| self.place())?
        };
        if rest.is_sleep() {
            let interrupt =
                if let WaitAction::Sleep(interrupt, _) = &rest { Some(interrupt.clone()) } else { None };
            inner.sleeper = Some(SleepState { interrupt, until });
        }
        drop(inner);
        let woken = rest.take(idle, self.backend());
        if !rest.is_sleep() {
            std::thread::yield_now();
        }
        let mut inner = self.lock();
        if rest.is_sleep() {
            inner.sleeper = None;
            inner.endpoint.end_wait(idle, &rest, woken).at(|| self.place())?;
        }
        Ok(inner)
    }
}
