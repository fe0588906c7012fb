//! One channel's engine: the descriptor ring of `fpga-core`, its memory, and the registers that start it.

use std::collections::VecDeque;
use std::sync::Arc;

use fpga_core::ring::{HostRange, RefusalReason, Request, Ring, RingConfig, Run};
use fpga_pci::{Bar, DmaArea, DmaBuffer, Interrupt, barrier};
use fpga_registers::xdma::{Adjacent, ChannelStatus};
use fpga_registers::xdma::{
    ChannelBlock, ChannelControl, ChannelInterrupts, Direction, SgdmaBlock, channel_base, sgdma_base,
};
use fpga_registers::{BarOffset, CardAddr, Iova};

use super::{ChannelOptions, Completion, Ticket, WaitMode, WaitOptions};
use crate::error::{ChannelError, Refused, ResourceError, SubmitError, TransferFailed};
use crate::name::CardName;
use crate::name::ChannelName;
use crate::shared::{ChannelClaim, Shared};
use crate::store::{RingMemory, host_range};

/// The write-back word has a cache line of its own behind the descriptors: next to them every fetch would contend with the
/// word that the host spins on.
const WRITEBACK_BYTES: usize = 64;
/// Descriptors begin on a page, so that blocks of adjacent ones are as long as they may be.
const RING_ALIGNMENT: usize = 4096;
/// Bits 23:1: where the recording bits of control, the events of status and the interrupt mask share their positions.
pub(super) const EVENT_BITS: u32 = 0x00FF_FFFE;
/// Polls without news before the clock is looked at: some microseconds' worth, so that it does not show.
const LOOK_EVERY: u32 = 256;
/// Without news for this long, the status register is read: an engine may stop on an error without a write-back.
const SUSPICIOUS_NS: u64 = 1_000_000;

/// What a ring slot carries.
#[derive(Debug)]
pub(crate) enum Payload {
    /// A buffer of the user's.
    Buffer(DmaBuffer),
    /// A piece of memory that the submitter keeps; it must stay as it is until the transfer ends.
    Kept,
}

/// One channel. Field order is drop order: the ring's buffers go before the memory, the memory before the card.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) ring: Ring<Payload>,
    pub(super) finished: VecDeque<Completion>,
    pub(super) area: Option<DmaArea>,
    pub(super) bar: Bar,
    pub(super) card: Arc<Shared>,
    interrupt: Option<Interrupt>,
    pub(super) name: ChannelName,
    pub(super) base: BarOffset,
    sgdma: BarOffset,
    writeback: usize,
    high_word: Option<u32>,
    /// Transfers submitted, and ended, since the channel was taken: a ticket is a number between them.
    submitted: u64,
    pub(super) ended: u64,
    pub(super) posted: u32,
    /// When something last moved; 0: since the last look at the clock.
    last_news: u64,
    /// Polls without news in a row.
    fruitless: u32,
    pub(super) dead: Option<ChannelError>,
    _claim: ChannelClaim,
}

/// The run bit and what has to be recorded. Both bits that the write-back may depend on are set (PG195 names bit 2, the
/// vendor's driver sets only bit 26).
pub(super) fn run_control() -> ChannelControl {
    stop_control().with_run(true)
}

pub(super) fn stop_control() -> ChannelControl {
    ChannelControl::new()
        .with_ie_descriptor_stopped(true)
        .with_ie_descriptor_completed(true)
        .with_ie_align_mismatch(true)
        .with_ie_magic_stopped(true)
        .with_ie_invalid_length(true)
        .with_ie_read_error(ChannelControl::ERRORS_ALL)
        .with_ie_write_error(ChannelControl::ERRORS_ALL)
        .with_ie_descriptor_error(ChannelControl::ERRORS_ALL)
        .with_poll_writeback(true)
}

