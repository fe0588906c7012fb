//! Owner processes of shared cards: where their sockets are, and how one is started.
//!
//! Openers of one card take turns by a lock beside the socket, so that one of them starts the owner and the others find it. An owner that
//! ends with its last client takes the lock, too, and keeps it until its process has gone: no opener connects to an owner that is ending.

use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fpga_pci::OsError;

use crate::advice::Advice;
use crate::error::{Cause, CauseClass, Classified, LowerError};
use crate::spec::{AccessOptions, CardSpec};

/// Environment variable with the path of the program `fpgactl`, which becomes the owner of a shared card.
pub(crate) const PROGRAM_VARIABLE: &str = "FPGACTL";
const PROGRAM: &str = "fpgactl";
/// Characters of a card's name in the name of its socket: a socket's path has at most 107 bytes.
const MAX_NAME: usize = 40;

/// Interval of looks at the lock, and at an owner that starts.
const CHECK: Duration = Duration::from_millis(2);
/// Maximum length of an owner's error message, in bytes.
const MAX_MESSAGE: u64 = 16 << 10;

/// Reasons why a shared card has no owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum OwnerStartError {
    /// The folder of the sockets or the lock cannot be used.
    #[error("{}: {source}", path.display())]
    Folder {
        /// Path.
        path: PathBuf,
        /// Reason.
        r#source: OsError,
    },
    /// Others can write to the folder of the sockets.
    #[error("{} is open to other users: the sockets of shared cards must be private", path.display())]
    NotPrivate {
        /// Path.
        path: PathBuf,
    },
    /// Another opener of the card, or its owner, which is ending, has the lock.
    #[error("{} has been locked for {after:?} by another program that opens the card, or by the card's owner", path.display())]
    Locked {
        /// Path of the lock.
        path: PathBuf,
        /// Time waited.
        after: Duration,
    },
    /// The owner has been started, and has not opened its card in time.
    #[error("the owner of the card was started, and has not opened the card within {after:?}")]
    NotReady {
        /// Time waited.
        after: Duration,
    },
    /// The owner's program cannot be run.
    #[error("the owner of the card cannot be started: {}: {source}", program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// Reason.
        r#source: OsError,
    },
    /// The owner has ended.
    #[error("the owner of the card has ended: {message}")]
    Ended {
        /// Its error message.
        message: String,
    },
}

impl LowerError for OwnerStartError {
    fn classify(&self) -> Classified {
        let advice = match self {
            Self::Program { .. } => Some(Advice::InstallOwner),
            Self::Folder { .. } | Self::NotPrivate { .. } => {
                Some(Advice::text("set XDG_RUNTIME_DIR to a folder that only you can open"))
            }
            Self::Locked { .. } | Self::NotReady { .. } => Some(Advice::AllowSlowServer),
            // Its message includes help.
            Self::Ended { .. } => None,
        };
        (CauseClass::Refused, advice)
    }
}

/// Socket of a shared card's owner: in `$XDG_RUNTIME_DIR/fpgad`, or, without that variable, `/run/user/UID/fpgad` or `/tmp/fpgad-UID`.
///
/// The folder and the socket are this user's alone (modes 0700 and 0600).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedSocket {
    path: PathBuf,
}

impl SharedSocket {
    /// Returns the socket for `card`, which exists while the card has an owner.
    #[must_use]
    pub fn of(card: &CardSpec) -> Self {
        Self { path: folder().join(file_name(&absolute(card).to_string())) }
    }

    /// Returns the socket `name` in the folder of the sockets.
    pub(crate) fn named(name: &str) -> Self {
        Self { path: folder().join(name) }
    }

    /// Returns the socket at `path`.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the folder of the sockets if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be used, or is open to other users.
    pub fn create_folder(&self) -> Result<(), Cause> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(folder, error).into()),
            _ => Ok(self.check_folder()?),
        }
    }

    fn check_folder(&self) -> Result<(), OwnerStartError> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let status = std::fs::symlink_metadata(folder).map_err(|error| failed(folder, error))?;
        let own = status.uid() == rustix::process::geteuid().as_raw();
        if own && status.is_dir() && status.mode() & 0o077 == 0 {
            return Ok(());
        }
        Err(OwnerStartError::NotPrivate { path: folder.to_owned() })
    }

    /// Returns whether the socket exists in a private folder. Its owner may have ended.
    pub(crate) fn exists(&self) -> bool {
        self.path.exists() && self.check_folder().is_ok()
    }

    fn lock_file(&self) -> Result<File, OwnerStartError> {
        let path = self.beside("lock");
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        opened.map_err(|error| failed(&path, error))
    }

    /// Waits for the lock, which the returned file holds, for `limit` at most: its holder may be stopped.
    fn lock(&self, limit: Duration) -> Result<File, Cause> {
        let began = Instant::now();
        loop {
            if let Some(file) = self.try_lock()? {
                return Ok(file);
            }
            if began.elapsed() >= limit {
                return Err(OwnerStartError::Locked { path: self.beside("lock"), after: limit }.into());
            }
            std::thread::sleep(CHECK);
        }
    }

    /// Takes the lock; `None` while another process holds it.
    ///
    /// # Errors
    /// The lock cannot be used.
    pub fn try_lock(&self) -> Result<Option<File>, Cause> {
        let file = self.lock_file()?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(failed(&self.beside("lock"), error).into()),
        }
    }

    /// Path of a file beside the socket.
    #[must_use]
    pub fn beside(&self, extension: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".");
        path.push(extension);
        path.into()
    }
}

