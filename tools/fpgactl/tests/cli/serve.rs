//! `card serve`, as scripts use it: the ready line, the end by a signal, the statistics.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use fpga_vfio_user::socket::Connection;
use fpga_vfio_user::wire::{RegionAccess, Request, Version, encode_request};
use rustix::process::{Pid, Signal, kill_process};

use crate::commands::{CommandEnvironment, Listed, commands};
use crate::support::{Served, file, fpgactl};

/// Server that is ready.
struct Server {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only after a failed test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(arguments: &[&str], ready: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command.args(["card", "serve"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, ready);
        Self { child, lines }
    }

    /// Sends a signal. Returns the line that answers it.
    fn tell(&mut self, signal: Signal) -> String {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    /// Ends it by a signal. Returns its exit status.
    fn end(mut self, signal: Signal) -> Option<i32> {
        assert_eq!(self.tell(signal), "", "unrequested output");
        self.child.wait().unwrap().code()
    }
}

/// Standard error of a command that ends with `status`.
#[track_caller]
fn fails(arguments: &[&str], status: i32) -> String {
    let ran = fpgactl(arguments);
    assert_eq!((ran.status, ran.stdout.as_str()), (status, ""), "{}", ran.stderr);
    ran.stderr
}

/// Negotiates the version and reads the DMA core's identifier: that of H2C channel 0.
fn use_it(socket: &Path) {
    assert_eq!(identifier(socket), [0xC0, 0x1F]);
}

/// Upper half of the identifier register of H2C channel 0.
fn identifier(socket: &Path) -> [u8; 2] {
    let long = Duration::from_secs(120);
    let connection = Connection::connect(socket, long).unwrap();
    let access = RegionAccess { offset: 0, region: 1, count: 4 };
    let (mut body, mut fds) = (Vec::new(), Vec::new());
    for request in [Request::Version(Version::default()), Request::RegionRead(access)] {
        let mut out = Vec::new();
        encode_request(1, false, &request, &mut out);
        connection.send(&out, &[], long).unwrap();
        connection.receive(&mut body, &mut fds, long).unwrap();
    }
    [body[18], body[19]]
}

/// A server accepts connections and does not answer: the wait ends at the option's timeout, and the error names the unanswered message.
#[test]
fn unresponsive_server_is_given_up_at_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("silent");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let card = format!("vfio-user:{}", socket.display());
    let said = fails(&["info", "--card", &card, "--message-timeout", "20ms"], 1);
    assert!(said.contains("VERSION") && said.contains("did not answer within 20ms"), "{said}");
    for wrong in ["0s", "5", "soon"] {
        assert!(fails(&["info", "--message-timeout", wrong], 2).contains("--message-timeout"));
    }
}

#[test]
fn serve_until_signal_writes_statistics() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let (socket, stats) = (folder.path().join("card"), folder.path().join("stats.json"));
        let (path, stats_path) = (socket.to_str().unwrap(), stats.to_str().unwrap());
        let server = Server::start(&["--socket", path, "--stats", stats_path], &format!("ready {path}\n"));
        use_it(&socket);
        use_it(&socket);
        // A second server is refused, the first continues.
        let other = fails(&["card", "serve", "--socket", path], 1);
        assert!(other.contains("socket of a running server"), "{other}");
        use_it(&socket);
        assert_eq!(server.end(signal), Some(0));
        assert!(!socket.exists());
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&stats).unwrap()).unwrap();
        assert_eq!((report["schema_version"].as_u64(), report["mmio_reads"].as_u64()), (Some(1), Some(3)));
        assert_eq!(report["messages"], 6);
        // The refused server checked whether another one listens.
        assert!(report["connections"].as_u64().unwrap() >= 3);
        for key in
            ["descriptors", "dma_bytes", "interrupts", "refused_dma_reads", "refused_dma_writes", "faults"]
        {
            assert_eq!(report[key], 0, "{key}");
        }
        assert_eq!(report["fault_log"], serde_json::json!([]));
    }
}

