//! Record of a simulation (`+fpga_record=FILE`): one line per event, with the simulation's clock and the host's.
//!
//! The format is documented in this package's README. Fields are separated by one space, so that `$fscanf` reads them, too.

use std::fmt::{self, Arguments};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use fpga_pci::lock;
use fpga_pci::wait::system_monotonic_ns;
use fpga_sim::{HostEvent, HostObserver, Interrupt};

use crate::burst::MAX_WIDTH;
use crate::bus::{Command, WriteBeat};
use crate::lite::LiteAccess;
use crate::options::Parameters;
use crate::stream::StreamBeat;

/// First line: name and version of the format.
pub(crate) const HEAD: &str = "rtl-record 1";
/// Bytes that wait to be written.
const BUFFER: usize = 1 << 16;

/// A record being written.
#[derive(Debug)]
pub(crate) struct Record {
    /// `None` after a write error.
    out: Mutex<Option<BufWriter<File>>>,
    /// Simulated time of the cycle.
    cycle: AtomicU64,
    time_ps: AtomicU64,
    /// Bytes of the data bus.
    width: usize,
}

/// Records of this process, for [`flush_all`].
static OPEN: Mutex<Vec<Weak<Record>>> = Mutex::new(Vec::new());

/// Writes what the buffers of all records have: before the process ends without its destructors.
pub(crate) fn flush_all() {
    for record in lock(&OPEN).iter().filter_map(Weak::upgrade) {
        record.flush();
    }
}

impl Record {
    /// Creates the file, and writes its head and the parameters.
    pub(crate) fn create(path: &Path, parameters: &Parameters) -> std::io::Result<Arc<Self>> {
        let mut out = BufWriter::with_capacity(BUFFER, File::create(path)?);
        writeln!(out, "{HEAD}")?;
        out.flush()?;
        let record = Arc::new(Self {
            out: Mutex::new(Some(out)),
            cycle: AtomicU64::new(0),
            time_ps: AtomicU64::new(0),
            width: usize::try_from(parameters.data_bits / 8).unwrap_or(MAX_WIDTH).min(MAX_WIDTH),
        });
        let Parameters { data_bits, id_bits, channels, user_interrupts, .. } = parameters;
        let (stream, bypass) = (u8::from(parameters.stream), u8::from(parameters.bypass));
        record.line(format_args!(
            "parameters {data_bits} {id_bits} {channels} {user_interrupts} {stream} {bypass}"
        ));
        lock(&OPEN).push(Arc::downgrade(&record));
        Ok(record)
    }

    /// Sets the simulated time of the events that follow.
    pub(crate) fn set_time(&self, cycle: u64, picoseconds: u64) {
        self.cycle.store(cycle, Ordering::Relaxed);
        self.time_ps.store(picoseconds, Ordering::Relaxed);
    }

    /// Writes the lines that wait in the buffer.
    pub(crate) fn flush(&self) {
        let mut out = lock(&self.out);
        let result = out.as_mut().filter(|out| !out.buffer().is_empty()).map(BufWriter::flush);
        if let Some(Err(error)) = result {
            give_up(&mut out, &error);
        }
    }

    /// Writes an event.
    pub(crate) fn line(&self, event: Arguments<'_>) {
        let mut out = lock(&self.out);
        // Read under the lock, so that times of successive lines do not decrease.
        let (cycle, time) = (self.cycle.load(Ordering::Relaxed), self.time_ps.load(Ordering::Relaxed));
        let host = system_monotonic_ns();
        let result = out.as_mut().map(|out| writeln!(out, "{cycle} {time} {host} {event}"));
        if let Some(Err(error)) = result {
            give_up(&mut out, &error);
        }
    }

    pub(crate) fn command(&self, master: i32, is_write: bool, command: &Command) {
        let channel = if is_write { "aw" } else { "ar" };
        let Command { id, at, beats, is_fixed, size } = *command;
        let (length, kind) = (beats.saturating_sub(1), u8::from(!is_fixed));
        self.line(format_args!("{channel} {master} {id} {at:x} {length} {size} {kind}"));
    }