/// Calls `connect` with the socket of `card`'s owner, which is started first if `absent` returns true for the error of the first call. Waits for other
/// openers, and for an owner that starts, for `limit` each.
pub(crate) fn connected<T, E: From<Cause>>(
    card: &CardSpec,
    access: &AccessOptions,
    limit: Duration,
    connect: impl Fn(&Path) -> Result<T, E>,
    absent: impl FnOnce(&E) -> bool,
) -> Result<T, E> {
    let socket = SharedSocket::of(card);
    socket.create_folder()?;
    let _turn = socket.lock(limit)?;
    match connect(socket.path()) {
        Err(error) if absent(&error) => {}
        done => return done,
    }
    start(card, access, limit)?;
    connect(socket.path())
}

/// Starts the owner of `card`, which outlives this process.
fn start(card: &CardSpec, access: &AccessOptions, limit: Duration) -> Result<(), Cause> {
    let program = program();
    let mut command = Command::new(&program);
    command.args(["card", "share", "--background", "--until-unused", "--card"]);
    command.arg(absolute(card).to_string());
    if let Some(interface) = access.vfio {
        command.arg("--vfio").arg(interface.to_string());
    }
    if let Some(token) = access.vf_token {
        // Other users can read the arguments of a process.
        command.env(fpga_pci::vfio::VF_TOKEN_VARIABLE, token.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let cannot_run =
        |source: io::Error| OwnerStartError::Program { program: program.clone(), source: source.into() };
    let mut starter = command.spawn().map_err(cannot_run)?;
    let began = Instant::now();
    let status = loop {
        if let Some(status) = starter.try_wait().map_err(cannot_run)? {
            break status;
        }
        if began.elapsed() >= limit {
            // The owner itself ends if it gets no client.
            let _ = starter.kill();
            let _ = starter.wait();
            return Err(OwnerStartError::NotReady { after: limit }.into());
        }
        std::thread::sleep(CHECK);
    };
    if status.success() {
        return Ok(());
    }
    let mut message = Vec::new();
    if let Some(stderr) = starter.stderr.take() {
        stderr.take(MAX_MESSAGE).read_to_end(&mut message).map_err(cannot_run)?;
    }
    let message = String::from_utf8_lossy(&message);
    let message = message.trim().strip_prefix("fpgactl: ").unwrap_or(message.trim());
    let message = if message.is_empty() { status.to_string() } else { message.to_owned() };
    Err(OwnerStartError::Ended { message }.into())
}

fn program() -> PathBuf {
    if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
        return program.into();
    }
    // A program of this project may be installed outside of PATH.
    let own =
        std::env::current_exe().ok().filter(|path| path.file_name().is_some_and(|name| name == PROGRAM));
    own.unwrap_or_else(|| PROGRAM.into())
}

fn failed(path: &Path, error: io::Error) -> OwnerStartError {
    OwnerStartError::Folder { path: path.to_owned(), source: error.into() }
}

fn folder() -> PathBuf {
    let absolute = |path: &PathBuf| path.is_absolute();
    if let Some(folder) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(absolute) {
        return folder.join("fpgad");
    }
    let user = rustix::process::geteuid().as_raw();
    let of_user = PathBuf::from(format!("/run/user/{user}"));
    if of_user.is_dir() { of_user.join("fpgad") } else { PathBuf::from(format!("/tmp/fpgad-{user}")) }
}

/// The same card with absolute paths: one name in every working directory.
fn absolute(card: &CardSpec) -> CardSpec {
    let full = |path: &PathBuf| std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    match card {
        // A name of a built-in description is not a path.
        CardSpec::Simulated { description: Some(file) } if file.exists() => {
            CardSpec::Simulated { description: Some(full(file)) }
        }
        CardSpec::VfioUser(socket) => CardSpec::VfioUser(full(socket)),
        CardSpec::Rtl(folder) => CardSpec::Rtl(full(folder)),
        other => other.clone(),
    }
}

/// Name of a file for `card`: the card's name if it is short and contains no special characters, otherwise its end and a checksum.
fn file_name(card: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || ":.-_".contains(character);
    if card.len() <= MAX_NAME && card.chars().all(plain) {
        return card.to_owned();
    }
    let skipped = card.chars().count().saturating_sub(MAX_NAME - 17);
    let mut name: String =
        card.chars().skip(skipped).map(|character| if plain(character) { character } else { '_' }).collect();
    // FNV-1a, 64 bits: the same in every version of the program.
    let checksum = card
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    // Writing to a string does not fail.
    let _ = write!(name, "-{checksum:016x}");
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_file_names_are_distinct_and_short() {
        assert_eq!(file_name("0000:65:00.0"), "0000:65:00.0");
        assert_eq!(file_name("mock:us-x8"), "mock:us-x8");
        let long = file_name(&format!("mock:/home/{}/a.yaml", "x".repeat(200)));
        assert!(long.len() <= MAX_NAME && long.starts_with('x'), "{long}");
        assert_ne!(file_name("mock:/a/b.yaml"), file_name("mock:/a_b.yaml"));
        assert!(!file_name("mock:/ä/b.yaml").contains('/'));
    }
}
