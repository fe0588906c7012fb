//! Types of a register map file. They are compact, because some files have a hundred thousand registers. The JSON schema for editors,
//! `register-map.schema.json`, is generated from these types, and a test compares them.
//!
//! The map of this project's own network interface (`firmware-bindings/map/ni.yaml`) contains more than a user's map. It uses these types
//! of this module: [`Register`], [`Field`], [`Access`], [`Variant`].

use core::fmt;

use fpga_registers::AccessKind;
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};

/// Version of the file's schema.
pub const SCHEMA_VERSION: u32 = 1;

/// A register map of a user BAR.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "Register map"))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct File {
    /// Version of this format: 1.
    #[cfg_attr(test, schemars(range(min = 1, max = 1)))]
    pub schema_version: u32,
    /// Short title of the map.
    pub name: String,
    /// Description of the map.
    #[serde(default)]
    pub doc: String,
    /// Enums: named values that registers and fields refer to.
    #[serde(default)]
    pub enums: Vec<Enumeration>,
    /// Blocks of registers.
    pub blocks: Vec<Block>,
}

/// An enum: names for the values of a register or field.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Enumeration {
    /// Letters, digits and underscores.
    pub name: String,
    /// Description of the enum.
    #[serde(default)]
    pub doc: String,
    /// Named values.
    pub variants: Vec<Variant>,
}

/// A value with a name.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Variant {
    /// Letters, digits and underscores.
    pub name: String,
    /// Value; it must fit into every field that uses the enum.
    pub value: u32,
    /// Description of the value.
    #[serde(default)]
    pub doc: String,
}

/// Block of registers, for example of a kernel or an engine.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Block {
    /// Letters, digits and underscores.
    pub name: String,
    /// Offset in the user BAR in bytes, a multiple of 4.
    pub offset: u64,
    /// Size in bytes. It contains all registers of the block and no other block. Default: up to the last register.
    pub size: Option<u64>,
    /// Number of copies. Their names end in an index in brackets, from 0.
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub count: Option<u32>,
    /// Distance between two copies in bytes. Default: the size.
    pub stride: Option<u64>,
    /// Name of a block whose registers this block has too, in addition to those listed here.
    pub like: Option<String>,
    /// Purpose.
    #[serde(default)]
    pub doc: String,
    /// Registers of the block.
    #[serde(default)]
    pub registers: Vec<Register>,
}

/// A register: a little-endian word of 32 bits.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Register {
    /// Letters, digits and underscores.
    pub name: Box<str>,
    /// Offset in the block in bytes, a multiple of 4.
    pub offset: u32,
    /// Effect of reads and writes.
    #[serde(default)]
    pub access: Access,
    /// Bits: 32, or 64 for a pair of words, NAME_low and NAME_high, the low one first.
    #[serde(default = "word")]
    #[cfg_attr(test, schemars(extend("enum" = [32, 64])))]
    pub width: u32,
    /// Value after reset, if known.
    pub reset: Option<u64>,
    /// Number of copies. Their names end in an index in brackets, from 0.
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub count: Option<u32>,
    /// Distance between two copies in bytes, a multiple of 4. Default: 4.
    pub stride: Option<u32>,
    /// Name of the enum with the names of the values.
    #[serde(rename = "enum")]
    pub values: Option<Box<str>>,
    /// Purpose.
    #[serde(default)]
    pub doc: Box<str>,
    /// Fields of the register.
    #[serde(default)]
    pub fields: Box<[Field]>,
}

const fn word() -> u32 {
    32
}

/// Field: a range of bits of a register.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Field {
    /// Letters, digits and underscores.
    pub name: Box<str>,
    /// One bit, as a number, or "high:low", the highest and the lowest one.
    #[cfg_attr(test, schemars(with = "tests::BitsText"))]
    pub bits: Bits,
    /// Effect of reads and writes, if it differs from that of the register.
    pub access: Option<Access>,
    /// Name of the enum with the names of the values.
    #[serde(rename = "enum")]
    pub values: Option<Box<str>>,
    /// Purpose.
    #[serde(default)]
    pub doc: Box<str>,
}

/// Position of a field: bits `high` to `low` of 31 to 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bits {
    high: u8,
    low: u8,
}

impl Bits {
    /// The whole register.
    pub const ALL: Self = Self { high: 31, low: 0 };

