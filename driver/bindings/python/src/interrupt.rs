//! Interrupts of the design on the card.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use fpga_driver::user_interrupt::{Delivery, UserInterruptError};
use fpga_driver::{Error, UserInterrupts};
use fpga_pci::Clock;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::card::Card;
use crate::card_state::CardState;
use crate::error::{Class, Classify, Failure, with_block};
use crate::numbers;
use crate::owned::{Close, Owned};
use crate::record::{fields, named_record};
use crate::wait::{self, Limit, Presence};

impl Classify for UserInterruptError {
    fn class(&self) -> Class {
        match self {
            Self::TimedOut { .. } => Class::TimedOutError,
            Self::Gone | Self::Reset => Class::CardGoneError,
            Self::Disabled => Class::UnsupportedError,
            Self::Cause(cause) => Classify::class(cause),
            _ => Class::RefusedError,
        }
    }
}

/// One or several user interrupts.
#[pyclass(frozen, weakref, name = "UserInterrupt", module = "fpga_rdma")]
pub(crate) struct PyUserInterrupt {
    card: CardState,
    lines: Vec<u8>,
    interrupts: Arc<Owned<UserInterrupts>>,
    presence: Presence,
}

impl PyUserInterrupt {
    fn open(py: Python<'_>, card: &CardState, lines: Vec<u8>) -> Result<Self, Failure> {
        let opened = card.get()?;
        let taken = wait::detached(py, || opened.user_interrupts(&lines))?;
        let numbers: Vec<String> = lines.iter().map(u8::to_string).collect();
        let name = format!("user interrupt {}", numbers.join(", "));
        let interrupts = card.own(name, taken)?;
        Ok(Self { card: card.clone(), lines, interrupts, presence: Presence::new() })
    }

    /// Calls `call` with each line.
    fn each(
        &self,
        py: Python<'_>,
        call: impl Fn(&fpga_driver::UserInterrupt) -> Result<(), Error<UserInterruptError>> + Sync,
    ) -> Result<(), Failure> {
        self.interrupts.with(py, |lines| wait::detached(py, || lines.iter().try_for_each(&call)))
    }

    fn take_counts(&self, py: Python<'_>) -> Result<Vec<(u8, u64)>, Failure> {
        self.interrupts.with(py, |lines| wait::detached(py, || lines.take()))
    }

    fn counts(taken: &[(u8, u64)], py: Python<'_>) -> PyResult<Py<PyDict>> {
        let counts = PyDict::new(py);
        for (line, count) in taken {
            counts.set_item(line, count)?;
        }
        Ok(counts.unbind())
    }
}

with_block!(PyUserInterrupt);

#[pymethods]
impl PyUserInterrupt {
    #[getter]
    fn lines(&self) -> Vec<u32> {
        // `Vec<u8>` would become `bytes`.
        self.lines.iter().copied().map(u32::from).collect()
    }

