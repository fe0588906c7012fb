//! Comparison of the table of mappings with a map of bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use fpga_pci::HugePages;

const PAGE: u64 = 4096;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Adjacent and separate mappings with different rights: reads, writes and refusals match a map with an entry for every byte.
    #[test]
    fn vfio_user_memory_random_accesses_match_map(
        pages in proptest::collection::vec((0..8_u64, 1..3_usize, 0..3_u8), 1..6),
        accesses in proptest::collection::vec((any::<bool>(), 0..10 * PAGE, 0..3 * PAGE), 1..20),
    ) {
        let mut mapped = Mapped::default();
        // For each byte: its value, and the device's access rights.
        let mut model: BTreeMap<u64, (u8, DmaAccess)> = BTreeMap::new();
        for (number, length, rights) in pages {
            let access = [DmaAccess::ReadByDevice, DmaAccess::WriteByDevice, DmaAccess::Both][usize::from(rights)];
            let (start, length) = (number * PAGE, length as u64 * PAGE);
            let taken = model.range(start..start + length).next().is_some();
            prop_assert_eq!(mapped.overlaps(start, length), taken);
            if !taken {
                let memory = SharedMemory::anonymous(usize::try_from(length).expect("small"), HugePages::No).expect("memory");
                mapped.insert(start, memory, access);
                model.extend((start..start + length).map(|at| (at, (0, access))));
            }
        }
        for (fill, (write, start, length)) in (1..).zip(accesses) {
            let bytes: Option<Vec<_>> = (start..start + length).map(|at| model.get(&at).copied()).collect();
            let mut data = vec![fill; usize::try_from(length).expect("small")];
            if write {
                let allowed = bytes.is_some_and(|bytes| bytes.iter().all(|(_, access)| access.device_writes()));
                prop_assert_eq!(mapped.write(start, &data).is_ok(), allowed);
                if allowed {
                    for at in start..start + length {
                        if let Some((value, _)) = model.get_mut(&at) {
                            *value = fill;
                        }
                    }
                }
            } else {
                let allowed = bytes.as_ref().is_some_and(|bytes| bytes.iter().all(|(_, access)| access.device_reads()));
                prop_assert_eq!(mapped.read(start, &mut data).is_ok(), allowed);
                if allowed {
                    let expected: Vec<_> = bytes.into_iter().flatten().map(|(value, _)| value).collect();
                    prop_assert_eq!(data, expected);
                }
            }
        }
    }
}
