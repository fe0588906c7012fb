//! Client memory: files of every kind, mapped in parts.

use super::*;
use std::os::fd::AsRawFd;

/// Returns the number of descriptors and of mappings of the clients' files in this process.
fn held() -> (usize, usize) {
    let name = "a client's memory";
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_ours = |path: std::path::PathBuf| path.to_string_lossy().contains(name);
    let files =
        links.filter(|link| std::fs::read_link(link.as_ref().unwrap().path()).is_ok_and(is_ours)).count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (files, maps.lines().filter(|line| line.contains(name)).count())
}

#[test]
fn client_file_hundred_thousand_pages_use_one_mapping() {
    const COUNT: u64 = 100_000;
    let client = file(COUNT, true);
    let mut map = DmaMap::default();
    let before = held();
    for page in 0..COUNT {
        // Far apart and in scattered order: nothing can be merged.
        let iova = Iova::new((page * 7919 % COUNT) * 2 * PAGE);
        let memory = ClientMemory::File(client.try_clone().unwrap(), page * PAGE);
        map.map_client(iova, PAGE, memory, DmaAccess::Both).unwrap();
    }
    assert_eq!(map.sizes(), (100_000, 1));
    let during = held();
    assert!(during.1 <= before.1 + 1 + OTHERS && during.0 <= before.0 + 1 + OTHERS, "{before:?} {during:?}");
    for page in [0, 1, 4711, COUNT - 1] {
        let place = (page * 7919 % COUNT) * 2 * PAGE + 100;
        let (at, hole) = (Iova::new(place), Iova::new(place + PAGE));
        map.write(at, &page.to_le_bytes()).unwrap();
        let mut bytes = [0; 8];
        rustix::io::pread(&client, &mut bytes, page * PAGE + 100).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), page);
        assert_eq!(map.read(hole, &mut bytes), Err(DmaFault { at: hole, write: false }));
    }
    assert_eq!(map.unmap_range(Iova::ZERO, 1 << 47), Ok(COUNT * PAGE));
    assert_eq!((map.sizes(), map.mapped_bytes(), map.blocks.sizes()), ((0, 0), 0, (0, 0)));
}

/// Allowance for files of other tests that run at the same time: two in each.
const OTHERS: usize = 16;

#[test]
fn client_access_spans_files_and_stops_at_hole() {
    let files: Vec<_> = [true, false, true].into_iter().map(|sealed| file(2, sealed)).collect();
    let mut map = DmaMap::default();
    for (number, file) in files.iter().enumerate() {
        let iova = Iova::new(BASE + number as u64 * PAGE);
        map.map_client(iova, PAGE, ClientMemory::File(file.try_clone().unwrap(), PAGE), DmaAccess::Both)
            .unwrap();
    }
    let bytes: Vec<u8> = (0..2 * PAGE + 64).map(|n| n.to_le_bytes()[0]).collect();
    map.write(Iova::new(BASE + PAGE - 64), &bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    map.read(Iova::new(BASE + PAGE - 64), &mut back).unwrap();
    assert_eq!(back, bytes);
    let hole = Iova::new(BASE + 3 * PAGE);
    assert_eq!(map.write(Iova::new(hole.get() - 10), &[0; 20]), Err(DmaFault { at: hole, write: true }));
}

#[test]
fn client_file_truncated_refuses_access_and_does_not_grow() {
    let client = file(2, false);
    let mut map = DmaMap::default();
    let [at, next, end, page] = [0, 64, 100, PAGE].map(|offset| Iova::new(BASE + offset));
    map.map_client(at, 2 * PAGE, ClientMemory::File(client.try_clone().unwrap(), 0), DmaAccess::Both)
        .unwrap();
    map.write(at, &[7; 8192]).unwrap();
    rustix::fs::ftruncate(&client, 100).unwrap();
    let mut bytes = [0; 64];
    map.read(at, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 64]);
    assert_eq!(map.read(next, &mut bytes), Err(DmaFault { at: end, write: false }));
    assert_eq!(map.write(next, &bytes), Err(DmaFault { at: end, write: true }));
    assert_eq!(map.write(page, &bytes), Err(DmaFault { at: page, write: true }));
    assert_eq!(rustix::fs::fstat(&client).unwrap().st_size, 100);
    assert_eq!(map.refused(), RefusedAccesses { reads: 1, writes: 2 });
}

