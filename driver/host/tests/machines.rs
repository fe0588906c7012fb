//! Every typical machine: its functions, and the result of each check.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use fpga_host::testing::{Function, MACHINES, Tree, machine};
use fpga_host::{Check, HostError, PciAddress, PciFunction, Roots, Status, examine, functions};

const CARD: &str = "0000:65:00.0";

fn checks(name: &str) -> Vec<Check> {
    let dir = tempfile::tempdir().unwrap();
    examine(&machine(name, dir.path()).unwrap().roots(), &[]).unwrap()
}

/// Checks that did not pass.
fn trouble(checks: &[Check]) -> Vec<(&'static str, Status)> {
    let bad = checks.iter().filter(|check| check.status != Status::Pass);
    bad.map(|check| (check.name, check.status)).collect()
}

#[test]
fn doctor_each_machine_shows_only_its_own_problem() {
    use Status::{Fail, Skip, Warn};
    const UNBOUND: [(&str, Status); 2] = [("permission", Skip), ("in-use", Skip)];
    let after = |first: &[(&'static str, Status)]| [first, &UNBOUND].concat();
    for (name, expected) in [
        ("ready", vec![]),
        ("vendor-driver", after(&[("driver", Fail)])),
        ("iommu-off", after(&[("iommu", Fail), ("driver", Skip), ("group", Skip)])),
        ("virtual-machine", after(&[("iommu", Fail), ("driver", Skip), ("group", Skip)])),
        ("no-module", after(&[("vfio-pci", Fail), ("interface", Skip), ("driver", Fail)])),
        ("small-kernel", after(&[("vfio-pci", Fail), ("interface", Skip), ("driver", Fail)])),
        ("shared-group", vec![("group", Fail)]),
        ("narrow-link", vec![("link", Warn)]),
        ("narrow-slot", vec![("link", Warn)]),
        ("virtual-function", vec![("link", Skip), ("vf-token", Warn)]),
        ("not-permitted", vec![("memlock", Warn), ("permission", Fail)]),
        (
            "no-iommu-mode",
            vec![
                ("iommu", Fail),
                ("isolation", Warn),
                ("group", Fail),
                ("permission", Skip),
                ("in-use", Skip),
            ],
        ),
        ("gone", vec![("present", Fail)]),
        ("in-use", vec![("in-use", Warn)]),
        ("garbled", vec![("link", Skip), ("sysfs", Warn)]),
        ("no-cards", vec![("cards", Warn)]),
    ] {
        let checks = checks(name);
        assert_eq!(trouble(&checks), expected, "{name}: {checks:#?}");
    }
}

#[test]
fn doctor_every_machine_is_covered_and_failures_have_advice() {
    for found in MACHINES {
        for check in checks(found.name) {
            let must = matches!(check.status, Status::Fail | Status::Warn) && check.name != "sysfs";
            assert!(!must || check.fix.is_some(), "{}: {check:?}", found.name);
            assert!(!check.message.is_empty());
        }
    }
    assert_eq!(MACHINES.len(), 16);
}

#[test]
fn doctor_advice_matches_cause() {
    for (name, check, parts) in [
        ("iommu-off", "iommu", ["no group in /sys/kernel/iommu_groups", "remove intel_iommu=off from"]),
        ("virtual-machine", "iommu", ["off or absent", "virtual IOMMU"]),
        ("no-module", "vfio-pci", ["not loaded", "modprobe vfio-pci"]),
        ("small-kernel", "vfio-pci", ["6.12.9-amd64 has no module", "CONFIG_VFIO_PCI"]),
        ("vendor-driver", "driver", ["bound to the kernel driver xdma", "bind 0000:65:00.0 to vfio-pci"]),
        ("shared-group", "group", ["0000:65:00.1 (snd_hda_intel)", "bind 0000:65:00.1 to vfio-pci too"]),
        ("narrow-link", "link", ["x4 5.0 GT/s (2.0 GB/s", "seat the card"]),
        (
            "narrow-slot",
            "link",
            ["the port 0000:64:00.0 above it x8 16.0 GT/s", "a slot that supports x16 8.0 GT/s"],
        ),
        ("not-permitted", "permission", ["user 987654321 has no permission", "udev rule"]),
        ("not-permitted", "memlock", ["at most 8 MiB", "limits.d"]),
        ("no-iommu-mode", "isolation", ["enable_unsafe_noiommu_mode", "echo N >"]),
        ("gone", "present", ["all ones", "rescan"]),
        ("in-use", "in-use", ["4711 (my-program)", "only one process"]),
        ("virtual-function", "vf-token", ["virtual function of 0000:65:00.0", "same token"]),
        ("garbled", "sysfs", ["max_link_speed holds \"fast\"", ""]),
        ("no-cards", "cards", ["no PCI function", "rescan"]),
    ] {
        let checks = checks(name);
        let found = checks.iter().find(|found| found.name == check && found.status != Status::Pass);
        let found = found.unwrap_or_else(|| panic!("{name}: {check} passes: {checks:#?}"));
        let text =
            format!("{} {}", found.message, found.fix.as_ref().map(ToString::to_string).unwrap_or_default());
        for part in parts {
            assert!(text.contains(part), "{name}: {part}: {text}");
        }
    }
}

#[test]
fn doctor_locked_memory_limit_applies_by_user() {
    for (capabilities, limit, expected) in [
        ("0", "65536", Status::Fail),
        ("0", "8388608", Status::Warn),
        ("0", "268435456", Status::Pass),
        ("0", "unlimited", Status::Pass),
        // CAP_IPC_LOCK
        ("4000", "65536", Status::Pass),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let tree = machine("ready", dir.path()).unwrap();
        let status = format!("Uid:\t7\t7\t7\t7\nGid:\t7\t7\t7\t7\nGroups:\t\nCapEff:\t{capabilities}\n");
        tree.file("proc/self/status", status).unwrap();
        let limits = format!("Limit  Soft Limit\nMax locked memory  {limit}  {limit}  bytes\n");
        tree.file("proc/self/limits", limits).unwrap();
        let checks = examine(&tree.roots(), &[]).unwrap();
        let found = checks.iter().find(|check| check.name == "memlock").unwrap();
        assert_eq!(found.status, expected, "{found:?}");
    }
}

#[test]
fn functions_are_listed_with_known_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let tree = machine("shared-group", dir.path()).unwrap();
    let listing = functions(&tree.roots()).unwrap();
    let addresses: Vec<String> =
        listing.functions.iter().map(|function| function.address.to_string()).collect();
    assert_eq!(addresses, ["0000:00:1f.2", "0000:64:00.0", CARD, "0000:65:00.1"]);
    let card = listing.functions.iter().find(|function| function.is_known()).unwrap();
    assert_eq!(
        (card.address.to_string().as_str(), card.driver.as_deref(), card.group),
        (CARD, Some("vfio-pci"), Some(14))
    );
    assert_eq!((card.numa_node, card.driver_override.as_deref()), (Some(0), None));
    let link = card.link.unwrap();
    assert_eq!(
        (link.current.to_string().as_str(), link.port.unwrap().0.to_string().as_str()),
        ("x16 8.0 GT/s", "0000:64:00.0")
    );
    assert_eq!(link.possible().to_string(), "x16 8.0 GT/s");
    assert!(listing.unreadable.is_empty());
}

#[test]
fn functions_unreadable_attribute_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let tree = machine("garbled", dir.path()).unwrap();
    let listing = functions(&tree.roots()).unwrap();
    let [error] = listing.unreadable.as_slice() else { panic!("{listing:#?}") };
    assert!(error.to_string().contains("0000:66:00.0/vendor holds \"0x123456\""), "{error}");
    let card = listing.functions.iter().find(|function| function.is_known()).unwrap();
    assert_eq!(card.remarks.len(), 2, "{card:#?}");
    // A directory in place of a file is neither absent nor text.
    tree.remove("sys/bus/pci/devices/0000:65:00.0/vendor").unwrap();
    std::fs::create_dir(tree.root().join("sys/bus/pci/devices/0000:65:00.0/vendor")).unwrap();
    let error = PciFunction::read(&tree.roots(), CARD.parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("vendor cannot be read"), "{error}");
}

