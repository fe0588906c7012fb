//! C interface of the driver: `include/fpga.h` documents every function for C programs.
//!
//! This package is a foreign-language boundary and nothing else. Every function
//!
//! * checks its pointers and handles, and returns a status instead of a fault. A handle is a number that names a slot of a table,
//!   so a wrong, closed or foreign handle is an error;
//! * keeps the text, the advice and the place of its error for `fpga_last_error`, per thread;
//! * catches panics: a defect of the driver is the status `FPGA_ERROR_INTERNAL`, and does not cross the boundary.
#![expect(unsafe_code, reason = "pointers of foreign callers")]

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
mod frames;
mod handle;
mod interrupt;
mod layout;
mod map;
mod network;
mod publisher;
mod recovery;
mod region;
mod remote;
mod status;
mod stream;
mod subscriber;
mod transfer;
mod wait;

pub use status::Status;
