//! Configuration (PG195 "Config Block Registers (0x3)").

use crate::decode::FieldKind;
use crate::xdma::Identifier;

register_block! {
    /// Configuration of the PCIe side, and some settings.
    pub struct ConfigBlock [0x100] {
        /// Block identifier, `0x1FC3_xxxx`.
        0x00 identifier IDENTIFIER: Ro<Identifier>;
        /// The function's address on the bus.
        0x04 bus_device_function BUS_DEVICE_FUNCTION: Ro<BusDeviceFunction>;
        /// Largest write that the engine sends: the smaller of the system's setting and the build's.
        0x08 pcie_max_payload PCIE_MAX_PAYLOAD: Ro<PcieSize>;
        /// Largest read that the engine requests: the smaller of the system's setting and the build's.
        0x0C pcie_max_read_request PCIE_MAX_READ_REQUEST: Ro<PcieSize>;
        /// A constant, by which the block can be told from others.
        0x10 system_id SYSTEM_ID: Ro<SystemId> = 0xFF01;
        /// Which message interrupts the host has enabled.
        0x14 interrupt_mode INTERRUPT_MODE: Ro<InterruptMode>;
        /// Width of the datapath.
        0x18 data_width DATA_WIDTH: Ro<PcieDataWidth>;
        /// PCIe attributes.
        0x1C pcie_control PCIE_CONTROL: Rw<PcieControl> = 1;
        skip _reserved_20 [8];
        /// Limit for write payloads.
        0x40 user_max_payload USER_MAX_PAYLOAD: Rw<UserSizeLimit> = 0x55;
        /// Limit for read requests.
        0x44 user_max_read_request USER_MAX_READ_REQUEST: Rw<UserSizeLimit> = 0x55;
        skip _reserved_48 [6];
        /// When an idle C2H stream is flushed to the host.
        0x60 write_flush_timeout WRITE_FLUSH_TIMEOUT: Rw<WriteFlushTimeout> = 0;
        end _reserved_64 [39]
    }
}

/// PCI Express size codes: 128 bytes times two to the code.
fn size_name(code: u32) -> Option<&'static str> {
    Some(match code {
        0 => "128 bytes",
        1 => "256 bytes",
        2 => "512 bytes",
        3 => "1024 bytes",
        4 => "2048 bytes",
        5 => "4096 bytes",
        _ => return None,
    })
}

fn width_name(code: u32) -> Option<&'static str> {
    Some(match code {
        0 => "64 bits",
        1 => "128 bits",
        2 => "256 bits",
        3 => "512 bits",
        _ => return None,
    })
}

const SIZE: FieldKind = FieldKind::Choice(size_name);

const fn bytes_of(code: u8) -> Option<u32> {
    if code <= 5 { Some(128 << code) } else { None }
}

register_value! {
    /// Bus, device and function number (PG195 "Config Block BusDev (0x04)").
    pub struct BusDeviceFunction {
        /// Function number.
        3 function: u8;
        /// Device number.
        5 device: u8;
        /// Bus number.
        8 bus: u8;
        16 _reserved_16: u16;
    }

    /// A size code (PG195 "Config Block PCIE Max Payload Size (0x08)", "PCIE Max Read Request Size (0x0C)").
    pub struct PcieSize {
        /// 128 bytes times two to this.
        3 code: u8, SIZE;
        29 _reserved_3: u32;
    }

    /// System id (PG195 "Config Block System ID (0x10)").
    pub struct SystemId {
        /// Always 0xFF01, [`SystemId::VALUE`].
        16 id: u16, FieldKind::Hex;
        16 _reserved_16: u16;
    }

    /// Enabled message interrupts (PG195 "Config Block MSI Enable (0x14)"). If both are, MSI-X is used.
    pub struct InterruptMode {
        /// MSI is enabled.
        1 msi: bool;
        /// MSI-X is enabled.
        1 msix: bool;
        30 _reserved_2: u32;
    }

    /// Width of the datapath (PG195 "Config Block PCIE Data Width (0x18)").
    pub struct PcieDataWidth {
        /// 64 bits times two to this.
        3 code: u8, FieldKind::Choice(width_name);
        29 _reserved_3: u32;
    }

    /// PCIe attributes (PG195 "Config PCIE Control (0x1C)").
    pub struct PcieControl {
        /// Read requests carry the relaxed-ordering attribute.
        1 relaxed_ordering: bool;
        31 _reserved_1: u32;
    }

    /// A limit that software may lower (PG195 "Config AXI User Max Payload Size (0x40)", "Max Read Request Size
    /// (0x44)").
    pub struct UserSizeLimit {
        /// Size code asked for: 128 bytes times two to this.
        3 requested: u8, SIZE;
        1 _reserved_3: bool;
        /// Size code in effect, read-only.
        3 effective: u8, SIZE;
        25 _reserved_7: u32;
    }

    /// Write flush timeout (PG195 "Config Write Flush Timeout (0x60)").
    pub struct WriteFlushTimeout {
        /// C2H AXI4-Stream: after two to this clocks without data the open descriptor is closed and written back;
        /// 0 is never.
        5 exponent: u8;
        27 _reserved_5: u32;
    }
}

impl SystemId {
    /// Value of the register.
    pub const VALUE: u16 = 0xFF01;
}

impl PcieSize {
    /// The size in bytes, 128 to 4096; `None` for an undefined code.
    #[must_use]
    pub const fn bytes(self) -> Option<u32> {
        bytes_of(self.code())
    }
}

impl UserSizeLimit {
    /// The size in effect in bytes, 128 to 4096; `None` for an undefined code.
    #[must_use]
    pub const fn effective_bytes(self) -> Option<u32> {
        bytes_of(self.effective())
    }
}

impl PcieDataWidth {
    /// The width in bits, 64 to 512; `None` for an undefined code.
    #[must_use]
    pub const fn bits(self) -> Option<u32> {
        if self.code() <= 3 { Some(64 << self.code()) } else { None }
    }
}
