//! What all handles of one card share, and how it is put to rest.

use core::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpga_pci::{Backend, Bar, DmaPool, FAULT_LOG, Interrupt, MmioError};
use fpga_registers::xdma::{
    CONFIG_BASE, ChannelBlock, ChannelControl, ChannelMask, ConfigBlock, Direction, IRQ_BASE, IrqBlock,
    MAX_USER_INTERRUPTS, UserMask, WriteFlushTimeout, channel_base,
};

use crate::error::{OpenError, ResourceError};
use crate::info::CardInfo;
use crate::name::CardName;
use crate::name::ChannelName;
use crate::ni::NiInfo;
use crate::options::OpenOptions;
use crate::range::CardRange;
use crate::wait::{IDLE_TIMEOUT_NS, poll_until};

/// What all handles of one card share. Dropped when the last of them is: channels first, then this.
pub(crate) struct Shared {
    pub(crate) name: CardName,
    pub(crate) pool: DmaPool,
    pub(crate) dma_bar: Bar,
    pub(crate) user_bar: Option<Bar>,
    pub(crate) info: CardInfo,
    /// One per channel, then one per user interrupt; empty until enabled.
    pub(crate) interrupts: Mutex<Vec<Interrupt>>,
    /// Owners of the user interrupts' lines.
    user_lines: Mutex<[UserInterruptOwners; MAX_USER_INTERRUPTS as usize]>,
    /// How many vectors are behind them.
    pub(crate) vectors: AtomicU32,
    ranges: Option<Vec<CardRange>>,
    /// Taken channels: H2C in bits 3:0, C2H in bits 7:4; bit 8 the CDMA, bit 9 the endpoint.
    taken: AtomicU32,
    /// Channels, as in `taken`, whose failure to stop an error of theirs has told.
    reported: AtomicU32,
    /// The write flush timeout was on at some time: C2H stream descriptors may be closed early.
    pub(crate) flush: AtomicBool,
    /// Opened for a look: nothing of it is ours to take, stop or set.
    observed: bool,
    idle_timeout: u64,
    pub(crate) transport: Arc<dyn Backend>,
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
        f.debug_struct("Card").field("name", &self.name).field("info", &self.info).finish_non_exhaustive()
    }
}

/// Owners of one line of `usr_irq_req`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum UserInterruptOwners {
    #[default]
    None,
    /// Parts of the driver (a CDMA ring, an endpoint): so many. They look at their own cause whenever the line is up, so they share.
    Driver(u8),
    /// A [`UserInterrupt`](crate::UserInterrupt).
    User,
}

/// The right to use one user interrupt; given back when dropped.
#[derive(Debug)]
pub(crate) struct UserInterruptClaim {
    pub(crate) line: u8,
    pub(crate) card: Arc<Shared>,
}

impl UserInterruptClaim {
    /// The line's bit in the interrupt block.
    pub(crate) const fn mask(&self) -> UserMask {
        UserMask::from_bits(1 << (self.line % MAX_USER_INTERRUPTS))
    }
}

impl Drop for UserInterruptClaim {
    fn drop(&mut self) {
        let mut owners = self.card.user_lines();
        if let Some(owners) = owners.get_mut(usize::from(self.line)) {
            *owners = match *owners {
                UserInterruptOwners::Driver(count @ 2..) => UserInterruptOwners::Driver(count - 1),
                _ => UserInterruptOwners::None,
            };
        }
    }
}

/// The right to use one channel; given back when dropped.
#[derive(Debug)]
pub(crate) struct ChannelClaim {
    pub(crate) name: ChannelName,
    card: Arc<Shared>,
}

impl Drop for ChannelClaim {
    fn drop(&mut self) {
        self.card.taken.fetch_and(!taken_bit(self.name), Ordering::AcqRel);
    }
}

