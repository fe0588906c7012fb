//! One channel, driven by hand: descriptors of the test's own making, and the registers that start and stop them.
//!
//! The driver's channels never post what may upset a card. Here it is posted on purpose: several blocks of long descriptors,
//! runs without Stop, control words without this bit or that.

use std::sync::Arc;

use fpga_pci::{Bar, Interrupt, MmioError, QuarantineReason, RegisteredMemory, barrier};
use fpga_registers::xdma::descriptor::next_adjacent;
use fpga_registers::xdma::{
    Adjacent, ChannelBlock, ChannelControl, ChannelInterrupts, ChannelStatus, Credits, Descriptor,
    DescriptorControl, Direction, PerChannel, SGDMA_COMMON_BASE, SgdmaBlock, SgdmaCommonBlock, channel_base,
    irq::channel_bit, sgdma_base,
};
use fpga_registers::{BarOffset, CardAddr, Iova};

use super::context::{QuarantineFlag, TestContext};
use super::problem::{EnginePosition, TestError, errors};
use crate::name::ChannelName;
use crate::shared::{ChannelClaim, Shared};
use crate::wait::poll_until;

/// Descriptors that a rig has room for.
pub(super) const MAX_DESCRIPTORS: usize = 1024;
const DESCRIPTOR: usize = 32;
/// The write-back word, on a line of its own.
const WRITEBACK: usize = MAX_DESCRIPTORS * DESCRIPTOR + 64;
const AREA: usize = MAX_DESCRIPTORS * DESCRIPTOR + 128;
/// Events of status and bits of the interrupt mask.
pub(super) const EVENTS: u32 = 0x00FF_FFFE;

/// What one descriptor moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct DescriptorSpec {
    pub(super) host: Iova,
    pub(super) card: CardAddr,
    pub(super) length: u32,
}

/// How descriptors are laid out and linked.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChainLayout {
    /// Index of the first one in the rig's memory: where blocks meet page boundaries.
    pub(super) first: usize,
    /// Adjacent descriptors per block at most, 1 to 64.
    pub(super) block: u32,
    /// The last one leads back to the first, and none stops.
    pub(super) circular: bool,
}

impl Default for ChainLayout {
    fn default() -> Self {
        Self { first: 0, block: 64, circular: false }
    }
}

/// A taken channel. Dropping it stops the engine: what the engine reaches has to be dropped after it, that is declared before.
#[derive(Debug)]
pub(super) struct TestChannel {
    pub(super) name: ChannelName,
    card: Arc<Shared>,
    bar: Bar,
    base: BarOffset,
    sgdma: BarOffset,
    area: Option<RegisteredMemory>,
    posted: Vec<DescriptorSpec>,
    running: bool,
    limit: u64,
    lost: QuarantineFlag,
    _claim: ChannelClaim,
}

/// Everything is recorded, and reported by the write-back.
pub(super) fn record_all() -> ChannelControl {
    ChannelControl::new()
        .with_ie_descriptor_stopped(true)
        .with_ie_descriptor_completed(true)
        .with_ie_align_mismatch(true)
        .with_ie_magic_stopped(true)
        .with_ie_invalid_length(true)
        .with_ie_idle_stopped(true)
        .with_ie_read_error(ChannelControl::ERRORS_ALL)
        .with_ie_write_error(ChannelControl::ERRORS_ALL)
        .with_ie_descriptor_error(ChannelControl::ERRORS_ALL)
        .with_poll_writeback(true)
}

