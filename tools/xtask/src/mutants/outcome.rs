//! Results of cargo-mutants.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;

use super::MutantsError;

/// Outcomes by mutant name.
#[derive(Debug, Default)]
pub(super) struct Outcomes(HashMap<String, Summary>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Summary {
    CaughtMutant,
    MissedMutant,
    Timeout,
    Unviable,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct File {
    outcomes: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    scenario: Scenario,
    summary: Summary,
}

/// Scenario of an outcome; the unmutated code is a scenario, too.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scenario {
    Mutant {
        #[serde(rename = "Mutant")]
        mutant: Name,
    },
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

impl Outcomes {
    pub(super) fn read(path: &Path) -> Result<Self, MutantsError> {
        let text =
            std::fs::read(path).map_err(|source| MutantsError::File { path: path.to_owned(), source })?;
        let file: File = serde_json::from_slice(&text)
            .map_err(|error| MutantsError::Malformed { path: path.to_owned(), reason: error.to_string() })?;
        let named = file.outcomes.into_iter().filter_map(|entry| match entry.scenario {
            Scenario::Mutant { mutant } => Some((mutant.name, entry.summary)),
            Scenario::Other(_) => None,
        });
        Ok(Self(named.collect()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a mutant passes all tests; `None` if it was not tested or does not compile.
    pub(super) fn survived(&self, name: &str) -> Option<bool> {
        match self.0.get(name)? {
            Summary::MissedMutant => Some(true),
            Summary::CaughtMutant | Summary::Timeout => Some(false),
            Summary::Unviable | Summary::Other => None,
        }
    }

    fn count(&self, summary: Summary) -> usize {
        self.0.values().filter(|outcome| **outcome == summary).count()
    }
}

impl fmt::Display for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tested, {} killed, {} killed by a time limit, {} survive, {} do not compile",
            self.0.len(),
            self.count(Summary::CaughtMutant),
            self.count(Summary::Timeout),
            self.count(Summary::MissedMutant),
            self.count(Summary::Unviable),
        )
    }
}
