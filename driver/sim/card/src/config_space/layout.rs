//! Layout of configuration space: offsets, power-on values, and the access rule of each bit.
//!
//! Section numbers are those of the PCI Express Base Specification 5.0 (chapter 7) and the PCI Local Bus Specification 3.0 (6.2). The
//! capabilities have the vendor core's offsets, as listings of public cards show them.

use super::{BarRole, CONFIG_SIZE};
use crate::description::{BarName, CardDescription};
use fpga_registers::cast::low32;

/// Command and status (PCIe 7.5.1.1.3, 7.5.1.1.4).
pub(super) const COMMAND: usize = 0x04;
pub(super) const STATUS: usize = 0x06;
pub(super) mod command {
    pub(in crate::config_space) const MEMORY: u16 = 1 << 1;
    pub(in crate::config_space) const MASTER: u16 = 1 << 2;
    pub(in crate::config_space) const SERR: u16 = 1 << 8;
    pub(in crate::config_space) const INTX_DISABLE: u16 = 1 << 10;
    /// Memory, bus master, parity response, SERR, INTx disable. All other bits are hard-wired to 0 (PCIe), including I/O space, which the
    /// card does not have.
    pub(in crate::config_space) const WRITABLE: u16 = 0x0546;
}
pub(super) mod status {
    pub(in crate::config_space) const INTERRUPT: u16 = 1 << 3;
    pub(in crate::config_space) const CAPABILITIES: u16 = 1 << 4;
    pub(in crate::config_space) const RECEIVED_TARGET_ABORT: u16 = 1 << 12;
    pub(in crate::config_space) const RECEIVED_MASTER_ABORT: u16 = 1 << 13;
    pub(in crate::config_space) const SIGNALLED_SYSTEM_ERROR: u16 = 1 << 14;
    pub(in crate::config_space) const DETECTED_PARITY_ERROR: u16 = 1 << 15;
    /// Master data parity error, signalled target abort, and the four above.
    pub(in crate::config_space) const W1C: u16 = 0xF900;
}
const BAR0: usize = 0x10;
/// Expansion ROM base address: bit 0 switches its decoder on.
pub(super) const ROM: usize = 0x30;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_PIN: usize = 0x3D;

pub(super) const PM: usize = 0x40;
pub(super) const MSI: usize = 0x48;
pub(super) const MSIX: usize = 0x60;
pub(super) const PCIE: usize = 0x70;
/// Extended capabilities.
pub(super) const AER: usize = 0x100;
const SERIAL: usize = 0x150;
/// Secondary PCI Express; listings of public UltraScale+ cards have it at this offset.
const SECONDARY: usize = 0x1C0;

/// Power management control and status (7.5.2.2): bits 1:0 are the power state.
pub(super) const POWER_STATE: usize = PM + 4;

/// MSI (7.7.1). 64-bit addresses always, so that data is at 0x0C.
pub(super) mod msi {
    use super::MSI;

    pub(in crate::config_space) const CONTROL: usize = MSI + 2;
    pub(in crate::config_space) const ENABLE: u16 = 1;
    /// Number of enabled messages, as a power of two.
    pub(in crate::config_space) const MESSAGES: u16 = 7 << 4;
    pub(in crate::config_space) const MASK: usize = MSI + 0x10;
    pub(in crate::config_space) const PENDING: usize = MSI + 0x14;
    pub(in crate::config_space) const ADDRESS_64: u16 = 1 << 7;
    pub(in crate::config_space) const MASKING: u16 = 1 << 8;
}

/// MSI-X (7.7.2).
pub(super) mod msix {
    use super::MSIX;

    pub(in crate::config_space) const CONTROL: usize = MSIX + 2;
    pub(in crate::config_space) const ENABLE: u16 = 1 << 15;
    pub(in crate::config_space) const FUNCTION_MASK: u16 = 1 << 14;
    /// Offsets of the table and of the pending bits in the DMA BAR (PG195).
    pub(super) const TABLE: u32 = 0x8000;
    pub(super) const PBA: u32 = 0x8FE0;
}

