//! Transfers and reads in progress.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fpga_rdma::{PendingRead, PendingSend, ReadCompletion, ReadFailure, SendCompletion, SendFailure};
use pyo3::prelude::*;

use super::error::{advice, reason};
use super::{Endpoint, State, in_time, others, steps, wait_part};
use crate::error::{Class, Failure};
use crate::owned::Owned;
use crate::record::record;
use crate::wait;

/// Operation of the driver that has not ended.
pub(super) enum Operation {
    Send(PendingSend),
    Read(PendingRead),
}

pub(super) enum Completion {
    Send(Box<SendCompletion>),
    Read(Box<ReadCompletion>),
}

impl Operation {
    /// Waits for the completion. `None`: the time is over.
    fn wait(&mut self, limit: Duration) -> Result<Option<Completion>, Failure> {
        Ok(match self {
            Self::Send(send) => in_time(send.wait(limit))?.map(|done| Completion::Send(Box::new(done))),
            Self::Read(read) => in_time(read.wait(limit))?.map(|done| Completion::Read(Box::new(done))),
        })
    }

    /// Polls for the completion.
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
    pub(super) state: Arc<State>,
    pub(super) operation: Arc<Owned<Operation>>,
    /// Completion after it was taken from the driver; every call returns it.
    pub(super) done: OnceLock<Completion>,
    /// Cancellation that the driver has not been told of.
    pub(super) cancelled: AtomicBool,
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
                let failed = (failure.to_string(), advice(failure), done.node.get(), reason(failure));
                Err(self.exception("SendFailedError", failed, completion))
            }
            Completion::Read(done) => {
                let fields =
                    (done.node.get(), done.length, done.started.as_secs_f64(), done.finished.as_secs_f64());
                let completion = record(py, "endpoint", "ReadCompletion", fields)?;
                let Err(failure) = &done.result else { return Ok(completion) };
                let reason = match failure {
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
                let failed = (failure.to_string(), advice, done.node.get(), reason);
                Err(self.exception("ReadFailedError", failed, completion))
            }
        }
    }

    /// Makes the exception of a failure: its text, advice, node, and reason with the card address.
    fn exception(
        &self,
        class: &str,
        (text, advice, node, (reason, address)): (String, Option<Cow<'static, str>>, u32, (&str, u64)),
        completion: Bound<'_, PyAny>,
    ) -> Failure {
        let (py, card) = (completion.py(), self.operation.card());
        let text = format!("{card}: {text}");
        let fields = (text, advice, card, "endpoint", node, address, reason, completion);
        record(py, "errors", class, fields)
            .map_or_else(|failure| failure, |error| PyErr::from_value(error).into())
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
        let limit = wait::duration(timeout)?;
        let ended = self.state.wait_in_parts(py, &endpoint, limit, |part| {
            let done = self.operation.with(py, |operation| {
                if self.done.get().is_some() {
                    // Another thread has waited as well.
                    return Ok(None);
                }
                self.apply_cancel(operation);
                py.detach(|| {
                    let shared = std::cell::RefCell::new(operation);
                    wait_part(
                        &endpoint,
                        &others,
                        part,
                        |limit| shared.borrow_mut().wait(limit),
                        || shared.borrow_mut().take(),
                    )
                })
            })?;
            let done = self.keep(done);
            if done.is_none() {
                self.operation.check_open()?;
            }
            Ok(done)
        })?;
        let Some(done) = ended else {
            return Err(Failure::new(Class::TimedOutError, format!("{} has not ended after {limit:?}", self.operation.name()))
                .on_card(self.operation.card())
                .advice("wait longer (timeout=...); if the other node is in this program, poll its endpoint: wait(poll=[other])"));
        };
        self.result(py, done)
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
