//! `card check`: whether a card can be built from a description. For `card serve` see [`serve`], for `card share` [`share`], for `card control` see [`control`].

use std::io::Write;
use std::path::Path;

use fpga_sim::{BarLayout, BarRole, LinkRate, SimNetwork, StreamLogic, USER_INTERRUPTS};
use serde::Serialize;

use crate::cli::CardCommand;
use crate::commands::{control, serve, share};
use crate::error::CliError;
use crate::output::{self, Report, pairs};
use crate::settings::Settings;
use crate::target;
use crate::units::binary_size;

/// Main facts of a valid description.
#[derive(Debug, Serialize)]
pub struct CheckReport {
    file: String,
    valid: bool,
    name: String,
    /// Vendor, device, subsystem vendor and subsystem device.
    ids: [String; 4],
    link: LinkFacts,
    bars: Vec<BarFacts>,
    interrupts: InterruptFacts,
    memory_bytes: u64,
    h2c_channels: u8,
    c2h_channels: u8,
    data_width_bits: u16,
    /// Logic behind AXI4-Stream channels; `null` if channels are memory mapped.
    stream: Option<StreamFacts>,
    node_id: u32,
    packet_bytes: u32,
    mask_bits: u16,
}

#[derive(Debug, Serialize)]
struct LinkFacts {
    generation: u8,
    width: u8,
    /// Whether the link's rate limits DMA.
    rate_limited: bool,
}

#[derive(Debug, Serialize)]
struct BarFacts {
    index: u8,
    role: &'static str,
    bytes: u64,
    address_bits: u8,
    prefetchable: bool,
}

#[derive(Debug, Serialize)]
struct InterruptFacts {
    msix_vectors: u16,
    msi_vectors: u16,
    /// INTA to INTD; `null`: no legacy interrupt.
    pin: Option<char>,
    user_lines: u8,
    cdma_user_line: u8,
}

#[derive(Debug, Serialize)]
struct StreamFacts {
    /// `loopback` or `source`.
    logic: &'static str,
    fifo_bytes: u32,
}

impl Report for CheckReport {
    fn text(&self) -> String {
        pairs(&[
            ("file", format!("{}: valid", self.file)),
            ("name", self.name.clone()),
            ("ids", self.ids_text()),
            ("link", self.link_text()),
            ("BARs", self.bars_text()),
            ("interrupts", self.interrupts_text()),
            ("memory", binary_size(self.memory_bytes)),
            ("channels", self.channels_text()),
            ("node", self.node_id.to_string()),
            ("packets", format!("{} B, at most {} per segment", self.packet_bytes, self.mask_bits)),
        ])
    }
}

impl BarFacts {
    fn of(bar: &BarLayout) -> Self {
        let role = match bar.role {
            BarRole::User => "user",
            BarRole::Dma => "dma",
            BarRole::Bypass => "bypass",
            _ => "other",
        };
        let address_bits = if bar.wide { 64 } else { 32 };
        Self { index: bar.index, role, bytes: bar.size, address_bits, prefetchable: bar.prefetchable }
    }
}

impl CheckReport {
    fn ids_text(&self) -> String {
        let [vendor, device, subsystem_vendor, subsystem] = &self.ids;
        format!("{vendor}:{device}, subsystem {subsystem_vendor}:{subsystem}")
    }

    fn link_text(&self) -> String {
        let LinkFacts { generation, width, rate_limited } = &self.link;
        let rate = if *rate_limited { ", DMA at its rate" } else { "" };
        format!("generation {generation}, x{width}{rate}")
    }

    fn bars_text(&self) -> String {
        let bar = |bar: &BarFacts| {
            let prefetchable = if bar.prefetchable { ", prefetchable" } else { "" };
            let (index, role, size) = (bar.index, bar.role, binary_size(bar.bytes));
            format!("{index} {role} {size} ({} bit{prefetchable})", bar.address_bits)
        };
        let bars: Vec<String> = self.bars.iter().map(bar).collect();
        if bars.is_empty() { "none".to_owned() } else { bars.join("; ") }
    }

    fn interrupts_text(&self) -> String {
        let InterruptFacts { msix_vectors, msi_vectors, pin, user_lines, cdma_user_line } = &self.interrupts;
        let pin = pin.map_or_else(|| "no legacy line".to_owned(), |pin| format!("INT{pin}"));
        format!(
            "{msix_vectors} MSI-X, {msi_vectors} MSI, {pin}; {user_lines} user lines, the CDMA has {cdma_user_line}"
        )
    }

    fn channels_text(&self) -> String {
        let kind = match &self.stream {
            Some(stream) => {
                format!("AXI4-Stream, {}, FIFO of {}", stream.logic, binary_size(stream.fifo_bytes.into()))
            }
            None => "memory mapped".to_owned(),
        };
        format!("{} H2C, {} C2H, {kind}, {} bit", self.h2c_channels, self.c2h_channels, self.data_width_bits)
    }
}

/// Runs the command.
pub fn run(settings: &Settings, command: &CardCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        CardCommand::Check { file } => output::print(&check(settings, file)?, settings.json, out),
        CardCommand::Serve(args) => serve::run(settings, args, out),
        CardCommand::Share(args) => share::run(settings, args, out),
        CardCommand::Control(args) => output::print(&control::run(settings, args)?, settings.json, out),
    }
}

fn check(settings: &Settings, file: &Path) -> Result<CheckReport, CliError> {
    let description = target::read(file, settings.deadline)?;
    let pci = &description.pci;
    let id = |id: u16| format!("{id:#06x}");
    let interrupts = &description.interrupts;
    let stream = StreamFacts {
        logic: match description.stream.logic {
            StreamLogic::Source => "source",
            _ => "loopback",
        },
        fifo_bytes: description.stream.fifo_bytes,
    };
    // Building the card finds errors that checks of single values cannot find.
    let network = SimNetwork::builder().card(description.clone()).build()?;
    let report = CheckReport {
        file: file.display().to_string(),
        valid: true,
        name: description.name.clone(),
        ids: [id(pci.vendor), id(pci.device), id(pci.subsystem_vendor), id(pci.subsystem_device)],
        link: LinkFacts {
            generation: description.link.speed,
            width: description.link.width,
            rate_limited: description.link.rate == LinkRate::Described,
        },
        bars: network.with_card(0, |card| card.bars().iter().map(BarFacts::of).collect()).unwrap_or_default(),
        interrupts: InterruptFacts {
            msix_vectors: interrupts.msix_vectors,
            msi_vectors: interrupts.msi_vectors,
            pin: interrupts.pin.checked_sub(1).map(|pin| char::from(b'A' + pin.min(3))),
            user_lines: USER_INTERRUPTS,
            cdma_user_line: interrupts.cdma_user_irq,
        },
        data_width_bits: description.xdma.data_width,
        stream: description.xdma.stream.then_some(stream),
        memory_bytes: description.memory.size,
        h2c_channels: description.xdma.h2c_channels,
        c2h_channels: description.xdma.c2h_channels,
        node_id: description.ni.node_id,
        packet_bytes: description.ni.packet_size,
        mask_bits: description.ni.mask_bits,
    };
    Ok(report)
}
