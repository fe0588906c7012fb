//! Options of the project's programs, and those that texts name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::texts::Text;

/// An option in a text, with the words before it on its command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    pub(crate) before: Vec<&'a str>,
    pub(crate) option: &'a str,
}

/// Options that a text names.
pub(crate) fn options_in(text: &str) -> Vec<Named<'_>> {
    let mut found = Vec::new();
    // Behind these, another command line begins.
    for line in text.split(['\n', '|', ';', '`']).flat_map(|line| line.split("&&")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for (at, word) in words.iter().enumerate() {
            let word = word.trim_start_matches(['(', '[', '"', '\\', '\'', '=']);
            let end = word.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
            let option = word[..end.unwrap_or(word.len())].trim_end_matches('-');
            if option.len() > 2 && option.starts_with("--") && !option.starts_with("---") {
                found.push(Named { before: words[..at].to_vec(), option });
            }
        }
    }
    found
}

/// Options of one command.
struct CommandOptions {
    /// Names of the command and those above it, such as `dma read`.
    words: Vec<String>,
    options: BTreeSet<String>,
}

/// Options of all programs of the project.
pub(crate) struct Programs {
    /// Commands of `fpgactl`. The first one is the program, with the global options.
    commands: Vec<CommandOptions>,
    /// Options of the programs for development.
    others: BTreeSet<String>,
}

/// Commands that the sources of a part of `fpgactl` are about, if its name is not the command's.
const SOURCES: [(&str, &[&str]); 14] = [
    ("bench", &["dma bench"]),
    ("bind", &["bind", "release"]),
    ("capture", &["dma"]),
    ("control", &["card control", "card serve"]),
    ("frames", &["stream"]),
    ("host", &["bind", "release", "list", "doctor", "dump"]),
    ("inspect", &["ops", "queues", "registry", "escape", "stats", "transfer"]),
    ("packets", &["dma"]),
    ("raw", &["peek", "poke", "dma"]),
    ("recover", &["abort", "reset"]),
    ("serve", &["card serve"]),
    ("shell", &["man", "completions"]),
    ("sim_check", &["sim"]),
    ("transfer", &["transfer", "ops", "queues", "registry", "escape", "stats"]),
];

/// Options of cargo.
const CARGO: [&str; 40] = [
    "--all",
    "--all-features",
    "--all-targets",
    "--bench",
    "--benches",
    "--bin",
    "--bins",
    "--check",
    "--doc",
    "--dry-run",
    "--example",
    "--examples",
    "--exclude",
    "--features",
    "--frozen",
    "--jobs",
    "--keep-going",
    "--lib",
    "--locked",
    "--manifest-path",
    "--message-format",
    "--no-default-features",
    "--no-deps",
    "--no-fail-fast",
    "--no-run",
    "--no-verify",
    "--offline",
    "--open",
    "--package",
    "--path",
    "--profile",
    "--quiet",
    "--release",
    "--root",
    "--target",
    "--target-dir",
    "--test",
    "--tests",
    "--verbose",
    "--workspace",
];
/// Options of test binaries.
const TESTS: [&str; 2] = ["--ignored", "--nocapture"];
/// Options of docker and systemctl.
const HOST: [&str; 3] = ["--device", "--ulimit", "--now"];
/// Programs whose options are not checked.
const FOREIGN: [&str; 4] = ["pkg-config", "nightly", "mutants", "mpirun"];

impl Programs {
    pub(crate) fn new(fpgactl: &clap::Command, root: &Path, files: &[String]) -> Self {
        let mut commands = Vec::new();
        collect(fpgactl, &mut Vec::new(), &mut commands);
        Self { commands, others: declared(root, files) }
    }

