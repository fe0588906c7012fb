//! A process with a messenger, and the memory of its application.

use std::sync::Arc;

use fpga_driver::{Card, HugePages, NodeId, SharedMemory, SharedSlice};
use fpga_messages::{
    Address, AtomicCall, AtomicUnit, HostMemory, Messenger, MessengerOptions, PeerId, Regions, RemoteAccess,
};
use fpga_pci::DmaPoolStats;
use fpga_rdma::Endpoint;
use fpga_sim::SimNetwork;

use super::plan::{COUNTERS, READABLE_LENGTH, WRITABLE_LENGTH};
use crate::choices::mix;
use crate::model::{Checked, UNTOUCHED, Violation, data};
use crate::node::{open_card, options};
use crate::plan::{Plan, Work};

/// Operation and type of additions.
pub(crate) const ADD: [u8; 2] = [1, 1];
/// First address of the memory that others may write, of that which they may read, of counters, and of buffers.
pub(crate) const WRITABLE: u64 = 0;
pub(crate) const READABLE: u64 = WRITABLE + WRITABLE_LENGTH;
pub(crate) const COUNTERS_AT: u64 = READABLE + READABLE_LENGTH;
const BUFFERS: u64 = COUNTERS_AT + 4096;
/// Number of the data of readable memory: the first one that no message has.
pub(crate) const READABLE_DATA: usize = 1 << 20;

/// Memory of an application: addresses are positions.
#[derive(Debug)]
pub(crate) struct Memory(SharedMemory);

impl Memory {
    fn part(&self, address: u64, length: usize) -> SharedSlice<'_> {
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        self.0
            .view()
            .slice(start, length)
            .unwrap_or_else(|error| unreachable!("memory of no request: {error}"))
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        let written = self.part(address, bytes.len()).write(0, bytes);
        debug_assert!(written.is_ok(), "the part has this length");
    }

    pub(crate) fn read(&self, address: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let read = self.part(address, bytes.len()).read(0, &mut bytes);
        debug_assert!(read.is_ok(), "the part has this length");
        bytes
    }

    pub(crate) fn fill(&self, address: u64, length: u64, byte: u8) {
        self.write(address, &vec![byte; usize::try_from(length).unwrap_or(0)]);
    }

    fn word(&self, address: u64) -> u64 {
        self.read(address, 8).try_into().map_or(0, u64::from_le_bytes)
    }

    pub(crate) fn counter(&self, number: u64) -> u64 {
        self.word(COUNTERS_AT + number * 8)
    }
}

impl HostMemory for Memory {
    fn read(&self, from: u64, to: SharedSlice<'_>) {
        let copied = to.copy_from(0, self.part(from, to.len()), 0, to.len());
        debug_assert!(copied.is_ok(), "the part has this length");
    }

    fn write(&self, to: u64, from: SharedSlice<'_>) {
        let copied = self.part(to, from.len()).copy_from(0, from, 0, from.len());
        debug_assert!(copied.is_ok(), "the part has this length");
    }

    fn lend(&self, from: u64, length: u64) -> Option<SharedMemory> {
        self.0.part(usize::try_from(from).ok()?, usize::try_from(length).ok()?).ok()
    }
}

/// Adds words.
#[derive(Debug)]
struct Adder(Arc<Memory>);

impl AtomicUnit for Adder {
    fn apply(&self, call: AtomicCall<'_>) -> bool {
        let (Ok(operand), true) = (<[u8; 8]>::try_from(call.operand), call.length == 8) else { return false };
        if [call.operation, call.datatype] != ADD {
            return false;
        }
        let value = self.0.word(call.address);
        if !call.fetch.is_empty() {
            call.fetch.copy_from_slice(&value.to_le_bytes());
        }
        self.0.write(call.address, &value.wrapping_add(u64::from_le_bytes(operand)).to_le_bytes());
        true
    }
}

/// A running process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) messenger: Messenger,
    pub(crate) memory: Arc<Memory>,
    pub(crate) regions: Arc<Regions>,
    /// Key of its registered memory.
    pub(crate) key: u64,
    /// Buffers of the receives of everything.
    pub(crate) everything: [u64; 2],
    /// First byte of free memory.
    pub(crate) free: u64,
    card: Card,
    start: DmaPoolStats,
}

/// Bytes of memory for the buffers of a node.
fn buffer_bytes(plan: &Plan, node: usize) -> u64 {
    let Work::Messages(messages) = &plan.work else { return 0 };
    let lengths = messages.calls.iter().map(|call| &call.item).filter(|call| call.node() == node);
    let planned: u64 = lengths.map(|call| call.length() + 2 * 4096).sum();
    // Receives of everything, and the messages after the world has healed.
    planned + 2 * (longest(plan) + 4096) + 0x10_0000
}

