//! An endpoint that many threads and tasks use at once.
//!
//! It is shared by a lock, not by a thread: a caller that waits drives the endpoint for all others. An endpoint that one thread owns
//! ([`Endpoint`](super::Endpoint)) has no lock.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use fpga_firmware::NodeId;
use fpga_firmware::event::Event;
use fpga_pci::{Backend, Deadline, DmaBuffer, Interrupt};
use fpga_protocol::Nanos;
use fpga_protocol::mirror::MirrorError;
use fpga_registers::CardAddr;

use super::wait::{IdleWait, WaitAction};
use super::{
    Endpoint, EndpointCounters, EndpointError, Notification, Peer, ReadCompletion, ReadError, ReadTicket,
    ReadableHandle, RegionHandle, RemoteReadable, RemoteRegion, SegmentArrival, SendCompletion, SendError,
    SendOptions, SendTicket,
};
use crate::card::Card;
use crate::error::TransferFailed;
use crate::name::CardName;
use crate::range::CardRange;
use fpga_pci::wait::BackoffStep;

/// An endpoint behind a lock: clones are the same one.
///
/// `Send` and `Sync`. There is no thread behind it: whoever waits for anything polls the endpoint for all, and what ends meanwhile
/// is kept for the handle that it belongs to. A call holds the lock for one turn of the endpoint, not for as long as it waits.
/// An [`Endpoint`] that one thread uses alone costs less: it takes no lock and allocates nothing.
///
/// Of threads that wait and find nothing to do, one sleeps until the card has news, as [`Endpoint::wait`] does. The others sleep until
/// that one has something for them, or leaves: then one of them takes its place. What others start wakes it, so it looks.
#[derive(Debug, Clone)]
pub struct SharedEndpoint {
    inner: Arc<Shared>,
    card: Card,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// Something has ended for somebody who stands by, or nobody waits for the card any more.
    waiters: Condvar,
}

/// Time after its deadline at which a thread that stands by ends its wait by itself.
const WAITER_DEADLINE_SLACK: Duration = Duration::from_millis(5);

/// The one who sleeps until the card has news.
#[derive(Debug)]
struct SleepState {
    /// Ends its sleep; `None`: it wakes by itself after a moment.
    interrupt: Option<Interrupt>,
    until: Nanos,
}

/// As long as somebody stands by, somebody else sleeps until the card has news, or is on his way to do so: whoever leaves wakes one.
#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    sleeper: Option<SleepState>,
    /// Until when each of those who stand by waits at most.
    limits: Vec<Nanos>,
    /// What has ended or arrived for anybody, and was not told to those who stand by.
    news: u64,
    /// Transfers that somebody has a handle of. `None`: under way.
    sends: HashMap<SendTicket, Option<SendCompletion>>,
    /// Reads that somebody has a handle of.
    reads: HashMap<ReadTicket, Option<ReadCompletion>>,
    notifications: VecDeque<Notification>,
}

impl Inner {
    /// Drives the endpoint, and sorts what it has. What ended before the endpoint did is sorted too.
    fn drive(&mut self) -> Result<usize, EndpointError> {
        let answers = self.endpoint.peers.answers();
        let polled = self.endpoint.poll();
        self.news += self.endpoint.peers.answers() - answers;
        while let Some(done) = self.endpoint.next_completion() {
            // A transfer whose handle was dropped ends in silence.
            if let Some(place) = self.sends.get_mut(&done.ticket) {
                *place = Some(done);
                self.news += 1;
            }
        }
        while let Some(done) = self.endpoint.next_read() {
            if let Some(place) = self.reads.get_mut(&done.ticket) {
                *place = Some(done);
                self.news += 1;
            }
        }
        let known = self.notifications.len();
        self.notifications.extend(std::iter::from_fn(|| self.endpoint.next_notification()));
        self.news += (self.notifications.len() - known) as u64;
        // Everybody is to hear that it is over.
        self.news += u64::from(polled.is_err());
        polled
    }

    /// Something has to be done, or is there for somebody, that the card does not tell of.
    fn wake_waiter(&self) {
        if let Some(interrupt) = self.sleeper.as_ref().and_then(|sleeper| sleeper.interrupt.as_ref()) {
            interrupt.wake();
        }
    }

    /// Until when to sleep at the latest, for those who stand by as well.
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
            news: 0,
            sends: HashMap::new(),
            reads: HashMap::new(),
            notifications: VecDeque::new(),
        };
        Self { inner: Arc::new(Shared { inner: Mutex::new(inner), waiters: Condvar::new() }), card }
    }
}

