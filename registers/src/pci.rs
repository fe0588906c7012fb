//! The parts of PCI configuration space that software for such cards accesses (PCI Express Base Specification 5.0, chapter 7; the names are
//! those of the specification), and the ids of known XDMA designs.

/// Vendor id of Xilinx, now AMD.
pub const VENDOR_XILINX: u16 = 0x10EE;
/// Vendor id of Amazon, whose shells contain XDMA.
pub const VENDOR_AMAZON: u16 = 0x1D0F;

/// Vendor id that a configuration read returns if no device answers.
pub const VENDOR_NONE: u16 = 0xFFFF;

/// A vendor and device id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceId {
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
}

impl DeviceId {
    const fn xilinx(device: u16) -> Self {
        Self { vendor: VENDOR_XILINX, device }
    }

    const fn amazon(device: u16) -> Self {
        Self { vendor: VENDOR_AMAZON, device }
    }
}

/// Ids of XDMA designs, as the vendor's Linux driver lists them (`xdma_mod.c`, driver 2025.2).
///
/// This is a hint, not a proof: designers can choose ids freely, and QDMA designs use some of the same by default. Only the identifiers in
/// the DMA BAR prove that there is an XDMA core.
pub const XDMA_DEVICES: &[DeviceId] = &[
    // UltraScale+
    DeviceId::xilinx(0x9048),
    DeviceId::xilinx(0x9044),
    DeviceId::xilinx(0x9042),
    DeviceId::xilinx(0x9041),
    DeviceId::xilinx(0x903F),
    DeviceId::xilinx(0x9038),
    DeviceId::xilinx(0x9028),
    DeviceId::xilinx(0x9018),
    DeviceId::xilinx(0x9034),
    DeviceId::xilinx(0x9024),
    DeviceId::xilinx(0x9014),
    DeviceId::xilinx(0x9032),
    DeviceId::xilinx(0x9022),
    DeviceId::xilinx(0x9012),
    DeviceId::xilinx(0x9031),
    DeviceId::xilinx(0x9021),
    DeviceId::xilinx(0x9011),
    // UltraScale
    DeviceId::xilinx(0x8011),
    DeviceId::xilinx(0x8012),
    DeviceId::xilinx(0x8014),
    DeviceId::xilinx(0x8018),
    DeviceId::xilinx(0x8021),
    DeviceId::xilinx(0x8022),
    DeviceId::xilinx(0x8024),
    DeviceId::xilinx(0x8028),
    DeviceId::xilinx(0x8031),
    DeviceId::xilinx(0x8032),
    DeviceId::xilinx(0x8034),
    DeviceId::xilinx(0x8038),
    // 7 series
    DeviceId::xilinx(0x7011),
    DeviceId::xilinx(0x7012),
    DeviceId::xilinx(0x7014),
    DeviceId::xilinx(0x7018),
    DeviceId::xilinx(0x7021),
    DeviceId::xilinx(0x7022),
    DeviceId::xilinx(0x7024),
    DeviceId::xilinx(0x7028),
    DeviceId::xilinx(0x7031),
    DeviceId::xilinx(0x7032),
    DeviceId::xilinx(0x7034),
    DeviceId::xilinx(0x7038),
    // Older
    DeviceId::xilinx(0x6828),
    DeviceId::xilinx(0x6830),
    DeviceId::xilinx(0x6928),
    DeviceId::xilinx(0x6930),
    DeviceId::xilinx(0x6A28),
    DeviceId::xilinx(0x6A30),
    DeviceId::xilinx(0x6D30),
    DeviceId::xilinx(0x4808),
    DeviceId::xilinx(0x4828),
    DeviceId::xilinx(0x4908),
    DeviceId::xilinx(0x4A28),
    DeviceId::xilinx(0x4B28),
    DeviceId::xilinx(0x2808),
    // Amazon shells
    DeviceId::amazon(0xF000),
    DeviceId::amazon(0xF001),
];

/// Returns whether XDMA designs are known to use this id. See [`XDMA_DEVICES`] for the reliability of this information.
#[must_use]
pub fn is_known_xdma(id: DeviceId) -> bool {
    XDMA_DEVICES.contains(&id)
}

/// Design that a default id of Xilinx stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultDesign {
    /// Family of the FPGA.
    pub family: &'static str,
    /// Generation of PCI Express.
    pub generation: u8,
    /// Number of lanes.
    pub lanes: u8,
}

