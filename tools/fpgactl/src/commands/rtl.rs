//! `rtl`: builds models of a user's RTL, and runs them.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use fpga_driver::extension::simulation_command;
use fpga_rtl::model::{self, ModelOptions};

use crate::cli::RtlCommand;
use crate::error::CliError;
use crate::outfile::is_stdout;
use crate::settings::Settings;

/// Runs the command. `rtl run` replaces this process by the simulation, so that signals and the exit status are its own.
pub fn run(settings: &Settings, command: &RtlCommand) -> Result<(), CliError> {
    match command {
        RtlCommand::Build(args) => {
            let options = ModelOptions {
                sources: args.sources.clone(),
                top: args.top.clone(),
                card: args.card_file.clone(),
                trace: args.trace,
                harness: args.harness,
                arguments: args.verilator.clone(),
            };
            Ok(model::build(&args.out, &options)?)
        }
        RtlCommand::Run(args) => {
            let mut command = simulation_command(&args.model, &args.socket).map_err(|_| {
                let folder = args.model.display();
                CliError::failed(format!("{folder} contains no model"))
                    .advise(format!("build it: fpgactl rtl build TOP.sv... -o {folder}"))
            })?;
            command.arg("+fpga_announce=1");
            if let Some(limit) = settings.deadline.limit() {
                command.env("FPGA_RTL_TIMEOUT", limit.as_secs_f64().to_string());
            }
            if args.free || args.ratio.is_some() {
                command.arg("+fpga_clock=free");
            }
            let triggers = [("from", &args.trace_from), ("until", &args.trace_until)];
            for (name, when) in triggers {
                if let Some(when) = when {
                    command.arg(format!("+fpga_trace_{name}={when}"));
                }
            }
            if let Some(cycles) = args.trace_after {
                command.arg(format!("+fpga_trace_after={cycles}"));
            }
            if let Some(ratio) = args.ratio {
                command.arg(format!("+fpga_ratio={ratio}"));
            }
            if let Some(trace) = &args.trace {
                if !model::is_traced(&args.model) {
                    let text = format!("the model in {} was built without waveforms", args.model.display());
                    return Err(CliError::failed(text).advise("build it again with --trace"));
                }
                check_writable(trace)?;
                let mut plusarg = OsString::from("+fpga_trace=");
                plusarg.push(trace);
                command.arg(plusarg);
            }
            if let Some(record) = &args.record {
                let mut plusarg = OsString::from("+fpga_record=");
                plusarg.push(if is_stdout(record) { Path::new("/dev/stdout") } else { record });
                command.arg(plusarg);
            }
            command.args(&args.plusargs);
            let source = command.exec();
            Err(CliError::file(Path::new(command.get_program()), "run it", source))
        }
        // They write text: see `rtl_generate`.
        RtlCommand::Wrapper(_) | RtlCommand::Registers(_) | RtlCommand::Board(_) => Ok(()),
    }
}

/// Checks that the simulator can write the waveform `path`: Verilator reports no error, and runs on without it.
fn check_writable(path: &Path) -> Result<(), CliError> {
    let is_new = !path.exists();
    // A file that is there is kept: a trigger may never come.
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|source| CliError::file(path, "write it", source))?;
    if is_new {
        std::fs::remove_file(path).map_err(|source| CliError::file(path, "remove it", source))?;
    }
    Ok(())
}