impl Engine {
    pub(crate) fn new(
        card: Arc<Shared>,
        claim: ChannelClaim,
        options: ChannelOptions,
        interrupt: Option<Interrupt>,
    ) -> Result<Self, ResourceError> {
        let name = claim.name;
        let bytes = options.descriptors as usize * 32;
        let area = card
            .pool
            .allocate_area(bytes + WRITEBACK_BYTES, RING_ALIGNMENT)
            .map_err(|source| ResourceError::Memory { card: card.name.clone(), source })?;
        let mut config = RingConfig::new(name.direction, area.iova(), options.descriptors);
        config.operations = options.transfers;
        config.max_descriptor_length = options.max_descriptor_length;
        let ring =
            Ring::new(config).map_err(|source| ResourceError::Ring { card: card.name.clone(), source })?;
        let mut engine = Self {
            ring,
            finished: VecDeque::with_capacity(options.transfers as usize),
            area: Some(area),
            bar: card.dma_bar.clone(),
            interrupt,
            name,
            base: channel_base(name.direction, name.number),
            sgdma: sgdma_base(name.direction, name.number),
            writeback: bytes,
            high_word: None,
            submitted: 0,
            ended: 0,
            posted: 0,
            last_news: 0,
            fruitless: 0,
            dead: None,
            card,
            _claim: claim,
        };
        let card = engine.card.name.clone();
        match engine.initialise() {
            Ok(status) if !status.busy() => Ok(engine),
            // Its last owner could not stop it. A run started now would take the old run's completions for its own.
            Ok(status) => {
                engine.dead = Some(ChannelError::Wedged {
                    card: card.clone(),
                    channel: name,
                    waited_ms: 0,
                    status: status.describe(name.direction).to_string(),
                    quarantined: 0,
                });
                Err(ResourceError::Busy { card, channel: name })
            }
            Err(source) => Err(ResourceError::Mmio { card, source }),
        }
    }

    /// Programs what stays the same from run to run; returns the status for a look at busy.
    fn initialise(&self) -> Result<ChannelStatus, fpga_pci::MmioError> {
        let word = self.area.as_ref().map_or(Iova::ZERO, DmaArea::iova).get() + self.writeback as u64;
        let (low, high) = Iova::new(word).to_low_high();
        ChannelBlock::POLL_ADDRESS_LOW.write(&self.bar, self.base, low)?;
        ChannelBlock::POLL_ADDRESS_HIGH.write(&self.bar, self.base, high)?;
        // What is recorded may interrupt: the mask has the positions of the control register's recording bits (PG195, Interrupt
        // Enable Mask).
        let recorded = ChannelInterrupts::from_bits(stop_control().into_bits() & EVENT_BITS);
        let enabled = if self.interrupt.is_some() { recorded } else { ChannelInterrupts::new() };
        ChannelBlock::INTERRUPT_ENABLE.write(&self.bar, self.base, enabled)?;
        ChannelBlock::STATUS.read(&self.bar, self.base)
    }

    pub(crate) const fn name(&self) -> ChannelName {
        self.name
    }

    pub(crate) const fn in_flight(&self) -> u32 {
        self.ring.operations()
    }

    pub(crate) fn relax(&self) {
        self.card.transport.relax();
    }

    pub(crate) fn now(&self) -> u64 {
        self.card.transport.now()
    }

    pub(super) fn card_name(&self) -> CardName {
        self.card.name.clone()
    }

    pub(crate) fn submit_buffer(&mut self, buffer: DmaBuffer, card: CardAddr) -> Result<Ticket, Refused> {
        // Every card's pool hands out the same addresses: another card's buffer would silently name memory of this one.
        if !buffer.is_from(&self.card.pool) {
            let error = SubmitError::ForeignBuffer { card: self.card_name(), channel: self.name };
            return Err(Refused { error, buffer });
        }
        let range = match buffer.run(0, buffer.len()) {
            Ok(run) => host_range(run),
            Err(_) => HostRange::new(buffer.iova(), buffer.len() as u64),
        };
        match self.submit(range, card, Payload::Buffer(buffer)) {
            Ok(ticket) => Ok(ticket),
            Err((error, Payload::Buffer(buffer))) => Err(Refused { error, buffer }),
            Err((_, Payload::Kept)) => unreachable!("the payload handed in comes back"),
        }
    }

