//! Old wording stays out: the patterns of `docs/dev/words.yaml` match no comment, no string, no document and, for entries with `code`, no
//! identifier.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use regex::{Regex, RegexSet};

use crate::names::lexer::{Part, parts};

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

/// Names of the project's files that match `patterns`, one per line.
#[expect(clippy::expect_used, reason = "a panic is the failure report")]
fn files(root: &Path, patterns: &[&str]) -> String {
    let listed = Command::new("git").arg("-C").arg(root).arg("ls-files").args(patterns).output();
    String::from_utf8_lossy(&listed.expect("git lists the files").stdout).into_owned()
}

/// Differences between the type of each `impl Debug` and the first name that it prints, except names of variants.
#[expect(clippy::expect_used, reason = "a panic is the failure report")]
fn wrong_debug_names(source: &str) -> Vec<String> {
    static PATTERN: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = r#"^ *impl(?:<.*>)? (?:\w+::)*(?:(Debug) for )?(?:\w+::)*(\w+).*\{$|debug_(?:struct|tuple)\("(\w+)"\)"#;
        Regex::new(pattern).expect("valid")
    });
    // The regular expression is slow without optimisation: it sees only the few lines that can match.
    let can_match = |line: &&str| line.trim_start_matches(' ').starts_with("impl") || line.contains("debug_");
    let (mut subject, mut wrong) = (None, Vec::new());
    for found in source.lines().filter(can_match).flat_map(|line| PATTERN.captures_iter(line)) {
        match (found.get(2), found.get(3), subject) {
            (Some(name), ..) => subject = found.get(1).map(|_| name.as_str()),
            (_, Some(printed), Some(name)) if printed.as_str() != name => {
                wrong.push(format!("{name} prints {}", printed.as_str()));
            }
            _ => {}
        }
    }
    wrong
}

#[test]
fn debug_names_match_types() {
    let wrong = "impl fmt::Debug for Shared {\n f.debug_struct(\"Card\")\n}";
    assert_eq!(wrong_debug_names(wrong), ["Shared prints Card"]);
    assert!(wrong_debug_names(&wrong.replace("\"Card", "\"Shared")).is_empty());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for name in files(&root, &["*.rs"]).lines().filter(|name| !name.ends_with("prose.rs")) {
        let wrong = wrong_debug_names(&fs::read_to_string(root.join(name)).unwrap_or_default());
        found.extend(wrong.into_iter().map(|wrong| format!("{name}: {wrong}")));
    }
    // A variant prints its own name.
    assert_eq!(found, ["driver/sim/card/src/counters.rs: AccessLog prints Bounded"]);
}

/// It needs its time for every line of the project, with regular expressions that are not optimised here.
#[test]
fn old_wording_is_not_used_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join(LIST)).expect("the list is in the repository");
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
    let files = files(&root, &["*.rs", "*.md", "*.yaml", "*.snap"]);
    let mut found = Vec::new();
    let mut seen = 0;
    for name in files.lines().filter(|name| !EXCLUDED.contains(name)) {
        let Ok(text) = fs::read_to_string(root.join(name)) else { continue };
        seen += 1;
        let prose = if name.ends_with(".rs") { prose_of_rust(&text) } else { text.clone() };
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
    assert!(seen > 900, "{seen} files");
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
}

#[test]
fn prose_of_rust_source_is_comments_and_strings() {
    let source =
        "let a = \"one \\\" two\"; // three\nlet b = r#\"fo\"ur\"#; let c = '\"'; br\"five\"; xr(\"six\");";
    let prose = prose_of_rust(source);
    let words: Vec<&str> = prose.split(' ').filter(|word| !word.is_empty()).collect();
    assert_eq!(
        words,
        ["\"one", "\\\"", "two\"", "//", "three\n", "r#\"fo\"ur\"#", "br\"five\"", "\"six\""],
        "{prose:?}"
    );
}
