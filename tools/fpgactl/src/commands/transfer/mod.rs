//! `transfer`: host A -> card A -> network -> card B -> host B, verified byte for byte.
//!
//! Data of any length goes through the same range of card memory, chunk by chunk:
//!
//! ```text
//! source --bulk--> card A, same address --send--> card B, same address --bulk--> compare with the source, read again
//! ```

mod counters;
mod hosts;
pub mod load;
mod plan;
mod report;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use fpga_driver::CardAddr;
use fpga_sim::SimNetwork;

use crate::cli::TransferArgs;
use crate::error::CliError;
use crate::outfile::OutFile;
use crate::progress::{Deadline, Progress};
use crate::settings::Settings;
use crate::stream::{Compare, Source, SourceReader, StreamPosition};
use crate::target::{self, SimOptions};

use counters::NiCounters;
use hosts::{Arrival, ReceivingHost, SendingHost};
use plan::Plan;
pub use report::TransferReport;

/// Time without progress, by the card's clock, after which a transfer counts as stuck. Longer than the sender's own timeout, which gives a
/// better message.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Time without progress after which a transfer counts as stuck, in nanoseconds of the card's clock: `--timeout`, or the default.
fn stall_limit(deadline: Deadline) -> u64 {
    u64::try_from(deadline.limit_or(STALL_TIMEOUT).as_nanos()).unwrap_or(u64::MAX)
}

/// Runs the command.
///
/// # Errors
/// See [`CliError`].
pub fn run(settings: &Settings, args: &TransferArgs) -> Result<TransferReport, CliError> {
    let plan = Plan::new(args, &settings.transfer)?;
    let (source, mut sending, mut receiving) = open_ends(settings, args, &plan)?;
    let out = match &args.out {
        Some(path) => {
            source.check_apart(path)?;
            Some(OutFile::create(path, settings.deadline)?)
        }
        None => None,
    };
    let mut job = TransferJob {
        settings,
        plan: &plan,
        source: &source,
        out,
        chart: args.chart,
        progress: Progress::new(source.length(), settings.progress),
    };
    let report = job.run(&mut sending, &mut receiving)?;
    job.out.map_or(Ok(()), OutFile::commit)?;
    Ok(report)
}

/// Opens both cards and their endpoints.
fn open_ends(
    settings: &Settings,
    args: &TransferArgs,
    plan: &Plan,
) -> Result<(Source, SendingHost, ReceivingHost), CliError> {
    let source = match &args.file {
        Some(file) => Source::named(file, settings.deadline)?,
        None => Source::Random { seed: plan.seed, length: plan.size },
    };
    if !settings.card.is_simulated() && (plan.reorder.is_some() || plan.impair.is_some()) {
        return Err(CliError::Usage(
            "--reorder, --loss and the other impairments apply only to the simulated network of this process\nhelp: omit them for other cards (`card serve` has them, too)".to_owned(),
        ));
    }
    if !settings.card.is_simulated() && plan.hop().is_some() {
        return Err(CliError::Usage(
            "--hop applies only to the simulated network of this process\nhelp: omit it for other cards"
                .to_owned(),
        ));
    }
    let reorder = plan.reorder.unwrap_or(plan::REORDER);
    let network = SimOptions {
        packet: plan.packet,
        seed: plan.seed,
        impairments: plan.impair.model(reorder)?,
        hop: plan.hop(),
    };
    let peer = args.peer.clone().or_else(|| settings.peer.clone()).map(|peer| peer.through(settings.access));
    let (a, b) = target::open_pair(&settings.card, peer.as_ref(), network)?;
    plan.check_packet(&a)?;
    plan.check_packet(&b)?;
    plan.check_segment(&a)?;
    let receiving = ReceivingHost::open(b, plan)?;
    let mut sending = SendingHost::open(a, plan)?;
    if sending.node() == receiving.node() {
        return Err(CliError::SameNode {
            first: sending.name(),
            second: receiving.name(),
            node: sending.node().get(),
        });
    }
    if plan.needs_mask(sending.opened()) {
        sending.ask(receiving.node());
    }
    Ok((source, sending, receiving))
}

/// State that is the same for all chunks.
struct TransferJob<'a> {
    settings: &'a Settings,
    plan: &'a Plan,
    source: &'a Source,
    out: Option<OutFile>,
    /// Whether a chart was requested.
    chart: bool,
    progress: Progress,
}

