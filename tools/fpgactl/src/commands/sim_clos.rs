//! `sim clos`: the default scheme on a Clos network of 144 hosts, beside uet-htsim.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fpga_input::FileKind;
use fpga_netsim::clos_table::{ClosRow, FlowTimes, HOSTS, RowSample};
use fpga_netsim::{Flow, SimulationError, file};
use fpga_registers::quantity;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::cli::{RowName, SimClosArgs};
use crate::commands::sim;
use crate::commands::sim_clos_htsim::{Htsim, children_cpu};
use crate::error::CliError;
use crate::outfile::{self, OutFile};
use crate::output::{self, Report, listing};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stop;

/// Folders that are searched for flow lists without `--lists`: that of the sources, and that of the package.
const LISTS: [&str; 2] = ["examples/scenarios/clos", "/usr/share/doc/fpgactl/examples/scenarios/clos"];

/// Result of the command.
#[derive(Debug, Serialize)]
pub struct ClosReport {
    runs: u32,
    seed: u32,
    lists: String,
    htsim: Option<String>,
    /// Reason why the other simulator's results are missing or incomplete.
    htsim_error: Option<String>,
    lines: Vec<LineReport>,
    /// File written.
    csv: Option<String>,
}

/// Line of the table: a row, or the flows of one size in it.
#[derive(Debug, Serialize)]
struct LineReport {
    row: &'static str,
    /// Size of the flows; null: all flows of the row.
    size_bytes: Option<u64>,
    flows: usize,
    registry: SideReport,
    nscc: Option<SideReport>,
    /// The default scheme's p99 divided by that of NSCC.
    p99_ratio: Option<f64>,
}

#[derive(Debug, Serialize)]
struct SideReport {
    mean_us: Option<f64>,
    p99_us: Option<f64>,
    max_us: Option<f64>,
    /// Of the whole row.
    retransmitted_percent: f64,
    cpu_s: f64,
    failures: u64,
}

/// Results of one simulator in a row.
#[derive(Debug, Default)]
struct Side {
    sample: RowSample,
    cpu: Duration,
}

impl Side {
    fn report(&self, times: Option<FlowTimes>) -> SideReport {
        SideReport {
            mean_us: times.map(|times| times.mean_us),
            p99_us: times.map(|times| times.p99_us),
            max_us: times.map(|times| times.max_us),
            retransmitted_percent: self.sample.retransmitted_percent(),
            cpu_s: self.cpu.as_secs_f64(),
            failures: self.sample.failures,
        }
    }
}

fn lines(row: &ClosRow, flows: usize, ours: &Side, theirs: Option<&Side>) -> Vec<LineReport> {
    let line = |size: Option<u64>| {
        let times = ours.sample.times(size);
        let other = theirs.map(|side| side.sample.times(size));
        LineReport {
            row: row.name,
            size_bytes: size,
            flows: if size.is_some() { times.map_or(0, |times| times.flows) } else { flows },
            registry: ours.report(times),
            nscc: theirs.zip(other).map(|(side, times)| side.report(times)),
            p99_ratio: times.zip(other.flatten()).map(|(times, other)| times.p99_us / other.p99_us),
        }
    };
    if row.sizes.is_empty() {
        vec![line(None)]
    } else {
        row.sizes.iter().map(|size| line(Some(*size))).collect()
    }
}

fn microseconds(time: Option<f64>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{time:.1}"))
}

impl LineReport {
    fn name(&self) -> String {
        match self.size_bytes {
            Some(size) => format!("{}, {size} bytes", self.row),
            None => self.row.to_owned(),
        }
    }

    /// Value of the other simulator; empty without one.
    fn nscc(&self, value: impl Fn(&SideReport) -> String) -> String {
        self.nscc.as_ref().map(value).unwrap_or_default()
    }

