//! Names on the command line: registers, fields, names of values; and suggestions for unknown names.

use std::collections::HashSet;

use fpga_register_map::schema::Bits;
use fpga_register_map::{hint, parse_number};
use fpga_registers::{AccessKind, quantity};

use super::{Origin, Register};
use crate::error::CliError;

/// Part of a register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPart {
    /// Field name.
    pub name: String,
    /// Bits of the field.
    pub bits: Bits,
    /// Access kind.
    pub access: AccessKind,
}

/// Object of a name on the command line.
#[derive(Debug, Clone)]
pub struct Named<'a> {
    /// The register.
    pub register: &'a Register,
    /// The field, if the name contains one.
    pub field: Option<FieldPart>,
}

impl Named<'_> {
    /// The full name.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.field {
            Some(field) => format!("{}.{}", self.register.name, field.name),
            None => self.register.name.clone(),
        }
    }

    /// Bits that it names.
    #[must_use]
    pub fn bits(&self) -> Bits {
        self.field.as_ref().map_or(Bits::ALL, |field| field.bits)
    }

    /// Bits of a register's value, shifted to bit 0, and their meaning, if that has a name.
    #[must_use]
    pub fn value(&self, raw: u32) -> (u32, Option<String>) {
        let Some(part) = &self.field else { return (raw, self.register.value_name(raw)) };
        let value = part.bits.extract(raw);
        let fields = self.register.fields(raw);
        (value, fields.into_iter().find(|field| field.name == part.name).and_then(|field| field.meaning))
    }

    /// Bits of the register that have to be read and written back to write only the field.
    ///
    /// # Errors
    /// Reason why it cannot be written, or not alone, and what to do instead.
    pub fn back_off(&self) -> Result<u32, (&'static str, Option<&'static str>)> {
        let Some(part) = &self.field else { return Ok(0) };
        if let Origin::Mapped(map, index) = &self.register.origin
            && let Some(register) = map.registers().get(*index)
            && let Some(field) = map.fields(register).iter().find(|field| field.bits == part.bits)
        {
            return fpga_register_map::rest(register.access, map.fields(register), field)
                .map_err(|why| (why, None));
        }
        match self.register.access {
            AccessKind::ReadWrite => Ok(!part.bits.mask()),
            // Writing zeros has no effect there.
            AccessKind::ReadWrite1Clear | AccessKind::Write1Set | AccessKind::Write1Clear => Ok(0),
            AccessKind::WriteOnly => {
                Err(("the rest of its register cannot be read", Some("write the whole register")))
            }
            _ => Err(("only the card sets it", None)),
        }
    }

    /// Parses `text`: a number that fits, or the name of a value.
    pub fn parse(&self, text: &str) -> Result<u32, CliError> {
        let known = self.value_names();
        if let Some((_, value)) = known.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            return Ok(*value);
        }
        let name = self.name();
        // As sizes, and additionally in binary.
        let number = parse_number(text).or_else(|| crate::units::bytes(text).ok());
        let Some(number) = number else {
            let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
            let instead = match hint(text, names.iter().copied()) {
                Some(near) => format!("{near} its values are {}", names.join(", ")),
                None if names.is_empty() => "write for example 1, 0x1000 or 4KiB".to_owned(),
                None => format!("its values are {}", names.join(", ")),
            };
            let text: String = text.chars().take(40).collect();
            return Err(CliError::usage(format!(
                "{name}: \"{text}\" is not a number and not the name of a value; {instead}"
            )));
        };
        let (bits, most) = (self.bits().width(), self.bits().max_value());
        u32::try_from(number).ok().filter(|value| *value <= most).ok_or_else(|| {
            CliError::usage(format!("{name}: {number:#x} does not fit {}", quantity(bits, "bit")))
                .advise(format!("give at most {most:#x}"))
        })
    }

    /// Names of values, with their numbers.
    fn value_names(&self) -> Vec<(String, u32)> {
        match &self.register.origin {
            Origin::Known(spec, _) if self.field.is_none() && !spec.values().is_empty() => {
                spec.values().iter().map(|(value, name)| ((*name).to_owned(), *value)).collect()
            }
            Origin::Mapped(map, index) => {
                let Some(register) = map.registers().get(*index) else { return Vec::new() };
                let bits = self.field.as_ref().map(|field| field.bits);
                let field = map.fields(register).iter().find(|field| Some(field.bits) == bits);
                let values = map.values(fpga_register_map::Named { register, field });
                values.map_or_else(Vec::new, |values| values.names.clone())
            }
            // Codes of the cores have few bits.
            Origin::Known(..) if self.bits().width() <= 8 => (0..=self.bits().max_value())
                .filter_map(|value| Some((self.value(self.bits().insert(0, value)).1?, value)))
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// Finds the register or field of this name, ignoring case. Registers of the map take precedence: the user gave the map.
///
/// # Errors
/// Wrong usage, with similar names.
pub fn find<'a>(card: &str, all: &'a [Register], name: &str) -> Result<Named<'a>, CliError> {
    let register = |name: &str| {
        let mut found = all.iter().filter(|register| register.name.eq_ignore_ascii_case(name));
        let first = found.next()?;
        Some(if first.is_mapped() { first } else { found.find(|other| other.is_mapped()).unwrap_or(first) })
    };
    if let Some(register) = register(name) {
        return Ok(Named { register, field: None });
    }
    let none =
        |hint: String| Err(CliError::usage(format!("{card}: there is no register \"{name}\"")).advise(hint));
    if let Some((before, own)) = name.rsplit_once('.')
        && let Some(register) = register(before)
    {
        let fields = register.fields(0);
        let Some(field) = fields.iter().find(|field| field.name.eq_ignore_ascii_case(own)) else {
            let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
            return none(match hint(own, names.iter().copied()) {
                Some(near) => near,
                None if names.is_empty() => format!("{} has no fields", register.name),
                None => format!("{} has the fields {}", register.name, names.join(", ")),
            });
        };
        let bits = Bits::new(field.high, field.low).unwrap_or(Bits::ALL);
        let access = register.access_of(bits);
        return Ok(Named { register, field: Some(FieldPart { name: field.name.clone(), bits, access }) });
    }
    let names = || all.iter().map(|register| register.name.as_str());
    // block.register.field: the error may be in the first two parts.
    let of_field = || {
        name.rsplit_once('.')
            .filter(|(before, _)| before.contains('.'))
            .and_then(|(before, _)| hint(before, names()))
    };
    // A whole block, as `regs list` and `regs dump` accept it.
    let of_block = || (!name.contains('.')).then(|| hint(name, blocks(all))).flatten();
    none(
        hint(name, names()).or_else(of_field).or_else(of_block).unwrap_or_else(|| available_names(all, name)),
    )
}

