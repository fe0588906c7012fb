//! Engine of one channel: the descriptor ring of `fpga-ring`, its memory, and the registers that start it. One file, because opening,
//! submission and completion share one state.

use core::ops::Range;
use fpga_pci::Waited;
use fpga_registers::invariant::DebugExpect as _;
use std::collections::VecDeque;
use std::sync::Arc;

use fpga_pci::{
    Backend, Backoff, Bar, DmaAccess, DmaBuffer, Interrupt, MmioError, Process, RegisteredMemory, barrier,
};
use fpga_registers::xdma::{
    ChannelBlock, ChannelControl, ChannelInterrupts, Direction, PerChannel, SGDMA_COMMON_BASE,
    SgdmaCommonBlock, channel_base, sgdma_base,
};
use fpga_registers::{BarOffset, CardAddr, Iova};
use fpga_ring::ring::{
    CardSide, CompletionPolicy, HostRange, RefusalReason, Request, Ring, RingConfig, SgEntry,
};

use super::line::InterruptLine;
use super::memory::RegisteredEntry;
use super::{ChannelOptions, Completion, MemoryHandle, RunMode, Ticket};
use crate::error::{ChannelError, Error, ErrorPlace, Refused, ResourceError, SubmitError};
use crate::fault::{ChannelFault, FaultCause};
use crate::name::ChannelName;
use crate::range::CardRange;
use crate::shared::{self, ChannelClaim, Shared, needed_access};
use crate::store::{METADATA_BYTES, StreamMetadata, host_range};

/// Size of the write-back word's own area behind the descriptors. Next to the descriptors, every fetch would contend with the word that the
/// host spins on. Two cache lines, because the CPU prefetches lines in pairs.
const WRITEBACK_BYTES: usize = 128;
/// Alignment of the descriptors: a page, so that blocks of adjacent descriptors reach their maximum length.
const RING_ALIGNMENT: usize = 4096;
/// Bits 23:1, in which the log-enable bits of control, the events of status and the interrupt mask have the same positions.
pub(super) const EVENT_BITS: u32 = 0x00FF_FFFE;
/// Number of polls that find nothing between two reads of the clock: some microseconds, so that the cost is negligible.
const POLLS_PER_CLOCK_READ: u32 = 256;
/// Time without progress after which the status register is read: an engine may stop on an error without a write-back.
pub(super) const STALL_CHECK_NS: u64 = 1_000_000;
/// The same for a stream, where idle periods are normal and must not add the cost of register reads to polling.
const STREAM_STALL_CHECK_NS: u64 = 100 * STALL_CHECK_NS;

/// Card side of the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Card memory.
    Memory,
    /// Stream port; on a C2H channel with metadata for every descriptor.
    Stream,
}

/// Back-pressure counters. They are updated only on slow paths, so they cost nothing in normal operation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BackpressureStats {
    /// Submissions that found the ring full.
    pub(crate) refused: u64,
    /// Polls of an engine with work that had made no progress since the previous poll.
    pub(crate) still: u64,
}

/// Stop of an engine that was requested and that no call waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopping {
    /// Time of the request on the card's clock.
    pub(super) began: u64,
    /// Number of times that the status was read since.
    pub(super) looks: u32,
}

/// One channel. Field order is drop order: the ring's buffers before the memory, the memory before the card.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) ring: Ring<DmaBuffer>,
    pub(super) finished: VecDeque<Completion>,
    pub(super) area: Option<RegisteredMemory>,
    pub(super) registered: Vec<RegisteredEntry>,
    /// The channel is usable and needs no alignment check: condition for the fast path of submitting.
    pub(super) plain_submissions: bool,
    /// Range of most transfers: the card's memory, or the whole address space if it is not known.
    pub(super) main_memory: CardRange,
    pub(super) bar: Bar,
    pub(super) card: Arc<Shared>,
    pub(super) interrupt: Option<Interrupt>,
    pub(super) name: ChannelName,
    pub(super) side: Side,
    pub(super) options: ChannelOptions,
    pub(super) base: BarOffset,
    pub(super) sgdma: BarOffset,
    pub(super) writeback: usize,
    /// Offset of a C2H stream's metadata.
    metadata: usize,
    pub(super) high_word: Option<u32>,
    pub(super) adjacent: Option<u8>,
    /// State of the channel's interrupt.
    pub(super) line: InterruptLine,
    /// Time of the last progress; 0: progress since the clock was last read.
    last_progress: u64,
    /// Number of consecutive polls without progress.
    pub(super) empty_polls: u32,
    pub(super) backpressure: BackpressureStats,
    pub(super) failed: Option<ChannelError>,
    pub(super) process: Process,
    /// Stop of the engine that no call waits for.
    pub(super) stopping: Option<Stopping>,
    /// Transfers of calls that have ended before the engine had stopped: they end when it has, and their completions are dropped.
    pub(super) abandoned: Vec<Range<u64>>,
    /// The last owner of a C2H stream stopped inside a packet.
    inside_packet: bool,
    /// Scratch space for lists, kept between calls.
    pub(super) list: Vec<SgEntry>,
    pub(super) list_order: Vec<(u64, u64)>,
    _claim: ChannelClaim,
}