/// PCI Express capability (7.5.3).
pub(super) mod express {
    use super::PCIE;

    pub(in crate::config_space) const DEVICE_CAPABILITIES: usize = PCIE + 0x04;
    pub(in crate::config_space) const DEVICE_CONTROL: usize = PCIE + 0x08;
    pub(in crate::config_space) const DEVICE_STATUS: usize = PCIE + 0x0A;
    pub(in crate::config_space) const LINK_CONTROL: usize = PCIE + 0x10;
    pub(in crate::config_space) const INITIATE_FLR: u16 = 1 << 15;
    pub(in crate::config_space) const MAX_PAYLOAD: u16 = 0x00E0;
    pub(in crate::config_space) const FLR_CAPABLE: u32 = 1 << 28;
}

/// Advanced error reporting (7.8.4).
pub(super) mod aer {
    use super::AER;

    pub(in crate::config_space) const UNCORRECTABLE_STATUS: usize = AER + 0x04;
    pub(in crate::config_space) const UNCORRECTABLE_MASK: usize = AER + 0x08;
    pub(in crate::config_space) const UNCORRECTABLE_SEVERITY: usize = AER + 0x0C;
    pub(in crate::config_space) const CORRECTABLE_STATUS: usize = AER + 0x10;
    pub(in crate::config_space) const CORRECTABLE_MASK: usize = AER + 0x14;
    pub(in crate::config_space) const CONTROL: usize = AER + 0x18;
    /// Uncorrectable errors that the function knows: 4, 5, 12 to 20.
    pub(in crate::config_space) const UNCORRECTABLE: u32 = 0x001F_F030;
    /// Correctable ones: 0, 6, 7, 8, 12, 13.
    pub(in crate::config_space) const CORRECTABLE: u32 = 0x0000_31C1;
    /// Fatal by default: data link protocol, surprise down, flow control, receiver overflow, malformed TLP.
    pub(in crate::config_space) const FATAL_BY_DEFAULT: u32 = 0x0006_2030;
    /// Advisory non-fatal errors are masked by default.
    pub(super) const MASKED_BY_DEFAULT: u32 = 1 << 13;
}

/// One byte for each byte of configuration space.
pub(super) type Bytes = Box<[u8; CONFIG_SIZE]>;

/// Arrays that define configuration space.
#[derive(Debug, Clone)]
pub(super) struct Map {
    /// Value that reads return.
    pub(super) value: Bytes,
    /// Bits that hold what is written.
    pub(super) writable: Bytes,
    /// Bits that a written 1 clears.
    pub(super) clears: Bytes,
    /// Bits that survive a reset without loss of power ("sticky", 7.4).
    pub(super) sticky: Bytes,
}

impl Map {
    pub(super) fn new(description: &CardDescription, bars: &[super::BarLayout]) -> Self {
        let zero = || Box::new([0; CONFIG_SIZE]);
        let mut map = Self { value: zero(), writable: zero(), clears: zero(), sticky: zero() };
        map.header(description, bars);
        map.power_management(description);
        map.msi(description);
        map.msix(description, bars);
        map.pcie_capability(description);
        map.chain(description, bars);
        map.extended(description);
        map
    }

    fn header(&mut self, description: &CardDescription, bars: &[super::BarLayout]) {
        let pci = &description.pci;
        self.set_word(0x00, pci.vendor);
        self.set_word(0x02, pci.device);
        self.field(COMMAND, 0, command::WRITABLE);
        self.field(STATUS, status::CAPABILITIES, 0);
        self.set_clears(STATUS, &status::W1C.to_le_bytes());
        let [programming, sub, base, _] = pci.class.to_le_bytes();
        self.set_bytes(0x08, &[pci.revision, programming, sub, base]);
        // Cache line size and interrupt line are scratch for the operating system.
        self.set_writable(0x0C, &[0xFF]);
        self.set_writable(0x3C, &[0xFF]);
        self.set_bytes(INTERRUPT_PIN, &[description.interrupts.pin]);
        self.set_word(0x2C, pci.subsystem_vendor);
        self.set_word(0x2E, pci.subsystem_device);
        for bar in bars {
            let at = BAR0 + 4 * usize::from(bar.index);
            let kind = if bar.wide { 0x4 } else { 0x0 } | if bar.prefetchable { 0x8 } else { 0x0 };
            self.set_bytes(at, &[kind]);
            let address = (!(bar.size - 1)).to_le_bytes();
            self.set_writable(at, address.get(..if bar.wide { 8 } else { 4 }).unwrap_or_default());
        }
        if let Some(rom) = &description.bars.rom {
            let address = low32(!(rom.size - 1)) | 1;
            self.set_writable(ROM, &address.to_le_bytes());
        }
    }

