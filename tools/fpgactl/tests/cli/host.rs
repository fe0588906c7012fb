//! `list`, `doctor`, `bind` and `release` on machines that are trees of files: everything that can be tested without an active kernel.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use fpga_host::testing::{MACHINES, Tree, machine};

use crate::support::{CommandResult, fpgactl};

/// Runs a command on the machine `name`; the path of its directory is removed from the output.
fn on(name: &str, args: &[&str]) -> (tempfile::TempDir, Tree, CommandResult) {
    let dir = tempfile::tempdir().unwrap();
    let tree = machine(name, dir.path()).unwrap();
    let root = dir.path().to_str().unwrap().to_owned();
    let mut ran = fpgactl(&[args, &["--root", &root]].concat());
    ran.stdout = ran.stdout.replace(&root, "");
    ran.stderr = ran.stderr.replace(&root, "");
    (dir, tree, ran)
}

#[test]
fn doctor_output_on_every_machine() {
    // The manual's chapter agrees.
    let chapter = include_str!("../../../../docs/guide/doctor.md");
    let mut text = String::new();
    for found in MACHINES {
        let (_, _, ran) = on(found.name, &["doctor"]);
        let listing = format!("\n## {}\n", found.name);
        assert!(chapter.contains(&listing), "{listing}");
        assert!(
            chapter.contains(&format!("```text\n{}```\n", ran.stdout)),
            "{}: docs/guide/doctor.md is old",
            found.name
        );
        let failed = ran.stdout.lines().filter(|line| line.starts_with("fail")).count();
        assert_eq!(ran.status, i32::from(failed > 0), "{}: {}", found.name, ran.stderr);
        assert_eq!(ran.stderr.contains("checks failed"), failed > 0, "{}", ran.stderr);
        text += &format!("== {}: {}\n{}\n", found.name, found.about, ran.stdout);
    }
    insta::assert_snapshot!(text);
}

#[test]
fn list_output_on_every_machine() {
    let mut text = String::new();
    for found in MACHINES {
        let ran = on(found.name, &["list"]).2.ok();
        let (machine, simulated) = ran.stdout.split_once("\n\n").unwrap();
        assert!(simulated.contains("\nmock:us-x8 "), "{simulated}");
        text += &format!("== {}: {}\n{machine}\n\n", found.name, found.about);
    }
    insta::assert_snapshot!(text);
}

#[test]
fn host_json_has_contract_keys() {
    let report = on("shared-group", &["list", "--json"]).2.ok().json();
    let card = &report["functions"][0];
    assert_eq!((&card["address"], &card["driver"]), (&"0000:65:00.0".into(), &"vfio-pci".into()));
    assert_eq!((&card["vendor"], &card["iommu_group"]), (&"0x10ee".into(), &14.into()));
    let member = &card["group_members"][0];
    assert_eq!((&member["driver"], &member["in_the_way"]), (&"snd_hda_intel".into(), &true.into()));
    assert_eq!((&card["link"]["width"], &card["link"]["max_width"]), (&16.into(), &16.into()));
    assert_eq!(report["hidden"], 3);
    assert_eq!(report["simulated"][0]["card"], "mock");
    let all = on("shared-group", &["list", "--all", "--json"]).2.ok().json();
    assert_eq!(all["functions"].as_array().map(Vec::len), Some(4));

    let report = on("vendor-driver", &["doctor", "--json"]).2;
    assert_eq!(report.status, 1);
    let report = report.json();
    let checks = report["checks"].as_array().unwrap();
    let driver = checks.iter().find(|check| check["name"] == "driver").unwrap();
    assert_eq!((&driver["status"], &driver["card"]), (&"fail".into(), &"0000:65:00.0".into()));
    assert_eq!(driver["fix"].as_str().unwrap().split(" (").next(), Some("fpgactl bind 0000:65:00.0"));
    assert!(checks.iter().all(|check| check["message"].is_string() && check.get("fix").is_some()));
    let count = |status: &str| checks.iter().filter(|check| check["status"] == status).count();
    assert_eq!((&report["failed"], &report["skipped"]), (&count("fail").into(), &count("skip").into()));
}