impl Shared {
    pub(crate) fn new(
        transport: Arc<dyn Backend>,
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
            transport,
        })
    }

    /// How long an engine may take to come to rest, in nanoseconds.
    pub(crate) const fn idle_timeout(&self) -> u64 {
        self.idle_timeout
    }

    /// The card addresses that DMA can reach, where they are known.
    pub(crate) fn reachable(&self) -> Option<&[CardRange]> {
        self.ranges.as_deref()
    }

    /// User interrupt `line`, if interrupts are enabled: they follow the channels'.
    pub(crate) fn user_interrupt(&self, line: u8) -> Option<Interrupt> {
        let xdma = &self.info.xdma;
        let source = usize::from(xdma.h2c_channels) + usize::from(xdma.c2h_channels) + usize::from(line);
        let interrupts = self.interrupts.lock().unwrap_or_else(PoisonError::into_inner);
        if line < MAX_USER_INTERRUPTS { interrupts.get(source).cloned() } else { None }
    }

    fn user_lines(&self) -> MutexGuard<'_, [UserInterruptOwners; MAX_USER_INTERRUPTS as usize]> {
        self.user_lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims user interrupt `line` for a part of the driver. `None`: there is no such line, or a program has it.
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

    /// Claims user interrupt `line` for a program, which gets it for itself.
    pub(crate) fn claim_user_line(self: &Arc<Self>, line: u8) -> Result<UserInterruptClaim, ResourceError> {
        self.check_owned()?;
        let mut lines = self.user_lines();
        let Some(owners) = lines.get_mut(usize::from(line)) else {
            let available = MAX_USER_INTERRUPTS;
            return Err(ResourceError::NoSuchUserInterrupt { card: self.name.clone(), line, available });
        };
        let by = match *owners {
            UserInterruptOwners::None => {
                *owners = UserInterruptOwners::User;
                return Ok(UserInterruptClaim { line, card: Arc::clone(self) });
            }
            UserInterruptOwners::Driver(_) => " (by the driver: a CDMA ring or an endpoint)",
            UserInterruptOwners::User => "",
        };
        Err(ResourceError::InUse { card: self.name.clone(), what: format!("user interrupt {line}{by}") })
    }

    /// Somebody on a level-triggered line was woken by what is not `channels` or `users`, which it serves. The line stays high until
    /// its source is served, by an owner who may take his time, and would wake without end: what asserts it is masked at the card, and
    /// its owners are told to look. They unmask it when they wait again.
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
            // After the writes: whoever has just unmasked his own looks again and does so once more.
            interrupt.notify_shared();
        }
        Ok(())
    }

    /// An error if the card was opened for a look.
    pub(crate) fn check_owned(&self) -> Result<(), ResourceError> {
        if self.observed { Err(ResourceError::Observed { card: self.name.clone() }) } else { Ok(()) }
    }

    fn take(&self, bit: u32, what: impl FnOnce() -> String) -> Result<(), ResourceError> {
        self.check_owned()?;
        if self.taken.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            return Ok(());
        }
        Err(ResourceError::InUse { card: self.name.clone(), what: what() })
    }

    pub(crate) fn claim_channel(self: &Arc<Self>, name: ChannelName) -> Result<ChannelClaim, ResourceError> {
        self.take(taken_bit(name), || format!("channel {name}"))?;
        Ok(ChannelClaim { name, card: Arc::clone(self) })
    }

    /// The owner of a channel has been told that it does not stop, or that the card is gone.
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
    /// Stop, confirm idle, take the right to do DMA away, and only then let the pool unmap memory.
    fn drop(&mut self) {
        if self.observed {
            return;
        }
        for name in self.channels() {
            if let Err(error) = quiesce(&self.dma_bar, &*self.transport, &self.name, name, self.idle_timeout)
            {
                let reported = self.reported.load(Ordering::Relaxed);
                let gone = matches!(error, OpenError::Gone { .. });
                // Each fact once: of a card that is gone, all channels say the same.
                if reported & taken_bit(name) != 0 || (gone && reported != 0) {
                    tracing::warn!(target: FAULT_LOG, card = %self.name, %error, "closing the card");
                } else {
                    tracing::warn!(card = %self.name, %error, "closing the card");
                }
                if gone {
                    self.report(name);
                }
            }
        }
        let _ = IrqBlock::CHANNEL_ENABLE.write(&self.dma_bar, IRQ_BASE, ChannelMask::from_bits(0));
        let _ = IrqBlock::USER_ENABLE.write(&self.dma_bar, IRQ_BASE, UserMask::from_bits(0));
        let _ = self.transport.disable_interrupts();
        if let Err(error) = self.transport.set_bus_master(false) {
            tracing::warn!(card = %self.name, %error, "switching bus mastering off");
        }
    }
}