    fn csv(&self) -> String {
        let number = |value: Option<f64>| value.map(|value| format!("{value:.3}")).unwrap_or_default();
        let side = |side: &SideReport| {
            let [mean, p99, max] = [side.mean_us, side.p99_us, side.max_us].map(number);
            format!(
                "{mean},{p99},{max},{:.3},{:.2},{}",
                side.retransmitted_percent, side.cpu_s, side.failures
            )
        };
        let size = self.size_bytes.map(|size| size.to_string()).unwrap_or_default();
        let nscc = self.nscc.as_ref().map_or_else(|| ",,,,,".to_owned(), side);
        format!(
            "{},{size},{},{},{nscc},{}\n",
            self.row,
            self.flows,
            side(&self.registry),
            number(self.p99_ratio)
        )
    }
}

/// Header of the CSV file.
const CSV_HEADER: &str = "row,size_bytes,flows,registry_mean_us,registry_p99_us,registry_max_us,registry_retransmitted_percent,\
                          registry_cpu_s,registry_failures,nscc_mean_us,nscc_p99_us,nscc_max_us,nscc_retransmitted_percent,nscc_cpu_s,\
                          nscc_failures,p99_ratio\n";

impl Report for ClosReport {
    fn text(&self) -> String {
        let mut columns: Vec<output::Column<'_, LineReport>> = vec![
            ("row", &|line| line.name()),
            (">flows", &|line| line.flows.to_string()),
            (">mean µs", &|line| microseconds(line.registry.mean_us)),
            (">p99 µs", &|line| microseconds(line.registry.p99_us)),
            (">max µs", &|line| microseconds(line.registry.max_us)),
            (">retransmitted", &|line| format!("{:.2} %", line.registry.retransmitted_percent)),
            (">CPU s", &|line| format!("{:.2}", line.registry.cpu_s)),
        ];
        if self.lines.iter().any(|line| line.nscc.is_some()) {
            let nscc: [output::Column<'_, LineReport>; 6] = [
                (">NSCC mean", &|line| line.nscc(|side| microseconds(side.mean_us))),
                (">p99", &|line| line.nscc(|side| microseconds(side.p99_us))),
                (">max", &|line| line.nscc(|side| microseconds(side.max_us))),
                (">retransmitted", &|line| line.nscc(|side| format!("{:.2} %", side.retransmitted_percent))),
                (">CPU s", &|line| line.nscc(|side| format!("{:.2}", side.cpu_s))),
                (">p99 ratio", &|line| line.p99_ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default()),
            ];
            columns.extend(nscc);
        }
        let mut text = listing(&self.lines, &columns);
        let failed = |side: &SideReport| side.failures > 0;
        for line in
            self.lines.iter().filter(|line| failed(&line.registry) || line.nscc.as_ref().is_some_and(failed))
        {
            let nscc = line.nscc(|side| format!(", NSCC: {}", quantity(side.failures, "unfinished flow")));
            text += &format!("{}: {}{nscc}\n", line.name(), quantity(line.registry.failures, "failed flow"));
        }
        text += &format!(
            "{} from seed {}, flow lists of {}\n",
            quantity(self.runs, "run"),
            self.seed,
            self.lists
        );
        self.csv.iter().for_each(|csv| text += &format!("{csv}\n"));
        text
    }
}

fn folder(given: Option<&Path>) -> Result<PathBuf, CliError> {
    let found = || LISTS.map(PathBuf::from).into_iter().find(|folder| folder.is_dir());
    given.map(Path::to_owned).or_else(found).ok_or_else(|| {
        let text = format!("flow lists: there is no folder {} and no folder {}", LISTS[0], LISTS[1]);
        CliError::failed(text).advise("name the folder with --lists")
    })
}

fn own_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Fails after a signal or at the deadline.
fn check(settings: &Settings, row: &ClosRow) -> Result<(), CliError> {
    let what = || format!("sim clos, row {}", row.name);
    stop::check(what(), "nothing was written")?;
    settings.deadline.check_time(what)
}

