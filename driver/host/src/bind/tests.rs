//! Binding and releasing with a kernel that is late, refuses, or has other users.

use std::path::Path;

use rustix::io::Errno;

use super::fake::{ConcurrentAction, Event, FakeKernel};
use super::*;
use crate::testing::{Function, Tree, machine};

const CARD: &str = "0000:65:00.0";

/// Creates a correctly configured machine whose card has `driver`.
fn tree(root: &Path, driver: Option<&str>) -> Tree {
    let tree = Tree::new(root).unwrap();
    for name in ["vfio-pci", "xdma", "other"] {
        tree.driver(name).unwrap();
    }
    tree.function(&Function { driver, ..Function::card() }).unwrap();
    tree
}

fn card(tree: &Tree) -> PciFunction {
    PciFunction::read(&tree.roots(), CARD.parse().unwrap()).unwrap()
}

fn record(tree: &Tree) -> Option<Record> {
    let records = Records::lock(&tree.roots()).unwrap();
    records.read(CARD.parse().unwrap()).unwrap()
}

/// An error with its advice.
fn shown(error: &BindError) -> String {
    format!("{error}; {}", error.help().unwrap_or_default())
}

#[test]
fn bind_then_release_restores_driver() {
    for driver in [Some("xdma"), None] {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path(), driver);
        let kernel = FakeKernel::new(&tree, CARD);
        let bound = bind_with(&tree.roots(), &kernel, &card(&tree), false).unwrap();
        assert_eq!(
            (bound.driver.as_str(), bound.previous.as_deref(), bound.already),
            ("vfio-pci", driver, false)
        );
        assert_eq!(
            (bound.group, bound.others.len(), bound.files),
            (14, 0, vec![tree.roots().group_file(14)])
        );
        assert_eq!(
            (kernel.driver().as_deref(), kernel.only().as_deref()),
            (Some("vfio-pci"), Some("vfio-pci"))
        );
        // Again: nothing to do, and the first driver stays recorded.
        let again = bind_with(&tree.roots(), &kernel, &card(&tree), false).unwrap();
        assert!(again.already);
        assert_eq!(record(&tree).unwrap().driver.as_deref(), driver);

        let released = release_with(&tree.roots(), &kernel, &card(&tree)).unwrap();
        assert_eq!((released.driver.as_deref(), released.previous.as_deref()), (driver, Some("vfio-pci")));
        assert!(released.remembered);
        assert_eq!((kernel.driver().as_deref(), kernel.only()), (driver, None));
        assert_eq!((record(&tree), kernel.pauses()), (None, 0), "the function is free: no wait");
        let error = release_with(&tree.roots(), &kernel, &card(&tree)).unwrap_err();
        assert!(matches!(error, BindError::NotBound { .. }), "{error}");
    }
}

#[test]
fn release_after_manual_bind_lets_kernel_choose_driver() {
    for (wanting, expected) in [(&["xdma"][..], Some("xdma")), (&[][..], None)] {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path(), Some("vfio-pci"));
        tree.file(&format!("sys/bus/pci/devices/{CARD}/driver_override"), "vfio-pci\n").unwrap();
        let kernel = FakeKernel::new(&tree, CARD).wanting(wanting);
        let released = release_with(&tree.roots(), &kernel, &card(&tree)).unwrap();
        assert_eq!((released.driver.as_deref(), released.remembered), (expected, false));
        assert_eq!(kernel.only(), None);
    }
}

#[test]
fn bind_probe_failure_restores_old_driver() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path(), Some("xdma"));
    let kernel = FakeKernel::new(&tree, CARD).failing("vfio-pci", Errno::INVAL);
    let error = bind_with(&tree.roots(), &kernel, &card(&tree), false).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("vfio-pci/bind was refused") && text.contains("its driver is xdma, as before"),
        "{text}"
    );
    assert_eq!((kernel.driver().as_deref(), kernel.only(), record(&tree)), (Some("xdma"), None, None));
}

/// The card has the right driver, and the error reports this and the remaining action.
#[test]
fn release_record_not_removed_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path(), Some("xdma"));
    bind_with(&tree.roots(), &FakeKernel::new(&tree, CARD), &card(&tree), false).unwrap();
    let kernel = FakeKernel::new(&tree, CARD).at(0, Event::After(ConcurrentAction::Keeps));
    let error = release_with(&tree.roots(), &kernel, &card(&tree)).unwrap_err();
    assert!(matches!(error, BindError::RecordNotRemoved { .. }), "{error}");
    let text = shown(&error);
    for part in ["was released, and its driver is xdma", "run/fpga/bound/0000:65:00-0", "delete the record"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!((kernel.driver().as_deref(), kernel.only()), (Some("xdma"), None));
}

