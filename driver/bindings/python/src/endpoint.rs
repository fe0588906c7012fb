//! Endpoints: transfers between cards over the network.
//!
//! Python threads share an endpoint as Rust threads do: a wait drives it for all of them. Waits are cut into parts, between which they look
//! for signals, for cancellations and for a close by another thread.
//!
//! Longer than other files: one class per thing of the driver, and the keyword arguments of each call.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use fpga_driver::{CardAddr, CardRange, NodeId};
use fpga_pci::{Backoff, Clock};
use fpga_rdma::{
    EndpointError, EndpointOptions, Notification, PendingRead, PendingSend, ReadCompletion, ReadError,
    ReadFailure, ReadableHandle, RegionHandle, RemoteReadable, RemoteRegion, Scheme, SendCompletion,
    SendError, SendFailure, SendNotify, SendOptions, SendTimeout, SharedEndpoint,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::card::Card;
use crate::card_state::CardState;
use crate::error::{Class, Classify, Failure, with_block};
use crate::numbers;
use crate::owned::{Close, Owned};
use crate::record::record;
use crate::wait::{self, Presence, SIGNAL_INTERVAL, brief};

/// Steps of a card in virtual time for one poll by a task.
const STEPS: usize = 64;

impl Classify for EndpointError {
    fn class(&self) -> Class {
        match self {
            Self::NoInterface
            | Self::Scheme { .. }
            | Self::Schemes { .. }
            | Self::Tuning { .. }
            | Self::OpTable { .. } => Class::Unsupported,
            Self::Config(_) | Self::Option { .. } | Self::RegionRange { .. } => Class::Range,
            Self::Resource(error) => error.kind.class(),
            Self::Channel(error) => error.kind.class(),
            Self::Submit(error) => error.kind.class(),
            Self::Prepare(error) | Self::Fetch(error) => error.kind.class(),
            Self::Cdma(error) => error.kind.class(),
            Self::Upload(_) | Self::Chain { .. } => Class::Fault,
            Self::Cause(cause) => Classify::class(cause),
            Self::RegionsFull { .. } => Class::Full,
            Self::Memory(_) => Class::NoMemory,
            Self::TimedOut { .. } | Self::NoArrival { .. } | Self::NoPeer { .. } => Class::TimedOut,
            Self::WindowsStuck { .. } => Class::Wedged,
            // The endpoint has failed, or the system refuses: the message says what.
            _ => Class::Refused,
        }
    }
}

impl Classify for SendError {
    fn class(&self) -> Class {
        match self {
            Self::Scheme { .. } => Class::Unsupported,
            Self::Peer { .. } => Class::Refused,
            Self::Cause(cause) => Classify::class(cause),
            _ if self.is_full() => Class::Full,
            _ => Class::Range,
        }
    }
}

impl Classify for ReadError {
    fn class(&self) -> Class {
        match self {
            Self::Full => Class::Full,
            Self::Overlap { .. } => Class::InUse,
            Self::Send(error) => error.class(),
            Self::Endpoint(error) => error.class(),
            Self::Upload(error) => error.kind.class(),
            _ => Class::Range,
        }
    }
}

/// Reason of a failed transfer as a word, and the address that its message names.
fn reason(failure: &SendFailure) -> (&'static str, u64) {
    let (word, address) = match failure {
        SendFailure::Unanswered { address, .. } => ("unanswered", address),
        SendFailure::Refused { address, .. } => ("refused", address),
        SendFailure::ReceiverNotReady { address, .. } => ("not-ready", address),
        SendFailure::Forgotten { address, .. } => ("forgotten", address),
        SendFailure::Scheme { address, .. } => ("scheme", address),
        SendFailure::NotTaken { address, .. } => ("not-taken", address),
        SendFailure::Deadline { address, .. } => ("deadline", address),
        SendFailure::Cancelled { address, .. } => ("cancelled", address),
        SendFailure::Superseded { address, .. } => ("superseded", address),
        _ => return ("failed", 0),
    };
    (word, address.get())
}

/// Advice about a failed transfer.
fn advice(failure: &SendFailure) -> Option<Cow<'static, str>> {
    match failure {
        SendFailure::Superseded { .. } => Some(Cow::Borrowed(
            "close the endpoint and open it again without incarnation=...: it starts with a later one; check that no other node has this node id",
        )),
        other => other.help(),
    }
}

