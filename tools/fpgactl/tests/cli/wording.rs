//! Messages about values name what the user may write, in the user's terms: no type of the program, no parser's phrase. Also `-` for every
//! YAML file.

use std::fmt::Write as _;

use clap::CommandFactory;
use fpgactl::cli::Cli;

use crate::support::{CommandResult, Served, file, fpgactl, piped};

/// Phrases of parsers, and names of types.
const FOREIGN: [&str; 20] = [
    "invalid type",
    "invalid digit",
    "invalid length",
    "invalid socket address",
    "invalid float",
    "unknown field",
    "unknown variant",
    "missing field",
    "duplicate field",
    "expected u",
    "expected i64",
    "expected f64",
    "expected struct",
    "a sequence",
    "a boolean",
    "YAML tag",
    "untagged",
    "..=",
    "target type",
    "expected number",
];

#[track_caller]
fn is_plain(what: &str, said: &str) {
    for phrase in FOREIGN {
        assert!(!said.contains(phrase), "{what}: \"{phrase}\": {said}");
    }
}

/// Adds the commands that give `text` to each option and argument.
fn with_value(command: &clap::Command, words: &[&str], text: &str, found: &mut Vec<Vec<String>>) {
    for sub in command.get_subcommands() {
        with_value(sub, &[words, &[sub.get_name()]].concat(), text, found);
    }
    if command.has_subcommands() {
        return;
    }
    for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
        let value = arg.get_long().map_or_else(|| text.to_owned(), |long| format!("--{long}={text}"));
        found.push(words.iter().map(|word| (*word).to_owned()).chain([value]).collect());
    }
}

/// The parser alone: nothing is run.
#[test]
fn option_values_refused_in_plain_words() {
    let mut lines = Vec::new();
    for text in ["", "x", "-1", "1.5", "99999999999999999999", "5 parsecs", "ms5"] {
        with_value(&Cli::command(), &[], text, &mut lines);
    }
    assert!(lines.len() > 1500, "{} command lines", lines.len());
    let mut refused = 0;
    // One tree of commands: its construction is slower than the parser.
    let mut command = Cli::command();
    for line in lines {
        let words = std::iter::once("fpgactl").chain(line.iter().map(String::as_str));
        let Err(error) = command.try_get_matches_from_mut(words) else { continue };
        refused += 1;
        is_plain(&line.join(" "), &error.to_string());
    }
    assert!(refused > 1000, "{refused} refusals");
}

#[test]
fn numbers_out_of_range_name_the_range() {
    for (words, said) in [
        (["info", "--dma-bar", "6"], "6 is out of range; give 0 to 5"),
        (["info", "--dma-bar", "x"], "\"x\" is not a whole number; give 0 to 5"),
        (["transfer", "--priority", "256"], "256 is out of range; give 0 to 255"),
        (["transfer", "--seed", "-1"], "\"-1\" is not a whole number; give a number of at most 64 bits"),
        (["irq", "wait", "16"], "16 is out of range; give 0 to 15"),
        (["events", "--count", "0"], "0 is out of range; give 1 or more"),
        (["info", "--timeout", "5"], "the unit is missing; write for example 10us, 5ms or 2s"),
        (["info", "--timeout", "x"], "it does not start with a digit"),
    ] {
        let CommandResult { status, stderr, .. } = fpgactl(&words);
        assert!(status == 2 && stderr.contains(said), "{words:?}: {stderr}");
    }
    let listen = fpgactl(&["stream", "publish", "--listen", "here"]);
    assert!(listen.stderr.contains("not an address to listen on; write for example"), "{}", listen.stderr);
}

/// Keys with wrong values, of each kind of YAML file.
#[test]
fn yaml_values_refused_in_plain_words() {
    let place = tempfile::tempdir().unwrap();
    let range = |most: u64| format!("expected a whole number from 0 to {most}");
    let keys = "expected keys with values, such as {key: value}".to_owned();
    let list = "expected a list, such as [a, b]".to_owned();
    let mut all = String::new();
    for (words, line, said) in [
        (&["card", "check"][..], "pci: {vendor: x}", range(65535)),
        (&["card", "check"], "pci: {vendor: 70000}", format!("found 70000, {}", range(65535))),
        (&["card", "check"], "pci: [1]", format!("found a list, {keys}")),
        (&["card", "check"], "pcii: 5", "unknown key `pcii`".to_owned()),
        (
            &["card", "check"],
            "xdma: {stream: maybe}",
            "found the text \"maybe\", expected true or false".to_owned(),
        ),
        (&["card", "check"], "stream: {logic: {source: x}}", "expected one word".to_owned()),
        (&["card", "check"], "faults: {list: 5}", list.clone()),
        (&["info", "--config"], "verbose: 300", range(255)),
        (&["info", "--config"], "transfer: 5", keys.clone()),
        (&["info", "--config"], "transfer: {priority: 300}", range(255)),
        (&["info", "--config"], "color: blue", "unknown value `blue`".to_owned()),
        (&["info", "--config"], "timeout: 5", "the unit is missing".to_owned()),
        (&["sim", "check"], "topology: {torus: 5}", keys),
        (&["sim", "check"], "traffic: {flows: [{from: 0, to: 5}]}", "missing key `bytes`".to_owned()),
        (&["regs", "list", "--map"], "blocks: 5", list),
        (&["regs", "list", "--map"], "blocks: [{name: a, offset: x}]", range(u64::MAX)),
    ] {
        let path = file(place.path(), "file.yaml", format!("schema_version: 1\n{line}\n"));
        let ran = fpgactl(&[words, &[path.to_str().unwrap()]].concat());
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert_ne!(ran.status, 0, "{line}");
        assert!(text.contains(&said) && text.contains(":2:"), "{line}: {text}");
        is_plain(line, &text);
        let _ = writeln!(all, "{text}");
    }
    assert!(!all.contains(" at line "), "the position stands once, before the message: {all}");
}

