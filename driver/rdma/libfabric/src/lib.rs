//! Provider `fpga` of libfabric: messages, tagged messages, remote memory access and atomic operations between hosts, over FPGA cards.
//!
//! This package is a foreign-language boundary: tables of functions, structures of the headers, and the semantics of libfabric's objects. Everything that moves
//! data is in `fpga-messages`. Every function
//!
//! * checks its pointers, handles, counts and flags, as far as that is possible, and returns an error code instead of a fault;
//! * catches panics: a defect of the provider is the error `FI_EOTHER`, and does not cross the boundary.
//!
//! # Locks
//!
//! One lock per endpoint protects its engine; a call that posts takes no other one. A completion queue has a lock for its entries, which is taken with the
//! endpoint's lock held, never the other way round. Lists of endpoints (`sources`) are locked before endpoints.
#![expect(unsafe_code, reason = "pointers of foreign callers")]

mod access;
mod access_counters;
mod atomic;
mod atomic_unit;
mod code;
mod counter;
mod domain;
mod endpoint;
mod endpoint_core;
mod engine;
mod entry;
mod events;
mod fabric;
mod hints;
mod info;
mod log;
mod memory;
mod message;
mod object;
mod polls;
mod posting;
mod progress;
mod provider;
mod queue;
mod queue_calls;
mod region;
mod resolve;
mod sources;
mod staging;
mod sys;
mod tagged;
#[cfg(test)]
mod tests;
mod unsupported;
mod vector;
mod vector_calls;
mod wait;

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr::null_mut;
use sys::{API_VERSION, FiProvider};

/// Structure that the library keeps a context in.
struct Shared(UnsafeCell<FiProvider>);

// SAFETY: only libfabric accesses the structure, and it serialises its initialisation.
unsafe impl Sync for Shared {}

static PROVIDER: Shared = Shared(UnsafeCell::new(FiProvider {
    version: provider_version(),
    fi_version: API_VERSION,
    context: [null_mut(); 4],
    name: c"fpga".as_ptr(),
    getinfo: provider::getinfo,
    fabric: provider::fabric,
    cleanup: provider::cleanup,
}));

/// Version of this package as libfabric writes versions.
const fn provider_version() -> u32 {
    sys::version(number(env!("CARGO_PKG_VERSION_MAJOR")), number(env!("CARGO_PKG_VERSION_MINOR")))
}

/// Value of decimal digits.
const fn number(digits: &str) -> u32 {
    match u32::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

/// Entry point of the library: returns the provider's description, a `struct fi_provider`.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut c_void {
    PROVIDER.0.get().cast()
}