#[test]
fn doctor_prints_one_line_per_check() {
    let ran = on("ready", &["doctor"]).2.ok();
    let (checks, summary) = ran.stdout.split_once("\n\n").unwrap();
    assert!(checks.lines().all(|line| line.starts_with("pass ")), "{checks}");
    assert_eq!(summary, format!("{} passed, 0 warned, 0 failed, 0 skipped\n", checks.lines().count()));
    // A function without known ids, and one that does not exist.
    let ran = on("ready", &["doctor", "--card", "0000:00:1f.2"]).2;
    assert!(
        ran.status == 1 && ran.stdout.contains("0000:00:1f.2  bound to the kernel driver ahci"),
        "{}",
        ran.stdout
    );
    let ran = on("ready", &["doctor", "--card", "0000:66:00.0"]).2;
    assert!(ran.status == 1 && ran.stderr.contains("did you mean one of 0000:65:00.0"), "{}", ran.stderr);
}

#[test]
fn bind_refusal_names_reason() {
    for (name, args, status, parts) in [
        ("iommu-off", &["bind", "0000:65:00.0"][..], 1, ["the IOMMU is off", "fpgactl doctor"]),
        ("no-module", &["bind", "0000:65:00.0"], 1, ["has not loaded vfio-pci", "modprobe vfio-pci"]),
        ("vendor-driver", &["bind", "0000:64:00.0", "--force"], 1, ["is a bridge", "below it"]),
        ("vendor-driver", &["bind", "0000:00:1f.2"], 1, ["mass storage controller", "--force"]),
        ("vendor-driver", &["bind", "65:00"], 2, ["not a PCI address", "did you mean 0000:65:00.0"]),
        (
            "vendor-driver",
            &["bind", "0000:65:00.1"],
            1,
            ["PCI function 0000:65:00.1 does not exist", "did you mean 0000:65:00.0"],
        ),
        (
            "vendor-driver",
            &["release", "0000:65:00.0"],
            1,
            ["is not bound to vfio-pci", "its driver is xdma"],
        ),
        ("in-use", &["release", "0000:65:00.0"], 1, ["process 4711 (my-program)", "end that program first"]),
        ("virtual-function", &["bind", "0000:65:00.0"], 1, ["1 virtual functions", "sriov_numvfs"]),
    ] {
        let (_, tree, ran) = on(name, args);
        assert_eq!(ran.status, status, "{name} {args:?}: {}", ran.stderr);
        for part in parts {
            assert!(ran.stderr.contains(part), "{name} {args:?}: {}", ran.stderr);
        }
        let kept = std::fs::read_dir(tree.roots().state.join("bound")).map_or(0, Iterator::count);
        assert_eq!(kept, 0, "the record of a refused bind remains");
    }
}

#[test]
fn bind_fake_sysfs_files_are_not_kernel() {
    // The tree's files accept writes, without any effect.
    let (_, _, ran) = on("vendor-driver", &["bind", "0000:65:00.0", "--json"]);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("after many tries its driver is xdma"), "{}", ran.stderr);
    assert_eq!(ran.json()["error"]["kind"], "operation");
    // A function that is already bound needs no action.
    let report = on("shared-group", &["bind", "0000:65:00.0", "--json"]).2.ok().json();
    assert_eq!((&report["already"], &report["driver"]), (&true.into(), &"vfio-pci".into()));
    assert_eq!(report["in_the_way"][0], "0000:65:00.1 (snd_hda_intel)");
    let text = on("shared-group", &["bind", "65:00.0"]).2.ok().stdout;
    assert!(text.contains("group 14: with 0000:65:00.1") && text.contains("bind these too"), "{text}");
    assert!(text.contains("opened by /dev/vfio/14"), "{text}");
}

#[test]
fn list_without_sysfs_fails_without_pci_lists_simulated() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    let ran = fpgactl(&["list", "--root", root]);
    assert!(ran.status == 1 && ran.stderr.contains("sysfs is not mounted"), "{}", ran.stderr);
    std::fs::create_dir_all(dir.path().join("sys/kernel")).unwrap();
    let text = fpgactl(&["list", "--root", root]).ok().stdout;
    assert!(text.contains("no PCI function") && text.contains("mock:artix-x1"), "{text}");
    // On this machine, whatever its state.
    assert_eq!(fpgactl(&["list", "--all", "--json"]).ok().json()["simulated"][0]["card"], "mock");
    let ran = fpgactl(&["doctor", "--json"]);
    assert!(ran.json()["checks"].is_array() && ran.status <= 1);
}

#[test]
fn host_help_has_examples() {
    for command in ["list", "doctor", "bind", "release"] {
        let help = fpgactl(&[command, "--help"]).ok().stdout;
        assert!(help.contains("Example") && help.contains(&format!("fpgactl {command}")), "{help}");
    }
}
