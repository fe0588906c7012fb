//! `--map`: registers of a user's own design; `regs watch`; `--record` and `replay`.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Served, file, fpgactl};

fn example() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/maps/simulated-card.yaml")
        .display()
        .to_string()
}

/// Runs a command with the example's map.
fn mapped(args: &[&str]) -> crate::support::CommandResult {
    let map = example();
    fpgactl(&[args, &["--map", &map]].concat())
}

#[test]
fn map_registers_are_listed_and_dumped() {
    let list = mapped(&["regs", "list", "--json"]).ok().json();
    let registers = list["registers"].as_array().unwrap();
    let find = |name: &str| registers.iter().find(|register| register["name"] == name).unwrap();
    assert_eq!(find("registry.mask[3]")["address"], "0x404c");
    assert_eq!(find("copier.source_high")["reset"], "0x00000000");
    assert_eq!(find("copier.length")["doc"], "Bytes to copy. Writing it starts the copy.");
    // The card's own names still exist.
    assert_eq!(find("cdma.cr")["address"], find("copier.control")["address"]);
    let text = mapped(&["regs", "dump"]).ok().stdout;
    let line = text.lines().find(|line| line.contains("copier.control")).unwrap();
    assert!(line.contains("0x00010002") && line.contains("mode=0(simple) threshold=1"), "{line}");
    let line = text.lines().find(|line| line.contains("settings.scheme")).unwrap();
    assert!(line.ends_with("registry"), "{line}");
}

#[test]
fn map_fields_are_read_and_written_by_name() {
    insta::assert_snapshot!("a_field", mapped(&["regs", "read", "copier.control.mode"]).ok().stdout);
    insta::assert_snapshot!("a_mapped_register", mapped(&["regs", "read", "COPIER.control"]).ok().stdout);
    insta::assert_snapshot!(
        "a_field_is_written",
        mapped(&["regs", "write", "copier.control.mode", "scatter_gather"]).ok().stdout
    );
    let report = mapped(&["regs", "write", "copier.control.threshold", "0x20", "--json"]).ok().json();
    // The rest of the register is unchanged.
    assert_eq!((&report["value"], &report["after"]["value"]), (&0x0020_0002.into(), &0x0020_0002.into()));
    assert_eq!(
        (&report["field"]["name"], &report["field"]["value"]),
        (&"copier.control.threshold".into(), &0x20.into())
    );
    let report = mapped(&["regs", "write", "settings.scheme", "selective", "--json"]).ok().json();
    assert_eq!((&report["after"]["value"], &report["after"]["meaning"]), (&5.into(), &"selective".into()));
    let report = mapped(&["regs", "read", "registry.mask[7]", "--json"]).ok().json();
    assert_eq!((&report["value"], &report["address"]), (&0.into(), &"0x405c".into()));
    // Registers of the card itself have fields and names of values, too.
    let report = fpgactl(&["regs", "read", "config.identifier.version", "--json"]).ok().json();
    assert_eq!(
        (&report["field"]["value"], &report["field"]["meaning"]),
        (&6.into(), &"2017.1 or later".into())
    );
    let report = fpgactl(&["regs", "write", "ni.scheme", "selective", "--json"]).ok().json();
    assert_eq!(report["after"]["meaning"], "Selective");
    let report = fpgactl(&["regs", "write", "ni.control.packet_events", "1", "--json"]).ok().json();
    assert_eq!(report["after"]["value"], 8);
}

#[test]
fn map_forbidden_access_is_refused() {
    for (args, status, part) in [
        (&["regs", "read", "copier.contrl"][..], 2, "did you mean copier.control?"),
        (&["regs", "read", "copier.control.moed"], 2, "did you mean mode?"),
        (&["regs", "read", "registry.mask"], 2, "there are registry.mask[0] to registry.mask[7]"),
        (&["regs", "read", "registry.mask[8]"], 2, "there are registry.mask[0] to registry.mask[7]"),
        (&["regs", "write", "settings.scheme", "selectiv"], 2, "did you mean selective?"),
        (&["regs", "write", "copier.control.mode", "2"], 2, "does not fit 1 bit\nhelp: give at most 0x1"),
        (&["regs", "write", "copier.status.idle", "1"], 1, "copier.status.idle (RO) is not written"),
        (&["regs", "write", "registry.state", "1"], 1, "registry.state (RO) is not written"),
    ] {
        let ran = mapped(args);
        assert!(ran.status == status && ran.stderr.contains(part), "{args:?}: {} {}", ran.status, ran.stderr);
    }
    let dir = tempfile::tempdir().unwrap();
    let wrong =
        file(dir.path(), "wrong.yaml", "schema_version: 1\nname: x\nblocks:\n- {name: b, offset: 1}\n");
    let ran = fpgactl(&["info", "--map", wrong.to_str().unwrap()]);
    assert!(
        ran.status == 1 && ran.stderr.contains("wrong.yaml:4:21") && ran.stderr.contains("multiple of 4"),
        "{}",
        ran.stderr
    );
    let ran = fpgactl(&["regs", "list", "--map", "/no/such/map.yaml"]);
    assert!(ran.status == 1 && ran.stderr.contains("check the path"), "{}", ran.stderr);
}