/// Parses the name of a scheme: `registry`, `receiver-window`.
fn scheme(name: &str) -> Result<Scheme, Failure> {
    let plain = |name: &str| -> String {
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let wanted = plain(name);
    Scheme::ALL.iter().copied().find(|known| plain(known.name()) == wanted).ok_or_else(|| {
        Failure::value(format!(
            "there is no scheme '{name}'; the schemes are registry, receiver-window, adaptive-window, selective"
        ))
    })
}

fn seconds(span: f64, what: &str) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(span)
        .map_err(|_| Failure::value(format!("{what} is {span} s: give a time of 0 s or more")))
}

fn region_of(remote: &Bound<'_, PyAny>) -> PyResult<RemoteRegion> {
    Ok(RemoteRegion {
        node: NodeId::new(numbers::node(&remote.getattr("node")?)?),
        address: CardAddr::new(numbers::address(&remote.getattr("address")?)?),
        length: numbers::length(&remote.getattr("length")?)?,
        key: numbers::key(&remote.getattr("key")?)?,
    })
}

fn region_record<'py>(py: Python<'py>, remote: &RemoteRegion) -> Result<Bound<'py, PyAny>, Failure> {
    let fields = (remote.node.get(), remote.address.get(), remote.length, remote.key);
    record(py, "endpoint", "RemoteRegion", fields)
}

fn notification<'py>(py: Python<'py>, arrived: &Notification) -> Result<Bound<'py, PyAny>, Failure> {
    let fields = (
        arrived.node.get(),
        arrived.incarnation.get(),
        arrived.transfer.get(),
        arrived.address.get(),
        arrived.length,
        arrived.time,
    );
    record(py, "endpoint", "Notification", fields)
}

/// Endpoint with the transfers that end with it.
pub(crate) struct State {
    endpoint: Arc<Owned<SharedEndpoint>>,
    children: Mutex<Vec<Weak<dyn Close>>>,
    presence: Presence,
}

impl State {
    fn get(&self, py: Python<'_>) -> Result<SharedEndpoint, Failure> {
        self.endpoint.with(py, |endpoint| Ok(endpoint.clone()))
    }

    /// Ends a wait if the endpoint was closed or the card is gone: polls read host memory only.
    fn check(&self, py: Python<'_>, endpoint: &SharedEndpoint) -> Result<(), Failure> {
        self.endpoint.check_open()?;
        self.presence.check(py, endpoint.card())
    }

    fn close_children(&self, py: Python<'_>) -> Result<(), Failure> {
        let children = std::mem::take(&mut *brief(&self.children));
        children.iter().filter_map(Weak::upgrade).try_for_each(|child| child.close(py))
    }

    fn pending(self: &Arc<Self>, card: &CardState, operation: Operation) -> Result<Pending, Failure> {
        let what = match operation {
            Operation::Send(_) => "the transfer",
            Operation::Read(_) => "the read",
        };
        let operation = card.own(what, operation)?;
        let weak: Weak<Owned<Operation>> = Arc::downgrade(&operation);
        let mut children = brief(&self.children);
        children.retain(|child| child.strong_count() > 0);
        children.push(weak);
        Ok(Pending {
            state: Arc::clone(self),
            operation,
            done: OnceLock::new(),
            cancelled: AtomicBool::new(false),
        })
    }
}

/// Endpoints that are polled during a wait.
fn others(py: Python<'_>, poll: Vec<Py<Endpoint>>) -> Result<Vec<SharedEndpoint>, Failure> {
    poll.iter().map(|endpoint| endpoint.get().state.get(py)).collect()
}

