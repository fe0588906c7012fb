//! What documents name exists: files that they link to, and the tests, cases and examples of `docs/complaints.md`.

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
    assert_eq!(missing("tests/tests/documents.rs::what_does_not_exist_is_found", &cases), None);
    for word in [
        "cost.pool",
        "tests/tests/documents.rs::no_such",
        "no/such.rs::test",
        "cargo run -p fpga-examples --example no_such",
    ] {
        assert!(missing(word, &cases).is_some(), "{word}");
    }
}

/// The targets of links to files, without the part behind `#`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).filter_map(|(target, _)| {
        let file = target.split('#').next().unwrap_or_default();
        (!file.is_empty() && !file.contains("://") && !file.contains(' ')).then_some(file)
    })
}

#[test]
fn links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages: Vec<_> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md"]
            .map(|page| root.join(page))
            .into();
    let entries = fs::read_dir(root.join("docs")).into_iter().flatten().flatten().map(|entry| entry.path());
    pages.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    assert!(pages.len() > 10, "{pages:?}");
    let mut broken = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page).unwrap_or_default();
        assert!(!text.is_empty(), "{}", page.display());
        let folder = page.parent().unwrap_or(&root);
        let missing = links(&text).filter(|link| !folder.join(link).exists());
        broken.extend(missing.map(|link| format!("{}: {link}", page.display())));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert_eq!(
        links("[a](b.md#c) [d](https://e) [f](#g) [h](i/j.rs)").collect::<Vec<_>>(),
        ["b.md", "i/j.rs"]
    );
}
