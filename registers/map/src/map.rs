//! Checked register map: registers by name, with their fields.

use std::fmt;

use fpga_registers::{AccessKind, BarOffset};

use crate::error::NameError;
use crate::name::{compare, hint, nearest};
use crate::schema::Bits;

/// Names of values, from an enum of the map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Values {
    /// Name of the enum.
    pub name: String,
    /// Names and numbers, sorted by number.
    pub names: Vec<(String, u32)>,
}

/// A field of a register.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MapField {
    /// Name, as written.
    pub name: String,
    /// Bits of the register.
    pub bits: Bits,
    /// Effect of reads and writes: the field's own access kind, or its register's.
    pub access: AccessKind,
    /// Description.
    pub doc: String,
    /// Index of the enum that names its values.
    pub(crate) values: Option<usize>,
}

/// One 32-bit register.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapRegister {
    /// Full name, as written: `block.register`, `block[1].register[2]`.
    pub name: String,
    /// Offset in the BAR in bytes.
    pub address: BarOffset,
    /// Effect of reads and writes.
    pub access: AccessKind,
    /// Value after reset, if known.
    pub reset: Option<u32>,
    /// Number of the file's register that it is, or is an element of.
    pub(crate) source: u32,
}

/// Common properties of similar registers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// From the least significant bit up.
    pub(crate) fields: Vec<MapField>,
    pub(crate) values: Option<usize>,
}

/// A checked register map.
#[derive(Debug, Clone)]
pub struct RegisterMap {
    pub(crate) name: String,
    pub(crate) doc: String,
    pub(crate) values: Vec<Values>,
    pub(crate) shapes: Vec<Shape>,
    /// Shape of each of the file's registers.
    pub(crate) shape_of: Vec<u32>,
    /// Description of each of the file's registers.
    pub(crate) docs: Vec<Box<str>>,
    /// In ascending order of address.
    pub(crate) registers: Vec<MapRegister>,
    /// Register numbers in the order of their names.
    pub(crate) by_name: Vec<u32>,
}

/// Register or field that a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named<'a> {
    /// The register.
    pub register: &'a MapRegister,
    /// Field, if the name is a field's.
    pub field: Option<&'a MapField>,
}

impl Named<'_> {
    /// Named bits: a field's, or all.
    #[must_use]
    pub fn bits(&self) -> Bits {
        self.field.map_or(Bits::ALL, |field| field.bits)
    }

    /// Effect of reads and writes on these bits.
    #[must_use]
    pub fn access(&self) -> AccessKind {
        self.field.map_or(self.register.access, |field| field.access)
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.register.name)?;
        self.field.map_or(Ok(()), |field| write!(f, ".{}", field.name))
    }
}

impl Values {
    /// Returns the name of a number.
    #[must_use]
    pub fn name_of(&self, value: u32) -> Option<&str> {
        let index = self.names.binary_search_by_key(&value, |(_, number)| *number).ok()?;
        self.names.get(index).map(|(name, _)| name.as_str())
    }

    /// Returns the number of a name; case is ignored.
    #[must_use]
    pub fn number_of(&self, text: &str) -> Option<u32> {
        self.names.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, number)| *number)
    }
}

impl RegisterMap {
    /// Name of the described design.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Description of the design.
    #[must_use]
    pub fn doc(&self) -> &str {
        &self.doc
    }

    /// All registers, in ascending order of address.
    #[must_use]
    pub fn registers(&self) -> &[MapRegister] {
        &self.registers
    }

    /// Fields of a register of this map, from the least significant bit up.
    #[must_use]
    pub fn fields(&self, register: &MapRegister) -> &[MapField] {
        self.shape(register).map_or(&[], |shape| &shape.fields)
    }

    /// Description of a register of this map.
    #[must_use]
    pub fn doc_of(&self, register: &MapRegister) -> &str {
        self.docs.get(register.source as usize).map_or("", |doc| doc)
    }

    fn shape(&self, register: &MapRegister) -> Option<&Shape> {
        self.shapes.get(*self.shape_of.get(register.source as usize)? as usize)
    }

