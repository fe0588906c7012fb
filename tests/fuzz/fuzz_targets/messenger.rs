//! Fuzzes a messenger with any transfers of a peer: hellos, records, doorbells and landing slots with any content, at any time. The messenger
//! does not panic, accesses only memory of requests and regions, completes each request once, keeps nothing of the peer's session after its
//! end, and exchanges messages with another peer.
//!
//! An input is a sequence of actions: one byte for the kind, and arguments. The messenger and the other peer live as long as the process; the
//! fuzzed peer starts again, with a new incarnation, for each input.
#![no_main]

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpga_rdma::{EndpointOptions, RemoteRegion, SendOptions, Endpoint};
use fpga_sim::{CardDescription, SimNetwork};
use fpga_sim::link::{Link, LinkAddress, UdpLink, UdpLinkOptions};
use fpga_driver::{Card, CardAddr, CardRange, NodeId, SharedSlice};
use fpga_messages::{
    AccessRequest, Address, AtomicCall, AtomicRequest, AtomicUnit, CompleteWhen, Completion, Failure, HostMemory,
    HostRanges, LinkChoice, Messenger, MessengerOptions, Peek, PeerId, ReceiveRequest, Regions, RemoteAccess,
    RemoteRange, SendRequest, TagPattern, Token,
};
use libfuzzer_sys::fuzz_target;

/// Memory of an application; its first part is a region that peers may access.
const MEMORY: usize = 2 << 20;
const REGION: u64 = 256 << 10;
/// First byte of the buffers of receives.
const BUFFERS: u64 = 1 << 20;
const KEY: u64 = 3;
/// Length of a message of the check with the other peer that goes in parts.
const LARGE: u64 = 200_000;
const PATIENCE: Duration = Duration::from_secs(60);

struct Memory(Mutex<Vec<u8>>);

impl HostMemory for Memory {
    fn read(&self, from: u64, to: SharedSlice<'_>) {
        let memory = self.0.lock().expect("no panic");
        let from = usize::try_from(from).expect("a position");
        to.write(0, &memory[from..from + to.len()]).expect("as long as the range");
    }

    fn write(&self, to: u64, from: SharedSlice<'_>) {
        let mut memory = self.0.lock().expect("no panic");
        let to = usize::try_from(to).expect("a position");
        from.read(0, &mut memory[to..to + from.len()]).expect("as long as the range");
    }
}

/// Exchanges bytes: operation 1.
struct Swap(Arc<Memory>);

impl AtomicUnit for Swap {
    fn apply(&self, call: AtomicCall<'_>) -> bool {
        let AtomicCall { operation, address, length, operand, compare, fetch, .. } = call;
        for operand in [operand, compare, &*fetch] {
            assert!(operand.is_empty() || operand.len() as u64 == length, "operands as documented");
        }
        assert!(address + length <= REGION, "beyond the region");
        let mut memory = self.0.0.lock().expect("no panic");
        let target = &mut memory[address as usize..(address + length) as usize];
        if !fetch.is_empty() {
            fetch.copy_from_slice(target);
        }
        if !operand.is_empty() {
            target.copy_from_slice(operand);
        }
        operation == 1
    }
}

struct End {
    messenger: Messenger,
    memory: Arc<Memory>,
    done: Vec<Completion>,
}

impl End {
    fn open() -> Self {
        let memory = Arc::new(Memory(Mutex::new(vec![0; MEMORY])));
        let regions = Arc::new(Regions::default());
        let all = RemoteAccess { read: true, write: true };
        regions.register(0, REGION, 0, all, Some(KEY)).expect("a free key");
        let mut options = MessengerOptions::default();
        options.listen = Some(([127, 0, 0, 1], 0).into());
        options.link = LinkChoice::Udp;
        let (theirs, unit) = (Arc::clone(&memory) as Arc<dyn HostMemory>, Arc::new(Swap(Arc::clone(&memory))));
        let messenger = Messenger::open(&options, theirs, unit, regions).expect("a simulated card");
        Self { messenger, memory, done: Vec::new() }
    }

    fn progress(&mut self) -> usize {
        let work = self.messenger.progress();
        while let Some(done) = self.messenger.next_completion() {
            if done.token.context != 0 {
                self.done.push(done);
            }
        }
        work
    }
}

fn ranges(at: u64, length: u64) -> HostRanges {
    HostRanges::one(at, length).expect("small numbers")
}

