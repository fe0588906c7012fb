//! Recovery of a run that does not end normally: stop, confirm idle, return all buffers; quarantine memory that the engine may still reach.

use core::ops::Range;
use core::time::Duration;
use fpga_pci::Waited;
use std::sync::Arc;

use fpga_pci::{DmaBuffer, FAULT_LOG, MmioError, QuarantineReason, ServerError, barrier};
use fpga_registers::xdma::{ChannelBlock, ChannelStatus, Direction};
use fpga_ring::ring::{CountFault, Token, WithdrawError};

use super::Ticket;
use super::engine::{EVENT_BITS, Engine, Side, Stopping};
use crate::error::ChannelError;
use crate::fault::{ChannelFault, FaultCause, FaultPosition};
use crate::shared::FlushGuard;
use crate::wait::IDLE_TIMEOUT_NS;
use fpga_pci::poll_until;

/// Minimum time that an engine gets to stop, in nanoseconds.
const MIN_STOP_NS: u64 = 25_000_000;
/// Minimum number of looks at an engine before it counts as hung.
const MIN_LOOKS: u32 = 16;
/// Time per byte at 200 MB/s, which is less than the slowest link carries (one lane of the first generation, 250 MB/s).
const MAX_NS_PER_BYTE: u64 = 5;

impl Engine {
    /// Handles a write-back word that is impossible or has the error bit set.
    #[cold]
    pub(super) fn count_fault(&mut self, fault: CountFault) -> Result<usize, ChannelError> {
        let status = self.status()?;
        let cause = match fault {
            CountFault::Engine { .. } if status.has_error(self.direction()) => FaultCause::Status(status),
            CountFault::Engine { .. } => FaultCause::NoError(status),
            other => FaultCause::Count(other.into()),
        };
        self.end_run(cause)
    }

    /// Checks the engine of a run without progress: an engine that stops on a bad descriptor completes none, so it writes nothing back.
    #[cold]
    pub(crate) fn check_status(&mut self) -> Result<(), ChannelError> {
        if !self.ring.is_running() {
            return Ok(());
        }
        let status = self.status()?;
        if status.has_error(self.direction()) {
            self.end_run(FaultCause::Status(status))?;
            return Ok(());
        }
        if self.stopping.is_some() {
            // An engine that was told to stop ends its run early. The call that requests the stop collects the run, unless it has ended.
            if !self.abandoned.is_empty() && !status.busy() {
                self.halted(status)?;
            }
            return Ok(());
        }
        // In batch mode a busy engine is working. In credit mode, or while it waits for a stream, the engine is always busy: then its count
        // decides.
        if status.busy() && !self.ring.is_open() && matches!(self.side, Side::Memory) {
            return Ok(());
        }
        // Idle: either the last write-back is about to become visible (it was sent before busy fell, and the read above has pushed it to
        // memory), or it was lost.
        let count = self.read_completed()?;
        match self.ring.complete_register(count) {
            Ok(moved) => {
                self.backpressure.still += u64::from(moved == 0 && status.busy());
                self.collect();
                if self.ring.is_running() && !status.busy() {
                    self.end_run(FaultCause::NoError(status))?;
                }
            }
            Err(fault) => {
                self.end_run(FaultCause::Count(fault.into()))?;
            }
        }
        Ok(())
    }

