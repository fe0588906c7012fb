//! `stream publish` and `stream subscribe`: programs of their own, linked by UDP.
#![expect(clippy::unwrap_used, reason = "in a test that is the report")]

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{file, fpgactl, pattern};

/// Addresses that nobody has: they were free a moment ago.
fn addresses<const N: usize>() -> [String; N] {
    let sockets = [(); N].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| format!("udp:{}", socket.local_addr().unwrap()))
}

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    command.args(["--json", "--timeout", "30s", "stream"]).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Its one document, when it has ended.
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
fn a_file_goes_to_two_subscribers() {
    let folder = tempfile::tempdir().unwrap();
    let data = pattern(300_001);
    let source = file(folder.path(), "source", &data);
    let [publisher, first, second] = addresses();
    let links = ["--link", &publisher, "--link", &first, "--link", &second];
    let publish =
        [source.to_str().unwrap(), "--frame", "16KiB", "--subscribers", "2", "--listen", "127.0.0.1:0"];
    let mut publishing = start(&[&["publish"][..], &publish, &links].concat());
    let mut line = String::new();
    // The pipe is kept until the program has ended.
    let mut lines = BufReader::new(publishing.stderr.take().unwrap());
    lines.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("ready ").unwrap().to_owned();
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

#[test]
fn without_a_publisher_there_is_nothing_to_subscribe_to() {
    let [own, other] = addresses();
    let args = ["stream", "subscribe", "127.0.0.1:1", "--node", "2", "--link", &own, "--link", &other];
    let ran = fpgactl(&args);
    assert!(ran.status == 1 && ran.stderr.contains("127.0.0.1:1"), "{}", ran.stderr);
}
