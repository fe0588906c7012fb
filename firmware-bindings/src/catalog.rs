//! Registers as data: names, offsets, access kinds and fields, for listings, dumps and the simulated card.
//!
//! The data is [`crate::generated::BLOCKS`], of registers as [`fpga_registers`] describes those of the Xilinx cores. This module searches
//! it. Names are lower case, blocks and registers are joined by a point: `ni.node_id`, `registry.mask_3`.

use core::fmt;

pub use fpga_registers::AccessKind;
use fpga_registers::catalog::RegisterSpec;

use crate::generated::{BLOCKS, BlockType};

/// One block of the user BAR.
#[derive(Debug, Clone, Copy)]
pub struct BlockInfo {
    /// Type in the block table.
    pub block_type: BlockType,
    /// Name, lower case.
    pub name: &'static str,
    /// Version that this package knows.
    pub version: u16,
    /// Default offset in the user BAR, in bytes. The card's block table overrides it.
    pub default_offset: u32,
    /// Default size in bytes.
    pub size: u32,
    /// Purpose of the block.
    pub doc: &'static str,
    /// Registers of the block, in ascending order of offset.
    pub registers: &'static [RegisterSpec],
}

/// Number that is not a value of an enum of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{value:#x} is not a valid {of}: the data is damaged, or its contract is newer than this software; update the software"
)]
pub struct UnknownValue {
    /// The enum.
    pub of: &'static str,
    /// The number.
    pub value: u32,
}

impl BlockInfo {
    /// Bytes from the block's start to the end of its last register: the minimum size in a block table.
    #[must_use]
    pub fn span(&self) -> u32 {
        self.registers.last().map_or(0, |last| last.offset() + 4)
    }

    /// The register at `offset` bytes from the block's start.
    #[must_use]
    pub fn register_at(&self, offset: u32) -> Option<&'static RegisterSpec> {
        let index = self.registers.binary_search_by_key(&offset, RegisterSpec::offset).ok()?;
        self.registers.get(index)
    }
}

/// Returns the block of this type.
#[must_use]
pub fn block(block_type: BlockType) -> Option<&'static BlockInfo> {
    BLOCKS.iter().find(|block| block.block_type == block_type)
}

/// Returns the register of this name, in any case: `ni.node_id`.
#[must_use]
pub fn find(name: &str) -> Option<(&'static BlockInfo, &'static RegisterSpec)> {
    let (block, register) = name.split_once('.')?;
    let block = BLOCKS.iter().find(|known| known.name.eq_ignore_ascii_case(block))?;
    let register = block.registers.iter().find(|known| known.name().eq_ignore_ascii_case(register))?;
    Some((block, register))
}

/// Iterates over all registers with their blocks.
pub fn registers() -> impl Iterator<Item = (&'static BlockInfo, &'static RegisterSpec)> {
    BLOCKS.iter().flat_map(|block| block.registers.iter().map(move |register| (block, register)))
}

/// Mask of the bits `high` to `low` of a register; both are at most 31.
pub(crate) const fn mask(high: u8, low: u8) -> u32 {
    (u32::MAX >> (31 - high)) & (u32::MAX << low)
}

/// Writes the names of the set bits, joined by `|`; bits without a name as one number; `-` if no bit is set.
pub(crate) fn write_bits(
    f: &mut fmt::Formatter<'_>,
    bits: u32,
    names: impl Iterator<Item = (u32, &'static str)>,
) -> fmt::Result {
    let mut rest = bits;
    let mut separator = "";
    for (bit, name) in names.filter(|(bit, _)| bits & bit != 0) {
        write!(f, "{separator}{name}")?;
        separator = "|";
        rest &= !bit;
    }
    match (bits, rest) {
        (0, _) => f.write_str("-"),
        (_, 0) => Ok(()),
        _ => write!(f, "{separator}{rest:#x}"),
    }
}
