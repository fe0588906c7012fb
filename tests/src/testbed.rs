//! Cards of any description on one network, mostly two, with their endpoints. Data is written to and read from card memory without the
//! driver, so that every channel is free for the test.

use fpga_diag::inspect::Inspect as _;
use std::collections::VecDeque;

use fpga_card::CardDescription;
use fpga_driver::{Card, CardAddr, CardRange, Error, NodeId};
use fpga_netmodel::Impairments;
use fpga_protocol::Nanos;
use fpga_rdma::{
    Endpoint, EndpointError, EndpointOptions, Notification, RegionHandle, RemoteRegion, SendCompletion,
    SendOptions, SendTicket,
};
use fpga_sim::{SimNetwork, SimNetworkBuilder};

use crate::{DeliveryOrder, cards};

/// Several cards on one network and their endpoints, numbered from 0.
#[derive(Debug)]
pub struct Testbed {
    /// The simulated cards and the network between them.
    pub network: SimNetwork,
    /// The endpoints; `None` once closed.
    pub ends: Vec<Option<Endpoint>>,
    /// Completions of each end, in order.
    pub completions: Vec<VecDeque<SendCompletion>>,
    /// Notifications of each end, in order.
    pub notifications: Vec<VecDeque<Notification>>,
}

/// Options that make a run repeatable.
#[must_use]
pub fn options(incarnation: u32) -> EndpointOptions {
    let mut options = EndpointOptions::default();
    options.incarnation = Some(incarnation);
    options
}

impl Testbed {
    /// Two built-in cards.
    #[must_use]
    pub fn new(order: DeliveryOrder) -> Self {
        Self::of(&CardDescription::default(), order, |options| options)
    }

    /// Two cards of one description (except for the node id), and endpoints with the caller's options.
    #[must_use]
    pub fn of(
        description: &CardDescription,
        order: DeliveryOrder,
        change: impl Fn(EndpointOptions) -> EndpointOptions,
    ) -> Self {
        Self::nodes(2, description, order, change)
    }

    /// `count` cards of one description except for the node ids, which are consecutive.
    #[must_use]
    pub fn nodes(
        count: u32,
        description: &CardDescription,
        order: DeliveryOrder,
        change: impl Fn(EndpointOptions) -> EndpointOptions,
    ) -> Self {
        Self::joined(count, description, order.network(), change)
    }

    /// `count` built-in cards on a network with the given impairments.
    #[must_use]
    pub fn impaired(
        count: u32,
        impairments: Impairments,
        seed: u64,
        change: impl Fn(EndpointOptions) -> EndpointOptions,
    ) -> Self {
        let network = SimNetwork::builder().impairments(impairments).seed(seed);
        Self::joined(count, &CardDescription::default(), network, change)
    }

    /// `count` cards of one description except for the node ids, in this network.
    ///
    /// # Panics
    /// If such cards cannot be built.
    #[must_use]
    pub fn joined(
        count: u32,
        description: &CardDescription,
        mut network: SimNetworkBuilder,
        change: impl Fn(EndpointOptions) -> EndpointOptions,
    ) -> Self {
        for number in 0..count {
            let mut card = description.clone();
            card.ni.node_id += number;
            network = network.card(card);
        }
        let network = network.build().expect("cards");
        let end = |number: u32| {
            let card = Card::from_backend(network.backend(number as usize)).expect("a card that opens");
            Some(Endpoint::open_with(&card, &change(options(0xA + number))).expect("an endpoint that opens"))
        };
        let ends: Vec<_> = (0..count).map(end).collect();
        let (completions, notifications) =
            (vec![VecDeque::new(); ends.len()], vec![VecDeque::new(); ends.len()]);
        Self { network, ends, completions, notifications }
    }

    /// Endpoint `index`, which must be open.
    pub fn end(&mut self, index: usize) -> &mut Endpoint {
        self.ends[index].as_mut().expect("an open endpoint")
    }

    /// Allows the other end, or any of several, to write `length` bytes of `index`'s memory from `at` on.
    pub fn region(&mut self, index: usize, at: CardAddr, length: u64) -> RegionHandle {
        let other = match self.ends.as_slice() {
            [first, second] => [second, first][index].as_ref().map_or(NodeId::ANY, Endpoint::node),
            _ => NodeId::ANY,
        };
        self.end(index).open_region(other, CardRange::new(at, length)).expect("a region")
    }

