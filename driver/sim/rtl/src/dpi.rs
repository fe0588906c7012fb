//! The functions that `fpga_xdma` imports by DPI-C (IEEE 1800-2017, clause 35).
//!
//! Only types of `svdpi.h` that have a fixed layout cross the boundary: `int` (32 bits), `longint` (64 bits), `string` (a C string that is
//! valid during the call) and packed bit vectors of 512 bits (16 words of 32 bits, the lowest first). No function of `svdpi.h` is needed.
//! A handle is the number of a simulation, checked at every call. A panic ends the process: unwinding must not cross the boundary.
#![expect(unsafe_code, reason = "pointers of the simulator, exported names")]

use std::ffi::{CStr, c_char};

use fpga_sim::LoadedDescriptor;

use crate::boundary;
use crate::burst::MAX_WIDTH;
use crate::stream::StreamBeat;

/// Words of a packed vector of 512 bits.
pub(crate) type Vector = [u32; MAX_WIDTH / 4];

/// Text of a DPI string; `None` for a null pointer.
///
/// # Safety
/// `text` is null or a C string that is valid during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller passes a C string that is valid during the call; the result is not kept.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// Writes an output argument.
///
/// # Safety
/// `into` is null or points to a value of that type that nothing else accesses during the call.
pub(crate) unsafe fn put<T>(into: *mut T, value: T) {
    // SAFETY: the simulator passes the address of its own temporary, of the type in the import declaration.
    if let Some(into) = unsafe { into.as_mut() } {
        *into = value;
    }
}

/// Begins the description of a simulation. Returns its handle, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_xdma_open(
    data_bits: i32,
    id_bits: i32,
    channels: i32,
    user_interrupts: i32,
    features: i32,
) -> i32 {
    boundary::open([data_bits, id_bits, channels, user_interrupts, features])
}

/// Sets an option.
///
/// # Safety
/// Both strings are null or C strings that are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_xdma_option(handle: i32, name: *const c_char, value: *const c_char) {
    // SAFETY: required of the caller.
    let (name, value) = unsafe { (text(name), text(value)) };
    boundary::option(handle, name.unwrap_or_default(), value.unwrap_or_default());
}

/// Builds the card and serves it. Returns the bits of `boundary::start`, or 0 after a message.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_xdma_start(handle: i32) -> i32 {
    boundary::start(handle)
}

/// Half a period of `axi_aclk` in ps; `otherwise` without the option `period`.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_xdma_half_period(handle: i32, otherwise: i32) -> i32 {
    boundary::half_period(handle, otherwise)
}

/// Begin of a cycle at simulated time `now` in ps; for the option `ratio`.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_xdma_pace(handle: i32, now: u64) {
    boundary::pace(handle, now);
}

/// End of a cycle; for triggers of the waveform. Returns 1 if it begins, 2 if it ends.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_xdma_trace(handle: i32) -> i32 {
    boundary::trace(handle)
}

/// Fires the trigger `design` of the waveform. A design may import it.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_xdma_trace_trigger() {
    boundary::trace_trigger();
}

/// Simulated time at the begin of a cycle, if the simulation is recorded.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_xdma_time(handle: i32, picoseconds: u64) {
    boundary::time(handle, picoseconds);
}

/// One cycle; returns the flags of `boundary::clock`.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_xdma_clock(handle: i32, requests: i32) -> u64 {
    boundary::clock(handle, requests.cast_unsigned())
}

/// Loads a descriptor at a bypass port: H2C channels 0 to 3, C2H channels 4 to 7.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_xdma_load(
    handle: i32,
    port: i32,
    source: u64,
    destination: u64,
    length: i32,
    control: i32,
) {
    let (length, control) = (length.cast_unsigned(), control.cast_unsigned());
    boundary::load(handle, port, &LoadedDescriptor { source, destination, length, control });
}

/// Next beat for the H2C stream port of `channel`. Returns 0 if there is none, 1, or 3 for the last one of a packet.
///
/// # Safety
/// `data` is null or points to a packed vector of 512 bits, `keep` to one of 64 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_xdma_stream_beat(
    handle: i32,
    channel: i32,
    data: *mut Vector,
    keep: *mut u64,
) -> i32 {
    let Some(beat) = boundary::stream_beat(handle, channel) else { return 0 };
    // SAFETY: required of the caller.
    unsafe {
        put(data, boundary::words(&beat.data));
        put(keep, beat.keep);
    }
    if beat.is_last { 3 } else { 1 }
}

