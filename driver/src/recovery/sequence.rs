//! Execution of the recovery steps: stop the engines through their registers, then reset the function, then the bus.

use fpga_pci::Waited;
use std::sync::Arc;

use fpga_firmware::generated::{BlockType, ni};
use fpga_pci::{Backend, Bar, ResetError, config};
use fpga_registers::cdma::{CdmaBlock, Cdmacr};
use fpga_registers::quantity;
use fpga_registers::xdma::{
    CONFIG_BASE, ChannelBlock, ChannelControl, ChannelInterrupts, ChannelMask, ChannelStatus, ConfigBlock,
    Direction, IRQ_BASE, IrqBlock, PerChannel, SGDMA_COMMON_BASE, SgdmaCommonBlock, Target, UserMask,
    channel_base,
};

use super::{
    RecoveryError, RecoveryLevel, RecoveryOptions, RecoveryReport, RecoveryStep, RecoveryStepError,
    RecoveryStepOutcome, RecoveryStepReport, check_channel, reset_level,
};
use crate::extension::InterfaceClaim;
use crate::info::CardInfo;
use crate::name::ChannelName;
use crate::shared::{ChannelClaim, Shared, set_packet_mark};
use crate::wait::IDLE_TIMEOUT_NS;
use fpga_pci::poll_until;

/// Event bits of the status register: all bits except busy.
const EVENTS: u32 = 0x00FF_FFFE;

/// Resources that the recovery holds, so that no other owner takes them meanwhile, and resources that other owners in this process hold
/// (`foreign_*`).
#[derive(Default)]
pub(super) struct Claims {
    _channels: Vec<ChannelClaim>,
    _cdma: Option<CdmaClaim>,
    _endpoint: Option<InterfaceClaim>,
    foreign_channels: Vec<ChannelName>,
    foreign_cdma: bool,
    foreign_endpoint: bool,
}

struct CdmaClaim(Arc<Shared>);

impl Drop for CdmaClaim {
    fn drop(&mut self) {
        self.0.release_cdma();
    }
}

impl Claims {
    /// Returns no claims, for a card that is not open in this process.
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// Claims everything that the recovery accesses.
    ///
    /// # Errors
    /// [`RecoveryError::InUse`] if another owner holds a part of it, unless `options.force` is set.
    pub(super) fn take(shared: &Arc<Shared>, options: &RecoveryOptions) -> Result<Self, RecoveryError> {
        let mut claims = Self::default();
        if let Some(channel) = options.channel {
            check_channel(&shared.info, channel)?;
        }
        let mut used = Vec::new();
        for name in
            shared.info.xdma.channels().filter(|name| options.channel.is_none_or(|only| only == *name))
        {
            match shared.claim_channel(name) {
                Ok(claim) => claims._channels.push(claim),
                Err(_) => {
                    claims.foreign_channels.push(name);
                    used.push(name.to_string());
                }
            }
        }
        if options.channel.is_none() {
            match shared.take_cdma() {
                Ok(()) => claims._cdma = Some(CdmaClaim(Arc::clone(shared))),
                Err(_) => {
                    claims.foreign_cdma = true;
                    used.push("the CDMA engine".to_owned());
                }
            }
            match InterfaceClaim::take(shared) {
                Ok(claim) => claims._endpoint = Some(claim),
                Err(_) => {
                    claims.foreign_endpoint = true;
                    used.push("the endpoint".to_owned());
                }
            }
        }
        if used.is_empty() || options.force {
            return Ok(claims);
        }
        let verb = if used.len() == 1 { "is" } else { "are" };
        Err(RecoveryError::InUse { what: format!("{} {verb}", used.join(", ")) })
    }
}

/// Whether the card's registers answer.
pub(super) enum RegisterState {
    Responding { dma: Bar, user: Option<Bar> },
    AllOnes,
}

/// Card under recovery.
pub(super) struct RecoverySequence<'a> {
    pub(super) backend: &'a dyn Backend,
    pub(super) name: &'a str,
    pub(super) dma_index: u8,
    /// Properties of the card; unknown if the registers do not answer.
    pub(super) info: Option<&'a CardInfo>,
    /// Number of channel interrupts that this process has enabled.
    pub(super) interrupts: usize,
    pub(super) claims: &'a Claims,
    pub(super) options: &'a RecoveryOptions,
}

/// State found by one step of the first level (stopping by registers), and the step's outcome.
type StopResult = Result<(String, RecoveryStepOutcome), RecoveryStepError>;