    /// Names of the values of a register of this map, or of one of its fields.
    #[must_use]
    pub fn values(&self, named: Named<'_>) -> Option<&Values> {
        let of_register = || self.shape(named.register)?.values;
        let index = named.field.map_or_else(of_register, |field| field.values)?;
        self.values.get(index)
    }

    /// Returns whether reading the register has a side effect, because it is clear-on-read or one of its fields is.
    #[must_use]
    pub fn read_has_side_effect(&self, register: &MapRegister) -> bool {
        register.access.read_has_side_effect()
            || self.fields(register).iter().any(|field| field.access.read_has_side_effect())
    }

    /// Finds a register or field by name: `block.register` or `block.register.field`, case is ignored; elements of arrays have their number
    /// in brackets.
    ///
    /// # Errors
    /// [`NameError::Unknown`], with the nearest existing names.
    pub fn find(&self, name: &str) -> Result<Named<'_>, NameError> {
        let register = |name: &str| {
            let known = |number: &u32| {
                self.registers.get(*number as usize).map_or("", |register| register.name.as_str())
            };
            let place = self.by_name.binary_search_by(|number| compare(known(number), name)).ok()?;
            self.registers.get(*self.by_name.get(place)? as usize)
        };
        if let Some(register) = register(name) {
            return Ok(Named { register, field: None });
        }
        let unknown = |hint| Err(NameError::Unknown { map: self.name.clone(), name: name.to_owned(), hint });
        if let Some((before, field)) = name.rsplit_once('.')
            && let Some(register) = register(before)
        {
            let fields = self.fields(register);
            if let Some(field) = fields.iter().find(|known| known.name.eq_ignore_ascii_case(field)) {
                return Ok(Named { register, field: Some(field) });
            }
            let near = nearest(field, fields.iter().map(|field| field.name.as_str()));
            return unknown(near.first().map(|field| format!("did you mean {}.{field}?", register.name)));
        }
        let names = self.registers.iter().map(|register| register.name.as_str());
        // block.register.field: the mistake may be in the first two.
        let of_field = || name.rsplit_once('.').and_then(|(before, _)| hint(before, names.clone()));
        unknown(hint(name, names.clone()).or_else(of_field))
    }

    /// Converts `text` to a number that fits: a name of a value, or a number, decimal or hexadecimal.
    ///
    /// # Errors
    /// [`NameError::Value`], [`NameError::OutOfRange`].
    pub fn number(&self, named: Named<'_>, text: &str) -> Result<u32, NameError> {
        let values = self.values(named);
        if let Some(number) = values.and_then(|values| values.number_of(text)) {
            return Ok(number);
        }
        let Some(value) = parse_number(text) else {
            let known =
                values.map(|values| values.names.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>());
            let known = known.unwrap_or_default().join(", ");
            let text = text.chars().take(40).collect();
            return Err(NameError::Value { name: named.to_string(), text, known });
        };
        fit(named, value)
    }
}

/// Checks that a number fits the bits of `named`.
///
/// # Errors
/// [`NameError::OutOfRange`].
pub(crate) fn fit(named: Named<'_>, value: u64) -> Result<u32, NameError> {
    let (bits, most) = (named.bits().width(), named.bits().max_value());
    match u32::try_from(value) {
        Ok(value) if value <= most => Ok(value),
        _ => Err(NameError::OutOfRange { name: named.to_string(), value, bits, most }),
    }
}

/// Parses a number: decimal, or hexadecimal or binary with 0x or 0b, with underscores at any position.
#[must_use]
pub fn parse_number(text: &str) -> Option<u64> {
    let digits = text.replace('_', "");
    let (digits, radix) = match digits.split_at_checked(2) {
        Some(("0x" | "0X", rest)) => (rest, 16),
        Some(("0b" | "0B", rest)) => (rest, 2),
        _ => (digits.as_str(), 10),
    };
    // The standard parser would also accept a sign.
    if digits.starts_with('+') { None } else { u64::from_str_radix(digits, radix).ok() }
}
