//! Cards: opening, properties and register access.

use core::ffi::{CStr, c_char};

use fpga_driver::errors::MmioError;
use fpga_driver::{Bar, BarOffset, Card};

use crate::call::{bytes_mut, call, set};
use crate::error::Failure;
use crate::handle::{self, Object};
use crate::status::Status;

/// BARs of `fpga_bar_read32` and its siblings, as in the header.
const BAR_DMA: i32 = 0;
const BAR_USER: i32 = 1;

/// Properties of a card; `fpga_card_info` in C. New fields are added at the end.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct CardInfo {
    /// Number of H2C channels.
    pub h2c_channels: u32,
    /// Number of C2H channels.
    pub c2h_channels: u32,
    /// 1 if the channels are AXI4-Stream, 0 if they are memory mapped.
    pub stream: u32,
    /// Width of the data path in bits, 0 if unknown.
    pub data_width: u32,
    /// Number of ranges of card memory; 0 if they are unknown.
    pub memory_ranges: u32,
    /// 1 if the card has a network interface.
    pub network_interface: u32,
    /// First address of the first range of card memory.
    pub memory_start: u64,
    /// Length of the first range of card memory in bytes.
    pub memory_length: u64,
}

/// Opens a card by the strings of `fpgactl --card`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_open(name: *const c_char, out: *mut u64) -> Status {
    call(|| {
        set(out, 0)?;
        if name.is_null() {
            return Err(Failure::null("the name of the card"));
        }
        // SAFETY: not null; the header requires a string that ends in a zero byte.
        let name = unsafe { CStr::from_ptr(name) };
        let name = name.to_str().map_err(|_| Failure::of(Status::Argument, "the name is not UTF-8"))?;
        set(out, handle::add(Object::Card(Card::open(name)?))?)
    })
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
        let found = CardInfo {
            h2c_channels: xdma.h2c_channels.into(),
            c2h_channels: xdma.c2h_channels.into(),
            stream: xdma.stream.into(),
            data_width: xdma.data_width.unwrap_or(0),
            memory_ranges: u32::try_from(ranges.len()).unwrap_or(u32::MAX),
            network_interface: card.info().ni.is_some().into(),
            memory_start: first.start.get(),
            memory_length: first.length,
        };
        let known = size_of::<CardInfo>();
        let bytes = bytes_mut(info.cast::<u8>(), size)?;
        // SAFETY: `CardInfo` is `repr(C)` without padding: all of its bytes are initialised.
        let found = unsafe { core::slice::from_raw_parts((&raw const found).cast::<u8>(), known) };
        bytes.fill(0);
        for (to, from) in bytes.iter_mut().zip(found) {
            *to = *from;
        }
        Ok(())
    })
}

/// Copies the name of a card, with its zero byte, to `name`. `length` is the size of `name`; the name is cut to it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_get_name(card: u64, name: *mut c_char, length: usize) -> Status {
    call(|| {
        let card = handle::shared(card, Card::clone)?;
        let bytes = bytes_mut(name.cast::<u8>(), length)?;
        bytes.fill(0);
        let most = length.saturating_sub(1);
        for (to, from) in bytes.iter_mut().take(most).zip(card.name().bytes()) {
            *to = from;
        }
        Ok(())
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
    let bar = bar.ok_or_else(|| Failure::of(Status::Unsupported, "the card has no user BAR"))?;
    access(bar).map_err(|error| {
        let status = match error {
            MmioError::OutOfRange { .. } | MmioError::Misaligned { .. } => Status::Range,
            error if error.is_gone() => Status::Gone,
            _ => Status::System,
        };
        Failure::on_card(status, &error, card.name())
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
