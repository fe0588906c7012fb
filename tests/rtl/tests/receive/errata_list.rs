//! Erratum tests of the registry scheme (docs/dev/errata.md): those of its receiver are replayed to the module, or have a counterpart here;
//! the list names the others.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fpga_firmware::event::EventKind;
use proptest::prelude::*;

use super::common::{Shape, TestBed, acks, config, dones, events};

/// Files of `firmware-bindings/protocol/tests` that [`super`] compiles, so that each of their tests replays its inputs.
const REPLAYED: [&str; 6] =
    ["bad_input.rs", "errata.rs", "events.rs", "notices.rs", "trimmed.rs", "withdraw.rs"];

/// Tests of the protocol engine with a counterpart in this file.
const COUNTERPARTS: [&str; 2] =
    ["e1_4_tombstones_match_set", "e1_10_segment_last_packet_and_segment_may_be_short"];

/// Files and folders without tests of the registry receiver, relative to `firmware-bindings/protocol`, with their subject.
const OTHERS: [(&str, &str); 6] = [
    ("src/feedback/", "congestion control of the sender"),
    ("tests/literal/", "models of what the documents say literally, which no card implements"),
    ("tests/messages/", "senders and receivers of the message schemes"),
    ("tests/op_table.rs", "op numbers of the sender"),
    ("tests/scheme/", "senders and receivers of the message schemes"),
    ("tests/timeouts.rs", "timers of the sender"),
];

/// Erratum tests below `folder`, with their files.
fn tests(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            tests(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let names = text.lines().filter_map(|line| {
                let name = line.trim_start().strip_prefix("fn ")?.split('(').next()?;
                let number = name.strip_prefix('e')?.split('_').take(2);
                let is_erratum =
                    number.clone().count() == 2 && number.clone().all(|part| part.parse::<u8>().is_ok());
                is_erratum.then(|| name.to_owned())
            });
            found.extend(names.map(|name| (path.clone(), name)));
        }
    }
}

#[test]
fn errata_of_receiver_all_run_on_module() {
    let package = fpga_process::workspace_root().join("firmware-bindings/protocol");
    let mut found = Vec::new();
    tests(&package, &mut found);
    assert!(found.len() > 60, "{found:?}");
    let mut used = BTreeSet::<&str>::new();
    for (path, name) in found {
        let file = path.strip_prefix(&package).unwrap().to_str().unwrap();
        let runs = file.strip_prefix("tests/").is_some_and(|file| REPLAYED.contains(&file))
            || COUNTERPARTS.contains(&name.as_str());
        let other = OTHERS.iter().find(|(folder, _)| file.starts_with(folder));
        used.extend(other.map(|(folder, _)| *folder));
        assert!(
            runs != other.is_some(),
            "{file}: {name}: replay it to the module (REPLAYED, COUNTERPARTS), or name its subject (OTHERS)"
        );
    }
    assert_eq!(used.len(), OTHERS.len(), "only {used:?} have erratum tests");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Transfers complete in any order while the oldest live one advances, also where ids wrap; after each step, a repeated packet is
    /// acknowledged without a write exactly if its transfer is complete or over.
    #[test]
    fn e1_4_tombstones_match_set(
        start in prop_oneof![Just(0u32), Just(u32::MAX - 20)],
        steps in prop::collection::vec((0u32..40, any::<bool>()), 1..60),
    ) {
        let mut bed = TestBed::new(config());
        let (mut completed, mut oldest) = (BTreeSet::new(), 0);
        for (step, advance) in steps {
            oldest = if advance { oldest.max(step) } else { oldest };
            let shape = Shape {
                oldest_live: start.wrapping_add(oldest),
                ..Shape::single(start.wrapping_add(step), 1)
            };
            let before = bed.memory.writes.len();
            let outputs = bed.send(&shape, 0);
            let is_over = step < oldest || completed.contains(&step);
            let is_new = bed.memory.writes.len() > before;
            // Without space for another range, the receiver refuses the transfer.
            prop_assert!(!is_over || (!is_new && acks(&outputs).len() == 1));
            if is_new {
                completed.insert(step);
            }
        }
    }
}

#[test]
fn e1_10_last_packet_and_segment_may_be_short() {
    // Two segments of four packets, and one of two; the last packet has one byte.
    let length = 2 * 256 + 65;
    let segments: Vec<Shape> = (0..3u32)
        .map(|segment| Shape {
            segment,
            segment_count: 3,
            base: super::common::BASE + u64::from(segment) * 256,
            length: (length - segment * 256).min(256),
            transfer_base: super::common::BASE,
            transfer_length: length.into(),
            ..Shape::single(0, 1)
        })
        .collect();
    let mut bed = TestBed::new(config());
    let mut ended = 0;
    for shape in segments {
        let outputs: Vec<_> = (0..shape.packets()).flat_map(|index| bed.send(&shape, index)).collect();
        ended += dones(&outputs);
        // The transfer ends with its last segment [E1-8].
        assert_eq!(events(&outputs, EventKind::Notice).len(), usize::from(ended == 3));
    }
    assert_eq!((ended, bed.memory.writes.last().map(|write| write.1.len())), (3, Some(1)));
}