    /// Queues one transfer; see [`Payload`].
    pub(crate) fn submit(
        &mut self,
        host: HostRange,
        card: CardAddr,
        payload: Payload,
    ) -> Result<Ticket, (SubmitError, Payload)> {
        if let Some(error) = &self.dead {
            return Err((SubmitError::Channel(error.clone()), payload));
        }
        if let Err(error) = self.check_card_range(card, host.length) {
            return Err((error, payload));
        }
        match self.ring.submit(Request { host: &[host], card }, payload) {
            Ok(_) => {
                let ticket = Ticket(self.submitted);
                self.submitted += 1;
                Ok(ticket)
            }
            Err(refusal) => Err((self.refused(refusal.reason), refusal.payload)),
        }
    }

    #[cold]
    fn refused(&self, source: RefusalReason) -> SubmitError {
        SubmitError::Ring { card: self.card_name(), channel: self.name, source }
    }

    fn check_card_range(&self, start: CardAddr, length: u64) -> Result<(), SubmitError> {
        let Some(memory) = self.card.reachable() else { return Ok(()) };
        if memory.iter().any(|range| range.contains(start, length)) {
            return Ok(());
        }
        let main = memory.first().copied().unwrap_or_default();
        Err(SubmitError::CardMemory {
            card: self.card_name(),
            channel: self.name,
            start,
            length,
            memory_start: main.start,
            memory_last: main.last(),
        })
    }