    /// Starts a transfer from end `from`.
    pub fn send(
        &mut self,
        from: usize,
        source: CardAddr,
        to: &RemoteRegion,
        offset: u64,
        length: u64,
    ) -> SendTicket {
        self.send_with(from, source, to, offset, length, SendOptions::default())
    }

    /// Starts a transfer from end `from`.
    pub fn send_with(
        &mut self,
        from: usize,
        source: CardAddr,
        to: &RemoteRegion,
        offset: u64,
        length: u64,
        options: SendOptions,
    ) -> SendTicket {
        self.end(from).send(source, to, offset, length, options).expect("a transfer that is accepted")
    }

    /// Polls one end and collects its completions and notifications.
    ///
    /// # Errors
    /// The endpoint's errors.
    pub fn poll(&mut self, index: usize) -> Result<usize, Error<EndpointError>> {
        let Some(end) = &mut self.ends[index] else { return Ok(0) };
        let work = end.poll()?;
        self.completions[index].extend(std::iter::from_fn(|| end.next_completion()));
        self.notifications[index].extend(std::iter::from_fn(|| end.next_notification()));
        Ok(work)
    }

    /// Polls all ends and runs the cards in small steps until everything is idle, retries included.
    ///
    /// # Errors
    /// An endpoint's errors.
    ///
    /// # Panics
    /// If that takes more than a minute of virtual time.
    pub fn try_settle(&mut self) -> Result<(), Error<EndpointError>> {
        let limit = self.network.now().saturating_add(Nanos::from_secs(60));
        loop {
            let mut work = 0;
            for index in 0..self.ends.len() {
                work += self.poll(index)?;
            }
            let stepped = (0..8).filter(|_| self.network.step()).count();
            if work == 0 && stepped == 0 {
                if self.ends.iter().flatten().all(Endpoint::is_idle) {
                    return Ok(());
                }
                // Only a timer can cause further progress.
                self.network.advance(Nanos::from_micros(10));
            }
            assert!(self.network.now() < limit, "no progress within the time limit: {self:#?}");
        }
    }

    /// Same as [`try_settle`](Self::try_settle), but panics if an endpoint fails.
    pub fn settle(&mut self) {
        self.try_settle().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Writes `bytes` to card `index`'s memory.
    pub fn put(&self, index: usize, at: CardAddr, bytes: &[u8]) {
        cards::poke(&self.network, index, at, bytes);
    }

    /// Reads card `index`'s memory.
    #[must_use]
    pub fn get(&self, index: usize, at: CardAddr, length: usize) -> Vec<u8> {
        cards::peek(&self.network, index, at, length)
    }

    /// Asserts that no end has any state, once the timers of refused or abandoned packets have expired.
    pub fn assert_clean(&mut self) {
        self.settle();
        self.network.advance(Nanos::from_secs(10));
        self.settle();
        for (index, end) in self.ends.iter_mut().enumerate() {
            let Some(end) = end else { continue };
            assert!(end.is_idle(), "end {index}");
            assert_eq!(
                end.tables().registry_occupancy().expect("registry window").0,
                0,
                "registry of end {index}"
            );
            assert_eq!(
                end.tables().escape_occupancy().expect("escape window").0,
                0,
                "escape channel of end {index}"
            );
            let mirrored = (end.mirror().occupancy(), end.mirror().escape_occupancy());
            assert_eq!(mirrored, (0, 0), "mirror of end {index}");
            assert_eq!(end.check_mirror().expect("registry window"), [], "mirror of end {index}");
            assert_eq!(end.next_mirror_fault(), None, "mirror of end {index}");
        }
    }

    /// Transfers these bytes from end 0 to end 1. The transfer must succeed with one completion and one notification.
    pub fn carry(&mut self, source: CardAddr, region: &RemoteRegion, offset: u64, bytes: &[u8]) {
        self.put(0, source, bytes);
        let length = bytes.len() as u64;
        let ticket = self.send(0, source, region, offset, length);
        self.settle();
        let done = self.completions[0].pop_front().expect("a completion");
        assert_eq!((done.ticket, done.result, done.length), (ticket, Ok(()), length));
        assert_eq!(self.completions[0].pop_front(), None, "exactly one completion");
        let target = region.address.checked_add(offset).expect("an address");
        if length > 0 {
            let notice = self.notifications[1].pop_front().expect("a notification");
            assert_eq!((notice.address, notice.length), (target, length));
        }
        assert_eq!(self.notifications[1].pop_front(), None, "exactly one notification");
        assert!(self.get(1, target, bytes.len()) == bytes, "{length} bytes at {target} differ");
    }
}