/// Available blocks, each once, in the order of their first registers.
fn blocks(all: &[Register]) -> Vec<&str> {
    let mut seen = HashSet::new();
    let blocks = all.iter().filter_map(|register| Some(register.name.split_once('.')?.0));
    blocks.filter(|block| seen.insert(*block)).collect()
}

/// Registers of the probable block, or all blocks.
fn available_names(all: &[Register], name: &str) -> String {
    let block = name.split_once('.').map_or(name, |(block, _)| block);
    let of_block: Vec<&str> = all
        .iter()
        .filter_map(|register| register.name.split_once('.'))
        .filter(|(known, _)| known.eq_ignore_ascii_case(block))
        .map(|(_, register)| register)
        .collect();
    if !of_block.is_empty() {
        return format!("{block} has {}", of_block.join(", "));
    }
    let blocks = ranges(&blocks(all)).join(", ");
    format!("the card's blocks are {blocks}; `fpgactl regs list` lists all registers")
}

/// Joins names that differ only in a number: `msix0 to msix31`.
fn ranges(names: &[&str]) -> Vec<String> {
    let pattern = |name: &str| name.replace(|c: char| c.is_ascii_digit(), "");
    names
        .chunk_by(|a, b| pattern(a) == pattern(b))
        .filter_map(|group| match group {
            [first, .., last] => Some(format!("{first} to {last}")),
            [only] => Some((*only).to_owned()),
            [] => None,
        })
        .collect()
}

/// Selects the registers of `all` that are named or lie in a named block; all of them without names.
///
/// # Errors
/// As [`find`], for a name that is neither a register nor a block.
pub fn select(card: &str, mut all: Vec<Register>, names: &[String]) -> Result<Vec<Register>, CliError> {
    let is_of = |register: &Register, name: &str| {
        let (start, rest) = register.name.split_at_checked(name.len()).unwrap_or_default();
        start.eq_ignore_ascii_case(name) && (rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let mut wanted = Vec::with_capacity(names.len());
    for name in names {
        let is_some = !name.is_empty() && all.iter().any(|register| is_of(register, name));
        // A field stands for its register.
        wanted.push(if is_some { name.clone() } else { find(card, &all, name)?.register.name.clone() });
    }
    if !wanted.is_empty() {
        all.retain(|register| wanted.iter().any(|name| is_of(register, name)));
    }
    Ok(all)
}
