//! State of an endpoint: engine, queues and counters, and delivery of completions to them.

use crate::access_counters::AccessCounters;
use crate::code::Code;
use crate::counter::Counter;
use crate::domain::Domain;
use crate::engine::{self, Engine};
use crate::events::EventQueue;
use crate::log;
use crate::object::Held;
use crate::polls::Polls;
use crate::queue::{Entry, ErrorEntry, Queue};
use crate::sources::{Attention, Source, next_id};
use crate::staging::Staging;
use crate::sys::*;
use crate::vector::AddressVector;
use core::sync::atomic::{AtomicU64, Ordering};
use fpga_messages::{Address, Completion, CompletionKind, Failure, MessengerOptions, PeerId, PostError};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Values of the user's part of a token. Its other bits are flags of the completion entry, and a slot of [`Staging`].
pub(crate) mod user {
    /// A completion entry is written.
    pub(crate) const REPORT: u64 = 1;
    /// The request only looks for a message.
    pub(crate) const PEEK: u64 = 1 << 63;
    /// Flags of the completion entry.
    pub(crate) const FLAGS: u64 = 0xffff_fffe;
    /// Position of the slot's number plus one.
    pub(crate) const SLOT_SHIFT: u32 = 32;
    /// Bits of the slot's number.
    pub(crate) const SLOT_MASK: u64 = 0xffff;
}

/// Queue of one direction.
pub(crate) struct Binding {
    pub(crate) queue: Held<Queue>,
    /// Entries are written only for operations with `FI_COMPLETION`.
    pub(crate) is_selective: bool,
}

/// Counters of an endpoint.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) send: Option<Held<Counter>>,
    pub(crate) receive: Option<Held<Counter>>,
    pub(crate) read: Option<Held<Counter>>,
    pub(crate) write: Option<Held<Counter>>,
    pub(crate) remote_read: Option<Held<Counter>>,
    pub(crate) remote_write: Option<Held<Counter>>,
}

impl Counters {
    fn all(&self) -> impl Iterator<Item = &Held<Counter>> {
        [&self.send, &self.receive, &self.read, &self.write, &self.remote_read, &self.remote_write]
            .into_iter()
            .flatten()
    }

    /// Counter of completions of a kind; `flags` are those of the entry.
    pub(crate) fn of(&self, kind: CompletionKind, flags: u64) -> Option<&Counter> {
        let counter = match kind {
            CompletionKind::Send => &self.send,
            CompletionKind::Receive => &self.receive,
            CompletionKind::Read => &self.read,
            CompletionKind::Atomic if flags & FI_READ != 0 => &self.read,
            CompletionKind::Write | CompletionKind::Atomic => &self.write,
            CompletionKind::RemoteWrite => &self.remote_write,
            CompletionKind::RemoteRead => &self.remote_read,
        };
        counter.as_deref()
    }
}

/// State that the lock of an endpoint protects.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) engine: Option<Box<dyn Engine>>,
    pub(crate) is_enabled: bool,
    pub(crate) vector: Option<Held<AddressVector>>,
    pub(crate) tx: Option<Binding>,
    pub(crate) rx: Option<Binding>,
    pub(crate) counters: Counters,
    pub(crate) events: Option<Held<EventQueue>>,
    pub(crate) min_multi_receive: usize,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) staging: Staging,
    /// Counters of regions, if accesses are reported.
    accesses: Option<Arc<AccessCounters>>,
    /// Addresses of the vector that the engine knows, and their numbers there.
    known: Vec<(Option<Address>, Option<PeerId>)>,
    /// Address in the vector of each peer of the engine.
    sources: Vec<u64>,
    version: u64,
    /// Failure of the card or of a peer that was reported last.
    reported: Option<Failure>,
    /// Queues and counters were notified that the card has failed.
    has_failed: bool,
}

/// Endpoint without its handles.
pub(crate) struct Core {
    id: u64,
    pub(crate) domain: Held<Domain>,
    pub(crate) tx_size: usize,
    pub(crate) rx_size: usize,
    /// Receives without and with a tag may name their sender.
    pub(crate) is_directed: bool,
    pub(crate) is_tagged_directed: bool,
    pub(crate) has_tx: bool,
    pub(crate) has_rx: bool,
    reports_access: bool,
    state: Mutex<State>,
    /// Calls of the program that made the card progress; and their number at the last check by the domain's thread.
    polls: OnceLock<Arc<Polls>>,
    seen_polls: AtomicU64,
}

