//! Registers of one DMA channel and of its SGDMA block (PG195 targets 0, 1, 4, 5).

use super::performance::Performance;
use super::prefetch::MAGIC;
use super::state::Engine;
use crate::design::LoadedDescriptor;
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::offsets::{channel as at, sgdma};
use fpga_protocol::time::Nanos;
use fpga_registers::cast::{high32, low32};
use fpga_registers::xdma::Direction;

/// Control register (0x04).
pub(super) mod control {
    use fpga_registers::xdma::channel::ChannelControl as C;

    pub(in crate::xdma) const RUN: u32 = C::new().with_run(true).into_bits();
    pub(in crate::xdma) const NON_INCREMENTING: u32 = C::new().with_non_incrementing(true).into_bits();
    pub(in crate::xdma) const POLL_WRITEBACK: u32 = C::new().with_poll_writeback(true).into_bits();
    /// C2H stream: no metadata per descriptor.
    pub(in crate::xdma) const NO_METADATA: u32 = C::new().with_stream_writeback_disable(true).into_bits();
    /// Bits that hold what is written; 8:7, 24 and 31:28 are reserved.
    pub(in crate::xdma) const IMPLEMENTED: u32 = 0x0EFF_FE7F;
}

/// Status register (0x40). The same bit positions gate recording in Control and interrupts at 0x90.
pub(super) mod status {
    use fpga_registers::xdma::channel::ChannelStatus as S;

    pub(in crate::xdma) const BUSY: u32 = S::new().with_busy(true).into_bits();
    pub(in crate::xdma) const DESCRIPTOR_STOPPED: u32 = S::new().with_descriptor_stopped(true).into_bits();
    pub(in crate::xdma) const DESCRIPTOR_COMPLETED: u32 =
        S::new().with_descriptor_completed(true).into_bits();
    pub(in crate::xdma) const ALIGN_MISMATCH: u32 = S::new().with_align_mismatch(true).into_bits();
    pub(in crate::xdma) const MAGIC_STOPPED: u32 = S::new().with_magic_stopped(true).into_bits();
    pub(in crate::xdma) const INVALID_LENGTH: u32 = S::new().with_invalid_length(true).into_bits();
    pub(in crate::xdma) const IDLE_STOPPED: u32 = S::new().with_idle_stopped(true).into_bits();
    /// H2C: unsupported request on a host data read.
    pub(in crate::xdma) const READ_UNSUPPORTED: u32 = S::new().with_read_error(1).into_bits();
    /// C2H: AXI errors of card reads.
    pub(in crate::xdma) const READ_DECODE: u32 = S::new().with_read_error(1).into_bits();
    pub(in crate::xdma) const READ_SLAVE: u32 = S::new().with_read_error(1 << 1).into_bits();
    /// H2C: AXI errors of card writes.
    pub(in crate::xdma) const WRITE_DECODE: u32 = S::new().with_write_error(1).into_bits();
    pub(in crate::xdma) const WRITE_SLAVE: u32 = S::new().with_write_error(1 << 1).into_bits();
    /// Unsupported request on a descriptor fetch.
    pub(in crate::xdma) const FETCH_UNSUPPORTED: u32 = S::new().with_descriptor_error(1).into_bits();
    /// Every bit that can be recorded.
    pub(in crate::xdma) const RECORDED: u32 = 0x00FF_FE7E;
    /// Errors that set bit 31 of the poll-mode write-back.
    pub(in crate::xdma) const ERRORS: u32 = S::ERROR_MASK_H2C.into_bits() | S::ERROR_MASK_C2H.into_bits();
}

/// Descriptors in the FIFO of a descriptor bypass port (PG195: 8).
const BYPASS_DEPTH: usize = 8;
/// Control bits of a loaded descriptor: Stop, Completed, EOP.
const LOADED_CONTROL: u32 = 0b1_0011;

/// Credits are a 10-bit counter.
const CREDIT_LIMIT: u32 = 0x3FF;

