//! Reading of card files.

use crate::description::CardDescription;
use crate::locate::{key_on_line, locate_key};
use crate::validate::{Problem, validate};
use fpga_input::{FileKind, plain_message, shortened};
use std::path::{Path, PathBuf};

impl CardDescription {
    /// Reads and checks a card file.
    ///
    /// # Errors
    /// [`DescriptionError`] names the file and, where there is one, line, column and key.
    pub fn load(path: &Path) -> Result<Self, DescriptionError> {
        let text = FileKind::CARD.read_yaml(path)?;
        Self::parse(path, &text)
    }

    /// Reads a card file, and returns base and size of the card's memory if the file has `memory.size`. Without it, the memory of a card whose design is
    /// not the model's (RTL) is not known.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn stated_memory(path: &Path) -> Result<Option<(u64, u64)>, DescriptionError> {
        let text = FileKind::CARD.read_yaml(path)?;
        let description = Self::parse(path, &text)?;
        let file: serde_yaml::Value = serde_yaml::from_str(&text).unwrap_or_default();
        let size = file.get("memory").and_then(|memory| memory.get("size"));
        Ok(size.map(|_| (description.memory.base, description.memory.size)))
    }

    /// Parses and checks a card file's `text`; `file` is only used in errors.
    ///
    /// # Errors
    /// [`DescriptionError::Syntax`] for YAML and unknown keys, [`DescriptionError::Invalid`] for values out of range.
    pub fn parse(file: &Path, text: &str) -> Result<Self, DescriptionError> {
        let description: Self = serde_yaml::from_str(text).map_err(|error| {
            let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
            DescriptionError::Syntax {
                file: file.to_owned(),
                line,
                column,
                key: key_on_line(text, line).map(|key| shortened(&key).into_owned()).unwrap_or_default(),
                message: plain_message(&error.to_string()),
            }
        })?;
        validate(&description).map_err(|problem| {
            let (line, column) = locate_key(text, &problem.key()).unwrap_or((1, 1));
            DescriptionError::Invalid {
                file: file.to_owned(),
                line,
                column,
                key: problem.key().into_owned(),
                problem,
            }
        })?;
        Ok(description)
    }

    /// Checks every value, as [`Self::parse`] does. For descriptions that a program changed.
    ///
    /// # Errors
    /// The first [`Problem`] in the order of the file's sections.
    pub fn validate(&self) -> Result<(), Problem> {
        validate(self)
    }
}

/// Error of reading a card file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] fpga_input::InputError),
    /// No built-in description has this name.
    #[error("no built-in card is called `{name}`; there are {known}")]
    UnknownName {
        /// The name.
        name: String,
        /// The available names.
        known: String,
    },
    /// Not YAML, an unknown key, a wrong type or a number out of its type's range.
    #[error("card file {}:{line}:{column}: {}{message}", file.display(), if key.is_empty() { String::new() } else { format!("key `{key}`: ") })]
    Syntax {
        /// The file.
        file: PathBuf,
        /// 1-based line.
        line: usize,
        /// 1-based column.
        column: usize,
        /// The key on that line, empty if there is none.
        key: String,
        /// The parser's message.
        message: String,
    },
    /// A value that no card can be built with.
    #[error("card file {}:{line}:{column}: key `{key}`: {problem}", file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// 1-based line.
        line: usize,
        /// 1-based column.
        column: usize,
        /// Dotted key.
        key: String,
        /// The invalid value and the allowed ones.
        problem: Problem,
    },
}
