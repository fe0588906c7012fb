//! Card description: the YAML card file.
//!
//! A file states `schema_version: 3` and any of the sections below. A missing key takes the built-in value. An unknown key is an error,
//! because a misspelt key must not silently build another card. `cards/default.yaml` lists all keys.

use crate::fault_plan::FaultsDescription;
pub use crate::stream::description::{SourceDescription, StreamDescription, StreamLogic};
use serde::Deserialize;

/// Version of the card file's schema. Older ones are read too: version 1 has no section `quirks`; versions 1 and 2 have no `faults`, no
/// `stream`, and not the keys of `pci`, `bars`, `interrupts` and `link` that are marked "since version 3".
pub const SCHEMA_VERSION: u32 = 3;
/// Oldest version that is read.
pub const OLDEST_SCHEMA_VERSION: u32 = 1;

/// Built-in card file, which lists all keys.
pub const DEFAULT_CARD_FILE: &str = include_str!("../cards/default.yaml");

/// Properties that are fixed when a card (its bitstream) is built.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CardDescription {
    /// Version of this schema: [`OLDEST_SCHEMA_VERSION`] to [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Free text shown in reports.
    #[serde(default = "default_name")]
    pub name: String,
    /// Identity in PCI configuration space.
    #[serde(default)]
    pub pci: PciDescription,
    /// BARs of the card, with size and width.
    #[serde(default)]
    pub bars: BarsDescription,
    /// The DMA engine between host and card.
    #[serde(default)]
    pub xdma: XdmaDescription,
    /// The DMA engine inside the card.
    #[serde(default)]
    pub cdma: CdmaDescription,
    /// Card memory.
    #[serde(default)]
    pub memory: MemoryDescription,
    /// Interrupt wiring.
    #[serde(default)]
    pub interrupts: InterruptDescription,
    /// PCI Express link as reported by the PCIe capability.
    #[serde(default)]
    pub link: LinkDescription,
    /// The network interface.
    #[serde(default)]
    pub ni: NiDescription,
    /// Logic behind the AXI4-Stream channels (since version 3).
    #[serde(default)]
    pub stream: StreamDescription,
    /// Permanent faults of real cards that this card has too (since version 2).
    #[serde(default)]
    pub quirks: QuirksDescription,
    /// Intermittent faults (since version 3).
    #[serde(default)]
    pub faults: FaultsDescription,
}

fn default_name() -> String {
    "simulated card".to_owned()
}

/// Ids in the type-0 header.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct PciDescription {
    /// Vendor id; 0x10EE is Xilinx.
    pub vendor: u16,
    /// Device id; 0x903F is the UltraScale+ default.
    pub device: u16,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// Subsystem device id; tells software that the user BAR starts with this project's identity block.
    pub subsystem_device: u16,
    /// Class code, 24 bits: base class, sub-class, programming interface.
    pub class: u32,
    /// Revision id.
    pub revision: u8,
    /// Maximum payload of the function in bytes: 128 to 4096, a power of two (since version 3).
    pub max_payload: u16,
    /// Function-level reset. Public XDMA cards report that they do not support it (since version 3).
    pub flr: bool,
    /// Advanced error reporting capability (since version 3).
    pub aer: bool,
    /// Reports that the card can wake the system (PME#) from D0, D1, D2 and D3hot, as listings of 7-series cards do. It never does (since
    /// version 3).
    pub pme: bool,
    /// Value of the DMA core's register 0x3004: bus 15:8, device 7:3, function 2:0. A real function learns it from the requests that reach
    /// it. A served card does not see these requests, so the file supplies the value (since version 3).
    pub bus_device_function: u16,
    /// Device serial number; `null` omits the capability (since version 3).
    pub serial: Option<u64>,
}

impl Default for PciDescription {
    fn default() -> Self {
        Self {
            vendor: 0x10EE,
            device: 0x903F,
            subsystem_vendor: 0x10EE,
            subsystem_device: 0x4E49,
            class: 0x05_8000,
            revision: 0,
            max_payload: 512,
            flr: false,
            aer: true,
            pme: false,
            bus_device_function: 0,
            // Default of the vendor's core.
            serial: Some(0x0000_0001_0100_0A35),
        }
    }
}

