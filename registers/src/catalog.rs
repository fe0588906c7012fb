//! All registers as data: names, offsets, access kinds, reset values and field decoding.
//!
//! The name of a register consists of its block's and its own: `h2c0.control`, `c2h1_sgdma.credits`, `irq.user_enable`,
//! `config.system_id`, `sgdma.halt`, `msix3.data`, `pba.pending`, `cdma.sr`.

use core::fmt;

use crate::access::{AccessKind, Cell, block_offset};
use crate::addr::BarOffset;
use crate::cdma::CdmaBlock;
use crate::decode::{Decoded, Doc, Field, RegisterValue};
use crate::xdma::msix::{PendingBlock, VECTOR_COUNT, entry_base};
use crate::xdma::{
    CONFIG_BASE, ChannelBlock, ConfigBlock, Direction, IRQ_BASE, IrqBlock, MAX_CHANNELS, MSIX_PBA_BASE,
    MsixEntry, SGDMA_COMMON_BASE, SgdmaBlock, SgdmaCommonBlock, channel_base, sgdma_base,
};

/// One register of a kind of block.
#[derive(Clone, Copy, Debug)]
pub struct RegisterSpec {
    name: &'static str,
    offset: u32,
    access: AccessKind,
    reset: Option<u32>,
    fields: &'static [Field],
    values: &'static [(u32, &'static str)],
    doc: Doc,
}

impl RegisterSpec {
    /// Creates the register that is the cell `C` at `offset` of its block.
    pub(crate) const fn new<C: Cell>(
        name: &'static str,
        offset: usize,
        reset: Option<u32>,
        doc: &'static str,
    ) -> Self {
        Self::plain(name, block_offset(offset), C::ACCESS, reset, doc).with_fields(C::Value::FIELDS)
    }

    /// Creates a register at `offset` in its block that holds a number.
    #[must_use]
    pub const fn plain(
        name: &'static str,
        offset: u32,
        access: AccessKind,
        reset: Option<u32>,
        doc: &'static str,
    ) -> Self {
        Self { name, offset, access, reset, fields: &[], values: &[], doc: Doc::new(doc) }
    }

    /// Adds fields, in ascending order of their bits.
    #[must_use]
    pub const fn with_fields(mut self, fields: &'static [Field]) -> Self {
        self.fields = fields;
        self
    }

    /// Adds names of values.
    #[must_use]
    pub const fn with_values(mut self, values: &'static [(u32, &'static str)]) -> Self {
        self.values = values;
        self
    }

    /// Name within the block.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Byte offset within the block.
    #[must_use]
    pub const fn offset(&self) -> u32 {
        self.offset
    }

    /// Access kind.
    #[must_use]
    pub const fn access(&self) -> AccessKind {
        self.access
    }

    /// Value after reset; `None` where the document gives none or it depends on the build or the link.
    #[must_use]
    pub const fn reset(&self) -> Option<u32> {
        self.reset
    }

    /// Description.
    #[must_use]
    pub const fn doc(&self) -> Doc {
        self.doc
    }

    /// Fields; empty for a plain number. Those of the Xilinx cores include reserved ones and leave no gap.
    #[must_use]
    pub const fn fields(&self) -> &'static [Field] {
        self.fields
    }

    /// Numbers and names of its values, if they have names.
    #[must_use]
    pub const fn values(&self) -> &'static [(u32, &'static str)] {
        self.values
    }

    /// Returns the name of the value `raw`.
    #[must_use]
    pub fn value_name(&self, raw: u32) -> Option<&'static str> {
        self.values.iter().find(|(value, _)| *value == raw).map(|(_, name)| *name)
    }

    /// Decodes `raw` to fields.
    #[must_use]
    pub const fn decode(&self, raw: u32) -> Decoded {
        Decoded::new(raw, self.fields)
    }
}

/// BAR of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BarRole {
    /// The DMA BAR: XDMA's own registers.
    Dma,
    /// The user (AXI4-Lite) BAR: registers of the design, including CDMA.
    User,
}

/// A block of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Block {
    /// Registers of a channel.
    Channel(Direction, u8),
    /// Descriptor registers of a channel.
    Sgdma(Direction, u8),
    /// The interrupt block.
    Irq,
    /// The configuration block.
    Config,
    /// The descriptor registers common to all channels.
    SgdmaCommon,
    /// An entry of the MSI-X table.
    MsixVector(u8),
    /// The MSI-X pending bits.
    MsixPending,
    /// A CDMA engine at this offset of the user BAR.
    Cdma(BarOffset),
}

