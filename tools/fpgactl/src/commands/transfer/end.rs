//! Common parts of the sending and the receiving program.

use std::time::Duration;

use fpga_pci::Backoff;

use super::hosts::End;
use super::peer::{Peer, Phase, Status};
use super::plan::{Layout, Plan};
use super::{card_span, stall_limit};
use crate::error::CliError;
use crate::progress::Deadline;

/// Rounds without work after which nothing is in flight: an event may be in flight to the host, and the network holds copies for up to
/// 20 us.
const QUIET_ROUNDS: u32 = 32;

/// Reason why a program ended early.
#[derive(Debug)]
pub(super) enum Ended {
    /// An error.
    Failed(CliError),
    /// No progress.
    Stalled {
        /// Number of the transfer, from 1.
        transfer: u64,
        waited: Duration,
        /// Whether this end has seen the transfer's completion or notification.
        seen: bool,
    },
    /// The other end has failed.
    Abandoned,
}

impl<E: Into<CliError>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Settings of both programs, and the connection to the other one.
#[derive(Debug)]
pub(super) struct Common<'a> {
    pub(super) peer: Peer,
    pub(super) plan: &'a Plan,
    pub(super) layout: Layout,
    pub(super) deadline: Deadline,
}

/// One end, while it waits.
pub(super) trait Pump {
    /// Polls the endpoint. Returns whether there was work.
    fn poll(&mut self) -> Result<bool, CliError>;

    /// The card and its endpoint.
    fn end(&self) -> &End;

    /// Shows the progress.
    fn report(&self) {}
}

impl Status {
    /// Fails if this end, the other one of the caller, has failed.
    pub(super) fn check(&self) -> Result<(), Ended> {
        let gone = !self.connected && matches!(self.phase, Phase::Running | Phase::Finished);
        if gone || self.phase == Phase::Failed { Err(Ended::Abandoned) } else { Ok(()) }
    }
}

impl Common<'_> {
    /// Waits until nothing is in flight at either end: windows are returned, registry entries are released. `status`: shown to the other
    /// end, with another phase.
    pub(super) fn settle(&self, pump: &mut impl Pump, status: Status) -> Result<(), Ended> {
        let show = |phase| self.peer.show(Status { phase, ..status });
        show(Phase::Finished);
        let mut stall = Stall::new(pump.end().now(), self.peer.other());
        let (mut quiet, mut backoff) = (0, Backoff::new());
        loop {
            let worked = pump.poll()?;
            pump.report();
            self.peer.other().check()?;
            let was_quiet = quiet >= QUIET_ROUNDS;
            quiet = if !worked && pump.end().endpoint().is_idle() { quiet + 1 } else { 0 };
            let is_quiet = quiet >= QUIET_ROUNDS;
            if is_quiet != was_quiet {
                show(if is_quiet { Phase::Quiet } else { Phase::Finished });
            }
            let (own, other) = (self.peer.own(), self.peer.other());
            if is_quiet && own.phase == Phase::Quiet && (other.phase == Phase::Quiet || !other.connected) {
                return Ok(());
            }
            let now = pump.end().now();
            if stall.has_news(worked, now, other) {
                backoff.reset();
            } else if stall.waited(now, self.deadline).is_some() {
                // The caller counts and reports whatever remains.
                show(Phase::Quiet);
                return Ok(());
            }
            self.deadline.check(|| "waiting for both ends to become idle".to_owned())?;
            pump.end().rest(&mut backoff);
        }
    }

    /// Tells the other end if this one has failed.
    pub(super) fn finish<T>(&self, result: &Result<T, Ended>) {
        if result.is_err() {
            self.peer.show(Status { phase: Phase::Failed, ..Status::default() });
        }
    }
}

/// Detects that neither end makes progress.
#[derive(Debug)]
pub(super) struct Stall {
    last_work_at: u64,
    other: Status,
}

impl Stall {
    pub(super) const fn new(now: u64, other: Status) -> Self {
        Self { last_work_at: now, other }
    }

    /// Notes progress: of this end, or shown by the other one, which may take its time to compare data. Returns whether this end must look
    /// again at once.
    pub(super) fn has_news(&mut self, worked: bool, now: u64, other: Status) -> bool {
        let news = worked || other != self.other;
        if news || other.is_verifying {
            (self.last_work_at, self.other) = (now, other);
        }
        news
    }

    /// Time without progress, if it is too long.
    pub(super) fn waited(&self, now: u64, deadline: Deadline) -> Option<Duration> {
        let over = now.saturating_sub(self.last_work_at) > stall_limit(deadline);
        over.then(|| card_span(self.last_work_at, now))
    }
}
