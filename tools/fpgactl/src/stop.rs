//! SIGINT and SIGTERM: the first one asks a command to end, a second one ends it at once.
//!
//! There is one flag, and a descriptor for whoever sleeps until something can be read. What it means to be asked depends on the command
//! ([`OnSignal`]): a job that is interrupted has failed, whatever it got done; a command that runs until it is told to end has
//! been told.

use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};

use crate::error::CliError;

/// What a first signal is to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnSignal {
    /// It is not asked: it ends by itself in a moment, and the signal ends it, as the system does.
    Dies,
    /// A job: it stops its engines, takes back its memory, removes a file that is not whole, as after an error, and says how far
    /// it came. Exit status 1.
    Stops,
    /// It runs until somebody tells it to end, and has been told: it ends in order. Exit status 0.
    Ends,
}

#[derive(Debug)]
struct Asked {
    flag: Arc<AtomicBool>,
    /// Can be read once a signal has come. Nobody reads it, so that it stays so.
    signalled: PipeReader,
}

/// One for the process, as signals are.
static ASKED: OnceLock<Asked> = OnceLock::new();

/// From now on signals ask. Calling it again changes nothing.
///
/// # Errors
/// [`CliError::Signals`].
pub fn by_signals() -> Result<(), CliError> {
    if ASKED.get().is_some() {
        return Ok(());
    }
    let asked = Arc::new(AtomicBool::new(false));
    // Not a pair of sockets: there are kernels without any network.
    let (signalled, wake) = io::pipe().map_err(CliError::Signals)?;
    for signal in [SIGINT, SIGTERM] {
        // In this order: the second signal finds what the first one has set. 128 and the signal is what shells show.
        let register = || -> io::Result<()> {
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
            pipe::register(signal, wake.try_clone()?).map(drop)
        };
        register().map_err(CliError::Signals)?;
    }
    // Another thread may have been quicker; then a signal tells both.
    let _ = ASKED.set(Asked { flag: asked, signalled });
    Ok(())
}

/// Whether a signal has come.
#[must_use]
pub fn is_asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.flag.load(Ordering::Relaxed))
}

/// What can be read once a signal has come, to be waited for beside other things, and not to be read. `None` where signals do not ask.
#[must_use]
pub fn signalled() -> Option<BorrowedFd<'static>> {
    ASKED.get().map(|asked| asked.signalled.as_fd())
}
