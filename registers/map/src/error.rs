//! Why a map was refused, or an access by name.

use std::path::PathBuf;

/// A map was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] fpga_input::ReadError),
    /// Not YAML, an unknown key, a value of the wrong kind.
    #[error("register map {}:{line}:{column}: key `{key}`: {message}", file.display())]
    Syntax {
        /// Which file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The way to the key from the top of the file, such as `blocks[0].offset`; `.` for the whole file.
        key: String,
        /// What is wrong, and what is allowed.
        message: String,
    },
    /// It contradicts itself.
    #[error("register map {}:{line}:{column}: key `{key}`: {what}: {problem}", file.display())]
    Invalid {
        /// Which file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The way to the key from the top of the file, such as `blocks[0].offset`.
        key: String,
        /// Which block, register, field or enum.
        what: String,
        /// What is wrong with it, and what is allowed.
        problem: Problem,
    },
}

/// A rule that a map breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// No name.
    #[error("\"{0}\" is no name: write letters, digits and underscores, a letter first, 64 at most")]
    Name(String),
    /// The name is taken.
    #[error("there are two of this name (upper and lower case are the same): give one of them another")]
    Twice,
    /// An enum without values.
    #[error("it has no values: give at least one")]
    Empty,
    /// A number that has a name already.
    #[error("{0} has this value already: give each value one name")]
    TwoNames(String),
    /// Not a multiple of four.
    #[error("{0:#x} is no multiple of 4: registers are words of 32 bits")]
    Unaligned(u64),
    /// Too far away.
    #[error("it ends at {end:#x}, beyond {limit:#x}, {of}")]
    Outside {
        /// First byte after it.
        end: u64,
        /// First byte after what it may take up.
        limit: u64,
        /// What that is the end of.
        of: &'static str,
    },
    /// Two registers at one place.
    #[error(
        "it overlaps {other} at {at:#x}; only a register that is read and one that is written may share a place"
    )]
    Overlap {
        /// The other register.
        other: String,
        /// Bytes from the start of the BAR.
        at: u64,
    },
    /// Two blocks at one place.
    #[error("it overlaps block {other} at {at:#x}: change an offset or a size")]
    BlockOverlap {
        /// The other block.
        other: String,
        /// Bytes from the start of the BAR.
        at: u64,
    },
    /// A name that is not defined.
    #[error("there is no {kind} {name}; {}", hint.as_deref().map_or_else(|| format!("list it under `{kind}s`"), |hint| format!("did you mean {hint}?")))]
    Unknown {
        /// What is missing: `enum` or `block`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// A name that may have been meant.
        hint: Option<String>,
    },
    /// Blocks that are like each other in a circle.
    #[error("it is like itself: {0}; leave `like` out of one of them")]
    Cycle(String),
    /// Fields that share bits.
    #[error("it shares bits with field {0}: every bit belongs to one field at most")]
    SharedBits(String),
    /// A number that does not fit.
    #[error("{value:#x} does not fit into {bits} bits: {most:#x} is the most", most = u64::MAX >> (64 - (*bits).clamp(1, 64)))]
    TooLarge {
        /// The number.
        value: u64,
        /// How many bits there are, 1 to 64.
        bits: u32,
    },
    /// A name of a value that a field cannot have.
    #[error("{variant} of enum {name} is {value:#x}, which does not fit into {bits} bits")]
    Variant {
        /// The enum.
        name: String,
        /// The name of the value.
        variant: String,
        /// The number.
        value: u32,
        /// How many bits there are.
        bits: u8,
    },
    /// A width that is none.
    #[error("width {0}: write 32, or 64 for a pair of words, without `fields`, `enum` and `count`")]
    Width(u32),
    /// An array of none, or one whose elements overlap.
    #[error(
        "{count} with {stride} bytes from one to the next: give a count of 1 at least, and a stride that is a multiple of 4 and {least} at least"
    )]
    Array {
        /// How many.
        count: u32,
        /// Bytes from one to the next.
        stride: u64,
        /// Size of an element.
        least: u64,
    },
    /// A distance between things of which there is one.
    #[error("a stride without a count: give a count, or leave the stride out")]
    Stride,
    /// Bits that could be read or written where the register cannot.
    #[error("the field is {field}, and its register {register}: {rule}")]
    FieldAccess {
        /// The field's access kind.
        field: &'static str,
        /// The register's.
        register: &'static str,
        /// Why that cannot be.
        rule: &'static str,
    },
    /// More registers than anybody has.
    #[error("that makes more than {0} registers; describe memory as memory, with `peek`")]
    TooMany(usize),
    /// A version that is not known.
    #[error("version {0} is not known; write schema_version: 1")]
    Version(u32),
}

/// An access by name was refused. Nothing was accessed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// No such register or field.
    #[error("there is no register {name} in map {map}{}", hint.as_deref().map_or_else(String::new, |hint| format!("; {hint}")))]
    Unknown {
        /// The map's name.
        map: String,
        /// What was asked for.
        name: String,
        /// What may have been meant.
        hint: Option<String>,
    },
    /// A word that names no value.
    #[error("{name}: \"{text}\" is no number and names no value; {}", if known.is_empty() { "its values have no names".to_owned() } else { format!("its values are {known}") })]
    Value {
        /// The register or field.
        name: String,
        /// The word.
        text: String,
        /// What there is.
        known: String,
    },
    /// A number that does not fit.
    #[error("{name}: {value:#x} does not fit: it has {bits} bits, so {most:#x} at most")]
    OutOfRange {
        /// The register or field.
        name: String,
        /// The number.
        value: u64,
        /// Bits of it.
        bits: u8,
        /// The largest that fits.
        most: u32,
    },
    /// What was asked for is not possible.
    #[error("{name} is {access}: {reason}")]
    Access {
        /// The register or field.
        name: String,
        /// Its access kind.
        access: &'static str,
        /// What keeps it from being done.
        reason: &'static str,
    },
}