/// Waits for a result of an endpoint: `wait` is one part of a wait, `take` a poll. `None`: the time is over.
fn part<T>(
    endpoint: &SharedEndpoint,
    others: &[SharedEndpoint],
    limit: Duration,
    wait: impl FnOnce(Duration) -> Result<Option<T>, Failure>,
    mut take: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<Option<T>, Failure> {
    if others.is_empty() {
        return wait(limit);
    }
    let now = || endpoint.inspect(fpga_rdma::Endpoint::now);
    let (began, mut backoff) = (now(), Backoff::new());
    loop {
        if let Some(value) = take()? {
            return Ok(Some(value));
        }
        let mut work = 0;
        for other in others {
            work += other.poll()?;
        }
        if now().saturating_sub(began) >= limit {
            return Ok(None);
        }
        if work > 0 {
            backoff.reset();
        } else {
            endpoint.card().back_off(&mut backoff);
        }
    }
}

/// Lets a card in virtual time work until `take` has a value, for some steps at most.
fn steps<T>(
    endpoint: &SharedEndpoint,
    mut take: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<Option<T>, Failure> {
    let rounds = if endpoint.card().clock() == Clock::Virtual { STEPS } else { 1 };
    for round in 0..rounds {
        if round > 0 {
            endpoint.inspect(fpga_rdma::Endpoint::relax);
        }
        if let Some(value) = take()? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// Result of a call that ends with `EndpointError::TimedOut` or `NoArrival` when its time is over.
fn in_time<T>(result: Result<T, fpga_driver::Error<EndpointError>>) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error)
            if matches!(error.kind, EndpointError::TimedOut { .. } | EndpointError::NoArrival { .. }) =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Endpoint of a card.
#[pyclass(frozen, module = "fpga_rdma.endpoint")]
pub(crate) struct Endpoint {
    card: CardState,
    state: Arc<State>,
}

with_block!(Endpoint);

#[pymethods]
impl Endpoint {
    #[getter]
    fn node(&self, py: Python<'_>) -> Result<u32, Failure> {
        Ok(self.state.get(py)?.node().get())
    }

    #[getter]
    fn incarnation(&self, py: Python<'_>) -> Result<u32, Failure> {
        Ok(self.state.get(py)?.inspect(|endpoint| endpoint.incarnation().get()))
    }

    #[getter]
    fn usable_memory<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        let range = self.state.get(py)?.inspect(fpga_rdma::Endpoint::usable_memory);
        record(py, "endpoint", "MemoryRange", (range.start.get(), range.length))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.state.endpoint.is_closed()
    }

    fn open_region(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::peer)] peer: u32,
        #[pyo3(from_py_with = numbers::address)] address: u64,
        #[pyo3(from_py_with = numbers::length)] length: u64,
    ) -> Result<Region, Failure> {
        let range = CardRange::new(CardAddr::new(address), length);
        let handle = self.state.get(py)?.open_region(NodeId::new(peer), range)?;
        Ok(Region { state: Arc::clone(&self.state), handle: Window::Write(handle) })
    }

    fn open_readable(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::peer)] peer: u32,
        #[pyo3(from_py_with = numbers::address)] address: u64,
        #[pyo3(from_py_with = numbers::length)] length: u64,
    ) -> Result<Region, Failure> {
        let range = CardRange::new(CardAddr::new(address), length);
        let handle = self.state.get(py)?.open_readable(NodeId::new(peer), range)?;
        Ok(Region { state: Arc::clone(&self.state), handle: Window::Read(handle) })
    }

    #[pyo3(signature = (address, remote, offset = 0, length = None, *, notify = "receiver", priority = 0, scheme = None, deadline = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn send(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::address)] address: u64,
        remote: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::offset)] offset: u64,
        #[pyo3(from_py_with = numbers::length)] length: Option<u64>,
        notify: &str,
        #[pyo3(from_py_with = numbers::priority)] priority: u8,
        scheme: Option<&str>,
        deadline: Option<f64>,
    ) -> Result<Pending, Failure> {
        let notify = match notify {
            "receiver" => SendNotify::Receiver,
            "sender" => SendNotify::Sender,
            "none" => SendNotify::None,
            other => {
                return Err(Failure::value(format!(
                    "notify is '{other}': give 'receiver', 'sender' or 'none'"
                )));
            }
        };
        let options = send_options(priority, scheme, deadline)?.notify(notify);
        let target = region_of(remote)?;
        let length = length.unwrap_or_else(|| target.length.saturating_sub(offset));
        let sent = self.state.get(py)?.send(CardAddr::new(address), &target, offset, length, options)?;
        self.state.pending(&self.card, Operation::Send(sent))
    }

    #[pyo3(signature = (remote, offset, address, length, *, priority = 0, scheme = None, deadline = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn read(
        &self,
        py: Python<'_>,
        remote: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers::offset)] offset: u64,
        #[pyo3(from_py_with = numbers::address)] address: u64,
        #[pyo3(from_py_with = numbers::length)] length: u64,
        #[pyo3(from_py_with = numbers::priority)] priority: u8,
        scheme: Option<&str>,
        deadline: Option<f64>,
    ) -> Result<Pending, Failure> {
        let options = send_options(priority, scheme, deadline)?;
        let source = RemoteReadable {
            node: NodeId::new(numbers::node(&remote.getattr("node")?)?),
            length: numbers::length(&remote.getattr("length")?)?,
            mailbox: region_of(&remote.getattr("mailbox")?)?,
        };
        let endpoint = self.state.get(py)?;
        let read =
            wait::detached(py, || endpoint.read(&source, offset, CardAddr::new(address), length, options))?;
        self.state.pending(&self.card, Operation::Read(read))
    }

    fn poll(&self, py: Python<'_>) -> Result<usize, Failure> {
        let endpoint = self.state.get(py)?;
        wait::detached(py, || endpoint.poll().inspect(|_| endpoint.inspect(fpga_rdma::Endpoint::relax)))
    }

    #[getter]
    fn notifications(&self) -> Notifications {
        Notifications { state: Arc::clone(&self.state) }
    }

    #[pyo3(signature = (node, timeout = 1.0, *, poll = Vec::new()))]
    fn peer<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = numbers::node)] node: u32,
        timeout: f64,
        poll: Vec<Py<Endpoint>>,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        let (endpoint, others, node) = (self.state.get(py)?, others(py, poll)?, NodeId::new(node));
        let limit = seconds(timeout, "timeout")?;
        endpoint.query_peer(node, limit)?;
        let (mut left, mut found) = (limit, None);
        while found.is_none() && !left.is_zero() {
            let now = left.min(SIGNAL_INTERVAL);
            found = py.detach(|| {
                // The query is repeated by polls: a wait of its own would begin it anew.
                let own = [endpoint.clone()];
                let all = [&own[..], &others[..]].concat();
                part(&endpoint, &all, now, |_| Ok(None), || Ok(endpoint.peer(node)))
            })?;
            left = left.saturating_sub(now);
            self.state.check(py, &endpoint)?;
            py.check_signals()?;
        }
        let Some(peer) = found else {
            return Err(Failure::new(
                Class::TimedOut,
                format!("node {node} has not answered within {limit:?}"),
            )
            .on_card(self.card.name())
            .advice("check that its endpoint is open and polled, and that packets get through"));
        };
        let schemes: Vec<String> = peer.schemes.iter().map(|scheme| scheme.to_string()).collect();
        let fields = (
            peer.node.get(),
            peer.incarnation.get(),
            peer.wire_version,
            1_u64 << peer.packet_size_log2,
            peer.mask_bits,
            schemes,
            peer.registry_timeout.as_secs_f64(),
        );
        record(py, "endpoint", "Peer", fields)
    }

    #[getter]
    fn counters<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        let counted = self.state.get(py)?.counters();
        let sender = counted.sender;
        let fields = PyDict::new(py);
        for (name, value) in [
            ("packets", sender.packets),
            ("retransmits", sender.retransmits),
            ("acknowledged", sender.acknowledged),
            ("timeouts", sender.timeouts),
            ("busy", sender.busy),
            ("not_ready", sender.not_ready),
            ("refused", sender.refused),
            ("segments", sender.segments),
            ("completed", sender.completed),
            ("failed", sender.failed),
            ("events", counted.events),
            ("notifications", counted.notifications),
            ("faults", counted.faults),
            ("events_dropped", counted.events_dropped),
            ("reads_served", counted.reads_served),
            ("reads_refused", counted.reads_refused),
        ] {
            fields.set_item(name, value)?;
        }
        let class = py.import("fpga_rdma.endpoint")?.getattr("EndpointCounters")?;
        Ok(class.call((), Some(&fields))?)
    }

    #[getter]
    fn transfers<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyAny>>, Failure> {
        let views = self.state.get(py)?.inspect(fpga_rdma::Endpoint::transfers);
        let records = views.into_iter().map(|view| {
            let fields = (
                view.node.get(),
                view.destination.get(),
                view.length,
                view.remaining,
                view.segments,
                view.outstanding,
                view.acknowledged,
                view.packets,
                view.retransmits,
            );
            record(py, "endpoint", "TransferView", fields)
        });
        records.collect()
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.card.check_process()?;
        self.state.close_children(py)?;
        self.state.endpoint.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.state.get(py) {
            Ok(endpoint) => format!("<Endpoint of {}: node {}>", self.card.name(), endpoint.node()),
            Err(_) => format!("<Endpoint of {}: closed>", self.card.name()),
        }
    }
}

