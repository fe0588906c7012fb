//! Every function and option that a message, a help text or a document names exists.

pub(crate) mod lexer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::CommandFactory;
use lexer::{Part, is_word, parts};

/// First words of paths that do not belong to the project: other packages, lints, test files (`a.rs::b`), a backend, options of apt.
const EXTERNAL: &str = "Duration ErrorKind String io signal_hook std u64 msi cargo clippy fpga rustdoc rs APT Acquire Debug Dir deb";
/// Options of cargo, of test binaries, of docker and systemctl.
const FOREIGN_OPTIONS: &str = "--all --all-features --all-targets --bench --benches --bin --bins --check --doc \
    --dry-run --example --examples --exclude --features --frozen --jobs --keep-going --lib --locked --manifest-path \
    --message-format --no-default-features --no-deps --no-fail-fast --no-run --no-verify --offline --open --package \
    --path --profile --quiet --release --root --target --target-dir --test --tests --verbose --workspace --ignored \
    --nocapture --device --ulimit --now --help --version";
/// Programs whose options are not checked.
const FOREIGN_PROGRAMS: [&str; 4] = ["pkg-config", "nightly", "mutants", "mpirun"];
/// Files that name things that no longer exist, or that do not exist on purpose.
const EXCLUDED: [&str; 3] = ["BENCHMARKS.md", "CHANGELOG.md", "tools/xtask/src/swarm/planted.rs"];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Names of the project's files that match `patterns`, with their texts.
#[expect(clippy::expect_used, reason = "a panic is the failure report")]
pub(crate) fn files(patterns: &[&str]) -> Vec<(String, String)> {
    let listed = Command::new("git").arg("-C").arg(root()).arg("ls-files").args(patterns).output();
    let listed = String::from_utf8(listed.expect("git lists the files").stdout).expect("names are UTF-8");
    let text = |name: &str| fs::read_to_string(root().join(name)).ok();
    listed.lines().filter_map(|name| Some((name.to_owned(), text(name)?))).collect()
}

/// Words in backticks, and blocks of code.
pub(crate) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Parts of a file that are code or a message: of a source, its literals and what its comments quote.
fn spans(file: &str, text: &str) -> Vec<String> {
    let is_test = file.starts_with("tests/")
        || file.contains("/tests/")
        || ["tests.rs", "testing.rs", "fake.rs"].iter().any(|end| file.ends_with(&format!("/{end}")));
    match file.rsplit('.').next() {
        Some("md") => quoted(text).map(str::to_owned).collect(),
        Some("yaml") => text.lines().map(str::to_owned).collect(),
        Some("rs") if !is_test => spans_of_source(text),
        _ => Vec::new(),
    }
}

fn spans_of_source(source: &str) -> Vec<String> {
    let (mut found, mut comment, mut line) = (Vec::new(), String::new(), String::new());
    // The tests of a module are at its end.
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    for part in parts(source).chain([Part::Code(";")]) {
        match part {
            Part::Comment(text) => comment += text.trim_start_matches(['/', '!']),
            Part::Code("\n") => line.clear(),
            Part::Code(text) => {
                line += text;
                if !text.trim().is_empty() {
                    // Examples are compiled.
                    let comment = std::mem::take(&mut comment);
                    found.extend(comment.split("```").step_by(2).flat_map(quoted).map(str::to_owned));
                }
            }
            // Attributes name functions for the compiler.
            Part::Literal(_) if line.contains("#[serde(") || line.contains("with = ") => {}
            Part::Literal(text) => {
                found.push(text.split("\\\n").map(str::trim_start).collect::<String>().replace("\\n", "\n"))
            }
        }
    }
    found
}

/// Files in whose code each word occurs. A file's name is a word of its code.
fn words(files: &[(String, String)]) -> BTreeMap<String, BTreeSet<usize>> {
    let mut words: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for (at, (name, text)) in files.iter().enumerate() {
        let mut code = name.clone();
        for part in parts(text) {
            code.push_str(if let Part::Code(text) = part { text } else { " " });
        }
        for word in code.split(|c| !is_word(c)) {
            if !words.get(word).is_some_and(|files| files.contains(&at)) {
                words.entry(word.to_owned()).or_default().insert(at);
            }
        }
    }
    words
}