/// Fields that a read changes, on a design that only the map describes.
#[test]
fn map_describes_unknown_design() {
    let dir = tempfile::tempdir().unwrap();
    let card = file(dir.path(), "plain.yaml", "schema_version: 1\npci: {subsystem_device: 7}\n");
    let card = format!("mock:{}", card.display());
    let text = "\
schema_version: 1
name: kernel
blocks:
- name: kernel
  offset: 0x2000
  registers:
  - name: control
    offset: 8
    fields: [{name: start, bits: 0}, {name: done, bits: 1, access: rc}, {name: again, bits: 3}]
  - {name: size, offset: 0x60}
  - {name: word, offset: 0x64, access: rc}
";
    let map = file(dir.path(), "kernel.yaml", text);
    let on = |args: &[&str]| fpgactl(&[args, &["--card", &card, "--map", map.to_str().unwrap()]].concat());
    assert_eq!(on(&["regs", "read", "kernel.size", "--json"]).ok().json()["value"], 0x4000);
    assert_eq!(on(&["peek", "user", "0x2060", "--json"]).ok().json()["words"][0]["register"], "kernel.size");
    on(&["regs", "write", "kernel.size", "16KiB"]).ok();
    // Between the registers, the design is still unknown.
    for args in
        [&["peek", "user", "0x2060", "3"][..], &["peek", "user", "0"], &["poke", "user", "0x2100", "0"]]
    {
        let ran = on(args);
        assert!(
            ran.status == 1 && ran.stderr.contains("not known") && ran.stderr.contains("--map"),
            "{}",
            ran.stderr
        );
    }
    for args in [
        &["regs", "read", "kernel.control"][..],
        &["regs", "read", "kernel.control.start"],
        &["regs", "read", "kernel.word"],
        &["regs", "watch", "kernel.word"],
    ] {
        let ran = on(args);
        assert!(ran.status == 1 && ran.stderr.contains("--force"), "{args:?}: {}", ran.stderr);
    }
    let ran = on(&["regs", "write", "kernel.control.start", "1"]);
    assert!(ran.status == 1 && ran.stderr.contains("must be read first"), "{}", ran.stderr);
    on(&["regs", "write", "kernel.control.start", "1", "--force"]).ok();
    on(&["regs", "write", "kernel.control", "1"]).ok();
    let dump = on(&["regs", "dump", "--json"]).ok().json();
    let skipped = dump["skipped_side_effect"].as_array().unwrap();
    assert!(
        skipped.contains(&"kernel.control".into()) && skipped.contains(&"kernel.word".into()),
        "{skipped:?}"
    );
}

#[test]
fn map_card_without_user_bar_lists_dma_bar_only() {
    let list = mapped(&["regs", "list", "--card", "mock:artix-x4"]).ok().stdout;
    assert!(list.contains("h2c0.control") && !list.contains("copier"), "{list}");
}

#[test]
fn watch_changes_print_one_line_each() {
    let served = Served::start();
    let card = served.card();
    let watch = [
        "regs",
        "watch",
        "ni.threshold",
        "ni.status",
        "ni.status.enabled",
        "--interval",
        "1ms",
        "--count",
        "3",
    ];
    let text = fpgactl(&[&watch[..], &["--card", &card]].concat()).ok().stdout;
    // Nothing changes: only the first sample is printed.
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let names: Vec<&str> = lines.iter().map(|line| line[1]).collect();
    assert_eq!(names, ["ni.threshold", "ni.status", "ni.status.enabled"], "{text}");
    assert_eq!(lines[0][2..], ["=", "0x00004000"], "{text}");
    let text = fpgactl(&[&watch[..], &["--json"]].concat()).ok().stdout;
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["schema_version"], &first["name"], &first["value"]),
        (&1.into(), &"ni.threshold".into(), &0x4000.into())
    );
    assert!(first["previous"].is_null(), "{first}");
}

