//! The messenger of an application: one port of a card.

use crate::address::{Address, PeerId};
use crate::completion::{Completion, Failure};
use crate::error::MessengerError;
use crate::layout::{EAGER_UNIT, PortNumber};
use crate::messenger::{CardMessenger, PostError};
use crate::open_cards;
use crate::options::MessengerOptions;
use crate::port::PortOptions;
use crate::region::Regions;
use crate::request::{
    AccessRequest, AtomicRequest, AtomicUnit, HostMemory, Peek, ReceiveRequest, SendRequest,
};
use fpga_rdma::Endpoint;
#[cfg(feature = "sim")]
use fpga_sim::link::LinkEvents;
#[cfg(feature = "sim")]
use std::os::fd::AsFd as _;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Endpoint for messages with tags and for access to registered host memory.
///
/// Several messengers of one process may open the same card: each has an address, receives, completions and registered memory of its own. Each
/// simulated card and each view of a shared card belongs to one messenger. The card is closed with its last messenger.
///
/// It starts no thread: [`progress`](Self::progress) advances all operations of its card, including those that peers request.
pub struct Messenger {
    card: Arc<Mutex<CardMessenger>>,
    port: PortNumber,
    address: Address,
    #[cfg(feature = "sim")]
    events: Option<LinkEvents>,
}

impl core::fmt::Debug for Messenger {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Messenger").field("address", &self.address).field("card", &*self.lock()).finish()
    }
}

impl Messenger {
    /// Opens a messenger on the card that the options name, which is opened unless this process has opened it. `regions` may be shared with other
    /// messengers.
    ///
    /// # Errors
    /// [`MessengerError`].
    pub fn open(
        options: &MessengerOptions,
        memory: Arc<dyn HostMemory>,
        atomics: Arc<dyn AtomicUnit>,
        regions: Arc<Regions>,
    ) -> Result<Self, MessengerError> {
        Self::of_card(open_cards::open(options)?, options, memory, atomics, regions)
    }

    /// Creates a messenger on an endpoint that the caller has opened: a port of its own card, which it shares with no other messenger. The
    /// options that concern the card and its links have no effect.
    ///
    /// The endpoint must permit [`MIN_TRANSFERS`](crate::MIN_TRANSFERS) transfers, to as many destinations as there are peers. Its default scheme must be the registry's, which sends host memory. It must use
    /// channel 0 from the card to the host for nothing else: the card must push events.
    ///
    /// # Errors
    /// [`MessengerError`]; the endpoint is closed in this case.
    pub fn new(
        endpoint: Endpoint,
        options: &MessengerOptions,
        memory: Arc<dyn HostMemory>,
        atomics: Arc<dyn AtomicUnit>,
        regions: Arc<Regions>,
    ) -> Result<Self, MessengerError> {
        let card = CardMessenger::of_endpoint(endpoint, options.give_up)?;
        Self::of_card(Arc::new(Mutex::new(card)), options, memory, atomics, regions)
    }

    fn of_card(
        card: Arc<Mutex<CardMessenger>>,
        options: &MessengerOptions,
        memory: Arc<dyn HostMemory>,
        atomics: Arc<dyn AtomicUnit>,
        regions: Arc<Regions>,
    ) -> Result<Self, MessengerError> {
        let mut state = lock(&card);
        let port = state.open_port(PortOptions {
            memory,
            atomics,
            regions,
            eager_limit: u32::try_from(options.unexpected / EAGER_UNIT).unwrap_or(u32::MAX),
            reports_access: options.reports_access,
        })?;
        let address = state.address(port);
        #[cfg(feature = "sim")]
        let events = state.take_events();
        drop(state);
        Ok(Self {
            card,
            port,
            address,
            #[cfg(feature = "sim")]
            events,
        })
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, CardMessenger> {
        lock(&self.card)
    }

    /// Returns the address of this messenger.
    #[must_use]
    pub const fn address(&self) -> Address {
        self.address
    }

    /// Adds a peer. A peer that was added before keeps its number. Numbers of peers differ between the messengers of a card.
    ///
    /// # Errors
    /// [`MessengerError::NoRoute`], [`MessengerError::SameNode`].
    pub fn add_peer(&mut self, address: Address) -> Result<PeerId, MessengerError> {
        self.lock().add_peer(self.port, address)
    }

    /// Returns the address of a peer; `None` for a peer that was not added, but whose messages have arrived.
    #[must_use]
    pub fn peer(&self, peer: PeerId) -> Option<Address> {
        self.lock().peer(self.port, peer)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn send(&mut self, request: &SendRequest) -> Result<(), PostError> {
        self.lock().send(self.port, request)
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn receive(&mut self, request: &ReceiveRequest) -> Result<(), PostError> {
        self.lock().receive(self.port, request)
    }

    /// Looks for a message that has arrived and that `request` matches. The completion has its length, tag and sender, or
    /// [`NoMessage`](Failure::NoMessage).
    ///
    /// # Errors
    /// [`PostError`].
    pub fn peek(&mut self, request: &ReceiveRequest, what: Peek) -> Result<(), PostError> {
        self.lock().peek(self.port, request, what)
    }

    /// Receives the message that [`peek`](Self::peek) has claimed with the same context, or drops it.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn receive_claimed(&mut self, request: &ReceiveRequest, discard: bool) -> Result<(), PostError> {
        self.lock().receive_claimed(self.port, request, discard)
    }

    /// Cancels a posted receive. Returns whether there was one; its completion is [`Cancelled`](Failure::Cancelled).
    pub fn cancel(&mut self, context: u64) -> bool {
        self.lock().cancel(self.port, context)
    }

    /// Writes to a peer's memory. It completes when the data is there.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn write(&mut self, request: &AccessRequest) -> Result<(), PostError> {
        self.lock().write(self.port, request)
    }

    /// Reads a peer's memory.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn read(&mut self, request: &AccessRequest) -> Result<(), PostError> {
        self.lock().read(self.port, request)
    }

