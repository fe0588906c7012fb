//! Checks of card descriptions.

use crate::description::{
    BarDescription, BarName, CardDescription, OLDEST_SCHEMA_VERSION, SCHEMA_VERSION, StreamDescription,
};
use crate::fault_plan::FaultProblem;
use fpga_firmware::ids::MessageId;
use fpga_protocol::scheme::commands::MAX_COMMANDS;
use std::borrow::Cow;

/// Maximum size of card memory in bytes. It is one mapping, and no card has more.
const MAX_MEMORY: u64 = 1 << 44;
/// Maximum rate of memory in megabytes per second, and of a port in megabits per second. No memory and no port is faster.
const MAX_RATE: u64 = 100_000_000;
/// Maximum size of the FIFO between stream ports in bytes, and maximum length of a generated packet in bytes.
const MAX_STREAM_BYTES: u64 = 16 << 20;
/// Granularity of memory and windows in bytes.
const GRANULE: u64 = 64 * 1024;

/// Invalid value of a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Unknown schema version.
    #[error("schema version {found} is not supported; the newest is {SCHEMA_VERSION}")]
    SchemaVersion {
        /// Version in the file.
        found: u32,
    },
    /// The stated version does not have the key.
    #[error("schema version {found} does not have this key, which came with {since}")]
    Newer {
        /// Dotted key.
        key: &'static str,
        /// Version in the file.
        found: u32,
        /// First version that has the key.
        since: u32,
    },
    /// A number is outside its range.
    #[error("{found} is out of range; allowed: {least} to {most}")]
    OutOfRange {
        /// Dotted key.
        key: &'static str,
        /// Value in the file.
        found: u64,
        /// Minimum.
        least: u64,
        /// Maximum.
        most: u64,
    },
    /// A number is not one of the few allowed ones.
    #[error("{found} is not possible; allowed: {allowed:?}")]
    NotOneOf {
        /// Dotted key.
        key: &'static str,
        /// Value in the file.
        found: u64,
        /// Allowed values.
        allowed: &'static [u64],
    },
    /// A size is not a power of two, or an address is not aligned.
    #[error("{found:#x} is not a {rule}")]
    Misaligned {
        /// Dotted key.
        key: &'static str,
        /// Value in the file.
        found: u64,
        /// Required form, such as "power of two".
        rule: &'static str,
    },
    /// The BARs need more BAR registers than a type-0 header has.
    #[error("the BARs take {registers} BAR registers; a function has 6 (a 64-bit BAR takes two)")]
    TooManyBars {
        /// Number of BAR registers that the BARs take.
        registers: u8,
    },
    /// The order of the BARs names one twice and omits another.
    #[error(
        "the order does not name each of user, dma and bypass exactly once, including BARs that the card does not have"
    )]
    BarOrder,
    /// Card memory and transmit windows overlap.
    #[error("the transmit windows at {base:#x} overlap card memory")]
    WindowsOverlapMemory {
        /// Card address of the first window.
        base: u64,
    },
    /// A fault of the plan is invalid.
    #[error("{problem}")]
    Fault {
        /// Index in `faults.list`.
        index: usize,
        /// Error in the entry.
        problem: FaultProblem,
    },
    /// The model does not implement the value.
    #[error("not modelled; permitted: {instead}")]
    NotModelled {
        /// Dotted key.
        key: &'static str,
        /// Value to write instead.
        instead: &'static str,
    },
}

impl Problem {
    pub(crate) fn of_fault((index, problem): (usize, FaultProblem)) -> Self {
        Self::Fault { index, problem }
    }

    /// Dotted key of the invalid value.
    #[must_use]
    pub fn key(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Fault { index, problem } => {
                return Cow::Owned(format!("faults.list[{index}].{}", problem.key()));
            }
            Self::SchemaVersion { .. } => "schema_version",
            Self::TooManyBars { .. } => "bars",
            Self::BarOrder => "bars.order",
            Self::WindowsOverlapMemory { .. } => "ni.window_base",
            Self::Newer { key, .. }
            | Self::OutOfRange { key, .. }
            | Self::NotOneOf { key, .. }
            | Self::Misaligned { key, .. }
            | Self::NotModelled { key, .. } => key,
        })
    }
}

fn check_range(key: &'static str, found: u64, least: u64, most: u64) -> Result<(), Problem> {
    if (least..=most).contains(&found) {
        Ok(())
    } else {
        Err(Problem::OutOfRange { key, found, least, most })
    }
}

fn check_one_of(key: &'static str, found: u64, allowed: &'static [u64]) -> Result<(), Problem> {
    if allowed.contains(&found) { Ok(()) } else { Err(Problem::NotOneOf { key, found, allowed }) }
}

