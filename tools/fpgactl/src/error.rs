//! Failure of a command: its exit status, the problem, and what to do about it.
//!
//! An error is worded where it arises. This module has the errors that several commands have in common, and the conversions of the
//! libraries' errors, whose advice is put into terms of the command line here.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::time::Duration;

use fpga_driver::bulk::BulkError;

use fpga_driver::errors::ErrorKind;
use fpga_driver::recovery::RecoveryError;
use fpga_driver::stream::StreamError;
use fpga_driver::user_interrupt::UserInterruptError;
use fpga_driver::{CdmaError, ChannelError, Error, ErrorPlace, OpenError, ResourceError, TransferError};
use fpga_frames::{GeometryError, JoinError, PublishError, PublisherError, SubscriberError, TakeError};
use fpga_host::HostError;
use fpga_host::bind::BindError;
use fpga_pci::MmioError;
use fpga_rdma::{EndpointError, SendError};
use fpga_registers::quantity;
use xdma_compat::RunError;

use crate::machine_advice;
use crate::units::binary_size;
use crate::{advice, control::ControlError};

/// Exit status of a failure, of a wrong command line, and of the end that a reader of the data requested.
const FAILED: u8 = 1;
const USAGE: u8 = 2;
const CLOSED: u8 = 0;

/// Failure of a command. `Display` writes the problem, and with `{:#}` the advice in a second line.
#[derive(Debug)]
pub struct CliError {
    status: u8,
    text: String,
    help: Option<String>,
    /// The library's error.
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
    end: End,
}

