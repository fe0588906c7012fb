//! Recovery of a card that does not work: a sequence of recovery steps.
//!
//! | Level | Action | Afterwards |
//! |---|---|---|
//! | [`Channel`](RecoveryLevel::Channel) | every channel: clear Run, wait until idle, clear status, interrupt mask, fetch halt and credit mode; soft-reset the CDMA; stop the network interface's events and transmission; restore interrupt masks | handles stay valid |
//! | [`Function`](RecoveryLevel::Function) | function-level reset (PCIe Base 6.6.2). Public XDMA cards do not report it (`FLReset-`): *unsupported* is the normal result | every handle is stale: open the card again |
//! | [`Bus`](RecoveryLevel::Bus) | hot reset of the link: every function below the port | every handle is stale: open the card again |
//!
//! Recovery starts with the mildest level and escalates only as needed. It ends as soon as the card answers (the identifiers of its
//! interrupt and configuration blocks read back) and nothing on it is busy, unless the caller requests [at
//! least](RecoveryOptions::at_least) a level. The report shows what every step found and did.
//!
//! # Channels in use
//!
//! [`Card::recover`] refuses with [`RecoveryError::InUse`] while the process holds a channel, the CDMA engine or the endpoint: drop the
//! handle (also of a wedged channel), then recover. With [`force`](RecoveryOptions::force) it proceeds. On a channel of another owner the
//! first level then only clears Run and waits: status and masks belong to the owner, which finds its transfers ended. The resets make the
//! owner's handles stale.
//!
//! # Cards that cannot be opened
//!
//! [`Card::open`] refuses a card on which an earlier owner left an engine that does not stop. [`recover`] needs only the backend, and does
//! not enable bus mastering.
//!
//! The user BAR is accessed only on cards with this project's identity block.

mod outcome;
mod sequence;

use core::time::Duration;
use std::sync::Arc;

use fpga_pci::{Backend, MmioError, ResetLevel, lock};
use fpga_registers::xdma::{CONFIG_BASE, ConfigBlock, IRQ_BASE, IrqBlock};

use crate::card::Card;
use crate::discover;
use crate::error::{At as _, CardPart, Error, ErrorPlace, OpenError};
use crate::identify::{network_interface, read_ids};
use crate::info::{CardInfo, XdmaInfo, cdma_of};
use crate::name::ChannelName;
use crate::options::OpenOptions;

pub(crate) use outcome::RecoveryStepError;
pub use outcome::{RecoveryError, RecoveryReport, RecoveryStep, RecoveryStepOutcome, RecoveryStepReport};

use sequence::{Claims, RecoverySequence, RegisterState};

/// Recovery level, mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RecoveryLevel {
    /// Stop the engines by their registers.
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

/// Limits of a recovery, and permission to disturb other owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryOptions {
    /// Maximum level. Default: [`RecoveryLevel::Channel`].
    pub max_level: RecoveryLevel,
    /// Minimum level, executed even if the card is healthy before. Default: [`RecoveryLevel::Channel`]. If the card does not support a
    /// reset at this level, the next level replaces it, if [`max_level`](Self::max_level) permits that.
    pub at_least: RecoveryLevel,
    /// Recover only this channel. The recovery then ends with the first level.
    pub channel: Option<ChannelName>,
    /// Proceed even if the process uses the parts that are to be stopped. Default: false.
    pub force: bool,
    /// Maximum time for one engine to become idle. Default 2 s: the longest descriptor (256 MiB) takes 1.1 s on the slowest link, and an
    /// AXI slave that does not answer holds the engine forever.
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
    /// Sets the maximum level.
    #[must_use]
    pub const fn with_max_level(mut self, level: RecoveryLevel) -> Self {
        self.max_level = level;
        self
    }

    /// Sets the minimum level. The maximum level stays the same or is raised to it; if [`max_level`](Self::max_level) is higher, a reset
    /// that the card does not support is replaced by the next stronger one. [`RecoveryReport::reopen`] shows whether the card was reset.
    #[must_use]
    pub fn at_least(mut self, level: RecoveryLevel) -> Self {
        self.at_least = level;
        self.max_level = self.max_level.max(level);
        self
    }
}

fpga_registers::setters! {
    impl RecoveryOptions {
        /// Restricts the recovery to this channel.
        channel: ChannelName => Some;
        /// Sets whether to proceed although parts of the card are in use.
        force: bool;
        /// Sets the maximum time for one engine to become idle.
        limit: Duration;
    }
}

impl Card {
    /// Recovers the card up to `level`, no further than needed; see the [module](self).
    ///
    /// # Errors
    /// See [`RecoveryError`]. A failed step is not an error: the report shows it, and whether the card is healthy at the end.
    pub fn recover(&self, level: RecoveryLevel) -> Result<RecoveryReport, Error<RecoveryError>> {
        self.recover_with(&RecoveryOptions::default().with_max_level(level))
    }

