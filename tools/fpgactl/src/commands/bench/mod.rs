//! `dma bench`: how fast a card moves data, and at what cost.
//!
//! Three quantities are measured per size, direction and wait mode, in this order:
//!
//! | Quantity | Method |
//! |---|---|
//! | throughput | `--depth` operations in flight per channel, up to `--batch` submitted per round, then one poll |
//! | latency | one operation at a time |
//! | CPU time | closed batches: submitting and reaping, without the time between |
//!
//! All three together take `--seconds`, most of it the throughput run. A signal or `--timeout` ends the command after the rows that are
//! complete, which are printed; so does a failure of the card.
//!
//! Memory is registered with the channels once; an operation moves a part of it to or from card memory. Both sides are compared after the
//! throughput run.

mod channel;
mod histogram;
mod measure;
mod picture;
mod progress;
mod report;

use core::time::Duration;
use std::io::{IsTerminal, Write};

use fpga_driver::{CardAddr, ChannelOptions, Direction, RunMode, WaitMode};
use fpga_pci::AccessCounters;
use fpga_pci::memory::CopyLimit;
use fpga_registers::quantity;
use fpga_ring::ring::MAX_DESCRIPTOR_LENGTH;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::chart;
use crate::cli::{BenchArgs, BenchDirection, BenchMode, BenchRing};
use crate::error::CliError;
use crate::outfile::OutFile;
use crate::output;
use crate::progress::Deadline;
use crate::settings::Settings;
use crate::target::{self, Opened};
use crate::units::binary_size;

use channel::{BenchChannel, WorkingSet};
use measure::{BenchChannels, Load, clock_cost, share};
use progress::{Row, Rows};
pub use report::BenchReport;
use report::{Latency, Measured, ResultRow};

/// Size of a channel's working set on each side, in bytes, and its maximum number of buffers.
const WORKING_SET: u64 = 16 << 20;
const MAX_WORKING_SET_SLOTS: u64 = 4096;
/// Time for which plain copies are measured, as a share of a row's time.
const PLAIN_COPIES: f64 = 0.1;
/// Maximum working set of plain copies, in bytes: more than caches hold.
const MAX_PLAIN_COPIES: u64 = 256 << 20;
/// Time that a hybrid wait polls.
const HYBRID_SPIN: Duration = Duration::from_micros(20);
/// Alignment of working sets in card memory, in bytes.
const CARD_ALIGNMENT: u64 = 4096;
/// DMA memory in addition to the working sets, in bytes: rings, and buffers for the comparison.
const EXTRA_DMA_MEMORY: usize = 64 << 20;

/// One line of the report.
#[derive(Debug, Clone, Copy)]
struct Case {
    size: u64,
    direction: BenchDirection,
    mode: BenchMode,
}

impl Case {
    fn name(&self) -> String {
        format!("{} {} {}", binary_size(self.size), self.direction.name(), self.mode.name())
    }
}

