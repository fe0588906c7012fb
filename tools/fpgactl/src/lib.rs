//! `fpgactl`: the command line for FPGA cards with XDMA and CDMA, and for reliable transfers between them.
//!
//! The binary only calls [`main`]; everything else is in this library, so that tests can call it.
//!
//! | Module | Content |
//! |---|---|
//! | [`cli`], [`config`], [`settings`] | the command line, the defaults file, both together |
//! | [`target`], [`bars`] | the target card and how it is opened; its BARs |
//! | [`registers`], [`guard`] | registers by name; accesses that require `--force` |
//! | [`record`] | the log of `--record` |
//! | [`units`] | sizes, durations, rates |
//! | [`commands`] | one module per command |
//! | [`control`] | the control socket of a served card |
//! | [`stream`] | files, random bytes and standard input that are read twice, and the sink that compares |
//! | [`outfile`] | every file that is written |
//! | [`output`], [`progress`], [`error`] | reports, the progress bar, errors |
//! | `help` | the help pages |
//! | [`style`], [`chart`], [`stop`] | colours and characters, pictures as text, signals |
//!
//! Standard output carries only the report; logs and progress go to standard error. If a command writes data to standard output (`-`), the
//! report goes to standard error, too.

mod advice;
pub mod all_ones;
pub mod bars;
pub mod card_runs;
pub mod chart;
pub mod cli;
pub mod commands;
pub mod config;
pub mod control;
mod copies;
pub mod design;
pub mod error;
pub mod guard;
mod help;
pub mod impair;
mod machine_advice;
pub mod outfile;
pub mod output;
pub mod progress;
pub mod record;
pub mod registers;
pub mod settings;
mod signal_state;
pub mod stop;
pub mod stream;
pub mod style;
pub mod target;
pub mod units;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue};
use fpga_pci::FAULT_LOG;
use fpga_register_map::nearest;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use cli::{Cli, Command, RegsCommand, RtlCommand, SimCommand};
use commands::{
    bind, card, cdma, dma, doctor, dump, events, frames, info, inspect, irq, list, raw, recover, regs,
    replay, rtl_generate, shell, sim, sim_check, sim_clos, sim_grid, sim_grid_cards, top, transfer, validate,
};
use error::CliError;
use settings::Settings;
use stop::SignalAction;
use target::CardOpener as _;

/// Runs the program with `args`; the first one is its name.
#[must_use]
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let out = &mut io::stdout();
    let (name, cli) = match parsed(&args) {
        Ok(parsed) => parsed,
        Err(error) => return refused(suggest_value(error), args.iter().any(|arg| arg == "--json"), out),
    };
    let mut json = cli.global.json;
    let with_json = cli.global.json;
    // The defaults file, which is read later, may name another card.
    let card_remains = Arc::new(AtomicBool::new(outlives(cli.global.card.as_ref())));
    let left = {
        let (gone, remains) = (cli.command.cleanup_advice(false), cli.command.cleanup_advice(true));
        let card_remains = Arc::clone(&card_remains);
        move || if card_remains.load(Ordering::Relaxed) { remains } else { gone }
    };
    let data_on_stdout = cli.outputs_to_stdout() > 0;
    let end = move || {
        let error = CliError::interrupted(name, left());
        outfile::remove_temporary();
        failed(&error, with_json, data_on_stdout);
        std::process::exit(error.exit_status().into());
    };
    let (mut stdout, mut stderr) = (io::stdout(), io::stderr());
    let out: &mut dyn Write = if data_on_stdout { &mut stderr } else { &mut stdout };
    let settings = stop::ignore_file_size_signal()
        .and_then(|()| stop::abort_on_signal(end))
        .and_then(|()| distinct(&cli))
        .and_then(|()| Settings::new(&cli.global));
    let result = settings.and_then(|settings| {
        json = settings.json;
        card_remains.store(outlives(Some(settings.card.target())), Ordering::Relaxed);
        start_logging(settings.verbose);
        if let Some(recording) = settings.card.recording() {
            let recording = Arc::clone(recording);
            stop::before_abort(move || recording.interrupted());
        }
        let done = execute(&settings, &cli.command, out);
        // The record is secondary to the command: its write error is reported only if there is no other error.
        done.and(settings.card.recording().map_or(Ok(()), |recording| recording.finish()))
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the data has closed the pipe.
        Err(error) if error.exit_status() == 0 => {
            stop::finish();
            tracing::info!(%error, "ended");
            if json {
                let _ = output::print_failure(&error, out);
            }
            ExitCode::SUCCESS
        }
        Err(error) if error.is_of_program() => ExitCode::from(error.exit_status()),
        Err(error) => {
            stop::finish();
            failed(&error, json && !error.is_reported(), data_on_stdout)
        }
    }
}