fn check_alignment(key: &'static str, found: u64, granule: u64, rule: &'static str) -> Result<(), Problem> {
    if found.is_multiple_of(granule) { Ok(()) } else { Err(Problem::Misaligned { key, found, rule }) }
}

/// Checks a BAR, and returns the number of BAR registers that it takes.
fn check_bar(
    key: &'static str,
    size_key: &'static str,
    width_key: &'static str,
    bar: Option<&BarDescription>,
) -> Result<u8, Problem> {
    let Some(bar) = bar else { return Ok(0) };
    check_one_of(width_key, bar.width.into(), &[32, 64])?;
    // PG195: 128 bytes up to 2 GiB (32 bit); the 64-bit limit is the maximum card memory size.
    check_range(size_key, bar.size, 128, if bar.width == 32 { 1 << 31 } else { MAX_MEMORY })?;
    if !bar.size.is_power_of_two() {
        return Err(Problem::Misaligned { key: size_key, found: bar.size, rule: "power of two" });
    }
    check_alignment(key, bar.card_address, bar.size, "multiple of the BAR's size")?;
    Ok(if bar.width == 64 { 2 } else { 1 })
}

/// Checks every value of `description`.
///
/// # Errors
/// The first [`Problem`] in the order of the file's sections.
pub fn validate(description: &CardDescription) -> Result<(), Problem> {
    let found = description.schema_version;
    if !(OLDEST_SCHEMA_VERSION..=SCHEMA_VERSION).contains(&found) {
        return Err(Problem::SchemaVersion { found });
    }
    newer(description, found)?;
    check_range("pci.class", description.pci.class.into(), 0, 0xFF_FFFF)?;
    check_one_of("pci.max_payload", description.pci.max_payload.into(), &[128, 256, 512, 1024, 2048, 4096])?;
    let bars = &description.bars;
    check_bar_order(bars.order)?;
    if let Some(rom) = &bars.rom {
        check_range("bars.rom.size", rom.size, 1 << 11, 1 << 24)?;
        if !rom.size.is_power_of_two() {
            return Err(Problem::Misaligned { key: "bars.rom.size", found: rom.size, rule: "power of two" });
        }
    }
    let registers = check_bar("bars.user", "bars.user.size", "bars.user.width", bars.user.as_ref())?
        + check_bar("bars.dma", "bars.dma.size", "bars.dma.width", bars.dma.as_ref())?
        + check_bar("bars.bypass", "bars.bypass.size", "bars.bypass.width", bars.bypass.as_ref())?;
    if registers > 6 {
        return Err(Problem::TooManyBars { registers });
    }
    let xdma = &description.xdma;
    check_range("xdma.h2c_channels", xdma.h2c_channels.into(), 1, 4)?;
    check_range("xdma.c2h_channels", xdma.c2h_channels.into(), 1, 4)?;
    check_one_of("xdma.data_width", xdma.data_width.into(), &[64, 128, 256, 512])?;
    check_range("xdma.ip_version", xdma.ip_version.into(), 1, 255)?;
    let cdma = &description.cdma;
    check_range("cdma.address_width", cdma.address_width.into(), 32, 64)?;
    check_one_of("cdma.data_width", cdma.data_width.into(), &[32, 64, 128, 256, 512, 1024])?;
    check_one_of("cdma.max_length_bits", cdma.max_length_bits.into(), &[23, 26])?;
    if cdma.dre && cdma.data_width > 512 {
        return Err(Problem::NotModelled { key: "cdma.dre", instead: "false (PG034: up to 512 bit)" });
    }
    let memory = &description.memory;
    check_range("memory.megabytes_per_second", memory.megabytes_per_second, 1, MAX_RATE)?;
    check_range("memory.size", memory.size, GRANULE, MAX_MEMORY)?;
    check_alignment("memory.size", memory.size, GRANULE, "multiple of 64 KiB")?;
    check_alignment("memory.base", memory.base, GRANULE, "multiple of 64 KiB")?;
    check_range("memory.base", memory.base, 0, u64::MAX - MAX_MEMORY)?;
    let interrupts = &description.interrupts;
    check_range("interrupts.msix_vectors", interrupts.msix_vectors.into(), 0, 32)?;
    check_one_of("interrupts.msi_vectors", interrupts.msi_vectors.into(), &[0, 1, 2, 4, 8, 16, 32])?;
    check_range("interrupts.pin", interrupts.pin.into(), 0, 4)?;
    check_range("interrupts.cdma_user_irq", interrupts.cdma_user_irq.into(), 0, 15)?;
    check_range("link.speed", description.link.speed.into(), 1, 5)?;
    check_one_of("link.width", description.link.width.into(), &[1, 2, 4, 8, 16])?;
    check_network(description)?;
    check_stream(&description.stream)?;
    if let Some(silent) = &description.quirks.silent_memory {
        check_range("quirks.silent_memory.size", silent.size, 1, u64::MAX)?;
    }
    description.faults.plan().map_err(Problem::of_fault)?;
    Ok(())
}

