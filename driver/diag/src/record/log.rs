//! Text format of recorded register accesses: one access per line, readable for people and for `replay`.
//!
//! ```text
//! register-log 1
//! # seconds   access  BAR  offset  value
//!    0.000001500 read    bar1 0x0040 0x00000006  # h2c0.status = ...
//!    0.000003000 write   bar1 0x0004 0x00000001
//! ```
//!
//! The first line that is neither empty nor a comment is [`HEAD`]. Each further line is one access: seconds since the first access (on the
//! card's clock), `read` or `write` (`read64` and `write64` for 8 bytes at once, `write8` and `write16` for bytes of a register), the BAR, the offset in it, and the value. Text after `#`
//! is a comment. A value can be `failed` if the access was refused or not answered. For a read it can be `any`, written by a user who knows
//! that the value differs each time.

use core::fmt;
use core::time::Duration;
use std::io::{self, BufRead, Read};

use fpga_registers::{BarOffset, quantity};

use super::{Access, AccessDirection, Width};

/// First line: name and version of the format.
pub const HEAD: &str = "register-log 1";

/// Maximum length of a line, in bytes.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// Maximum number of accesses in a log.
const MAX_ACCESSES: usize = 1 << 24;

/// Value of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// Number.
    Number(u64),
    /// Any value: the value of a read that is not compared.
    Any,
    /// The access failed.
    Failed,
}

/// Line of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Line number in the text, from 1; 0 for an entry that is not part of a text.
    pub line: usize,
    /// Time since the first access.
    pub time: Duration,
    /// Read or write.
    pub direction: AccessDirection,
    /// Size of the access.
    pub width: Width,
    /// Number of the BAR, 0 to 5.
    pub bar: u8,
    /// Offset in the BAR in bytes, a multiple of the width.
    pub at: BarOffset,
    /// Value read or written.
    pub value: Value,
}

impl Entry {
    /// Creates the entry of an access. `start` is the time of the first access, in nanoseconds of the same clock.
    #[must_use]
    pub fn of(access: &Access, start: u64) -> Self {
        Self {
            line: 0,
            time: Duration::from_nanos(access.time.saturating_sub(start)),
            direction: access.direction,
            width: access.width,
            bar: access.bar,
            at: access.at,
            value: access.value.map_or(Value::Failed, Value::Number),
        }
    }

    const fn word(&self) -> &'static str {
        match (self.direction, self.width) {
            // The hardware has no narrower reads.
            (AccessDirection::Read, Width::Byte | Width::Half | Width::Word) => "read",
            (AccessDirection::Read, Width::Pair) => "read64",
            (AccessDirection::Write, Width::Byte) => "write8",
            (AccessDirection::Write, Width::Half) => "write16",
            (AccessDirection::Write, Width::Word) => "write",
            (AccessDirection::Write, Width::Pair) => "write64",
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, bar, at, width, .. } = self;
        let (seconds, nanos) = (time.as_secs(), time.subsec_nanos());
        write!(f, "{seconds:>6}.{nanos:09} {:<7} bar{bar} {:#06x} ", self.word(), at.get())?;
        match (self.value, width) {
            (Value::Number(value), width) => {
                write!(f, "{value:#0digits$x}", digits = 2 + 2 * usize::try_from(width.bytes()).unwrap_or(8))
            }
            (Value::Any, _) => f.write_str("any"),
            (Value::Failed, _) => f.write_str("failed"),
        }
    }
}

/// Log of accesses, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    entries: Vec<Entry>,
}

/// Error of reading a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The text could not be read.
    #[error("{0}")]
    Unreadable(io::Error),
    /// A line is invalid.
    #[error("line {line}: {problem}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// Reason.
        problem: LineProblem,
    },
}

/// Reason why a line is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineProblem {
    /// The first line is not the header of a log.
    #[error(
        "the file is not a register log: the first line must be \"{HEAD}\"; `--record FILE` writes such a log"
    )]
    Header,
    /// The version of the format is unknown.
    #[error("format version {0} is not supported; this program reads version 1")]
    Version(String),
    /// The text has no header line.
    #[error("the text is empty; `--record FILE` writes a log")]
    Empty,
    /// The number of words is wrong.
    #[error(
        "\"{0}\" is not an access: write seconds, read or write, BAR, offset and value, such as 0.000001500 read bar1 0x0040 0x00000006"
    )]
    Columns(String),
    /// The time is invalid.
    #[error("\"{0}\" is not a time: write seconds with at most nine fractional digits")]
    Time(String),
    /// The access is neither a read nor a write.
    #[error("\"{0}\" is not an access: write read, write, read64 or write64")]
    Way(String),
    /// The BAR is invalid.
    #[error("\"{0}\" is not a BAR: write bar0 to bar5")]
    Bar(String),
    /// The offset is invalid.
    #[error(
        "\"{text}\" is not an offset: write bytes from the start of the BAR, a multiple of {width}, such as 0x40"
    )]
    Offset {
        /// Word that was found.
        text: String,
        /// Size of the access in bytes.
        width: u64,
    },
    /// The value is invalid.
    #[error(
        "\"{text}\" is not a value: write a number of {width}, such as 0x1, or failed{}",
        if *read { ", or any" } else { "" },
        width = quantity(*width, "byte"),
    )]
    Value {
        /// Word that was found.
        text: String,
        /// Size of the access in bytes.
        width: u64,
        /// The access is a read.
        read: bool,
    },
    /// The line is longer than the maximum.
    #[error("the line has more than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// The log has more accesses than the maximum.
    #[error("the log has more than {MAX_ACCESSES} accesses; replay a part of it")]
    TooMany,
    /// The bytes are not valid text.
    #[error("the text is not valid UTF-8")]
    NoText,
}

