//! The functions that `fpga_cdma` imports. Types and rules are those of [`dpi`](crate::dpi).
#![expect(unsafe_code, reason = "pointers of the simulator, exported names")]

use crate::boundary;
use crate::bus::Bus;
use crate::cdma::{self, CdmaParameters};
use crate::dpi::{Vector, put};

/// Builds an instance. `features`: scatter-gather 0, DRE 1. Returns its handle, or -1 after a message.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_cdma_open(data_bits: i32, address_bits: i32, length_bits: i32, features: i32) -> i32 {
    boundary::begin_log();
    let [data_bits, address_bits, length_bits] =
        [data_bits, address_bits, length_bits].map(|value| u32::try_from(value).unwrap_or(0));
    let (sg, dre) = (features & 1 != 0, features & 2 != 0);
    match cdma::open(&CdmaParameters { data_bits, address_bits, length_bits, sg, dre }) {
        Ok(handle) => i32::try_from(handle).unwrap_or(-1),
        Err(error) => {
            tracing::error!("fpga_cdma: {}", error.with_help());
            -1
        }
    }
}

/// Reads the register at byte `offset`.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_cdma_read(handle: i32, offset: i32) -> i32 {
    cdma::with(handle, |cdma| cdma.read(offset.cast_unsigned())).unwrap_or(u32::MAX).cast_signed()
}

/// Writes the register at byte `offset`.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_cdma_write(handle: i32, offset: i32, value: i32) {
    cdma::with(handle, |cdma| cdma.write(offset.cast_unsigned(), value.cast_unsigned()));
}

/// One cycle. Flags: write command, write data and read command of the data master 2:0, of the descriptor master 6:4; `cdma_introut` 8.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_cdma_clock(handle: i32, is_reset: i32) -> i32 {
    let flags = cdma::with(handle, |cdma| cdma.clock(is_reset != 0)).unwrap_or_default();
    let [data, descriptors] = flags.masters;
    (data | descriptors << 4 | u32::from(flags.interrupt) << 8).cast_signed()
}

/// Next write (`is_write` 1) or read command of a master (0 data, 1 descriptors). Returns 1 if there is one: its address and number of
/// beats minus 1.
///
/// # Safety
/// The pointers are null or point to the simulator's variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_cdma_command(
    handle: i32,
    master: i32,
    is_write: i32,
    address: *mut u64,
    length: *mut i32,
) -> i32 {
    let command = cdma::with(handle, |cdma| cdma.bus(master, |bus| bus.command(is_write != 0)));
    let Some(Some(command)) = command else { return 0 };
    // SAFETY: required of the caller.
    unsafe {
        put(address, command.at);
        put(length, i32::try_from(command.beats.saturating_sub(1)).unwrap_or(0));
    }
    1
}

/// Next beat of write data. Returns 0 if there is none, 1, or 3 for the last one of a burst.
///
/// # Safety
/// `data` is null or points to a packed vector of 512 bits, `strobes` to one of 64 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_cdma_write_data(
    handle: i32,
    master: i32,
    data: *mut Vector,
    strobes: *mut u64,
) -> i32 {
    let Some(Some(beat)) = cdma::with(handle, |cdma| cdma.bus(master, Bus::data)) else { return 0 };
    // SAFETY: required of the caller.
    unsafe {
        put(data, boundary::words(&beat.data));
        put(strobes, beat.strobes);
    }
    if beat.is_last { 3 } else { 1 }
}

/// A write response.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_cdma_write_response(handle: i32, master: i32, response: i32) {
    cdma::with(handle, |cdma| {
        let result = cdma.bus(master, |bus| bus.write_response(0, response.cast_unsigned()));
        cdma.check(master, result);
    });
}

/// A beat of read data.
///
/// # Safety
/// `data` is null or points to a packed vector of 512 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_cdma_read_data(
    handle: i32,
    master: i32,
    data: *const Vector,
    response: i32,
    is_last: i32,
) {
    // SAFETY: required of the caller; the reference is not kept.
    let Some(data) = (unsafe { data.as_ref() }) else { return };
    let data = boundary::bytes(data);
    cdma::with(handle, |cdma| {
        let result = cdma.bus(master, |bus| bus.read_data(0, &data, response.cast_unsigned(), is_last != 0));
        cdma.check(master, result);
    });
}
