//! Faults that are planted in a copy of the sources, to show that the swarm finds them.
//!
//! The copy contains all faults. Each is an expression in place of another one, and acts only if its number is in the variable
//! `FPGA_PLANTED`: all of them need one build.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::SwarmError;

/// A planted fault.
struct Fault {
    /// Behaviour of the faulty code.
    name: &'static str,
    file: &'static str,
    /// Expression of the file, which occurs once.
    expression: &'static str,
    /// Expression in its place.
    fault: &'static str,
}

const fn fault(
    name: &'static str,
    file: &'static str,
    expression: &'static str,
    fault: &'static str,
) -> Fault {
    Fault { name, file, expression, fault }
}

const UNEXPECTED: &str = "firmware-bindings/protocol/src/receiver/unexpected.rs";
const EXPECTED: &str = "firmware-bindings/protocol/src/receiver/expected.rs";
const REGISTRY: &str = "firmware-bindings/protocol/src/receiver/registry.rs";
const SWEEP: &str = "firmware-bindings/protocol/src/receiver/sweep.rs";
const TOMBSTONE: &str = "firmware-bindings/protocol/src/receiver/tombstone.rs";
const SENDER: &str = "firmware-bindings/protocol/src/sender/mod.rs";
const ISSUE: &str = "firmware-bindings/protocol/src/sender/issue.rs";
const GIVE_UP: &str = "firmware-bindings/protocol/src/sender/give_up.rs";
const MESSAGES_IN: &str = "firmware-bindings/protocol/src/scheme/messages/receiving.rs";
const MESSAGES_OUT: &str = "firmware-bindings/protocol/src/scheme/messages/sending/finish.rs";
const INCARNATIONS: &str = "firmware-bindings/protocol/src/incarnations.rs";
const REQUESTER: &str = "driver/rdma/src/read/requester.rs";
const RESPONDER: &str = "driver/rdma/src/read/responder.rs";
const REGION: &str = "driver/rdma/src/region.rs";
const MATCHING: &str = "driver/rdma/messages/src/matching.rs";
const PEER: &str = "driver/rdma/messages/src/peer.rs";
const MESSAGE: &str = "driver/rdma/messages/src/messenger/messages.rs";
const LARGE: &str = "driver/rdma/messages/src/messenger/large.rs";
const OUTGOING: &str = "driver/rdma/messages/src/messenger/outgoing.rs";
const RESYNC: &str = "driver/rdma/src/resync.rs";
const POOL: &str = "driver/rdma/frames/src/pool.rs";
const PUBLISHER: &str = "driver/rdma/frames/src/publisher/mod.rs";
const BATCHES: &str = "driver/rdma/frames/src/publisher/transfers.rs";
const ADMISSION: &str = "driver/rdma/frames/src/publisher/admission.rs";
const DRIVE: &str = "driver/rdma/frames/src/publisher/drive.rs";
const FETCH: &str = "driver/rdma/frames/src/subscriber/fetch.rs";
const CREDIT: &str = "driver/rdma/frames/src/subscriber/credit.rs";
const SUBSCRIBER: &str = "driver/rdma/frames/src/subscriber/mod.rs";