/// Ends of a command that its callers distinguish.
#[derive(Debug, Default)]
enum End {
    #[default]
    Failed,
    /// The report on standard output contains the failure.
    Reported,
    /// A program below this one has failed, and has said why.
    Program,
    /// A signal stopped `what`; with the number of bytes that had arrived, if known.
    Stopped { what: String, done: Option<u64> },
    /// `what` ended early for this reason; the text has the state that it leaves, too.
    Early { what: String, reason: String },
}

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)?;
        match &self.help {
            Some(help) if f.alternate() => write!(f, "\nhelp: {help}"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for CliError {}

impl CliError {
    fn of(status: u8, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), help: None, cause: None, end: End::Failed }
    }

    /// Failure or refusal in spite of a valid command line: objects outside the program that are missing (files, sockets, functions on the
    /// bus), the content of a file, an action that needs `--force`, and an action that a card or a peer did not perform.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::of(FAILED, text)
    }

    /// Wrong command line, so that a corrected one would succeed: an unknown name (of a register, a field, a channel, a BAR, a built-in
    /// card), a number or size that does not fit its use, options that contradict each other or the card. `clap` uses the same status for
    /// the errors that it detects.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::of(USAGE, text)
    }

    /// Adds what to do about the error.
    #[must_use]
    pub fn advise(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Adds what to do about the error, if there is something.
    #[must_use]
    pub fn advised(self, help: Option<impl Into<String>>) -> Self {
        Self { help: help.map(Into::into), ..self }
    }

    /// Marks the failure as one that the report on standard output contains.
    #[must_use]
    pub fn reported(self) -> Self {
        Self { end: End::Reported, ..self }
    }

    /// Adds the library's error, for callers that distinguish it.
    pub(crate) fn because(self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { cause: Some(Box::new(cause)), ..self }
    }

    /// Error of a file.
    pub fn file(path: &Path, action: &'static str, source: io::Error) -> Self {
        let help = fpga_input::advice(&source);
        Self::failed(format!("{}: cannot {action}: {source}", path.display())).advise(help)
    }

    /// The reader of a data pipe has closed it. `| head` ends this way; it is not a failure.
    pub fn closed(path: &Path) -> Self {
        Self::of(CLOSED, format!("{}: the reader has closed the pipe", path.display()))
    }

    /// A program run below `run` has failed; it has said why.
    #[must_use]
    pub fn program(status: u8) -> Self {
        Self { end: End::Program, ..Self::of(status, format!("the program has ended with status {status}")) }
    }

    /// A signal stopped the command, which has kept nothing; `done`: bytes that had arrived, if known.
    pub fn stopped(what: impl Into<String>, done: Option<u64>) -> Self {
        let what = what.into();
        let after = done.map_or_else(String::new, |done| {
            format!(" after {} ({})", quantity(done, "byte"), binary_size(done))
        });
        let text = format!("{what}: stopped by a signal{after}; engines are stopped, and nothing was kept");
        Self { end: End::Stopped { what, done }, ..Self::failed(text) }
    }

    /// A signal interrupted the command, and `left` remains to be cleaned up.
    pub fn interrupted(what: impl Into<String>, left: &str) -> Self {
        let (what, reason) = (what.into(), "stopped by a signal".to_owned());
        Self {
            end: End::Early { what: what.clone(), reason },
            ..Self::failed(format!("{what}: stopped by a signal; {left}"))
        }
    }

    /// The time limit of the command line is over.
    pub fn timed_out(what: String, limit: Duration) -> Self {
        let reason = format!("not done after {limit:?} (--timeout)");
        let error =
            Self::failed(format!("{what}: {reason}")).advise("give more time, or see its progress with -v");
        Self { end: End::Early { what, reason }, ..error }
    }

    /// SIGINT and SIGTERM cannot be handled.
    pub fn signals(error: io::Error) -> Self {
        Self::failed(format!("signals cannot be waited for: {error}"))
    }

    /// No card was reached: the failure says nothing about a card.
    pub(crate) fn unreached(error: Error<OpenError>) -> Self {
        Self { cause: None, ..error.into() }
    }

    /// A register access of a card failed.
    pub fn mmio(card: &str, error: &MmioError) -> Self {
        Self::failed(format!("{card}: {error}")).advised(error.help())
    }

    /// The access may do harm.
    pub fn hazard(card: &str, what: impl std::fmt::Display, harm: &str) -> Self {
        Self::failed(format!("{card}: {what}: {harm}"))
            .advise("name the registers there with --map or --cdma-offset, or add --force to do it anyway")
    }

    /// Unpacks an error of this program's streams: the error it carries, or itself with the name of its file.
    pub fn carried(path: &Path, action: &'static str, error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(inner) => inner,
            Err(source) => Self::file(path, action, source),
        }
    }

    /// Returns what to do about the error, in terms of the command line.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Returns the library's error if it is of this type.
    pub(crate) fn cause<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.cause.as_ref()?.downcast_ref()
    }

    /// Returns whether a signal stopped the command, which has kept nothing, and the bytes that had arrived, if known.
    pub(crate) const fn stopped_after(&self) -> Option<Option<u64>> {
        match self.end {
            End::Stopped { done, .. } => Some(done),
            _ => None,
        }
    }

    /// Returns the reason of an early end, without the state that the command leaves.
    #[must_use]
    pub fn reason(&self) -> String {
        match &self.end {
            End::Stopped { what, .. } => format!("{what}: stopped by a signal"),
            End::Early { what, reason } => format!("{what}: {reason}"),
            End::Failed | End::Reported | End::Program => self.in_one_line(),
        }
    }

    /// As [`reason`](Self::reason), without the name of the command.
    #[must_use]
    pub fn short_reason(&self) -> String {
        match &self.end {
            End::Stopped { .. } => "stopped by a signal".to_owned(),
            End::Early { reason, .. } => reason.clone(),
            End::Failed | End::Reported | End::Program => self.in_one_line(),
        }
    }

    /// Returns problem and advice in one line, for the cell of a table or as a part of another message.
    #[must_use]
    pub fn in_one_line(&self) -> String {
        match &self.help {
            Some(help) => format!("{self}; {help}"),
            None => self.to_string(),
        }
    }

    /// Adds the progress in bytes if this is the end that a signal requested.
    #[must_use]
    pub fn after(self, bytes: u64) -> Self {
        match self.end {
            End::Stopped { what, done } => Self::stopped(what, Some(done.unwrap_or(0).max(bytes))),
            end => Self { end, ..self },
        }
    }

    /// Returns whether the report on standard output contains this failure already.
    #[must_use]
    pub const fn is_reported(&self) -> bool {
        matches!(self.end, End::Reported)
    }

    /// Returns whether a program below this one has failed, which has reported it.
    #[must_use]
    pub const fn is_of_program(&self) -> bool {
        matches!(self.end, End::Program)
    }

    /// Exit status: 2 for wrong usage, 0 if the reader of the data closed the pipe, that of a program below `run`, else 1.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        self.status
    }
}

/// Adds the file's name to an error. Interruptions stay unchanged: the caller retries.
pub(crate) fn wrap(path: &Path, action: &'static str, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::Interrupted => error,
        _ => io::Error::other(CliError::file(path, action, error)),
    }
}

/// Failure with the text of a library's error, and with its advice in terms of the command line.
fn library(
    error: impl std::error::Error + Send + Sync + 'static,
    help: Option<impl Into<String>>,
    is_usage: bool,
) -> CliError {
    CliError::of(if is_usage { USAGE } else { FAILED }, error.to_string()).advised(help).because(error)
}

/// Advice of the driver in terms of the command line.
fn driver<K: ErrorKind>(error: &Error<K>) -> Option<String> {
    error.advice().map(|advice| advice::render(&advice))
}

fn frames(advice: Option<fpga_driver::Advice>) -> Option<String> {
    advice.map(|advice| advice::render(&advice))
}

