//! Cards: opening, properties and register access.

use core::ffi::c_char;

use fpga_driver::errors::{Cause, MmioError};
use fpga_driver::{
    Bar, BarOffset, Card, CardAddr, CardRange, CardSpec, NetworkInterface, OpenError, OpenOptions,
};

use crate::abi::{
    FPGA_BAR_DMA, FPGA_BAR_USER, FPGA_INTERFACE_DETECT, FPGA_INTERFACE_EXPECT, FPGA_INTERFACE_IGNORE, Status,
    fpga_card_info, fpga_open_options,
};
use crate::call::{copy_text, duration, read_options, set, set_if, text, write_struct};
use crate::code::StatusCode as _;
use crate::error::Failure;
use crate::handle;

pub(crate) fn fpga_open(name: *const c_char, out: *mut u64) -> Result<(), Failure> {
    set(out, 0)?;
    set(out, handle::add(Card::open(text(name, "the name of the card")?)?)?)
}

pub(crate) fn fpga_open_with(
    name: *const c_char,
    options: *const fpga_open_options,
    size: usize,
    out: *mut u64,
) -> Result<(), Failure> {
    set(out, 0)?;
    let (spec, options) = (spec(name)?, read_options(options, size)?.options()?);
    set(out, handle::add(Card::open_with(&spec, options)?)?)
}

/// Parses the name of a card, as in `fpgactl --card`.
pub(crate) fn spec(name: *const c_char) -> Result<CardSpec, Failure> {
    let parsed: Result<CardSpec, Cause> = text(name, "the name of the card")?.parse();
    parsed.map_err(|error| fpga_driver::Error::<OpenError>::from(error).into())
}

impl fpga_open_options {
    /// Returns the options for the driver.
    pub(crate) fn options(&self) -> Result<OpenOptions, Failure> {
        let mut options = OpenOptions::default().observe(self.observe != 0);
        options.network_interface = match self.network_interface {
            FPGA_INTERFACE_DETECT => NetworkInterface::BySubsystem,
            FPGA_INTERFACE_EXPECT => NetworkInterface::Expected,
            FPGA_INTERFACE_IGNORE => NetworkInterface::Ignored,
            _ => {
                return Err(Failure::argument(&format!(
                    "network_interface is {}, which is not a value of fpga_network_interface",
                    self.network_interface
                )));
            }
        };
        if let Some(bar) = self.dma_bar_plus_1.checked_sub(1) {
            let bar = u8::try_from(bar).ok().filter(|bar| *bar < 6);
            options = options.dma_bar(bar.ok_or_else(|| {
                Failure::argument(&format!("dma_bar_plus_1 is {}, the maximum is 6", self.dma_bar_plus_1))
            })?);
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

pub(crate) fn fpga_close(card: u64) -> Result<(), Failure> {
    Ok(handle::close_shared::<Card>(card)?)
}

pub(crate) fn fpga_get_info(card: u64, info: *mut fpga_card_info, size: usize) -> Result<(), Failure> {
    let card = handle::card(card)?;
    let xdma = &card.info().xdma;
    let ranges = card.memory_ranges().unwrap_or_default();
    let first = ranges.first().copied().unwrap_or_default();
    let (ids, ni) = (card.info().ids, card.info().ni.as_ref());
    let found = fpga_card_info {
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
}

pub(crate) fn fpga_get_memory_range(
    card: u64,
    index: u32,
    start: *mut u64,
    length: *mut u64,
) -> Result<(), Failure> {
    set(length, 0)?;
    let card = handle::card(card)?;
    let ranges = card.memory_ranges().unwrap_or_default();
    let range = usize::try_from(index).ok().and_then(|index| ranges.get(index));
    let range = range.ok_or_else(|| {
        let text = format!("there is no range {index} of card memory; {} are known", ranges.len());
        Failure::on_card(Status::Range, &text, card.name())
    })?;
    set(start, range.start.get())?;
    set(length, range.length)
}

pub(crate) fn fpga_enable_interrupts(card: u64, vectors: *mut u32) -> Result<(), Failure> {
    set_if(vectors, 0)?;
    let granted = handle::card(card)?.enable_interrupts()?;
    set_if(vectors, granted.vectors)
}

pub(crate) fn fpga_get_name(card: u64, name: *mut c_char, length: usize) -> Result<(), Failure> {
    let card = handle::card(card)?;
    copy_text(name, length, core::ptr::null_mut(), card.name())
}

/// Calls `access` with a BAR of a card, by its `fpga_bar`.
fn register<T>(card: u64, bar: i32, access: impl FnOnce(&Bar) -> Result<T, MmioError>) -> Result<T, Failure> {
    let card = handle::card(card)?;
    let bar = match bar {
        FPGA_BAR_DMA => Some(card.dma_bar()),
        FPGA_BAR_USER => card.user_bar(),
        _ => return Err(Failure::of(Status::Argument, "bar is neither FPGA_BAR_DMA nor FPGA_BAR_USER")),
    };
    let bar =
        bar.ok_or_else(|| Failure::on_card(Status::Unsupported, &"the card has no user BAR", card.name()))?;
    access(bar).map_err(|error| {
        let cause = Cause::from(error);
        Failure::on_card(cause.status(), &cause, card.name()).advised(cause.advice().as_ref())
    })
}

pub(crate) fn fpga_read32(card: u64, bar: i32, offset: u64, value: *mut u32) -> Result<(), Failure> {
    set(value, u32::MAX)?;
    set(value, register(card, bar, |bar| bar.read32(BarOffset::new(offset)))?)
}

pub(crate) fn fpga_write32(card: u64, bar: i32, offset: u64, value: u32) -> Result<(), Failure> {
    register(card, bar, |bar| bar.write32(BarOffset::new(offset), value))
}

pub(crate) fn fpga_read64(card: u64, bar: i32, offset: u64, value: *mut u64) -> Result<(), Failure> {
    set(value, u64::MAX)?;
    set(value, register(card, bar, |bar| bar.read64(BarOffset::new(offset)))?)
}

pub(crate) fn fpga_write64(card: u64, bar: i32, offset: u64, value: u64) -> Result<(), Failure> {
    register(card, bar, |bar| bar.write64(BarOffset::new(offset), value))
}
