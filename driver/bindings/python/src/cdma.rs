//! Copies inside the card's memory.

use core::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use fpga_driver::errors::{AllOnesCause, CauseClass, CopyFault};
use fpga_driver::{CardAddr, CdmaError, Error};
use pyo3::prelude::*;

use crate::card::Card;
use crate::error::{Class, Classify, Failure, with_block};
use crate::numbers;
use crate::owned::{Close, Owned};
use crate::wait::{self, Limit};

impl Classify for CdmaError {
    fn class(&self) -> Class {
        match self {
            Self::AddressRange { .. }
            | Self::CardMemory { .. }
            | Self::Overlap { .. }
            | Self::Narrow { .. } => Class::RangeError,
            Self::Copy { cause: CopyFault::TimedOut { .. } | CopyFault::Stopped, .. } => Class::TimedOutError,
            Self::Copy { cause: CopyFault::Status(_), .. } => Class::TransferFault,
            Self::Stuck { .. } => Class::WedgedError,
            Self::Silent(AllOnesCause::Server(cause)) if cause.class() != CauseClass::Gone => {
                Class::TimedOutError
            }
            Self::Gone | Self::Silent(_) => Class::CardGoneError,
            Self::NoScatterGather => Class::UnsupportedError,
            Self::Cause(cause) => Classify::class(cause),
            _ => Class::RefusedError,
        }
    }
}

/// Copy engine of a card (AXI CDMA).
#[pyclass(frozen, weakref, module = "fpga_rdma")]
pub(crate) struct Cdma {
    engine: Arc<Owned<fpga_driver::Cdma>>,
}

with_block!(Cdma);

#[pymethods]
impl Cdma {
    #[pyo3(signature = (source, destination, length, timeout = Some(10.0)))]
    fn copy(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::source)] source: u64,
        #[pyo3(from_py_with = numbers::destination)] destination: u64,
        #[pyo3(from_py_with = numbers::length)] length: u64,
        timeout: Option<f64>,
    ) -> Result<(), Failure> {
        let (source, destination) = (CardAddr::new(source), CardAddr::new(destination));
        let (mut limit, mut done) = (Limit::new(timeout)?, 0);
        self.engine.turns(py, &mut limit, |engine, limit, pause| {
            // `None`: the driver limits each chunk.
            let left = timeout.map(|_| limit.left());
            let began = Instant::now();
            let mut reported = 0;
            let progress = &mut |now| {
                // A pause inside a chunk would repeat the chunk.
                let between = core::mem::replace(&mut reported, now) < now;
                if pause.is_closing() || between && pause.is_due() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            let at = |start: CardAddr| CardAddr::new(start.get().saturating_add(done));
            let copied =
                engine.copy_with_progress(at(source), at(destination), length - done, left, progress);
            match copied {
                Ok(()) => Ok(Some(())),
                // The rest follows with the next turn.
                Err(Error {
                    kind: CdmaError::Copy { cause: CopyFault::Stopped, done: more, .. }, ..
                }) => {
                    done += more;
                    limit.spend(began.elapsed());
                    Ok(None)
                }
                Err(error) => Err(error.into()),
            }
        })
    }

    fn reset(&self, py: Python<'_>) -> Result<(), Failure> {
        self.engine.with(py, |engine| wait::detached(py, || engine.reset()))
    }

    #[getter]
    fn closed(&self) -> bool {
        self.engine.is_closed()
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.engine.close(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { ": closed" } else { "" };
        format!("<Cdma of {}{state}>", self.engine.card())
    }
}

#[pymethods]
impl Card {
    #[pyo3(signature = (offset = None))]
    fn cdma(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::offset)] offset: Option<u64>,
    ) -> Result<Cdma, Failure> {
        let card = self.state().get()?;
        let engine = wait::detached(py, || match offset {
            Some(offset) => card.cdma_at(fpga_driver::BarOffset::new(offset)),
            None => card.cdma(),
        })?;
        Ok(Cdma { engine: self.state().own("the CDMA engine", engine)? })
    }
}
