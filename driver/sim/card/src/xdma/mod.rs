//! The XDMA core (PG195): channels, IRQ block, configuration block, MSI-X table.

mod burst;
mod channel;
mod design;
mod engine;
mod fetch;
mod performance;
mod prefetch;
mod state;
mod stream;
mod transfer;

use crate::config_space::ConfigSpace;
use crate::description::CardDescription;
use crate::design::LoadedDescriptor;
use crate::fault_log::{FaultKind, FaultLog, Unit};
use crate::host::HostPort;
use crate::interrupt_messages::InterruptMessages;
use crate::irq::IrqBlock;
use crate::link::EngineContext;
use crate::offsets::{config as at, sgdma_common};
use crate::work::Work;
use channel::Channel;
use fpga_protocol::time::Nanos;
use fpga_registers::xdma::Direction;
use state::EngineOptions;

/// Maximum number of descriptors in one channel's share of the descriptor RAM (512 x datapath / 32 bytes, shared by all).
const BUFFER_LIMIT: usize = 512;
/// H2C channels are in bits 3:0 of the SGDMA common registers, C2H channels in 19:16, regardless of the implemented number.
const C2H_SHIFT: usize = 16;

/// Result of a channel's turn.
pub(crate) struct StepResult {
    /// Units of work done.
    pub(crate) units: u32,
    /// The channel has nothing to do until a register is written.
    pub(crate) waiting: bool,
}

fn set_line(lines: &mut u32, number: usize, channel: &Channel) {
    *lines = *lines & !(1 << number) | u32::from(channel.interrupt_line()) << number;
}

/// XDMA core.
#[derive(Debug)]
pub(crate) struct Xdma {
    /// H2C channels, then C2H channels.
    channels: Vec<Channel>,
    h2c: usize,
    /// Interrupt lines of the channels: H2C in the low bits, C2H directly above.
    lines: u32,
    pub(crate) irq: IrqBlock,
    pub(crate) messages: InterruptMessages,
    fetch_halt: u32,
    credit_mode: u32,
    relaxed_ordering: u32,
    max_payload: u32,
    max_read: u32,
    version: u32,
    width_code: u32,
    bus_device_function: u32,
    early_msix_writes_lost: bool,
    rules: EngineOptions,
}

impl Xdma {
    pub(crate) fn new(description: &CardDescription) -> Self {
        let xdma = &description.xdma;
        let width_bytes = u32::from(xdma.data_width / 8);
        let channels = usize::from(xdma.h2c_channels + xdma.c2h_channels).max(1);
        let buffer = (512 * usize::from(xdma.data_width / 8) / 32 / channels).min(BUFFER_LIMIT);
        let make = |direction, count: u8| {
            (0..count).map(move |index| {
                Channel::new(direction, index, xdma.ip_version, xdma.stream, buffer, width_bytes)
            })
        };
        Self {
            channels: make(Direction::H2c, xdma.h2c_channels)
                .chain(make(Direction::C2h, xdma.c2h_channels))
                .collect(),
            h2c: xdma.h2c_channels.into(),
            lines: 0,
            irq: IrqBlock::new(u32::from(xdma.h2c_channels + xdma.c2h_channels), description.interrupts.pin),
            messages: InterruptMessages::new(description.interrupts.msix_vectors),
            fetch_halt: 0,
            credit_mode: 0,
            relaxed_ordering: 1,
            max_payload: 5,
            max_read: 5,
            version: xdma.ip_version.into(),
            width_code: match xdma.data_width {
                64 => 0,
                128 => 1,
                256 => 2,
                _ => 3,
            },
            bus_device_function: description.pci.bus_device_function.into(),
            early_msix_writes_lost: description.quirks.early_msix_writes_lost,
            rules: EngineOptions {
                writeback: xdma.completed_writeback,
                long_descriptor_quirk: xdma.long_descriptor_quirk,
                busy_after_error: description.quirks.busy_after_error,
                stop_drops_empty: description.stream.stop_drops_empty,
                flush_timeout: 0,
            },
        }
    }

    pub(crate) fn reset(&mut self) {
        for channel in &mut self.channels {
            channel.reset();
        }
        self.irq.reset();
        self.messages.reset();
        (self.fetch_halt, self.credit_mode, self.lines) = (0, 0, 0);
        (self.relaxed_ordering, self.max_payload, self.max_read, self.rules.flush_timeout) = (1, 5, 5, 0);
    }

    /// Returns the number of channels of both directions. Engine numbers below it are H2C, then C2H.
    pub(crate) fn channels(&self) -> u32 {
        u32::try_from(self.channels.len()).unwrap_or(0)
    }

