//! Processes that serve the cards of a guest.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::lines::lines_of;
use super::machine::Files;
use super::protocol::MAX_LINE_BYTES;
use fpga_process::{ChildGuard, ToolError};

/// Timeout until a client can connect to a card.
const CARD_STARTS: Duration = Duration::from_secs(20);
/// Timeout for a card or a guest to end after a request.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Reasons why a card is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The program could not be started or ended.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The process did not become ready.
    #[error("`fpgactl card serve` failed for card {number}: {reason}")]
    Card { number: usize, reason: String },
}

/// Process that serves a card.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) process: ChildGuard,
    /// Its control socket, for injecting faults.
    control: PathBuf,
    /// File with its counters, if it has any.
    statistics: Option<PathBuf>,
}

/// Environment variable with the folder of a model of RTL.
pub(crate) const RTL_VARIABLE: &str = "FPGA_RTL_MODEL";

/// Starts a card's process and waits until a client can connect.
pub(crate) fn serve(
    server: &Path,
    root: &Path,
    files: &Files,
    number: usize,
    file: Option<&str>,
) -> Result<Served, ServeError> {
    let statistics = files.statistics(number);
    let mut command = Command::new(server);
    command.args(["card", "serve", "--socket"]).arg(files.card(number));
    command.arg("--stats").arg(&statistics);
    let control = files.card_control(number);
    command.arg("--control").arg(&control);
    if let Some(ends) = files.links(number) {
        command.args(["--node", &(files.number + 1).to_string()]);
        for end in ends {
            command.arg("--link").arg(format!("shm:{}", end.display()));
        }
    }
    if let Some(file) = file {
        command.arg("--card-file").arg(file).current_dir(root);
    }
    let process = started(number, ChildGuard::spawn("fpgactl card serve", &command)?)?;
    Ok(Served { process, control, statistics: Some(statistics) })
}

/// Starts a model of RTL in the same way. It has no counters and no control socket.
pub(crate) fn serve_rtl(
    server: &Path,
    files: &Files,
    number: usize,
    model: &OsStr,
) -> Result<Served, ServeError> {
    let mut command = Command::new(server);
    command.args(["rtl", "run"]).arg(model).arg("--socket").arg(files.card(number));
    let process = started(number, ChildGuard::spawn("fpgactl rtl run", &command)?)?;
    Ok(Served { process, control: files.card_control(number), statistics: None })
}

/// Waits until clients of the process's card can connect.
fn started(number: usize, mut process: ChildGuard) -> Result<ChildGuard, ServeError> {
    let failed = |reason: String| Err(ServeError::Card { number, reason });
    let Some(out) = process.parts().stdout.take() else {
        return failed("the process has no standard output".to_owned());
    };
    match lines_of(out).recv_timeout(CARD_STARTS) {
        Ok(line) if line.starts_with("ready ") => Ok(process),
        Ok(line) => failed(format!("unexpected output \"{line}\"")),
        Err(RecvTimeoutError::Timeout) => failed(format!("not ready after {} s", CARD_STARTS.as_secs())),
        Err(RecvTimeoutError::Disconnected) => {
            process.end(END_TIMEOUT)?;
            failed(process.stderr_text())
        }
    }
}

impl Served {
    /// Ends it. Returns its counters.
    pub(crate) fn finish(&mut self) -> Result<serde_json::Value, String> {
        match self.process.end(END_TIMEOUT).map_err(|error| error.to_string())? {
            Some(status) if status.success() => {}
            Some(status) => {
                return Err(format!("the process exited with {status}: {}", self.process.stderr_text()));
            }
            None => return Err(format!("the process did not exit within {} s", END_TIMEOUT.as_secs())),
        }
        let Some(statistics) = &self.statistics else { return Ok(serde_json::Value::Null) };
        let text = fs::read_to_string(statistics);
        let text = text.map_err(|error| format!("cannot read its statistics: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("cannot parse its statistics: {error}"))
    }

    /// Passes a request to its control socket. Returns the answer.
    pub(crate) fn ask(&self, request: &str) -> Result<String, String> {
        let exchange = || -> std::io::Result<String> {
            let mut stream = UnixStream::connect(&self.control)?;
            stream.set_read_timeout(Some(CARD_STARTS))?;
            stream.write_all(format!("{request}\n").as_bytes())?;
            let mut answer = String::new();
            BufReader::new(stream).take(MAX_LINE_BYTES).read_line(&mut answer)?;
            Ok(answer.trim_end().to_owned())
        };
        exchange().map_err(|error| format!("the card's process does not answer: {error}"))
    }
}