/// The BARs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct BarsDescription {
    /// AXI4-Lite master: identity block, CDMA and NI registers. Absent: `null`.
    pub user: Option<BarDescription>,
    /// XDMA registers. `null` builds a card without this BAR, to test how software searches for it.
    pub dma: Option<BarDescription>,
    /// Bypass window onto card memory.
    pub bypass: Option<BarDescription>,
    /// Order in which the existing BARs take BAR registers. PG195 ("Target Bridge") has user, DMA, bypass; the vendor's newer cores put
    /// DMA first (PG344) (since version 3).
    pub order: [BarName; 3],
    /// Expansion ROM, which is empty and reads as ones (since version 3).
    pub rom: Option<RomDescription>,
}

impl Default for BarsDescription {
    fn default() -> Self {
        Self {
            user: Some(BarDescription::new(0x1_0000)),
            dma: Some(BarDescription::new(0x1_0000)),
            bypass: Some(BarDescription { width: 64, ..BarDescription::new(0x400_0000) }),
            order: [BarName::User, BarName::Dma, BarName::Bypass],
            rom: None,
        }
    }
}

/// A BAR by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BarName {
    /// [`BarsDescription::user`].
    User,
    /// [`BarsDescription::dma`].
    Dma,
    /// [`BarsDescription::bypass`].
    Bypass,
}

/// An expansion ROM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RomDescription {
    /// Size in bytes: a power of two, 2 KiB to 16 MiB (PCI 6.2.5.2).
    pub size: u64,
}

/// One BAR.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BarDescription {
    /// Size in bytes: a power of two, at least 128 (PG195).
    pub size: u64,
    /// Address bits, 32 or 64; a 64-bit BAR takes two BAR registers.
    #[serde(default = "default_bar_width")]
    pub width: u8,
    /// Card address of offset 0 of the BAR (bypass BAR only; PCIe to AXI translation).
    #[serde(default)]
    pub card_address: u64,
    /// Prefetchable. If not stated, a 64-bit bypass BAR is prefetchable and the others are not (since version 3).
    #[serde(default)]
    pub prefetchable: Option<bool>,
}

impl BarDescription {
    /// Creates a BAR of `size` bytes with a 32-bit address.
    #[must_use]
    pub const fn new(size: u64) -> Self {
        Self { size, width: 32, card_address: 0, prefetchable: None }
    }
}

const fn default_bar_width() -> u8 {
    32
}

/// Build options of the XDMA core.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct XdmaDescription {
    /// Host-to-card channels, 1 to 4.
    pub h2c_channels: u8,
    /// Card-to-host channels, 1 to 4.
    pub c2h_channels: u8,
    /// Datapath width in bits: 64, 128, 256 or 512.
    pub data_width: u16,
    /// Version byte of the identifier registers (PG195: 6 is 2017.1 and later).
    pub ip_version: u8,
    /// AXI4-Stream build: all channels are streams, and [`StreamDescription`] describes the logic behind them.
    pub stream: bool,
    /// Trigger of the poll-mode write-back.
    pub completed_writeback: WritebackRule,
    /// Reproduces the reported fault with descriptors above 4 KiB and more than one adjacent block: the second such block of a run ends in
    /// a magic error.
    pub long_descriptor_quirk: bool,
    /// Minimum nanoseconds of an engine per descriptor (since version 3).
    pub descriptor_ns: u32,
}

impl Default for XdmaDescription {
    fn default() -> Self {
        Self {
            h2c_channels: 4,
            c2h_channels: 4,
            data_width: 512,
            ip_version: 6,
            stream: false,
            completed_writeback: WritebackRule::Flag,
            long_descriptor_quirk: false,
            descriptor_ns: 40,
        }
    }
}

/// Trigger of the poll-mode write-back. PG195 and observed cards differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WritebackRule {
    /// Control bit 26 and the descriptor's Completed flag, as the vendor's driver assumes.
    Flag,
    /// As `Flag`, and control bit 2 (`ie_descriptor_completed`) too, as PG195 documents.
    FlagAndEnable,
}

/// Build options of the AXI CDMA core.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct CdmaDescription {
    /// Scatter-gather support.
    pub sg: bool,
    /// Address width in bits, 32 to 64. Above 32, the high word of TAILDESC starts the engine.
    pub address_width: u8,
    /// Data width in bits: 32 to 1024, a power of two.
    pub data_width: u16,
    /// Data realignment engine: without it both addresses must be aligned to the data width.
    pub dre: bool,
    /// Bits of the byte count: 23 before version 4.1 of the IP, 26 since (PG034).
    pub max_length_bits: u8,
    /// Nanoseconds of the engine per descriptor, in addition to its data (since version 3).
    pub descriptor_ns: u32,
}

