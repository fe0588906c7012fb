//! Registry of the output files being written: no two have the same name, and a signal leaves none behind.

use std::fs;
use std::io::{self, PipeReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use fpga_pci::lock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{self, pipe};
use tempfile::NamedTempFile;

use crate::signal_state;

/// One per process, as signals are per process.
static WRITTEN: Mutex<Vec<Written>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Written {
    target: PathBuf,
    temporary: Option<PathBuf>,
}

fn written() -> MutexGuard<'static, Vec<Written>> {
    lock(&WRITTEN)
}

/// Exclusive claim to a file name, until this is dropped.
#[derive(Debug)]
pub(super) struct PartialFileClaim {
    target: PathBuf,
}

impl PartialFileClaim {
    /// Creates the claim and the temporary file together, so that a signal leaves none. Returns `None` if another output has the name.
    pub(super) fn with(
        target: &Path,
        make: impl FnOnce() -> io::Result<NamedTempFile>,
    ) -> Option<(io::Result<NamedTempFile>, Self)> {
        let mut all = written();
        if all.iter().any(|other| other.target == target) {
            return None;
        }
        let made = make();
        let temporary = made.as_ref().ok().map(|file| file.path().to_owned());
        all.push(Written { target: target.to_owned(), temporary });
        Some((made, Self { target: target.to_owned() }))
    }
}

impl Drop for PartialFileClaim {
    fn drop(&mut self) {
        written().retain(|other| other.target != self.target);
    }
}

/// Removes the temporary files of all output files, because the process ends.
pub(crate) fn remove_temporary() {
    for file in written().drain(..).filter_map(|file| file.temporary) {
        let _ = fs::remove_file(file);
    }
}

/// Makes a signal that ends the process remove temporary files and sockets first. A second signal ends a command that was asked to end.
pub(crate) fn watch() -> io::Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = lock(&STARTED);
    if !*started {
        start()?;
        *started = true;
    }
    Ok(())
}

fn start() -> io::Result<()> {
    // Signals that the parent ignores stay ignored (`nohup`, background jobs of a script).
    let ignored = ignored_signals();
    let is_ignored = move |signal: i32| ignored >> (signal - 1) & 1 != 0;
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter();
    let signals = wanted.filter(|signal| *signal != SIGHUP || !is_ignored(SIGHUP)).map(signal_pipe);
    let mut signals = signals.collect::<io::Result<Vec<_>>>()?;
    let watching = move || {
        let mut asked = false;
        while let Ok(signal) = next_signal(&mut signals) {
            let asks = signal != SIGHUP && signal_state::is_active();
            if asks && !std::mem::replace(&mut asked, true) || !asks && is_ignored(signal) {
                // The command ends by itself, or no end was requested.
                continue;
            }
            remove_temporary();
            signal_state::remove_sockets();
            if asks {
                // Status that shells show for a process ended by a signal.
                low_level::exit(128 + signal);
            }
            let _ = low_level::emulate_default_handler(signal);
        }
    };
    thread::Builder::new().name("second signal".to_owned()).spawn(watching).map(drop)
}

/// Pipe that receives a byte with each signal of this number. `signal_hook::iterator` needs a pair of sockets, which a kernel without
/// networking does not have.
fn signal_pipe(signal: i32) -> io::Result<(i32, PipeReader)> {
    let (reader, writer) = io::pipe()?;
    pipe::register(signal, writer)?;
    Ok((signal, reader))
}

/// Waits for the next signal.
fn next_signal(signals: &mut [(i32, PipeReader)]) -> io::Result<i32> {
    let ready = loop {
        let mut files: Vec<PollFd<'_>> =
            signals.iter().map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN)).collect();
        match poll(&mut files, None) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {
                if let Some(ready) = files.iter().position(|file| !file.revents().is_empty()) {
                    break ready;
                }
            }
        }
    };
    let (signal, pipe) = signals.get_mut(ready).ok_or(io::ErrorKind::NotFound)?;
    pipe.read_exact(&mut [0])?;
    Ok(*signal)
}

/// Bit n: signal n + 1 is ignored (`proc_pid_status(5)`).
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
