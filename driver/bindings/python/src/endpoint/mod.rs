//! Endpoints: transfers between cards over the network.
//!
//! Python threads share an endpoint as Rust threads do: a wait drives it for all of them. Waits are cut into parts, between which they look
//! for signals, for cancellations and for a close by another thread.

mod error;
mod notifications;
mod options;
mod pending;
mod region;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use fpga_driver::{CardAddr, CardRange, NodeId};
use fpga_pci::{Backoff, Clock};
use fpga_rdma::{EndpointError, RemoteReadable, SendNotify, SharedEndpoint};
use pyo3::prelude::*;

use crate::card_state::CardState;
use crate::error::{Class, Failure, with_block};
use crate::numbers;
use crate::owned::{Close, Owned};
use crate::record::{fields, named_record, record};
use crate::wait::{self, Presence, SIGNAL_INTERVAL, lock};
pub(crate) use notifications::Notifications;
use options::{seconds, send_options};
use pending::Operation;
pub(crate) use pending::Pending;
pub(crate) use region::Region;
use region::{Window, region_of};

/// Steps of a card in virtual time for one poll by a task.
const STEPS_PER_POLL: usize = 64;

/// An endpoint, and the operations that end with it.
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

    /// Calls `wait` with parts of the timeout until it has a result. Between two parts, signal handlers run. `None`: the time is over.
    fn wait_in_parts<T>(
        &self,
        py: Python<'_>,
        endpoint: &SharedEndpoint,
        timeout: Duration,
        mut wait: impl FnMut(Duration) -> Result<Option<T>, Failure>,
    ) -> Result<Option<T>, Failure> {
        let mut left = timeout;
        loop {
            let part = left.min(SIGNAL_INTERVAL);
            if let Some(result) = wait(part)? {
                return Ok(Some(result));
            }
            self.check(py, endpoint)?;
            py.check_signals()?;
            left = left.saturating_sub(part);
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    fn close_children(&self, py: Python<'_>) -> Result<(), Failure> {
        let children = std::mem::take(&mut *lock(&self.children));
        children.iter().filter_map(Weak::upgrade).try_for_each(|child| child.close(py))
    }

    /// Returns the object of an operation that was started.
    fn pending(self: &Arc<Self>, card: &CardState, operation: Operation) -> Result<Pending, Failure> {
        let name = match operation {
            Operation::Send(_) => "the transfer",
            Operation::Read(_) => "the read",
        };
        let operation = card.own(name, operation)?;
        let weak: Weak<Owned<Operation>> = Arc::downgrade(&operation);
        let mut children = lock(&self.children);
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

/// Waits for a result of an endpoint, by `wait`, or, with endpoints to poll meanwhile, by `take`. `None`: the time is over.
fn wait_part<T>(
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
    let rounds = if endpoint.card().clock() == Clock::Virtual { STEPS_PER_POLL } else { 1 };
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

impl Endpoint {
    fn new(card: &CardState, opened: fpga_rdma::Endpoint) -> Result<Self, Failure> {
        let endpoint = card.own("the endpoint", SharedEndpoint::from(opened))?;
        let state = State { endpoint, children: Mutex::default(), presence: Presence::new() };
        Ok(Self { card: card.clone(), state: Arc::new(state) })
    }
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
        // Polls repeat the query; a wait of the driver would begin it anew.
        let all: Vec<_> = std::iter::once(endpoint.clone()).chain(others).collect();
        let found = self.state.wait_in_parts(py, &endpoint, limit, |part| {
            py.detach(|| wait_part(&endpoint, &all, part, |_| Ok(None), || Ok(endpoint.peer(node))))
        })?;
        let Some(peer) = found else {
            return Err(Failure::new(
                Class::TimedOutError,
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
        let fields = fields!(py,
            packets: sender.packets,
            retransmits: sender.retransmits,
            acknowledged: sender.acknowledged,
            timeouts: sender.timeouts,
            busy: sender.busy,
            not_ready: sender.not_ready,
            trimmed: sender.trimmed,
            refused: sender.refused,
            segments: sender.segments,
            completed: sender.completed,
            failed: sender.failed,
            events: counted.events,
            notifications: counted.notifications,
            faults: counted.faults,
            events_dropped: counted.events_dropped,
            reads_served: counted.reads_served,
            reads_refused: counted.reads_refused,
        );
        named_record("endpoint", "EndpointCounters", &fields)
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
