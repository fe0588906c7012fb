//! Scale of an endpoint: cost of a packet and memory, by the number of peers and of transfers in flight.
//!
//! Sender and receiver of one endpoint have the same tables in all cases; only the load differs. The peers are served in
//! turn or at random. The runs of all cases alternate, so that the ratio to the first case does not depend on the load of
//! the machine. Transfers that wait in the sender count as in flight.
//!
//! `cargo bench -p fpga-protocol --bench scale` prints the table. With the options `--once sender|receiver PEERS TRANSFERS
//! in-turn|at-random PACKETS` the program runs one case, in the function `measured`, for valgrind's tool callgrind.

use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_firmware::wire::{AnswerNotes, Common, DataHeader, Flags, StartFields};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{MemoryFault, MemoryWindow, ReceiveMemory, Receiver, ReceiverConfig};
use fpga_protocol::sender::{Answer, Command, Notify, Sender, SenderConfig};
use fpga_protocol::state::StateTable;
use fpga_registers::CardAddr;

const OURS: Incarnation = Incarnation::new(3);
const THEIRS: Incarnation = Incarnation::new(4);
/// Time of a packet on the way and of its answer.
const TRIP: u64 = 20_000;
/// 100 Gbit/s in packets of 512 bytes.
const PACKET_TIME: u64 = 41;
/// Packets of a transfer, of 512 bytes each. The only transfer of one peer sends them in one window; many transfers fill the
/// congestion windows, and each acknowledgement lets one packet leave, in a window of its own.
const PACKETS: u16 = 8;
const LENGTH: u32 = 512 * PACKETS as u32;
/// Peers and transfers in flight.
const LOADS: [(u32, u32); 4] = [(1, 1), (10, 1_000), (100, 10_000), (1_000, 100_000)];
/// A receiver holds the state of at most this many transfers.
const RECEIVER_TRANSFERS: u32 = 4096;
/// Runs of each case, and packets of a run.
const RUNS: usize = 15;
const RUN: u32 = 20_000;

/// Order in which peers are served.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    InTurn,
    AtRandom,
}

/// Next peer of an order.
struct Peers {
    count: u32,
    order: Order,
    last: u32,
    dice: u64,
}

impl Peers {
    const fn new(count: u32, order: Order) -> Self {
        Self { count, order, last: 0, dice: 1 }
    }

    fn next(&mut self) -> u32 {
        self.last = match self.order {
            Order::InTurn => (self.last + 1) % self.count,
            Order::AtRandom => {
                self.dice = self.dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                u32::try_from(self.dice >> 33).unwrap_or(0) % self.count
            }
        };
        self.last
    }
}

/// A case that is measured, packet by packet.
trait Case {
    /// Handles one packet: the acknowledgement of one and the search for the next, or an arrival.
    fn packet(&mut self);
}

/// Sender, and a network that answers every packet after [`TRIP`].
struct Sending {
    sender: Sender,
    peers: Peers,
    now: u64,
    /// Bytes of a transfer.
    length: u32,
    /// Answers in flight, and whether they are to a whole segment.
    answers: VecDeque<(u64, Answer, bool)>,
}

fn sender_config() -> SenderConfig {
    let mut config = SenderConfig::default();
    (config.transfers, config.destinations, config.op_entries) = (1 << 17, 1024, 1 << 15);
    config
}

impl Sending {
    fn new(peers: u32, transfers: u32, order: Order, packets: u16) -> Option<Self> {
        let sender = Sender::new(sender_config(), OURS).ok()?;
        let answers = VecDeque::with_capacity(1 << 17);
        let length = 512 * u32::from(packets);
        let mut case = Self { sender, peers: Peers::new(peers, order), now: 1, length, answers };
        for _ in 0..transfers {
            case.submit();
        }
        // The queues reach their steady length.
        for _ in 0..100_000 {
            case.packet();
        }
        Some(case)
    }

    fn submit(&mut self) {
        let command = Command {
            source: CardAddr::ZERO,
            node: NodeId::new(1 + self.peers.next()),
            destination: CardAddr::ZERO,
            length: self.length.into(),
            key: 0,
            notify: Notify::Receiver,
            deadline: None,
            priority: 0,
        };
        black_box(self.sender.submit(Nanos::new(self.now), command).is_ok());
    }

