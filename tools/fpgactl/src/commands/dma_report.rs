//! Report of a transfer between card and file.

use std::path::Path;
use std::time::Duration;

use fpga_driver::{CardAddr, ChannelName};
use fpga_registers::quantity;
use serde::Serialize;

use crate::error::CliError;
use crate::output::{self, Report, pairs};
use crate::target::Opened;
use crate::units::{binary_size, gigabytes_per_second, rate};

/// Result of a transfer.
#[derive(Debug, Serialize)]
pub(super) struct DmaReport {
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
    /// Bytes that were received from a stream and are not in `file`: parts of packets, and what a buffer had received beyond the
    /// requested length.
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