impl SharedEndpoint {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing of an endpoint is left half done by a panic of a thread that held it: its calls do not run foreign code.
        self.inner.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `change` give the endpoint something to do.
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let changed = change(&mut inner);
        inner.wake_waiter();
        changed
    }

    fn backend(&self) -> &dyn Backend {
        &*self.card.shared.transport
    }

    fn name(&self) -> CardName {
        self.card.shared.name.clone()
    }

    /// The card.
    #[must_use]
    pub const fn card(&self) -> &Card {
        &self.card
    }

    /// This node's id on the network.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.lock().endpoint.node()
    }

    /// Lets `look` see the endpoint, for listings and counters.
    pub fn inspect<T>(&self, look: impl FnOnce(&Endpoint) -> T) -> T {
        look(&self.lock().endpoint)
    }

    /// Counts since the endpoint was opened.
    #[must_use]
    pub fn counters(&self) -> EndpointCounters {
        self.lock().endpoint.counters()
    }

    /// As [`Endpoint::open_region`].
    ///
    /// # Errors
    /// As there.
    pub fn open_region(&self, source: NodeId, range: CardRange) -> Result<RegionHandle, EndpointError> {
        self.lock().endpoint.open_region(source, range)
    }

    /// As [`Endpoint::close_region`].
    ///
    /// # Errors
    /// As there.
    pub fn close_region(&self, region: &RegionHandle) -> Result<(), EndpointError> {
        self.lock().endpoint.close_region(region)
    }

    /// As [`Endpoint::write`]: holds the endpoint until the buffer is in card memory.
    ///
    /// # Errors
    /// As there.
    pub fn write(&self, buffer: DmaBuffer, to: CardAddr) -> Result<DmaBuffer, TransferFailed> {
        self.lock().endpoint.write(buffer, to)
    }

    /// As [`Endpoint::send`]; the transfer's end comes through the handle.
    ///
    /// # Errors
    /// As there: nothing was started.
    pub fn send(
        &self,
        source: CardAddr,
        target: &RemoteRegion,
        offset: u64,
        length: u64,
        options: SendOptions,
    ) -> Result<PendingSend, SendError> {
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
    /// As there.
    pub fn open_readable(&self, reader: NodeId, range: CardRange) -> Result<ReadableHandle, EndpointError> {
        self.lock().endpoint.open_readable(reader, range)
    }

    /// As [`Endpoint::close_readable`].
    ///
    /// # Errors
    /// As there.
    pub fn close_readable(&self, readable: &ReadableHandle) -> Result<(), EndpointError> {
        self.lock().endpoint.close_readable(readable)
    }

    /// As [`Endpoint::read`]; the read's end comes through the handle.
    ///
    /// # Errors
    /// As there: nothing was started.
    pub fn read(
        &self,
        source: &RemoteReadable,
        offset: u64,
        to: CardAddr,
        length: u64,
        options: SendOptions,
    ) -> Result<PendingRead, ReadError> {
        let ticket = self.change(|inner| {
            let ticket = inner.endpoint.read(source, offset, to, length, options)?;
            inner.reads.insert(ticket, None);
            Ok::<_, ReadError>(ticket)
        })?;
        Ok(PendingRead { endpoint: self.clone(), ticket, idle: None })
    }

    /// As [`Endpoint::query_peer`].
    ///
    /// # Errors
    /// As there.
    pub fn query_peer(&self, node: NodeId, patience: Duration) -> Result<(), EndpointError> {
        self.change(|inner| inner.endpoint.query_peer(node, patience))
    }

    /// As [`Endpoint::peer`].
    #[must_use]
    pub fn peer(&self, node: NodeId) -> Option<Peer> {
        self.lock().endpoint.peer(node)
    }

    /// As [`Endpoint::wait_peer`]; others use the endpoint meanwhile.
    ///
    /// # Errors
    /// As there.
    pub fn wait_peer(&self, node: NodeId, timeout: Duration) -> Result<Peer, EndpointError> {
        self.query_peer(node, timeout)?;
        let late = || EndpointError::NoPeer { card: self.name(), node, waited: timeout };
        self.wait_for(timeout, late, |inner| inner.endpoint.peer(node))
    }

    /// Drives the endpoint once; returns how much there was to do.
    ///
    /// # Errors
    /// See [`EndpointError`]: the endpoint cannot go on. What ended before is still handed out.
    pub fn poll(&self) -> Result<usize, EndpointError> {
        let mut inner = self.lock();
        let polled = inner.drive();
        self.notify_waiters(&mut inner);
        polled
    }

    /// The oldest arrival that nobody has taken. Does not drive the endpoint.
    #[must_use]
    pub fn next_notification(&self) -> Option<Notification> {
        self.lock().notifications.pop_front()
    }

    /// The oldest segment that is complete and that nobody has taken: [`Endpoint::next_segment`]. Does not drive the endpoint.
    #[must_use]
    pub fn next_segment(&self) -> Option<SegmentArrival> {
        self.lock().endpoint.next_segment()
    }

    /// The oldest fault event of the interface that nobody has taken: [`Endpoint::next_fault`]. Does not drive the endpoint.
    #[must_use]
    pub fn next_fault(&self) -> Option<Event> {
        self.lock().endpoint.next_fault()
    }

    /// The oldest contradiction of the mirror that nobody has taken: [`Endpoint::next_mirror_fault`]. Does not drive the endpoint.
    #[must_use]
    pub fn next_mirror_fault(&self) -> Option<MirrorError> {
        self.lock().endpoint.next_mirror_fault()
    }

    /// Waits for an arrival. Each one is handed to one caller.
    ///
    /// # Errors
    /// [`EndpointError::NoArrival`] after `timeout`; otherwise the endpoint cannot go on.
    pub fn wait_notification(&self, timeout: Duration) -> Result<Notification, EndpointError> {
        let late = || EndpointError::NoArrival { card: self.name(), waited: timeout };
        self.wait_for(timeout, late, |inner| inner.notifications.pop_front())
    }

    /// The next arrival as a future; as [`PendingSend`] it asks to be polled again. Dropped, it takes nothing.
    pub fn notification(&self) -> impl Future<Output = Result<Notification, EndpointError>> + Send + '_ {
        let mut idle = None;
        core::future::poll_fn(move |context| {
            self.poll_task(&mut idle, context, |inner| inner.notifications.pop_front())
        })
    }

    /// What came of the last turn is said to those who stand by.
    fn notify_waiters(&self, inner: &mut Inner) {
        if std::mem::take(&mut inner.news) == 0 {
            return;
        }
        if !inner.limits.is_empty() {
            self.inner.waiters.notify_all();
        }
        inner.wake_waiter();
    }

    /// One turn of the endpoint, and a look at what came of it; or how much there was to do.
    fn drive_once<T>(
        &self,
        inner: &mut Inner,
        take: impl FnOnce(&mut Inner) -> Option<T>,
    ) -> Result<Result<T, usize>, EndpointError> {
        let polled = inner.drive();
        let found = take(inner);
        // What it takes itself is no news to others.
        inner.news = inner.news.saturating_sub(found.is_some().into());
        self.notify_waiters(inner);
        match found {
            Some(found) => Ok(Ok(found)),
            None => polled.map(Err),
        }
    }

    /// One turn of the endpoint for a task.
    fn poll_task<T>(
        &self,
        idle: &mut Option<IdleWait>,
        context: &Context<'_>,
        take: impl FnOnce(&mut Inner) -> Option<T>,
    ) -> Poll<Result<T, EndpointError>> {
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
    ) -> Result<T, EndpointError> {
        let deadline = Deadline::after(self.backend(), timeout);
        let mut idle = IdleWait::from(self.now());
        let mut inner = self.lock();
        let result = loop {
            let turned = self.drive_once(&mut inner, &mut take);
            let now = self.now();
            match turned {
                Ok(Ok(found)) => break Ok(found),
                Ok(Err(_)) if deadline.is_over(now.get()) => break Err(late()),
                Ok(Err(0)) => match self.back_off(inner, &mut idle, &deadline) {
                    Ok(again) => inner = again,
                    Err(error) => {
                        inner = self.lock();
                        break Err(error);
                    }
                },
                Ok(Err(_)) => {
                    idle = IdleWait::from(now);
                    // A mutex may go to the same thread again and again.
                    drop(inner);
                    inner = self.lock();
                }
                Err(error) => break Err(error),
            }
        };
        if inner.sleeper.is_none() {
            inner.endpoint.disarm();
            // Somebody else has to wait for the card now.
            self.inner.waiters.notify_one();
        }
        result
    }

    /// Rests, without the lock, until there may be something to do or to take.
    fn back_off<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        idle: &mut IdleWait,
        deadline: &Deadline,
    ) -> Result<MutexGuard<'a, Inner>, EndpointError> {
        let now = self.now();
        let limit = Nanos::new(deadline.end());
        if inner.limits.iter().any(|limit| *limit <= now) {
            // They do not look at the time.
            self.inner.waiters.notify_all();
        }
        if let Some(sleeper) = &inner.sleeper
            && !idle.is_spinning(now)
        {
            if limit < sleeper.until {
                inner.wake_waiter();
            }
            inner.limits.push(limit);
            // The thread that sleeps for all ends this wait in time. Should it be held up, the clock does.
            let left = deadline.wall_time_left(now.get()).saturating_add(WAITER_DEADLINE_SLACK);
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
            inner.endpoint.begin_wait(idle, until)?
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
            inner.endpoint.end_wait(idle, &rest, woken)?;
        }
        Ok(inner)
    }
}

