//! State shared by all handles of one card, and the shutdown of the card.

use core::fmt;
use fpga_pci::Waited;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fpga_pci::{
    Backend, Bar, DmaAccess, DmaPool, FAULT_LOG, Interrupt, MmioError, Process, RegisteredMemory, lock,
};
use fpga_registers::xdma::{
    CONFIG_BASE, ChannelBlock, ChannelControl, ChannelMask, ConfigBlock, Direction, IRQ_BASE, IrqBlock,
    MAX_USER_INTERRUPTS, UserMask, WriteFlushTimeout, channel_base,
};

use fpga_registers::{BarOffset, Iova};

use crate::error::{At as _, CardPart, CauseClass, Error, ErrorPlace, OpenError, ResourceError};
use crate::info::CardInfo;
use crate::name::CardName;
use crate::name::ChannelName;
use crate::ni::NiInfo;
use crate::options::OpenOptions;
use crate::range::CardRange;
use crate::silence::AllOnesCause;
use crate::wait::IDLE_TIMEOUT_NS;
use fpga_pci::poll_until;

/// State shared by all handles of one card. Dropped with the last handle: channels first, then this.
pub(crate) struct Shared {
    pub(crate) name: CardName,
    pub(crate) pool: DmaPool,
    pub(crate) dma_bar: Bar,
    pub(crate) user_bar: Option<Bar>,
    pub(crate) info: CardInfo,
    /// Interrupts: one per channel, then one per user interrupt; empty until enabled.
    pub(crate) interrupts: Mutex<Vec<Interrupt>>,
    /// Owners of the user interrupt lines.
    user_lines: Mutex<[UserInterruptOwners; MAX_USER_INTERRUPTS as usize]>,
    /// Number of vectors behind `interrupts`.
    pub(crate) vectors: AtomicU32,
    ranges: Option<Vec<CardRange>>,
    /// Taken resources: H2C channels in bits 3:0, C2H channels in bits 7:4, the CDMA in bit 8, the endpoint in bit 9.
    taken: AtomicU32,
    /// Channels, as in `taken`, whose failure to stop was already reported in an error.
    reported: AtomicU32,
    /// The write flush timeout has been on: C2H stream descriptors may be closed early.
    pub(crate) flush: AtomicBool,
    /// Opened for inspection only: nothing may be taken, stopped or set.
    observed: bool,
    idle_timeout: u64,
    /// Process that has opened the card: after a fork, the handles of a child are useless.
    pub(crate) process: Process,
    pub(crate) backend: Arc<dyn Backend>,
}

const CDMA_TAKEN: u32 = 1 << 8;
const ENDPOINT_TAKEN: u32 = 1 << 9;

const fn taken_bit(name: ChannelName) -> u32 {
    match name.direction {
        Direction::C2h => 1 << (4 + name.number % 4),
        _ => 1 << (name.number % 4),
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).field("info", &self.info).finish_non_exhaustive()
    }
}

/// Owner of one line of `usr_irq_req`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum UserInterruptOwners {
    #[default]
    None,
    /// Number of parts of the driver (a CDMA ring, an endpoint) that share the line. Each checks its own cause whenever the line is high.
    Driver(u8),
    /// A [`UserInterrupt`](crate::UserInterrupt).
    User,
}

/// Claim of one user interrupt, released on drop.
#[derive(Debug)]
pub(crate) struct UserInterruptClaim {
    pub(crate) line: u8,
    pub(crate) card: Arc<Shared>,
}

impl UserInterruptClaim {
    /// Returns the line's bit in the IRQ block.
    pub(crate) const fn mask(&self) -> UserMask {
        UserMask::from_bits(1 << (self.line % MAX_USER_INTERRUPTS))
    }
}

impl Drop for UserInterruptClaim {
    fn drop(&mut self) {
        if !self.card.process.is_current() {
            return;
        }
        let mut owners = self.card.user_lines();
        if let Some(owners) = owners.get_mut(usize::from(self.line)) {
            *owners = match *owners {
                UserInterruptOwners::Driver(count @ 2..) => UserInterruptOwners::Driver(count - 1),
                _ => UserInterruptOwners::None,
            };
        }
    }
}