/// Packets stay in a served card's loopback between two programs.
#[test]
fn served_card_with_streams_works() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("card");
    let path = socket.to_str().unwrap();
    let arguments = ["--socket", path, "--card-file", "us-plus-x8-stream"];
    let server = Server::start(&arguments, &format!("ready {path}\n"));
    let card = format!("vfio-user:{path}");
    let run = |arguments: &[&str]| fpgactl(&[arguments, &["--card", &card]].concat()).ok();
    let sent = file(folder.path(), "in", crate::support::pattern(5000));
    let got = folder.path().join("out");
    let (sent_path, got_path) = (sent.to_str().unwrap(), got.to_str().unwrap());
    assert!(run(&["info"]).stdout.contains("AXI4-Stream"));
    let report = run(&["dma", "write", sent_path, "--packet", "1000", "--json"]).json();
    assert_eq!((&report["bytes"], &report["packets"]), (&5000.into(), &5.into()));
    let report = run(&["dma", "read", "--packets", "5", "--out", got_path, "--json"]).json();
    assert_eq!((&report["bytes"], &report["packets"]), (&5000.into(), &5.into()));
    assert_eq!(std::fs::read(&got).unwrap(), std::fs::read(&sent).unwrap());
    let report = run(&["validate", "--streams", "--json"]).json();
    let failed: Vec<_> =
        report["tests"].as_array().unwrap().iter().filter(|test| test["status"] == "fail").collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(server.end(Signal::TERM), Some(0));
}

#[test]
fn serve_replaces_socket_of_killed_server() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("card");
    let path = socket.to_str().unwrap();
    let card =
        file(folder.path(), "card.yaml", "schema_version: 2\nxdma: {h2c_channels: 1, c2h_channels: 1}\n");
    let arguments = ["--socket", path, "--card-file", card.to_str().unwrap()];
    let server = Server::start(&arguments, &format!("ready {path}\n"));
    assert_eq!(server.end(Signal::KILL), None);
    assert!(socket.exists());
    let json = ["--socket", path, "--card-file", "us-x8", "--json"];
    let server = Server::start(&json, &format!("{{\"schema_version\":1,\"ready\":\"{path}\"}}\n"));
    use_it(&socket);
    assert_eq!(server.end(Signal::TERM), Some(0));
}

/// A connected client finds an empty slot, not a lost connection; and later a card again.
#[test]
fn served_card_unplugged_replugged_and_failed() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, control) = (folder.path().join("card"), folder.path().join("control"));
    let (path, control) = (socket.to_str().unwrap(), control.to_str().unwrap());
    let server = Server::start(&["--socket", path, "--control", control], &format!("ready {path}\n"));
    let tell = |words: &[&str]| fpgactl(&[&["card", "control", control], words].concat());
    use_it(&socket);
    assert_eq!(tell(&["pull-out"]).ok().stdout, "the card is pulled out of its slot\n");
    assert_eq!(identifier(&socket), [0xFF, 0xFF]);
    tell(&["put-back"]).ok();
    use_it(&socket);
    let plan = file(folder.path(), "plan.yaml", "list:\n  - {fault: all_ones, skip: 1}\n");
    tell(&["faults", plan.to_str().unwrap()]).ok();
    use_it(&socket);
    assert_eq!(identifier(&socket), [0xFF, 0xFF]);
    let state = tell(&["state", "--json"]).ok().json();
    assert_eq!(state["faults"], serde_json::json!([{"opportunities": 2, "strikes": 1}]));
    tell(&["faults"]).ok();
    tell(&["put-back"]).ok();
    use_it(&socket);
    // User logic requests an interrupt, and holds the request.
    let card = format!("vfio-user:{path}");
    for (level, pending) in [("on", "0x00000008"), ("off", "0x00000000")] {
        tell(&["user-interrupt", "3", level]).ok();
        let seen = fpgactl(&["peek", "dma", "0x2048", "1", "--card", &card]).ok().stdout;
        assert!(seen.contains(pending), "{level}: {seen}");
    }
    assert!(fails(&["card", "control", control, "user-interrupt", "16", "on"], 2).contains("give 0 to 15"));
    // An invalid plan is reported before any request.
    let plan = file(folder.path(), "wrong.yaml", "list:\n  - {fault: all_ones, often: 1}\n");
    let said = fails(&["card", "control", control, "faults", plan.to_str().unwrap()], 1);
    assert!(said.contains("wrong.yaml") && said.contains("often"), "{said}");
    let plan = file(folder.path(), "wrong.yaml", "list:\n  - {fault: late_interrupt}\n");
    let said = fails(&["card", "control", control, "faults", plan.to_str().unwrap()], 1);
    assert!(said.contains("faults.list[0]") && said.contains("delay_ns"), "{said}");
    let plan = file(folder.path(), "wrong.yaml", format!("list:\n  - {{fault: {}}}\n", "x".repeat(200_000)));
    let said = fails(&["card", "control", control, "faults", plan.to_str().unwrap()], 1);
    assert!(said.contains("(200000 characters)") && said.len() < 2000, "{}", said.len());
    assert_eq!(server.end(Signal::TERM), Some(0));
    let said = fails(&["card", "control", control, "state"], 1);
    assert!(said.contains("no control socket") && said.contains("--control"), "{said}");
}

