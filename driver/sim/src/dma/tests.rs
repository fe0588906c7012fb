//! Comparison of the map with a simple reference: every address is searched in a list of all mappings, byte by byte.

use super::*;
use fpga_pci::HugePages;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags};

mod client;
mod remote;

/// Base of the mappings: a few pages, so that they touch.
const BASE: u64 = 0x10_0000;
const PAGES: u64 = 12;

fn memory(pages: u64) -> SharedMemory {
    SharedMemory::anonymous(usize::try_from(pages * PAGE).unwrap(), HugePages::No).unwrap()
}

/// Creates a file as a client has it.
fn file(pages: u64, sealed: bool) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("a client's memory", flags).unwrap();
    rustix::fs::ftruncate(&file, pages * PAGE).unwrap();
    if sealed {
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    }
    file
}

fn zero(file: &OwnedFd, offset: u64, length: u64) {
    let zeros = vec![0; usize::try_from(length).unwrap()];
    assert_eq!(rustix::io::pwrite(file, &zeros, offset), Ok(zeros.len()));
}

/// Expected state of the host side, without order or caches.
#[derive(Default)]
struct ReferenceMap(Vec<(u64, Vec<u8>, DmaAccess)>);

impl ReferenceMap {
    fn map(&mut self, start: u64, length: u64, access: DmaAccess) -> bool {
        let free =
            self.0.iter().all(|(at, bytes, _)| start + length <= *at || *at + bytes.len() as u64 <= start);
        if free {
            self.0.push((start, vec![0; usize::try_from(length).unwrap()], access));
        }
        free
    }

    fn unmap(&mut self, start: u64, length: u64) -> bool {
        let before = self.0.len();
        self.0.retain(|(at, bytes, _)| (*at, bytes.len() as u64) != (start, length));
        self.0.len() < before
    }

    /// Removes everything in a range, unless that would split a mapping.
    fn unmap_range(&mut self, start: u64, length: u64) -> Option<u64> {
        let inside = |at: u64| (start..start + length).contains(&at);
        let ends = |at: u64, bytes: &[u8]| (inside(at), inside(at + bytes.len() as u64 - 1));
        let around = |at: u64, bytes: &[u8]| at < start && start < at + bytes.len() as u64;
        if self.0.iter().any(|(at, bytes, _)| ends(*at, bytes).0 != ends(*at, bytes).1 || around(*at, bytes))
        {
            return None;
        }
        let before = self.mapped();
        self.0.retain(|(at, _, _)| !inside(*at));
        Some(before - self.mapped())
    }

    fn mapped(&self) -> u64 {
        self.0.iter().map(|(_, bytes, _)| bytes.len() as u64).sum()
    }

    fn byte(&mut self, at: u64, write: bool) -> Option<&mut u8> {
        self.0.iter_mut().find_map(|(start, bytes, access)| {
            let allowed = if write { access.device_writes() } else { access.device_reads() };
            let offset = usize::try_from(at.checked_sub(*start)?).unwrap();
            bytes.get_mut(offset).filter(|_| allowed)
        })
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), DmaFault> {
        for (address, byte) in (at..).zip(into) {
            *byte = *self.byte(address, false).ok_or(DmaFault { at: Iova::new(address), write: false })?;
        }
        Ok(())
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), DmaFault> {
        for (address, byte) in (at..).zip(from) {
            *self.byte(address, true).ok_or(DmaFault { at: Iova::new(address), write: true })? = *byte;
        }
        Ok(())
    }
}

/// Memory of a mapping. All client files are the same two, so that mappings are parts of something larger; all memory without a file
/// belongs to one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MappingKind {
    Process,
    Sealed,
    Unsealed,
    Remote,
}

#[derive(Clone, Debug)]
enum Call {
    Map {
        page: u64,
        pages: u64,
        access: DmaAccess,
        of: MappingKind,
    },
    UnmapRange {
        page: u64,
        pages: u64,
    },
    Unmap {
        page: u64,
        pages: u64,
    },
    UnmapAll,
    Read {
        at: u64,
        length: usize,
    },
    Write {
        at: u64,
        length: usize,
    },
    /// Many accesses in one call, cached or not.
    Parts {
        parts: Vec<(u64, usize)>,
        write: bool,
        streams: bool,
    },
}

