use super::*;
use crate::config::ConfigSpace;
use rustix::fs::MemfdFlags;

/// A file in the place of a device: configuration space of 256 bytes, 4 KiB into it.
fn device() -> DeviceFile {
    let file = rustix::fs::memfd_create("device", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 4096 + 256).unwrap();
    rustix::io::pwrite(&file, &[0xEE, 0x10, 0x38, 0x90], 4096).unwrap();
    DeviceFile { file: Arc::new(file), config_offset: 4096, config_size: 256, generation: AtomicU64::new(0) }
}

#[test]
fn configuration_space_is_read_at_its_place_and_ends() {
    let device = device();
    assert_eq!(config::identity(&device), Ok((0x10EE, 0x9038)));
    let mut last = [0; 4];
    assert_eq!(device.read(252, &mut last), Ok(()));
    assert_eq!(device.read(253, &mut last), Err(ConfigError::OutOfRange { at: 253, length: 4, size: 256 }));
    assert!(device.read(u16::MAX, &mut last).is_err());
}

#[test]
fn failures_of_the_file_are_errors() {
    let device = device();
    rustix::fs::ftruncate(&*device.file, 4096).unwrap();
    let short = Err(ConfigError::Refused { at: 4, source: OsError::from_raw(0) });
    assert_eq!(device.read(4, &mut [0; 2]), short, "a short read is not taken for zeros");
    let far = DeviceFile { config_offset: u64::MAX, ..device };
    assert!(matches!(far.read(4, &mut [0; 2]), Err(ConfigError::Refused { .. })));
}

#[test]
fn presence_is_what_configuration_space_says() {
    let device = device();
    assert!(device.is_present());
    rustix::io::pwrite(&*device.file, &[0xFF; 4], 4096).unwrap();
    assert!(!device.is_present());
}

#[test]
fn the_clock_runs_forwards_and_is_shared() {
    let first = now();
    assert!(now() >= first);
}
