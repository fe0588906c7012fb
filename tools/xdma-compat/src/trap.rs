//! Accesses to mapped registers.
//!
//! A program maps an empty file, so every access raises SIGBUS. For each program that maps registers, a thread of the supervisor traces it
//! (`ptrace(2)`): it executes the access on the card, and the program continues behind the instruction. SIGBUS for other reasons, and all
//! other signals, reach the program as without a tracer, so its own handlers work.
//!
//! The tracer also follows new threads and children, which inherit the mapping. It leaves a program that executes another one.

use std::sync::{Arc, Mutex};
#[cfg(target_arch = "x86_64")]
use std::sync::{PoisonError, mpsc};

use crate::device::Device;
use crate::files::Files;
#[cfg(target_arch = "x86_64")]
use crate::process::{is_traced_here, process_of};

#[cfg(target_arch = "x86_64")]
mod instruction;
#[cfg(target_arch = "x86_64")]
mod mappings;
#[cfg(target_arch = "x86_64")]
mod request;
#[cfg(target_arch = "x86_64")]
mod thread;

/// Starts the tracers.
#[derive(Debug)]
pub(crate) struct Tracer {
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for the tracer"))]
    shared: Arc<Shared>,
}

/// State that all tracers share.
#[derive(Debug)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for the tracer"))]
pub(crate) struct Shared {
    pub(crate) devices: Arc<[Device]>,
    pub(crate) files: Arc<Files>,
    /// Held while a tracer attaches.
    attaching: Mutex<()>,
}

impl Tracer {
    pub(crate) fn new(devices: Arc<[Device]>, files: Arc<Files>) -> Self {
        Self { shared: Arc::new(Shared { devices, files, attaching: Mutex::new(()) }) }
    }

    /// Traces the process of `thread`, if it is not traced yet.
    ///
    /// # Errors
    /// The reason why it cannot be traced.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn attach(&self, thread: u32) -> Result<(), String> {
        let process = process_of(thread).and_then(|process| i32::try_from(process).ok());
        let process = process.ok_or("the program has ended")?;
        let _attaching = self.shared.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        if is_traced_here(thread) {
            return Ok(());
        }
        let (ready, is_ready) = mpsc::channel();
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name("tracer".to_owned())
            .spawn(move || thread::Tracees::new(shared).trace(process, &ready))
            .map_err(|error| error.to_string())?;
        is_ready.recv().unwrap_or_else(|_| Err("the tracer has ended".to_owned()))
    }

    /// See above.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn attach(&self, _: u32) -> Result<(), String> {
        Err("accesses are executed on x86-64 only; use read and write on the file".to_owned())
    }
}