/// Runs the command.
///
/// # Errors
/// See [`CliError`]; also if the data is not as expected afterwards, and, after the report, if a
/// signal or `--timeout` came before the last row.
pub fn run(settings: &Settings, args: &BenchArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let sizes = args.sizes.iter().map(|size| ("--sizes", size));
    for (option, size) in sizes.chain(args.beside.iter().map(|size| ("--beside", size))) {
        if *size > u64::from(MAX_DESCRIPTOR_LENGTH) {
            return Err(CliError::usage(format!(
                "{option}: {size} is above the limit of one descriptor, {} ({MAX_DESCRIPTOR_LENGTH} bytes)",
                binary_size(u64::from(MAX_DESCRIPTOR_LENGTH))
            ))
            .advise("give smaller sizes"));
        }
    }
    let cases: Vec<Case> = cases(args).collect();
    let largest = args.sizes.iter().map(|size| slots(*size) * size).max().unwrap_or(0);
    let channels = u64::from(args.channels) * 2;
    let limit =
        usize::try_from(largest.saturating_mul(channels).saturating_add(args.beside.map_or(0, stride)))
            .unwrap_or(usize::MAX)
            .saturating_add(EXTRA_DMA_MEMORY);
    // An unwritable file is reported before anything is measured.
    let svg = args.svg.as_deref().map(|path| OutFile::create(path, settings.deadline)).transpose()?;
    // The card's thread starts before this one is bound: it would inherit the CPU.
    let opened = target::open_threaded(&settings.card, args.pin.map(|pin| pin.card), limit)?;
    if let Some(pin) = args.pin {
        bind(pin.host)?;
    }
    for case in &cases {
        check(&opened, args, case)?;
    }
    let warning = shared_cpu(&opened, args);
    // The report contains the warning as well. On a terminal it is shown at once.
    if let Some(warning) = warning.as_ref().filter(|_| std::io::stderr().is_terminal()) {
        tracing::warn!("{warning}");
    }
    if cases.iter().any(|case| case.mode != BenchMode::Poll) {
        opened.card.enable_interrupts()?;
    }
    let rows = Rows::new(cases.len(), args.seconds, settings.progress);
    let mut lines = Vec::with_capacity(cases.len());
    let mut ended = Ok(());
    for (case, number) in cases.iter().zip(0..) {
        tracing::info!(?case, "measuring");
        let line = settings
            .deadline
            .check(|| "dma bench".to_owned())
            .and_then(|()| measure_case(settings, &opened, args, *case, &rows, number));
        match line {
            Ok(line) => lines.push(line),
            Err(error) => {
                ended = Err(error);
                break;
            }
        }
    }
    drop(rows);
    if let Err(error) = ended {
        // Without a row, there is no report. The complete rows were verified before the failure.
        let done = lines.len();
        if done == 0 {
            return Err(error);
        }
        let stopped = CliError::failed(format!(
            "{}: dma bench: {}, after {done} of {}; the report contains what was measured, and engines are stopped",
            opened.card.name(),
            error.short_reason(),
            quantity(cases.len(), "row"),
        ))
        .reported();
        print(settings, &opened, args, (lines, warning, svg), out)?;
        return Err(stopped);
    }
    print(settings, &opened, args, (lines, warning, svg), out)
}

/// Prints the report of the given rows.
fn print(
    settings: &Settings,
    opened: &Opened,
    args: &BenchArgs,
    (lines, warning, svg): (Vec<ResultRow>, Option<String>, Option<OutFile>),
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let mut report = BenchReport::new(opened, args, clock_cost(), lines);
    (report.shared_cpu, report.warning) = (warning.is_some(), warning);
    let picture = picture::of(&report);
    if let (Some(path), Some(mut file)) = (&args.svg, svg) {
        file.write_all(picture.svg().as_bytes())
            .map_err(|error| CliError::carried(path, "write it", error))?;
        file.commit()?;
        report.svg = Some(path.display().to_string());
    }
    if args.chart || args.sizes.len() > 1 {
        report.chart = chart::text_beside_report(&picture, args.chart, settings);
    }
    output::print(&report, settings.json, out)
}

/// Returns whether the simulated card's thread and this one share a CPU.
fn shares_cpu(opened: &Opened, args: &BenchArgs) -> bool {
    if !opened.simulated || opened.served {
        return false;
    }
    match args.pin {
        Some(pin) => pin.card == pin.host,
        None => sched_getaffinity(None).is_ok_and(|cpus| cpus.count() == 1),
    }
}

/// Returns a warning if both threads share a CPU.
fn shared_cpu(opened: &Opened, args: &BenchArgs) -> Option<String> {
    let advice = if args.pin.is_some() {
        "give --pin two different CPUs"
    } else {
        "let this process use two CPUs (taskset, cgroup)"
    };
    shares_cpu(opened, args).then(|| {
        format!(
            "the simulated card's thread and the measuring thread share one CPU: rates and latencies depend on the scheduler; {advice}"
        )
    })
}

fn cases(args: &BenchArgs) -> impl Iterator<Item = Case> {
    args.sizes.iter().flat_map(move |size| {
        args.direction.iter().flat_map(move |direction| {
            args.mode.iter().map(move |mode| Case { size: *size, direction: *direction, mode: *mode })
        })
    })
}

const fn slots(size: u64) -> u64 {
    match WORKING_SET.checked_div(size) {
        Some(0) | None => 1,
        Some(slots) if slots > MAX_WORKING_SET_SLOTS => MAX_WORKING_SET_SLOTS,
        Some(slots) => slots,
    }
}

