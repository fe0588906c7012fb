//! Lists of mutants: those of the code, as cargo-mutants prints them, and the committed samples.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::MutantsError;

/// Mutant of the current code.
#[derive(Debug, Clone)]
pub(super) struct Mutant {
    pub(super) file: String,
    pub(super) package: String,
    /// Name in cargo-mutants, with line and column.
    pub(super) name: String,
    key: Key,
}

/// Key of a mutant in a list. Lines and columns change with every edit; the key changes only with the mutated code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    /// Name without line and column.
    name: String,
    /// Number among mutants of the same name, in order of position; from 1.
    number: usize,
}

/// Committed sample.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    pub(super) mutants: Vec<Listed>,
}

/// Mutant of a sample.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    mutant: String,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    number: usize,
    /// Reason why no test fails with it; without a reason the tests have to kill it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) survives: Option<String>,
}

const fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_one(number: &usize) -> bool {
    *number == 1
}

/// Part of the output of `cargo mutants --list --json` that is used.
#[derive(Deserialize)]
struct Printed {
    file: String,
    package: String,
    name: String,
    span: Span,
}

#[derive(Deserialize)]
struct Span {
    start: Place,
}

#[derive(Deserialize)]
struct Place {
    line: u64,
    column: u64,
}

/// Parses the output of `cargo mutants --list --json`.
pub(super) fn parse(json: &[u8]) -> Result<Vec<Mutant>, serde_json::Error> {
    let mut printed: Vec<Printed> = serde_json::from_slice(json)?;
    printed.sort_by(|a, b| {
        (&a.file, a.span.start.line, a.span.start.column).cmp(&(
            &b.file,
            b.span.start.line,
            b.span.start.column,
        ))
    });
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mutants = printed.into_iter().map(|Printed { file, package, name, span }| {
        let place = format!(":{}:{}", span.start.line, span.start.column);
        let short = name.replacen(&place, "", 1);
        let number = numbers.entry(short.clone()).or_default();
        *number += 1;
        let key = Key { name: short, number: *number };
        Mutant { file, package, name, key }
    });
    Ok(mutants.collect())
}

impl Mutant {
    /// Regular expression that matches only this mutant's name.
    pub(super) fn pattern(&self) -> String {
        let mut pattern = String::from("^");
        for character in self.name.chars() {
            if r"\.+*?()|[]{}^$#&-~".contains(character) {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern.push('$');
        pattern
    }

    /// Rank in samples of `seed`: the same in every version of the code.
    fn rank(&self, seed: u64) -> u32 {
        crc_fast::crc32_iscsi(format!("{seed} {} {}", self.key.number, self.key.name).as_bytes())
    }
}

impl List {
    pub(super) fn read(path: &Path) -> Result<Self, MutantsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| MutantsError::File { path: path.to_owned(), source })?;
        serde_yaml::from_str(&text)
            .map_err(|error| MutantsError::Malformed { path: path.to_owned(), reason: error.to_string() })
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), MutantsError> {
        let text = serde_yaml::to_string(self)
            .map_err(|error| MutantsError::Malformed { path: path.to_owned(), reason: error.to_string() })?;
        let head = "# Mutants that the tests have to kill (cargo xtask mutants --list), and the reasons for those that survive.\n";
        std::fs::write(path, format!("{head}{text}"))
            .map_err(|source| MutantsError::File { path: path.to_owned(), source })
    }

    /// Selects `count` of the `present` mutants by `seed`, and keeps the reasons of `old`.
    pub(super) fn sample(present: &[Mutant], old: &Self, seed: u64, count: usize) -> Self {
        let mut chosen: Vec<&Mutant> = present.iter().collect();
        chosen.sort_by_key(|mutant| (mutant.rank(seed), &mutant.key));
        chosen.truncate(count);
        chosen.sort_by_key(|mutant| &mutant.key);
        let reasons = old.by_key();
        let listed = chosen.into_iter().map(|mutant| Listed {
            mutant: mutant.key.name.clone(),
            number: mutant.key.number,
            survives: reasons.get(&mutant.key).and_then(|listed| listed.survives.clone()),
        });
        Self { mutants: listed.collect() }
    }

