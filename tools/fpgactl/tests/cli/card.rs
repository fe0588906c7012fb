//! `info`, `regs`, `card check`, `completions` and `man`.

use clap::CommandFactory;
use fpgactl::cli::Cli;

use std::process::Command;

use crate::support::{file, fpgactl};

#[test]
fn info_describes_card() {
    let text = fpgactl(&["info"]).ok().stdout;
    // The last section differs from machine to machine.
    let (text, copies) = text.split_once("\nCopies of data").expect("a section on copies");
    insta::assert_snapshot!("info", text);
    assert!(copies.contains("normal pages  512 B ") && copies.contains("huge pages    512 B "), "{copies}");
    let report = fpgactl(&["info", "--json"]).ok().json();
    assert_eq!(report["simulated"], true);
    assert_eq!(report["pci"]["vendor"], "0x10ee");
    let roles: Vec<&str> =
        report["bars"].as_array().unwrap().iter().map(|bar| bar["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "dma", "bypass"]);
    let reasons: Vec<&str> =
        report["bars"].as_array().unwrap().iter().map(|bar| bar["reason"].as_str().unwrap()).collect();
    for (reason, part) in
        reasons.iter().zip(["before the DMA BAR", "MSI-X table at 0x8000", "behind the DMA BAR"])
    {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(report["xdma"]["ip_version_name"], "2017.1 or later");
    assert_eq!(report["identity"]["contract"], "4.1");
    assert_eq!(report["identity"]["blocks"].as_array().unwrap().len(), 10);
    assert_eq!(report["ni"]["packet_bytes"], 512);
    assert_eq!(report["ni"]["memory_bytes"], 8_u64 << 30);
}

#[test]
fn info_describes_other_card() {
    let dir = tempfile::tempdir().unwrap();
    let text = "schema_version: 1\npci: {subsystem_device: 7}\nbars: {bypass: null, user: null}\nxdma: {h2c_channels: 2, c2h_channels: 1, data_width: 64, ip_version: 3}\n";
    let card = file(dir.path(), "plain.yaml", text);
    let card = format!("mock:{}", card.display());
    let report = fpgactl(&["info", "--json", "--card", &card]).ok().json();
    assert_eq!(report["bars"].as_array().unwrap().len(), 1);
    assert_eq!(report["xdma"]["ip_version_name"], "2016.2");
    assert_eq!(
        (report["xdma"]["h2c_channels"].as_u64(), report["xdma"]["data_width_bits"].as_u64()),
        (Some(2), Some(64))
    );
    assert!(report["identity"].is_null() && report["ni"].is_null());
    let text = fpgactl(&["info", "--card", &card]).ok().stdout;
    assert!(text.contains("The identity block was not read"), "{text}");
    // No user BAR: none of its registers are listed.
    let list = fpgactl(&["regs", "list", "--card", &card]).ok().stdout;
    assert!(list.contains("h2c1.control") && !list.contains("h2c2.") && !list.contains("ni."), "{list}");
}

#[test]
fn info_built_in_boards_by_name() {
    for (name, channels, roles) in [
        ("default", 4, &["user", "dma", "bypass"][..]),
        ("us-plus-x16", 4, &["user", "dma", "bypass"]),
        ("us-plus-x16-no-bypass", 4, &["user", "dma"]),
        ("us-x8", 2, &["user", "dma"]),
        ("7-series-gen3-x8", 2, &["dma", "bypass"]),
        ("7-series-gen2-x8", 1, &["user", "dma", "bypass"]),
        ("artix-x4", 1, &["dma"]),
        ("artix-x1", 1, &["dma"]),
    ] {
        let report = fpgactl(&["info", "--json", "--card", &format!("mock:{name}")]).ok().json();
        let found: Vec<&str> =
            report["bars"].as_array().unwrap().iter().map(|bar| bar["role"].as_str().unwrap()).collect();
        assert_eq!(found, roles, "{name}");
        assert_eq!(report["xdma"]["h2c_channels"], channels, "{name}");
        assert_eq!(report["ni"].is_null(), !roles.contains(&"user"), "{name}");
    }
}

/// A core that answers only every second read cannot be driven; it is not gone either.
#[test]
fn info_quirky_card_differs_from_removed_card() {
    for command in ["info", "abort"] {
        let ran = fpgactl(&[command, "--card", "mock:quirky"]);
        assert_eq!(ran.status, 1);
        assert!(ran.stderr.contains("every second read") && !ran.stderr.contains("gone"), "{}", ran.stderr);
    }
    let ran = fpgactl(&["validate", "--card", "mock:quirky", "--json"]);
    let report = ran.json();
    assert_eq!((ran.status, &report["failed"], &report["passed"]), (1, &1.into(), &0.into()));
    assert_eq!(report["tests"][0]["name"], "card.open");
}

#[test]
fn regs_list_shows_registers() {
    let report = fpgactl(&["regs", "list", "--json"]).ok().json();
    let registers = report["registers"].as_array().unwrap();
    let find = |name: &str| registers.iter().find(|register| register["name"] == name).unwrap();
    assert_eq!(find("h2c0.status")["address"], "0x0040");
    assert_eq!(find("h2c0.status_rc")["read_has_side_effect"], true);
    assert_eq!(find("ni.node_id")["bar"], "user");
    assert_eq!(find("cdma.sr")["address"], "0x1004");
    let names: std::collections::BTreeSet<&str> =
        registers.iter().map(|register| register["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), registers.len(), "a name is given twice");
    let text = fpgactl(&["regs", "list"]).ok().stdout;
    assert_eq!(text.lines().count(), registers.len() + 1);
}

#[test]
fn regs_dump_reads_permitted_and_names_omitted() {
    let report = fpgactl(&["regs", "dump", "--json"]).ok().json();
    let listed = fpgactl(&["regs", "list", "--json"]).ok().json()["registers"].as_array().unwrap().len();
    let count = |key: &str| report[key].as_array().unwrap().len();
    assert_eq!(count("registers") + count("skipped_side_effect") + count("skipped_write_only"), listed);
    let skipped = report["skipped_side_effect"].as_array().unwrap();
    assert!(skipped.contains(&"h2c0.status_rc".into()) && skipped.contains(&"c2h3.status_rc".into()));
    assert!(report["skipped_write_only"].as_array().unwrap().contains(&"irq.user_enable_set".into()));
    let text = fpgactl(&["regs", "dump"]).ok().stdout;
    assert!(text.contains("a read has side effects") && text.contains("h2c0.status_rc"), "{text}");
    assert!(text.contains("version=6(2017.1 or later)"), "{text}");
}

#[test]
fn regs_read_shows_fields() {
    insta::assert_snapshot!("identifier", fpgactl(&["regs", "read", "h2c2.identifier"]).ok().stdout);
    insta::assert_snapshot!("capabilities", fpgactl(&["regs", "read", "identity.capabilities"]).ok().stdout);
    let report = fpgactl(&["regs", "read", "H2C2.Identifier", "--json"]).ok().json();
    assert_eq!(report["value"], 0x1FC0_0206);
    assert_eq!(report["hex"], "0x1fc00206");
    let fields = report["fields"].as_array().unwrap();
    let channel = fields.iter().find(|field| field["name"] == "channel").unwrap();
    assert_eq!((channel["value"].as_u64(), channel["low"].as_u64()), (Some(2), Some(8)));
    // With --force a clear-on-read register is read too.
    let report = fpgactl(&["regs", "read", "h2c0.status_rc", "--force", "--json"]).ok().json();
    assert_eq!(report["access"], "RC");
}

#[test]
fn card_check_accepts_description() {
    let dir = tempfile::tempdir().unwrap();
    let card =
        file(dir.path(), "card.yaml", "schema_version: 1\nname: bench\nmemory: {base: 0, size: 0x100000}\n");
    let card = card.to_str().unwrap();
    let report = fpgactl(&["card", "check", card, "--json"]).ok().json();
    assert_eq!((report["valid"].as_bool(), report["memory_bytes"].as_u64()), (Some(true), Some(1 << 20)));
    let text = fpgactl(&["card", "check", card]).ok().stdout;
    assert!(text.contains(": valid") && text.contains("1 MiB"), "{text}");
}

#[test]
fn completions_and_man_pages_are_written() {
    for shell in ["bash", "zsh", "fish"] {
        let script = fpgactl(&["completions", shell]).ok().stdout;
        assert!(script.contains("fpgactl") && script.contains("transfer"), "{shell}");
        assert!(
            script.contains("mock:us-x8") || script.contains("mock\\:us-x8"),
            "{shell}: the built-in cards"
        );
    }
    // Only arguments that are files are completed as files.
    let script = fpgactl(&["completions", "zsh"]).ok().stdout;
    let (_, bind) = script.split_once("\n(bind)\n").unwrap();
    let (bind, _) = bind.split_once(";;").unwrap();
    for line in [":address -- ", "--timeout=["] {
        let line = bind.lines().find(|known| known.contains(line)).unwrap();
        assert!(!line.contains("_files") && !line.contains("_default"), "{line}");
    }
    let map = bind.lines().find(|line| line.contains("--map=[")).unwrap();
    assert!(map.contains("_files"), "{map}");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("man");
    let report = fpgactl(&["man", "--out", out.to_str().unwrap(), "--json"]).ok().json();
    assert!(report["files"].as_array().unwrap().len() > 10);
    let page = std::fs::read_to_string(out.join("fpgactl-transfer.1")).unwrap();
    assert!(page.contains("\\-\\-reorder") && page.contains("\\-\\-card"), "{page}");
}

/// Pages of a command and of those below it: the short one and the long one in turn.
fn check_pages(command: &clap::Command, words: &[&str], seen: &mut usize) {
    let flag = if seen.is_multiple_of(2) { "--help" } else { "-h" };
    let page = fpgactl(&[words, &[flag]].concat()).ok().stdout;
    assert_eq!(page.matches("fpgactl help options").count(), 1, "{page}");
    assert!(!page.contains("--vf-token") && !page.contains("Global options"), "{page}");
    *seen += 1;
    for sub in command.get_subcommands() {
        check_pages(sub, &[words, &[sub.get_name()]].concat(), seen);
    }
}

#[test]
fn help_global_options_have_own_page() {
    let mut seen = 0;
    check_pages(&Cli::command(), &[], &mut seen);
    assert!(seen > 40, "{seen} pages");
    let page = fpgactl(&["help", "options"]).ok().stdout;
    for arg in Cli::command().get_arguments().filter(|arg| arg.is_global_set()) {
        let option = format!("--{}", arg.get_long().unwrap());
        assert!(page.contains(&option), "{option}: {page}");
    }
    assert!(!page.contains("fpgactl help options"), "{page}");
    assert_eq!(fpgactl(&["options"]).ok().stdout, page);
    assert!(fpgactl(&["completions", "bash"]).ok().stdout.contains("--vf-token"));
    assert!(!fpgactl(&["--help"]).ok().stdout.contains("  options "));
}

#[test]
fn help_and_version_exit_0() {
    let help = fpgactl(&["--help"]).ok().stdout;
    for command in ["transfer", "dma", "cdma", "info", "regs", "card", "completions", "man"] {
        assert!(help.contains(command), "{help}");
    }
    assert!(fpgactl(&["--version"]).ok().stdout.starts_with("fpgactl "));
}

/// The variable selects the routine for all copies; an unknown name is reported and ignored.
#[test]
fn info_copy_routine_follows_variable() {
    let with = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        let output = command.args(["info", "--json"]).env("FPGA_COPY", name).output().unwrap();
        assert!(output.status.success());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (report["copies"].clone(), String::from_utf8(output.stderr).unwrap())
    };
    let name = if cfg!(target_arch = "x86_64") { "sse2" } else { "words" };
    let (copies, said) = with(name);
    assert_eq!((copies["forced"].as_bool(), said.as_str()), (Some(true), ""));
    let choices = copies["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 6);
    assert!(
        choices.iter().all(|choice| choice["routine"] == name && choice["measured"] == serde_json::json!([]))
    );
    let (copies, said) = with("fastest");
    assert_eq!(copies["forced"].as_bool(), Some(false));
    assert!(said.contains("FPGA_COPY") && said.contains("fastest") && said.contains(name), "{said}");
}
