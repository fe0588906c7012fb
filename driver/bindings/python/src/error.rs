//! Errors of the driver as Python exceptions.
//!
//! The classes are written in Python (`fpga_rdma/errors.py`), because an exception with fields cannot be a native class in the stable ABI
//! of Python 3.11. A [`Class`] names one.

use fpga_driver::bulk::BulkError;
use fpga_driver::errors::{CardPart, Cause, CauseClass, ChannelFault, ErrorKind, FaultCause, MmioError};
use fpga_driver::{ChannelError, Error, OpenError, ResourceError, SubmitError, TransferError};
use fpga_pci::{DmaAllocError, OtherProcess};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::advice::render;

/// Class of `fpga_rdma.errors` with the name of the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// The card cannot be opened.
    OpenError,
    /// The resource has an owner, or a transfer of the memory is in flight.
    InUseError,
    /// The card has no such resource, or not this function.
    UnsupportedError,
    /// The range is not inside the memory, the BAR or the card.
    RangeError,
    /// DMA memory is used up.
    DmaMemoryError,
    /// The ring is full.
    RingFullError,
    /// The time is over.
    TimedOutError,
    /// The engine reported an error in a transfer.
    TransferFault,
    /// The engine does not stop.
    WedgedError,
    /// The card does not answer.
    CardGoneError,
    /// The object was closed.
    ClosedError,
    /// A map has no such register.
    NoRegisterError,
    /// A register map cannot be read, or is wrong.
    MapError,
    /// The system, the peer or the card refused a request.
    RefusedError,
    /// A received packet is lost.
    PacketLostError,
    /// A stopped stream has no more packets.
    StreamStoppedError,
    /// The object belongs to another process: to the parent, before a fork.
    OtherProcessError,
}

/// Failure of a call, before it becomes an exception.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Error of the driver or of this package.
    Driver(Box<Problem>),
    /// Python's own exception.
    Python(PyErr),
}

/// Fields of an exception.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) class: Class,
    /// Problem in one line.
    pub(crate) message: String,
    pub(crate) advice: Option<String>,
    /// Name of the card; empty if the error concerns none.
    pub(crate) card: String,
    /// Part of the card, such as `h2c0`; empty for the card as a whole.
    pub(crate) part: String,
}

impl Failure {
    pub(crate) fn new(class: Class, message: impl Into<String>) -> Self {
        let (message, card, part) = (message.into(), String::new(), String::new());
        Self::Driver(Box::new(Problem { class, message, advice: None, card, part }))
    }

    /// Adds the advice.
    pub(crate) fn advice(mut self, advice: impl Into<String>) -> Self {
        if let Self::Driver(problem) = &mut self {
            problem.advice = Some(advice.into());
        }
        self
    }

    /// Adds the name of the card, also in front of the message.
    pub(crate) fn on_card(mut self, card: &str) -> Self {
        if let Self::Driver(problem) = &mut self {
            problem.message = format!("{card}: {}", problem.message);
            card.clone_into(&mut problem.card);
        }
        self
    }

    /// Adds the card and its part, such as `c2h0`, also in front of the message.
    pub(crate) fn on_part(self, card: &str, part: &str) -> Self {
        let mut failure = self;
        if let Self::Driver(problem) = &mut failure {
            problem.message = format!("{card} {part}: {}", problem.message);
            card.clone_into(&mut problem.card);
            part.clone_into(&mut problem.part);
        }
        failure
    }

    /// Whether the exception is of this class.
    pub(crate) fn is(&self, class: Class) -> bool {
        matches!(self, Self::Driver(problem) if problem.class == class)
    }

    /// `ValueError`: an argument has an impossible value.
    pub(crate) fn value(message: String) -> Self {
        Self::Python(PyValueError::new_err(message))
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl<K: ErrorKind + Classify> From<Error<K>> for Failure {
    fn from(error: Error<K>) -> Self {
        Self::Driver(Box::new(error.into()))
    }
}

impl From<OtherProcess> for Failure {
    #[cold]
    fn from(error: OtherProcess) -> Self {
        Self::new(Class::OtherProcessError, error.to_string()).advice(error.help())
    }
}

/// Result of a close at the end of a `with` block. A child process cannot close the object; that does not replace its own exception or exit.
pub(crate) fn at_block_end(closed: Result<(), Failure>) -> Result<(), Failure> {
    closed.or_else(|failure| if failure.is(Class::OtherProcessError) { Ok(()) } else { Err(failure) })
}

/// Makes a class with the method `close` a context manager, which closes it.
macro_rules! with_block {
    ($class:ident) => {
        #[pymethods]
        impl $class {
            fn __enter__(this: Py<Self>) -> Py<Self> {
                this
            }

            #[pyo3(signature = (*_exception))]
            fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> Result<(), Failure> {
                $crate::error::at_block_end(self.close(py))
            }
        }
    };
}
pub(crate) use with_block;

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Driver(Box::new(problem))
    }
}

