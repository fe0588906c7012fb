//! Native part of the Python package `fpga_rdma`. The documentation for Python programs is in the package's stubs and docstrings.
//!
//! This package is a foreign-language boundary and nothing else.
//!
//! | Module | Contents |
//! |---|---|
//! | `card`, `card_state`, `info`, `recovery` | cards: opening and closing, properties, recovery |
//! | `bar`, `registers` | registers by offset; registers by name of a register map |
//! | `buffer`, `memory`, `export`, `foreign` | DMA buffers; regions of DMA memory; the buffer protocol; memory of other objects |
//! | `channel` | DMA channels: transfers, batches, tickets, cancellation |
//! | `stream` | AXI4-Stream channels |
//! | `interrupt` | user interrupts |
//! | `cdma` | copies inside the card |
//! | `endpoint` | transfers and reads between cards |
//! | `frames` | frame streams |
//! | `sim` | simulated cards and their network |
//! | `numbers`, `record` | integer arguments; dataclasses of the Python part |
//! | `owned`, `wait` | objects that threads share; limits and signals of waits |
//! | `error`, `advice` | exceptions, and the driver's advice in terms of Python |
//!
//! * Objects are shared by Python threads: a lock guards each channel, and the interpreter runs on during every wait.
//! * Ctrl-C ends every wait (`wait.rs`).
//! * An error is an exception of the package's hierarchy (`error.rs`) with the driver's text and its advice in terms of Python.
#![expect(unsafe_code, reason = "memory of Python objects")]

mod advice;
mod bar;
mod buffer;
mod card;
mod card_state;
mod cdma;
mod channel;
mod endpoint;
mod error;
mod export;
mod foreign;
mod frames;
mod info;
mod interrupt;
mod memory;
mod numbers;
mod owned;
mod record;
mod recovery;
mod registers;
mod sim;
mod stream;
mod wait;

/// Native module `fpga_rdma._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "name in Python")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use crate::{
        bar::Bar,
        buffer::Buffer,
        card::{Card, open},
        cdma::Cdma,
        channel::{Channel, Channels, PyTicket, PyTransfer},
        endpoint::{Endpoint, Notifications, Pending, Region},
        foreign::_nbytes,
        frames::{Publisher, Subscriber},
        interrupt::PyUserInterrupt,
        registers::Map,
        sim::{Network, SimulatedCard},
        stream::{C2hStream, H2cStream, Packets},
    };
}