/// The failure of the step is the main error; the remaining record is reported in addition.
#[test]
fn bind_failure_is_reported_before_leftover_record() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path(), Some("xdma"));
    let kernel = FakeKernel::new(&tree, CARD)
        .failing("vfio-pci", Errno::INVAL)
        .at(0, Event::After(ConcurrentAction::Keeps));
    let text = bind_with(&tree.roots(), &kernel, &card(&tree), false).unwrap_err().to_string();
    for part in ["vfio-pci/bind was refused", "its driver is xdma, as before", "could not be removed"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn bind_deferred_probe_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path(), Some("xdma"));
    let kernel =
        (2..6).fold(FakeKernel::new(&tree, CARD), |kernel, at| kernel.at(at, Event::Fails(Errno::AGAIN)));
    bind_with(&tree.roots(), &kernel, &card(&tree), false).unwrap();
    assert_eq!((kernel.pauses(), kernel.driver().as_deref()), (4, Some("vfio-pci")));
}

#[test]
fn release_driver_unloaded_keeps_vfio_pci() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path(), Some("xdma"));
    let kernel = FakeKernel::new(&tree, CARD);
    bind_with(&tree.roots(), &kernel, &card(&tree), false).unwrap();
    tree.remove("sys/bus/pci/drivers/xdma").unwrap();
    let error = shown(&release_with(&tree.roots(), &kernel, &card(&tree)).unwrap_err());
    assert!(
        error.contains("modprobe xdma") && error.contains("its driver is vfio-pci, as before"),
        "{error}"
    );
    assert_eq!(kernel.driver().as_deref(), Some("vfio-pci"));
    // When the driver is loaded again, release works.
    tree.driver("xdma").unwrap();
    release_with(&tree.roots(), &kernel, &card(&tree)).unwrap();
    assert_eq!(kernel.driver().as_deref(), Some("xdma"));
}

#[test]
fn bind_after_crashed_bind_uses_existing_record() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path(), None);
    let old = Record { driver: Some("xdma".to_owned()), driver_override: None };
    let address = CARD.parse().unwrap();
    Records::lock(&tree.roots()).unwrap().write(address, &old).unwrap();
    tree.file(&format!("sys/bus/pci/devices/{CARD}/driver_override"), "vfio-pci\n").unwrap();
    let kernel = FakeKernel::new(&tree, CARD);
    // In both cases the driver before the accident is the relevant one.
    bind_with(&tree.roots(), &kernel, &card(&tree), false).unwrap();
    assert_eq!(record(&tree), Some(old));
    release_with(&tree.roots(), &kernel, &card(&tree)).unwrap();
    assert_eq!((kernel.driver().as_deref(), record(&tree)), (Some("xdma"), None));
}

/// All single faults, at every write of binding and of releasing: a card that had a driver has one afterwards, an `Ok` is correct, and an
/// error that reports the previous state is correct.
#[test]
fn bind_any_single_fault_leaves_card_with_driver() {
    let errnos = [
        Errno::NODEV,
        Errno::NOENT,
        Errno::BUSY,
        Errno::AGAIN,
        Errno::INTR,
        Errno::INVAL,
        Errno::IO,
        Errno::PERM,
        Errno::ACCESS,
        Errno::NOMEM,
    ];
    let others = [
        ConcurrentAction::Binds("xdma"),
        ConcurrentAction::Binds("vfio-pci"),
        ConcurrentAction::Unbinds,
        ConcurrentAction::Overrides("other"),
        ConcurrentAction::Overrides("xdma"),
        ConcurrentAction::Removes,
        ConcurrentAction::Unloads("xdma"),
        ConcurrentAction::Unloads("vfio-pci"),
    ];
    let events = errnos.map(Event::Fails).into_iter();
    let events = events.chain(others.map(Event::Before)).chain(others.map(Event::After));
    let mut seen = (0, 0);
    for event in events {
        for releasing in [false, true] {
            for at in 0.. {
                let dir = tempfile::tempdir().unwrap();
                let tree = tree(dir.path(), Some("xdma"));
                if releasing {
                    bind_with(&tree.roots(), &FakeKernel::new(&tree, CARD), &card(&tree), false).unwrap();
                }
                let what = format!("{event:?} at {at}, releasing: {releasing}");
                let kernel = FakeKernel::new(&tree, CARD).at(at, event);
                let (result, goal) = if releasing {
                    (
                        release_with(&tree.roots(), &kernel, &card(&tree)).map(|released| released.driver),
                        "xdma",
                    )
                } else {
                    (
                        bind_with(&tree.roots(), &kernel, &card(&tree), false)
                            .map(|bound| Some(bound.driver)),
                        "vfio-pci",
                    )
                };
                if kernel.writes() <= at {
                    // All writes are done: the event has not occurred.
                    break;
                }
                let removed = matches!(
                    event,
                    Event::Before(ConcurrentAction::Removes) | Event::After(ConcurrentAction::Removes)
                );
                match result {
                    Ok(driver) => {
                        seen.0 += 1;
                        // An action after the last write is not part of the operation.
                        let after_us = matches!(event, Event::After(_)) && kernel.writes() == at + 1;
                        if !after_us && !removed {
                            assert_eq!(kernel.driver().as_deref(), Some(goal), "{what}");
                        }
                        assert_eq!(driver.as_deref(), Some(goal), "{what}");
                    }
                    Err(BindError::Failed { failure, outcome, .. }) => {
                        seen.1 += 1;
                        match outcome {
                            Outcome::Restored { driver, .. } => assert_eq!(driver, kernel.driver(), "{what}"),
                            Outcome::Gone => assert!(removed, "{what}: {failure}"),
                            Outcome::NotRestored { .. } => {
                                let unloaded = matches!(
                                    event,
                                    Event::Before(ConcurrentAction::Unloads(_))
                                        | Event::After(ConcurrentAction::Unloads(_))
                                );
                                assert!(unloaded, "{what}: {failure}");
                                continue;
                            }
                        }
                        assert!(removed || kernel.driver().is_some(), "{what}: {failure}");
                    }
                    Err(error) => panic!("{what}: {error}"),
                }
            }
        }
    }
    assert!(seen.0 > 60 && seen.1 > 20, "{seen:?}");
}

