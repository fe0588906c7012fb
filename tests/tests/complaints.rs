//! `docs/complaints.md` names tests, conformance cases, commands and files: they exist.

use std::fs;
use std::path::Path;

use fpga_tests::conformance::cases;

const PAGE: &str = include_str!("../../docs/complaints.md");

/// The words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// What does not exist, in words; `None` if it does.
fn missing(word: &str, cases: &[String]) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if let Some((file, test)) = word.split_once("::") {
        let text = fs::read_to_string(root.join(file)).unwrap_or_default();
        return (!text.contains(&format!("fn {test}("))).then(|| format!("no test {test} in {file}"));
    }
    if let Some(example) = word.strip_prefix("cargo run -p fpga-examples --example ") {
        let path = root.join("examples").join(example).with_extension("rs");
        return (!path.is_file()).then(|| format!("no example {example}"));
    }
    if word.starts_with("cargo ") || word.starts_with("fpgactl ") {
        return None;
    }
    (!cases.iter().any(|case| case == word)).then(|| format!("no conformance case {word}"))
}

#[test]
fn what_the_page_names_exists() {
    let cases: Vec<String> = cases().iter().map(|case| case.name.to_string()).collect();
    let rows: Vec<Vec<&str>> = PAGE
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| #"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let mut wrong = Vec::new();
    for (number, row) in (1..).zip(&rows) {
        let [at, _, _, shown] = row.as_slice() else {
            wrong.push(format!("row {number} has {} columns", row.len()));
            continue;
        };
        assert_eq!(*at, number.to_string());
        assert!(quoted(shown).next().is_some(), "row {number} shows nothing");
        wrong.extend(
            quoted(shown)
                .filter_map(|word| missing(word, &cases))
                .map(|what| format!("row {number}: {what}")),
        );
    }
    assert_eq!(rows.len(), 15);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_does_not_exist_is_found() {
    let cases = vec!["cost.poll".to_owned()];
    assert_eq!(missing("cost.poll", &cases), None);
    assert_eq!(missing("tests/tests/complaints.rs::what_does_not_exist_is_found", &cases), None);
    for word in [
        "cost.pool",
        "tests/tests/complaints.rs::no_such",
        "no/such.rs::test",
        "cargo run -p fpga-examples --example no_such",
    ] {
        assert!(missing(word, &cases).is_some(), "{word}");
    }
}
