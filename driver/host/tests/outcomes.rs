//! Every outcome of every check, and every way in which a machine cannot be examined: what the typical machines (`machines.rs`) do not
//! have, each as one of them with one change.
//!
//! | Outcome | Shown by |
//! |---|---|
//! | `iommu`: on; switched off by a word of the command line; a virtual machine | `machines.rs` |
//! | `iommu`: AMD, Intel, another processor; one that has no groups | `the_advice_is_for_the_processor` |
//! | `isolation`: no-IOMMU mode / interrupts without remapping, and both | `machines.rs` / `protection_that_is_given_up` |
//! | `vfio-pci`: loaded; installed; not there / nobody knows; unreadable | `machines.rs` / `modules_that_nobody_knows_of` |
//! | `interface`: container; none, skipped / both; iommufd alone; none, failed | `machines.rs` / `both_interfaces_either_and_neither` |
//! | `memlock`: every limit | `machines.rs` |
//! | `hugepages`: some / none, unreadable counts | `machines.rs` / `huge_pages` |
//! | `cards`: known, named, none / none, and some that cannot be read | `machines.rs` / `no_card_among_functions_that_cannot_be_read` |
//! | `present`, `in-use` | `machines.rs` |
//! | `driver`: ours, the vendor's, skipped / none; none but another one may | `machines.rs` / `no_driver` |
//! | `group`: alone, shared, unprotected, skipped / others have one | `machines.rs` / `an_iommu_that_does_not_cover_the_card` |
//! | `permission`: denied, skipped / no file; by the function's own file | `machines.rs` / `ways_to_open_a_card` |
//! | `link`: as it should be, narrow, a slot's / no link of its own; not known | `machines.rs` / `links_that_tell_nothing` |
//! | `reset`: some way / none, and not told | `machines.rs` / `no_way_to_reset` |
//! | `vf-token`: needed / not needed | `machines.rs` / `a_virtual_function_of_the_kernels` |
//! | `sysfs` | `machines.rs` |
//! | [`HostError`]: each | `machines.rs`, `a_process_that_is_not_described`, `what_a_wrong_address_may_have_meant` |
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use fpga_host::testing::{Function, Tree, machine};
use fpga_host::{Check, HostError, PciFunction, Status, examine, functions};

const CARD: &str = "sys/bus/pci/devices/0000:65:00.0";

