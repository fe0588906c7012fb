//! Properties of an opened card.

use fpga_firmware::generated::BlockType;
use fpga_firmware::identity::Identity;
use fpga_pci::{Bar, MmioError};
use fpga_registers::BarOffset;
use fpga_registers::xdma::{
    Alignments, CONFIG_BASE, ChannelBlock, ConfigBlock, Direction, MAX_CHANNELS, Target, channel_base,
};

use crate::discover::BarRoles;
use crate::name::ChannelName;
use crate::ni::NiInfo;
use crate::options::OpenOptions;

/// PCI subsystem ids (vendor, device) of views of shared cards with a network interface. They have an identity block, too. Beside the memory of
/// the interface, which is the view's own, their channels reach that of the card.
pub const VIEW_SUBSYSTEM: (u16, u16) = (fpga_registers::pci::VENDOR_XILINX, 0x4E56);

/// PCI ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciIds {
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Subsystem vendor and device id.
    pub subsystem: (u16, u16),
}

/// Properties that the XDMA core reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdmaInfo {
    /// Number of H2C channels, 0 to 4.
    pub h2c_channels: u8,
    /// Number of C2H channels, 0 to 4.
    pub c2h_channels: u8,
    /// The channels are AXI4-Stream, not memory mapped.
    pub stream: bool,
    /// Version byte of the identifiers: 6 means 2017.1 or later (PG195).
    pub version: u8,
    /// Width of the data path in bits; `None` if the config block reports an undefined value.
    pub data_width: Option<u32>,
    /// Negotiated maximum payload of a PCIe packet (MPS) in bytes.
    pub max_payload: Option<u32>,
    /// Maximum PCIe read request (MRRS) in bytes.
    pub max_read_request: Option<u32>,
    /// Alignment rules of H2C channel 0.
    pub alignments: Alignments,
}

impl XdmaInfo {
    pub(crate) fn read(bar: &Bar) -> Result<Self, MmioError> {
        let h2c_channels = count_channels(bar, Direction::H2c)?;
        let c2h_channels = count_channels(bar, Direction::C2h)?;
        let first = if h2c_channels > 0 { Direction::H2c } else { Direction::C2h };
        let base = channel_base(first, 0);
        let identifier = ChannelBlock::IDENTIFIER.read(bar, base)?;
        Ok(Self {
            h2c_channels,
            c2h_channels,
            stream: identifier.stream(),
            version: ConfigBlock::IDENTIFIER.read(bar, CONFIG_BASE)?.version(),
            data_width: ConfigBlock::DATA_WIDTH.read(bar, CONFIG_BASE)?.bits(),
            max_payload: ConfigBlock::PCIE_MAX_PAYLOAD.read(bar, CONFIG_BASE)?.bytes(),
            max_read_request: ConfigBlock::PCIE_MAX_READ_REQUEST.read(bar, CONFIG_BASE)?.bytes(),
            alignments: ChannelBlock::ALIGNMENTS.read(bar, base)?,
        })
    }

    /// Returns the number of channels in one direction.
    #[must_use]
    pub const fn count(&self, direction: Direction) -> u8 {
        match direction {
            Direction::C2h => self.c2h_channels,
            _ => self.h2c_channels,
        }
    }

    /// Returns all channels, H2C first.
    pub fn channels(&self) -> impl Iterator<Item = ChannelName> + use<> {
        let named = |direction, count| (0..count).map(move |number| ChannelName { direction, number });
        named(Direction::H2c, self.h2c_channels).chain(named(Direction::C2h, self.c2h_channels))
    }
}

/// Properties of an opened card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardInfo {
    /// PCI address, or the simulated card's name.
    pub name: String,
    /// PCI ids.
    pub ids: PciIds,
    /// BARs by role.
    pub roles: BarRoles,
    /// XDMA core.
    pub xdma: XdmaInfo,
    /// The identity block, if it was read.
    pub identity: Option<Identity>,
    /// Offset of the CDMA's registers in the user BAR: from the identity block, else from
    /// [`OpenOptions::cdma_offset`](crate::OpenOptions::cdma_offset).
    pub cdma: Option<BarOffset>,
    /// Network interface, if there is one.
    pub ni: Option<NiInfo>,
}

impl CardInfo {
    /// Returns whether the card is a view of a shared one with a network interface of its own.
    #[must_use]
    pub fn is_view(&self) -> bool {
        self.ni.is_some() && self.ids.subsystem == VIEW_SUBSYSTEM
    }
}

/// Returns the offset of the CDMA's registers from the identity block, else from the options.
pub(crate) fn cdma_of(identity: Option<&Identity>, options: &OpenOptions) -> Option<BarOffset> {
    let block = identity.and_then(|identity| identity.block(BlockType::Cdma).ok());
    block.map_or(options.cdma_offset, |block| Some(block.base()))
}

/// Counts the channels in one direction. Like the vendor's driver, it stops at the first missing one.
fn count_channels(bar: &Bar, direction: Direction) -> Result<u8, MmioError> {
    for number in 0..MAX_CHANNELS {
        let id = ChannelBlock::IDENTIFIER.read(bar, channel_base(direction, number))?;
        if !id.is(Target::channel(direction)) || id.channel() != number {
            return Ok(number);
        }
    }
    Ok(MAX_CHANNELS)
}
