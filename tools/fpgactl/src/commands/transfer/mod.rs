//! `transfer`: host A -> card A -> network -> card B -> host B, verified byte for byte.
//!
//! Data of any length goes through the same range of card memory, chunk by chunk:
//!
//! ```text
//! source --bulk--> card A, same address --send--> card B, same address --bulk--> compare with the source, read again
//! ```
//!
//! The two hosts are two programs with a thread each (modules `sender` and `receiver`). While the network moves one chunk, the sender loads the
//! next one and the receiver compares the one before.

mod counters;
mod end;
mod hosts;
pub mod load;
mod peer;
mod plan;
mod receiver;
mod report;
mod sender;

use fpga_diag::inspect::Inspect as _;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use fpga_driver::{CardAddr, CardSpec};
use fpga_protocol::sender::SendFailure;
use fpga_sim::{Partitions, SimNetwork, TimeSpent};

use crate::cli::TransferArgs;
use crate::error::CliError;
use crate::machine_advice;
use crate::outfile::OutFile;
use crate::progress::{Deadline, Progress};
use crate::settings::Settings;
use crate::stream::Source;
use crate::target::{self, CardOpener as _, Pair, SimOptions, Target};

use counters::NiCounters;
use end::{Common, Ended};
use hosts::{ReceivingHost, SendingHost};
use peer::Peer;
use plan::Plan;
use receiver::{Arrival, Receiver};
pub(super) use report::CardRun;
pub use report::TransferReport;
use sender::{Departure, Sender};

/// Time without progress, by the card's clock, after which a transfer counts as stuck. Longer than the sender's own timeout, which gives a
/// better message.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Time without progress after which a transfer counts as stuck, in nanoseconds of the card's clock: `--timeout`, or the default.
fn stall_limit(deadline: Deadline) -> u64 {
    u64::try_from(deadline.limit_or(STALL_TIMEOUT).as_nanos()).unwrap_or(u64::MAX)
}

/// Runs the command.
pub fn run(settings: &Settings, args: &TransferArgs) -> Result<TransferReport, CliError> {
    let plan = Plan::new(args, &settings.transfer)?;
    let is_default = |target: &Target| matches!(&target.spec, CardSpec::Simulated { description: None });
    let peer = args.peer.as_ref().or(settings.peer.as_ref());
    let plan = if is_default(settings.card.target()) && peer.is_none_or(is_default) {
        plan.with_usual_packets()
    } else {
        plan
    };
    run_with(settings, args, &plan, settings.progress)
}

/// Runs the command without a progress bar, as a part of another one.
pub(super) fn run_quietly(settings: &Settings, args: &TransferArgs) -> Result<TransferReport, CliError> {
    run_with(settings, args, &Plan::new(args, &settings.transfer)?, false)
}

fn run_with(
    settings: &Settings,
    args: &TransferArgs,
    plan: &Plan,
    bar: bool,
) -> Result<TransferReport, CliError> {
    let Ends { source, mut sending, mut receiving, partitions } = open_ends(settings, args, plan, true)?;
    let mut out = match &args.out {
        Some(path) => {
            source.check_apart(path)?;
            Some(OutFile::create(path, settings.deadline)?)
        }
        None => None,
    };
    let chart = (args.chart || std::io::stdout().is_terminal()).then_some(settings.style);
    let mut report = TransferReport::new(&sending, &receiving, &source, plan, out.is_some(), chart);
    let layout = plan.layout(&source, &hosts::ends(&sending, &receiving))?;
    let began = Instant::now();
    let before = spent(&sending, &receiving);
    let moved = if source.length() == Some(0) {
        Moved::default()
    } else {
        let region = receiving.open_region(layout.span())?;
        let [to_receiver, to_sender] = Peer::pair(partitions.as_ref()).ok_or_else(fewer_cards)?;
        let common = |peer| Common { peer, plan, layout, deadline: settings.deadline };
        let progress = Progress::new(source.length(), bar);
        let target = (region.remote, receiving.node());
        let sender = Sender::new(&mut sending, common(to_receiver), (&source, &progress), target);
        let receiver = Receiver::new(&mut receiving, common(to_sender), &source, out.as_mut());
        let moved = run_both(sender, receiver)?;
        receiving.close_region(&region)?;
        moved
    };
    let span = began.elapsed();
    source.check_unchanged()?;
    check_nothing_allocated(&sending, &receiving)?;
    let times = before.zip(spent(&sending, &receiving));
    let times = times.map(|(before, after)| [after[0].since(&before[0]), after[1].since(&before[1])]);
    for (departure, arrival) in moved.departures.iter().zip(&moved.arrivals) {
        report.add(departure, arrival);
    }
    report.finish(span, times, &moved);
    out.map_or(Ok(()), OutFile::commit)?;
    Ok(report)
}

