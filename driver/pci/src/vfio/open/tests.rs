use std::os::unix::fs::symlink;

use rustix::io::Errno;

use crate::vfio::fake::{ADDRESS, Call, Fake, GROUP};
use crate::vfio::kernel::Request;
use crate::vfio::{VfToken, VfioBackend, VfioInterface, VfioOpenError, VfioOptions};

const BOTH: [VfioInterface; 2] = [VfioInterface::Group, VfioInterface::Iommufd];

fn refused(fake: &std::sync::Arc<Fake>, interface: VfioInterface) -> VfioOpenError {
    let error = fake.open(fake.options().interface(interface)).map(drop).unwrap_err();
    assert_eq!(fake.open_files(), 0, "everything closed after {error}");
    error
}

/// An error with its advice.
fn shown(error: &VfioOpenError) -> String {
    format!("{error}; {}", error.help().unwrap_or_default())
}

#[test]
fn open_invalid_address_is_refused() {
    let error = VfioBackend::open_with("65-00-0", VfioOptions::default()).unwrap_err();
    assert!(matches!(error, VfioOpenError::BadAddress(_)));
    assert!(shown(&error).contains("0000:65:00.0"), "{error}");
}

#[test]
fn open_missing_device_is_refused() {
    let fake = Fake::new();
    let error = VfioBackend::open_with("0000:66:00.0", fake.options()).unwrap_err();
    assert!(matches!(error, VfioOpenError::NotPresent { .. }));
    assert!(shown(&error).contains("lspci"), "{error}");
}

#[test]
fn open_device_with_other_or_no_driver_is_refused() {
    for (driver, named) in [(Some("xdma"), "bound to xdma"), (None, "bound to no driver")] {
        let fake = Fake::new();
        std::fs::remove_file(fake.sysfs(ADDRESS).join("driver")).unwrap();
        std::fs::remove_dir_all(fake.sysfs(ADDRESS).join("vfio-dev")).unwrap();
        if let Some(driver) = driver {
            symlink(format!("../drivers/{driver}"), fake.sysfs(ADDRESS).join("driver")).unwrap();
        }
        let error = refused(&fake, VfioInterface::Auto);
        assert!(matches!(error, VfioOpenError::WrongDriver { .. }));
        let text = shown(&error);
        assert!(text.contains(named) && text.contains("driver_override"), "{text}");
    }
}

/// Bound or not: without an IOMMU vfio-pci's probe fails, so the advice to bind the device would be wrong.
#[test]
fn open_device_without_group_is_refused() {
    for (bound, target, others) in
        [(true, None, false), (false, None, false), (true, Some("seven"), true), (false, None, true)]
    {
        let fake = Fake::new();
        std::fs::remove_file(fake.sysfs(ADDRESS).join("iommu_group")).unwrap();
        if let Some(target) = target {
            symlink(target, fake.sysfs(ADDRESS).join("iommu_group")).unwrap();
        }
        if !bound {
            std::fs::remove_file(fake.sysfs(ADDRESS).join("driver")).unwrap();
            std::fs::remove_dir_all(fake.sysfs(ADDRESS).join("vfio-dev")).unwrap();
        }
        if !others {
            std::fs::remove_dir_all(fake.iommu_group(GROUP)).unwrap();
        }
        let error = refused(&fake, VfioInterface::Auto);
        assert!(
            matches!(error, VfioOpenError::NoIommuGroup { others: found, .. } if found == others),
            "{error}"
        );
        let text = shown(&error);
        let parts = if others { ["IOMMU", "another slot"] } else { ["VT-d", "intel_iommu=on"] };
        for part in parts {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.contains("does not cover it"), others, "{text}");
        assert!(!text.contains("driver_override"), "{text}");
    }
}

