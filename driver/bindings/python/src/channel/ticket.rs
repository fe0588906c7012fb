//! Tickets of submitted transfers.

use std::sync::Arc;

use fpga_driver::Ticket;
use pyo3::prelude::*;

use super::engine::Outcome;
use super::shared::Shared;
use crate::error::Failure;
use crate::wait::Limit;

/// A submitted transfer.
#[pyclass(name = "Ticket", frozen, module = "fpga_rdma")]
pub(crate) struct PyTicket {
    channel: Py<PyAny>,
    shared: Arc<Shared>,
    ticket: Ticket,
    /// Result, set when the transfer has ended.
    outcome: Outcome,
    nbytes: usize,
}

impl PyTicket {
    /// Ticket of a transfer of `channel`, given as its Python object and its shared state.
    pub(super) fn new(
        (channel, shared): (&Bound<'_, PyAny>, &Arc<Shared>),
        (ticket, outcome): (Ticket, Outcome),
        nbytes: usize,
    ) -> Self {
        Self { channel: channel.clone().unbind(), shared: Arc::clone(shared), ticket, outcome, nbytes }
    }

    /// Result of the transfer; `None` if it had not ended at the last poll.
    fn ended(&self) -> Option<Result<(), Failure>> {
        self.outcome.get().map(|outcome| outcome.clone().map_or(Ok(()), |problem| Err(problem.into())))
    }
}

#[pymethods]
impl PyTicket {
    #[getter]
    fn channel(&self, py: Python<'_>) -> Py<PyAny> {
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
        // If other threads use the channel, they poll it.
        self.shared.query(py, |engine| engine.poll())?;
        Ok(self.outcome.get().is_some())
    }

    #[pyo3(signature = (timeout = Some(10.0)))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Result<(), Failure> {
        let mut limit = Limit::new(timeout)?;
        let waited = self.shared.turns(py, &mut limit, |engine, limit, pause| {
            if !engine.wait_part(self.ticket, limit, pause)? {
                return Ok(None);
            }
            // This ticket reports the failure; a wait of the channel does not repeat it.
            engine.take_failure(self.ticket, self.ticket);
            Ok(Some(()))
        });
        match waited {
            Err(Failure::Python(raised)) => Err(raised.into()),
            // The result of the transfer is more precise than the failure of a failed or closed channel.
            waited => self.ended().unwrap_or(waited),
        }
    }

    fn cancel(&self, py: Python<'_>) -> Result<bool, Failure> {
        if self.outcome.get().is_some() {
            return Ok(false);
        }
        self.shared.cancel(py, self.ticket, &self.outcome)
    }

    /// Polls. Returns true if the transfer has succeeded, `None` if it is in flight.
    fn _poll(&self, py: Python<'_>) -> Result<Option<bool>, Failure> {
        if self.outcome.get().is_none() {
            let polled = self.shared.query(py, |engine| {
                Shared::step(engine)?;
                if engine.is_stopping() {
                    engine.continue_stops()?;
                }
                if engine.has_ended(self.ticket) {
                    engine.take_failure(self.ticket, self.ticket);
                }
                Ok(())
            });
            if self.outcome.get().is_none() {
                return polled.map(|_| None);
            }
        }
        self.ended().transpose().map(|ended| ended.map(|()| true))
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let ended = slf.py().import("fpga_rdma._aio")?.call_method1("ended", (slf,))?;
        ended.call_method0("__await__")
    }

    fn __repr__(&self) -> String {
        let channel = &self.shared;
        format!(
            "<Ticket {} of {} {}: {} bytes>",
            self.ticket.number(),
            channel.card,
            channel.label(),
            self.nbytes
        )
    }
}