/// hugetlbfs has no write(2), and unsealed files are not mapped: the card reads such memory; its writes are refused and counted.
#[test]
fn client_unsealed_huge_page_file_is_read_only() {
    const HUGE: u64 = 2 << 20;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let client = match rustix::fs::memfd_create("huge pages of a client", flags) {
        Ok(client) => client,
        // The kernel has no huge pages.
        Err(error) => {
            return fpga_pci::testing::skipped(format_args!(
                "a file of huge pages cannot be created: {error}"
            ));
        }
    };
    rustix::fs::ftruncate(&client, HUGE).unwrap();
    let mut map = DmaMap::default();
    map.map_client(Iova::new(BASE), HUGE, ClientMemory::File(client, 0), DmaAccess::Both).unwrap();
    let at = Iova::new(BASE + 64);
    // A file with a hole needs no page of the reserve.
    let mut bytes = [7; 64];
    map.read(at, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 64]);
    assert_eq!(map.write(at, &[1; 64]), Err(DmaFault { at, write: true }));
    assert_eq!(map.refused(), RefusedAccesses { reads: 0, writes: 1 });
}

#[test]
fn client_sealed_file_grown_is_remapped() {
    let client = file(1, true);
    let mut map = DmaMap::default();
    let part = |page: u64| ClientMemory::File(client.try_clone().unwrap(), page * PAGE);
    map.map_client(Iova::new(BASE), PAGE, part(0), DmaAccess::Both).unwrap();
    let beyond = map.map_client(Iova::new(BASE + PAGE), PAGE, part(1), DmaAccess::Both);
    let short = FileError::TooShort { size: PAGE, offset: PAGE, length: PAGE };
    assert_eq!(beyond, Err(ClientMapError::File(short)));
    rustix::fs::ftruncate(&client, 3 * PAGE).unwrap();
    for page in 1..3 {
        map.map_client(Iova::new(BASE + page * PAGE), PAGE, part(page), DmaAccess::Both).unwrap();
    }
    assert_eq!(map.sizes(), (3, 2));
    map.write(Iova::new(BASE), &[9; 3 * 4096]).unwrap();
    let mut bytes = [0; 3 * 4096];
    rustix::io::pread(&client, &mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 9));
    map.unmap(Iova::new(BASE), PAGE).unwrap();
    assert_eq!(map.sizes(), (2, 1));
}

#[test]
fn client_invalid_file_is_refused_without_mapping() {
    let client = file(1, true);
    let mut map = DmaMap::default();
    let mut refuse = |file: OwnedFd, offset, access| {
        let error =
            map.map_client(Iova::new(BASE), PAGE, ClientMemory::File(file, offset), access).unwrap_err();
        assert_eq!((map.sizes(), map.mapped_bytes()), ((0, 0), 0), "{error}");
        error
    };
    let (pipe, _other_end) = rustix::pipe::pipe().unwrap();
    assert_eq!(refuse(pipe, 0, DmaAccess::Both), FileError::NotAFile.into());
    let directory = std::fs::File::open("/").unwrap();
    assert_eq!(refuse(directory.into(), 0, DmaAccess::ReadByDevice), FileError::NotAFile.into());
    let read_only = std::fs::File::open(format!("/proc/self/fd/{}", client.as_raw_fd())).unwrap();
    let file = OwnedFd::from(read_only.try_clone().unwrap());
    assert_eq!(refuse(file, 0, DmaAccess::Both), FileError::NoAccess { write: true }.into());
    let short = FileError::TooShort { size: PAGE, offset: u64::MAX - 5, length: PAGE };
    assert_eq!(refuse(client.try_clone().unwrap(), u64::MAX - 5, DmaAccess::Both), short.into());
    // A read-only mapping succeeds.
    let memory = ClientMemory::File(read_only.into(), 0);
    map.map_client(Iova::new(BASE), PAGE, memory, DmaAccess::ReadByDevice).unwrap();
    map.read(Iova::new(BASE), &mut [0; 64]).unwrap();
}

#[test]
fn client_memory_without_file_is_mapped_but_unreachable() {
    let mut map = DmaMap::default();
    let at = Iova::new(BASE);
    map.map_client(at, PAGE, ClientMemory::Unreachable, DmaAccess::Both).unwrap();
    assert_eq!(map.read(at, &mut [0; 8]), Err(DmaFault { at, write: false }));
    assert_eq!(map.unmap_range(at, PAGE), Ok(PAGE));
}