const NONE: Option<Cow<'static, str>> = None;

/// Converts errors of libraries: each with its advice, and with whether the command line is wrong.
macro_rules! from {
    ($($error:ty: $name:pat => $help:expr, $is_usage:expr;)*) => {
        $(impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                let $name = &error;
                let (help, is_usage) = ($help, $is_usage);
                library(error, help, is_usage)
            }
        })*
    };
}

from! {
    fpga_input::InputError: _ => NONE, false;
    fpga_sim::link::LinkKeyError: _ => NONE, false;
    crate::config::error::ConfigError: _ => NONE, false;
    fpga_register_map::MapError: _ => NONE, false;
    fpga_sim::DescriptionError: _ => NONE, false;
    fpga_netsim::file::FileError: _ => NONE, false;
    fpga_rtl::model::ModelError: error => error.help(), false;
    fpga_rtl::wrapper::WrapperError: error => error.help(), false;
    fpga_sim::served::ServeError: error => error.help(), false;
    fpgad::OwnerError: error => error.help(), false;
    ControlError: error => error.help(), false;
    RunError: error => match error {
        RunError::Nested { .. } => Some("start both programs below one `fpgactl run`"),
        _ => None,
    }, false;
    HostError: error => machine_advice::host(error), error.is_usage();
    BindError: error => machine_advice::bind(error), false;
    Error<OpenError>: error => match &error.kind {
        OpenError::Cause(cause) => machine_advice::open(cause),
        _ => None,
    }.or_else(|| driver(error).map(Cow::Owned)), false;
    Error<ResourceError>: error => driver(error),
        matches!(error.kind, ResourceError::NoSuchChannel { .. } | ResourceError::NoSuchUserInterrupt { .. });
    Error<UserInterruptError>: error => driver(error), false;
    Error<CdmaError>: error => driver(error), false;
    // Sizes from command-line options that contradict each other or the card.
    Error<EndpointError>: error => driver(error), matches!(error.kind, EndpointError::Config(_) | EndpointError::Option { .. });
    Error<SendError>: error => driver(error), false;
    Error<RecoveryError>: error => driver(error), matches!(error.kind, RecoveryError::NoSuchChannel { .. });
    PublisherError: error => frames(error.advice()), matches!(error, PublisherError::Geometry { .. } | PublisherError::Option { .. });
    // As for a publisher. Whether the publisher's frames fit into this card does not depend on the command line.
    JoinError: error => frames(error.advice()), matches!(error, JoinError::Geometry { cause: GeometryError::Slots { .. }, .. });
    TakeError: error => frames(error.advice()), false;
    PublishError: error => frames(error.advice()), false;
    SubscriberError: error => frames(error.advice()), false;
    fpga_frames::TooLong: _ => NONE, false;
}

impl From<fpga_sim::SimNetworkError> for CliError {
    fn from(error: fpga_sim::SimNetworkError) -> Self {
        Self::failed(format!("simulated cards: {error}")).advised(error.help())
    }
}

impl From<fpga_sim::link::LinkError> for CliError {
    fn from(error: fpga_sim::link::LinkError) -> Self {
        Self::failed(format!("--link {error}")).advised(error.help())
    }
}

/// Returns the end that a signal requested, if that is the reason of a channel's error.
fn cancelled(error: &ChannelError, place: &ErrorPlace, done: Option<u64>) -> Option<CliError> {
    matches!(error, ChannelError::Cancelled { .. }).then(|| CliError::stopped(place.to_string(), done))
}

impl From<Error<TransferError>> for CliError {
    fn from(error: Error<TransferError>) -> Self {
        match &error.kind {
            TransferError::Channel(cause) => cancelled(cause, &error.place, None),
            _ => None,
        }
        .unwrap_or_else(|| {
            let help = driver(&error);
            library(error, help, false)
        })
    }
}

impl From<Error<StreamError>> for CliError {
    fn from(error: Error<StreamError>) -> Self {
        match &error.kind {
            StreamError::Channel(cause) => cancelled(cause, &error.place, None),
            _ => None,
        }
        .unwrap_or_else(|| {
            let help = driver(&error);
            library(error, help, false)
        })
    }
}

impl From<Error<BulkError>> for CliError {
    fn from(mut error: Error<BulkError>) -> Self {
        match error.kind {
            BulkError::Channel { done, ref cause } => {
                if let Some(stopped) = cancelled(cause, &error.place, Some(done)) {
                    return stopped;
                }
            }
            BulkError::Stream { done, cause } => match cause.downcast::<Self>() {
                Ok(inner) => return inner.after(done),
                Err(cause) => error.kind = BulkError::Stream { done, cause },
            },
            _ => {}
        }
        let help = driver(&error);
        library(error, help, false)
    }
}
