//! `cargo measure`: compares this driver, with a simulated card on a separate thread, with a plain copy and with DPDK's software DMA
//! device, which is a copying thread too. Then it runs the packages' own benchmarks, stores the figures of this machine, and writes
//! BENCHMARKS.md and its pages from the figures of all machines.
//!
//! On a virtual machine the latency between two CPUs can change several times a minute, by a factor of four, and both programs' figures
//! with it. So runs come in pairs, one of each program. The CPUs are sampled before, between and after ([`cpu_sample`]), and only ratios of
//! pairs whose three samples agree count.

mod cells;
mod check;
mod cost;
mod cpu_sample;
mod data;
mod goals;
mod machine;
mod measure;
mod micro;
mod options;
mod pages;
mod ping;
mod placement;
mod programs;
mod questions;
mod record;
mod runs;
mod statistics;
mod summary;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser as _;

use cells::Setting;
use cpu_sample::CpuSample;
use data::MachineFigures;
use options::Options;
use placement::{CpuPlacement, PlacementLatencies};
use programs::{DriverProgram, Peer};
use summary::{Measurement, Origin};

/// Reasons why there are no figures.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Ping(#[from] ping::PingError),
    #[error(transparent)]
    Program(#[from] programs::ProgramError),
    #[error(transparent)]
    Micro(#[from] micro::MicroError),
    #[error(transparent)]
    Data(#[from] data::DataError),
    #[error(transparent)]
    Check(#[from] check::CheckError),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
}

impl BenchError {
    const fn exit_status(&self) -> u8 {
        match self {
            // The exit status of a skipped task, as for a package.
            Self::Check(check::CheckError::Cpus(ping::PingError::OneCpu)) => 3,
            _ => 1,
        }
    }
}

fn run(root: &Path, options: &Options) -> Result<(), BenchError> {
    let target = root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target")));
    if options.check {
        let program = options.fpgactl.clone().unwrap_or_else(|| target.join("release/fpgactl"));
        return Ok(check::run(&DriverProgram::existing(&program)?)?);
    }
    if !options.render {
        let figures = measured(root, &target.join("bench"), options)?;
        if !options.write {
            let failed = |source| BenchError::File { path: root.to_owned(), source };
            for (_, text) in pages::all(root, &[figures])
                .map_err(failed)?
                .into_iter()
                .filter(|(path, _)| path.ends_with(".md"))
            {
                print!("{text}");
            }
            return Ok(());
        }
        data::write(root, &figures)?;
    }
    let failed = |source| BenchError::File { path: root.to_owned(), source };
    for (name, text) in pages::all(root, &data::read_all(root)?).map_err(failed)? {
        let path = root.join(name);
        std::fs::write(&path, text).map_err(|source| BenchError::File { path, source })?;
    }
    Ok(())
}

/// Measures this machine.
fn measured(root: &Path, scratch: &Path, options: &Options) -> Result<MachineFigures, BenchError> {
    let cpus = match options.cpus.as_deref() {
        Some(&[host, card]) => [host, card],
        _ => ping::first_two()?,
    };
    let limits = PlacementLatencies { near_ns: options.near, far_ns: options.far };
    let setting = Setting { cpus, depth: options.depth, seconds: options.seconds, limits };
    let (commit, mut facts) = (machine::commit(root), machine::machine(cpus));
    let peer = if options.peer { Some(Peer::build(root, scratch)?) } else { None };
    let mut measurement = Measurement::default();
    let wanted = [options.pairs, options.tries].map(usize::from);
    if !options.no_pairs {
        let ours = match &options.fpgactl {
            Some(program) => DriverProgram::existing(program)?,
            None => DriverProgram::build(root)?,
        };
        facts.extend(machine::copy_routines(&ours.copy_choices()?));
        let cells = options::cells(options);
        let peer = peer.as_ref();
        measurement.measured = measure::pairs(&setting, &cells, wanted, &ours, peer)?;
        measurement.answered = measure::questions(&setting, wanted, &ours)?;
        let pairs = measurement.measured.iter().flat_map(|measured| &measured.pairs);
        let quickest = cost::quickest(pairs.flat_map(|pair| &pair.looks));
        measurement.cost = cost::costs(&setting, &cells, wanted, &ours, peer, quickest)?;
    }
    if !options.no_micro {
        let before = CpuSample::sample(cpus)?;
        measurement.micro = micro::run(root, scratch)?;
        measurement.micro_placement = CpuPlacement::of(&[before, CpuSample::sample(cpus)?], &limits);
    }
    facts.extend(machine::versions(root, peer.as_ref().map(|peer| peer.dpdk.as_str())));
    let origin = Origin {
        cpu: machine::short_cpu_name(&facts),
        date: machine::today(),
        commit,
        command: options::command(options),
        facts,
    };
    Ok(measurement.figures(origin, &setting))
}

fn main() -> ExitCode {
    match run(&fpga_process::workspace_root(), &Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("measure: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}