/// Virtual time of both cards so far, by what it was spent on; `None` for real cards.
fn spent(sending: &SendingHost, receiving: &ReceivingHost) -> Option<[TimeSpent; 2]> {
    let of = |end: &hosts::End| end.opened().network.as_ref().map(SimNetwork::time_spent);
    Some([of(sending.end())?, of(receiving.end())?])
}

fn fewer_cards() -> CliError {
    CliError::usage("the simulated network has fewer than two cards")
}

/// Cause of failures of a transfer that the network has not delivered.
#[derive(Debug, thiserror::Error)]
#[error("the network has not delivered the transfer")]
pub(super) struct Undelivered;

/// Neither end makes progress with a transfer, whose number is counted from 1.
fn stalled(transfer: u64, waited: Duration, missing: &str) -> CliError {
    CliError::failed(format!(
        "transfer {transfer}: no progress for {waited:?} of the card's time ({missing})"
    ))
    .advise("check the counters of both network interfaces")
    .because(Undelivered)
}

/// A transfer of the sending card failed.
fn unsent(card: &str, transfer: u64, failure: &SendFailure) -> CliError {
    CliError::failed(format!("transfer {transfer} of {card}: {failure}"))
        .advised(machine_advice::transfer(failure))
        .because(Undelivered)
}

/// Results of both programs.
#[derive(Debug, Default)]
struct Moved {
    departures: Vec<Departure>,
    arrivals: Vec<Arrival>,
    sent: NiCounters,
    received: NiCounters,
}

/// Runs both programs, the receiver on a thread of its own, and combines their results.
fn run_both(sender: Sender<'_>, receiver: Receiver<'_>) -> Result<Moved, CliError> {
    let (sent, received) = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("receiver".to_owned());
        let thread = thread.spawn_scoped(scope, move || receiver.run());
        let sent = sender.run();
        thread.map(|thread| (sent, thread.join()))
    })
    .map_err(|error| {
        CliError::failed(format!("a thread of this program cannot be started: {error}"))
            .advise("check the limits on processes and memory")
    })?;
    // A panic is a defect of this program: it continues.
    let (arrivals, received) = received.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let (departures, sent) = sent;
    let verified = arrivals.iter().map(|arrival| arrival.length).sum();
    let failed = match (sent, received) {
        (Ok(sent), Ok(received)) => return Ok(Moved { departures, arrivals, sent, received }),
        (Err(Ended::Failed(error)), _) | (_, Err(Ended::Failed(error))) => error,
        (Err(Ended::Stalled { transfer, waited, seen }), _) => {
            let is_verified = arrivals.len() as u64 >= transfer;
            let missing = match (seen, is_verified) {
                (false, false) => {
                    "the sender's completion has not arrived, and the receiver has not verified the data"
                }
                (false, true) => "the sender's completion has not arrived",
                _ => "the receiver has not verified an earlier transfer",
            };
            stalled(transfer, waited, missing)
        }
        (_, Err(Ended::Stalled { transfer, waited, .. })) => {
            stalled(transfer, waited, "the receiver's notification has not arrived")
        }
        (_, Err(Ended::Abandoned)) | (Err(Ended::Abandoned), _) => {
            let transfer = departures.len() as u64 + 1;
            stalled(transfer, Duration::ZERO, "each end has found the other one gone")
        }
    };
    Err(failed.after(verified))
}

