//! Every command has an example of its use, and the program accepts every command line in help, README and manual.

use std::fs;
use std::path::Path;

use clap::{CommandFactory, Parser};
use fpgactl::cli::Cli;

use crate::support::{file, fpgactl};

/// Every command without subcommands, with its own help and that of its parent command.
fn leaves(command: &clap::Command, above: &str, path: &str, found: &mut Vec<(String, String)>) {
    let own = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if !command.has_subcommands() {
        found.push((path.to_owned(), if own.contains("Examples:") { own } else { above.to_owned() }));
        return;
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        // The text above all commands is about all of them, and not an example.
        let above = if path.is_empty() { "" } else { &own };
        leaves(below, above, format!("{path} {}", below.get_name()).trim(), found);
    }
}

/// Words of a command line, without its comment and shell syntax.
fn words(line: &str) -> Option<Vec<&str>> {
    let line = line.trim().trim_start_matches("$ ").trim_start_matches("sudo ");
    let words: Vec<&str> =
        line.split_whitespace().take_while(|word| !matches!(*word, "#" | "|" | ">" | "&" | "&&")).collect();
    (words.first() == Some(&"fpgactl")).then_some(words)
}

fn assert_taken(line: &str, place: &str) -> bool {
    let Some(words) = words(line) else { return false };
    if let Err(error) = Cli::try_parse_from(&words) {
        // An option that shows something and ends is an example, too.
        assert!(!error.use_stderr(), "{place}: `{line}`: {error}");
    }
    true
}

#[test]
fn help_examples_parse() {
    let mut found = Vec::new();
    leaves(&Cli::command(), "", "", &mut found);
    assert!(found.len() > 35, "{found:?}");
    for (name, help) in found {
        let (_, examples) = help.split_once("Examples:").unwrap_or_else(|| panic!("{name}: no examples"));
        let shown = examples.lines().filter(|line| assert_taken(line, &name)).count();
        assert!(shown > 0, "{name}: {examples}");
    }
}

/// The example in the help of `sim run` is a valid scenario, with each of the keys that are commented out.
#[test]
fn help_scenario_runs() {
    let command = Cli::command();
    let sim = command.find_subcommand("sim").unwrap().find_subcommand("run").unwrap();
    let help = sim.get_after_help().unwrap().to_string();
    let (_, rest) = help.split_once("A scenario").unwrap();
    let (text, _) = rest.split_once("Examples:").unwrap();
    let lines: Vec<&str> = text.lines().skip(1).map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
    let folder = tempfile::tempdir().unwrap();
    let run = |text: &str| {
        let path = file(folder.path(), "scenario.yaml", text);
        let out = folder.path().display().to_string();
        fpgactl(&["sim", "run", path.to_str().unwrap(), "--out", &out])
    };
    let whole = lines.join("\n");
    run(&whole).ok();
    // The same with each commented-out line that is a key, one at a time.
    let mut tried = 0;
    for line in lines.iter().filter_map(|line| line.strip_prefix("# ")) {
        if line.split_once(": ").is_some_and(|(key, _)| !key.contains([' ', ','])) {
            run(&format!("{whole}\n{line}\n")).ok();
            tried += 1;
        }
    }
    assert_eq!(tried, 13, "{whole}");
}

#[test]
fn readme_and_manual_commands_parse() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    for folder in ["docs", "docs/guide"] {
        pages.extend(fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path()));
    }
    let mut shown = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|kind| kind == "md")) {
        let text = fs::read_to_string(page).unwrap();
        let place = page.file_name().unwrap().to_string_lossy();
        let mut inside = false;
        for line in text.lines() {
            if line.starts_with("```") {
                inside = !inside && line == "```sh";
            } else if inside {
                shown += usize::from(assert_taken(line, &place));
            } else if place == "complaints.md" {
                // Whole command lines in a table; a mere name refers to the command and is not an example.
                for part in line.split('`').skip(1).step_by(2).filter(|part| part.contains(" --")) {
                    shown += usize::from(assert_taken(part, &place));
                }
            }
        }
    }
    assert!(shown > 50, "{shown}");
}
