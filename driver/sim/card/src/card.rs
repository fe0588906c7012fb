//! The whole card: configuration space, BARs, engines, and the order in which they work.
//!
//! What only cards with a design have is in `design.rs`; direct accesses and fault hooks, which no software has, are in `hooks.rs`.

mod design;
mod error;
mod hooks;

pub use error::{CardError, NoSuchAddress};

use crate::bars::{DwordAccess, read_dwords, write_dwords, write_strobed};
use crate::cdma::Cdma;
use crate::config_space::{BarLayout, BarRole, ConfigEffect, ConfigSpace};
use crate::counters::USER_INTERRUPTS;
use crate::counters::{Access, AccessLog, AccessTarget, CardCounters, leading_value};
use crate::description::{CardDescription, LinkRate};
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::fault_plan::Plan;
use crate::hooks::AxiError;
use crate::host::{FrameSource, HostPort};
use crate::interrupt_messages::DeliveryContext;
use crate::ni::Ni;
use crate::pacer::Pacer;
use crate::scheduler::EngineScheduler;
use crate::space::CardSpace;
use crate::stream::Streams;
use crate::validate::Problem;
use crate::xdma::Xdma;
use fpga_firmware::generated::{self as contract, PacketKind};
use fpga_protocol::time::Nanos;
use fpga_registers::CardAddr;

/// Whether the card answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Liveness {
    #[default]
    Present,
    /// Registers read as all ones.
    AllOnes,
    /// The card is not on the bus any more.
    Removed,
}

impl Liveness {
    /// A removed card does not return as one that reads all ones.
    pub(crate) const fn max_loss(self, other: Self) -> Self {
        match self {
            Self::Removed => Self::Removed,
            _ => other,
        }
    }
}

/// One simulated card, without a thread of its own. The caller supplies the time; only [`Card::step`] and [`Card::work`] do work.
///
/// Accesses of software ([`Self::bar_write`]) only latch registers. Every engine then works in `step`, one bounded unit per call, in a
/// fixed round: H2C channels, C2H channels, CDMA, NI. The same calls give the same results. `work` does many units per call; a card with
/// its own thread uses it.
#[derive(Debug)]
pub struct Card {
    pub(crate) description: CardDescription,
    pub(crate) config: ConfigSpace,
    pub(crate) space: CardSpace,
    pub(crate) streams: Streams,
    pub(crate) xdma: Xdma,
    pub(crate) cdma: Cdma,
    pub(crate) ni: Ni,
    pub(crate) counters: CardCounters,
    pub(crate) faults: FaultLog,
    log: AccessLog,
    pub(crate) now: Nanos,
    pub(crate) turns: EngineScheduler,
    pub(crate) pace: Pacer,
    /// Quirk: the next read of the DMA BAR fails.
    read_fails: bool,
    /// Lines of `usr_irq_req` that user logic outside the model holds high.
    user_lines: u32,
    /// Lines that fall when their interrupt is acknowledged.
    user_pulses: u32,
    /// Faults to inject.
    pub(crate) plan: Plan,
    pub(crate) presence: Liveness,
}

impl Card {
    /// Builds the described card in its power-on state.
    ///
    /// # Errors
    /// [`CardError`] if the description (changed in a program) cannot be built.
    pub fn new(description: CardDescription) -> Result<Self, CardError> {
        description.validate()?;
        let plan = description.faults.plan().map_err(Problem::of_fault)?;
        Ok(Self {
            config: ConfigSpace::new(&description),
            space: CardSpace::new(&description)
                .map_err(|error| CardError::Memory { size: description.memory.size, reason: error.kind() })?,
            streams: Streams::new(&description),
            xdma: Xdma::new(&description),
            cdma: Cdma::new(&description),
            ni: Ni::new(&description)?,
            counters: CardCounters::default(),
            faults: FaultLog::new(),
            log: AccessLog::Off,
            now: Nanos::ZERO,
            turns: EngineScheduler::new(),
            pace: Pacer::new(&description),
            read_fails: false,
            user_lines: 0,
            user_pulses: 0,
            plan: Plan::new(&plan),
            presence: Liveness::Present,
            description,
        })
    }

