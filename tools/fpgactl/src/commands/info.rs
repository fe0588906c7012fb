//! `info`: facts about a card.

use fpga_driver::{CardInfo, Cdma, NiInfo, XdmaInfo};
use fpga_firmware::catalog;
use fpga_firmware::generated::{CONTRACT_CHECKSUM, CONTRACT_MAJOR, CONTRACT_MINOR, Capabilities};
use fpga_firmware::identity::{Block, Identity};
use fpga_pci::{BarInfo, BarKind};
use fpga_rdma::SchemeList;
use fpga_registers::catalog::CardLayout;
use fpga_registers::quantity;
use serde::Serialize;

use crate::bars::Role;
use crate::cli::Scheme;
use crate::copies::CopyRoutinesReport;
use crate::error::CliError;
use crate::output::{Report, listing, pairs};
use crate::settings::Settings;
use crate::target::{self, Opened};
use crate::units::binary_size;

/// Report of `info`. Ids and addresses are hexadecimal text, sizes are numbers of bytes.
#[derive(Debug, Serialize)]
pub struct InfoReport {
    card: String,
    simulated: bool,
    pci: Pci,
    bars: Vec<BarLine>,
    xdma: Xdma,
    cdma: Option<CdmaLine>,
    interrupt_vectors: u32,
    identity: Option<IdentityLine>,
    ni: Option<Ni>,
    /// How this machine copies data beyond its caches: `info` of a simulated card, which copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    copies: Option<CopyRoutinesReport>,
}

#[derive(Debug, Serialize)]
struct Pci {
    vendor: String,
    device: String,
    subsystem_vendor: String,
    subsystem_device: String,
}

#[derive(Debug, Serialize)]
struct BarLine {
    index: u8,
    role: &'static str,
    /// Reason for the BAR's role.
    reason: String,
    bytes: u64,
    kind: &'static str,
    prefetchable: bool,
}

#[derive(Debug, Serialize)]
struct Xdma {
    ip_version: u8,
    ip_version_name: Option<&'static str>,
    h2c_channels: u8,
    c2h_channels: u8,
    interface: &'static str,
    data_width_bits: Option<u32>,
    max_payload_bytes: Option<u32>,
    max_read_request_bytes: Option<u32>,
    address_bits: u8,
    address_alignment_bytes: u8,
    length_granularity_bytes: u8,
}

#[derive(Debug, Serialize)]
struct CdmaLine {
    /// Offset in the user BAR.
    offset: String,
    /// Width of the length field to which copies are split. The register does not state its own.
    assumed_length_bits: u8,
}

#[derive(Debug, Serialize)]
struct IdentityLine {
    contract: String,
    checksum: String,
    build: String,
    capabilities: Vec<&'static str>,
    blocks: Vec<BlockLine>,
}

#[derive(Debug, Serialize)]
struct BlockLine {
    #[serde(rename = "type")]
    kind: String,
    version: u16,
    offset: String,
    bytes: u32,
}

#[derive(Debug, Serialize)]
struct Ni {
    node: u32,
    packet_bytes: u64,
    mask_bits: u16,
    registry_entries: u64,
    escape_slots: u64,
    op_table: &'static str,
    op_table_entries: u32,
    memory_windows: u32,
    schemes: Vec<&'static str>,
    several_schemes_at_once: bool,
    card_transfers: u32,
    event_push: bool,
    memory_base: String,
    memory_bytes: u64,
    transmit_windows: u32,
    transmit_window_base: String,
    transmit_window_stride_bytes: u32,
    transmit_window_payload_bytes: u32,
}

/// Runs the command.
pub fn run(settings: &Settings) -> Result<InfoReport, CliError> {
    let opened = target::observe(&settings.card)?;
    Ok(InfoReport { copies: opened.simulated.then(CopyRoutinesReport::get), ..report(&opened) })
}

pub(super) fn report(opened: &Opened) -> InfoReport {
    let info = opened.card.info();
    InfoReport {
        card: info.name.to_string(),
        simulated: opened.simulated,
        pci: Pci {
            vendor: id(info.ids.vendor),
            device: id(info.ids.device),
            subsystem_vendor: id(info.ids.subsystem.0),
            subsystem_device: id(info.ids.subsystem.1),
        },
        bars: opened.backend.bars().into_iter().flatten().map(|bar| bar_line(info, bar)).collect(),
        xdma: xdma(&info.xdma),
        cdma: info.cdma.map(|at| CdmaLine {
            offset: format!("{:#06x}", at.get()),
            assumed_length_bits: Cdma::ASSUMED_LENGTH_BITS,
        }),
        interrupt_vectors: opened.backend.interrupt_vectors(),
        identity: info.identity.as_ref().map(identity),
        ni: info.ni.as_ref().map(ni),
        copies: None,
    }
}

