//! `stream publish` and `stream subscribe`: separate programs, linked by UDP.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Served, file, fpgactl, pattern};

/// Unused addresses: they were free a moment ago.
fn addresses<const N: usize>() -> [String; N] {
    let sockets = [(); N].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| format!("udp:{}", socket.local_addr().unwrap()))
}

fn start(args: &[&str]) -> Child {
    spawn(args, Stdio::null())
}

/// Address for subscribers, from the publisher's output.
fn ready(lines: &mut impl BufRead) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line.trim().strip_prefix("ready ").unwrap().to_owned()
}

fn spawn(args: &[&str], stdin: Stdio) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    command.args(["--json", "--timeout", "5m", "stream"]).args(args);
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The program's only document, after its end.
fn report(mut child: Child) -> Value {
    let (mut out, mut error) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut error).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(0), "{out}{error}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn stream_file_reaches_two_subscribers() {
    let folder = tempfile::tempdir().unwrap();
    let data = pattern(300_001);
    let source = file(folder.path(), "source", &data);
    let [publisher, first, second] = addresses();
    let links = ["--link", &publisher, "--link", &first, "--link", &second];
    let publish =
        [source.to_str().unwrap(), "--frame", "16KiB", "--subscribers", "2", "--listen", "127.0.0.1:0"];
    let mut publishing = start(&[&["publish"][..], &publish, &links].concat());
    // The pipe is kept open until the program has ended.
    let mut lines = BufReader::new(publishing.stderr.take().unwrap());
    let address = ready(&mut lines);
    let folder = folder.path().join("frames");
    let subscribe = |node: &'static str, own: &str, more: &[&str]| {
        start(
            &[&["subscribe", &address, "--node", node, "--link", own, "--link", &publisher][..], more]
                .concat(),
        )
    };
    let writing = subscribe("2", &first, &["--out", folder.to_str().unwrap()]);
    let checking = subscribe("3", &second, &[]);
    let published = report(publishing);
    assert_eq!(
        (&published["schema_version"], &published["published"]),
        (&1.into(), &19.into()),
        "{published}"
    );
    for subscriber in [writing, checking] {
        let read = report(subscriber);
        assert_eq!((&read["frames"], &read["bytes"]), (&19.into(), &data.len().into()), "{read}");
        assert_eq!((&read["missed"], &read["damaged"]), (&0.into(), &0.into()), "{read}");
    }
    let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let read: Vec<u8> = names.iter().flat_map(|name| std::fs::read(name).unwrap()).collect();
    assert!(read == data);
}

/// Standard output contains only the frames: a program behind a pipe reads the published data.
#[test]
fn stream_subscribe_stdout_has_frames_only() {
    let folder = tempfile::tempdir().unwrap();
    let data = pattern(100_003);
    let source = file(folder.path(), "source", &data);
    let [publisher, own] = addresses();
    let args = ["publish", source.to_str().unwrap(), "--frame", "4KiB", "--listen", "127.0.0.1:0"];
    let mut publishing = start(&[&args[..], &["--link", &publisher, "--link", &own]].concat());
    let mut lines = BufReader::new(publishing.stderr.take().unwrap());
    let address = ready(&mut lines);
    let subscribe = ["--timeout", "5m", "stream", "subscribe", &address, "--out", "-"];
    let links = ["--node", "2", "--link", &own, "--link", &publisher];
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    let read = command.args(subscribe).args(links).output().unwrap();
    let said = String::from_utf8(read.stderr).unwrap();
    assert!(read.status.success() && said.contains("by the publisher"), "{said}");
    assert!(read.stdout == data, "{} bytes", read.stdout.len());
    assert_eq!(report(publishing)["published"], 25);
}

