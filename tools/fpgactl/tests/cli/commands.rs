//! List of all commands (`commands.txt`), compared with the program's command tree: a new command cannot be forgotten.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::cell::OnceCell;
use std::collections::BTreeSet;

use clap::CommandFactory;
use fpgactl::cli::Cli;

use crate::sim_clos::{CLOS_LISTS, HTSIM};
use crate::support::{Served, file, pattern};

const LIST: &str = include_str!("../commands.txt");

/// Line of the list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed {
    pub(crate) words: &'static str,
    /// Exit status.
    pub(crate) status: i32,
}

/// Every command that ends by itself, some of them in several variants.
pub(crate) fn commands() -> impl Iterator<Item = Listed> {
    lines().filter(|line| !line.starts_with('-')).map(|line| {
        let (status, rest) = line.split_once(' ').unwrap();
        let (kind, words) = rest.split_once(' ').unwrap();
        assert!(matches!(kind, "start" | "work"), "{line}");
        Listed { words, status: status.parse().unwrap() }
    })
}

fn lines() -> impl Iterator<Item = &'static str> {
    LIST.lines().filter(|line| !line.starts_with('#'))
}

/// Files and a served card for the words of the list.
pub(crate) struct CommandEnvironment {
    folder: tempfile::TempDir,
    served: OnceCell<Served>,
}

impl CommandEnvironment {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        file(folder.path(), "data", pattern(5000));
        file(folder.path(), "card.yaml", "schema_version: 1\n");
        let map = "schema_version: 1\nname: map\nblocks: [{name: block, offset: 0, registers: [{name: control, offset: 0}]}]\n";
        file(folder.path(), "map.yaml", map);
        let scenario = "schema_version: 1\ntopology: {torus: {side: 3}}\ntraffic:\n  flows:\n    - {from: 0, to: 5, bytes: 90000}\n";
        file(folder.path(), "scenario.yaml", scenario);
        file(folder.path(), "log", "register-log 1\n0 read bar1 0x2000 any\n");
        fpga_host::testing::machine("ready", &folder.path().join("machine")).unwrap();
        Self { folder, served: OnceCell::new() }
    }

    pub(crate) fn words(&self, text: &str) -> Vec<String> {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let word = |word: &str| match word {
            "@" => at("data"),
            "#" => at("machine"),
            "!card" => at("card.yaml"),
            "!map" => at("map.yaml"),
            "!scenario" => at("scenario.yaml"),
            "!log" => at("log"),
            "!clos" => CLOS_LISTS.to_owned(),
            "!htsim" => HTSIM.to_owned(),
            "!control" => self.served.get_or_init(Served::start).control(),
            other if other.starts_with('%') => other.replacen('%', &at("out"), 1),
            other => other.to_owned(),
        };
        text.split(' ').map(word).collect()
    }
}

/// Commands without subcommands.
fn leaves(command: &clap::Command, path: &str, found: &mut BTreeSet<String>) {
    let mut below = command.get_subcommands().filter(|sub| sub.get_name() != "help").peekable();
    if below.peek().is_none() {
        found.insert(path.to_owned());
    }
    for sub in below {
        let path = format!("{path} {}", sub.get_name());
        leaves(sub, path.trim_start(), found);
    }
}

/// Arguments may stand between the names of a command (`card control PATH state`).
fn is_of(words: &str, leaf: &str) -> bool {
    let mut words = words.split(' ');
    let mut names = leaf.split(' ');
    words.next() == names.next() && names.all(|name| words.any(|word| word == name))
}

#[test]
fn commands_list_is_complete() {
    let mut known = BTreeSet::new();
    leaves(&Cli::command(), "", &mut known);
    assert!(known.contains("regs watch") && known.contains("card control pull-out"), "{known:?}");
    let listed: Vec<Listed> = commands().collect();
    let excluded: BTreeSet<String> = lines()
        .filter_map(|line| line.strip_prefix("- "))
        .map(|line| {
            let (name, why) = line.split_once(": ").unwrap();
            assert!(!why.is_empty(), "{line}");
            name.to_owned()
        })
        .collect();
    for leaf in &known {
        let here = listed.iter().any(|line| is_of(line.words, leaf));
        assert!(
            here != excluded.contains(leaf),
            "{leaf}: a line of tests/commands.txt, or a reason: one of both"
        );
    }
    assert!(excluded.is_subset(&known), "{excluded:?}");
    for line in listed {
        assert!(line.words.starts_with("--") || known.iter().any(|leaf| is_of(line.words, leaf)), "{line:?}");
    }
}
