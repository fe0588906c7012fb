//! Checks that everything that documents name exists: files and headings that they link to, the chapters of the manual, and the tests,
//! cases and examples of `docs/guide/complaints.md`, each of which links to its file.

use std::fs;
use std::path::Path;

use fpga_pci::testing::skipped;
use fpga_tests::conformance::cases;

const PAGE: &str = include_str!("../../docs/guide/complaints.md");

/// Returns the words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the links of a row's last column: text, and target file relative to the root.
fn linked(text: &str) -> Vec<(&str, &str)> {
    let links = text.split("[`").skip(1).filter_map(|rest| rest.split_once("`](../../"));
    links.filter_map(|(word, rest)| Some((word, rest.split_once(')')?.0))).collect()
}

/// Whether a word of the last column must link to a file: everything but commands must.
fn needs_link(word: &str) -> bool {
    word.starts_with("cargo run -p fpga-examples")
        || !(word.starts_with("cargo ") || word.starts_with("fpgactl "))
}

/// Error of a link; `None` if it leads to the file that contains `word`.
fn broken_link_reason(word: &str, file: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let Ok(text) = fs::read_to_string(root.join(file)) else {
        return Some(format!("{word}: no file {file}"));
    };
    let is_there = match (word.split_once("::"), word.strip_prefix("cargo run -p fpga-examples --example ")) {
        (Some((place, _)), _) => place == file,
        (_, Some(example)) => file == format!("examples/{example}.rs"),
        // Rows of the fault table are cases, too, whose names begin with `fault.`.
        _ => [Some(word), word.strip_prefix("fault.")]
            .into_iter()
            .flatten()
            .any(|name| text.contains(&format!("\"{name}\""))),
    };
    (!is_there).then(|| format!("{word} is not in {file}"))
}

/// Error text if `word` names something that does not exist; `None` if it exists.
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
fn complaints_page_names_exist() {
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
        assert!(quoted(shown).next().is_some(), "row {number} quotes no text");
        let links = linked(shown);
        let bare =
            quoted(shown).filter(|word| needs_link(word) && !links.iter().any(|(named, _)| named == word));
        wrong.extend(bare.map(|word| format!("row {number}: {word} has no link")));
        let broken_links = links.iter().filter_map(|(word, file)| broken_link_reason(word, file));
        wrong.extend(broken_links.map(|what| format!("row {number}: {what}")));
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
fn complaints_missing_names_are_found() {
    let cases = vec!["cost.poll".to_owned()];
    assert_eq!(missing("cost.poll", &cases), None);
    assert_eq!(missing("tests/tests/documents.rs::complaints_missing_names_are_found", &cases), None);
    for word in [
        "cost.pool",
        "tests/tests/documents.rs::no_such",
        "no/such.rs::test",
        "cargo run -p fpga-examples --example no_such",
    ] {
        assert!(missing(word, &cases).is_some(), "{word}");
    }
}

#[test]
fn complaints_broken_links_are_found() {
    let row = "[`cost.poll`](../../a/b.rs), `fpgactl top`; [`x.rs::y`](../../x.rs)";
    assert_eq!(linked(row), [("cost.poll", "a/b.rs"), ("x.rs::y", "x.rs")]);
    let own = "tests/tests/documents.rs";
    assert_eq!(broken_link_reason(&format!("{own}::broken_links"), own), None);
    assert_eq!(
        broken_link_reason("fault.row_of_a_table", own),
        None,
        "this assertion names \"row_of_a_table\""
    );
    for (word, file) in
        [("a.rs::b", own), ("cost.poll", "no/such.rs"), ("no.such_case", "docs/guide/complaints.md")]
    {
        assert!(broken_link_reason(word, file).is_some(), "{word}");
    }
    assert!(needs_link("cost.poll") && needs_link("cargo run -p fpga-examples --example registers"));
    assert!(!needs_link("cargo vm-test") && !needs_link("fpgactl top"));
}

/// Targets of links to files and headings: the file (empty for the page itself) and the heading's anchor.
fn links(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).filter_map(|(target, _)| {
        if target.contains("://") || target.contains(' ') || target.is_empty() {
            return None;
        }
        Some(target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading))))
    })
}

/// Anchors of the headings: lower case, without punctuation, with `-` for spaces.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let mut code = false;
    let lines = text.lines().filter(move |line| {
        code ^= line.starts_with("```");
        !code && line.starts_with('#')
    });
    lines.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