/// The publisher's input is slow: subscribers can join and receive heartbeats, and Ctrl-C would be handled.
#[test]
fn stream_publish_waiting_stdin_does_not_block_subscribers() {
    let [publisher, own] = addresses();
    let args =
        ["publish", "-", "--frame", "1000", "--listen", "127.0.0.1:0", "--link", &publisher, "--link", &own];
    let mut publishing = spawn(&args, Stdio::piped());
    let mut feed = publishing.stdin.take().unwrap();
    let mut lines = BufReader::new(publishing.stderr.take().unwrap());
    let address = ready(&mut lines);
    let subscribe =
        ["subscribe", &address, "--every", "1ms", "--node", "2", "--link", &own, "--link", &publisher];
    let mut reading = start(&subscribe);
    let mut reports = BufReader::new(reading.stdout.take().unwrap()).lines();
    // It is a subscriber, although nothing was published.
    let first: Value = serde_json::from_str(&reports.next().unwrap().unwrap()).unwrap();
    assert_eq!((&first["schema_version"], &first["frames"]), (&1.into(), &0.into()), "{first}");
    // Half a frame, the rest of it, one and a half, in parts.
    for piece in [500, 500, 1_000, 300, 200] {
        feed.write_all(&pattern(piece)).unwrap();
    }
    drop(feed);
    let published = report(publishing);
    assert_eq!((&published["published"], &published["bytes"]), (&3.into(), &2_500.into()), "{published}");
    let last: Value = serde_json::from_str(&reports.last().unwrap().unwrap()).unwrap();
    assert_eq!((&last["frames"], &last["bytes"]), (&3.into(), &2_500.into()), "{last}");
    assert_eq!((&last["checked"], &last["ended"]), (&3.into(), &true.into()), "{last}");
    assert_eq!(reading.wait().unwrap().code(), Some(0));
}

/// The publisher is killed: the received frames are still reported, and the exit status differs from that of a normal end.
#[test]
fn stream_lost_publisher_differs_from_end() {
    let [publisher, own] = addresses();
    let heartbeat = ["--heartbeat", "100ms", "--count", "5"];
    let args =
        ["publish", "-", "--frame", "100", "--listen", "127.0.0.1:0", "--link", &publisher, "--link", &own];
    let mut publishing = spawn(&[&args[..], &heartbeat].concat(), Stdio::piped());
    let mut feed = publishing.stdin.take().unwrap();
    let mut lines = BufReader::new(publishing.stderr.take().unwrap());
    let address = ready(&mut lines);
    // Ten heartbeats: the publisher must not seem to be lost before it is killed.
    let subscribe = ["subscribe", &address, "--every", "1ms", "--max-silence", "1s", "--node", "2"];
    let mut reading = start(&[&subscribe[..], &["--link", &own, "--link", &publisher]].concat());
    feed.write_all(&pattern(300)).unwrap();
    let mut reports = BufReader::new(reading.stdout.take().unwrap()).lines();
    let three = |line: &Value| line["frames"] == 3;
    while !three(&serde_json::from_str(&reports.next().unwrap().unwrap()).unwrap()) {}
    publishing.kill().unwrap();
    publishing.wait().unwrap();
    let last: Value = serde_json::from_str(&reports.last().unwrap().unwrap()).unwrap();
    assert_eq!((&last["frames"], &last["ended"]), (&3.into(), &false.into()), "{last}");
    let mut said = String::new();
    reading.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(reading.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("after 3 frames") && said.contains("help: join the stream again"), "{said}");
}

/// Cards of other processes: a stream of real cards is the same for the program.
#[test]
fn stream_between_served_cards() {
    let [first, second] = addresses();
    let publishing_card = Served::with(&["--node", "1", "--link", &first, "--link", &second]);
    let subscribing_card = Served::with(&["--node", "2", "--link", &second, "--link", &first]);
    let card = ["--card", &publishing_card.card()];
    let args =
        ["publish", "--listen", "127.0.0.1:0", "--frame", "40KiB", "--mostly", "2KiB", "--count", "100"];
    let mut publishing = start(&[&args[..], &card].concat());
    let mut lines = BufReader::new(publishing.stderr.take().unwrap());
    let address = ready(&mut lines);
    let reading = start(&["subscribe", &address, "--card", &subscribing_card.card()]);
    let published = report(publishing);
    let read = report(reading);
    assert_eq!((&published["node"], &published["published"]), (&1.into(), &100.into()), "{published}");
    assert_eq!((&published["undelivered"], &published["failed"]), (&0.into(), &0.into()), "{published}");
    assert_eq!((&read["node"], &read["publisher"]), (&2.into(), &1.into()), "{read}");
    assert_eq!((&read["frames"], &read["checked"]), (&100.into(), &100.into()), "{read}");
    assert_eq!((&read["missed"], &read["ended"]), (&0.into(), &true.into()), "{read}");
    assert_eq!(read["bytes"], published["bytes"], "frames of many lengths: {read}");
    assert!(read["bytes"].as_u64() < Some(100 * 20 * 1024), "most of them short: {read}");
}

