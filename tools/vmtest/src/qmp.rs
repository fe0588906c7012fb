//! Control socket of the emulator: one JSON document per line, QEMU's docs/interop/qmp-spec.rst.

use std::io::{self, BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

/// Timeout of an answer: every request used here is answered at once.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of events before an answer.
const EVENTS: usize = 1000;

/// Reasons why a command of the emulator fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QmpError {
    /// The socket failed.
    #[error("the emulator's control socket: {0}")]
    Socket(#[from] io::Error),
    /// The line is not an answer.
    #[error("the emulator's control socket gave no answer to {0}")]
    NoAnswer(String),
    /// The command was refused.
    #[error("the emulator refused {command}: {reason}")]
    Refused { command: String, reason: String },
}

/// Connection to the emulator.
#[derive(Debug)]
pub(crate) struct Qmp {
    stream: BufReader<UnixStream>,
}

/// Relevant line; greetings and events have neither key.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "return")]
    returned: Option<Value>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    desc: String,
}

impl Qmp {
    /// Connects to a running emulator.
    pub(crate) fn connect(socket: &Path) -> Result<Self, QmpError> {
        Self::over(UnixStream::connect(socket)?)
    }

    fn over(stream: UnixStream) -> Result<Self, QmpError> {
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        let mut connection = Self { stream: BufReader::new(stream) };
        // Other commands are refused before this one.
        connection.execute("qmp_capabilities", &json!({}))?;
        Ok(connection)
    }

    /// Unplugs a device as its attention button would: the guest is asked to release it.
    pub(crate) fn unplug(&mut self, device: &str) -> Result<(), QmpError> {
        self.execute("device_del", &json!({ "id": device })).map(drop)
    }

    /// Runs a line of the human monitor, for functions that exist only there. Any output is an error message.
    pub(crate) fn monitor(&mut self, line: &str) -> Result<String, QmpError> {
        let printed = self.execute("human-monitor-command", &json!({ "command-line": line }))?;
        Ok(printed.as_str().unwrap_or_default().trim().to_owned())
    }

    fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value, QmpError> {
        let mut line = json!({ "execute": command, "arguments": arguments }).to_string();
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())?;
        for _ in 0..EVENTS {
            let mut text = String::new();
            if self.stream.read_line(&mut text)? == 0 {
                break;
            }
            match serde_json::from_str(&text) {
                Ok(Line { returned: Some(value), .. }) => return Ok(value),
                Ok(Line { error: Some(refusal), .. }) => {
                    return Err(QmpError::Refused { command: command.to_owned(), reason: refusal.desc });
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        Err(QmpError::NoAnswer(command.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Emulator that answers every request with this text.
    fn emulator(answer: &str) -> (UnixStream, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(answer.as_bytes()).unwrap();
        (ours, theirs)
    }

    const READY: &str = "{\"QMP\": {}}\n{\"return\": {}}\n";

    #[test]
    fn qmp_events_are_skipped() {
        let (ours, theirs) =
            emulator(&format!("{READY}{{\"event\": \"RESUME\"}}\n{{\"return\": \"OK\\r\\n\"}}\n"));
        assert_eq!(Qmp::over(ours).unwrap().monitor("info").unwrap(), "OK");
        let mut asked = BufReader::new(theirs).lines();
        assert!(asked.next().unwrap().unwrap().contains("qmp_capabilities"));
        assert!(asked.next().unwrap().unwrap().contains("\"command-line\":\"info\""));
    }

    #[test]
    fn qmp_refusal_is_quoted_and_timeout_is_error() {
        let (ours, _theirs) =
            emulator(&format!("{READY}{{\"error\": {{\"class\": \"x\", \"desc\": \"no such device\"}}}}\n"));
        let error = Qmp::over(ours).unwrap().unplug("card0").unwrap_err();
        assert_eq!(error.to_string(), "the emulator refused device_del: no such device");

        let (ours, theirs) = emulator(READY);
        let mut connection = Qmp::over(ours).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(matches!(connection.unplug("card0"), Err(QmpError::NoAnswer(_))));
        let (ours, _theirs) = emulator("no JSON\n");
        assert!(matches!(Qmp::over(ours), Err(QmpError::NoAnswer(_))));
    }
}