    #[getter]
    fn delivery(&self, py: Python<'_>) -> Result<&'static str, Failure> {
        self.interrupts.with(py, |lines| {
            Ok(match lines.iter().next().map(fpga_driver::UserInterrupt::delivery) {
                Some(Delivery::Message) => "message",
                Some(Delivery::SharedMessage) => "shared message",
                Some(Delivery::Level) => "level",
                _ => "polled",
            })
        })
    }

    #[getter]
    fn count(&self, py: Python<'_>) -> Result<u64, Failure> {
        self.interrupts.with(py, |lines| Ok(lines.iter().map(fpga_driver::UserInterrupt::count).sum()))
    }

    #[getter]
    fn pending(&self, py: Python<'_>) -> Result<bool, Failure> {
        self.interrupts.with(py, |lines| {
            wait::detached(py, || {
                for line in &*lines {
                    if line.is_pending()? {
                        return Ok(true);
                    }
                }
                Ok::<_, Error<UserInterruptError>>(false)
            })
        })
    }

    #[getter]
    fn closed(&self) -> bool {
        self.interrupts.is_closed()
    }

    fn take(&self, py: Python<'_>) -> Result<Py<PyDict>, Failure> {
        Ok(Self::counts(&self.take_counts(py)?, py)?)
    }

    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Result<Py<PyDict>, Failure> {
        let mut limit = Limit::new(timeout)?;
        let taken =
            self.interrupts.turns(py, &mut limit, |lines, limit, _| match lines.wait(limit.part()) {
                Ok(taken) => Ok(Some(taken)),
                Err(error) => {
                    match &error.kind {
                        UserInterruptError::TimedOut { waited, .. } => {
                            limit.waited(*waited);
                            if limit.is_over() {
                                let message = format!(
                                    "no {} within {} s",
                                    self.interrupts.name(),
                                    limit.total().as_secs_f64()
                                );
                                return Err(Failure::new(Class::TimedOutError, message)
                            .advice("wait longer (timeout=...), or check that the design raises usr_irq_req")
                            .on_card(self.card.name()));
                            }
                            Ok(None)
                        }
                        _ => Err(error.into()),
                    }
                }
            })?;
        Ok(Self::counts(&taken, py)?)
    }

    fn rearm(&self, py: Python<'_>) -> Result<(), Failure> {
        self.each(py, fpga_driver::UserInterrupt::rearm)
    }

    fn enable(&self, py: Python<'_>) -> Result<(), Failure> {
        self.each(py, fpga_driver::UserInterrupt::enable)
    }

    fn disable(&self, py: Python<'_>) -> Result<(), Failure> {
        self.each(py, fpga_driver::UserInterrupt::disable)
    }

    fn fileno(&self, py: Python<'_>) -> Result<RawFd, Failure> {
        self.interrupts.with(py, |lines| Ok(lines.as_raw_fd()))
    }

    /// Takes the interrupts since the last call; `None` if there are none. A card in this thread works for a step.
    fn _poll(&self, py: Python<'_>) -> Result<Option<Py<PyDict>>, Failure> {
        let card = self.card.get()?;
        let taken = self.take_counts(py)?;
        if !taken.is_empty() {
            return Ok(Some(Self::counts(&taken, py)?));
        }
        if card.clock() == Clock::Virtual {
            py.detach(|| card.pause(POLL_TIME));
        }
        self.presence.check(py, &card)?;
        Ok(None)
    }

    /// The descriptor to wait for; `None` for a card that works in this thread.
    fn _arm(&self, py: Python<'_>) -> Result<Option<RawFd>, Failure> {
        if self.card.get()?.clock() == Clock::Virtual { Ok(None) } else { self.fileno(py).map(Some) }
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let waiting = slf.py().import("fpga_rdma._aio")?.call_method1("interrupted", (slf,))?;
        waiting.call_method0("__await__")
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.interrupts.close(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { ": closed" } else { "" };
        format!("<UserInterrupt {:?} of {}{state}>", self.lines, self.card.name())
    }
}

/// Virtual time for one poll by a task.
const POLL_TIME: Duration = Duration::from_micros(100);

#[pymethods]
impl Card {
    #[pyo3(signature = (*lines))]
    fn user_interrupt(&self, py: Python<'_>, lines: &Bound<'_, PyTuple>) -> Result<PyUserInterrupt, Failure> {
        let lines: Vec<u8> = numbers::line(lines)?;
        if lines.is_empty() {
            return Err(Failure::value("no line: give one or more of 0 to 15".to_owned()));
        }
        PyUserInterrupt::open(py, self.state(), lines)
    }

    #[getter]
    fn user_interrupt_states<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyAny>>, Failure> {
        let card = self.state().get()?;
        let states = wait::detached(py, || card.user_interrupt_states())?;
        let make = |state: &fpga_driver::user_interrupt::UserInterruptState| {
            let fields = fields!(py,
                line: state.line,
                enabled: state.enabled,
                pending: state.pending,
                vector: state.vector,
                count: state.count,
            );
            named_record("info", "UserInterruptState", &fields)
        };
        states.iter().map(make).collect()
    }
}
