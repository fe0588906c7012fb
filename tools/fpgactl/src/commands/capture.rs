//! `dma read` on AXI4-Stream channels: packets, or bytes regardless of packets, are received into a file.
//!
//! The card has given up what was received, so it exists nowhere else. However the command ends, the packets that arrived whole stay in the
//! file and its index. An existing file is replaced only if something was received.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use fpga_driver::{
    C2hStream, Card, DmaBuffer, RunMode, WriteVolatile,
    stream::{C2hStreamOptions, StreamPart},
};
use fpga_registers::quantity;

use super::dma_report::{DataLocation, DmaReport};
use super::packets::open_streams;
use crate::error::CliError;
use crate::outfile::OutFile;
use crate::output;
use crate::progress::Progress;
use crate::settings::Settings;

const MAX_PACKET_BYTES: u32 = 64 << 10;
/// Bytes received at a time from a stream without packets.
const PART_BYTES: u64 = 64 << 10;
/// Header line of a packet index.
const INDEX_HEAD: &str = "packet,offset,length";

/// Destination of packet boundaries. The bytes go to one file, one packet after the other; the lengths go to a report or an index file if
/// requested.
struct PacketBoundaries<'a> {
    path: &'a Path,
    index: Option<BufWriter<OutFile>>,
    /// Lengths for a JSON report.
    lengths: Option<Vec<usize>>,
}

impl<'a> PacketBoundaries<'a> {
    fn new(settings: &Settings, index: Option<&'a Path>) -> Result<Self, CliError> {
        let path = index.unwrap_or(Path::new(""));
        let mut index =
            index.map(|path| OutFile::create(path, settings.deadline)).transpose()?.map(BufWriter::new);
        if let Some(index) = &mut index {
            writeln!(index, "{INDEX_HEAD}").map_err(|error| CliError::carried(path, "write it", error))?;
        }
        Ok(Self { path, index, lengths: settings.json.then(Vec::new) })
    }

    /// Adds packet `number`, counted from 0, which begins `offset` bytes into the file.
    fn add(&mut self, number: u64, offset: u64, length: usize) -> Result<(), CliError> {
        if let Some(lengths) = &mut self.lengths {
            lengths.push(length);
        }
        let Some(index) = &mut self.index else { return Ok(()) };
        writeln!(index, "{number},{offset},{length}")
            .map_err(|error| CliError::carried(self.path, "write it", error))
    }

    fn commit(self) -> Result<Option<Vec<usize>>, CliError> {
        if let Some(index) = self.index {
            let file = index.into_inner().map_err(std::io::IntoInnerError::into_error);
            file.map_err(|error| CliError::carried(self.path, "write it", error))?.commit()?;
        }
        Ok(self.lengths)
    }
}

/// Amount of data that is received from a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamAmount {
    /// Number of packets.
    Packets(u64),
    /// Number of bytes, regardless of packets.
    Bytes(u64),
}

/// Progress of receiving that has ended early.
fn received((packets, bytes, discarded): (u64, u64, u64), amount: StreamAmount, out: &Path) -> String {
    let count = match amount {
        StreamAmount::Packets(wanted) => {
            format!("{packets} of {} ({})", quantity(wanted, "packet"), quantity(bytes, "byte"))
        }
        StreamAmount::Bytes(wanted) => format!("{bytes} of {}", quantity(wanted, "byte")),
    };
    let rest = match discarded {
        0 => String::new(),
        bytes => format!(", {} of incomplete packets were discarded", quantity(bytes, "byte")),
    };
    match bytes {
        0 => format!("{count} were received{rest}; {} was not written", out.display()),
        _ => format!("{count} were received and are in {}{rest}", out.display()),
    }
}

/// Options of receiving.
pub(super) struct Receive<'a> {
    pub(super) amount: StreamAmount,
    /// Maximum packet length in bytes.
    pub(super) longest: Option<u32>,
    pub(super) out: &'a Path,
    /// File for the packet boundaries.
    pub(super) index: Option<&'a Path>,
    pub(super) channel: u8,
}

/// Received data, in order of arrival.
struct Capture<'a> {
    file: OutFile,
    path: &'a Path,
    boundaries: PacketBoundaries<'a>,
    /// Packets whose end was received.
    packets: u64,
    /// Bytes in the file.
    bytes: u64,
    /// Bytes that were received and are not in the file.
    discarded: u64,
}