/// Decodes the digits of `id`, if it follows the pattern of [`XDMA_DEVICES`]: family, 0, generation, lanes (F for 16).
///
/// Derived from the vendor's list; no document states the pattern, and a designer may keep an id and change the design.
#[must_use]
pub const fn default_design(id: DeviceId) -> Option<DefaultDesign> {
    if id.vendor != VENDOR_XILINX || id.device >> 8 & 0xF != 0 {
        return None;
    }
    let family = match id.device >> 12 {
        7 => "7 series",
        8 => "UltraScale",
        9 => "UltraScale+",
        _ => return None,
    };
    let (generation, lanes) = match (id.device >> 4 & 0xF, id.device & 0xF) {
        (generation @ 1..=4, lanes @ (1 | 2 | 4 | 8)) => (generation, lanes),
        (generation @ 1..=4, 0xF) => (generation, 16),
        _ => return None,
    };
    #[expect(clippy::cast_possible_truncation, reason = "four bits each, and 16")]
    let design = DefaultDesign { family, generation: generation as u8, lanes: lanes as u8 };
    Some(design)
}

/// Size of conventional configuration space in bytes.
pub const CONFIG_SIZE: u16 = 0x100;

/// Offsets in the type 0 configuration header.
pub mod header {
    /// Vendor id, 16 bits.
    pub const VENDOR_ID: u16 = 0x00;
    /// Device id, 16 bits.
    pub const DEVICE_ID: u16 = 0x02;
    /// Command, 16 bits: see [`command`](super::command).
    pub const COMMAND: u16 = 0x04;
    /// Status, 16 bits: see [`status`](super::status).
    pub const STATUS: u16 = 0x06;
    /// Header type, 8 bits.
    pub const HEADER_TYPE: u16 = 0x0E;
    /// First base address register, 32 bits each.
    pub const BAR0: u16 = 0x10;
    /// Subsystem vendor id, 16 bits.
    pub const SUBSYSTEM_VENDOR_ID: u16 = 0x2C;
    /// Subsystem id, 16 bits.
    pub const SUBSYSTEM_ID: u16 = 0x2E;
    /// Offset of the first capability, 8 bits.
    pub const CAPABILITIES: u16 = 0x34;
    /// Interrupt pin, 8 bits.
    pub const INTERRUPT_PIN: u16 = 0x3D;
}

/// Bits of the command register.
pub mod command {
    /// The function answers accesses to its memory BARs.
    pub const MEMORY_SPACE: u16 = 1 << 1;
    /// The function may send requests: without it no DMA and no message interrupt leaves the card.
    pub const BUS_MASTER: u16 = 1 << 2;
}

/// Bits of the status register.
pub mod status {
    /// INTx is pending.
    pub const INTERRUPT: u16 = 1 << 3;
    /// The function has a list of capabilities.
    pub const CAPABILITIES: u16 = 1 << 4;
}

/// Bits of a base address register.
pub mod bar {
    /// The BAR is an I/O BAR.
    pub const IO: u32 = 1 << 0;
    /// Bits 2:1 of a memory BAR: 0 is 32-bit, 2 is 64-bit.
    pub const TYPE_MASK: u32 = 0b11 << 1;
    /// A 64-bit memory BAR, whose high word is the next BAR.
    pub const TYPE_64: u32 = 0b10 << 1;
    /// Reads have no side effects.
    pub const PREFETCHABLE: u32 = 1 << 3;
    /// The address bits of a memory BAR's low word.
    pub const MEMORY_MASK: u32 = !0xF;
}

/// Capability ids.
pub mod capability {
    /// Power management.
    pub const POWER_MANAGEMENT: u8 = 0x01;
    /// MSI.
    pub const MSI: u8 = 0x05;
    /// MSI-X.
    pub const MSIX: u8 = 0x11;
}

/// The power-management capability.
pub mod power {
    /// Control and status register, 16 bits, from the capability's start.
    pub const CONTROL: u16 = 0x04;
    /// The power state field of the control register: 0 is D0, 3 is D3hot.
    pub const STATE_MASK: u16 = 0b11;
    /// A power management event is reported; a written 1 clears it.
    pub const PME_STATUS: u16 = 1 << 15;
}

/// The MSI-X capability, offsets from its start.
pub mod msix {
    /// Size of the capability in bytes.
    pub const SIZE: u16 = 12;
    /// Message control, 16 bits.
    pub const CONTROL: u16 = 0x02;
    /// Message control: number of table entries less one.
    pub const TABLE_SIZE_MASK: u16 = 0x7FF;
    /// Message control: all vectors are masked.
    pub const FUNCTION_MASK: u16 = 1 << 14;
    /// Message control: MSI-X is enabled.
    pub const ENABLE: u16 = 1 << 15;
    /// Location of the table, 32 bits: BAR number and offset.
    pub const TABLE: u16 = 0x04;
    /// Location of the pending bits, 32 bits: BAR number and offset.
    pub const PENDING: u16 = 0x08;
    /// BAR number of either location.
    pub const BAR_MASK: u32 = 0b111;
    /// Offset of either location.
    pub const OFFSET_MASK: u32 = !0b111;
    /// Size of a table entry in bytes.
    pub const ENTRY_SIZE: u16 = 16;
}