    fn power_management(&mut self, description: &CardDescription) {
        // Version 3; neither D1 nor D2; no soft reset on the transition from D3hot (public XDMA cards report NoSoftRst+).
        self.set_bytes(PM, &[0x01, 0, 0x03, 0x00, 0x08, 0x00]);
        self.set_writable(POWER_STATE, &[0x03]);
        if description.pci.pme {
            // Listings of a 7024 and a 7021 with XDMA agree: PME from D0, D1, D2 and D3hot, although D1 and D2 are not supported. PME_En
            // holds the written value and starts at 0, because D3cold is not in the list (PCI power management 3.2.4). PME_Status stays 0.
            self.set_bytes(PM + 3, &[0b0111_1000]);
            self.set_writable(POWER_STATE + 1, &[0x01]);
        }
    }

    fn msi(&mut self, description: &CardDescription) {
        let interrupts = &description.interrupts;
        if interrupts.msi_vectors == 0 {
            return;
        }
        let capable = low_word(u32::from(interrupts.msi_vectors).ilog2() << 1);
        let masking = if interrupts.msi_masking { msi::MASKING } else { 0 };
        self.set_bytes(MSI, &[0x05]);
        self.field(msi::CONTROL, capable | msi::ADDRESS_64 | masking, 0x0070 | msi::ENABLE);
        self.set_writable(MSI + 0x04, &0xFFFF_FFFC_u32.to_le_bytes());
        self.set_writable(MSI + 0x08, &[0xFF; 4]);
        self.set_writable(MSI + 0x0C, &[0xFF; 2]);
        if interrupts.msi_masking {
            let messages = u32::MAX >> (32 - interrupts.msi_vectors.min(32));
            self.set_writable(msi::MASK, &messages.to_le_bytes());
        }
    }

    fn msix(&mut self, description: &CardDescription, bars: &[super::BarLayout]) {
        let Some(bar) = table_bar(description, bars) else { return };
        self.set_bytes(MSIX, &[0x11]);
        let last = description.interrupts.msix_vectors.saturating_sub(1);
        self.field(msix::CONTROL, last, msix::ENABLE | msix::FUNCTION_MASK);
        self.set_bytes(MSIX + 4, &(msix::TABLE | bar).to_le_bytes());
        self.set_bytes(MSIX + 8, &(msix::PBA | bar).to_le_bytes());
    }