#[test]
fn yaml_files_are_read_from_standard_input() {
    let card = b"schema_version: 3\nname: piped\n";
    let (status, out, said) = piped(&["card", "check", "-"], card);
    assert_eq!((status, said.as_str()), (0, ""));
    assert!(String::from_utf8(out).unwrap().contains("piped"));
    let (status, _, said) = piped(&["card", "check", "-"], b"schema_version: 3\npci: 5\n");
    assert!(status != 0 && said.contains("-:2:6: key `pci`"), "{said}");
    let scenario = b"schema_version: 1\ntopology: {torus: {side: 3}}\ntraffic:\n  flows:\n    - {from: 0, to: 5, bytes: 90000}\n";
    assert_eq!(piped(&["sim", "check", "-"], scenario).0, 0);
    let place = tempfile::tempdir().unwrap();
    let out = place.path().display().to_string();
    assert_eq!(piped(&["sim", "run", "-", "--out", &out], scenario).0, 0);
    assert!(place.path().join("scenario.csv").is_file());
    let (status, out, _) = piped(&["info", "--config", "-"], b"schema_version: 1\ncard: mock:us-x8\n");
    assert_eq!(status, 0);
    // Measured anew by each process.
    let card = |text: &str| text.split("\nCopies of data").next().unwrap().to_owned();
    let expected = fpgactl(&["info", "--card", "mock:us-x8"]).ok().stdout;
    assert_eq!(card(std::str::from_utf8(&out).unwrap()), card(&expected));
    let served = Served::start();
    let faults = b"list: [{fault: stall, channel: h2c0}]\n";
    let (status, out, said) = piped(&["card", "control", &served.control(), "faults", "-"], faults);
    assert!(status == 0 && !out.is_empty(), "{said}");
    let twice = piped(&["info", "--config", "-", "--map", "-"], b"schema_version: 1\n");
    assert!(twice.0 == 2 && twice.2.contains("two inputs"), "{}", twice.2);
}

/// Words after a number that end in s in the singular, too.
const SINGULAR: [&str; 6] = ["is", "was", "has", "ns", "us", "ms"];

#[test]
fn one_of_a_thing_is_singular() {
    let place = tempfile::tempdir().unwrap();
    let byte = file(place.path(), "byte", b"x").display().to_string();
    let scenario = "schema_version: 1\ntopology: {torus: {side: 3}}\ntraffic:\n  flows:\n    - {from: 0, to: 5, bytes: 9}\n";
    let scenario = file(place.path(), "one.yaml", scenario).display().to_string();
    let out = place.path().join("out").display().to_string();
    let log = place.path().join("log").display().to_string();
    for words in [
        &["info", "--card", "mock:artix-x1"][..],
        &["validate", "--card", "mock:artix-x1"],
        &["validate", "--card", "mock:artix-x1", "--scratch", "0", "--scratch-size", "1"],
        &["transfer", "--size", "1"],
        &["stats", "--size", "1"],
        &["queues", "--size", "1"],
        &["dma", "write", &byte, "--addr", "0x8000000000000000"],
        &["dma", "read", "--addr", "0x8000000000000000", "--len", "1", "--out", &out],
        &["dma", "write", &byte, "--card", "mock:us-plus-x8-source"],
        &["cdma", "copy", "--src", "0", "--dst", "0", "--len", "1"],
        &["sim", "check", &scenario],
        &["sim", "run", &scenario, "--runs", "1", "--out", &out],
        &["sim", "check", &byte],
        &["regs", "read", "h2c0.status", "--record", &log],
        &["replay", &log],
    ] {
        let CommandResult { stdout, stderr, .. } = fpgactl(words);
        let text = format!("{stdout}{stderr}");
        // Columns of tables are separated by several spaces.
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        let pairs = lines.iter().flat_map(|words| words.windows(2));
        for pair in pairs.filter(|pair| pair[0].trim_start_matches('(') == "1") {
            let noun = pair[1].trim_end_matches([',', ';', ':', '.', ')']);
            assert!(!noun.ends_with('s') || SINGULAR.contains(&noun), "{words:?}: \"1 {noun}\": {text}");
        }
    }
}