impl TestChannel {
    pub(super) fn new(bench: &TestContext<'_>, claim: ChannelClaim) -> Result<Self, TestError> {
        let name = claim.name;
        let card = Arc::clone(&bench.card.shared);
        let area = card.pool.allocate_registered(AREA, 4096)?;
        let mut rig = Self {
            name,
            bar: card.dma_bar.clone(),
            base: channel_base(name.direction, name.number),
            sgdma: sgdma_base(name.direction, name.number),
            area: Some(area),
            posted: Vec::new(),
            // Its last owner may not have been able to stop it.
            running: true,
            limit: bench.limit(),
            lost: std::rc::Rc::clone(&bench.lost),
            card,
            _claim: claim,
        };
        rig.stop()?;
        let (low, high) = rig.address(WRITEBACK).to_low_high();
        ChannelBlock::POLL_ADDRESS_LOW.write(&rig.bar, rig.base, low)?;
        ChannelBlock::POLL_ADDRESS_HIGH.write(&rig.bar, rig.base, high)?;
        rig.enable_interrupt(false)?;
        rig.set_credit_mode(false)?;
        SgdmaCommonBlock::HALT_CLEAR.write(&rig.bar, SGDMA_COMMON_BASE, rig.bit())?;
        Ok(rig)
    }

    pub(super) fn bit(&self) -> PerChannel {
        PerChannel::one(self.name.direction, self.name.number)
    }

    fn address(&self, offset: usize) -> Iova {
        // Inside the area, which lies inside the address space.
        Iova::new(self.area.as_ref().map_or(0, |area| area.iova().get()) + offset as u64)
    }

    /// Its interrupt, and the number of the vector behind it.
    pub(super) fn interrupt(&self) -> Option<(Interrupt, usize)> {
        let interrupts = self.card.interrupts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let number = channel_bit(self.name.direction, self.name.number, self.card.info.xdma.h2c_channels);
        let own = interrupts.get(usize::from(number))?;
        // Where there are too few vectors, the first channel that has it says which one it is.
        let vector = interrupts.iter().position(|other| other.shares_with(own))?;
        Some((own.clone(), vector))
    }

    /// Writes a chain of descriptors: at most [`MAX_DESCRIPTORS`] of them. Returns what the engine is to be told.
    pub(super) fn write(
        &mut self,
        pieces: &[DescriptorSpec],
        chain: ChainLayout,
    ) -> Result<ChainStart, TestError> {
        let count = pieces.len().min(MAX_DESCRIPTORS - chain.first.min(MAX_DESCRIPTORS));
        let end = chain.first + count;
        // Descriptors of the block that begins at entry `at`, those that follow the first.
        let adjacent = |at: usize| {
            let available = u32::try_from(end.saturating_sub(at)).unwrap_or(u32::MAX).min(chain.block);
            next_adjacent(self.address(at * DESCRIPTOR), available)
        };
        let mut block_end = chain.first + usize::from(adjacent(chain.first)) + 1;
        let memory = self.area.as_ref().map(RegisteredMemory::memory).unwrap_or_default();
        for (at, piece) in (chain.first..end).zip(pieces) {
            let last = at + 1 == end;
            let next = if last { chain.first } else { at + 1 };
            // Within a block the count goes down; its last descriptor carries the count of the block that follows.
            let next_adjacent = if last && !chain.circular {
                0
            } else if at + 1 == block_end || last {
                let extra = adjacent(next);
                block_end = next + usize::from(extra) + 1;
                extra
            } else {
                u8::try_from(block_end - next - 1).unwrap_or(0)
            };
            let control = DescriptorControl::new()
                .with_stop(last && !chain.circular)
                .with_completed(last || chain.circular)
                .with_next_adjacent(next_adjacent);
            let next = if last && !chain.circular { Iova::ZERO } else { self.address(next * DESCRIPTOR) };
            let descriptor = match self.name.direction {
                Direction::H2c => Descriptor::h2c(piece.host, piece.card, piece.length),
                Direction::C2h => Descriptor::c2h(piece.card, piece.host, piece.length),
            };
            // No test has a descriptor near the limit of 256 MiB.
            let Ok(descriptor) = descriptor else { continue };
            memory
                .store_words(at * DESCRIPTOR, descriptor.with_control(control).with_next(next).to_words())?;
        }
        let post =
            ChainStart { first: self.address(chain.first * DESCRIPTOR), adjacent: adjacent(chain.first) };
        self.posted.clear();
        self.posted.extend_from_slice(pieces);
        Ok(post)
    }