    /// Lets channel `number` (H2C first) do up to `most` units of work.
    pub(crate) fn work<H: HostPort + ?Sized>(
        &mut self,
        number: u32,
        lanes: &mut EngineContext<'_, H>,
        most: u32,
    ) -> StepResult {
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(channel) = self.channels.get_mut(place) else {
            return StepResult { units: 0, waiting: true };
        };
        let turn = channel.work(self.rules, lanes, most);
        set_line(&mut self.lines, place, channel);
        turn
    }

    /// Gives channel `unit` its descriptors from user logic. Returns whether the channel exists.
    pub(crate) fn set_bypass(&mut self, unit: Unit) -> bool {
        let found = self.channels.iter_mut().find(|channel| channel.unit == unit);
        found.map(|channel| channel.bypass = true).is_some()
    }

    /// Channels that take a descriptor of user logic: H2C in bits 3:0, C2H in 7:4.
    pub(crate) fn takes_descriptors(&self) -> u32 {
        self.channels.iter().filter(|channel| channel.takes_descriptor()).fold(0, |mask, channel| {
            let shift = if channel.direction == Direction::H2c { 0 } else { 4 };
            mask | 1 << (channel.index + shift)
        })
    }

    /// Loads a descriptor of user logic. Returns whether channel `unit` has taken it.
    pub(crate) fn load(&mut self, unit: Unit, descriptor: &LoadedDescriptor) -> bool {
        let found = self.channels.iter_mut().find(|channel| channel.unit == unit);
        found.is_some_and(|channel| channel.load(descriptor))
    }

    /// Returns the next unit of a channel.
    pub(crate) fn next_unit(&self, number: u32) -> Work {
        let channel = usize::try_from(number).ok().and_then(|place| self.channels.get(place));
        channel.map_or(Work::Instant, Channel::next_unit)
    }

    /// Channel whose completed count is at `offset` of the DMA BAR.
    pub(crate) fn count_of(&self, offset: u32) -> Option<Unit> {
        let target = offset >> 12;
        let channel = self.channels.get(self.number(target, offset)?)?;
        (target < 2 && offset & 0xFF == crate::offsets::channel::COMPLETED).then_some(channel.unit)
    }

    /// Returns whether these bytes of the DMA BAR are channel registers, which affect no interrupt lines except those of the channels.
    pub(crate) const fn is_of_channels(offset: u64, length: usize) -> bool {
        let last = offset.saturating_add(length as u64).saturating_sub(1);
        matches!(offset >> 12, 0 | 1 | 4 | 5) && offset >> 12 == last >> 12
    }