    /// Number of options of `fpgactl` and of all others.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.commands.iter().map(|command| command.options.len()).sum(), self.others.len())
    }

    /// Error of an option; `None` if a command has it that the text may mean.
    pub(crate) fn wrong(&self, text: &Text, named: &Named<'_>) -> Option<String> {
        let option = named.option;
        // The name of an option (`--card`) is not the name of a command (`card`).
        let clean = |word: &str| match word {
            option if option.starts_with('-') => option.to_owned(),
            word => word.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned(),
        };
        let words: Vec<String> = named.before.iter().map(|word| clean(word)).collect();
        let last = |name: &str| words.iter().rposition(|word| word == name);
        // Arguments of a program for development follow `--`.
        let is_argument = named.before.contains(&"--")
            || ["xtask", "vm-test", "measure"].iter().any(|alias| last(alias).is_some());
        if option == "--help"
            || option == "--version"
            || words.iter().any(|word| FOREIGN.contains(&word.as_str()))
        {
            return None;
        }
        if let Some(at) = last("fpgactl").filter(|_| last("cargo").is_none() || named.before.contains(&"--"))
        {
            let path = self.path(&words[at + 1..]);
            let known = path.is_empty() && self.any(option) || self.has(&path, option);
            return (!known).then(|| format!("fpgactl {} has no {option}", path.join(" ")));
        }
        if last("cargo").is_some() {
            let known = if is_argument {
                self.others.contains(option) || TESTS.contains(&option)
            } else {
                CARGO.contains(&option)
            };
            return (!known).then(|| format!("{} has no {option}", named.before.join(" ")));
        }
        let paths = paths_of_source(&text.file);
        if !paths.is_empty() {
            let known = paths.iter().any(|path| {
                let path: Vec<&str> = path.split(' ').collect();
                self.has(&path, option)
            });
            return (!known)
                .then(|| format!("{} has no {option}; name the other command, too", paths.join(", ")));
        }
        if text.file.starts_with("tools/fpgactl/src") {
            return (!self.any(option)).then(|| format!("fpgactl has no {option}"));
        }
        // Literals of one word are arguments that tools pass to other programs.
        if !text.text.contains(' ') {
            return None;
        }
        let known = self.any(option)
            || self.others.contains(option)
            || CARGO.contains(&option)
            || TESTS.contains(&option)
            || HOST.contains(&option);
        (!known).then(|| format!("no program has {option}"))
    }

    fn any(&self, option: &str) -> bool {
        self.commands.iter().any(|command| command.options.contains(option))
    }

    /// Whether the command, one below it, or the program has the option.
    fn has(&self, path: &[&str], option: &str) -> bool {
        let is_of = |command: &CommandOptions| {
            command.words.is_empty()
                || command.words.iter().zip(path).all(|(a, b)| a == b) && command.words.len() >= path.len()
        };
        self.commands.iter().filter(|command| is_of(command)).any(|command| command.options.contains(option))
    }

    /// The command that the words begin, among others words such as options and their values.
    fn path<'a>(&self, words: &'a [String]) -> Vec<&'a str> {
        let mut path = Vec::new();
        for word in words {
            path.push(word.as_str());
            let exists =
                |command: &CommandOptions| command.words.iter().map(String::as_str).eq(path.iter().copied());
            if !self.commands.iter().any(exists) {
                path.pop();
            }
        }
        path
    }
}

/// Commands that the sources of a module of `fpgactl` are about; none for what all commands share.
fn paths_of_source(file: &str) -> Vec<&str> {
    let below = |folder| file.strip_prefix(folder);
    let Some(rest) = below("tools/fpgactl/src/commands/").or_else(|| below("tools/fpgactl/src/cli/")) else {
        return Vec::new();
    };
    let name = rest.split(['/', '.']).next().unwrap_or_default();
    match SOURCES.iter().find(|(source, _)| *source == name) {
        Some((_, paths)) => paths.to_vec(),
        None if ["mod", "values"].contains(&name) => Vec::new(),
        None => vec![name],
    }
}

fn collect(command: &clap::Command, words: &mut Vec<String>, found: &mut Vec<CommandOptions>) {
    let options = command.get_arguments().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}"));
    found.push(CommandOptions { words: words.clone(), options: options.collect() });
    for sub in command.get_subcommands() {
        words.push(sub.get_name().to_owned());
        collect(sub, words, found);
        words.pop();
    }
}

/// Options of `driver/c/install.sh`: the cases of its loop over the arguments.
fn of_script(text: &str) -> impl Iterator<Item = String> {
    let cases = text.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split_once(')'));
    cases.map(|(name, _)| format!("--{name}"))
}

/// Options that sources declare for clap: `#[arg(long)]` and the name of the field, or `long = "name"`.
fn declared(root: &Path, files: &[String]) -> BTreeSet<String> {
    let script = fs::read_to_string(root.join("driver/c/install.sh")).unwrap_or_default();
    let mut found: BTreeSet<String> = of_script(&script).collect();
    let sources = files.iter().filter(|file| file.ends_with(".rs") && !file.starts_with("tools/fpgactl/"));
    for file in sources {
        let text = fs::read_to_string(root.join(file)).unwrap_or_default();
        for rest in text.split("#[arg(").skip(1) {
            let Some((attribute, rest)) = rest.split_once(")]\n") else { continue };
            let field = rest.lines().map(str::trim).find(|line| !line.starts_with(['#', '/']));
            let field = field.and_then(|line| line.split(':').next()?.split(' ').next_back());
            for word in attribute.split(',').map(str::trim) {
                if word == "long" {
                    found.extend(field.map(|field| format!("--{}", field.replace('_', "-"))));
                } else if let Some(name) = word.strip_prefix("long = ") {
                    found.insert(format!("--{}", name.trim_matches('"')));
                }
            }
        }
    }
    found
}
