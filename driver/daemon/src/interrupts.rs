//! User interrupts of the shared card, for all views.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fpga_driver::user_interrupt::{UserInterruptError, UserInterrupts};
use fpga_driver::{Card, Error, ResourceError};
use fpga_registers::xdma::MAX_USER_INTERRUPTS;
use fpga_sim::SimNetwork;

/// Interval at which the forwarding thread checks whether it is still needed.
const CHECK: Duration = Duration::from_millis(200);
/// Maximum time to wait for one view, which may wait for its client's memory, and the pause before the next attempt.
const MAX_VIEW_WAIT: Duration = Duration::from_millis(1);

/// Views that exist.
#[derive(Debug, Default)]
pub struct Views(Mutex<Vec<(u64, SimNetwork)>>);

impl Views {
    /// Adds a view: card 0 of a simulated network.
    pub fn add(&self, number: u64, view: SimNetwork) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((number, view));
    }

    /// Removes a view; returns the number of those that remain.
    pub fn remove(&self, number: u64) -> usize {
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        views.retain(|(other, _)| *other != number);
        views.len()
    }

    /// Adds interrupt `line` of all views to `pending`.
    fn interrupt(&self, line: u8, pending: &mut Vec<(u64, SimNetwork, u8)>) {
        for (number, view) in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // One that is pending already stands for both.
            if !pending.iter().any(|(other, _, pending)| (other, *pending) == (number, line)) {
                pending.push((*number, view.clone(), line));
            }
        }
    }
}

/// Interrupts of the shared card on their way to the views.
#[derive(Debug)]
pub struct Forwarding {
    interrupts: UserInterrupts,
    /// Those that have arrived, and that a view does not have yet.
    pending: Vec<(u64, SimNetwork, u8)>,
}

impl Forwarding {
    /// Takes all user interrupts of `card`.
    ///
    /// # Errors
    /// [`ResourceError`].
    pub fn new(card: &Card) -> Result<Self, Error<ResourceError>> {
        let lines: Vec<u8> = (0..MAX_USER_INTERRUPTS).collect();
        Ok(Self { interrupts: card.user_interrupts(&lines)?, pending: Vec::new() })
    }

    /// Waits for interrupts, `most` at the longest, and passes them on to `views`. Returns whether all of them have them.
    ///
    /// # Errors
    /// [`UserInterruptError`]: there are no further interrupts.
    pub fn step(&mut self, views: &Views, most: Duration) -> Result<bool, Error<UserInterruptError>> {
        let Self { interrupts, pending } = self;
        match interrupts.wait(if pending.is_empty() { most } else { most.min(MAX_VIEW_WAIT) }) {
            Ok(arrived) => {
                for (line, _) in arrived {
                    views.interrupt(line, pending);
                }
                for line in &*interrupts {
                    // A cause that came meanwhile interrupts again.
                    let _ = line.rearm();
                }
            }
            Err(error) if matches!(error.kind, UserInterruptError::TimedOut { .. }) => {}
            Err(error) => return Err(error),
        }
        // A view that waits for its client does not hold up the others.
        pending.retain(|(_, view, line)| !view.pulse_user_interrupt_within(0, *line, MAX_VIEW_WAIT));
        Ok(pending.is_empty())
    }
}

/// Passes the user interrupts of `card` on to the views, on a thread that ends with the last other handle of `views`.
pub(crate) fn forward(card: &Card, views: &Arc<Views>) {
    let mut forwarding = match Forwarding::new(card) {
        Ok(forwarding) => forwarding,
        Err(error) => {
            tracing::warn!(%error, "clients get no user interrupts");
            return;
        }
    };
    let views = Arc::downgrade(views);
    let forward = move || {
        while let Some(views) = views.upgrade() {
            if let Err(error) = forwarding.step(&views, CHECK) {
                tracing::warn!(%error, "clients get no further user interrupts");
                return;
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("interrupts".to_owned()).spawn(forward) {
        tracing::warn!(%error, "clients get no user interrupts");
    }
}
