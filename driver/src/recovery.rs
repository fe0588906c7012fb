//! Getting a card back that does not do what it should: the recovery ladder.
//!
//! | Rung | What it does | Afterwards |
//! |---|---|---|
//! | [`Channel`](RecoveryLevel::Channel) | every channel: Run cleared, idle awaited, status, interrupt mask, fetch halt and credit mode cleared; the CDMA soft-reset; the network interface silenced; interrupt masks put back | handles stay good |
//! | [`Function`](RecoveryLevel::Function) | function-level reset (PCIe Base 6.6.2). Public XDMA cards report none (`FLReset-`): *unsupported* is the normal answer | every handle is stale: open the card again |
//! | [`Bus`](RecoveryLevel::Bus) | hot reset of the link: every function below the port | every handle is stale: open the card again |
//!
//! The ladder is climbed from the mildest rung on and no further than needed: it ends as soon as the card answers (the
//! identifiers of its interrupt and configuration blocks read back) and nothing on it is busy, unless the caller wants
//! [at least](RecoveryOptions::at_least) a level. The report says what every rung found and did.
//!
//! # Whose channels
//!
//! [`Card::recover`] refuses with [`RecoveryError::InUse`] while somebody in this process holds a channel, the CDMA engine or the
//! endpoint: drop the handle (a wedged one too), then recover. With [`force`](RecoveryOptions::force) it goes ahead. On a channel
//! of somebody else's the first rung then does no more than clear Run and wait: status and masks are its owner's, who finds its
//! transfers ended. The resets make its handles stale.
//!
//! # Cards that cannot be opened
//!
//! [`Card::open`] refuses a card on which an earlier owner left an engine that does not stop. [`recover`] works on the
//! transport alone, without giving the card the right to do DMA.
//!
//! The user BAR is touched on cards that carry our identity block, and never on others.

mod outcome;
mod sequence;

use core::time::Duration;
use std::sync::Arc;

use fpga_pci::{Backend, MmioError, ResetLevel};
use fpga_registers::xdma::{CONFIG_BASE, ConfigBlock, IRQ_BASE, IrqBlock};

use crate::card::Card;
use crate::discover;
use crate::error::OpenError;
use crate::identify::{network_interface, read_ids};
use crate::info::{CardInfo, XdmaInfo, cdma_of};
use crate::name::ChannelName;
use crate::options::OpenOptions;

pub use outcome::{
    RecoveryError, RecoveryReport, RecoveryStep, RecoveryStepError, RecoveryStepOutcome, RecoveryStepReport,
};

use sequence::{Claims, RecoverySequence, RegisterState};

/// A level of the recovery ladder, mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RecoveryLevel {
    /// Engines are stopped by their registers.
    Channel,
    /// Function-level reset.
    Function,
    /// Hot reset of the bus.
    Bus,
}

impl core::fmt::Display for RecoveryLevel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Self::Channel => "channel",
            Self::Function => "function",
            Self::Bus => "bus",
        })
    }
}

/// How far to climb, and what may be disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryOptions {
    /// The last rung to try. Default: [`RecoveryLevel::Channel`].
    pub max_level: RecoveryLevel,
    /// Do not stop below this rung, even if the card is well before. Default: [`RecoveryLevel::Channel`]. Where the card cannot be
    /// reset at this level, the next one has to do it, if [`max_level`](Self::max_level) allows it.
    pub at_least: RecoveryLevel,
    /// Only this channel, and nothing else of the card. The ladder ends with the first rung then.
    pub channel: Option<ChannelName>,
    /// Go ahead although somebody in this process uses what is to be stopped. Default: no.
    pub force: bool,
    /// How long one engine may take to become idle. Default 2 s: the longest descriptor (256 MiB) takes 1.1 s on the slowest
    /// link, and a wedged AXI slave never lets go.
    pub limit: Duration,
}

impl Default for RecoveryOptions {
    fn default() -> Self {
        Self {
            max_level: RecoveryLevel::Channel,
            at_least: RecoveryLevel::Channel,
            channel: None,
            force: false,
            limit: Duration::from_secs(2),
        }
    }
}

impl RecoveryOptions {
    /// Climbs to `level` at most.
    #[must_use]
    pub const fn with_max_level(mut self, level: RecoveryLevel) -> Self {
        self.max_level = level;
        self
    }

    /// Climbs to `level` in any case, and no further unless [`max_level`](Self::max_level) says so: then a reset that the card does not have
    /// is made up for by the next stronger one. [`RecoveryReport::reopen`] says whether the card was reset.
    #[must_use]
    pub fn at_least(mut self, level: RecoveryLevel) -> Self {
        self.at_least = level;
        self.max_level = self.max_level.max(level);
        self
    }

