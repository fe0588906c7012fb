//! Folder of a user with the sockets of his cards for shared memory, each named by the card's node id.
//!
//! A process that was killed leaves its socket. Processes that open a card remove such files: those that refuse connections. A socket that
//! does not listen yet refuses them, too. The folder therefore has a lock file ([`Opening`]), which the kernel releases with its last holder.

use super::LinkError;
use fpga_firmware::NodeId;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Name of the lock file.
const LOCK: &str = "lock";
/// Digits of a socket's name.
const NAME_LENGTH: usize = 8;

/// Folder of the sockets of one user.
#[derive(Clone, Debug)]
pub(super) struct SocketFolder(PathBuf);

/// Lock of the folder, released when dropped.
#[derive(Debug)]
struct Lock(File);

/// Creation of a socket: no socket is removed meanwhile.
#[derive(Debug)]
pub(super) struct Opening {
    _lock: Option<Lock>,
}

/// Whether a process listens at a socket; `None` if that cannot be found out now. A process that was killed leaves its socket, and node ids of
/// several networks may be equal.
pub(super) fn is_served(path: &Path) -> Option<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let address = SocketAddrUnix::new(path).ok()?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    match connect(&socket, &address) {
        // A listener with many clients is busy (`EAGAIN`).
        Ok(()) | Err(Errno::AGAIN) => Some(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Some(false),
        Err(_) => None,
    }
}

/// Whether `path` is the socket of a card whose process has ended.
fn is_ended(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_card = name.len() == NAME_LENGTH && name.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_socket = || std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    is_card && is_socket() && is_served(path) == Some(false)
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Explicitly: a child process that was forked meanwhile has the open file, too. Cannot fail.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl SocketFolder {
    /// Returns the folder of this user, which is created if it does not exist.
    ///
    /// # Errors
    /// [`LinkError::Folder`], [`LinkError::NotPrivate`].
    pub(super) fn of_user() -> Result<Self, LinkError> {
        let user = rustix::process::getuid().as_raw();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
        let path = match runtime {
            Some(path) => path.join("fpga-messages"),
            None => PathBuf::from(format!("/tmp/fpga-messages-{user}")),
        };
        let failed = |error: std::io::Error| LinkError::Folder { path: path.clone(), source: error.into() };
        if let Err(error) = DirBuilder::new().mode(0o700).create(&path)
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(failed(error));
        }
        let found = std::fs::symlink_metadata(&path).map_err(failed)?;
        if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
            return Err(LinkError::NotPrivate { path });
        }
        Ok(Self(path))
    }

    #[cfg(test)]
    pub(super) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Returns the path of a card's socket.
    pub(super) fn socket(&self, node: NodeId) -> PathBuf {
        self.0.join(format!("{:0NAME_LENGTH$x}", node.get()))
    }

    fn lock(&self, operation: FlockOperation) -> Option<Lock> {
        let mut options = OpenOptions::new();
        let file =
            options.create(true).truncate(false).write(true).mode(0o600).open(self.0.join(LOCK)).ok()?;
        rustix::fs::flock(&file, operation).ok()?;
        Some(Lock(file))
    }

    /// Begins the creation of a socket. Without space for the lock file, the socket itself cannot be created either.
    pub(super) fn begin_opening(&self) -> Opening {
        Opening { _lock: self.lock(FlockOperation::LockShared) }
    }

    /// Removes the sockets of processes that have ended. Does nothing while another process removes them, or creates its socket.
    pub(super) fn remove_ended(&self) {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut ended = entries.map(|entry| entry.path()).filter(|path| is_ended(path)).peekable();
        if ended.peek().is_none() {
            return;
        }
        let Some(_lock) = self.lock(FlockOperation::NonBlockingLockExclusive) else { return };
        // Again: a socket may have been created between the first look and the lock.
        for path in ended.filter(|path| is_ended(path)) {
            // The next process tries again.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Creates a socket whose process has ended.
    fn leave_socket(path: &Path) {
        drop(UnixListener::bind(path).unwrap());
        assert!(path.exists());
    }

    #[test]
    fn socket_of_ended_process_is_not_served() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert_eq!(is_served(&path), Some(false));
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(is_served(&path), Some(true));
        drop(listener);
        assert!(path.exists());
        assert_eq!(is_served(&path), Some(false));
    }

    #[test]
    fn sockets_of_ended_processes_alone_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let folder = SocketFolder::at(directory.path());
        let [ended, served, file] = [1, 2, 3].map(|node| folder.socket(NodeId::new(node)));
        let foreign = directory.path().join("owner");
        leave_socket(&ended);
        leave_socket(&foreign);
        let _listener = UnixListener::bind(&served).unwrap();
        std::fs::write(&file, "").unwrap();
        folder.remove_ended();
        assert!(!ended.exists());
        assert!(served.exists() && file.exists() && foreign.exists());
    }

    /// A socket refuses connections between its creation and its first listen, like that of an ended process.
    #[test]
    fn socket_that_is_being_created_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let folder = SocketFolder::at(directory.path());
        let path = folder.socket(NodeId::new(1));
        let opening = folder.begin_opening();
        leave_socket(&path);
        folder.remove_ended();
        assert!(path.exists());
        drop(opening);
        folder.remove_ended();
        assert!(!path.exists());
    }

    #[test]
    fn processes_create_sockets_at_the_same_time() {
        let directory = tempfile::tempdir().unwrap();
        let folder = SocketFolder::at(directory.path());
        let _first = folder.begin_opening();
        let _second = folder.begin_opening();
    }
}
