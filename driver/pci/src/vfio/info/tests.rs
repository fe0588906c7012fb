use super::*;
use proptest::prelude::*;

/// Serialises words as the kernel does.
fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// Header of a capability: id and version share the first word.
fn header(id: u16, next: u32) -> Vec<u8> {
    [id.to_ne_bytes().as_slice(), &1_u16.to_ne_bytes(), &next.to_ne_bytes()].concat()
}

/// `struct vfio_region_info` of a 64 KiB BAR with a sparse area list behind an unknown capability.
fn region() -> Vec<u8> {
    let mut info = bytes(&[88, 0xF, 1, 32]);
    info.extend(longs(&[0x10000, 1 << 40]));
    info.extend(header(7, 40));
    info.extend(header(1, 0));
    info.extend(bytes(&[2, 0]));
    info.extend(longs(&[0, 0x8000, 0x9000, 0x7000]));
    info
}

/// `struct vfio_iommu_type1_info` with two ranges around the MSI window, the migration capability before them.
fn iommu() -> Vec<u8> {
    let mut info = bytes(&[0, 3]);
    info.extend(longs(&[0x4020_1000]));
    info.extend(bytes(&[24, 0]));
    info.extend(header(2, 48));
    info.extend(longs(&[1, 2]));
    info.extend(header(1, 0));
    info.extend(bytes(&[2, 0]));
    info.extend(longs(&[0xFEF0_0000, (1 << 48) - 1, 0, 0xFEDF_FFFF]));
    info
}

#[test]
fn region_info_with_sparse_areas_is_parsed() {
    let region = parse_region(&region()).unwrap();
    assert_eq!((region.size, region.offset, region.mappable), (0x10000, 1 << 40, true));
    assert_eq!(region.sparse, Some(vec![(0, 0x8000), (0x9000, 0x7000)]));
}

#[test]
fn region_info_without_capabilities_is_parsed() {
    let mut info = bytes(&[32, 0x7, 0, 0]);
    info.extend(longs(&[0x1000, 0]));
    let region = parse_region(&info).unwrap();
    assert_eq!((region.mappable, region.sparse), (true, None));
}

#[test]
fn iommu_info_ranges_are_sorted_with_hole() {
    let info = parse_iommu(&iommu()).unwrap();
    assert_eq!(info.page_size, 4096);
    let range = |first, last| Iova::new(first)..=Iova::new(last);
    assert_eq!(info.ranges, [range(0, 0xFEDF_FFFF), range(0xFEF0_0000, (1 << 48) - 1)]);
}

#[test]
fn iommu_info_without_ranges_uses_default() {
    let mut info = bytes(&[24, 1]);
    info.extend(longs(&[0xFFFF_FFFF_FFFF_F000]));
    info.extend(bytes(&[0, 0]));
    let info = parse_iommu(&info).unwrap();
    assert_eq!(info.ranges.len(), 2);
    assert!(!info.ranges.iter().any(|range| range.contains(&Iova::new(0xFEE0_0000))));
}

#[test]
fn info_truncated_answer_is_refused() {
    for length in 0..region().len() {
        assert_eq!(parse_region(&region()[..length]), None, "{length} bytes");
    }
    for length in 0..iommu().len() {
        assert_eq!(parse_iommu(&iommu()[..length]), None, "{length} bytes");
    }
}

#[test]
fn info_looping_capability_chain_is_refused() {
    let mut info = region();
    info[36..40].copy_from_slice(&32_u32.to_ne_bytes());
    assert_eq!(parse_region(&info), None);
}

#[test]
fn info_count_beyond_answer_is_refused() {
    let mut info = region();
    info[48..52].copy_from_slice(&u32::MAX.to_ne_bytes());
    assert_eq!(parse_region(&info), None);
}

#[test]
fn region_info_wrapping_region_is_refused() {
    let mut info = region();
    info[24..32].copy_from_slice(&u64::MAX.to_ne_bytes());
    assert_eq!(parse_region(&info), None);
}

fn plain(size: u64, sparse: Option<Vec<(u64, u64)>>) -> RegionInfo {
    RegionInfo { offset: 0, size, mappable: true, sparse, table_mappable: false }
}

#[test]
fn region_info_msix_table_page_is_excluded() {
    let table = Some(0x8000..0x8200);
    let one = |start, end| vec![Range { start, end }];
    let whole = one(0, 0x10000);
    let around = [0..0x8000, 0x9000..0x10000];
    assert_eq!(plain(0x10000, None).mappable_areas(None, 0x1000), whole);
    assert_eq!(plain(0x10000, None).mappable_areas(table.clone(), 0x1000), around);
    let sparse = vec![(0, 0x8000), (0x9000, 0x7000)];
    assert_eq!(plain(0x10000, Some(sparse)).mappable_areas(table.clone(), 0x1000), around);
    assert_eq!(
        plain(0x10000, None).mappable_areas(table.clone(), 0x10000),
        [],
        "64 KiB pages swallow the BAR"
    );
    let table_too = RegionInfo { table_mappable: true, ..plain(0x10000, None) };
    assert_eq!(
        table_too.mappable_areas(table.clone(), 0x1000),
        around,
        "the page with the table is excluded anyway"
    );
    assert_eq!(table_too.mappable_areas(table.clone(), 0x10000), [0..0x8000, 0x8200..0x10000]);
    assert_eq!(plain(0x10000, None).mappable_areas(Some(0..0x10), 0x1000), one(0x1000, 0x10000));
    assert_eq!(plain(0x10000, None).mappable_areas(Some(0xFFF0..0x10000), 0x1000), one(0, 0xF000));
    assert_eq!(plain(0x800, None).mappable_areas(None, 0x1000), [], "smaller than a page");
    assert_eq!(plain(0x2800, Some(vec![(0x10, 0x9000)])).mappable_areas(None, 0x1000), one(0x1000, 0x2000));
    let not = RegionInfo { mappable: false, ..plain(0x10000, None) };
    assert_eq!(not.mappable_areas(table, 0x1000), []);
}

