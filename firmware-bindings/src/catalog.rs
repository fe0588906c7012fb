//! Registers as data: names, places, access kinds and fields, for listings, dumps and the simulated card.
//!
//! The data is [`crate::generated::BLOCKS`]; here are its types and the ways to search it. Names are lower case, blocks
//! and registers are joined by a point: `ni.node_id`, `registry.mask_3`.

use core::fmt;

pub use fpga_registers::AccessKind;

use crate::generated::{BLOCKS, BlockType};

/// One block of the user BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    pub registers: &'static [RegisterInfo],
}

/// One 32-bit register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisterInfo {
    /// Name, lower case, unique within its block.
    pub name: &'static str,
    /// Bytes from the start of its block.
    pub offset: u32,
    /// What reading and writing does.
    pub access: AccessKind,
    /// Value after reset, where the contract fixes one.
    pub reset: Option<u32>,
    /// Names of its values, where it holds an enum; else empty.
    pub values: &'static [ValueName],
    /// What it is for.
    pub doc: &'static str,
    /// Its fields, where it has any.
    pub fields: &'static [FieldInfo],
}

/// Some bits of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldInfo {
    /// Name, lower case, unique within its register.
    pub name: &'static str,
    /// Highest bit, 0 to 31.
    pub high: u8,
    /// Lowest bit, 0 to `high`.
    pub low: u8,
    /// What it is for.
    pub doc: &'static str,
}

/// The name of an enum's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueName {
    /// The number.
    pub value: u32,
    /// What the map calls it.
    pub name: &'static str,
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

impl FieldInfo {
    /// The field's bits of a register value, moved down to bit 0.
    #[must_use]
    pub const fn extract(&self, value: u32) -> u32 {
        // Both bits are at most 31: the generator refuses others.
        (value << (31 - self.high)) >> (31 - self.high + self.low)
    }
}

impl RegisterInfo {
    /// Fields of `value` with their content.
    pub fn decode(&self, value: u32) -> impl Iterator<Item = (&'static FieldInfo, u32)> {
        self.fields.iter().map(move |field| (field, field.extract(value)))
    }

    /// The name of `value`, where the register holds an enum that has it.
    #[must_use]
    pub fn value_name(&self, value: u32) -> Option<&'static str> {
        self.values.iter().find(|known| known.value == value).map(|known| known.name)
    }
}

impl BlockInfo {
    /// Bytes from the block's start to the end of its last register: the least that a card may claim.
    #[must_use]
    pub fn span(&self) -> u32 {
        self.registers.last().map_or(0, |last| last.offset + 4)
    }

    /// The register at `offset` bytes from the block's start.
    #[must_use]
    pub fn register_at(&self, offset: u32) -> Option<&'static RegisterInfo> {
        let index = self.registers.binary_search_by_key(&offset, |register| register.offset).ok()?;
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
pub fn find(name: &str) -> Option<(&'static BlockInfo, &'static RegisterInfo)> {
    let (block, register) = name.split_once('.')?;
    let block = BLOCKS.iter().find(|known| known.name.eq_ignore_ascii_case(block))?;
    let register = block.registers.iter().find(|known| known.name.eq_ignore_ascii_case(register))?;
    Some((block, register))
}

/// Every register with its block.
pub fn registers() -> impl Iterator<Item = (&'static BlockInfo, &'static RegisterInfo)> {
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
