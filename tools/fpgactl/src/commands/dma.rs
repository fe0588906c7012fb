//! `dma write` and `dma read`: files to card memory and back. Streams and `dma bench` have their own modules.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use fpga_driver::bulk::BulkError;
use fpga_driver::{CardAddr, ChannelError, ChannelName, Error, TransferError, bulk};
use fpga_registers::quantity;
use serde::Serialize;

use crate::cli::DmaCommand;
use crate::commands::bench;
use crate::commands::capture::{self, Receive};
use crate::commands::packets;
use crate::error::{CliError, StreamAmount};
use crate::outfile::OutFile;
use crate::output::{self, Report, pairs};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stop;
use crate::stream::{DeadlineSink, Input, Source, is_stdin};
use crate::target::{self, Opened};
use crate::units::{binary_size, gigabytes_per_second, rate};

/// Result of a transfer.
#[derive(Debug, Serialize)]
pub struct DmaReport {
    command: &'static str,
    card: String,
    channel: String,
    file: String,
    /// Hexadecimal, because a JSON number would lose digits above 2^53. Null on a stream.
    addr: Option<String>,
    /// Number of packets. Null for card memory.
    packets: Option<u64>,
    /// Lengths of the packets that were read, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    packet_lengths: Option<Vec<usize>>,
    /// Path of the index file: the same lengths, with offsets in `file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<String>,
    bytes: u64,
    /// Bytes that were received from a stream and are not in `file`: parts of packets, and what a buffer had received beyond `--len`.
    #[serde(skip_serializing_if = "Option::is_none")]
    discarded_bytes: Option<u64>,
    /// Reason why fewer packets or bytes were received.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<output::Problem>,
    /// Duration by the wall clock.
    seconds: f64,
    gb_per_s: f64,
    #[serde(skip)]
    span: Duration,
}

/// Source or destination of the bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum DataLocation {
    /// Card memory.
    Address(CardAddr),
    /// Stream, with the number of packets.
    Packets(u64),
}

impl DmaReport {
    pub(super) fn new(
        command: &'static str,
        opened: &Opened,
        channel: ChannelName,
        file: &Path,
        place: (DataLocation, u64),
        span: Duration,
    ) -> Self {
        let (place, bytes) = place;
        let (addr, packets) = match place {
            DataLocation::Address(addr) => (Some(format!("{:#x}", addr.get())), None),
            DataLocation::Packets(packets) => (None, Some(packets)),
        };
        Self {
            command,
            card: opened.card.name().to_owned(),
            channel: channel.to_string(),
            file: file.display().to_string(),
            addr,
            packets,
            packet_lengths: None,
            index: None,
            bytes,
            discarded_bytes: None,
            error: None,
            seconds: span.as_secs_f64(),
            gb_per_s: gigabytes_per_second(bytes, span),
            span,
        }
    }
}

impl DmaReport {
    /// Adds the boundaries of the packets that were read.
    pub(super) fn with_boundaries(mut self, lengths: Option<Vec<usize>>, index: Option<&Path>) -> Self {
        self.packet_lengths = lengths;
        self.index = index.map(|path| path.display().to_string());
        self
    }

    /// Adds the number of received bytes that are not in the file.
    pub(super) const fn with_discarded(mut self, bytes: u64) -> Self {
        self.discarded_bytes = Some(bytes);
        self
    }

    /// Adds the reason why less was received than requested.
    pub(super) fn with_failure(mut self, failure: Option<&CliError>) -> Self {
        self.error = failure.map(output::Problem::from);
        self
    }
}

impl Report for DmaReport {
    fn text(&self) -> String {
        let there = match (&self.addr, self.packets) {
            (Some(addr), _) => format!("{} {addr}", self.card),
            (None, packets) => format!("{} ({})", self.card, quantity(packets.unwrap_or(0), "packet")),
        };
        let way = match self.command {
            "dma write" => format!("{} -> {there}", self.file),
            _ => format!("{there} -> {}", self.file),
        };
        let mut lines = vec![
            ("moved", way),
            ("channel", self.channel.clone()),
            ("bytes", format!("{} ({})", self.bytes, binary_size(self.bytes))),
        ];
        if let Some(bytes @ 1..) = self.discarded_bytes {
            lines.push(("discarded", format!("{} (not in the file)", quantity(bytes, "byte"))));
        }
        lines.extend([("time", format!("{:.6} s", self.seconds)), ("rate", rate(self.bytes, self.span))]);
        pairs(&lines)
    }
}

