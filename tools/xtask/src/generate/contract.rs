//! The map as data, and its rules. The parts that a user's register map also has, registers and enum values, are read and checked by the
//! same code (`fpga_register_map::schema`); the contract permits less of it.

use std::collections::BTreeSet;

use fpga_register_map::RegisterFault;
use fpga_register_map::schema::{Access, Field, Register, Variant};
use serde::Deserialize;

/// Content of `map/ni.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contract {
    pub(super) contract: Version,
    pub(super) constants: Vec<Constant>,
    pub(super) enums: Vec<Enumeration>,
    pub(super) bitsets: Vec<Bitset>,
    pub(super) blocks: Vec<Block>,
    pub(super) layouts: Vec<Layout>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Version {
    pub(super) major: u16,
    pub(super) minor: u16,
}

/// Unsigned integer types that the map may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Integer {
    U8,
    U16,
    U32,
}

impl Integer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
        }
    }

    pub(super) fn bits(self) -> u32 {
        match self {
            Self::U8 => 8,
            Self::U16 => 16,
            Self::U32 => 32,
        }
    }

    fn holds(self, value: u64) -> bool {
        value >> self.bits() == 0
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Constant {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) integer: Integer,
    pub(super) value: u64,
    pub(super) doc: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Enumeration {
    pub(super) name: String,
    pub(super) repr: Integer,
    pub(super) doc: String,
    pub(super) variants: Vec<Variant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bitset {
    pub(super) name: String,
    pub(super) repr: Integer,
    pub(super) doc: String,
    pub(super) bits: Vec<Bit>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bit {
    pub(super) name: String,
    pub(super) bit: u32,
    pub(super) doc: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Block {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) block_type: String,
    pub(super) version: u16,
    pub(super) offset: u32,
    pub(super) size: u32,
    pub(super) doc: String,
    pub(super) registers: Vec<Register>,
}

/// The 32-bit words of a register: name, offset, reset value.
pub(super) fn words(register: &Register) -> Vec<(String, u32, Option<u64>)> {
    let Register { name, offset, reset, .. } = register;
    if register.width == 64 {
        return vec![
            (format!("{name}_LOW"), *offset, reset.map(|v| v & 0xffff_ffff)),
            (format!("{name}_HIGH"), offset + 4, reset.map(|v| v >> 32)),
        ];
    }
    match register.elements() {
        0 | 1 => vec![(name.to_string(), *offset, *reset)],
        count => (0..count).map(|n| (format!("{name}_{n}"), offset + 4 * n, *reset)).collect(),
    }
}

/// Types of layout members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MemberType {
    U8,
    U16,
    U32,
    U64,
    Bytes,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layout {
    pub(super) name: String,
    pub(super) size: usize,
    #[serde(default)]
    pub(super) extends: Option<String>,
    #[serde(default)]
    pub(super) packet: Option<String>,
    pub(super) doc: String,
    pub(super) fields: Vec<Member>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) offset: usize,
    #[serde(rename = "type")]
    pub(super) member_type: MemberType,
    #[serde(default)]
    length: usize,
    pub(super) doc: String,
}

impl Member {
    pub(super) fn size(&self) -> usize {
        match self.member_type {
            MemberType::U8 => 1,
            MemberType::U16 => 2,
            MemberType::U32 => 4,
            MemberType::U64 => 8,
            MemberType::Bytes => self.length,
        }
    }

    pub(super) fn type_name(&self) -> String {
        match self.member_type {
            MemberType::U8 => "u8".into(),
            MemberType::U16 => "u16".into(),
            MemberType::U32 => "u32".into(),
            MemberType::U64 => "u64".into(),
            MemberType::Bytes => format!("bytes[{}]", self.length),
        }
    }
}

/// Rule that the map violates.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ContractError {
    #[error("{what} appears twice: give one of them another name or value")]
    Twice { what: String },
    #[error("{what} does not fit its type")]
    TooBig { what: String },
    #[error("{what} is not a multiple of {to}")]
    Unaligned { what: String, to: u32 },
    #[error("{what} overlaps or precedes the item before it: keep offsets ascending")]
    Overlap { what: String },
    #[error("{what} ends at {end:#x}, beyond {limit:#x}")]
    Outside { what: String, end: u64, limit: u64 },
    #[error("{what} names {name}, which the map does not define")]
    Unknown { what: String, name: String },
    #[error("{what}: {source}")]
    Register { what: String, source: RegisterFault },
    #[error(
        "{what}: the contract permits only ro, rw and wo, arrays without gaps and without fields, and fields without separate access and values"
    )]
    OutsideBlock { what: String },
    #[error("{what} or one of its fields has no doc: describe its purpose, the manual is generated from it")]
    Undocumented { what: String },
    #[error("{what} leaves a gap before byte {at}: describe every byte")]
    Gap { what: String, at: usize },
}

impl Contract {
    /// Members of the layout and of the layouts it extends, in offset order.
    pub(super) fn members<'a>(&'a self, layout: &'a Layout) -> Vec<&'a Member> {
        let mut members = match self.parent(layout) {
            Some(parent) => self.members(parent),
            None => Vec::new(),
        };
        members.extend(&layout.fields);
        members
    }

    fn parent(&self, layout: &Layout) -> Option<&Layout> {
        // Only earlier layouts are permitted, so that a cycle is impossible.
        let own = self.layouts.iter().position(|other| other.name == layout.name)?;
        let name = layout.extends.as_ref()?;
        self.layouts.iter().take(own).find(|other| other.name == *name)
    }