/// Claim of one channel, released on drop.
#[derive(Debug)]
pub(crate) struct ChannelClaim {
    pub(crate) name: ChannelName,
    card: Arc<Shared>,
    /// The channel is a stream, which clients of a shared card take from each other.
    is_claimed_stream: bool,
}

impl ChannelClaim {
    /// Takes the stream channel from the other clients of a shared card.
    pub(crate) fn claim_stream(&mut self) -> Result<(), ResourceError> {
        let channel = self.name;
        if !self.card.backend.claim_stream(channel.direction, channel.number)? {
            return Err(ResourceError::OtherClient { channel });
        }
        self.is_claimed_stream = true;
        Ok(())
    }
}

impl Drop for ChannelClaim {
    fn drop(&mut self) {
        if self.is_claimed_stream && self.card.process.is_current() {
            self.card.backend.release_stream(self.name.direction, self.name.number);
        }
        self.card.taken.fetch_and(!taken_bit(self.name), Ordering::AcqRel);
    }
}

impl Shared {
    /// Allocates memory to be registered with a channel of this card.
    pub(crate) fn registered_memory(&self, length: usize) -> Result<RegisteredMemory, Error<ResourceError>> {
        const PAGE: usize = 4096;
        self.pool.allocate_registered(length, PAGE).map_err(ResourceError::from).at(|| self.place())
    }

    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        info: CardInfo,
        pool: DmaPool,
        dma_bar: Bar,
        user_bar: Option<Bar>,
        options: &OpenOptions,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: info.name.as_str().into(),
            pool,
            dma_bar,
            user_bar,
            ranges: info
                .ni
                .as_ref()
                // That of the shared card is not known.
                .filter(|_| !info.is_view())
                .map(NiInfo::card_ranges)
                .or_else(|| options.card_memory.map(|range| vec![range])),
            info,
            interrupts: Mutex::new(Vec::new()),
            user_lines: Mutex::default(),
            vectors: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            reported: AtomicU32::new(0),
            flush: AtomicBool::new(false),
            observed: options.observe,
            idle_timeout: idle_timeout(options),
            process: Process::current(),
            backend,
        })
    }

    /// Place of an error of the card as a whole.
    pub(crate) fn place(&self) -> ErrorPlace {
        self.place_at(CardPart::Card)
    }

    /// Place of an error of a channel.
    pub(crate) fn place_of(&self, channel: ChannelName) -> ErrorPlace {
        self.place_at(CardPart::Channel(channel))
    }

    /// Place of an error of a part of the card.
    pub(crate) fn place_at(&self, part: CardPart) -> ErrorPlace {
        ErrorPlace::new(self.name.clone(), part)
    }

    /// Returns the cause of a register of the user BAR that reads as all ones.
    pub(crate) fn all_ones_cause(&self) -> AllOnesCause {
        AllOnesCause::ask(&*self.backend, &self.dma_bar)
    }

    /// Returns the maximum time until an engine is idle, in nanoseconds.
    pub(crate) const fn idle_timeout(&self) -> u64 {
        self.idle_timeout
    }

    /// Returns the card addresses that DMA can reach, if they are known.
    pub(crate) fn reachable(&self) -> Option<&[CardRange]> {
        self.ranges.as_deref()
    }

    /// Returns user interrupt `line`, if interrupts are enabled. User interrupts follow the channels' interrupts.
    pub(crate) fn user_interrupt(&self, line: u8) -> Option<Interrupt> {
        let xdma = &self.info.xdma;
        let source = usize::from(xdma.h2c_channels) + usize::from(xdma.c2h_channels) + usize::from(line);
        let interrupts = lock(&self.interrupts);
        if line < MAX_USER_INTERRUPTS { interrupts.get(source).cloned() } else { None }
    }

    fn user_lines(&self) -> MutexGuard<'_, [UserInterruptOwners; MAX_USER_INTERRUPTS as usize]> {
        lock(&self.user_lines)
    }

    /// Claims user interrupt `line` for a part of the driver. `None` if there is no such line or the program holds it.
    pub(crate) fn claim_line(self: &Arc<Self>, line: u8) -> Option<UserInterruptClaim> {
        let mut lines = self.user_lines();
        let owners = lines.get_mut(usize::from(line))?;
        *owners = match *owners {
            UserInterruptOwners::None => UserInterruptOwners::Driver(1),
            UserInterruptOwners::Driver(count) => UserInterruptOwners::Driver(count.checked_add(1)?),
            UserInterruptOwners::User => return None,
        };
        Some(UserInterruptClaim { line, card: Arc::clone(self) })
    }

    /// Claims user interrupt `line` exclusively for the program.
    pub(crate) fn claim_user_line(self: &Arc<Self>, line: u8) -> Result<UserInterruptClaim, ResourceError> {
        self.check_owned()?;
        let mut lines = self.user_lines();
        let Some(owners) = lines.get_mut(usize::from(line)) else {
            let available = MAX_USER_INTERRUPTS;
            return Err(ResourceError::NoSuchUserInterrupt { line, available });
        };
        let by = match *owners {
            UserInterruptOwners::None => {
                *owners = UserInterruptOwners::User;
                return Ok(UserInterruptClaim { line, card: Arc::clone(self) });
            }
            UserInterruptOwners::Driver(_) => " (by the driver: a CDMA ring or an endpoint)",
            UserInterruptOwners::User => "",
        };
        Err(ResourceError::InUse { what: format!("user interrupt {line}{by}") })
    }

    /// Returns an error if a user interrupt has an owner.
    pub(crate) fn check_user_lines_free(&self) -> Result<(), ResourceError> {
        let taken = |owners: &UserInterruptOwners| !matches!(owners, UserInterruptOwners::None);
        match self.user_lines().iter().position(taken) {
            None => Ok(()),
            Some(line) => Err(ResourceError::InUse { what: format!("user interrupt {line}") }),
        }
    }

    /// Handles a wakeup on a level-triggered line by a source other than the caller's `channels` and `users`. The line stays high until the
    /// owner of that source serves it, and would wake the caller continuously. So the sources that assert it are masked at the card, and
    /// their owners are notified to poll. An owner unmasks its source when it waits again.
    pub(crate) fn rearm_shared_line(
        &self,
        interrupt: &Interrupt,
        channels: ChannelMask,
        users: UserMask,
    ) -> Result<(), MmioError> {
        let others =
            IrqBlock::CHANNEL_REQUEST.read(&self.dma_bar, IRQ_BASE)?.into_bits() & !channels.into_bits();
        let other_users =
            IrqBlock::USER_REQUEST.read(&self.dma_bar, IRQ_BASE)?.into_bits() & !users.into_bits();
        if others != 0 {
            IrqBlock::CHANNEL_ENABLE_CLEAR.write(&self.dma_bar, IRQ_BASE, ChannelMask::from_bits(others))?;
        }
        if other_users != 0 {
            IrqBlock::USER_ENABLE_CLEAR.write(&self.dma_bar, IRQ_BASE, UserMask::from_bits(other_users))?;
        }
        if others | other_users != 0 {
            // After the writes: an owner that has just unmasked its source polls again and unmasks it once more.
            interrupt.notify_shared();
        }
        Ok(())
    }

    /// Returns an error in another process than the one that has opened the card.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<(), MmioError> {
        Ok(self.process.check()?)
    }

    /// Returns an error if the card was opened for inspection only, or by another process.
    pub(crate) fn check_owned(&self) -> Result<(), ResourceError> {
        self.check_process()?;
        if self.observed { Err(ResourceError::Observed) } else { Ok(()) }
    }

    fn take(&self, bit: u32, what: impl FnOnce() -> String) -> Result<(), ResourceError> {
        self.check_owned()?;
        if self.taken.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            return Ok(());
        }
        Err(ResourceError::InUse { what: what() })
    }

    pub(crate) fn claim_channel(self: &Arc<Self>, name: ChannelName) -> Result<ChannelClaim, ResourceError> {
        self.take(taken_bit(name), || format!("channel {name}"))?;
        Ok(ChannelClaim { name, card: Arc::clone(self), is_claimed_stream: false })
    }

    /// Records that the owner of a channel was informed that the channel does not stop or that the card is gone.
    pub(crate) fn report(&self, name: ChannelName) {
        self.reported.fetch_or(taken_bit(name), Ordering::Relaxed);
    }

    pub(crate) fn take_cdma(&self) -> Result<(), ResourceError> {
        self.take(CDMA_TAKEN, || "the CDMA engine".to_owned())
    }

    pub(crate) fn release_cdma(&self) {
        self.taken.fetch_and(!CDMA_TAKEN, Ordering::AcqRel);
    }

    pub(crate) fn take_endpoint(&self) -> Result<(), ResourceError> {
        self.take(ENDPOINT_TAKEN, || "the endpoint".to_owned())
    }

    pub(crate) fn release_endpoint(&self) {
        self.taken.fetch_and(!ENDPOINT_TAKEN, Ordering::AcqRel);
    }

    fn channels(&self) -> impl Iterator<Item = ChannelName> + use<> {
        self.info.xdma.channels()
    }
}

