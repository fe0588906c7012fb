//! Functions of the project's own tools: child processes that do not outlive their parent; root of the workspace.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Time between two polls of a process that should end: a blocking wait with a limit would need a thread, or a signal handler in this
/// process.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Reasons why a program failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// Its name.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// It failed.
    #[error("{program} failed ({status}): {said}")]
    Failed {
        /// Its name.
        program: String,
        /// Its exit status.
        status: ExitStatus,
        /// Last lines of its standard error.
        said: String,
    },
    /// Its status could not be read.
    #[error("{program}: {source}")]
    Watch {
        /// Its name.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
}

/// Root of the workspace that the calling tool was built from.
#[must_use]
pub fn workspace_root() -> PathBuf {
    // This package is in tools/process.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_path_buf()
}

/// Maximum number of bytes of a program's standard error that are kept, from its end.
const MAX_STDERR_BYTES: usize = 64 << 10;

/// Running program that is killed when this is dropped, and also when this process ends without dropping anything.
#[derive(Debug)]
pub struct ChildGuard {
    name: &'static str,
    child: Child,
    /// Reads standard error all the time, so that the program never blocks on a full pipe.
    listener: Option<JoinHandle<Vec<u8>>>,
}

impl ChildGuard {
    /// Starts `command` under a name for messages. Its parent is the calling thread, which must outlive it.
    pub fn spawn(name: &'static str, command: &Command) -> Result<Self, ToolError> {
        // Signal 9 at the death of the parent can be requested only between fork and exec, which safe Rust leaves to another program.
        // Without that program (it is part of every Debian) only the drop kills.
        let mut tied = match on_path("setpriv") {
            Some(setpriv) => {
                let mut tied = Command::new(setpriv);
                tied.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
                tied
            }
            None => Command::new(command.get_program()),
        };
        tied.args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => tied.env(key, value),
                None => tied.env_remove(key),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            tied.current_dir(folder);
        }
        tied.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            tied.spawn().map_err(|source| ToolError::Start { program: name.to_owned(), source })?;
        let listener = child.stderr.take().map(|stderr| std::thread::spawn(move || last_of(stderr)));
        Ok(Self { name, child, listener })
    }

    /// Process, for its standard input and output.
    pub fn parts(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns the exit status if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, ToolError> {
        self.child.try_wait().map_err(|source| ToolError::Watch { program: self.name.to_owned(), source })
    }

    /// Waits until it ends or `limit` has passed.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>, ToolError> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(Some(status));
            }
            if began.elapsed() >= limit {
                return Ok(None);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Asks it to end, and kills it if it does not within `limit`; `None`: it had to be killed.
    pub fn end(&mut self, limit: Duration) -> Result<Option<ExitStatus>, ToolError> {
        if let Some(status) = self.ended()? {
            return Ok(Some(status));
        }
        self.signal(Signal::TERM);
        let status = self.wait(limit)?;
        if status.is_none() {
            self.kill();
        }
        Ok(status)
    }

    /// Sends it a signal. It may have ended meanwhile, which a wait shows. Its process id cannot be reused before that wait.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills it.
    pub fn kill(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it, and returns its standard error; only the first time.
    pub fn stderr_text(&mut self) -> String {
        self.kill();
        let text = self.listener.take().and_then(|listener| listener.join().ok()).unwrap_or_default();
        String::from_utf8_lossy(&text).trim().to_owned()
    }
}

/// Reads the end of a stream.
fn last_of(mut stream: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut chunk = [0; 4096];
    // A read error ends the text.
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        kept.extend_from_slice(chunk.get(..count).unwrap_or_default());
        let surplus = kept.len().saturating_sub(MAX_STDERR_BYTES);
        kept.drain(..surplus);
    }
    kept
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs `command` to its end and returns its output.
pub fn output(command: &mut Command) -> Result<String, ToolError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| ToolError::Start { program: program.clone(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = tail(&String::from_utf8_lossy(&output.stderr), 20);
    Err(ToolError::Failed { program, status: output.status, said })
}

/// Last lines of a text.
pub fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let rest = lines.get(lines.len().saturating_sub(count)..).unwrap_or_default();
    rest.join("\n")
}

/// Path of a program, if it is on the search path.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // The search path of a user may lack the administrator's folders.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_tail_has_last_lines() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a\n", 2), "a");
        assert_eq!(tail("", 2), "");
    }

    #[test]
    fn child_failure_quotes_stderr() {
        let error = output(Command::new("sh").args(["-c", "echo no such card >&2; exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "sh failed (exit status: 3): no such card");
        let error = output(&mut Command::new("/nonexistent/program")).unwrap_err();
        assert!(error.to_string().starts_with("cannot start /nonexistent/program: "), "{error}");
    }

    #[test]
    fn child_dropped_is_killed() {
        let mut child = ChildGuard::spawn("sleep", Command::new("sleep").arg("1000")).unwrap();
        let pid = Pid::from_raw(i32::try_from(child.parts().id()).unwrap()).unwrap();
        assert_eq!(child.wait(Duration::ZERO).unwrap(), None);
        rustix::process::test_kill_process(pid).unwrap();
        drop(child);
        assert_eq!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH));
    }

    #[test]
    fn child_long_stderr_does_not_block() {
        let script = "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo end >&2";
        let mut child = ChildGuard::spawn("sh", Command::new("sh").args(["-c", script])).unwrap();
        assert!(child.wait(Duration::from_secs(60)).unwrap().is_some());
        let said = child.stderr_text();
        assert!(said.len() <= MAX_STDERR_BYTES && said.ends_with("xxend"), "{}", said.len());
    }

    #[test]
    fn child_ends_on_request() {
        let mut child = ChildGuard::spawn("sleep", Command::new("sleep").arg("1000")).unwrap();
        let status = child.end(Duration::from_secs(10)).unwrap().unwrap();
        assert!(!status.success());
    }
}