/// Resources of a command that moves no data: at most `most` KiB, with a map of `count` registers in several notations.
#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn registers_fit(count: u32, most: u32) {
    let registers = |each: &dyn Fn(u32) -> String| (0..count).map(each).collect::<String>();
    let block = "schema_version: 1\nname: x\nblocks:\n- name: b\n  offset: 0x100000\n  registers:\n";
    let flow = "{\"schema_version\": 1, \"name\": \"x\", \"blocks\": [{\"name\": \"b\", \"offset\": 1048576, \"registers\": [";
    let last = format!("{{\"name\": \"last\", \"offset\": {}}}]}}]}}\n", 4 * count);
    let dir = tempfile::tempdir().unwrap();
    for text in [
        block.to_owned() + &registers(&|n| format!("  - {{name: r{n}, offset: {}}}\n", 4 * n)),
        block.to_owned()
            + &registers(&|n| format!("  - name: r{n}\n    offset: {:#x}\n    access: ro\n", 4 * n)),
        flow.to_owned() + &registers(&|n| format!("{{\"name\": \"r{n}\", \"offset\": {}}}, ", 4 * n)) + &last,
    ] {
        let map = file(dir.path(), "map.yaml", text);
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        command.args(["regs", "watch", "h2c0.control", "--interval", "1h", "--map"]).arg(&map);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(line.contains("h2c0.control"), "{line}");
        // Maximum resident set so far.
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kib: u32 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kib < most, "{kib} KiB");
    }
}

/// A tenth of the maximum length.
#[test]
fn map_ten_thousand_registers_fit() {
    registers_fit(10_000, 36 << 10);
}

#[test]
#[ignore = "long: 5 s: a map of the maximum length"]
fn map_hundred_thousand_registers_fit() {
    registers_fit(100_000, 136 << 10);
}

