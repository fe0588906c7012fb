//! Limits of YAML text that `serde_yaml` does not have: it needs quadratic time for open brackets, and expands aliases to up to a hundred
//! times as many values as the text has, each of which may be another alias.

use core::cell::Cell;
use core::fmt;
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, MapAccess, SeqAccess};
use serde::de::{VariantAccess, Visitor};

use crate::{FileKind, InputError};

/// Maximum number of open brackets at one position. `serde_yaml` itself refuses values nested deeper than 128.
const MAX_OPEN_BRACKETS: usize = 1024;
/// Maximum number of values of a text after alias expansion; a longer text may have as many values as bytes, which is impossible without
/// aliases.
const MAX_VALUES: u64 = 1 << 20;

impl FileKind {
    /// Reads the text of `file` and checks that a YAML parser can read it in bounded time and memory.
    ///
    /// # Errors
    /// See [`InputError`]. The parser reports syntax errors.
    pub fn read_yaml(self, file: &Path) -> Result<String, InputError> {
        let text = self.read(file)?;
        self.check_yaml(file, &text)?;
        Ok(text)
    }

    /// Performs only the check; `file` is only named in errors.
    ///
    /// # Errors
    /// [`InputError::Nested`], [`InputError::Aliases`].
    pub fn check_yaml(self, file: &Path, text: &str) -> Result<(), InputError> {
        if let Some((line, column)) = too_deep(text) {
            let (file, limit) = (file.to_owned(), MAX_OPEN_BRACKETS);
            return Err(InputError::Nested { kind: self, file, line, column, limit });
        }
        let limit = MAX_VALUES.max(text.len() as u64);
        if text.contains('*') && aliases_exceed(text, limit) {
            return Err(InputError::Aliases { kind: self, file: file.to_owned(), limit });
        }
        Ok(())
    }
}

/// Line and column of the first bracket that is nested too deeply. Brackets in comments and quoted text count too: no real file has a
/// thousand unmatched ones.
fn too_deep(text: &str) -> Option<(usize, usize)> {
    let mut depth = 0_usize;
    for (line, content) in text.lines().enumerate() {
        for (column, character) in content.chars().enumerate() {
            match character {
                '[' | '{' => depth += 1,
                ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > MAX_OPEN_BRACKETS {
                return Some((line + 1, column + 1));
            }
        }
    }
    None
}

/// Returns whether a text expands to more than `limit` values, or repeats more than `serde_yaml` accepts.
fn aliases_exceed(text: &str, limit: u64) -> bool {
    let left = Cell::new(limit);
    let counted = Count { left: &left }.deserialize(serde_yaml::Deserializer::from_str(text));
    // The reader refuses a text that is not YAML, with line and column.
    left.get() == 0 || counted.is_err_and(|error| error.to_string().contains("repetition limit"))
}

/// Counts values without keeping them.
#[derive(Clone, Copy)]
struct Count<'a> {
    left: &'a Cell<u64>,
}

impl<'de> DeserializeSeed<'de> for Count<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.left.get().checked_sub(1) {
            None | Some(0) => {
                self.left.set(0);
                Err(D::Error::custom("too many values"))
            }
            Some(left) => {
                self.left.set(left);
                deserializer.deserialize_any(self)
            }
        }
    }
}

impl<'de> Visitor<'de> for Count<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i128<E: Error>(self, _: i128) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while entries.next_key_seed(self)?.is_some() {
            entries.next_value_seed(self)?;
        }
        Ok(())
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<(), A::Error> {
        let (IgnoredAny, value) = tagged.variant()?;
        value.newtype_variant_seed(self)
    }
}
