//! Frames of streams with one publisher and any number of subscribers, and what both sides have in common.

use core::ffi::c_char;
use std::net::SocketAddr;

use fpga_driver::Advice;
use fpga_frames::{Frame, LocalError, ReceivedFrame};
use fpga_rdma::Endpoint;

use crate::call::{bytes, call, set, text};
use crate::code::Code as _;
use crate::endpoint::CardEndpoint;
use crate::error::Failure;
use crate::handle::{self, Kind, Object};
use crate::status::Status;

/// Frame that a program fills, or has received.
pub(crate) enum AnyFrame {
    Filling(Frame),
    Received(ReceivedFrame),
}

// SAFETY: the only type of this kind.
unsafe impl Object for AnyFrame {
    const KIND: Kind = Kind::Frame;
}

/// Returns the failure of an error that names its card itself.
pub(crate) fn failed(status: Status, error: &dyn core::fmt::Display, advice: Option<&Advice>) -> Failure {
    Failure::of(status, &error.to_string()).advised(advice)
}

/// Code of a failure of the own card.
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

/// Returns the data of a frame.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_frame_data(frame: u64, data: *mut *mut u8, length: *mut usize) -> Status {
    call(|| {
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
    })
}

/// Returns the value of a received frame.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_frame_value(frame: u64, value: *mut *const u8, length: *mut usize) -> Status {
    call(|| {
        set(value, core::ptr::null())?;
        set(length, 0)?;
        handle::with(frame, |frame: &mut AnyFrame| {
            let AnyFrame::Received(frame) = frame else {
                return Err(Failure::argument(
                    "the frame was not received; fpga_frame_set_value sets its value",
                ));
            };
            let (address, size) = (frame.value().host_address(), frame.value().len());
            set(value, core::ptr::with_exposed_provenance(address))?;
            set(length, size)
        })
    })
}

/// Runs `body` with a frame that the program fills.
fn filling(frame: u64, body: impl FnOnce(&mut Frame) -> Result<(), Failure>) -> Result<(), Failure> {
    handle::with(frame, |frame: &mut AnyFrame| match frame {
        AnyFrame::Filling(frame) => body(frame),
        AnyFrame::Received(_) => Err(Failure::argument("the frame was received, and cannot be changed")),
    })
}

fn fits(done: Result<(), impl core::fmt::Display>) -> Result<(), Failure> {
    done.map_err(|error| Failure::of(Status::Range, &error.to_string()))
}

/// Sets the length of a frame's data.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_frame_set_length(frame: u64, length: usize) -> Status {
    call(|| filling(frame, |frame| fits(frame.set_len(length))))
}

/// Copies data into a frame.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_frame_write(frame: u64, data: *const u8, length: usize) -> Status {
    call(|| {
        let data = bytes(data, length)?;
        filling(frame, |frame| fits(frame.fill(data)))
    })
}

/// Sets the value in front of a frame's data.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_frame_set_value(frame: u64, value: *const u8, length: usize) -> Status {
    call(|| {
        let value = bytes(value, length)?;
        filling(frame, |frame| fits(frame.set_value(value)))
    })
}

/// Returns a frame to its stream.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_frame_free(frame: u64) -> Status {
    call(|| Ok(handle::close::<AnyFrame>(frame)?))
}