fn send(peer: PeerId, length: u64, tag: Option<u64>, context: u64) -> SendRequest {
    let token = Token { context, user: 0 };
    SendRequest { peer, data: ranges(0, length), tag, immediate: None, complete: CompleteWhen::Delivered, token }
}

fn receive(from: Option<PeerId>, length: u64, tag: Option<(u64, u64)>, context: u64) -> ReceiveRequest {
    let tag = tag.map(|(tag, ignore)| TagPattern { tag, ignore });
    ReceiveRequest { from, tag, data: ranges(BUFFERS, length), multi: None, token: Token { context, user: 0 } }
}

/// Addresses and key in the messenger's hello.
#[derive(Clone, Copy)]
struct Granted {
    region: RemoteRegion,
    ring: u64,
    landing: u64,
}

struct World {
    victim: End,
    other: End,
    network: SimNetwork,
    card: Card,
    /// Numbers of peers at the messenger, and of the messenger at the other peer.
    fuzzed: PeerId,
    honest: PeerId,
    back: PeerId,
    address: Address,
    /// Of the latest request.
    context: u64,
    /// Number of times that the fuzzed peer has started.
    starts: u32,
}

const HELLO_KEY: u64 = u64::from_le_bytes(*b"fpga-msg");
const RING: u64 = 256 << 10;
const CHUNK: u64 = 128 << 10;
const MAX_RECORD: u64 = 16 << 10;
/// Card memory of the fuzzed peer from which it sends.
const SOURCE: CardAddr = CardAddr::new(32 << 20);
/// Its hello slots and its area.
const SLOTS: CardRange = CardRange::new(CardAddr::new(0), 4096);
const OFFERED: CardRange = CardRange::new(CardAddr::new(64 << 20), 8 << 20);

impl World {
    fn new() -> Self {
        let (mut victim, mut other) = (End::open(), End::open());
        let mut card = CardDescription::default();
        // As those of messengers.
        (card.ni.packet_size, card.ni.mask_bits) = (32_768, 32);
        let udp = UdpLink::bind(UdpLinkOptions::new(([127, 0, 0, 1], 0).into()).divided()).expect("a socket");
        let local = Address::Link(udp.local());
        card.ni.node_id = local.node().get();
        let network = SimNetwork::builder().card(card).link(Link::from(udp)).build().expect("a card");
        let card = Card::from_backend(network.backend(0)).expect("a card");
        let address = victim.messenger.address();
        let Address::Link(socket) = address else { panic!("a simulated card") };
        assert!(network.locate(address.node(), &LinkAddress::Udp(socket)));
        let fuzzed = victim.messenger.add_peer(local).expect("a peer");
        let honest = victim.messenger.add_peer(other.messenger.address()).expect("a peer");
        let back = other.messenger.add_peer(address).expect("a peer");
        Self { victim, other, network, card, fuzzed, honest, back, address, context: 0, starts: 0 }
    }

    /// The other peer and the messenger still exchange messages, of both kinds.
    fn check_other(&mut self) {
        for length in [100, LARGE] {
            self.context += 1;
            let context = self.context;
            for (end, peer) in [(&mut self.victim, self.honest), (&mut self.other, self.back)] {
                end.messenger.receive(&receive(Some(peer), length, Some((1 << 60, 0)), 2 << 40 | context)).expect("space");
                end.messenger.send(&send(peer, length, Some(1 << 60), 1 << 40 | context)).expect("space");
            }
            let begun = Instant::now();
            while self.victim.done.len() + self.other.done.len() < 4 {
                self.victim.progress();
                self.other.progress();
                assert!(begun.elapsed() < PATIENCE, "no message of {length} bytes: {:?}", self.victim.messenger);
            }
            for done in self.victim.done.drain(..).chain(self.other.done.drain(..)) {
                assert_eq!((done.length, done.result), (length, Ok(())));
            }
            let (mine, theirs) = (self.victim.memory.0.lock().expect("no panic"), self.other.memory.0.lock().expect("no panic"));
            let at = BUFFERS as usize;
            assert!(mine[..length as usize] == theirs[at..at + length as usize]);
            assert!(theirs[..length as usize] == mine[at..at + length as usize]);
        }
    }
}

#[path = "messenger/peer.rs"]
mod peer;

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fuzz_target!(|input: &[u8]| {
    WORLD.with_borrow_mut(|world| {
        let world = world.get_or_insert_with(World::new);
        peer::play(world, input);
        world.check_other();
    });
});
