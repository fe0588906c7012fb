//! Runs the built program.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test, a panic is the failure report")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Result of a run.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `fpgactl` with `args`; standard input is a pipe without data.
pub(crate) fn fpgactl(args: &[&str]) -> CommandResult {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::piped());
    let output = command.output().unwrap();
    CommandResult {
        status: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs `fpgactl` with `args` and with `input` on standard input. Returns its status, standard output as bytes, and standard error.
pub(crate) fn piped(args: &[&str], input: &[u8]) -> (i32, Vec<u8>, String) {
    use std::io::Write as _;
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // A refused command reads nothing.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    });
    (output.status.code().unwrap(), output.stdout, String::from_utf8(output.stderr).unwrap())
}

impl CommandResult {
    /// Asserts that the run succeeded without messages.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!((self.status, self.stderr.as_str()), (0, ""), "{}", self.stdout);
        self
    }

    /// Standard output as exactly one JSON document of version 1.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let value: Value =
            serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert_eq!(value["schema_version"], 1);
        value
    }
}

/// Creates a file in `dir` with this content.
pub(crate) fn file(dir: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// `length` bytes whose period is not a power of two.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect()
}

/// Simulated card that another process serves, until this is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    child: std::process::Child,
    folder: tempfile::TempDir,
}

impl Served {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Starts it with further options of `card serve`.
    pub(crate) fn with(args: &[&str]) -> Self {
        use std::io::BufRead as _;
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command
            .args(["card", "serve", "--socket"])
            .arg(folder.path().join("card"))
            .arg("--control")
            .arg(folder.path().join("control"))
            .args(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready "), "{line}");
        Self { child, folder }
    }

    /// Name of the card on a command line.
    pub(crate) fn card(&self) -> String {
        format!("vfio-user:{}", self.folder.path().join("card").display())
    }

    /// Process number of the server.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Path of its control socket.
    pub(crate) fn control(&self) -> String {
        self.folder.path().join("control").display().to_string()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
