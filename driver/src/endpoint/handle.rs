//! An endpoint that many threads and tasks use at once.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use fpga_core::Nanos;
use fpga_core::mirror::MirrorError;
use fpga_firmware::NodeId;
use fpga_firmware::event::Event;
use fpga_pci::{DmaBuffer, Transport};
use fpga_registers::CardAddr;

use super::rest::Idle;
use super::{
    Endpoint, EndpointCounters, EndpointError, Notification, Peer, ReadCompletion, ReadError, ReadTicket,
    ReadableHandle, RegionHandle, RemoteReadable, RemoteRegion, SendCompletion, SendError, SendOptions,
    SendTicket,
};
use crate::card::Card;
use crate::error::TransferFailed;
use crate::name::CardName;
use crate::range::CardRange;

/// An endpoint behind a lock: clones are the same one.
///
/// `Send` and `Sync`. There is no thread behind it: whoever waits for anything polls the endpoint for all, and what ends meanwhile
/// is kept for the handle that it belongs to. A call holds the lock for one turn of the endpoint, not for as long as it waits.
/// An [`Endpoint`] that one thread uses alone costs less: it takes no lock and allocates nothing.
#[derive(Debug, Clone)]
pub struct SharedEndpoint {
    inner: Arc<Mutex<Inner>>,
    card: Card,
}

#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    /// Transfers that somebody has a handle of. `None`: under way.
    sends: HashMap<SendTicket, Option<SendCompletion>>,
    /// Reads that somebody has a handle of.
    reads: HashMap<ReadTicket, Option<ReadCompletion>>,
    notifications: VecDeque<Notification>,
}

impl Inner {
    /// Drives the endpoint, and sorts what it has. What ended before the endpoint did is sorted too.
    fn turn(&mut self) -> Result<usize, EndpointError> {
        let polled = self.endpoint.poll();
        while let Some(done) = self.endpoint.next_completion() {
            // A transfer whose handle was dropped ends in silence.
            if let Some(place) = self.sends.get_mut(&done.ticket) {
                *place = Some(done);
            }
        }
        while let Some(done) = self.endpoint.next_read() {
            if let Some(place) = self.reads.get_mut(&done.ticket) {
                *place = Some(done);
            }
        }
        self.notifications.extend(std::iter::from_fn(|| self.endpoint.next_notification()));
        polled
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
        let inner =
            Inner { endpoint, sends: HashMap::new(), reads: HashMap::new(), notifications: VecDeque::new() };
        Self { inner: Arc::new(Mutex::new(inner)), card }
    }
}

impl SharedEndpoint {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing of an endpoint is left half done by a panic of a thread that held it: its calls do not run foreign code.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn transport(&self) -> &dyn Transport {
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
        let mut inner = self.lock();
        let ticket = inner.endpoint.send(source, target, offset, length, options)?;
        inner.sends.insert(ticket, None);
        drop(inner);
        Ok(PendingSend { endpoint: self.clone(), ticket })
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
        let mut inner = self.lock();
        let ticket = inner.endpoint.read(source, offset, to, length, options)?;
        inner.reads.insert(ticket, None);
        drop(inner);
        Ok(PendingRead { endpoint: self.clone(), ticket })
    }

    /// As [`Endpoint::greet`].
    ///
    /// # Errors
    /// As there.
    pub fn greet(&self, node: NodeId, patience: Duration) -> Result<(), EndpointError> {
        self.lock().endpoint.greet(node, patience)
    }

    /// As [`Endpoint::peer`].
    #[must_use]
    pub fn peer(&self, node: NodeId) -> Option<Peer> {
        self.lock().endpoint.peer(node)
    }

    /// As [`Endpoint::meet`]; others use the endpoint meanwhile.
    ///
    /// # Errors
    /// As there.
    pub fn meet(&self, node: NodeId, timeout: Duration) -> Result<Peer, EndpointError> {
        self.greet(node, timeout)?;
        let late = || EndpointError::NoPeer { card: self.name(), node, waited: timeout };
        self.wait_for(timeout, late, |inner| inner.endpoint.peer(node))
    }

    /// Drives the endpoint once; returns how much there was to do.
    ///
    /// # Errors
    /// See [`EndpointError`]: the endpoint cannot go on. What ended before is still handed out.
    pub fn poll(&self) -> Result<usize, EndpointError> {
        self.lock().turn()
    }

    /// The oldest arrival that nobody has taken. Does not drive the endpoint.
    #[must_use]
    pub fn next_notification(&self) -> Option<Notification> {
        self.lock().notifications.pop_front()
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
        core::future::poll_fn(move |context| self.look(context, |inner| inner.notifications.pop_front()))
    }

    /// One turn of the endpoint, and a look at what came of it; or when to look again, if there was nothing to do.
    fn turn_for<T>(
        &self,
        take: impl FnOnce(&mut Inner) -> Option<T>,
    ) -> Result<Result<T, Option<Nanos>>, EndpointError> {
        let mut inner = self.lock();
        let polled = inner.turn();
        match take(&mut inner) {
            Some(found) => Ok(Ok(found)),
            None if polled? == 0 => Ok(Err(Some(inner.endpoint.next_look(inner.endpoint.now())))),
            None => Ok(Err(None)),
        }
    }

    fn look<T>(
        &self,
        context: &Context<'_>,
        take: impl FnOnce(&mut Inner) -> Option<T>,
    ) -> Poll<Result<T, EndpointError>> {
        match self.turn_for(take) {
            Ok(Ok(found)) => Poll::Ready(Ok(found)),
            Ok(Err(_)) => {
                self.transport().relax();
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn wait_for<T>(
        &self,
        timeout: Duration,
        late: impl FnOnce() -> EndpointError,
        mut take: impl FnMut(&mut Inner) -> Option<T>,
    ) -> Result<T, EndpointError> {
        let span = Nanos::new(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let now = || Nanos::new(self.transport().now());
        let mut idle = Idle::from(now());
        let limit = now().saturating_add(span);
        loop {
            match self.turn_for(&mut take)? {
                Ok(found) => return Ok(found),
                Err(_) if now() >= limit => return Err(late()),
                // Not by the interrupt: what another thread starts meanwhile would have to end the sleep as well.
                Err(Some(wake)) => {
                    idle.pause(self.transport(), wake.min(limit));
                    // A mutex may go to the same thread again and again.
                    std::thread::yield_now();
                }
                Err(None) => idle = Idle::from(now()),
            }
        }
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
        Ok(self.endpoint.turn_for(|inner| inner.take_send(self.ticket))?.ok())
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
        self.endpoint.lock().endpoint.cancel(self.ticket)
    }
}

impl Future for PendingSend {
    type Output = Result<SendCompletion, EndpointError>;

    /// Asks to be polled again whenever the transfer has not ended: what it waits for is in memory, and nobody signals it. To be
    /// polled no more once it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ticket = self.ticket;
        self.endpoint.look(context, |inner| inner.take_send(ticket))
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
}

impl PendingRead {
    /// The completion, if the read has ended: once. Drives the endpoint.
    ///
    /// # Errors
    /// The endpoint cannot go on, and the read had not ended.
    pub fn try_take(&mut self) -> Result<Option<ReadCompletion>, EndpointError> {
        Ok(self.endpoint.turn_for(|inner| inner.take_read(self.ticket))?.ok())
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
        let ticket = self.ticket;
        self.endpoint.look(context, |inner| inner.take_read(ticket))
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        self.endpoint.lock().reads.remove(&self.ticket);
    }
}