    /// Stops this channel alone.
    #[must_use]
    pub const fn channel(mut self, channel: ChannelName) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Goes ahead although parts of the card are in use.
    #[must_use]
    pub const fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Gives an engine so long to become idle.
    #[must_use]
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl Card {
    /// Climbs the recovery ladder up to `level`, no further than needed; see the [module](self).
    ///
    /// # Errors
    /// See [`RecoveryError`]. A rung that fails is no error: the report says so, and whether the card is well at the end.
    pub fn recover(&self, level: RecoveryLevel) -> Result<RecoveryReport, RecoveryError> {
        self.recover_with(&RecoveryOptions::default().with_max_level(level))
    }

    /// Climbs the recovery ladder as `options` say.
    ///
    /// # Errors
    /// As [`recover`](Self::recover).
    pub fn recover_with(&self, options: &RecoveryOptions) -> Result<RecoveryReport, RecoveryError> {
        let shared = &self.shared;
        if shared.check_owned().is_err() {
            return Err(RecoveryError::Observed { card: shared.name.to_string() });
        }
        let claims = Claims::take(shared, options)?;
        let registers = match answers(&shared.name, &shared.dma_bar)? {
            true => RegisterState::Responding { dma: shared.dma_bar.clone(), user: shared.user_bar.clone() },
            false => RegisterState::AllOnes,
        };
        let interrupts = shared.interrupts.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len();
        let ladder = RecoverySequence {
            transport: &*shared.transport,
            name: &shared.name,
            dma_index: shared.info.roles.dma.index,
            info: Some(&shared.info),
            interrupts,
            claims: &claims,
            options,
        };
        ladder.escalate(registers)
    }
}

/// Climbs the recovery ladder of a card that is not open: for what an earlier owner left behind, and for cards that
/// [`Card::open`] refuses. `open` says which BAR is which, as for opening. The card is not given the right to do DMA.
///
/// Not for a transport on which a [`Card`] is open: what that holds is not known here.
///
/// # Errors
/// See [`RecoveryError`].
pub fn recover(
    transport: &Arc<dyn Backend>,
    open: &OpenOptions,
    options: &RecoveryOptions,
) -> Result<RecoveryReport, RecoveryError> {
    let transport = &**transport;
    let name = transport.name().to_owned();
    let ids = match read_ids(transport, &name) {
        Err(OpenError::Gone { card }) => return Err(RecoveryError::gone(card)),
        other => other?,
    };
    let roles = discover::roles(transport, open.dma_bar)?;
    let open_bar =
        |index| transport.open_bar(index).map_err(|source| OpenError::Bar { card: name.clone(), source });
    let dma = open_bar(roles.dma.index)?;
    let mut info = None;
    let mut registers = RegisterState::AllOnes;
    if answers(&name, &dma)? {
        discover::confirm(&name, roles.dma.index, &dma)?;
        let xdma = XdmaInfo::read(&dma).map_err(|source| access(&name, source))?;
        let user = roles.user.map(|bar| open_bar(bar.index)).transpose()?;
        // An interface whose identity cannot be confirmed is not ours to write to.
        let (identity, ni) =
            network_interface(&name, open, ids.subsystem, &roles, user.as_ref()).unwrap_or_default();
        let cdma = cdma_of(identity.as_ref(), open);
        info = Some(CardInfo { name: name.clone(), ids, roles, xdma, identity, cdma, ni });
        registers = RegisterState::Responding { dma, user };
    }
    if let (Some(channel), Some(info)) = (options.channel, &info) {
        check_channel(&name, info, channel)?;
    }
    let claims = Claims::none();
    let ladder = RecoverySequence {
        transport,
        name: &name,
        dma_index: roles.dma.index,
        info: info.as_ref(),
        interrupts: 0,
        claims: &claims,
        options,
    };
    ladder.escalate(registers)
}

fn check_channel(card: &str, info: &CardInfo, channel: ChannelName) -> Result<(), RecoveryError> {
    let available = info.xdma.count(channel.direction);
    if channel.number < available {
        return Ok(());
    }
    Err(RecoveryError::NoSuchChannel { card: card.to_owned(), channel, available })
}

/// Whether the registers answer; an error if not even configuration space does, or if the handle is of no use.
fn answers(card: &str, dma: &fpga_pci::Bar) -> Result<bool, RecoveryError> {
    let read = || -> Result<[u32; 2], MmioError> {
        Ok([
            IrqBlock::IDENTIFIER.read(dma, IRQ_BASE)?.into_bits(),
            ConfigBlock::IDENTIFIER.read(dma, CONFIG_BASE)?.into_bits(),
        ])
    };
    read().map(|words| words != [u32::MAX; 2]).map_err(|source| access(card, source))
}

fn access(card: &str, source: MmioError) -> RecoveryError {
    match source {
        source if source.is_gone() => RecoveryError::gone(card.to_owned()),
        MmioError::Stale { .. } => RecoveryError::Stale { card: card.to_owned() },
        source => RecoveryError::Mmio { card: card.to_owned(), source },
    }
}

/// The transport's reset of a rung.
const fn reset_level(level: RecoveryLevel) -> ResetLevel {
    match level {
        RecoveryLevel::Bus => ResetLevel::Hot,
        _ => ResetLevel::Function,
    }
}
