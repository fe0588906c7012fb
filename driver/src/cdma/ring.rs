//! Ring with many copies in flight: the engine's scatter-gather mode.

use std::collections::VecDeque;

use fpga_registers::CardAddr;
use fpga_registers::cdma::Cdmacr;
use fpga_ring::cdma_ring::{CopyEntry, LENGTH_BITS, Ring, Token};

use super::Cdma;
use super::error::{CdmaError, CdmaFault, CdmaRingError};
use super::options::{CdmaRingOptions, DescriptorPath};
use super::path::{UploadPath, UploadState};
use crate::channel::Ticket;
use crate::engine_interrupt::EngineInterrupt;
use crate::error::{At as _, CardPart, Error, ErrorPlace, Refused};

/// Number of polls without progress between two reads of the clock.
const POLLS_PER_CLOCK_READ: u32 = 16;
/// Time without progress, in nanoseconds, after which the status register is read: an engine that halted on an error completes nothing
/// more.
const STALL_CHECK_NS: u64 = 1_000_000;

/// Completion of a copy.
#[derive(Debug)]
pub struct CdmaCompletion<T> {
    /// Ticket that `submit` returned.
    pub ticket: Ticket,
    /// Bytes copied, or the fault.
    pub outcome: Result<u64, Box<Error<CdmaFault>>>,
    /// Payload that was submitted.
    pub payload: T,
}

/// Ring of copies within card memory, created by [`Cdma::into_ring`].
///
/// Copies submitted together are posted together: one write of descriptors, one pair of tail writes. The engine continues from batch to
/// batch without stopping. Each copy carries a payload of the caller (`()` for none), which comes back exactly once. The ring has one
/// owner, which polls it. It takes no lock and starts no thread.
///
/// Dropping the ring stops the engine, in the middle of a copy if necessary.
///
/// ```
/// # #[cfg(feature = "sim")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use fpga_driver::{Card, CardAddr, CdmaRingOptions, DescriptorPath, WaitOptions, sim::SimNetwork};
///
/// let network = SimNetwork::builder().cards(1).build()?;
/// let card = Card::from_backend(network.backend(0))?;
/// let path = DescriptorPath::Bypass { window: CardAddr::ZERO };
/// let mut ring = card.cdma()?.into_ring(path, CdmaRingOptions::new(CardAddr::new(0x10_0000)))?;
/// let mut last = None;
/// for n in 0..8 {
///     let (from, to) = (CardAddr::new(0x20_0000 + n * 4096), CardAddr::new(0x40_0000 + n * 4096));
///     last = Some(ring.copy(from, to, 4096, n)?);
/// }
/// let done = ring.wait(last.ok_or("nothing was submitted")?, WaitOptions::default())?;
/// assert_eq!((done.payload, done.outcome.ok()), (7, Some(4096)));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))]
/// # fn main() {}
/// ```
#[derive(Debug)]
pub struct CdmaRing<T> {
    pub(super) ring: Ring<T>,
    pub(super) finished: VecDeque<CdmaCompletion<T>>,
    // In drop order: the line is masked and the engine stops before the channel that feeds it is dropped.
    pub(super) line: Option<EngineInterrupt>,
    pub(super) cdma: Cdma,
    pub(super) path: UploadPath,
    pub(super) control: Cdmacr,
    /// High word of every descriptor's address.
    high: u64,
    /// Copy that a wait is for; its status word is read first.
    pub(super) wanted: Option<Token>,
    /// Time of the last progress; 0: progress since the clock was last read.
    last_progress: u64,
    /// Number of consecutive polls without progress.
    empty_polls: u32,
    pub(super) overruns: u64,
    /// Number of completed descriptors when the engine last ran past its tail.
    pub(super) overrun_at: Option<u64>,
    pub(super) failed: Option<CdmaRingError>,
}

