//! Client end of the control socket of a served card.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Answer, Request};

/// Default timeout of an answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Maximum length of an answer in bytes: about ten thousand faults.
const MAX_ANSWER: u64 = 1 << 20;

/// Reasons why a request to a served card fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No server listens.
    #[error("{}: no control socket answers there ({source})", path.display())]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// System error.
        r#source: io::Error,
    },
    /// The server does not answer.
    #[error("{}: no answer ({source})", path.display())]
    NoAnswer {
        /// Path of the socket.
        path: PathBuf,
        /// System error.
        r#source: io::Error,
    },
    /// The server refused the request.
    #[error("{}: not done: {reason}", path.display())]
    Refused {
        /// Path of the socket.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
}

impl ControlError {
    /// Returns what to do about it.
    #[must_use]
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Connect { path, .. } => {
                Some(format!("serve the card with `fpgactl card serve --control {}`", path.display()))
            }
            Self::NoAnswer { .. } => Some("see whether the card is still served".to_owned()),
            Self::Refused { .. } => None,
        }
    }
}

/// Sends `request` to the server at `path`, and waits for the answer, for at most `limit` (default: 10 s).
pub fn ask(path: &Path, request: &Request, limit: Option<Duration>) -> Result<Answer, ControlError> {
    let connect = |source| ControlError::Connect { path: path.to_owned(), source };
    let stream = UnixStream::connect(path).map_err(connect)?;
    let answer = exchange(&stream, request, limit.unwrap_or(LIMIT))
        .map_err(|source| ControlError::NoAnswer { path: path.to_owned(), source })?;
    match answer.error {
        Some(reason) => Err(ControlError::Refused { path: path.to_owned(), reason }),
        None => Ok(answer),
    }
}

fn exchange(mut stream: &UnixStream, request: &Request, limit: Duration) -> io::Result<Answer> {
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
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