impl Block {
    /// Registers of a block of this kind, in address order.
    #[must_use]
    pub const fn registers(self) -> &'static [RegisterSpec] {
        match self {
            Self::Channel(..) => ChannelBlock::REGISTERS,
            Self::Sgdma(..) => SgdmaBlock::REGISTERS,
            Self::Irq => IrqBlock::REGISTERS,
            Self::Config => ConfigBlock::REGISTERS,
            Self::SgdmaCommon => SgdmaCommonBlock::REGISTERS,
            Self::MsixVector(_) => MsixEntry::REGISTERS,
            Self::MsixPending => PendingBlock::REGISTERS,
            Self::Cdma(_) => CdmaBlock::REGISTERS,
        }
    }

    /// Offset of the block in its BAR.
    #[must_use]
    pub const fn base(self) -> BarOffset {
        match self {
            Self::Channel(direction, n) => channel_base(direction, n),
            Self::Sgdma(direction, n) => sgdma_base(direction, n),
            Self::Irq => IRQ_BASE,
            Self::Config => CONFIG_BASE,
            Self::SgdmaCommon => SGDMA_COMMON_BASE,
            Self::MsixVector(vector) => entry_base(vector),
            Self::MsixPending => MSIX_PBA_BASE,
            Self::Cdma(base) => base,
        }
    }

    /// BAR of the block.
    #[must_use]
    pub const fn bar(self) -> BarRole {
        match self {
            Self::Cdma(_) => BarRole::User,
            _ => BarRole::Dma,
        }
    }

    /// Direction of the channel that the block belongs to.
    #[must_use]
    pub const fn direction(self) -> Option<Direction> {
        match self {
            Self::Channel(direction, _) | Self::Sgdma(direction, _) => Some(direction),
            _ => None,
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(direction, n) => write!(f, "{direction}{n}"),
            Self::Sgdma(direction, n) => write!(f, "{direction}{n}_sgdma"),
            Self::Irq => f.write_str("irq"),
            Self::Config => f.write_str("config"),
            Self::SgdmaCommon => f.write_str("sgdma"),
            Self::MsixVector(vector) => write!(f, "msix{vector}"),
            Self::MsixPending => f.write_str("pba"),
            Self::Cdma(_) => f.write_str("cdma"),
        }
    }
}

/// One register of a card.
#[derive(Clone, Copy, Debug)]
pub struct RegisterInfo {
    block: Block,
    spec: &'static RegisterSpec,
}

impl RegisterInfo {
    /// Full name, e.g. `h2c0.control`, for printing.
    #[must_use]
    pub const fn name(&self) -> RegisterName {
        RegisterName { block: self.block, register: self.spec.name }
    }

    /// Register specification, common to all blocks of its kind.
    #[must_use]
    pub const fn spec(&self) -> &'static RegisterSpec {
        self.spec
    }

    /// Block of the register.
    #[must_use]
    pub const fn block(&self) -> Block {
        self.block
    }

    /// BAR of the register.
    #[must_use]
    pub const fn bar(&self) -> BarRole {
        self.block.bar()
    }

    /// Byte offset within the block.
    #[must_use]
    pub const fn offset(&self) -> u32 {
        self.spec.offset
    }

    /// Byte offset within the BAR.
    #[must_use]
    pub const fn address(&self) -> BarOffset {
        self.block.base().offset_by(self.spec.offset)
    }

    /// Access kind.
    #[must_use]
    pub const fn access(&self) -> AccessKind {
        self.spec.access
    }

    /// Returns whether a read changes the device, so that it should only occur on request.
    #[must_use]
    pub const fn read_has_side_effect(&self) -> bool {
        self.spec.access.read_has_side_effect()
    }

    /// Value after reset; `None` where the document gives none or it depends on the build or the link.
    #[must_use]
    pub const fn reset(&self) -> Option<u32> {
        self.spec.reset
    }

    /// Description.
    #[must_use]
    pub const fn doc(&self) -> Doc {
        self.spec.doc
    }

    /// Decodes `raw` to fields, with bit names for the channel's direction.
    #[must_use]
    pub fn decode(&self, raw: u32) -> Decoded {
        let decoded = self.spec.decode(raw);
        match self.block.direction() {
            Some(direction) => decoded.on(direction),
            None => decoded,
        }
    }
}

