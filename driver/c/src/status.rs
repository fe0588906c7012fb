//! Status codes. Their numbers are part of the ABI: a new code gets the next number, and none changes its meaning.

use fpga_driver::bulk::BulkError;
use fpga_driver::errors::{ChannelFault, DmaAllocError, FaultCause};
use fpga_driver::{ChannelError, OpenError, ResourceError, SubmitError, TransferError};

use crate::card::mmio_status;
use crate::error::{Position, UNKNOWN};

/// Result of a call; `fpga_status` in C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// An argument is null, or has an impossible value.
    Argument = 1,
    /// The handle is not open, or names an object of another kind.
    Handle = 2,
    /// Another thread is in a call with the handle.
    Concurrent = 3,
    /// The card cannot be opened.
    Open = 4,
    /// The resource has an owner, or the buffer has a transfer in flight.
    InUse = 5,
    /// The card has no such resource, or not this function.
    Unsupported = 6,
    /// The range is not inside the memory, the BAR or the card.
    Range = 7,
    /// Memory or descriptors are used up.
    NoMemory = 8,
    /// The ring is full: poll, then submit again.
    Full = 9,
    /// The time is over; what was submitted stays in flight.
    TimedOut = 10,
    /// The engine reported an error in a transfer.
    Fault = 11,
    /// The engine does not stop. The card has to be reset.
    Wedged = 12,
    /// The card does not answer, or was reset since it was opened.
    Gone = 13,
    /// The ticket is unknown.
    Ticket = 14,
    /// The system refused a request.
    System = 15,
    /// A defect of this library.
    Internal = 16,
    /// The stream was stopped or has ended, and has nothing more.
    Stopped = 17,
    /// A packet of a stream is lost; receiving continues.
    Lost = 18,
    /// Another node does not answer, or refuses.
    Peer = 19,
    /// The program has ended the wait, or withdrawn the transfer.
    Cancelled = 20,
    /// The handle belongs to another process: to the parent, before a fork.
    Process = 21,
}

impl Status {
    /// All codes, by number.
    pub(crate) const ALL: [(Self, &'static core::ffi::CStr); 22] = [
        (Self::Ok, c"ok"),
        (Self::Argument, c"invalid argument"),
        (Self::Handle, c"invalid handle"),
        (Self::Concurrent, c"handle in use by another thread"),
        (Self::Open, c"card cannot be opened"),
        (Self::InUse, c"in use"),
        (Self::Unsupported, c"not supported by this card"),
        (Self::Range, c"out of range"),
        (Self::NoMemory, c"out of memory"),
        (Self::Full, c"ring is full"),
        (Self::TimedOut, c"timed out"),
        (Self::Fault, c"transfer failed"),
        (Self::Wedged, c"engine does not stop"),
        (Self::Gone, c"card is gone"),
        (Self::Ticket, c"unknown ticket"),
        (Self::System, c"system error"),
        (Self::Internal, c"internal error"),
        (Self::Stopped, c"stream has ended"),
        (Self::Lost, c"packet is lost"),
        (Self::Peer, c"other node does not answer or refuses"),
        (Self::Cancelled, c"cancelled"),
        (Self::Process, c"handle of another process"),
    ];
}

/// Kinds of the driver's errors as codes.
pub(crate) trait Code {
    fn status(&self) -> Status;

    /// Position of the failure, if it is known.
    fn position(&self) -> Position {
        Position::default()
    }
}

/// Position of a transfer that an engine reported as failed.
fn fault_position(fault: &ChannelFault) -> Position {
    fault.position.map_or_else(Position::default, |position| Position {
        host_address: position.host.get(),
        card_address: position.card.map_or(UNKNOWN, |card| card.get()),
        length: position.length.into(),
        bytes_done: position.bytes_done,
        descriptor: position.descriptor.into(),
    })
}

impl Code for ChannelFault {
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

/// Code of an allocation or a mapping that failed.
pub(crate) fn memory_status(error: &DmaAllocError) -> Status {
    match error {
        DmaAllocError::BadRequest { .. } | DmaAllocError::NotWholePages { .. } => Status::Argument,
        DmaAllocError::AlreadyMapped { .. } => Status::InUse,
        DmaAllocError::OtherProcess(_) => Status::Process,
        _ => Status::NoMemory,
    }
}

impl Code for OpenError {
    fn status(&self) -> Status {
        match self {
            Self::Gone => Status::Gone,
            Self::NotIdle { .. } => Status::Wedged,
            _ => Status::Open,
        }
    }
}

impl Code for ResourceError {
    fn status(&self) -> Status {
        match self {
            Self::InUse { .. } => Status::InUse,
            Self::Busy { .. } => Status::Wedged,
            Self::Memory(error) => memory_status(error),
            Self::Mmio(error) => mmio_status(error),
            Self::Interrupt(_) => Status::System,
            Self::StreamBuffers { .. } | Self::Ring(_) => Status::Argument,
            _ => Status::Unsupported,
        }
    }
}

impl Code for SubmitError {
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

impl Code for ChannelError {
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
            Self::Mmio(error) => mmio_status(error),
            _ => Status::System,
        }
    }
}

impl Code for TransferError {
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

impl Code for BulkError {
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