/// Returns the configuration of a ring at `base`; `stream`: card side of a stream channel.
fn ring_config(
    direction: Direction,
    base: Iova,
    options: &ChannelOptions,
    stream: Option<CardSide>,
) -> RingConfig {
    let mut config = RingConfig::new(direction, base, options.descriptors);
    config.operations = options.transfers;
    config.max_descriptor_length = options.max_descriptor_length;
    if options.long_blocks {
        config.long_run_descriptors = None;
    }
    if options.fixed_address {
        config.card_side = CardSide::FixedAddress;
    }
    if options.report_each {
        config.report = CompletionPolicy::EachOperation;
    }
    config.card_side = stream.unwrap_or(config.card_side);
    config
}

impl Engine {
    pub(crate) fn new(
        card: Arc<Shared>,
        claim: ChannelClaim,
        side: Side,
        options: ChannelOptions,
        interrupt: Option<Interrupt>,
    ) -> Result<Self, ResourceError> {
        let name = claim.name;
        let bytes = options.descriptors as usize * 32;
        let metadata = bytes + WRITEBACK_BYTES;
        let config = |base: Iova| {
            let beat = card.info.xdma.data_width.unwrap_or(512) / 8;
            let writebacks = Iova::new(base.get().saturating_add(metadata as u64));
            let stream = matches!(side, Side::Stream).then_some(match name.direction {
                Direction::H2c => CardSide::StreamOut { beat },
                Direction::C2h => CardSide::StreamIn { writebacks },
            });
            ring_config(name.direction, base, &options, stream)
        };
        // Checked before memory is allocated, whose size the options state.
        config(Iova::ZERO).validate()?;
        let receives = matches!((side, name.direction), (Side::Stream, Direction::C2h));
        let slots = if receives { options.descriptors as usize * METADATA_BYTES } else { 0 };
        let area = card.pool.allocate_registered(metadata + slots, RING_ALIGNMENT)?;
        let ring = Ring::new(config(area.iova()))?;
        let everything = CardRange::new(CardAddr::ZERO, u64::MAX);
        let mut engine = Self {
            ring,
            finished: VecDeque::with_capacity(options.transfers as usize),
            area: Some(area),
            registered: Vec::new(),
            plain_submissions: !options.fixed_address,
            main_memory: match card.reachable() {
                Some(ranges) if matches!(side, Side::Memory) => ranges.first().copied().unwrap_or_default(),
                _ => everything,
            },
            bar: card.dma_bar.clone(),
            interrupt,
            name,
            side,
            options,
            base: channel_base(name.direction, name.number),
            sgdma: sgdma_base(name.direction, name.number),
            writeback: bytes + WRITEBACK_BYTES / 2,
            metadata,
            high_word: None,
            adjacent: None,
            line: InterruptLine::default(),
            last_progress: 0,
            empty_polls: 0,
            backpressure: BackpressureStats::default(),
            failed: None,
            process: card.process,
            stopping: None,
            abandoned: Vec::new(),
            inside_packet: false,
            list: Vec::new(),
            list_order: Vec::new(),
            card,
            _claim: claim,
        };
        engine.check_idle()?;
        let inside_packet =
            if receives { shared::has_packet_mark(&engine.bar, engine.base) } else { Ok(false) };
        engine.inside_packet = inside_packet?;
        // The mark of an unfinished packet stays until the channel is taken.
        match engine
            .choose_mode()
            .and_then(|fits| if fits { engine.initialise().map(|()| true) } else { Ok(false) })
        {
            Ok(true) => Ok(engine),
            Ok(false) => Err(ResourceError::CreditModeUnsupported { channel: name }),
            Err(source) => Err(source.into()),
        }
    }