/// A transfer under way, and its one completion: to be awaited, waited for, or asked for.
///
/// Dropping it leaves the transfer under way and its end unheard; [`cancel`](Self::cancel) withdraws it.
#[derive(Debug)]
#[must_use = "dropped, the transfer goes on and nobody hears of its end"]
pub struct PendingSend {
    endpoint: SharedEndpoint,
    ticket: SendTicket,
    /// Of the task that polls it.
    idle: Option<IdleWait>,
}

impl PendingSend {
    /// Names the transfer.
    #[must_use]
    pub const fn ticket(&self) -> SendTicket {
        self.ticket
    }

    /// The completion, if the transfer has ended: once. Drives the endpoint.
    ///
    /// # Errors
    /// The endpoint cannot go on, and the transfer had not ended.
    pub fn try_take(&mut self) -> Result<Option<SendCompletion>, EndpointError> {
        Ok(self.endpoint.drive_once(&mut self.endpoint.lock(), |inner| inner.take_send(self.ticket))?.ok())
    }

    /// Waits for the completion.
    ///
    /// # Errors
    /// [`EndpointError::TimedOut`] leaves the transfer under way, and the handle good for another wait; otherwise the endpoint
    /// cannot go on.
    pub fn wait(&mut self, timeout: Duration) -> Result<SendCompletion, EndpointError> {
        let late = || EndpointError::TimedOut { card: self.endpoint.name(), waited: timeout };
        self.endpoint.wait_for(timeout, late, |inner| inner.take_send(self.ticket))
    }

