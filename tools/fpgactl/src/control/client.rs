//! The end of whoever wants something of a served card.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Answer, Request};

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Longest answer in bytes: some ten thousand faults.
const MAX_ANSWER: u64 = 1 << 20;

/// Why nothing was done to a served card.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Nobody listens.
    #[error("{}: no control socket answers there ({source}); serve the card with `fpgactl card serve --control {}`", path.display(), path.display())]
    Connect {
        /// The path given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing comes back.
    #[error("{}: no answer ({source}); see whether the card is still served", path.display())]
    NoAnswer {
        /// The path given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It was not done.
    #[error("{}: not done: {reason}", path.display())]
    Refused {
        /// The path given.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Asks whoever listens at `path`, and waits until it is done.
///
/// # Errors
/// [`ControlError`].
pub fn ask(path: &Path, request: &Request) -> Result<Answer, ControlError> {
    let connect = |source| ControlError::Connect { path: path.to_owned(), source };
    let stream = UnixStream::connect(path).map_err(connect)?;
    let answer = exchange(&stream, request)
        .map_err(|source| ControlError::NoAnswer { path: path.to_owned(), source })?;
    match answer.error {
        Some(reason) => Err(ControlError::Refused { path: path.to_owned(), reason }),
        None => Ok(answer),
    }
}

fn exchange(mut stream: &UnixStream, request: &Request) -> io::Result<Answer> {
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    if BufReader::new(stream.take(MAX_ANSWER)).read_line(&mut answer)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if !answer.ends_with('\n') {
        return Err(io::Error::other(format!(
            "its answer is longer than {MAX_ANSWER} bytes, or was cut off"
        )));
    }
    Ok(serde_json::from_str(&answer)?)
}
