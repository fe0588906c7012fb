//! Frames of frame streams, and conversions that publishers and subscribers share.

use core::ffi::c_char;
use std::net::SocketAddr;

use fpga_driver::Advice;
use fpga_frames::{Frame, LocalError, ReceivedFrame};
use fpga_rdma::Endpoint;

use crate::abi::Status;
use crate::call::{bytes, set, text};
use crate::code::StatusCode as _;
use crate::endpoint::CardEndpoint;
use crate::error::Failure;
use crate::handle::{self, Kind, Object};

/// Frame that a program fills, or has received.
pub(crate) enum AnyFrame {
    Filling(Frame),
    Received(ReceivedFrame),
}

// SAFETY: the only type of this kind.
unsafe impl Object for AnyFrame {
    const KIND: Kind = Kind::Frame;
}

/// Converts an error whose text names the card.
pub(crate) fn failed(status: Status, error: &dyn core::fmt::Display, advice: Option<&Advice>) -> Failure {
    Failure::of(status, &error.to_string()).advised(advice)
}

/// Returns the status of a failure of this node's card.
pub(crate) fn local(error: &LocalError) -> Status {
    match error {
        LocalError::Endpoint(error) => error.kind.status(),
        LocalError::Resource(error) => error.kind.status(),
        LocalError::Channel(error) => error.kind.status(),
        LocalError::Submit(error) => error.kind.status(),
        _ => Status::Fault,
    }
}

/// Takes the endpoint out of its handle, which is closed.
pub(crate) fn endpoint_of(handle_of: u64) -> Result<Endpoint, Failure> {
    // The kind is checked first, so that another handle is not entered.
    let entered = handle::enter_single::<CardEndpoint>(handle_of)?;
    Ok(handle::take::<CardEndpoint>(handle_of, entered)?.endpoint)
}

/// Parses an address with a port.
pub(crate) fn address(given: *const c_char) -> Result<SocketAddr, Failure> {
    let given = text(given, "the address")?;
    given.parse().map_err(|_| {
        Failure::argument(&format!("\"{given}\" is not an address and port, such as 192.0.2.1:7000"))
    })
}

/// Returns the number of a C2H channel, 0 being none.
pub(crate) fn c2h(plus_1: u32) -> Result<Option<u8>, Failure> {
    plus_1.checked_sub(1).map(crate::channel::number).transpose()
}

pub(crate) fn fpga_frame_data(frame: u64, data: *mut *mut u8, length: *mut usize) -> Result<(), Failure> {
    set(data, core::ptr::null_mut())?;
    set(length, 0)?;
    handle::with(frame, |frame: &mut AnyFrame| {
        let part = match frame {
            AnyFrame::Filling(frame) => frame.data_mut(),
            AnyFrame::Received(frame) => frame.data(),
        };
        let (address, size) = (part.host_address(), part.len());
        set(data, core::ptr::with_exposed_provenance_mut(address))?;
        set(length, size)
    })
}

pub(crate) fn fpga_frame_value(frame: u64, value: *mut *const u8, length: *mut usize) -> Result<(), Failure> {
    set(value, core::ptr::null())?;
    set(length, 0)?;
    handle::with(frame, |frame: &mut AnyFrame| {
        let AnyFrame::Received(frame) = frame else {
            return Err(Failure::argument("the frame was not received; fpga_frame_set_value sets its value"));
        };
        let (address, size) = (frame.value().host_address(), frame.value().len());
        set(value, core::ptr::with_exposed_provenance(address))?;
        set(length, size)
    })
}

/// Runs `body` with a frame that the program fills.
fn filling(frame: u64, body: impl FnOnce(&mut Frame) -> Result<(), Failure>) -> Result<(), Failure> {
    handle::with(frame, |frame: &mut AnyFrame| match frame {
        AnyFrame::Filling(frame) => body(frame),
        AnyFrame::Received(_) => Err(Failure::argument("the frame was received, and cannot be changed")),
    })
}

/// Converts the error of data that do not fit into a frame.
fn fits(done: Result<(), impl core::fmt::Display>) -> Result<(), Failure> {
    done.map_err(|error| Failure::of(Status::Range, &error.to_string()))
}

pub(crate) fn fpga_frame_set_length(frame: u64, length: usize) -> Result<(), Failure> {
    filling(frame, |frame| fits(frame.set_len(length)))
}

pub(crate) fn fpga_frame_write(frame: u64, data: *const u8, length: usize) -> Result<(), Failure> {
    let data = bytes(data, length)?;
    filling(frame, |frame| fits(frame.fill(data)))
}

pub(crate) fn fpga_frame_set_value(frame: u64, value: *const u8, length: usize) -> Result<(), Failure> {
    let value = bytes(value, length)?;
    filling(frame, |frame| fits(frame.set_value(value)))
}

pub(crate) fn fpga_frame_free(frame: u64) -> Result<(), Failure> {
    Ok(handle::close::<AnyFrame>(frame)?)
}