    /// Creates a range of bits; `None` unless 31 >= `high` >= `low`.
    #[must_use]
    pub const fn new(high: u8, low: u8) -> Option<Self> {
        if high > 31 || low > high { None } else { Some(Self { high, low }) }
    }

    /// The highest bit, 0 to 31.
    #[must_use]
    pub const fn high(self) -> u8 {
        self.high
    }

    /// The lowest bit, 0 to `high`.
    #[must_use]
    pub const fn low(self) -> u8 {
        self.low
    }

    /// Returns the number of bits, 1 to 32.
    #[must_use]
    pub const fn width(self) -> u8 {
        self.high - self.low + 1
    }

    /// Maximum value that fits into the bits.
    #[must_use]
    pub const fn max_value(self) -> u32 {
        u32::MAX >> (31 - (self.high - self.low))
    }

    /// Mask of the bits.
    #[must_use]
    pub const fn mask(self) -> u32 {
        self.max_value() << self.low
    }

    /// Returns the value of the bits in `word`, shifted down to bit 0.
    #[must_use]
    pub const fn extract(self, word: u32) -> u32 {
        (word & self.mask()) >> self.low
    }

    /// Returns `word` with the bits replaced by the low bits of `value`.
    #[must_use]
    pub const fn insert(self, word: u32, value: u32) -> u32 {
        word & !self.mask() | (value << self.low) & self.mask()
    }

    fn parse(text: &str) -> Option<Self> {
        let (high, low) = text.split_once(':').unwrap_or((text, text));
        // The standard parser would also accept a sign.
        let number = |text: &str| {
            let text = text.trim();
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
        };
        Self::new(number(high)?, number(low)?)
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { high, low } if high == low => write!(f, "{low}"),
            Self { high, low } => write!(f, "{high}:{low}"),
        }
    }
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Bits;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one bit, such as 5, or \"high:low\", such as \"7:4\"; the highest bit is 31")
            }

            fn visit_u64<E: Error>(self, bit: u64) -> Result<Bits, E> {
                let bits = u8::try_from(bit).ok().and_then(|bit| Bits::new(bit, bit));
                bits.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Unsigned(bit), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Bits, E> {
                Bits::parse(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

/// Effect of reads and writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read only.
    Ro,
    /// Read and write.
    #[default]
    Rw,
    /// Write only; not readable.
    Wo,
    /// Reads; ones written clear bits, zeroes do nothing.
    Rw1c,
    /// Ones written set bits or start an action, zeroes do nothing; not readable.
    W1s,
    /// Ones written clear bits of another register, zeroes do nothing; not readable.
    W1c,
    /// Read only, and a read has an effect: it clears bits, or removes a word from a queue.
    Rc,
}

impl Access {
    /// Name in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ro => "ro",
            Self::Rw => "rw",
            Self::Wo => "wo",
            Self::Rw1c => "rw1c",
            Self::W1s => "w1s",
            Self::W1c => "w1c",
            Self::Rc => "rc",
        }
    }

    /// The same access rule as a type of `fpga-registers`.
    #[must_use]
    pub const fn kind(self) -> AccessKind {
        match self {
            Self::Ro => AccessKind::ReadOnly,
            Self::Rw => AccessKind::ReadWrite,
            Self::Wo => AccessKind::WriteOnly,
            Self::Rw1c => AccessKind::ReadWrite1Clear,
            Self::W1s => AccessKind::Write1Set,
            Self::W1c => AccessKind::Write1Clear,
            Self::Rc => AccessKind::ReadClears,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Form of [`Bits`] in the file.
    #[derive(schemars::JsonSchema)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its JSON schema is used")]
    pub(super) enum BitsText {
        /// One bit.
        One(#[schemars(range(max = 31))] u8),
        /// "high:low", or one bit.
        Text(#[schemars(regex(pattern = r"^[0-9]+(:[0-9]+)?$"))] String),
    }

    /// With FPGA_WRITE_SCHEMA=1 in the environment, this test rewrites the schema file.
    #[test]
    fn map_schema_file_matches_types() {
        let schema = schemars::schema_for!(File);
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("register-map.schema.json");
        if std::env::var_os("FPGA_WRITE_SCHEMA").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(text, crate::JSON_SCHEMA, "set FPGA_WRITE_SCHEMA=1 and run this test again");
    }
}