    fn transmit(&mut self) {
        let now = Nanos::new(self.now);
        while let Some(transmit) = self.sender.poll_transmit(now) {
            let mut answer = Answer {
                node: transmit.node,
                incarnation: OURS,
                op: OpNumber::new(0),
                transfer: transmit.transfer,
                segment: transmit.segment,
                tries: transmit.tries,
                peer_incarnation: THEIRS,
                notes: AnswerNotes::default(),
            };
            for op in transmit.ops.as_slice() {
                answer.op = *op;
                self.answers.push_back((self.now + TRIP, answer, false));
            }
            if transmit.first_packet + transmit.ops.len() == transmit.segment_packets {
                self.answers.push_back((self.now + TRIP, answer, true));
            }
        }
    }
}

impl Case for Sending {
    fn packet(&mut self) {
        self.transmit();
        self.now += PACKET_TIME;
        if let Some((at, answer, _)) = self.answers.pop_front() {
            self.now = self.now.max(at);
            self.sender.handle_ack(Nanos::new(self.now), answer);
        }
        while let Some((_, answer, _)) = self.answers.pop_front_if(|(_, _, whole)| *whole) {
            self.sender.handle_segment_done(Nanos::new(self.now), answer);
        }
        if self.sender.poll_timeout().is_some_and(|at| at.get() <= self.now) {
            self.sender.handle_timeout(Nanos::new(self.now));
        }
        while self.sender.poll_completion().is_some() {
            self.submit();
        }
    }
}

/// Memory that discards payload: the copy is not part of the measurement.
struct Sink;

impl ReceiveMemory for Sink {
    fn write(&mut self, _: CardAddr, _: &[u8]) -> Result<(), MemoryFault> {
        Ok(())
    }
}

/// Transfer that a peer is sending.
#[derive(Clone, Copy)]
struct Progress {
    peer: u32,
    id: u32,
    /// Next packet.
    packet: u16,
}

/// Receiver whose peers have transfers of one segment in progress; when one is complete, its sender begins another one.
struct Receiving {
    receiver: Receiver,
    transfers: Vec<Progress>,
    next: Peers,
    /// Per peer, the id of its next transfer; ids before the oldest live one are never used again.
    ids: Vec<u32>,
    now: u64,
}

fn receiver_config() -> ReceiverConfig {
    let mut config = ReceiverConfig::new(NodeId::new(0), THEIRS);
    (config.registry_entries, config.transfers, config.sources) = (1 << 13, 4096, 1024);
    (config.nodes, config.windows, config.tombstones) = (2048, 1, 4096);
    config
}

impl Receiving {
    fn new(peers: u32, transfers: u32, order: Order) -> Option<Self> {
        let mut receiver = Receiver::new(receiver_config()).ok()?;
        let window = MemoryWindow {
            source: NodeId::ANY,
            base: CardAddr::ZERO,
            length: 1 << 40,
            key: 0,
            permissions: Permissions::WRITE,
        };
        receiver.access_mut().install(0, window).ok()?;
        let count = transfers.min(RECEIVER_TRANSFERS - 64);
        let mut ids = vec![0; peers as usize];
        let begin = |n: u32| {
            let peer = n % peers;
            let id = ids.get_mut(peer as usize).map_or(0, |id| std::mem::replace(id, *id + 1));
            Progress { peer, id, packet: 0 }
        };
        let transfers = (0..count).map(begin).collect();
        let mut case = Self { receiver, transfers, next: Peers::new(count, order), ids, now: 1 };
        for _ in 0..8 * RECEIVER_TRANSFERS {
            case.packet();
        }
        Some(case)
    }
}

