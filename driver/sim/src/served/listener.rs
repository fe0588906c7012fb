//! Listening socket in the file system: creation, stale sockets, removal.

use super::error::ServeError;
use fpga_pci::{OsError, Process};
use rustix::fs::FileType;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A listening socket. Dropping it removes its file.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    file: SocketFile,
    process: Process,
}

impl Listener {
    /// Listens at `path`. A stale socket of an ended server is replaced; a socket in use is not.
    ///
    /// # Errors
    /// [`ServeError::InUse`], [`ServeError::NotASocket`], [`ServeError::BadPath`], [`ServeError::Bind`].
    pub fn bind(path: &Path) -> Result<Self, ServeError> {
        let own = || path.to_owned();
        let bind_error = |source: std::io::Error| match source.kind() {
            ErrorKind::InvalidInput => ServeError::BadPath { path: own() },
            _ => ServeError::Bind { path: own(), source: OsError::from(source) },
        };
        let socket = match UnixListener::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let kind = rustix::fs::lstat(path).map(|status| FileType::from_raw_mode(status.st_mode));
                if kind.is_ok_and(|kind| kind != FileType::Socket) {
                    return Err(ServeError::NotASocket { path: own() });
                }
                match UnixStream::connect(path) {
                    Ok(_) => return Err(ServeError::InUse { path: own() }),
                    // No process listens.
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                    // Another process removed the file meanwhile: bind again below.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(bind_error(error)),
                }
                match std::fs::remove_file(path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(bind_error(error)),
                    _ => UnixListener::bind(path),
                }
            }
            other => other,
        };
        let socket = socket.map_err(bind_error)?;
        socket.set_nonblocking(true).map_err(bind_error)?;
        let file = SocketFile { path: own(), identity: identity(path) };
        Ok(Self { socket, file, process: Process::current() })
    }

    /// As [`bind`](Self::bind), with a socket that only this user can open (mode 0600).
    ///
    /// # Errors
    /// As `bind`.
    pub fn bind_private(path: &Path) -> Result<Self, ServeError> {
        let listener = Self::bind(path)?;
        // Another user may connect between the two calls if the umask permits it: servers check the user of each client.
        let private = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600));
        private.map_err(|error| ServeError::Bind { path: path.to_owned(), source: OsError::from(error) })?;
        Ok(listener)
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Accepts the next client, if there is one; does not block.
    ///
    /// # Errors
    /// Error of the system, such as too many open files. The client may still wait: pause before the next attempt, because the socket stays
    /// readable.
    pub fn accept(&self) -> Result<Option<OwnedFd>, OsError> {
        match self.socket.accept() {
            Ok((stream, _)) => Ok(Some(stream.into())),
            // The client disconnected before it was accepted: treated as no client.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the socket's file. A program that ends without dropping the listener removes the file with it.
    #[must_use]
    pub fn file(&self) -> SocketFile {
        self.file.clone()
    }
}

/// File of a socket, identified by device and inode: another file at the same path is never removed.
#[derive(Clone, Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// Removes the file if it is still the listener's.
    pub fn remove(&self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // `drop` cannot report an error.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.file.remove();
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    rustix::fs::lstat(path).ok().map(|status| (status.st_dev, status.st_ino))
}