/// Their numbers count from 1.
const FAULTS: [Fault; 47] = [
    fault(
        "completed transfers are forgotten",
        UNEXPECTED,
        "self.peers.source(source).completed.contains(header.transfer)",
        "false",
    ),
    fault("completed segments are forgotten", UNEXPECTED, "transfer.done.contains(header.segment)", "false"),
    fault(
        "first packets are not checked against windows",
        UNEXPECTED,
        "!self.access.allows_write(header.common.source, header.key, start.base, length)",
        "false",
    ),
    fault(
        "packets of the escape channel are acknowledged",
        UNEXPECTED,
        "self.counters.escape_hits += 1",
        "{ self.counters.escape_hits += 1; self.acknowledge(header) }",
    ),
    fault("every segment raises a notification", EXPECTED, "is_ready && is_whole", "is_ready"),
    fault("completed entries stay registered", EXPECTED, "self.registry.remove(slot)", "()"),
    fault(
        "packets are acknowledged when another one has arrived",
        EXPECTED,
        "operation.contains(bit)",
        "operation.contains(bit) || bit > 0 && operation.contains(bit - 1)",
    ),
    fault(
        "operations complete one packet early",
        REGISTRY,
        "self.entry.mask == u64::MAX",
        "self.entry.mask.count_zeros() <= 1",
    ),
    fault(
        "operations of all incarnations are one",
        REGISTRY,
        "u64::from(self.source.get()) | u64::from(self.incarnation.get()) << 32",
        "u64::from(self.source.get())",
    ),
    fault(
        "silent operations never expire",
        SWEEP,
        "deadline > now && !moved_on {\n                next = next.min(deadline);\n                continue",
        "true {\n continue",
    ),
    fault("notified transfers leave no tombstone", TOMBSTONE, "source.completed.insert(id)", "()"),
    fault(
        "segments of abandoned transfers are not released",
        GIVE_UP,
        "self.segments.release(segment)",
        "()",
    ),
    fault("packets of abandoned transfers stay in flight", GIVE_UP, "record.in_flight -= released", "()"),
    fault("packets are not sent again after a timeout", GIVE_UP, "self.ops.resend(op.number, true)", "()"),
    fault("transfers to a node have one number", ISSUE, "record.next_id = record.next_id.next()", "()"),
    fault(
        "transfers complete with packets in flight",
        SENDER,
        "transfer.outstanding == 0 && transfer.remaining == 0",
        "transfer.remaining == 0",
    ),
    fault(
        "announced transfers reach beyond their windows",
        MESSAGES_IN,
        "self.access.allowing_write(0, key.node, window_key, base, length.into())",
        "Some(0)",
    ),
    fault("contexts of ended messages stay in use", MESSAGES_IN, "self.free.push(slot)", "()"),
    fault("every message raises a notification", MESSAGES_IN, "left == 0 && notifies", "notifies"),
    fault("silent contexts are never abandoned", MESSAGES_IN, "due > now", "true"),
    fault(
        "messages of another packet size are accepted",
        MESSAGES_IN,
        "packet_size_log2 != self.config.packet_size_log2",
        "false",
    ),
    fault(
        "transfers complete with their first message",
        MESSAGES_OUT,
        "record.done == record.messages",
        "record.done <= record.messages",
    ),
    fault(
        "contexts of senders stay in use",
        MESSAGES_OUT,
        "self.idle.push_back(&mut self.links, slot)",
        "()",
    ),
    fault("incarnations are not recorded", INCARNATIONS, "*slot = Some(fresh)", "()"),
    fault("windows of reads stay open", REQUESTER, "self.close_window(&read.window)?", "()"),
    fault(
        "requests of ended reads are not withdrawn",
        REQUESTER,
        "self.reads.requester.ignored.push(request)",
        "()",
    ),
    fault("reads never expire", REQUESTER, "now < read.deadline", "true"),
    fault(
        "offsets of reads are ignored",
        RESPONDER,
        "CardAddr::new(range.start.get() + offset)",
        "range.start",
    ),
    fault(
        "windows admit longer ranges",
        REGION,
        "block.write_pair(at::LENGTH_LOW, range.length)?",
        "block.write_pair(at::LENGTH_LOW, range.length + 0x1000)?",
    ),
    fault("a stale mirror stays stale", RESYNC, "!self.receiving.mirror.is_stale()", "true"),
    fault(
        "messages match the latest receive",
        MATCHING,
        "posted.iter().position(|posted| matches(&posted.request, peer, header))",
        "posted.iter().rposition(|posted| matches(&posted.request, peer, header))",
    ),
    fault(
        "bits of tags are compared that a receive ignores",
        MATCHING,
        "(expected ^ tag) & !ignore == 0",
        "expected == tag",
    ),
    fault("receives are not cancelled", MATCHING, "posted.request.token.context == context", "false"),
    fault(
        "records are processed as they arrive",
        PEER,
        "self.early.iter().position(|(offset, _)| *offset == self.read_at)",
        "self.early.len().checked_sub(1)",
    ),
    fault(
        "kept messages of former sessions answer the current one",
        MESSAGE,
        "header.wants_done &= is_current",
        "()",
    ),
    fault("credit of messages is returned more than once", PEER, "self.eager_freed -= returned", "()"),
    fault("receives complete with their first part", LARGE, "operation.arrived >= operation.length", "true"),
    fault("landing slots are written before they are copied", OUTGOING, "*writable = false", "()"),
    fault(
        "slots of frames are filled while they are sent",
        POOL,
        "slot.references == 0",
        "slot.references <= 1",
    ),
    fault(
        "frames in slots overtake those in ordinary memory",
        PUBLISHER,
        "!self.queue.is_empty() || matches!(queued.memory, FrameMemory::Heap(_))",
        "matches!(queued.memory, FrameMemory::Heap(_))",
    ),
    fault("frames of distant slots share a transfer", BATCHES, "next.slot == last.slot + 1", "true"),
    fault(
        "joins again are refused without a probe",
        ADMISSION,
        "!member.probes.has_arrived(number)",
        "false",
    ),
    fault("statuses that were read count as unread", DRIVE, "member.status_read(credit.heard)", "()"),
    fault(
        "frames that have failed are waited for",
        FETCH,
        "self.arrivals.settled(status.settled)",
        "Ok::<u32, fpga_frames_wire::ArrivalError>(0)",
    ),
    fault(
        "slots are returned while their frames are read",
        CREDIT,
        "self.arrivals.consumed()",
        "self.arrivals.next()",
    ),
    fault(
        "windows of subscribers that have left stay open",
        CREDIT,
        "subscriber.endpoint.close_region(&subscriber.stream_parameters.window)?",
        "()",
    ),
    fault(
        "frames missed at the end are not reported",
        SUBSCRIBER,
        "status.next == self.gaps.expected()",
        "true",
    ),
];