    /// Recovers the card with `options`.
    ///
    /// # Errors
    /// As [`recover`](Self::recover).
    pub fn recover_with(&self, options: &RecoveryOptions) -> Result<RecoveryReport, Error<RecoveryError>> {
        self.run_recovery(options).at(|| self.shared.place())
    }

    fn run_recovery(&self, options: &RecoveryOptions) -> Result<RecoveryReport, RecoveryError> {
        let shared = &self.shared;
        if shared.check_owned().is_err() {
            return Err(RecoveryError::Observed);
        }
        let claims = Claims::take(shared, options)?;
        let registers = match answers(&shared.dma_bar)? {
            true => RegisterState::Responding { dma: shared.dma_bar.clone(), user: shared.user_bar.clone() },
            false => RegisterState::AllOnes,
        };
        let interrupts = lock(&shared.interrupts).len();
        let sequence = RecoverySequence {
            backend: &*shared.backend,
            name: &shared.name,
            dma_index: shared.info.roles.dma.index,
            info: Some(&shared.info),
            interrupts,
            claims: &claims,
            options,
        };
        sequence.escalate(registers)
    }
}

/// Recovers a card that is not open: for engines that an earlier owner left running, and for cards that [`Card::open`] refuses. `open`
/// gives the BAR roles, as for opening. Bus mastering is not enabled.
///
/// Not for a backend on which a [`Card`] is open: the resources that it holds are not known here.
///
/// # Errors
/// See [`RecoveryError`].
pub fn recover(
    backend: &Arc<dyn Backend>,
    open: &OpenOptions,
    options: &RecoveryOptions,
) -> Result<RecoveryReport, Error<RecoveryError>> {
    let place = || ErrorPlace::new(backend.name().into(), CardPart::Card);
    recover_unopened(&**backend, open, options).at(place)
}

fn recover_unopened(
    backend: &dyn Backend,
    open: &OpenOptions,
    options: &RecoveryOptions,
) -> Result<RecoveryReport, RecoveryError> {
    let name = backend.name().to_owned();
    let ids = match read_ids(backend) {
        Err(OpenError::Gone) => return Err(RecoveryError::Gone),
        other => other?,
    };
    let roles = discover::roles(backend, open.dma_bar)?;
    let open_bar = |index| backend.open_bar(index).map_err(OpenError::from);
    let dma = open_bar(roles.dma.index)?;
    let mut info = None;
    let mut registers = RegisterState::AllOnes;
    if answers(&dma)? {
        discover::confirm(roles.dma.index, &dma)?;
        let xdma = XdmaInfo::read(&dma).map_err(access)?;
        let user = roles.user.map(|bar| open_bar(bar.index)).transpose()?;
        // An NI whose identity cannot be confirmed must not be written to.
        let (identity, ni) =
            network_interface(open, ids.subsystem, &roles, user.as_ref()).unwrap_or_default();
        let cdma = cdma_of(identity.as_ref(), open);
        info = Some(CardInfo { name: name.clone(), ids, roles, xdma, identity, cdma, ni });
        registers = RegisterState::Responding { dma, user };
    }
    if let (Some(channel), Some(info)) = (options.channel, &info) {
        check_channel(info, channel)?;
    }
    let claims = Claims::none();
    let sequence = RecoverySequence {
        backend,
        name: &name,
        dma_index: roles.dma.index,
        info: info.as_ref(),
        interrupts: 0,
        claims: &claims,
        options,
    };
    sequence.escalate(registers)
}

fn check_channel(info: &CardInfo, channel: ChannelName) -> Result<(), RecoveryError> {
    let available = info.xdma.count(channel.direction);
    if channel.number < available {
        return Ok(());
    }
    Err(RecoveryError::NoSuchChannel { channel, available })
}

/// Returns whether the registers answer. An error means that configuration space does not answer either, or that the handle is stale.
fn answers(dma: &fpga_pci::Bar) -> Result<bool, RecoveryError> {
    let read = || -> Result<[u32; 2], MmioError> {
        Ok([
            IrqBlock::IDENTIFIER.read(dma, IRQ_BASE)?.into_bits(),
            ConfigBlock::IDENTIFIER.read(dma, CONFIG_BASE)?.into_bits(),
        ])
    };
    read().map(|words| words != [u32::MAX; 2]).map_err(access)
}

fn access(source: MmioError) -> RecoveryError {
    match source {
        MmioError::Gone { .. } => RecoveryError::Gone,
        MmioError::Stale { .. } => RecoveryError::Stale,
        source => source.into(),
    }
}

/// Returns the backend's reset of a level.
const fn reset_level(level: RecoveryLevel) -> ResetLevel {
    match level {
        RecoveryLevel::Bus => ResetLevel::Hot,
        _ => ResetLevel::Function,
    }
}
