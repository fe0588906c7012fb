//! Failures of calls, and the last failure of each thread for `fpga_last_error`.

use core::ffi::c_char;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ffi::CString;

use fpga_driver::errors::{CardPart, ErrorKind};
use fpga_driver::{ChannelName, Direction, Error, ErrorPlace};
use fpga_pci::OtherProcess;

use crate::abi::{
    FPGA_PART_C2H, FPGA_PART_CARD, FPGA_PART_CDMA, FPGA_PART_CDMA_RING, FPGA_PART_ENDPOINT, FPGA_PART_H2C,
    FPGA_PART_USER_INTERRUPT, Status, fpga_error,
};
use crate::advice::render;
use crate::code::{Position, StatusCode};

/// Failure of a call: what `fpga_error` has.
pub(crate) struct Failure {
    status: Status,
    message: String,
    advice: Option<String>,
    card: String,
    /// `fpga_part` and its number.
    part: (i32, u32),
    position: Position,
}

/// Returns the `fpga_part` of an error and its number.
fn part_of(place: &ErrorPlace) -> (i32, u32) {
    match place.part() {
        CardPart::Channel(ChannelName { direction: Direction::C2h, number }) => {
            (FPGA_PART_C2H, number.into())
        }
        CardPart::Channel(ChannelName { number, .. }) => (FPGA_PART_H2C, number.into()),
        CardPart::Cdma => (FPGA_PART_CDMA, 0),
        CardPart::CdmaRing => (FPGA_PART_CDMA_RING, 0),
        CardPart::UserInterrupt(line) => (FPGA_PART_USER_INTERRUPT, line.into()),
        CardPart::Endpoint => (FPGA_PART_ENDPOINT, 0),
        _ => (FPGA_PART_CARD, 0),
    }
}

impl Failure {
    pub(crate) fn of(status: Status, message: &str) -> Self {
        Self {
            status,
            message: message.to_owned(),
            advice: None,
            card: String::new(),
            part: (FPGA_PART_CARD, 0),
            position: Position::default(),
        }
    }

    pub(crate) fn on_card(status: Status, error: &impl core::fmt::Display, card: &str) -> Self {
        Self { card: card.to_owned(), ..Self::of(status, &format!("{card}: {error}")) }
    }

    /// Argument `name` is NULL, or longer than memory can be.
    pub(crate) fn null(name: &str) -> Self {
        Self::argument(&format!("{name} is NULL or too long"))
    }

    /// An argument has an impossible value.
    pub(crate) fn argument(message: &str) -> Self {
        Self::of(Status::Argument, message)
    }

    pub(crate) fn advise(self, advice: &str) -> Self {
        Self { advice: Some(advice.to_owned()), ..self }
    }

    /// Sets the advice, or removes it.
    pub(crate) fn advise_some(self, advice: Option<Cow<'static, str>>) -> Self {
        Self { advice: advice.map(Cow::into_owned), ..self }
    }

    /// Sets the advice of the driver, or removes it.
    pub(crate) fn advised(self, advice: Option<&fpga_driver::Advice>) -> Self {
        Self { advice: advice.map(render), ..self }
    }

    /// Sets the part of the card: its endpoint.
    pub(crate) fn in_endpoint(self) -> Self {
        Self { part: (FPGA_PART_ENDPOINT, 0), ..self }
    }

    pub(crate) const fn status(&self) -> Status {
        self.status
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        match status {
            Status::Handle => Self::of(status, "the handle is NULL, closed, or of another kind"),
            Status::Concurrent => Self::of(status, "another thread is in a call with this handle"),
            Status::NoMemory => Self::of(status, "too many handles are open"),
            Status::Process => {
                let other = OWNER.get();
                Self::of(status, &other.to_string()).advise(other.help())
            }
            _ => Self::of(Status::Internal, "unexpected state of a handle"),
        }
    }
}

impl<K: ErrorKind + StatusCode> From<Error<K>> for Failure {
    fn from(error: Error<K>) -> Self {
        Self {
            status: error.kind.status(),
            message: error.to_string(),
            advice: error.advice().map(|advice| render(&advice)),
            card: error.place.card().to_owned(),
            part: part_of(&error.place),
            position: error.kind.position(),
        }
    }
}

/// Error of `fpga_last_error`, and the texts that it points to.
struct Texts {
    view: fpga_error,
    _message: CString,
    _advice: CString,
    _card: CString,
}

thread_local! {
    /// Process that has opened the handle with which the last call of this thread failed.
    static OWNER: Cell<OtherProcess> = const { Cell::new(OtherProcess { process: 0 }) };
}

/// Records the process that has opened a handle, for the text of [`Status::Process`].
#[cold]
pub(crate) fn note_process(other: OtherProcess) {
    OWNER.set(other);
}

thread_local! {
    static LAST: RefCell<Option<Box<Texts>>> = const { RefCell::new(None) };
}

/// Converts a text without its zero bytes.
fn c_string(text: String) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// Makes a failure the last error of this thread, and returns its status.
#[cold]
pub(crate) fn record(failure: Failure) -> Status {
    let (message, advice, card) =
        (c_string(failure.message), c_string(failure.advice.unwrap_or_default()), c_string(failure.card));
    let position = failure.position;
    let view = fpga_error {
        status: failure.status as i32,
        part: failure.part.0,
        part_number: failure.part.1,
        reserved: 0,
        message: message.as_ptr(),
        advice: advice.as_ptr(),
        card: card.as_ptr(),
        host_address: position.host_address,
        card_address: position.card_address,
        length: position.length,
        bytes_done: position.bytes_done,
        descriptor: position.descriptor,
    };
    let texts = Box::new(Texts { view, _message: message, _advice: advice, _card: card });
    // Thread-local storage is gone while the thread ends.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(texts));
    failure.status
}

pub(crate) fn fpga_last_error() -> *const fpga_error {
    LAST.try_with(|last| last.borrow().as_ref().map_or(core::ptr::null(), |texts| &raw const texts.view))
        .unwrap_or(core::ptr::null())
}

pub(crate) fn fpga_status_name(status: i32) -> *const c_char {
    let known = Status::ALL.iter().find(|known| **known as i32 == status);
    known.map_or(c"unknown status", |status| status.text()).as_ptr()
}