    /// Mutants of the list in the current code, and the number of those no longer in it.
    pub(super) fn find<'a>(&'a self, present: &'a [Mutant]) -> (Vec<(&'a Mutant, &'a Listed)>, usize) {
        let listed = self.by_key();
        let found: Vec<_> =
            present.iter().filter_map(|mutant| Some((mutant, *listed.get(&mutant.key)?))).collect();
        let gone = listed.len() - found.len();
        (found, gone)
    }

    /// Reason why this mutant survives.
    pub(super) fn reason(&self, mutant: &Mutant) -> Option<&str> {
        let listed =
            |listed: &&Listed| listed.mutant == mutant.key.name && listed.number == mutant.key.number;
        self.mutants.iter().find(listed)?.survives.as_deref()
    }

    fn by_key(&self) -> HashMap<Key, &Listed> {
        let keyed = |listed: &'_ Listed| Key { name: listed.mutant.clone(), number: listed.number };
        self.mutants.iter().map(|listed| (keyed(listed), listed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(mutants: &[(u64, &str)]) -> Vec<Mutant> {
        let json: Vec<_> = mutants
            .iter()
            .map(|(line, what)| {
                serde_json::json!({
                    "file": "a/b.rs", "package": "a", "name": format!("a/b.rs:{line}:7: {what}"),
                    "span": {"start": {"line": line, "column": 7}, "end": {"line": line, "column": 9}},
                })
            })
            .collect();
        parse(serde_json::to_string(&json).expect("serializable values").as_bytes())
            .expect("valid output of cargo-mutants")
    }

    #[test]
    fn mutants_list_moved_code_finds_same_mutants() {
        let before = printed(&[
            (3, "replace + with - in f"),
            (9, "replace + with - in f"),
            (11, "replace g -> u8 with 0"),
        ]);
        let mut list = List::sample(&before, &List::default(), 1, 3);
        list.mutants[1].survives = Some("equivalent".to_owned());
        let after = printed(&[
            (13, "replace + with - in f"),
            (39, "replace + with - in f"),
            (50, "replace h with ()"),
        ]);
        let (found, gone) = list.find(&after);
        let names: Vec<_> =
            found.iter().map(|(mutant, listed)| (mutant.name.as_str(), listed.survives.is_some())).collect();
        assert_eq!(
            names,
            [("a/b.rs:13:7: replace + with - in f", false), ("a/b.rs:39:7: replace + with - in f", true)]
        );
        assert_eq!(gone, 1);
        assert_eq!(list.reason(&after[1]), Some("equivalent"));
        assert_eq!((list.reason(&after[0]), list.reason(&after[2])), (None, None));
        let again = List::sample(&after, &list, 1, 3);
        assert_eq!(again.mutants.iter().filter(|listed| listed.survives.is_some()).count(), 1);
    }

    #[test]
    fn mutants_sample_depends_on_seed_only() {
        let names: Vec<_> = (0..50).map(|n| format!("replace f{n} with ()")).collect();
        let mutants: Vec<_> = names.iter().zip(1..).map(|(name, line)| (line, name.as_str())).collect();
        let sample = |seed| {
            let list = List::sample(&printed(&mutants), &List::default(), seed, 10);
            list.mutants.into_iter().map(|listed| listed.mutant).collect::<Vec<_>>()
        };
        assert_eq!(sample(1).len(), 10);
        assert_eq!(sample(1), sample(1));
        assert_ne!(sample(1), sample(2));
    }

    #[test]
    fn mutants_pattern_escapes_regex() {
        let mutant = printed(&[(3, "replace && with || in Ring<T>::f -> [u8; 4]")]).remove(0);
        assert_eq!(mutant.pattern(), r"^a/b\.rs:3:7: replace \&\& with \|\| in Ring<T>::f \-> \[u8; 4\]$");
    }
}