    /// Checks, before any register is written, that the engine does not run for an earlier owner: it must not be given this channel's memory.
    fn check_idle(&mut self) -> Result<(), ResourceError> {
        let status = ChannelBlock::STATUS.read(&self.bar, self.base)?;
        if status.into_bits() == u32::MAX {
            return Err(MmioError::Gone { at: ChannelBlock::STATUS.address(self.base) }.into());
        }
        if status.busy() {
            // The last owner could not stop the engine. A run started now would count completions of the old run as its own.
            self.fail(ChannelError::Wedged {
                waited: Waited::new(&*self.card.backend, 0),
                status: status.describe(self.name.direction).to_string(),
                quarantined: 0,
            });
            return Err(ResourceError::Busy { channel: self.name });
        }
        Ok(())
    }

    /// Returns whether the last owner of a C2H stream stopped inside a packet.
    pub(crate) const fn is_inside_packet(&self) -> bool {
        self.inside_packet
    }

    /// Marks the stopped C2H stream for its next owner: its next bytes continue a packet.
    pub(crate) fn mark_inside_packet(&self) {
        if self.failed.is_none() {
            // If this write fails, the card is gone.
            let _ = shared::set_packet_mark(&self.bar, self.base);
        }
    }

    /// Programs the registers that do not change between runs.
    fn initialise(&self) -> Result<(), MmioError> {
        let word =
            self.area.as_ref().map_or(Iova::ZERO, RegisteredMemory::iova).get() + self.writeback as u64;
        let (low, high) = Iova::new(word).to_low_high();
        ChannelBlock::POLL_ADDRESS_LOW.write(&self.bar, self.base, low)?;
        ChannelBlock::POLL_ADDRESS_HIGH.write(&self.bar, self.base, high)?;
        // Interrupts are enabled only while a thread sleeps, so that polling has no interrupt cost.
        ChannelBlock::INTERRUPT_ENABLE.write(&self.bar, self.base, ChannelInterrupts::new())
    }

    /// Switches descriptor credits on or off. Returns false if the card does not support them.
    fn choose_mode(&self) -> Result<bool, MmioError> {
        let bit = PerChannel::one(self.name.direction, self.name.number);
        let (bar, base) = (&self.bar, SGDMA_COMMON_BASE);
        match self.options.run_mode {
            RunMode::Batch => {
                SgdmaCommonBlock::CREDIT_MODE_CLEAR.write(bar, base, bit)?;
                Ok(true)
            }
            RunMode::Credit => {
                SgdmaCommonBlock::CREDIT_MODE_SET.write(bar, base, bit)?;
                let held = SgdmaCommonBlock::CREDIT_MODE.read(bar, base)?;
                Ok(held.into_bits() & bit.into_bits() == bit.into_bits())
            }
        }
    }

    /// Control bits without Run: the events to record. Both bits on which the write-back may depend are set (PG195 names bit 2, the
    /// vendor's driver sets only bit 26).
    pub(super) fn stop_control(&self) -> ChannelControl {
        ChannelControl::new()
            .with_ie_descriptor_stopped(true)
            .with_ie_descriptor_completed(true)
            .with_ie_align_mismatch(true)
            .with_ie_magic_stopped(true)
            .with_ie_invalid_length(true)
            .with_ie_read_error(ChannelControl::ERRORS_ALL)
            .with_ie_write_error(ChannelControl::ERRORS_ALL)
            .with_ie_descriptor_error(ChannelControl::ERRORS_ALL)
            .with_non_incrementing(self.options.fixed_address)
            .with_poll_writeback(true)
    }