    /// Withdraws the transfer: its completion says so. Returns whether it had not ended before.
    pub fn cancel(&self) -> bool {
        self.endpoint.change(|inner| inner.endpoint.cancel(self.ticket))
    }
}

impl Future for PendingSend {
    type Output = Result<SendCompletion, EndpointError>;

    /// Asks to be polled again whenever the transfer has not ended: what it waits for is in memory, and nobody signals it to a task. It
    /// rests between two polls as [`Endpoint::completion`] does. To be polled no more once it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { endpoint, ticket, idle } = self.get_mut();
        endpoint.poll_task(idle, context, |inner| inner.take_send(*ticket))
    }
}

impl Drop for PendingSend {
    fn drop(&mut self) {
        self.endpoint.lock().sends.remove(&self.ticket);
    }
}

/// A read under way, and its one completion; otherwise as [`PendingSend`].
#[derive(Debug)]
#[must_use = "dropped, the read goes on and nobody hears of its end"]
pub struct PendingRead {
    endpoint: SharedEndpoint,
    ticket: ReadTicket,
    /// Of the task that polls it.
    idle: Option<IdleWait>,
}

impl PendingRead {
    /// The completion, if the read has ended: once. Drives the endpoint.
    ///
    /// # Errors
    /// The endpoint cannot go on, and the read had not ended.
    pub fn try_take(&mut self) -> Result<Option<ReadCompletion>, EndpointError> {
        Ok(self.endpoint.drive_once(&mut self.endpoint.lock(), |inner| inner.take_read(self.ticket))?.ok())
    }

    /// Waits for the completion.
    ///
    /// # Errors
    /// [`EndpointError::TimedOut`] leaves the read under way, and the handle good for another wait; otherwise the endpoint cannot go
    /// on.
    pub fn wait(&mut self, timeout: Duration) -> Result<ReadCompletion, EndpointError> {
        let late = || EndpointError::TimedOut { card: self.endpoint.name(), waited: timeout };
        self.endpoint.wait_for(timeout, late, |inner| inner.take_read(self.ticket))
    }
}

impl Future for PendingRead {
    type Output = Result<ReadCompletion, EndpointError>;

    /// As [`PendingSend`]'s.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { endpoint, ticket, idle } = self.get_mut();
        endpoint.poll_task(idle, context, |inner| inner.take_read(*ticket))
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        self.endpoint.lock().reads.remove(&self.ticket);
    }
}
