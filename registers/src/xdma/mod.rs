//! DMA/Bridge Subsystem for PCI Express in DMA mode (PG195): the register space of its DMA BAR.
//!
//! Address bits 15:12 of a register select a target, 11:8 a channel, 7:0 a register (PG195 "PCIe to DMA
//! Address Format"):
//!
//! | Offset | Block | |
//! |---|---|---|
//! | `0x0000 + 0x100 n` | [`ChannelBlock`] | H2C channel n |
//! | `0x1000 + 0x100 n` | [`ChannelBlock`] | C2H channel n |
//! | `0x2000` | [`IrqBlock`] | interrupts |
//! | `0x3000` | [`ConfigBlock`] | configuration |
//! | `0x4000 + 0x100 n` | [`SgdmaBlock`] | descriptor fetch of H2C channel n |
//! | `0x5000 + 0x100 n` | [`SgdmaBlock`] | descriptor fetch of C2H channel n |
//! | `0x6000` | [`SgdmaCommonBlock`] | halt and credits of all channels |
//! | `0x8000` | [`MsixBlock`] | MSI-X table and pending bits |
//!
//! Only aligned 32-bit accesses are defined, all quantities are little-endian.

use crate::addr::BarOffset;
use crate::decode::FieldKind;

pub mod channel;
pub mod config;
pub mod descriptor;
pub(crate) mod direction;
pub mod irq;
pub mod msix;
pub mod sgdma;
pub mod sgdma_common;
pub mod writeback;

pub use channel::{
    Alignments, ChannelBlock, ChannelControl, ChannelInterrupts, ChannelStatus, CounterHigh,
    PerformanceControl, StatusError,
};
pub use config::{
    BusDeviceFunction, ConfigBlock, InterruptMode, PcieControl, PcieDataWidth, PcieSize, SystemId,
    UserSizeLimit, WriteFlushTimeout,
};
pub use descriptor::{Descriptor, DescriptorControl, LengthError};
pub use direction::Direction;
pub use irq::{ChannelMask, IrqBlock, UserMask, VectorNumbers};
pub use msix::{MsixBlock, MsixEntry, VectorControl};
pub use sgdma::{Adjacent, Credits, SgdmaBlock};
pub use sgdma_common::{PerChannel, SgdmaCommonBlock};
pub use writeback::{PollWriteback, StreamWriteback, StreamWritebackStatus};

/// Size of the DMA BAR in bytes: bits 15:0 of PG195 "PCIe to DMA Address Format".
pub const DMA_BAR_SIZE: u64 = 0x1_0000;
/// Maximum number of channels per direction (PG195 "SGDMA Descriptor Control Register (0x10)" has a bit for each).
pub const MAX_CHANNELS: u8 = 4;
/// Maximum number of user interrupts (PG195 "IRQ Block User Vector Number (0x8C)" serves the last of them).
pub const MAX_USER_INTERRUPTS: u8 = 16;
/// Distance between the blocks of two neighbouring channels in bytes.
pub const CHANNEL_STRIDE: u64 = 0x100;

/// Offset of the interrupt block.
pub const IRQ_BASE: BarOffset = BarOffset::new(0x2000);
/// Offset of the configuration block.
pub const CONFIG_BASE: BarOffset = BarOffset::new(0x3000);
/// Offset of the SGDMA common block.
pub const SGDMA_COMMON_BASE: BarOffset = BarOffset::new(0x6000);
/// Offset of the MSI-X table.
pub const MSIX_TABLE_BASE: BarOffset = BarOffset::new(0x8000);
/// Offset of the MSI-X pending bits.
pub const MSIX_PBA_BASE: BarOffset = BarOffset::new(0x8FE0);

/// Offset of the registers of channel `n` (below [`MAX_CHANNELS`]): a [`ChannelBlock`].
///
/// A larger `n` yields the offset that such a channel would have; the identifier read there shows that there is none.
#[must_use]
pub const fn channel_base(direction: Direction, n: u8) -> BarOffset {
    let base = match direction {
        Direction::H2c => 0x0000,
        Direction::C2h => 0x1000,
    };
    let n = n as u64;
    BarOffset::new(base + CHANNEL_STRIDE * n)
}

/// Offset of the descriptor registers of channel `n` (below [`MAX_CHANNELS`]): a [`SgdmaBlock`], always `0x4000` above the channel's own
/// block.
#[must_use]
pub const fn sgdma_base(direction: Direction, n: u8) -> BarOffset {
    channel_base(direction, n).offset_by(0x4000)
}

