//! Recorded traffic in lockstep: two simulated cards exchange transfers over a network that loses, repeats and reorders packets. The
//! packets that each receiver got are given to `ni_receive` and to the protocol engine's receiver.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fpga_card::CardDescription;
use fpga_driver::{Card, CardAddr, CardRange};
use fpga_firmware::wire::{Control, Packet};
use fpga_netmodel::{Conditions, ImpairedLink, Impairments, Loss, Order, Probability};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::MemoryWindow;
use fpga_rdma::{Endpoint, EndpointOptions, RemoteRegion, SendOptions};
use fpga_sim::SimNetwork;
use fpga_sim::link::{UdpLink, UdpLinkOptions};

use super::DEFAULT;
use super::lockstep::{Input, Lockstep};
use crate::simulation::open_window;

/// Bytes of the link's wrapper before each frame.
const WRAPPER: usize = 16;
const MAX_DATAGRAM: usize = 2048;
const SOURCE: u64 = 0x10_0000;
const TARGET: u64 = 0x20_0000;
const LENGTH: u64 = 20_000;
/// Transfers in each direction.
const TRANSFERS: u64 = 8;
/// Longer than the run: the time of a timeout depends on the card's clock, which is not recorded.
const ESCAPE_TIMEOUT: Duration = Duration::from_secs(10);
const REGISTRY_TIMEOUT: Duration = Duration::from_secs(20);
/// Packet lifetime of the endpoints (docs/protocol.md 2.3).
const PACKET_LIFETIME: Duration = Duration::from_millis(10);
const TIMEOUT: Duration = Duration::from_mins(5);

/// A frame that arrived, with its time.
struct Recorded {
    now: u64,
    frame: Vec<u8>,
}

/// One node: a card with its own link, and the way of the frames towards it.
struct Node {
    end: Endpoint,
    card: Card,
    network: SimNetwork,
    address: SocketAddr,
    /// Link towards this node.
    link: ImpairedLink<Vec<u8>>,
    recorded: Vec<Recorded>,
}

/// Both nodes, and the socket between their links.
struct Exchange {
    socket: UdpSocket,
    began: Instant,
    nodes: [Node; 2],
}

fn impairments() -> Impairments {
    let probability = |fraction| Probability::new(fraction).unwrap();
    let mut conditions = Conditions::default();
    conditions.loss = Loss::Independent(probability(0.05));
    let conditions = conditions.copies(probability(0.03), conditions.copy_delay);
    Impairments::both(conditions).order(Order::Random { depth: 12, patience: Nanos::from_micros(300) })
}

fn node(number: u32, socket: SocketAddr) -> Node {
    let text = format!(
        "schema_version: 3\nni: {{ node_id: {number}, packet_size: 512, mask_bits: 32, registry_entries: 64, escape_slots: 64, memory_windows: 64 }}"
    );
    let description = CardDescription::parse("recorded.yaml".as_ref(), &text).unwrap();
    let link = UdpLink::bind(UdpLinkOptions::new("127.0.0.1:0".parse().unwrap()).peer(socket)).unwrap();
    let address = link.local();
    let network = SimNetwork::builder().card(description).link(link).build().unwrap();
    let card = Card::from_backend(network.backend(0)).unwrap();
    let mut options = EndpointOptions::default();
    options.packet_events = true;
    options.round_trip = Duration::from_millis(1);
    options.escape_timeout = ESCAPE_TIMEOUT;
    options.give_up = Duration::from_secs(10);
    options.registry_timeout = Some(REGISTRY_TIMEOUT);
    let end = Endpoint::open_with(&card, &options).unwrap();
    let link = ImpairedLink::new(impairments(), 4096, number.into()).unwrap();
    Node { end, card, network, address, link, recorded: Vec::new() }
}

impl Exchange {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        Self { socket, began: Instant::now(), nodes: [node(1, address), node(2, address)] }
    }

    /// Polls both ends, and carries the frames between them.
    fn step(&mut self) {
        for node in &mut self.nodes {
            node.end.poll().unwrap();
            if node.network.step_until_idle() == 0 {
                node.end.relax();
            }
        }
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap();
        let mut datagram = [0; MAX_DATAGRAM];
        while let Ok((length, from)) = self.socket.recv_from(&mut datagram) {
            let to = usize::from(from == self.nodes[0].address);
            self.nodes[to].link.offer(Nanos::new(now), datagram[..length].to_vec()).unwrap();
        }
        for node in &mut self.nodes {
            while let Some(datagram) = node.link.poll(Nanos::new(now)) {
                self.socket.send_to(&datagram, node.address).unwrap();
                node.recorded.push(Recorded { now, frame: datagram[WRAPPER..].to_vec() });
            }
        }
    }
}

