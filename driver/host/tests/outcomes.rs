//! Every outcome of every check, and every failure to examine a machine, apart from those of the typical machines (`machines.rs`): each is
//! a typical machine with one change.
//!
//! | Outcome | Shown by |
//! |---|---|
//! | `iommu`: on; switched off by a word of the command line; a virtual machine | `machines.rs` |
//! | `iommu`: AMD, Intel, another processor; one that has no groups | `doctor_iommu_advice_matches_processor` |
//! | `isolation`: no-IOMMU mode / interrupts without remapping, and both | `machines.rs` / `doctor_disabled_interrupt_isolation_warns` |
//! | `vfio-pci`: loaded; installed; not there / unknown; unreadable | `machines.rs` / `doctor_missing_module_list_fails` |
//! | `interface`: container; none, skipped / both; iommufd alone; none, failed | `machines.rs` / `doctor_interface_both_either_or_none` |
//! | `memlock`: every limit | `machines.rs` |
//! | `hugepages`: some / none, unreadable counts | `machines.rs` / `huge_pages` |
//! | `cards`: known, named, none / none, and some unreadable | `machines.rs` / `doctor_only_unreadable_functions_reports_no_card` |
//! | `present`, `in-use` | `machines.rs` |
//! | `driver`: ours, the vendor's, skipped / none; none but another one may | `machines.rs` / `no_driver` |
//! | `group`: alone, shared, unprotected, skipped / others have one | `machines.rs` / `doctor_iommu_not_covering_card_is_reported` |
//! | `permission`: denied, skipped / no file; by the function's own file | `machines.rs` / `doctor_interfaces_to_open_card_are_checked` |
//! | `link`: full width, narrow, limited by the slot / no link; unknown | `machines.rs` / `doctor_unknown_link_is_skipped` |
//! | `reset`: available / none, and not reported | `machines.rs` / `doctor_no_reset_method_is_reported` |
//! | `vf-token`: needed / not needed | `machines.rs` / `doctor_virtual_function_with_kernel_driver_is_reported` |
//! | `sysfs` | `machines.rs` |
//! | [`HostError`]: each | `machines.rs`, `doctor_unreadable_process_status_is_reported`, `functions_wrong_address_forms_suggest_similar` |
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is the failure report")]

use fpga_host::testing::{Function, Tree, machine};
use fpga_host::{Check, HostError, PciFunction, Status, examine, functions};

const CARD: &str = "sys/bus/pci/devices/0000:65:00.0";

/// Result of the check `name` on machine `base` after `change`.
fn outcome(base: &str, change: impl FnOnce(&Tree) -> std::io::Result<()>, name: &str) -> Check {
    let dir = tempfile::tempdir().unwrap();
    let tree = machine(base, dir.path()).unwrap();
    change(&tree).unwrap();
    let checks = examine(&tree.roots(), &[]).unwrap();
    let found = checks.iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("{base}: no {name}: {checks:#?}")).clone()
}