/// `struct vfio_pci_hot_reset_info` of two functions: id, segment, bus, slot and function.
fn hot_reset(flags: u32, ids: [u32; 2]) -> Vec<u8> {
    let place = |devfn| u32::from_ne_bytes([0, 0, 0x65, devfn]);
    bytes(&[28, flags, 2, ids[0], place(0), ids[1], place(0x0A)])
}

#[test]
fn hot_reset_info_lists_functions_with_owners() {
    let function = |text: &str, owner| Dependent { address: text.parse().unwrap(), owner };
    let found = parse_hot_reset(&hot_reset(0, [7, u32::MAX])).unwrap();
    let groups = [Owner::Group(7), Owner::Group(u32::MAX)];
    assert_eq!(found, [function("0000:65:00.0", groups[0]), function("0000:65:01.2", groups[1])]);
    let owners =
        |ids| parse_hot_reset(&hot_reset(3, ids)).unwrap().into_iter().map(|one| one.owner).collect();
    let owned: Vec<Owner> = owners([5, 0]);
    assert_eq!(owned, [Owner::Caller, Owner::Caller]);
    let not: Vec<Owner> = owners([5, u32::MAX]);
    assert_eq!(not, [Owner::Caller, Owner::Other]);
    for length in 0..28 {
        assert_eq!(parse_hot_reset(&hot_reset(0, [0, 0])[..length]), None, "{length} bytes");
    }
}

#[test]
fn iommu_info_available_mappings_are_reported() {
    assert_eq!(parse_iommu(&iommu()).unwrap().available, None);
    let mut info = iommu();
    // Replaces the migration capability, which comes first.
    info[24] = 3;
    info[32..36].copy_from_slice(&65_000_u32.to_ne_bytes());
    assert_eq!(parse_iommu(&info).unwrap().available, Some(65_000));
}

#[test]
fn iommu_map_invalid_range_is_refused_before_ioctl() {
    let info = parse_iommu(&iommu()).unwrap();
    let check = |iova, length| info.check(Iova::new(iova), length, 4096);
    assert_eq!(check(0x1000, 0x2000), Ok(()));
    assert_eq!(check(0xFEDF_F000, 0x1000), Ok(()));
    for (iova, length) in [(0, 0), (0x800, 0x1000), (0x1000, 0x800)] {
        assert!(matches!(check(iova, length), Err(DmaMapError::Misaligned { .. })));
    }
    for (iova, length) in [
        (0xFEDF_F000, 0x2000),
        (0xFEE0_0000, 0x1000),
        (0xFED0_0000, 0x40_0000),
        (1 << 48, 0x1000),
        (u64::MAX - 0xFFF, 0x2000),
    ] {
        assert!(
            matches!(check(iova, length), Err(DmaMapError::OutsideRanges { .. })),
            "{iova:#x} {length:#x}"
        );
    }
}

proptest! {
    #[test]
    fn info_any_answer_does_not_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), flip in any::<prop::sample::Index>(), value: u8) {
        let _ = parse_region(&bytes);
        let _ = parse_iommu(&bytes);
        let _ = parse_hot_reset(&bytes);
        // Replies that are nearly valid reach more code.
        for mut nearly in [region(), iommu(), hot_reset(3, [1, 2])] {
            let at = flip.index(nearly.len());
            nearly[at] = value;
            let _ = parse_region(&nearly);
            let _ = parse_iommu(&nearly);
            let _ = parse_hot_reset(&nearly);
        }
        bytes.truncate(8);
    }

    #[test]
    fn region_info_areas_are_whole_pages_outside_table(
        size in 0_u64..0x20000,
        sparse in proptest::option::of(proptest::collection::vec((0_u64..0x20000, 0_u64..0x20000), 0..4)),
        table in proptest::option::of((0_u64..0x20000, 1_u64..0x1000)),
        bits in 12_u32..17,
    ) {
        let page = 1 << bits;
        let table = table.map(|(start, length)| start..start + length);
        for area in plain(size, sparse.clone()).mappable_areas(table.clone(), page) {
            prop_assert!(area.start < area.end && area.end <= size);
            prop_assert!(area.start % page == 0 && area.end % page == 0);
            if let Some(table) = &table {
                prop_assert!(area.end <= table.start || area.start >= table.end);
            }
            if let Some(sparse) = &sparse {
                prop_assert!(sparse.iter().any(|(start, length)| *start <= area.start && area.end <= start + length));
            }
        }
    }
}