impl Cdma {
    /// Puts the engine into scatter-gather mode with a ring of descriptors in card memory. [`CdmaRing::close`] returns the engine.
    ///
    /// # Errors
    /// [`Refused`] returns the engine and the descriptor path: the build has no scatter-gather, the options or the descriptor range are invalid, the
    /// descriptor path cannot be used, or the engine is stuck.
    #[expect(clippy::type_complexity, reason = "a name for the type would hide what is returned")]
    pub fn into_ring<T>(
        self,
        path: DescriptorPath,
        options: CdmaRingOptions,
    ) -> Result<CdmaRing<T>, Box<Refused<(Cdma, DescriptorPath), Error<CdmaRingError>>>> {
        let place = self.card.place_at(CardPart::CdmaRing);
        let refused = |error, cdma, path| {
            Err(Box::new(Refused { error: Error::new(error, place), payload: (cdma, path) }))
        };
        let (ring, control) = match self.plan(&options) {
            Ok(planned) => planned,
            Err(error) => return refused(error, self, path),
        };
        let line = match options.user_interrupt.map(|line| EngineInterrupt::take(&self.card, line)) {
            Some(None) => {
                return refused(CdmaRingError::NoInterrupt, self, path);
            }
            line => line.flatten(),
        };
        let path = match UploadPath::open(&self.card, path, ring.config()) {
            Ok(path) => path,
            Err((error, path)) => return refused(error, self, path),
        };
        let mut ring = CdmaRing {
            finished: VecDeque::with_capacity(ring.config().operations as usize),
            high: ring.config().base.get() & !0xFFFF_FFFF,
            ring,
            line,
            cdma: self,
            path,
            control,
            wanted: None,
            last_progress: 0,
            empty_polls: 0,
            overruns: 0,
            overrun_at: None,
            failed: None,
        };
        match ring.restart() {
            Ok(()) => Ok(ring),
            Err(error) => {
                let CdmaRing { cdma, path, .. } = ring;
                refused(error, cdma, path.close())
            }
        }
    }

    /// Checks the options against the build. The engine stays in simple mode and idle.
    fn plan<T>(&self, options: &CdmaRingOptions) -> Result<(Ring<T>, Cdmacr), CdmaRingError> {
        let mut options = *options;
        if let Some(bounce) = &self.bounce {
            (options.data_bytes, options.realignment) = (bounce.data_bytes, false);
        }
        // An invalid value is refused as it was given.
        if options.length_bits <= LENGTH_BITS {
            options.length_bits = options.length_bits.min(self.length_bits());
        }
        let (threshold, delay) = (options.interrupt_threshold, options.interrupt_delay);
        if threshold == 0 || (threshold > 1 && delay == 0) {
            return Err(CdmaRingError::Coalescing { threshold, delay });
        }
        // Checked before any register access: the options must be valid for some build.
        options.config(64).validate()?;
        let (start, length) = (options.base, options.config(64).bytes());
        if let Some(ranges) = self.card.reachable()
            && !ranges.iter().any(|range| range.contains(start, length))
        {
            return Err(CdmaError::CardMemory { start, length }.into());
        }
        self.prepare_chain()?;
        let ring = Ring::new(options.config(self.address_bits()?))?;
        let interrupts = options.user_interrupt.is_some();
        let control = Cdmacr::new()
            .with_ioc_irq_enable(interrupts)
            .with_delay_irq_enable(interrupts)
            .with_error_irq_enable(interrupts)
            .with_irq_threshold(threshold)
            .with_irq_delay(delay);
        Ok((ring, control))
    }
}

impl<T> CdmaRing<T> {
    pub(super) fn now(&self) -> u64 {
        self.cdma.card.backend.now()
    }

    /// Relaxes in a polling loop: a spin-loop hint on hardware; lets a simulated card in this thread take a step.
    pub fn relax(&self) {
        self.cdma.card.backend.relax();
    }

