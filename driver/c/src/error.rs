//! The last error of each thread.

use core::ffi::{CStr, c_char};
use std::cell::RefCell;
use std::ffi::CString;

use fpga_driver::Error;
use fpga_driver::errors::ErrorKind;

use crate::advice::render;
use crate::status::{Code, Status};

/// Failure of a call.
pub(crate) struct Failure {
    status: Status,
    message: String,
    advice: Option<String>,
    card: String,
}

impl Failure {
    pub(crate) fn of(status: Status, message: &str) -> Self {
        Self { status, message: message.to_owned(), advice: None, card: String::new() }
    }

    pub(crate) fn on_card(status: Status, error: &impl core::fmt::Display, card: &str) -> Self {
        Self { status, message: format!("{card}: {error}"), advice: None, card: card.to_owned() }
    }

    pub(crate) fn null(what: &str) -> Self {
        Self::of(Status::Argument, &format!("{what} is NULL or too long"))
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        match status {
            Status::Handle => Self::of(status, "the handle is NULL, closed, or of another kind"),
            Status::Concurrent => Self::of(status, "another thread is in a call with this handle"),
            Status::NoMemory => Self::of(status, "too many handles are open"),
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
        }
    }
}

/// Error as C programs see it; `fpga_error` in C.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ErrorView {
    /// Status of the call.
    pub status: Status,
    /// The problem, in one line.
    pub message: *const c_char,
    /// Advice; empty if there is none.
    pub advice: *const c_char,
    /// Name of the card; empty if the error concerns none.
    pub card: *const c_char,
}

struct Texts {
    view: ErrorView,
    // The view points into these.
    _message: CString,
    _advice: CString,
    _card: CString,
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
    let view = ErrorView {
        status: failure.status,
        message: message.as_ptr(),
        advice: advice.as_ptr(),
        card: card.as_ptr(),
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