#[test]
fn bind_endless_interference_ends_with_error() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path(), Some("xdma"));
    // Whenever the card is unbound, another process overrides its driver and binds it.
    let kernel = (0..200).fold(FakeKernel::new(&tree, CARD), |kernel, at| {
        kernel
            .at(at, Event::After(ConcurrentAction::Overrides("xdma")))
            .at(at, Event::After(ConcurrentAction::Binds("xdma")))
    });
    let error = bind_with(&tree.roots(), &kernel, &card(&tree), false).unwrap_err().to_string();
    assert!(error.contains("after many tries") && error.contains("another program binds"), "{error}");
    assert_eq!(kernel.driver().as_deref(), Some("xdma"));
}

#[test]
fn bind_forbidden_target_is_refused_before_change() {
    let refuse = |tree: &Tree, address: &str, force: bool| {
        let kernel = FakeKernel::new(tree, CARD);
        let function = PciFunction::read(&tree.roots(), address.parse().unwrap()).unwrap();
        let error = bind_with(&tree.roots(), &kernel, &function, force).unwrap_err();
        assert_eq!(kernel.writes(), 0, "{error}");
        shown(&error)
    };
    for (name, address, force, part) in [
        ("iommu-off", CARD, false, "the IOMMU is off"),
        ("virtual-machine", CARD, false, "enable the IOMMU"),
        ("no-module", CARD, false, "modprobe vfio-pci"),
        ("no-iommu-mode", CARD, false, "no-IOMMU mode"),
        ("vendor-driver", "0000:64:00.0", true, "is a bridge"),
        (
            "vendor-driver",
            "0000:00:1f.2",
            false,
            "a mass storage controller with ids 8086:a182 and driver ahci",
        ),
        ("virtual-function", CARD, false, "it has 1 virtual functions"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let text = refuse(&machine(name, dir.path()).unwrap(), address, force);
        assert!(text.contains(part), "{name}: {text}");
    }
    // Groups exist, but not for this card.
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path(), None);
    tree.remove(&format!("sys/bus/pci/devices/{CARD}/iommu_group")).unwrap();
    let text = refuse(&tree, CARD, false);
    assert!(text.contains("does not cover it"), "{text}");
}

#[test]
fn release_card_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tree = machine("in-use", dir.path()).unwrap();
    let kernel = FakeKernel::new(&tree, CARD);
    let text = release_with(&tree.roots(), &kernel, &card(&tree)).unwrap_err().to_string();
    assert!(text.contains("4711 (my-program)") && kernel.writes() == 0, "{text}");
}

#[test]
fn bind_without_record_directory_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path(), Some("xdma"));
    tree.file("run/fpga", "a file where a directory should be").unwrap();
    let kernel = FakeKernel::new(&tree, CARD);
    let text = bind_with(&tree.roots(), &kernel, &card(&tree), false).unwrap_err().to_string();
    assert!(text.contains("run/fpga") && kernel.writes() == 0, "{text}");
}