/// A line of the card's user logic goes up and down while it is watched; meanwhile no other client can open the card.
#[test]
fn watch_value_change_is_printed_when_it_happens() {
    let served = Served::start();
    let card = served.card();
    let control = served.control();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
    command.args([
        "regs",
        "watch",
        "irq.user_pending",
        "irq.user_pending.user",
        "--interval",
        "1ms",
        "--json",
    ]);
    let mut child = command.args(["--card", &card]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let values =
        |change: &Value| (change["value"].clone(), change["previous"].clone(), change["meaning"].clone());
    assert_eq!(values(&next()), (0.into(), Value::Null, Value::Null));
    assert_eq!(values(&next()), (0.into(), Value::Null, Value::Null));
    let mut before = 0;
    for (level, value, names) in [("on", 8, Value::from("3")), ("off", 0, Value::Null)] {
        fpgactl(&["card", "control", &control, "user-interrupt", "3", level]).ok();
        // The change may occur between reading one and reading the other.
        let mut changes = [next(), next()];
        changes.sort_by_key(|change| change["name"].as_str().map(str::len));
        let [register, field] = changes;
        assert_eq!(values(&register), (value.into(), before.into(), Value::Null), "{register}");
        assert_eq!(register["changed"][0], "user", "{register}");
        assert_eq!(values(&field), (value.into(), before.into(), names));
        before = value;
    }
    for args in [&["regs", "write", "h2c0.control", "1"][..], &["poke", "dma", "4", "1"], &["info"]] {
        let ran = fpgactl(&[args, &["--card", &card]].concat());
        assert!(
            ran.status == 1 && ran.stderr.contains("is in use"),
            "{args:?}: {} {}",
            ran.status,
            ran.stderr
        );
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// A change is seen on a pipe while the register is watched; a signal ends the command, and so does a pipe without a reader.
#[test]
fn watch_ends_by_signal_or_closed_pipe() {
    let counter = ["regs", "watch", "h2c0.control", "irq.user_enable", "--interval", "1ms"];
    for ends_by_signal in [true, false] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fpgactl"));
        let mut child = command.args(counter).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("h2c0.control"), "{line}");
        if ends_by_signal {
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            kill_process(pid, Signal::INT).unwrap();
        } else {
            // Nothing changes, so nothing is written, and the closed pipe is not detected: the signal is needed.
            drop(lines);
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            kill_process(pid, Signal::TERM).unwrap();
        }
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
    }
}

fn path(dir: &Path, name: &str) -> (PathBuf, String) {
    let path = dir.join(name);
    let text = path.display().to_string();
    (path, text)
}

#[test]
fn record_then_replay_matches() {
    let dir = tempfile::tempdir().unwrap();
    let (file, log) = path(dir.path(), "log");
    mapped(&["regs", "write", "settings.threshold", "0x8000", "--record", &log]).ok();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("register-log 1\n# "), "{text}");
    for part in [
        "read    bar1 0x2000 0x1fc20006  # irq.identifier ",
        "read    bar0 0x0000 0x464e4943  # identity.magic",
        "read    bar0 0x2018 0x00000040  # ni.registry_entries",
        "read    bar0 0x2060 0x00004000  # settings.threshold",
        "write   bar0 0x2060 0x00008000  # settings.threshold",
        "read    bar0 0x2060 0x00008000  # settings.threshold",
        "# bar1 0x10000 bytes dma",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let report = fpgactl(&["replay", &log, "--json"]).ok().json();
    assert_eq!((&report["same"], &report["difference"]), (&true.into(), &Value::Null), "{report}");
    assert_eq!(
        report["reads"].as_u64().unwrap() + report["writes"].as_u64().unwrap(),
        report["accesses"].as_u64().unwrap()
    );
    // A served card keeps the written values: the second run finds a different state.
    let served = Served::start();
    let card = served.card();
    fpgactl(&["replay", &log, "--card", &card]).ok();
    let ran = fpgactl(&["replay", &log, "--card", &card]);
    assert_eq!(ran.status, 1);
    for part in ["(ni.threshold)", "recorded  0x00004000", "now       0x00008000"] {
        assert!(ran.stdout.contains(part), "{part}\n{}", ran.stdout);
    }
    assert!(ran.stderr.contains("differs from the record in line"), "{}", ran.stderr);
    let ran = fpgactl(&["replay", &log, "--card", &card, "--json"]);
    let report = ran.json();
    assert_eq!(
        (ran.status, &report["same"], &report["difference"]["register"]),
        (1, &false.into(), &"ni.threshold".into())
    );
    let line = usize::try_from(report["difference"]["line"].as_u64().unwrap()).unwrap();
    assert!(text.lines().nth(line - 1).unwrap().contains("0x2060 0x00004000"), "{report}");
    let report =
        fpgactl(&["replay", &log, "--card", &card, "--ignore", "ni.threshold", "--json"]).ok().json();
    assert_eq!((&report["same"], &report["not_compared"]), (&true.into(), &1.into()));
}

#[test]
fn replay_difference_names_fields() {
    let dir = tempfile::tempdir().unwrap();
    let log = file(
        dir.path(),
        "log",
        "register-log 1\n0 write bar1 0x4 0x2\n0 read bar1 0x3000 0x1fc30105 # another version\n",
    );
    let ran = fpgactl(&["replay", log.to_str().unwrap()]);
    assert_eq!(ran.status, 1);
    assert!(ran.stdout.contains("line 3: read of BAR 1 at 0x3000 (config.identifier)"), "{}", ran.stdout);
    let version = ran.stdout.lines().find(|line| line.starts_with("version")).unwrap();
    assert!(version.contains("0x5") && version.contains("0x6 2017.1 or later"), "{version}");
}

#[test]
fn record_works_with_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let (file, log) = path(dir.path(), "log");
    let count = |args: &[&str]| {
        fpgactl(&[args, &["--record", &log]].concat()).ok();
        std::fs::read_to_string(&file).unwrap().lines().filter(|line| !line.starts_with('#')).count() - 1
    };
    assert!(count(&["info"]) > 10);
    let validate = ["validate", "--scratch", "0", "--scratch-size", "64KiB"];
    assert!(count(&validate) > 1000);
    assert!(count(&["transfer", "--size", "4KiB"]) > 50);
    assert!(
        count(&["dma", "bench", "--sizes", "64", "--seconds", "0.01", "--samples", "10", "--batches", "1"])
            > 10
    );
    assert!(count(&["abort"]) > 10);
    let served = Served::start();
    assert!(count(&[&validate[..], &["--card", &served.card()]].concat()) > 1000);
    // An empty record is not a failure, and is reported.
    fpgactl(&["completions", "bash", "--record", &log]);
    assert!(std::fs::read_to_string(&file).unwrap().contains("accessed no register"));
}

