//! Frame streams between the namespaces: a publisher in one, two subscribers in the other, each with the card of its own process. Every
//! published frame is either read or counted as missing, regardless of dropped packets.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::{NETWORK, Namespace, NetnsError, PORT};
use fpga_process::{ChildGuard, output};

const LISTEN: u16 = 7400;
/// Timeout for a subscriber to end after its publisher.
const END: Duration = Duration::from_secs(60);

/// Fields of `stream publish --json` that are used.
#[derive(Debug, Deserialize)]
struct Published {
    published: u64,
    seconds: f64,
    subscribers: Vec<Sent>,
}

#[derive(Debug, Deserialize)]
struct Sent {
    node: u32,
    arrived: u64,
    skipped: u64,
    failed: u64,
    gone: Option<String>,
}

/// Fields of `stream subscribe --json` that are used.
#[derive(Debug, Deserialize)]
struct Seen {
    node: u32,
    frames: u64,
    checked: u64,
    damaged: u64,
    missed: u64,
    gaps: u64,
    faults: u64,
    first: u64,
    next: u64,
    ended: bool,
}

/// One stream.
struct Stream {
    frames: u64,
    bytes: u64,
    rate: Option<u32>,
    /// Processing time per frame of the second subscriber.
    delay: Option<&'static str>,
}

const STREAMS: [Stream; 3] = [
    Stream { frames: 20_000, bytes: 200, rate: None, delay: None },
    Stream { frames: 2_000, bytes: 100_000, rate: None, delay: None },
    Stream { frames: 5_000, bytes: 1_000, rate: Some(2_000), delay: Some("2ms") },
];

fn link(end: usize, port: u16) -> String {
    format!("udp:{NETWORK}.{end}:{}", PORT + port)
}

fn subscribe(
    program: &Path,
    inside: &Namespace,
    number: u16,
    stream: &Stream,
) -> Result<ChildGuard, NetnsError> {
    let mut command = inside.command(program);
    command.args(["stream", "subscribe", &format!("{NETWORK}.1:{LISTEN}"), "--json", "--no-progress"]);
    command.args([
        "--retry",
        "60s",
        "--timeout",
        "300s",
        "--slots",
        "32",
        "--node",
        &(number + 1).to_string(),
    ]);
    command.args(["--link", &link(2, number), "--link", &link(1, 1)]);
    if let (2, Some(delay)) = (number, stream.delay) {
        command.args(["--delay", delay]);
    }
    Ok(ChildGuard::spawn("fpgactl stream subscribe", &command)?)
}

fn publish(program: &Path, inside: &Namespace, stream: &Stream) -> Result<Published, NetnsError> {
    let mut command = inside.command(program);
    command.args(["stream", "publish", "--json", "--no-progress", "--timeout", "300s", "--node", "1"]);
    command.args(["--listen", &format!("{NETWORK}.1:{LISTEN}"), "--subscribers", "2", "--slots", "128"]);
    command.args(["--frame", &stream.bytes.to_string(), "--count", &stream.frames.to_string()]);
    command.args(["--link", &link(1, 1), "--link", &link(2, 1), "--link", &link(2, 2)]);
    if let Some(rate) = stream.rate {
        command.args(["--rate", &rate.to_string()]);
    }
    let text = output(&mut command)?;
    serde_json::from_str(&text)
        .map_err(|source| NetnsError::Unreadable { program: "fpgactl stream publish", source })
}

fn seen(mut subscriber: ChildGuard) -> Result<Seen, NetnsError> {
    let status = subscriber.wait(END)?;
    let mut text = String::new();
    if let Some(mut stdout) = subscriber.parts().stdout.take() {
        // Unreadable output counts as no report.
        let _ = stdout.read_to_string(&mut text);
    }
    if !status.is_some_and(|status| status.success()) {
        return Err(NetnsError::Wrong(format!("a subscriber failed: {text}{}", subscriber.stderr_text())));
    }
    serde_json::from_str(&text)
        .map_err(|source| NetnsError::Unreadable { program: "fpgactl stream subscribe", source })
}

/// Runs the streams. Returns the errors in words.
pub(super) fn run(program: &Path, ends: &[Namespace; 2]) -> Result<Vec<String>, NetnsError> {
    let [a, b] = ends;
    let mut complaints = Vec::new();
    println!("frames  bytes   a second  node  read   missed  gaps  checked  skipped  failed");
    for stream in &STREAMS {
        let subscribers = [subscribe(program, b, 1, stream)?, subscribe(program, b, 2, stream)?];
        let published = publish(program, a, stream)?;
        let rate = published.published as f64 / published.seconds.max(1e-9);
        for subscriber in subscribers {
            let seen = seen(subscriber)?;
            let Some(sent) = published.subscribers.iter().find(|sent| sent.node == seen.node) else {
                complaints
                    .push(format!("node {} was not a subscriber until the end of the stream", seen.node));
                continue;
            };
            println!(
                "{:6}  {:6}  {rate:8.0}  {:4}  {:5}  {:6}  {:4}  {:7}  {:7}  {:6}",
                published.published,
                stream.bytes,
                seen.node,
                seen.frames,
                seen.missed,
                seen.gaps,
                seen.checked,
                sent.skipped,
                sent.failed
            );
            let whole = (seen.first, seen.next, seen.frames + seen.missed);
            if whole != (0, stream.frames, stream.frames) || !seen.ended {
                complaints.push(format!("some frames were neither read nor counted as missed: {seen:?}"));
            }
            if (seen.checked, seen.damaged, seen.faults) != (seen.frames, 0, 0) {
                complaints.push(format!("frames are damaged: {seen:?}"));
            }
            // A transfer may arrive and yet fail, because its last answer was lost.
            if seen.frames < sent.arrived || seen.missed < sent.skipped || sent.gone.is_some() {
                complaints.push(format!("publisher and subscriber count differently: {sent:?}, {seen:?}"));
            }
            if stream.rate.is_none() && seen.missed != 0 {
                complaints
                    .push(format!("frames are missing, although no subscriber was out of slots: {seen:?}"));
            }
        }
    }
    Ok(complaints)
}
