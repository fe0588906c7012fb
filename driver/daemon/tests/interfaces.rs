//! Network interfaces of views.

use std::time::Duration;

use fpga_rdma::{Endpoint, EndpointError, EndpointOptions, SendOptions};

use fpga_driver::{Card, CardAddr, CardRange};
use fpga_registers::BarOffset;
use fpga_sim::CardDescription;
use fpgad::{OwnerOptions, ViewInterface};

use crate::{Shared, bytes, read, write};

const TIMEOUT: Duration = Duration::from_secs(60);
/// First register of the network interface, and that of its node id, in the user BAR.
const NODE_ID: BarOffset = BarOffset::new(0x2000);

/// A view with an endpoint.
struct End {
    card: Card,
    endpoint: Endpoint,
}

impl End {
    fn open(shared: &Shared) -> Self {
        Self::with(shared, &EndpointOptions::default())
    }

    fn with(shared: &Shared, options: &EndpointOptions) -> Self {
        let card = shared.client();
        let endpoint = Endpoint::open_with(&card, options).unwrap();
        Self { card, endpoint }
    }

    fn at(&self, offset: u64) -> CardAddr {
        CardAddr::new(self.endpoint.usable_memory().start.get() + offset)
    }

    /// Sends `length` bytes to `other`, and checks that they arrive.
    fn transfer(&mut self, other: &mut Self, length: usize, seed: u32) {
        let data = bytes(length, seed);
        let (source, target) = (self.at(0x1_0000), other.at(0x100_0000));
        write(&self.card, 1, source.get(), &data);
        let range = CardRange::new(target, length as u64);
        let region = other.endpoint.open_region(self.endpoint.node(), range).unwrap();
        let ticket =
            self.endpoint.send(source, &region.remote, 0, length as u64, SendOptions::default()).unwrap();
        self.endpoint.wait(ticket, TIMEOUT).unwrap().result.unwrap();
        let arrived = other.endpoint.wait_notification(TIMEOUT).unwrap();
        assert_eq!(
            (arrived.node, arrived.address, arrived.length),
            (self.endpoint.node(), target, length as u64)
        );
        assert_eq!(read(&other.card, 1, target.get(), length), data);
        other.endpoint.close_region(&region).unwrap();
    }
}

#[test]
fn views_exchange_transfers() {
    let shared = Shared::new();
    let mut ends: Vec<_> = (0..4).map(|_| End::open(&shared)).collect();
    let mut nodes: Vec<_> = ends.iter().map(|end| end.endpoint.node()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes.len(), 4, "node ids are unique");
    for (seed, (from, to, length)) in
        (1..).zip([(0, 1, 1), (1, 0, 4096), (2, 3, 300_000), (3, 0, 100), (1, 2, 3_000_001)])
    {
        let [one, other] = ends.get_disjoint_mut([from, to]).unwrap();
        one.transfer(other, length, seed);
    }
}

#[test]
fn views_of_several_owners_exchange_transfers() {
    let (first, second) = (Shared::new(), Shared::new());
    let (mut one, mut other) = (End::open(&first), End::open(&second));
    assert_ne!(one.endpoint.node(), other.endpoint.node());
    one.transfer(&mut other, 200_000, 1);
    other.transfer(&mut one, 70, 2);
}

#[test]
fn view_that_ends_leaves_others_working() {
    let shared = Shared::new();
    let (mut one, mut other) = (End::open(&shared), End::open(&shared));
    let mut options = EndpointOptions::default();
    options.give_up = Duration::from_millis(200);
    for round in 0..3 {
        let mut ending = End::with(&shared, &options);
        ending.transfer(&mut one, 5000, round);
        // With a transfer in progress.
        let range = CardRange::new(other.at(0), 1 << 20);
        let region = other.endpoint.open_region(ending.endpoint.node(), range).unwrap();
        ending.endpoint.send(ending.at(0), &region.remote, 0, 1 << 20, SendOptions::default()).unwrap();
        ending.endpoint.poll().unwrap();
        drop(ending);
        other.endpoint.close_region(&region).unwrap();
        one.transfer(&mut other, 100_000, round);
    }
}