/// A typical fault diagnosis: inspect without changing anything, find the hung engine, recover the card.
#[test]
fn served_card_hung_engine_is_inspected_and_recovered() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, control) = (folder.path().join("card"), folder.path().join("control"));
    let (path, control) = (socket.to_str().unwrap(), control.to_str().unwrap());
    let server = Server::start(&["--socket", path, "--control", control], &format!("ready {path}\n"));
    let card = format!("vfio-user:{path}");
    // Some commands wait for the hung engine until their limit.
    let within = |limit, words: &[&str]| fpgactl(&[&["--card", &card, "--timeout", limit], words].concat());
    let on = |words: &[&str]| within("10s", words);
    let plan = file(folder.path(), "plan.yaml", "list:\n  - {fault: stall, channel: h2c0}\n");
    fpgactl(&["card", "control", control, "faults", plan.to_str().unwrap()]).ok();
    let data = file(folder.path(), "data", "sixteen bytes ..");
    let ran = within("300ms", &["dma", "write", data.to_str().unwrap(), "--addr", "0"]);
    assert!(ran.status == 1 && ran.stderr.contains("h2c0") && ran.stderr.contains("busy"), "{}", ran.stderr);
    // The engine still hangs after each inspection.
    for _ in 0..2 {
        assert!(on(&["peek", "dma", "0x40"]).ok().stdout.contains("0x00000001"));
        assert_eq!(on(&["regs", "read", "h2c0.status", "--json"]).ok().json()["value"], 1);
        on(&["regs", "dump"]).ok();
        assert!(on(&["info"]).ok().stdout.contains("0x10ee"));
        let sample = on(&["top", "--once", "--json"]).ok().json();
        let channel = &sample["ends"][0]["channels"][0];
        assert_eq!((&channel["name"], &channel["state"]), (&"h2c0".into(), &"stopping".into()), "{sample}");
        // Without a time limit: examining the machine takes time.
        let report = folder.path().join("report.txt");
        fpgactl(&["dump", "--card", &card, "--out", report.to_str().unwrap()]).ok();
        let text = std::fs::read_to_string(&report).unwrap();
        let status = text.lines().find(|line| line.contains(" h2c0.status ")).unwrap();
        assert!(status.contains("0x00000001") && status.contains("busy"), "{status}");
        assert!(!text.contains(path), "the report contains the path of the socket");
        let plan = on(&["validate", "--plan"]).ok().stdout;
        assert!(plan.contains("h2c0 is transferring data") && plan.contains("nothing was tested"), "{plan}");
    }
    let said = on(&["poke", "dma", "4", "0"]).stderr;
    assert!(said.contains("h2c0 is running") && said.contains("--force"), "{said}");
    let ran = on(&["validate", "--json"]);
    let test = &ran.json()["tests"][0];
    assert_eq!((ran.status, &test["name"], &test["status"]), (1, &"card.open".into(), &"fail".into()));
    assert!(test["message"].as_str().unwrap().contains("fpgactl reset --level bus"), "{test}");
    // Another channel is healthy, and the hung one is not mentioned.
    let said = on(&["abort", "--channel", "c2h1"]).ok().stdout;
    assert!(said.contains("c2h1: idle; no other part"), "{said}");
    assert_eq!(within("300ms", &["abort", "--channel", "0"]).status, 1);
    // A served card has no bus to reset: the function-level reset is as much as there is, and the card works after it.
    let ran = within("1s", &["reset", "--level", "bus", "--json"]);
    let report = ran.json();
    assert_eq!((&report["well"], &report["was_reset"]), (&true.into(), &true.into()));
    assert_eq!((ran.status, &report["reached"]), (0, &"function".into()), "{}", ran.stderr);
    let warning = ["level bus was not reached", "works after a reset of level function"];
    assert!(warning.iter().all(|part| ran.stderr.contains(part)), "{}", ran.stderr);
    assert_eq!(on(&["reset"]).status, 0);
    use_it(&socket);
    assert_eq!(server.end(Signal::TERM), Some(0));
}

