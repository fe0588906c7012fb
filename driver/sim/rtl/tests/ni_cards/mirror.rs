//! The host's mirror of the receive tables against the shadow windows of the network interface.

use std::time::{Duration, Instant};

use fpga_diag::inspect::Inspect as _;
use fpga_driver::{CardAddr, CardRange};
use fpga_rdma::{Endpoint, SendOptions};

use super::{Pair, SOURCE, TARGET, TIMEOUT, open_endpoint, patient, pattern};
use crate::simulator::{read, write};

/// Bytes of a transfer: one segment.
const LENGTH: u64 = 16_000;
/// Transfers at the same time.
const TRANSFERS: u64 = 10;
/// Maximum number of comparisons during the transfers.
const MAX_COMPARISONS: u32 = 16;
/// Polls without an event after which the network interface is at rest.
const QUIET_POLLS: u32 = 4;

/// Numbers of used registry entries and escape slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Occupancy {
    entries: u32,
    escaped: u32,
}

/// Comparisons so far, and those of them with used registry entries and with packets in the escape channel.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    comparisons: u32,
    registered: u32,
    escaped: u32,
}

impl Seen {
    fn add(&mut self, found: Occupancy) {
        self.comparisons += 1;
        self.registered += u32::from(found.entries > 0);
        self.escaped += u32::from(found.escaped > 0);
    }
}

fn occupancy(end: &Endpoint) -> Occupancy {
    let tables = end.tables();
    Occupancy {
        entries: tables.registry_occupancy().unwrap().0,
        escaped: tables.escape_occupancy().unwrap().0,
    }
}

/// Takes events until none arrive any more while the tables keep their state.
fn settle(receiver: &mut Endpoint) {
    let (mut quiet, mut before) = (0, occupancy(receiver));
    while quiet < QUIET_POLLS {
        let work = receiver.poll().unwrap();
        let now = occupancy(receiver);
        // A mirror that misses dropped events is read from the card's windows again.
        let is_quiet = work == 0 && now == before && !receiver.mirror().is_stale();
        quiet = if is_quiet { quiet + 1 } else { 0 };
        before = now;
    }
}

/// Compares the mirror with the card. A timeout of a table may change it between the last event and the comparison: then there is an event.
fn compare(receiver: &mut Endpoint) -> Occupancy {
    loop {
        settle(receiver);
        let differences = receiver.check_mirror().unwrap();
        let found = occupancy(receiver);
        let mirror = Occupancy {
            entries: receiver.mirror().occupancy().into(),
            escaped: receiver.mirror().escape_occupancy().into(),
        };
        if receiver.poll().unwrap() != 0 {
            continue;
        }
        assert_eq!(differences, [], "{:?}", receiver.counters());
        assert_eq!(mirror, found);
        assert_eq!(receiver.next_mirror_fault(), None);
        return found;
    }
}

#[test]
fn mirror_of_rtl_tables_matches_during_and_after_transfers() {
    let Some(pair) = Pair::start("loss=0.05,duplicate=0.02,reorder=32,seed=9") else { return };
    let cards = [pair.card(0), pair.card(1)];
    let mut sender = open_endpoint(&cards[0]);
    let mut options = patient();
    options.packet_events = true;
    // Reading the tables lets simulated time pass.
    options.escape_timeout = Duration::from_millis(100);
    let mut receiver = Endpoint::open_with(&cards[1], &options).unwrap();
    let data = pattern(3, TRANSFERS * LENGTH);
    write(&cards[0], 1, SOURCE, &data);
    let range = CardRange::new(CardAddr::new(TARGET), TRANSFERS * LENGTH);
    let region = receiver.open_region(sender.node(), range).unwrap();
    for number in 0..TRANSFERS {
        let (from, offset) = (CardAddr::new(SOURCE + number * LENGTH), number * LENGTH);
        sender.send(from, &region.remote, offset, LENGTH, SendOptions::default()).unwrap();
    }
    let (began, mut seen) = (Instant::now(), Seen::default());
    while !sender.is_idle() {
        assert!(began.elapsed() < TIMEOUT, "{seen:?}");
        // The sender stands still while the tables are compared.
        sender.poll().unwrap();
        if receiver.poll().unwrap() != 0 && seen.comparisons < MAX_COMPARISONS {
            seen.add(compare(&mut receiver));
        }
    }
    for sent in std::iter::from_fn(|| sender.next_completion()) {
        sent.result.unwrap();
    }
    assert!(seen.registered >= 2, "{seen:?}");
    assert!(read(&cards[1], 1, TARGET, data.len()) == data);
    assert_eq!(compare(&mut receiver), Occupancy { entries: 0, escaped: 0 });
    println!("{seen:?}, {:?}", receiver.counters());
    drop((sender, receiver, cards));
    pair.simulation.end_without_violations();
}