    /// Time at which a timer gives work to a stream channel that waits for data.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.channels.iter().filter_map(Channel::deadline).min()
    }

    /// Interrupt lines, H2C in the low bits and C2H directly above.
    pub(crate) const fn interrupt_lines(&self) -> u32 {
        self.lines
    }

    /// Index of the channel for `offset` in an even (H2C) or odd (C2H) target.
    fn number(&self, target: u32, offset: u32) -> Option<usize> {
        let number = usize::try_from(offset >> 8 & 0xF).ok()?;
        if target & 1 == 0 {
            Some(number).filter(|number| *number < self.h2c)
        } else {
            Some(self.h2c + number)
        }
    }

    /// Calls `access` with the channel of `offset`; returns the channel's index and the result.
    fn with_channel<T>(
        &mut self,
        target: u32,
        offset: u32,
        access: impl FnOnce(&mut Channel) -> T,
    ) -> Option<(usize, T)> {
        let number = self.number(target, offset)?;
        let channel = self.channels.get_mut(number)?;
        let result = access(channel);
        set_line(&mut self.lines, number, channel);
        Some((number, result))
    }

    fn identifier(&self, target: u32) -> u32 {
        0x1FC << 20 | target << 16 | self.version
    }

    /// Reads the dword at `offset` of the DMA BAR; `peek` reads without side effects. Unimplemented registers read as 0.
    pub(crate) fn read(&mut self, offset: u32, config: &ConfigSpace, now: Nanos, peek: bool) -> u32 {
        let target = offset >> 12;
        let register = offset & 0xFF;
        match target {
            0 | 1 | 4 | 5 => {
                let read = |channel: &mut Channel| {
                    if target < 4 { channel.read(register, now, peek) } else { channel.read_sgdma(register) }
                };
                self.with_channel(target, offset, read).map_or(0, |(_, word)| word)
            }
            2 | 3 | 6 if offset & 0xF00 != 0 => 0,
            2 | 3 | 6 if register == 0 => self.identifier(target),
            2 => self.irq.read(register),
            3 => self.read_config(register, config),
            6 => match register {
                sgdma_common::HALT => self.fetch_halt,
                sgdma_common::CREDIT_MODE => self.credit_mode,
                _ => 0,
            },
            8 => match offset & 0xFFF {
                table @ 0..0x200 => self.messages.msix.read(table),
                0xFE0 => self.messages.msix.pending(),
                _ => 0,
            },
            _ => 0,
        }
    }

    /// Writes a dword at `offset` of the DMA BAR. Returns the channels that may now have work, one bit each.
    pub(crate) fn write(
        &mut self,
        offset: u32,
        value: u32,
        config: &ConfigSpace,
        now: Nanos,
        faults: &mut FaultLog,
    ) -> u32 {
        let target = offset >> 12;
        let register = offset & 0xFF;
        match target {
            0 | 1 | 4 | 5 => {
                let write = |channel: &mut Channel| {
                    if target < 4 {
                        channel.write(register, value, now);
                    } else {
                        channel.write_sgdma(register, value, faults);
                    }
                };
                return self.with_channel(target, offset, write).map_or(0, |(number, ())| 1 << number);
            }
            8 if offset & 0xFFF < 0x200 => {
                if self.early_msix_writes_lost && !config.msix_enabled() {
                    faults.push(FaultKind::BadAccess, Unit::Xdma, offset.into(), value);
                } else {
                    self.messages.msix.write(offset & 0xFFF, value);
                }
            }
            2 | 3 | 6 if offset & 0xF00 != 0 => {}
            2 => self.irq.write(register, value),
            3 => match register {
                at::PCIE_CONTROL => self.relaxed_ordering = value & 1,
                at::USER_MAX_PAYLOAD => self.max_payload = value & 7,
                at::USER_MAX_READ_REQUEST => self.max_read = value & 7,
                at::WRITE_FLUSH_TIMEOUT => {
                    self.rules.flush_timeout = value & 0x1F;
                    // Applies to descriptors that are already open, too.
                    return (1 << self.channels()) - 1;
                }
                _ => {}
            },
            6 => {
                self.write_common(register, value);
                return (1 << self.channels()) - 1;
            }
            _ => {}
        }
        0
    }

    fn read_config(&self, register: u32, config: &ConfigSpace) -> u32 {
        match register {
            at::BUS_DEVICE_FUNCTION => self.bus_device_function,
            at::PCIE_MAX_PAYLOAD => config.max_payload(),
            at::PCIE_MAX_READ_REQUEST => config.max_read_request(),
            at::SYSTEM_ID => 0xFF01,
            at::INTERRUPT_MODE => fpga_registers::xdma::config::InterruptMode::new()
                .with_msi(config.msi_enabled())
                .with_msix(config.msix_enabled())
                .into_bits(),
            at::DATA_WIDTH => self.width_code,
            at::PCIE_CONTROL => self.relaxed_ordering,
            // The effective value is the smaller of the programmed one and the maximum of the build (4096).
            at::USER_MAX_PAYLOAD => self.max_payload.min(5) << 4 | self.max_payload,
            at::USER_MAX_READ_REQUEST => self.max_read.min(5) << 4 | self.max_read,
            at::WRITE_FLUSH_TIMEOUT => self.rules.flush_timeout,
            _ => 0,
        }
    }

    fn write_common(&mut self, register: u32, value: u32) {
        const CHANNELS: u32 = 0x000F_000F;
        let value = value & CHANNELS;
        match register {
            sgdma_common::HALT => self.fetch_halt = value,
            sgdma_common::HALT_SET => self.fetch_halt |= value,
            sgdma_common::HALT_CLEAR => self.fetch_halt &= !value,
            sgdma_common::CREDIT_MODE => self.credit_mode = value,
            sgdma_common::CREDIT_MODE_SET => self.credit_mode |= value,
            sgdma_common::CREDIT_MODE_CLEAR => self.credit_mode &= !value,
            _ => return,
        }
        let (halt, credit, h2c) = (self.fetch_halt, self.credit_mode, self.h2c);
        for (number, channel) in self.channels.iter_mut().enumerate() {
            let bit = if number < h2c { number } else { number - h2c + C2H_SHIFT };
            channel.set_fetch_halt(halt >> bit & 1 != 0);
            channel.set_credit_mode(credit >> bit & 1 != 0);
        }
    }
}