    fn pcie_capability(&mut self, description: &CardDescription) {
        let link = &description.link;
        let speed = u32::from(link.speed);
        let width = u32::from(link.width);
        // Capability version 2, endpoint, no slot, interrupt message 0.
        self.set_bytes(PCIE, &[0x10, 0x00, 0x02, 0x00]);
        // Device: maximum payload, extended tags, role-based error reporting, function-level reset.
        let payload = u32::from(description.pci.max_payload.max(128) / 128).ilog2();
        let flr = if description.pci.flr { express::FLR_CAPABLE } else { 0 };
        let capabilities = payload | 1 << 5 | 1 << 15 | flr;
        self.set_bytes(express::DEVICE_CAPABILITIES, &capabilities.to_le_bytes());
        // Device control after reset: relaxed ordering, no snoop, read requests of 512 B, payload of 128 B. Phantom functions (bit 9) and
        // auxiliary power (10) are not implemented; initiate reset (15) always reads as 0.
        self.field(express::DEVICE_CONTROL, 0x2810, 0x79FF);
        self.set_clears(express::DEVICE_STATUS, &0x000F_u16.to_le_bytes());
        // Link: no power management; the "optionality" bit as version 2 requires.
        let capabilities = speed | width << 4 | 1 << 22;
        self.set_bytes(PCIE + 0x0C, &capabilities.to_le_bytes());
        // ASPM control, read completion boundary, common clock, extended synch.
        self.field(express::LINK_CONTROL, 0, 0x00CB);
        // Link status: maximum speed and width, with the slot's clock.
        self.set_word(PCIE + 0x12, low_word(speed | width << 4 | 1 << 12));
        // Device 2: completion timeout in range B, which software can disable.
        self.set_bytes(PCIE + 0x24, &0x0000_0012_u32.to_le_bytes());
        self.field(PCIE + 0x28, 0, 0x001F);
        // Link 2: supported speeds. A link that supports 2.5 GT/s only has the control register hard-wired to 0.
        let speeds = ((1_u32 << speed) - 1) << 1;
        self.set_bytes(PCIE + 0x2C, &speeds.to_le_bytes());
        if speed > 1 {
            let writable = if speed > 2 { 0xFFBF_u16 } else { 0x1FBF };
            self.field(PCIE + 0x30, low_word(speed), writable);
            self.set_sticky(PCIE + 0x30, &writable.to_le_bytes());
        }
        if speed > 2 {
            // Equalisation complete, in all three phases.
            self.set_word(PCIE + 0x32, 0x001E);
        }
    }

    /// Links the capabilities that exist.
    fn chain(&mut self, description: &CardDescription, bars: &[super::BarLayout]) {
        let msi = (description.interrupts.msi_vectors > 0).then_some(MSI);
        let msix = table_bar(description, bars).map(|_| MSIX);
        let mut link = CAPABILITIES;
        for at in [Some(PM), msi, msix, Some(PCIE)].into_iter().flatten() {
            self.set_bytes(link, &[low_byte(at)]);
            link = at + 1;
        }
    }

    /// Links the extended capabilities that exist. The first one is always at 0x100.
    fn extended(&mut self, description: &CardDescription) {
        let pci = &description.pci;
        let first = AER;
        let mut places = Vec::new();
        if pci.aer {
            self.error_reporting();
            places.push(first);
        }
        if let Some(serial) = pci.serial {
            let at = if places.is_empty() { first } else { SERIAL };
            self.extended_header(at, 0x0003, 1);
            self.set_bytes(at + 4, &serial.to_le_bytes());
            places.push(at);
        }
        // Required of functions whose link supports 8 GT/s (7.7.3).
        if description.link.speed > 2 {
            let at = if places.is_empty() { first } else { SECONDARY };
            self.secondary_pcie_capability(at, description.link.width);
            places.push(at);
        }
        for (at, next) in places.iter().zip(places.iter().skip(1)) {
            let next = low_word(u32::try_from(*next).unwrap_or(0) << 4);
            // The version is in the lower four bits.
            let version = self.word(at + 2);
            self.set_word(at + 2, version | next);
        }
    }

    /// Secondary PCI Express (7.7.3). Link Control 3 concerns requests of a downstream port and reads as 0.
    fn secondary_pcie_capability(&mut self, at: usize, lanes: u8) {
        self.extended_header(at, 0x0019, 1);
        // Lane error status: one bit per lane, kept across a reset.
        let errors = u32::MAX >> (32 - u32::from(lanes.clamp(1, 32)));
        self.set_clears(at + 8, &errors.to_le_bytes());
        self.set_sticky(at + 8, &errors.to_le_bytes());
        // Lane equalization control, one word per lane. The presets of an upstream port have their default, all ones; those of a
        // downstream port are reserved.
        for lane in 0..usize::from(lanes) {
            self.set_word(at + 0xC + 2 * lane, 0x7F00);
        }
    }