/// Binds this thread to a CPU.
fn bind(cpu: usize) -> Result<(), CliError> {
    let refused = |error| {
        CliError::failed(format!("--pin: this thread cannot be bound to CPU {cpu}: {error}"))
            .advise("name CPUs that this process may use")
    };
    if cpu >= CpuSet::MAX_CPU {
        return Err(refused(rustix::io::Errno::INVAL));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(refused)
}

/// Checks before the measurement that the card has the channels and the memory.
fn check(opened: &Opened, args: &BenchArgs, case: &Case) -> Result<(), CliError> {
    let info = opened.card.info();
    for direction in [Direction::H2c, Direction::C2h].into_iter().filter(|way| case.direction.includes(*way))
    {
        let available = info.xdma.count(direction);
        let beside =
            args.beside.is_some() && (direction == Direction::H2c || case.direction == BenchDirection::C2h);
        let wanted = args.channels.saturating_add(u8::from(beside));
        if wanted > available {
            let card = opened.card.name();
            return Err(CliError::usage(format!(
                "{card}: {wanted} channels are requested, but it has {available} in direction {direction}"
            ))
            .advise("give fewer --channels"));
        }
    }
    if let Some(ni) = &info.ni {
        let beside = args.beside.map_or(0, stride);
        let needed = stride(case.size).saturating_mul(channel_count(args, case)).saturating_add(beside);
        if needed > ni.memory.length {
            return Err(CliError::usage(format!(
                "{}: working sets of {} do not fit into its {} of memory",
                opened.card.name(),
                binary_size(needed),
                binary_size(ni.memory.length)
            ))
            .advise("give smaller --sizes or fewer --channels"));
        }
    }
    Ok(())
}

fn channel_count(args: &BenchArgs, case: &Case) -> u64 {
    u64::from(args.channels) * if case.direction == BenchDirection::Both { 2 } else { 1 }
}

const fn stride(size: u64) -> u64 {
    (slots(size) * size).next_multiple_of(CARD_ALIGNMENT)
}

/// Returns the working sets of a case, H2C first. Their contents differ, so that data in the wrong working set is detected.
fn working_sets(
    opened: &Opened,
    args: &BenchArgs,
    case: &Case,
    deadline: Deadline,
) -> Vec<(Direction, u8, WorkingSet)> {
    let base = opened.card.info().ni.as_ref().map_or(0, |ni| ni.memory.start.get());
    let ways = [Direction::H2c, Direction::C2h].into_iter().filter(|way| case.direction.includes(*way));
    ways.flat_map(|way| (0..args.channels).map(move |number| (way, number)))
        .zip(0_u64..)
        .map(|((way, number), index)| {
            let set = WorkingSet {
                size: usize::try_from(case.size).unwrap_or(usize::MAX),
                slots: slots(case.size),
                card: CardAddr::new(base.saturating_add(stride(case.size).saturating_mul(index))),
                seed: case.size.wrapping_mul(31).wrapping_add(index),
                deadline,
            };
            (way, number, set)
        })
        .collect()
}

/// Returns the working set of the channel that is kept busy: behind all others.
fn busy_set(opened: &Opened, args: &BenchArgs, case: &Case, size: u64, deadline: Deadline) -> WorkingSet {
    let base = opened.card.info().ni.as_ref().map_or(0, |ni| ni.memory.start.get());
    WorkingSet {
        size: usize::try_from(size).unwrap_or(usize::MAX),
        slots: slots(size),
        card: CardAddr::new(base.saturating_add(stride(case.size).saturating_mul(channel_count(args, case)))),
        seed: size,
        deadline,
    }
}

fn channel_options(args: &BenchArgs) -> ChannelOptions {
    let transfers = args.depth.next_power_of_two();
    let mode = match args.ring {
        BenchRing::Stop => RunMode::Batch,
        BenchRing::Credit => RunMode::Credit,
    };
    // Twice as many descriptors as are in flight: those being written are apart from those being read.
    ChannelOptions::default().descriptors((2 * transfers).max(64)).transfers(transfers).run_mode(mode)
}

fn load<'a>(
    settings: &Settings,
    opened: &Opened,
    args: &BenchArgs,
    case: &Case,
    row: &'a Row<'a>,
) -> Load<'a> {
    let wait = match case.mode {
        BenchMode::Poll => None,
        BenchMode::Irq => Some(WaitMode::Interrupt),
        BenchMode::Hybrid => Some(WaitMode::Hybrid { spin: HYBRID_SPIN }),
    };
    Load {
        depth: args.depth.into(),
        batch: args.batch.into(),
        wait,
        deadline: settings.deadline,
        shared_cpu: shares_cpu(opened, args),
        row,
    }
}