fn read_lists(folder: &Path, rows: &[&'static ClosRow]) -> Result<Vec<Vec<Flow>>, CliError> {
    let read = |row: &&ClosRow| {
        let path = folder.join(row.list);
        let text = FileKind::FLOW_LIST.read(&path)?;
        Ok(file::parse_flows(&path.display().to_string(), &text, Some(HOSTS))
            .map_err(file::FileError::from)?)
    };
    rows.iter().map(read).collect()
}

fn simulate(settings: &Settings, row: &ClosRow, flows: &[Flow], seed: u64) -> Result<RowSample, CliError> {
    let what = || format!("sim clos, row {}", row.name);
    let run = sim::until_stopped(settings.deadline, &what, |ended| row.run(flows, seed, ended));
    if matches!(run, Err(SimulationError::Stopped { .. })) {
        check(settings, row)?;
    }
    run.map_err(|error| CliError::failed(format!("{}: {error}", what())))
}

/// Runs the command.
///
/// # Errors
/// After the report, if the other simulator failed.
pub fn run(settings: &Settings, args: &SimClosArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let rows: Vec<&'static ClosRow> = match args.row.is_empty() {
        true => ClosRow::ALL.iter().collect(),
        false => args.row.iter().map(|RowName(row)| *row).collect(),
    };
    let lists = folder(args.lists.as_deref())?;
    let all = read_lists(&lists, &rows)?;
    stop::handle_signals()?;
    if let Some(out) = &args.out {
        sim::directory(out)?;
    }
    let program = args.htsim.as_deref();
    let mut htsim = program.map(|program| Htsim { program, timeout: args.htsim_timeout });
    let total = rows.len() as u64 * u64::from(args.runs) * if htsim.is_some() { 2 } else { 1 };
    let progress = Progress::counting(total, "runs", settings.progress);
    let (mut reported, mut failure) = (Vec::new(), None);
    for (row, flows) in rows.into_iter().zip(&all) {
        progress.phase(row.name);
        let (mut ours, mut theirs) = (Side::default(), Side::default());
        for seed in (u64::from(args.seed)..).take(args.runs as usize) {
            let begun = own_cpu();
            ours.sample.add(simulate(settings, row, flows, seed)?);
            ours.cpu += own_cpu().saturating_sub(begun);
            progress.advance();
        }
        let begun = children_cpu();
        for seed in (u64::from(args.seed)..).take(args.runs as usize) {
            let Some(program) = &htsim else { break };
            match program.run(row, flows, seed, &|| check(settings, row)) {
                Ok(sample) => theirs.sample.add(sample),
                Err(error) => {
                    check(settings, row)?;
                    (failure, htsim) = (Some(error), None);
                }
            }
            progress.advance();
        }
        theirs.cpu = children_cpu().saturating_sub(begun);
        let runs = flows.len() * args.runs as usize;
        reported.extend(lines(row, runs, &ours, htsim.is_some().then_some(&theirs)));
    }
    drop(progress);
    let csv = match &args.out {
        None => None,
        Some(out) => {
            let text = CSV_HEADER.to_owned() + &reported.iter().map(LineReport::csv).collect::<String>();
            if outfile::is_stdout(out) {
                OutFile::write_whole(out, text.as_bytes(), settings.deadline)?;
                Some(out.display().to_string())
            } else {
                Some(sim::write_file(out, "clos.csv", text, settings.deadline)?)
            }
        }
    };
    let report = ClosReport {
        runs: args.runs,
        seed: args.seed,
        lists: lists.display().to_string(),
        htsim: program.map(|program| program.display().to_string()),
        htsim_error: failure.as_ref().map(CliError::reason),
        lines: reported,
        csv,
    };
    output::print(&report, settings.json, out)?;
    failure.map_or(Ok(()), |error| Err(error.reported()))
}