fn send_options(priority: u8, name: Option<&str>, deadline: Option<f64>) -> Result<SendOptions, Failure> {
    let mut options = SendOptions::default().priority(priority);
    options.scheme = name.map(scheme).transpose()?;
    options.deadline = deadline.map(|deadline| seconds(deadline, "deadline")).transpose()?;
    Ok(options)
}

enum Window {
    Write(RegionHandle),
    Read(ReadableHandle),
}

/// Memory that is open for another node.
#[pyclass(frozen, module = "fpga_rdma.endpoint")]
pub(crate) struct Region {
    state: Arc<State>,
    handle: Window,
}

with_block!(Region);

#[pymethods]
impl Region {
    #[getter]
    fn remote<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        match &self.handle {
            Window::Write(handle) => region_record(py, &handle.remote),
            Window::Read(handle) => {
                let mailbox = region_record(py, &handle.remote.mailbox)?;
                let fields = (handle.remote.node.get(), handle.remote.length, mailbox);
                record(py, "endpoint", "RemoteReadable", fields)
            }
        }
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        let endpoint = match self.state.get(py) {
            Err(failure) if failure.is(Class::Closed) => return Ok(()),
            endpoint => endpoint?,
        };
        match &self.handle {
            Window::Write(handle) => endpoint.close_region(handle),
            Window::Read(handle) => endpoint.close_readable(handle),
        }
        .map_err(Into::into)
    }

    fn __repr__(&self) -> String {
        match &self.handle {
            Window::Write(handle) => {
                format!("<Region of {} bytes at {}>", handle.remote.length, handle.remote.address)
            }
            Window::Read(handle) => format!("<Region of {} bytes, readable>", handle.remote.length),
        }
    }
}