fn measure_case(
    settings: &Settings,
    opened: &Opened,
    args: &BenchArgs,
    case: Case,
    rows: &Rows,
    number: u32,
) -> Result<ResultRow, CliError> {
    let card = &opened.card;
    let sets = working_sets(opened, args, &case, settings.deadline);
    let of = |way: Direction| sets.iter().filter(move |(found, ..)| *found == way);
    let (to_card, to_host) = (of(Direction::H2c).count() != 0, of(Direction::C2h).count() != 0);
    // A channel of the other direction writes the data that this one reads, and reads the data that this one wrote.
    let comparable =
        (!to_card || card.info().xdma.c2h_channels > 0) && (!to_host || card.info().xdma.h2c_channels > 0);
    if to_host && comparable {
        let mut channel = card.h2c(0)?;
        of(Direction::C2h).try_for_each(|(.., set)| set.write_to_card(card, &mut channel))?;
    }
    let options = channel_options(args);
    let mut channels = BenchChannels {
        channels: of(Direction::H2c)
            .chain(of(Direction::C2h))
            .map(|(direction, n, set)| BenchChannel::new(card, *direction, *n, options, *set))
            .collect::<Result<_, _>>()?,
        beside: None,
    };
    if let Some(size) = args.beside {
        let set = busy_set(opened, args, &case, size, settings.deadline);
        let number = args.channels;
        let direction = if case.direction == BenchDirection::C2h { Direction::C2h } else { Direction::H2c };
        channels.beside = Some(BenchChannel::new(card, direction, number, options, set)?);
    }
    let slots = slots(case.size);
    let row = rows.begin(number, case.name());
    let load = load(settings, opened, args, &case, &row);
    let estimate = channels.warm_up(card, &load, slots)?;
    channels.clear(card)?;
    // A real card moves data itself.
    let limit = if opened.simulated { row.pause_timer(|| plain_copies(args, &case)) } else { None };
    let before = card.counters();
    let run = channels.measure(card, &load, args.seconds.mul_f64(share::THROUGHPUT), slots, estimate)?;
    let after = card.counters();
    if comparable {
        row.pause_timer(|| channels.channels.iter().try_for_each(|channel| channel.compare_on_host(card)))?;
    }
    let latency = match args.samples {
        0 => None,
        samples => Latency::of(&channels.latencies(card, &load, samples)?),
    };
    let cpu_ns_per_op = channels.cpu_ns(card, &load, args.batches)?;
    drop(channels);
    if to_card && comparable {
        let mut channel = card.c2h(0)?;
        of(Direction::H2c).try_for_each(|(.., set)| set.compare_on_card(card, &mut channel))?;
    }
    let counted = before.zip(after).map(|(before, after)| since(&before, &after));
    Ok(ResultRow::new(args, &case, &Measured { run, limit, latency, cpu_ns_per_op, counted, comparable }))
}

/// Measures the fastest plain copy of the case's size, for a tenth of a row's time. Without memory for it the report has no such figure.
fn plain_copies(args: &BenchArgs, case: &Case) -> Option<CopyLimit> {
    let length = usize::try_from(case.size).ok()?;
    // All channels together.
    let set = slots(case.size).saturating_mul(case.size).saturating_mul(channel_count(args, case));
    let set = usize::try_from(set.min(MAX_PLAIN_COPIES)).ok()?;
    let limit = CopyLimit::measure(length, set, args.seconds.mul_f64(PLAIN_COPIES));
    limit.inspect_err(|error| tracing::debug!(%error, "plain copies are not measured")).ok()
}

/// Accesses counted between the two readings.
const fn since(before: &AccessCounters, after: &AccessCounters) -> AccessCounters {
    AccessCounters {
        mmio_reads: after.mmio_reads.saturating_sub(before.mmio_reads),
        mmio_writes: after.mmio_writes.saturating_sub(before.mmio_writes),
        interrupts: after.interrupts.saturating_sub(before.interrupts),
        descriptors: after.descriptors.saturating_sub(before.descriptors),
        dma_bytes: after.dma_bytes.saturating_sub(before.dma_bytes),
        ..*after
    }
}
