//! Register values as named fields: the output of `Display` and of a register browser.

use core::fmt;

use crate::xdma::direction::Direction;

/// The value of a 32-bit register.
pub trait RegisterValue: Copy {
    /// Fields from the least significant bit up, without gaps (reserved bits have names starting with `_`). Empty for a plain number.
    const FIELDS: &'static [Field];

    /// Creates the value of the register word `raw`, reserved bits kept.
    fn from_register(raw: u32) -> Self;

    /// Returns the register word.
    fn into_register(self) -> u32;

    /// Decodes the value to fields.
    #[must_use]
    fn decoded(self) -> Decoded {
        Decoded::new(self.into_register(), Self::FIELDS)
    }
}

impl RegisterValue for u32 {
    const FIELDS: &'static [Field] = &[];

    fn from_register(raw: u32) -> Self {
        raw
    }

    fn into_register(self) -> u32 {
        self
    }
}

/// Interpretation of a field's bits.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum FieldKind {
    /// One bit that is set or not.
    Flag,
    /// A number, best shown in decimal.
    Number,
    /// A pattern, best shown in hexadecimal.
    Hex,
    /// A code with a meaning per value; `None` for codes that the document does not define.
    Choice(fn(u32) -> Option<&'static str>),
    /// Independent bits with a name each, from the field's least significant bit up.
    Flags(&'static [&'static str]),
    /// Same as `Flags`, with other names for each channel direction.
    FlagsByDirection {
        /// Names on an H2C channel.
        h2c: &'static [&'static str],
        /// Names on a C2H channel.
        c2h: &'static [&'static str],
    },
}

/// Description of a register or a field, from its documentation comment. `Display` prints it for a terminal, without the markup of links
/// and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doc(&'static str);

impl Doc {
    /// Creates a description from the text of a documentation comment, in Markdown.
    #[must_use]
    pub const fn new(text: &'static str) -> Self {
        Self(text.trim_ascii())
    }

    /// Returns whether the description is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Doc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['`', '[', ']']) {
            let (before, mark) = rest.split_at(at);
            f.write_str(before)?;
            // All three are one byte long.
            let (mark, after) = mark.split_at(1);
            // The text of a link is followed by its target, which is not useful here.
            rest = match (mark, after.split_once(')')) {
                ("]", Some((_, behind))) if after.starts_with('(') => behind,
                _ => after,
            };
        }
        f.write_str(rest)
    }
}

/// One field of a register value.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    name: &'static str,
    low: u8,
    width: u8,
    kind: FieldKind,
    doc: Doc,
}

impl Field {
    /// Creates a field of `width` bits, 1 to 32; [`place`] sets its position. Reserved bits have a name that starts with `_`.
    #[must_use]
    pub const fn new(name: &'static str, width: u8, kind: FieldKind) -> Self {
        Self { name, low: 0, width, kind, doc: Doc::new("") }
    }

    /// Creates a field of the bits `high` to `low`, both at most 31: a flag if it is one bit, else a number.
    #[must_use]
    pub const fn at(name: &'static str, high: u8, low: u8, doc: &'static str) -> Self {
        let kind = if high == low { FieldKind::Flag } else { FieldKind::Number };
        Self { name, low, width: high - low + 1, kind, doc: Doc::new(doc) }
    }

    /// Sets the description.
    #[must_use]
    pub const fn with_doc(mut self, text: &'static str) -> Self {
        self.doc = Doc::new(text);
        self
    }

    /// Name, equal to that of the accessor of the value type.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of the least significant bit.
    #[must_use]
    pub const fn low(&self) -> u8 {
        self.low
    }

    /// Returns the number of the most significant bit.
    #[must_use]
    pub const fn high(&self) -> u8 {
        self.low + self.width - 1
    }

    /// Description; empty for reserved bits.
    #[must_use]
    pub const fn doc(&self) -> Doc {
        self.doc
    }

    /// Interpretation of the bits.
    #[must_use]
    pub const fn kind(&self) -> FieldKind {
        self.kind
    }

    /// Returns whether the document reserves these bits.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.name.starts_with('_')
    }

    /// Mask of the field in a register word.
    #[must_use]
    pub const fn mask(&self) -> u32 {
        (u32::MAX >> (32 - self.width)) << self.low
    }

    /// Value of the field in a register word, moved to bit 0.
    #[must_use]
    pub const fn extract(&self, raw: u32) -> u32 {
        (raw & self.mask()) >> self.low
    }
}

/// Assigns positions to fields that are listed from the least significant bit up. For constants: see the panic.
///
/// # Panics
/// If the fields do not cover 32 bits.
#[must_use]
pub const fn place<const N: usize>(mut fields: [Field; N]) -> [Field; N] {
    let mut low = 0;
    let mut index = 0;
    while index < N {
        fields[index].low = low;
        low += fields[index].width;
        index += 1;
    }
    assert!(low == 32, "the fields of a register value cover 32 bits");
    fields
}