/// The write flush timeout, on for as long as a C2H stream channel is being stopped: an engine in the middle of a packet that does
/// not go on closes its descriptor then, and stops (PG195, "Config Write Flush Timeout"). One that has received nothing need not:
/// the guide speaks of data already received. The register is the card's: other channels' descriptors may be closed early too.
#[derive(Debug)]
pub(crate) struct FlushGuard {
    before: WriteFlushTimeout,
}

impl FlushGuard {
    /// How long an engine gets to stop by itself first.
    pub(crate) const FLUSH_DELAY_NS: u64 = 1_000_000;
    /// 1024 clocks: some microseconds, longer than any pause within a packet on its way.
    const EXPONENT: u8 = 10;

    pub(crate) fn begin(bar: &Bar) -> Result<Self, MmioError> {
        let before = ConfigBlock::WRITE_FLUSH_TIMEOUT.read(bar, CONFIG_BASE)?;
        let on = WriteFlushTimeout::new().with_exponent(Self::EXPONENT);
        ConfigBlock::WRITE_FLUSH_TIMEOUT.write(bar, CONFIG_BASE, on)?;
        Ok(Self { before })
    }

    pub(crate) fn end(self, bar: &Bar) {
        // Should it fail, the card is gone, which the next access tells.
        let _ = ConfigBlock::WRITE_FLUSH_TIMEOUT.write(bar, CONFIG_BASE, self.before);
    }
}

/// How long an engine may take to come to rest, in nanoseconds.
pub(crate) fn idle_timeout(options: &OpenOptions) -> u64 {
    u64::try_from(options.idle_timeout.as_nanos()).unwrap_or(u64::MAX).min(IDLE_TIMEOUT_NS)
}

/// Stops a channel and waits until it is idle: whoever had the card before may have been killed in the middle of a run.
pub(crate) fn quiesce(
    bar: &Bar,
    transport: &dyn Backend,
    card: &str,
    channel: ChannelName,
    limit: u64,
) -> Result<(), OpenError> {
    let base = channel_base(channel.direction, channel.number);
    let error = |source| OpenError::Mmio { card: card.to_owned(), source };
    ChannelBlock::CONTROL.write(bar, base, ChannelControl::new()).map_err(error)?;
    let mut flush = None;
    let stopped = poll_until(transport, limit, |waited| {
        let status = ChannelBlock::STATUS.read(bar, base).map_err(error)?;
        if status.into_bits() == u32::MAX {
            return Err(OpenError::Gone { card: card.to_owned() });
        }
        if !status.busy() {
            return Ok(Some(()));
        }
        if waited >= FlushGuard::FLUSH_DELAY_NS
            && flush.is_none()
            && matches!(channel.direction, Direction::C2h)
            && ChannelBlock::IDENTIFIER.read(bar, base).map_err(error)?.stream()
        {
            flush = Some(FlushGuard::begin(bar).map_err(error)?);
        }
        Ok(None)
    });
    if let Some(flush) = flush {
        flush.end(bar);
    }
    stopped?.map_err(|waited| OpenError::NotIdle {
        card: card.to_owned(),
        channel,
        waited_ms: waited / 1_000_000,
    })
}