impl Drop for Shared {
    /// Stops the engines, confirms that they are idle, and disables bus mastering. Only then does the pool unmap memory.
    fn drop(&mut self) {
        if !self.process.is_current() {
            // The parent's card: the backend is leaked, and does not access the device.
            core::mem::forget(Arc::clone(&self.backend));
            return;
        }
        if self.observed {
            return;
        }
        let mut is_gone = false;
        for name in self.channels() {
            let reported = self.reported.load(Ordering::Relaxed);
            // An engine that has not stopped in time is not waited for again.
            let limit = match reported & taken_bit(name) {
                0 => self.idle_timeout,
                _ => self.idle_timeout.min(2 * FlushGuard::FLUSH_DELAY_NS),
            };
            if let Err(error) = quiesce(&self.dma_bar, &*self.backend, name, limit) {
                let gone = match &error {
                    OpenError::Gone => true,
                    OpenError::Cause(cause) => cause.class() == CauseClass::Gone,
                    _ => false,
                };
                let error = Error::new(error, self.place());
                // Warn about each fact once: all channels of a removed card report the same.
                if reported & taken_bit(name) != 0 || (gone && (reported != 0 || is_gone)) {
                    tracing::warn!(target: FAULT_LOG, %error, "closing the card");
                } else {
                    tracing::warn!(%error, "closing the card");
                }
                if gone {
                    self.report(name);
                }
                is_gone |= gone;
            }
        }
        let _ = IrqBlock::CHANNEL_ENABLE.write(&self.dma_bar, IRQ_BASE, ChannelMask::from_bits(0));
        let _ = IrqBlock::USER_ENABLE.write(&self.dma_bar, IRQ_BASE, UserMask::from_bits(0));
        let _ = self.backend.disable_interrupts();
        // Otherwise reported above.
        if let Err(error) = self.backend.set_bus_master(false)
            && !is_gone
        {
            tracing::warn!(card = %self.name, %error, "switching bus mastering off");
        }
    }
}