    /// Description that the card was built from.
    #[must_use]
    pub const fn description(&self) -> &CardDescription {
        &self.description
    }

    /// The implemented BARs by index.
    #[must_use]
    pub fn bars(&self) -> &[BarLayout] {
        self.config.bars()
    }

    /// Configuration space, for queries without side effects.
    #[must_use]
    pub const fn config(&self) -> &ConfigSpace {
        &self.config
    }

    /// Reads configuration space; bytes past its end read as ones.
    pub fn config_read(&mut self, offset: u16, into: &mut [u8]) {
        if self.is_removed() {
            into.fill(0xFF);
        } else {
            self.config.read(offset, into);
        }
        self.counters.config_reads += 1;
        self.record(AccessTarget::Config, offset.into(), into, false);
    }

    /// Writes configuration space. Messages that this unmasks leave with the next [`Self::step`].
    pub fn config_write(&mut self, offset: u16, from: &[u8]) {
        let effect =
            if self.is_removed() { ConfigEffect::default() } else { self.config.write(offset, from) };
        self.counters.config_writes += 1;
        self.record(AccessTarget::Config, offset.into(), from, true);
        if effect.function_reset {
            self.function_reset();
        }
        self.sample_interrupts();
    }

    /// Reads `into.len()` bytes at `offset` of BAR `bar`. Reads as all ones if the BAR does not exist, the offset is beyond it, or memory
    /// decoding is off (no function answers on the bus).
    pub fn bar_read(&mut self, bar: u8, offset: u64, into: &mut [u8]) {
        self.counters.mmio_reads += access_count(into.len());
        self.record_access_opportunity();
        match self.decode(bar, offset, into.len()) {
            None => into.fill(0xFF),
            Some(role) => {
                self.read_role(role, offset, into, false);
                // A read with clear-on-read may lower an interrupt line.
                self.sample_interrupts();
            }
        }
        self.record(AccessTarget::Bar(bar), offset, into, false);
    }

    /// Reads like [`Self::bar_read`], but changes nothing and counts nothing. For tests and diagnosis.
    pub fn bar_peek(&mut self, bar: u8, offset: u64, into: &mut [u8]) {
        match self.decode(bar, offset, into.len()) {
            None => into.fill(0xFF),
            Some(role) => self.read_role(role, offset, into, true),
        }
    }

    /// Writes `from` at `offset` of BAR `bar`. This is a posted write, which only latches; [`Self::step`] does the work. An interrupt that
    /// the write itself causes (a mask bit whose source is asserted) is delivered at once.
    pub fn bar_write(&mut self, bar: u8, offset: u64, from: &[u8], host: &mut dyn HostPort) {
        self.counters.mmio_writes += access_count(from.len());
        self.record(AccessTarget::Bar(bar), offset, from, true);
        self.record_access_opportunity();
        let Some(role) = self.decode(bar, offset, from.len()) else {
            self.deliver(host);
            return;
        };
        let beyond_channels = self.beyond_channels();
        let lines = self.xdma.interrupt_lines();
        let silent_user = self.description.quirks.silent_user_bar;
        let is_of_design = self.is_register_of_design(offset);
        let Self { xdma, cdma, ni, space, config, faults, now, turns, .. } = self;
        faults.set_time(*now);
        let accepted = match role {
            BarRole::Dma => write_dwords(offset, from, |at, value| {
                if let Ok(at) = u32::try_from(at) {
                    turns.awake |= xdma.write(at, value, config, *now, faults);
                }
            }),
            // Posted: the missing answer stays unnoticed.
            BarRole::User if silent_user => true,
            BarRole::User if is_of_design => write_dwords(offset, from, |at, value| {
                if let Some(design) = space.design() {
                    design.write_register(at, value);
                }
            }),
            BarRole::User => {
                turns.awake |= beyond_channels;
                let whole = write_dwords(offset, from, |at, value| match u32::try_from(at) {
                    Ok(at) if in_block(at, contract::cdma::BLOCK_OFFSET, contract::cdma::BLOCK_SIZE) => {
                        cdma.write(at - contract::cdma::BLOCK_OFFSET, value, faults);
                    }
                    Ok(at) => ni.write(at, value, *now, space, faults),
                    Err(_) => {}
                });
                whole
                    || write_strobed(offset, from, Ni::is_plain, |at, value, strobes| {
                        ni.write(at, ni.read(at) & !strobes | value, *now, space, faults);
                    })
            }
            BarRole::Bypass => {
                let at =
                    CardAddr::new(self.description.bars.bypass.as_ref().map_or(0, |bar| bar.card_address));
                let at = crate::space::advance(at, offset);
                if let Err((error, at)) = space.write(at, from) {
                    faults.push(axi_kind(error), Unit::Bar(bar), at.get(), 1);
                }
                true
            }
        };
        if !accepted {
            faults.push(
                FaultKind::BadAccess,
                Unit::Bar(bar),
                offset,
                u32::try_from(from.len()).unwrap_or(u32::MAX),
            );
        }
        // A doorbell skips the interrupt sampling that it cannot affect.
        if role != BarRole::Dma
            || lines != self.xdma.interrupt_lines()
            || !Xdma::is_of_channels(offset, from.len())
        {
            self.sample_interrupts();
        }
        self.deliver(host);
    }