    pub(crate) fn write_data(&self, master: i32, beat: &WriteBeat) {
        let (data, last) = (self.hex(&beat.data), u8::from(beat.is_last));
        self.line(format_args!("w {master} {data} {:x} {last}", beat.strobes));
    }

    pub(crate) fn write_response(&self, master: i32, id: u32, code: u32) {
        self.line(format_args!("b {master} {id} {code}"));
    }

    pub(crate) fn read_data(&self, master: i32, id: u32, data: &[u8; MAX_WIDTH], code: u32, is_last: bool) {
        let (data, last) = (self.hex(data), u8::from(is_last));
        self.line(format_args!("r {master} {id} {data} {code} {last}"));
    }

    pub(crate) fn register(&self, access: &LiteAccess) {
        let LiteAccess { at, value, strobes } = access;
        match value {
            Some(value) => self.line(format_args!("lite_write {at:x} {value:08x} {strobes:x}")),
            None => self.line(format_args!("lite_read {at:x}")),
        }
    }

    pub(crate) fn register_response(&self, data: u32, code: u32) {
        self.line(format_args!("lite_response {data:08x} {code}"));
    }

    /// A beat of a stream port: `h2c` or `c2h`.
    pub(crate) fn stream(&self, port: &str, channel: usize, beat: &StreamBeat) {
        let (data, last) = (self.hex(&beat.data), u8::from(beat.is_last));
        self.line(format_args!("{port} {channel} {data} {:x} {last}", beat.keep));
    }

    /// Value of the data bus.
    fn hex<'a>(&self, data: &'a [u8; MAX_WIDTH]) -> Hex<'a> {
        Hex(data.get(..self.width).unwrap_or(data))
    }
}

fn give_up(out: &mut Option<BufWriter<File>>, error: &std::io::Error) {
    tracing::error!("the record cannot be written: {error}; it ends here, the simulation does not");
    // The rest of the buffer is lost: writing it would fail, too.
    if let Some(writer) = out.take() {
        let _ = writer.into_parts();
    }
}

/// Bytes as one hexadecimal number, the lowest byte last.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |nibble: u8| DIGITS.get(usize::from(nibble & 15)).copied().unwrap_or(b'0');
        // Text of several bytes at once: a call of the formatter for each digit is the larger part of a record's cost.
        for bytes in self.0.rchunks(MAX_WIDTH) {
            let mut text = [0; 2 * MAX_WIDTH];
            for (byte, into) in bytes.iter().rev().zip(text.as_chunks_mut::<2>().0) {
                *into = [digit(byte >> 4), digit(*byte)];
            }
            f.write_str(
                std::str::from_utf8(text.get(..2 * bytes.len()).unwrap_or_default()).unwrap_or_default(),
            )?;
        }
        Ok(())
    }
}

impl HostObserver for Record {
    fn observed(&self, event: &HostEvent<'_>) {
        match *event {
            HostEvent::BarRead { bar, offset, data } => {
                self.line(format_args!("bar_read {bar} {offset:x} {} {}", data.len(), Hex(data)));
            }
            HostEvent::BarWrite { bar, offset, data } => {
                self.line(format_args!("bar_write {bar} {offset:x} {} {}", data.len(), Hex(data)));
            }
            HostEvent::MemoryRead { at, length } => {
                self.line(format_args!("memory_read {:x} {length}", at.get()));
            }
            HostEvent::MemoryWrite { at, length } => {
                self.line(format_args!("memory_write {:x} {length}", at.get()));
            }
            HostEvent::MemoryRefused { at } => self.line(format_args!("memory_refused {:x}", at.get())),
            HostEvent::Interrupt(interrupt) => match interrupt {
                Interrupt::Msix(vector) => self.line(format_args!("msix {vector}")),
                Interrupt::Msi(message) => self.line(format_args!("msi {message}")),
                Interrupt::Line(level) => self.line(format_args!("intx {}", u8::from(level))),
                _ => {}
            },
            _ => {}
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_one_number() {
        assert_eq!(Hex(&[0x01, 0x02, 0xAB]).to_string(), "ab0201");
        assert_eq!(Hex(&[]).to_string(), "");
        let long: Vec<u8> = (0..100).collect();
        let expected: String = long.iter().rev().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(Hex(&long).to_string(), expected);
    }
}
