//! `run`: programs that use the device files of the vendor's driver.

use std::io::{self, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{consts::SIGTERM, low_level::pipe};
use xdma_compat::Device;

use crate::bars::{self, BarChoice, Role};
use crate::cli::RunArgs;
use crate::error::CliError;
use crate::settings::Settings;
use crate::stop;
use crate::target;

/// Maximum duration of a transfer: that of the vendor's driver (`h2c_timeout`, `c2h_timeout`).
const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the program, and returns its status as an error if it is not 0.
///
/// # Errors
/// [`CliError::program`] with the program's status, 128 more than a signal's number as in shells.
pub fn run(settings: &Settings, args: &RunArgs) -> Result<(), CliError> {
    // A simulated card works by the system's time: programs wait for each other.
    let opened = target::open_threaded(&settings.card, None, 0)?;
    let bypass = bars::open(&opened.card, &*opened.backend, BarChoice::Role(Role::Bypass)).ok();
    let device = Device::new(opened.card.clone(), bypass.map(|found| found.bar), TIMEOUT);
    let Some((program, arguments)) = args.program.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments);
    // The terminal's signals are for the program, which shares the process group; a request to end is passed on.
    let (mut signalled, wake) = io::pipe().map_err(CliError::signals)?;
    pipe::register(SIGTERM, wake).map_err(CliError::signals)?;
    stop::finish();
    let limit = settings.deadline.left().map(|left| std::time::Instant::now() + left);
    let status = xdma_compat::run(vec![device], command, limit, |process| {
        let process = i32::try_from(process).ok().and_then(Pid::from_raw);
        std::thread::spawn(move || {
            let mut byte = [0];
            while let (Ok(1), Some(process)) = (signalled.read(&mut byte), process) {
                let _ = kill_process(process, Signal::TERM);
            }
        });
    })?;
    let status = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    match u8::try_from(status).unwrap_or(1) {
        0 => Ok(()),
        status => Err(CliError::program(status)),
    }
}