fn id(value: u16) -> String {
    format!("{value:#06x}")
}

fn bar_line(info: &CardInfo, bar: BarInfo) -> BarLine {
    let role = Role::of(info, bar.index);
    let reason = match role {
        Some(Role::Dma) => format!("{}; XDMA identifiers confirmed", info.roles.dma_reason),
        Some(Role::User) => "last memory BAR before the DMA BAR".to_owned(),
        Some(Role::Bypass) => "first memory BAR behind the DMA BAR".to_owned(),
        None => "XDMA has no such BAR".to_owned(),
    };
    let kind = match bar.kind {
        BarKind::Memory32 => "memory, 32 bit",
        BarKind::Memory64 => "memory, 64 bit",
        BarKind::Io => "I/O ports",
        _ => "other",
    };
    BarLine {
        index: bar.index,
        role: role.map_or("unknown", Role::name),
        reason,
        bytes: bar.size,
        kind,
        prefetchable: bar.prefetchable,
    }
}

/// Release of a version code, as the register catalog names it.
fn version_name(version: u8) -> Option<&'static str> {
    let identifier = CardLayout::new(0, 0).find("config.identifier")?;
    let fields = identifier.decode(version.into());
    fields.fields().find(|field| field.name() == "version").and_then(|field| field.meaning())
}

fn xdma(info: &XdmaInfo) -> Xdma {
    Xdma {
        ip_version: info.version,
        ip_version_name: version_name(info.version),
        h2c_channels: info.h2c_channels,
        c2h_channels: info.c2h_channels,
        interface: if info.stream { "AXI4-Stream" } else { "AXI4 memory mapped" },
        data_width_bits: info.data_width,
        max_payload_bytes: info.max_payload,
        max_read_request_bytes: info.max_read_request,
        address_bits: info.alignments.address_bits(),
        address_alignment_bytes: info.alignments.address_alignment(),
        length_granularity_bytes: info.alignments.length_granularity(),
    }
}

fn identity(identity: &Identity) -> IdentityLine {
    // The card was opened, so version and checksum match this software.
    IdentityLine {
        contract: format!("{CONTRACT_MAJOR}.{CONTRACT_MINOR}"),
        checksum: format!("{CONTRACT_CHECKSUM:#010x}"),
        build: format!("{:#010x}", identity.build()),
        capabilities: Capabilities::NAMES
            .iter()
            .filter(|(bit, _)| identity.capabilities().contains(*bit))
            .map(|(_, name)| *name)
            .collect(),
        blocks: identity
            .blocks()
            .iter()
            .map(|block| BlockLine {
                kind: block_name(block),
                version: block.version,
                offset: format!("{:#06x}", block.offset),
                bytes: block.size,
            })
            .collect(),
    }
}

/// Prefix of the names of the block's registers.
fn block_name(block: &Block) -> String {
    let known = block.block_type().and_then(catalog::block);
    known.map_or_else(|| format!("type {}", block.type_number), |known| known.name.to_owned())
}

fn ni(info: &NiInfo) -> Ni {
    Ni {
        node: info.node.get(),
        packet_bytes: 1u64.checked_shl(info.packet_size_log2.into()).unwrap_or(0),
        mask_bits: info.mask_bits,
        registry_entries: u64::from(info.registry_entries),
        escape_slots: u64::from(info.escape_slots),
        op_table: if info.op_table_entries == 0 { "driver" } else { "card" },
        op_table_entries: info.op_table_entries,
        memory_windows: info.memory_windows,
        schemes: SchemeList(info.schemes).iter().map(Scheme::name_of).collect(),
        several_schemes_at_once: info.mixed,
        card_transfers: info.command_entries,
        event_push: info.event_push,
        memory_base: format!("{:#x}", info.memory.start.get()),
        memory_bytes: info.memory.length,
        transmit_windows: info.windows.count,
        transmit_window_base: format!("{:#x}", info.windows.base.get()),
        transmit_window_stride_bytes: info.windows.stride,
        transmit_window_payload_bytes: info.windows.payload_size,
    }
}

