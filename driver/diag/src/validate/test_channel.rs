//! Test channel: a channel driven with the test's own descriptors and direct register accesses.
//!
//! The driver's channels never post descriptors that may upset a card. Tests post them on purpose: several blocks of long descriptors, runs
//! without Stop, control words with single bits missing.

use core::fmt;
use fpga_pci::Waited;
use std::sync::Arc;

use fpga_pci::{Backend, Bar, Interrupt, MmioError, QuarantineReason, RegisteredMemory, barrier};
use fpga_registers::xdma::descriptor::next_adjacent;
use fpga_registers::xdma::{
    Adjacent, ChannelBlock, ChannelControl, ChannelInterrupts, ChannelStatus, Credits, Descriptor,
    DescriptorControl, Direction, PerChannel, SGDMA_COMMON_BASE, SgdmaBlock, SgdmaCommonBlock, channel_base,
    sgdma_base,
};
use fpga_registers::{BarOffset, CardAddr, Iova};

use super::context::{QuarantineFlag, TestContext};
use super::problem::{EnginePosition, TestError, errors};
use fpga_driver::ChannelName;
use fpga_driver::extension::RawChannel;
use fpga_pci::poll_until;

/// Maximum number of descriptors of a test channel.
pub(super) const MAX_DESCRIPTORS: usize = 1024;
const DESCRIPTOR: usize = 32;
/// Offset of the write-back word, on its own cache line.
const WRITEBACK: usize = MAX_DESCRIPTORS * DESCRIPTOR + 64;
const AREA: usize = MAX_DESCRIPTORS * DESCRIPTOR + 128;
/// Events of status and bits of the interrupt mask.
pub(super) const EVENTS: u32 = 0x00FF_FFFE;

/// Channel, unless it has another owner.
pub(super) enum Availability {
    Free(TestChannel),
    Busy,
}

impl TestContext<'_> {
    /// Takes a channel for the duration of a test.
    pub(super) fn take(&self, name: ChannelName) -> Result<Availability, TestError> {
        match self.card.raw_channel(name) {
            Ok(claim) => TestChannel::new(self, claim).map(Availability::Free),
            Err(_) => Ok(Availability::Busy),
        }
    }

    /// Takes the first free channel of one direction.
    pub(super) fn any(&self, direction: Direction) -> Result<Option<TestChannel>, TestError> {
        for name in self.channels(direction) {
            match self.take(name) {
                Ok(Availability::Free(channel)) => return Ok(Some(channel)),
                // An engine that does not stop cannot be used; another one may work.
                Ok(Availability::Busy) | Err(TestError::Stuck { .. }) => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(None)
    }

    /// Takes every free channel. Returns them with the names of the busy ones.
    pub(super) fn free(&self) -> Result<(Vec<TestChannel>, Vec<ChannelName>), TestError> {
        let (mut free, mut busy) = (Vec::new(), Vec::new());
        for name in self.card.info().xdma.channels() {
            match self.take(name)? {
                Availability::Free(channel) => free.push(channel),
                Availability::Busy => busy.push(name),
            }
        }
        Ok((free, busy))
    }
}

/// Transfer of one descriptor.
#[derive(Debug, Clone, Copy)]
pub(super) struct DescriptorSpec {
    pub(super) host: Iova,
    pub(super) card: CardAddr,
    pub(super) length: u32,
}

/// Layout and links of the descriptors.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChainLayout {
    /// Index of the first descriptor in memory, which determines where blocks meet page boundaries.
    pub(super) first: usize,
    /// Maximum number of adjacent descriptors per block, 1 to 64.
    pub(super) block: u32,
    /// The last descriptor links to the first, and none has the Stop bit.
    pub(super) circular: bool,
}

impl Default for ChainLayout {
    fn default() -> Self {
        Self { first: 0, block: 64, circular: false }
    }
}

/// Taken channel. Dropping it stops the engine. Memory that the engine accesses must be dropped after it, so it is declared before it.
pub(super) struct TestChannel {
    pub(super) name: ChannelName,
    backend: Arc<dyn Backend>,
    bar: Bar,
    base: BarOffset,
    sgdma: BarOffset,
    area: Option<RegisteredMemory>,
    posted: Vec<DescriptorSpec>,
    running: bool,
    limit: u64,
    lost: QuarantineFlag,
    channel: RawChannel,
}