/// A card has one user at a time: the next one gets an error that names the user and the remedy, and gets the card when it is free.
#[test]
fn served_card_in_use_is_reported_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("card");
    let path = socket.to_str().unwrap();
    let server = Server::start(&["--socket", path], &format!("ready {path}\n"));
    let card = format!("vfio-user:{path}");
    let first = fpga_vfio_user::VfioUserBackend::open(&socket).unwrap();
    let said = fails(&["info", "--card", &card], 1);
    for part in [path, "in use", "another client", "end the program"] {
        assert!(said.contains(part), "{said}");
    }
    drop(first);
    fpgactl(&["info", "--card", &card]).ok();
    assert_eq!(server.end(Signal::TERM), Some(0));
}

#[test]
fn serve_invalid_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let there = file(folder.path(), "file", "precious");
    let path = there.to_str().unwrap();
    let message = fails(&["card", "serve", "--socket", path], 1);
    assert!(message.contains("is not a socket"), "{message}");
    assert_eq!(std::fs::read(&there).unwrap(), b"precious");
    let socket = folder.path().join("card");
    let socket = socket.to_str().unwrap();
    let missing = folder.path().join("no").join("stats");
    let message = fails(&["card", "serve", "--socket", socket, "--stats", missing.to_str().unwrap()], 1);
    assert!(message.contains("cannot write it"), "{message}");
    let message = fails(&["card", "serve", "--socket", socket, "--card-file", "no-such"], 2);
    assert!(message.contains("no built-in card"), "{message}");
    let message = fails(&["card", "serve", "--socket", socket, "--card", "0000:65:00.0"], 2);
    assert!(message.contains("is not a simulated card"), "{message}");
    fails(&["card", "serve"], 2);
}

/// Addresses that are unused at the moment.
fn free_ports<const COUNT: usize>() -> [String; COUNT] {
    let sockets = [(); COUNT].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| format!("udp:{}", socket.local_addr().unwrap()))
}

fn link_stats(stats: &Path) -> serde_json::Value {
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(stats).unwrap()).unwrap();
    report["link"].clone()
}