    fn enumeration(&self, name: &str) -> Option<&Enumeration> {
        self.enums.iter().find(|enumeration| enumeration.name == name)
    }

    /// Checks every rule of the map.
    ///
    /// # Errors
    ///
    /// The first violated rule, with the item that violates it.
    pub(super) fn validate(&self) -> Result<(), ContractError> {
        let mut seen = BTreeSet::new();
        for constant in &self.constants {
            once(&mut seen, format!("constant {}", constant.name))?;
            if !constant.integer.holds(constant.value) {
                return Err(ContractError::TooBig { what: format!("constant {}", constant.name) });
            }
        }
        self.enums.iter().try_for_each(validate_enum)?;
        for bitset in &self.bitsets {
            let mut seen = BTreeSet::new();
            for bit in &bitset.bits {
                let what = format!("bit {}.{}", bitset.name, bit.name);
                if bit.bit >= bitset.repr.bits() {
                    return Err(ContractError::TooBig { what });
                }
                once(&mut seen, bit.bit).map_err(|_| ContractError::Twice { what })?;
            }
        }
        self.validate_blocks()?;
        self.layouts.iter().try_for_each(|layout| self.validate_layout(layout))
    }

    fn validate_blocks(&self) -> Result<(), ContractError> {
        let mut names = BTreeSet::new();
        let mut end = 0;
        for block in &self.blocks {
            let what = format!("block {}", block.name);
            once(&mut names, what.clone())?;
            let known = self
                .enumeration("BlockType")
                .is_some_and(|types| types.variants.iter().any(|v| v.name == block.block_type));
            if !known {
                return Err(ContractError::Unknown { what, name: block.block_type.clone() });
            }
            for value in [block.offset, block.size] {
                if value % 4 != 0 {
                    return Err(ContractError::Unaligned { what, to: 4 });
                }
            }
            if u64::from(block.offset) < end {
                return Err(ContractError::Overlap { what });
            }
            end = u64::from(block.offset) + u64::from(block.size);
            self.validate_registers(block)?;
        }
        Ok(())
    }

    fn validate_registers(&self, block: &Block) -> Result<(), ContractError> {
        let mut names = BTreeSet::new();
        let mut end = 0;
        let variants = |name: &str| {
            self.enumeration(name).map(|enumeration| enumeration.variants.as_slice()).ok_or(None)
        };
        for register in &block.registers {
            let what = format!("register {}.{}", block.name, register.name);
            once(&mut names, what.clone())?;
            let broken = |source| ContractError::Register { what: what.clone(), source };
            register.check(variants).map_err(broken)?;
            if u64::from(register.offset) < end {
                return Err(ContractError::Overlap { what });
            }
            end = register.end();
            if end > u64::from(block.size) {
                return Err(ContractError::Outside { what, end, limit: block.size.into() });
            }
            if register.doc.is_empty() || register.fields.iter().any(|field| field.doc.is_empty()) {
                return Err(ContractError::Undocumented { what });
            }
            let plain = |field: &Field| field.access.is_none() && field.values.is_none();
            if !matches!(register.access, Access::Ro | Access::Rw | Access::Wo)
                || register.stride.is_some()
                || (register.elements() > 1 && !register.fields.is_empty())
                || !register.fields.iter().all(plain)
            {
                return Err(ContractError::OutsideBlock { what });
            }
        }
        Ok(())
    }

    fn validate_layout(&self, layout: &Layout) -> Result<(), ContractError> {
        let what = format!("layout {}", layout.name);
        if let Some(name) = &layout.extends
            && self.parent(layout).is_none()
        {
            return Err(ContractError::Unknown { what, name: name.clone() });
        }
        if let Some(name) = &layout.packet
            && !self
                .enumeration("PacketKind")
                .is_some_and(|kinds| kinds.variants.iter().any(|v| v.name == *name))
        {
            return Err(ContractError::Unknown { what, name: name.clone() });
        }
        let mut names = BTreeSet::new();
        let mut end = 0;
        for member in self.members(layout) {
            let what = format!("{what}, member {}", member.name);
            once(&mut names, what.clone())?;
            if member.offset < end {
                return Err(ContractError::Overlap { what });
            }
            if member.offset > end {
                return Err(ContractError::Gap { what, at: member.offset });
            }
            end = member.offset + member.size();
        }
        if end == layout.size { Ok(()) } else { Err(ContractError::Gap { what, at: layout.size }) }
    }
}

fn validate_enum(enumeration: &Enumeration) -> Result<(), ContractError> {
    let mut names = BTreeSet::new();
    let mut values = BTreeSet::new();
    for variant in &enumeration.variants {
        let what = format!("value {}.{}", enumeration.name, variant.name);
        once(&mut names, what.clone())?;
        once(&mut values, variant.value).map_err(|_| ContractError::Twice { what: what.clone() })?;
        if !enumeration.repr.holds(variant.value.into()) {
            return Err(ContractError::TooBig { what });
        }
    }
    Ok(())
}

fn once<T: Ord + std::fmt::Display + Clone>(seen: &mut BTreeSet<T>, item: T) -> Result<(), ContractError> {
    let what = item.to_string();
    if seen.insert(item) { Ok(()) } else { Err(ContractError::Twice { what }) }
}
