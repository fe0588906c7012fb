//! Cards: opening, properties and register access.

use core::ffi::c_char;

use fpga_driver::errors::{Cause, MmioError};
use fpga_driver::{
    Bar, BarOffset, Card, CardAddr, CardRange, CardSpec, NetworkInterface, OpenError, OpenOptions,
};

use crate::call::{call, copy_text, duration, read_options, set, set_if, text, write_struct};
use crate::code::Code as _;
use crate::error::Failure;
use crate::handle;
use crate::layout::c_struct;
use crate::status::Status;

/// BAR numbers, as `fpga_bar` in the header.
const BAR_DMA: i32 = 0;
const BAR_USER: i32 = 1;

c_struct! {
    /// Options for opening a card. A member that is 0 stands for its default.
    COpen = "fpga_open_options" {
        dma_bar_plus_1: u32,
        network_interface: i32,
        observe: u32,
        has_cdma: u32,
        cdma_offset: u64,
        memory_start: u64,
        memory_length: u64,
        idle_timeout_ns: u64,
        dma_limit: u64,
    }
}

c_struct! {
    /// Properties of a card. New members are added at the end.
    CardInfo = "fpga_card_info" {
        /// Number of channels.
        h2c_channels: u32,
        c2h_channels: u32,
        /// 1 if the channels are AXI4-Stream, 0 if they are memory mapped.
        stream: u32,
        /// Width of the data path in bits, 0 if unknown.
        data_width: u32,
        /// Number of ranges of card memory; 0 if they are unknown.
        memory_ranges: u32,
        /// 1 if the card has a network interface.
        network_interface: u32,
        /// First range of card memory.
        memory_start: u64,
        memory_length: u64,
        /// PCI ids.
        vendor: u32,
        device: u32,
        subsystem_vendor: u32,
        subsystem_device: u32,
        /// Node id of the network interface.
        node: u32,
        /// 1 if the place of the CDMA engine is known.
        cdma: u32,
        /// 1 if there is a user BAR.
        user_bar: u32,
        /// Maximum payload and read request of PCIe in bytes, 0 if unknown.
        max_payload: u32,
        max_read_request: u32,
        reserved: u32,
    }
}

/// Opens a card by the strings of `fpgactl --card`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_open(name: *const c_char, out: *mut u64) -> Status {
    call(|| {
        set(out, 0)?;
        set(out, handle::add(Card::open(text(name, "the name of the card")?)?)?)
    })
}

/// Opens a card with options.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_open_with(
    name: *const c_char,
    options: *const COpen,
    size: usize,
    out: *mut u64,
) -> Status {
    call(|| {
        set(out, 0)?;
        let (spec, options) = (spec(name)?, read_options(options, size)?.options()?);
        set(out, handle::add(Card::open_with(&spec, options)?)?)
    })
}

/// Parses the name of a card.
pub(crate) fn spec(name: *const c_char) -> Result<CardSpec, Failure> {
    let parsed: Result<CardSpec, Cause> = text(name, "the name of the card")?.parse();
    parsed.map_err(|error| fpga_driver::Error::<OpenError>::from(error).into())
}

impl COpen {
    /// Options of the driver.
    pub(crate) fn options(&self) -> Result<OpenOptions, Failure> {
        let mut options = OpenOptions::default().observe(self.observe != 0);
        options.network_interface = match self.network_interface {
            0 => NetworkInterface::BySubsystem,
            1 => NetworkInterface::Expected,
            2 => NetworkInterface::Ignored,
            _ => return Err(Failure::argument("network_interface is no fpga_network_interface")),
        };
        if let Some(bar) = self.dma_bar_plus_1.checked_sub(1) {
            let bar = u8::try_from(bar).ok().filter(|bar| *bar < 6);
            options = options.dma_bar(bar.ok_or_else(|| Failure::argument("dma_bar_plus_1 is above 6"))?);
        }
        if self.has_cdma != 0 {
            options = options.cdma_offset(BarOffset::new(self.cdma_offset));
        }
        if self.memory_length != 0 {
            options =
                options.card_memory(CardRange::new(CardAddr::new(self.memory_start), self.memory_length));
        }
        if self.idle_timeout_ns != 0 {
            options = options.idle_timeout(duration(self.idle_timeout_ns));
        }
        if self.dma_limit != 0 {
            options.memory.limit = usize::try_from(self.dma_limit).unwrap_or(usize::MAX);
        }
        Ok(options)
    }
}

/// Closes a card. Its channels keep it open until they are closed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_close(card: u64) -> Status {
    call(|| Ok(handle::close_shared::<Card>(card)?))
}