/// Bytes that node `from` sends.
fn pattern(from: usize) -> Vec<u8> {
    (0..LENGTH).map(|offset| offset.to_le_bytes()[0].wrapping_mul(7) ^ from.to_le_bytes()[0]).collect()
}

/// Transfers in both directions at the same time. Returns the nodes and the regions that are open at each.
fn exchange() -> ([Node; 2], [RemoteRegion; 2]) {
    let mut both = Exchange::new();
    let nodes = [0, 1].map(|number: usize| both.nodes[number].end.node());
    let regions = [0, 1].map(|owner: usize| {
        let range = CardRange::new(CardAddr::new(TARGET), TRANSFERS * LENGTH);
        both.nodes[owner].end.open_region(nodes[1 - owner], range).unwrap().remote
    });
    for (from, node) in both.nodes.iter_mut().enumerate() {
        let buffer = node.card.buffer_from(&pattern(from)).unwrap();
        node.end.write(buffer, CardAddr::new(SOURCE)).unwrap();
        for number in 0..TRANSFERS {
            let (to, offset) = (&regions[1 - from], number * LENGTH);
            node.end.send(CardAddr::new(SOURCE), to, offset, LENGTH, SendOptions::default()).unwrap();
        }
    }
    let mut completed = [0; 2];
    while completed != [TRANSFERS; 2] {
        both.step();
        for (node, completed) in both.nodes.iter_mut().zip(&mut completed) {
            while let Some(sent) = node.end.next_completion() {
                sent.result.unwrap();
                *completed += 1;
            }
        }
        assert!(both.began.elapsed() < TIMEOUT, "{completed:?}, {:?}", both.nodes[0].end.counters());
    }
    (both.nodes, regions)
}

/// Gives the recorded frames to both receivers. Returns the number of packets.
fn replay(program: &std::path::Path, node: &Node, region: &RemoteRegion) -> usize {
    let mut both = Lockstep::new(program, DEFAULT.config(), 5, 0);
    both.input(Input::Identity { node: node.end.node(), incarnation: node.end.incarnation() });
    let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap();
    both.input(Input::Timeouts {
        escape: nanos(ESCAPE_TIMEOUT),
        registry: nanos(REGISTRY_TIMEOUT),
        lifetime: nanos(PACKET_LIFETIME),
    });
    both.input(Input::PacketEvents(true));
    let window: MemoryWindow = open_window(region.address.get(), region.length, region.key);
    both.input(Input::Install { index: 0, window });
    let mut packets = 0;
    for Recorded { now, frame } in &node.recorded {
        let input = match Packet::parse(frame).unwrap() {
            Packet::Data(data) => {
                Input::Packet { now: *now, header: data.header(), payload: data.payload().to_vec() }
            }
            Packet::Control(Control::Arrived(arrived)) => Input::Arrived { now: *now, arrived },
            // For the sender of this node.
            _ => continue,
        };
        both.input(Input::Time(*now));
        both.input(input);
        packets += 1;
        if packets % 50 == 0 {
            both.compare_tables();
            both.sync();
        }
    }
    both.compare_tables();
    both.sync();
    let counters = both.receiver.counters();
    println!("{packets} packets, {} cycles: {counters:?}", both.cycles());
    // The receivers took the same path as the card: every segment and every transfer is complete, and nothing was refused as invalid.
    assert!(counters.completions == counters.registrations, "{counters:?}");
    assert_eq!((counters.notices, counters.bad_packets, counters.violations), (TRANSFERS, 0, 0));
    assert!(counters.duplicates > 0 && counters.escape_hits > 0, "{counters:?}");
    packets
}

#[test]
fn recorded_traffic_of_two_cards_matches() {
    let Some(program) = DEFAULT.build() else { return };
    let (nodes, regions) = exchange();
    for (number, (node, region)) in nodes.iter().zip(&regions).enumerate() {
        let min_packets = usize::try_from(TRANSFERS * LENGTH / 512).unwrap();
        assert!(replay(&program, node, region) > min_packets);
        let length = usize::try_from(TRANSFERS * LENGTH).unwrap();
        let buffer = node.card.c2h(1).unwrap().read(node.card.buffer(length).unwrap(), CardAddr::new(TARGET));
        assert!(buffer.unwrap().to_vec() == pattern(1 - number).repeat(usize::try_from(TRANSFERS).unwrap()));
    }
}