impl Default for CdmaDescription {
    fn default() -> Self {
        Self {
            sg: true,
            address_width: 64,
            data_width: 512,
            dre: true,
            max_length_bits: 26,
            descriptor_ns: 100,
        }
    }
}

/// Card memory (DDR, HBM).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct MemoryDescription {
    /// First card address.
    pub base: u64,
    /// Size in bytes; a multiple of 64 KiB.
    pub size: u64,
    /// Rate of all accesses together, not 0 (since version 3).
    pub megabytes_per_second: u64,
    /// Nanoseconds of an access (since version 3).
    pub latency_ns: u32,
}

impl Default for MemoryDescription {
    fn default() -> Self {
        // DDR4-2400 with 64 bits: 19,200 MB/s, of which refresh and bank changes leave about nine tenths.
        Self { base: 0, size: 0x2_0000_0000, megabytes_per_second: 17_000, latency_ns: 120 }
    }
}

/// Interrupt wiring.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct InterruptDescription {
    /// MSI-X table entries, up to 32; 0 omits the capability.
    pub msix_vectors: u16,
    /// MSI messages: a power of two, up to 32; 0 omits the capability (since version 3).
    pub msi_vectors: u16,
    /// Mask and pending bits of MSI (since version 3).
    pub msi_masking: bool,
    /// Pin of the legacy interrupt: 1 (INTA) to 4 (INTD), 0 if there is none (since version 3).
    pub pin: u8,
    /// User interrupt line of the CDMA's `cdma_introut`, 0 to 15. (Software selects the NI's line.)
    pub cdma_user_irq: u8,
}

impl Default for InterruptDescription {
    fn default() -> Self {
        Self { msix_vectors: 32, msi_vectors: 32, msi_masking: false, pin: 1, cdma_user_irq: 0 }
    }
}

/// PCI Express link.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LinkDescription {
    /// Generation, 1 to 5.
    pub speed: u8,
    /// Lanes: 1, 2, 4, 8 or 16.
    pub width: u8,
    /// Whether work lasts as long as on the described hardware (since version 3).
    pub rate: LinkRate,
    /// Nanoseconds from a read request to its completion, host memory included (since version 3).
    pub read_latency_ns: u32,
    /// Nanoseconds of a posted write (since version 3).
    pub write_latency_ns: u32,
}

impl Default for LinkDescription {
    fn default() -> Self {
        // DMA reads of 64 bytes by an FPGA take 500 to 1000 ns, depending on the host (Neugebauer et al., SIGCOMM 2018, section 6).
        Self { speed: 3, width: 16, rate: LinkRate::Unlimited, read_latency_ns: 600, write_latency_ns: 250 }
    }
}

impl LinkDescription {
    /// Bytes per microsecond and direction after line coding, packet headers included.
    #[must_use]
    pub fn bytes_per_microsecond(&self) -> u64 {
        // Mega-transfers per second, one bit each. 8b/10b up to 5 GT/s, 128b/130b above.
        let (transfers, data, coded) = match self.speed {
            1 => (2500, 8, 10),
            2 => (5000, 8, 10),
            3 => (8000, 128, 130),
            4 => (16_000, 128, 130),
            _ => (32_000, 128, 130),
        };
        transfers * u64::from(self.width) * data / coded / 8
    }
}

/// Rate at which DMA moves data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LinkRate {
    /// As fast as the simulating machine; a descriptor takes no time. For cards in real time.
    #[default]
    Unlimited,
    /// The time that link, engines, memory and network port of the description take, by card time. Always so in virtual time, where it
    /// costs nothing.
    Described,
}

