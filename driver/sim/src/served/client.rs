//! The socket of one client, which carries messages both ways: its requests and their answers, and what the card asks for
//! memory that it mapped without a file.
//!
//! The card asks in the middle of its work, on whatever thread that is done, and waits for the answer. The client may have sent
//! requests of its own meanwhile: they are kept, and whoever serves it finds them before what the socket has.

use super::log::{LogLimit, log_limited};
use super::wait_budget::{BudgetExceeded, WaitBudget};
use crate::dma::RemoteMemory;
use fpga_pci::{Interrupt, InterruptError, InterruptTrigger};
use fpga_registers::Iova;
use fpga_vfio_user::socket::{Connection, SocketError};
use fpga_vfio_user::wire::{Command, DmaTransfer, Header, Kind, MAX_DATA, Reply, Request, encode_request};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a message may take from its first byte to its last, and an answer to be taken. The card does nothing meanwhile.
pub(super) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Requests, bytes of requests, and file descriptors, that may come while the card waits for one answer.
const MAX_DEFERRED_REQUESTS: usize = 4096;
const MAX_DEFERRED_BYTES: usize = 8 << 20;
const MAX_DEFERRED_FDS: usize = 64;

/// A request that came while something else was waited for.
struct DeferredRequest {
    header: Header,
    body: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// Whether the client's memory can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemoryReachability {
    /// Nobody has asked yet.
    Unknown,
    /// It answers.
    Yes,
    /// It does not, so it is not asked again.
    No,
}

struct MessageBuffers {
    deferred: VecDeque<DeferredRequest>,
    deferred_bytes: usize,
    deferred_fds: usize,
    /// For answers about the client's memory, and for whole messages.
    for_answers: WaitBudget,
    for_messages: WaitBudget,
    reach: MemoryReachability,
    next_id: u16,
    /// Questions that were given up: their answers may still come.
    abandoned: u32,
    /// Questions asked.
    asked: u64,
    /// The connection had to be ended over one.
    broken: bool,
    /// Most bytes of one message.
    most: u32,
    out: Vec<u8>,
    body: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// One client's socket.
pub(super) struct ClientConnection {
    connection: Connection,
    exchange: Mutex<MessageBuffers>,
    answer_time: Duration,
    log: Arc<LogLimit>,
    /// Signalled when requests are kept: whoever serves the client may sleep on the socket, where they are no more.
    arrived: (Interrupt, InterruptTrigger),
}

impl core::fmt::Debug for ClientConnection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Peer").field("connection", &self.connection).finish_non_exhaustive()
    }
}

/// An answer that is none.
#[derive(Debug, thiserror::Error)]
enum ClientRequestError {
    #[error("the client refuses {command} (errno {errno})")]
    Refused { command: Command, errno: u32 },
    #[error("the client does not answer {command} within {after:?}, the time for all messages of one access")]
    NoAnswer { command: Command, after: Duration },
    #[error(transparent)]
    BudgetExceeded(#[from] BudgetExceeded),
    #[error(
        "the client sent more than {MAX_DEFERRED_REQUESTS} requests, {MAX_DEFERRED_BYTES} bytes or {MAX_DEFERRED_FDS} file descriptors before its answer"
    )]
    TooManyRequests,
    #[error("the client's answer to {command} is about something else")]
    Contradiction { command: Command },
    #[error(
        "the client answers DMA_WRITE without a body, as QEMU does, which has the data of these messages at another place (hw/vfio-user, VFIOUserDMARW); give it memory that it can share: -object memory-backend-memfd,share=on"
    )]
    LayoutMismatch,
    #[error(transparent)]
    Socket(#[from] SocketError),
}

impl ClientRequestError {
    /// Whether nothing more can be understood on this connection.
    const fn is_fatal(&self) -> bool {
        matches!(self, Self::Socket(_) | Self::TooManyRequests | Self::Contradiction { .. })
    }
}

/// What ends a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    BudgetExceeded(#[from] BudgetExceeded),
}

impl ClientConnection {
    /// `answer_time`: how long the client may keep one access to its memory waiting.
    pub(super) fn new(
        connection: Connection,
        answer_time: Duration,
        log: Arc<LogLimit>,
    ) -> Result<Self, InterruptError> {
        let now = Instant::now();
        let exchange = MessageBuffers {
            deferred: VecDeque::new(),
            deferred_bytes: 0,
            deferred_fds: 0,
            for_answers: WaitBudget::new(answer_time, now),
            for_messages: WaitBudget::new(MESSAGE_TIMEOUT, now),
            reach: MemoryReachability::Unknown,
            next_id: 0,
            abandoned: 0,
            asked: 0,
            broken: false,
            most: MAX_DATA,
            out: Vec::new(),
            body: Vec::new(),
            fds: Vec::new(),
        };
        Ok(Self { connection, exchange: Mutex::new(exchange), answer_time, log, arrived: Interrupt::pair()? })
    }

