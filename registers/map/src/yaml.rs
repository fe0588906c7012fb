//! YAML as it goes by: values are made while their text is read, so that of a long file no more is in memory than what it says.
//!
//! `serde_yaml` notes every word of a file before it makes the first value of it, which is more than the values take. What it takes
//! for a number, a text or nothing is the same here; a test holds the two against each other.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

/// So many nodes of a text may come from aliases: what aliases of aliases make has no end otherwise.
const REPEATED: usize = 1 << 22;

/// Line and column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Place {
    /// Where every text begins.
    pub(crate) const START: Self = Self { line: 1, column: 1 };
}

impl From<Span> for Place {
    fn from(span: Span) -> Self {
        Self { line: span.start.line(), column: span.start.col() + 1 }
    }
}

/// What is wrong with a text, and where.
#[derive(Debug)]
pub(crate) struct Error {
    message: String,
    at: Option<Place>,
}

impl Error {
    /// The innermost place counts.
    fn or_at(mut self, at: Place) -> Self {
        self.at.get_or_insert(at);
        self
    }

    fn new(at: Place, message: &str) -> Self {
        Self { message: message.to_owned(), at: Some(at) }
    }

    pub(crate) fn place(&self) -> Option<Place> {
        self.at
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { message: message.to_string(), at: None }
    }
}

impl From<ScanError> for Error {
    fn from(error: ScanError) -> Self {
        let at = Place { line: error.marker().line(), column: error.marker().col() + 1 };
        Self { message: error.info(), at: Some(at) }
    }
}

/// A part of a text: `End` is a sequence's or a mapping's.
#[derive(Debug, Clone)]
enum Node<'t> {
    Scalar { text: Cow<'t, str>, is_plain: bool },
    Sequence,
    Mapping,
    End,
    Alias(usize),
}

type Item<'t> = (Node<'t>, Place);

/// What an anchor stands before, while it is not at its end.
#[derive(Debug)]
struct Recording<'t> {
    anchor: usize,
    depth: usize,
    items: Vec<Item<'t>>,
}

