//! SIGINT and SIGTERM in the middle of a command: the first one asks it to stop, a second one ends it at once.
//!
//! A command that is asked stops its engines, takes back its memory and removes a file that is not whole, as it does after an error;
//! what it says is how far it came. Commands that end by themselves in a moment are not asked: the signal ends them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::CliError;

/// One for the process, as signals are.
static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on signals ask. Calling it again changes nothing.
///
/// # Errors
/// [`CliError::Signals`].
pub fn by_signals() -> Result<(), CliError> {
    if ASKED.get().is_some() {
        return Ok(());
    }
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the second signal finds what the first one has set. 128 and the signal is what shells show.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))
            .map_err(CliError::Signals)?;
        flag::register(signal, Arc::clone(&asked)).map_err(CliError::Signals)?;
    }
    // Another thread may have been quicker; then both flags are set by a signal.
    let _ = ASKED.set(asked);
    Ok(())
}

/// Whether a signal has come.
#[must_use]
pub fn is_asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed))
}
