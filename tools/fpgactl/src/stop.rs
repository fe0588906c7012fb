//! SIGINT and SIGTERM: the first one asks a command to end, a second one ends it at once.
//!
//! There is one flag, and a descriptor for whoever sleeps until something can be read. What it means to be asked depends on the command
//! ([`SignalAction`]): a job that is interrupted has failed, whatever it got done; a command that runs until it is told to end has
//! been told.
//!
//! Every command begins with [`abort_on_signal`]: a thread ends the process with a message, wherever the command waits (for a pipe, a
//! server, a lock of the kernel). A command that looks for signals itself ends this by [`handle_signals`], and a command that begins
//! to print its result by [`finish`].
//!
//! A command that has sockets to remove ([`remove_on_exit`]) is given some seconds for its end after the first signal, and its sockets are
//! removed however signals end it.

use std::io::{self, PipeReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use fpga_driver::sim::served::SocketFile;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level, low_level::pipe};

use crate::error::CliError;
use crate::outfile;

/// Longest orderly end of a command with sockets to remove. Whatever its clients do, it ends after that.
const MAX_CLEANUP_TIME: Duration = Duration::from_secs(10);

/// Sockets that are removed before a signal ends the process.
static SOCKETS: Mutex<Vec<SocketFile>> = Mutex::new(Vec::new());

/// What a first signal is to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalAction {
    /// The process ends at once, with a message. For commands that leave nothing to be undone. Exit status 1.
    Abort,
    /// A job: it stops its engines, takes back its memory, removes a file that is not whole, as after an error, and says how far
    /// it came. Exit status 1.
    Stop,
    /// It runs until somebody tells it to end, and has been told: it ends in order. Exit status 0.
    End,
}

#[derive(Debug)]
struct SignalState {
    flag: Arc<AtomicBool>,
    /// Can be read once a signal has come. Nobody reads it, so that it stays so.
    signalled: PipeReader,
}

/// One for the process, as signals are.
static ASKED: OnceLock<SignalState> = OnceLock::new();

/// From now on signals ask. Calling it again changes nothing.
///
/// # Errors
/// [`CliError::Signals`].
pub fn install_handlers() -> Result<(), CliError> {
    if ASKED.get().is_some() {
        return Ok(());
    }
    let asked = Arc::new(AtomicBool::new(false));
    // Not a pair of sockets: there are kernels without any network.
    let (signalled, wake) = io::pipe().map_err(CliError::Signals)?;
    // Takes care of the second one.
    outfile::watch().map_err(CliError::Signals)?;
    for signal in [SIGINT, SIGTERM] {
        let register = || -> io::Result<()> {
            flag::register(signal, Arc::clone(&asked))?;
            pipe::register(signal, wake.try_clone()?).map(drop)
        };
        register().map_err(CliError::Signals)?;
    }
    // Another thread may have been quicker; then a signal tells both.
    let _ = ASKED.set(SignalState { flag: asked, signalled });
    Ok(())
}

/// Nobody but the thread of [`abort_on_signal`] answers a signal.
const NO_HANDLER: u8 = 0;
/// The command answers signals itself, or has its result.
const HANDLED: u8 = 1;
/// The thread is ending the process.
const ABORTING: u8 = 2;

/// Who answers a signal.
static STATE: AtomicU8 = AtomicU8::new(HANDLED);

/// Work of the end that [`abort_on_signal`] makes.
type Cleanup = Box<dyn FnOnce() + Send>;

/// What is done before a signal ends the process.
static CLEANUP: Mutex<Option<Cleanup>> = Mutex::new(None);

/// From now on the first signal runs `end` on a thread of its own, wherever the command is; `end` does not return.
///
/// # Errors
/// [`CliError::Signals`].
pub fn abort_on_signal(end: impl FnOnce() + Send + 'static) -> Result<(), CliError> {
    install_handlers()?;
    let Some(asked) = ASKED.get() else { return Ok(()) };
    let signalled = asked.signalled.try_clone().map_err(CliError::Signals)?;
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
            let cleanup = CLEANUP.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(cleanup) = cleanup {
                cleanup();
            }
            end();
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop).map_err(CliError::Signals)
}

/// What is to be done before a signal ends the process.
pub fn before_abort(cleanup: impl FnOnce() + Send + 'static) {
    *CLEANUP.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(cleanup));
}

/// From now on the command looks for signals itself.
///
/// # Errors
/// [`CliError::Signals`].
pub fn handle_signals() -> Result<(), CliError> {
    finish();
    install_handlers()
}

/// The command has its result, which a signal changes no more. Where a signal was first, this does not return: the process ends.
pub fn finish() {
    if STATE.compare_exchange(NO_HANDLER, HANDLED, Ordering::SeqCst, Ordering::SeqCst) == Err(ABORTING) {
        loop {
            thread::park();
        }
    }
}

/// From now on `files` are removed however signals end the process: by a second one, or because it has not ended 10 seconds after the first
/// one. To be called after [`install_handlers`].
///
/// # Errors
/// [`CliError::Signals`].
pub fn remove_on_exit(files: Vec<SocketFile>) -> Result<(), CliError> {
    *SOCKETS.lock().unwrap_or_else(PoisonError::into_inner) = files;
    let Some(asked) = ASKED.get() else { return Ok(()) };
    let signalled = asked.signalled.try_clone().map_err(CliError::Signals)?;
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
            "fpgactl: the orderly end takes more than {MAX_CLEANUP_TIME:?}; the program ends now, as by a second signal"
        );
        // Without waiting for anybody: a thread may hang.
        low_level::exit(128 + SIGTERM);
    };
    thread::Builder::new().name("orderly end".to_owned()).spawn(watch).map(drop).map_err(CliError::Signals)
}

/// Removes the sockets that [`remove_on_exit`] was told of: the process ends.
pub(crate) fn remove_sockets() {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(|file| file.remove());
}

/// Fails if a signal has come; `left`: what the command leaves behind then.
///
/// # Errors
/// [`CliError::Interrupted`].
pub fn check(what: impl Into<String>, left: impl Into<String>) -> Result<(), CliError> {
    if is_asked() { Err(CliError::Interrupted { what: what.into(), left: left.into() }) } else { Ok(()) }
}

/// Whether signals ask, so that the first one does not end the process.
#[must_use]
pub fn is_active() -> bool {
    ASKED.get().is_some()
}

/// Makes a write beyond the file-size limit (`ulimit -f`) fail with an error instead of ending the process by SIGXFSZ.
///
/// # Errors
/// [`CliError::Signals`].
pub fn ignore_file_size_signal() -> Result<(), CliError> {
    // A handler that does nothing of use: unlike an ignored signal it is not inherited by programs that are started.
    flag::register(SIGXFSZ, Arc::default()).map(drop).map_err(CliError::Signals)
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
