//! Connecting to a server's socket.

use core::time::Duration;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::Connection;
use fpga_pci::OsError;

/// Reason why the connection failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The path does not exist.
    #[error("there is no socket {}", .path.display())]
    Missing {
        /// The path given.
        path: PathBuf,
    },
    /// The path is not a socket.
    #[error("{} is not a socket (it is a {what})", .path.display())]
    NotASocket {
        /// The path given.
        path: PathBuf,
        /// Type of the file.
        what: &'static str,
    },
    /// The socket is not a stream socket.
    #[error("{} is a socket of another kind: vfio-user uses stream sockets", .path.display())]
    WrongKind {
        /// The path given.
        path: PathBuf,
    },
    /// Missing permission.
    #[error("no permission to connect to {}", .path.display())]
    Permission {
        /// The path given.
        path: PathBuf,
    },
    /// Stale socket file of a server that has ended.
    #[error("no server listens on {}: it has ended", .path.display())]
    NotListening {
        /// The path given.
        path: PathBuf,
    },
    /// The server accepts no more clients.
    #[error("{} accepts no more clients (waited {after:?}): a server serves one at a time", .path.display())]
    Busy {
        /// The path given.
        path: PathBuf,
        /// Time waited.
        after: Duration,
    },
    /// The path is too long for a socket, or contains a NUL byte.
    #[error("{} is not a valid socket path: it needs at most 107 bytes and no NUL byte", .path.display())]
    BadPath {
        /// The path given.
        path: PathBuf,
    },
    /// Another error of the system.
    #[error("connecting to {} failed: {source}", .path.display())]
    System {
        /// The path given.
        path: PathBuf,
        /// Error of the system.
        r#source: OsError,
    },
}

impl ConnectError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub const fn help(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Missing { .. } => "start the server first, and check the path",
            Self::NotASocket { .. } => "give the path of the server's socket",
            Self::WrongKind { .. } => "give the path of a vfio-user server's socket",
            Self::Permission { .. } => {
                "run as the server's user, or give this user write permission on the socket and search permission on its directories"
            }
            Self::NotListening { .. } => "start it again",
            Self::Busy { .. } => "end the other client",
            Self::BadPath { .. } => "use a shorter path",
            Self::System { .. } => return None,
        }))
    }
}

/// Interval between attempts while a server's queue is full. There is no notification of free space in the queue: such a socket cannot be
/// polled (connect(2), EAGAIN of UNIX domain sockets).
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

impl Connection {
    /// Connects to the server that listens at `path`.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, ConnectError> {
        let started = Instant::now();
        let fail = |errno: Errno| {
            let path = path.to_owned();
            match errno {
                Errno::NOENT | Errno::NOTDIR => ConnectError::Missing { path },
                Errno::ACCESS | Errno::PERM => ConnectError::Permission { path },
                Errno::CONNREFUSED => ConnectError::NotListening { path },
                Errno::PROTOTYPE => ConnectError::WrongKind { path },
                errno => ConnectError::System { path, source: errno.into() },
            }
        };
        let address =
            SocketAddrUnix::new(path).map_err(|_| ConnectError::BadPath { path: path.to_owned() })?;
        // connect(2) returns the same error for a file that is not a socket and for a socket without a listener.
        let kind = FileType::from_raw_mode(rustix::fs::stat(path).map_err(fail)?.st_mode);
        if kind != FileType::Socket {
            return Err(ConnectError::NotASocket { path: path.to_owned(), what: name(kind) });
        }
        // Non-blocking: the queue of a server that has stopped accepting may stay full.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(fail)?;
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => return Ok(Self::new(socket)),
                Err(Errno::AGAIN | Errno::INTR) if started.elapsed() < timeout => {
                    std::thread::sleep(RETRY_INTERVAL)
                }
                Err(Errno::AGAIN | Errno::INTR) => {
                    return Err(ConnectError::Busy { path: path.to_owned(), after: timeout });
                }
                Err(errno) => return Err(fail(errno)),
            }
        }
    }
}

/// Name of a file type for messages.
fn name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "regular file",
        FileType::Directory => "directory",
        FileType::Fifo => "FIFO",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        _ => "file of another kind",
    }
}
