//! Errors of maps and of accesses by name.

use std::path::PathBuf;

use fpga_input::shortened;
use fpga_registers::quantity;

/// Reason why a map was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] fpga_input::InputError),
    /// Invalid YAML, an unknown key, or a value of the wrong type.
    #[error("register map {}:{line}:{column}: key `{key}`: {message}", file.display())]
    Syntax {
        /// Path of the file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// Path to the key from the top of the file, such as `blocks[0].offset`; `.` for the whole file.
        key: String,
        /// Description of the problem, and of the permitted values.
        message: String,
    },
    /// The map violates a rule.
    #[error("register map {}:{line}:{column}: key `{key}`: {what}: {problem}", file.display())]
    Invalid {
        /// Path of the file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// Path to the key from the top of the file, such as `blocks[0].offset`.
        key: String,
        /// Affected block, register, field or enum.
        what: String,
        /// Description of the problem, and of the permitted values.
        problem: Problem,
    },
}

/// Violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Invalid name.
    #[error("\"{}\" is not a name, which has up to 64 letters, digits and underscores, a letter first", shortened(.0))]
    Name(String),
    /// The name is used twice.
    #[error("two entries have this name (upper and lower case are the same)")]
    Twice,
    /// An enum without values.
    #[error("the enum has no values")]
    Empty,
    /// The number already has a name.
    #[error("{0} already has this value")]
    TwoNames(String),
    /// Not a multiple of four.
    #[error("{0:#x} is not a multiple of 4, as registers of 32 bits are")]
    Unaligned(u64),
    /// The range exceeds its limit.
    #[error("it ends at {end:#x}, beyond {limit:#x}, {of}")]
    Outside {
        /// First byte after it.
        end: u64,
        /// First byte after the permitted range.
        limit: u64,
        /// Description of the limit.
        of: &'static str,
    },
    /// Two registers overlap.
    #[error("it overlaps {other} at {at:#x}; only a read-only and a write-only register may share an offset")]
    Overlap {
        /// The other register.
        other: String,
        /// Offset in the BAR in bytes.
        at: u64,
    },
    /// Two blocks overlap.
    #[error("it overlaps block {other} at {at:#x}")]
    BlockOverlap {
        /// The other block.
        other: String,
        /// Offset in the BAR in bytes.
        at: u64,
    },
    /// Undefined name.
    #[error("{kind} {} does not exist; {}",
        shortened(name), hint.as_deref().map_or_else(|| format!("list it under `{kind}s`"), |hint| format!("did you mean {hint}?")))]
    Unknown {
        /// Kind of the missing item: `enum` or `block`.
        kind: &'static str,
        /// Name of the missing item.
        name: String,
        /// Suggestion.
        hint: Option<String>,
    },
    /// Circular use of `like`.
    #[error("`like` refers back to the same block: {0}")]
    Cycle(String),
    /// Fields that share bits.
    #[error("it shares bits with field {0}: a bit belongs to at most one field")]
    SharedBits(String),
    /// The number does not fit.
    #[error("{value:#x} does not fit into {bits} bits: the maximum is {most:#x}", most = u64::MAX >> (64 - (*bits).clamp(1, 64)))]
    TooLarge {
        /// The number.
        value: u64,
        /// Number of bits, 1 to 64.
        bits: u32,
    },
    /// The name stands for a value that does not fit the field.
    #[error("{variant} of enum {name} is {value:#x}, which does not fit into {bits} bits")]
    Variant {
        /// The enum.
        name: String,
        /// The name of the value.
        variant: String,
        /// The number.
        value: u32,
        /// Number of bits.
        bits: u8,
    },
    /// Invalid width.
    #[error(
        "width {0} is not possible; permitted: 32, or 64 for a pair of words, without `fields`, `enum` and `count`"
    )]
    Width(u32),
    /// Invalid array: no elements, or overlapping elements.
    #[error(
        "count {count} with a stride of {stride} is not possible; permitted: a count of at least 1, and a stride that is a multiple of 4 and at least {least}",
        stride = quantity(*stride, "byte"),
    )]
    Array {
        /// Number of elements.
        count: u32,
        /// Distance between two elements in bytes.
        stride: u64,
        /// Size of an element.
        least: u64,
    },
    /// A stride without a count.
    #[error("a stride without a count")]
    Stride,
    /// The access kind of a field does not fit its register.
    #[error("the field is {field}, its register is {register}: {rule}")]
    FieldAccess {
        /// The field's access kind.
        field: &'static str,
        /// Access kind of the register.
        register: &'static str,
        /// Reason.
        rule: &'static str,
    },
    /// Too many registers.
    #[error("the map has more than {0} registers; leave memory out of the map, and read it with `peek`")]
    TooMany(usize),
    /// Unknown schema version.
    #[error("version {0} is not supported; known: 1")]
    Version(u32),
}

/// Reason why an access by name was refused. Nothing was accessed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Unknown register or field.
    #[error("map {map} has no register {name}{}", hint.as_deref().map_or_else(String::new, |hint| format!("; {hint}")))]
    Unknown {
        /// Name of the map.
        map: String,
        /// Requested name.
        name: String,
        /// Suggestions.
        hint: Option<String>,
    },
    /// The text is neither a number nor the name of a value.
    #[error("{name}: \"{text}\" is neither a number nor the name of a value; {}", if known.is_empty() { "its values have no names".to_owned() } else { format!("its values are {known}") })]
    Value {
        /// The register or field.
        name: String,
        /// The text.
        text: String,
        /// Known names.
        known: String,
    },
    /// The number does not fit.
    #[error("{name}: {value:#x} does not fit: it has {bits} bits, so the maximum is {most:#x}")]
    OutOfRange {
        /// The register or field.
        name: String,
        /// The number.
        value: u64,
        /// Number of bits.
        bits: u8,
        /// Maximum value.
        most: u32,
    },
    /// The requested access is not possible.
    #[error("{name} is {access}: {reason}")]
    Access {
        /// The register or field.
        name: String,
        /// Its access kind.
        access: &'static str,
        /// Reason.
        reason: &'static str,
    },
}
