//! The thread of a domain.
//!
//! With automatic progress it drives the endpoints: it sleeps until an engine has work.
//!
//! With manual progress, the program's calls drive them. A program may compute, or wait for something else, after it has injected a message or
//! while peers access its memory: [`MAX_IDLE`] after the last call, the thread drives the endpoints until the next call.

use crate::log;
use crate::sources::{Attention, Source, Sources};
use crate::wait::Wait;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time without a call of the program after which the thread drives the endpoints.
const MAX_IDLE: Duration = Duration::from_millis(1);

/// The thread, and the endpoints that it drives.
pub(crate) struct Progress {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    sources: Sources,
    is_automatic: bool,
    is_stopped: AtomicBool,
}

impl Progress {
    /// Starts the thread. If that fails, only calls make progress.
    pub(crate) fn start(is_automatic: bool) -> Self {
        let wait =
            Wait::new().map_err(|error| log::warn(format_args!("no automatic progress: {error}"))).ok();
        let has_wait = wait.is_some();
        let shared = Arc::new(Shared {
            sources: Sources::new(wait),
            is_automatic,
            is_stopped: AtomicBool::new(false),
        });
        let run = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("fpga-progress".to_owned());
        let thread = if has_wait {
            builder.spawn(move || run.run())
        } else {
            Err(std::io::ErrorKind::Unsupported.into())
        };
        let thread =
            thread.map_err(|error| log::warn(format_args!("no thread for automatic progress: {error}")));
        Self { shared, thread: Mutex::new(thread.ok()) }
    }

    pub(crate) fn add(&self, source: Arc<dyn Source>) {
        self.shared.sources.attach(source);
        self.shared.sources.notify();
    }

    pub(crate) fn remove(&self, id: u64) {
        self.shared.sources.detach(id);
    }

    /// Endpoints that the thread drives.
    pub(crate) fn endpoints(&self) -> Vec<Arc<dyn Source>> {
        self.shared.sources.all()
    }

    /// Wakes the thread if it sleeps.
    #[inline]
    pub(crate) fn wake(&self) {
        self.shared.sources.notify();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        if let Some(wait) = self.shared.sources.wait() {
            wait.write();
        }
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let Some(wait) = self.sources.wait() else { return };
        loop {
            wait.arm();
            if self.is_stopped.load(Ordering::SeqCst) {
                return;
            }
            let attention =
                if self.is_automatic { self.sources.drive_all() } else { self.sources.drive_idle() };
            match attention {
                Attention::Worked => {}
                Attention::Idle => {
                    let span = self.sources.prepare_to_sleep();
                    if !span.is_zero() {
                        wait.sleep(span);
                    }
                }
                Attention::ByProgram => {
                    // Posting does not wake it: it checks again soon.
                    wait.disarm();
                    std::thread::sleep(MAX_IDLE);
                }
            }
        }
    }
}