/// Block that an identifier register names: bits 19:16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// H2C channel registers.
    H2cChannel,
    /// C2H channel registers.
    C2hChannel,
    /// Interrupt block.
    Irq,
    /// Configuration block.
    Config,
    /// H2C descriptor registers.
    H2cSgdma,
    /// C2H descriptor registers.
    C2hSgdma,
    /// SGDMA common block.
    SgdmaCommon,
}

impl Target {
    /// Code in the identifier register.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::H2cChannel => 0,
            Self::C2hChannel => 1,
            Self::Irq => 2,
            Self::Config => 3,
            Self::H2cSgdma => 4,
            Self::C2hSgdma => 5,
            Self::SgdmaCommon => 6,
        }
    }

    /// Returns the target with this code; `None` for a code that PG195 does not define.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::H2cChannel,
            1 => Self::C2hChannel,
            2 => Self::Irq,
            3 => Self::Config,
            4 => Self::H2cSgdma,
            5 => Self::C2hSgdma,
            6 => Self::SgdmaCommon,
            _ => return None,
        })
    }

    /// Target of a channel's own registers.
    #[must_use]
    pub const fn channel(direction: Direction) -> Self {
        match direction {
            Direction::H2c => Self::H2cChannel,
            Direction::C2h => Self::C2hChannel,
        }
    }

    /// Target of a channel's descriptor registers.
    #[must_use]
    pub const fn sgdma(direction: Direction) -> Self {
        match direction {
            Direction::H2c => Self::H2cSgdma,
            Direction::C2h => Self::C2hSgdma,
        }
    }

    /// Name in PG195 in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::H2cChannel => "h2c_channel",
            Self::C2hChannel => "c2h_channel",
            Self::Irq => "irq",
            Self::Config => "config",
            Self::H2cSgdma => "h2c_sgdma",
            Self::C2hSgdma => "c2h_sgdma",
            Self::SgdmaCommon => "sgdma_common",
        }
    }
}

/// Version codes of the identifier register (PG195 "H2C Channel Identifier (0x00)"). Every release since 2017.1
/// reports the last of them.
fn version_name(version: u32) -> Option<&'static str> {
    Some(match version {
        0x01 => "2015.3 or 2015.4",
        0x02 => "2016.1",
        0x03 => "2016.2",
        0x04 => "2016.3",
        0x05 => "2016.4",
        0x06 => "2017.1 or later",
        _ => return None,
    })
}

fn target_name(code: u32) -> Option<&'static str> {
    u8::try_from(code).ok().and_then(Target::from_code).map(Target::name)
}

register_value! {
    /// Identifier, the first register of every block (PG195 "H2C Channel Identifier (0x00)" and its siblings).
    pub struct Identifier {
        /// Release of the logic: 1 is Vivado 2015.3 and 2015.4, 2 to 5 are 2016.1 to 2016.4, 6 is 2017.1 and later.
        8 version: u8, FieldKind::Choice(version_name);
        /// Channel number; zero on blocks that belong to no channel.
        4 channel: u8;
        3 _reserved: u8;
        /// Whether the channel is an AXI4-Stream one (channel and SGDMA blocks only).
        1 stream: bool;
        /// Which block this is: a code of [`Target`].
        4 target: u8, FieldKind::Choice(target_name);
        /// 0x1FC ([`Identifier::SUBSYSTEM`]) where there is an XDMA block, all ones where no device answers, zero where no
        /// channel is built.
        12 subsystem: u16, FieldKind::Hex;
    }
}

impl Identifier {
    /// Value of the subsystem field.
    pub const SUBSYSTEM: u16 = 0x1FC;
    /// Latest version code.
    pub const VERSION_LATEST: u8 = 0x06;

    /// Identifier of a block built by Vivado 2017.1 or later; `channel` (0..=15) is zero on blocks without channel.
    #[must_use]
    pub const fn of(target: Target, channel: u8, stream: bool) -> Self {
        Self::new()
            .with_subsystem(Self::SUBSYSTEM)
            .with_target(target.code())
            .with_stream(stream)
            .with_channel(channel & 0xF)
            .with_version(Self::VERSION_LATEST)
    }

    /// Returns whether this is the identifier of `target`, for any channel and version.
    #[must_use]
    pub const fn is(self, target: Target) -> bool {
        self.subsystem() == Self::SUBSYSTEM && self.target() == target.code()
    }

    /// Named block, if this is an identifier of XDMA.
    #[must_use]
    pub const fn named_target(self) -> Option<Target> {
        if self.subsystem() == Self::SUBSYSTEM { Target::from_code(self.target()) } else { None }
    }
}