#[test]
fn view_writes_of_any_register_leave_others_working() {
    let shared = Shared::new();
    let (mut one, mut other) = (End::open(&shared), End::open(&shared));
    let hostile = shared.client();
    let bar = hostile.user_bar().unwrap();
    let values = bytes(4 * 0x4000, 7);
    for (number, value) in (0..).zip(values.chunks_exact(4)) {
        let value = u32::from_le_bytes(value.try_into().unwrap());
        // Small values are valid more often.
        let value = if number % 2 == 0 { value } else { value % 64 };
        bar.write32(BarOffset::new(4 * number), value).unwrap();
    }
    // The name of another node.
    bar.write32(NODE_ID, one.endpoint.node().get()).unwrap();
    assert_eq!(bar.read32(NODE_ID).unwrap(), one.endpoint.node().get());
    one.transfer(&mut other, 100_000, 1);
    other.transfer(&mut one, 100_000, 2);
}

#[test]
fn view_registers_of_card_interface_are_out_of_reach() {
    let shared = Shared::new();
    let node = || {
        let mut word = [0; 4];
        shared.network.with_card(0, |card| card.bar_peek(0, NODE_ID.get(), &mut word)).unwrap();
        u32::from_le_bytes(word)
    };
    let before = node();
    let client = shared.client();
    assert_ne!(client.user_bar().unwrap().read32(NODE_ID).unwrap(), before);
    client.user_bar().unwrap().write32(NODE_ID, 99).unwrap();
    assert_eq!(client.user_bar().unwrap().read32(NODE_ID).unwrap(), 99);
    assert_eq!(node(), before);
}

#[test]
fn view_copy_engine_reaches_card_and_own_memory() {
    let shared = Shared::new();
    let (one, other) = (shared.client(), shared.client());
    let own = one.info().ni.as_ref().unwrap().memory.start;
    let data = bytes(200_000, 5);
    write(&one, 0, own.get(), &data);
    let mut cdma = one.cdma().unwrap();
    cdma.copy(own, CardAddr::new(0x5000), 200_000).unwrap();
    assert_eq!(read(&other, 0, 0x5000, 200_000), data);
    let back = CardAddr::new(own.get() + 0x10_0000);
    cdma.copy(CardAddr::new(0x5000), back, 200_000).unwrap();
    assert_eq!(read(&one, 0, back.get(), 200_000), data);
    // Memory of an interface is that of its view alone.
    assert_ne!(read(&other, 0, back.get(), 1000), data[..1000]);
}

#[test]
fn view_without_interface_has_none() {
    let options = OwnerOptions { interface: ViewInterface::Absent, ..OwnerOptions::default() };
    let shared = Shared::with(CardDescription::default(), options);
    let client = shared.client();
    assert!(client.info().ni.is_none());
    let mut card = CardDescription::default();
    card.pci.subsystem_device = 7;
    let shared = Shared::with(card, OwnerOptions::default());
    assert!(shared.client().info().ni.is_none(), "the card has none");
}

#[test]
fn view_of_view_has_interface() {
    let shared = Shared::new();
    let nested = Shared::of(shared.client());
    let (mut one, mut other) = (End::open(&nested), End::open(&shared));
    one.transfer(&mut other, 10_000, 3);
    write(&one.card, 2, 0x900, &bytes(50, 4));
    assert_eq!(read(&other.card, 2, 0x900, 50), bytes(50, 4));
}

#[test]
fn view_transfer_to_absent_node_fails() {
    let shared = Shared::new();
    let mut options = EndpointOptions::default();
    options.give_up = Duration::from_millis(300);
    let (mut one, ended) = (End::with(&shared, &options), End::open(&shared));
    let mut ended = ended;
    let range = CardRange::new(ended.at(0), 4096);
    let region = ended.endpoint.open_region(one.endpoint.node(), range).unwrap();
    drop(ended);
    let ticket = one.endpoint.send(one.at(0), &region.remote, 0, 100, SendOptions::default()).unwrap();
    match one.endpoint.wait(ticket, TIMEOUT) {
        Ok(done) => assert!(done.result.is_err()),
        Err(error) => assert!(!matches!(error.kind, EndpointError::TimedOut { .. }), "{error}"),
    }
}