/// One channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(super) direction: Direction,
    pub(super) unit: Unit,
    pub(super) control: u32,
    pub(super) status: u32,
    pub(super) completed: u32,
    pub(super) writeback: u64,
    pub(super) interrupt_enable: u32,
    pub(super) performance: Performance,
    pub(super) first: u64,
    pub(super) adjacent: u32,
    pub(super) credits: u32,
    pub(super) credit_mode: bool,
    pub(super) fetch_halted: bool,
    pub(super) engine: Engine,
    /// Quirk: after an error, the first read of the status still shows busy.
    pub(super) busy_lingers: bool,
    /// Number in the identifier.
    pub(super) index: u32,
    identifier_version: u32,
    /// AXI4-Stream build: the card side is a port, not an address.
    pub(super) stream: bool,
    /// Descriptors come from user logic (descriptor bypass), not from host memory.
    pub(super) bypass: bool,
}

impl Channel {
    pub(crate) fn new(
        direction: Direction,
        index: u8,
        version: u8,
        stream: bool,
        buffer: usize,
        width_bytes: u32,
    ) -> Self {
        let unit = match direction {
            Direction::H2c => Unit::H2c(index),
            Direction::C2h => Unit::C2h(index),
        };
        Self {
            direction,
            unit,
            control: 0,
            status: 0,
            completed: 0,
            writeback: 0,
            interrupt_enable: 0,
            performance: Performance::default(),
            first: 0,
            adjacent: 0,
            credits: 0,
            credit_mode: false,
            fetch_halted: false,
            engine: Engine::new(buffer, width_bytes),
            busy_lingers: false,
            index: index.into(),
            identifier_version: version.into(),
            stream,
            bypass: false,
        }
    }

    pub(crate) fn reset(&mut self) {
        let Self { control, status, completed, writeback, interrupt_enable, performance, .. } = self;
        (*control, *status, *completed, *writeback, *interrupt_enable) = (0, 0, 0, 0, 0);
        *performance = Performance::default();
        (self.first, self.adjacent, self.credits) = (0, 0, 0);
        (self.credit_mode, self.fetch_halted, self.busy_lingers) = (false, false, false);
        self.engine.abandon();
    }

    /// Returns whether user logic can load a descriptor: the engine runs, and its FIFO has space.
    pub(super) const fn takes_descriptor(&self) -> bool {
        self.bypass && self.engine.is_running_normally() && self.engine.prefetch.len() < BYPASS_DEPTH
    }

    /// Loads a descriptor of user logic.
    pub(super) fn load(&mut self, descriptor: &LoadedDescriptor) -> bool {
        let takes = self.takes_descriptor();
        if takes {
            let LoadedDescriptor { source, destination, length, control } = *descriptor;
            let control = MAGIC << 16 | control & LOADED_CONTROL;
            self.engine.prefetch.push(control, length, source, destination);
        }
        takes
    }

    /// Interrupt line of the channel: recorded status that is enabled at 0x90.
    pub(crate) const fn interrupt_line(&self) -> bool {
        self.status & self.interrupt_enable != 0
    }

    /// Identifier word; `target` as in PG195 (0 H2C, 1 C2H, 4 and 5 their SGDMA blocks). Bit 15 marks AXI4-Stream.
    fn identifier(&self, sgdma: bool) -> u32 {
        let target = match (self.direction, sgdma) {
            (Direction::H2c, false) => 0,
            (Direction::C2h, false) => 1,
            (Direction::H2c, true) => 4,
            (Direction::C2h, true) => 5,
        };
        0x1FC << 20 | target << 16 | u32::from(self.stream) << 15 | self.index << 8 | self.identifier_version
    }

    fn status_word(&self) -> u32 {
        self.status | if self.engine.busy() || self.busy_lingers { status::BUSY } else { 0 }
    }

    /// Reads the channel register at `offset`; `peek` reads without side effects.
    pub(crate) fn read(&mut self, offset: u32, now: Nanos, peek: bool) -> u32 {
        match offset {
            at::IDENTIFIER => self.identifier(false),
            at::CONTROL => self.control,
            at::STATUS | at::STATUS_RC => {
                let word = self.status_word();
                if !peek {
                    self.busy_lingers = false;
                    if offset == at::STATUS_RC {
                        self.status = 0;
                    }
                }
                word
            }
            at::COMPLETED => self.completed,
            // 64 address bits. Addresses and lengths in bytes, with a fixed address in whole beats. PG195 does not specify this for the
            // register, but the vendor's driver reads it again after a change of the mode.
            at::ALIGNMENTS if self.control & control::NON_INCREMENTING != 0 => {
                self.engine.width_bytes << 16 | self.engine.width_bytes << 8 | 64
            }
            at::ALIGNMENTS => 0x0001_0140,
            at::POLL_ADDRESS_LOW => low32(self.writeback),
            at::POLL_ADDRESS_HIGH => high32(self.writeback),
            at::INTERRUPT_ENABLE => self.interrupt_enable,
            at::PERFORMANCE_CONTROL..=at::PERFORMANCE_DATA_HIGH => self.performance.read(offset, now),
            _ => 0,
        }
    }

