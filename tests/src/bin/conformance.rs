//! `conformance`: runs the conformance suite, or load, on any card. For machines without a compiler it can be linked statically.
//!
//! One line per case on standard output, as text or (`--json`) as an object `{schema_version, backend, name, status, seconds, message}`
//! with status `pass`, `fail` or `skip`, and, where the case counts what transfers cost at the card's registers, `costs`. Exit status 0:
//! nothing failed; 1: a case failed; 2: invalid command line.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use fpga_driver::{BarOffset, CardAddr, CardRange, CardSpec};
use fpga_pci::Backend;
use fpga_pci::vfio::VfioInterface;
use fpga_tests::conformance::backends::{ExternalCard, INLINE, ServedCard, THREADED};
use fpga_tests::conformance::fault_control::FaultControl;
use fpga_tests::conformance::{
    Build, Case, CaseResult, Cost, Outcome, TestBackend, cases, load, page, run_case,
};
use fpgactl::target::{self, AccessChoice, Target};
use fpgactl::units;
use serde::Serialize;

/// Runs the conformance suite on a card.
///
/// Writes the card's memory and uses its channels and interrupts. No other program may use the card during the run.
#[derive(Debug, Parser)]
#[command(name = "conformance", version)]
struct Arguments {
    /// Card, as for fpgactl: mock (all backends of this process), a PCI address, vfio-user:SOCKET.
    #[arg(long, default_value = "mock")]
    card: Target,
    /// Kernel interface through which a PCI address is opened: auto, group or iommufd; default: the value of FPGA_VFIO.
    #[arg(long, value_name = "INTERFACE")]
    vfio: Option<VfioInterface>,
    /// Card of another build, for cases that need that build. Repeatable. Builds are the files of tests/cards.
    #[arg(long, value_name = "BUILD=CARD", value_parser = parse_build)]
    build: Vec<(&'static Build, Target)>,
    /// Control socket of the served card that --card names, for setting faults: the --control path of `fpgactl card serve`.
    #[arg(long, value_name = "PATH", conflicts_with = "fault_control")]
    control: Option<PathBuf>,
    /// Command to use instead of that socket on another machine. Its arguments are the card's number (0: --card, 1: the
    /// first --build) and `control REQUEST`, whose answer it prints, or `bus-error`, for an error at the port above the card.
    #[arg(long, value_name = "COMMAND")]
    fault_control: Option<String>,
    /// Name of the backend in reports; default: the kind of backend. For a card in this process: the only backend to run (inline,
    /// threaded or vfio-user); default: all.
    #[arg(long)]
    backend: Option<String>,
    /// Run only cases whose name starts with this. Repeatable.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Report cases whose name starts with this as skipped. Repeatable.
    #[arg(long = "leave-out", value_name = "NAME")]
    excluded: Vec<String>,
    /// Bytes of card memory from address 0, for a card that does not report them: a design of your own without the network interface.
    #[arg(long, value_name = "BYTES")]
    memory: Option<u64>,
    /// Offset of the copy engine's registers (AXI CDMA) in the user BAR, for a card that does not report it.
    #[arg(long, value_name = "OFFSET", value_parser = units::offset)]
    cdma_offset: Option<BarOffset>,
    /// Skip cases that provoke accesses that the IOMMU has to refuse: some machines stop at such an access.
    #[arg(long)]
    gentle: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
    /// List the cases and run none.
    #[arg(long)]
    list: bool,
    /// Print docs/guide/faults.md and run nothing.
    #[arg(long)]
    fault_page: bool,
    /// Run mixed transfers without end, or for this number of seconds, so that the process can be killed during transfers.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1e9", conflicts_with_all = ["check_after_kill", "rate"])]
    hammer: Option<f64>,
    /// Open the card after such a kill, and check every channel and the copy engine once.
    #[arg(long = "after-kill", conflicts_with = "rate")]
    check_after_kill: bool,
    /// Measure transfers of 4 KiB, 64 in flight, and a loop with five register reads and seven writes per transfer, each for this
    /// number of seconds. Fails if the driver is less than ten times as fast as the loop.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    rate: Option<f64>,
    /// Seed of the random choices of --hammer.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn parse_build(text: &str) -> Result<(&'static Build, Target), String> {
    let (name, card) = text.split_once('=').ok_or("the value is not of the form BUILD=CARD")?;
    let build = Build::named(name)
        .ok_or_else(|| format!("no build is named {name}; choose a file name from tests/cards"))?;
    Ok((build, card.parse().map_err(|error| format!("{card}: {error}"))?))
}

/// Minimum rate of the driver as a multiple of the register loop's rate.
const MIN_RATE_RATIO: f64 = 10.0;

/// One line of the report.
#[derive(Debug, Serialize)]
struct Line<'a> {
    schema_version: u32,
    backend: &'a str,
    name: &'a str,
    status: &'static str,
    seconds: f64,
    message: &'a str,
    /// Costs that the case counted.
    #[serde(skip_serializing_if = "<[Cost]>::is_empty")]
    costs: &'a [Cost],
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    let choice = AccessChoice { interface: arguments.vfio, ..AccessChoice::default() };
    arguments.card = arguments.card.through(choice);
    arguments.build =
        arguments.build.into_iter().map(|(build, card)| (build, card.through(choice))).collect();
    match run(&arguments, &mut io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // If this write fails too, the error cannot be reported.
            let _ = writeln!(io::stderr(), "conformance: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the suite. Returns whether nothing failed.
fn run(arguments: &Arguments, out: &mut dyn Write) -> io::Result<bool> {
    if arguments.fault_page {
        write!(out, "{}", page::faults())?;
        return Ok(true);
    }
    let wanted = |case: &Case| {
        arguments.only.is_empty() || arguments.only.iter().any(|name| case.name.starts_with(name.as_str()))
    };
    let cases: Vec<_> = cases().into_iter().filter(wanted).collect();
    if cases.is_empty() {
        // The same exit as for any other invalid command line.
        Arguments::command()
            .error(
                ErrorKind::InvalidValue,
                "no case name starts with the value of --only; run with --list to see the names",
            )
            .exit();
    }
    if arguments.list {
        for case in cases {
            writeln!(out, "{}", case.name)?;
        }
        return Ok(true);
    }
    let load = arguments.hammer.is_some() || arguments.check_after_kill || arguments.rate.is_some();
    if load {
        return run_load(arguments, out);
    }
    let external;
    let backends: Vec<&dyn TestBackend> = match &arguments.card.spec {
        CardSpec::Simulated { description: None } => {
            let mut all: Vec<&dyn TestBackend> = vec![&INLINE, &THREADED, &ServedCard];
            all.retain(|backend| arguments.backend.as_deref().is_none_or(|only| only == backend.name()));
            if all.is_empty() {
                let message = "--backend names no backend of this process; use inline, threaded or vfio-user";
                Arguments::command().error(ErrorKind::InvalidValue, message).exit();
            }
            all
        }
        _ => {
            external = external_card(arguments, &arguments.card);
            vec![&external]
        }
    };
    let mut passed = true;
    for backend in backends {
        for case in &cases {
            let is_skipped = arguments.excluded.iter().any(|name| case.name.starts_with(name.as_str()));
            let judged = if is_skipped {
                let why = "excluded with --leave-out".to_owned();
                CaseResult { outcome: Outcome::Skipped(why), took: Duration::ZERO, costs: Vec::new() }
            } else {
                run_case(case, backend)
            };
            passed &= !matches!(judged.outcome, Outcome::Failed(_));
            report(arguments, out, backend.name(), case.name, &judged, judged.outcome.message())?;
        }
    }
    Ok(passed)
}

/// Backend of existing cards.
fn external_card(arguments: &Arguments, card: &Target) -> ExternalCard {
    let outside = arguments.control.clone().map(FaultControl::Control);
    let outside = outside.or_else(|| arguments.fault_control.as_deref().map(FaultControl::command));
    let backend = ExternalCard::new(backend_name(arguments), !arguments.gentle, open_backend(card.clone()))
        .outside(outside)
        .with_memory(arguments.memory.map(|bytes| CardRange::new(CardAddr::ZERO, bytes)))
        .with_cdma_offset(arguments.cdma_offset);
    let backend = match card.spec {
        CardSpec::VfioUser(_) => backend.passing_memory_on(),
        CardSpec::Pci(_) => backend.via_kernel(),
        _ => backend,
    };
    arguments
        .build
        .iter()
        .fold(backend, |backend, (build, card)| backend.with(build, open_backend(card.clone())))
}

fn report(
    arguments: &Arguments,
    out: &mut dyn Write,
    backend: &str,
    name: &str,
    judged: &CaseResult,
    message: &str,
) -> io::Result<()> {
    let line = Line {
        schema_version: 3,
        backend,
        name,
        status: judged.outcome.word(),
        seconds: (judged.took.as_secs_f64() * 1e3).round() / 1e3,
        message,
        costs: &judged.costs,
    };
    if arguments.json {
        serde_json::to_writer(&mut *out, &line)?;
        writeln!(out)?;
    } else {
        let gap = if line.message.is_empty() { "" } else { ": " };
        writeln!(out, "{:4} {backend}::{name} ({:.3} s){gap}{}", line.status, line.seconds, line.message)?;
        for cost in line.costs {
            let Cost { work, transfers, reads, writes, interrupts } = cost;
            writeln!(
                out,
                "       {work}: {transfers} transfers, {reads} reads, {writes} writes, {interrupts} interrupts"
            )?;
        }
    }
    // A reader of the output sees the progress at once.
    out.flush()
}

fn backend_name(arguments: &Arguments) -> String {
    arguments.backend.clone().unwrap_or_else(|| {
        match arguments.card.spec {
            CardSpec::VfioUser(_) => "vfio-user",
            CardSpec::Pci(_) => "vfio",
            _ => "mock",
        }
        .to_owned()
    })
}

type OpenBackend = dyn Fn() -> Result<Arc<dyn Backend>, String> + Send + Sync;

fn open_backend(card: Target) -> Arc<OpenBackend> {
    Arc::new(move || target::reach(&card).map_err(|error| error.to_string()))
}

/// Runs the mode that was requested instead of the suite.
fn run_load(arguments: &Arguments, out: &mut dyn Write) -> io::Result<bool> {
    let began = Instant::now();
    let backend = match arguments.card.spec {
        // Runs in its own thread, as every other card does.
        CardSpec::Simulated { description: None } => fpga_tests::conformance::TestBackend::fixture(&THREADED)
            .and_then(|fixture| fixture.open_backend()),
        _ => open_backend(arguments.card.clone())(),
    };
    let (name, result) = if let Some(seconds) = arguments.hammer {
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let begun = &mut || {
            // Notifies the process that will kill this one that the load runs.
            let _ = writeln!(io::stderr(), "hammering");
        };
        let run = |backend| load::stress(backend, arguments.seed, begun, &mut || began.elapsed() >= limit);
        ("hammer", backend.map_err(Into::into).and_then(run).map(|done| (true, format!("{done} transfers"))))
    } else if arguments.check_after_kill {
        let run = |backend| load::check_after_kill(backend).map(|message| (true, message));
        ("check_after_kill", backend.map_err(Into::into).and_then(run))
    } else {
        let span =
            Duration::try_from_secs_f64(arguments.rate.unwrap_or(1.0)).unwrap_or(Duration::from_secs(1));
        let run = |backend| {
            load::rates(backend, span).map(|rates| {
                let ratio = rates.ratio();
                let message = format!(
                    "driver: {:.0} transfers of 4 KiB per second; loop with 5 register reads and 7 writes each: {:.0}; ratio {ratio:.1}",
                    rates.driver, rates.registers
                );
                (ratio >= MIN_RATE_RATIO, message)
            })
        };
        ("rate", backend.map_err(Into::into).and_then(run))
    };
    let (outcome, message) = match result {
        Ok((true, message)) => (Outcome::Passed, message),
        Ok((false, message)) => (Outcome::Failed(message.clone()), message),
        Err(error) => (Outcome::Failed(error.to_string()), error.to_string()),
    };
    let judged = CaseResult { outcome, took: began.elapsed(), costs: Vec::new() };
    report(arguments, out, &backend_name(arguments), name, &judged, &message)?;
    Ok(judged.outcome == Outcome::Passed)
}
