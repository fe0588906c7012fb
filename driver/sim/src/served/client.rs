//! Socket of one client, which carries messages in both directions: the client's requests and their replies, and the card's requests for
//! memory that the client mapped without a file.
//!
//! The card sends its requests in the middle of its work, on the thread that does this work, and waits for the reply. Requests that the
//! client sends meanwhile are deferred; the server handles them before it reads the socket again.

use super::posted::PostedError;
use super::wait_budget::{BudgetExceeded, WaitBudget};
use crate::dma::RemoteMemory;
use fpga_card::Requester;
use fpga_pci::{Interrupt, InterruptError, InterruptTrigger, lock};
use fpga_pci::{LogLimit, log_limited};
use fpga_registers::Iova;
use fpga_vfio_user::socket::{Connection, SocketError};
use fpga_vfio_user::wire::{Command, DmaTransfer, Header, Kind, MAX_DATA, Reply, Request, encode_request};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum time from a message's first byte to its last, and for the client to accept a reply. The card does nothing meanwhile.
pub(super) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Limits on requests, bytes of requests, and file descriptors that may arrive while the card waits for one reply.
const MAX_DEFERRED_REQUESTS: usize = 4096;
const MAX_DEFERRED_BYTES: usize = 8 << 20;
const MAX_DEFERRED_FDS: usize = 64;

/// Request that arrived while the card waited for a reply.
struct DeferredRequest {
    header: Header,
    body: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// Whether the client answers requests for its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemoryReachability {
    /// Not tried yet.
    Unknown,
    /// The client answers.
    Yes,
    /// The client does not answer and is not asked again.
    No,
}

struct MessageBuffers {
    deferred: VecDeque<DeferredRequest>,
    deferred_bytes: usize,
    deferred_fds: usize,
    /// Budget for replies about the client's memory, and for whole messages.
    for_answers: WaitBudget,
    for_messages: WaitBudget,
    reach: MemoryReachability,
    next_id: u16,
    /// Number of abandoned requests whose replies may still arrive.
    abandoned: u32,
    /// Number of requests sent.
    asked: u64,
    /// Whether a request had to end the connection.
    broken: bool,
    /// Maximum number of bytes of one message.
    most: u32,
    out: Vec<u8>,
    body: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// Socket of one client.
pub(super) struct ClientConnection {
    connection: Connection,
    exchange: Mutex<MessageBuffers>,
    answer_time: Duration,
    log: Arc<LogLimit>,
    /// Signalled when requests are deferred: the serving thread may sleep on the socket, which no longer has them.
    arrived: (Interrupt, InterruptTrigger),
}

impl core::fmt::Debug for ClientConnection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ClientConnection").field("connection", &self.connection).finish_non_exhaustive()
    }
}

/// Failure of a request to the client.
#[derive(Debug, thiserror::Error)]
enum ClientRequestError {
    #[error("the client refused {command} (errno {errno})")]
    Refused { command: Command, errno: u32 },
    #[error(
        "the client did not answer {command} within {after:?}, the timeout for all messages of one access"
    )]
    NoAnswer { command: Command, after: Duration },
    #[error(transparent)]
    BudgetExceeded(#[from] BudgetExceeded),
    #[error(
        "the client sent more than {MAX_DEFERRED_REQUESTS} requests, {MAX_DEFERRED_BYTES} bytes or {MAX_DEFERRED_FDS} file descriptors before its reply"
    )]
    TooManyRequests,
    #[error("the client's reply to {command} does not match the request")]
    Contradiction { command: Command },
    #[error(
        "the client replies to DMA_WRITE without a body, as QEMU does: give it memory that it can share (-object memory-backend-memfd,share=on)"
    )]
    LayoutMismatch,
    #[error(transparent)]
    Socket(#[from] SocketError),
}

impl ClientRequestError {
    /// Returns whether the connection can no longer be interpreted.
    const fn is_fatal(&self) -> bool {
        matches!(self, Self::Socket(_) | Self::TooManyRequests | Self::Contradiction { .. })
    }
}

/// Failure that ends a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    BudgetExceeded(#[from] BudgetExceeded),
    #[error(transparent)]
    Posted(#[from] PostedError),
}

impl Requester for ClientConnection {
    fn has_gone(&self) -> bool {
        // If the query fails, receiving reports the error.
        self.connection.is_closed().unwrap_or(false)
    }
}