impl RecoverySequence<'_> {
    pub(super) fn escalate(&self, registers: RegisterState) -> Result<RecoveryReport, RecoveryError> {
        let mut report =
            RecoveryReport { card: self.name.to_owned(), steps: Vec::new(), well: false, reopen: false };
        // Recovery of a single channel never resets the other channels.
        let max_level =
            if self.options.channel.is_some() { RecoveryLevel::Channel } else { self.options.max_level };
        match registers {
            RegisterState::Responding { dma, user } => {
                report.well = self.stop_engines(&dma, user.as_ref(), &mut report)
            }
            RegisterState::AllOnes if max_level == RecoveryLevel::Channel => {
                return Err(RecoveryError::AllOnes);
            }
            RegisterState::AllOnes => {
                let outcome = RecoveryStepOutcome::Failed { reason: RecoveryStepError::AllOnes.into() };
                let found = "every register reads as all ones".to_owned();
                report.steps.push(RecoveryStepReport {
                    step: RecoveryStep::Registers,
                    found,
                    outcome,
                    duration_ns: 0,
                });
            }
        }
        for (level, step) in
            [(RecoveryLevel::Function, RecoveryStep::Function), (RecoveryLevel::Bus, RecoveryStep::Bus)]
        {
            // No reset has been done although one was requested, because the level is unsupported: try a stronger one, if permitted.
            let is_missing = self.options.at_least > RecoveryLevel::Channel && !report.reopen;
            if level > max_level || (report.well && level > self.options.at_least && !is_missing) {
                break;
            }
            // The requested stronger reset follows and includes the effect of this one.
            if report.well && level < self.options.at_least {
                continue;
            }
            self.reset(level, step, &mut report);
        }
        Ok(report)
    }

    fn timed(
        &self,
        step: RecoveryStep,
        report: &mut RecoveryReport,
        work: impl FnOnce() -> StopResult,
    ) -> bool {
        let began = self.backend.now();
        let (found, outcome) = work().unwrap_or_else(|why| {
            let found = match &why {
                RecoveryStepError::NotIdle { status, .. } => format!("running ({status})"),
                _ => "does not answer".to_owned(),
            };
            (found, RecoveryStepOutcome::Failed { reason: why.into() })
        });
        tracing::info!(card = self.name, %step, %found, %outcome, "recovery");
        let duration_ns = self.backend.now().saturating_sub(began);
        let well = !matches!(outcome, RecoveryStepOutcome::Failed { .. });
        report.steps.push(RecoveryStepReport { step, found, outcome, duration_ns });
        well
    }

    /// Executes the first level: stops everything that registers can stop.
    fn stop_engines(&self, dma: &Bar, user: Option<&Bar>, report: &mut RecoveryReport) -> bool {
        let Some(info) = self.info else { return false };
        let mut healthy = true;
        let channels = info.xdma.channels();
        for name in channels.filter(|name| self.options.channel.is_none_or(|only| only == *name)) {
            healthy &= self.timed(RecoveryStep::Channel(name), report, || self.stop_channel(dma, name));
        }
        if self.options.channel.is_some() {
            return healthy;
        }
        if let (Some(ni), Some(user)) = (&info.ni, user) {
            healthy &=
                self.timed(RecoveryStep::NetworkInterface, report, || self.stop_events(info, ni, user));
        }
        if let (Some(at), Some(user)) = (info.cdma, user) {
            healthy &= self.timed(RecoveryStep::Cdma, report, || {
                let registers = user.slice(at, u64::from(CdmaBlock::SIZE))?;
                self.reset_cdma(&registers)
            });
        }
        healthy &= self.timed(RecoveryStep::Interrupts, report, || self.mask_interrupts(info, dma));
        healthy
    }

    fn stop_channel(&self, dma: &Bar, name: ChannelName) -> StopResult {
        let base = channel_base(name.direction, name.number);
        let foreign = self.claims.foreign_channels.contains(&name);
        let control = ChannelBlock::CONTROL.read(dma, base)?;
        let status = status(dma, name)?;
        let completed = ChannelBlock::COMPLETED.read(dma, base)?;
        let one = PerChannel::one(name.direction, name.number);
        let shared = |word: PerChannel| word.into_bits() & one.into_bits() != 0;
        let halted = shared(SgdmaCommonBlock::HALT.read(dma, SGDMA_COMMON_BASE)?);
        let credit_mode = shared(SgdmaCommonBlock::CREDIT_MODE.read(dma, SGDMA_COMMON_BASE)?);
        let found = describe(name, control, status, completed, credit_mode, halted);

        let quiet = !control.run() && !status.busy();
        if quiet && foreign {
            return Ok((found, RecoveryStepOutcome::NotNeeded));
        }
        // The write-1-to-clear alias clears only Run: the owner's other control bits stay set.
        ChannelBlock::CONTROL_CLEAR.write(dma, base, ChannelControl::from_bits(1))?;
        self.await_idle(dma, name)?;
        if foreign {
            return Ok((found, RecoveryStepOutcome::Recovered));
        }
        let receives = matches!(name.direction, Direction::C2h) && status.busy();
        if receives && ChannelBlock::IDENTIFIER.read(dma, base)?.stream() {
            // The previous owner may have received a part of a packet: the mark makes the next owner skip the rest.
            set_packet_mark(dma, base)?;
        }
        let mask = ChannelBlock::INTERRUPT_ENABLE.read(dma, base)?;
        // Status events of successful runs are cleared, too, but do not make the step "recovered".
        let untouched = !status.has_error(name.direction) && mask.into_bits() == 0;
        ChannelBlock::CONTROL.write(dma, base, ChannelControl::new())?;
        ChannelBlock::INTERRUPT_ENABLE.write(dma, base, ChannelInterrupts::new())?;
        ChannelBlock::STATUS.write(dma, base, ChannelStatus::from_bits(EVENTS))?;
        // A channel that waits for credits, or whose fetch is halted, would never start for its next owner.
        SgdmaCommonBlock::HALT_CLEAR.write(dma, SGDMA_COMMON_BASE, one)?;
        SgdmaCommonBlock::CREDIT_MODE_CLEAR.write(dma, SGDMA_COMMON_BASE, one)?;
        let clean = quiet && untouched && !halted && !credit_mode;
        Ok((found, if clean { RecoveryStepOutcome::NotNeeded } else { RecoveryStepOutcome::Recovered }))
    }

    fn await_idle(&self, dma: &Bar, name: ChannelName) -> Result<(), RecoveryStepError> {
        let limit = u64::try_from(self.options.limit.as_nanos()).unwrap_or(u64::MAX);
        let mut last = ChannelStatus::new();
        let idle = poll_until(self.backend, limit, |_| {
            last = status(dma, name)?;
            Ok::<_, RecoveryStepError>((!last.busy()).then_some(()))
        })?;
        idle.map_err(|waited| {
            let status = last.describe(name.direction).to_string();
            RecoveryStepError::NotIdle { waited: Waited::new(self.backend, waited), status }
        })
    }

    fn stop_events(&self, info: &CardInfo, ni: &crate::ni::NiInfo, user: &Bar) -> StopResult {
        let base = info.identity.as_ref().and_then(|identity| identity.block(BlockType::Ni).ok());
        let control = base.map(|block| user.read32(block.at(ni::CONTROL))).transpose()?.unwrap_or(0);
        let on = control & (ni::control::ENABLE | ni::control::EVENT_ENABLE) != 0;
        let found = if on { "enabled" } else { "disabled" }.to_owned();
        if !on {
            return Ok((found, RecoveryStepOutcome::NotNeeded));
        }
        ni.reset(user)?;
        let owner = if self.claims.foreign_endpoint { " (in use by an open endpoint)" } else { "" };
        Ok((found + owner, RecoveryStepOutcome::Recovered))
    }

    fn reset_cdma(&self, registers: &Bar) -> StopResult {
        let base = fpga_registers::BarOffset::ZERO;
        let status = CdmaBlock::SR.read(registers, base)?;
        let control = CdmaBlock::CR.read(registers, base)?;
        if control.into_bits() == u32::MAX {
            return Err(RecoveryStepError::AllOnes);
        }
        let quiet = status.idle() && !status.has_error() && !control.sg_mode() && !control.cyclic();
        let mut found = match (status.idle(), status.has_error()) {
            (_, true) => format!("halted with an error ({status})"),
            (true, _) => "idle".to_owned(),
            (false, _) => format!("running ({status})"),
        };
        if self.claims.foreign_cdma {
            found += " (in use by another owner in this process)";
        }
        if quiet {
            return Ok((found, RecoveryStepOutcome::NotNeeded));
        }
        CdmaBlock::CR.write(registers, base, Cdmacr::new().with_reset(true))?;
        let ended = poll_until(self.backend, IDLE_TIMEOUT_NS, |_| {
            Ok::<_, RecoveryStepError>((!CdmaBlock::CR.read(registers, base)?.reset()).then_some(()))
        })?;
        ended.or_else(|waited| {
            let status = CdmaBlock::SR.read(registers, base)?.to_string();
            Err(RecoveryStepError::NotIdle { waited: Waited::new(self.backend, waited), status })
        })?;
        Ok((found, RecoveryStepOutcome::Recovered))
    }

    /// Restores the channel mask as [`Card::enable_interrupts`](crate::Card::enable_interrupts) sets it, and masks user interrupts.
    fn mask_interrupts(&self, info: &CardInfo, dma: &Bar) -> StopResult {
        let channels = u32::from(info.xdma.h2c_channels) + u32::from(info.xdma.c2h_channels);
        let wanted = if self.interrupts == 0 { 0 } else { (1_u32 << channels) - 1 };
        let channel = IrqBlock::CHANNEL_ENABLE.read(dma, IRQ_BASE)?.into_bits();
        let user = IrqBlock::USER_ENABLE.read(dma, IRQ_BASE)?.into_bits();
        let keep_user = self.claims.foreign_endpoint || self.claims.foreign_cdma;
        let found = format!("channels {channel:#04x}, user {user:#06x} enabled");
        if channel == wanted && (user == 0 || keep_user) {
            return Ok((found, RecoveryStepOutcome::NotNeeded));
        }
        IrqBlock::CHANNEL_ENABLE.write(dma, IRQ_BASE, ChannelMask::from_bits(wanted))?;
        if !keep_user {
            IrqBlock::USER_ENABLE.write(dma, IRQ_BASE, UserMask::from_bits(0))?;
        }
        Ok((found, RecoveryStepOutcome::Recovered))
    }

    fn reset(&self, level: RecoveryLevel, step: RecoveryStep, report: &mut RecoveryReport) {
        let found = if report.well { "healthy; the reset was requested" } else { "unhealthy" }.to_owned();
        let mut was_reset = false;
        let well = report.well;
        self.timed(step, report, || match self.backend.reset(reset_level(level)) {
            Err(reason @ (ResetError::Unsupported { .. } | ResetError::NotOwned { .. })) => {
                Ok((found, RecoveryStepOutcome::Unsupported { reason: reason.into() }))
            }
            Err(why) => {
                // The device's state is unknown, so earlier handles count as stale.
                was_reset = true;
                Ok((found, RecoveryStepOutcome::Failed { reason: why.into() }))
            }
            Ok(()) => {
                was_reset = true;
                let outcome = match self.confirm() {
                    Ok(()) => RecoveryStepOutcome::Recovered,
                    Err(why) => RecoveryStepOutcome::Failed { reason: why.into() },
                };
                Ok((found, outcome))
            }
        });
        let recovered =
            report.steps.last().is_some_and(|last| last.outcome == RecoveryStepOutcome::Recovered);
        report.reopen |= was_reset;
        report.well = recovered || (well && !was_reset);
    }

    /// Confirms with a new handle that the card answers after a reset and that nothing is busy.
    fn confirm(&self) -> Result<(), RecoveryStepError> {
        config::identity(self.backend).map_err(|error| RecoveryStepError::AfterReset(error.into()))?;
        let dma = self
            .backend
            .open_bar(self.dma_index)
            .map_err(|error| RecoveryStepError::AfterReset(error.into()))?;
        let irq = IrqBlock::IDENTIFIER.read(&dma, IRQ_BASE)?;
        let config = ConfigBlock::IDENTIFIER.read(&dma, CONFIG_BASE)?;
        if irq.into_bits() == u32::MAX && config.into_bits() == u32::MAX {
            return Err(RecoveryStepError::AllOnes);
        }
        if !irq.is(Target::Irq) || !config.is(Target::Config) {
            return Err(RecoveryStepError::Identifiers { irq: irq.into_bits(), config: config.into_bits() });
        }
        for name in self.info.into_iter().flat_map(|info| info.xdma.channels()) {
            self.await_idle(&dma, name)?;
        }
        Ok(())
    }
}

/// Reads the status register; all ones are an error.
fn status(dma: &Bar, name: ChannelName) -> Result<ChannelStatus, RecoveryStepError> {
    let status = ChannelBlock::STATUS.read(dma, channel_base(name.direction, name.number));
    match status? {
        status if status.into_bits() == u32::MAX => Err(RecoveryStepError::AllOnes),
        status => Ok(status),
    }
}

/// Describes the state of a channel as text.
fn describe(
    name: ChannelName,
    control: ChannelControl,
    status: ChannelStatus,
    completed: u32,
    credit_mode: bool,
    halted: bool,
) -> String {
    let completed = quantity(completed, "descriptor");
    let mut text = match (status.busy(), control.run()) {
        (true, true) => format!("running, {completed} of its run done"),
        (true, false) => format!("stopping, {completed} of its run done"),
        (false, true) => format!("idle, run bit set, {completed} of its last run done"),
        (false, false) => "idle".to_owned(),
    };
    if status.has_error(name.direction) {
        text += &format!(", stopped by an error ({})", status.describe(name.direction));
    }
    if credit_mode {
        text += ", in credit mode";
    }
    if halted {
        text += ", descriptor fetch halted";
    }
    text
}