    /// Executes an atomic operation on a peer's memory.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn atomic(&mut self, request: &AtomicRequest) -> Result<(), PostError> {
        self.lock().atomic(self.port, request)
    }

    /// Advances all operations of the card. Returns the amount of work done.
    pub fn progress(&mut self) -> usize {
        self.lock().progress()
    }

    /// Returns the failure of this side's card, after which nothing progresses.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.lock().failure().cloned()
    }

    /// Returns the failure of a peer that has ended its session while receives from any source were posted: these wait for other peers.
    #[must_use]
    pub fn next_peer_failure(&mut self) -> Option<Failure> {
        self.lock().next_peer_failure(self.port)
    }

    /// Returns the numbers of packets that the card has sent and received, by its own counters, modulo 2^32; `None` if they cannot be read.
    #[must_use]
    pub fn packets(&self) -> Option<(u32, u32)> {
        self.lock().packets()
    }

    /// Returns the number of bytes that a linked simulated card has copied so far, between host memory, card memory, windows, frames and the link;
    /// `None` for other cards. The messengers' own copies are those of [`HostMemory`](crate::HostMemory).
    #[must_use]
    pub fn copied_bytes(&self) -> Option<u64> {
        self.lock().copied_bytes()
    }

    /// Returns the number of messages that have arrived and match no receive, and the bytes of those that are kept with their data. With the 256 bytes
    /// that each of these counts besides its data, the bytes of one peer do not exceed [`MessengerOptions::unexpected`].
    #[must_use]
    pub fn unexpected(&self) -> (usize, u64) {
        self.lock().unexpected(self.port)
    }

    /// Returns the oldest completion that has not been taken.
    #[must_use]
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.lock().next_completion(self.port)
    }

    /// Returns the number of operations that have not completed, apart from receives of messages that have not arrived.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.lock().in_progress(self.port)
    }

    /// Whether no operation is in progress and nothing is queued for peers. An idle messenger can be dropped without loss of data.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.lock().is_port_idle(self.port)
    }

    /// Advances all operations, and returns the time that the caller may sleep before the next [`progress`](Self::progress), unless
    /// [`events`](Self::events) is readable earlier. Returns zero if there is work, or a completion.
    pub fn prepare_to_sleep(&mut self) -> Duration {
        self.lock().prepare_to_sleep(self.port)
    }

    /// Returns a descriptor that becomes readable when something may have arrived after [`prepare_to_sleep`](Self::prepare_to_sleep); `None`:
    /// the caller sleeps for the returned time.
    #[must_use]
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        #[cfg(feature = "sim")]
        if let Some(events) = &self.events {
            return Some(events.as_fd());
        }
        None
    }
}

impl Drop for Messenger {
    fn drop(&mut self) {
        let mut card = self.lock();
        card.announce_close(self.port);
        // The card is closed with its last messenger.
        if card.open_ports() > 1 {
            card.close_port(self.port);
        }
    }
}

/// Locks a card. After a panic its state may be inconsistent, but its functions check their data themselves.
#[inline]
fn lock(card: &Mutex<CardMessenger>) -> MutexGuard<'_, CardMessenger> {
    card.lock().unwrap_or_else(PoisonError::into_inner)
}