/// Switch in the lowest package of the copy.
const SWITCH: &str = "
/// Number of the active fault.
pub static PLANTED: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);
/// Whether a fault is active.
#[must_use]
pub fn planted(number: u32) -> bool {
    PLANTED.load(core::sync::atomic::Ordering::Relaxed) == number
}
";
const MAIN: &str = "let arguments = Arguments::parse();";
const ACTIVATION: &str =
    "let planted = std::env::var(\"FPGA_PLANTED\").ok().and_then(|number| number.parse().ok());
    fpga_firmware::PLANTED.store(planted.unwrap_or(0), std::sync::atomic::Ordering::Relaxed);
    let arguments = Arguments::parse();";

/// Replaces an expression that occurs once.
fn replace(root: &Path, file: &str, old: &str, new: &str) -> Result<(), SwarmError> {
    let path = root.join(file);
    let failed = |source| SwarmError::Path { path: path.clone(), source };
    let text = fs::read_to_string(&path).map_err(failed)?;
    match text.matches(old).count() {
        1 => fs::write(&path, text.replace(old, new)).map_err(failed),
        found => Err(SwarmError::Expression { path, expression: old.to_owned(), found }),
    }
}

/// Copies the sources, and plants all faults.
fn plant(root: &Path, copy: &Path) -> Result<(), SwarmError> {
    let failed = |source| SwarmError::Path { path: copy.to_owned(), source };
    fs::create_dir_all(copy).map_err(failed)?;
    let script = "git ls-files -z | xargs -0 cp --parents -p -t \"$0\"";
    let status = Command::new("sh").current_dir(root).args(["-c", script]).arg(copy).status();
    let status = status.map_err(failed)?;
    if !status.success() {
        return Err(SwarmError::Copy(status));
    }
    for (number, Fault { file, expression, fault, .. }) in (1..).zip(&FAULTS) {
        let planted = match expression.split_once(" {\n") {
            // The condition of a branch, with the beginning of the branch.
            Some((condition, rest)) => format!("fpga_firmware::planted({number}) || {condition} {{\n{rest}"),
            None => format!("(if fpga_firmware::planted({number}) {{ {fault} }} else {{ {expression} }})"),
        };
        replace(copy, file, expression, &planted)?;
    }
    // Packages of another version have files of their own in the target folder: later builds of the unchanged sources do not take them.
    let manifest = copy.join("Cargo.toml");
    let failed = |source| SwarmError::Path { path: manifest.clone(), source };
    let text = fs::read_to_string(&manifest).map_err(failed)?;
    let version = format!("\"{}\"", env!("CARGO_PKG_VERSION"));
    let planted = format!("\"{}-planted\"", env!("CARGO_PKG_VERSION"));
    fs::write(&manifest, text.replace(&version, &planted)).map_err(failed)?;
    let dependency = "fpga-pci.workspace = true\n";
    let more = format!("{dependency}fpga-firmware.workspace = true\n");
    replace(copy, "driver/rdma/messages/Cargo.toml", dependency, &more)?;
    let library = copy.join("firmware-bindings/src/lib.rs");
    let failed = |source| SwarmError::Path { path: library.clone(), source };
    let text = fs::read_to_string(&library).map_err(failed)?;
    fs::write(&library, text + SWITCH).map_err(failed)?;
    replace(copy, "tests/swarm/src/main.rs", MAIN, ACTIVATION)
}

