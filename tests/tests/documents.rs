//! Documents link to and name only existing files, headings, tests, cases, examples and commands; readers find every page.

use std::collections::BTreeSet;

use crate::names::{files, quoted, root};

/// Links of a text: the linked words, the file (empty for the page itself), and the heading's anchor.
fn links(text: &str) -> impl Iterator<Item = (&str, &str, Option<&str>)> {
    let found = text.split("](").zip(text.split("](").skip(1));
    found.filter_map(|(before, rest)| {
        let (target, _) = rest.split_once(')')?;
        if target.contains("://") || target.contains(' ') || target.is_empty() {
            return None;
        }
        let (file, heading) = target.split_once('#').map_or((target, None), |(file, it)| (file, Some(it)));
        Some((before.rsplit('[').next().unwrap_or_default(), file, heading))
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
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// Error of a link from the page `from`: no file, no heading, or a linked name that the source does not have.
fn broken(from: &str, (words, file, heading): (&str, &str, Option<&str>)) -> Option<String> {
    let page = root().join(from);
    let to = if file.is_empty() { page } else { page.with_file_name("").join(file) };
    let text = || std::fs::read_to_string(&to).unwrap_or_default();
    // `file.rs::test`, `theme.case`, `cargo run ... --example name`.
    let name = words.strip_prefix('`').and_then(|words| words.strip_suffix('`')).unwrap_or_default();
    let name = name.rsplit([':', '.', ' ']).next().unwrap_or_default();
    let is_there = !file.ends_with(".rs") || file.contains(name) || text().contains(name);
    let error = match heading {
        _ if !to.exists() => "no such file".to_owned(),
        Some(heading) if !anchors(&text()).any(|known| known == heading) => format!("no heading #{heading}"),
        _ if !is_there => format!("no {name}"),
        _ => return None,
    };
    Some(format!("{from}: {file}: {error}"))
}

#[test]
fn document_links_resolve() {
    let pages = files(&["*.md"]);
    assert!(pages.len() > 40, "{}", pages.len());
    let broken: Vec<String> =
        pages.iter().flat_map(|(name, text)| links(text).filter_map(|link| broken(name, link))).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn broken_links_are_found() {
    for (text, right) in [
        ("[a](README.md#fpga-rdma)", true),
        ("[a](https://e.org/x) [b](#licence)", true),
        ("[`x.rs::broken_links_are_found`](tests/tests/documents.rs)", true),
        ("[`x.rs::no_such`](tests/src/conformance/mod.rs)", false),
        ("[a](no/such.rs)", false),
        ("[a](README.md#no-such)", false),
    ] {
        assert_eq!(links(text).all(|link| broken("README.md", link).is_none()), right, "{text}");
    }
}

/// A page that is in no list cannot be found by readers.
#[test]
fn manual_lists_every_page() {
    let pages = files(&["docs/*.md", ":!docs/adr/*.md", ":!docs/SUMMARY.md", ":!docs/README.md"]);
    let pages: BTreeSet<&str> = pages.iter().filter_map(|(name, _)| name.strip_prefix("docs/")).collect();
    for list in ["docs/SUMMARY.md", "docs/README.md"] {
        let text = &files(&[list])[0].1;
        let listed: BTreeSet<&str> = links(text)
            .map(|(_, file, _)| file)
            .filter(|file| {
                !file.starts_with("..") && !file.starts_with("adr/") && !["", "README.md"].contains(file)
            })
            .collect();
        assert_eq!(listed, pages, "{list}");
    }
}

/// Commands of cargo itself that documents name; all others are aliases of this workspace.
const CARGO_COMMANDS: &str =
    "add bench build check clippy deny doc fmt install mutants new publish run test tree xtask";

#[test]
fn document_commands_and_files_exist() {
    let all = files(&["."]);
    let text = |name: &str| all.iter().find(|(known, _)| known == name).map_or("", |(_, text)| text);
    let (xtask, packages) = (text("tools/xtask/src/main.rs").to_lowercase(), text("Cargo.lock"));
    let pages = all.iter().filter(|(name, _)| {
        let is_current = !["CHANGELOG.md", "BENCHMARKS.md"].contains(&name.as_str());
        name.ends_with(".md") && is_current && (name.starts_with("docs/") || !name.contains('/'))
    });
    let (mut seen, mut unknown) = (0, Vec::new());
    for (page, part) in pages.flat_map(|(page, text)| quoted(text).map(move |part| (page, part))) {
        let words: Vec<&str> = part.split_whitespace().collect();
        let is_known = match words[..] {
            ["cargo", "xtask", task, ..] => {
                let task = format!("\n    {}", task.replace('-', ""));
                [",", "(", " {"].iter().any(|end| xtask.contains(&format!("{task}{end}")))
            }
            ["cargo", _, "-p", package, ..] if package != "PACKAGE" => {
                packages.contains(&format!("name = \"{package}\""))
            }
            ["cargo", command, ..] => {
                CARGO_COMMANDS.split(' ').any(|known| known == command)
                    || text(".cargo/config.toml").contains(&format!("\n{command} = "))
            }
            [path] if path.contains('/') && !path.starts_with(['/', '~']) => {
                let is_path = path.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c));
                let is_source = [".rs", ".md", ".toml", ".canonical"].iter().any(|end| path.ends_with(end));
                let path = path.trim_start_matches("../");
                !is_path || !is_source || all.iter().any(|(name, _)| name.ends_with(path))
            }
            _ => continue,
        };
        seen += 1;
        if !is_known {
            unknown.push(format!("{page}: `{part}`"));
        }
    }
    assert!(seen > 100, "{seen} commands and files found");
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}
