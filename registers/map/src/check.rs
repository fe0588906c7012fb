//! Rules of one register, common to maps of users and the map of this project's network interface.

use std::collections::HashSet;

use crate::error::Problem;
use crate::locate::{Step, dotted};
use crate::name::is_name;
use crate::schema::{Access, Bits, Register, Variant};

/// Size of a register in bytes.
pub(crate) const WORD: u64 = 4;

/// Violation of a rule by a register.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", field.as_deref().map_or_else(String::new, |field| format!("field {field}: ")))]
pub struct RegisterFault {
    /// Affected field, if any.
    pub field: Option<String>,
    /// Description of the problem, and of the permitted values.
    pub problem: Problem,
    /// Path from the register to the key.
    pub(crate) way: Vec<Step>,
}

impl RegisterFault {
    /// Path from the register to the key, such as `fields[1].bits`.
    #[must_use]
    pub fn key(&self) -> String {
        dotted(&self.way)
    }
}

pub(crate) fn key(name: &str) -> Step {
    Step::Key(name.to_owned())
}

impl Register {
    /// Returns the number of elements: 1 if it is not an array.
    #[must_use]
    pub fn elements(&self) -> u32 {
        self.count.unwrap_or(1)
    }

    /// Size of one element in bytes.
    #[must_use]
    pub fn element_size(&self) -> u64 {
        u64::from(self.width / 8)
    }

    /// Distance between two elements in bytes.
    #[must_use]
    pub fn element_stride(&self) -> u64 {
        self.stride.map_or_else(|| self.element_size(), u64::from)
    }

    /// Offset of the end of the last element in the block, in bytes.
    #[must_use]
    pub fn end(&self) -> u64 {
        // All of them have 32 bits: no overflow.
        let before = u64::from(self.elements().saturating_sub(1)) * self.element_stride();
        u64::from(self.offset) + before + self.element_size()
    }

    /// Checks all rules that concern the register alone. `variants`: the values of an enum; an error contains the nearest name.
    ///
    /// # Errors
    /// The first violated rule.
    pub fn check<'e>(
        &self,
        variants: impl Fn(&str) -> Result<&'e [Variant], Option<String>>,
    ) -> Result<(), RegisterFault> {
        let fault = |at: &str, problem| Err(RegisterFault { field: None, problem, way: vec![key(at)] });
        if !is_name(&self.name) {
            return fault("name", Problem::Name(self.name.to_string()));
        }
        if !u64::from(self.offset).is_multiple_of(WORD) {
            return fault("offset", Problem::Unaligned(self.offset.into()));
        }
        let single = self.fields.is_empty() && self.values.is_none() && self.count.is_none();
        match self.width {
            32 => {}
            64 if single => {}
            width => return fault("width", Problem::Width(width)),
        }
        let (count, stride, least) = (self.elements(), self.element_stride(), self.element_size());
        if self.stride.is_some() && self.count.is_none() {
            return fault("stride", Problem::Stride);
        }
        if count == 0 || stride < least || !stride.is_multiple_of(WORD) {
            let at = if count == 0 { "count" } else { "stride" };
            return fault(at, Problem::Array { count, stride, least });
        }
        if let Some(value) = self.reset
            && self.width == 32
            && value >> 32 != 0
        {
            return fault("reset", Problem::TooLarge { value, bits: 32 });
        }
        let enumerated = |name: &Option<Box<str>>, bits: Bits| -> Result<(), Problem> {
            let Some(name) = name else { return Ok(()) };
            let values = variants(name).map_err(|hint| Problem::Unknown {
                kind: "enum",
                name: name.to_string(),
                hint,
            })?;
            match values.iter().find(|variant| variant.value > bits.max_value()) {
                None => Ok(()),
                Some(Variant { name: variant, value, .. }) => Err(Problem::Variant {
                    name: name.to_string(),
                    variant: variant.clone(),
                    value: *value,
                    bits: bits.width(),
                }),
            }
        };
        if let Err(problem) = enumerated(&self.values, Bits::ALL) {
            return fault("enum", problem);
        }
        let mut names = HashSet::new();
        for (number, field) in self.fields.iter().enumerate() {
            let fault = |at: &str, problem| {
                let way = vec![key("fields"), Step::Item(number), key(at)];
                Err(RegisterFault { field: Some(field.name.to_string()), problem, way })
            };
            if !is_name(&field.name) {
                return fault("name", Problem::Name(field.name.to_string()));
            }
            if !names.insert(field.name.to_ascii_lowercase()) {
                return fault("name", Problem::Twice);
            }
            let before = self.fields.get(..number).unwrap_or_default();
            if let Some(other) = before.iter().find(|other| other.bits.mask() & field.bits.mask() != 0) {
                return fault("bits", Problem::SharedBits(other.name.to_string()));
            }
            if let Err(problem) = enumerated(&field.values, field.bits) {
                return fault("enum", problem);
            }
            if let Some(rule) = field.access.and_then(|own| forbidden(own, self.access)) {
                let field = field.access.unwrap_or_default().name();
                return fault("access", Problem::FieldAccess { field, register: self.access.name(), rule });
            }
        }
        Ok(())
    }
}

/// Reason why a field of access kind `field` is not permitted in such a register.
fn forbidden(field: Access, register: Access) -> Option<&'static str> {
    if field.kind().is_readable() && !register.kind().is_readable() {
        return Some("a register that cannot be read has no readable field; change one access");
    }
    if field.kind().is_writable() && !register.kind().is_writable() {
        return Some("a register that cannot be written has no writable field; change one access");
    }
    None
}