    /// Starts the engine on what was written.
    pub(super) fn start(&mut self, post: ChainStart, control: ChannelControl) -> Result<(), TestError> {
        let memory = self.area.as_ref().map(RegisteredMemory::memory).unwrap_or_default();
        memory.store_u32(WRITEBACK, 0)?;
        barrier::descriptor_before_doorbell();
        ChannelBlock::CONTROL.write(&self.bar, self.base, control.with_run(false))?;
        let (low, high) = post.first.to_low_high();
        SgdmaBlock::DESCRIPTOR_LOW.write(&self.bar, self.sgdma, low)?;
        SgdmaBlock::DESCRIPTOR_HIGH.write(&self.bar, self.sgdma, high)?;
        SgdmaBlock::ADJACENT.write(&self.bar, self.sgdma, Adjacent::new().with_extra(post.adjacent))?;
        self.running = true;
        ChannelBlock::CONTROL.write(&self.bar, self.base, control.with_run(true))?;
        Ok(())
    }

    /// Moves `pieces` in one run and waits, by register alone, until it has ended well.
    pub(super) fn transfer(&mut self, pieces: &[DescriptorSpec]) -> Result<(), TestError> {
        self.transfer_as(pieces, ChainLayout::default(), record_all())
    }

    pub(super) fn transfer_as(
        &mut self,
        pieces: &[DescriptorSpec],
        chain: ChainLayout,
        control: ChannelControl,
    ) -> Result<(), TestError> {
        let post = self.write(pieces, chain)?;
        self.start(post, control)?;
        self.finish()
    }

    /// Waits until the run has ended, and says if it ended badly.
    pub(super) fn finish(&mut self) -> Result<(), TestError> {
        match self.await_idle()? {
            Ok(status) => self.ended(status),
            Err((waited, status)) => Err(self.slow(waited, status)),
        }
    }

    /// Waits until the engine is idle, and returns its status; or what it is after all the time that it was given, and how long
    /// that was, in nanoseconds.
    fn await_idle(&self) -> Result<Result<ChannelStatus, (u64, ChannelStatus)>, TestError> {
        let mut last = ChannelStatus::new();
        let idle = poll_until(&*self.card.transport, self.limit, |_| {
            last = self.status()?;
            Ok::<_, TestError>((!last.busy()).then_some(last))
        })?;
        Ok(idle.map_err(|waited| (waited, last)))
    }

    fn slow(&mut self, waited: u64, status: ChannelStatus) -> TestError {
        let completed = match self.completed() {
            Ok(completed) => completed,
            Err(problem) => return problem,
        };
        if let Err(problem) = self.stop() {
            return problem;
        }
        TestError::Slow {
            channel: self.name,
            waited_ms: waited / 1_000_000,
            completed,
            posted: u32::try_from(self.posted.len()).unwrap_or(u32::MAX),
            status: status.describe(self.name.direction).to_string(),
        }
    }

    fn ended(&mut self, status: ChannelStatus) -> Result<(), TestError> {
        let outcome = if status.has_error(self.name.direction) {
            let completed = self.completed()?;
            let place = self.posted.get(completed as usize);
            let place = place.map(|piece| (completed, piece.host, piece.card, piece.length));
            let what = errors(self.name, status);
            Err(TestError::Engine { channel: self.name, what, place: EnginePosition(place) })
        } else if status.descriptor_stopped() {
            // What the engine wrote is in memory: the read of its status has pushed it there.
            barrier::register_before_memory();
            Ok(())
        } else {
            let status = status.describe(self.name.direction).to_string();
            Err(TestError::Silent { channel: self.name, status })
        };
        self.stop()?;
        outcome
    }

