//! Old wording stays out: the prose patterns of `docs/dev/words.yaml` match no comment, no string and no document.

use std::fs;
use std::path::Path;
use std::process::Command;

use regex::RegexSet;

use crate::names::lexer::{Part, parts};

/// Files that name old words on purpose.
const EXCLUDED: [&str; 2] = ["docs/dev/words.yaml", "docs/glossary.md"];

/// An entry of the list of words.
#[derive(serde::Deserialize)]
struct Entry {
    pattern: String,
    #[serde(rename = "use")]
    wording: String,
    /// Regular expressions of lines that may match: standard English, quotations, names of files and commands.
    #[serde(default)]
    allow: Vec<String>,
}

#[derive(serde::Deserialize)]
struct Table {
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

#[test]
fn old_wording_is_not_used_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("docs/dev/words.yaml")).expect("the table is in the repository");
    let table: Table = serde_yaml::from_str(&text).expect("the table is valid");
    let words = table.words;
    assert!(words.len() > 60, "{} patterns", words.len());
    let patterns = RegexSet::new(words.iter().map(|entry| &entry.pattern)).expect("every pattern is valid");
    let allowed: Vec<RegexSet> =
        words.iter().map(|entry| RegexSet::new(&entry.allow).expect("every exception is valid")).collect();
    let files = Command::new("git")
        .arg("-C")
        .arg(&root)
        .args(["ls-files", "*.rs", "*.md", "*.yaml", "*.snap"])
        .output()
        .expect("git lists the files");
    let files = String::from_utf8_lossy(&files.stdout).into_owned();
    let mut found = Vec::new();
    let mut seen = 0;
    for name in files.lines().filter(|name| !EXCLUDED.contains(name)) {
        let Ok(text) = fs::read_to_string(root.join(name)) else { continue };
        seen += 1;
        let prose = if name.ends_with(".rs") { prose_of_rust(&text) } else { text };
        for (line, number) in prose.lines().zip(1..) {
            for at in patterns.matches(line) {
                if !allowed[at].is_match(line) && !allowed[at].is_match(name) {
                    found.push(format!("{name}:{number}: {} (use: {})", line.trim(), words[at].wording));
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
