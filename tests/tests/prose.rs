//! Old wording stays out: the patterns of `docs/dev/words.yaml` match no comment, no string, no document and, for entries with `code`, no
//! identifier.

use std::fs;

use regex::RegexSet;

use crate::names::lexer::{Part, parts};
use crate::names::{files, root};

/// List of the words.
const LIST: &str = "docs/dev/words.yaml";

/// Files that name old words on purpose.
const EXCLUDED: [&str; 2] = [LIST, "docs/glossary.md"];

/// An entry of the list.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    pattern: String,
    r#use: String,
    /// Whether the pattern applies to identifiers too.
    #[serde(default)]
    code: bool,
    /// Regular expressions of lines and paths that may match.
    #[serde(default)]
    allow: Vec<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct WordList {
    words: Vec<Entry>,
}

/// Returns the comments and string literals of a Rust source, with code replaced by spaces. Line breaks stay.
fn prose_of_rust(source: &str) -> String {
    let mut prose = String::with_capacity(source.len());
    for part in parts(source) {
        match part {
            Part::Comment(text) | Part::Literal(text) => prose.push_str(text),
            Part::Code("\n") => prose.push('\n'),
            Part::Code(text) => prose.extend(text.bytes().map(|_| ' ')),
        }
    }
    prose
}

/// It needs its time for every line of the project, with regular expressions that are not optimised here.
#[test]
fn old_wording_is_not_used_again() {
    let text = fs::read_to_string(root().join(LIST)).expect("the list is in the repository");
    let words = serde_yaml::from_str::<WordList>(&text).expect("the list is valid").words;
    assert!(words.len() > 40, "{} patterns", words.len());
    // Patterns of identifiers see whole lines, the others see prose.
    let set = |code| {
        let entries: Vec<&Entry> = words.iter().filter(|entry| entry.code == code).collect();
        let patterns = entries.iter().map(|entry| &entry.pattern);
        let patterns = RegexSet::new(patterns).expect("every pattern is valid");
        let allowed =
            entries.iter().map(|entry| RegexSet::new(&entry.allow).expect("every exception is valid"));
        (patterns, allowed.collect::<Vec<_>>(), entries)
    };
    let sets = [set(true), set(false)];
    let files = files(&["*.rs", "*.md", "*.yaml", "*.snap"]);
    assert!(files.len() > 900, "{} files", files.len());
    let mut found = Vec::new();
    for (name, text) in files.iter().filter(|(name, _)| !EXCLUDED.contains(&name.as_str())) {
        let prose = if name.ends_with(".rs") { prose_of_rust(text) } else { text.clone() };
        for ((line, prose), number) in text.lines().zip(prose.lines()).zip(1..) {
            for ((patterns, allowed, entries), seen) in sets.iter().zip([line, prose]) {
                // Few lines match; a search for the numbers of the patterns takes longer than one for any.
                if seen.trim_ascii().is_empty() || !patterns.is_match(seen) {
                    continue;
                }
                for at in patterns.matches(seen) {
                    if !allowed[at].is_match(line) && !allowed[at].is_match(name) {
                        found.push(format!("{name}:{number}: {} (use: {})", line.trim(), entries[at].r#use));
                    }
                }
            }
        }
    }
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
}
