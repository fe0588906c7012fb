//! Sample files of `examples`: the commands they are for accept every one, and the README of its folder names it.
//! Also `sim check` and `sim schema`.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use fpgactl::cli::Cli;
use serde_json::Value;

use crate::support::{file, fpgactl};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

/// YAML files of a folder of samples.
fn samples(name: &str, least: usize) -> Vec<String> {
    let files = fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|kind| kind == "yaml"))
        .map(|path| path.display().to_string())
        .collect();
    found.sort();
    assert!(found.len() >= least, "{found:?}");
    found
}

#[test]
fn scenario_samples_run_without_failures() {
    let out = tempfile::tempdir().unwrap();
    let mut networks = Vec::new();
    for scenario in samples("scenarios", 5) {
        let checked = fpgactl(&["sim", "check", &scenario, "--json"]).ok().json();
        let checked = &checked["scenarios"][0];
        assert_eq!(checked["valid"], true);
        networks.push(checked["topology"].as_str().unwrap().split(' ').next().unwrap().to_owned());
        let out = out.path().to_str().unwrap();
        let ran = fpgactl(&["sim", "run", &scenario, "--out", out, "--json"]).ok().json();
        assert_eq!((&ran["failures"], &ran["flows"]), (&0.into(), &checked["flows"]), "{scenario}");
    }
    networks.sort();
    assert_eq!(networks, ["clos", "clos", "point-to-point", "torus", "tree"]);
}

#[test]
fn map_samples_are_listed_and_read() {
    for (map, blocks, register) in [
        ("gpio-and-timer.yaml", ["gpio", "timer"], "timer.control[1].auto_reload"),
        ("simulated-card.yaml", ["copier", "settings"], "settings.scheme"),
    ] {
        let path = folder("maps").join(map).display().to_string();
        assert!(samples("maps", 2).iter().any(|sample| sample.ends_with(map)));
        let listed = fpgactl(&["regs", "list", blocks[0], blocks[1], "--map", &path]).ok().stdout;
        assert!(blocks.iter().all(|block| listed.contains(&format!("{block}."))), "{listed}");
        fpgactl(&["regs", "read", register, "--map", &path]).ok();
    }
}

/// The comment of the map promises it: a write by one of its names does not reach a register of the card.
#[test]
fn gpio_map_sample_has_no_register_of_simulated_card() {
    let path = folder("maps").join("gpio-and-timer.yaml").display().to_string();
    let listed = fpgactl(&["regs", "list", "--map", &path, "--json"]).ok().json();
    let mut owners: BTreeMap<&str, BTreeSet<bool>> = BTreeMap::new();
    for register in
        listed["registers"].as_array().unwrap().iter().filter(|register| register["bar"] == "user")
    {
        let name = register["name"].as_str().unwrap();
        let of_map = ["gpio.", "timer."].iter().any(|block| name.starts_with(block));
        owners.entry(register["address"].as_str().unwrap()).or_default().insert(of_map);
    }
    assert!(owners.len() > 100, "{}", owners.len());
    let shared: Vec<_> = owners.iter().filter(|(_, owners)| owners.len() > 1).collect();
    assert!(shared.is_empty(), "{shared:?}");
}

#[test]
fn card_samples_are_built_and_opened() {
    for card in samples("cards", 3) {
        assert_eq!(fpgactl(&["card", "check", &card, "--json"]).ok().json()["valid"], true);
        fpgactl(&["info", "--card", &format!("mock:{card}")]).ok();
    }
    let card = |name: &str| format!("mock:{}", folder("cards").join(name).display());
    let sent = ["transfer", "--size", "64KiB", "--loss", "2%", "--reorder", "32", "--json", "--card"];
    let sent = fpgactl(&[&sent[..], &[&card("two-channel-card.yaml")]].concat()).ok().json();
    assert_eq!(sent["verified"], true);
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("packets").display().to_string();
    let read = ["dma", "read", "--packets", "20", "--out", &out, "--card"];
    fpgactl(&[&read[..], &[&card("capture-card.yaml")]].concat()).ok();
    assert!(fs::metadata(&out).unwrap().len() >= 20 * 1024);
}