/// Plants the faults, and runs the swarm with each of those chosen, until a world fails or the time is over.
pub(super) fn run(root: &Path, numbers: &[usize], seconds: u64, seed: &str) -> Result<(), SwarmError> {
    let copy = root.join("target/swarm-planted/sources");
    plant(root, &copy)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(&cargo);
    // External packages are built already.
    build.current_dir(&copy).env("CARGO_TARGET_DIR", root.join("target"));
    let status =
        build.args(["build", "--quiet", "-p", "fpga-swarm"]).stderr(std::process::Stdio::null()).status();
    let status = status.map_err(|source| SwarmError::Path { path: cargo.into(), source })?;
    if !status.success() {
        return Err(SwarmError::Build { path: copy, status });
    }
    // `cargo run` replaces the program by that of the unchanged sources.
    let program = root.join("target/swarm-planted/program");
    fs::copy(root.join("target/debug/fpga-swarm"), &program)
        .map_err(|source| SwarmError::Path { path: program.clone(), source })?;
    let mut missed = 0;
    for (number, Fault { name, file, .. }) in (1..).zip(&FAULTS) {
        if !numbers.is_empty() && !numbers.contains(&number) {
            continue;
        }
        let start = Instant::now();
        let mut swarm = Command::new(&program);
        swarm.env("FPGA_PLANTED", number.to_string()).args(["--failures", "1", "--seed", seed]);
        swarm.args(["--seconds", &seconds.to_string()]).stdout(std::process::Stdio::piped());
        // Worlds of streams run only if they are asked for.
        if file.starts_with("driver/rdma/frames") {
            swarm.args(["--only", "streams"]);
        }
        let failed = |source| SwarmError::Path { path: program.clone(), source };
        let mut child = swarm.spawn().map_err(failed)?;
        // A world that never ends is found as well.
        let limit = Duration::from_secs(seconds + 60);
        while child.try_wait().map_err(failed)?.is_none() && start.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(50));
        }
        let is_over = child.try_wait().map_err(failed)?.is_some();
        if !is_over {
            child.kill().map_err(failed)?;
        }
        let time = start.elapsed();
        let output = child.wait_with_output().map_err(failed)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let found = text.lines().find(|line| line.starts_with("world ")).unwrap_or_default();
        let found: String = found.chars().take(150).collect();
        if is_over && output.status.success() {
            missed += 1;
        }
        let verdict = match (is_over, output.status.success()) {
            (true, true) => "MISSED",
            (true, false) => "found",
            (false, _) => "a world does not end",
        };
        println!("{number:>2} {name}: {verdict} after {:.1} s: {found}", time.as_secs_f64());
    }
    if missed == 0 { Ok(()) } else { Err(SwarmError::Missed(missed)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_expressions_occur_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let once = |file: &str, expression: &str| {
            let text = fs::read_to_string(root.join(file)).unwrap();
            assert_eq!(text.matches(expression).count(), 1, "{file}: {expression}");
        };
        FAULTS.iter().for_each(|fault| once(fault.file, fault.expression));
        once("tests/swarm/src/main.rs", MAIN);
    }
}
