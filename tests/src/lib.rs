//! Shared code of the whole-stack tests: simulated cards, opened, alone or on one network; and the conformance suite.
#![expect(clippy::missing_panics_doc, reason = "fixtures of tests: a panic is the failure report")]
#![expect(clippy::expect_used, reason = "fixtures of tests: a panic is the failure report")]
#![expect(clippy::panic, reason = "fixtures of tests: a panic is the failure report")]

pub mod bed;
pub mod cards;
pub mod causes;
pub mod conformance;
pub mod fault_injecting;
pub mod testbed;

use fpga_diag::inspect::Inspect as _;
use std::time::Duration;

use fpga_driver::{C2hChannel, Card, CardAddr, CardRange, H2cChannel, NodeId};
use fpga_netmodel::Order;
use fpga_rdma::{Endpoint, EndpointOptions, Notification, RemoteRegion, SendCompletion, SendOptions};
use fpga_sim::{SimNetwork, SimNetworkBuilder};
use rand_core::Rng;
use rand_pcg::Pcg64;

/// Maximum virtual time of any operation in a test.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Address of the sent data in the memory of a pair's sender.
pub const SOURCE: CardAddr = CardAddr::new(0x10_0000);

/// Address of the received data in the memory of a pair's receiver.
pub const TARGET: CardAddr = CardAddr::new(0x2000_0000);

/// Order in which a network without other impairments delivers packets.
#[derive(Clone, Debug)]
pub enum DeliveryOrder {
    /// In the order in which packets were sent.
    InOrder,
    /// In random order among `depth` packets in flight, chosen from `seed`.
    Random {
        /// Seed; the same seed gives the same order.
        seed: u64,
        /// Number of packets that are shuffled with each other.
        depth: usize,
    },
    /// A permutation, applied block by block.
    Script(Vec<usize>),
}

impl DeliveryOrder {
    /// Builder of a network without cards that delivers packets in this order.
    #[must_use]
    pub fn network(self) -> SimNetworkBuilder {
        let (order, seed) = match self {
            Self::InOrder => (Order::InOrder, 0),
            Self::Random { seed, depth } => (Order::random(depth), seed),
            Self::Script(script) => (Order::Script(script), 0),
        };
        SimNetwork::builder().impairments(order).seed(seed)
    }
}

/// Two hosts, each with a card, on one network: host A, card A, network, card B, host B.
#[derive(Debug)]
pub struct Pair {
    /// The simulated cards and the network between them.
    pub network: SimNetwork,
    /// Sender.
    pub a: Endpoint,
    /// Receiver.
    pub b: Endpoint,
    /// Host A to card A.
    pub h2c: H2cChannel,
    /// Card B to host B.
    pub c2h: C2hChannel,
}

/// A repeatable stream of bytes.
#[must_use]
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    Pcg64::new(u128::from(seed), 0x0A02_BDBF_7BB3_C0A7_AC28_FA16_A64A_BF96).fill_bytes(&mut data);
    data
}

impl Pair {
    /// Two built-in cards on a network that delivers in `order`.
    #[must_use]
    pub fn new(order: DeliveryOrder) -> Self {
        Self::with(order, |options| options)
    }

    /// Two built-in cards on a network that delivers in `order`, with endpoint options.
    #[must_use]
    pub fn with(order: DeliveryOrder, options: impl Fn(EndpointOptions) -> EndpointOptions) -> Self {
        let network = order.network().cards(2).build().expect("two built-in cards");
        let open = |index| Card::from_backend(network.backend(index)).expect("a built-in card opens");
        let (card_a, card_b) = (open(0), open(1));
        let endpoint = |card: &Card, incarnation| {
            let mut defaults = EndpointOptions::default();
            defaults.incarnation = Some(incarnation);
            Endpoint::open_with(card, &options(defaults)).expect("the endpoint opens")
        };
        let (a, b) = (endpoint(&card_a, 0xA), endpoint(&card_b, 0xB));
        let h2c = card_a.h2c(0).expect("an H2C channel");
        let c2h = card_b.c2h(0).expect("a C2H channel");
        Self { network, a, b, h2c, c2h }
    }

    /// Opens `length` bytes at [`TARGET`] of card B to A.
    pub fn region(&mut self, length: u64) -> RemoteRegion {
        let node = self.a.node();
        self.b.open_region(node, CardRange::new(TARGET, length)).expect("a region").remote
    }

    /// Copies `data` from host A's memory to card A.
    pub fn load(&mut self, data: &[u8], at: CardAddr) {
        let mut source = data;
        let card = self.a.card().clone();
        fpga_driver::bulk::write_from(
            &card,
            &mut self.h2c,
            &mut source,
            at,
            data.len() as u64,
            fpga_driver::WaitOptions::default(),
            &mut |_| (),
        )
        .expect("host to card");
    }

    /// Copies `length` bytes from card B's memory to host B.
    #[must_use]
    pub fn fetch(&mut self, at: CardAddr, length: usize) -> Vec<u8> {
        let mut sink = Vec::with_capacity(length);
        let card = self.b.card().clone();
        fpga_driver::bulk::read_into(
            &card,
            &mut self.c2h,
            at,
            length as u64,
            &mut sink,
            fpga_driver::WaitOptions::default(),
            &mut |_| (),
        )
        .expect("card to host");
        sink
    }

    /// Polls both endpoints until both are idle and the network is empty.
    pub fn settle(&mut self) {
        loop {
            let work = self.a.poll().expect("endpoint A") + self.b.poll().expect("endpoint B");
            let stepped = self.network.step_until_idle();
            if work == 0 && stepped == 0 {
                if self.a.is_idle() {
                    return;
                }
                // Only a timer can cause further progress: a refused packet waits before its next try.
                self.a.relax();
            }
        }
    }

    /// Sends `length` bytes from [`SOURCE`] to the start of `region` and settles. Returns all completions and all notifications.
    pub fn transfer(
        &mut self,
        region: &RemoteRegion,
        length: u64,
    ) -> (Vec<SendCompletion>, Vec<Notification>) {
        self.a.send(SOURCE, region, 0, length, SendOptions::default()).expect("the transfer is accepted");
        self.settle();
        let completions = std::iter::from_fn(|| self.a.next_completion()).collect();
        let notifications = std::iter::from_fn(|| self.b.next_notification()).collect();
        (completions, notifications)
    }

    /// Asserts that op table, queues, windows, registry, escape channel and mirror are empty at both ends.
    pub fn assert_empty(&mut self) {
        assert!(
            self.a.is_idle(),
            "op table, queues and windows of A: {:?}",
            self.a.sender().expect("the host has a sender").ops().collect::<Vec<_>>()
        );
        assert_eq!(self.b.tables().registry_occupancy().expect("registry window").0, 0, "registry of B");
        assert_eq!(self.b.tables().escape_occupancy().expect("escape window").0, 0, "escape channel of B");
        assert_eq!(self.b.mirror().occupancy(), 0, "mirror of B");
        assert_eq!(self.b.check_mirror().expect("registry window"), [], "mirror of B against its card");
        assert_eq!(self.b.next_mirror_fault(), None);
        assert_eq!(self.network.undeliverable_frames(), 0);
    }

    /// Node id of A.
    #[must_use]
    pub fn node_a(&self) -> NodeId {
        self.a.node()
    }
}

/// All permutations of `0..count`.
#[must_use]
pub fn orders(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
    let mut all = Vec::new();
    for shorter in orders(last) {
        for place in 0..count {
            let mut order = shorter.clone();
            order.insert(place, last);
            all.push(order);
        }
    }
    all
}
