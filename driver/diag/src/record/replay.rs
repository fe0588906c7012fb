//! Replay of a log against a card.

use core::time::Duration;

use fpga_pci::{Backend, Bar, BarError, MmioError};
use fpga_registers::BarOffset;

use super::log::{Entry, Log, Value};
use super::{AccessDirection, Width};

/// Options of a replay.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Replay {
    /// Keep the recorded time between accesses. A sequence that waits for hardware needs it.
    pub paced: bool,
    /// Registers (BAR and offset) that are accessed but not compared.
    pub ignored: Vec<(u8, BarOffset)>,
}

/// Result of a replay.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Replayed {
    /// Number of reads made.
    pub reads: u64,
    /// Number of writes made.
    pub writes: u64,
    /// Number of reads that were not compared, because of the log or of the caller's options.
    pub not_compared: u64,
    /// First difference; nothing was accessed after it.
    pub difference: Option<Difference>,
    /// The caller stopped the replay before the end of the log.
    pub stopped: bool,
}

/// Difference between the card and the recorded one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Access with the recorded value.
    pub entry: Entry,
    /// Value found now, or the error as text.
    pub found: Result<u64, String>,
}

/// Error of a log that cannot be replayed on a card. Nothing was accessed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The card has no such BAR, or the BAR cannot be opened.
    #[error("line {line}: {source}; replay the log on a card with the same BARs as the recorded card")]
    Bar {
        /// Line of the first access to it.
        line: usize,
        /// Reason.
        r#source: BarError,
    },
    /// The BAR is smaller than the recorded one.
    #[error(
        "line {line}: BAR {bar} ends at {size:#x}, before the access at {at}; replay the log on a card with the same BARs as the recorded card"
    )]
    Outside {
        /// Line of the access.
        line: usize,
        /// BAR number.
        bar: u8,
        /// Size of the BAR in bytes.
        size: u64,
        /// Offset of the access.
        at: BarOffset,
    },
}

/// Maximum time between two calls of `go_on`.
const TIMEOUT: Duration = Duration::from_millis(50);

/// Makes the accesses of `log` on a card, up to the first difference: a read of another value, an access that fails although the recorded
/// one succeeded, or the reverse. `go_on` is called before each access and while time passes; it returns false to stop.
///
/// Bus mastering is not enabled, so an engine that a log starts cannot access memory of the recorded run.
///
/// # Errors
/// [`ReplayError`], before the first access.
pub fn replay(
    backend: &dyn Backend,
    log: &Log,
    options: &Replay,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Replayed, ReplayError> {
    let mut bars: [Option<Bar>; 6] = [const { None }; 6];
    for entry in log.entries() {
        let Some(slot) = bars.get_mut(usize::from(entry.bar)) else { continue };
        if slot.is_none() {
            let opened = backend.open_bar(entry.bar);
            *slot = Some(opened.map_err(|source| ReplayError::Bar { line: entry.line, source })?);
        }
        let size = slot.as_ref().map_or(0, Bar::size);
        let end = entry.at.get().checked_add(entry.width.bytes());
        if end.is_none_or(|end| end > size) {
            return Err(ReplayError::Outside { line: entry.line, bar: entry.bar, size, at: entry.at });
        }
    }
    let mut done = Replayed::default();
    let first = log.entries().first().map_or(Duration::ZERO, |entry| entry.time);
    let start = backend.now();
    for entry in log.entries() {
        let Some(bar) = bars.get(usize::from(entry.bar)).and_then(Option::as_ref) else { continue };
        let due = entry.time.saturating_sub(first);
        let mut logged = false;
        loop {
            if !go_on() {
                done.stopped = true;
                return Ok(done);
            }
            let passed = Duration::from_nanos(backend.now().saturating_sub(start));
            if !options.paced || passed >= due {
                break;
            }
            if !core::mem::replace(&mut logged, true) {
                tracing::debug!(line = entry.line, remaining = ?(due - passed), "waiting for the time of the next access");
            }
            backend.pause((due - passed).min(TIMEOUT));
        }
        if (entry.direction, entry.value) == (AccessDirection::Write, Value::Failed) {
            // The recorded write did not take place, and its value is not known.
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

/// Makes one access. For a write, returns the value that was written.
fn access(bar: &Bar, entry: &Entry) -> Result<u64, MmioError> {
    let at = entry.at;
    let value = match entry.value {
        Value::Number(value) => value,
        // Such values occur only in reads.
        Value::Any | Value::Failed => 0,
    };
    match (entry.direction, entry.width) {
        (AccessDirection::Read, Width::Byte | Width::Half | Width::Word) => bar.read32(at).map(u64::from),
        (AccessDirection::Read, Width::Pair) => bar.read64(at),
        // A word of a log fits 32 bits: the parser refuses larger values.
        (AccessDirection::Write, Width::Word) => {
            bar.write32(at, u32::try_from(value).unwrap_or(u32::MAX)).map(|()| value)
        }
        (AccessDirection::Write, width @ (Width::Byte | Width::Half)) => {
            let bytes = value.to_le_bytes();
            let count = if width == Width::Byte { 1 } else { 2 };
            bar.write_narrow(at, bytes.get(..count).unwrap_or_default()).map(|()| value)
        }
        (AccessDirection::Write, Width::Pair) => bar.write64(at, value).map(|()| value),
    }
}