enum Operation {
    Send(PendingSend),
    Read(PendingRead),
}

enum Completion {
    Send(Box<SendCompletion>),
    Read(Box<ReadCompletion>),
}

impl Operation {
    fn wait(&mut self, limit: Duration) -> Result<Option<Completion>, Failure> {
        Ok(match self {
            Self::Send(send) => in_time(send.wait(limit))?.map(|done| Completion::Send(Box::new(done))),
            Self::Read(read) => in_time(read.wait(limit))?.map(|done| Completion::Read(Box::new(done))),
        })
    }

    fn take(&mut self) -> Result<Option<Completion>, Failure> {
        Ok(match self {
            Self::Send(send) => send.try_take()?.map(|done| Completion::Send(Box::new(done))),
            Self::Read(read) => read.try_take()?.map(|done| Completion::Read(Box::new(done))),
        })
    }
}

/// Transfer or read in progress.
#[pyclass(frozen, module = "fpga_rdma.endpoint")]
pub(crate) struct Pending {
    state: Arc<State>,
    operation: Arc<Owned<Operation>>,
    /// The completion, once it was taken from the driver: every call returns it.
    done: OnceLock<Completion>,
    cancelled: AtomicBool,
}

impl Pending {
    fn apply_cancel(&self, operation: &Operation) {
        if let (true, Operation::Send(send)) = (self.cancelled.swap(false, Ordering::Relaxed), operation) {
            send.cancel();
        }
    }

