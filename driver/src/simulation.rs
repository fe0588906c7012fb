//! RTL simulations as cards: `rtl:FOLDER` starts the simulator's program, which ends with the backend.
//!
//! `fpgactl rtl build` makes the folder: `obj/simulation` is the program, `card.yaml` the description of its card, if there is one.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fpga_pci::{OsError, Process};
use rustix::process::{Pid, Signal, kill_process};

use crate::advice::Advice;
use crate::error::{Cause, CauseClass, Classified, LowerError};
use crate::owner::SharedSocket;

/// Program of the simulator in its folder.
const PROGRAM: &str = "obj/simulation";
/// Description of the card in that folder.
pub(crate) const CARD: &str = "card.yaml";
/// Maximum time from the start of a simulation until it serves its card.
const START: Duration = Duration::from_secs(60);
/// Time for a simulation to end by itself, and to complete its waveform.
const END: Duration = Duration::from_secs(5);
/// Interval of checks during the two.
const CHECK: Duration = Duration::from_millis(2);

/// Reasons why a simulation does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SimulationError {
    /// The folder contains no simulation.
    #[error("{} contains no simulation: there is no {PROGRAM}", folder.display())]
    NotBuilt {
        /// Folder.
        folder: PathBuf,
    },
    /// The program cannot be run.
    #[error("{} cannot be run: {source}", program.display())]
    Program {
        /// Program of the simulator.
        program: PathBuf,
        /// Reason.
        r#source: OsError,
    },
    /// The folder of the sockets cannot be used.
    #[error(transparent)]
    Folder(#[from] Cause),
    /// The program ended before it served the card.
    #[error("the simulation in {} ended before it served its card ({status}); its messages are on standard error", folder.display())]
    Ended {
        /// Folder.
        folder: PathBuf,
        /// Exit status.
        status: ExitStatus,
    },
    /// The program does not serve the card.
    #[error("the simulation in {} has not served its card for {} s: its design may not end a time step", folder.display(), START.as_secs())]
    NotReady {
        /// Folder.
        folder: PathBuf,
    },
}

impl LowerError for SimulationError {
    fn classify(&self) -> Classified {
        let advice = match self {
            Self::NotBuilt { folder } => Some(Advice::BuildSimulation(folder.clone())),
            Self::Folder(cause) => cause.advice(),
            _ => None,
        };
        (CauseClass::Refused, advice)
    }
}

/// A running simulation; dropping it ends the simulation.
#[derive(Debug)]
pub(crate) struct Simulation {
    program: Child,
    socket: PathBuf,
    process: Process,
}

impl Simulation {
    /// Starts the simulation in `folder`, and calls `connect` with the path of its socket until it succeeds or returns an error for which
    /// `is_absent` returns false.
    pub(crate) fn start<T, E: From<SimulationError>>(
        folder: &Path,
        connect: impl Fn(&Path) -> Result<T, E>,
        is_absent: impl Fn(&E) -> bool,
    ) -> Result<(Self, T), E> {
        let socket = new_socket().map_err(SimulationError::from)?;
        let mut simulation = Self { program: run(folder, &socket)?, socket, process: Process::current() };
        let began = Instant::now();
        loop {
            match connect(&simulation.socket) {
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
                Ok(connected) => return Ok((simulation, connected)),
            }
            let folder = || folder.to_owned();
            if let Ok(Some(status)) = simulation.program.try_wait() {
                return Err(SimulationError::Ended { folder: folder(), status }.into());
            }
            if began.elapsed() > START {
                return Err(SimulationError::NotReady { folder: folder() }.into());
            }
            std::thread::sleep(CHECK);
        }
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        if let Some(pid) = i32::try_from(self.program.id()).ok().and_then(Pid::from_raw) {
            // It has ended already if this fails.
            let _ = kill_process(pid, Signal::TERM);
        }
        let began = Instant::now();
        while matches!(self.program.try_wait(), Ok(None)) {
            if began.elapsed() > END {
                tracing::warn!(socket = %self.socket.display(), "the simulation does not end: it is killed");
                let _ = self.program.kill();
                let _ = self.program.wait();
                break;
            }
            std::thread::sleep(CHECK);
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Path of a socket that no other simulation uses, in the private folder of this user's sockets.
fn new_socket() -> Result<PathBuf, Cause> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("rtl-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let socket = SharedSocket::named(&name);
    socket.create_folder()?;
    // Left by a process that was killed and had the same number.
    let _ = std::fs::remove_file(socket.path());
    Ok(socket.path().to_owned())
}

/// Returns the command that runs the simulation in `folder` and serves its card at `socket`. The program ends at SIGINT and SIGTERM.
///
/// # Errors
/// The folder contains no simulation.
pub fn simulation_command(folder: &Path, socket: &Path) -> Result<Command, Cause> {
    Ok(command(folder, socket)?)
}

fn command(folder: &Path, socket: &Path) -> Result<Command, SimulationError> {
    let program = std::path::absolute(folder.join(PROGRAM)).unwrap_or_else(|_| folder.join(PROGRAM));
    if !program.is_file() {
        return Err(SimulationError::NotBuilt { folder: folder.to_owned() });
    }
    let mut command = Command::new(&program);
    command.arg(plusarg("fpga_socket", socket)).arg("+fpga_signals=1");
    let card = folder.join(CARD);
    if card.is_file() {
        command.arg(plusarg("fpga_card", &card));
    }
    Ok(command)
}

fn run(folder: &Path, socket: &Path) -> Result<Child, SimulationError> {
    let mut command = command(folder, socket)?;
    let program = PathBuf::from(command.get_program());
    let failed =
        |source: io::Error| SimulationError::Program { program: program.clone(), source: source.into() };
    // What the design prints is not part of the output of this program.
    let output = rustix::io::dup(std::io::stderr()).map_err(|error| failed(error.into()))?;
    command.env("FPGA_RTL_ONCE", "1").stdin(Stdio::null()).stdout(output).spawn().map_err(failed)
}

fn plusarg(name: &str, path: &Path) -> std::ffi::OsString {
    let mut argument = std::ffi::OsString::from(format!("+{name}="));
    argument.push(path);
    argument
}