    /// Returns the next time at which a timer of the card has work to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let deadlines =
            [self.cdma.deadline(), self.ni.deadline(), self.xdma.deadline(), self.xdma.messages.deadline()];
        deadlines.into_iter().flatten().chain(self.work_deadline()).min()
    }

    /// Returns the next deadline after `time`. A deadline that has passed without work does not hide a later one of another unit.
    #[must_use]
    pub fn next_deadline_after(&self, time: Nanos) -> Option<Nanos> {
        let deadlines =
            [self.cdma.deadline(), self.ni.deadline(), self.xdma.deadline(), self.xdma.messages.deadline()];
        deadlines.into_iter().flatten().chain(self.work_deadline()).filter(|deadline| *deadline > time).min()
    }

    /// Sets whether every unit of work lasts as long as on the described hardware. Without a call, the description decides
    /// (`link.rate`); with `link.rate: described`, `false` has no effect.
    pub fn set_pacing(&mut self, on: bool) {
        self.pace.set(on || self.description.link.rate == LinkRate::Described);
        if !self.pace.is_on() {
            self.turns.awake |= std::mem::take(&mut self.turns.paced);
            self.turns.paced_until = Nanos::MAX;
        }
    }

    /// Current node id of the NI.
    #[must_use]
    pub const fn node_id(&self) -> u32 {
        self.ni.node_id()
    }

    /// Takes the next frame that the card sends into the network. Return its buffer with [`Self::recycle_frame`].
    pub fn take_frame(&mut self) -> Option<Vec<u8>> {
        self.take_frame_at(self.now).map(|(frame, _)| frame)
    }

    /// Returns whether [`Self::take_frame_at`] would return a frame.
    #[must_use]
    #[inline]
    pub fn can_send(&self, now: Nanos) -> bool {
        self.ni.has_frames() && self.pace.is_port_free(now)
    }

    /// Takes the next frame at time `now`, and returns the time at which it reaches the network. With pacing there is none while the port
    /// is busy with the one before.
    pub fn take_frame_at(&mut self, now: Nanos) -> Option<(Vec<u8>, Nanos)> {
        if !self.can_send(now) {
            return None;
        }
        if !self.ni.has_frame_space() {
            // The transmitter waits for it.
            self.wake_transmitter();
        }
        let frame = self.ni.take_frame()?;
        let read = if is_from_memory(&frame) { frame.len() as u64 } else { 0 };
        let left = self.pace.sent(frame.len() as u64, read, now);
        let latency = if self.pace.is_on() { self.description.ni.latency_ns } else { 0 };
        Some((frame, left.saturating_add(Nanos::new(latency.into()))))
    }

    /// Returns a buffer for a copy of one of the card's frames. Return it with [`Self::recycle_frame`].
    pub fn spare_frame(&mut self) -> Vec<u8> {
        self.ni.spare_frame()
    }

    /// Returns the buffer of a frame to the card, so that sending does not allocate.
    pub fn recycle_frame(&mut self, frame: Vec<u8>) {
        self.ni.recycle_frame(frame);
    }

    /// Returns whether [`Self::expect_frame`] has an effect.
    #[must_use]
    pub fn expects_frames(&self) -> bool {
        self.ni.prefetches()
    }

    /// Announces a frame that is about to arrive. Call it for each frame of a burst before the first one is received: the card then
    /// prefetches the receive registry entries of all these packets together. Changes no state.
    pub fn expect_frame(&self, frame: &[u8]) {
        self.ni.expect(frame);
    }

    /// Receives a frame from the network. It is processed at once; replies and events wait for [`Self::step`]. A broken frame is counted
    /// and dropped.
    pub fn receive_frame(&mut self, now: Nanos, frame: &[u8]) {
        self.set_now(now);
        let before = self.ni.written();
        let sent = self.ni.receive(self.now, frame, &mut self.space, &mut self.faults);
        self.note_received(frame.len(), before, sent);
    }

    /// Receives a frame with payload whose bytes others may change, and whose header was not damaged on its way. The payload is copied once,
    /// to card memory, before its checksum is known ([`fpga_protocol::receiver::Receiver::would_write`]). Returns `false`, without
    /// any effect, if the frame must be received from a copy ([`Self::receive_frame`]).
    pub fn receive_in_place(&mut self, now: Nanos, frame: &impl FrameSource) -> bool {
        self.set_now(now);
        let before = self.ni.written();
        let Some(sent) = self.ni.receive_in_place(self.now, frame, &mut self.space) else { return false };
        self.note_received(frame.length(), before, sent);
        true
    }

    /// Counts a received frame; `written`: payload bytes in memory before it, `sent`: frames sent in answer.
    fn note_received(&mut self, length: usize, written: u64, sent: u64) {
        self.counters.frames_received += 1;
        self.pace.received(length as u64, self.now);
        self.counters.frames_sent += sent;
        self.counters.received_payload_bytes += self.ni.written() - written;
        self.wake_ni();
    }

    /// Conventional reset (hot reset): every register and configuration space return to their power-on values, engines stop, and the NI
    /// loses its state. Card memory keeps its content.
    ///
    /// A card that reads as all ones answers again. A removed card ignores the reset.
    pub fn reset(&mut self) {
        if self.is_removed() {
            return;
        }
        self.config.reset();
        self.reset_logic();
    }

    /// Function-level reset, which software initiates in the PCI Express capability of a card that supports it (`pci.flr`). Like
    /// [`Self::reset`], but keeps the settings that the link partner relies on.
    fn function_reset(&mut self) {
        self.config.function_reset();
        self.reset_logic();
    }

    fn reset_logic(&mut self) {
        self.presence = Liveness::Present;
        self.xdma.reset();
        self.streams.reset();
        self.cdma.reset();
        self.ni.reset(self.now);
        self.space.clear_windows();
        if let Some(design) = self.space.design() {
            design.reset();
        }
        self.faults.note_reset();
        self.turns = EngineScheduler::new();
        self.pace.reset();
        self.read_fails = false;
        // User logic's lines keep their levels.
        self.sample_interrupts();
    }

    /// Reloads the FPGA while the host is running. Like [`Self::reset`], and card memory is lost too. Nothing restores the BAR addresses
    /// and the command register; until software writes them, the BARs read as all ones.
    pub fn reprogram(&mut self) {
        (self.user_lines, self.user_pulses) = (0, 0);
        self.reset();
        self.config.power_on();
        self.space.clear_memory();
    }

    /// Does what the host's kernel does when a driver requests `count` interrupt vectors: enables MSI-X in its capability and unmasks the
    /// first `count` entries. Not counted as accesses.
    pub fn enable_msix(&mut self, count: u16) {
        self.config.set_msix(true);
        self.set_msix_masked(0, count, false);
    }

    /// Masks or unmasks `count` entries of the MSI-X table, starting at `first`. For setups in which the host's kernel or a virtual
    /// machine monitor, not the guest, owns the table. Not counted as accesses. Messages that this unmasks leave with the next
    /// [`Self::step`].
    pub fn set_msix_masked(&mut self, first: u16, count: u16, masked: bool) {
        self.xdma.messages.msix.set_masked(first, count, masked);
        self.sample_interrupts();
    }

    /// Reverses [`Self::enable_msix`].
    pub fn disable_msix(&mut self) {
        self.config.set_msix(false);
        self.set_msix_masked(0, u16::MAX, true);
    }

    /// Does what the host's kernel does with a card that a driver releases: no DMA, no interrupts, power state D0, memory decoding on,
    /// regardless of the earlier configuration space settings. Not counted as accesses.
    pub fn hand_back(&mut self) {
        self.config.hand_back();
        self.set_msix_masked(0, u16::MAX, true);
    }

    /// Current level of the legacy interrupt line; [`crate::Interrupt::Line`] reports its changes. Code that emulates a level-triggered
    /// input reads it when the input is unmasked.
    #[must_use]
    pub const fn line_asserted(&self) -> bool {
        self.xdma.messages.line_asserted(&self.config)
    }

    /// Raises or lowers line `line` of `usr_irq_req` (0 to 15), as user logic would. The line is a level that user logic holds until it is
    /// served (PG195, "User Interrupts"), ORed with the level of the card's own blocks on the same line. It survives resets of the card,
    /// but not [`Self::reprogram`]. A resulting interrupt is delivered at once. Returns `false` if the line does not exist.
    pub fn set_user_interrupt(&mut self, line: u8, asserted: bool, host: &mut dyn HostPort) -> bool {
        if line >= USER_INTERRUPTS {
            return false;
        }
        let bit = 1 << line;
        self.user_lines = if asserted { self.user_lines | bit } else { self.user_lines & !bit };
        self.sample_interrupts();
        self.deliver(host);
        true
    }

    /// Raises line `line` of `usr_irq_req` and lowers it when its interrupt is acknowledged (`usr_irq_ack`), as user logic does whose
    /// cause needs no service. The acknowledgement comes when the message leaves or, with the legacy line, when the host masks the line.
    ///
    /// Returns whether the line was acknowledged already: a masked line stays high until the host enables it. Returns `None` if the line
    /// does not exist.
    pub fn pulse_user_interrupt(&mut self, line: u8, host: &mut dyn HostPort) -> Option<bool> {
        if line >= USER_INTERRUPTS {
            return None;
        }
        self.user_pulses |= 1 << line;
        self.sample_interrupts();
        self.deliver(host);
        Some(self.user_pulses & 1 << line == 0)
    }

    /// Reads the expansion ROM. Always all ones: the ROM is empty, missing, or its decoder is off.
    pub fn rom_read(&mut self, offset: u64, into: &mut [u8]) {
        self.counters.mmio_reads += access_count(into.len());
        into.fill(0xFF);
        self.record(AccessTarget::Rom, offset, into, false);
    }

    /// Sets memory decoding and bus mastering, as the host's kernel does when it opens a device. Not counted.
    pub fn set_command(&mut self, memory: bool, bus_master: bool) {
        self.config.set_command(memory, bus_master);
    }

    fn decode(&self, bar: u8, offset: u64, length: usize) -> Option<BarRole> {
        let layout = self.config.bars().iter().find(|layout| layout.index == bar)?;
        let end = offset.checked_add(length as u64)?;
        let answers = self.config.memory_decoding() && self.presence == Liveness::Present;
        (answers && end <= layout.size).then_some(layout.role)
    }

    fn read_role(&mut self, role: BarRole, offset: u64, into: &mut [u8], peek: bool) {
        let is_of_design = self.is_register_of_design(offset);
        let Self { xdma, cdma, ni, space, config, now, description, read_fails, plan, faults, .. } = self;
        let quirks = &description.quirks;
        match role {
            BarRole::Dma => read_dwords(offset, into, |at, access| {
                if quirks.every_second_read_fails && !peek {
                    *read_fails = !*read_fails;
                    // Such a read does not reach the register, so it clears nothing.
                    if !*read_fails {
                        return u32::MAX;
                    }
                }
                let peek = peek || matches!(access, DwordAccess::Peek);
                let Ok(at) = u32::try_from(at) else { return u32::MAX };
                let word = xdma.read(at, config, *now, peek);
                match xdma.count_of(at) {
                    Some(unit) if plan.watches_counts() && !peek => plan.count(unit, word, faults),
                    _ => word,
                }
            }),
            // A completion timeout: the root complex returns all ones.
            BarRole::User if quirks.silent_user_bar => into.fill(0xFF),
            BarRole::User if is_of_design => {
                read_dwords(offset, into, |at, _| {
                    space.design().map_or(0, |design| design.read_register(at))
                });
            }
            BarRole::User => read_dwords(offset, into, |at, _| match u32::try_from(at) {
                Ok(at) if in_block(at, contract::cdma::BLOCK_OFFSET, contract::cdma::BLOCK_SIZE) => {
                    cdma.read(at - contract::cdma::BLOCK_OFFSET)
                }
                Ok(at) => ni.read(at),
                Err(_) => 0,
            }),
            BarRole::Bypass => {
                let base = description.bars.bypass.as_ref().map_or(0, |bar| bar.card_address);
                let at = crate::space::advance(CardAddr::new(base), offset);
                if space.read(at, into).is_err() {
                    // The root complex turns an error completion into all ones.
                    into.fill(0xFF);
                }
            }
        }
    }

    pub(crate) fn sample_interrupts(&mut self) {
        let mut user = self.ni.interrupt_lines() | self.user_lines;
        if self.cdma.interrupt_line() {
            user |= 1_u32 << (self.description.interrupts.cdma_user_irq & 15);
        }
        let channel = self.xdma.interrupt_lines();
        let Xdma { irq, messages, .. } = &mut self.xdma;
        let sampled =
            irq.sample(user | self.user_pulses, channel, &mut self.config, messages, &mut self.faults);
        if sampled.acknowledged & self.user_pulses != 0 {
            self.user_pulses &= !sampled.acknowledged;
            irq.sample(user | self.user_pulses, channel, &mut self.config, messages, &mut self.faults);
        }
        if sampled.acknowledged != 0
            && let Some(design) = self.space.design()
        {
            design.interrupts_acknowledged(sampled.acknowledged & self.user_lines);
        }
        if sampled.raised != 0 {
            let counts = self.counters.user_interrupts.iter_mut().enumerate();
            counts.for_each(|(line, count)| *count += u64::from(sampled.raised >> line & 1));
        }
    }

    /// Sends the pending interrupts that may be sent.
    #[inline]
    pub(crate) fn deliver(&mut self, host: &mut dyn HostPort) -> bool {
        let Self { config, counters, plan, faults, now, .. } = self;
        self.xdma.messages.deliver(DeliveryContext { config, counters, plan, faults, now: *now }, host)
    }

    fn record(&mut self, target: AccessTarget, offset: u64, bytes: &[u8], write: bool) {
        if !matches!(self.log, AccessLog::Off) {
            let value = leading_value(bytes);
            self.log.record(&Access { time: self.now, target, offset, length: bytes.len(), write, value });
        }
    }
}

const fn axi_kind(error: AxiError) -> FaultKind {
    match error {
        AxiError::Decode => FaultKind::AxiDecode,
        AxiError::Slave => FaultKind::AxiSlave,
        AxiError::Silent | AxiError::Pending => FaultKind::AxiSilent,
    }
}

fn in_block(at: u32, offset: u32, size: u32) -> bool {
    (offset..offset.saturating_add(size)).contains(&at)
}

/// Returns the number of accesses of `length` bytes: one per started 8 bytes, the widest single access of a CPU.
fn access_count(length: usize) -> u64 {
    (length as u64).div_ceil(8).max(1)
}

/// Returns whether the payload of `frame` comes from card memory: a packet of a message. Segments come from transmit windows.
fn is_from_memory(frame: &[u8]) -> bool {
    let kind = frame.get(contract::layout::common::KIND).and_then(|kind| PacketKind::try_from(*kind).ok());
    matches!(kind, Some(PacketKind::MessageData | PacketKind::MessageStart))
}