    /// Keeps a completion that was taken from the driver. Returns the one that this or another call has taken.
    fn keep(&self, done: Option<Completion>) -> Option<&Completion> {
        if let Some(done) = done {
            let _ = self.done.set(done);
        }
        self.done.get()
    }

    /// Makes the completion's object, or the exception of a failure.
    fn result<'py>(&self, py: Python<'py>, done: &Completion) -> Result<Bound<'py, PyAny>, Failure> {
        let card = self.operation.card();
        match done {
            Completion::Send(done) => {
                let fields = (
                    done.node.get(),
                    done.length,
                    done.segments,
                    done.silent_segments,
                    done.packets,
                    done.retransmits,
                    done.started.as_secs_f64(),
                    done.finished.as_secs_f64(),
                );
                let completion = record(py, "endpoint", "SendCompletion", fields)?;
                let Err(failure) = &done.result else { return Ok(completion) };
                let (word, address) = reason(failure);
                let text = format!("{card}: {failure}");
                let fields =
                    (text, advice(failure), card, "endpoint", done.node.get(), address, word, completion);
                let error = record(py, "errors", "SendFailedError", fields)?;
                Err(PyErr::from_value(error).into())
            }
            Completion::Read(done) => {
                let fields =
                    (done.node.get(), done.length, done.started.as_secs_f64(), done.finished.as_secs_f64());
                let completion = record(py, "endpoint", "ReadCompletion", fields)?;
                let Err(failure) = &done.result else { return Ok(completion) };
                let (word, address) = match failure {
                    ReadFailure::Cancelled { .. } => ("cancelled", 0),
                    ReadFailure::Request(failure) => reason(failure),
                    ReadFailure::NoAnswer { .. } => ("unanswered", 0),
                    _ => ("failed", 0),
                };
                let advice = match failure {
                    ReadFailure::Request(failure @ SendFailure::Superseded { .. }) => advice(failure),
                    _ => Some(Cow::Borrowed(
                        "check that the node's endpoint is open and polled, and that the range is still readable",
                    )),
                };
                let text = format!("{card}: {failure}");
                let fields = (text, advice, card, "endpoint", done.node.get(), address, word, completion);
                let error = record(py, "errors", "ReadFailedError", fields)?;
                Err(PyErr::from_value(error).into())
            }
        }
    }
}