    /// Cancels one transfer; see the channels' `cancel`.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> Result<bool, ChannelError> {
        self.cancel_within(ticket, IDLE_TIMEOUT_NS)
    }

    /// Returns the time in nanoseconds that an engine gets to stop after a call timed out after `timeout`: a tenth of that time, and at
    /// least the time that the longest transfer in flight needs on the slowest link. An engine that needs longer is treated as hung.
    pub(super) fn stop_limit(&self, timeout: Duration) -> u64 {
        let share = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX) / 10;
        let longest = self.ring.posted().map(|range| range.length).max().unwrap_or(0);
        share.max(MIN_STOP_NS).max(longest.saturating_mul(MAX_NS_PER_BYTE)).min(IDLE_TIMEOUT_NS)
    }

    /// As [`cancel`](Self::cancel), for an engine that gets `limit` nanoseconds to stop.
    pub(super) fn cancel_within(&mut self, ticket: Ticket, limit: u64) -> Result<bool, ChannelError> {
        let halt = |engine: &mut Self| {
            let status = engine.stop_and_confirm(limit)?;
            engine.halted(status).map(|()| true)
        };
        Ok(self.withdraw_after(ticket, halt)?.unwrap_or(false))
    }

    /// As [`cancel`](Self::cancel), without waiting for the engine; see the channels' `try_cancel`.
    pub(crate) fn try_cancel(
        &mut self,
        ticket: Ticket,
        limit: Duration,
    ) -> Result<Option<bool>, ChannelError> {
        if matches!(self.side, Side::Stream) {
            // The engine is not stopped inside a packet.
            return self.withdraw_after(ticket, |_| Err(ChannelError::PacketStarted));
        }
        let cancelled = self.withdraw_after(ticket, |engine| engine.try_halt(limit))?;
        // A transfer that ended meanwhile leaves a stop that no call waits for: the run ends early, and polls collect it.
        if cancelled.is_some() && !self.has_stopped()? {
            self.abandoned.push(0..0);
        }
        Ok(cancelled)
    }

    /// As [`abort`](Self::abort), without waiting for the engine; see the channels' `try_abort`.
    pub(crate) fn try_abort(&mut self, limit: Duration) -> Result<Option<usize>, ChannelError> {
        if self.failed.is_none() && self.ring.is_running() && matches!(self.side, Side::Memory) {
            let before = self.ring.ended();
            if !self.try_halt(limit)? {
                return Ok(None);
            }
            let halted = self.ring.ended() - before;
            let aborted = self.abort()?;
            return Ok(Some(aborted.saturating_add(usize::try_from(halted).unwrap_or(usize::MAX))));
        }
        self.abort().map(Some)
    }

    /// Ends everything in flight for a caller whose wait was cancelled; see [`abandon`](Self::abandon).
    pub(crate) fn abandon_all(&mut self) -> Result<(), ChannelError> {
        let all = self.ring.ended()..self.ring.submitted();
        self.abandon(all, |engine| Ok(engine.try_abort(Duration::MAX)?.is_some()))
    }

    /// Ends a transfer for a caller whose wait was cancelled; see [`abandon`](Self::abandon).
    pub(crate) fn abandon_one(&mut self, ticket: Ticket) -> Result<(), ChannelError> {
        let one = ticket.0..ticket.0.saturating_add(1);
        self.abandon(one, |engine| Ok(engine.try_cancel(ticket, Duration::MAX)?.is_some()))
    }

    /// Calls `stop` until it returns true, for some milliseconds: the caller wants to continue. If the engine needs longer, it stops without
    /// this call. The transfers end then, and their completions are dropped.
    fn abandon(
        &mut self,
        transfers: Range<u64>,
        mut stop: impl FnMut(&mut Self) -> Result<bool, ChannelError>,
    ) -> Result<(), ChannelError> {
        let (card, limit) = (Arc::clone(&self.card), self.stop_limit(Duration::ZERO));
        let stopped = poll_until(&*card.backend, limit, |_| stop(self).map(|done| done.then_some(())))?;
        if stopped.is_err() {
            self.abandoned.push(transfers);
        }
        Ok(())
    }

    /// Returns whether the engine was told to stop and no call has found it idle since.
    pub(crate) const fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }

    /// Whether no stop is in progress any more. An engine that has completed its last descriptor may still be about to stop, and would lose
    /// the start of another run.
    #[cold]
    pub(super) fn has_stopped(&mut self) -> Result<bool, ChannelError> {
        if self.stopping.is_none() {
            return Ok(true);
        }
        if self.ring.is_running() || self.status()?.busy() {
            return Ok(false);
        }
        // With descriptor credits, a run stays open after its last descriptor. Its engine has stopped: the next descriptors start another.
        self.ring.halt();
        Ok(self.end_stop())
    }

    /// Ends the stop of an engine without a run: abandoned transfers end. Returns false if there is a run.
    #[cold]
    pub(super) fn end_stop(&mut self) -> bool {
        if self.ring.is_running() {
            return false;
        }
        self.stopping = None;
        for transfers in core::mem::take(&mut self.abandoned) {
            for number in transfers.start.max(self.ring.ended())..transfers.end {
                // Those that have ended meanwhile are not withdrawn.
                if self.ring.withdraw(Token::new(number)).is_ok() {
                    drop(self.reclaim(Ticket(number)));
                }
            }
            self.collect();
            self.finished.retain(|done| !transfers.contains(&done.ticket.0));
        }
        true
    }

    /// Clears Run, and looks once whether the engine has stopped. Returns true when it has, and its run was collected.
    fn try_halt(&mut self, limit: Duration) -> Result<bool, ChannelError> {
        let now = self.now();
        let mut stopping = match self.stopping {
            Some(stopping) => stopping,
            None => {
                self.request_stop()?;
                Stopping { began: now, looks: 0 }
            }
        };
        stopping.looks = stopping.looks.saturating_add(1);
        self.stopping = Some(stopping);
        let status = self.status()?;
        if !status.busy() {
            return self.halted(status).map(|()| true);
        }
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).min(self.card.idle_timeout());
        let waited = now.saturating_sub(stopping.began);
        // Without several looks, the time may have been this thread's, which had no CPU.
        if waited >= limit && stopping.looks > MIN_LOOKS {
            return Err(self.wedged(waited, status));
        }
        self.relax();
        Ok(false)
    }

    /// Withdraws a transfer. `halt` stops the engine if it has the transfer's descriptors; it returns false if that takes longer.
    fn withdraw_after(
        &mut self,
        ticket: Ticket,
        halt: impl FnOnce(&mut Self) -> Result<bool, ChannelError>,
    ) -> Result<Option<bool>, ChannelError> {
        self.check_usable()?;
        let token = Token::new(ticket.0);
        match self.ring.withdraw(token) {
            Ok(()) => {}
            Err(WithdrawError::Posted { .. }) => {
                if !halt(self)? {
                    return Ok(None);
                }
                // The engine is stopped, so nothing is posted; the transfer may have ended meanwhile.
                if let Err(WithdrawError::Started { .. }) = self.ring.withdraw(token) {
                    return Err(ChannelError::PacketStarted);
                }
            }
            Err(WithdrawError::Started { .. }) => {
                return Err(ChannelError::PacketStarted);
            }
            Err(_) if self.has_ended(ticket) => return Ok(Some(false)),
            Err(_) => {
                return Err(ChannelError::UnknownTicket);
            }
        }
        self.collect();
        let withdrawn = |done: &super::Completion| done.ticket == ticket && done.outcome.is_err();
        // Earlier transfers may still have to end first. Until then the withdrawn transfer stays in the ring.
        Ok(Some(!self.has_ended(ticket) || self.finished.iter().any(withdrawn)))
    }

    /// Returns the buffer of a cancelled transfer that has not ended yet because earlier ones have not.
    pub(super) fn reclaim(&mut self, ticket: Ticket) -> Option<DmaBuffer> {
        self.ring.reclaim(Token::new(ticket.0))
    }

    /// Collects what an engine that was stopped in the middle of its run has completed, and queues the rest again.
    fn halted(&mut self, status: ChannelStatus) -> Result<(), ChannelError> {
        if status.has_error(self.direction()) {
            self.end_run(FaultCause::Status(status))?;
            return Ok(());
        }
        let count = self.read_completed()?;
        if let Err(fault) = self.ring.complete_register(count) {
            self.end_run(FaultCause::Count(fault.into()))?;
            return Ok(());
        }
        self.ring.halt();
        self.collect();
        self.end_stop();
        self.clear_status()
    }

    pub(crate) fn abort(&mut self) -> Result<usize, ChannelError> {
        self.check_usable()?;
        if self.ring.operations() == 0 && !self.ring.is_open() {
            if self.stopping.is_some() {
                self.stop_and_confirm(IDLE_TIMEOUT_NS)?;
            }
            self.end_stop();
            return Ok(0);
        }
        self.end_run(FaultCause::Aborted)
    }

    /// Reads the status register without side effects. All ones means that the card is gone.
    pub(super) fn status(&mut self) -> Result<ChannelStatus, ChannelError> {
        match ChannelBlock::STATUS.read(&self.bar, self.base) {
            Ok(status) if status.into_bits() == u32::MAX => Err(self.gone()),
            Ok(status) => Ok(status),
            Err(source) => Err(self.backend_lost(source)),
        }
    }

    fn read_completed(&mut self) -> Result<u32, ChannelError> {
        let count = self
            .bar
            .read32(ChannelBlock::COMPLETED.address(self.base))
            .map_err(|source| self.backend_lost(source))?;
        barrier::register_before_memory();
        Ok(count)
    }

    /// Stops the engine, confirms that it is idle, and ends everything in the ring.
    pub(super) fn end_run(&mut self, cause: FaultCause) -> Result<usize, ChannelError> {
        let before = self.ring.ended();
        self.stop_and_confirm(IDLE_TIMEOUT_NS)?;
        // The count is final now. An impossible count is not accepted: nothing more counts as complete.
        if !matches!(cause, FaultCause::Count(_)) {
            let count = self.read_completed()?;
            let _ = self.ring.complete_register(count);
        }
        self.collect();
        let position = self.ring.pending_descriptor().map(|pending| FaultPosition {
            descriptor: pending.index,
            host: pending.host,
            card: matches!(self.side, Side::Memory).then_some(pending.card),
            length: pending.length,
            bytes_done: pending.offset,
        });
        let first = ChannelFault { direction: self.name.direction, cause, position };
        let later = match first.cause {
            FaultCause::Aborted => FaultCause::Aborted,
            _ => FaultCause::EarlierFault,
        };
        // The program itself requested the abort. It gets the completions, or it has dropped the channel.
        if matches!(first.cause, FaultCause::Aborted) {
            tracing::debug!(place = %self.place(), fault = %first, "run ended");
        } else {
            tracing::warn!(target: FAULT_LOG, place = %self.place(), fault = %first, "run ended");
        }
        self.end_all(first, later);
        self.end_stop();
        // Writing ones clears the bits: the next run starts with a clean status.
        self.clear_status()?;
        Ok(usize::try_from(self.ring.ended() - before).unwrap_or(usize::MAX))
    }

    /// Ends everything in the ring. The memory belongs to the host again.
    fn end_all(&mut self, first: ChannelFault, later: FaultCause) {
        let later = ChannelFault { cause: later, position: None, ..first.clone() };
        let mut first = Some(first);
        // Collected first, because the ring is borrowed while it is drained.
        let ended: Vec<_> = self.ring.drain().map(|drained| (drained.token, drained.payload)).collect();
        for (token, payload) in ended {
            let fault = first.take().unwrap_or_else(|| later.clone());
            self.push(Ticket(token.number()), Err(self.located(fault)), payload);
        }
    }

    fn clear_status(&mut self) -> Result<(), ChannelError> {
        ChannelBlock::STATUS
            .write(&self.bar, self.base, ChannelStatus::from_bits(EVENT_BITS))
            .map_err(|source| self.backend_lost(source))
    }

    /// Fault of a transfer that was ended by request, or together with the channel.
    pub(super) const fn ended_by(&self, cause: FaultCause) -> ChannelFault {
        ChannelFault { direction: self.name.direction, cause, position: None }
    }

    /// Clears Run: the engine finishes its current descriptor and stops.
    pub(crate) fn request_stop(&mut self) -> Result<(), ChannelError> {
        ChannelBlock::CONTROL
            .write(&self.bar, self.base, self.stop_control())
            .map_err(|source| self.backend_lost(source))
    }

    fn stop_and_confirm(&mut self, limit: u64) -> Result<ChannelStatus, ChannelError> {
        self.request_stop()?;
        let mut flush = None;
        let stopped = self.confirm_idle(&mut flush, limit);
        if let Some(flush) = flush {
            flush.end(&self.bar);
        }
        stopped
    }

    fn confirm_idle(
        &mut self,
        flush: &mut Option<FlushGuard>,
        limit: u64,
    ) -> Result<ChannelStatus, ChannelError> {
        let receives = matches!((self.side, self.direction()), (Side::Stream, Direction::C2h));
        let card = Arc::clone(&self.card);
        let mut last = ChannelStatus::new();
        // Some hardware still shows busy right after an error, so read again (quirk 4).
        let stopped = poll_until(&*card.backend, limit.min(card.idle_timeout()), |waited| {
            last = self.status()?;
            if !last.busy() {
                return Ok(Some(last));
            }
            if receives && waited >= FlushGuard::FLUSH_DELAY_NS && flush.is_none() {
                self.card.flush.store(true, core::sync::atomic::Ordering::Relaxed);
                *flush = Some(FlushGuard::begin(&self.bar).map_err(|source| self.backend_lost(source))?);
            }
            Ok::<_, ChannelError>(None)
        })?;
        match stopped {
            Ok(status) => Ok(status),
            Err(waited) => Err(self.wedged(waited, last)),
        }
    }

    /// Handles a failed register access. The first call that detects that the device is gone or was reset ends everything in flight at
    /// once.
    #[cold]
    pub(super) fn backend_lost(&mut self, source: MmioError) -> ChannelError {
        match source {
            MmioError::Server { source, .. } if source.is_disconnected() => self.disconnected(source),
            source if source.is_gone() => self.gone(),
            MmioError::Stale { .. } => self.was_reset(source),
            _ => self.mmio(source),
        }
    }

    /// Handles a device reset since this channel was taken: the engine is idle, and everything in flight has ended incomplete.
    fn was_reset(&mut self, source: MmioError) -> ChannelError {
        self.collect();
        self.end_all(self.ended_by(FaultCause::Reset), FaultCause::Reset);
        let error = self.mmio(source);
        self.fail(error.clone());
        error
    }

    fn gone(&mut self) -> ChannelError {
        let quarantined = self.quarantine(QuarantineReason::DeviceGone);
        self.card.report(self.name);
        let error = ChannelError::Gone { quarantined };
        self.fail(error.clone());
        error
    }

    fn disconnected(&mut self, source: ServerError) -> ChannelError {
        let quarantined = self.quarantine(QuarantineReason::DeviceGone);
        self.card.report(self.name);
        let error = ChannelError::Disconnected { cause: source.into(), quarantined };
        self.fail(error.clone());
        error
    }

    fn wedged(&mut self, waited: u64, status: ChannelStatus) -> ChannelError {
        let quarantined = self.quarantine(QuarantineReason::IdleNotConfirmed);
        self.card.report(self.name);
        let error = ChannelError::Wedged {
            waited: Waited::new(&*self.card.backend, waited),
            status: status.describe(self.name.direction).to_string(),
            quarantined,
        };
        self.fail(error.clone());
        error
    }

    /// Quarantines everything posted and ends it. Buffers that were queued but never posted are returned.
    fn quarantine(&mut self, reason: QuarantineReason) -> usize {
        self.collect();
        let cause = match reason {
            QuarantineReason::DeviceGone => FaultCause::Gone,
            _ => FaultCause::Wedged,
        };
        let mut count = 0;
        // Only the descriptors show which part of registered memory a transfer uses.
        let reachable: Vec<_> = self.ring.posted().collect();
        let drained: Vec<_> = self
            .ring
            .drain()
            .map(|drained| (drained.token.number(), drained.posted, drained.payload))
            .collect();
        for (number, posted, payload) in drained {
            let payload = match payload {
                Some(buffer) if posted => {
                    buffer.quarantine(reason);
                    count += 1;
                    None
                }
                other => other,
            };
            let fault = self.ended_by(cause.clone());
            self.push(Ticket(number), Err(self.located(fault)), payload);
        }
        for slot in &mut self.registered {
            if reachable.iter().any(|range| slot.overlaps(*range))
                && let Some(area) = slot.area.take()
            {
                area.quarantine(reason);
                count += 1;
            }
        }
        if let Some(area) = self.area.take() {
            area.quarantine(reason);
        }
        count
    }
}

impl Engine {
    /// Stops the engine permanently, as drop does. Memory that it may still reach is quarantined.
    pub(crate) fn close(&mut self) {
        if self.is_own()
            && self.failed.is_none()
            && (self.ring.is_running() || self.ring.is_open())
            && let Err(error) = self.end_run(FaultCause::Aborted)
            && self.failed.is_none()
        {
            // A register cannot be written, so the state of the engine is unknown.
            self.quarantine(QuarantineReason::IdleNotConfirmed);
            self.fail(error);
        }
    }
}

impl Drop for Engine {
    /// Stops the engine, confirms that it is idle, and releases the memory; memory that the engine may still reach is quarantined.
    fn drop(&mut self) {
        self.close();
        if self.failed.is_none() && self.is_own() {
            // Leaves the channel stopped and without interrupts for its next owner.
            let _ = ChannelBlock::CONTROL.write(
                &self.bar,
                self.base,
                fpga_registers::xdma::ChannelControl::new(),
            );
        }
    }
}