/// Whether a card remains when this process ends: it is not simulated inside it.
fn outlives(card: Option<&target::Target>) -> bool {
    card.is_some_and(|card| !card.is_simulated())
}

/// Reports a failure to the same destination as the command's reports.
fn failed(error: &CliError, json: bool, data_on_stdout: bool) -> ExitCode {
    if !data_on_stdout {
        return fail(error, json, &mut io::stdout());
    }
    if json {
        // One document on standard error, and nothing else.
        let _ = output::print_failure(error, &mut io::stderr());
        return ExitCode::from(error.exit_status());
    }
    fail(error, false, &mut io::stderr())
}

/// The command line, with the command's name, such as `regs dump`.
fn parsed(args: &[OsString]) -> Result<(String, Cli), clap::Error> {
    let mut matches = help::command().try_get_matches_from(args)?;
    if matches.subcommand_name() == Some(help::TOPIC) {
        // A page of the help, not a command: it is printed as `fpgactl help options` prints it.
        matches = help::command().try_get_matches_from(["fpgactl", "help", help::TOPIC])?;
    }
    let mut name = Vec::new();
    let mut inner = &matches;
    while let Some((word, next)) = inner.subcommand() {
        name.push(word.to_owned());
        inner = next;
    }
    let mut cli =
        Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut help::command()))?;
    if let Command::Rtl { command: RtlCommand::Run(args) } = &mut cli.command {
        // This command accesses no registers: its record is that of the simulation.
        args.record = cli.global.record.take();
    }
    Ok((name.join(" "), cli))
}

/// Runs one command and writes its report to `out`.
///
/// # Errors
/// See [`CliError`]. After an error, nothing was written to `out`, unless the error [is reported](CliError::is_reported).
pub fn execute(settings: &Settings, command: &Command, out: &mut dyn Write) -> Result<(), CliError> {
    let json = settings.json;
    if command.on_signal() != SignalAction::Abort && !command.reads_file_before_signals() {
        stop::handle_signals()?;
    }
    match command {
        Command::Transfer(args) => output::print(&transfer::run(settings, args)?, json, out),
        Command::Dma { command } => dma::run(settings, command, out),
        Command::Cdma { command } => output::print(&cdma::run(settings, command)?, json, out),
        Command::List(args) => output::print(&list::run(args)?, json, out),
        Command::Doctor(args) => doctor::run(settings, args, out),
        Command::Bind(args) => output::print(&bind::bind(args)?, json, out),
        Command::Release(args) => output::print(&bind::release(args)?, json, out),
        Command::Dump(args) => output::print(&dump::run(settings, args)?, json, out),
        Command::Info => output::print(&info::run(settings)?, json, out),
        Command::Regs { command: RegsCommand::Watch(args) } => regs::watch(settings, args, out),
        Command::Regs { command } => output::print(&regs::run(settings, command)?, json, out),
        Command::Replay(args) => replay::run(settings, args, out),
        Command::Peek(args) => output::print(&raw::peek(settings, args)?, json, out),
        Command::Poke(args) => output::print(&raw::poke(settings, args)?, json, out),
        Command::Validate(args) => validate::run(settings, args, out),
        Command::Abort(args) => recover::abort(settings, args, out),
        Command::Reset(args) => recover::reset(settings, args, out),
        Command::Ops(args) => output::print(&inspect::ops(settings, args)?, json, out),
        Command::Queues(args) => output::print(&inspect::queues(settings, args)?, json, out),
        Command::Registry(args) => output::print(&inspect::registry(settings, args)?, json, out),
        Command::Escape(args) => output::print(&inspect::escape(settings, args)?, json, out),
        Command::Stats(args) => output::print(&inspect::stats(settings, args)?, json, out),
        Command::Top(args) => top::run(settings, args, out),
        Command::Run(args) => commands::run::run(settings, args),
        Command::Events(args) => events::run(settings, args, out),
        Command::Irq { command } => irq::run(settings, command, out),
        Command::Card { command } => card::run(settings, command, out),
        Command::Rtl { command: RtlCommand::Wrapper(args) } => {
            output::print(&rtl_generate::wrapper(settings, args)?, json, out)
        }
        Command::Rtl { command: RtlCommand::Registers(args) } => {
            output::print(&rtl_generate::registers(settings, args)?, json, out)
        }
        Command::Rtl { command: RtlCommand::Board(args) } => {
            output::print(&rtl_generate::board(args)?, json, out)
        }
        Command::Rtl { command } => commands::rtl::run(settings, command),
        Command::Stream { command } => frames::run(settings, command, out),
        Command::Sim { command: SimCommand::Run(args) } => {
            output::print(&sim::run(settings, args)?, json, out)
        }
        Command::Sim { command: SimCommand::Check(args) } => sim_check::run(settings, args, out),
        Command::Sim { command: SimCommand::Schema } => sim_check::schema(out),
        Command::Sim { command: SimCommand::Figure(args) } => {
            output::print(&sim::figure(settings, args)?, json, out)
        }
        Command::Sim { command: SimCommand::Grid(args) } if args.cards => {
            output::print(&sim_grid_cards::run(settings, args)?, json, out)
        }
        Command::Sim { command: SimCommand::Grid(args) } => {
            output::print(&sim_grid::run(settings, args)?, json, out)
        }
        Command::Sim { command: SimCommand::Clos(args) } => sim_clos::run(settings, args, out),
        Command::Completions { shell: which } => output::write_all(&shell::completions(*which), out),
        Command::Man { out: dir } => output::print(&shell::man(dir, settings.deadline)?, json, out),
    }
}

