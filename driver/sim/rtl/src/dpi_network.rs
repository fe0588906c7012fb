//! The functions that `fpga_network` imports. Types and rules are those of [`dpi`](crate::dpi).
#![expect(unsafe_code, reason = "pointers of the simulator, exported names")]

use std::ffi::c_char;

use fpga_protocol::time::Nanos;

use crate::boundary;
use crate::dpi::{Vector, put, text};
use crate::network;
use crate::stream::StreamBeat;

/// Builds an instance. Returns its handle, or -1 after a message.
///
/// # Safety
/// `options` is null or a C string that is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_network_open(data_bits: i32, options: *const c_char) -> i32 {
    boundary::begin_log();
    // SAFETY: required of the caller.
    let options = unsafe { text(options) }.unwrap_or_default();
    match network::open(data_bits, options) {
        Ok(handle) => i32::try_from(handle).unwrap_or(-1),
        Err(error) => {
            tracing::error!("fpga_network: {error}");
            -1
        }
    }
}

/// A beat of the design, at simulated time `now` in ps.
///
/// # Safety
/// `data` is null or points to a packed vector of 512 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_network_send(
    handle: i32,
    now: u64,
    data: *const Vector,
    keep: u64,
    is_last: i32,
) {
    // SAFETY: required of the caller; the reference is not kept.
    let Some(data) = (unsafe { data.as_ref() }) else { return };
    let beat = StreamBeat { data: boundary::bytes(data), keep, is_last: is_last != 0 };
    network::send(handle, Nanos::new(now / 1000), &beat);
}

/// Next beat for the design, at simulated time `now` in ps. Returns 0 if there is none, 1, or 3 for the last one of a frame.
///
/// # Safety
/// `data` is null or points to a packed vector of 512 bits, `keep` to one of 64 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpga_network_beat(handle: i32, now: u64, data: *mut Vector, keep: *mut u64) -> i32 {
    let Some(beat) = network::beat(handle, Nanos::new(now / 1000)) else { return 0 };
    // SAFETY: required of the caller.
    unsafe {
        put(data, boundary::words(&beat.data));
        put(keep, beat.keep);
    }
    if beat.is_last { 3 } else { 1 }
}