/// The fault plan strikes: without it the same command succeeds.
#[test]
fn failing_card_sample_fails_transfer() {
    let place = tempfile::tempdir().unwrap();
    let data = file(place.path(), "data", vec![7; 4096]);
    let failing = format!("mock:{}", folder("cards").join("failing-card.yaml").display());
    let bench = [
        "dma",
        "bench",
        "--sizes",
        "4KiB",
        "--samples",
        "300",
        "--batches",
        "2",
        "--seconds",
        "5ms",
        "--card",
    ];
    fpgactl(&[&bench[..], &["mock"]].concat()).ok();
    // The channel is stuck until a time limit, whichever: the healthy card needs milliseconds.
    let ran = fpgactl(&[&bench[..], &[&failing, "--timeout", "700ms"]].concat());
    assert_eq!(ran.status, 1, "{}", ran.stdout);
    let stuck = ran.stderr.contains("not done after 700ms") || ran.stderr.contains("not complete after");
    assert!(stuck, "{}", ran.stderr);
    assert!(data.exists());
}

/// The program accepts the command lines in the READMEs and the comments of the samples, and READMEs name every file.
#[test]
fn sample_readmes_name_every_file() {
    let mut shown = 0;
    for name in ["scenarios", "maps", "cards"] {
        let readme = fs::read_to_string(folder(name).join("README.md")).unwrap();
        for entry in fs::read_dir(folder(name)).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_str().unwrap().to_owned();
            let link = if path.is_dir() { format!("]({file}/") } else { format!("]({file})") };
            assert!(file == "README.md" || readme.contains(&link), "{name}: {file}");
            if path.is_dir() {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().map(|line| line.trim_start_matches('#').trim());
            for line in lines.filter(|line| line.starts_with("fpgactl ")) {
                let words = line.split_whitespace().take_while(|word| !matches!(*word, "#" | ">" | "|"));
                assert!(Cli::try_parse_from(words).is_ok(), "{file}: {line}");
                shown += 1;
            }
        }
    }
    assert!(shown > 15, "{shown} command lines");
}

#[test]
fn sim_schema_prints_scenario_schema() {
    let text = fpgactl(&["sim", "schema"]).ok().stdout;
    let schema: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(schema["title"], "Simulation scenario");
    assert_eq!(text, fs::read_to_string(folder("scenarios").join("scenario.schema.json")).unwrap());
}

#[test]
fn sim_check_invalid_file_names_position_and_exits_1() {
    let place = tempfile::tempdir().unwrap();
    let good = file(place.path(), "good.yaml", "schema_version: 1\ntraffic: {permutation: {bytes: 9}}\n");
    let bad =
        file(place.path(), "bad.yaml", "schema_version: 1\nsede: 7\ntraffic: {permutation: {bytes: 9}}\n");
    let missing = place.path().join("missing.yaml");
    let [good, bad, missing] = [&good, &bad, &missing].map(|path| path.display().to_string());
    let ran = fpgactl(&["sim", "check", &good, &bad, &missing]);
    assert_eq!(ran.status, 1);
    assert!(ran.stdout.contains("good.yaml: valid"), "{}", ran.stdout);
    let line = ran.stdout.lines().find(|line| line.contains("bad.yaml")).unwrap();
    assert!(line.contains("sede") && (line.contains("line 2") || line.contains("bad.yaml:2:")), "{line}");
    assert!(ran.stdout.lines().any(|line| line.contains("missing.yaml")), "{}", ran.stdout);
    assert!(ran.stderr.contains("2 of 3 scenarios not valid"), "{}", ran.stderr);
    let ran = fpgactl(&["sim", "check", &good, &bad, "--json"]);
    let json = ran.json();
    assert_eq!((ran.status, &json["failed"]), (1, &1.into()));
    assert_eq!(
        (&json["scenarios"][0]["valid"], &json["scenarios"][1]["valid"]),
        (&true.into(), &false.into())
    );
    assert!(json["scenarios"][1]["error"].as_str().unwrap().contains("sede"));
    assert_eq!(fpgactl(&["sim", "check", &good]).ok().stderr, "");
}
