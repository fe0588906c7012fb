//! Connecting to a server's socket.

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::Connection;
use fpga_pci::OsError;

/// No connection to a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nothing of that name.
    #[error("there is no socket {0}: start the server first (a simulated card: fpgactl card serve --socket {0}), and check the path", .path.display())]
    Missing {
        /// The path given.
        path: PathBuf,
    },
    /// Something else of that name.
    #[error("{} is not a socket (it is a {what}); give the path of the server's socket", .path.display())]
    NotASocket {
        /// The path given.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// A socket that is not of the kind the protocol uses.
    #[error("{} is a socket of another kind; vfio-user is spoken on stream sockets", .path.display())]
    WrongKind {
        /// The path given.
        path: PathBuf,
    },
    /// No right to use it.
    #[error("no permission to connect to {}: it needs write permission on the socket and search permission on its directories; run as the server's user or have it change the mode", .path.display())]
    Permission {
        /// The path given.
        path: PathBuf,
    },
    /// The socket's file was left by a server that is no more.
    #[error("nobody listens on {}: its server has ended; start it again", .path.display())]
    NotListening {
        /// The path given.
        path: PathBuf,
    },
    /// The server does not take more clients.
    #[error("{} takes no more clients (waited {after:?}): a server serves one at a time, end the other one", .path.display())]
    Busy {
        /// The path given.
        path: PathBuf,
        /// How long was waited.
        after: Duration,
    },
    /// A path that no socket can have.
    #[error("{} cannot be the path of a socket: at most 107 bytes, none of them 0; use a shorter one", .path.display())]
    BadPath {
        /// The path given.
        path: PathBuf,
    },
    /// The system refused.
    #[error("connecting to {} failed: {source}", .path.display())]
    System {
        /// The path given.
        path: PathBuf,
        /// The system's reason.
        source: OsError,
    },
}

/// How often a server whose queue is full is asked again. Nothing tells when there is room in it: such a socket cannot be waited for
/// (connect(2), EAGAIN of UNIX domain sockets).
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
        // Connecting to a file that is no socket is refused in the same words as to a socket without a listener.
        let kind = FileType::from_raw_mode(rustix::fs::stat(path).map_err(fail)?.st_mode);
        if kind != FileType::Socket {
            return Err(ConnectError::NotASocket { path: path.to_owned(), what: name(kind) });
        }
        // Not blocking: the queue of a server that has stopped accepting may be full for ever.
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

/// For messages.
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