/// Messages of each failed step and each outcome. The tests above cover when they occur.
#[test]
fn bind_error_messages_match_failure_and_outcome() {
    let refused = |errno: Errno, driver: Option<&'static str>| {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path(), driver);
        let kernel = FakeKernel::new(&tree, CARD).at(0, Event::Fails(errno));
        shown(&bind_with(&tree.roots(), &kernel, &card(&tree), false).unwrap_err())
    };
    for errno in [Errno::ACCESS, Errno::PERM, Errno::ROFS] {
        let text = refused(errno, Some("xdma"));
        assert!(text.contains("driver_override: ") && text.contains("run as root"), "{text}");
    }
    let text = refused(Errno::IO, None);
    assert!(text.contains("(dmesg)") && text.contains("it has no driver, as before"), "{text}");

    let dir = tempfile::tempdir().unwrap();
    let gone = tree(dir.path(), Some("xdma"));
    let kernel = FakeKernel::new(&gone, CARD).at(1, Event::Before(ConcurrentAction::Removes));
    let text = bind_with(&gone.roots(), &kernel, &card(&gone), false).unwrap_err().to_string();
    assert!(
        text.contains("gone from the bus") && text.contains("the earlier driver cannot be restored"),
        "{text}"
    );

    // vfio-pci refuses it, and its own driver is unloaded meanwhile.
    let dir = tempfile::tempdir().unwrap();
    let stranded = tree(dir.path(), Some("xdma"));
    let kernel = FakeKernel::new(&stranded, CARD).at(2, Event::Fails(Errno::INVAL));
    let kernel = kernel.at(1, Event::After(ConcurrentAction::Unloads("xdma")));
    let error = bind_with(&stranded.roots(), &kernel, &card(&stranded), false).unwrap_err();
    let BindError::Failed { outcome: outcome @ Outcome::NotRestored { .. }, .. } = &error else {
        panic!("{error}")
    };
    let text = outcome.to_string();
    for part in ["returning it to xdma failed too", "driver xdma is not loaded", "its driver is now none"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A driver link that becomes unreadable during the operation.
#[test]
fn bind_unreadable_driver_link_is_failed_step() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path(), Some("xdma"));
    let path = format!("sys/bus/pci/devices/{CARD}/driver_override");
    tree.remove(&path).unwrap();
    std::fs::create_dir(dir.path().join(&path)).unwrap();
    let kernel = FakeKernel::new(&tree, CARD);
    let error = bind_with(&tree.roots(), &kernel, &card(&tree), false).unwrap_err();
    let BindError::Failed { failure: Failure::Host(host), .. } = &error else { panic!("{error}") };
    assert!(host.to_string().contains("driver_override cannot be read"), "{error}");
    assert_eq!((kernel.writes(), kernel.driver().as_deref()), (0, Some("xdma")));
}

#[test]
fn release_unusable_record_is_named_and_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path(), Some("vfio-pci"));
    let kernel = FakeKernel::new(&tree, CARD);
    let release = || release_with(&tree.roots(), &kernel, &card(&tree)).unwrap_err();
    let path = "run/fpga/bound/0000:65:00-0";
    tree.file(path, "driver=../../xdma\noverride=\n").unwrap();
    let error = release();
    assert!(matches!(error, BindError::Record(RecordError::Damaged { .. })), "{error}");
    assert!(shown(&error).contains("remove it: the kernel then chooses"), "{error}");
    tree.remove(path).unwrap();
    std::fs::create_dir(dir.path().join(path)).unwrap();
    let error = release();
    assert!(matches!(error, BindError::Record(RecordError::Host(_))), "{error}");
    // Another process binds at the same time.
    let records = Records::lock(&tree.roots()).unwrap();
    let error = release();
    assert!(matches!(error, BindError::Record(RecordError::Locked { .. })), "{error}");
    assert!(shown(&error).contains("try again"), "{error}");
    drop(records);
    assert_eq!((kernel.writes(), kernel.driver().as_deref()), (0, Some("vfio-pci")));
}

#[test]
fn bind_group_member_without_driver_or_unreadable_group_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path(), None);
    tree.file(&format!("sys/bus/pci/devices/{CARD}/device"), "0x0001\n").unwrap();
    let kernel = FakeKernel::new(&tree, CARD);
    let error = shown(&bind_with(&tree.roots(), &kernel, &card(&tree), false).unwrap_err());
    assert!(
        error.contains("with ids 10ee:0001, which are not ids of known XDMA designs")
            && error.contains("force the binding"),
        "{error}"
    );
    tree.remove("sys/kernel/iommu_groups/14/devices").unwrap();
    tree.file("sys/kernel/iommu_groups/14/devices", "no directory").unwrap();
    let error = bind_with(&tree.roots(), &kernel, &card(&tree), true).unwrap_err();
    assert!(matches!(error, BindError::Host(HostError::Unreadable { .. })), "{error}");
    assert_eq!(kernel.writes(), 0);
}