/// Both ends and what they transfer.
struct Ends {
    source: Source,
    sending: SendingHost,
    receiving: ReceivingHost,
    /// Simulated networks of the two cards, if each has a clock of its own.
    partitions: Option<Partitions>,
}

/// Opens both cards and their endpoints. `partitioned`: a thread of its own will drive each of them, if they are simulated.
fn open_ends(
    settings: &Settings,
    args: &TransferArgs,
    plan: &Plan,
    partitioned: bool,
) -> Result<Ends, CliError> {
    let source = match &args.file {
        Some(file) => Source::named(file, settings.deadline)?,
        None => Source::Random { seed: plan.seed, length: plan.size },
    };
    if !settings.card.is_simulated() && (plan.reorder.is_some() || plan.impair.is_some()) {
        let text =
            "--reorder, --loss and the other impairments apply only to the simulated network of this process";
        let help = "omit them for other cards (`card serve` has them, too)";
        return Err(CliError::usage(text).advise(help));
    }
    if !settings.card.is_simulated() && plan.hop().is_some() {
        let text = "--hop applies only to the simulated network of this process";
        return Err(CliError::usage(text).advise("omit it for other cards"));
    }
    let reorder = plan.reorder.unwrap_or(plan::REORDER);
    let network = SimOptions {
        packet: plan.packet,
        seed: plan.seed,
        impairments: plan.impair.model(reorder)?,
        hop: plan.hop(),
        partitioned,
    };
    let peer = args.peer.clone().or_else(|| settings.peer.clone()).map(|peer| peer.through(settings.access));
    let Pair { first: a, second: b, partitions } = target::open_pair(&settings.card, peer.as_ref(), network)?;
    plan.check_packet(&a)?;
    plan.check_packet(&b)?;
    plan.check_segment(&a)?;
    let receiving = ReceivingHost::open(b, plan)?;
    let sending = SendingHost::open(a, plan)?;
    if sending.node() == receiving.node() {
        let (first, second, node) = (sending.name(), receiving.name(), sending.node());
        return Err(CliError::failed(format!(
            "{first} and {second} are both node {} of the network, and node ids must be unique",
            node.get()
        ))
        .advise("give one of them another ni.node_id"));
    }
    Ok(Ends { source, sending, receiving, partitions })
}

/// Checks that nothing is in use at either end after the last transfer.
fn check_nothing_allocated(sending: &SendingHost, receiving: &ReceivingHost) -> Result<(), CliError> {
    let ops = sending.ops_in_use();
    let (registry, _) = receiving.endpoint().tables().registry_occupancy()?;
    let (escape, _) = receiving.endpoint().tables().escape_occupancy()?;
    let (registry, escape) = (u64::from(registry), u64::from(escape));
    if (ops, registry, escape) == (0, 0, 0) {
        return Ok(());
    }
    let (sender, receiver) = (sending.name(), receiving.name());
    Err(CliError::failed(format!(
        "the data arrived, but {ops} op table entries of {sender}, {registry} registry entries and {escape} escape slots of {receiver} are still in use"
    ))
    .advise("look at the state with `fpgactl regs dump`: this is a fault of driver or card"))
}

/// Span of the card's clock.
fn card_span(from: u64, to: u64) -> Duration {
    Duration::from_nanos(to.saturating_sub(from))
}

/// Address `offset` bytes after `start`; the driver refuses addresses outside card memory.
fn remainder(start: CardAddr, offset: u64) -> CardAddr {
    start.checked_add(offset).unwrap_or(CardAddr::new(u64::MAX))
}