/// Receives from a stream into a file.
pub(super) fn read(settings: &Settings, receive: &Receive<'_>, out: &mut dyn Write) -> Result<(), CliError> {
    let opened = open_streams(settings, "--addr and --len")?;
    // One buffer at a time in batch mode: a ring in credit mode would leave the channel busy until the next packet or a reset.
    let options = C2hStreamOptions::default().buffers(2).run_mode(RunMode::Batch);
    let mut rx = opened.card.c2h_stream_with(receive.channel, options)?;
    let name = rx.name();
    let mut capture = Capture {
        file: OutFile::create(receive.out, settings.deadline)?,
        path: receive.out,
        boundaries: PacketBoundaries::new(settings, receive.index)?,
        packets: 0,
        bytes: 0,
        discarded: 0,
    };
    let total = match receive.amount {
        StreamAmount::Packets(count) => count,
        StreamAmount::Bytes(length) => length,
    };
    let progress = Progress::new(total, settings.progress);
    progress.phase(format!("receiving by {name}"));
    let began = Instant::now();
    let ended = match receive.amount {
        StreamAmount::Packets(count) => {
            let longest = receive.longest.unwrap_or(MAX_PACKET_BYTES) as usize;
            capture.packets(settings, &opened.card, &mut rx, (count, longest), &progress)
        }
        StreamAmount::Bytes(length) => capture.fill(settings, &opened.card, &mut rx, length, &progress),
    };
    let span = began.elapsed();
    drop(progress);
    capture.discarded += rx.statistics().discarded_bytes;
    // Stops the channel before files are written.
    drop(rx);
    let Capture { mut file, boundaries, packets, bytes, discarded, .. } = capture;
    let failure = match ended {
        Ok(()) => None,
        // The reader has closed the pipe.
        Err(error) if error.exit_status() == 0 => return Err(error),
        Err(error) => {
            let received = received((packets, bytes, discarded), receive.amount, receive.out);
            let failure = CliError::failed(format!("{received}: {}", error.reason()));
            if bytes == 0 {
                return Err(failure);
            }
            Some(failure.reported())
        }
    };
    // An error while a packet was written leaves a part of it.
    file.truncate(bytes)?;
    file.commit()?;
    let lengths = boundaries.commit()?;
    let place = (DataLocation::Packets(packets), bytes);
    let report = DmaReport::new("dma read", &opened, name, receive.out, place, span)
        .with_boundaries(lengths, receive.index)
        .with_discarded(discarded)
        .with_failure(failure.as_ref());
    if failure.is_none() || settings.json {
        output::print(&report, settings.json, out)?;
    }
    failure.map_or(Ok(()), Err)
}

impl Capture<'_> {
    /// Receives `count` packets of at most `longest` bytes.
    fn packets(
        &mut self,
        settings: &Settings,
        card: &Card,
        rx: &mut C2hStream,
        (count, longest): (u64, usize),
        progress: &Progress,
    ) -> Result<(), CliError> {
        let mut buffer = card.buffer(longest)?;
        while self.packets < count {
            settings.deadline.check(|| format!("receiving by {}", rx.name()))?;
            buffer = match rx.receive_with(buffer, settings.deadline.wait()) {
                Ok(buffer) => buffer,
                Err(failed) => {
                    // A packet may have arrived meanwhile.
                    if let Ok(Some(StreamPart { buffer, ends_packet })) = rx.abort() {
                        if ends_packet {
                            self.packet(&buffer)?;
                        } else {
                            self.discarded += buffer.len() as u64;
                        }
                    }
                    return if self.packets < count { Err(failed.error.into()) } else { Ok(()) };
                }
            };
            self.packet(&buffer)?;
            progress.at(self.packets);
        }
        Ok(())
    }

    /// Writes a whole packet.
    fn packet(&mut self, buffer: &DmaBuffer) -> Result<(), CliError> {
        self.file
            .write_all_volatile(buffer.memory())
            .map_err(|error| CliError::carried(self.path, "write it", error))?;
        self.boundaries.add(self.packets, self.bytes, buffer.len())?;
        self.packets += 1;
        self.bytes += buffer.len() as u64;
        Ok(())
    }

    /// Receives `length` bytes, regardless of packets.
    fn fill(
        &mut self,
        settings: &Settings,
        card: &Card,
        rx: &mut C2hStream,
        length: u64,
        progress: &Progress,
    ) -> Result<(), CliError> {
        let mut free = None;
        while self.bytes < length {
            settings.deadline.check(|| format!("receiving by {}", rx.name()))?;
            let left = length - self.bytes;
            let buffer = match free.take() {
                Some(buffer) if left >= PART_BYTES => buffer,
                _ => card.buffer(usize::try_from(left.min(PART_BYTES)).unwrap_or(usize::MAX))?,
            };
            let part = match rx.receive_part(buffer, settings.deadline.wait()) {
                Ok(part) => part,
                Err(failed) => {
                    if let Ok(Some(part)) = rx.abort() {
                        self.part(&part, left)?;
                    }
                    return if self.bytes < length { Err(failed.error.into()) } else { Ok(()) };
                }
            };
            self.part(&part, left)?;
            progress.at(self.bytes);
            free = Some(part.buffer);
        }
        Ok(())
    }

    /// Writes a part of the stream, at most `left` bytes: buffers have whole multiples of 64 bytes.
    fn part(&mut self, part: &StreamPart, left: u64) -> Result<(), CliError> {
        let received = part.buffer.len();
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(received);
        part.buffer
            .memory()
            .slice(0, count)
            .map_err(std::io::Error::other)
            .and_then(|bytes| self.file.write_all_volatile(bytes))
            .map_err(|error| CliError::carried(self.path, "write it", error))?;
        self.bytes += count as u64;
        self.discarded += (received - count) as u64;
        self.packets += u64::from(part.ends_packet);
        Ok(())
    }
}