#[track_caller]
fn expect(check: &Check, status: Status, parts: &[&str]) {
    let text =
        format!("{} {}", check.message, check.fix.as_ref().map(ToString::to_string).unwrap_or_default());
    assert_eq!(check.status, status, "{text}");
    assert!(status != Status::Fail || check.fix.is_some(), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn doctor_iommu_advice_matches_processor() {
    for (vendor, part) in [("AuthenticAMD", "AMD-Vi"), ("GenuineIntel", "VT-d"), ("other", "SMMU")] {
        let change = |tree: &Tree| {
            tree.file("proc/cmdline", "quiet\n")?;
            tree.file("proc/cpuinfo", format!("vendor_id\t: {vendor}\nflags\t\t: fpu\n"))
        };
        expect(&outcome("iommu-off", change, "iommu"), Status::Fail, &[part, "restart"]);
    }
    let change = |tree: &Tree| tree.file("sys/class/iommu/dmar0/uevent", "");
    expect(&outcome("iommu-off", change, "iommu"), Status::Fail, &["exists and has no groups"]);
}

#[test]
fn doctor_disabled_interrupt_isolation_warns() {
    let interrupts = "sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts";
    let check = outcome("ready", |tree| tree.file(interrupts, "Y\n"), "isolation");
    expect(&check, Status::Warn, &["cards may send any interrupt", "echo N >", interrupts]);
    let both = outcome("no-iommu-mode", |tree| tree.file(interrupts, "1\n"), "isolation");
    expect(&both, Status::Warn, &["without an IOMMU", "any interrupt"]);
}

#[test]
fn doctor_missing_module_list_fails() {
    let check = outcome("no-module", |tree| tree.remove("lib/modules"), "vfio-pci");
    expect(&check, Status::Fail, &["lists no modules", "CONFIG_VFIO_PCI"]);
    let dir = tempfile::tempdir().unwrap();
    let tree = machine("no-module", dir.path()).unwrap();
    let list = "lib/modules/6.12.9-amd64/modules.dep";
    tree.remove(list).unwrap();
    std::fs::create_dir(dir.path().join(list)).unwrap();
    let error = examine(&tree.roots(), &[]).unwrap_err();
    assert!(matches!(error, HostError::Unreadable { .. }), "{error}");
    assert!(error.to_string().contains("modules.dep cannot be read"), "{error}");
}

#[test]
fn doctor_interface_both_either_or_none() {
    let iommufd = |tree: &Tree| tree.device_file("dev/iommu", 0o600);
    let without = |tree: &Tree| tree.remove("dev/vfio/vfio");
    expect(&outcome("ready", iommufd, "interface"), Status::Pass, &["container and group, and iommufd"]);
    let alone = |tree: &Tree| iommufd(tree).and_then(|()| without(tree));
    expect(&outcome("ready", alone, "interface"), Status::Pass, &["iommufd only"]);
    expect(&outcome("ready", without, "interface"), Status::Fail, &["neither", "modprobe vfio-pci again"]);
}

#[test]
fn doctor_huge_pages_are_checked() {
    let pages = "sys/kernel/mm/hugepages/hugepages-2048kB";
    let check = outcome("ready", |tree| tree.file(&format!("{pages}/nr_hugepages"), "0\n"), "hugepages");
    expect(&check, Status::Warn, &["no huge pages", "nr_hugepages"]);
    let check = outcome("ready", |tree| tree.remove("sys/kernel/mm"), "hugepages");
    expect(&check, Status::Warn, &["no huge pages"]);
    // An invalid size belongs to no pool, and a missing count means no free pages.
    let check = outcome(
        "ready",
        |tree| {
            tree.file("sys/kernel/mm/hugepages/hugepages-odd/nr_hugepages", "7\n")?;
            tree.remove(&format!("{pages}/free_hugepages"))
        },
        "hugepages",
    );
    expect(&check, Status::Pass, &["0 of 64 pages of 2 MiB are free"]);
    let dir = tempfile::tempdir().unwrap();
    let tree = machine("ready", dir.path()).unwrap();
    tree.file(&format!("{pages}/nr_hugepages"), "many\n").unwrap();
    let error = examine(&tree.roots(), &[]).unwrap_err();
    assert!(matches!(&error, HostError::InvalidContent { what: "number", .. }), "{error}");
}

#[test]
fn doctor_only_unreadable_functions_reports_no_card() {
    let check = outcome(
        "no-cards",
        |tree| tree.file("sys/bus/pci/devices/0000:00:1f.2/vendor", "0x123456\n"),
        "cards",
    );
    expect(&check, Status::Warn, &["1 cannot be read", "0000:00:1f.2/vendor holds", "rescan"]);
}

#[test]
fn doctor_card_without_driver_is_reported() {
    let check = outcome("ready", |tree| tree.remove(&format!("{CARD}/driver")), "driver");
    expect(&check, Status::Fail, &["bound to no driver", "bind 0000:65:00.0 to vfio-pci"]);
    let check = outcome(
        "ready",
        |tree| {
            tree.file(&format!("{CARD}/driver_override"), "pci-stub\n")?;
            tree.remove(&format!("{CARD}/driver"))
        },
        "driver",
    );
    expect(&check, Status::Fail, &["reserved for pci-stub (driver_override)"]);
}

#[test]
fn doctor_iommu_not_covering_card_is_reported() {
    let check = outcome("vendor-driver", |tree| tree.remove(&format!("{CARD}/iommu_group")), "group");
    expect(&check, Status::Fail, &["does not cover the function", "another slot"]);
}

#[test]
fn doctor_interfaces_to_open_card_are_checked() {
    let check = outcome("ready", |tree| tree.remove("dev/vfio/14"), "permission");
    expect(&check, Status::Fail, &["dev/vfio/14 does not exist", "udev rule"]);
    // A user without access to the group's file, but with access to the card's own.
    let own = |tree: &Tree| {
        tree.file(&format!("{CARD}/vfio-dev/vfio0/uevent"), "")?;
        tree.device_file("dev/vfio/devices/vfio0", 0o666)?;
        tree.device_file("dev/iommu", 0o666)
    };
    let check = outcome("not-permitted", own, "permission");
    expect(&check, Status::Pass, &["dev/vfio/devices/vfio0 can be opened"]);
    assert!(!check.message.contains("vfio/14"), "{check:?}");
}

#[test]
fn doctor_unknown_link_is_skipped() {
    let names = ["current_link_speed", "current_link_width", "max_link_speed", "max_link_width"];
    let remove = |tree: &Tree| names.iter().try_for_each(|name| tree.remove(&format!("{CARD}/{name}")));
    expect(&outcome("ready", remove, "link"), Status::Skip, &["reports no link"]);
    let unknown = |tree: &Tree| {
        tree.file(&format!("{CARD}/current_link_speed"), "Unknown\n")?;
        tree.file(&format!("{CARD}/current_link_width"), "0\n")
    };
    expect(&outcome("ready", unknown, "link"), Status::Skip, &["does not report the state of its link"]);
}

#[test]
fn doctor_no_reset_method_is_reported() {
    for content in [Some("\n"), None] {
        let change = |tree: &Tree| {
            let path = format!("{CARD}/reset_method");
            content.map_or_else(|| tree.remove(&path), |text| tree.file(&path, text))
        };
        expect(&outcome("ready", change, "reset"), Status::Warn, &["no reset method", "by their registers"]);
    }
}

#[test]
fn doctor_virtual_function_with_kernel_driver_is_reported() {
    for (driver, part) in [(Some("xdma"), "(xdma): no token"), (None, "(no driver): no token")] {
        let change = |tree: &Tree| {
            tree.remove(&format!("{CARD}/driver"))?;
            driver.map_or(Ok(()), |name| tree.bound("0000:65:00.0", name))
        };
        expect(&outcome("virtual-function", change, "vf-token"), Status::Pass, &[part]);
    }
}

/// The examined process is this one; without its status no check is possible.
#[test]
fn doctor_unreadable_process_status_is_reported() {
    let status = |line: &str| format!("Uid:\t7\t7\t7\t7\nGid:\t7\t7\t7\t7\n{line}");
    for (path, content, part) in [
        ("proc/self/status", "Uid:\t7\n".to_owned(), "not a valid status of a process"),
        ("proc/self/status", "Uid:\t7\t7\t7\t7\n".to_owned(), "not a valid status of a process"),
        ("proc/self/status", status(""), "not a valid status of a process"),
        ("proc/self/status", status("CapEff:\tall\n"), "not a valid status of a process"),
        ("proc/self/limits", "Max open files 1 1\n".to_owned(), "not a valid list of limits"),
        ("proc/self/limits", "Max locked memory  much  much\n".to_owned(), "not a valid limit"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let tree = machine("ready", dir.path()).unwrap();
        tree.file(path, &content).unwrap();
        let error = examine(&tree.roots(), &[]).unwrap_err();
        assert!(matches!(error, HostError::InvalidContent { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(path) && text.contains(part), "{content:?}: {text}");
    }
}

#[test]
fn functions_wrong_address_forms_suggest_similar() {
    let dir = tempfile::tempdir().unwrap();
    let tree = machine("ready", dir.path()).unwrap();
    tree.function(&Function { address: "0000:66:00.0", group: Some(15), ..Function::card() }).unwrap();
    let error = fpga_host::function::find(&tree.roots(), "nothing").unwrap_err();
    let help = error.help().unwrap_or_default();
    assert!(
        help.contains("name a card of this machine: 0000:65:00.0 (10ee:903f), 0000:66:00.0"),
        "{error}; {help}"
    );
}

/// An attribute that disappears during a read counts as absent; one that cannot be read for another reason is reported.
#[test]
fn functions_vanished_attribute_ignored_unreadable_named() {
    let dir = tempfile::tempdir().unwrap();
    let tree = machine("ready", dir.path()).unwrap();
    // Two links that point to each other: neither absent nor a directory.
    tree.remove(&format!("{CARD}/vendor")).unwrap();
    tree.link(&format!("{CARD}/vendor"), "vendor").unwrap();
    let listing = functions(&tree.roots()).unwrap();
    let [error] = listing.unreadable.as_slice() else { panic!("{listing:#?}") };
    let (text, help) = (error.to_string(), error.help().unwrap_or_default());
    assert!(text.contains("vendor cannot be read"), "{text}");
    assert!(help.contains("those of the running kernel"), "{help}");
    tree.remove(&format!("{CARD}/vendor")).unwrap();
    assert!(functions(&tree.roots()).unwrap().unreadable.is_empty());
    let error = PciFunction::read(&tree.roots(), "0000:65:00.0".parse().unwrap()).unwrap_err();
    assert!(matches!(error, HostError::NoSuchFunction { .. }), "{error}");
}