/// Paths such as `Endpoint::send` in a text whose last two parts do not occur together in any file of the project.
fn wrong_paths(words: &BTreeMap<String, BTreeSet<usize>>, text: &str) -> Vec<String> {
    let is_wrong = |path: &&str| {
        let names: Vec<&str> = path.trim_end_matches(':').split("::").collect();
        let [first, .., name] = names[..] else { return false };
        let of = names[names.len() - 2];
        if names.iter().any(|name| !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
            || EXTERNAL.split(' ').chain(["Self", "self", "super", "crate"]).any(|known| known == first)
        {
            return false;
        }
        !matches!((words.get(of), words.get(name)), (Some(a), Some(b)) if !a.is_disjoint(b))
    };
    text.split(|c| !(is_word(c) || c == ':')).filter(is_wrong).map(str::to_owned).collect()
}

/// Options of the project's programs.
struct Programs {
    fpgactl: clap::Command,
    /// Options of all other programs, and of those that the project's documents name.
    others: BTreeSet<String>,
}

impl Programs {
    fn new(files: &[(String, String)]) -> Self {
        let mut fpgactl = fpgactl::cli::Cli::command();
        fpgactl.build();
        let mut others: BTreeSet<String> = FOREIGN_OPTIONS.split(' ').map(str::to_owned).collect();
        for (name, text) in files {
            if name == "driver/bindings/c/install.sh" {
                let cases = text.lines().filter_map(|line| line.trim().split_once(')'));
                others.extend(cases.map(|(case, _)| case.to_owned()));
            } else if !name.starts_with("tools/fpgactl/") {
                others.extend(text.split("#[arg(").skip(1).filter_map(declared));
            }
        }
        Self { fpgactl, others }
    }

    /// Options in a text that the named program does not have; without a program, that no program has.
    fn wrong(&self, file: &str, text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        // Behind these, another command line begins.
        for line in text.split(['\n', '|', ';']).flat_map(|line| line.split("&&")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if FOREIGN_PROGRAMS.iter().any(|program| line.contains(program)) {
                continue;
            }
            let program = words.iter().rposition(|word| word.trim_matches(['"', '(']) == "fpgactl");
            // `cargo run -p fpgactl -- OPTIONS`; other options of that line are cargo's.
            let of_cargo = words.contains(&"cargo") && !words.contains(&"--");
            for (at, word) in words.iter().enumerate() {
                let word = word.trim_start_matches(['(', '[', '"', '\\', '\'', '=']);
                let end = word.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
                let option = word[..end.unwrap_or(word.len())].trim_end_matches('-');
                if option.len() < 3 || !option.starts_with("--") || option.starts_with("---") {
                    continue;
                }
                let known = match program.filter(|program| *program < at && !of_cargo) {
                    Some(program) => has(&self.fpgactl, &words[program + 1..at], option),
                    None if file.starts_with("tools/fpgactl/src") && !words.contains(&"cargo") => {
                        has(&self.fpgactl, &[], option)
                    }
                    // A message of one word is an argument for another program.
                    None => {
                        words.len() == 1 && file.ends_with(".rs")
                            || self.others.contains(option)
                            || has(&self.fpgactl, &[], option)
                    }
                };
                if !known && option != "--help" && option != "--version" {
                    wrong.push(format!("no {option} in {}", line.trim()));
                }
            }
        }
        wrong
    }
}

/// The option of an `#[arg(long)]` attribute, from the text behind its bracket: `long = "name"`, or the name of the field.
fn declared(text: &str) -> Option<String> {
    let (attribute, rest) = text.split_once(")]\n")?;
    let long = attribute.split(',').map(str::trim).find(|word| word.starts_with("long"))?;
    let field = rest.lines().map(str::trim).find(|line| !line.starts_with(['#', '/']))?;
    let field = field.split(':').next()?.split(' ').next_back()?.replace('_', "-");
    Some(format!("--{}", long.strip_prefix("long = ").map_or(&*field, |name| name.trim_matches('"'))))
}

/// Whether the command that `words` name, or a command below it, has the option.
fn has(command: &clap::Command, words: &[&str], option: &str) -> bool {
    let clean = |word: &&str| word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-').to_owned();
    let named = words.iter().enumerate().find_map(|(at, word)| {
        command.find_subcommand(clean(word)).map(|below| has(below, &words[at + 1..], option))
    });
    let own = command.get_arguments().filter_map(|arg| arg.get_long()).any(|long| option[2..] == *long);
    own || named.unwrap_or_else(|| command.get_subcommands().any(|below| has(below, &[], option)))
}

/// It needs its time to scan every source of the project.
#[test]
fn named_functions_and_options_exist() {
    let files = files(&["*.rs", "*.md", "*.yaml", "driver/bindings/c/install.sh"]);
    let sources: Vec<_> = files.iter().filter(|(name, _)| name.ends_with(".rs")).cloned().collect();
    let (words, programs) = (words(&sources), Programs::new(&files));
    let (mut seen, mut found) = (0, BTreeSet::new());
    for (name, text) in files.iter().filter(|(name, _)| !EXCLUDED.contains(&name.as_str())) {
        for span in spans(name, text) {
            seen += usize::from(span.contains("::") || span.contains("--"));
            let wrong = wrong_paths(&words, &span).into_iter().chain(programs.wrong(name, &span));
            found.extend(wrong.map(|what| format!("{name}: {what}")));
        }
    }
    assert!(seen > 2000 && words.len() > 10_000, "{seen} names, {} words", words.len());
    assert!(found.is_empty(), "{} names:\n{}", found.len(), Vec::from_iter(found).join("\n"));
}

#[test]
fn wrong_names_are_found() {
    let sources = files(&["driver/src/channel/*.rs", "tests/src/bin/conformance.rs"]);
    let (words, programs) = (words(&sources), Programs::new(&sources));
    for (text, right) in [
        ("see ChannelOptions::fixed_address, std::fs::read or [::1]:7000", true),
        ("ChannelOptions::fixed_adress", false),
        ("ChanelOptions::fixed_address", false),
        ("fpgactl --card mock dma read --len 4 --addr 0 | cat", true),
        ("cargo run -p fpgactl -- transfer --size 1MiB", true),
        ("cargo run -p fpga-tests --bin conformance -- --fault-control x", true),
        ("give more time with --timeout", true),
        ("give more time with --time", false),
        ("fpgactl --card mock dma read --loss 1%", false),
        ("fpgactl transfer --size 1 && fpgactl info --size 2", false),
        ("cargo test --workspce", false),
    ] {
        let wrong = [wrong_paths(&words, text), programs.wrong("a.md", text)].concat();
        assert_eq!(wrong.is_empty(), right, "{text}: {wrong:?}");
    }
    let source =
        "/// Reads `a`\n/// and `b`.\n#[serde(default = \"x::y\")]\nlet c = \"d \\\n    e\"; // `f`\n";
    assert_eq!(spans_of_source(source), ["a", "b", "\"d e\"", "f"]);
}
