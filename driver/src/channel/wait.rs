//! Waiting for transfers by polling, by interrupt, or by polling first and sleeping later (hybrid).

use core::time::Duration;
use fpga_pci::Waited;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use fpga_pci::{Backoff, Deadline, DmaBuffer, Interrupt, barrier};
use fpga_registers::CardAddr;
use fpga_registers::xdma::{
    ChannelBlock, ChannelInterrupts, ChannelMask, ChannelStatus, IRQ_BASE, IrqBlock, UserMask,
    irq::channel_bit,
};
use fpga_ring::ring::Token;

use super::engine::{EVENT_BITS, Engine, STALL_CHECK_NS, Side};
use super::{Completion, RunMode, Ticket, WaitMode, WaitOptions};
use crate::error::{ChannelError, Error, TransferFailed};
use crate::fault::FaultCause;

/// Number of polls of a wait that can be paused before its time counts.
const UNTIMED_POLLS: u32 = 16;

/// A channel's interrupt as a file descriptor, for `epoll`, tokio's `AsyncFd` and similar interfaces: readable when an interrupt has
/// arrived.
///
/// In each iteration: [`take`](Self::take) the interrupts that have arrived, [`arm`](super::H2cChannel::arm) the channel,
/// [poll](super::H2cChannel::poll) it (transfers that ended earlier do not signal), then wait until the descriptor is readable.
#[derive(Debug, Clone)]
pub struct ChannelEvents(Interrupt);

impl ChannelEvents {
    /// Takes the interrupts that have arrived and returns their number, 0 if none. Does not block.
    #[must_use]
    pub fn take(&self) -> u64 {
        self.0.try_take()
    }
}

impl AsFd for ChannelEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for ChannelEvents {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Engine {
    /// Polls, and takes `ticket`'s completion if it is available. A failure of the channel is reported once, by the call that detects it;
    /// completions can be taken afterwards.
    pub(crate) fn poll_for(&mut self, ticket: Ticket) -> Result<Option<Completion>, ChannelError> {
        let was_dead = self.failed.is_some();
        let polled = self.poll();
        if !was_dead {
            polled.as_ref().map_err(Clone::clone)?;
        }
        match self.take(ticket) {
            Some(done) => done.map(Some),
            None => polled.map(|_| None),
        }
    }

    pub(crate) fn wait(&mut self, ticket: Ticket, options: WaitOptions) -> Result<Completion, ChannelError> {
        self.wait_until(options, |engine| engine.poll_for(ticket))
    }

    /// As [`wait`](Self::wait), but calls `between` between polls; if it did something, the channel is polled again at once.
    pub(crate) fn wait_beside(
        &mut self,
        ticket: Ticket,
        options: WaitOptions,
        between: &mut dyn FnMut() -> bool,
    ) -> Result<Completion, ChannelError> {
        self.wait_between(options, |engine| engine.poll_for(ticket), between)
    }

    pub(crate) fn wait_ended(&mut self, ticket: Ticket, options: WaitOptions) -> Result<(), ChannelError> {
        self.check_process()?;
        if ticket.0 >= self.ring.submitted() {
            return Err(ChannelError::UnknownTicket);
        }
        self.wait_until(options, |engine| {
            if !engine.has_ended(ticket) {
                engine.poll()?;
            }
            Ok(engine.has_ended(ticket).then_some(()))
        })
    }

