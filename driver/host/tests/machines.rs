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