/// Properties of a new endpoint.
pub(crate) struct CoreOptions {
    pub(crate) tx_size: usize,
    pub(crate) rx_size: usize,
    pub(crate) is_directed: bool,
    pub(crate) is_tagged_directed: bool,
    pub(crate) has_tx: bool,
    pub(crate) has_rx: bool,
    /// Accesses of peers are counted (`FI_RMA_EVENT`).
    pub(crate) reports_access: bool,
    pub(crate) listen: Option<SocketAddr>,
}

/// Free space below which a buffer for several messages is returned, unless the program sets it.
const MIN_MULTI_RECEIVE: usize = 4096;

/// Maximum time for which closing an endpoint waits until its messages were sent.
const MAX_CLOSE_WAIT: Duration = Duration::from_secs(1);

impl Core {
    pub(crate) fn new(domain: Held<Domain>, options: CoreOptions) -> Self {
        let CoreOptions {
            tx_size,
            rx_size,
            is_directed,
            is_tagged_directed,
            has_tx,
            has_rx,
            reports_access,
            listen,
        } = options;
        let state = State { min_multi_receive: MIN_MULTI_RECEIVE, listen, ..State::default() };
        let state = Mutex::new(state);
        let (polls, seen_polls) = Default::default();
        Self {
            polls,
            seen_polls,
            id: next_id(),
            domain,
            tx_size,
            rx_size,
            is_directed,
            is_tagged_directed,
            has_tx,
            has_rx,
            reports_access,
            state,
        }
    }