/// Returns properties of a card. `size` is the size of the caller's structure: fields behind it are not written.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_get_info(card: u64, info: *mut CardInfo, size: usize) -> Status {
    call(|| {
        let card = handle::shared(card, Card::clone)?;
        let xdma = &card.info().xdma;
        let ranges = card.memory_ranges().unwrap_or_default();
        let first = ranges.first().copied().unwrap_or_default();
        let (ids, ni) = (card.info().ids, card.info().ni.as_ref());
        let found = CardInfo {
            h2c_channels: xdma.h2c_channels.into(),
            c2h_channels: xdma.c2h_channels.into(),
            stream: xdma.stream.into(),
            data_width: xdma.data_width.unwrap_or(0),
            memory_ranges: u32::try_from(ranges.len()).unwrap_or(u32::MAX),
            network_interface: ni.is_some().into(),
            memory_start: first.start.get(),
            memory_length: first.length,
            vendor: ids.vendor.into(),
            device: ids.device.into(),
            subsystem_vendor: ids.subsystem.0.into(),
            subsystem_device: ids.subsystem.1.into(),
            node: ni.map_or(0, |ni| ni.node.get()),
            cdma: card.info().cdma.is_some().into(),
            user_bar: card.user_bar().is_some().into(),
            max_payload: xdma.max_payload.unwrap_or(0),
            max_read_request: xdma.max_read_request.unwrap_or(0),
            reserved: 0,
        };
        write_struct(info, size, &found)
    })
}

/// Returns one range of card memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_get_memory_range(
    card: u64,
    index: u32,
    start: *mut u64,
    length: *mut u64,
) -> Status {
    call(|| {
        set(length, 0)?;
        let card = handle::shared(card, Card::clone)?;
        let ranges = card.memory_ranges().unwrap_or_default();
        let range = usize::try_from(index).ok().and_then(|index| ranges.get(index));
        let range = range.ok_or_else(|| {
            let text = format!("there is no range {index} of card memory; {} are known", ranges.len());
            Failure::on_card(Status::Range, &text, card.name())
        })?;
        set(start, range.start.get())?;
        set(length, range.length)
    })
}

/// Enables the card's interrupts.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_enable_interrupts(card: u64, vectors: *mut u32) -> Status {
    call(|| {
        set_if(vectors, 0)?;
        let granted = handle::shared(card, Card::clone)?.enable_interrupts()?;
        set_if(vectors, granted.vectors)
    })
}

/// Copies the name of a card, with its zero byte, to `name`. `length` is the size of `name`; the name is cut to it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_get_name(card: u64, name: *mut c_char, length: usize) -> Status {
    call(|| {
        let card = handle::shared(card, Card::clone)?;
        copy_text(name, length, core::ptr::null_mut(), card.name())
    })
}

/// Accesses a register of one BAR.
fn register<T>(card: u64, bar: i32, access: impl FnOnce(&Bar) -> Result<T, MmioError>) -> Result<T, Failure> {
    let card = handle::shared(card, Card::clone)?;
    let bar = match bar {
        BAR_DMA => Some(card.dma_bar()),
        BAR_USER => card.user_bar(),
        _ => return Err(Failure::of(Status::Argument, "bar is neither FPGA_BAR_DMA nor FPGA_BAR_USER")),
    };
    let bar =
        bar.ok_or_else(|| Failure::on_card(Status::Unsupported, &"the card has no user BAR", card.name()))?;
    access(bar).map_err(|error| {
        let cause = Cause::from(error);
        Failure::on_card(cause.status(), &cause, card.name()).advised(cause.advice().as_ref())
    })
}

/// Reads a 32-bit register.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_read32(card: u64, bar: i32, offset: u64, value: *mut u32) -> Status {
    call(|| {
        set(value, u32::MAX)?;
        set(value, register(card, bar, |bar| bar.read32(BarOffset::new(offset)))?)
    })
}

/// Writes a 32-bit register. The write is posted.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_write32(card: u64, bar: i32, offset: u64, value: u32) -> Status {
    call(|| register(card, bar, |bar| bar.write32(BarOffset::new(offset), value)))
}

/// Reads a 64-bit register.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_read64(card: u64, bar: i32, offset: u64, value: *mut u64) -> Status {
    call(|| {
        set(value, u64::MAX)?;
        set(value, register(card, bar, |bar| bar.read64(BarOffset::new(offset)))?)
    })
}

/// Writes a 64-bit register. The write is posted.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_write64(card: u64, bar: i32, offset: u64, value: u64) -> Status {
    call(|| register(card, bar, |bar| bar.write64(BarOffset::new(offset), value)))
}
