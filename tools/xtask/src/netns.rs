//! Two cards in two network namespaces, and a kernel between them that drops packets.
//!
//! Each namespace has one end of a pair of virtual Ethernet interfaces and a process that serves a simulated card with a UDP link. The
//! kernel's packet filter (nftables) drops a fraction of the datagrams at random, where they arrive, and counts datagrams seen and dropped.
//! A third process drives both cards: it sends transfers in both directions, and compares every byte. Further checks: the kernel dropped
//! packets in both directions, and no datagram reached a card that the filter did not pass. Then frame streams run from one namespace to
//! the other ([`streams`]).
//!
//! Creating namespaces requires root. Everything is removed afterwards: interfaces and filters end with their namespaces.

mod streams;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use fpga_process::{ChildGuard, ToolError, on_path, output};

/// Timeout for a served card to end after a request.
const END: Duration = Duration::from_secs(10);
const PORT: u16 = 7000;
/// Number of ports from there on whose datagrams are dropped.
const PORTS: u16 = 10;
/// Network for tests between machines (RFC 2544), which is never routed.
const NETWORK: &str = "198.18.0";

/// Options of `cargo xtask netns`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Datagrams per thousand that the kernel drops in each direction
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=500))]
    drop: u32,
    /// Sizes of the transfers in bytes, each sent in both directions
    #[arg(long, value_delimiter = ',', default_value = "1,4097,1048576,8388608")]
    sizes: Vec<u64>,
    /// fpgactl program to run; by default it is built
    #[arg(long)]
    fpgactl: Option<PathBuf>,
}

/// Reasons why the task fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetnsError {
    /// This machine lacks a requirement.
    #[error("this machine cannot run the test: {what}; {remedy}")]
    MissingRequirement { what: String, remedy: &'static str },
    /// A program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// No folder for sockets and statistics could be created.
    #[error("temporary folder: {0}")]
    Folder(std::io::Error),
    /// A card could not be served.
    #[error("node {node}: `fpgactl card serve` failed: {said}")]
    NotServed { node: usize, said: String },
    /// A program printed unexpected output.
    #[error("the output of {program} cannot be parsed: {source}")]
    Unreadable { program: &'static str, source: serde_json::Error },
    /// A card's process failed.
    #[error("node {node}: the process that served the card failed ({how})")]
    Ended { node: usize, how: String },
    /// The results are wrong.
    #[error("{0}")]
    Wrong(String),
}

impl NetnsError {
    pub(crate) const fn exit_status(&self) -> u8 {
        // The exit status of a skipped task, as for the virtual machines.
        if matches!(self, Self::MissingRequirement { .. }) { 3 } else { 1 }
    }
}

/// Fields of `transfer --json` that are used.
#[derive(Debug, Deserialize)]
struct Transfer {
    bytes: u64,
    verified: bool,
    seconds: f64,
    packets_sent: u64,
    retransmits: u64,
    duplicates_dropped: u64,
    escape_hits: u64,
    leftovers: u64,
}

/// Fields of `card serve --stats` that are used.
#[derive(Debug, Deserialize)]
struct Served {
    link: Link,
}

#[derive(Debug, Deserialize)]
struct Link {
    sent: u64,
    received: u64,
    malformed: u64,
    strangers: u64,
}

/// Datagrams counted by the kernel's filter.
#[derive(Debug, Clone, Copy, Default)]
struct Filtered {
    seen: u64,
    dropped: u64,
}

/// Network namespace, deleted when this is dropped.
#[derive(Debug)]
struct Namespace(String);

impl Namespace {
    fn new(letter: char) -> Result<Self, ToolError> {
        let name = format!("fpga-{letter}-{}", std::process::id());
        ip(&["netns", "add", &name])?;
        Ok(Self(name))
    }

    /// Program to run inside the namespace.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(program);
        command
    }

    /// Sets up its end of the link, and the filter.
    fn set_up(&self, interface: &str, address: &str, drop: u32) -> Result<(), ToolError> {
        ip(&["-n", &self.0, "address", "add", &format!("{address}/24"), "dev", interface])?;
        ip(&["-n", &self.0, "link", "set", interface, "up"])?;
        let last = PORT + PORTS - 1;
        let rules = format!(
            "table inet lossy {{\n\
             counter seen {{ }}\n\
             counter dropped {{ }}\n\
             chain arriving {{\n\
             type filter hook input priority 0;\n\
             udp dport {PORT}-{last} counter name seen numgen random mod 1000 < {drop} counter name dropped drop\n\
             }}\n\
             }}"
        );
        output(self.command("nft").arg(rules)).map(drop_text)
    }

    fn filtered(&self) -> Result<Filtered, NetnsError> {
        let text = output(self.command("nft").args(["--json", "list", "counters"]))?;
        let list: serde_json::Value = serde_json::from_str(&text)
            .map_err(|source| NetnsError::Unreadable { program: "nft", source })?;
        let packets = |name: &str| {
            let entries = list["nftables"].as_array();
            let found = entries.into_iter().flatten().find(|entry| entry["counter"]["name"] == name);
            found.and_then(|entry| entry["counter"]["packets"].as_u64()).unwrap_or(0)
        };
        Ok(Filtered { seen: packets("seen"), dropped: packets("dropped") })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = ip(&["netns", "delete", &self.0]) {
            eprintln!("cannot delete namespace {}: {error}", self.0);
        }
    }
}

