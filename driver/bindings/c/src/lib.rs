//! C interface of the driver. `include/fpga.h` declares and documents every function, structure and number; `build.rs` makes Rust types and
//! exported functions of it (`abi`, `exports`). README.md lists which file implements which section of the header.
//!
//! This package is a foreign-language boundary and nothing else. Every function
//!
//! * checks its pointers and handles, and returns a status instead of a fault. A handle is the index of a slot in a table (`handle`),
//!   so a wrong, closed or foreign handle is an error;
//! * records its error for `fpga_last_error`, per thread (`error`);
//! * catches panics (`call`): a defect of the driver is the status `FPGA_ERROR_INTERNAL`.
#![expect(unsafe_code, reason = "pointers of foreign callers")]

mod abi;
mod advice;
mod buffer;
mod buffer_free;
mod call;
mod card;
mod cdma;
mod cdma_ring;
mod channel;
mod code;
mod endpoint;
mod endpoint_options;
mod error;
mod exports;
mod failures;
mod frames;
mod handle;
mod interrupt;
mod map;
#[cfg(feature = "sim")]
mod network;
mod publisher;
mod recovery;
mod region;
mod remote;
mod stream;
mod subscriber;
mod transfer;
mod wait;