/// One chunk of the stream.
#[derive(Clone, Copy)]
struct Chunk {
    /// Number of the chunk, from 1.
    number: u64,
    /// Offset in the stream.
    start: u64,
    length: u64,
}

impl TransferJob<'_> {
    fn run(
        &mut self,
        sending: &mut SendingHost,
        receiving: &mut ReceivingHost,
    ) -> Result<TransferReport, CliError> {
        let chart = (self.chart || std::io::stdout().is_terminal()).then_some(self.settings.style);
        let mut report =
            TransferReport::new(sending, receiving, self.source, self.plan, self.out.is_some(), chart);
        let mut first = self.source.open(self.settings.deadline)?;
        let mut second = self.source.open(self.settings.deadline)?;
        let mut counters = NiCounters::new(receiving.endpoint())?;
        let mut sent = NiCounters::new(sending.endpoint())?;
        let began = Instant::now();
        let network = sending.opened().network.clone();
        let before = network.as_ref().map(SimNetwork::time_spent);
        let chunk = self.plan.chunk_size(self.source.length(), hosts::ends(sending, receiving))?;
        let (mut number, mut start) = (1, 0);
        let mut length = self.source.next_part(start, chunk)?;
        if length > 0 {
            let region = receiving.open_region(chunk)?;
            while length > 0 {
                let part = Chunk { number, start, length };
                let arrival = self
                    .chunk(part, sending, receiving, &mut first, &mut second)
                    .map_err(|error| error.after(start))?;
                counters.update(receiving.endpoint())?;
                sent.update(sending.endpoint())?;
                report.add(length, &arrival);
                start += length;
                number += 1;
                length = self.source.next_part(start, chunk).map_err(|error| error.after(start))?;
            }
            hosts::settle(sending, receiving, self.settings.deadline)?;
            counters.update(receiving.endpoint())?;
            sent.update(sending.endpoint())?;
            receiving.close_region(&region)?;
        }
        let span = began.elapsed();
        self.source.check_unchanged()?;
        check_nothing_allocated(sending, receiving)?;
        let time = network.zip(before).map(|(network, before)| network.time_spent().since(&before));
        report.finish(span, time, &counters, sent.sent());
        Ok(report)
    }

    fn chunk(
        &mut self,
        chunk: Chunk,
        sending: &mut SendingHost,
        receiving: &mut ReceivingHost,
        first: &mut SourceReader<'_>,
        second: &mut SourceReader<'_>,
    ) -> Result<Arrival, CliError> {
        let Chunk { number, start, length } = chunk;
        let (progress, deadline) = (&self.progress, self.settings.deadline);
        // Each byte is moved three times; the bar shows the average of the three steps.
        let moved = |steps: u64, done: u64| progress.at(start + (steps * length + done.min(length)) / 3);
        let mut step = |done| {
            progress.step(|| format!("transfer {number}: to card A"), done, length);
            moved(0, done);
        };
        sending.load(first, length, deadline, &mut step).map_err(|error| match error {
            CliError::Bulk(inner) => self.source.explain(inner),
            other => other,
        })?;
        let mut step = |done| {
            progress.step(|| format!("transfer {number}: network"), done, length);
            moved(1, done);
        };
        let arrival = hosts::exchange(sending, receiving, self.plan, (number, length), deadline, &mut step)?;
        tracing::info!(
            transfer = number,
            bytes = length,
            completed_after = ?arrival.local,
            notified_after = ?arrival.remote,
            retransmits = arrival.completion.retransmits,
            "arrived"
        );
        progress.phase(format!("transfer {number}: from card B"));
        let place =
            StreamPosition { card: receiving.name(), transfer: number, start, address: receiving.address() };
        let mut sink = Compare::new(second, self.out.as_mut(), place);
        receiving.unload(&mut sink, length, deadline, &mut |bytes| moved(2, bytes))?;
        Ok(arrival)
    }
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
    Err(CliError::StillAllocated {
        sender: sending.name(),
        receiver: receiving.name(),
        ops,
        registry,
        escape,
    })
}

/// Span of the card's clock.
fn card_span(from: u64, to: u64) -> Duration {
    Duration::from_nanos(to.saturating_sub(from))
}

/// Address `offset` bytes after `start`; the driver refuses addresses outside card memory.
fn remainder(start: CardAddr, offset: u64) -> CardAddr {
    start.checked_add(offset).unwrap_or(CardAddr::new(u64::MAX))
}