#[test]
fn document_links_resolve() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    files_below(&root, &root, &mut files);
    let pages: Vec<_> = files
        .iter()
        .map(|file| file.trim_start_matches('/'))
        .filter(|file| file.ends_with(".md") && !file.starts_with('.'))
        .map(|file| root.join(file))
        .collect();
    assert!(pages.len() > 40, "{pages:?}");
    let mut broken = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page).unwrap_or_default();
        assert!(!text.is_empty(), "{}", page.display());
        let folder = page.parent().unwrap_or(&root);
        for (file, heading) in links(&text) {
            let to = if file.is_empty() { page.clone() } else { folder.join(file) };
            if !to.exists() {
                broken.push(format!("{}: {file}", page.display()));
            } else if let Some(heading) = heading {
                let there = fs::read_to_string(&to).unwrap_or_default();
                if !anchors(&there).any(|known| known == heading) {
                    broken.push(format!("{}: {file} has no heading #{heading}", page.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert_eq!(
        links("[a](b.md#c) [d](https://e) [f](#g) [h](i/j.rs)").collect::<Vec<_>>(),
        [("b.md", Some("c")), ("", Some("g")), ("i/j.rs", None)]
    );
    let page = "# The `first` card, in 10 minutes\n```sh\n# no heading\n```\n## When it hangs\n";
    assert_eq!(anchors(page).collect::<Vec<_>>(), ["the-first-card-in-10-minutes", "when-it-hangs"]);
}

/// The list of chapters matches the folder: a page that is in no list cannot be found by readers.
#[test]
fn manual_lists_every_page() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut pages: Vec<String> = ["", "guide/", "dev/", "protocol/", "benchmarks/"]
        .into_iter()
        .flat_map(|folder| {
            let entries = fs::read_dir(docs.join(folder)).into_iter().flatten().flatten();
            entries.map(move |entry| format!("{folder}{}", entry.file_name().to_string_lossy()))
        })
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .collect();
    pages.sort();
    for list in ["SUMMARY.md", "README.md"] {
        let text = fs::read_to_string(docs.join(list)).unwrap_or_default();
        let mut listed: Vec<&str> = links(&text)
            .map(|(file, _)| file)
            .filter(|file| !file.starts_with("..") && !file.starts_with("adr/") && !file.is_empty())
            .collect();
        // A page that lists chapters is a page, too, and does not list itself.
        listed.extend((list == "README.md").then_some("README.md"));
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed, pages, "docs/{list}");
    }
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap_or_default();
    assert_eq!(links(&summary).count(), pages.len(), "each page is linked once");
}

/// Documents that describe the project as it is now, with their texts.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut names: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "examples/README.md"].map(str::to_owned).into();
    for folder in ["docs", "docs/guide", "docs/dev", "docs/adr", "docs/protocol", "docs/benchmarks"] {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        let chapters = entries.map(|entry| format!("{folder}/{}", entry.file_name().to_string_lossy()));
        names
            .extend(chapters.filter(|name| Path::new(name).extension().is_some_and(|ending| ending == "md")));
    }
    names
        .into_iter()
        .map(|name| {
            let text = fs::read_to_string(root.join(&name)).unwrap_or_default();
            (name, text)
        })
        .collect()
}

/// The commands of the README add the package with a feature that exists and is off by default. A doc test of that package runs the program.
#[test]
fn readme_first_program_names_existing_feature() {
    let readme = include_str!("../../README.md");
    assert!(readme.lines().count() < 120, "{} lines", readme.lines().count());
    assert!(readme.contains("cargo add fpga-driver --path ../fpga-rdma/driver --features sim"));
    let manifest = include_str!("../../driver/Cargo.toml");
    assert!(manifest.contains("\ndefault = []\n") && manifest.contains("\nsim = ["), "{manifest}");
    assert!(manifest.contains("name = \"fpga-driver\""));
}

/// A decision record has a status, a date and its four sections in this order, and the list repeats its status and date.
#[test]
fn decision_records_have_status_date_and_alternatives() {
    let list = include_str!("../../docs/adr/README.md");
    let records = pages().into_iter().filter(|(name, _)| name.starts_with("docs/adr/0"));
    let mut seen = 0;
    for (name, text) in records {
        let mut rest = text.as_str();
        let marks = [
            "* Status: ",
            "* Date: ",
            "## Context",
            "## Decision",
            "## Alternatives considered",
            "## Consequences",
        ];
        for mark in marks {
            let found = rest.split_once(&format!("\n{mark}"));
            assert!(found.is_some(), "{name}: no {mark:?} in its place");
            rest = found.map_or("", |(_, rest)| rest);
        }
        let value = |mark: &str| text.lines().find_map(|line| line.strip_prefix(mark)).unwrap_or_default();
        let date = value("* Date: ").split(',').next().unwrap_or_default();
        let row = format!("({}) | {} | {date} |", name.trim_start_matches("docs/adr/"), value("* Status: "));
        assert!(list.contains(&row), "docs/adr/README.md has no row with {row}");
        seen += 1;
    }
    assert!(seen >= 12, "{seen} records");
}

/// Collects the paths of the project's files below `folder`, relative to the root.
fn files_below(folder: &Path, root: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            if name != "target" && name != ".git" {
                files_below(&path, root, files);
            }
        } else if let Ok(path) = path.strip_prefix(root) {
            files.push(format!("/{}", path.display()));
        }
    }
}