/// A register word with its fields. `Display` prints the word and its fields.
///
/// A set flag is printed by its name, a field as `name=value`, a code with its meaning, a group of bits by the names
/// of those set or `none`; flags that are clear and reserved bits that are zero are left out.
#[derive(Clone, Copy, Debug)]
pub struct Decoded {
    raw: u32,
    fields: &'static [Field],
    direction: Option<Direction>,
}

impl Decoded {
    /// Combines `raw` with these fields.
    #[must_use]
    pub const fn new(raw: u32, fields: &'static [Field]) -> Self {
        Self { raw, fields, direction: None }
    }

    /// Selects the bit names of a channel of this direction.
    #[must_use]
    pub const fn on(mut self, direction: Direction) -> Self {
        self.direction = Some(direction);
        self
    }

    /// The register word.
    #[must_use]
    pub const fn raw(&self) -> u32 {
        self.raw
    }

    /// Fields from the least significant bit up; reserved bits only if they are not zero.
    pub fn fields(&self) -> impl Iterator<Item = DecodedField> + use<> {
        let (raw, direction) = (self.raw, self.direction);
        self.fields
            .iter()
            .map(move |field| DecodedField { field, value: field.extract(raw), direction })
            .filter(|decoded| !decoded.field.is_reserved() || decoded.value != 0)
    }
}

impl fmt::Display for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.raw)?;
        for decoded in self.fields() {
            let is_clear_flag = matches!(decoded.field.kind, FieldKind::Flag) && decoded.value == 0;
            if !is_clear_flag {
                write!(f, " {decoded}")?;
            }
        }
        Ok(())
    }
}

/// One field of a register word. `Display` prints it as [`Decoded`] describes.
#[derive(Clone, Copy, Debug)]
pub struct DecodedField {
    field: &'static Field,
    value: u32,
    direction: Option<Direction>,
}

impl DecodedField {
    /// Name of the field; `reserved` for bits that the document reserves.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.field.is_reserved() { "reserved" } else { self.field.name }
    }

    /// Value of the field, moved to bit 0.
    #[must_use]
    pub const fn value(&self) -> u32 {
        self.value
    }

    /// Position and kind of the field.
    #[must_use]
    pub const fn field(&self) -> &'static Field {
        self.field
    }

    /// Meaning of a code, if the document defines one.
    #[must_use]
    pub fn meaning(&self) -> Option<&'static str> {
        match self.field.kind {
            FieldKind::Choice(meaning) => meaning(self.value),
            _ => None,
        }
    }

    /// Numbers (within the field) and names of the set bits of a group; `None` for a bit without a name.
    pub fn set_bits(&self) -> impl Iterator<Item = (u8, Option<&'static str>)> + use<> {
        let names: &'static [&'static str] = match (self.field.kind, self.direction) {
            (FieldKind::Flags(names), _) => names,
            (FieldKind::FlagsByDirection { h2c, .. }, Some(Direction::H2c)) => h2c,
            (FieldKind::FlagsByDirection { c2h, .. }, Some(Direction::C2h)) => c2h,
            _ => &[],
        };
        let value = self.value;
        (0..self.field.width)
            .filter(move |bit| value >> bit & 1 == 1)
            .map(move |bit| (bit, names.get(usize::from(bit)).copied()))
    }
}

impl fmt::Display for DecodedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self.field.kind {
            _ if self.field.is_reserved() => write!(f, "{name}={:#x}", self.value),
            FieldKind::Flag if self.value == 1 => f.write_str(name),
            FieldKind::Flag => write!(f, "{name}=0"),
            FieldKind::Number => write!(f, "{name}={}", self.value),
            FieldKind::Hex => write!(f, "{name}={:#x}", self.value),
            FieldKind::Choice(_) => match self.meaning() {
                Some(meaning) => write!(f, "{name}={}({meaning})", self.value),
                None => write!(f, "{name}={}(undefined)", self.value),
            },
            FieldKind::FlagsByDirection { .. } if self.direction.is_none() => {
                write!(f, "{name}={:#x}", self.value)
            }
            FieldKind::Flags(_) | FieldKind::FlagsByDirection { .. } => {
                write!(f, "{name}=")?;
                if self.value == 0 {
                    // Not `0`, which would be the name of the first bit of a group of channels.
                    return f.write_str("none");
                }
                for (count, (bit, bit_name)) in self.set_bits().enumerate() {
                    if count > 0 {
                        f.write_str("|")?;
                    }
                    match bit_name {
                        Some(bit_name) => f.write_str(bit_name)?,
                        None => write!(f, "bit{}", self.field.low + bit)?,
                    }
                }
                Ok(())
            }
        }
    }
}
