//! AXI CDMA (PG034): registers, simple mode, interrupts. The scatter-gather engine is in `sg`.
//!
//! Behaviour that PG034 does not specify: without DRE a misaligned address is DMAIntErr; a descriptor that fails gets its error bit
//! without Cmplt; writes of address registers while busy are dropped and logged; a byte count wider than the build is cut to its width.

pub(crate) mod port;
mod sg;

use crate::description::CardDescription;
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::fault_plan::CdmaFault;
use crate::hooks::AxiError;
use crate::host::HostPort;
use crate::link::{EngineContext, Upstream};
use crate::memory::PAGE;
use crate::offsets::cdma as at;
use crate::space::{CardSpace, advance};
use crate::work::Work;
use fpga_protocol::time::Nanos;
use fpga_registers::CardAddr;
use fpga_registers::cast::{high32, low32};
use port::CopyPorts;
use sg::ScatterGather;
use std::sync::Arc;

/// Control register.
mod control {
    use fpga_registers::cdma::Cdmacr as C;

    pub(super) const TAIL_POINTER: u32 = 1 << 1;
    pub(super) const RESET: u32 = C::from_bits(0).with_reset(true).into_bits();
    pub(super) const SG_MODE: u32 = C::from_bits(0).with_sg_mode(true).into_bits();
    pub(super) const KEYHOLE_READ: u32 = C::from_bits(0).with_keyhole_read(true).into_bits();
    pub(super) const KEYHOLE_WRITE: u32 = C::from_bits(0).with_keyhole_write(true).into_bits();
    pub(super) const CYCLIC: u32 = C::from_bits(0).with_cyclic(true).into_bits();
    /// Software-writable bits that keep their value: SGMode, keyholes, cyclic, interrupt enables, threshold, delay.
    pub(super) const STORED: u32 = 0xFFFF_7078;
    /// Those of [`STORED`] that exist only with scatter-gather.
    pub(super) const SG_ONLY: u32 = 0xFFFF_2048;
    pub(super) const AFTER_RESET: u32 = 1 << 16 | TAIL_POINTER;
}

/// Status register.
mod status {
    use fpga_registers::cdma::Cdmasr as S;

    pub(super) const IDLE: u32 = S::from_bits(0).with_idle(true).into_bits();
    pub(super) const SG_INCLUDED: u32 = S::from_bits(0).with_sg_included(true).into_bits();
    pub(super) const DMA_INTERNAL: u32 = S::from_bits(0).with_dma_internal_error(true).into_bits();
    pub(super) const DMA_SLAVE: u32 = S::from_bits(0).with_dma_slave_error(true).into_bits();
    pub(super) const DMA_DECODE: u32 = S::from_bits(0).with_dma_decode_error(true).into_bits();
    pub(super) const SG_INTERNAL: u32 = S::from_bits(0).with_sg_internal_error(true).into_bits();
    pub(super) const SG_SLAVE: u32 = S::from_bits(0).with_sg_slave_error(true).into_bits();
    pub(super) const SG_DECODE: u32 = S::from_bits(0).with_sg_decode_error(true).into_bits();
    pub(super) const IOC: u32 = S::from_bits(0).with_ioc_irq(true).into_bits();
    pub(super) const DELAY: u32 = S::from_bits(0).with_delay_irq(true).into_bits();
    pub(super) const ERROR: u32 = S::from_bits(0).with_error_irq(true).into_bits();
    pub(super) const INTERRUPTS: u32 = S::INTERRUPTS.into_bits();
    /// Errors that halt the engine.
    pub(super) const ERRORS: u32 = S::ERRORS.into_bits();
}

/// The delay timer ticks once per 125 clocks of the SG port; at 250 MHz that is 500 ns.
const DELAY_TICK_NS: u64 = 500;

/// A copy in progress.
#[derive(Clone, Copy, Debug)]
struct CopyInProgress {
    source: u64,
    destination: u64,
    remaining: u32,
}

/// Result of one step of a copy.
enum CopyStep {
    More,
    Done,
    Failed(u32),
    /// An AXI slave does not answer.
    Silent,
    /// A design outside the model has not answered yet.
    Pending,
}

/// The CDMA engine.
#[derive(Debug)]
pub(crate) struct Cdma {
    control: u32,
    /// Errors and interrupts only; Idle and the live counts are added by reads.
    status: u32,
    current: u64,
    tail: u64,
    source: u64,
    destination: u64,
    length: u32,
    simple: Option<CopyInProgress>,
    sg: ScatterGather,
    /// An AXI slave did not answer: neither the transfer nor a soft reset ends.
    hangs: bool,
    /// Completed descriptors until the next IOC.
    threshold_left: u32,
    delay_deadline: Option<Nanos>,
    address_mask: u64,
    length_mask: u32,
    with_sg: bool,
    wide: bool,
    alignment: u64,
    width: usize,
    /// AXI masters to a design outside the model, in place of the card's memory.
    pub(crate) ports: Option<CopyPorts>,
    /// Accesses of a design beyond the card's memory, once there was one.
    beyond: Option<CopyPorts>,
}