/// Whether a quoted word names a source file by its full path or by the end of its path.
fn is_source_path(quoted: &str) -> bool {
    let ending = Path::new(quoted).extension().and_then(|ending| ending.to_str());
    quoted.contains('/')
        && !quoted.starts_with(['/', '~'])
        && quoted.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c))
        && ending.is_some_and(|ending| ["rs", "md", "toml", "canonical"].contains(&ending))
}

#[test]
fn source_paths_in_documents_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    files_below(&root, &root, &mut files);
    assert!(files.iter().any(|file| file == "/tests/tests/documents.rs"));
    let (mut seen, mut unknown) = (0, Vec::new());
    for (name, text) in pages() {
        for path in text.lines().flat_map(quoted).filter(|quoted| is_source_path(quoted)) {
            seen += 1;
            let end = format!("/{}", path.trim_start_matches("../"));
            if !files.iter().any(|file| file.ends_with(&end)) {
                unknown.push(format!("{name}: no file `{path}`"));
            }
        }
    }
    assert!(seen >= 20, "{seen} paths found");
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    assert!(is_source_path("firmware-bindings/protocol/src/lib.rs") && is_source_path("map/ni.canonical"));
    assert!(!is_source_path("lib.rs") && !is_source_path("/etc/a.toml") && !is_source_path("out/NAME.csv"));
}

/// Returns the word after each occurrence of `before`.
fn words_after<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(|rest| {
        rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'))
            .next()
            .filter(|word| !word.is_empty())
    })
}

/// Commands of cargo itself that documents name; all others are aliases of this workspace.
const CARGO_COMMANDS: [&str; 14] = [
    "add", "bench", "build", "check", "clippy", "deny", "doc", "fmt", "install", "mutants", "publish", "run",
    "test", "tree",
];

#[test]
fn document_cargo_commands_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let xtask = fs::read_to_string(root.join("tools/xtask/src/main.rs")).unwrap_or_default();
    let manifests = fs::read_to_string(root.join("Cargo.lock")).unwrap_or_default();
    let aliases = fs::read_to_string(root.join(".cargo/config.toml")).unwrap_or_default();
    let (mut seen, mut unknown) = (0, Vec::new());
    for (name, text) in pages() {
        for command in words_after(&text, "`cargo ") {
            seen += 1;
            if !CARGO_COMMANDS.contains(&command) && !aliases.contains(&format!("\n{command} = ")) {
                unknown.push(format!("{name}: cargo {command}"));
            }
        }
        for command in words_after(&text, "cargo xtask ") {
            let variant: String = command
                .split('-')
                .map(|part| {
                    part.get(..1).unwrap_or_default().to_uppercase() + part.get(1..).unwrap_or_default()
                })
                .collect();
            seen += 1;
            let declared =
                [",", "(", " {"].iter().any(|end| xtask.contains(&format!("\n    {variant}{end}")));
            if !declared {
                unknown.push(format!("{name}: cargo xtask {command}"));
            }
        }
        for package in ["cargo test -p ", "cargo bench -p ", "cargo run -p "]
            .iter()
            .flat_map(|it| words_after(&text, it))
        {
            seen += 1;
            if package != "PACKAGE" && !manifests.contains(&format!("name = \"{package}\"")) {
                unknown.push(format!("{name}: no package {package}"));
            }
        }
    }
    assert!(seen > 20, "{seen} commands found");
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

/// The commits of the figures in `docs/benchmarks/machines` exist in the history, and BENCHMARKS.md names them. The check of the history is
/// skipped without git or in a shallow clone.
#[test]
fn benchmarks_commits_are_in_history() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let index = fs::read_to_string(root.join("BENCHMARKS.md")).unwrap_or_default();
    let files = fs::read_dir(root.join("docs/benchmarks/machines")).into_iter().flatten().flatten();
    let mut commits = Vec::new();
    for file in files {
        let text = fs::read_to_string(file.path()).unwrap_or_default();
        let figures: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let named = figures.get("commit").and_then(serde_json::Value::as_str).unwrap_or_default();
        let commit = named.split([',', ' ']).next().unwrap_or_default();
        let is_commit = commit.len() >= 7 && commit.chars().all(|c| c.is_ascii_hexdigit());
        assert!(is_commit && index.contains(named), "{}: commit \"{named}\"", file.path().display());
        commits.push(commit.to_owned());
    }
    assert!(!commits.is_empty(), "no machine has figures");
    let git = |args: &[&str]| std::process::Command::new("git").arg("-C").arg(&root).args(args).output();
    match git(&["rev-parse", "--is-shallow-repository"]) {
        Ok(output) if output.status.success() && output.stdout.starts_with(b"false") => {}
        _ => {
            return skipped(format_args!(
                "this checkout has no complete git history, for commits {commits:?}"
            ));
        }
    }
    for commit in commits {
        let is_ancestor = git(&["merge-base", "--is-ancestor", &commit, "HEAD"]);
        assert!(
            is_ancestor.is_ok_and(|output| output.status.success()),
            "commit {commit} is not in this history: measure again with `cargo measure --peer --write`"
        );
    }
}