#[test]
fn record_or_replay_invalid_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = |text: &str| file(dir.path(), "log", format!("register-log 1\n{text}")).display().to_string();
    for (text, part) in [
        ("0 read bar1 0x40\n", "log: line 2: \"0 read bar1 0x40\" is not an access"),
        ("0 read bar1 0x42 0\n", "line 2: \"0x42\" is not an offset"),
        ("0 read bar4 0 0\n", "line 2: "),
        ("0 read bar1 0x10000 0\n", "line 2: BAR 1 ends at 0x10000"),
        ("0 write bar1 0x8000 0\n", "line 2 of the log, writing BAR 1 at 0x8000: this is the MSI-X page"),
    ] {
        let ran = fpgactl(&["replay", &log(text)]);
        assert!(
            ran.status == 1 && ran.stdout.is_empty() && ran.stderr.contains(part),
            "{text}: {}",
            ran.stderr
        );
    }
    let name = log("0 read bar1 0x2000 any\n");
    let ran = fpgactl(&["replay", &name, "--record", &name]);
    assert!(ran.status == 2 && ran.stderr.contains("would overwrite the log"), "{}", ran.stderr);
    fpgactl(&["replay", &name]).ok();
    let ran = fpgactl(&["replay", "/no/such/log"]);
    assert!(ran.status == 1 && ran.stderr.contains("check the path"), "{}", ran.stderr);
    let ran = fpgactl(&["replay", &log(""), "--ignore", "ni.treshold"]);
    assert!(ran.status == 2 && ran.stderr.contains("did you mean ni.threshold?"), "{}", ran.stderr);
    for (out, part) in [("/no/such/dir/log", "mkdir -p"), ("/dev/full", "free space")] {
        let ran = fpgactl(&["info", "--record", out]);
        assert!(
            ran.status == 1 && ran.stderr.contains("cannot write it") && ran.stderr.contains(part),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn regs_single_block_can_be_listed() {
    let dir = tempfile::tempdir().unwrap();
    let text = "schema_version: 1\nname: own\nblocks:\n  - name: filter\n    offset: 0x2000\n    registers:\n      \
                - {name: control, offset: 0}\n      - {name: gain, offset: 0x10, count: 2}\n      - {name: go, offset: 0x20, access: wo}\n";
    let map = file(dir.path(), "map.yaml", text);
    // A defaults file can name the map as well as the command line.
    let defaults = format!("schema_version: 1\nmap: {}\n", map.display());
    let config = file(dir.path(), "defaults.yaml", defaults);
    let map = ["--map", map.to_str().unwrap()];
    let config = ["--config", config.to_str().unwrap()];
    let listed = |named: &[&str], words: &[&str]| {
        let report = fpgactl(&[&["regs", "list", "--json"], words, named].concat()).ok().json();
        let registers = report["registers"].as_array().unwrap();
        registers.iter().map(|register| register["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for named in [&map, &config] {
        assert_eq!(
            listed(named, &["filter"]),
            ["filter.control", "filter.gain[0]", "filter.gain[1]", "filter.go"]
        );
    }
    assert_eq!(
        listed(&map, &["FILTER.gain", "h2c0.status.busy"]),
        ["h2c0.status", "filter.gain[0]", "filter.gain[1]"]
    );
    let dump = fpgactl(&[&["regs", "dump", "filter"][..], &map].concat()).ok().stdout;
    assert_eq!(dump.lines().count(), 7, "{dump}");
    assert!(dump.contains("(write-only):\n  filter.go\n"), "{dump}");
    // A part of a name is not accepted.
    let ran = fpgactl(&[&["regs", "dump", "filt"][..], &map].concat());
    assert!(ran.status == 2 && ran.stderr.contains("there is no register \"filt\""), "{}", ran.stderr);
    let ran = fpgactl(&[&["regs", "dump", "fliter"][..], &map].concat());
    assert!(ran.status == 2 && ran.stderr.contains("did you mean filter?"), "{}", ran.stderr);
    let other = ["--map", "/no/such/map.yaml"];
    let ran = fpgactl(&[&["regs", "dump"][..], &config, &other].concat());
    assert!(ran.status != 0 && ran.stderr.contains("/no/such/map.yaml"), "{}", ran.stderr);
}