/// Write flush timeout, enabled while a C2H stream channel is being stopped. An engine in the middle of a packet that does not continue
/// then closes its descriptor and stops (PG195, "Config Write Flush Timeout"). An engine that has received nothing may not stop: PG195
/// mentions only data already received. The register applies to the whole card, so descriptors of other channels may be closed early too.
#[derive(Debug)]
pub(crate) struct FlushGuard {
    before: WriteFlushTimeout,
}

impl FlushGuard {
    /// Time that an engine gets to stop by itself first, in nanoseconds.
    pub(crate) const FLUSH_DELAY_NS: u64 = 1_000_000;
    /// log2 of 1024 clock cycles: some microseconds, longer than any pause within a packet that is being received.
    const EXPONENT: u8 = 10;

    pub(crate) fn begin(bar: &Bar) -> Result<Self, MmioError> {
        let before = ConfigBlock::WRITE_FLUSH_TIMEOUT.read(bar, CONFIG_BASE)?;
        let on = WriteFlushTimeout::new().with_exponent(Self::EXPONENT);
        ConfigBlock::WRITE_FLUSH_TIMEOUT.write(bar, CONFIG_BASE, on)?;
        Ok(Self { before })
    }

    pub(crate) fn end(self, bar: &Bar) {
        // If this write fails, the card is gone, which the next access reports.
        let _ = ConfigBlock::WRITE_FLUSH_TIMEOUT.write(bar, CONFIG_BASE, self.before);
    }
}

