//! The network path: permissions, notifications, deadlines, every geometry, small tables, small rings, and the mirror of the
//! receive registry in the middle of transfers.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]
#![expect(clippy::cast_possible_truncation, reason = "lengths of tests")]
#![expect(clippy::panic, reason = "a panic is the failure report")]

mod chain;
mod congestion;
mod drop_and_abort;
mod feedback;
mod floods;
mod incarnations;
mod lossy;
mod mixed;
mod nodes;
mod one_sided;
mod paths;
mod peers;
mod reads;
mod realignment;
mod regions;
mod registry;
mod round_trips;
mod schemes;
mod segment_choice;
mod shapes;
mod shared;
mod small;
mod transfers;
mod tuning;
mod waits;

use fpga_diag::inspect::Inspect as _;
use std::time::Duration;

use fpga_card::CardDescription;
use fpga_driver::{BarOffset, Card, CardAddr, CardRange, NodeId, ResourceError};
use fpga_firmware::event::NackReason;
use fpga_firmware::generated::{Scheme, ni};
use fpga_protocol::Nanos;
use fpga_protocol::mirror::{Difference, Field};
use fpga_protocol::sender::SendFailure;
use fpga_rdma::{Endpoint, EndpointError, EndpointOptions, RemoteRegion, SendError, SendNotify, SendOptions};
use fpga_sim::CardFailure;
use fpga_tests::cards::{assert_closed, described, seeded};
use fpga_tests::testbed::{Testbed, options};
use fpga_tests::{DeliveryOrder, bytes};
use proptest::prelude::*;

const SOURCE: CardAddr = CardAddr::new(0x10_0000);
const TARGET: CardAddr = CardAddr::new(0x2000_0000);

fn random(seed: u64) -> DeliveryOrder {
    DeliveryOrder::Random { seed, depth: [2, 8, 64, 256][seed as usize % 4] }
}

fn at(base: CardAddr, offset: u64) -> CardAddr {
    base.checked_add(offset).unwrap()
}

/// Runs one transfer that must be refused: its completion has the reason, and there are no other effects.
fn assert_refused(net: &mut Testbed, region: &RemoteRegion, length: u64, untouched: (CardAddr, usize)) {
    net.put(0, SOURCE, &bytes(1, length as usize));
    net.put(1, untouched.0, &vec![0xC3; untouched.1]);
    let ticket = net.send(0, SOURCE, region, 0, length);
    net.settle();
    let done = net.completions[0].pop_front().unwrap();
    assert_eq!(done.ticket, ticket);
    let Err(SendFailure::Refused { node, reason: NackReason::Violation, .. }) = done.result else {
        panic!("{:?}", done.result)
    };
    assert_eq!(node, region.node);
    assert_eq!(net.completions[0].pop_front(), None);
    assert_eq!(net.notifications[1].pop_front(), None);
    assert!(
        net.get(1, untouched.0, untouched.1).iter().all(|byte| *byte == 0xC3),
        "memory outside the region is unchanged"
    );
    let counters = net.end(1).tables().counters().unwrap();
    assert!(counters.violations > 0 && counters.nacks_sent > 0);
    net.assert_clean();
}
