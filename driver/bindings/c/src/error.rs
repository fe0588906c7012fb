//! The last error of each thread.

use core::ffi::{CStr, c_char};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ffi::CString;

use fpga_driver::errors::{CardPart, ErrorKind};
use fpga_driver::{ChannelName, Direction, Error, ErrorPlace};
use fpga_pci::OtherProcess;

use crate::advice::render;
use crate::code::{Code, Position};
use crate::layout::c_struct;
use crate::status::Status;

/// Failure of a call.
pub(crate) struct Failure {
    status: Status,
    message: String,
    advice: Option<String>,
    card: String,
    part: (i32, u32),
    position: Position,
}

/// Parts of a card, as in the header.
const PART_CARD: i32 = 0;
const PART_H2C: i32 = 1;
const PART_C2H: i32 = 2;
const PART_CDMA: i32 = 3;
const PART_CDMA_RING: i32 = 4;
const PART_USER_INTERRUPT: i32 = 5;
const PART_ENDPOINT: i32 = 6;

fn part_of(place: &ErrorPlace) -> (i32, u32) {
    match place.part() {
        CardPart::Channel(ChannelName { direction: Direction::C2h, number }) => (PART_C2H, number.into()),
        CardPart::Channel(ChannelName { number, .. }) => (PART_H2C, number.into()),
        CardPart::Cdma => (PART_CDMA, 0),
        CardPart::CdmaRing => (PART_CDMA_RING, 0),
        CardPart::UserInterrupt(line) => (PART_USER_INTERRUPT, line.into()),
        CardPart::Endpoint => (PART_ENDPOINT, 0),
        _ => (PART_CARD, 0),
    }
}

impl Failure {
    pub(crate) fn of(status: Status, message: &str) -> Self {
        Self {
            status,
            message: message.to_owned(),
            advice: None,
            card: String::new(),
            part: (PART_CARD, 0),
            position: Position::default(),
        }
    }

    pub(crate) fn on_card(status: Status, error: &impl core::fmt::Display, card: &str) -> Self {
        Self { card: card.to_owned(), ..Self::of(status, &format!("{card}: {error}")) }
    }

    pub(crate) fn null(what: &str) -> Self {
        Self::of(Status::Argument, &format!("{what} is NULL or too long"))
    }

    /// An argument that has an impossible value.
    pub(crate) fn argument(message: &str) -> Self {
        Self::of(Status::Argument, message)
    }

    pub(crate) fn advise(self, advice: &str) -> Self {
        Self { advice: Some(advice.to_owned()), ..self }
    }

    /// The same, with this advice, if any.
    pub(crate) fn advise_some(self, advice: Option<Cow<'static, str>>) -> Self {
        Self { advice: advice.map(Cow::into_owned), ..self }
    }

    /// The same, with the advice of the driver if there is any.
    pub(crate) fn advised(self, advice: Option<&fpga_driver::Advice>) -> Self {
        Self { advice: advice.map(render), ..self }
    }

    /// The same, of the card's endpoint.
    pub(crate) fn in_endpoint(self) -> Self {
        Self { part: (PART_ENDPOINT, 0), ..self }
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
                let other = OTHER.get();
                Self::of(status, &other.to_string()).advise(other.help())
            }
            _ => Self::of(Status::Internal, "unexpected state of a handle"),
        }
    }
}

impl<K: ErrorKind + Code> From<Error<K>> for Failure {
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

c_struct! {
    /// Error as C programs see it.
    ErrorView = "fpga_error" {
        /// Status of the call.
        status: i32,
        /// Part of the card, and its number.
        part: i32,
        part_number: u32,
        reserved: u32,
        /// The problem, in one line.
        message: *const c_char,
        /// Advice; empty if there is none.
        advice: *const c_char,
        /// Name of the card; empty if the error concerns none.
        card: *const c_char,
        /// Position of a failed transfer; all ones where it is not known.
        host_address: u64,
        card_address: u64,
        length: u64,
        bytes_done: u64,
        descriptor: u64,
    }
}

struct Texts {
    view: ErrorView,
    // The view points into these.
    _message: CString,
    _advice: CString,
    _card: CString,
}

thread_local! {
    /// Process of the handle with which the last call of this thread failed.
    static OTHER: Cell<OtherProcess> = const { Cell::new(OtherProcess { process: 0 }) };
}

/// Keeps the process of a handle for the text of [`Status::Process`].
#[cold]
pub(crate) fn note_process(other: OtherProcess) {
    OTHER.set(other);
}

thread_local! {
    static LAST: RefCell<Option<Box<Texts>>> = const { RefCell::new(None) };
}

/// Converts a text; zero bytes, which no message has, would end it early.
fn text(text: String) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

#[cold]
pub(crate) fn record(failure: Failure) -> Status {
    let (message, advice, card) =
        (text(failure.message), text(failure.advice.unwrap_or_default()), text(failure.card));
    let position = failure.position;
    let view = ErrorView {
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
    // A thread that ends has no last error.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(texts));
    failure.status
}

/// Returns the error of the last failed call of this thread; null if none has failed. Valid until the next failed call of this thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_last_error() -> *const ErrorView {
    LAST.try_with(|last| last.borrow().as_ref().map_or(core::ptr::null(), |texts| &raw const texts.view))
        .unwrap_or(core::ptr::null())
}

/// Returns the name of a status, such as `timed out`; `unknown status` for a number that is none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_status_name(status: i32) -> *const c_char {
    let name: &CStr = usize::try_from(status)
        .ok()
        .and_then(|index| Status::ALL.get(index))
        .map_or(c"unknown status", |(_, name)| name);
    name.as_ptr()
}