impl Case for Receiving {
    fn packet(&mut self) {
        self.now += PACKET_TIME;
        let at = self.next.next() as usize;
        let Some(progress) = self.transfers.get_mut(at) else { return };
        let base = CardAddr::new(u64::from(progress.id) * u64::from(LENGTH));
        let start = StartFields {
            base,
            segment_length: LENGTH,
            packets: PACKETS,
            transfer_base: base,
            transfer_length: LENGTH.into(),
        };
        let header = DataHeader {
            common: Common {
                source: NodeId::new(1 + progress.peer),
                destination: NodeId::new(0),
                incarnation: OURS,
                flags: Flags::NOTIFY_RECEIVER,
                path: 0,
            },
            transfer: TransferId::new(progress.id),
            oldest_live: TransferId::new(progress.id.saturating_sub(4 * RECEIVER_TRANSFERS)),
            segment: 0,
            segment_count: 1,
            address: CardAddr::new(base.get() + u64::from(progress.packet) * 512),
            key: 0,
            op: OpNumber::new(0),
            tries: 1,
            packet_size_log2: 9,
            start: (progress.packet == 0).then_some(start),
        };
        progress.packet += 1;
        if progress.packet == PACKETS {
            let id = self.ids.get_mut(progress.peer as usize);
            progress.id = id.map_or(0, |id| std::mem::replace(id, *id + 1));
            progress.packet = 0;
        }
        self.receiver.handle_packet(Nanos::new(self.now), &header, &[0; 512], &mut Sink);
        while let Some(output) = self.receiver.poll_output() {
            black_box(output);
        }
    }
}

#[inline(never)]
fn measured(case: &mut dyn Case, packets: u32) {
    for _ in 0..packets {
        case.packet();
    }
}

fn case(side: &str, peers: u32, transfers: u32, order: Order, packets: u16) -> Option<Box<dyn Case>> {
    Some(match side {
        "sender" => Box::new(Sending::new(peers, transfers, order, packets)?),
        _ => Box::new(Receiving::new(peers, transfers, order)?),
    })
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

/// Alternates the runs of all cases, and prints the medians of their times and of their ratios to the first case.
fn compare(side: &str, packets: u16) {
    let orders = [(Order::InTurn, "in turn"), (Order::AtRandom, "at random")];
    for (order, name) in orders {
        let mut cases: Vec<_> = LOADS
            .iter()
            .filter_map(|(peers, transfers)| case(side, *peers, *transfers, order, packets))
            .collect();
        let mut times = vec![Vec::new(); cases.len()];
        for _ in 0..RUNS {
            for (case, times) in cases.iter_mut().zip(&mut times) {
                let began = Instant::now();
                measured(case.as_mut(), RUN);
                times.push(began.elapsed().as_secs_f64() * 1e9 / f64::from(RUN));
            }
        }
        let first = times.first().cloned().unwrap_or_default();
        for ((peers, transfers), times) in LOADS.iter().zip(times) {
            let ratio = median(times.iter().zip(&first).map(|(time, first)| time / first).collect());
            println!(
                "scale/{side}, {peers} peers, {transfers} transfers of {packets}, {name}: {:.1} ns packet",
                median(times)
            );
            println!(
                "scale/{side}, {peers} peers, {transfers} transfers of {packets}, {name}, ratio to one: {ratio:.2}"
            );
        }
    }
}

/// Prints the tables of one side and their bytes per entry.
fn memory(side: &str, tables: &[StateTable]) {
    for table in tables {
        println!(
            "scale/{side}, memory: {} bytes for each of {} entries of {}",
            table.bytes, table.entries, table.name
        );
    }
    let total: u64 = tables.iter().map(StateTable::total).sum();
    println!("scale/{side}, memory: {total} bytes in total");
}

fn main() {
    let options: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = options.iter().position(|option| option == "--once") {
        let option = |n: usize| options.get(at + n).map_or("", String::as_str);
        let number = |n: usize| option(n).parse().unwrap_or(1);
        let packets = option(5).parse().unwrap_or(PACKETS);
        let order = if option(4) == "at-random" { Order::AtRandom } else { Order::InTurn };
        if let Some(mut case) = case(option(1), number(2), number(3), order, packets) {
            measured(case.as_mut(), RUN);
        }
        return;
    }
    // With one packet per transfer, a window has one packet in all cases.
    for (side, packets) in [("sender", PACKETS), ("sender", 1), ("receiver", PACKETS)] {
        compare(side, packets);
    }
    if let Ok(sender) = Sender::new(sender_config(), OURS) {
        memory("sender", &sender.state());
    }
    if let Ok(receiver) = Receiver::new(receiver_config()) {
        memory("receiver", &receiver.state());
    }
}