    /// Writes the channel register at `offset`. Only latches; the engine acts on it in its next step.
    pub(crate) fn write(&mut self, offset: u32, value: u32, now: Nanos) {
        match offset {
            at::CONTROL => self.set_control(value & control::IMPLEMENTED, now),
            at::CONTROL_SET => self.set_control(self.control | value & control::IMPLEMENTED, now),
            at::CONTROL_CLEAR => self.set_control(self.control & !value, now),
            at::STATUS => self.status &= !value,
            at::POLL_ADDRESS_LOW => self.writeback = with_low(self.writeback, value),
            at::POLL_ADDRESS_HIGH => self.writeback = with_high(self.writeback, value),
            at::INTERRUPT_ENABLE => self.interrupt_enable = value & status::RECORDED,
            at::INTERRUPT_ENABLE_SET => self.interrupt_enable |= value & status::RECORDED,
            at::INTERRUPT_ENABLE_CLEAR => self.interrupt_enable &= !value,
            at::PERFORMANCE_CONTROL => self.performance.write(value, now),
            _ => {}
        }
    }

    /// Reads the SGDMA register at `offset`.
    pub(crate) fn read_sgdma(&self, offset: u32) -> u32 {
        match offset {
            sgdma::IDENTIFIER => self.identifier(true),
            sgdma::DESCRIPTOR_LOW => low32(self.first),
            sgdma::DESCRIPTOR_HIGH => high32(self.first),
            sgdma::ADJACENT => self.adjacent,
            sgdma::CREDITS => self.credits,
            _ => 0,
        }
    }

    /// Writes the SGDMA register at `offset`.
    pub(crate) fn write_sgdma(&mut self, offset: u32, value: u32, faults: &mut FaultLog) {
        match offset {
            sgdma::DESCRIPTOR_LOW => self.first = with_low(self.first, value),
            sgdma::DESCRIPTOR_HIGH => self.first = with_high(self.first, value),
            sgdma::ADJACENT => self.adjacent = value & 0x3F,
            // Credits count only in credit mode: "auto-clears when credit mode is off".
            sgdma::CREDITS if self.credit_mode => {
                let sum = self.credits + (value & CREDIT_LIMIT);
                if sum > CREDIT_LIMIT {
                    faults.push(FaultKind::CreditOverflow, self.unit, 0x8C, sum);
                }
                self.credits = sum.min(CREDIT_LIMIT);
            }
            _ => {}
        }
    }

    pub(crate) const fn set_credit_mode(&mut self, on: bool) {
        self.credit_mode = on;
        if !on {
            self.credits = 0;
        }
    }

    pub(crate) const fn set_fetch_halt(&mut self, on: bool) {
        self.fetch_halted = on;
    }

    fn set_control(&mut self, new: u32, now: Nanos) {
        let was_running = self.control & control::RUN != 0;
        let running = new & control::RUN != 0;
        self.control = new;
        if running && !was_running {
            // The edge clears count and status (PG195) and latches the first descriptor's address.
            self.completed = 0;
            self.status = 0;
            self.busy_lingers = false;
            self.performance.run_edge(now);
            self.engine.start(self.first, self.adjacent);
        } else if was_running && !running {
            self.credits = 0;
            self.engine.request_stop();
        }
    }

    /// Records a condition in Status if the bit at the same position in Control enables it.
    pub(super) const fn record(&mut self, bits: u32) {
        self.status |= bits & self.control & status::RECORDED;
    }
}

pub(super) fn with_low(value: u64, low: u32) -> u64 {
    value & !0xFFFF_FFFF | u64::from(low)
}

pub(super) fn with_high(value: u64, high: u32) -> u64 {
    value & 0xFFFF_FFFF | u64::from(high) << 32
}