/// One of two subscribers is stopped, as by a debugger: its frames cannot arrive, and the publisher reports that.
///
/// It needs its time for the silence after which the publisher removes a subscriber.
#[test]
fn stream_stopped_subscriber_is_reported() {
    let [publisher, first, second] = addresses();
    let links = ["--link", &publisher, "--link", &first, "--link", &second];
    let args = ["publish", "-", "--frame", "100", "--subscribers", "2", "--listen", "127.0.0.1:0"];
    // Long enough for the other subscriber, which answers within milliseconds.
    let limit = ["--max-silence", "1s"];
    let mut publishing = spawn(&[&args[..], &limit, &links].concat(), Stdio::piped());
    let mut feed = publishing.stdin.take().unwrap();
    let mut lines = BufReader::new(publishing.stderr.take().unwrap());
    let address = ready(&mut lines);
    let subscribe = |node: &'static str, own: &str| {
        start(&["subscribe", &address, "--every", "1ms", "--node", node, "--link", own, "--link", &publisher])
    };
    let mut reading = subscribe("2", &first);
    let mut stopped = subscribe("3", &second);
    // Each is a subscriber when it reports.
    let mut reports = BufReader::new(reading.stdout.take().unwrap()).lines();
    let mut others = BufReader::new(stopped.stdout.take().unwrap()).lines();
    reports.next().unwrap().unwrap();
    others.next().unwrap().unwrap();
    let pid = Pid::from_raw(i32::try_from(stopped.id()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    feed.write_all(&pattern(800)).unwrap();
    drop(feed);
    let (mut out, mut said) = (String::new(), String::new());
    publishing.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    lines.read_to_string(&mut said).unwrap();
    let status = publishing.wait().unwrap().code();
    stopped.kill().unwrap();
    stopped.wait().unwrap();
    let published: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status, Some(1), "{published} {said}");
    assert_eq!((&published["published"], &published["undelivered"]), (&8.into(), &8.into()), "{published}");
    assert!(
        said.contains("WARN") && said.contains("node 3") && said.contains("was removed from the stream"),
        "{said}"
    );
    assert!(said.contains("fpgactl: of the accepted frames, 8 frames did not arrive"), "{said}");
    // The other one has received everything, and was notified of the end.
    let last: Value = serde_json::from_str(&reports.last().unwrap().unwrap()).unwrap();
    assert_eq!((&last["frames"], &last["ended"]), (&8.into(), &true.into()), "{last}");
    assert_eq!(reading.wait().unwrap().code(), Some(0));
}

/// A delayed publisher makes up for a small backlog, and reports the frames that it skips.
#[test]
fn stream_rate_backlog_is_bounded() {
    let [publisher, own] = addresses();
    let args = ["publish", "-", "--frame", "10", "--rate", "1000", "--listen", "127.0.0.1:0"];
    let mut publishing =
        spawn(&[&args[..], &["--link", &publisher, "--link", &own]].concat(), Stdio::piped());
    let mut feed = publishing.stdin.take().unwrap();
    let mut lines = BufReader::new(publishing.stderr.take().unwrap());
    let address = ready(&mut lines);
    let mut reading = start(&[
        "subscribe",
        &address,
        "--every",
        "100ms",
        "--node",
        "2",
        "--link",
        &own,
        "--link",
        &publisher,
    ]);
    // Reports come every tenth of a second: after these, more frames are due than it makes up for.
    let mut reports = BufReader::new(reading.stdout.take().unwrap()).lines();
    for _ in 0..5 {
        reports.next().unwrap().unwrap();
    }
    feed.write_all(&pattern(10)).unwrap();
    drop(feed);
    let published = report(publishing);
    assert_eq!(published["published"], 1, "{published}");
    assert!(published["late"].as_u64() >= Some(200), "{published}");
    assert!(reports.last().is_some());
    assert_eq!(reading.wait().unwrap().code(), Some(0));
}

