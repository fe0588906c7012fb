//! Position in a YAML text of a value that is valid YAML but violates a rule.
//!
//! The parser provides positions only in errors. Therefore the path to the value is parsed again with the parser itself, and ends in an
//! error: this handles flow and block style, quotes and anchors as the parser does.

use core::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Line and column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Place {
    /// Start of a text.
    const START: Self = Self { line: 1, column: 1 };

    /// Position of an error, or the start of the text.
    pub(crate) fn of(error: &serde_yaml::Error) -> Self {
        error.location().map_or(Self::START, |at| Self { line: at.line(), column: at.column() })
    }
}

/// One step of the path from the top of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// The value of this key.
    Key(String),
    /// The item of this number.
    Item(usize),
}

/// Formats the path: `blocks[0].registers[3].offset`.
pub(crate) fn dotted(way: &[Step]) -> String {
    let mut text = String::new();
    for step in way {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => {
                text.push('.');
                text.push_str(key);
            }
            Step::Item(number) => text.push_str(&format!("[{number}]")),
        }
    }
    if text.is_empty() { ".".to_owned() } else { text }
}

/// Position of the value at the end of `way`, or of the last existing step.
pub(crate) fn locate(text: &str, way: &[Step]) -> Place {
    for length in (0..=way.len()).rev() {
        let seed = Walk(way.get(..length).unwrap_or_default());
        if let Err(error) = seed.deserialize(serde_yaml::Deserializer::from_str(text))
            && error.location().is_some()
        {
            return Place::of(&error);
        }
    }
    Place::START
}

/// Remaining path.
struct Walk<'a>(&'a [Step]);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.0.split_first() {
            None => deserializer.deserialize_any(Arrived),
            Some((Step::Key(key), rest)) => deserializer.deserialize_map(Keys { key, rest }),
            Some((Step::Item(number), rest)) => deserializer.deserialize_seq(Items { number: *number, rest }),
        }
    }
}

struct Keys<'a> {
    key: &'a str,
    rest: &'a [Step],
}

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == self.key {
                map.next_value_seed(Walk(self.rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct Items<'a> {
    number: usize,
    rest: &'a [Step],
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for _ in 0..self.number {
            if items.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
        }
        if items.next_element_seed(Walk(self.rest))?.is_some() {
            while items.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }
}

/// Error at the end of the path, for any value.
struct Arrived;

macro_rules! arrived {
    ($($visit:ident: $value:ty),*) => {
        $(fn $visit<E: Error>(self, _: $value) -> Result<(), E> {
            Err(E::custom("here"))
        })*
    };
}

impl<'de> Visitor<'de> for Arrived {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    arrived! {
        visit_bool: bool, visit_i64: i64, visit_i128: i128, visit_u64: u64, visit_u128: u128, visit_f64: f64, visit_str: &str
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Err(E::custom("here"))
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        Err(E::custom("here"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(A::Error::custom("here"))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(A::Error::custom("here"))
    }
}