impl Cdma {
    pub(crate) fn new(description: &CardDescription) -> Self {
        let cdma = &description.cdma;
        let wide = cdma.address_width > 32;
        let width = u64::from(cdma.data_width / 8);
        Self {
            control: control::AFTER_RESET,
            status: 0,
            current: 0,
            tail: 0,
            source: 0,
            destination: 0,
            length: 0,
            simple: None,
            sg: ScatterGather::default(),
            hangs: false,
            threshold_left: 1,
            delay_deadline: None,
            address_mask: if cdma.address_width >= 64 { u64::MAX } else { (1 << cdma.address_width) - 1 },
            length_mask: (1 << cdma.max_length_bits) - 1,
            with_sg: cdma.sg,
            wide,
            alignment: if cdma.dre { 1 } else { width },
            width: usize::try_from(width).unwrap_or(64),
            ports: None,
            beyond: None,
        }
    }

    pub(crate) fn reset(&mut self) {
        self.control = control::AFTER_RESET;
        self.status = 0;
        (self.current, self.tail, self.source, self.destination, self.length) = (0, 0, 0, 0, 0);
        self.simple = None;
        self.sg = ScatterGather::default();
        self.hangs = false;
        self.threshold_left = 1;
        self.delay_deadline = None;
        if let Some(beyond) = &mut self.beyond {
            beyond.abandon();
        }
    }

    /// Ports to the design behind one of `addresses`, if it is not memory of the card.
    fn beyond(&mut self, space: &CardSpace, addresses: &[CardAddr]) -> Option<&mut CopyPorts> {
        if !space.is_design_beyond() || !addresses.iter().any(|at| space.is_of_design(at.get())) {
            return None;
        }
        let design = space.shared_design()?;
        Some(self.beyond.get_or_insert_with(|| CopyPorts::new(Arc::clone(&design), design)))
    }

    /// `cdma_introut`: level, high while an enabled interrupt bit is set.
    pub(crate) const fn interrupt_line(&self) -> bool {
        self.status & self.control & status::INTERRUPTS != 0
    }

    /// Time at which the delay interrupt fires.
    pub(crate) const fn deadline(&self) -> Option<Nanos> {
        self.delay_deadline
    }

    /// Returns whether [`step`](Self::step) would find nothing to do at `now`.
    pub(crate) fn is_idle(&self, now: Nanos) -> bool {
        self.hangs
            || self.idle()
                && self.control & control::RESET == 0
                && self.delay_deadline.is_none_or(|deadline| deadline > now)
    }

    const fn sg_mode(&self) -> bool {
        self.control & control::SG_MODE != 0
    }

    const fn halted(&self) -> bool {
        self.status & status::ERRORS != 0
    }

    const fn idle(&self) -> bool {
        self.simple.is_none() && !self.sg.running
    }

    /// Reads the register at `offset`, without side effects. High halves exist above 32 address bits only.
    pub(crate) fn read(&self, offset: u32) -> u32 {
        match offset {
            at::CR => self.control,
            at::SR => self.status_word(),
            at::CURDESC_LOW => low32(self.current),
            at::CURDESC_HIGH => high32(self.current),
            at::TAILDESC_LOW => low32(self.tail),
            at::TAILDESC_HIGH => high32(self.tail),
            at::SOURCE_LOW => low32(self.source),
            at::SOURCE_HIGH => high32(self.source),
            at::DESTINATION_LOW => low32(self.destination),
            at::DESTINATION_HIGH => high32(self.destination),
            at::BTT => self.length,
            _ => 0,
        }
    }

    fn status_word(&self) -> u32 {
        let mut word = self.status;
        if self.idle() {
            word |= status::IDLE;
        }
        if self.with_sg {
            word |= status::SG_INCLUDED | (self.threshold_left & 0xFF) << 16;
        }
        word
    }