impl fmt::Debug for TestChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestChannel")
            .field("name", &self.name)
            .field("posted", &self.posted)
            .finish_non_exhaustive()
    }
}

/// Returns control bits that record every event and report it by write-back.
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
    pub(super) fn new(context: &TestContext<'_>, raw: RawChannel) -> Result<Self, TestError> {
        let name = raw.name();
        let area = context.card.memory().allocate_registered(AREA, 4096)?;
        let mut channel = Self {
            name,
            bar: raw.registers().clone(),
            base: channel_base(name.direction, name.number),
            sgdma: sgdma_base(name.direction, name.number),
            area: Some(area),
            posted: Vec::new(),
            // The last owner may have been unable to stop the engine.
            running: true,
            limit: context.limit(),
            lost: std::rc::Rc::clone(&context.lost),
            backend: Arc::clone(context.card.backend()),
            channel: raw,
        };
        channel.stop()?;
        let (low, high) = channel.address(WRITEBACK).to_low_high();
        ChannelBlock::POLL_ADDRESS_LOW.write(&channel.bar, channel.base, low)?;
        ChannelBlock::POLL_ADDRESS_HIGH.write(&channel.bar, channel.base, high)?;
        channel.enable_interrupt(false)?;
        channel.set_credit_mode(false)?;
        SgdmaCommonBlock::HALT_CLEAR.write(&channel.bar, SGDMA_COMMON_BASE, channel.bit())?;
        Ok(channel)
    }

    pub(super) fn bit(&self) -> PerChannel {
        PerChannel::one(self.name.direction, self.name.number)
    }

    fn address(&self, offset: usize) -> Iova {
        // Inside the area, which is inside the address space.
        Iova::new(self.area.as_ref().map_or(0, |area| area.iova().get()) + offset as u64)
    }

    /// Returns the channel's interrupt, and the number of its vector.
    pub(super) fn interrupt(&self) -> Option<(Interrupt, usize)> {
        self.channel.interrupt()
    }

    /// Writes a chain of at most [`MAX_DESCRIPTORS`] descriptors. Returns the values for the engine's registers.
    pub(super) fn write(
        &mut self,
        descriptors: &[DescriptorSpec],
        chain: ChainLayout,
    ) -> Result<ChainStart, TestError> {
        let count = descriptors.len().min(MAX_DESCRIPTORS - chain.first.min(MAX_DESCRIPTORS));
        let end = chain.first + count;
        // Number of descriptors after the first one in the block that begins at entry `at`.
        let adjacent = |at: usize| {
            let available = u32::try_from(end.saturating_sub(at)).unwrap_or(u32::MAX).min(chain.block);
            next_adjacent(self.address(at * DESCRIPTOR), available)
        };
        let mut block_end = chain.first + usize::from(adjacent(chain.first)) + 1;
        let memory = self.area.as_ref().map(RegisteredMemory::memory).unwrap_or_default();
        for (at, spec) in (chain.first..end).zip(descriptors) {
            let last = at + 1 == end;
            let next = if last { chain.first } else { at + 1 };
            // Within a block the count decreases; the last descriptor has the count of the next block.
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
                Direction::H2c => Descriptor::h2c(spec.host, spec.card, spec.length),
                Direction::C2h => Descriptor::c2h(spec.card, spec.host, spec.length),
            };
            // No test has a descriptor near the limit of 256 MiB.
            let Ok(descriptor) = descriptor else { continue };
            memory
                .store_words(at * DESCRIPTOR, descriptor.with_control(control).with_next(next).to_words())?;
        }
        let post =
            ChainStart { first: self.address(chain.first * DESCRIPTOR), adjacent: adjacent(chain.first) };
        self.posted.clear();
        self.posted.extend_from_slice(descriptors);
        Ok(post)
    }

    /// Starts the engine on the written chain.
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

    /// Executes `descriptors` in one run and waits, by registers only, until the run has succeeded.
    pub(super) fn transfer(&mut self, descriptors: &[DescriptorSpec]) -> Result<(), TestError> {
        self.transfer_as(descriptors, ChainLayout::default(), record_all())
    }

    pub(super) fn transfer_as(
        &mut self,
        descriptors: &[DescriptorSpec],
        chain: ChainLayout,
        control: ChannelControl,
    ) -> Result<(), TestError> {
        let post = self.write(descriptors, chain)?;
        self.start(post, control)?;
        self.finish()
    }

    /// Waits until the run has ended. Returns an error if it failed.
    pub(super) fn finish(&mut self) -> Result<(), TestError> {
        match self.await_idle()? {
            Ok(status) => self.ended(status),
            Err((waited, status)) => Err(self.slow(waited, status)),
        }
    }

    /// Waits until the engine is idle. Returns its status; or, on timeout, the time waited in nanoseconds and the last status.
    fn await_idle(&self) -> Result<Result<ChannelStatus, (u64, ChannelStatus)>, TestError> {
        let mut last = ChannelStatus::new();
        let idle = poll_until(&*self.backend, self.limit, |_| {
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
            waited: Waited::new(&*self.backend, waited),
            completed,
            posted: u32::try_from(self.posted.len()).unwrap_or(u32::MAX),
            status: status.describe(self.name.direction).to_string(),
        }
    }

    fn ended(&mut self, status: ChannelStatus) -> Result<(), TestError> {
        let outcome = if status.has_error(self.name.direction) {
            let completed = self.completed()?;
            let place = self.posted.get(completed as usize);
            let place = place.map(|spec| (completed, spec.host, spec.card, spec.length));
            let what = errors(self.name, status);
            Err(TestError::Engine { channel: self.name, what, place: EnginePosition(place) })
        } else if status.descriptor_stopped() {
            // The engine's writes are in memory, because the read of its status has pushed them there.
            barrier::register_before_memory();
            Ok(())
        } else {
            let status = status.describe(self.name.direction).to_string();
            Err(TestError::Silent { channel: self.name, status })
        };
        self.stop()?;
        outcome
    }

    /// Clears Run, waits until the engine is idle, and clears its recorded events. Returns these events.
    pub(super) fn stop(&mut self) -> Result<ChannelStatus, TestError> {
        self.seen(ChannelBlock::CONTROL_CLEAR.write(&self.bar, self.base, ChannelControl::from_bits(1)))?;
        let status = match self.await_idle()? {
            Ok(status) => status,
            Err((waited, status)) => {
                self.lost.set(Some(QuarantineReason::IdleNotConfirmed));
                // The engine does not stop: dropping the channel need not wait again.
                self.running = false;
                let status = status.describe(self.name.direction).to_string();
                return Err(TestError::Stuck {
                    channel: self.name,
                    waited: Waited::new(&*self.backend, waited),
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

    /// Returns the outcome of a register access. Records that the card is gone, for memory that it may still reach.
    fn seen<T>(&self, outcome: Result<T, MmioError>) -> Result<T, TestError> {
        outcome.map_err(|error| {
            if error.is_gone() {
                self.lost.set(Some(QuarantineReason::DeviceGone));
            }
            error.into()
        })
    }

    /// Reads the status register; all ones are an error.
    pub(super) fn status(&self) -> Result<ChannelStatus, TestError> {
        let status = self.seen(ChannelBlock::STATUS.read(&self.bar, self.base))?;
        if status.into_bits() == u32::MAX {
            self.lost.set(Some(QuarantineReason::DeviceGone));
            return Err(TestError::Gone);
        }
        Ok(status)
    }

    /// Reads the completed count from the register.
    pub(super) fn completed(&self) -> Result<u32, TestError> {
        self.seen(ChannelBlock::COMPLETED.read(&self.bar, self.base))
    }

    /// Reads the write-back word.
    pub(super) fn writeback(&self) -> Result<u32, TestError> {
        let memory = self.area.as_ref().map(RegisteredMemory::memory).unwrap_or_default();
        Ok(memory.load_u32_acquire(WRITEBACK)?)
    }

    pub(super) fn enable_interrupt(&self, on: bool) -> Result<(), TestError> {
        let mask = ChannelInterrupts::new().with_descriptor_stopped(on).with_descriptor_completed(on);
        Ok(ChannelBlock::INTERRUPT_ENABLE.write(&self.bar, self.base, mask)?)
    }

    /// Switches credit mode on or off. Returns whether the bit holds the written value.
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

/// Values of a chain for the engine's registers.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChainStart {
    first: Iova,
    adjacent: u8,
}

impl Drop for TestChannel {
    /// Stops the engine, which a test that ended early has left running.
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