/// Checks that keys which the stated version lacks have the value that this version implied.
fn newer(description: &CardDescription, found: u32) -> Result<(), Problem> {
    let refuse = |key, since| Err(Problem::Newer { key, found, since });
    let default = CardDescription::default();
    if found < 2 && description.quirks != default.quirks {
        return refuse("quirks", 2);
    }
    if found >= 3 {
        return Ok(());
    }
    let (pci, bars, interrupts) = (&description.pci, &description.bars, &description.interrupts);
    let prefetchable =
        |bar: &Option<BarDescription>| bar.as_ref().is_some_and(|bar| bar.prefetchable.is_some());
    let keys = [
        ("pci.pme", pci.pme != default.pci.pme),
        ("pci.bus_device_function", pci.bus_device_function != default.pci.bus_device_function),
        ("faults", description.faults != default.faults),
        ("stream", description.stream != default.stream),
        ("pci.max_payload", pci.max_payload != default.pci.max_payload),
        ("pci.flr", pci.flr != default.pci.flr),
        ("pci.aer", pci.aer != default.pci.aer),
        ("pci.serial", pci.serial != default.pci.serial),
        ("bars.order", bars.order != default.bars.order),
        ("bars.rom", bars.rom.is_some()),
        ("bars.user.prefetchable", prefetchable(&bars.user)),
        ("bars.dma.prefetchable", prefetchable(&bars.dma)),
        ("bars.bypass.prefetchable", prefetchable(&bars.bypass)),
        ("interrupts.msi_vectors", interrupts.msi_vectors != default.interrupts.msi_vectors),
        ("interrupts.msi_masking", interrupts.msi_masking != default.interrupts.msi_masking),
        ("interrupts.pin", interrupts.pin != default.interrupts.pin),
        ("link.rate", description.link.rate != default.link.rate),
        ("ni.sending_contexts", description.ni.sending_contexts != default.ni.sending_contexts),
        ("ni.commands", description.ni.commands != default.ni.commands),
        ("quirks.intx_disable_ignored", description.quirks.intx_disable_ignored),
    ];
    keys.into_iter().find(|(_, differs)| *differs).map_or(Ok(()), |(key, _)| refuse(key, 3))
}

fn check_bar_order(order: [BarName; 3]) -> Result<(), Problem> {
    let all = [BarName::User, BarName::Dma, BarName::Bypass];
    if all.iter().all(|name| order.contains(name)) { Ok(()) } else { Err(Problem::BarOrder) }
}

fn check_stream(stream: &StreamDescription) -> Result<(), Problem> {
    check_range("stream.fifo_bytes", stream.fifo_bytes.into(), 4096, MAX_STREAM_BYTES)?;
    if !stream.fifo_bytes.is_power_of_two() {
        let found = stream.fifo_bytes.into();
        return Err(Problem::Misaligned { key: "stream.fifo_bytes", found, rule: "power of two" });
    }
    let source = &stream.source;
    check_range("stream.source.longest", source.longest.into(), 1, MAX_STREAM_BYTES)?;
    check_range("stream.source.shortest", source.shortest.into(), 1, source.longest.into())
}

fn check_network(description: &CardDescription) -> Result<(), Problem> {
    let ni = &description.ni;
    check_range("ni.node_id", ni.node_id.into(), 0, u64::from(u32::MAX) - 1)?;
    check_range("ni.megabits_per_second", ni.megabits_per_second, 8, MAX_RATE)?;
    check_one_of(
        "ni.packet_size",
        ni.packet_size.into(),
        &[64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768],
    )?;
    check_range("ni.mask_bits", ni.mask_bits.into(), 1, 256)?;
    check_range("ni.registry_entries", ni.registry_entries.into(), 1, 4096)?;
    check_range("ni.escape_slots", ni.escape_slots.into(), 1, 4096)?;
    check_range("ni.memory_windows", ni.memory_windows.into(), 1, 4096)?;
    check_range("ni.windows", ni.windows.into(), 1, 32)?;
    check_range("ni.sending_contexts", ni.sending_contexts.into(), 1, MessageId::CONTEXTS.into())?;
    check_range("ni.commands", ni.commands.into(), 0, MAX_COMMANDS.into())?;
    check_alignment("ni.window_base", ni.window_base, GRANULE, "multiple of 64 KiB")?;
    check_range("ni.window_base", ni.window_base, 0, u64::MAX - MAX_MEMORY)?;
    let windows_end = ni.window_base + ni.windows_size();
    let memory = &description.memory;
    if ni.window_base < memory.base + memory.size && memory.base < windows_end {
        return Err(Problem::WindowsOverlapMemory { base: ni.window_base });
    }
    Ok(())
}
