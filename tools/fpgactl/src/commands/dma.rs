//! `dma write` and `dma read`: files to card memory and back. Streams and `dma bench` have their own modules.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use fpga_driver::bulk::BulkError;
use fpga_driver::{CardAddr, ChannelError, ChannelName, Error, TransferError, bulk};
use fpga_registers::quantity;

use crate::cli::DmaCommand;
use crate::commands::bench;
use crate::commands::capture::{self, Receive, StreamAmount};
use crate::commands::dma_report::{DataLocation, DmaReport};
use crate::commands::packets;
use crate::error::CliError;
use crate::outfile::OutFile;
use crate::output::{self};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stop;
use crate::stream::{DeadlineSink, Input, Source, is_stdin};
use crate::target::{self};
use crate::units::binary_size;

/// Runs the command.
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
    .map_err(|error| written(source.explain(error.into()), channel.name()))?;
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
    let (done, rest) = match (error.stopped_after(), error.cause()) {
        (Some(done), _) => (done.unwrap_or(0), "engines are stopped".to_owned()),
        (None, Some(Error { kind: BulkError::Channel { done, cause }, place })) if stop::is_asked() => {
            (*done, format!("{place}: {cause}"))
        }
        _ => return error,
    };
    let left = format!(
        "{} ({}) in card memory, and possibly a part of the following data; {rest}",
        quantity(done, "byte"),
        binary_size(done)
    );
    CliError::interrupted(what, &left)
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
                CliError::interrupted(format!("reading by {}", channel.name()), &left)
            }
            other => other.into(),
        })?;
    let span = began.elapsed();
    sink.inner.commit()?;
    Ok(DmaReport::new("dma read", &opened, channel.name(), out, (DataLocation::Address(addr), length), span))
}