impl ClientConnection {
    /// `answer_time`: maximum time for which the client may block one access to its memory.
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
        lock(&self.exchange)
    }

    /// Readable when there are deferred requests.
    pub(super) fn arrived(&self) -> BorrowedFd<'_> {
        self.arrived.0.as_fd()
    }

    /// Sets the maximum number of bytes that the client accepts with one message.
    pub(super) fn limit(&self, most: u32) {
        self.exchange().most = most.clamp(1, MAX_DATA);
    }

    /// Begins a unit of work: the limits on waits within one unit count from here.
    pub(super) fn begin_unit(&self) {
        let mut exchange = self.exchange();
        exchange.for_answers.begin_unit();
        exchange.for_messages.begin_unit();
    }

    /// Returns whether the client has used the wait budget of this unit, so that others should be served.
    pub(super) fn is_budget_used(&self) -> bool {
        let exchange = self.exchange();
        exchange.for_answers.is_budget_used() || exchange.for_messages.is_budget_used()
    }

    /// Returns the header of the next message, if there is one; stores its data in `body` and its descriptors in `fds`.
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
        // The readable data may have been a reply that the card has consumed meanwhile.
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

    /// Returns the number of requests for memory sent to the client, and whether one of them has ended the connection.
    pub(super) fn asked(&self) -> (u64, bool) {
        let exchange = self.exchange();
        (exchange.asked, exchange.broken)
    }

    /// Returns whether [`receive`](Self::receive) would return a message.
    pub(super) fn is_readable(&self) -> bool {
        // If the query fails, receiving reports the error.
        !self.exchange().deferred.is_empty() || self.connection.is_readable().unwrap_or(true)
    }

    /// Ends the connection for both sides.
    pub(super) fn shut_down(&self) {
        self.connection.shut_down();
    }

    pub(super) fn send(&self, message: &[u8]) -> Result<(), ClientError> {
        let mut exchange = self.exchange();
        let began = Instant::now();
        self.connection.send(message, &[], MESSAGE_TIMEOUT)?;
        Ok(exchange.for_messages.note(began, Instant::now())?)
    }

    /// Sends a request to the client and passes its reply to `take`, unless the client is known not to answer. Returns `None` without a
    /// usable reply.
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
                log_limited!(self.log, DEBUG, %command, errno, "the client refused an access to its memory");
                None
            }
            Err(error) => {
                self.give_up(exchange, &error);
                None
            }
        }
    }

    /// Finds out by an empty write whether the client answers. Its reply also shows where the client expects the data of these messages: at
    /// a wrong offset, every access would corrupt memory.
    fn probe_client(
        &self,
        exchange: &mut MessageBuffers,
        first: &Request<'_>,
    ) -> Result<(), ClientRequestError> {
        let (Request::DmaRead(transfer) | Request::DmaWrite(transfer, _)) = first else { return Ok(()) };
        let nothing = Request::DmaWrite(DmaTransfer { address: transfer.address, count: 0 }, &[]);
        match self.exchange_one(exchange, &nothing) {
            Ok(()) if exchange.body.is_empty() => Err(ClientRequestError::LayoutMismatch),
            // A client may refuse an empty write, or a write to read-only memory.
            Ok(()) | Err(ClientRequestError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Stops sending requests to the client.
    fn give_up(&self, exchange: &mut MessageBuffers, error: &ClientRequestError) {
        // A server that stops does not imply a fault of the client.
        if !matches!(error, ClientRequestError::Socket(SocketError::Stopped)) {
            log_limited!(
                self.log,
                WARN,
                %error,
                "the card can no longer access memory that the client mapped without a file"
            );
        }
        exchange.reach = MemoryReachability::No;
        if error.is_fatal() {
            exchange.broken = !matches!(error, ClientRequestError::Socket(SocketError::Stopped));
            exchange.deferred.clear();
            self.connection.shut_down();
        }
    }

    /// Sends one request and receives its reply, whose body is in `exchange` afterwards. The time is charged to the client.
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
            // Replies of this kind carry no descriptors.
            exchange.fds.clear();
            return error.map_or(Ok(()), |errno| Err(ClientRequestError::Refused { command, errno }));
        }
    }

    /// Defers a request that was just received.
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
    /// Returns whether this is the reply to an abandoned request.
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

/// Returns the part of an access that begins `done` bytes after its first address. Mappings do not wrap.
fn transfer(at: Iova, done: usize, count: usize) -> DmaTransfer {
    DmaTransfer { address: at.get().wrapping_add(done as u64), count: count as u64 }
}
