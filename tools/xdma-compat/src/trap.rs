//! Accesses to mapped registers.
//!
//! A program maps an empty file, so every access raises SIGBUS. For each program that maps registers, a thread of the supervisor traces it
//! (`ptrace(2)`): it executes the access on the card, and the program continues behind the instruction. SIGBUS for other reasons, and all
//! other signals, reach the program as without a tracer, so its own handlers work.
//!
//! The tracer also follows new threads and children, which inherit the mapping. It leaves a program that executes another one.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::device::Device;
use crate::files::Files;

#[cfg(target_arch = "x86_64")]
mod instruction;
#[cfg(target_arch = "x86_64")]
mod mappings;
#[cfg(target_arch = "x86_64")]
mod request;
#[cfg(target_arch = "x86_64")]
mod thread;

/// Maximum time in which a tracer records the end of a process: long, because the machine may be busy.
const RECORDING: Duration = Duration::from_secs(10);

/// Starts the tracers.
#[derive(Debug)]
pub(crate) struct Tracer {
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for the tracer"))]
    shared: Arc<Shared>,
}

/// State that all tracers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) devices: Arc<[Device]>,
    pub(crate) files: Arc<Files>,
    /// Processes that are traced.
    traced: Mutex<HashSet<i32>>,
    /// Statuses of processes whose end a tracer has seen.
    ended: Mutex<HashMap<i32, i32>>,
    /// Signalled with each entry of `ended`.
    has_ended: Condvar,
}

impl Shared {
    /// Adds a process. Returns whether it is new.
    pub(crate) fn add(&self, process: i32) -> bool {
        self.traced.lock().unwrap_or_else(PoisonError::into_inner).insert(process)
    }

    /// Removes a process that is not traced any more.
    pub(crate) fn remove(&self, process: i32) {
        self.traced.lock().unwrap_or_else(PoisonError::into_inner).remove(&process);
    }

    /// Records the end of a thread; of a whole process, if it has the process's number.
    pub(crate) fn end(&self, thread: i32, status: i32) {
        self.remove(thread);
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(thread, status);
        self.has_ended.notify_all();
    }
}

impl Tracer {
    pub(crate) fn new(devices: Arc<[Device]>, files: Arc<Files>) -> Self {
        let (traced, ended, has_ended) = Default::default();
        Self { shared: Arc::new(Shared { devices, files, traced, ended, has_ended }) }
    }

    /// Status of a process whose end a tracer has taken. The tracer may be about to record it.
    pub(crate) fn status(&self, process: i32) -> Option<i32> {
        let ended = self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let is_missing = |ended: &mut HashMap<i32, i32>| !ended.contains_key(&process);
        let waited = self.shared.has_ended.wait_timeout_while(ended, RECORDING, is_missing);
        waited.unwrap_or_else(PoisonError::into_inner).0.get(&process).copied()
    }

    /// Traces the process of `thread`, if it is not traced yet.
    ///
    /// # Errors
    /// The reason why it cannot be traced.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn attach(&self, thread: u32) -> Result<(), String> {
        let process = process_of(thread).ok_or("the program has ended")?;
        if !self.shared.add(process) {
            return Ok(());
        }
        let (ready, is_ready) = mpsc::channel();
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new()
            .name("tracer".to_owned())
            .spawn(move || thread::Tracees::new(shared).trace(process, &ready));
        let result = match started {
            Ok(_) => is_ready.recv().unwrap_or_else(|_| Err("the tracer has ended".to_owned())),
            Err(error) => Err(error.to_string()),
        };
        if result.is_err() {
            self.shared.remove(process);
        }
        result
    }

    /// See above.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn attach(&self, _: u32) -> Result<(), String> {
        Err("accesses are executed on x86-64 only; use read and write on the file".to_owned())
    }
}

/// Number of the process that a thread belongs to.
#[cfg(target_arch = "x86_64")]
fn process_of(thread: u32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}
