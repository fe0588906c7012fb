//! Work of a call: transfers that it submits and waits for. Blocking and asynchronous calls do the same work; they differ in how they wait.

use std::time::Duration;

use fpga_driver::Ticket;

use super::engine::Engine;
use super::engine::stops::{MAX_STOP, MIN_STOP, Orphan};
use crate::error::Failure;

/// State of a work.
pub(super) enum Step {
    /// All of it has ended.
    Done,
    /// It continues when this transfer has ended.
    Waiting(Ticket),
}

/// Transfers of a call.
pub(super) trait Work: Send {
    /// Submits what the ring has space for, and takes what has ended. Does not wait.
    ///
    /// # Errors
    /// The failure of a transfer or of the channel.
    fn advance(&mut self, engine: &mut Engine) -> Result<Step, Failure>;

    /// Hands over what is in flight, to be cancelled. The engine has `limit` to stop; `None`: as long as it may need.
    fn give_up(&mut self, limit: Option<Duration>) -> Vec<Orphan>;

    /// Length of its longest transfer in bytes.
    fn longest(&self) -> usize;

    /// Time for the engine to stop after a call with a limit: a tenth of that, and at least the time that the longest transfer needs on the
    /// slowest link (200 MB/s).
    fn stop_time(&self, limit: Duration) -> Duration {
        let needed =
            Duration::from_nanos(5).saturating_mul(u32::try_from(self.longest()).unwrap_or(u32::MAX));
        (limit / 10).max(needed).clamp(MIN_STOP, MAX_STOP)
    }
}
