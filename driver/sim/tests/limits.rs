//! A client's files and the limits of this process. The limits apply to the whole process, so this is a program of its own with one test.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use fpga_card::{DmaFault, DmaSpace};
use fpga_pci::DmaAccess;
use fpga_registers::Iova;
use fpga_sim::served::Listener;
use fpga_sim::{ClientMapError, ClientMemory, DmaMap, FileError};
use rustix::fs::{MemfdFlags, SealFlags, ftruncate, memfd_create};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

const PAGE: u64 = 4096;
/// Larger than this test's output, which is subject to the limit, too.
const LIMIT: u64 = 64 << 20;
const BASE: u64 = 0x10_0000;

fn file(bytes: u64, sealed: bool) -> OwnedFd {
    let file = memfd_create("client", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    if sealed {
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    }
    file
}

fn limited<T>(resource: Resource, current: u64, act: impl FnOnce() -> T) -> T {
    let before = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(current), maximum: before.maximum }).unwrap();
    let done = act();
    setrlimit(resource, before).unwrap();
    done
}

/// Returns the number of bytes that a write of the card changes in a client's file that ends at twice the file size limit.
fn write_across_size_limit() {
    let client = file(2 * LIMIT, false);
    let mut map = DmaMap::default();
    let memory = ClientMemory::File(client.try_clone().unwrap(), 0);
    map.map_client(Iova::new(BASE), 2 * LIMIT, memory, DmaAccess::Both).unwrap();
    let at = |offset: u64| Iova::new(BASE + offset);
    limited(Resource::Fsize, LIMIT, || {
        map.write(at(LIMIT - 4096), &[1; 4096]).unwrap();
        let across = map.write(at(LIMIT - 100), &[2; 200]);
        assert_eq!(across, Err(DmaFault { at: at(LIMIT), write: true }));
        assert_eq!(map.write(at(LIMIT), &[3]), Err(DmaFault { at: at(LIMIT), write: true }));
        map.read(at(LIMIT), &mut [0; 64]).unwrap();
    });
    map.write(at(LIMIT), &[3]).unwrap();
    // The client makes its file shorter while it is mapped.
    ftruncate(&client, PAGE).unwrap();
    assert_eq!(map.write(at(PAGE), &[4]), Err(DmaFault { at: at(PAGE), write: true }));
    assert_eq!(map.read(at(LIMIT), &mut [0]), Err(DmaFault { at: at(LIMIT), write: false }));
    map.write(at(0), &[5]).unwrap();
}

/// Maps files until no more are accepted: the process keeps half of its descriptors.
fn map_many_files() {
    const OPEN: u64 = 64;
    let mut map = DmaMap::default();
    limited(Resource::Nofile, OPEN, || {
        let mut mapped = 0;
        let refused = loop {
            // Sealed or not, each file holds a descriptor.
            let memory = ClientMemory::File(file(PAGE, mapped % 2 == 0), 0);
            match map.map_client(Iova::new(mapped * PAGE), PAGE, memory, DmaAccess::Both) {
                Ok(()) => mapped += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused, ClientMapError::File(FileError::TooManyOpen { limit: 32 }));
        assert_eq!(mapped, 32);
        // Any number of parts of a file that is mapped already.
        map.unmap_range(Iova::new(0), PAGE).unwrap();
        let shared = file(2 * PAGE, true);
        for page in 0..2 {
            let memory = ClientMemory::File(shared.try_clone().unwrap(), page * PAGE);
            map.map_client(Iova::new((100 + page) * PAGE), PAGE, memory, DmaAccess::Both).unwrap();
        }
    });
}

/// A client connects when there is no free descriptor for it: it is not lost, and the listener reports the error.
fn accept_without_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::bind(&folder.path().join("card")).unwrap();
    assert!(matches!(listener.accept(), Ok(None)));
    let next = u64::try_from(file(0, false).as_raw_fd()).unwrap();
    // One more descriptor, which the client uses.
    let client = limited(Resource::Nofile, next + 1, || {
        let client = UnixStream::connect(listener.path()).unwrap();
        let error = listener.accept().unwrap_err();
        assert_eq!(error.raw(), rustix::io::Errno::MFILE.raw_os_error());
        client
    });
    assert!(matches!(listener.accept(), Ok(Some(_))));
    drop(client);
}

#[test]
fn client_files_stay_within_process_limits() {
    write_across_size_limit();
    map_many_files();
    accept_without_descriptors();
}