/// Every size that is a block of some level, and the sizes beside it, alone and adjacent.
#[test]
fn dma_map_blocks_of_every_level_are_found() {
    let mut map = DmaMap::default();
    let lengths = [PAGE, 2 << 20, 1 << 30, 512 << 30];
    for length in lengths {
        for start in [0, length, length * 2, 1 << 40] {
            for length in [length, length + PAGE, length.saturating_sub(PAGE).max(PAGE)] {
                let (first, last) = (Iova::new(start), start + length - 1);
                map.map_client(first, length, ClientMemory::Unreachable, DmaAccess::ReadByDevice).unwrap();
                let block = lengths.contains(&length).then_some(());
                for at in [start, start + length / 2, last] {
                    let (found, extent) = map.find(at).unwrap();
                    assert_eq!(
                        (found, extent.length, extent.access),
                        (start, length, DmaAccess::ReadByDevice)
                    );
                    assert_eq!(map.blocks.find(at).map(|_| ()), block, "{start:#x} {length:#x}");
                }
                assert_eq!(map.find(last + 1), None);
                assert_eq!(start.checked_sub(1).and_then(|before| map.find(before)), None);
                map.unmap(first, length).unwrap();
                assert_eq!((map.find(start), map.blocks.sizes()), (None, (0, 0)));
            }
        }
    }
}

/// Minimal model: the memory mapped at each page.
#[derive(Clone, Debug)]
enum ModelStep {
    /// Maps a number of pages upwards or downwards, `step` apart, from one of two files.
    Map {
        page: u64,
        count: u64,
        step: u64,
        down: bool,
        second: bool,
        access: DmaAccess,
    },
    Unmap {
        page: u64,
        count: u64,
        step: u64,
    },
}

fn turns() -> impl Strategy<Value = Vec<ModelStep>> {
    let access =
        prop_oneof![Just(DmaAccess::Both), Just(DmaAccess::ReadByDevice), Just(DmaAccess::WriteByDevice)];
    let (page, count) = (0..1700_u64, prop_oneof![1..600_u64, Just(1)]);
    let step = prop_oneof![3 => Just(1_u64), 1 => 2..9_u64];
    let map = (page.clone(), count.clone(), step.clone(), any::<bool>(), prop::bool::weighted(0.2), access)
        .prop_map(|(page, count, step, down, second, access)| ModelStep::Map {
            page,
            count,
            step,
            down,
            second,
            access,
        });
    let unmap = (page, count, step).prop_map(|(page, count, step)| ModelStep::Unmap { page, count, step });
    prop::collection::vec(prop_oneof![3 => map, 2 => unmap], 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn dma_map_pages_inside_and_outside_leaves_are_found(turns in turns()) {
        const FIRST: u64 = 5 << 21;
        let files = [file(4096, true), file(4096, true)];
        let mut map = DmaMap::default();
        let mut model: std::collections::BTreeMap<u64, (u64, DmaAccess, u32)> = std::collections::BTreeMap::new();
        let iova = |page: u64| Iova::new(FIRST + page * PAGE);
        for turn in turns {
            match turn {
                ModelStep::Map { page, count, step, down, second, access } => {
                    for number in 0..count {
                        let number = if down { count - 1 - number } else { number };
                        let page = page + number * step;
                        let offset = (page * 7 % 4096) * PAGE;
                        let client = ClientMemory::File(files[usize::from(second)].try_clone().unwrap(), offset);
                        let done = map.map_client(iova(page), PAGE, client, access);
                        prop_assert_eq!(done.is_ok(), !model.contains_key(&page));
                        if done.is_ok() {
                            let slot = map.extents[&iova(page).get()].slot;
                            model.insert(page, (offset, access, slot));
                        }
                    }
                }
                ModelStep::Unmap { page, count, step } => {
                    for page in (0..count).map(|number| page + number * step) {
                        prop_assert_eq!(map.unmap(iova(page), PAGE).is_ok(), model.remove(&page).is_some());
                    }
                }
            }
            for page in 0..7000 {
                let found = map.blocks.find(iova(page).get() + 17);
                let expected = model.get(&page).map(|(offset, access, slot)| {
                    let extent = Extent { length: PAGE, slot: *slot, offset: *offset, access: *access };
                    (iova(page).get(), extent)
                });
                prop_assert_eq!(found, expected, "page {}", page);
            }
            prop_assert_eq!(map.blocks.sizes().0, model.len());
        }
        let last = iova(8000).get();
        prop_assert_eq!(map.unmap_range(Iova::ZERO, last), Ok(model.len() as u64 * PAGE));
        prop_assert_eq!(map.blocks.sizes(), (0, 0));
    }
}

#[test]
fn dma_map_adjacent_pages_use_leaves() {
    let client = file(16, true);
    let mut map = DmaMap::default();
    let pages = 10_000_u64;
    // From the top down, as Linux allocates addresses.
    for page in (0..pages).rev() {
        let memory = ClientMemory::File(client.try_clone().unwrap(), page % 16 * PAGE);
        map.map_client(Iova::new((1 << 32) + page * PAGE), PAGE, memory, DmaAccess::Both).unwrap();
    }
    let (noted, leaves) = map.blocks.sizes();
    assert_eq!((noted as u64, leaves as u64), (pages, pages.div_ceil(512)));
}
