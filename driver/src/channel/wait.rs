//! Waiting: by polling, by interrupt, or by one and then the other.

use core::time::Duration;
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
use crate::error::{ChannelError, TransferFailed};
use crate::fault::FaultCause;

/// A channel's interrupt as a file descriptor, for `epoll`, tokio's `AsyncFd` and the like: readable when an interrupt has arrived.
///
/// Each time around: [`take`](Self::take) what has arrived, [`arm`](super::H2cChannel::arm) the channel,
/// [poll](super::H2cChannel::poll) it (what ended before does not signal), then wait until the descriptor is readable.
#[derive(Debug, Clone)]
pub struct ChannelEvents(Interrupt);

impl ChannelEvents {
    /// Takes the interrupts that have arrived; 0 if none. Does not wait.
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

/// The channel's interrupt line, as far as this side can know it. The engine sends a message when the line rises, and its
/// write-back before that: the message comes later than the news that it is about.
#[derive(Debug, Default)]
pub(super) struct InterruptLine {
    /// Enabled in the channel's mask.
    enabled: bool,
    /// Enabled, and cleared since it rose last: the next end raises it.
    low: bool,
    /// It has risen for something that was seen in memory, and its message has not been taken.
    owes: bool,
}

impl InterruptLine {
    /// Something has ended.
    #[inline]
    pub(super) const fn arm_for_next(&mut self) {
        if self.low {
            (self.low, self.owes) = (false, true);
        }
    }

    /// The engine starts a run, which clears its status (PG195, Status: cleared on a rising edge of Run).
    pub(super) const fn starts(&mut self) {
        self.low = self.enabled;
    }
}

impl Engine {
    /// Polls, and takes `ticket`'s completion if it is there. What ends the channel is said once, by the call that finds it;
    /// completions are handed out afterwards too.
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

    pub(crate) fn wait_ended(&mut self, ticket: Ticket, options: WaitOptions) -> Result<(), ChannelError> {
        if ticket.0 >= self.ring.submitted() {
            return Err(ChannelError::UnknownTicket { card: self.card_name(), channel: self.name });
        }
        self.wait_until(options, |engine| {
            if !engine.has_ended(ticket) {
                engine.poll()?;
            }
            Ok(engine.has_ended(ticket).then_some(()))
        })
    }

    pub(crate) fn wait_until<T, E: From<ChannelError>>(
        &mut self,
        options: WaitOptions,
        mut done: impl FnMut(&mut Self) -> Result<Option<T>, E>,
    ) -> Result<T, E> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let deadline = Deadline::after(&*self.card.transport, options.timeout.min(options.total));
        let (mut backoff, mut fruitless) = (Backoff::new(), self.empty_polls);
        let mut now = self.now();
        // Who polls is not to pay for interrupts. Waits by interrupt follow each other: those leave them enabled.
        if self.line.enabled && matches!(options.mode, WaitMode::Poll) && self.failed.is_none() {
            self.disarm()?;
        }
        // Since the last interrupt: whatever ends from now on sends one.
        let mut listening = false;
        // Before each look, not after it: between the two this thread may lose the processor for longer than the time-out, and
        // what has ended meanwhile has ended in time.
        let result = loop {
            match done(self) {
                Ok(Some(value)) => break Ok(value),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            let waited = deadline.waited(now);
            if deadline.is_over(now) {
                break Err(self.timed_out(waited).into());
            }
            let spinning = match options.mode {
                WaitMode::Poll => true,
                WaitMode::Hybrid { spin } => waited < nanoseconds(spin),
                WaitMode::Interrupt => false,
            };
            if spinning {
                if core::mem::replace(&mut fruitless, self.empty_polls) > self.empty_polls {
                    // Something has moved. What follows it has to be posted as soon as it ends.
                    backoff.reset();
                }
                if backoff.back_off(&*self.card.transport, deadline.left(now)) {
                    self.force_stall_check();
                }
            } else {
                // What ended before it listens does not signal: it is looked for once more before sleeping.
                let slept =
                    if listening { self.sleep(deadline.left(now)) } else { self.listen().map(|()| false) };
                match slept {
                    Ok(woken) => listening = !woken,
                    Err(error) => break Err(error.into()),
                }
            }
            now = self.now();
        };
        // Others share a line, and it stays high for as long as anything asserts it.
        let done_with = matches!(options.mode, WaitMode::Hybrid { .. }) || self.is_level_triggered();
        if self.line.enabled && done_with && self.failed.is_none() {
            // Should it fail, the next call says so: what has ended is not to be lost over it.
            let _ = self.disarm();
        }
        result
    }

    /// Arms, for a sleep that only what ends from now on is to end.
    fn listen(&mut self) -> Result<(), ChannelError> {
        if let Some(interrupt) = &self.interrupt {
            // The interrupt of a batch whose end was seen before its wait came to sleep. Waking by it would find nothing and read
            // registers to learn why. What it stands for has ended, and the poll that comes next sees it.
            if interrupt.try_take() > 0 {
                self.line.owes = false;
            }
        }
        self.arm()
    }

