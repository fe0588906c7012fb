//! Every function and option that a message, a help text or a document names exists.

mod items;
pub(crate) mod lexer;
mod options;
mod texts;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::CommandFactory;
use items::{Found, Items};
use options::{Programs, options_in};
use texts::{Kind, Text};

/// First words of paths that do not belong to the project.
const EXTERNAL: [&str; 16] = [
    // The standard library, and other packages.
    "Duration",
    "ErrorKind",
    "String",
    "io",
    "signal_hook",
    "std",
    "u64", //
    // Lints, instructions to cargo, and the target of log lines.
    "cargo",
    "clippy",
    "fpga",
    "rustdoc", //
    // Options of apt.
    "APT",
    "Acquire",
    "Debug",
    "Dir",
    "deb",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Rust paths in a text, such as `Endpoint::send`; a list in braces is several.
fn paths(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("::") {
        let start = rest[..at].rfind(|c| !lexer::is_word(c)).map_or(0, |at| at + 1);
        // A test is named with its file (`cli.rs::name`); another check resolves it.
        let of_file = rest[..start].ends_with('.');
        let end = rest[start..]
            .find(|c: char| !(lexer::is_word(c) || c == ':'))
            .map_or(rest.len(), |length| start + length);
        let end = end.max(at + 2);
        let path = rest[start..end].trim_end_matches(':');
        let parts: Vec<String> = path.split("::").map(str::to_owned).collect();
        let after = &rest[end..];
        if let (true, Some((list, _))) = (
            rest[start..end].ends_with("::"),
            after.strip_prefix('{').and_then(|after| after.split_once('}')),
        ) {
            let names = list.split(',').map(str::trim).filter(|name| name.chars().all(lexer::is_word));
            found.extend(names.map(|name| parts.iter().cloned().chain([name.to_owned()]).collect()));
        } else if !of_file {
            found.push(parts);
        }
        rest = &rest[end..];
    }
    let is_name = |part: &String| part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    found.retain(|parts: &Vec<String>| parts.len() > 1 && parts.iter().all(is_name));
    found
}

/// Error of a path: its last part must be a member of the part before.
fn wrong_path(items: &Items, parts: &[String], kind: Kind) -> Option<String> {
    let [.., of, name] = parts else { return None };
    let named = || format!("`{}`", parts.join("::"));
    if of == "Self" || of == "self" || of == "super" || of == "crate" {
        return None;
    }
    let first = parts.first().map_or("", String::as_str);
    match items.find(of, name) {
        _ if EXTERNAL.contains(&first) => None,
        None => Some(format!("{}: no type or module {of}", named())),
        Some(Found::Missing) => Some(format!("{}: {of} has no {name}", named())),
        Some(Found::Private) if matches!(kind, Kind::Message | Kind::Guide) => {
            Some(format!("{}: {name} is not public", named()))
        }
        Some(_) => None,
    }
}

fn items_of(files: &[String]) -> Items {
    let mut items = Items::default();
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        let text = fs::read_to_string(root().join(file)).unwrap_or_default();
        items.add(Path::new(file), &text);
    }
    for file in files.iter().filter(|file| file.ends_with("Cargo.toml")) {
        let text = fs::read_to_string(root().join(file)).unwrap_or_default();
        let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let folder = Path::new(file).parent().and_then(Path::file_name);
        if let (Some(name), Some(folder)) = (name, folder) {
            items.add_package(&folder.to_string_lossy(), name);
        }
    }
    items
}

fn programs(files: &[String]) -> Programs {
    let mut fpgactl = fpgactl::cli::Cli::command();
    fpgactl.build();
    Programs::new(&fpgactl, &root(), files)
}

/// Errors of the functions that a text names, and their number.
fn wrong_functions(items: &Items, text: &Text) -> (usize, Vec<String>) {
    if text.kind == Kind::Code {
        return (0, Vec::new());
    }
    let named: Vec<_> = text.spans().into_iter().flat_map(paths).collect();
    let wrong = named.iter().filter_map(|parts| wrong_path(items, parts, text.kind)).collect();
    (named.len(), wrong)
}

/// Errors of the options that a text names, and their number.
fn wrong_options(programs: &Programs, text: &Text) -> (usize, Vec<String>) {
    let named: Vec<_> = text.spans().into_iter().flat_map(options_in).collect();
    let wrong = named.iter().filter_map(|option| programs.wrong(text, option)).collect();
    (named.len(), wrong)
}

/// Checks all texts.
fn check(texts: &[Text], wrong: impl Fn(&Text) -> (usize, Vec<String>)) {
    let (mut seen, mut found) = (0, BTreeSet::new());
    for text in texts {
        let (named, wrong) = wrong(text);
        seen += named;
        found.extend(wrong.into_iter().map(|what| format!("{}:{}: {what}", text.file, text.line)));
    }
    assert!(seen > 500, "{seen} names");
    assert!(found.is_empty(), "{} names:\n{}", found.len(), Vec::from_iter(found).join("\n"));
}

/// Files of the project, and their texts: read once for all checks.
static TEXTS: LazyLock<(Vec<String>, Vec<Text>)> = LazyLock::new(|| {
    let files = texts::files(&root());
    let texts = texts::texts(&root(), &files);
    (files, texts)
});