/// Returns the maximum time until an engine is idle, in nanoseconds.
pub(crate) fn idle_timeout(options: &OpenOptions) -> u64 {
    u64::try_from(options.idle_timeout.as_nanos()).unwrap_or(u64::MAX).min(IDLE_TIMEOUT_NS)
}

/// Mark of a C2H stream that was stopped inside a packet: its next bytes continue the packet. It is kept in the channel's write-back
/// address, which has no other use while the channel is idle, and is lost in a reset of the card, as the stream is. No host memory has this
/// address, because it is not canonical.
const PACKET_MARK: Iova = Iova::new(0x4D69_6450_6163_6B00);

/// Returns whether a C2H stream has the mark of an unfinished packet.
pub(crate) fn has_packet_mark(bar: &Bar, base: BarOffset) -> Result<bool, MmioError> {
    let (low, high) = PACKET_MARK.to_low_high();
    Ok(ChannelBlock::POLL_ADDRESS_HIGH.read(bar, base)? == high
        && ChannelBlock::POLL_ADDRESS_LOW.read(bar, base)? == low)
}

/// Marks a stopped C2H stream.
pub(crate) fn set_packet_mark(bar: &Bar, base: BarOffset) -> Result<(), MmioError> {
    let (low, high) = PACKET_MARK.to_low_high();
    ChannelBlock::POLL_ADDRESS_LOW.write(bar, base, low)?;
    ChannelBlock::POLL_ADDRESS_HIGH.write(bar, base, high)
}

/// Stops a channel and waits until it is idle: the previous owner may have been killed in the middle of a run.
pub(crate) fn quiesce(
    bar: &Bar,
    backend: &dyn Backend,
    channel: ChannelName,
    limit: u64,
) -> Result<(), OpenError> {
    let base = channel_base(channel.direction, channel.number);
    // The owner of a C2H stream that still runs may have received a part of a packet.
    let receives = matches!(channel.direction, Direction::C2h)
        && ChannelBlock::STATUS.read(bar, base)?.busy()
        && ChannelBlock::IDENTIFIER.read(bar, base)?.stream();
    ChannelBlock::CONTROL.write(bar, base, ChannelControl::new())?;
    let mut flush = None;
    let stopped = poll_until(backend, limit, |waited| {
        let status = ChannelBlock::STATUS.read(bar, base)?;
        if status.into_bits() == u32::MAX {
            return Err(OpenError::Gone);
        }
        if !status.busy() {
            return Ok(Some(()));
        }
        if waited >= FlushGuard::FLUSH_DELAY_NS && flush.is_none() && receives {
            flush = Some(FlushGuard::begin(bar)?);
        }
        Ok(None)
    });
    if let Some(flush) = flush {
        flush.end(bar);
    }
    stopped?.map_err(|waited| OpenError::NotIdle { channel, waited: Waited::new(backend, waited) })?;
    if receives {
        set_packet_mark(bar, base)?;
    }
    Ok(())
}

/// DMA access to host memory that transfers of a direction need.
pub(crate) const fn needed_access(direction: Direction) -> DmaAccess {
    match direction {
        Direction::C2h => DmaAccess::WriteByDevice,
        _ => DmaAccess::ReadByDevice,
    }
}
