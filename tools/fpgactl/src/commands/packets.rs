//! `dma write` and `dma read` on AXI4-Stream channels: a file is sent as packets, and packets are received into a file.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use fpga_driver::{
    C2hStreamOptions, Card, ChannelName, Direction, H2cStream, ReadVolatile, RunMode, TransferError,
    WriteVolatile,
};
use fpga_pci::Backoff;

use super::dma::{DataLocation, DmaReport};
use crate::error::CliError;
use crate::outfile::OutFile;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stop;
use crate::stream::{DeadlineSink, Input, Source, fill, is_stdin};
use crate::target::{self, Opened};

/// Packets in flight.
const DEPTH: usize = 16;
const PACKET: u32 = 4096;
const MAX_PACKET_BYTES: u32 = 64 << 10;
/// Header line of a packet index.
const INDEX_HEAD: &str = "packet,offset,length";

/// Opens a card with streams, which a transfer without `--addr` requires.
fn stream(settings: &Settings, missing: &str) -> Result<Opened, CliError> {
    let opened = target::open(&settings.card)?;
    if opened.card.info().xdma.stream {
        return Ok(opened);
    }
    Err(CliError::Usage(format!("the channels of {} are memory mapped: give {missing}", opened.card.name())))
}

/// Sends `file` in packets of `packet` bytes.
pub(super) fn write(
    settings: &Settings,
    file: &Path,
    packet: Option<u32>,
    channel: u8,
) -> Result<DmaReport, CliError> {
    let source = if is_stdin(file) { None } else { Some(Source::file(file)?) };
    let opened = stream(settings, "--addr")?;
    let size = packet.unwrap_or(PACKET) as usize;
    let name = ChannelName { direction: Direction::H2c, number: channel };
    let mut tx = opened.card.h2c_stream(channel)?;
    let (length, mut reader): (Option<u64>, Box<dyn ReadVolatile + '_>) = match &source {
        Some(source) => (source.length(), Box::new(source.open(settings.deadline)?)),
        None => {
            let input = Input::open(settings.deadline)?;
            (input.length(), Box::new(input))
        }
    };
    let progress = Progress::new(length, settings.progress);
    progress.phase(format!("sending by {name}"));
    let began = Instant::now();
    let (mut read, mut packets, mut done) = (0, 0, 0);
    let mut free = Vec::with_capacity(DEPTH);
    let needed = length.map_or(DEPTH as u64, |length| length.div_ceil(size as u64));
    for _ in 0..DEPTH.min(usize::try_from(needed).unwrap_or(DEPTH)) {
        free.push(opened.card.buffer(size)?);
    }
    // A file that grows meanwhile is reported at the end.
    while length.is_none_or(|length| read < length) {
        let Some(mut buffer) = free.pop() else {
            let (buffer, bytes) = oldest(settings, &opened.card, &mut tx)?;
            done += bytes;
            progress.at(done);
            free.extend(buffer);
            continue;
        };
        let left = length.map_or(u64::MAX, |length| length - read);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(size);
        // Never more than the buffer's capacity.
        let _ = buffer.set_len(count);
        let filled = fill(&mut *reader, buffer.memory())
            .map_err(|error| CliError::carried(file, "read it", error).after(done))?;
        if filled == 0 {
            break;
        }
        let _ = buffer.set_len(filled);
        tx.submit(buffer).map_err(|refused| TransferError::from(refused.error))?;
        tx.poll().map_err(TransferError::from)?;
        read += filled as u64;
        packets += 1;
    }
    while tx.in_flight() > 0 {
        done += oldest(settings, &opened.card, &mut tx)?.1;
        progress.at(done);
    }
    let span = began.elapsed();
    source.as_ref().map_or(Ok(()), Source::check_unchanged)?;
    Ok(DmaReport::new("dma write", &opened, name, file, (DataLocation::Packets(packets), read), span))
}

/// Waits for the oldest packet in flight. Returns its buffer and its length.
fn oldest(
    settings: &Settings,
    card: &Card,
    tx: &mut H2cStream,
) -> Result<(Option<fpga_driver::DmaBuffer>, u64), CliError> {
    let began = Instant::now();
    let limit = settings.deadline.wait().timeout;
    let mut backoff = Backoff::new();
    loop {
        if let Some(done) = tx.next_completion() {
            let buffer = done.into_buffer().map_err(|failed| failed.error)?;
            let bytes = buffer.len() as u64;
            return Ok((Some(buffer), bytes));
        }
        tx.poll().map_err(TransferError::from)?;
        card.back_off(&mut backoff);
        if stop::is_asked() {
            return Err(CliError::Stopped { what: format!("sending by {}", tx.name()), done: None });
        }
        if began.elapsed() >= limit {
            let what =
                format!("{}: the card accepts no more packets; check that a receiver reads them", tx.name());
            return Err(CliError::TimedOut { what, limit });
        }
    }
}

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

/// Options of receiving packets.
pub(super) struct Receive<'a> {
    /// Number of packets; one by default.
    pub(super) count: Option<u64>,
    /// Maximum packet length in bytes.
    pub(super) longest: Option<u32>,
    pub(super) out: &'a Path,
    /// File for the packet boundaries.
    pub(super) index: Option<&'a Path>,
    pub(super) channel: u8,
}

/// Receives packets into a file, one after the other.
pub(super) fn read(settings: &Settings, receive: &Receive<'_>) -> Result<DmaReport, CliError> {
    let Receive { count, longest, out, index, channel } = *receive;
    let opened = stream(settings, "--addr and --len")?;
    let count = count.unwrap_or(1);
    let name = ChannelName { direction: Direction::C2h, number: channel };
    // One buffer at a time in batch mode: a ring in credit mode would leave the channel busy until the next packet or a reset.
    let options = C2hStreamOptions::default().buffers(2).run_mode(RunMode::Batch);
    let mut rx = opened.card.c2h_stream_with(channel, options)?;
    let mut sink =
        DeadlineSink { inner: OutFile::create(out, settings.deadline)?, deadline: settings.deadline };
    let mut boundaries = PacketBoundaries::new(settings, index)?;
    let progress = Progress::new(count, settings.progress);
    progress.phase(format!("receiving by {name}"));
    let began = Instant::now();
    let mut buffer = opened.card.buffer(longest.unwrap_or(MAX_PACKET_BYTES) as usize)?;
    let mut bytes = 0;
    for received in 0..count {
        settings.deadline.check(|| format!("receiving by {name}")).map_err(|error| error.after(bytes))?;
        buffer = rx.receive_with(buffer, settings.deadline.wait()).map_err(|failed| failed.error)?;
        sink.write_all_volatile(buffer.memory())
            .map_err(|error| CliError::carried(out, "write it", error).after(bytes))?;
        boundaries.add(received, bytes, buffer.len())?;
        bytes += buffer.len() as u64;
        progress.at(received + 1);
    }
    let span = began.elapsed();
    sink.inner.commit()?;
    let lengths = boundaries.commit()?;
    let moved = DmaReport::new("dma read", &opened, name, out, (DataLocation::Packets(count), bytes), span);
    Ok(moved.with_boundaries(lengths, index))
}
