//! A node: a simulated card, its endpoint, and what the endpoint offers to others.

mod counters;

pub(crate) use counters::count_endpoint;

use std::sync::Arc;
use std::time::Duration;

use fpga_card::CardDescription;
use fpga_diag::inspect::Inspect as _;
use fpga_driver::{Card, CardAddr, CardRange, NodeId, RegisteredMemory};
use fpga_firmware::generated::Scheme;
use fpga_pci::DmaPoolStats;
use fpga_protocol::Nanos;
use fpga_rdma::{
    Endpoint, EndpointOptions, HostSource, ReadableHandle, RegionHandle, RemoteReadable, RemoteRegion,
    SendTimeout,
};
use fpga_sim::SimNetwork;

use crate::choices::mix;
use crate::clock::OwnClock;
use crate::model::{Checked, UNTOUCHED, Violation, check, data};
use crate::plan::{
    Action, CARD_MEMORY, Plan, READABLE, READABLE_LENGTH, SOURCES, TARGETS, WINDOW_LENGTH, WINDOW_STRIDE,
    Work,
};

/// Number of the data of readable memory: the first one that no transfer has.
pub(crate) const READABLE_DATA: usize = 1 << 20;
/// Maximum number of nodes that may read a node.
const MAX_READERS: usize = 14;

/// An open endpoint with its memory.
#[derive(Debug)]
pub(crate) struct Open {
    /// The endpoint.
    pub(crate) end: Endpoint,
    /// Source of transfers from host memory, and the memory.
    pub(crate) host: Option<(HostSource, RegisteredMemory)>,
    /// Allocations of the card's pool once everything was open.
    start: DmaPoolStats,
    _regions: Vec<RegionHandle>,
    _readables: Vec<ReadableHandle>,
}

/// A node of a world.
#[derive(Debug)]
pub(crate) struct Node {
    /// Number, from 0; the node id is one more.
    pub(crate) number: usize,
    /// Number of restarts.
    pub(crate) life: u32,
    incarnation: u32,
    /// The endpoint, unless the node is down.
    pub(crate) open: Option<Open>,
    /// Windows of the newest incarnation.
    pub(crate) windows: Vec<RemoteRegion>,
    /// Windows of the first incarnation.
    pub(crate) first_windows: Vec<RemoteRegion>,
    /// Readable ranges of the newest incarnation, by reader.
    pub(crate) readables: Vec<Option<RemoteReadable>>,
    /// Number of pauses in progress.
    pub(crate) pauses: u32,
    /// Number of restarts and removals in progress.
    pub(crate) downs: u32,
    /// Whether the card is out of its slot.
    pub(crate) is_removed: bool,
    /// Whether the card has ever been removed.
    pub(crate) was_removed: bool,
    /// Time of the next poll.
    pub(crate) next_poll: Nanos,
    /// Number of polls in a row that did nothing.
    pub(crate) idle_polls: u32,
}

/// Description of the card of node `number`.
#[must_use]
pub(crate) fn description(plan: &Plan, number: usize) -> CardDescription {
    let mut card = CardDescription::default();
    let cards = &plan.cards;
    card.memory.size = CARD_MEMORY;
    let ni = &mut card.ni;
    ni.node_id = u32::try_from(number + 1).unwrap_or(u32::MAX);
    ni.packet_size = plan.packet_size(number);
    ni.mask_bits = cards.mask_bits;
    ni.registry_entries = cards.registry_entries;
    ni.escape_slots = cards.escape_slots;
    ni.windows = cards.windows;
    ni.sending_contexts = cards.contexts;
    ni.commands = cards.commands;
    ni.event_push = cards.event_push;
    if let Work::Streams(_) = plan.work {
        // Two for each subscriber of a publisher.
        ni.memory_windows = 18;
        return card;
    }
    if let Work::Messages(_) = plan.work {
        let peers = u16::try_from(plan.nodes).unwrap_or(u16::MAX);
        // Windows for hellos and for peers; 1.5 MiB for each peer, and the endpoint's part.
        ni.memory_windows = peers + 2;
        card.memory.size = (2 << 20) + (3 << 19) * u64::from(peers);
        return card;
    }
    // Windows for writers, for readers, and for some reads at the same time.
    ni.memory_windows =
        u16::try_from(cards.open_windows + readers(plan, number).len() + 2).unwrap_or(u16::MAX);
    card
}

/// Nodes that read node `owner`.
fn readers(plan: &Plan, owner: usize) -> Vec<usize> {
    let reads = plan.actions.iter().filter_map(|action| match &action.item {
        Action::Read(read) if read.owner == owner => Some(read.reader),
        _ => None,
    });
    let mut readers: Vec<usize> = reads.collect();
    readers.sort_unstable();
    readers.dedup();
    readers.truncate(MAX_READERS);
    readers
}