impl Log {
    /// Returns the accesses.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Parses the text of a log.
    ///
    /// # Errors
    /// [`LogError::Line`].
    pub fn parse(text: &str) -> Result<Self, LogError> {
        Self::read(text.as_bytes())
    }

    /// Reads a log from a reader.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn read(mut reader: impl BufRead) -> Result<Self, LogError> {
        let mut log = Self::default();
        let mut seen_head = false;
        let mut bytes = Vec::new();
        let mut number = 0;
        loop {
            bytes.clear();
            // One byte more than the maximum line, for the line feed.
            let read = reader.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut bytes)?;
            if read == 0 {
                break;
            }
            number += 1;
            let fail = |problem| LogError::Line { line: number, problem };
            if read > MAX_LINE_BYTES {
                return Err(fail(LineProblem::TooLong));
            }
            let line = str::from_utf8(&bytes).map_err(|_| fail(LineProblem::NoText))?;
            let content = line.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            if !seen_head {
                head(content).map_err(fail)?;
                seen_head = true;
                continue;
            }
            if log.entries.len() >= MAX_ACCESSES {
                return Err(fail(LineProblem::TooMany));
            }
            let entry = entry(content).map_err(fail)?;
            log.entries.push(Entry { line: number, ..entry });
        }
        if seen_head {
            Ok(log)
        } else {
            Err(LogError::Line { line: number.max(1), problem: LineProblem::Empty })
        }
    }
}

fn head(content: &str) -> Result<(), LineProblem> {
    let (name, version) = content.split_once(char::is_whitespace).unwrap_or((content, ""));
    match (HEAD.split_once(' '), version.trim()) {
        (Some((known, _)), _) if name != known => Err(LineProblem::Header),
        (Some((_, known)), version) if version == known => Ok(()),
        (_, version) => Err(LineProblem::Version(shown(version))),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

fn entry(content: &str) -> Result<Entry, LineProblem> {
    let mut words = content.split_whitespace();
    let columns = [(); 5].map(|()| words.next());
    let ([Some(seconds), Some(access), Some(bar), Some(offset), Some(text)], None) = (columns, words.next())
    else {
        return Err(LineProblem::Columns(shown(content)));
    };
    let time = time(seconds).ok_or_else(|| LineProblem::Time(shown(seconds)))?;
    let (way, width) = match access {
        "read" => (AccessDirection::Read, Width::Word),
        "read64" => (AccessDirection::Read, Width::Pair),
        "write" => (AccessDirection::Write, Width::Word),
        "write64" => (AccessDirection::Write, Width::Pair),
        "write8" => (AccessDirection::Write, Width::Byte),
        "write16" => (AccessDirection::Write, Width::Half),
        _ => return Err(LineProblem::Way(shown(access))),
    };
    let number = match bar.strip_prefix("bar").map(str::as_bytes) {
        Some([digit @ b'0'..=b'5']) => digit - b'0',
        _ => return Err(LineProblem::Bar(shown(bar))),
    };
    let at = number_of(offset).filter(|at| at.is_multiple_of(width.bytes()));
    let at = at.ok_or_else(|| LineProblem::Offset { text: shown(offset), width: width.bytes() })?;
    let fits = |value: &u64| width == Width::Pair || *value >> (8 * width.bytes()) == 0;
    let value = match text {
        "failed" => Some(Value::Failed),
        "any" if way == AccessDirection::Read => Some(Value::Any),
        _ => number_of(text).filter(fits).map(Value::Number),
    };
    let value = value.ok_or_else(|| LineProblem::Value {
        text: shown(text),
        width: width.bytes(),
        read: way == AccessDirection::Read,
    })?;
    Ok(Entry { line: 0, time, direction: way, width, bar: number, at: BarOffset::new(at), value })
}

/// Parses seconds with at most nine fractional digits, exactly.
fn time(text: &str) -> Option<Duration> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9}").parse().ok()?;
    // More than a few thousand years would overflow the clock types.
    let seconds = seconds.parse::<u64>().ok().filter(|seconds| *seconds < 1 << 40)?;
    Some(Duration::new(seconds, nanos))
}

/// Parses a number: decimal, or hexadecimal with 0x.
fn number_of(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    // The standard parser would also accept a sign.
    digits.starts_with(|c: char| c.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, radix).ok())?
}

impl From<io::Error> for LogError {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}
