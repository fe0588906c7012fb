//! `card serve` with hostile clients that try to exhaust its log or its descriptors, or to stop it.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fpga_vfio_user::socket::Connection;
use fpga_vfio_user::wire::{Kind, RegionAccess, Request, Version, encode_request};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use crate::support::fpgactl;

const LONG: Duration = Duration::from_secs(120);

/// Server whose log is a file.
struct Server {
    child: Child,
    folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only after a failed test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a server; `prepare` returns further options, and creates the files they need.
    fn start(prepare: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let more = prepare(folder.path());
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command.env_remove("RUST_LOG").args(["card", "serve", "--socket"]).arg(folder.path().join("card"));
        command.arg("--control").arg(folder.path().join("control")).args(more);
        command.stdout(Stdio::piped()).stderr(File::create(folder.path().join("log")).unwrap());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready "), "{line}");
        Self { child, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn log(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("log")).unwrap();
        log.lines().map(str::to_owned).collect()
    }

    /// Ends it normally. Returns its log.
    fn end(mut self) -> Vec<String> {
        self.signal(Signal::TERM);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert!(!self.path("card").exists() && !self.path("control").exists());
        self.log()
    }
}

/// Negotiates the version on a new connection.
fn client(socket: &Path) -> Connection {
    let connection = Connection::connect(socket, LONG).unwrap();
    ask(&connection, &Request::Version(Version::default()));
    connection
}

/// Sends a request. Returns whether it was refused.
fn ask(connection: &Connection, request: &Request<'_>) -> bool {
    let (mut out, mut body, mut fds) = (Vec::new(), Vec::new(), Vec::new());
    encode_request(1, false, request, &mut out);
    connection.send(&out, &[], LONG).unwrap();
    let header = connection.receive(&mut body, &mut fds, LONG).unwrap();
    matches!(header.kind, Kind::Reply { error: Some(_) })
}

fn read(region: u32) -> Request<'static> {
    Request::RegionRead(RegionAccess { offset: 0, region, count: 4 })
}

#[test]
fn hostile_clients_do_not_fill_log() {
    const CLIENTS: usize = 20;
    let server = Server::start(|_| Vec::new());
    for _ in 0..CLIENTS {
        let client = client(&server.path("card"));
        for _ in 0..40 {
            assert!(ask(&client, &read(99)));
        }
    }
    let log = server.end();
    let refused = log.iter().filter(|line| line.contains("there is no region 99")).count();
    // Eight at once, and one for each second that the clients take.
    assert!((8..200).contains(&refused), "{refused} lines");
    let suppressed = log.iter().filter(|line| line.contains("were suppressed")).count();
    assert!(suppressed >= 1, "{log:#?}");
}

/// More control connections than the server may open: it continues, logs little, and answers as soon as it can.
#[test]
fn hostile_control_connections_do_not_stop_server() {
    let server = Server::start(|_| Vec::new());
    let client = client(&server.path("card"));
    assert!(!ask(&client, &read(1)));
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap();
    let numbers = open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<u64>().unwrap());
    let numbers: Vec<u64> = numbers.collect();
    // Two more may be opened, at the lowest free numbers.
    let current = (0..).filter(|number| !numbers.contains(number)).nth(2);
    let before = prlimit(Some(server.pid()), Resource::Nofile, Rlimit { current, maximum: current }).unwrap();
    assert!(before.current > current);
    let silent: Vec<_> = (0..8).map(|_| UnixStream::connect(server.path("control")).unwrap()).collect();
    // The card is served meanwhile; a spinning thread would log thousands of lines.
    for _ in 0..2_000 {
        assert!(!ask(&client, &read(1)));
    }
    drop(silent);
    let control = server.path("control");
    fpgactl(&["card", "control", control.to_str().unwrap(), "state"]).ok();
    drop(client);
    let log = server.end();
    let refused = log.iter().filter(|line| line.contains("control connection could not be accepted")).count();
    assert!((1..=40).contains(&refused), "{refused} lines: {log:#?}");
}

/// The report at the end goes to a full pipe: the signal ends the wait for its reader, and no socket stays behind.
#[test]
fn serve_report_to_full_pipe_removes_sockets() {
    let mut reader = None;
    let mut server = Server::start(|folder| {
        let stats = folder.join("stats");
        rustix::fs::mknodat(CWD, &stats, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        reader = Some(rustix::fs::open(&stats, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap());
        vec!["--stats".to_owned(), stats.to_str().unwrap().to_owned()]
    });
    let stats = rustix::fs::open(server.path("stats"), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
    let mut full = File::from(stats.unwrap());
    while full.write(&[0; 1]).is_ok() {}
    server.signal(Signal::TERM);
    assert_eq!(server.child.wait().unwrap().code(), Some(1));
    assert!(!server.path("card").exists() && !server.path("control").exists());
}