/// Full name of a register. `Display` prints it; it compares with `str` without allocation.
#[derive(Clone, Copy, Debug)]
pub struct RegisterName {
    block: Block,
    register: &'static str,
}

impl fmt::Display for RegisterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.block, self.register)
    }
}

impl PartialEq<str> for RegisterName {
    fn eq(&self, other: &str) -> bool {
        let mut rest = Matcher { rest: other };
        fmt::write(&mut rest, format_args!("{self}")).is_ok() && rest.rest.is_empty()
    }
}

/// Consumes a string while it matches the written text.
struct Matcher<'a> {
    rest: &'a str,
}

impl fmt::Write for Matcher<'_> {
    fn write_str(&mut self, written: &str) -> fmt::Result {
        self.rest = self.rest.strip_prefix(written).ok_or(fmt::Error)?;
        Ok(())
    }
}

/// Blocks of a card.
///
/// ```
/// use fpga_registers::BarOffset;
/// use fpga_registers::catalog::CardLayout;
///
/// let card = CardLayout::new(2, 2).with_cdma(BarOffset::new(0x1000));
/// let status = card.find("h2c1.status").unwrap();
/// assert_eq!(status.address(), BarOffset::new(0x140));
/// assert_eq!(
///     status.decode(0x0000_0201).to_string(),
///     "0x00000201 busy read_error=unsupported_request write_error=none descriptor_error=none"
/// ); assert!(card.find("h2c1.status_rc").unwrap().read_has_side_effect());
/// for register in card.registers().filter(|r| r.access().is_readable() && !r.read_has_side_effect()) {
///     println!("{:#06x} {} {}", register.address(), register.name(), register.access());
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardLayout {
    h2c_channels: u8,
    c2h_channels: u8,
    msix_vectors: u8,
    cdma: Option<BarOffset>,
}

impl CardLayout {
    /// Creates a card with these numbers of channels per direction (at most four are listed), the whole MSI-X table and no CDMA.
    #[must_use]
    pub const fn new(h2c_channels: u8, c2h_channels: u8) -> Self {
        Self {
            h2c_channels: at_most(h2c_channels, MAX_CHANNELS),
            c2h_channels: at_most(c2h_channels, MAX_CHANNELS),
            msix_vectors: VECTOR_COUNT,
            cdma: None,
        }
    }

    /// Adds a CDMA engine at this offset of the user BAR.
    #[must_use]
    pub const fn with_cdma(mut self, base: BarOffset) -> Self {
        self.cdma = Some(base);
        self
    }

    /// Limits the listed MSI-X table entries to `vectors`, at most 32.
    #[must_use]
    pub const fn with_msix_vectors(mut self, vectors: u8) -> Self {
        self.msix_vectors = at_most(vectors, VECTOR_COUNT);
        self
    }

    /// Blocks of the card in the order of their addresses, the DMA BAR's first.
    pub fn blocks(&self) -> impl Iterator<Item = Block> + use<> {
        let (h2c, c2h) = (self.h2c_channels, self.c2h_channels);
        (0..h2c)
            .map(|n| Block::Channel(Direction::H2c, n))
            .chain((0..c2h).map(|n| Block::Channel(Direction::C2h, n)))
            .chain([Block::Irq, Block::Config])
            .chain((0..h2c).map(|n| Block::Sgdma(Direction::H2c, n)))
            .chain((0..c2h).map(|n| Block::Sgdma(Direction::C2h, n)))
            .chain([Block::SgdmaCommon])
            .chain((0..self.msix_vectors).map(Block::MsixVector))
            .chain([Block::MsixPending])
            .chain(self.cdma.map(Block::Cdma))
    }

    /// Registers of the card in the order of their addresses, the DMA BAR's first.
    pub fn registers(&self) -> impl Iterator<Item = RegisterInfo> + use<> {
        self.blocks().flat_map(|block| block.registers().iter().map(move |spec| RegisterInfo { block, spec }))
    }

    /// Finds a register by its full name, e.g. `irq.user_enable`; `None` if the card does not have it.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<RegisterInfo> {
        self.registers().find(|register| register.name() == *name)
    }
}

const fn at_most(value: u8, limit: u8) -> u8 {
    if value > limit { limit } else { value }
}