/// Makes the tracker assume that all destinations differ, or that all are the same.
fn settle(reuse: &mut ReuseTracker, streams: bool) {
    let last = std::iter::once((0, usize::MAX));
    let before = if streams { 0 } else { 7 };
    // Ends the span that was begun.
    reuse.note(last.clone());
    assert_eq!(reuse.note(std::iter::repeat_n((0, 0), before).chain(last)), streams);
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let access =
        prop_oneof![Just(DmaAccess::Both), Just(DmaAccess::ReadByDevice), Just(DmaAccess::WriteByDevice)];
    let of = prop_oneof![
        Just(MappingKind::Process),
        Just(MappingKind::Sealed),
        Just(MappingKind::Unsealed),
        Just(MappingKind::Remote)
    ];
    let page = 0..PAGES;
    // Starts close to page boundaries are the critical ones.
    let at = (0..=PAGES, prop_oneof![0..PAGE, PAGE - 70..PAGE, Just(0)])
        .prop_map(|(page, offset)| BASE - PAGE + page * PAGE + offset);
    let length = prop_oneof![3 => 0..200_usize, 1 => Just(4), 1 => 0..3 * 4096_usize];
    let call = prop_oneof![
        6 => (page.clone(), 1..4_u64, access, of).prop_map(|(page, pages, access, of)| Call::Map { page, pages, access, of }),
        1 => (page.clone(), 1..6_u64).prop_map(|(page, pages)| Call::UnmapRange { page, pages }),
        2 => (page, 1..4_u64).prop_map(|(page, pages)| Call::Unmap { page, pages }),
        1 => Just(Call::UnmapAll),
        12 => (at.clone(), length.clone()).prop_map(|(at, length)| Call::Read { at, length }),
        12 => (at.clone(), length.clone()).prop_map(|(at, length)| Call::Write { at, length }),
        12 => (prop::collection::vec((at, length), 0..6), any::<bool>(), prop::bool::weighted(0.8))
            .prop_map(|(parts, write, streams)| Call::Parts { parts, write, streams }),
    ];
    prop::collection::vec(call, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn dma_map_random_calls_match_reference(calls in calls()) {
        let mut map = DmaMap::default();
        let mut obvious = ReferenceMap::default();
        let (sealed, unsealed) = (file(PAGES + 4, true), file(PAGES + 4, false));
        let remote = remote::RemoteOwner::new(BASE, PAGES + 4);
        let mut refused = RefusedAccesses::default();
        for (number, call) in calls.into_iter().enumerate() {
            match call {
                Call::Map { page, pages, access, of } => {
                    let (iova, length) = (Iova::new(BASE + page * PAGE), pages * PAGE);
                    // No two mappings share a page of a file, so the reference map needs no files.
                    let client = |file: &OwnedFd| ClientMemory::File(file.try_clone().unwrap(), page * PAGE);
                    let done = match of {
                        MappingKind::Process => map.map(iova, &memory(pages), access).map_err(ClientMapError::from),
                        MappingKind::Sealed => map.map_client(iova, length, client(&sealed), access),
                        MappingKind::Unsealed => map.map_client(iova, length, client(&unsealed), access),
                        MappingKind::Remote => map.map_client(iova, length, ClientMemory::Remote(remote.clone()), access),
                    };
                    if obvious.map(iova.get(), length, access) {
                        prop_assert_eq!(done, Ok(()));
                        if of != MappingKind::Process {
                            // A file keeps data written through an earlier mapping.
                            zero(&sealed, page * PAGE, length);
                            zero(&unsealed, page * PAGE, length);
                            remote.zero(iova.get(), length);
                        }
                    } else {
                        prop_assert_eq!(done, Err(DmaMapError::Overlap { iova, length }.into()));
                    }
                }
                Call::UnmapRange { page, pages } => {
                    let (iova, length) = (Iova::new(BASE + page * PAGE), pages * PAGE);
                    let expected = obvious.unmap_range(iova.get(), length);
                    let refusal = DmaMapError::NotMapped { iova, length };
                    prop_assert_eq!(map.unmap_range(iova, length), expected.ok_or(refusal));
                }
                Call::Unmap { page, pages } => {
                    let (iova, length) = (Iova::new(BASE + page * PAGE), pages * PAGE);
                    if obvious.unmap(iova.get(), length) {
                        prop_assert_eq!(map.unmap(iova, length), Ok(()));
                    } else {
                        prop_assert_eq!(map.unmap(iova, length), Err(DmaMapError::NotMapped { iova, length }));
                    }
                }
                Call::UnmapAll => {
                    map.unmap_all();
                    obvious.0.clear();
                }
                Call::Read { at, length } => {
                    let (mut got, mut expected) = (vec![0; length], vec![0; length]);
                    let result = map.read(Iova::new(at), &mut got);
                    prop_assert_eq!(result, obvious.read(at, &mut expected));
                    refused.reads += u64::from(result.is_err());
                    if result.is_ok() {
                        prop_assert!(got == expected);
                    }
                }
                Call::Write { at, length } => {
                    let bytes = vec![number.to_le_bytes()[0] | 1; length];
                    let result = map.write(Iova::new(at), &bytes);
                    prop_assert_eq!(result, obvious.write(at, &bytes));
                    refused.writes += u64::from(result.is_err());
                }
                Call::Parts { parts, write, streams } => {
                    settle(&mut map.into_card, streams);
                    settle(&mut map.into_host, streams);
                    let mut offset = 0;
                    let parts: Vec<DmaPart> = parts
                        .into_iter()
                        .map(|(at, length)| {
                            offset += length;
                            DmaPart { at: Iova::new(at), offset: offset - length, length }
                        })
                        .collect();
                    let mut got: Vec<u8> = (0..offset).map(|at| (at + number).to_le_bytes()[0]).collect();
                    let mut expected = got.clone();
                    let result = if write {
                        map.write_parts(&parts, &got)
                    } else {
                        map.read_parts(&parts, &mut got)
                    };
                    let each = parts.iter().enumerate().try_for_each(|(index, part)| {
                        let bytes = &mut expected[part.range()];
                        let done = if write {
                            obvious.write(part.at.get(), bytes)
                        } else {
                            obvious.read(part.at.get(), bytes)
                        };
                        done.map_err(|fault| (index, fault))
                    });
                    prop_assert_eq!(result, each);
                    *(if write { &mut refused.writes } else { &mut refused.reads }) += u64::from(result.is_err());
                    // Bytes that a refused read filled before the fault are unspecified.
                    let whole = result.map_or_else(|(index, _)| parts[index].offset, |()| offset);
                    prop_assert!(got[..whole] == expected[..whole]);
                }
            }
            prop_assert_eq!(map.mapped_bytes(), obvious.mapped());
            prop_assert_eq!(map.sizes().0, obvious.0.len());
            prop_assert_eq!(map.refused(), refused);
        }
        // Everything that can be read at the end is the data that was written.
        for (start, bytes, access) in obvious.0 {
            if access.device_reads() {
                let mut got = vec![0; bytes.len()];
                prop_assert_eq!(map.read(Iova::new(start), &mut got), Ok(()));
                prop_assert!(got == bytes);
            }
        }
    }
}

#[test]
fn dma_map_unmapped_range_is_gone_despite_cache() {
    let mut map = DmaMap::default();
    let at = Iova::new(BASE);
    map.map(at, &memory(1), DmaAccess::Both).unwrap();
    map.map(Iova::new(BASE + PAGE), &memory(1), DmaAccess::Both).unwrap();
    let mut bytes = [0; 64];
    for _ in 0..2 {
        map.read(at, &mut bytes).unwrap();
        map.write(at, &bytes).unwrap();
    }
    map.unmap(at, PAGE).unwrap();
    assert_eq!(map.read(at, &mut bytes), Err(DmaFault { at, write: false }));
    assert_eq!(map.write(at, &bytes), Err(DmaFault { at, write: true }));
    assert_eq!(map.read(Iova::new(BASE + PAGE), &mut bytes), Ok(()));
}

#[test]
fn dma_map_read_only_range_is_not_written_despite_cache() {
    let mut map = DmaMap::default();
    let at = Iova::new(BASE);
    map.map(at, &memory(1), DmaAccess::ReadByDevice).unwrap();
    let mut bytes = [1; 64];
    map.read(at, &mut bytes).unwrap();
    assert_eq!(map.write(at, &[1; 64]), Err(DmaFault { at, write: true }));
    map.read(at, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 64]);
}
