use super::*;
use crate::vfio::VfioTransport;
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

const ADDRESS: &str = "0000:65:00.0";

/// A directory with what the kernel would show of one device.
struct Fake {
    directory: TempDir,
}

impl Fake {
    fn new() -> Self {
        let fake = Self { directory: tempfile::tempdir().unwrap() };
        fs::create_dir_all(fake.device()).unwrap();
        fs::create_dir_all(fake.directory.path().join("dev")).unwrap();
        fake
    }

    fn device(&self) -> PathBuf {
        self.directory.path().join("sys/bus/pci/devices").join(ADDRESS)
    }

    fn driver(self, name: &str) -> Self {
        symlink(Path::new("../../../../bus/pci/drivers").join(name), self.device().join("driver")).unwrap();
        self
    }

    fn group(self, number: &str) -> Self {
        symlink(Path::new("../../../kernel/iommu_groups").join(number), self.device().join("iommu_group"))
            .unwrap();
        self
    }

    fn roots(&self) -> VfioRoots {
        VfioRoots { sysfs: self.directory.path().join("sys"), dev: self.directory.path().join("dev") }
    }

    fn open(&self, address: &str) -> VfioOpenError {
        VfioTransport::open_at(address, &self.roots()).unwrap_err()
    }
}

#[test]
fn text_that_is_no_address() {
    let error = Fake::new().open("65-00-0");
    assert!(matches!(error, VfioOpenError::BadAddress(_)));
    assert!(error.to_string().contains("0000:65:00.0"), "{error}");
}

#[test]
fn a_device_that_is_not_there() {
    let error = Fake::new().open("0000:66:00.0");
    assert!(matches!(error, VfioOpenError::NotPresent { .. }));
    assert!(error.to_string().contains("lspci"), "{error}");
}

#[test]
fn a_device_with_another_driver() {
    let error = Fake::new().driver("xdma").group("7").open(ADDRESS);
    assert!(matches!(&error, VfioOpenError::WrongDriver { driver: Some(name), .. } if name == "xdma"));
    assert!(
        error.to_string().contains("bound to xdma") && error.to_string().contains("driver_override"),
        "{error}"
    );
}

#[test]
fn a_device_without_a_driver() {
    let error = Fake::new().group("7").open(ADDRESS);
    assert!(matches!(error, VfioOpenError::WrongDriver { driver: None, .. }));
    assert!(error.to_string().contains("no driver"), "{error}");
}

#[test]
fn a_device_without_a_group() {
    for fake in [Fake::new().driver("vfio-pci"), Fake::new().driver("vfio-pci").group("seven")] {
        let error = fake.open(ADDRESS);
        assert!(matches!(error, VfioOpenError::NoIommuGroup { .. }));
        assert!(error.to_string().contains("intel_iommu=on"), "{error}");
    }
}

#[test]
fn a_system_without_vfio() {
    let error = Fake::new().driver("vfio-pci").group("7").open(ADDRESS);
    assert!(matches!(&error, VfioOpenError::NoVfio { path } if path.ends_with("dev/vfio/vfio")));
    assert!(error.to_string().contains("modprobe vfio-pci"), "{error}");
}

#[test]
fn failures_inside_vfio_say_what_to_do() {
    let address = ADDRESS.parse().unwrap();
    let roots = VfioRoots::default();
    let denied = || std::io::Error::from_raw_os_error(13);
    let error = explain(address, 7, &roots, VfioError::OpenGroup(denied(), "7".to_owned()));
    assert!(
        matches!(&error, VfioOpenError::NoPermission { path, source } if path.ends_with("vfio/7") && source.raw() == 13)
    );
    let error = explain(address, 7, &roots, VfioError::OpenContainer(denied()));
    assert!(error.to_string().starts_with("/dev/vfio/vfio cannot be opened"), "{error}");
    let error = explain(address, 7, &roots, VfioError::GroupViable);
    assert!(matches!(error, VfioOpenError::GroupUnusable { group: 7, .. }));
    let error = explain(address, 7, &roots, VfioError::VfioApiVersion);
    assert!(error.source().is_some());
}

/// On a machine whose kernel offers no vfio, the very call that users make fails with an error, not otherwise.
#[test]
fn the_real_system_answers_too() {
    if !Path::new("/dev/vfio/vfio").exists() {
        assert!(VfioTransport::open("ffff:ff:1f.7").is_err());
    }
}