    /// Sleeps until there is an interrupt; whether there was one for which it is to be armed anew.
    fn sleep(&mut self, at_most: u64) -> Result<bool, ChannelError> {
        let interrupt = self.interrupt.as_ref().ok_or_else(|| self.no_interrupt())?;
        // Woken at the latest when the status register wants a look: an interrupt can be lost.
        let limit = Duration::from_nanos(at_most.min(100 * STALL_CHECK_NS));
        let woken = self.card.transport.wait_interrupt(interrupt, limit).map_err(|source| {
            ChannelError::Interrupt { card: self.card_name(), channel: self.name, source }
        })?;
        let owed = core::mem::take(&mut self.line.owes);
        let news = self.poll()? > 0;
        let messages = woken.unwrap_or(0);
        self.line.owes = u64::from(owed) + u64::from(self.line.owes) > messages;
        if owed && messages == 1 && !news && !self.is_level_triggered() {
            // The message of a batch whose end was seen before this sleep, which `listen` was too early for. It says nothing of
            // the engine, and if the line has been cleared since, the next end sends another.
            return Ok(!self.line.low);
        }
        // Woken without news, or not woken at all: reading the status pushes a write-back that is still on its way to memory,
        // and shows an engine that has stopped.
        if !news || woken.is_none() {
            self.check_status()?;
            if woken.is_some() && self.is_level_triggered() {
                self.rearm_shared_line()?;
            }
        }
        Ok(woken.is_some())
    }

    /// Whether the interrupt is a level-triggered one.
    fn is_level_triggered(&self) -> bool {
        self.interrupt.as_ref().is_some_and(Interrupt::is_level)
    }

    /// The channel in the interrupt block.
    fn irq_bit(&self) -> ChannelMask {
        let bit = channel_bit(self.name.direction, self.name.number, self.card.info.xdma.h2c_channels);
        ChannelMask::from_bits(1_u32.checked_shl(bit.into()).unwrap_or(0))
    }

    /// The line was somebody else's.
    #[cold]
    fn rearm_shared_line(&mut self) -> Result<(), ChannelError> {
        let Some(interrupt) = &self.interrupt else { return Ok(()) };
        self.card
            .rearm_shared_line(interrupt, self.irq_bit(), UserMask::new())
            .map_err(|source| self.backend_lost(source))
    }

    /// Lets the engine send an interrupt for whatever ends from now on; what has ended by now is seen by the next poll.
    pub(crate) fn arm(&mut self) -> Result<(), ChannelError> {
        if self.interrupt.is_none() {
            return Err(self.no_interrupt());
        }
        // The message is sent on the edge, so the line has to fall. The start of a stop run does it by itself, and a source that
        // is asserted while it is enabled sends one (PG195); an endless run never starts again. A legacy line is high for as long as
        // anything recorded asserts it: what has ended would wake its owner, and everybody else on the line, until the next start.
        let clears = matches!(self.options.run_mode, RunMode::Credit) || self.is_level_triggered();
        if clears {
            let events = ChannelStatus::new().with_descriptor_completed(true).with_descriptor_stopped(true);
            ChannelBlock::STATUS
                .write(&self.bar, self.base, events)
                .map_err(|source| self.backend_lost(source))?;
            self.line.low = true;
        }
        if !self.line.enabled {
            // What is recorded may interrupt: the mask has the positions of the control register's recording bits (PG195,
            // Interrupt Enable Mask).
            self.enable(ChannelInterrupts::from_bits(self.stop_control().into_bits() & EVENT_BITS))?;
            self.line.enabled = true;
            self.line.low = true;
        }
        if clears {
            // The write above is posted. What ends before it arrives sends nothing; the answer to this read comes after its
            // write-back, so that the next poll sees it.
            let status = self.status()?;
            barrier::register_before_memory();
            if self.ring.is_running() && status.has_error(self.direction()) {
                self.end_run(FaultCause::Status(status))?;
            }
        }
        if self.is_level_triggered() {
            // Somebody who was woken by it may have masked it.
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
        self.interrupt.clone().map(ChannelEvents).ok_or_else(|| self.no_interrupt())
    }

    fn no_interrupt(&self) -> ChannelError {
        ChannelError::NoInterrupt { card: self.card_name(), channel: self.name }
    }

    #[cold]
    pub(crate) fn timed_out(&self, waited: u64) -> ChannelError {
        let status = ChannelBlock::STATUS.read(&self.bar, self.base).unwrap_or_default();
        ChannelError::TimedOut {
            card: self.card_name(),
            channel: self.name,
            waited_us: waited / 1000,
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
                return Err(TransferFailed { error: refused.error.into(), buffer: Some(refused.buffer) });
            }
        };
        let done = match self.wait(ticket, options) {
            Ok(done) => done,
            Err(error) => {
                // Without a completion the buffer is still posted: stop the engine to get it back. Others in flight go on. A stream's
                // engine is not stopped for that: held back by its port it would stay busy, and the channel be lost.
                if matches!(self.side, Side::Memory) || self.ring.withdraw(Token::new(ticket.0)).is_ok() {
                    let _ = self.cancel_within(ticket, self.stop_limit(options.timeout));
                }
                let buffer = match self.take(ticket) {
                    Some(done) => done.ok().and_then(|done| done.buffer),
                    // Others before it have not ended. Its turn may come when nobody waits for it any more: the buffer is taken now.
                    None => self.reclaim(ticket),
                };
                return Err(TransferFailed { error: error.into(), buffer });
            }
        };
        done.into_buffer()
    }
}
