//! `dma write` and `dma read` where the card's channels are AXI4-Stream: a file is sent as packets, packets are received into one.

use std::path::Path;
use std::time::Instant;

use fpga_driver::{
    C2hStreamOptions, ChannelName, Direction, H2cStream, ReadVolatile, RunMode, TransferError, WriteVolatile,
};

use super::dma::{Moved, Place};
use crate::error::CliError;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stop;
use crate::stream::{Limited, OutFile, Source};
use crate::target::{self, Opened};

/// Packets in flight.
const DEPTH: usize = 16;
const PACKET: u32 = 4096;
const LONGEST: u32 = 64 << 10;

/// Without `--addr` there has to be a stream.
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
) -> Result<Moved, CliError> {
    let source = Source::file(file)?;
    let length = source.length();
    let opened = stream(settings, "--addr")?;
    let size = packet.unwrap_or(PACKET) as usize;
    let name = ChannelName { direction: Direction::H2c, number: channel };
    let mut tx = opened.card.h2c_stream(channel)?;
    let mut reader = source.open(settings.deadline)?;
    let progress = Progress::new(length, settings.progress);
    progress.phase(format!("sending by {name}"));
    let began = Instant::now();
    let (mut left, mut packets, mut done) = (length, 0, 0);
    let mut free = Vec::with_capacity(DEPTH);
    for _ in 0..DEPTH.min(usize::try_from(length.div_ceil(size as u64)).unwrap_or(DEPTH)) {
        free.push(opened.card.buffer(size)?);
    }
    while left > 0 {
        let Some(mut buffer) = free.pop() else {
            let (buffer, bytes) = oldest(settings, &mut tx)?;
            done += bytes;
            progress.at(done);
            free.extend(buffer);
            continue;
        };
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(size);
        // Not more than it was made with.
        let _ = buffer.set_len(count);
        reader
            .read_exact_volatile(buffer.memory())
            .map_err(|error| CliError::carried(file, "read it", error).after(done))?;
        tx.submit(buffer).map_err(|refused| TransferError::from(refused.error))?;
        tx.poll().map_err(TransferError::from)?;
        left -= count as u64;
        packets += 1;
    }
    while tx.in_flight() > 0 {
        done += oldest(settings, &mut tx)?.1;
        progress.at(done);
    }
    let span = began.elapsed();
    source.check_unchanged()?;
    Ok(Moved::new("dma write", &opened, name, file, (Place::Packets(packets), length), span))
}

/// Waits for the packet that was sent first: its buffer, and its bytes.
fn oldest(
    settings: &Settings,
    tx: &mut H2cStream,
) -> Result<(Option<fpga_driver::DmaBuffer>, u64), CliError> {
    let began = Instant::now();
    let limit = settings.deadline.wait().timeout;
    loop {
        if let Some(done) = tx.next_completion() {
            let buffer = done.into_buffer().map_err(|failed| failed.error)?;
            let bytes = buffer.len() as u64;
            return Ok((Some(buffer), bytes));
        }
        tx.poll().map_err(TransferError::from)?;
        tx.relax();
        if stop::is_asked() {
            return Err(CliError::Stopped { what: format!("sending by {}", tx.name()), done: None });
        }
        if began.elapsed() >= limit {
            let what = format!(
                "{}: the card takes no more packets; is there somebody who receives them?",
                tx.name()
            );
            return Err(CliError::TimedOut { what, limit });
        }
    }
}

/// Receives packets into `out`, one after the other.
pub(super) fn read(
    settings: &Settings,
    count: Option<u64>,
    longest: Option<u32>,
    out: &Path,
    channel: u8,
) -> Result<Moved, CliError> {
    let opened = stream(settings, "--addr and --len")?;
    let count = count.unwrap_or(1);
    let name = ChannelName { direction: Direction::C2h, number: channel };
    // One buffer at a time in runs that end: a ring of them would leave the channel busy, until the next packet or a reset.
    let options = C2hStreamOptions::default().buffers(2).run_mode(RunMode::StopRuns);
    let mut rx = opened.card.c2h_stream_with(channel, options)?;
    let mut sink = Limited { inner: OutFile::create(out, None)?, deadline: settings.deadline };
    let progress = Progress::new(count, settings.progress);
    progress.phase(format!("receiving by {name}"));
    let began = Instant::now();
    let mut buffer = opened.card.buffer(longest.unwrap_or(LONGEST) as usize)?;
    let mut bytes = 0;
    for received in 1..=count {
        settings.deadline.check(|| format!("receiving by {name}")).map_err(|error| error.after(bytes))?;
        buffer = rx.receive_with(buffer, settings.deadline.wait()).map_err(|failed| failed.error)?;
        sink.write_all_volatile(buffer.memory())
            .map_err(|error| CliError::carried(out, "write it", error).after(bytes))?;
        bytes += buffer.len() as u64;
        progress.at(received);
    }
    let span = began.elapsed();
    sink.inner.keep();
    Ok(Moved::new("dma read", &opened, name, out, (Place::Packets(count), bytes), span))
}