impl Report for InfoReport {
    fn text(&self) -> String {
        let mut text = pairs(&[
            ("card", format!("{}{}", self.card, if self.simulated { " (simulated)" } else { "" })),
            (
                "PCI ids",
                format!(
                    "{}:{}, subsystem {}:{}",
                    self.pci.vendor, self.pci.device, self.pci.subsystem_vendor, self.pci.subsystem_device
                ),
            ),
            ("interrupts", quantity(self.interrupt_vectors, "vector").to_string()),
        ]);
        text += "\n";
        text += &bars_text(&self.bars);
        text += "\nDMA engine (XDMA)\n";
        text += &xdma_text(&self.xdma);
        if let Some(CdmaLine { offset, assumed_length_bits: bits }) = &self.cdma {
            text += "\nCopy engine (CDMA)\n";
            let lengths = format!("{bits} bit assumed; longer copies are split");
            text += &pairs(&[("registers", format!("{offset} in the user BAR")), ("length field", lengths)]);
        }
        match &self.identity {
            Some(identity) => {
                text += "\nIdentity block\n";
                text += &identity_text(identity);
            }
            None => {
                text += "\nThe identity block was not read: the subsystem ids do not announce one (--ni reads it anyway).\n"
            }
        }
        if let Some(ni) = &self.ni {
            text += "\nNetwork interface\n";
            text += &ni_text(ni);
        }
        if let Some(copies) = &self.copies {
            text += "\nCopies of data beyond this machine's caches\n";
            text += &pairs(&copies.lines());
        }
        text
    }
}

fn bars_text(bars: &[BarLine]) -> String {
    let kind = |bar: &BarLine| match bar.prefetchable {
        true => format!("{}, prefetchable", bar.kind),
        false => bar.kind.to_owned(),
    };
    listing(
        bars,
        &[
            ("BAR", &|bar| bar.index.to_string()),
            ("ROLE", &|bar| bar.role.to_owned()),
            (">SIZE", &|bar| binary_size(bar.bytes)),
            ("KIND", &kind),
            ("REASON", &|bar| bar.reason.clone()),
        ],
    )
}

fn xdma_text(xdma: &Xdma) -> String {
    let known = |value: Option<u32>, unit: &str| {
        value.map_or_else(|| "unknown".to_owned(), |value| format!("{value} {unit}"))
    };
    pairs(&[
        ("IP version", format!("{} (code {})", xdma.ip_version_name.unwrap_or("unknown"), xdma.ip_version)),
        ("channels", format!("{} H2C, {} C2H, {}", xdma.h2c_channels, xdma.c2h_channels, xdma.interface)),
        ("data width", known(xdma.data_width_bits, "bit")),
        (
            "PCIe payload",
            format!(
                "{} at most, read requests {}",
                known(xdma.max_payload_bytes, "B"),
                known(xdma.max_read_request_bytes, "B")
            ),
        ),
        (
            "addresses",
            format!(
                "{} bit, alignment {} B, length granularity {} B",
                xdma.address_bits, xdma.address_alignment_bytes, xdma.length_granularity_bytes
            ),
        ),
    ])
}

fn identity_text(identity: &IdentityLine) -> String {
    let mut text = pairs(&[
        ("contract", format!("{}, checksum {}", identity.contract, identity.checksum)),
        ("build", identity.build.clone()),
        ("capabilities", identity.capabilities.join(", ")),
    ]);
    text += &listing(
        &identity.blocks,
        &[
            ("BLOCK", &|block| block.kind.clone()),
            (">VERSION", &|block| block.version.to_string()),
            ("OFFSET", &|block| block.offset.clone()),
            (">SIZE", &|block| binary_size(block.bytes.into())),
        ],
    );
    text
}

fn ni_text(ni: &Ni) -> String {
    let op_table = if ni.op_table_entries == 0 {
        "in the driver".to_owned()
    } else {
        format!("in the card, {}", quantity(ni.op_table_entries, "entry"))
    };
    let schemes = match ni.schemes.as_slice() {
        [] => "none that this software knows".to_owned(),
        [one] => (*one).to_owned(),
        several if ni.several_schemes_at_once => format!("{}; several at once", several.join(", ")),
        several => format!("{}; one at a time", several.join(", ")),
    };
    pairs(&[
        ("node", ni.node.to_string()),
        ("packets", format!("{} B, at most {} per segment", ni.packet_bytes, ni.mask_bits)),
        ("registry", quantity(ni.registry_entries, "entry").to_string()),
        ("escape channel", quantity(ni.escape_slots, "slot").to_string()),
        ("op table", op_table),
        ("memory windows", ni.memory_windows.to_string()),
        ("schemes", schemes),
        ("events", if ni.event_push { "pushed to the host" } else { "fetched from card memory" }.to_owned()),
        ("memory", format!("{} at {}", binary_size(ni.memory_bytes), ni.memory_base)),
        (
            "transmit windows",
            format!(
                "{} of {} at {}, {} apart",
                ni.transmit_windows,
                binary_size(ni.transmit_window_payload_bytes.into()),
                ni.transmit_window_base,
                binary_size(ni.transmit_window_stride_bytes.into())
            ),
        ),
    ])
}