    /// Returns the metadata of a C2H stream; empty once the channel has failed.
    #[inline]
    pub(crate) fn metadata(&self) -> StreamMetadata<'_> {
        let slots = self.options.descriptors as usize * METADATA_BYTES;
        let area = self.area.as_ref().map(RegisteredMemory::memory).unwrap_or_default();
        StreamMetadata(area.slice(self.metadata, slots).unwrap_or_default())
    }

    /// Returns whether the write flush timeout may close descriptors early.
    pub(crate) fn may_flush(&self) -> bool {
        self.card.flush.load(core::sync::atomic::Ordering::Relaxed)
    }

    /// Returns an error if the channel has failed, and in another process than the card's.
    #[inline]
    pub(super) fn check_usable(&self) -> Result<(), ChannelError> {
        self.check_process()?;
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Returns an error in another process than the card's.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), ChannelError> {
        Ok(self.process.check().map_err(MmioError::from)?)
    }

    /// Returns whether this is the process that has opened the card.
    pub(crate) fn is_own(&self) -> bool {
        self.process.is_current()
    }

    /// Marks the channel as failed.
    pub(super) fn fail(&mut self, error: ChannelError) {
        self.plain_submissions = false;
        self.failed = Some(error);
        self.end_stop();
    }

    pub(crate) const fn name(&self) -> ChannelName {
        self.name
    }

    pub(crate) const fn direction(&self) -> Direction {
        self.name.direction
    }

    pub(crate) const fn in_flight(&self) -> u32 {
        self.ring.operations()
    }

    pub(crate) const fn ended(&self) -> u64 {
        self.ring.ended()
    }

    pub(crate) const fn has_ended(&self, ticket: Ticket) -> bool {
        ticket.0 < self.ring.ended()
    }

    pub(crate) const fn pressure(&self) -> BackpressureStats {
        self.backpressure
    }

    pub(crate) fn relax(&self) {
        self.card.backend.relax();
    }

    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.card.backend)
    }

    /// Backs off after a poll that found nothing. Returns whether the thread has slept.
    pub(super) fn back_off(&self, backoff: &mut Backoff) -> bool {
        backoff.back_off(&*self.card.backend, u64::MAX)
    }

    pub(crate) fn now(&self) -> u64 {
        self.card.backend.now()
    }

    /// Returns whether the channel belongs to this opening of the card.
    pub(crate) fn is_of(&self, card: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.card, card)
    }

    /// Place of the channel's errors.
    pub(crate) fn place(&self) -> ErrorPlace {
        self.card.place_of(self.name)
    }

    #[cold]
    pub(super) fn located(&self, fault: ChannelFault) -> Box<Error<ChannelFault>> {
        Box::new(Error::new(fault, self.place()))
    }

    #[inline]
    pub(crate) fn submit_buffer(
        &mut self,
        buffer: DmaBuffer,
        card: CardAddr,
    ) -> Result<Ticket, Refused<DmaBuffer, SubmitError>> {
        // The pools of all cards use the same addresses: another card's buffer would silently name memory of this card.
        if !buffer.is_from(&self.card.pool) {
            let error = SubmitError::ForeignBuffer;
            return Err(Refused { error, payload: buffer });
        }
        if let Err(error) = self.check_access(buffer.access()) {
            return Err(Refused { error, payload: buffer });
        }
        let range = match buffer.run(0, buffer.len()) {
            Ok(run) => host_range(run),
            Err(_) => HostRange::new(buffer.iova(), buffer.len() as u64),
        };
        self.submit(range, card, buffer).map_err(|(error, buffer)| Refused { error, payload: buffer })
    }

    /// Checks that the memory's mapping permits this channel's access. Otherwise the IOMMU would block it: an H2C channel would fail, and a
    /// C2H channel would lose the data silently.
    #[inline]
    pub(super) fn check_access(&self, access: DmaAccess) -> Result<(), SubmitError> {
        let needed = needed_access(self.direction());
        let sufficient = match needed {
            DmaAccess::WriteByDevice => access.device_writes(),
            _ => access.device_reads(),
        };
        if sufficient {
            return Ok(());
        }
        Err(SubmitError::NoAccess { needed, access })
    }

    /// Queues the transfer of a buffer.
    #[inline]
    fn submit(
        &mut self,
        host: HostRange,
        card: CardAddr,
        buffer: DmaBuffer,
    ) -> Result<Ticket, (SubmitError, DmaBuffer)> {
        if let Err(error) = self.check_usable() {
            return Err((SubmitError::Channel(error), buffer));
        }
        if let Err(error) = self.check(host, card) {
            return Err((error, buffer));
        }
        match self.ring.submit(Request { host: &[host], card }, buffer) {
            Ok(token) => Ok(Ticket(token.number())),
            Err(refusal) => Err((self.refused(refusal.reason), refusal.payload)),
        }
    }

    #[cold]
    pub(super) fn refused(&mut self, source: RefusalReason) -> SubmitError {
        self.backpressure.refused += u64::from(matches!(source, RefusalReason::Full { .. }));
        SubmitError::of(source)
    }

    /// Checks whether a transfer may use `card`.
    pub(super) fn check(&self, host: HostRange, card: CardAddr) -> Result<(), SubmitError> {
        if self.options.fixed_address {
            return self.check_alignment(host, card);
        }
        self.check_inside(card, host.length)
    }

    /// Checks the card side of a request before the first of its parts is submitted.
    pub(crate) fn check_range(&self, start: CardAddr, length: u64) -> Result<(), SubmitError> {
        if matches!(self.side, Side::Stream) {
            return Ok(());
        }
        if self.options.fixed_address {
            return self.check_alignment(HostRange::new(Iova::new(0), length), start);
        }
        self.check_inside(start, length)
    }

    /// Returns the number of bytes from `start` to the end of its memory range; to the end of the address space if the memory is not known;
    /// unlimited for a fixed address.
    pub(crate) fn bytes_to_range_end(&self, start: CardAddr) -> u64 {
        if self.options.fixed_address {
            return u64::MAX;
        }
        let inside = |range: &CardRange| range.contains(start, 1);
        let ranges = self.card.reachable().unwrap_or_default();
        let found = Some(self.main_memory).filter(inside).or_else(|| ranges.iter().copied().find(inside));
        found.map_or(0, |range| range.length - (start.get() - range.start.get()))
    }

    /// Returns whether every access of a request uses the same card address.
    pub(crate) const fn is_fixed_address(&self) -> bool {
        self.options.fixed_address
    }

    /// Checks that a range lies in the card's memory, or in the address space if the memory is not known.
    #[inline]
    fn check_inside(&self, start: CardAddr, length: u64) -> Result<(), SubmitError> {
        if self.main_memory.contains(start, length) {
            return Ok(());
        }
        self.check_other_ranges(start, length)
    }

    #[cold]
    fn check_other_ranges(&self, start: CardAddr, length: u64) -> Result<(), SubmitError> {
        let memory = self.card.reachable().unwrap_or_default();
        if memory.is_empty() {
            let source = RefusalReason::CardAddress { start, length, address_bits: 64 };
            return Err(SubmitError::of(source));
        }
        if memory.iter().any(|range| range.contains(start, length)) {
            return Ok(());
        }
        Err(SubmitError::CardMemory {
            start,
            length,
            memory_start: self.main_memory.start,
            memory_last: self.main_memory.last(),
        })
    }

    /// PG195, fixed-address mode: source, destination and length are whole beats of the data path.
    fn check_alignment(&self, host: HostRange, card: CardAddr) -> Result<(), SubmitError> {
        let width = u64::from(self.card.info.xdma.data_width.unwrap_or(512) / 8);
        if (host.start.get() | host.length | card.get()).is_multiple_of(width) {
            return Ok(());
        }
        Err(SubmitError::Misaligned { host: host.start, start: card, length: host.length, width })
    }

    /// Returns the number of transfers submitted so far, which is the number of the next one.
    #[inline]
    pub(crate) const fn submitted(&self) -> u64 {
        self.ring.submitted()
    }

    /// Queues a transfer of memory that the submitter keeps and has checked. Its end is only counted.
    #[inline]
    pub(crate) fn submit_registered(&mut self, host: HostRange) -> Result<(), SubmitError> {
        self.check_process().map_err(SubmitError::Channel)?;
        match self.ring.submit_without_payload(host, CardAddr::ZERO) {
            Ok(_) => Ok(()),
            Err(reason) => Err(self.refused(reason)),
        }
    }

    /// Queues a part of registered memory, after which its packet continues, on an H2C stream.
    pub(crate) fn submit_packet_part(
        &mut self,
        memory: MemoryHandle,
        offset: usize,
        length: usize,
    ) -> Result<Ticket, SubmitError> {
        let range = self.registered_range(memory, offset, length)?;
        match self.ring.submit_packet_part(range) {
            Ok(token) => {
                self.mark_used(memory, token.number() + 1);
                Ok(Ticket(token.number()))
            }
            Err(reason) => Err(self.refused(reason)),
        }
    }

    /// Starts queued transfers and collects completed ones.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<usize, ChannelError> {
        self.check_process()?;
        let mut ended = 0;
        if self.ring.is_running() {
            ended = self.reap()?;
        }
        if self.ring.has_queued() {
            if self.stopping.is_none() || self.has_stopped()? {
                self.post()?;
            }
        } else if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        Ok(ended)
    }

    #[inline]
    fn reap(&mut self) -> Result<usize, ChannelError> {
        let Some(area) = &self.area else { return Ok(0) };
        // A lost write-back shows as missing progress. The load cannot fail inside the area.
        let word = area
            .memory()
            .load_u32_acquire(self.writeback)
            .debug_expect("the area contains the write-back word")
            .unwrap_or(0);
        match self.ring.complete_writeback(word) {
            Ok(0) => {
                self.empty_polls = self.empty_polls.wrapping_add(1);
                if self.empty_polls.is_multiple_of(POLLS_PER_CLOCK_READ) { self.check_stall() } else { Ok(0) }
            }
            Ok(_) => {
                barrier::writeback_before_data();
                self.note_progress();
                self.line.arm_for_next();
                Ok(self.collect())
            }
            Err(fault) => self.count_fault(fault),
        }
    }

    #[inline]
    pub(super) const fn note_progress(&mut self) {
        self.last_progress = 0;
        self.empty_polls = 0;
    }

    /// Makes the next poll that finds nothing read the clock: the thread sleeps in between, so polls are rare.
    pub(crate) const fn force_stall_check(&mut self) {
        self.empty_polls |= POLLS_PER_CLOCK_READ - 1;
    }

    /// Reads the clock, and the status register after too long a time without progress. So every polling call detects an engine that has
    /// stopped and a card that is gone.
    #[cold]
    fn check_stall(&mut self) -> Result<usize, ChannelError> {
        let now = self.card.backend.now();
        if self.last_progress == 0 {
            self.last_progress = now;
        }
        let patience = match self.side {
            Side::Memory => STALL_CHECK_NS,
            Side::Stream => STREAM_STALL_CHECK_NS,
        };
        if now.saturating_sub(self.last_progress) < patience {
            return Ok(0);
        }
        self.last_progress = now;
        let before = self.ring.ended();
        self.check_status()?;
        Ok(usize::try_from(self.ring.ended() - before).unwrap_or(usize::MAX))
    }

    /// Moves completed operations that have a payload or were withdrawn to the finished queue, and counts the others. Returns their number.
    #[inline]
    pub(super) fn collect(&mut self) -> usize {
        let mut count = 0;
        loop {
            count += self.ring.pop_without_payload() as usize;
            let Some(done) = self.ring.poll_completion() else { return count };
            count += 1;
            let outcome = if done.withdrawn {
                Err(self.located(self.ended_by(FaultCause::Aborted)))
            } else {
                Ok(done.length)
            };
            self.push(Ticket(done.token.number()), outcome, done.payload);
        }
    }

    #[inline]
    pub(super) fn push(
        &mut self,
        ticket: Ticket,
        outcome: Result<u64, Box<Error<ChannelFault>>>,
        buffer: Option<DmaBuffer>,
    ) {
        self.finished.push_back(Completion { ticket, outcome, buffer });
    }

    pub(super) fn mmio(&self, source: MmioError) -> ChannelError {
        ChannelError::from(source)
    }

    #[inline]
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        self.finished.pop_front()
    }

    /// Returns `ticket`'s completion; `None` while it is in flight; an error if it can never complete.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Result<Completion, ChannelError>> {
        if !self.has_ended(ticket) && ticket.0 < self.ring.submitted() {
            return None;
        }
        let at = self.finished.iter().position(|done| done.ticket == ticket);
        Some(at.and_then(|at| self.finished.remove(at)).ok_or(ChannelError::UnknownTicket))
    }
}