    fn error_reporting(&mut self) {
        self.extended_header(AER, 0x0001, 2);
        let uncorrectable = aer::UNCORRECTABLE.to_le_bytes();
        let correctable = aer::CORRECTABLE.to_le_bytes();
        self.set_clears(aer::UNCORRECTABLE_STATUS, &uncorrectable);
        self.set_clears(aer::CORRECTABLE_STATUS, &correctable);
        self.set_writable(aer::UNCORRECTABLE_MASK, &uncorrectable);
        self.set_writable(aer::UNCORRECTABLE_SEVERITY, &uncorrectable);
        self.set_bytes(aer::UNCORRECTABLE_SEVERITY, &aer::FATAL_BY_DEFAULT.to_le_bytes());
        self.set_writable(aer::CORRECTABLE_MASK, &correctable);
        self.set_bytes(aer::CORRECTABLE_MASK, &aer::MASKED_BY_DEFAULT.to_le_bytes());
        // Status, masks and severity, first error pointer and header log survive a reset.
        self.set_sticky(AER + 4, &[0xFF; 0x2C - 4]);
    }

    /// Writes the header of the last extended capability, until another one is linked to it.
    fn extended_header(&mut self, at: usize, id: u32, version: u32) {
        self.set_bytes(at, &(id | version << 16).to_le_bytes());
    }

    pub(super) fn word(&self, at: usize) -> u16 {
        match self.value.get(at..at + 2) {
            Some([low, high]) => u16::from_le_bytes([*low, *high]),
            _ => 0,
        }
    }

    pub(super) fn dword(&self, at: usize) -> u32 {
        u32::from(self.word(at)) | u32::from(self.word(at + 2)) << 16
    }

    pub(super) fn set_word(&mut self, at: usize, value: u16) {
        self.set_bytes(at, &value.to_le_bytes());
    }

    fn field(&mut self, at: usize, value: u16, writable: u16) {
        self.set_word(at, value);
        self.set_writable(at, &writable.to_le_bytes());
    }

    pub(super) fn set_bytes(&mut self, at: usize, bytes: &[u8]) {
        put(&mut self.value, at, bytes);
    }

    fn set_writable(&mut self, at: usize, bits: &[u8]) {
        put(&mut self.writable, at, bits);
    }

    fn set_clears(&mut self, at: usize, bits: &[u8]) {
        put(&mut self.clears, at, bits);
    }

    fn set_sticky(&mut self, at: usize, bits: &[u8]) {
        put(&mut self.sticky, at, bits);
    }
}

fn put(array: &mut Bytes, at: usize, bytes: &[u8]) {
    for (byte, new) in array.iter_mut().skip(at).zip(bytes) {
        *byte = *new;
    }
}

/// Returns the index of the BAR with the MSI-X table. A function without a DMA BAR has no table, and must not point at user logic.
fn table_bar(description: &CardDescription, bars: &[super::BarLayout]) -> Option<u32> {
    let bar = bars.iter().find(|bar| bar.role == BarRole::Dma)?;
    (description.interrupts.msix_vectors > 0).then_some(bar.index.into())
}

/// Capability pointer; all capabilities except the extended ones are below 0x100.
fn low_byte(at: usize) -> u8 {
    u8::try_from(at).unwrap_or(0)
}

fn low_word(value: u32) -> u16 {
    u16::try_from(value & 0xFFFF).unwrap_or(0)
}

/// Lays out the BARs in the described order. A 64-bit BAR takes two registers.
pub(super) fn bars(description: &CardDescription) -> Vec<super::BarLayout> {
    let bars = &description.bars;
    let mut index = 0;
    let mut layout = Vec::new();
    for name in bars.order {
        let (role, bar) = match name {
            BarName::User => (BarRole::User, &bars.user),
            BarName::Dma => (BarRole::Dma, &bars.dma),
            BarName::Bypass => (BarRole::Bypass, &bars.bypass),
        };
        if let Some(bar) = bar {
            let wide = bar.width == 64;
            // Prefetchable where reads have no side effects, which only card memory guarantees.
            let prefetchable = bar.prefetchable.unwrap_or(wide && role == BarRole::Bypass);
            layout.push(super::BarLayout { index, role, size: bar.size, wide, prefetchable });
            index += if wide { 2 } else { 1 };
        }
    }
    layout
}