    /// As [`wait_ended`](Self::wait_ended), until `pause` returns true: then it returns the time waited.
    pub(crate) fn wait_ended_unless(
        &mut self,
        ticket: Ticket,
        options: WaitOptions,
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Waited>, ChannelError> {
        if ticket.0 >= self.ring.submitted() {
            return Err(ChannelError::UnknownTicket);
        }
        let (mut polls, mut began) = (0_u32, None);
        self.wait_until(options, |engine| {
            if !engine.has_ended(ticket) {
                engine.poll()?;
            }
            if engine.has_ended(ticket) {
                return Ok(Some(None));
            }
            // Short waits do not read the clock.
            polls = polls.saturating_add(1);
            if polls == UNTIMED_POLLS {
                began = Some(engine.now());
            }
            let waited = || began.map_or(0, |began| engine.now().saturating_sub(began));
            Ok(pause().then(|| Some(Waited::new(&*engine.card.backend, waited()))))
        })
    }

    pub(crate) fn wait_until<T, E: From<ChannelError>>(
        &mut self,
        options: WaitOptions,
        done: impl FnMut(&mut Self) -> Result<Option<T>, E>,
    ) -> Result<T, E> {
        self.wait_between(options, done, || false)
    }

    fn wait_between<T, E: From<ChannelError>>(
        &mut self,
        options: WaitOptions,
        mut done: impl FnMut(&mut Self) -> Result<Option<T>, E>,
        mut between: impl FnMut() -> bool,
    ) -> Result<T, E> {
        self.check_process()?;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let deadline = Deadline::after(&*self.card.backend, options.timeout.min(options.total));
        let (mut backoff, mut before) = (Backoff::new(), self.empty_polls);
        let mut now = self.now();
        // Waits by interrupt leave the interrupt enabled for the next one. A wait that polls disables it, to avoid its cost.
        if self.line.enabled && matches!(options.mode, WaitMode::Poll) && self.failed.is_none() {
            self.disarm()?;
        }
        let longest_sleep = options.max_sleep();
        // The channel was armed since the last interrupt: the next completion sends an interrupt.
        let mut listening = false;
        // The clock is read before each poll. This thread may lose the CPU between the two for longer than the timeout. Transfers that end
        // in that time must not be reported as timed out.
        let result = loop {
            match done(self) {
                Ok(Some(value)) => break Ok(value),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            let waited = deadline.waited(now);
            if options.cancel.is_some_and(|cancel| cancel.is_requested()) {
                break Err(self.cancelled(waited).into());
            }
            if deadline.is_over(now) {
                break Err(self.timed_out(waited).into());
            }
            if between() {
                backoff.reset();
                now = self.now();
                continue;
            }
            let spinning = match options.mode {
                WaitMode::Poll => true,
                WaitMode::Hybrid { spin } => waited < nanoseconds(spin),
                WaitMode::Interrupt => false,
            };
            if spinning {
                if core::mem::replace(&mut before, self.empty_polls) > self.empty_polls {
                    // Progress: poll at the shortest interval again, so that queued transfers are posted early.
                    backoff.reset();
                }
                if backoff.back_off(&*self.card.backend, deadline.left(now)) {
                    self.force_stall_check();
                }
            } else {
                // Transfers that ended before arming do not signal, so poll once more before sleeping.
                let slept = if listening {
                    self.sleep(deadline.left(now).min(longest_sleep))
                } else {
                    self.listen().map(|()| false)
                };
                match slept {
                    Ok(woken) => listening = !woken,
                    Err(error) => break Err(error.into()),
                }
            }
            now = self.now();
        };
        // A level-triggered line is shared with others, and stays high as long as any source asserts it.
        let done_with = matches!(options.mode, WaitMode::Hybrid { .. }) || self.is_level_triggered();
        if self.line.enabled && done_with && self.failed.is_none() {
            // If this fails, the next call reports it: the result must not be lost.
            let _ = self.disarm();
        }
        result
    }

    /// Arms the channel for a sleep that ends with a later completion.
    fn listen(&mut self) -> Result<(), ChannelError> {
        if let Some(interrupt) = &self.interrupt {
            // This interrupt belongs to transfers that have already ended; the next poll sees them. Take it now: it would end the sleep
            // without progress, and cost register reads to find the reason.
            if interrupt.try_take() > 0 {
                self.line.owes = false;
            }
        }
        self.arm()
    }

    /// Sleeps until an interrupt, for at most `at_most` nanoseconds. Returns whether the channel must be armed again.
    fn sleep(&mut self, at_most: u64) -> Result<bool, ChannelError> {
        let interrupt = self.interrupt.as_ref().ok_or_else(|| self.no_interrupt())?;
        // The sleep is limited by the interval of the status check: an interrupt can be lost.
        let limit = Duration::from_nanos(at_most.min(100 * STALL_CHECK_NS));
        let woken = self.card.backend.wait_interrupt(interrupt, limit)?;
        let owed = core::mem::take(&mut self.line.owes);
        let news = self.poll()? > 0;
        let messages = woken.unwrap_or(0);
        self.line.owes = u64::from(owed) + u64::from(self.line.owes) > messages;
        if owed && messages == 1 && !news && !self.is_level_triggered() {
            // The message announces transfers that were seen before this sleep; it arrived after `listen`. It tells nothing about the
            // transfers in flight. If the line is low since then, the next completion sends another message: no need to arm.
            return Ok(!self.line.low);
        }
        // Without progress or without an interrupt, read the status register: the read pushes a write-back in flight to memory, and it
        // shows whether the engine has stopped.
        if !news || woken.is_none() {
            self.check_status()?;
            if woken.is_some() && self.is_level_triggered() {
                self.rearm_shared_line()?;
            }
        }
        Ok(woken.is_some())
    }

    /// Returns whether the interrupt is level-triggered.
    fn is_level_triggered(&self) -> bool {
        self.interrupt.as_ref().is_some_and(Interrupt::is_level)
    }

    /// Returns the channel's bit in the IRQ block.
    fn irq_bit(&self) -> ChannelMask {
        let bit = channel_bit(self.name.direction, self.name.number, self.card.info.xdma.h2c_channels);
        ChannelMask::from_bits(1_u32.checked_shl(bit.into()).unwrap_or(0))
    }

    /// Handles a wakeup for another source on a shared line.
    #[cold]
    fn rearm_shared_line(&mut self) -> Result<(), ChannelError> {
        let Some(interrupt) = &self.interrupt else { return Ok(()) };
        self.card
            .rearm_shared_line(interrupt, self.irq_bit(), UserMask::new())
            .map_err(|source| self.backend_lost(source))
    }

    /// Enables an interrupt for every later completion. Earlier completions are seen by the next poll.
    pub(crate) fn arm(&mut self) -> Result<(), ChannelError> {
        self.check_process()?;
        if self.interrupt.is_none() {
            return Err(self.no_interrupt());
        }
        // The message is sent on the rising edge, so the line has to fall. In batch mode the start of a run clears it, and a source that is
        // asserted while it is enabled sends a message (PG195). A ring in credit mode never starts again, so clear the line here. So does
        // INTx: it is high while any recorded event asserts it, and earlier completions would wake all waiters on the line.
        let clears = matches!(self.options.run_mode, RunMode::Credit) || self.is_level_triggered();
        if clears {
            let events = ChannelStatus::new().with_descriptor_completed(true).with_descriptor_stopped(true);
            ChannelBlock::STATUS
                .write(&self.bar, self.base, events)
                .map_err(|source| self.backend_lost(source))?;
            self.line.low = true;
        }
        if !self.line.enabled {
            // Enable the interrupts of all events that the control register records: both registers have the same bit positions (PG195,
            // Interrupt Enable Mask).
            self.enable(ChannelInterrupts::from_bits(self.stop_control().into_bits() & EVENT_BITS))?;
            self.line.enabled = true;
            self.line.low = true;
        }
        if clears {
            // The write above is posted. A completion before its arrival sends no message, but its write-back is in memory when this read
            // returns, so the next poll sees it.
            let status = self.status()?;
            barrier::register_before_memory();
            if self.ring.is_running() && status.has_error(self.direction()) {
                self.end_run(FaultCause::Status(status))?;
            }
        }
        if self.is_level_triggered() {
            // Another waiter on the same line may have masked this channel.
            IrqBlock::CHANNEL_ENABLE_SET
                .write(&self.card.dma_bar, IRQ_BASE, self.irq_bit())
                .map_err(|source| self.backend_lost(source))?;
        }
        if let Some(interrupt) = &self.interrupt {
            interrupt.rearm();
        }
        Ok(())
    }

    pub(crate) fn disarm(&mut self) -> Result<(), ChannelError> {
        self.check_process()?;
        self.line.enabled = false;
        self.line.low = false;
        self.enable(ChannelInterrupts::new())
    }

    fn enable(&mut self, interrupts: ChannelInterrupts) -> Result<(), ChannelError> {
        ChannelBlock::INTERRUPT_ENABLE
            .write(&self.bar, self.base, interrupts)
            .map_err(|source| self.backend_lost(source))
    }

    pub(crate) fn events(&self) -> Result<ChannelEvents, ChannelError> {
        let interrupt = self.interrupt.clone().ok_or_else(|| self.no_interrupt())?;
        self.card.backend.work_unattended()?;
        Ok(ChannelEvents(interrupt))
    }

    fn no_interrupt(&self) -> ChannelError {
        ChannelError::NoInterrupt
    }

    #[cold]
    pub(crate) fn cancelled(&self, waited: u64) -> ChannelError {
        ChannelError::Cancelled { waited: Waited::new(&*self.card.backend, waited) }
    }

    #[cold]
    pub(crate) fn timed_out(&self, waited: u64) -> ChannelError {
        let status = ChannelBlock::STATUS.read(&self.bar, self.base).unwrap_or_default();
        ChannelError::TimedOut {
            waited: Waited::new(&*self.card.backend, waited),
            status: status.describe(self.name.direction).to_string(),
            completed: self.bar.read32(ChannelBlock::COMPLETED.address(self.base)).unwrap_or(u32::MAX),
            posted: self.ring.run_descriptors(),
        }
    }

    pub(crate) fn blocking(
        &mut self,
        buffer: DmaBuffer,
        card: CardAddr,
        options: WaitOptions,
    ) -> Result<DmaBuffer, TransferFailed> {
        if buffer.len() == 0 && matches!(self.side, Side::Memory) {
            return Ok(buffer);
        }
        let ticket = match self.submit_buffer(buffer, card) {
            Ok(ticket) => ticket,
            Err(refused) => {
                let error = Error::new(refused.error.into(), self.place());
                return Err(TransferFailed { error, buffer: Some(refused.payload) });
            }
        };
        let done = match self.wait(ticket, options) {
            Ok(done) => done,
            Err(error) => {
                // Without a completion the buffer is still posted: stop the engine to get it back. Other transfers in flight continue. A
                // stream's engine is stopped only if the transfer could be withdrawn: one that waits for its AXI port would stay busy, and
                // the channel would be lost.
                if matches!(self.side, Side::Memory) || self.ring.withdraw(Token::new(ticket.0)).is_ok() {
                    let _ = if matches!(error, ChannelError::Cancelled { .. }) {
                        self.abandon_one(ticket)
                    } else {
                        self.cancel_within(ticket, self.stop_limit(options.timeout)).map(drop)
                    };
                }
                let buffer = match self.take(ticket) {
                    Some(done) => done.ok().and_then(|done| done.buffer),
                    // Earlier transfers have not ended. Take the buffer now, because no caller may wait for the transfer later.
                    None => self.reclaim(ticket),
                };
                return Err(TransferFailed { error: Error::new(error.into(), self.place()), buffer });
            }
        };
        done.into_buffer()
    }
}
