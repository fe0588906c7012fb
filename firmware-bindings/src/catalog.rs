//! Registers as data: names, places, access kinds and fields, for listings, dumps and the simulated card.
//!
//! The data is [`crate::generated::BLOCKS`], of registers as [`fpga_registers`] describes those of the Xilinx cores; here are the
//! ways to search it. Names are lower case, blocks
//! and registers are joined by a point: `ni.node_id`, `registry.mask_3`.

use core::fmt;

pub use fpga_registers::AccessKind;
use fpga_registers::catalog::RegisterSpec;

use crate::generated::{BLOCKS, BlockType};

/// One block of the user BAR.
#[derive(Debug, Clone, Copy)]
pub struct BlockInfo {
    /// What the block table calls it.
    pub block_type: BlockType,
    /// Name, lower case.
    pub name: &'static str,
    /// Version that this package knows.
    pub version: u16,
    /// Usual place in the user BAR, in bytes. The block table of the card has the last word.
    pub default_offset: u32,
    /// Usual size in bytes.
    pub size: u32,
    /// What it is for.
    pub doc: &'static str,
    /// Its registers, in ascending order of offset.
    pub registers: &'static [RegisterSpec],
}

/// A number that an enum of the contract does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{value:#x} is no {of}: damaged data, or a newer contract than this software knows")]
pub struct UnknownValue {
    /// The enum.
    pub of: &'static str,
    /// The number.
    pub value: u32,
}

impl BlockInfo {
    /// Bytes from the block's start to the end of its last register: the least that a card may claim.
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

/// The block of this type.
#[must_use]
pub fn block(block_type: BlockType) -> Option<&'static BlockInfo> {
    BLOCKS.iter().find(|block| block.block_type == block_type)
}

/// The register of this name: `ni.node_id`, in any case.
#[must_use]
pub fn find(name: &str) -> Option<(&'static BlockInfo, &'static RegisterSpec)> {
    let (block, register) = name.split_once('.')?;
    let block = BLOCKS.iter().find(|known| known.name.eq_ignore_ascii_case(block))?;
    let register = block.registers.iter().find(|known| known.name().eq_ignore_ascii_case(register))?;
    Some((block, register))
}

/// Every register with its block.
pub fn registers() -> impl Iterator<Item = (&'static BlockInfo, &'static RegisterSpec)> {
    BLOCKS.iter().flat_map(|block| block.registers.iter().map(move |register| (block, register)))
}

/// The bits `high` to `low` of a register; both are at most 31.
pub(crate) const fn mask(high: u8, low: u8) -> u32 {
    (u32::MAX >> (31 - high)) & (u32::MAX << low)
}

/// Writes the names of the set bits, joined by `|`; bits without a name as one number; `-` for none.
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
