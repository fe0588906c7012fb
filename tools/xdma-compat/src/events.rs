//! User interrupts as event files.
//!
//! A program has the read end of a pipe. It contains a byte while an event is pending, so `poll` and its relatives work without the
//! supervisor.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fpga_driver::user_interrupt::UserInterruptError;
use fpga_driver::{Card, UserInterrupt};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// Maximum duration of one wait for an interrupt. Between waits the thread checks whether it is still needed.
const WAIT: Duration = Duration::from_millis(100);
/// Interval at which a blocked read checks whether a signal has arrived for its thread.
pub(crate) const SIGNAL_CHECK: Duration = Duration::from_millis(10);

/// Event lines that programs have opened.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<BTreeMap<u8, Arc<Line>>>);

/// Event line.
#[derive(Debug)]
pub(crate) struct Line {
    interrupt: UserInterrupt,
    read: OwnedFd,
    write: OwnedFd,
    /// Held while the byte is taken: the pipe has several readers, and its flags are shared with the programs.
    taking: Mutex<()>,
}

impl Lines {
    /// The line `number`; the first call enables its interrupt. Also whether this call did.
    ///
    /// # Errors
    /// Text of the driver's error.
    pub(crate) fn open(&self, card: &Card, number: u8) -> Result<(Arc<Line>, bool), String> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(&number) {
            return Ok((Arc::clone(line), false));
        }
        let interrupt = card.user_interrupt(number).map_err(|error| error.to_string())?;
        let pipe = pipe_with(PipeFlags::CLOEXEC).map_err(|error| error.to_string());
        let (read, write) = pipe?;
        // A full pipe means that an event is pending already.
        rustix::fs::fcntl_setfl(&write, OFlags::NONBLOCK).map_err(|error| error.to_string())?;
        let line = Arc::new(Line { interrupt, read, write, taking: Mutex::new(()) });
        let weak = Arc::downgrade(&line);
        std::thread::Builder::new()
            .name(format!("events-{number}"))
            .spawn(move || {
                while let Some(line) = weak.upgrade() {
                    line.forward();
                }
            })
            .map_err(|error| error.to_string())?;
        lines.insert(number, Arc::clone(&line));
        Ok((line, true))
    }

    /// The line `number`, if it is open.
    pub(crate) fn get(&self, number: u8) -> Option<Arc<Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }
}

impl Line {
    /// Descriptor that programs open anew.
    pub(crate) fn descriptor(&self) -> impl AsFd + '_ {
        &self.read
    }

    /// Waits for an interrupt for a while, and makes the pipe readable.
    fn forward(&self) {
        match self.interrupt.wait(WAIT) {
            Ok(_) => {
                // Several events until the next read are one, as with the vendor's driver.
                if !self.is_pending(Duration::ZERO) {
                    let _ = rustix::io::write(&self.write, &[1]);
                }
            }
            Err(error) if matches!(error.kind, UserInterruptError::TimedOut { .. }) => {}
            Err(error) => {
                tracing::warn!(error = %error, "no further events");
                std::thread::sleep(WAIT);
            }
        }
    }

    /// Waits until an event is pending, at most `limit`.
    pub(crate) fn is_pending(&self, limit: Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut ready = [PollFd::new(&self.read, PollFlags::IN)];
        let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
        poll(&mut ready, Some(&limit)).is_ok_and(|count| count > 0)
    }

    /// Makes a taken event pending again.
    pub(crate) fn put_back(&self) {
        let _taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_pending(Duration::ZERO) {
            let _ = rustix::io::write(&self.write, &[1]);
        }
    }

    /// Takes the pending event. Returns whether there was one: of two readers one gets it.
    pub(crate) fn take(&self) -> Result<bool, Errno> {
        let _taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_pending(Duration::ZERO) {
            return Ok(false);
        }
        let mut byte = [0; 1];
        let taken = rustix::io::read(&self.read, &mut byte)? == 1;
        // A cause that came meanwhile interrupts again.
        if let Err(error) = self.interrupt.rearm() {
            tracing::warn!(error = %error, "the event line cannot be rearmed");
        }
        Ok(taken)
    }
}
