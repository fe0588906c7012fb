//! `dma write` on AXI4-Stream channels: a file is sent as packets. `dma read` has its own module.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Instant;

use fpga_driver::{Card, ChannelError, DmaBuffer, Error, H2cStream, ReadVolatile, Ticket, TransferError};
use fpga_registers::quantity;

use super::dma_report::{DataLocation, DmaReport};
use crate::error::CliError;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stream::{Input, Source, fill, is_stdin};
use crate::target::{self, Opened};
use crate::units::binary_size;

/// Maximum number of packets in flight.
const MAX_IN_FLIGHT: usize = 16;
/// Bytes of a packet, unless `--packet` is given.
const DEFAULT_PACKET_SIZE: u32 = 4096;

/// Opens a card with AXI4-Stream channels; `missing` is the option that a memory-mapped channel requires.
pub(super) fn open_streams(settings: &Settings, missing: &str) -> Result<Opened, CliError> {
    let opened = target::open(&settings.card)?;
    if opened.card.info().xdma.stream {
        return Ok(opened);
    }
    Err(CliError::usage(format!("the channels of {} are memory mapped", opened.card.name()))
        .advise(format!("give {missing}")))
}

/// Sends `file` in packets of `packet` bytes.
pub(super) fn write(
    settings: &Settings,
    file: &Path,
    packet: Option<u32>,
    channel: u8,
) -> Result<DmaReport, CliError> {
    let source = if is_stdin(file) { None } else { Some(Source::file(file)?) };
    let opened = open_streams(settings, "--addr")?;
    let size = packet.unwrap_or(DEFAULT_PACKET_SIZE) as usize;
    let mut tx = opened.card.h2c_stream(channel)?;
    let name = tx.name();
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
    let mut sender = PacketSender {
        settings,
        tx: &mut tx,
        in_flight: VecDeque::with_capacity(MAX_IN_FLIGHT),
        packets: 0,
        bytes: 0,
    };
    let sent = sender.send(&opened.card, file, &mut *reader, (length, size), &progress);
    sent.map_err(|error| sender.failed(error, length.map(|length| length.div_ceil(size as u64))))?;
    let (packets, bytes) = (sender.packets, sender.bytes);
    let span = began.elapsed();
    source.as_ref().map_or(Ok(()), Source::check_unchanged)?;
    Ok(DmaReport::new("dma write", &opened, name, file, (DataLocation::Packets(packets), bytes), span))
}

/// Packets in flight, and those that the card has accepted.
struct PacketSender<'a> {
    settings: &'a Settings,
    tx: &'a mut H2cStream,
    in_flight: VecDeque<Ticket>,
    /// Number of accepted packets.
    packets: u64,
    /// Bytes in them.
    bytes: u64,
}

impl PacketSender<'_> {
    /// Sends packets of `size` bytes until the reader ends; `length` bytes, if that is known.
    fn send(
        &mut self,
        card: &Card,
        file: &Path,
        reader: &mut dyn ReadVolatile,
        (length, size): (Option<u64>, usize),
        progress: &Progress,
    ) -> Result<(), CliError> {
        let mut read = 0;
        let needed = length.map_or(MAX_IN_FLIGHT as u64, |length| length.div_ceil(size as u64));
        let mut free = Vec::with_capacity(MAX_IN_FLIGHT);
        for _ in 0..MAX_IN_FLIGHT.min(usize::try_from(needed).unwrap_or(MAX_IN_FLIGHT)) {
            free.push(card.buffer(size)?);
        }
        // The caller reports a file that has grown.
        while length.is_none_or(|length| read < length) {
            let Some(mut buffer) = free.pop() else {
                free.extend(self.wait_oldest()?);
                progress.at(self.bytes);
                continue;
            };
            let left = length.map_or(u64::MAX, |length| length - read);
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(size);
            // `count` is at most the buffer's capacity.
            let _ = buffer.set_len(count);
            let filled =
                fill(reader, buffer.memory()).map_err(|error| CliError::carried(file, "read it", error))?;
            if filled == 0 {
                break;
            }
            let _ = buffer.set_len(filled);
            let ticket = self.tx.submit(buffer).map_err(|refused| refused.error.widen::<TransferError>())?;
            self.in_flight.push_back(ticket);
            self.tx.poll().map_err(Error::widen::<TransferError>)?;
            read += filled as u64;
        }
        while self.wait_oldest()?.is_some() {
            progress.at(self.bytes);
        }
        Ok(())
    }

    /// Waits until the card has accepted the oldest packet in flight, and returns its buffer.
    fn wait_oldest(&mut self) -> Result<Option<DmaBuffer>, CliError> {
        let Some(ticket) = self.in_flight.pop_front() else { return Ok(None) };
        let done =
            self.tx.wait(ticket, self.settings.deadline.wait()).map_err(Error::widen::<TransferError>)?;
        let buffer = done.into_buffer().map_err(|failed| failed.error)?;
        self.packets += 1;
        self.bytes += buffer.len() as u64;
        Ok(Some(buffer))
    }

    /// Stops the channel if possible, and adds the number of accepted packets to `error`.
    fn failed(&mut self, error: CliError, wanted: Option<u64>) -> CliError {
        let mut help = None;
        let left = match self.tx.abort() {
            Ok(_) => "the channel is stopped".to_owned(),
            Err(Error { kind: ChannelError::Wedged { .. }, .. }) => {
                help = Some(
                    "check that a receiver reads the stream, or reset the card with `fpgactl reset --level bus`",
                );
                "the channel remains running until the card accepts the rest".to_owned()
            }
            Err(other) => other.to_string(),
        };
        let reason = match error.cause() {
            Some(Error { kind: TransferError::Channel(ChannelError::TimedOut { waited, .. }), place }) => {
                format!("{place}: the card accepts no more packets (none in {waited})")
            }
            _ => error.reason(),
        };
        let accepted = match wanted {
            None => quantity(self.packets, "packet").to_string(),
            Some(wanted) => format!("{} of {}", self.packets, quantity(wanted, "packet")),
        };
        CliError::failed(format!(
            "{reason}: the card accepted {accepted} ({}), and possibly a part of the next one; {left}",
            binary_size(self.bytes)
        ))
        .advised(help)
    }
}