    fn exchange(&self) -> MutexGuard<'_, MessageBuffers> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Readable when there are requests that came before their turn.
    pub(super) fn arrived(&self) -> BorrowedFd<'_> {
        self.arrived.0.as_fd()
    }

    /// Most bytes that the client takes with one message.
    pub(super) fn limit(&self, most: u32) {
        self.exchange().most = most.clamp(1, MAX_DATA);
    }

    /// Begins a turn: the limits on waits within one turn count from here.
    pub(super) fn begin_unit(&self) {
        let mut exchange = self.exchange();
        exchange.for_answers.begin_unit();
        exchange.for_messages.begin_unit();
    }

    /// Whether the client has kept the server waiting in this turn, so that others should be served now.
    pub(super) fn is_budget_used(&self) -> bool {
        let exchange = self.exchange();
        exchange.for_answers.is_budget_used() || exchange.for_messages.is_budget_used()
    }

    /// The next message, if there is one: its header; what follows it is put into `body`, and its descriptors into `fds`.
    pub(super) fn receive(
        &self,
        body: &mut Vec<u8>,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Option<Header>, ClientError> {
        let mut exchange = self.exchange();
        if let Some(kept) = exchange.deferred.pop_front() {
            exchange.deferred_bytes -= kept.body.len();
            exchange.deferred_fds -= kept.fds.len();
            if exchange.deferred.is_empty() {
                let _ = self.arrived.0.try_take();
            }
            (*body, *fds) = (kept.body, kept.fds);
            return Ok(Some(kept.header));
        }
        // What was there a moment ago may have been an answer that the card has taken.
        while self.connection.is_readable().unwrap_or(true) {
            let began = Instant::now();
            let header = self.connection.receive(body, fds, MESSAGE_TIMEOUT)?;
            exchange.for_messages.note(began, Instant::now())?;
            if !exchange.is_stale_reply(&header) {
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    /// Messages to the client that asked for its memory, and whether one of them has ended the connection.
    pub(super) fn asked(&self) -> (u64, bool) {
        let exchange = self.exchange();
        (exchange.asked, exchange.broken)
    }

    /// Whether [`receive`](Self::receive) would find something.
    pub(super) fn is_readable(&self) -> bool {
        // What cannot be asked will be found out by receiving.
        !self.exchange().deferred.is_empty() || self.connection.is_readable().unwrap_or(true)
    }

    pub(super) fn send(&self, message: &[u8]) -> Result<(), ClientError> {
        let mut exchange = self.exchange();
        let began = Instant::now();
        self.connection.send(message, &[], MESSAGE_TIMEOUT)?;
        Ok(exchange.for_messages.note(began, Instant::now())?)
    }

    /// Asks the client and gives its answer to `take`, unless it is known not to answer. `None`: no answer that is of use.
    fn ask<T>(&self, request: &Request<'_>, take: impl FnOnce(Reply<'_>) -> Option<T>) -> Option<T> {
        let mut exchange = self.exchange();
        let exchange = &mut *exchange;
        if exchange.reach == MemoryReachability::Unknown {
            match self.probe_client(exchange, request) {
                Ok(()) => exchange.reach = MemoryReachability::Yes,
                Err(error) => self.give_up(exchange, &error),
            }
        }
        if exchange.reach == MemoryReachability::No {
            return None;
        }
        let command = request.command();
        let contradiction = || ClientRequestError::Contradiction { command };
        let asked = self.exchange_one(exchange, request).and_then(|()| {
            let reply = Reply::decode(command, &exchange.body).ok().flatten();
            reply.and_then(take).ok_or_else(contradiction)
        });
        match asked {
            Ok(taken) => Some(taken),
            Err(ClientRequestError::Refused { command, errno }) => {
                log_limited!(self.log, DEBUG, %command, errno, "the client refuses an access to its memory");
                None
            }
            Err(error) => {
                self.give_up(exchange, &error);
                None
            }
        }
    }

    /// Finds out whether the client is able to answer, by a write of nothing. Its answer also shows where the client has the data
    /// of these messages: in a wrong place, every access would corrupt memory.
    fn probe_client(
        &self,
        exchange: &mut MessageBuffers,
        first: &Request<'_>,
    ) -> Result<(), ClientRequestError> {
        let (Request::DmaRead(transfer) | Request::DmaWrite(transfer, _)) = first else { return Ok(()) };
        let nothing = Request::DmaWrite(DmaTransfer { address: transfer.address, count: 0 }, &[]);
        match self.exchange_one(exchange, &nothing) {
            Ok(()) if exchange.body.is_empty() => Err(ClientRequestError::LayoutMismatch),
            // A client may refuse to write nothing, or to write what may only be read.
            Ok(()) | Err(ClientRequestError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks no more.
    fn give_up(&self, exchange: &mut MessageBuffers, error: &ClientRequestError) {
        // A server that stops says nothing about its client by that.
        if !matches!(error, ClientRequestError::Socket(SocketError::Stopped)) {
            log_limited!(
                self.log,
                WARN,
                %error,
                "memory that the client mapped without a file is out of the card's reach from now on"
            );
        }
        exchange.reach = MemoryReachability::No;
        if error.is_fatal() {
            exchange.broken = !matches!(error, ClientRequestError::Socket(SocketError::Stopped));
            exchange.deferred.clear();
            self.connection.shut_down();
        }
    }

    /// One question and its answer, the body of which is in `exchange` afterwards. The time that it takes is the client's.
    fn exchange_one(
        &self,
        exchange: &mut MessageBuffers,
        request: &Request<'_>,
    ) -> Result<(), ClientRequestError> {
        let began = Instant::now();
        let answered = self.exchange_within(exchange, request, began);
        let in_time = exchange.for_answers.note(began, Instant::now());
        answered?;
        Ok(in_time?)
    }

    fn exchange_within(
        &self,
        exchange: &mut MessageBuffers,
        request: &Request<'_>,
        began: Instant,
    ) -> Result<(), ClientRequestError> {
        let command = request.command();
        let time = exchange.for_answers.left();
        let id = exchange.next_id;
        exchange.next_id = id.wrapping_add(1);
        exchange.asked += 1;
        exchange.out.clear();
        encode_request(id, false, request, &mut exchange.out);
        self.connection.send(&exchange.out, &[], time)?;
        loop {
            let left = time.saturating_sub(began.elapsed());
            if !self.connection.is_readable_within(left)? {
                exchange.abandoned += 1;
                return Err(ClientRequestError::NoAnswer { command, after: self.answer_time });
            }
            let header = self.connection.receive(&mut exchange.body, &mut exchange.fds, MESSAGE_TIMEOUT)?;
            let error = match header.kind {
                Kind::Reply { error } if (header.id, header.command) == (id, command) => error,
                Kind::Reply { .. } if exchange.is_stale_reply(&header) => continue,
                Kind::Reply { .. } => return Err(ClientRequestError::Contradiction { command }),
                Kind::Request { .. } => {
                    self.keep(exchange, header)?;
                    continue;
                }
            };
            // No answer of this kind has any.
            exchange.fds.clear();
            return error.map_or(Ok(()), |errno| Err(ClientRequestError::Refused { command, errno }));
        }
    }

    /// Keeps a request that was just received until it is its turn.
    fn keep(&self, exchange: &mut MessageBuffers, header: Header) -> Result<(), ClientRequestError> {
        let (body, fds) = (std::mem::take(&mut exchange.body), std::mem::take(&mut exchange.fds));
        exchange.deferred_bytes += body.len();
        exchange.deferred_fds += fds.len();
        exchange.deferred.push_back(DeferredRequest { header, body, fds });
        let too_long =
            exchange.deferred_bytes > MAX_DEFERRED_BYTES || exchange.deferred_fds > MAX_DEFERRED_FDS;
        if exchange.deferred.len() > MAX_DEFERRED_REQUESTS || too_long {
            return Err(ClientRequestError::TooManyRequests);
        }
        self.arrived.1.signal();
        Ok(())
    }
}

impl MessageBuffers {
    /// Whether this is the answer to a question that nobody waits for any more.
    fn is_stale_reply(&mut self, header: &Header) -> bool {
        let late = self.abandoned > 0
            && matches!(header.kind, Kind::Reply { .. })
            && matches!(header.command, Command::DMA_READ | Command::DMA_WRITE);
        self.abandoned -= u32::from(late);
        late
    }
}

impl AsFd for ClientConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl RemoteMemory for ClientConnection {
    fn begin_unit(&self) {
        self.exchange().for_answers.begin_unit();
    }

    fn is_budget_used(&self) -> bool {
        self.exchange().for_answers.is_budget_used()
    }

    fn read(&self, at: Iova, into: &mut [u8]) -> usize {
        let most = usize::try_from(self.exchange().most).unwrap_or(usize::MAX);
        let mut done = 0;
        for part in into.chunks_mut(most) {
            let transfer = transfer(at, done, part.len());
            let answered = self.ask(&Request::DmaRead(transfer), |reply| match reply {
                Reply::DmaRead(got, data) if got == transfer && data.len() == part.len() => {
                    part.copy_from_slice(data);
                    Some(())
                }
                _ => None,
            });
            if answered.is_none() {
                break;
            }
            done += part.len();
        }
        done
    }

    fn write(&self, at: Iova, from: &[u8]) -> usize {
        let most = usize::try_from(self.exchange().most).unwrap_or(usize::MAX);
        let mut done = 0;
        for part in from.chunks(most) {
            let transfer = transfer(at, done, part.len());
            let answered = self.ask(&Request::DmaWrite(transfer, part), |reply| match reply {
                Reply::DmaWrite(got) if got == transfer => Some(()),
                _ => None,
            });
            if answered.is_none() {
                break;
            }
            done += part.len();
        }
        done
    }
}

/// The part of an access that begins `done` bytes behind its first address. Mappings do not wrap.
fn transfer(at: Iova, done: usize, count: usize) -> DmaTransfer {
    DmaTransfer { address: at.get().wrapping_add(done as u64), count: count as u64 }
}