    /// Queues a copy of `length` bytes. The engine receives it with the next [`poll`](Self::poll), together with everything queued before.
    /// Waits poll as well.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn copy(
        &mut self,
        source: CardAddr,
        destination: CardAddr,
        length: u64,
        payload: T,
    ) -> Result<Ticket, Refused<T, Error<CdmaRingError>>> {
        self.submit(&[CopyEntry::new(source, destination, length)], payload)
    }

    /// Queues a list of copies as one: they run in order and complete together. Empty ones are skipped.
    ///
    /// Parts that the engine cannot move ([`Cdma::set_bounce_channels`]) are moved before this call returns, after a wait for everything
    /// submitted earlier.
    ///
    /// # Errors
    /// [`Refused`] returns the payload, and nothing is queued. A full ring is back-pressure ([`Refused::is_full`]): poll, then
    /// submit again.
    pub fn submit(
        &mut self,
        segments: &[CopyEntry],
        payload: T,
    ) -> Result<Ticket, Refused<T, Error<CdmaRingError>>> {
        self.queue(segments, payload).map_err(|refused| refused.at(|| self.place()))
    }

    /// Place of the ring's errors.
    pub(super) fn place(&self) -> ErrorPlace {
        self.cdma.card.place_at(CardPart::CdmaRing)
    }

    fn queue(&mut self, segments: &[CopyEntry], payload: T) -> Result<Ticket, Refused<T, CdmaRingError>> {
        if let Err(error) = self.check_usable() {
            return Err(Refused { error, payload });
        }
        if let Err(error) = self.check(segments) {
            return Err(Refused { error: error.into(), payload });
        }
        let queued = match self.bounce(segments) {
            Ok(None) => self.ring.submit(segments, payload),
            Ok(Some((rest, moved))) => self.ring.submit_rest(&rest, moved, payload),
            Err(error) => return Err(Refused { error, payload }),
        };
        // The engine may have nothing to do.
        if self.ring.outstanding() == 0 && !self.ring.has_queued() {
            self.collect();
        }
        match queued {
            Ok(token) => Ok(Ticket(token.number())),
            Err(refusal) => {
                Err(Refused { error: CdmaRingError::of(refusal.reason), payload: refusal.payload })
            }
        }
    }

    /// Returns an error if the ring has failed, and in another process than the card's.
    pub(super) fn check_usable(&self) -> Result<(), CdmaRingError> {
        self.cdma.card.check_process().map_err(CdmaError::from)?;
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Checks the segments against the card's memory. The ring itself checks what the engine can address.
    fn check(&self, segments: &[CopyEntry]) -> Result<(), CdmaError> {
        let Some(ranges) = self.cdma.card.reachable() else { return Ok(()) };
        for segment in segments.iter().filter(|segment| segment.length != 0) {
            for start in [segment.source, segment.destination] {
                if !ranges.iter().any(|range| range.contains(start, segment.length)) {
                    let length = segment.length;
                    return Err(CdmaError::CardMemory { start, length });
                }
            }
        }
        Ok(())
    }

    /// Posts queued copies to the engine and collects completed ones. Returns the number of copies that ended.
    ///
    /// Cost per batch: the writes of the descriptors and two register writes. Cost per poll, while copies are outstanding: one read (see
    /// [`DescriptorPath`]). With nothing outstanding, nothing is read.
    ///
    /// # Errors
    /// [`CdmaRingError`] if the ring as a whole has failed; every copy has ended then. The failure of a single copy is in its
    /// [`CdmaCompletion`].
    pub fn poll(&mut self) -> Result<usize, Error<CdmaRingError>> {
        self.poll_ring().at(|| self.place())
    }

    pub(super) fn poll_ring(&mut self) -> Result<usize, CdmaRingError> {
        self.check_usable()?;
        let before = self.ring.ended();
        let outstanding = self.ring.outstanding() != 0;
        match self.advance_batches() {
            // Copies that were just posted are not complete yet: the next call reads their progress.
            Ok(()) if outstanding => self.poll_engine()?,
            Ok(()) => {}
            Err(error) => self.upload_failed(error)?,
        }
        Ok(self.ended_since(before))
    }

    pub(super) fn ended_since(&self, before: u64) -> usize {
        usize::try_from(self.ring.ended() - before).unwrap_or(usize::MAX)
    }

    /// Moves queued descriptors forward: into card memory, and from there to the engine.
    fn advance_batches(&mut self) -> Result<(), CdmaRingError> {
        if self.ring.has_published() && self.path.arrived()? {
            self.post()?;
        }
        if self.ring.has_queued() && !self.ring.has_published() {
            let Self { ring, path, .. } = self;
            let batch = path.fill(|image| ring.publish(image));
            if let Some(batch) = batch
                && matches!(self.path.send(batch)?, UploadState::Arrived)
            {
                self.post()?;
            }
        }
        Ok(())
    }

    fn post(&mut self) -> Result<(), CdmaRingError> {
        if let Some(tail) = self.ring.post() {
            self.note_progress();
            self.cdma.advance(tail)?;
        }
        Ok(())
    }

    const fn note_progress(&mut self) {
        self.last_progress = 0;
        self.empty_polls = 0;
    }

    /// Reads the engine's progress.
    fn poll_engine(&mut self) -> Result<(), CdmaRingError> {
        let seen = match self.path {
            UploadPath::Bypass { .. } => self.read_status_word(),
            UploadPath::Channel { .. } => self.read_current_pointer(),
        };
        match seen {
            Ok(Ok(0)) => self.check_stall(),
            Ok(Ok(_)) => {
                self.note_progress();
                self.collect();
                Ok(())
            }
            Ok(Err(fault)) => self.progress_fault(fault),
            Err(error) => self.fail(error),
        }
    }

    fn read_status_word(
        &mut self,
    ) -> Result<Result<u32, fpga_ring::cdma_ring::ProgressFault>, CdmaRingError> {
        let wanted = self.wanted.and_then(|token| self.ring.probe_for(token));
        let Some(probe) = wanted.or_else(|| self.ring.probe()) else { return Ok(Ok(0)) };
        let word = self.path.read_word(probe.status)?.unwrap_or(0);
        Ok(self.ring.complete_status(probe, word))
    }

    fn read_current_pointer(
        &mut self,
    ) -> Result<Result<u32, fpga_ring::cdma_ring::ProgressFault>, CdmaRingError> {
        let current = CardAddr::new(self.high | u64::from(self.cdma.current_low()?));
        if self.ring.is_past_tail(current) {
            // The engine has not moved since it went once around the ring, or it is about to halt.
            return Ok(Ok(0));
        }
        let mut idle = false;
        if self.ring.is_tail(current) {
            let status = self.cdma.read_status()?;
            idle = status.idle() && !status.has_error();
        }
        Ok(self.ring.complete_current(current, idle))
    }

    fn check_stall(&mut self) -> Result<(), CdmaRingError> {
        self.empty_polls = self.empty_polls.wrapping_add(1);
        if !self.empty_polls.is_multiple_of(POLLS_PER_CLOCK_READ) {
            return Ok(());
        }
        let now = self.now();
        if self.last_progress == 0 {
            self.last_progress = now;
        }
        if now.saturating_sub(self.last_progress) < STALL_CHECK_NS {
            return Ok(());
        }
        self.last_progress = now;
        self.check_status()
    }

    /// Moves completed copies to the finished queue.
    pub(super) fn collect(&mut self) {
        while let Some(done) = self.ring.poll_completion() {
            let ticket = Ticket(done.token.number());
            self.finished.push_back(CdmaCompletion {
                ticket,
                outcome: Ok(done.length),
                payload: done.payload,
            });
        }
    }

    /// Returns the oldest completion that was not taken yet.
    #[must_use]
    pub fn next_completion(&mut self) -> Option<CdmaCompletion<T>> {
        self.finished.pop_front()
    }

    /// Returns the number of copies that were submitted and have not ended.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.ring.operations()
    }

    /// Returns the number of descriptors that can still be queued.
    #[must_use]
    pub const fn free_descriptors(&self) -> u32 {
        self.ring.free_entries()
    }

    /// Returns the maximum length of a copy with one descriptor, in bytes. Longer copies take several descriptors.
    #[must_use]
    pub const fn max_descriptor_length(&self) -> u32 {
        self.ring.config().max_descriptor_length()
    }

    /// Returns how often the engine has run past its tail. Each overrun costs a reset and has no other effect. If the address registers are
    /// wider than 32 bits, a new tail takes two writes, and an engine that reaches it between them is started once too often.
    #[must_use]
    pub const fn overruns(&self) -> u64 {
        self.overruns
    }

    pub(super) fn address_of(&self, low: u32) -> CardAddr {
        CardAddr::new(self.high | u64::from(low))
    }
}
