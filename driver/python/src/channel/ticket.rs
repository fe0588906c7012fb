//! Tickets of submitted transfers.

use fpga_driver::Ticket;
use pyo3::prelude::*;

use super::class::Channel;
use super::engine::Outcome;
use crate::error::Failure;
use crate::wait;

/// A submitted transfer.
#[pyclass(name = "Ticket", frozen, module = "fpga_rdma")]
pub(crate) struct PyTicket {
    channel: Py<Channel>,
    ticket: Ticket,
    /// Set when the transfer has ended.
    outcome: Outcome,
    nbytes: usize,
}

impl PyTicket {
    pub(super) fn new(channel: Py<Channel>, (ticket, outcome): (Ticket, Outcome), nbytes: usize) -> Self {
        Self { channel, ticket, outcome, nbytes }
    }

    /// How the transfer has ended, as far as the channel was polled.
    fn ended(&self) -> Option<Result<(), Failure>> {
        self.outcome.get().map(|outcome| outcome.clone().map_or(Ok(()), |problem| Err(problem.into())))
    }
}

#[pymethods]
impl PyTicket {
    #[getter]
    fn channel(&self, py: Python<'_>) -> Py<Channel> {
        self.channel.clone_ref(py)
    }

    #[getter]
    fn number(&self) -> u64 {
        self.ticket.number()
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// Polls the channel, and returns whether the transfer has ended.
    fn done(&self, py: Python<'_>) -> Result<bool, Failure> {
        if self.outcome.get().is_some() {
            return Ok(true);
        }
        let mut locked = self.channel.get().shared.lock(py)?;
        let engine = locked.engine()?;
        wait::detached(py, || {
            if !engine.has_ended(self.ticket) {
                engine.poll()?;
            }
            Ok::<_, Failure>(engine.has_ended(self.ticket))
        })
    }

    #[pyo3(signature = (timeout = Some(10.0)))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Result<(), Failure> {
        let mut locked = match self.channel.get().shared.lock(py) {
            Ok(locked) => locked,
            Err(closed) => return self.ended().unwrap_or(Err(closed)),
        };
        let engine = locked.engine()?;
        let options = wait::options(timeout)?;
        wait::detached(py, || {
            let waited = engine.wait_ended(self.ticket, options);
            // It is reported by this ticket, and not again by a wait of the channel.
            engine.take_failure(self.ticket, self.ticket);
            // The outcome says more than a wait of a channel that has failed as a whole.
            self.ended().unwrap_or(waited)
        })
    }

    fn cancel(&self, py: Python<'_>) -> Result<bool, Failure> {
        let mut locked = self.channel.get().shared.lock(py)?;
        let engine = locked.engine()?;
        wait::detached(py, || engine.cancel(self.ticket))
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let ended = slf.py().import("fpga_rdma._async")?.call_method1("ended", (slf,))?;
        ended.call_method0("__await__")
    }

    fn __repr__(&self) -> String {
        let channel = &self.channel.get().shared;
        format!(
            "<Ticket {} of {} {}: {} bytes>",
            self.ticket.number(),
            channel.card,
            channel.label(),
            self.nbytes
        )
    }
}
