//! AXI4-Stream channels: packets between host memory and the card.
//!
//! A packet becomes a `bytes` object, or is copied into memory of the program: the card's buffers return to the ring with the next call, and
//! no Python object refers to them.

mod receive;
mod send;

use fpga_driver::stream::{C2hStreamOptions, StreamError};
use pyo3::prelude::*;

use crate::card::Card;
use crate::error::{Class, Classify, Failure};
use crate::numbers;
pub(crate) use receive::{C2hStream, Packets};
pub(crate) use send::H2cStream;

impl Classify for StreamError {
    fn class(&self) -> Class {
        match self {
            Self::Packet(_) => Class::PacketLostError,
            Self::Fault(_) => Class::TransferFault,
            Self::Channel(error) => error.class(),
            Self::Posted { .. } => Class::InUseError,
            Self::Stopped => Class::StreamStoppedError,
            Self::Submit(error) => error.class(),
            Self::BufferTooLarge { .. } => Class::RangeError,
            _ => Class::RefusedError,
        }
    }
}

#[pymethods]
impl Card {
    fn h2c_stream(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::number)] number: u8,
    ) -> Result<H2cStream, Failure> {
        H2cStream::open(py, &self.0, number)
    }

    #[pyo3(signature = (number, *, buffers = 64, buffer_size = 4096))]
    fn c2h_stream(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers::number)] number: u8,
        #[pyo3(from_py_with = numbers::buffers)] buffers: u32,
        #[pyo3(from_py_with = numbers::buffer_size)] buffer_size: usize,
    ) -> Result<C2hStream, Failure> {
        let options = C2hStreamOptions::default().buffers(buffers).buffer_size(buffer_size);
        C2hStream::open(py, &self.0, number, options)
    }
}