/// Checks that at most one output goes to standard output, that no terminal gets binary data, and that a record does not overwrite the log being replayed.
fn distinct(cli: &Cli) -> Result<(), CliError> {
    if cli.outputs_to_stdout() > 1 {
        let text = "standard output (-) is named for two outputs of this command";
        return Err(CliError::usage(text).advise("name a file for one"));
    }
    if let Some(output) = cli.command.binary_output().filter(|path| outfile::is_terminal(path)) {
        let text = format!("--out {}: this is a terminal, and the data is not text", output.display());
        return Err(CliError::usage(text).advise("name a file, or pipe it to another program, such as xxd"));
    }
    let (Command::Replay(args), Some(record)) = (&cli.command, &cli.global.record) else { return Ok(()) };
    match (args.file.canonicalize(), record.canonicalize()) {
        (Ok(log), Ok(record)) if log == record => {
            let text =
                format!("--record {} would overwrite the log that is to be replayed", record.display());
            Err(CliError::usage(text).advise("name another file"))
        }
        _ => Ok(()),
    }
}

/// Suggests a value if `clap` finds no similar one: its similarity measure differs from the one used for all other names here.
fn suggest_value(mut error: clap::Error) -> clap::Error {
    let (Some(ContextValue::String(wrong)), Some(ContextValue::Strings(known)), None) = (
        error.get(ContextKind::InvalidValue),
        error.get(ContextKind::ValidValue),
        error.get(ContextKind::SuggestedValue),
    ) else {
        return error;
    };
    let meant = nearest(wrong, known.iter().map(String::as_str)).first().map(|meant| (*meant).to_owned());
    if let Some(meant) = meant {
        error.insert(ContextKind::SuggestedValue, ContextValue::String(meant));
    }
    error
}

/// Handles arguments that `clap` did not accept: help and version are not failures.
fn refused(error: clap::Error, json: bool, out: &mut dyn Write) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let _ = error.print();
    if json {
        let usage = CliError::usage(error.render().to_string().trim_end());
        let _ = output::print_failure(&usage, out);
    }
    ExitCode::from(2)
}

fn fail(error: &CliError, json: bool, out: &mut dyn Write) -> ExitCode {
    // An error here cannot be reported.
    let _ = writeln!(io::stderr(), "fpgactl: {error:#}");
    if json {
        let _ = output::print_failure(error, out);
    }
    ExitCode::from(error.exit_status())
}

/// Logs go to standard error; `RUST_LOG` (levels, by module too) overrides `-v`.
fn start_logging(verbose: u8) {
    let level = match verbose {
        // The text of an error is printed once, as the error.
        0 => format!("warn,{FAULT_LOG}=off"),
        1 => "info".to_owned(),
        _ => "debug".to_owned(),
    };
    let levels = std::env::var("RUST_LOG").ok().filter(|levels| !levels.trim().is_empty());
    let filter: Result<Targets, _> = levels.as_ref().unwrap_or(&level).parse();
    let (filter, unusable) = match filter {
        Ok(filter) => (filter, None),
        Err(error) => (level.parse().unwrap_or_default(), Some(error)),
    };
    let messages = tracing_subscriber::fmt::layer().with_writer(io::stderr).without_time();
    // A second subscriber in one process (tests) is refused; the first one stays.
    let _ = tracing_subscriber::registry().with(messages).with(filter).try_init();
    if let Some(error) = unusable {
        tracing::warn!("RUST_LOG is ignored: {error}");
    }
}
