//! SIGINT and SIGTERM: the first one asks a command to end, a second one ends it at once.
//!
//! There is one flag, and one descriptor for code that sleeps until a descriptor is readable. The effect of the request depends on the
//! command ([`SignalAction`]): an interrupted job has failed, regardless of its progress; a command that runs until it is asked to end has
//! succeeded.
//!
//! Every command begins with [`abort_on_signal`]: a thread ends the process with a message, even while the command waits (for a pipe, a
//! server, a lock of the kernel). A command that checks for signals itself stops this by [`handle_signals`], and a command that begins to
//! print its result by [`finish`].
//!
//! A command that has sockets to remove ([`remove_on_exit`]) gets some seconds to end after the first signal, and its sockets are removed
//! in every case.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fpga_pci::lock;
use fpga_sim::served::SocketFile;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level, low_level::pipe};

use crate::error::CliError;
use crate::outfile;
pub(crate) use crate::signal_state::remove_sockets;
use crate::signal_state::{ASKED, SOCKETS, SignalState};
pub use crate::signal_state::{is_asked, signalled};

/// Maximum time for the normal end of a command with sockets to remove. It ends after that regardless of its clients.
const MAX_CLEANUP_TIME: Duration = Duration::from_secs(10);

/// Effect of the first signal on a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalAction {
    /// The process ends at once, with a message. For commands that leave nothing to clean up. Exit status 1.
    Abort,
    /// A job: as after an error, it stops its engines, reclaims its memory, removes an incomplete file, and reports its progress. Exit
    /// status 1.
    Stop,
    /// It runs until it is asked to end, and ends normally. Exit status 0.
    End,
}

/// Installs the handlers, so that signals request the end. Calling it again changes nothing.
pub fn install_handlers() -> Result<(), CliError> {
    if ASKED.get().is_some() {
        return Ok(());
    }
    let asked = Arc::new(AtomicBool::new(false));
    // Not a pair of sockets: a kernel may have no networking.
    let (signalled, wake) = io::pipe().map_err(CliError::signals)?;
    // Handles the second signal.
    outfile::watch().map_err(CliError::signals)?;
    for signal in [SIGINT, SIGTERM] {
        let register = || -> io::Result<()> {
            flag::register(signal, Arc::clone(&asked))?;
            pipe::register(signal, wake.try_clone()?).map(drop)
        };
        register().map_err(CliError::signals)?;
    }
    // Another thread may have set it first; then a signal notifies both.
    let _ = ASKED.set(SignalState { flag: asked, signalled });
    Ok(())
}

/// Only the thread of [`abort_on_signal`] handles signals.
const NO_HANDLER: u8 = 0;
/// The command handles signals itself, or has its result.
const HANDLED: u8 = 1;
/// The thread is ending the process.
const ABORTING: u8 = 2;

/// Current handler of signals.
static STATE: AtomicU8 = AtomicU8::new(HANDLED);

/// Cleanup before the end that [`abort_on_signal`] makes.
type Cleanup = Box<dyn FnOnce() + Send>;

/// Cleanup before a signal ends the process.
static CLEANUP: Mutex<Option<Cleanup>> = Mutex::new(None);

/// From now on the first signal runs `end` on a separate thread, in any state of the command; `end` does not return.
pub fn abort_on_signal(end: impl FnOnce() + Send + 'static) -> Result<(), CliError> {
    install_handlers()?;
    let Some(asked) = ASKED.get() else { return Ok(()) };
    let signalled = asked.signalled.try_clone().map_err(CliError::signals)?;
    STATE.store(NO_HANDLER, Ordering::SeqCst);
    let wait = move || {
        loop {
            match poll(&mut [PollFd::new(&signalled, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                Err(_) => return,
                Ok(_) => break,
            }
        }
        if STATE.compare_exchange(NO_HANDLER, ABORTING, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            let cleanup = lock(&CLEANUP).take();
            if let Some(cleanup) = cleanup {
                cleanup();
            }
            end();
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop).map_err(CliError::signals)
}

/// Sets the cleanup before a signal ends the process.
pub fn before_abort(cleanup: impl FnOnce() + Send + 'static) {
    *lock(&CLEANUP) = Some(Box::new(cleanup));
}

/// From now on the command checks for signals itself.
pub fn handle_signals() -> Result<(), CliError> {
    finish();
    install_handlers()
}

/// Marks that the command has its result, which a signal no longer changes. If a signal came first, this does not return: the process ends.
pub fn finish() {
    if STATE.compare_exchange(NO_HANDLER, HANDLED, Ordering::SeqCst, Ordering::SeqCst) == Err(ABORTING) {
        loop {
            thread::park();
        }
    }
}

/// From now on `files` are removed however signals end the process: by a second one, or because it has not ended 10 seconds after the first
/// one. Must be called after [`install_handlers`].
pub fn remove_on_exit(files: Vec<SocketFile>) -> Result<(), CliError> {
    *lock(&SOCKETS) = files;
    let Some(asked) = ASKED.get() else { return Ok(()) };
    let signalled = asked.signalled.try_clone().map_err(CliError::signals)?;
    let watch = move || {
        loop {
            match poll(&mut [PollFd::new(&signalled, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                Err(_) => return,
                Ok(_) => break,
            }
        }
        thread::sleep(MAX_CLEANUP_TIME);
        remove_sockets();
        let _ = writeln!(
            io::stderr(),
            "fpgactl: the cleanup takes longer than {MAX_CLEANUP_TIME:?}; the program ends now, as after a second signal"
        );
        // Without waiting for other threads: one may hang.
        low_level::exit(128 + SIGTERM);
    };
    thread::Builder::new().name("cleanup".to_owned()).spawn(watch).map(drop).map_err(CliError::signals)
}

/// Fails if a signal has arrived; `left`: state that the command leaves behind then.
pub fn check(what: impl Into<String>, left: &str) -> Result<(), CliError> {
    if is_asked() { Err(CliError::interrupted(what, left)) } else { Ok(()) }
}

/// Makes a write beyond the file-size limit (`ulimit -f`) fail with an error instead of ending the process by SIGXFSZ.
pub fn ignore_file_size_signal() -> Result<(), CliError> {
    // A handler without effect: unlike an ignored signal, child processes do not inherit it.
    flag::register(SIGXFSZ, Arc::default()).map(drop).map_err(CliError::signals)
}