/// The check `name` on machine `base` after `change`.
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
    let text = format!("{} {}", check.message, check.fix.as_deref().unwrap_or_default());
    assert_eq!(check.status, status, "{text}");
    assert!(status != Status::Fail || check.fix.is_some(), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_advice_is_for_the_processor() {
    for (vendor, part) in [("AuthenticAMD", "AMD-Vi"), ("GenuineIntel", "VT-d"), ("other", "SMMU")] {
        let change = |tree: &Tree| {
            tree.file("proc/cmdline", "quiet\n")?;
            tree.file("proc/cpuinfo", format!("vendor_id\t: {vendor}\nflags\t\t: fpu\n"))
        };
        expect(&outcome("iommu-off", change, "iommu"), Status::Fail, &[part, "restart"]);
    }
    let change = |tree: &Tree| tree.file("sys/class/iommu/dmar0/uevent", "");
    expect(&outcome("iommu-off", change, "iommu"), Status::Fail, &["is there and has no groups"]);
}

#[test]
fn protection_that_is_given_up() {
    let interrupts = "sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts";
    let check = outcome("ready", |tree| tree.file(interrupts, "Y\n"), "isolation");
    expect(&check, Status::Warn, &["cards may send any interrupt", "echo N >", interrupts]);
    let both = outcome("no-iommu-mode", |tree| tree.file(interrupts, "1\n"), "isolation");
    expect(&both, Status::Warn, &["without an IOMMU", "any interrupt"]);
}

#[test]
fn modules_that_nobody_knows_of() {
    let check = outcome("no-module", |tree| tree.remove("lib/modules"), "vfio-pci");
    expect(&check, Status::Fail, &["tells of no modules", "CONFIG_VFIO_PCI"]);
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
fn both_interfaces_either_and_neither() {
    let iommufd = |tree: &Tree| tree.device_file("dev/iommu", 0o600);
    let without = |tree: &Tree| tree.remove("dev/vfio/vfio");
    expect(&outcome("ready", iommufd, "interface"), Status::Pass, &["container and group, and iommufd"]);
    let alone = |tree: &Tree| iommufd(tree).and_then(|()| without(tree));
    expect(&outcome("ready", alone, "interface"), Status::Pass, &["iommufd alone"]);
    expect(&outcome("ready", without, "interface"), Status::Fail, &["neither", "modprobe vfio-pci again"]);
}

#[test]
fn huge_pages() {
    let pages = "sys/kernel/mm/hugepages/hugepages-2048kB";
    let check = outcome("ready", |tree| tree.file(&format!("{pages}/nr_hugepages"), "0\n"), "hugepages");
    expect(&check, Status::Warn, &["no huge pages", "nr_hugepages"]);
    let check = outcome("ready", |tree| tree.remove("sys/kernel/mm"), "hugepages");
    expect(&check, Status::Warn, &["no huge pages"]);
    // A size that is none is nobody's, and a count that is not there is none free.
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
    assert!(matches!(&error, HostError::Garbled { what: "number", .. }), "{error}");
}

#[test]
fn no_card_among_functions_that_cannot_be_read() {
    let check = outcome(
        "no-cards",
        |tree| tree.file("sys/bus/pci/devices/0000:00:1f.2/vendor", "0x123456\n"),
        "cards",
    );
    expect(&check, Status::Warn, &["1 cannot be read", "0000:00:1f.2/vendor holds", "rescan"]);
}

#[test]
fn no_driver() {
    let check = outcome("ready", |tree| tree.remove(&format!("{CARD}/driver")), "driver");
    expect(&check, Status::Fail, &["no driver has it fpgactl bind 0000:65:00.0"]);
    let check = outcome(
        "ready",
        |tree| {
            tree.file(&format!("{CARD}/driver_override"), "pci-stub\n")?;
            tree.remove(&format!("{CARD}/driver"))
        },
        "driver",
    );
    expect(&check, Status::Fail, &["only pci-stub may (driver_override)"]);
}

#[test]
fn an_iommu_that_does_not_cover_the_card() {
    let check = outcome("vendor-driver", |tree| tree.remove(&format!("{CARD}/iommu_group")), "group");
    expect(&check, Status::Fail, &["does not cover it", "another slot"]);
}

#[test]
fn ways_to_open_a_card() {
    let check = outcome("ready", |tree| tree.remove("dev/vfio/14"), "permission");
    expect(&check, Status::Fail, &["dev/vfio/14 does not exist", "udev rule"]);
    // A user without the group's file, and with the card's own.
    let own = |tree: &Tree| {
        tree.file(&format!("{CARD}/vfio-dev/vfio0/uevent"), "")?;
        tree.device_file("dev/vfio/devices/vfio0", 0o666)?;
        tree.device_file("dev/iommu", 0o666)
    };
    let check = outcome("not-permitted", own, "permission");
    expect(&check, Status::Pass, &["dev/vfio/devices/vfio0 may be opened"]);
    assert!(!check.message.contains("vfio/14"), "{check:?}");
}

#[test]
fn links_that_tell_nothing() {
    let names = ["current_link_speed", "current_link_width", "max_link_speed", "max_link_width"];
    let remove = |tree: &Tree| names.iter().try_for_each(|name| tree.remove(&format!("{CARD}/{name}")));
    expect(&outcome("ready", remove, "link"), Status::Skip, &["no link of its own"]);
    let unknown = |tree: &Tree| {
        tree.file(&format!("{CARD}/current_link_speed"), "Unknown\n")?;
        tree.file(&format!("{CARD}/current_link_width"), "0\n")
    };
    expect(&outcome("ready", unknown, "link"), Status::Skip, &["does not know how its link runs"]);
}

#[test]
fn no_way_to_reset() {
    for content in [Some("\n"), None] {
        let change = |tree: &Tree| {
            let path = format!("{CARD}/reset_method");
            content.map_or_else(|| tree.remove(&path), |text| tree.file(&path, text))
        };
        expect(&outcome("ready", change, "reset"), Status::Warn, &["no way to reset it", "fpgactl reset"]);
    }
}

#[test]
fn a_virtual_function_of_the_kernels() {
    for (driver, part) in [(Some("xdma"), "(xdma): no token"), (None, "(no driver): no token")] {
        let change = |tree: &Tree| {
            tree.remove(&format!("{CARD}/driver"))?;
            driver.map_or(Ok(()), |name| tree.bound("0000:65:00.0", name))
        };
        expect(&outcome("virtual-function", change, "vf-token"), Status::Pass, &[part]);
    }
}

/// Whoever is examined is this process, and nothing can be said without it.
#[test]
fn a_process_that_is_not_described() {
    let status = |line: &str| format!("Uid:\t7\t7\t7\t7\nGid:\t7\t7\t7\t7\n{line}");
    for (path, content, part) in [
        ("proc/self/status", "Uid:\t7\n".to_owned(), "no status of a process"),
        ("proc/self/status", "Uid:\t7\t7\t7\t7\n".to_owned(), "no status of a process"),
        ("proc/self/status", status(""), "no status of a process"),
        ("proc/self/status", status("CapEff:\tall\n"), "no status of a process"),
        ("proc/self/limits", "Max open files 1 1\n".to_owned(), "no list of limits"),
        ("proc/self/limits", "Max locked memory  much  much\n".to_owned(), "no limit"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let tree = machine("ready", dir.path()).unwrap();
        tree.file(path, &content).unwrap();
        let error = examine(&tree.roots(), &[]).unwrap_err();
        assert!(matches!(error, HostError::Garbled { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(path) && text.contains(part), "{content:?}: {text}");
    }
}

#[test]
fn what_a_wrong_address_may_have_meant() {
    let dir = tempfile::tempdir().unwrap();
    let tree = machine("ready", dir.path()).unwrap();
    tree.function(&Function { address: "0000:66:00.0", group: Some(15), ..Function::card() }).unwrap();
    let error = fpga_host::function::find(&tree.roots(), "nothing").unwrap_err().to_string();
    assert!(error.contains("cards of this machine are 0000:65:00.0 (10ee:903f), 0000:66:00.0"), "{error}");
}

/// What goes away while it is looked at is not there; what cannot be read for another reason is named.
#[test]
fn attributes_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let tree = machine("ready", dir.path()).unwrap();
    // Two links that lead to each other: neither absent nor a directory.
    tree.remove(&format!("{CARD}/vendor")).unwrap();
    tree.link(&format!("{CARD}/vendor"), "vendor").unwrap();
    let listing = functions(&tree.roots()).unwrap();
    let [error] = listing.unreadable.as_slice() else { panic!("{listing:#?}") };
    let text = error.to_string();
    assert!(text.contains("vendor cannot be read") && text.contains("those of the running kernel"), "{text}");
    tree.remove(&format!("{CARD}/vendor")).unwrap();
    assert!(functions(&tree.roots()).unwrap().unreadable.is_empty());
    let error = PciFunction::read(&tree.roots(), "0000:65:00.0".parse().unwrap()).unwrap_err();
    assert!(matches!(error, HostError::NoSuchFunction { .. }), "{error}");
}