    /// Writes the register at `offset`. Only latches; the engine acts in its next step.
    pub(crate) fn write(&mut self, offset: u32, value: u32, faults: &mut FaultLog) {
        let wide = self.wide;
        match offset {
            at::CR => self.write_control(value),
            at::SR => self.status &= !(value & status::INTERRUPTS),
            at::CURDESC_LOW | at::CURDESC_HIGH | at::TAILDESC_LOW | at::TAILDESC_HIGH
                if !self.with_sg || !self.sg_mode() => {}
            at::TAILDESC_LOW if wide => self.tail = self.pointer(self.tail & !0xFFFF_FFFF | u64::from(value)),
            at::TAILDESC_LOW => {
                self.tail = self.pointer(value.into());
                self.start_sg();
            }
            at::TAILDESC_HIGH if wide => {
                self.tail = self.pointer(self.tail & 0xFFFF_FFFF | u64::from(value) << 32);
                self.start_sg();
            }
            at::CURDESC_LOW..=at::BTT if !self.idle() => {
                faults.push(FaultKind::CdmaBusy, Unit::Cdma, offset.into(), value)
            }
            at::CURDESC_LOW => self.current = self.pointer(self.current & !0xFFFF_FFFF | u64::from(value)),
            at::CURDESC_HIGH if wide => {
                self.current = self.pointer(self.current & 0xFFFF_FFFF | u64::from(value) << 32)
            }
            at::SOURCE_LOW => self.source = self.source & !0xFFFF_FFFF | u64::from(value),
            at::SOURCE_HIGH if wide => {
                self.source = self.address(self.source & 0xFFFF_FFFF | u64::from(value) << 32)
            }
            at::DESTINATION_LOW => self.destination = self.destination & !0xFFFF_FFFF | u64::from(value),
            at::DESTINATION_HIGH if wide => {
                self.destination = self.address(self.destination & 0xFFFF_FFFF | u64::from(value) << 32);
            }
            at::BTT => {
                self.length = value & self.length_mask;
                if !self.sg_mode() && !self.halted() {
                    let copy = CopyInProgress {
                        source: self.source,
                        destination: self.destination,
                        remaining: self.length,
                    };
                    self.simple = Some(copy);
                }
            }
            _ => {}
        }
    }

    /// Masks a descriptor address, which has no bits 5:0.
    const fn pointer(&self, value: u64) -> u64 {
        value & self.address_mask & !0x3F
    }

    const fn address(&self, value: u64) -> u64 {
        value & self.address_mask
    }

    fn write_control(&mut self, value: u32) {
        if value & control::RESET != 0 {
            // Self-clearing: reads as 1 until the transfer on the bus has finished, that is until the next step.
            self.control |= control::RESET;
            return;
        }
        let stored = if self.with_sg { control::STORED } else { control::STORED & !control::SG_ONLY };
        let before = self.control;
        let mut new = value & stored | control::TAIL_POINTER | before & control::RESET;
        if !self.with_sg {
            new |= 1 << 16;
        } else if new & 0x00FF_0000 == 0 {
            // PG034: a threshold of 0 has no meaning; the counter treats it as 1.
            new |= 1 << 16;
        }
        if !self.idle() {
            // Mode bits change only when idle (PG034).
            let mode = control::SG_MODE | control::KEYHOLE_READ | control::KEYHOLE_WRITE | control::CYCLIC;
            new = new & !mode | before & mode;
        }
        self.control = new;
        if (before ^ new) & 0x00FF_0000 != 0 {
            self.threshold_left = new >> 16 & 0xFF;
        }
        if new & control::SG_MODE == 0 {
            (self.current, self.tail) = (0, 0);
            self.sg = ScatterGather::default();
            self.status &= !status::DELAY;
            self.delay_deadline = None;
        } else if before & control::SG_MODE == 0 {
            // The 0->1 toggle makes the engine take CURDESC at the next start instead of continuing.
            self.sg.reload = true;
        }
    }

    fn start_sg(&mut self) {
        if !self.halted() {
            self.sg.start(self.current);
        }
    }

    /// Does one unit of work: a descriptor, or up to one page of data.
    pub(crate) fn step(&mut self, lanes: &mut EngineContext<'_, dyn HostPort>) -> bool {
        if self.hangs {
            return false;
        }
        if self.control & control::RESET != 0 {
            // The transfer on the bus ends first (PG034).
            let in_progress =
                |ports: &mut Option<CopyPorts>| ports.as_mut().is_some_and(|ports| !ports.has_ended());
            if in_progress(&mut self.ports) || in_progress(&mut self.beyond) {
                return false;
            }
            self.reset();
            return true;
        }
        if self.delay_deadline.is_some_and(|deadline| deadline <= lanes.now) {
            self.delay_deadline = None;
            self.threshold_left = self.threshold();
            self.status |= status::DELAY;
            return true;
        }
        if let Some(mut copy) = self.simple {
            match self.advance_copy(&mut copy, lanes) {
                CopyStep::More => self.simple = Some(copy),
                CopyStep::Done => {
                    self.simple = None;
                    self.status |= status::IOC;
                    lanes.upstream.counters.cdma_descriptors += 1;
                }
                CopyStep::Failed(error) => self.halt(error, copy.source, lanes),
                CopyStep::Silent => self.hang(copy.source, lanes),
                CopyStep::Pending => return false,
            }
            return true;
        }
        self.step_sg(lanes)
    }

