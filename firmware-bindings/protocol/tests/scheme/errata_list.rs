//! docs/dev/errata.md against the tests: each erratum of its list has a test named after it, or a reason why it has none.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Folders with tests.
const PLACES: [&str; 4] =
    ["firmware-bindings/protocol", "driver/rdma/frames", "firmware-bindings", "tools/netsim"];
/// Number of errata of each document.
const COUNTS: [(&str, u32); 4] = [("E0", 22), ("E1", 14), ("E2", 9), ("E3", 6)];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Returns `E0-7` for a line `fn e0_7_some_words() {`.
fn named(line: &str) -> Option<String> {
    let name = line.trim_start().strip_prefix("fn e")?;
    let mut parts = name.split('_');
    let (document, number) = (parts.next()?, parts.next()?);
    let whole = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (whole(document) && whole(number)).then(|| format!("E{document}-{number}"))
}

#[test]
fn errata_list_matches_tests() {
    let mut files = Vec::new();
    for place in PLACES {
        for part in ["src", "tests"] {
            let directory = root().join(place).join(part);
            if directory.is_dir() {
                sources(&directory, &mut files);
            }
        }
    }
    let mut tests = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair[0].trim() == "#[test]") {
            tests.extend(named(pair[1]));
        }
    }
    let list = std::fs::read_to_string(root().join("docs/dev/errata.md")).unwrap();
    let mut listed = BTreeSet::new();
    for line in list.lines().filter(|line| line.starts_with("| E")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [id, .., shown] = cells[..] else { panic!("{line}") };
        assert!(listed.insert(id.to_owned()), "{id} is listed twice");
        match shown {
            "test" => assert!(tests.contains(id), "{id}: no test is named after it"),
            reason => {
                assert!(reason.starts_with("no test: ") && !tests.contains(id), "{id}: {reason}");
            }
        }
    }
    let expected: BTreeSet<String> = COUNTS
        .iter()
        .flat_map(|(document, last)| (1..=*last).map(move |number| format!("{document}-{number}")))
        .collect();
    assert_eq!(listed, expected);
    assert!(tests.is_subset(&listed), "{:?}", tests.difference(&listed));
}