    /// Starts what is queued, takes up what is done.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<usize, ChannelError> {
        if let Some(error) = &self.dead {
            return Err(error.clone());
        }
        let mut ended = 0;
        if self.ring.is_running() {
            ended = self.reap()?;
        }
        if self.ring.has_queued() && !self.ring.is_running() {
            self.start()?;
        }
        Ok(ended)
    }

    #[inline]
    fn reap(&mut self) -> Result<usize, ChannelError> {
        let Some(area) = &self.area else { return Ok(0) };
        // A lost write-back shows as no progress; the load itself cannot fail inside the area.
        let word = area.memory().load_u32_acquire(self.writeback).unwrap_or(0);
        match self.ring.complete_writeback(word) {
            Ok(0) => {
                self.fruitless = self.fruitless.wrapping_add(1);
                if self.fruitless.is_multiple_of(LOOK_EVERY) { self.suspect() } else { Ok(0) }
            }
            Ok(_) => {
                barrier::writeback_before_data();
                self.news();
                Ok(self.collect())
            }
            Err(fault) => self.count_fault(fault),
        }
    }

    fn news(&mut self) {
        self.last_news = 0;
        self.fruitless = 0;
    }

    /// Looks at the clock, and at the status register if nothing has moved for too long: whoever polls, by whatever call, gets
    /// to know of an engine that has stopped and of a card that is gone.
    #[cold]
    pub(super) fn suspect(&mut self) -> Result<usize, ChannelError> {
        let now = self.card.transport.now();
        if self.last_news == 0 {
            self.last_news = now;
        }
        if now.saturating_sub(self.last_news) < SUSPICIOUS_NS {
            return Ok(0);
        }
        self.last_news = now;
        let before = self.finished.len();
        self.look_for_errors()?;
        Ok(self.finished.len() - before)
    }

    /// Moves completed operations to the finished queue.
    pub(super) fn collect(&mut self) -> usize {
        let mut count = 0;
        while let Some(done) = self.ring.poll_completion() {
            self.push(Ok(done.length), done.payload);
            count += 1;
        }
        count
    }

    pub(super) fn push(&mut self, outcome: Result<u64, crate::fault::ChannelFault>, payload: Payload) {
        let ticket = Ticket(self.ended);
        self.ended += 1;
        let buffer = match payload {
            Payload::Buffer(buffer) => Some(buffer),
            Payload::Kept => None,
        };
        self.finished.push_back(Completion { ticket, outcome, buffer });
    }

    fn start(&mut self) -> Result<(), ChannelError> {
        let Some(area) = &self.area else { return Ok(()) };
        let Some(run) = self.ring.start_run(&mut RingMemory::new(area)) else { return Ok(()) };
        // The engine counts each run from zero, but the word still holds the last run's count. It is idle, so nothing is on
        // its way to the word that this could overwrite.
        let _ = area.memory().store_u32(self.writeback, 0);
        barrier::descriptor_before_doorbell();
        self.posted = run.descriptors;
        self.news();
        self.ring_doorbell(run).map_err(|source| self.mmio(source))
    }

    fn ring_doorbell(&mut self, run: Run) -> Result<(), fpga_pci::MmioError> {
        // Run must rise for the engine to start, and the last run's bit is still set. It is cleared before the pointers change, as
        // the vendor's driver does.
        ChannelBlock::CONTROL.write(&self.bar, self.base, stop_control())?;
        let (low, high) = run.first.to_low_high();
        SgdmaBlock::DESCRIPTOR_LOW.write(&self.bar, self.sgdma, low)?;
        if self.high_word != Some(high) {
            SgdmaBlock::DESCRIPTOR_HIGH.write(&self.bar, self.sgdma, high)?;
            self.high_word = Some(high);
        }
        SgdmaBlock::ADJACENT.write(&self.bar, self.sgdma, Adjacent::new().with_extra(run.adjacent))?;
        ChannelBlock::CONTROL.write(&self.bar, self.base, run_control())
    }

    pub(super) fn mmio(&self, source: fpga_pci::MmioError) -> ChannelError {
        ChannelError::Mmio { card: self.card_name(), channel: self.name, source }
    }

    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        self.finished.pop_front()
    }

    /// `ticket`'s completion; an error if it can never come; `None` while it is in flight.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Result<Completion, ChannelError>> {
        if ticket.0 >= self.ended && ticket.0 < self.submitted {
            return None;
        }
        let at = self.finished.iter().position(|done| done.ticket == ticket);
        Some(
            at.and_then(|at| self.finished.remove(at))
                .ok_or_else(|| ChannelError::UnknownTicket { card: self.card_name(), channel: self.name }),
        )
    }

    /// Polls, and takes `ticket`'s completion if it is there. What ends the channel is said once, by the call that finds it;
    /// completions are handed out afterwards too.
    pub(crate) fn poll_for(&mut self, ticket: Ticket) -> Result<Option<Completion>, ChannelError> {
        let was_dead = self.dead.is_some();
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
        let began = self.card.transport.now();
        let timeout = u64::try_from(options.timeout.as_nanos()).unwrap_or(u64::MAX);
        loop {
            if let Some(done) = self.poll_for(ticket)? {
                return Ok(done);
            }
            let now = self.card.transport.now();
            let waited = now.saturating_sub(began);
            if waited >= timeout {
                return Err(self.timed_out(waited));
            }
            match options.mode {
                WaitMode::Poll => self.relax(),
                WaitMode::Interrupt => self.sleep(timeout - waited)?,
            }
        }
    }

    fn sleep(&mut self, at_most: u64) -> Result<(), ChannelError> {
        let Some(interrupt) = &self.interrupt else {
            return Err(ChannelError::NoInterrupt { card: self.card_name(), channel: self.name });
        };
        // Woken at the latest when the status register wants a look: an interrupt can be lost.
        let limit = core::time::Duration::from_nanos(at_most.min(100 * SUSPICIOUS_NS));
        let woken = self.card.transport.wait_interrupt(interrupt, limit).map_err(|source| {
            ChannelError::Interrupt { card: self.card_name(), channel: self.name, source }
        })?;
        // Woken without news, or not woken at all: reading the status pushes a write-back that is still on its way to memory,
        // and shows an engine that has stopped.
        if self.poll()? == 0 || woken.is_none() {
            self.look_for_errors()?;
        }
        Ok(())
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
            posted: self.posted,
        }
    }

    pub(crate) fn blocking(
        &mut self,
        buffer: DmaBuffer,
        card: CardAddr,
        options: WaitOptions,
    ) -> Result<DmaBuffer, TransferFailed> {
        if buffer.len() == 0 {
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
                // Without a completion the buffer is still posted: stop the engine to get it back.
                let _ = self.abort();
                let buffer = self.take(ticket).and_then(Result::ok).and_then(|done| done.buffer);
                return Err(TransferFailed { error: error.into(), buffer });
            }
        };
        done.into_buffer()
    }

    pub(crate) const fn direction(&self) -> Direction {
        self.name.direction
    }
}