/// Two processes with a card each, and a third that sends from one to the other: every byte goes over the loopback interface.
#[test]
fn served_cards_exchange_packets_by_udp() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [one, two] = free_ports();
    let (a, b, a_stats, b_stats) = (path("a"), path("b"), path("a.json"), path("b.json"));
    let ready = |socket: &str| format!("ready {socket}\n");
    let first = ["--socket", &a, "--node", "1", "--link", &one, "--link", &two, "--stats", &a_stats];
    let second = ["--socket", &b, "--node", "2", "--link", &two, "--link", &one, "--stats", &b_stats];
    // Both lose one packet in fifty, and reorder the others.
    let key = link_key(folder.path(), "a5");
    let more = ["--loss", "2%", "--reorder", "16", "--link-key", &key];
    let first = Server::start(&[&first[..], &more].concat(), &ready(&a));
    let second = Server::start(&[&second[..], &more].concat(), &ready(&b));
    let (card, peer) = (format!("vfio-user:{a}"), format!("vfio-user:{b}"));
    let ran = fpgactl(&["transfer", "--json", "--card", &card, "--peer", &peer, "--size", "300000"]).ok();
    let report = ran.json();
    assert_eq!(
        (&report["verified"], &report["bytes"], &report["leftovers"]),
        (&true.into(), &300_000.into(), &0.into())
    );
    assert!(report["retransmits"].as_u64().unwrap() > 0, "{report}");
    // The other direction, and the counters of the cards, which are inspected in their current state.
    fpgactl(&["transfer", "--json", "--card", &peer, "--peer", &card, "--size", "20000"]).ok();
    let stats = fpgactl(&["stats", "--json", "--card", &card]).ok().json();
    assert!(stats["ends"][0]["interface"]["registrations"].as_u64().unwrap() >= 2, "{stats}");
    let registry = fpgactl(&["registry", "--json", "--card", &card]).ok().json();
    assert_eq!((&registry["occupancy"], &registry["mirror"]), (&0.into(), &serde_json::Value::Null));
    // A load between them, sample by sample, and one of them in its current state.
    let top = ["top", "--json", "--count", "2", "--interval", "20ms"];
    let both =
        fpgactl(&[&top[..], &["--card", &card, "--peer", &peer, "--size", "64KiB"]].concat()).ok().stdout;
    let samples: Vec<serde_json::Value> =
        both.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(samples.len() == 2 && samples[1]["goodput_gb_per_s"].is_number(), "{both}");
    // Their clock advances whether this process runs or not: their progress is unknown.
    assert!(
        samples[1]["transfers"].is_number() && samples[1]["span_us"].as_f64().unwrap() >= 20_000.0,
        "{both}"
    );
    let text = fpgactl(&["top", "--once", "--card", &peer]).ok().stdout;
    assert!(text.contains("card      h2c0 -") && text.contains("registry"), "{text}");
    for server in [first, second] {
        assert_eq!(server.end(Signal::TERM), Some(0));
    }
    for stats in [a_stats, b_stats] {
        let link = link_stats(Path::new(&stats));
        assert!(link["sent"].as_u64().unwrap() > 0 && link["received"].as_u64().unwrap() > 0, "{link}");
        assert_eq!((&link["malformed"], &link["misdirected"]), (&0.into(), &0.into()));
        assert_eq!((&link["unauthenticated"], &link["replayed"]), (&0.into(), &0.into()));
    }
}

/// As by UDP, but through memory that the two processes share; one of them is killed and started again.
#[test]
fn served_cards_exchange_packets_by_shared_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (a, b, a_stats, b_stats) = (path("a"), path("b"), path("a.json"), path("b.json"));
    let [one, two] = ["one", "two"].map(|name| format!("shm:{}", path(name)));
    let ready = |socket: &str| format!("ready {socket}\n");
    let first = ["--socket", &a, "--node", "1", "--link", &one, "--link", &two, "--stats", &a_stats];
    let second = ["--socket", &b, "--node", "2", "--link", &two, "--link", &one, "--stats", &b_stats];
    let lossy = ["--loss", "2%", "--reorder", "16"];
    let first = Server::start(&[&first[..], &lossy].concat(), &ready(&a));
    let start_second = || Server::start(&[&second[..], &lossy].concat(), &ready(&b));
    let (card, peer) = (format!("vfio-user:{a}"), format!("vfio-user:{b}"));
    let transfer = |card: &str, peer: &str| {
        let ran = fpgactl(&["transfer", "--json", "--card", card, "--peer", peer, "--size", "300000"]).ok();
        let report = ran.json();
        assert_eq!((&report["verified"], &report["leftovers"]), (&true.into(), &0.into()), "{report}");
        assert!(report["retransmits"].as_u64().unwrap() > 0, "{report}");
    };
    let killed = start_second();
    transfer(&card, &peer);
    // Killed: its sockets stay.
    drop(killed);
    let second = start_second();
    transfer(&peer, &card);
    transfer(&card, &peer);
    for server in [first, second] {
        assert_eq!(server.end(Signal::TERM), Some(0));
    }
    for stats in [a_stats, b_stats] {
        let link = link_stats(Path::new(&stats));
        assert!(link["sent"].as_u64().unwrap() > 0 && link["received"].as_u64().unwrap() > 0, "{link}");
        assert_eq!((&link["malformed"], &link["misdirected"]), (&0.into(), &0.into()));
    }
    for socket in ["a", "b", "one", "two"] {
        assert!(!folder.path().join(socket).exists(), "{socket} was not removed");
    }
}

