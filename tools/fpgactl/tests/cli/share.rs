//! `card share`: several programs use one card.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use fpga_driver::{Card, CardAddr};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::fpgactl;

/// Owner that is ready.
pub(crate) struct Owner {
    pub(crate) child: Child,
    pub(crate) folder: tempfile::TempDir,
}

impl Owner {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), arguments, Stdio::inherit())
    }

    /// Starts an owner whose messages go to `messages`.
    pub(crate) fn start_in(folder: tempfile::TempDir, arguments: &[&str], messages: Stdio) -> Self {
        let socket = folder.path().join("card");
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command.args(["card", "share", "--socket"]).arg(&socket).args(arguments);
        // It is killed, which leaves the sockets of its links.
        command.env("XDG_RUNTIME_DIR", folder.path());
        let mut child = command.stdout(Stdio::piped()).stderr(messages).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("ready {}\n", socket.display()));
        Self { child, folder }
    }

    pub(crate) fn card(&self) -> String {
        format!("vfio-user:{}", self.folder.path().join("card").display())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn share_programs_see_each_others_data() {
    let owner = Owner::start(&[]);
    let card = owner.card();
    let data: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let source = owner.folder.path().join("in");
    std::fs::write(&source, &data).unwrap();
    // A program that holds the card while others come and go.
    let mut holding = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    holding.args([
        "run",
        "--card",
        &card,
        "--",
        "sh",
        "-c",
        "echo ready; read _; dd if=/dev/xdma0_c2h_0 bs=300000 count=1 status=none",
    ]);
    let mut held = holding.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(held.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    fpgactl(&["dma", "write", source.to_str().unwrap(), "--addr", "0", "--card", &card]).ok();
    let copy = owner.folder.path().join("out");
    fpgactl(&[
        "dma",
        "read",
        "--addr",
        "0",
        "--len",
        "300000",
        "--out",
        copy.to_str().unwrap(),
        "--card",
        &card,
    ])
    .ok();
    assert!(std::fs::read(&copy).unwrap() == data);
    let top = fpgactl(&["top", "--count", "1", "--card", &card]).ok().stdout;
    assert!(top.contains("h2c0"), "{top}");
    fpgactl(&["info", "--card", &card]).ok();
    drop(held.stdin.take());
    let mut seen = Vec::new();
    std::io::Read::read_to_end(&mut said, &mut seen).unwrap();
    assert!(held.wait().unwrap().success() && seen == data);
}

#[test]
fn share_passes_self_test_of_view() {
    let owner = Owner::start(&["--card", "mock:us-x8"]);
    let ran = fpgactl(&["validate", "--scratch", "0", "--scratch-size", "64KiB", "--card", &owner.card()]);
    assert_eq!(ran.status, 0, "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn share_ends_at_signal_or_with_last_client() {
    let mut owner = Owner::start(&[]);
    kill_process(Pid::from_child(&owner.child), Signal::TERM).unwrap();
    assert_eq!(owner.child.wait().unwrap().code(), Some(0));
    assert!(!owner.folder.path().join("card").exists());
    let mut owner = Owner::start(&["--until-unused"]);
    fpgactl(&["info", "--card", &owner.card()]).ok();
    assert_eq!(owner.child.wait().unwrap().code(), Some(0));
    // A second owner of one socket is refused.
    let owner = Owner::start(&[]);
    let socket = owner.folder.path().join("card");
    let ran = fpgactl(&["card", "share", "--socket", socket.to_str().unwrap()]);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("socket of a running server"), "{}", ran.stderr);
}

/// Clients that are killed in the test: `FPGA_KILLS`, or a sample.
fn kills() -> u32 {
    std::env::var("FPGA_KILLS").map_or(6, |count| count.parse().unwrap())
}

impl Owner {
    /// Open files and threads.
    pub(crate) fn resources(&self) -> (usize, usize) {
        let count = |what| std::fs::read_dir(format!("/proc/{}/{what}", self.child.id())).unwrap().count();
        (count("fd"), count("task"))
    }
}

#[test]
fn share_killed_programs_leave_card_to_others() {
    const MIB: usize = 1 << 20;
    let owner = Owner::start(&[]);
    let card = owner.card();
    let neighbour = Card::open(&card).unwrap();
    let (mut h2c, mut c2h) = (neighbour.h2c(0).unwrap(), neighbour.c2h(0).unwrap());
    let mut buffer = neighbour.buffer(MIB).unwrap();
    // The killed ones write below.
    let own = CardAddr::new(32 << 20);
    fpgactl(&["info", "--card", &card]).ok();
    let before = owner.resources();
    for round in 0..kills() {
        let value = round.to_le_bytes()[0];
        buffer.fill(value);
        buffer = h2c.write(buffer, own).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command.args(["dma", "bench", "--sizes", "1MiB", "--seconds", "10", "--card", &card]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Wherever it is by now.
        for _ in 0..round * 7 % 60 {
            buffer = c2h.read(buffer, own).unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        buffer = c2h.read(buffer, own).unwrap();
        assert!(buffer.to_vec().iter().all(|byte| *byte == value), "round {round}");
    }
    // The owner learns of the last end a moment later.
    let ended = (0..1000).any(|_| {
        fpgactl(&["info", "--card", &card]).ok();
        owner.resources() <= before
    });
    assert!(ended, "{before:?} before, {:?} after", owner.resources());
}

#[test]
fn share_stream_channel_has_one_client_at_a_time() {
    let owner = Owner::start(&["--card", "mock:us-plus-x8-stream"]);
    let card = owner.card();
    let path = |name: &str| owner.folder.path().join(name).display().to_string();
    let (source, sink) = (path("in"), path("out"));
    let data: Vec<u8> = (0..=255).cycle().take(50_000).collect();
    std::fs::write(&source, &data).unwrap();
    // Packets of one program that another one receives, in two runs.
    fpgactl(&["dma", "write", "--packet", "5000", "--card", &card, &source]).ok();
    for half in data.chunks(25_000) {
        fpgactl(&["dma", "read", "--packets", "5", "--out", &sink, "--card", &card]).ok();
        assert_eq!(std::fs::read(&sink).unwrap(), half);
    }
    fpgactl(&["validate", "--card", &card]).ok();
    let holder = Card::open(&card).unwrap();
    let held = holder.c2h_stream(1).unwrap();
    let ran = fpgactl(&["dma", "read", "--packets", "1", "--channel", "1", "--out", &sink, "--card", &card]);
    assert_eq!(ran.status, 1);
    for part in [&card, "c2h1 is used by another client", "end that client, or use another channel"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    drop(held);
    fpgactl(&["dma", "write", "--packet", "5000", "--channel", "1", "--card", &card, &source]).ok();
    fpgactl(&["dma", "read", "--packets", "1", "--channel", "1", "--out", &sink, "--card", &card]).ok();
    assert_eq!(std::fs::read(&sink).unwrap(), data[..5000]);
}

/// Commands of one user, with a folder of sockets of their own.
struct User(tempfile::TempDir);

impl User {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command.args(arguments).env("XDG_RUNTIME_DIR", self.0.path()).env_remove("FPGACTL");
        command
    }

    /// Output of a command that succeeds.
    fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.command(arguments).output().unwrap();
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    }

    /// Error message of a command that fails.
    fn error(&self, arguments: &[&str]) -> String {
        let ran = self.command(arguments).output().unwrap();
        assert!(!ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stdout));
        String::from_utf8(ran.stderr).unwrap()
    }

    /// Sockets of owners.
    fn sockets(&self) -> usize {
        let entries = std::fs::read_dir(self.0.path().join("fpgad")).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().extension().is_none()).count()
    }
}

#[test]
fn share_first_opener_starts_owner_and_children_use_it() {
    let user = User::new();
    let data: Vec<u8> = (0..=250).cycle().take(70_000).collect();
    std::fs::write(user.0.path().join("in"), &data).unwrap();
    let script = "dd if=in of=/dev/xdma0_h2c_0 bs=70000 status=none && \
                  \"$0\" dma read --card shared:mock --addr 0 --len 70000 --out out >/dev/null && ls fpgad";
    let mut command = user.command(&[
        "run",
        "--card",
        "shared:mock",
        "--",
        "sh",
        "-c",
        script,
        env!("CARGO_BIN_EXE_fpgactl"),
    ]);
    let ran = command.current_dir(user.0.path()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "mock\nmock.lock\nmock.log\n");
    assert!(std::fs::read(user.0.path().join("out")).unwrap() == data);
}

#[test]
fn share_openers_at_the_same_time_find_one_owner() {
    let user = User::new();
    for _ in 0..4 {
        let started: Vec<Child> = (0..6)
            .map(|_| {
                let mut command = user.command(&["info", "--card", "shared:mock:us-x8"]);
                command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        for child in started {
            let ran = child.wait_with_output().unwrap();
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        }
    }
}

#[test]
fn share_card_of_running_owner_is_found_by_its_plain_name() {
    let user = User::new();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("served");
    let mut server = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    server.args(["card", "serve", "--socket"]).arg(&socket).stdout(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let card = format!("vfio-user:{}", socket.display());
    let ready = user.ok(&["card", "share", "--card", &card, "--background", "--until-unused"]);
    assert!(ready.starts_with("ready "), "{ready}");
    // Two at the same time, where a server accepts one.
    let mut top = user.command(&["top", "--card", &card]).stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(top.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    // Named as the user has named it, not by the socket of its owner.
    for name in [&card, &format!("shared:{card}")] {
        let info = user.ok(&["info", "--card", name]);
        assert!(info.contains(&format!("{name}\n")), "{info}");
    }
    top.kill().unwrap();
    top.wait().unwrap();
    // The owner has an error message for a card that does not exist, and leaves no socket.
    let error = user.error(&["info", "--card", "shared:vfio-user:/nonexistent"]);
    assert!(error.contains("the owner of the card has ended: there is no socket /nonexistent"), "{error}");
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(user.sockets() <= 1);
}

#[test]
fn share_folder_of_others_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let user = User::new();
    let folder = user.0.path().join("fpgad");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = user.error(&["info", "--card", "shared:mock"]);
    assert!(error.contains("open to other users"), "{error}");
    let mut without = user.command(&["info", "--card", "shared:mock"]);
    std::fs::remove_dir(&folder).unwrap();
    let ran = without.env("FPGACTL", "/nonexistent").output().unwrap();
    let error = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(error.contains("/nonexistent: No such file") && error.contains("FPGACTL"), "{error}");
}

/// The error names the reason, not the end of the connection.
#[test]
fn share_client_without_descriptors_hears_reason() {
    let user = User::new();
    let script = "ulimit -n 45 && exec \"$0\" card share --background --until-unused";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_fpgactl")]).env("XDG_RUNTIME_DIR", user.0.path());
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let error = user.error(&["info", "--card", "shared:mock"]);
    assert!(error.contains("Too many open files"), "{error}");
}

/// A lock that its holder does not release: the limit of the command ends the wait.
#[test]
fn share_opener_that_is_stopped_is_waited_for_within_limit() {
    let user = User::new();
    user.ok(&["info", "--card", "shared:mock"]);
    let held = std::fs::File::options().write(true).open(user.0.path().join("fpgad/mock.lock")).unwrap();
    held.lock().unwrap();
    for option in ["--timeout", "--message-timeout"] {
        let error = user.error(&["info", "--card", "shared:mock", option, "200ms"]);
        assert!(error.contains("locked for 200ms") && error.contains("--message-timeout"), "{error}");
    }
    drop(held);
    user.ok(&["info", "--card", "shared:mock", "--timeout", "100s"]);
}

/// Processes whose open files include `path`.
fn holders(path: &std::path::Path) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let files = processes.filter_map(|process| std::fs::read_dir(process.path().join("fd")).ok());
    let is_it = |file: std::io::Result<std::fs::DirEntry>| {
        file.and_then(|file| std::fs::read_link(file.path())).is_ok_and(|target| target == path)
    };
    files.map(|mut files| files.any(is_it)).filter(|held| *held).count()
}

/// The owner outlives the program that has started it, and keeps nothing of it: neither its files nor its locks.
#[test]
fn share_owner_inherits_no_descriptors_and_log_is_own_file() {
    let user = User::new();
    let folder = user.0.path().join("fpgad");
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&folder).unwrap();
    let precious = user.0.path().join("precious");
    std::fs::write(&precious, "kept").unwrap();
    let log = folder.join("mock.log");
    std::os::unix::fs::symlink(&precious, &log).unwrap();
    // A client keeps the owner.
    let script = "exec 7>held; \"$0\" run --card shared:mock -- sh -c 'exec 7>&-; echo ready; read _; true'";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_fpgactl")]).current_dir(user.0.path());
    shell.env("XDG_RUNTIME_DIR", user.0.path()).env("FPGACTL", env!("CARGO_BIN_EXE_fpgactl"));
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    // The shell and `fpgactl run`.
    assert_eq!(holders(&user.0.path().join("held")), 2);
    assert_eq!(std::fs::read(&precious).unwrap(), b"kept");
    assert!(std::fs::symlink_metadata(&log).unwrap().is_file());
    // Another owner is refused, and leaves the log of the running one.
    std::fs::write(&log, "messages\n").unwrap();
    let error = user.error(&["card", "share", "--background"]);
    assert!(error.contains("socket of a running server"), "{error}");
    assert_eq!(std::fs::read(&log).unwrap(), b"messages\n");
    drop(shell.stdin.take());
    assert!(shell.wait().unwrap().success());
}