#[pymethods]
impl Pending {
    #[pyo3(signature = (timeout = Some(10.0), *, poll = Vec::new()))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
        poll: Vec<Py<Endpoint>>,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        if let Some(done) = self.done.get() {
            return self.result(py, done);
        }
        let (endpoint, others) = (self.state.get(py)?, others(py, poll)?);
        let mut left = wait::duration(timeout)?;
        loop {
            let now = left.min(SIGNAL_INTERVAL);
            let done = self.operation.with(py, |operation| {
                if self.done.get().is_some() {
                    // Another thread has waited as well.
                    return Ok(None);
                }
                self.apply_cancel(operation);
                py.detach(|| {
                    let shared = std::cell::RefCell::new(operation);
                    part(
                        &endpoint,
                        &others,
                        now,
                        |limit| shared.borrow_mut().wait(limit),
                        || shared.borrow_mut().take(),
                    )
                })
            })?;
            if let Some(done) = self.keep(done) {
                return self.result(py, done);
            }
            self.operation.check_open()?;
            self.state.check(py, &endpoint)?;
            py.check_signals()?;
            if left <= now {
                let waited = wait::duration(timeout)?;
                return Err(Failure::new(Class::TimedOut, format!("{} has not ended after {waited:?}", self.operation.name()))
                    .on_card(self.operation.card())
                    .advice("wait longer (timeout=...); if the other node is in this program, poll its endpoint: wait(poll=[other])"));
            }
            left = left.saturating_sub(now);
        }
    }

    fn poll<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>, Failure> {
        if let Some(done) = self.done.get() {
            return self.result(py, done).map(Some);
        }
        let endpoint = self.state.get(py)?;
        let done = self.operation.with(py, |operation| {
            self.apply_cancel(operation);
            py.detach(|| steps(&endpoint, || operation.take()))
        })?;
        self.keep(done).map(|done| self.result(py, done)).transpose()
    }

    fn cancel(&self, py: Python<'_>) -> Result<(), Failure> {
        self.cancelled.store(true, Ordering::Relaxed);
        self.operation.with(py, |operation| {
            self.apply_cancel(operation);
            Ok(())
        })
    }

    fn __await__<'py>(this: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>, Failure> {
        let helper = this.py().import("fpga_rdma._aio")?.getattr("result")?;
        Ok(helper.call1((this.getattr("poll")?,))?.call_method0("__await__")?)
    }
}

/// Arrivals at an endpoint.
#[pyclass(frozen, module = "fpga_rdma.endpoint")]
pub(crate) struct Notifications {
    state: Arc<State>,
}

#[pymethods]
impl Notifications {
    fn poll<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>, Failure> {
        let endpoint = self.state.get(py)?;
        let arrived = py.detach(|| {
            steps(&endpoint, || {
                endpoint.poll()?;
                Ok(endpoint.next_notification())
            })
        })?;
        if arrived.is_none() {
            self.state.check(py, &endpoint)?;
        }
        arrived.map(|arrived| notification(py, &arrived)).transpose()
    }

    #[pyo3(signature = (timeout = Some(10.0), *, poll = Vec::new()))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
        poll: Vec<Py<Endpoint>>,
    ) -> Result<Bound<'py, PyAny>, Failure> {
        let (endpoint, others) = (self.state.get(py)?, others(py, poll)?);
        let mut left = wait::duration(timeout)?;
        loop {
            let now = left.min(SIGNAL_INTERVAL);
            let arrived = py.detach(|| {
                part(
                    &endpoint,
                    &others,
                    now,
                    |limit| in_time(endpoint.wait_notification(limit)),
                    || {
                        endpoint.poll()?;
                        Ok(endpoint.next_notification())
                    },
                )
            })?;
            if let Some(arrived) = arrived {
                return notification(py, &arrived);
            }
            self.state.check(py, &endpoint)?;
            py.check_signals()?;
            if left <= now {
                let waited = wait::duration(timeout)?;
                return Err(Failure::new(Class::TimedOut, format!("nothing has arrived after {waited:?}"))
                    .on_card(self.state.endpoint.card())
                    .advice("wait longer (timeout=...), or check that a peer was given a region to send to; if it is in this program, poll its endpoint: wait(poll=[other])"));
            }
            left = left.saturating_sub(now);
        }
    }

    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Failure> {
        self.wait(py, None, Vec::new())
    }

    fn __aiter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __anext__<'py>(this: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>, Failure> {
        let helper = this.py().import("fpga_rdma._aio")?.getattr("result")?;
        Ok(helper.call1((this.getattr("poll")?,))?)
    }
}