#[test]
fn functions_without_pci_empty_without_sysfs_error() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::with_root(dir.path());
    assert!(matches!(functions(&roots), Err(HostError::NoSysfs { .. })));
    std::fs::create_dir_all(dir.path().join("sys/kernel")).unwrap();
    assert!(functions(&roots).unwrap().functions.is_empty());
    std::fs::write(dir.path().join("sys/bus"), "").unwrap();
    let error = functions(&roots).unwrap_err();
    assert!(error.help().unwrap_or_default().contains("check the root"), "{error}");
}

#[test]
fn functions_wrong_address_suggests_similar() {
    let dir = tempfile::tempdir().unwrap();
    let tree = machine("shared-group", dir.path()).unwrap();
    for (text, part, is_usage) in [
        ("0000:56:00.0", "did you mean 0000:65:00.0 (10ee:903f)?", false),
        ("65:00.2", "one of 0000:65:00.0 (10ee:903f), 0000:65:00.1", false),
        ("65", "one of 0000:65:00.0 (10ee:903f), 0000:65:00.1 (10de:10f0)?", true),
        ("65:00", "0000:65:00.0", true),
        ("0000:65:00", "0000:65:00.0", true),
        ("card", "name a card of this machine: 0000:65:00.0 (10ee:903f)", true),
        ("", "name a card of this machine: 0000:65:00.0", true),
        // Two wrong characters are too many for another function's address, but not for a card's.
        ("0000:56:00.1", "did you mean one of 0000:65:00.1 (10de:10f0), 0000:65:00.0 (10ee:903f)?", false),
        ("0000:0:00.1", "name a card of this machine: 0000:65:00.0", false),
        ("0000:ff:00.0", "did you mean 0000:65:00.0 (10ee:903f)?", false),
        ("0001:ff:1f.7", "name a card of this machine: 0000:65:00.0 (10ee:903f)", false),
    ] {
        let error = fpga_host::function::find(&tree.roots(), text).unwrap_err();
        let help = error.help().unwrap_or_default();
        assert!(help.contains(part) && error.is_usage() == is_usage, "{text}: {error}; {help}");
    }
    let found = fpga_host::function::find(&tree.roots(), "65:00.0").unwrap();
    assert_eq!(found.address, CARD.parse::<PciAddress>().unwrap());
    let none = machine("no-cards", &dir.path().join("other")).unwrap();
    let error = fpga_host::function::find(&none.roots(), "card").unwrap_err();
    assert!(error.help().unwrap_or_default().contains("lspci -D"), "{error}");
}

#[test]
fn functions_custom_ids_are_examined_when_named() {
    let dir = tempfile::tempdir().unwrap();
    let tree = machine("no-cards", dir.path()).unwrap();
    let own = Function { id: (0x1234, 0x5678), driver: Some("own"), ..Function::card() };
    tree.function(&own).unwrap();
    assert_eq!(trouble(&examine(&tree.roots(), &[]).unwrap()), [("cards", Status::Warn)]);
    let function = PciFunction::read(&tree.roots(), CARD.parse().unwrap()).unwrap();
    let checks = examine(&tree.roots(), &[function]).unwrap();
    assert!(checks.iter().any(|check| check.name == "driver" && check.status == Status::Fail));
}

#[test]
fn doctor_without_procfs_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::new(dir.path()).unwrap();
    let error = examine(&tree.roots(), &[]).unwrap_err().to_string();
    assert!(error.contains("proc/self/status"), "{error}");
}