/// A text of one document, to be deserialized once.
pub(crate) struct Yaml<'t> {
    parser: Parser<'t, StrInput<'t>>,
    /// Where the parser is.
    at: Place,
    /// Looked at, and not taken yet.
    next: Option<Item<'t>>,
    /// The document has begun.
    is_inside: bool,
    recordings: Vec<Recording<'t>>,
    anchors: HashMap<usize, Rc<[Item<'t>]>>,
    /// What aliases stand for, with how much of it has been taken.
    aliases: Vec<(Rc<[Item<'t>]>, usize)>,
    repeated: usize,
}

impl<'t> Yaml<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self {
            parser: Parser::new_from_str(text),
            at: Place::START,
            next: None,
            is_inside: false,
            recordings: Vec::new(),
            anchors: HashMap::new(),
            aliases: Vec::new(),
            repeated: 0,
        }
    }

    /// That the text ends after what has been deserialized of it.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        for event in self.parser.by_ref() {
            let (event, span) = event?;
            if !matches!(event, Event::DocumentEnd | Event::StreamEnd) {
                return Err(Error::new(span.into(), "a second document begins: write one"));
            }
        }
        Ok(())
    }

    /// What the parser says next; an alias is left as it is.
    fn parse(&mut self) -> Result<Item<'t>, Error> {
        loop {
            let Some(event) = self.parser.next() else {
                return Err(Error::new(self.at, "the text ends here, too early"));
            };
            let (event, span) = event?;
            self.at = span.into();
            let (node, anchor) = match event {
                Event::StreamStart => continue,
                Event::DocumentStart(..) => {
                    self.is_inside = true;
                    continue;
                }
                // Nothing at all is nothing.
                Event::DocumentEnd | Event::StreamEnd if !self.is_inside => {
                    self.is_inside = true;
                    self.at = Place::START;
                    (Node::Scalar { text: "".into(), is_plain: true }, 0)
                }
                Event::Scalar(text, style, anchor, tag) => {
                    let is_plain = style == ScalarStyle::Plain;
                    // The parser writes what is left out as if it were there.
                    let is_left_out = is_plain && span.is_empty();
                    let text = if is_left_out { "".into() } else { text };
                    let is_text = is_text(tag.as_deref(), self.at)?;
                    (Node::Scalar { text, is_plain: is_text.map_or(is_plain, |is_text| !is_text) }, anchor)
                }
                Event::SequenceStart(_, anchor, tag) => {
                    is_text(tag.as_deref(), self.at)?;
                    (Node::Sequence, anchor)
                }
                Event::MappingStart(_, anchor, tag) => {
                    is_text(tag.as_deref(), self.at)?;
                    (Node::Mapping, anchor)
                }
                Event::SequenceEnd | Event::MappingEnd => (Node::End, 0),
                Event::Alias(anchor) => (Node::Alias(anchor), 0),
                _ => return Err(Error::new(self.at, "the text ends here, too early")),
            };
            let item = (node, self.at);
            self.record(&item, anchor);
            return Ok(item);
        }
    }

    /// Keeps what aliases may stand for later.
    fn record(&mut self, item: &Item<'t>, anchor: usize) {
        for recording in &mut self.recordings {
            recording.items.push(item.clone());
            match item.0 {
                Node::Sequence | Node::Mapping => recording.depth += 1,
                Node::End => recording.depth -= 1,
                Node::Scalar { .. } | Node::Alias(_) => {}
            }
        }
        while let Some(ended) = self.recordings.pop_if(|recording| recording.depth == 0) {
            self.anchors.insert(ended.anchor, ended.items.into());
        }
        match item.0 {
            _ if anchor == 0 => {}
            Node::Sequence | Node::Mapping => {
                self.recordings.push(Recording { anchor, depth: 1, items: vec![item.clone()] });
            }
            _ => {
                self.anchors.insert(anchor, Rc::from([item.clone()]));
            }
        }
    }

    fn take(&mut self) -> Result<Item<'t>, Error> {
        if let Some(item) = self.next.take() {
            return Ok(item);
        }
        loop {
            let (node, at) = match self.aliases.last_mut() {
                None => self.parse()?,
                Some((items, taken)) => {
                    let Some(item) = items.get(*taken).cloned() else {
                        self.aliases.pop();
                        continue;
                    };
                    *taken += 1;
                    self.repeated += 1;
                    if self.repeated > REPEATED {
                        let message =
                            "aliases make more of this text than a map can hold: write out what is meant";
                        return Err(Error::new(self.at, message));
                    }
                    item
                }
            };
            let Node::Alias(anchor) = node else { return Ok((node, at)) };
            let Some(items) = self.anchors.get(&anchor) else {
                return Err(Error::new(at, "this alias stands within what it stands for"));
            };
            self.aliases.push((Rc::clone(items), 0));
        }
    }

    fn peek(&mut self) -> Result<&Item<'t>, Error> {
        let item = self.take()?;
        Ok(self.next.insert(item))
    }

    /// Whether what comes next is the end of a sequence or a mapping, which is taken then.
    fn ends(&mut self) -> Result<bool, Error> {
        if matches!(self.peek()?.0, Node::End) {
            self.next = None;
            return Ok(true);
        }
        Ok(false)
    }

    /// Passes over what comes next: with `depth` ends open, up to the last of them.
    fn skip(&mut self, mut depth: usize) -> Result<(), Error> {
        loop {
            match self.take()?.0 {
                Node::Sequence | Node::Mapping => depth += 1,
                Node::End => depth = depth.saturating_sub(1),
                Node::Scalar { .. } | Node::Alias(_) => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// The items of a sequence that has begun, or the entries of a mapping.
    fn within<V>(&mut self, visit: impl FnOnce(&mut Inside<'_, 't>) -> Result<V, Error>) -> Result<V, Error> {
        let mut inside = Inside { yaml: self, is_over: false };
        let value = visit(&mut inside)?;
        if !inside.is_over {
            self.skip(1)?;
        }
        Ok(value)
    }
}

/// Whether a tag says that something is a text, or is not; `None` if it says nothing of that.
fn is_text(tag: Option<&Tag>, at: Place) -> Result<Option<bool>, Error> {
    match tag {
        None => Ok(None),
        Some(tag) if tag.is_yaml_core_schema() => Ok(Some(tag.suffix() == "str")),
        Some(tag) => Err(Error::new(at, &format!("the tag {tag} means nothing here: leave it out"))),
    }
}

fn is_nothing(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// A number as YAML writes it, with its sign; 0 before other digits makes it a text.
fn integer(text: &str) -> Option<(bool, u64)> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, radix) = match digits.split_at_checked(2) {
        Some(("0x", rest)) => (rest, 16),
        Some(("0o", rest)) => (rest, 8),
        Some(("0b", rest)) => (rest, 2),
        _ if digits.len() > 1 && digits.starts_with('0') => return None,
        _ => (digits, 10),
    };
    // The standard parser would also take a sign.
    let is_digit = |c: char| c.is_digit(radix);
    let number = digits.chars().all(is_digit).then(|| u64::from_str_radix(digits, radix).ok())??;
    Some((is_negative, number))
}

/// A text without quotes is what it looks like.
fn visit_plain<'de, V: Visitor<'de>>(text: &str, visitor: V) -> Result<V::Value, Error> {
    match text {
        _ if is_nothing(text) => return visitor.visit_unit(),
        "true" | "True" | "TRUE" => return visitor.visit_bool(true),
        "false" | "False" | "FALSE" => return visitor.visit_bool(false),
        _ => {}
    }
    match integer(text) {
        Some((false, number)) => return visitor.visit_u64(number),
        Some((true, number)) => {
            if let Some(number) = 0_i64.checked_sub_unsigned(number) {
                return visitor.visit_i64(number);
            }
        }
        None => {}
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_padded =
        digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = !is_padded && !digits.starts_with(['+', '-']);
    match text.parse::<f64>() {
        Ok(number) if is_number && number.is_finite() => visitor.visit_f64(number),
        _ => visitor.visit_str(text),
    }
}

impl<'de> Deserializer<'de> for &mut Yaml<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let (node, at) = self.take()?;
        let value = match node {
            Node::Scalar { text, is_plain: true } => visit_plain(&text, visitor),
            Node::Scalar { text, is_plain: false } => visitor.visit_str(&text),
            Node::Sequence => self.within(|items| visitor.visit_seq(items)),
            Node::Mapping => self.within(|entries| visitor.visit_map(entries)),
            Node::End | Node::Alias(_) => Err(Error::new(at, "a value is missing here")),
        };
        value.map_err(|error| error.or_at(at))
    }

    /// Whatever stands there is a text, a number too.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !matches!(self.peek()?.0, Node::Scalar { .. }) {
            return self.deserialize_any(visitor);
        }
        match self.take()? {
            (Node::Scalar { text, .. }, at) => {
                visitor.visit_str(&text).map_err(|error: Error| error.or_at(at))
            }
            (_, at) => Err(Error::new(at, "a text is missing here")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek()? {
            (Node::Scalar { text, is_plain: true }, _) if is_nothing(text) => {
                self.next = None;
                visitor.visit_none()
            }
            _ => visitor.visit_some(self),
        }
    }

    /// A list whose items are left out has none.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.peek()? {
            (Node::Scalar { text, is_plain: true }, _) if text.is_empty() => {
                self.next = None;
                visitor.visit_seq(&mut Inside { yaml: self, is_over: true })
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match *self.peek()? {
            (Node::Scalar { ref text, is_plain: true }, at) if text.is_empty() => {
                self.next = None;
                let entries = &mut Inside { yaml: self, is_over: true };
                visitor.visit_map(entries).map_err(|error| error.or_at(at))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    /// One of some words.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (node, at) = self.take()?;
        let value = match node {
            Node::Scalar { text, .. } => visitor.visit_enum(StrDeserializer::new(&text)),
            Node::Sequence => Err(Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => Err(Error::invalid_type(Unexpected::Map, &visitor)),
        };
        value.map_err(|error: Error| error.or_at(at))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip(0)?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct
    }
}

/// A sequence or a mapping, from its beginning to its end.
struct Inside<'y, 't> {
    yaml: &'y mut Yaml<'t>,
    is_over: bool,
}

impl Inside<'_, '_> {
    fn is_over(&mut self) -> Result<bool, Error> {
        self.is_over = self.is_over || self.yaml.ends()?;
        Ok(self.is_over)
    }
}

impl<'de> SeqAccess<'de> for Inside<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.is_over()? { Ok(None) } else { seed.deserialize(&mut *self.yaml).map(Some) }
    }
}

impl<'de> MapAccess<'de> for Inside<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if self.is_over()? { Ok(None) } else { seed.deserialize(&mut *self.yaml).map(Some) }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(&mut *self.yaml)
    }
}

#[cfg(test)]
mod tests;