impl<K: ErrorKind + Classify> From<Error<K>> for Problem {
    fn from(error: Error<K>) -> Self {
        let part = match error.place.part() {
            CardPart::Card => String::new(),
            CardPart::Channel(channel) => channel.to_string(),
            CardPart::Cdma => "cdma".to_owned(),
            CardPart::CdmaRing => "cdma ring".to_owned(),
            CardPart::UserInterrupt(line) => format!("user interrupt {line}"),
            CardPart::Endpoint => "endpoint".to_owned(),
            _ => error.place.to_string(),
        };
        Self {
            class: error.kind.class(),
            message: error.to_string(),
            advice: error.advice().map(|advice| render(&advice)),
            card: error.place.card().to_owned(),
            part,
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Python(error) => error,
            Failure::Driver(problem) => {
                Python::attach(|py| exception(py, *problem).unwrap_or_else(|error| error))
            }
        }
    }
}

/// Makes an exception of the class in Python.
fn exception(py: Python<'_>, problem: Problem) -> PyResult<PyErr> {
    let class = py.import("fpga_rdma.errors")?.getattr(format!("{:?}", problem.class))?;
    let value = class.call1((problem.message, problem.advice, problem.card, problem.part))?;
    Ok(PyErr::from_value(value))
}

/// Kinds of the driver's errors as exception classes.
pub(crate) trait Classify {
    fn class(&self) -> Class;
}

impl Classify for OpenError {
    fn class(&self) -> Class {
        match self {
            Self::Gone => Class::CardGoneError,
            Self::NotIdle { .. } => Class::WedgedError,
            _ => Class::OpenError,
        }
    }
}

impl Classify for ResourceError {
    fn class(&self) -> Class {
        match self {
            Self::InUse { .. } | Self::OtherClient { .. } => Class::InUseError,
            Self::Busy { .. } => Class::WedgedError,
            Self::Cause(cause) => Classify::class(cause),
            Self::StreamBuffers { .. } => Class::RangeError,
            _ => Class::UnsupportedError,
        }
    }
}

impl Classify for SubmitError {
    fn class(&self) -> Class {
        match self {
            Self::Channel(error) => error.class(),
            _ if self.is_full() => Class::RingFullError,
            Self::ForeignBuffer | Self::NotRegistered => Class::RefusedError,
            _ => Class::RangeError,
        }
    }
}

impl Classify for ChannelError {
    fn class(&self) -> Class {
        match self {
            Self::Gone { .. } | Self::Disconnected { .. } => Class::CardGoneError,
            Self::Wedged { .. } => Class::WedgedError,
            Self::TimedOut { .. } | Self::Cancelled { .. } => Class::TimedOutError,
            Self::MemoryInUse | Self::PacketStarted => Class::InUseError,
            Self::NoInterrupt => Class::UnsupportedError,
            Self::Cause(cause) => Classify::class(cause),
            _ => Class::RefusedError,
        }
    }
}

impl Classify for TransferError {
    fn class(&self) -> Class {
        match self {
            Self::Submit(error) => error.class(),
            Self::Fault(fault) => fault.class(),
            Self::Channel(error) => error.class(),
            _ => Class::RefusedError,
        }
    }
}

impl Classify for BulkError {
    fn class(&self) -> Class {
        match self {
            Self::Memory(error) => error.class(),
            Self::Submit(error) => error.class(),
            Self::Fault { cause, .. } => cause.class(),
            Self::Channel { cause, .. } => cause.class(),
            Self::NoFreeSlot { .. } => Class::RangeError,
            _ => Class::RefusedError,
        }
    }
}

impl Classify for ChannelFault {
    fn class(&self) -> Class {
        match self.cause {
            FaultCause::Gone | FaultCause::Reset => Class::CardGoneError,
            FaultCause::Wedged => Class::WedgedError,
            _ => Class::TransferFault,
        }
    }
}

impl Classify for Cause {
    fn class(&self) -> Class {
        match self.class() {
            CauseClass::OtherProcess => Class::OtherProcessError,
            CauseClass::InUse => Class::InUseError,
            // Whole pages, for example, are a property of memory.
            _ if self.get::<DmaAllocError>().is_some() => Class::DmaMemoryError,
            CauseClass::Memory => Class::DmaMemoryError,
            CauseClass::TimedOut => Class::TimedOutError,
            // After a reset, the state that the program has set is gone.
            CauseClass::Gone | CauseClass::Reset => Class::CardGoneError,
            CauseClass::Range | CauseClass::Argument => Class::RangeError,
            CauseClass::Unsupported => Class::UnsupportedError,
            _ => Class::RefusedError,
        }
    }
}

impl Classify for MmioError {
    fn class(&self) -> Class {
        Classify::class(&Cause::from(*self))
    }
}
