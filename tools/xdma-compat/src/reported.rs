//! Processes that the user was told of.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use crate::listener::Call;
use crate::process;

/// Processes that the user was told of.
#[derive(Debug, Default)]
pub(crate) struct Reported(Mutex<HashSet<u32>>);

impl Reported {
    /// Prints one line about the process of a call.
    pub(crate) fn report(&self, call: &Call, text: &str) {
        let process = process::process_of(call.thread).unwrap_or(call.thread);
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.insert(process) {
            let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            tracing::error!("{} (process {process}): {text}", name.trim());
        }
    }
}