pub(crate) fn options(plan: &Plan, number: usize, incarnation: u32) -> EndpointOptions {
    let cards = &plan.cards;
    let mut options = EndpointOptions::default();
    options.incarnation = Some(incarnation);
    options.first_transfer = cards.first_transfer;
    options.event_entries = cards.event_entries;
    options.ops = cards.ops;
    options.transfers = cards.transfers;
    options.destinations = cards.destinations;
    options.paths = cards.paths;
    options.congestion = cards.congestion;
    options.give_up = plan.give_up();
    options.registry_timeout = Some(plan.registry_timeout());
    options.packet_events = cards.packet_events;
    options.scheme = cards.schemes.first().copied().unwrap_or(Scheme::Registry);
    if plan.limited != Some(number) {
        options.other_schemes = cards.schemes.iter().copied().skip(1).collect();
    }
    let round_trip = plan.round_trip();
    options.round_trip = round_trip;
    // Longer than four round trips (docs/protocol.md 2.3).
    options.escape_timeout = Duration::from_millis(1).max(round_trip * 5);
    options.timeout = SendTimeout::Adaptive {
        initial: Duration::from_millis(1),
        min: Duration::from_micros(100),
        max: plan.give_up() / 16,
    };
    options
}

/// Opens the card of node `number`, whose host may have a clock of its own.
pub(crate) fn open_card(plan: &Plan, network: &SimNetwork, number: usize) -> Result<Card, Violation> {
    let inner = network.backend(number);
    let card = match plan.clock_spread {
        0 => Card::from_backend(inner),
        // Slower, equal, faster.
        spread => Card::from_backend(Arc::new(OwnClock {
            inner,
            rate: 1000 + spread * (number as u64 % 3) - spread,
        })),
    };
    card.map_err(|error| failed("card", error))
}

/// Returns the incarnation that follows `incarnation` at restart number `life` of node `number`.
pub(crate) fn next_incarnation(plan: &Plan, number: usize, incarnation: u32, life: u32) -> u32 {
    // Numbers that no earlier restart has used; 0 is no incarnation.
    let back = incarnation.wrapping_sub(0x1000);
    let next = incarnation.wrapping_add(1 + life % 3);
    if plan.clock_back == Some(number) { back } else { next }.max(1)
}

fn failed(what: &str, error: impl std::fmt::Display) -> Violation {
    Violation(format!("{what}: {error}"))
}

impl Node {
    /// Opens the endpoint of node `number`.
    ///
    /// # Errors
    /// [`Violation`]: it does not open.
    pub(crate) fn new(plan: &Plan, network: &SimNetwork, number: usize) -> Result<Self, Violation> {
        let mut node = Self {
            number,
            life: 0,
            incarnation: plan.cards.incarnation,
            open: None,
            windows: Vec::new(),
            first_windows: Vec::new(),
            readables: Vec::new(),
            pauses: 0,
            downs: 0,
            is_removed: false,
            was_removed: false,
            next_poll: Nanos::ZERO,
            idle_polls: 0,
        };
        node.blank(plan, network);
        node.open(plan, network)?;
        node.first_windows = node.windows.clone();
        Ok(node)
    }

    /// Fills the memory that others may write.
    fn blank(&self, plan: &Plan, network: &SimNetwork) {
        let length = WINDOW_STRIDE * plan.cards.open_windows as u64;
        self.poke(network, TARGETS, &vec![UNTOUCHED; usize::try_from(length).unwrap_or(0)]);
        self.poke(network, READABLE, &data(READABLE_DATA + self.number, READABLE_LENGTH));
    }

