//! Transfers that a call submits and waits for. Blocking and asynchronous calls differ only in how they wait.

use std::time::Duration;

use fpga_driver::Ticket;

use super::engine::Engine;
use super::engine::stops::{Abandoned, MAX_STOP, MIN_STOP};
use crate::error::Failure;

/// Progress of [`Work`].
pub(super) enum Step {
    /// All transfers have ended.
    Done,
    /// The work continues when this transfer has ended.
    Waiting(Ticket),
}

/// Transfers of a call.
pub(super) trait Work: Send {
    /// Submits transfers while the ring has space, and takes completions. Does not wait.
    ///
    /// # Errors
    /// The failure of a transfer or of the channel.
    fn advance(&mut self, engine: &mut Engine) -> Result<Step, Failure>;

    /// Takes the transfers in flight, to be cancelled. `limit`: maximum time for the engine to stop; `None`: [`MAX_STOP`].
    fn take_in_flight(&mut self, limit: Option<Duration>) -> Vec<Abandoned>;

    /// Length of the longest transfer in bytes.
    fn longest(&self) -> usize;

    /// Time for the engine to stop after a call with a limit: a tenth of that, and at least the time that the longest transfer needs on the
    /// slowest link (200 MB/s).
    fn stop_time(&self, limit: Duration) -> Duration {
        let needed =
            Duration::from_nanos(5).saturating_mul(u32::try_from(self.longest()).unwrap_or(u32::MAX));
        (limit / 10).max(needed).clamp(MIN_STOP, MAX_STOP)
    }
}
