//! Failed transfers and copies that a program has not taken yet.

use std::collections::VecDeque;

use fpga_driver::Error;

/// Number of failures that are kept. Later ones replace the oldest.
const MAX_FAILURES: usize = 1024;

/// Failures with the numbers of their tickets, in the order of their completions.
pub(crate) struct Failures<K>(VecDeque<(u64, Box<Error<K>>)>);

impl<K: Clone> Failures<K> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Records the outcome of a completion. `first` becomes the first failure of a call.
    pub(crate) fn record<R>(
        &mut self,
        ticket: u64,
        outcome: Result<R, Box<Error<K>>>,
        first: &mut Option<Error<K>>,
    ) {
        let Err(fault) = outcome else { return };
        first.get_or_insert_with(|| (*fault).clone());
        if self.0.len() == MAX_FAILURES {
            self.0.pop_front();
        }
        self.0.push_back((ticket, fault));
    }

    /// Takes the oldest failure.
    pub(crate) fn take(&mut self) -> Option<(u64, Error<K>)> {
        self.0.pop_front().map(|(ticket, fault)| (ticket, *fault))
    }
}