    /// Opens the endpoint, with a new incarnation except for the first time.
    ///
    /// # Errors
    /// [`Violation`]: it does not open.
    pub(crate) fn open(&mut self, plan: &Plan, network: &SimNetwork) -> Checked {
        let card = open_card(plan, network, self.number)?;
        let mut end = Endpoint::open_with(&card, &options(plan, self.number, self.incarnation))
            .map_err(|error| failed("endpoint", error))?;
        self.windows.clear();
        let mut regions = Vec::new();
        for window in 0..plan.cards.open_windows as u64 {
            let key = mix(plan.seed ^ mix((self.number as u64) << 40 | u64::from(self.life) << 8 | window));
            let range = CardRange::new(CardAddr::new(TARGETS + WINDOW_STRIDE * window), WINDOW_LENGTH);
            let region =
                end.open_region_with_key(NodeId::ANY, range, key).map_err(|error| failed("region", error))?;
            self.windows.push(region.remote);
            regions.push(region);
        }
        self.readables = vec![None; plan.nodes];
        let mut readables = Vec::new();
        for reader in readers(plan, self.number) {
            let id = NodeId::new(u32::try_from(reader + 1).unwrap_or(u32::MAX));
            let range = CardRange::new(CardAddr::new(READABLE), READABLE_LENGTH);
            let readable = end.open_readable(id, range).map_err(|error| failed("readable range", error))?;
            self.readables[reader] = Some(readable.remote);
            readables.push(readable);
        }
        let host = match host_bytes(plan, self.number) {
            0 => None,
            length => {
                let area = card.registered_memory(length).map_err(|error| failed("host memory", error))?;
                let source =
                    end.register_source(area.clone()).map_err(|error| failed("host memory", error))?;
                Some((source, area))
            }
        };
        let start = card.memory().stats();
        self.open = Some(Open { end, host, start, _regions: regions, _readables: readables });
        Ok(())
    }

    /// Drops the endpoint and the card.
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// Opens the endpoint again, with a later incarnation. A card that was removed is inserted first, and has lost its memory.
    ///
    /// # Errors
    /// [`Violation`]: it does not open.
    pub(crate) fn restart(&mut self, plan: &Plan, network: &SimNetwork) -> Checked {
        self.close();
        if std::mem::take(&mut self.is_removed) {
            check(network.replug(self.number), || "no such card".to_owned())?;
            self.blank(plan, network);
        }
        self.life += 1;
        self.incarnation = next_incarnation(plan, self.number, self.incarnation, self.life);
        self.open(plan, network)
    }

    /// Whether the host polls.
    #[must_use]
    pub(crate) const fn is_running(&self) -> bool {
        self.open.is_some() && self.pauses == 0
    }

    /// Writes card memory.
    pub(crate) fn poke(&self, network: &SimNetwork, address: u64, bytes: &[u8]) {
        let written = network.with_card(self.number, |card| card.poke(CardAddr::new(address), bytes));
        debug_assert!(matches!(written, Some(Ok(()))), "card memory");
    }

    /// Reads card memory.
    #[must_use]
    pub(crate) fn peek(&self, network: &SimNetwork, address: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = network.with_card(self.number, |card| card.peek(CardAddr::new(address), &mut bytes));
        debug_assert!(matches!(read, Some(Ok(()))), "card memory");
        bytes
    }

    /// Checks that no table has an entry, and that the mirror is that of the card.
    ///
    /// # Errors
    /// [`Violation`].
    pub(crate) fn check_tables(&mut self) -> Checked {
        let Some(open) = &mut self.open else { return Ok(()) };
        let fault = open.end.next_mirror_fault();
        check(fault.is_none(), || format!("node {}: {fault:?}", self.number))?;
        check_endpoint(self.number, &open.end)?;
        let now = open.end.card().memory().stats();
        let same = (now.in_use, now.caller_areas, now.quarantined)
            == (open.start.in_use, open.start.caller_areas, open.start.quarantined);
        check(same, || format!("node {}: host memory is {now:?}, at the start {:?}", self.number, open.start))
    }
}

/// Checks that no table of node `number` has an entry, and that the mirror is that of the card.
///
/// # Errors
/// [`Violation`].
pub(crate) fn check_endpoint(number: usize, end: &Endpoint) -> Checked {
    let tables = end.tables();
    let read = |error| failed("tables", error);
    let registry = tables.registry_occupancy().map_err(read)?.0;
    let escape = tables.escape_occupancy().map_err(read)?.0;
    let (contexts, queued) = tables.sending_occupancy().map_err(read)?;
    let mirror = (end.mirror().occupancy(), end.mirror().escape_occupancy());
    let differences = end.check_mirror().map_err(read)?;
    check(
        (registry, escape, contexts, queued, mirror) == (0, 0, 0, 0, (0, 0))
            && differences.is_empty()
            && end.is_idle(),
        || {
            format!(
                "node {number}: tables are not empty: registry {registry}, escape {escape}, contexts {contexts}, \
                 queued {queued}, mirror {mirror:?} {differences:?}, idle {}, transfers {:?}",
                end.is_idle(),
                end.transfers(),
            )
        },
    )
}

/// Bytes of host memory from which node `number` sends.
fn host_bytes(plan: &Plan, number: usize) -> usize {
    let ends = plan.actions.iter().filter_map(|action| match &action.item {
        Action::Send(send) if send.from == number && send.from_host => {
            Some(send.source + send.length - SOURCES)
        }
        _ => None,
    });
    ends.max().map_or(0, |end| usize::try_from(end + 64).unwrap_or(0))
}