/// It needs its time to scan every source of the project.
#[test]
fn named_functions_exist() {
    let (files, texts) = &*TEXTS;
    let items = items_of(files);
    assert!(items.types() > 1000, "{} types and modules", items.types());
    check(texts, |text| wrong_functions(&items, text));
}

#[test]
fn named_options_exist() {
    let (files, texts) = &*TEXTS;
    let programs = programs(files);
    let (own, others) = programs.counts();
    assert!(own > 200 && others > 60, "{own} options of fpgactl, {others} of other programs");
    check(texts, |text| wrong_options(&programs, text));
}

fn text(file: &str, kind: Kind, text: &str) -> Text {
    Text { file: file.to_owned(), line: 1, kind, text: text.to_owned() }
}

#[test]
fn wrong_function_names_are_found() {
    let sources: Vec<String> =
        ["driver/src/endpoint/peers.rs", "driver/src/channel/options.rs", "driver/src/channel/mod.rs"]
            .map(str::to_owned)
            .into();
    let items = items_of(&sources);
    let errors = |kind, words: &str| wrong_functions(&items, &text("a.md", kind, words)).1;
    for right in [
        "ask it again (Endpoint::wait_peer)",
        "RunMode::{Batch, Credit}",
        "ChannelOptions::fixed_address",
        "H2cChannel::submit",
        "std::fs::read",
        "tests.rs::some_test",
        "[::1]:7000",
    ] {
        assert_eq!(errors(Kind::Message, right), Vec::<String>::new(), "{right}");
    }
    for (wrong, error) in [
        ("ask it again (Endpoint::meet)", "`Endpoint::meet`: Endpoint has no meet"),
        ("RunMode::{Batch, Ring}", "`RunMode::Ring`: RunMode has no Ring"),
        ("H2cChannel::submitt(buffer)", "`H2cChannel::submitt`: H2cChannel has no submitt"),
        ("Endpiont::peer", "`Endpiont::peer`: no type or module Endpiont"),
        ("Endpoint::send_hello", "`Endpoint::send_hello`: send_hello is not public"),
    ] {
        assert_eq!(errors(Kind::Message, wrong), [error]);
        assert_eq!(errors(Kind::Guide, wrong), Vec::<String>::new(), "only what is in backticks");
        assert_eq!(errors(Kind::Guide, &format!("a `{wrong}` b")), [error]);
    }
    assert_eq!(errors(Kind::Comment, "`Endpoint::send_hello`"), Vec::<String>::new());
}

#[test]
fn wrong_option_names_are_found() {
    let programs = programs(&["tests/src/bin/conformance.rs".to_owned()]);
    let errors = |file, kind, words: &str| wrong_options(&programs, &text(file, kind, words)).1;
    let bench = "tools/fpgactl/src/commands/bench/mod.rs";
    for (file, right) in [
        ("a.md", "fpgactl --card mock dma read --len 4 --addr 0 | xxd --plain"),
        ("a.md", "cargo run --release -p fpgactl -- transfer --size 1MiB"),
        ("a.md", "cargo run -p fpga-tests --bin conformance -- --fault-control x"),
        ("a.md", "give more time with --timeout"),
        (bench, "use fewer operations (--depth), or `fpgactl transfer --chunk 1MiB`"),
    ] {
        // The other side of a pipe is a program that is not known.
        let found: Vec<String> =
            errors(file, Kind::Code, right).into_iter().filter(|error| !error.ends_with("--plain")).collect();
        assert_eq!(found, Vec::<String>::new(), "{right}");
    }
    for (file, wrong, error) in [
        ("a.md", "fpgactl dma read --foo 1", "fpgactl dma read has no --foo"),
        ("a.md", "fpgactl --card mock dma read --loss 1%", "fpgactl dma read has no --loss"),
        ("a.md", "fpgactl transfer --size 1 && fpgactl info --size 2", "fpgactl info has no --size"),
        ("a.md", "cargo test --workspce", "cargo test has no --workspce"),
        ("a.md", "give more time with --time", "no program has --time"),
        (bench, "use larger buffers (--chunk)", "dma bench has no --chunk; name the other command, too"),
        ("tools/fpgactl/src/target.rs", "name it with --crad", "fpgactl has no --crad"),
    ] {
        assert_eq!(errors(file, Kind::Message, wrong), [error]);
        assert_eq!(errors(file, Kind::Guide, &format!("a `{wrong}` b")), [error]);
    }
}

#[test]
fn texts_of_source_are_comments_and_literals() {
    let source = "/// Reads `a`\n/// and `b`.\n#[serde(default = \"x::y\")]\nlet c = \"d \\\n    e\"; // f\n";
    let mut found = Vec::new();
    texts::of_source("driver/src/card.rs", source, &mut found);
    let found: Vec<_> = found.iter().map(|text| (text.kind, text.line, text.text.as_str())).collect();
    let expected =
        [(Kind::Comment, 1, "Reads `a` and `b`."), (Kind::Message, 4, "\"d e\""), (Kind::Comment, 5, "f")];
    assert_eq!(found, expected);
}