/// Every command for a card in this process also works on one that another process serves, and on two of them.
#[test]
fn every_command_works_on_served_cards() {
    let [one, two] = free_ports();
    let first = Served::with(&["--node", "1", "--link", &one, "--link", &two]);
    let second = Served::with(&["--node", "2", "--link", &two, "--link", &one]);
    let (card, peer) = (first.card(), second.card());
    let place = CommandEnvironment::new();
    let mut tried = 0;
    for Listed { words, status } in commands() {
        let cards = match words.split(' ').next().unwrap() {
            // They have no card, or others; `events` runs until a signal.
            "list" | "doctor" | "bind" | "release" | "card" | "stream" | "sim" | "completions" | "man"
            | "events" | "--help" | "--version" => continue,
            "transfer" | "ops" | "queues" | "registry" | "escape" | "stats" | "top" => {
                vec!["--card", &card, "--peer", &peer]
            }
            _ => vec!["--card", card.as_str()],
        };
        // The served cards themselves determine the impairments between them.
        let words = place.words(&words.replace(" --loss 5%", "").replace(" --hop 4Gbit", ""));
        let words: Vec<&str> = words.iter().map(String::as_str).chain(cards).collect();
        let ran = fpgactl(&words);
        assert_eq!(ran.status, status, "{words:?}: {}", ran.stderr);
        tried += 1;
    }
    assert!(tried > 25, "{tried}");
}

/// Creates a file with the key of a link.
fn link_key(folder: &Path, digits: &str) -> String {
    let path = folder.join(format!("key-{digits}"));
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    file.unwrap().write_all(digits.repeat(32).as_bytes()).unwrap();
    path.display().to_string()
}

/// Invalid datagrams from an unknown sender, and from the peer's own address, reach no card.
#[test]
fn served_card_invalid_datagrams_are_counted() {
    invalid_datagrams_are_counted(false);
}

#[test]
fn served_card_datagrams_without_tag_are_counted() {
    invalid_datagrams_are_counted(true);
}

fn invalid_datagrams_are_counted(has_key: bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [here] = free_ports();
    let address = here.trim_start_matches("udp:").to_owned();
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (socket, stats) = (path("card"), path("stats.json"));
    let other = format!("udp:{}", peer.local_addr().unwrap());
    let key = link_key(folder.path(), "5a");
    let mut arguments = vec!["--socket", &socket, "--link", &here, "--link", &other, "--stats", &stats];
    if has_key {
        arguments.extend(["--link-key", &key]);
    }
    let server = Server::start(&arguments, &format!("ready {socket}\n"));
    for length in [0, 1, 15, 16, 100, 1472, 9000] {
        peer.send_to(&vec![0xA5; length], &address).unwrap();
        stranger.send_to(&vec![0xA5; length], &address).unwrap();
    }
    // The card continues. Its answer follows the processing of the datagrams, which arrived before.
    use_it(Path::new(&socket));
    use_it(Path::new(&socket));
    assert_eq!(server.end(Signal::TERM), Some(0));
    let link = link_stats(Path::new(&stats));
    let (malformed, unauthenticated) = if has_key { (0, 7) } else { (7, 0) };
    assert_eq!(
        (&link["malformed"], &link["unauthenticated"], &link["strangers"], &link["received"]),
        (&malformed.into(), &unauthenticated.into(), &7.into(), &0.into())
    );
}

