//! A socket in the file system: made, found left over, removed.

use super::error::ServeError;
use fpga_pci::OsError;
use rustix::fs::FileType;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A listening socket and its file, which goes with it.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// Device and inode: whoever puts another socket in its place keeps it.
    file: Option<(u64, u64)>,
}

impl Listener {
    /// Listens at `path`. A socket that a server left behind is replaced, one that somebody listens on is not.
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
                    // Nobody listens.
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                    // Gone meanwhile: the next attempt will tell.
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
        Ok(Self { socket, path: own(), file: identity(path) })
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next client, if there is one; it does not wait.
    #[must_use]
    pub fn accept(&self) -> Option<OwnedFd> {
        match self.socket.accept() {
            Ok((stream, _)) => Some(stream.into()),
            // A client that was there and left, or no descriptors for one: it sees that it is not taken.
            Err(error) => {
                if error.kind() != ErrorKind::WouldBlock {
                    tracing::warn!(%error, "a client could not be accepted");
                }
                None
            }
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
        if self.file.is_some() && identity(&self.path) == self.file {
            // Nobody is left to be told.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    rustix::fs::lstat(path).ok().map(|status| (status.st_dev, status.st_ino))
}