    /// Makes the engine progress, unless another thread has the lock.
    fn try_progress(&self) -> Option<usize> {
        match self.state.try_lock() {
            Ok(mut state) => Some(state.progress()),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner().progress()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic in the engine its state may be inconsistent, but calls of it check their data themselves.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the card, unless it is open. Returns the endpoint's address.
    pub(crate) fn open(&self, state: &mut State) -> Result<Address, Code> {
        if let Some(engine) = &state.engine {
            return Ok(engine.address());
        }
        let mut options = MessengerOptions::from_environment().map_err(|text| {
            log::warn(format_args!("{text}"));
            EINVAL
        })?;
        if let Some(mut listen) = state.listen {
            if let (true, Some(default)) = (listen.ip().is_unspecified(), options.listen) {
                listen.set_ip(default.ip());
            }
            options.listen = Some(listen);
        }
        if self.reports_access {
            options.reports_access = true;
            state.accesses = Some(Arc::clone(&self.domain.accesses));
        }
        let engine = engine::open(&options, Arc::clone(&self.domain.regions)).map_err(|text| {
            log::warn(format_args!("card {}: {text}", options.card));
            EIO
        })?;
        let address = engine.address();
        self.polls.get_or_init(|| Polls::of_card(address.node().get()));
        state.engine = Some(engine);
        Ok(address)
    }

    /// Posts one operation.
    #[inline]
    pub(crate) fn post(&self, post: impl FnOnce(&mut State) -> Result<(), Code>) -> Result<isize, Code> {
        let mut state = self.lock();
        if !state.is_enabled {
            return Err(EOPBADSTATE);
        }
        state.follow_vector();
        let result = post(&mut state);
        if result == Err(EAGAIN) {
            // Programs may try again at once.
            state.progress();
        }
        drop(state);
        self.domain.posted();
        result.map(|()| 0)
    }

    /// Calls `visit` with the lists of endpoints of all queues and counters.
    fn visit_lists(state: &State, mut visit: impl FnMut(&crate::sources::Sources)) {
        for binding in [&state.tx, &state.rx].into_iter().flatten() {
            visit(&binding.queue.sources);
        }
        state.counters.all().for_each(|counter| visit(&counter.sources));
    }

    /// Adds the enabled endpoint to the lists of its queues and counters, and of the domain's progress thread.
    pub(crate) fn attach(self: &Arc<Self>) {
        // The lists call the endpoint: outside of its lock.
        let (queues, counters) = self.lists();
        for queue in queues {
            queue.sources.attach(Arc::clone(self) as Arc<dyn Source>);
        }
        for counter in counters {
            counter.sources.attach(Arc::clone(self) as Arc<dyn Source>);
        }
        self.domain.drive(Arc::clone(self) as Arc<dyn Source>);
    }

    fn lists(&self) -> (Vec<Held<Queue>>, Vec<Held<Counter>>) {
        let state = self.lock();
        let queues = [&state.tx, &state.rx].into_iter().flatten();
        let queues = queues.filter_map(|binding| Held::new(&*binding.queue).ok()).collect();
        (queues, state.counters.all().filter_map(|counter| Held::new(&**counter).ok()).collect())
    }

    /// Shuts the endpoint down: removes it from all lists, and closes the card.
    pub(crate) fn shut(&self) {
        self.domain.release(self.id);
        let (queues, counters) = self.lists();
        queues.iter().for_each(|queue| queue.sources.detach(self.id));
        counters.iter().for_each(|counter| counter.sources.detach(self.id));
        drop((queues, counters));
        let mut state = std::mem::take(&mut *self.lock());
        if let Some(engine) = &mut state.engine {
            finish(&mut **engine);
        }
        Self::visit_lists(&state, crate::sources::Sources::notify);
    }
}

impl Source for Core {
    fn id(&self) -> u64 {
        self.id
    }

    fn progress(&self) -> usize {
        if let Some(polls) = self.polls.get() {
            polls.count();
        }
        // Otherwise another thread makes it progress, or posts and returns here soon.
        self.try_progress().unwrap_or(0)
    }

    fn progress_in_thread(&self, only_idle: bool) -> Attention {
        let polls = self.polls.get().map_or(0, |polls| polls.number());
        if only_idle && self.seen_polls.swap(polls, Ordering::Relaxed) != polls {
            return Attention::ByProgram;
        }
        match self.try_progress() {
            None => Attention::ByProgram,
            Some(0) => Attention::Idle,
            Some(_) => Attention::Worked,
        }
    }

    fn prepare_to_sleep(&self) -> Duration {
        let mut state = self.lock();
        match &mut state.engine {
            Some(engine) => engine.prepare_to_sleep(),
            None => Duration::MAX,
        }
    }

    fn visit_events(&self, visit: &mut dyn FnMut(BorrowedFd<'_>)) {
        if let Some(events) = self.lock().engine.as_ref().and_then(|engine| engine.events()) {
            visit(events);
        }
    }
}

impl State {
    /// Engine of an enabled endpoint.
    #[inline]
    pub(crate) fn engine(&mut self) -> Result<&mut dyn Engine, Code> {
        self.engine.as_deref_mut().map(|engine| engine as &mut dyn Engine).ok_or(EOPBADSTATE)
    }

    /// Number of the engine for an address of the vector.
    #[inline]
    pub(crate) fn peer(&self, address: u64) -> Result<PeerId, Code> {
        let entry = self.known.get(crate::entry::to_size(address));
        entry.and_then(|(_, peer)| *peer).ok_or(EINVAL)
    }

    /// Adds peers to the engine after a change of the vector.
    #[inline]
    pub(crate) fn follow_vector(&mut self) {
        if self.vector.as_ref().is_some_and(|vector| vector.version() != self.version) {
            self.update_peers();
        }
    }

    #[cold]
    fn update_peers(&mut self) {
        let Self { vector: Some(vector), engine: Some(engine), known, sources, version, .. } = self else {
            return;
        };
        sources.fill(FI_ADDR_NOTAVAIL);
        let visited = vector.visit(|index, address| {
            if known.len() <= index {
                known.resize(index + 1, (None, None));
            }
            let Some(entry) = known.get_mut(index) else { return };
            if entry.0 != address {
                *entry = (address, address.and_then(|address| engine.add_peer(address)));
            }
            if let Some(PeerId(peer)) = entry.1 {
                let peer = usize::try_from(peer).unwrap_or(usize::MAX - 1);
                if sources.len() <= peer {
                    sources.resize(peer + 1, FI_ADDR_NOTAVAIL);
                }
                if let Some(source) = sources.get_mut(peer).filter(|source| **source == FI_ADDR_NOTAVAIL) {
                    *source = crate::entry::to_u64(index);
                }
            }
        });
        *version = visited;
    }

    /// Makes the engine progress, and delivers completions while queues have space.
    pub(crate) fn progress(&mut self) -> usize {
        if !self.is_enabled {
            return 0;
        }
        self.follow_vector();
        let Ok(engine) = self.engine() else { return 0 };
        let mut work = engine.progress();
        while self.has_space()
            && let Some(completion) = self.engine.as_mut().and_then(|engine| engine.next_completion())
        {
            self.deliver(&completion);
            work += 1;
        }
        if work == 0
            && let Some(failure) = self.engine.as_mut().and_then(|engine| engine.next_peer_failure())
        {
            // No completion shows it: a program that waits for any source waits on.
            report(&failure, &mut self.reported);
        }
        if !self.has_failed
            && let Some(failure) = self.engine.as_ref().and_then(|engine| engine.failure())
        {
            self.fail(&failure);
        }
        work
    }

    /// Notifies queues and counters that the card has failed.
    #[cold]
    fn fail(&mut self, failure: &Failure) {
        self.has_failed = true;
        report(failure, &mut self.reported);
        [&self.tx, &self.rx].into_iter().flatten().for_each(|binding| binding.queue.fail());
        self.counters.all().for_each(|counter| counter.fail());
    }

    fn has_space(&self) -> bool {
        [&self.tx, &self.rx].into_iter().flatten().all(|binding| binding.queue.has_space())
    }

    fn deliver(&mut self, completion: &Completion) {
        let Completion { token, kind, length, address, tag, immediate, .. } = *completion;
        let slot = token.user >> user::SLOT_SHIFT & user::SLOT_MASK;
        if slot != 0 {
            self.staging.release(slot);
        }
        let is_receive = matches!(
            kind,
            CompletionKind::Receive | CompletionKind::RemoteWrite | CompletionKind::RemoteRead
        );
        let mut flags = match kind {
            CompletionKind::Receive if completion.is_tagged => FI_RECV | FI_TAGGED,
            CompletionKind::Receive => FI_RECV | FI_MSG,
            CompletionKind::RemoteWrite => FI_REMOTE_WRITE | FI_RMA,
            CompletionKind::RemoteRead => FI_REMOTE_READ | FI_RMA,
            _ => token.user & user::FLAGS,
        };
        if is_receive && immediate.is_some() {
            flags |= FI_REMOTE_CQ_DATA;
        }
        if completion.is_last {
            flags |= FI_MULTI_RECV;
        }
        if token.user & user::PEEK == 0
            && let Some(counter) = self.counters.of(kind, flags)
        {
            counter.count(completion.result.is_ok());
        }
        if let (Some(accesses), Some(key)) = (&self.accesses, completion.key) {
            accesses.count(key, kind);
        }
        let Some(binding) = (if is_receive { &self.rx } else { &self.tx }) else { return };
        let peer = completion.source.filter(|_| is_receive);
        let source = peer.and_then(|PeerId(peer)| self.sources.get(usize::try_from(peer).ok()?).copied());
        let entry = Entry {
            context: token.context,
            flags,
            length,
            buffer: if is_receive { address } else { 0 },
            data: immediate.filter(|_| is_receive).unwrap_or_default(),
            tag,
            source: source.unwrap_or(FI_ADDR_NOTAVAIL),
        };
        match &completion.result {
            Err(failure) => {
                report(failure, &mut self.reported);
                let (cut, code, text) = (completion.cut, Code::from(failure), failure.to_string());
                binding.queue.push_error(ErrorEntry { entry, cut, code, text });
            }
            Ok(())
                if token.user & user::REPORT != 0
                    || completion.is_last
                    || kind == CompletionKind::RemoteWrite && immediate.is_some() =>
            {
                binding.queue.push(entry);
            }
            Ok(()) => {}
        }
    }
}

/// Logs a failure of the card or of a peer, once for all operations that it ends: programs show at most the error number.
fn report(failure: &Failure, reported: &mut Option<Failure>) {
    let is_lasting = matches!(
        failure,
        Failure::Card { .. }
            | Failure::Unreachable { .. }
            | Failure::Closed { .. }
            | Failure::Restarted { .. }
            | Failure::TooManyPeers { .. }
    );
    if is_lasting && reported.as_ref() != Some(failure) {
        log::warn(format_args!("{failure}"));
        *reported = Some(failure.clone());
    }
}

/// Makes the engine progress until accepted operations are sent: programs may close an endpoint right after injected messages.
fn finish(engine: &mut dyn Engine) {
    let start = Instant::now();
    while engine.failure().is_none() && !engine.is_idle() && start.elapsed() < MAX_CLOSE_WAIT {
        if engine.progress() == 0 {
            // The peer answers in its own time.
            std::thread::yield_now();
        }
    }
    if let Some((sent, received)) = engine.packets() {
        log::info(format_args!(
            "{}: the card has sent {sent} packets and received {received}",
            engine.address()
        ));
    }
}

/// Result of a posted request.
pub(crate) fn posted(result: Result<(), PostError>) -> Result<(), Code> {
    result.map_err(|error| {
        if !matches!(error, PostError::Full) {
            log::info(format_args!("request refused: {error}"));
        }
        Code::from(error)
    })
}