/// A beat of the C2H stream port of `channel`.
///
/// # Safety
/// `data` is null or points to a packed vector of 512 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_xdma_stream_data(
    handle: i32,
    channel: i32,
    data: *const Vector,
    keep: u64,
    is_last: i32,
) {
    // SAFETY: required of the caller; the reference is not kept.
    let Some(data) = (unsafe { data.as_ref() }) else { return };
    let beat = StreamBeat { data: boundary::bytes(data), keep, is_last: is_last != 0 };
    boundary::stream_data(handle, channel, &beat);
}

/// Next write (`is_write` 1) or read command of a master (0 `m_axi`, 1 `m_axib`). Returns 1 if there is one: its id, address, number of
/// beats minus 1, burst type, and size of a beat (log2).
///
/// # Safety
/// The pointers are null or point to the simulator's variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_xdma_command(
    handle: i32,
    master: i32,
    is_write: i32,
    id: *mut i32,
    address: *mut u64,
    length: *mut i32,
    kind: *mut i32,
    size: *mut i32,
) -> i32 {
    let Some(command) = boundary::command(handle, master, is_write != 0) else { return 0 };
    // SAFETY: required of the caller.
    unsafe {
        put(id, command.id.cast_signed());
        put(address, command.at);
        put(length, i32::try_from(command.beats.saturating_sub(1)).unwrap_or(0));
        put(kind, i32::from(!command.is_fixed));
        put(size, command.size.cast_signed());
    }
    1
}

/// Next beat of write data. Returns 0 if there is none, 1, or 3 for the last one of a burst.
///
/// # Safety
/// `data` is null or points to a packed vector of 512 bits, `strobes` to one of 64 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_xdma_write_data(
    handle: i32,
    master: i32,
    data: *mut Vector,
    strobes: *mut u64,
) -> i32 {
    let Some(beat) = boundary::write_data(handle, master) else { return 0 };
    // SAFETY: required of the caller.
    unsafe {
        put(data, boundary::words(&beat.data));
        put(strobes, beat.strobes);
    }
    if beat.is_last { 3 } else { 1 }
}

/// A write response.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_xdma_write_response(handle: i32, master: i32, id: i32, response: i32) {
    boundary::write_response(handle, master, id.cast_unsigned(), response.cast_unsigned());
}

/// A beat of read data.
///
/// # Safety
/// `data` is null or points to a packed vector of 512 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_xdma_read_data(
    handle: i32,
    master: i32,
    id: i32,
    data: *const Vector,
    response: i32,
    is_last: i32,
) {
    // SAFETY: required of the caller; the reference is not kept.
    let Some(data) = (unsafe { data.as_ref() }) else { return };
    let response = response.cast_unsigned();
    boundary::read_data(handle, master, id.cast_unsigned(), &boundary::bytes(data), response, is_last != 0);
}

/// Next register access. Returns 0 if there is none, 1 for a read, 2 for a write.
///
/// # Safety
/// The pointers are null or point to the simulator's variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_xdma_register(
    handle: i32,
    address: *mut i32,
    value: *mut i32,
    strobes: *mut i32,
) -> i32 {
    let Some(access) = boundary::register(handle) else { return 0 };
    // SAFETY: required of the caller.
    unsafe {
        put(address, fpga_registers::cast::low32(access.at).cast_signed());
        put(value, access.value.unwrap_or(0).cast_signed());
        put(strobes, access.strobes.into());
    }
    if access.value.is_some() { 2 } else { 1 }
}

/// Response to the register access.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_xdma_register_response(handle: i32, value: i32, response: i32) {
    boundary::register_response(handle, value.cast_unsigned(), response.cast_unsigned());
}

/// Ends the simulation's server.
#[unsafe(no_mangle)]
pub extern "C" fn fpga_xdma_close(handle: i32) {
    boundary::close(handle);
}