#[pymethods]
impl Card {
    #[pyo3(signature = (*, scheme = "registry", other_schemes = Vec::new(), channel = None, read_channel = None, segment = None, big_threshold = None, event_ring = 16384, event_line = 0, incarnation = None, incarnation_file = None, packets = None, transfers = None, destinations = None, source_alignment = None, window = None, round_trip = None, timeout = None, give_up = None, registry_timeout = None, escape_timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn endpoint(
        &self,
        py: Python<'_>,
        scheme: &str,
        other_schemes: Vec<String>,
        #[pyo3(from_py_with = numbers::channel)] channel: Option<u8>,
        #[pyo3(from_py_with = numbers::read_channel)] read_channel: Option<u8>,
        #[pyo3(from_py_with = numbers::segment)] segment: Option<u32>,
        #[pyo3(from_py_with = numbers::big_threshold)] big_threshold: Option<u32>,
        #[pyo3(from_py_with = numbers::event_ring)] event_ring: u32,
        #[pyo3(from_py_with = numbers::event_line)] event_line: u8,
        #[pyo3(from_py_with = numbers::incarnation)] incarnation: Option<u32>,
        incarnation_file: Option<PathBuf>,
        #[pyo3(from_py_with = numbers::packets)] packets: Option<u32>,
        #[pyo3(from_py_with = numbers::transfers)] transfers: Option<u32>,
        #[pyo3(from_py_with = numbers::destinations)] destinations: Option<u32>,
        #[pyo3(from_py_with = numbers::source_alignment)] source_alignment: Option<u32>,
        #[pyo3(from_py_with = numbers::window)] window: Option<u32>,
        round_trip: Option<f64>,
        timeout: Option<f64>,
        give_up: Option<f64>,
        registry_timeout: Option<f64>,
        escape_timeout: Option<f64>,
    ) -> Result<Endpoint, Failure> {
        let mut options = EndpointOptions::default();
        options.scheme = self::scheme(scheme)?;
        options.other_schemes =
            other_schemes.iter().map(|name| self::scheme(name)).collect::<Result<_, _>>()?;
        (options.channel, options.read_channel) = (channel, read_channel);
        (options.segment_size, options.big_threshold) = (segment, big_threshold);
        (options.event_entries, options.event_line) = (event_ring, event_line);
        (options.incarnation, options.incarnation_file) = (incarnation, incarnation_file);
        options.ops = packets;
        (options.transfers, options.destinations) = (transfers, destinations);
        options.source_alignment = source_alignment;
        options.tuning.window = window;
        if let Some(timeout) = timeout {
            options.timeout = SendTimeout::Fixed { timeout: seconds(timeout, "timeout")?, max_tries: 0 };
        }
        if let Some(span) = registry_timeout {
            options.registry_timeout = Some(seconds(span, "registry_timeout")?);
        }
        for (given, name, place) in [
            (round_trip, "round_trip", &mut options.round_trip),
            (give_up, "give_up", &mut options.give_up),
            (escape_timeout, "escape_timeout", &mut options.escape_timeout),
        ] {
            if let Some(span) = given {
                *place = seconds(span, name)?;
            }
        }
        let card = self.0.get()?;
        let opened = wait::detached(py, || fpga_rdma::Endpoint::open_with(&card, &options))?;
        let endpoint = self.0.own("the endpoint", SharedEndpoint::from(opened))?;
        let state = State { endpoint, children: Mutex::default(), presence: Presence::new() };
        Ok(Endpoint { card: self.0.clone(), state: Arc::new(state) })
    }
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Endpoint>()?;
    module.add_class::<Region>()?;
    module.add_class::<Pending>()?;
    module.add_class::<Notifications>()
}