    /// Clears Run, waits until the engine is idle, clears what it recorded. Returns what that was.
    pub(super) fn stop(&mut self) -> Result<ChannelStatus, TestError> {
        self.seen(ChannelBlock::CONTROL_CLEAR.write(&self.bar, self.base, ChannelControl::from_bits(1)))?;
        let status = match self.await_idle()? {
            Ok(status) => status,
            Err((waited, status)) => {
                self.lost.set(Some(QuarantineReason::IdleNotConfirmed));
                // Given up: whoever drops the rig need not wait once more.
                self.running = false;
                let status = status.describe(self.name.direction).to_string();
                return Err(TestError::Stuck {
                    channel: self.name,
                    waited_ms: waited / 1_000_000,
                    status,
                    hint: "",
                });
            }
        };
        self.running = false;
        self.seen(ChannelBlock::CONTROL.write(&self.bar, self.base, ChannelControl::new()))?;
        self.seen(ChannelBlock::STATUS.write(&self.bar, self.base, ChannelStatus::from_bits(EVENTS)))?;
        Ok(status)
    }

    /// The outcome of a register access; notes that the card is gone, for memory that it may still reach.
    fn seen<T>(&self, outcome: Result<T, MmioError>) -> Result<T, TestError> {
        outcome.map_err(|error| {
            if error.is_gone() {
                self.lost.set(Some(QuarantineReason::DeviceGone));
            }
            error.into()
        })
    }

    /// The status register; all ones are no status.
    pub(super) fn status(&self) -> Result<ChannelStatus, TestError> {
        let status = self.seen(ChannelBlock::STATUS.read(&self.bar, self.base))?;
        if status.into_bits() == u32::MAX {
            self.lost.set(Some(QuarantineReason::DeviceGone));
            return Err(TestError::Gone);
        }
        Ok(status)
    }

    /// The completed count that the register shows.
    pub(super) fn completed(&self) -> Result<u32, TestError> {
        self.seen(ChannelBlock::COMPLETED.read(&self.bar, self.base))
    }

    /// The write-back word.
    pub(super) fn writeback(&self) -> Result<u32, TestError> {
        let memory = self.area.as_ref().map(RegisteredMemory::memory).unwrap_or_default();
        Ok(memory.load_u32_acquire(WRITEBACK)?)
    }

    pub(super) fn enable_interrupt(&self, on: bool) -> Result<(), TestError> {
        let mask = ChannelInterrupts::new().with_descriptor_stopped(on).with_descriptor_completed(on);
        Ok(ChannelBlock::INTERRUPT_ENABLE.write(&self.bar, self.base, mask)?)
    }

    /// Switches credit mode; returns whether the bit has taken.
    pub(super) fn set_credit_mode(&self, on: bool) -> Result<bool, TestError> {
        let (bar, base, bit) = (&self.bar, SGDMA_COMMON_BASE, self.bit());
        if on {
            SgdmaCommonBlock::CREDIT_MODE_SET.write(bar, base, bit)?;
        } else {
            SgdmaCommonBlock::CREDIT_MODE_CLEAR.write(bar, base, bit)?;
        }
        let held = SgdmaCommonBlock::CREDIT_MODE.read(bar, base)?.into_bits() & bit.into_bits() != 0;
        Ok(held == on)
    }

    pub(super) fn grant(&self, credits: u16) -> Result<(), TestError> {
        let credits = Credits::of(credits).unwrap_or_default();
        Ok(SgdmaBlock::CREDITS.write(&self.bar, self.sgdma, credits)?)
    }
}

/// What the engine is told of a chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChainStart {
    first: Iova,
    adjacent: u8,
}

impl Drop for TestChannel {
    /// A test that ended early has left the engine running.
    fn drop(&mut self) {
        if self.running
            && self.lost.get() != Some(QuarantineReason::DeviceGone)
            && self.stop().is_err()
            && self.lost.get().is_none()
        {
            self.lost.set(Some(QuarantineReason::IdleNotConfirmed));
        }
        let _ = self.enable_interrupt(false);
        let _ = self.set_credit_mode(false);
        if let (Some(reason), Some(area)) = (self.lost.get(), self.area.take()) {
            area.quarantine(reason);
        }
    }
}