/// Runs the command.
///
/// # Errors
/// See [`CliError`].
pub fn run(settings: &Settings, command: &DmaCommand, out: &mut dyn Write) -> Result<(), CliError> {
    let moved = match command {
        DmaCommand::Write { file, addr: Some(addr), channel, packet: _ } => {
            write(settings, file, *addr, *channel)
        }
        DmaCommand::Write { file, addr: None, packet, channel } => {
            packets::write(settings, file, *packet, *channel)
        }
        DmaCommand::Read { addr: Some(addr), len: Some(len), out, channel, .. } => {
            read(settings, *addr, *len, out, *channel)
        }
        DmaCommand::Read { len, packets: count, packet, out: file, index, channel, .. } => {
            let amount = match (len, count) {
                (Some(length), _) => StreamAmount::Bytes(*length),
                (None, count) => StreamAmount::Packets(count.unwrap_or(1)),
            };
            let (longest, index, channel) = (*packet, index.as_deref(), *channel);
            return capture::read(settings, &Receive { amount, longest, out: file, index, channel }, out);
        }
        DmaCommand::Bench(args) => return bench::run(settings, args, out),
    };
    output::print(&moved?, settings.json, out)
}

fn write(settings: &Settings, file: &Path, addr: CardAddr, channel: u8) -> Result<DmaReport, CliError> {
    if is_stdin(file) {
        return write_input(settings, addr, channel);
    }
    let source = Source::file(file)?;
    let length = source.length().unwrap_or(0);
    let opened = target::open(&settings.card)?;
    let mut channel = opened.card.h2c(channel)?;
    let mut reader = source.open(settings.deadline)?;
    let progress = Progress::new(length, settings.progress);
    progress.phase(format!("writing by {}", channel.name()));
    let began = Instant::now();
    let wait = settings.deadline.wait();
    bulk::write_from(&opened.card, &mut channel, &mut reader, addr, length, wait, &mut |done| {
        progress.at(done)
    })
    .map_err(|error| written(source.explain(error), channel.name()))?;
    let span = began.elapsed();
    source.check_unchanged()?;
    Ok(DmaReport::new(
        "dma write",
        &opened,
        channel.name(),
        file,
        (DataLocation::Address(addr), length),
        span,
    ))
}

/// Adds to the end that a signal requested what a write leaves in card memory.
fn written(error: CliError, channel: ChannelName) -> CliError {
    let what = format!("writing by {channel}");
    let (done, rest) = match error {
        CliError::Stopped { done, .. } => (done.unwrap_or(0), "engines are stopped".to_owned()),
        CliError::Bulk(Error { kind: BulkError::Channel { done, cause }, place }) if stop::is_asked() => {
            (done, format!("{place}: {cause}"))
        }
        other => return other,
    };
    let left = format!(
        "{} ({}) in card memory, and possibly a part of the following data; {rest}",
        quantity(done, "byte"),
        binary_size(done)
    );
    CliError::Interrupted { what, left }
}

/// Writes standard input to card memory. Only a file's length is known in advance; from a pipe, data is written until the card memory ends.
fn write_input(settings: &Settings, addr: CardAddr, channel: u8) -> Result<DmaReport, CliError> {
    let mut input = Input::open(settings.deadline)?;
    let known = input.length();
    let opened = target::open(&settings.card)?;
    let mut channel = opened.card.h2c(channel)?;
    if let Some(length) = known {
        channel.check_range(addr, length).map_err(Error::widen::<TransferError>)?;
    }
    let progress = Progress::new(known, settings.progress);
    progress.phase(format!("writing by {}", channel.name()));
    let began = Instant::now();
    let wait = settings.deadline.wait();
    let length =
        bulk::write_to_end(&opened.card, &mut channel, &mut input, addr, wait, &mut |done| progress.at(done))
            .map_err(|error| written(error.into(), channel.name()))?;
    let span = began.elapsed();
    Ok(DmaReport::new(
        "dma write",
        &opened,
        channel.name(),
        Path::new("-"),
        (DataLocation::Address(addr), length),
        span,
    ))
}

fn read(
    settings: &Settings,
    addr: CardAddr,
    length: u64,
    out: &Path,
    channel: u8,
) -> Result<DmaReport, CliError> {
    let opened = target::open(&settings.card)?;
    let mut channel = opened.card.c2h(channel)?;
    // Checked before the output is opened: opening a pipe waits for its reader.
    channel.check_range(addr, length).map_err(Error::widen::<TransferError>)?;
    let mut sink =
        DeadlineSink { inner: OutFile::create(out, settings.deadline)?, deadline: settings.deadline };
    let progress = Progress::new(length, settings.progress);
    progress.phase(format!("reading by {}", channel.name()));
    let began = Instant::now();
    let wait = settings.deadline.wait();
    bulk::read_into(&opened.card, &mut channel, addr, length, &mut sink, wait, &mut |done| progress.at(done))
        .map_err(|error| match error {
            Error {
                kind: BulkError::Channel { done, cause: cause @ ChannelError::Wedged { .. } },
                place,
            } if stop::is_asked() => {
                let read = quantity(length, "byte");
                let left = format!("{done} of {read} read, and no file was written; {place}: {cause}");
                CliError::Interrupted { what: format!("reading by {}", channel.name()), left }
            }
            other => other.into(),
        })?;
    let span = began.elapsed();
    sink.inner.commit()?;
    Ok(DmaReport::new("dma read", &opened, channel.name(), out, (DataLocation::Address(addr), length), span))
}
