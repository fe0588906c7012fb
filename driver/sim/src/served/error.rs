//! Errors of the server and of single requests.

use super::MIN_DATA;
use crate::dma::ClientMapError;
use fpga_pci::{DmaMapError, InterruptError, MemoryError, OsError};
use fpga_registers::quantity;
use fpga_vfio_user::wire::{Command, MAJOR, WireError};
use rustix::io::Errno;
use std::path::PathBuf;

/// Reason why a card is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another server listens on the path.
    #[error("{} is the socket of a running server", .path.display())]
    InUse {
        /// The path given.
        path: PathBuf,
    },
    /// Another kind of file has that name.
    #[error("{} exists and is not a socket", .path.display())]
    NotASocket {
        /// The path given.
        path: PathBuf,
    },
    /// The path is too long for a socket, or contains a NUL byte.
    #[error("{} is not a valid socket path, which has at most 107 bytes and no NUL byte", .path.display())]
    BadPath {
        /// The path given.
        path: PathBuf,
    },
    /// The system refused to create the socket.
    #[error("the socket {} cannot be created: {source}", .path.display())]
    Bind {
        /// The path given.
        path: PathBuf,
        /// Error of the system.
        r#source: OsError,
    },
    /// The simulated network has no such card.
    #[error("card {card} does not exist; the simulated network has {}, numbered from 0", quantity(*count, "card"))]
    NoSuchCard {
        /// The number given.
        card: usize,
        /// Number of cards.
        count: usize,
    },
    /// Waiting for clients failed.
    #[error("waiting on {} failed: {source}", .path.display())]
    Wait {
        /// The socket's path.
        path: PathBuf,
        /// Error of the system.
        r#source: OsError,
    },
}

impl ServeError {
    /// Returns what to do about it; `None` if the problem leaves nothing to advise.
    #[must_use]
    pub const fn help(&self) -> Option<&'static str> {
        Some(match self {
            Self::InUse { .. } => "stop that server first, or give another path",
            Self::NotASocket { .. } | Self::BadPath { .. } => "give another path",
            Self::Bind { .. } => "check that its directory exists, is writable and has space",
            Self::NoSuchCard { .. } | Self::Wait { .. } => return None,
        })
    }
}

/// Reason for refusing a request. The client receives an `errno` value, the log the details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    #[error("the first message must propose a version")]
    NoVersion,
    #[error("the client uses version {major}.{minor}; only major version {MAJOR} is supported")]
    VersionMismatch { major: u16, minor: u16 },
    #[error(
        "the client accepts {limit} per message; the minimum is {MIN_DATA}",
        limit = quantity(*limit, "byte"),
    )]
    DataLimit { limit: u32 },
    #[error("the version was already negotiated")]
    VersionRepeated,
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("{0} is not supported")]
    Unsupported(Command),
    #[error("{command} must not carry {got} file descriptors")]
    Descriptors { command: Command, got: usize },
    #[error("there is no region {0}")]
    NoRegion(u32),
    #[error(
        "access of {count} at {offset:#x} is outside region {region} of {size:#x} bytes",
        count = quantity(*count, "byte"),
    )]
    OutsideRegion { region: u32, offset: u64, count: u64, size: u64 },
    #[error("interrupt kind {0} does not exist")]
    NoIrq(u32),
    #[error("{count} interrupts from {start} on exceed the {available} interrupts of kind {index}")]
    IrqRange { index: u32, start: u32, count: u32, available: u32 },
    #[error("interrupts of kind {index} cannot be masked, or not by an event descriptor")]
    IrqAction { index: u32 },
    #[error(
        "{got} event descriptors for {count} interrupts; permitted: one for each, or none to remove them"
    )]
    IrqDescriptors { got: usize, count: u32 },
    #[error("interrupt {number} of kind {index}: {source}")]
    IrqDescriptor { index: u32, number: u32, r#source: InterruptError },
    #[error("{command} has flags {flags:#x}, which are unknown or permit no access")]
    DmaFlags { command: Command, flags: u32 },
    #[error("mapping memory failed: {0}")]
    Map(ClientMapError),
    #[error("the ring of register writes cannot be mapped: {0}")]
    Ring(MemoryError),
    #[error("unmapping memory failed: {0}")]
    Unmap(DmaMapError),
    #[error("another client uses the stream channel")]
    StreamClaimed,
    #[error("the card is gone")]
    Gone,
}

impl From<DmaMapError> for RequestError {
    fn from(error: DmaMapError) -> Self {
        Self::Unmap(error)
    }
}

impl From<ClientMapError> for RequestError {
    fn from(error: ClientMapError) -> Self {
        Self::Map(error)
    }
}

impl RequestError {
    /// `errno` value for the client.
    pub(super) fn errno(&self) -> u32 {
        use crate::dma::FileError;
        let errno = match self {
            Self::VersionMismatch { .. } => Errno::PROTONOSUPPORT,
            // Clients query features (migration) and interpret this as "not supported".
            Self::Unsupported(Command::DEVICE_FEATURE) => Errno::NOTTY,
            Self::Unsupported(_) | Self::IrqAction { .. } => Errno::OPNOTSUPP,
            Self::Map(ClientMapError::Address(DmaMapError::Overlap { .. })) => Errno::EXIST,
            Self::Map(ClientMapError::File(FileError::NoAccess { .. })) => Errno::ACCESS,
            Self::Map(
                ClientMapError::File(FileError::TooMany | FileError::TooManyOpen { .. })
                | ClientMapError::Address(DmaMapError::LimitReached { .. }),
            ) => Errno::NOSPC,
            Self::Map(ClientMapError::File(FileError::Refused { source })) if source.raw() > 0 => {
                return source.raw().unsigned_abs();
            }
            Self::StreamClaimed => Errno::BUSY,
            Self::Gone => Errno::NODEV,
            _ => Errno::INVAL,
        };
        errno.raw_os_error().unsigned_abs()
    }
}