/// A frame is due at every moment, and mostly no subscriber has a free slot: the publisher's card works all the same.
#[test]
fn stream_publisher_behind_its_rate_keeps_sending() {
    let [publisher, own] = addresses();
    let args = ["publish", "--rate", "10000000", "--frame", "100", "--listen", "127.0.0.1:0"];
    let mut publishing = start(&[&args[..], &["--link", &publisher, "--link", &own]].concat());
    let mut lines = BufReader::new(publishing.stderr.take().unwrap());
    let address = ready(&mut lines);
    let subscribe = ["subscribe", &address, "--count", "200", "--node", "2"];
    let reading = start(&[&subscribe[..], &["--link", &own, "--link", &publisher]].concat());
    let read = report(reading);
    assert_eq!(
        (&read["frames"], &read["checked"], &read["ended"]),
        (&200.into(), &200.into(), &false.into())
    );
    kill_process(Pid::from_child(&publishing), Signal::TERM).unwrap();
    let published = report(publishing);
    assert!(published["published"].as_u64() >= Some(200), "{published}");
}

/// A name often has an IPv4 and an IPv6 address, and a publisher listens on one of them.
#[test]
fn stream_publisher_is_found_by_name() {
    let [publisher, own] = addresses();
    let args = ["publish", "--count", "3", "--frame", "100", "--listen", "127.0.0.1:0"];
    let mut publishing = start(&[&args[..], &["--link", &publisher, "--link", &own]].concat());
    let mut lines = BufReader::new(publishing.stderr.take().unwrap());
    let address = ready(&mut lines).replace("127.0.0.1", "localhost");
    let reading = start(&["subscribe", &address, "--node", "2", "--link", &own, "--link", &publisher]);
    assert_eq!(report(publishing)["published"], 3);
    assert_eq!(report(reading)["frames"], 3);
}

#[test]
fn stream_invalid_options_are_refused() {
    for (args, expected) in [
        (&["publish"][..], "--link"),
        (&["publish", "--loss", "1%"], "--link"),
        (&["publish", "--heartbeat", "25h"], "not a heartbeat period"),
        (&["publish", "--rate", "0"], "not a number of frames per second"),
        (&["subscribe", "nowhere"], "camera.local:7400"),
        (&["subscribe", "::1:7400"], "[fd00::1]:7400"),
        (&["subscribe", "camera:0"], "not the address of a publisher"),
        (&["publish", "FILE", "--mostly", "1KiB"], "--mostly"),
    ] {
        let ran = fpgactl(&[&["stream"][..], args].concat());
        assert!(ran.status == 2 && ran.stderr.contains(expected), "{args:?}: {} {}", ran.status, ran.stderr);
    }
    let [own, other] = addresses();
    for (args, expected) in [
        (&["--frame", "0"][..], "0 bytes of data"),
        (&["--slots", "0"], "no slots"),
        (&["--frame", "1KiB", "--mostly", "2KiB"], "--mostly 2048"),
        (&["--max-subscribers", "65"], "1 to 64"),
        (&["--frame", "1TiB"], "exceed the"),
    ] {
        let ran = fpgactl(&[&["stream", "publish", "--link", &own, "--link", &other][..], args].concat());
        assert!(ran.status == 2 && ran.stderr.contains(expected), "{args:?}: {} {}", ran.status, ran.stderr);
    }
}

/// Errors of the same kind have the same exit status, and each message states what to do.
#[test]
fn stream_invalid_addresses_and_slots_are_refused() {
    let [own, other] = addresses();
    let links = ["--link", &own, "--link", &other];
    for (args, status, expected) in [
        (&["publish", "--listen", "8.8.8.8:7400"][..], 1, "this machine does not have that address"),
        (&["subscribe", "127.0.0.1:1", "--slots", "3"], 2, "a power of two"),
        (&["subscribe", "127.0.0.1:1", "--slots", "0"], 2, "a power of two"),
        (&["subscribe", "no-such-host.invalid:7400"], 1, "check the name"),
    ] {
        let ran = fpgactl(&[&["stream"][..], args, &links].concat());
        assert!(
            ran.status == status && ran.stderr.contains(expected),
            "{args:?}: {} {}",
            ran.status,
            ran.stderr
        );
    }
}

#[test]
fn stream_subscribe_without_publisher_fails() {
    let [own, other] = addresses();
    let args = ["stream", "subscribe", "127.0.0.1:1", "--node", "2", "--link", &own, "--link", &other];
    let ran = fpgactl(&args);
    assert!(ran.status == 1 && ran.stderr.contains("127.0.0.1:1"), "{}", ran.stderr);
}