#[test]
fn serve_invalid_links_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("card").display().to_string();
    let serve =
        |more: &[&str], status| fails(&[&["card", "serve", "--socket", &socket], more].concat(), status);
    for wrong in ["10.0.0.1:7", "tcp:10.0.0.1:7", "udp:10.0.0.1", "udp:", "shm:"] {
        assert!(serve(&["--link", wrong], 2).contains("is not a link"), "{wrong}");
    }
    let message = serve(&["--link", "udp:192.0.2.1:7000"], 1);
    assert!(message.contains("address of this machine"), "{message}");
    let message = serve(&["--link", "udp:127.0.0.1:0", "--link", "udp:[::1]:7"], 1);
    assert!(message.contains("IPv6"), "{message}");
    let link = format!("shm:{socket}.link");
    let message = serve(&["--link", &link, "--link", "udp:127.0.0.1:7"], 2);
    assert!(message.contains("ends of one kind"), "{message}");
    let message = serve(&["--link", &link, "--link", &link], 1);
    assert!(message.contains("its own peer"), "{message}");
    // Packets that do not fit: reported with numbers, before a client can connect.
    let card = file(folder.path(), "big.yaml", "schema_version: 3\nni: {packet_size: 4096}\n");
    let card = card.to_str().unwrap();
    let message = serve(&["--card-file", card, "--link", "udp:127.0.0.1:0"], 1);
    assert!(message.contains("4204") && message.contains("1472") && message.contains("1500"), "{message}");
    assert!(serve(&["--link-mtu", "9000"], 2).contains("--link"), "the message does not name --link");
    let (key, short) = (link_key(folder.path(), "ab"), link_key(folder.path(), "c"));
    let message = serve(&["--link", &link, "--link-key", &key], 2);
    assert!(message.contains("shared memory"), "{message}");
    let udp = ["--link", "udp:127.0.0.1:0", "--link-key"];
    let message = serve(&[&udp[..], &[&short]].concat(), 1);
    assert!(message.contains("64 hexadecimal digits"), "{message}");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let message = serve(&[&udp[..], &[&key]].concat(), 1);
    assert!(message.contains("mode 644"), "{message}");
    let message = serve(&[&udp[..], &["/nonexistent"]].concat(), 1);
    assert!(message.contains("link key /nonexistent"), "{message}");
}

/// Accesses of the driver, of the self-test, and of the command itself.
#[test]
fn record_has_every_counted_access() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (socket, stats, log) = (at("card"), at("stats.json"), at("log"));
    let server = Server::start(&["--socket", &socket, "--stats", &stats], &format!("ready {socket}\n"));
    let data = file(folder.path(), "data", crate::support::pattern(5000)).display().to_string();
    let card = format!("vfio-user:{socket}");
    let mut recorded = (0, 0);
    for words in [
        &["info"][..],
        &["regs", "dump"],
        &["regs", "write", "ni.threshold", "0x8000"],
        &["peek", "dma", "0", "4"],
        &["poke", "dma", "0x90", "0"],
        &["dma", "write", &data, "--addr", "0"],
        &["cdma", "copy", "--src", "0", "--dst", "0x10000", "--len", "5000"],
        &["validate", "--scratch", "0", "--scratch-size", "64KiB"],
        &["abort"],
        &["reset"],
    ] {
        fpgactl(&[words, &["--card", &card, "--record", &log]].concat()).ok();
        let text = std::fs::read_to_string(&log).unwrap();
        let count =
            |way: &str| text.lines().filter(|line| line.split_ascii_whitespace().nth(1) == Some(way)).count();
        recorded = (recorded.0 + count("read"), recorded.1 + count("write"));
    }
    assert_eq!(server.end(Signal::TERM), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&stats).unwrap()).unwrap();
    assert_eq!((&report["mmio_reads"], &report["mmio_writes"]), (&recorded.0.into(), &recorded.1.into()));
}
