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

/// Exception class, by the kind of problem. The names are those of `fpga_rdma.errors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// The card cannot be opened.
    Open,
    /// The resource has an owner, or memory has a transfer in flight.
    InUse,
    /// The card has no such resource, or not this function.
    Unsupported,
    /// The range is not inside the memory, the BAR or the card.
    Range,
    /// DMA memory is used up.
    NoMemory,
    /// The ring is full.
    Full,
    /// The time is over.
    TimedOut,
    /// The engine reported an error in a transfer.
    Fault,
    /// The engine does not stop.
    Wedged,
    /// The card does not answer.
    Gone,
    /// The object was closed.
    Closed,
    /// A map has no such register.
    NoRegister,
    /// A register map cannot be read, or is wrong.
    Map,
    /// The system, the peer or the card refused a request.
    Refused,
    /// A received packet is lost.
    PacketLost,
    /// A stopped stream has no more packets.
    StreamStopped,
    /// The object belongs to another process: to the parent, before a fork.
    OtherProcess,
}

impl Class {
    const fn name(self) -> &'static str {
        match self {
            Self::Open => "OpenError",
            Self::InUse => "InUseError",
            Self::Unsupported => "UnsupportedError",
            Self::Range => "RangeError",
            Self::NoMemory => "DmaMemoryError",
            Self::Full => "RingFullError",
            Self::TimedOut => "TimedOutError",
            Self::Fault => "TransferFault",
            Self::Wedged => "WedgedError",
            Self::Gone => "CardGoneError",
            Self::Closed => "ClosedError",
            Self::NoRegister => "NoRegisterError",
            Self::Map => "MapError",
            Self::Refused => "RefusedError",
            Self::PacketLost => "PacketLostError",
            Self::StreamStopped => "StreamStoppedError",
            Self::OtherProcess => "OtherProcessError",
        }
    }
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

    /// Adds what to do about it.
    pub(crate) fn advice(mut self, advice: impl Into<String>) -> Self {
        if let Self::Driver(problem) = &mut self {
            problem.advice = Some(advice.into());
        }
        self
    }

    /// Adds the name of the card, in front of the message as well.
    pub(crate) fn on_card(mut self, card: &str) -> Self {
        if let Self::Driver(problem) = &mut self {
            problem.message = format!("{card}: {}", problem.message);
            card.clone_into(&mut problem.card);
        }
        self
    }

    /// Adds the card and the part of it, such as `c2h0`, in front of the message as well.
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
        Self::new(Class::OtherProcess, error.to_string()).advice(error.help())
    }
}

/// Result of the end of a `with` block. A child process closes nothing: its exception, or its exit, is not replaced by that.
pub(crate) fn at_block_end(closed: Result<(), Failure>) -> Result<(), Failure> {
    closed.or_else(|failure| if failure.is(Class::OtherProcess) { Ok(()) } else { Err(failure) })
}

/// Makes a class with the method `close` usable in `with` blocks, which close it at their end.
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
    let class = py.import("fpga_rdma.errors")?.getattr(problem.class.name())?;
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
            Self::Gone => Class::Gone,
            Self::NotIdle { .. } => Class::Wedged,
            _ => Class::Open,
        }
    }
}

impl Classify for ResourceError {
    fn class(&self) -> Class {
        match self {
            Self::InUse { .. } => Class::InUse,
            Self::Busy { .. } => Class::Wedged,
            Self::Cause(cause) => Classify::class(cause),
            Self::StreamBuffers { .. } => Class::Range,
            _ => Class::Unsupported,
        }
    }
}

impl Classify for SubmitError {
    fn class(&self) -> Class {
        match self {
            Self::Channel(error) => error.class(),
            _ if self.is_full() => Class::Full,
            Self::ForeignBuffer | Self::NotRegistered => Class::Refused,
            _ => Class::Range,
        }
    }
}

impl Classify for ChannelError {
    fn class(&self) -> Class {
        match self {
            Self::Gone { .. } | Self::Disconnected { .. } => Class::Gone,
            Self::Wedged { .. } => Class::Wedged,
            Self::TimedOut { .. } | Self::Cancelled { .. } => Class::TimedOut,
            Self::MemoryInUse | Self::PacketStarted => Class::InUse,
            Self::NoInterrupt => Class::Unsupported,
            Self::Cause(cause) => Classify::class(cause),
            _ => Class::Refused,
        }
    }
}

impl Classify for TransferError {
    fn class(&self) -> Class {
        match self {
            Self::Submit(error) => error.class(),
            Self::Fault(fault) => fault.class(),
            Self::Channel(error) => error.class(),
            _ => Class::Refused,
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
            Self::NoFreeSlot { .. } => Class::Range,
            _ => Class::Refused,
        }
    }
}

impl Classify for ChannelFault {
    fn class(&self) -> Class {
        match self.cause {
            FaultCause::Gone | FaultCause::Reset => Class::Gone,
            FaultCause::Wedged => Class::Wedged,
            _ => Class::Fault,
        }
    }
}

impl Classify for Cause {
    fn class(&self) -> Class {
        match self.class() {
            CauseClass::OtherProcess => Class::OtherProcess,
            CauseClass::InUse => Class::InUse,
            // Whole pages, for example, are a property of memory.
            _ if self.get::<DmaAllocError>().is_some() => Class::NoMemory,
            CauseClass::Memory => Class::NoMemory,
            CauseClass::TimedOut => Class::TimedOut,
            // After a reset, the state that the program has set is gone.
            CauseClass::Gone | CauseClass::Reset => Class::Gone,
            CauseClass::Range | CauseClass::Argument => Class::Range,
            CauseClass::Unsupported => Class::Unsupported,
            _ => Class::Refused,
        }
    }
}

impl Classify for MmioError {
    fn class(&self) -> Class {
        Classify::class(&Cause::from(*self))
    }
}