    /// Returns the next unit of [`step`](Self::step), with its amount of data.
    pub(crate) fn next_unit(&self, space: &CardSpace) -> Work {
        let copy = |copy: CopyInProgress, first| {
            let bytes = u64::from(copy.remaining).min(PAGE as u64);
            let sides = [copy.source, copy.destination].map(CardAddr::new);
            let accesses = sides.map(|side| u8::from(space.is_memory(side, 1))).iter().sum();
            Work::Copy { bytes, first, accesses }
        };
        if self.hangs || self.control & control::RESET != 0 {
            return Work::Instant;
        }
        match self.simple {
            Some(simple) => copy(simple, simple.remaining == self.length),
            None => match self.sg.next_copy(space, self.length_mask) {
                Some((next, first)) => copy(next, first),
                None => Work::Instant,
            },
        }
    }

    fn halt(&mut self, error: u32, address: u64, lanes: &mut EngineContext<'_, dyn HostPort>) {
        self.simple = None;
        self.sg.stop();
        self.delay_deadline = None;
        self.status |= error | status::ERROR;
        lanes.upstream.faults.push(FaultKind::CdmaHalted, Unit::Cdma, address, self.status);
    }

    /// Hangs the engine: an access at `address`, or at the destination of its data, gets no answer.
    fn hang(&mut self, address: u64, lanes: &mut EngineContext<'_, dyn HostPort>) {
        self.hangs = true;
        self.delay_deadline = None;
        lanes.upstream.faults.push(FaultKind::AxiSilent, Unit::Cdma, address, 0);
    }

    const fn threshold(&self) -> u32 {
        self.control >> 16 & 0xFF
    }

    /// Counts a finished descriptor towards the interrupt threshold. The delay timer covers an incomplete count.
    fn count_completion(&mut self, now: Nanos) {
        self.threshold_left = self.threshold_left.saturating_sub(1);
        if self.threshold_left == 0 {
            self.threshold_left = self.threshold();
            self.status |= status::IOC;
            self.delay_deadline = None;
            return;
        }
        let ticks = u64::from(self.control >> 24);
        self.delay_deadline =
            (ticks != 0).then(|| now.saturating_add(Nanos::new(ticks.saturating_mul(DELAY_TICK_NS))));
    }

    fn advance_copy(
        &mut self,
        copy: &mut CopyInProgress,
        lanes: &mut EngineContext<'_, dyn HostPort>,
    ) -> CopyStep {
        let Upstream { plan, faults, .. } = &mut lanes.upstream;
        if plan.watches_cdma()
            && let Some(fault) = plan.is_cdma_stalled(faults)
        {
            return match fault {
                CdmaFault::Stall => CopyStep::Silent,
                CdmaFault::Error(error) => CopyStep::Failed(error.bit()),
            };
        }
        if copy.remaining == 0 || !(copy.source | copy.destination).is_multiple_of(self.alignment) {
            return CopyStep::Failed(status::DMA_INTERNAL);
        }
        let read_fixed = self.control & control::KEYHOLE_READ != 0;
        let write_fixed = self.control & control::KEYHOLE_WRITE != 0;
        let mut most = usize::try_from(copy.remaining).unwrap_or(PAGE).min(PAGE);
        if read_fixed || write_fixed {
            // Fixed address: the order matters, so beats are copied one by one.
            most = most.min(self.width);
        }
        let (source, destination) = (CardAddr::new(copy.source), CardAddr::new(copy.destination));
        let copied = if let Some(ports) = &mut self.ports {
            ports.copy(source, destination, most)
        } else if let Some(beyond) = self.beyond(lanes.space, &[source, destination]) {
            beyond.copy_beyond(lanes.space, source, destination, most)
        } else {
            lanes.space.copy(source, destination, most)
        };
        match copied {
            Ok(count) => {
                let bytes = count as u64;
                lanes.upstream.counters.cdma_bytes += bytes;
                if !read_fixed {
                    copy.source = self.address(advance(CardAddr::new(copy.source), bytes).get());
                }
                if !write_fixed {
                    copy.destination = self.address(advance(CardAddr::new(copy.destination), bytes).get());
                }
                copy.remaining = copy.remaining.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
                if copy.remaining == 0 { CopyStep::Done } else { CopyStep::More }
            }
            Err((AxiError::Decode, _)) => CopyStep::Failed(status::DMA_DECODE),
            Err((AxiError::Slave, _)) => CopyStep::Failed(status::DMA_SLAVE),
            Err((AxiError::Silent, _)) => CopyStep::Silent,
            Err((AxiError::Pending, _)) => CopyStep::Pending,
        }
    }
}