fn ip(args: &[&str]) -> Result<(), ToolError> {
    output(Command::new("ip").args(args)).map(drop_text)
}

fn drop_text(_: String) {}

/// Card that is served inside a namespace.
#[derive(Debug)]
struct Card {
    node: usize,
    process: ChildGuard,
    socket: PathBuf,
    stats: PathBuf,
}

impl Card {
    fn serve(node: usize, inside: &Namespace, program: &Path, folder: &Path) -> Result<Self, NetnsError> {
        let socket = folder.join(format!("card-{node}"));
        let stats = folder.join(format!("card-{node}.json"));
        let link = |node: usize| format!("udp:{NETWORK}.{node}:{PORT}");
        let mut command = inside.command(program);
        command.args(["card", "serve", "--node", &node.to_string(), "--link", &link(node), "--link"]);
        command.arg(link(3 - node)).arg("--socket").arg(&socket).arg("--stats").arg(&stats);
        let mut process = ChildGuard::spawn("fpgactl card serve", &command)?;
        let mut line = String::new();
        if let Some(stdout) = process.parts().stdout.take() {
            // A card that cannot be served ends, and so does its output.
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        if !line.starts_with("ready ") {
            return Err(NetnsError::NotServed { node, said: process.stderr_text() });
        }
        Ok(Self { node, process, socket, stats })
    }

    fn name(&self) -> String {
        format!("vfio-user:{}", self.socket.display())
    }

    /// Ends it. Returns the counters of its link.
    fn end(mut self) -> Result<Link, NetnsError> {
        let node = self.node;
        let status = self.process.end(END)?;
        if !status.is_some_and(|status| status.success()) {
            let how = status.map_or("killed after a timeout".to_owned(), |status| status.to_string());
            return Err(NetnsError::Ended { node, how });
        }
        let text = std::fs::read_to_string(&self.stats).map_err(NetnsError::Folder)?;
        let served: Served = serde_json::from_str(&text)
            .map_err(|source| NetnsError::Unreadable { program: "fpgactl card serve", source })?;
        Ok(served.link)
    }
}

/// Runs the task.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), NetnsError> {
    check()?;
    let program = match &options.fpgactl {
        Some(program) => program.clone(),
        None => build(root)?,
    };
    let folder = tempfile::tempdir().map_err(NetnsError::Folder)?;
    let ends = [Namespace::new('a')?, Namespace::new('b')?];
    let [a, b] = &ends;
    ip(&["link", "add", "wire", "netns", &a.0, "type", "veth", "peer", "name", "wire", "netns", &b.0])?;
    let mut cards = Vec::new();
    for (node, inside) in (1..).zip(&ends) {
        inside.set_up("wire", &format!("{NETWORK}.{node}"), options.drop)?;
        cards.push(Card::serve(node, inside, &program, folder.path())?);
    }
    println!("from  to       bytes  verified  packets  again  duplicates  escaped  seconds    MB/s");
    let mut again = 0;
    for size in &options.sizes {
        for (from, to) in [(0, 1), (1, 0)] {
            let (Some(card), Some(peer)) = (cards.get(from), cards.get(to)) else { continue };
            let report = transfer(&program, card, peer, *size)?;
            again += report.retransmits;
            let rate = report.bytes as f64 / report.seconds.max(1e-9) / 1e6;
            let Transfer { bytes, verified, seconds, .. } = report;
            let Transfer { packets_sent, retransmits, duplicates_dropped, escape_hits, .. } = report;
            println!(
                "{:4}  {:2}  {bytes:10}  {verified:8}  {packets_sent:7}  {retransmits:5}  {duplicates_dropped:10}  {escape_hits:7}  {seconds:7.3}  {rate:6.1}",
                from + 1,
                to + 1,
            );
            if !verified || bytes != *size || report.leftovers != 0 {
                return Err(NetnsError::Wrong(format!("the transfer is incomplete: {report:?}")));
            }
        }
    }
    println!("node  sent  arrived  dropped by the kernel  received");
    let mut complaints = Vec::new();
    for (card, inside) in cards.into_iter().zip(&ends) {
        let node = card.node;
        let link = card.end()?;
        // After the end of the card, nothing is counted any more.
        let Filtered { seen, dropped } = inside.filtered()?;
        println!("{node:4}  {:4}  {seen:7}  {dropped:21}  {:8}", link.sent, link.received);
        if link.received > seen - dropped {
            complaints.push(format!("node {node} received more datagrams than the filter passed"));
        }
        if link.malformed != 0 || link.strangers != 0 {
            complaints.push(format!("node {node} received datagrams that the other card did not send"));
        }
        if options.drop != 0 && dropped == 0 {
            complaints.push(format!("the kernel dropped no datagram to node {node}; send more"));
        }
    }
    if options.drop != 0 && again == 0 {
        complaints.push("no packet was retransmitted".to_owned());
    }
    let before = [a.filtered()?, b.filtered()?];
    complaints.extend(streams::run(&program, &ends)?);
    for ((inside, before), node) in ends.iter().zip(before).zip(1..) {
        let after = inside.filtered()?;
        let (seen, dropped) = (after.seen - before.seen, after.dropped - before.dropped);
        println!("to namespace {node}: {seen} datagrams, {dropped} of them dropped by the kernel");
        if options.drop != 0 && dropped == 0 {
            complaints.push(format!("the kernel dropped no datagram of the streams to namespace {node}"));
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(NetnsError::Wrong(complaints.join("; "))) }
}

fn check() -> Result<(), NetnsError> {
    for (program, remedy) in [
        ("ip", "on Debian and Ubuntu: apt-get install iproute2"),
        ("nft", "on Debian and Ubuntu: apt-get install nftables"),
    ] {
        if on_path(program).is_none() {
            return Err(NetnsError::MissingRequirement {
                what: format!("{program} is not installed"),
                remedy,
            });
        }
    }
    if !rustix::process::geteuid().is_root() {
        let what = "network namespaces with a packet filter need root".to_owned();
        return Err(NetnsError::MissingRequirement { what, remedy: "run it as root" });
    }
    Ok(())
}

fn build(root: &Path) -> Result<PathBuf, NetnsError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--release", "--package", "fpgactl"]).current_dir(root);
    output(&mut command)?;
    Ok(root.join(target).join("release/fpgactl"))
}

fn transfer(program: &Path, card: &Card, peer: &Card, size: u64) -> Result<Transfer, NetnsError> {
    let mut command = Command::new(program);
    command.args(["transfer", "--json", "--no-progress", "--card", &card.name(), "--peer", &peer.name()]);
    command.args(["--size", &size.to_string()]);
    let text = output(&mut command)?;
    serde_json::from_str(&text)
        .map_err(|source| NetnsError::Unreadable { program: "fpgactl transfer", source })
}
