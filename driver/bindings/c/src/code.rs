//! Status codes of the driver's errors, and the positions that the errors name.

use fpga_driver::bulk::BulkError;
use fpga_driver::errors::{Cause, CauseClass, ChannelFault, FaultCause};
use fpga_driver::{ChannelError, OpenError, ResourceError, SubmitError, TransferError};

use crate::abi::Status;

/// Position of a failure. Values that the driver does not know are [`UNKNOWN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) host_address: u64,
    pub(crate) card_address: u64,
    pub(crate) length: u64,
    pub(crate) bytes_done: u64,
    pub(crate) descriptor: u64,
}

/// Unknown address, length or number.
pub(crate) const UNKNOWN: u64 = u64::MAX;

impl Default for Position {
    fn default() -> Self {
        Self {
            host_address: UNKNOWN,
            card_address: UNKNOWN,
            length: UNKNOWN,
            bytes_done: UNKNOWN,
            descriptor: UNKNOWN,
        }
    }
}

/// Error of the driver that has a status code.
pub(crate) trait StatusCode {
    fn status(&self) -> Status;

    /// Returns the position of the failure, as far as it is known.
    fn position(&self) -> Position {
        Position::default()
    }
}

/// Returns the position of a transfer that an engine reported as failed.
fn fault_position(fault: &ChannelFault) -> Position {
    fault.position.map_or_else(Position::default, |position| Position {
        host_address: position.host.get(),
        card_address: position.card.map_or(UNKNOWN, |card| card.get()),
        length: position.length.into(),
        bytes_done: position.bytes_done,
        descriptor: position.descriptor.into(),
    })
}

impl StatusCode for ChannelFault {
    fn status(&self) -> Status {
        match self.cause {
            FaultCause::Gone | FaultCause::Reset => Status::Gone,
            FaultCause::Wedged => Status::Wedged,
            _ => Status::Fault,
        }
    }

    fn position(&self) -> Position {
        fault_position(self)
    }
}

impl StatusCode for Cause {
    fn status(&self) -> Status {
        match self.class() {
            CauseClass::Gone | CauseClass::Reset => Status::Gone,
            CauseClass::TimedOut => Status::TimedOut,
            CauseClass::OtherProcess => Status::Process,
            CauseClass::Range => Status::Range,
            CauseClass::Argument => Status::Argument,
            CauseClass::InUse => Status::InUse,
            CauseClass::Memory => Status::NoMemory,
            CauseClass::Unsupported => Status::Unsupported,
            _ => Status::System,
        }
    }
}

impl StatusCode for OpenError {
    fn status(&self) -> Status {
        match self {
            Self::Gone => Status::Gone,
            Self::NotIdle { .. } => Status::Wedged,
            _ => Status::Open,
        }
    }
}

impl StatusCode for ResourceError {
    fn status(&self) -> Status {
        match self {
            Self::InUse { .. } | Self::OtherClient { .. } => Status::InUse,
            Self::Busy { .. } => Status::Wedged,
            Self::Cause(cause) => cause.status(),
            Self::StreamBuffers { .. } => Status::Argument,
            _ => Status::Unsupported,
        }
    }
}

impl StatusCode for SubmitError {
    fn status(&self) -> Status {
        match self {
            Self::Channel(error) => error.status(),
            _ if self.is_full() => Status::Full,
            Self::NotRegistered => Status::Handle,
            Self::ForeignBuffer | Self::NoAccess { .. } => Status::Argument,
            _ => Status::Range,
        }
    }

    fn position(&self) -> Position {
        match self {
            Self::CardMemory { start, length, .. } => {
                Position { card_address: start.get(), length: *length, ..Position::default() }
            }
            _ => Position::default(),
        }
    }
}

impl StatusCode for ChannelError {
    fn status(&self) -> Status {
        match self {
            Self::Gone { .. } | Self::Disconnected { .. } => Status::Gone,
            Self::Wedged { .. } => Status::Wedged,
            Self::TimedOut { .. } => Status::TimedOut,
            Self::Cancelled { .. } => Status::Cancelled,
            Self::UnknownTicket => Status::Ticket,
            Self::MemoryInUse | Self::PacketStarted => Status::InUse,
            Self::NotRegistered => Status::Handle,
            Self::NoInterrupt => Status::Unsupported,
            Self::Cause(cause) => cause.status(),
            _ => Status::System,
        }
    }
}

impl StatusCode for TransferError {
    fn status(&self) -> Status {
        match self {
            Self::Submit(error) => error.status(),
            Self::Fault(fault) => fault.status(),
            Self::Channel(error) => error.status(),
            _ => Status::Internal,
        }
    }

    fn position(&self) -> Position {
        match self {
            Self::Submit(error) => error.position(),
            Self::Fault(error) => error.position(),
            _ => Position::default(),
        }
    }
}

impl StatusCode for BulkError {
    fn status(&self) -> Status {
        match self {
            Self::Memory(error) => error.status(),
            Self::Submit(error) => error.status(),
            Self::Fault { cause, .. } => cause.status(),
            Self::Channel { cause, .. } => cause.status(),
            _ => Status::Internal,
        }
    }

    fn position(&self) -> Position {
        match self {
            Self::Submit(error) => error.position(),
            Self::Fault { done, cause, .. } => {
                let position = cause.position();
                let bytes_done = if position.bytes_done == UNKNOWN { 0 } else { position.bytes_done };
                Position { bytes_done: done.saturating_add(bytes_done), ..position }
            }
            Self::Channel { done, .. } => Position { bytes_done: *done, ..Position::default() },
            _ => Position::default(),
        }
    }
}
