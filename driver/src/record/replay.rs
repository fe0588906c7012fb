//! Runs a log against a card.

use core::time::Duration;

use fpga_pci::{Backend, Bar, BarError, MmioError};
use fpga_registers::BarOffset;

use super::log::{Entry, Log, Value};
use super::{AccessDirection, Width};

/// How a log is run.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Replay {
    /// Let as much time pass between accesses as when they were recorded. A sequence that waits for hardware needs it.
    pub paced: bool,
    /// Registers, BAR and offset, that are accessed and not compared.
    pub ignored: Vec<(u8, BarOffset)>,
}

/// What came of a log.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Replayed {
    /// Reads that were made.
    pub reads: u64,
    /// Writes that were made.
    pub writes: u64,
    /// Reads that were not compared, because the log or the caller says so.
    pub not_compared: u64,
    /// The first difference; nothing was accessed after it.
    pub difference: Option<Difference>,
    /// The caller wanted it to end before the log's end.
    pub stopped: bool,
}

/// A card that did something else than the recorded one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// The access.
    pub entry: Entry,
    /// What came of it now; an error in words.
    pub found: Result<u64, String>,
}

/// A log cannot be run against a card. Nothing was accessed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// It has no such BAR, or not one of that kind.
    #[error("line {line}: {source}; replay it on a card like the one that it was recorded on")]
    Bar {
        /// Line of the first access to it.
        line: usize,
        /// Why it was not opened.
        source: BarError,
    },
    /// The BAR is smaller than the recorded one's.
    #[error(
        "line {line}: BAR {bar} ends at {size:#x}, before the access at {at}; replay it on a card like the one that it was recorded on"
    )]
    Outside {
        /// Line of the access.
        line: usize,
        /// Which BAR.
        bar: u8,
        /// Bytes of it.
        size: u64,
        /// Where the access would go.
        at: BarOffset,
    },
}

/// Longest time without a look whether it is to go on.
const TIMEOUT: Duration = Duration::from_millis(50);

/// Makes the accesses of `log` on a card, up to the first that goes otherwise than recorded: a read of another value, or an access
/// that fails where it did not, or the other way round. `go_on` is asked before each access, and while time passes.
///
/// The card is not given the right to do DMA: an engine that a log starts finds no memory of the run that was recorded.
///
/// # Errors
/// [`ReplayError`], before the first access.
pub fn replay(
    transport: &dyn Backend,
    log: &Log,
    options: &Replay,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Replayed, ReplayError> {
    let mut bars: [Option<Bar>; 6] = [const { None }; 6];
    for entry in log.entries() {
        let Some(place) = bars.get_mut(usize::from(entry.bar)) else { continue };
        if place.is_none() {
            let opened = transport.open_bar(entry.bar);
            *place = Some(opened.map_err(|source| ReplayError::Bar { line: entry.line, source })?);
        }
        let size = place.as_ref().map_or(0, Bar::size);
        let end = entry.at.get().checked_add(entry.width.bytes());
        if end.is_none_or(|end| end > size) {
            return Err(ReplayError::Outside { line: entry.line, bar: entry.bar, size, at: entry.at });
        }
    }
    let mut done = Replayed::default();
    let first = log.entries().first().map_or(Duration::ZERO, |entry| entry.time);
    let start = transport.now();
    for entry in log.entries() {
        let Some(bar) = bars.get(usize::from(entry.bar)).and_then(Option::as_ref) else { continue };
        let due = entry.time.saturating_sub(first);
        let mut told = false;
        loop {
            if !go_on() {
                done.stopped = true;
                return Ok(done);
            }
            let passed = Duration::from_nanos(transport.now().saturating_sub(start));
            if !options.paced || passed >= due {
                break;
            }
            if !core::mem::replace(&mut told, true) {
                tracing::debug!(line = entry.line, left = ?(due - passed), "waiting for the next access");
            }
            transport.pause((due - passed).min(TIMEOUT));
        }
        if (entry.direction, entry.value) == (AccessDirection::Write, Value::Failed) {
            // It wrote nothing then, and nobody knows what it would have been.
            done.not_compared += 1;
            continue;
        }
        let found = access(bar, entry);
        match entry.direction {
            AccessDirection::Read => done.reads += 1,
            AccessDirection::Write => done.writes += 1,
        }
        let same = match (entry.value, &found) {
            (Value::Number(value), Ok(found)) => value == *found,
            (Value::Failed, Err(_)) => true,
            (Value::Any, Ok(_)) => {
                done.not_compared += 1;
                true
            }
            _ => false,
        };
        if same {
            continue;
        }
        if entry.direction == AccessDirection::Read && options.ignored.contains(&(entry.bar, entry.at)) {
            done.not_compared += 1;
            continue;
        }
        done.difference = Some(Difference { entry: *entry, found: found.map_err(|error| error.to_string()) });
        break;
    }
    Ok(done)
}

/// Makes one access; of a write, the value that was written.
fn access(bar: &Bar, entry: &Entry) -> Result<u64, MmioError> {
    let at = entry.at;
    let value = match entry.value {
        Value::Number(value) => value,
        // Of reads alone.
        Value::Any | Value::Failed => 0,
    };
    match (entry.direction, entry.width) {
        (AccessDirection::Read, Width::Word) => bar.read32(at).map(u64::from),
        (AccessDirection::Read, Width::Pair) => bar.read64(at),
        // A log's word fits 32 bits: the parser refuses others.
        (AccessDirection::Write, Width::Word) => {
            bar.write32(at, u32::try_from(value).unwrap_or(u32::MAX)).map(|()| value)
        }
        (AccessDirection::Write, Width::Pair) => bar.write64(at, value).map(|()| value),
    }
}
