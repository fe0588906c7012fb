//! User interrupts of the shared card, for all views.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fpga_driver::Card;
use fpga_driver::user_interrupt::UserInterruptError;
use fpga_registers::xdma::MAX_USER_INTERRUPTS;
use fpga_sim::SimNetwork;

/// Interval at which the forwarding thread checks whether it is still needed.
const CHECK: Duration = Duration::from_millis(200);

/// Views that exist.
#[derive(Debug, Default)]
pub(crate) struct Views(Mutex<Vec<(u64, SimNetwork)>>);

impl Views {
    pub(crate) fn add(&self, number: u64, view: SimNetwork) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((number, view));
    }

    /// Removes a view; returns the number of those that remain.
    pub(crate) fn remove(&self, number: u64) -> usize {
        let mut views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        views.retain(|(other, _)| *other != number);
        views.len()
    }

    fn interrupt(&self, line: u8) {
        // Without the lock: a view whose transfer is in progress answers after it, and clients come and go meanwhile.
        let views = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (_, view) in views {
            view.pulse_user_interrupt(0, line);
        }
    }
}

/// Passes the user interrupts of `card` on to the views, on a thread that ends with the last other handle of `views`.
pub(crate) fn forward(card: &Card, views: &Arc<Views>) {
    let lines: Vec<u8> = (0..MAX_USER_INTERRUPTS).collect();
    let interrupts = match card.user_interrupts(&lines) {
        Ok(interrupts) => interrupts,
        Err(error) => {
            tracing::warn!(%error, "clients get no user interrupts");
            return;
        }
    };
    let views = Arc::downgrade(views);
    let forwarding = move || {
        while let Some(views) = views.upgrade() {
            match interrupts.wait(CHECK) {
                Ok(arrived) => {
                    for (line, _) in arrived {
                        views.interrupt(line);
                    }
                    for line in &interrupts {
                        // A cause that came meanwhile interrupts again.
                        let _ = line.rearm();
                    }
                }
                Err(error) if matches!(error.kind, UserInterruptError::TimedOut { .. }) => {}
                Err(error) => {
                    tracing::warn!(%error, "clients get no further user interrupts");
                    return;
                }
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("interrupts".to_owned()).spawn(forwarding) {
        tracing::warn!(%error, "clients get no user interrupts");
    }
}