#[test]
fn open_device_without_iommu_is_refused() {
    let fake = Fake::new();
    std::fs::write(fake.iommu_group(GROUP).join("name"), "vfio-noiommu\n").unwrap();
    for interface in [VfioInterface::Auto, VfioInterface::Group, VfioInterface::Iommufd] {
        let error = refused(&fake, interface);
        assert!(matches!(error, VfioOpenError::NoIommuMode { group: GROUP, .. }), "{error}");
        let text = shown(&error);
        for part in ["no-IOMMU mode", "any memory", "enable the IOMMU", "enable_unsafe_noiommu_mode"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    // Groups of devices behind an IOMMU may have names, too.
    std::fs::write(fake.iommu_group(GROUP).join("name"), "platform\n").unwrap();
    drop(fake.open(fake.options()).unwrap());
}

#[test]
fn open_without_vfio_interface_is_refused() {
    for (missing, interface, named) in [
        ("vfio/vfio", VfioInterface::Group, "modprobe vfio-pci"),
        ("vfio/7", VfioInterface::Group, "devtmpfs"),
        ("iommu", VfioInterface::Iommufd, "modprobe iommufd"),
    ] {
        let fake = Fake::new();
        std::fs::remove_file(fake.dev(missing)).unwrap();
        let error = refused(&fake, interface);
        assert!(matches!(&error, VfioOpenError::NoVfio { path, .. } if *path == fake.dev(missing)));
        assert!(shown(&error).contains(named), "{error}");
    }
    let fake = Fake::new();
    std::fs::remove_dir_all(fake.sysfs(ADDRESS).join("vfio-dev")).unwrap();
    let error = refused(&fake, VfioInterface::Iommufd);
    assert!(shown(&error).contains("VFIO_DEVICE_CDEV"), "{error}");
}

#[test]
fn open_prefers_iommufd_where_it_works() {
    let fake = Fake::new();
    assert_eq!(fake.open(fake.options()).unwrap().interface(), VfioInterface::Iommufd);
    // Directory of an older kernel, or of one without the module.
    std::fs::remove_file(fake.dev("iommu")).unwrap();
    assert_eq!(fake.open(fake.options()).unwrap().interface(), VfioInterface::Group);
    let fake = Fake::new();
    fake.fail(Call::Open("iommu"), Errno::ACCESS);
    assert_eq!(
        fake.open(fake.options()).unwrap().interface(),
        VfioInterface::Group,
        "permission for the group only"
    );
    assert!(matches!(refused(&fake, VfioInterface::Iommufd), VfioOpenError::NoPermission { .. }));
    fake.fail(Call::Open("vfio/7"), Errno::ACCESS);
    let error = refused(&fake, VfioInterface::Auto);
    assert!(error.to_string().contains("/iommu cannot be opened"), "{error}");
}

/// Failing step with its error, and the expected part of the error's text.
type Row = (Call, Errno, &'static str);

#[test]
fn open_every_failing_step_reports_and_closes() {
    use Request as R;
    let group: [Row; 13] = [
        (Call::Open("vfio/7"), Errno::ACCESS, "udev rule"),
        (Call::Open("vfio/7"), Errno::BUSY, "is in use"),
        (Call::Open("vfio/7"), Errno::MFILE, "ulimit -n"),
        (Call::Container, Errno::PERM, "vfio/vfio cannot be opened"),
        (Call::Container, Errno::NODEV, "opening a container"),
        (Call::Request(R::GroupStatus), Errno::IO, "does not report the IOMMU group"),
        (Call::Request(R::GroupSetContainer), Errno::BUSY, "is in use"),
        (Call::Request(R::SetIommu), Errno::PERM, "allow_unsafe_interrupts=1 of module vfio_iommu_type1"),
        (Call::Request(R::SetIommu), Errno::NODEV, "giving the container its IOMMU"),
        (Call::Request(R::GroupDevice), Errno::NODEV, "opening the device in its group"),
        (Call::Request(R::GroupDevice), Errno::BUSY, "is in use"),
        (Call::Request(R::GroupDevice), Errno::ACCESS, "the VF token is missing"),
        (Call::Request(R::IommuInfo), Errno::INVAL, "does not report its IOMMU"),
    ];
    let iommufd: [Row; 11] = [
        (Call::Open("iommu"), Errno::ACCESS, "udev rule"),
        (Call::Open("vfio/devices/vfio3"), Errno::ACCESS, "vfio3 cannot be opened"),
        (Call::Open("vfio/devices/vfio3"), Errno::NODEV, "opening its files"),
        (Call::Request(R::BindIommufd), Errno::BUSY, "is in use"),
        (Call::Request(R::BindIommufd), Errno::INVAL, "is in use"),
        (Call::Request(R::BindIommufd), Errno::ACCESS, "the VF token is missing"),
        (Call::Request(R::BindIommufd), Errno::NOMEM, "binding the device"),
        (Call::Request(R::IoasAlloc), Errno::NOMEM, "making an address space"),
        (Call::Request(R::AttachIoas), Errno::PERM, "allow_unsafe_interrupts=1 of module iommufd"),
        (Call::Request(R::AttachIoas), Errno::NODEV, "attaching the device"),
        (Call::Request(R::IoasRanges), Errno::NOENT, "does not report its IOMMU"),
    ];
    let both: [Row; 4] = [
        (Call::Request(R::RegionInfo), Errno::IO, "does not report a region"),
        (Call::Request(R::IrqInfo), Errno::IO, "does not report its interrupts"),
        (Call::Request(R::DeviceInfo), Errno::NODEV, "does not report its properties"),
        (Call::Request(R::DeviceInfo), Errno::IO, "does not report its properties"),
    ];
    let rows = group.map(|row| (VfioInterface::Group, row)).into_iter();
    let rows = rows.chain(iommufd.map(|row| (VfioInterface::Iommufd, row)));
    let rows = rows.chain(BOTH.into_iter().flat_map(|interface| both.clone().map(|row| (interface, row))));
    for (interface, (call, errno, part)) in rows {
        let fake = Fake::new();
        fake.fail(call.clone(), errno);
        let error = refused(&fake, interface);
        assert!(shown(&error).contains(part), "{interface} {call:?} {errno:?}: {error}");
        assert!(
            error.to_string().contains(ADDRESS) || matches!(error, VfioOpenError::NoPermission { .. }),
            "{error}"
        );
        // A failed attempt has no lasting effect: the next one succeeds.
        fake.state().failures.clear();
        drop(fake.open(fake.options().interface(interface)).unwrap());
        assert_eq!(fake.open_files(), 0);
    }
}

#[test]
fn open_group_not_viable_names_members() {
    let fake = Fake::new();
    fake.add_function("0000:65:00.1", "snd_hda_intel", GROUP);
    fake.add_function("0000:64:00.0", "pcieport", GROUP);
    fake.add_function("0000:65:00.2", "", GROUP);
    fake.state().viable = false;
    fake.fail(Call::Request(Request::BindIommufd), Errno::BUSY);
    for interface in BOTH {
        let error = refused(&fake, interface);
        let VfioOpenError::GroupNotViable { others, .. } = &error else { panic!("{error}") };
        assert_eq!(others.len(), 1);
        assert!(error.to_string().contains("0000:65:00.1 (snd_hda_intel)"), "{error}");
    }
}

#[test]
fn open_busy_device_names_holder() {
    let fake = Fake::new();
    let holder = std::fs::File::open(fake.dev("vfio/7")).unwrap();
    fake.fail(Call::Open("vfio/7"), Errno::BUSY);
    let error = refused(&fake, VfioInterface::Group);
    let VfioOpenError::Busy { holders, .. } = &error else { panic!("{error}") };
    assert_eq!(holders.iter().map(|holder| holder.process).collect::<Vec<_>>(), [std::process::id()]);
    assert!(error.to_string().contains("(this program)"), "{error}");
    drop(holder);
    let error = refused(&fake, VfioInterface::Group);
    assert!(error.to_string().contains("may not see"), "{error}");
}

#[test]
fn open_vf_token_is_passed_and_refusal_reported() {
    let token: VfToken = "14d63f20-8445-11ea-8900-1f9ce7d5650d".parse().unwrap();
    let fake = Fake::new();
    drop(fake.open(fake.options().interface(VfioInterface::Group).vf_token(token)).unwrap());
    assert_eq!(fake.state().device_name, format!("{ADDRESS} vf_token={token}\0"));
    drop(fake.open(fake.options().interface(VfioInterface::Group)).unwrap());
    assert_eq!(fake.state().device_name, format!("{ADDRESS}\0"));
    drop(fake.open(fake.options().interface(VfioInterface::Iommufd).vf_token(token)).unwrap());
    assert_eq!(fake.state().bind_flags, 1);
    // A kernel before 6.18: the group interface supports tokens.
    fake.fail(Call::Request(Request::BindIommufd), Errno::INVAL);
    let backend = fake.open(fake.options().vf_token(token)).unwrap();
    assert_eq!(backend.interface(), VfioInterface::Group);
    drop(backend);
    fake.fail(Call::Request(Request::GroupDevice), Errno::ACCESS);
    let error = fake.open(fake.options().vf_token(token)).unwrap_err();
    assert!(error.to_string().contains("the VF token is refused"), "{error}");
    assert_eq!(fake.open_files(), 0);
}

/// On a machine without VFIO, the public function fails with an error and not by a panic.
#[test]
fn open_real_system_reports_error() {
    if !std::path::Path::new("/dev/vfio/vfio").exists() {
        assert!(VfioBackend::open_with("ffff:ff:1f.7", VfioOptions::default()).is_err());
    }
}
