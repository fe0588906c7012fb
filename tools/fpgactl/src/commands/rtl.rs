//! `rtl`: builds models of a user's RTL, and runs them.

use std::os::unix::process::CommandExt as _;

use fpga_rtl::model::{self, ModelError, ModelOptions, RunOptions};

use crate::cli::RtlCommand;
use crate::error::CliError;

/// Runs the command. `rtl run` replaces this process by the simulation, so that signals and the exit status are its own.
///
/// # Errors
/// [`CliError::Model`].
pub fn run(command: &RtlCommand) -> Result<(), CliError> {
    match command {
        RtlCommand::Build(args) => {
            let options = ModelOptions {
                sources: args.sources.clone(),
                top: args.top.clone(),
                card: args.card_file.clone(),
                trace: args.trace,
                arguments: args.verilator.clone(),
            };
            Ok(model::build(&args.out, &options)?)
        }
        RtlCommand::Run(args) => {
            let options = RunOptions {
                socket: args.socket.clone(),
                trace: args.trace.clone(),
                free: args.free,
                plusargs: args.plusargs.clone(),
            };
            let mut command = model::command(&args.model, &options)?;
            let source = command.exec();
            Err(ModelError::File { path: command.get_program().into(), action: "run it", source }.into())
        }
    }
}