/// Length of the longest message.
pub(crate) fn longest(plan: &Plan) -> u64 {
    let Work::Messages(messages) = &plan.work else { return 0 };
    messages.calls.iter().map(|call| call.item.length()).max().unwrap_or(0).max(64 << 10)
}

impl Process {
    pub(crate) fn start(
        plan: &Plan,
        network: &SimNetwork,
        (number, life): (usize, u32),
        incarnation: u32,
    ) -> Result<Self, Violation> {
        let Work::Messages(messages) = &plan.work else {
            return Err(Violation("no world of messages".to_owned()));
        };
        let failed = |error: &dyn std::fmt::Display| Violation(format!("process {number}: {error}"));
        let card = open_card(plan, network, number)?;
        let mut endpoint_options = options(plan, number, incarnation);
        endpoint_options.transfers = Some(fpga_messages::MIN_TRANSFERS);
        endpoint_options.destinations = Some(64);
        let endpoint = Endpoint::open_with(&card, &endpoint_options).map_err(|error| failed(&error))?;
        let length = BUFFERS + buffer_bytes(plan, number);
        let memory = SharedMemory::anonymous(usize::try_from(length).unwrap_or(0), HugePages::No)
            .map_err(|error| failed(&error))?;
        let (memory, regions) = (Arc::new(Memory(memory)), Arc::new(Regions::default()));
        memory.fill(WRITABLE, WRITABLE_LENGTH, UNTOUCHED);
        memory.write(READABLE, &data(READABLE_DATA + number, READABLE_LENGTH));
        let mut options = MessengerOptions::default();
        options.give_up = plan.give_up();
        options.unexpected = messages.unexpected;
        options.reports_access = messages.reports_access;
        let mut messenger = Messenger::new(
            endpoint,
            &options,
            Arc::clone(&memory) as Arc<dyn HostMemory>,
            Arc::new(Adder(Arc::clone(&memory))),
            Arc::clone(&regions),
        )
        .map_err(|error| failed(&error))?;
        for peer in 0..plan.nodes {
            let number = u32::try_from(peer).unwrap_or(u32::MAX);
            let added =
                messenger.add_peer(Address::Node(NodeId::new(number + 1))).map_err(|error| failed(&error))?;
            if added != PeerId(number) {
                return Err(Violation(format!("peer {peer} has number {added:?}")));
            }
        }
        let start = card.memory().stats();
        let key = mix(plan.seed ^ mix((number as u64) << 32 | u64::from(life)));
        let mut process =
            Self { messenger, memory, regions, key, everything: [0; 2], free: BUFFERS, card, start };
        process.everything = [(); 2].map(|()| process.allocate(longest(plan), true));
        process.register()?;
        Ok(process)
    }

    fn register(&self) -> Checked {
        let access = |read, write| RemoteAccess { read, write };
        let parts = [
            (WRITABLE, WRITABLE_LENGTH, access(false, true)),
            (READABLE, READABLE_LENGTH, access(true, false)),
            (COUNTERS_AT, COUNTERS * 8, access(true, true)),
        ];
        for (part, (start, length, access)) in (0..).zip(parts) {
            let key = self.key.wrapping_add(part);
            let registered = self.regions.register(start, length, 0, access, Some(key));
            registered.map_err(|error| Violation(format!("registered memory: {error}")))?;
        }
        Ok(())
    }

    /// Registers the memory with another key. The earlier one is not valid any more.
    pub(crate) fn renew(&mut self) -> Checked {
        for part in 0..3 {
            self.regions.deregister(self.key.wrapping_add(part));
        }
        self.key = mix(self.key);
        self.register()
    }

    /// Returns memory that nothing has used, or `None` if there is none.
    pub(crate) fn allocate(&mut self, length: u64, is_page: bool) -> u64 {
        let granule = if is_page { 4096 } else { 1 };
        let start = self.free.next_multiple_of(granule);
        self.free = start + length + 3;
        start
    }

    /// Compares the card's pool of host memory with that at the start.
    pub(crate) fn check_pool(&self, number: usize) -> Checked {
        let (now, start) = (self.card.memory().stats(), self.start);
        let is_same = (now.in_use, now.caller_areas, now.quarantined)
            == (start.in_use, start.caller_areas, start.quarantined);
        crate::model::check(is_same, || {
            format!("process {number}: host memory is {now:?}, at the start {start:?}")
        })
    }
}