/// The network interface and its capabilities.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct NiDescription {
    /// Node id after reset.
    pub node_id: u32,
    /// Payload bytes of a full packet: a power of two, 64 to 32768 (above 4096 since contract 3.2).
    pub packet_size: u32,
    /// Bits of a registry mask: 1 to 256.
    pub mask_bits: u16,
    /// Slots of the escape channel (buffer for early packets).
    pub registry_entries: u16,
    /// Escape slots.
    pub escape_slots: u16,
    /// Memory windows: address ranges that peers may write.
    pub memory_windows: u16,
    /// Transmit windows, 1 to 32.
    pub windows: u8,
    /// Card address of transmit window 0; outside card memory, a multiple of 64 KiB.
    pub window_base: u64,
    /// Messages that the interface can send at the same time with the message schemes (all except `registry`): 1 to 4096 (since version
    /// 3). It receives as many as it has registry entries.
    pub sending_contexts: u16,
    /// Transfers that the interface itself can execute: up to 4096. 0 means that it executes none and supports the scheme `registry` only
    /// (since version 3).
    pub commands: u16,
    /// Events are pushed into a host ring through the reserved C2H channel; otherwise the ring lies in card memory.
    pub event_push: bool,
    /// Rate of the network port, at least 8 (since version 3).
    pub megabits_per_second: u64,
    /// Nanoseconds from one card's port to another card's, without the network between them (since version 3).
    pub latency_ns: u32,
    /// Overrides the contract version word of the identity block, to test that software refuses it.
    pub version_override: Option<u32>,
    /// Overrides the contract checksum of the identity block.
    pub checksum_override: Option<u32>,
}

impl Default for NiDescription {
    fn default() -> Self {
        Self {
            node_id: 1,
            packet_size: 512,
            mask_bits: 32,
            registry_entries: 64,
            escape_slots: 64,
            memory_windows: 16,
            windows: 8,
            window_base: 0x10_0000_0000,
            sending_contexts: 64,
            commands: 256,
            event_push: true,
            megabits_per_second: 100_000,
            latency_ns: 500,
            version_override: None,
            checksum_override: None,
        }
    }
}

/// Permanent faults of real cards; all off by default. Two more are build options of the XDMA core:
/// [`XdmaDescription::long_descriptor_quirk`] and [`XdmaDescription::completed_writeback`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct QuirksDescription {
    /// Every second read of the DMA BAR returns all ones and does not reach the register, as users of cores generated in 2018 report.
    pub every_second_read_fails: bool,
    /// The first status read after an error still shows busy; the vendor's driver reads twice because of it.
    pub busy_after_error: bool,
    /// Writes to the MSI-X table are lost while MSI-X is not enabled in configuration space (PG195 requires that order).
    pub early_msix_writes_lost: bool,
    /// The AXI4-Lite slave behind the user BAR never answers: reads time out as all ones, writes are lost.
    pub silent_user_bar: bool,
    /// Range of card addresses whose AXI slave never answers: an engine that accesses it stays busy until the card is reset. The same as
    /// [`crate::Card::silence`].
    pub silent_memory: Option<RangeDescription>,
    /// The legacy line ignores the interrupt-disable bit of the command register (the vendor's driver works around that) (since version
    /// 3).
    pub intx_disable_ignored: bool,
}

/// A range of card addresses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RangeDescription {
    /// First address.
    pub base: u64,
    /// Length in bytes.
    pub size: u64,
}

impl RangeDescription {
    /// Creates the range of `size` bytes at `base`.
    #[must_use]
    pub const fn new(base: u64, size: u64) -> Self {
        Self { base, size }
    }
}

impl CardDescription {
    /// Creates the built-in card with the network interface that suits links between processes: the longest packets, which cost shared memory
    /// least. Senders cut transfers over UDP into shorter segments of a packet each, as the path carries them.
    #[must_use]
    pub fn linked() -> Self {
        let mut card = Self::default();
        card.ni.packet_size = 32_768;
        card.ni.mask_bits = 32;
        card.ni.escape_slots = 64;
        card.ni.registry_entries = 256;
        // One for each peer.
        card.ni.memory_windows = 1024;
        card
    }
}

impl Default for CardDescription {
    fn default() -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            name: default_name(),
            pci: PciDescription::default(),
            bars: BarsDescription::default(),
            xdma: XdmaDescription::default(),
            cdma: CdmaDescription::default(),
            memory: MemoryDescription::default(),
            interrupts: InterruptDescription::default(),
            link: LinkDescription::default(),
            ni: NiDescription::default(),
            stream: StreamDescription::default(),
            quirks: QuirksDescription::default(),
            faults: FaultsDescription::default(),
        }
    }
}
