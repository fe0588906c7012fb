//! Plan of a world: everything that is chosen before it runs. A seed gives a plan; a reduction removes parts of it.

use std::time::Duration;

use fpga_firmware::generated::Scheme;
use fpga_protocol::Nanos;

use crate::choices::{Choices, mix};

/// First address of the memory from which a node sends.
pub const SOURCES: u64 = 0x1000;
/// First address of the memory that other nodes may write.
pub const TARGETS: u64 = 0x10_0000;
/// Distance of two memory windows. Between their ends lies memory that no node may write.
pub const WINDOW_STRIDE: u64 = 0x2_0000;
/// Length of a memory window in bytes.
pub const WINDOW_LENGTH: u64 = 0x1_8000;
/// Length of the part of a window that planned transfers use. The rest is for transfers after the world has healed.
pub const PLANNED_LENGTH: u64 = 0x1_4000;
/// Maximum number of nodes.
pub const MAX_NODES: usize = 16;
/// Size of a card's memory in bytes: below that of a huge page, which the system would clear as a whole.
pub const CARD_MEMORY: u64 = 0x1F_0000;

/// Maximum time in the queue of a slow link.
pub const QUEUE: Nanos = Nanos::from_millis(1);
/// Maximum time for which a link holds a frame to deliver it in another order.
pub const PATIENCE: Nanos = Nanos::from_micros(50);

/// A part of a plan with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed<T> {
    /// Position in the plan of the seed, by which a reduction names it.
    pub number: usize,
    /// Time.
    pub time: Nanos,
    /// The part.
    pub item: T,
}

/// How a transfer names its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// The window of the node's newest incarnation.
    Window,
    /// The window of the incarnation at the start, which a restart closes.
    FirstWindow,
    /// A wrong key.
    WrongKey,
    /// A range that exceeds the window.
    Beyond,
}

/// Notification of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// By the receiver.
    Receiver,
    /// By the sender.
    Sender,
    /// None.
    None,
}

/// A transfer from one node to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Send {
    /// Sending node.
    pub from: usize,
    /// Receiving node.
    pub to: usize,
    /// Address of the data.
    pub source: u64,
    /// Window at the receiver.
    pub window: usize,
    /// Offset in the window.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Destination.
    pub aim: Aim,
    /// Scheme.
    pub scheme: Scheme,
    /// Notification.
    pub notice: Notice,
    /// Priority.
    pub priority: u8,
    /// Time after which it is given up.
    pub deadline: Option<Duration>,
    /// Whether it is sent from host memory.
    pub from_host: bool,
    /// Time after which it is cancelled.
    pub cancel: Option<Nanos>,
}

/// A read of another node's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// Reading node.
    pub reader: usize,
    /// Node that owns the data.
    pub owner: usize,
    /// Offset in the readable range.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Address of the destination.
    pub to: u64,
    /// Scheme.
    pub scheme: Scheme,
    /// Time after which it is given up.
    pub deadline: Duration,
}

/// Work of the applications.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A transfer.
    Send(Send),
    /// A read.
    Read(Read),
}

/// Failure that the world suffers for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No frames pass from one node to another.
    Cut {
        /// Sending node.
        from: usize,
        /// Receiving node.
        to: usize,
    },
    /// No frames pass between the nodes below `below` and the others.
    Partition {
        /// Number of nodes on one side.
        below: usize,
    },
    /// A host does not poll.
    Pause {
        /// The node.
        node: usize,
    },
    /// The endpoint is dropped, and opened again at the end.
    Restart {
        /// The node.
        node: usize,
    },
    /// The card leaves the bus, and is inserted again at the end.
    Removal {
        /// The node.
        node: usize,
    },
}

/// A failure and its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The failure.
    pub fault: Fault,
    /// Duration.
    pub span: Nanos,
}

/// Impairments of all links. Shares are in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Lost frames.
    pub loss: u64,
    /// Mean length of a burst of losses in frames; 0: independent losses.
    pub burst: u64,
    /// Duplicated frames.
    pub copies: u64,
    /// Damaged frames.
    pub damage: u64,
    /// Trimmed data frames.
    pub trims: u64,
    /// Maximum random delay.
    pub delay: Nanos,
    /// Number of frames among which a link delivers in random order.
    pub disorder: usize,
    /// Megabits per second of slow links; 0: none is slow.
    pub slow: u64,
    /// Whether slow links mark frames.
    pub marks: bool,
}

/// Form of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Every pair of nodes has a link.
    Mesh,
    /// All links lead to one switch.
    Star,
    /// A ring of switches.
    Ring,
    /// A binary tree of switches.
    Tree,
}

/// Properties of all nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Cards {
    /// Payload bytes of a packet.
    pub packet_size: u32,
    /// Bits of a mask.
    pub mask_bits: u16,
    /// Entries of the receive registry.
    pub registry_entries: u16,
    /// Slots of the escape channel.
    pub escape_slots: u16,
    /// Transmit windows.
    pub windows: u8,
    /// Contexts of messages.
    pub contexts: u16,
    /// Transfers that the card sends.
    pub commands: u16,
    /// Whether events are pushed to host memory.
    pub event_push: bool,
    /// Active schemes, the first one is the default.
    pub schemes: Vec<Scheme>,
    /// Entries of the event ring.
    pub event_entries: u32,
    /// Packets in flight; `None`: as many as the ring has space for.
    pub ops: Option<u32>,
    /// Transfers of an endpoint.
    pub transfers: Option<u32>,
    /// Destinations of an endpoint.
    pub destinations: Option<u32>,
    /// Paths.
    pub paths: u16,
    /// Congestion window.
    pub congestion: bool,
    /// Time without an answer after which a transfer is given up.
    pub give_up: Duration,
    /// Whether packets raise events.
    pub packet_events: bool,
    /// First incarnation.
    pub incarnation: u32,
    /// Open windows of a node.
    pub open_windows: usize,
    /// Maximum time between two polls of a host.
    pub poll: Nanos,
}

/// Plan of a world.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Seed of the plan, and of the network.
    pub seed: u64,
    /// Number of nodes.
    pub nodes: usize,
    /// Form of the network.
    pub topology: Topology,
    /// Delay of a link.
    pub hop: Nanos,
    /// Impairments before the world heals.
    pub conditions: Conditions,
    /// Cards and endpoints.
    pub cards: Cards,
    /// Work, by time.
    pub actions: Vec<Timed<Action>>,
    /// Failures, by time.
    pub faults: Vec<Timed<Outage>>,
    /// Time at which the world heals.
    pub heal: Nanos,
}

impl Plan {
    /// Plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut choices = Choices::new(mix(seed ^ 0x5357_4152_4D00_0001));
        let nodes = match choices.below(8) {
            0..=3 => choices.within(2..4),
            4..=6 => choices.within(3..7),
            _ => choices.within(6..MAX_NODES as u64 + 1),
        };
        let nodes = usize::try_from(nodes).unwrap_or(2);
        let cards = cards(&mut choices);
        // Half of the worlds are almost healthy: there every transfer must succeed.
        let conditions = conditions(&mut choices);
        let mut plan = Self {
            seed,
            nodes,
            topology: choices.of(&[Topology::Mesh, Topology::Star, Topology::Ring, Topology::Tree]),
            hop: Nanos::new(choices.of(&[100, 500, 1000, 5000, 20_000])),
            conditions,
            cards,
            actions: Vec::new(),
            faults: Vec::new(),
            heal: Nanos::ZERO,
        };
        let busy = Nanos::from_micros(choices.of(&[20, 100, 500, 3000]));
        plan.add_actions(&mut choices, busy);
        plan.add_faults(&mut choices, busy);
        let end = plan.faults.iter().map(|fault| fault.time.saturating_add(fault.item.span)).max();
        let end = end.unwrap_or(Nanos::ZERO).max(busy);
        // The world may heal in the middle of everything: what is still broken then ends.
        plan.heal = if choices.one_in(2) { end } else { Nanos::new(1 + choices.below(end.get())) };
        plan
    }

    /// Number of hops between two nodes.
    #[must_use]
    pub const fn hops(&self, from: usize, to: usize) -> u64 {
        let count = match self.topology {
            Topology::Mesh => 1,
            Topology::Star => 2,
            Topology::Ring => {
                let way = from.abs_diff(to);
                let other = self.nodes - way;
                1 + if way < other { way } else { other }
            }
            Topology::Tree => {
                let (mut one, mut other, mut hops) = (from + 1, to + 1, 1);
                while one != other {
                    if one > other {
                        one /= 2;
                    } else {
                        other /= 2;
                    }
                    hops += 1;
                }
                hops
            }
        };
        count as u64
    }

    /// Maximum time of a frame between two nodes of this plan, in the queues included.
    #[must_use]
    pub fn longest_way(&self) -> Nanos {
        let pairs = (0..self.nodes).flat_map(|from| (0..self.nodes).map(move |to| (from, to)));
        let hops = pairs.map(|(from, to)| self.hops(from, to)).max().unwrap_or(1);
        let conditions = &self.conditions;
        let queue = if conditions.slow == 0 { Nanos::ZERO } else { QUEUE };
        let order = if conditions.disorder > 1 { PATIENCE } else { Nanos::ZERO };
        let steps = [conditions.delay, queue, order];
        steps.into_iter().fold(Nanos::new(self.hop.get() * hops), Nanos::saturating_add)
    }

    /// Maximum time from a packet to its answer.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.longest_way().saturating_mul(2).saturating_add(Nanos::from_micros(10)).into()
    }

    /// Time without an answer after which a transfer is given up: an endpoint waits for at least eight round trips.
    #[must_use]
    pub fn give_up(&self) -> Duration {
        self.cards.give_up.max(self.round_trip() * 8)
    }

    /// Registry timeout of all nodes: the least that the give-up time allows, and some time more.
    #[must_use]
    pub fn registry_timeout(&self) -> Duration {
        self.give_up() + Duration::from_millis(40)
    }

    /// Time after which a read is given up. A receiver keeps the entry of an abandoned transfer for its registry timeout, and may have no other.
    #[must_use]
    pub fn read_deadline(&self) -> Duration {
        self.registry_timeout() * 2 + self.give_up()
    }

    fn add_actions(&mut self, choices: &mut Choices, busy: Nanos) {
        let count = 4 + choices.below(28);
        let mut sources = vec![SOURCES; self.nodes];
        let mut targets = vec![vec![0_u64; self.cards.open_windows]; self.nodes];
        // Some worlds have a favourite receiver, whose tables fill.
        let favourite = choices.one_in(3).then(|| choices.index(self.nodes));
        let scale = choices.of(&[8, 12, 14, 15]);
        for number in 0..usize::try_from(count).unwrap_or(0) {
            let time = Nanos::new(choices.below(busy.get()));
            let from = choices.index(self.nodes);
            let mut to =
                favourite.filter(|_| !choices.one_in(4)).unwrap_or_else(|| choices.index(self.nodes));
            if to == from && !choices.one_in(4) {
                to = (from + 1) % self.nodes;
            }
            let scheme = choices.of(&self.cards.schemes);
            let length = match choices.below(10) {
                0 => choices.below(2),
                1 => u64::from(self.cards.packet_size) * choices.within(1..4),
                _ => choices.scale(scale),
            };
            if choices.one_in(12) && to != from {
                let window = choices.index(self.cards.open_windows);
                let Some(used) = targets.get_mut(from).and_then(|windows| windows.get_mut(window)) else {
                    continue;
                };
                let length = length.clamp(1, READABLE_LENGTH);
                if *used + length + 128 > PLANNED_LENGTH {
                    continue;
                }
                // Reads open a window of their own for the destination: it lies in the same memory.
                let to_address = TARGETS + WINDOW_STRIDE * window as u64 + *used;
                *used += length + choices.within(1..64);
                let read = Read {
                    reader: from,
                    owner: to,
                    offset: choices.below(READABLE_LENGTH - length + 1),
                    length,
                    to: to_address,
                    scheme,
                    deadline: self.read_deadline(),
                };
                self.actions.push(Timed { number, time, item: Action::Read(read) });
                continue;
            }
            let window = choices.index(self.cards.open_windows);
            let source = sources[from] + choices.below(5);
            let offset = targets[to][window] + choices.below(70);
            if source + length > TARGETS - READABLE_LENGTH || offset + length > PLANNED_LENGTH {
                continue;
            }
            sources[from] = source + length;
            targets[to][window] = offset + length;
            let by_registry = scheme == Scheme::Registry;
            let send = Send {
                from,
                to,
                source,
                window,
                offset,
                length,
                aim: match choices.below(30) {
                    0 => Aim::WrongKey,
                    1 => Aim::Beyond,
                    2 | 3 => Aim::FirstWindow,
                    _ => Aim::Window,
                },
                scheme,
                notice: match choices.below(6) {
                    0 | 1 => Notice::None,
                    2 if by_registry => Notice::Sender,
                    _ => Notice::Receiver,
                },
                priority: if choices.one_in(4) { choices.below(3).to_le_bytes()[0] } else { 0 },
                deadline: choices.one_in(12).then(|| Duration::from_micros(choices.scale(14))),
                from_host: by_registry && choices.one_in(5),
                cancel: choices.one_in(12).then(|| Nanos::new(choices.scale(20))),
            };
            self.actions.push(Timed { number, time, item: Action::Send(send) });
        }
        self.actions.sort_by_key(|action| action.time);
    }

    fn add_faults(&mut self, choices: &mut Choices, busy: Nanos) {
        let count = match choices.below(8) {
            0..=3 => 0,
            4..=6 => choices.within(1..3),
            _ => choices.within(3..7),
        };
        let give_up = u64::try_from(self.give_up().as_nanos()).unwrap_or(u64::MAX);
        // The nodes of a half are never removed or restarted: what happens between them must succeed.
        for number in 0..usize::try_from(count).unwrap_or(0) {
            let time = Nanos::new(choices.below(busy.get() * 2));
            let span = match choices.below(4) {
                0 => choices.scale(16),
                1 => choices.below(give_up / 8),
                2 => choices.below(give_up / 2),
                _ => choices.below(give_up * 2),
            };
            let node = choices.index(self.nodes);
            let fault = match choices.below(10) {
                0 | 1 => Fault::Cut { from: node, to: choices.index(self.nodes) },
                2 | 3 => Fault::Partition { below: 1 + choices.index(self.nodes - 1) },
                4 | 5 => Fault::Pause { node },
                6..=8 => Fault::Restart { node },
                _ => Fault::Removal { node },
            };
            self.faults.push(Timed { number, time, item: Outage { fault, span: Nanos::new(span) } });
        }
        self.faults.sort_by_key(|fault| fault.time);
    }
}

/// Length of the range that other nodes may read, in bytes. It ends where the targets begin.
pub const READABLE_LENGTH: u64 = 0x4000;
/// First address of that range.
pub const READABLE: u64 = TARGETS - READABLE_LENGTH;

fn cards(choices: &mut Choices) -> Cards {
    let small = choices.one_in(3);
    let table = |choices: &mut Choices, least: u64, most: u64| {
        let number = if small { choices.within(least..least + 4) } else { choices.within(least..most + 1) };
        u16::try_from(number).unwrap_or(1)
    };
    let packet_size = choices.of(&[64_u32, 128, 256, 512, 512, 1024, 4096]);
    let mut schemes = vec![Scheme::Registry];
    match choices.below(4) {
        0 => schemes = vec![choices.of(&[Scheme::ReceiverWindow, Scheme::AdaptiveWindow, Scheme::Selective])],
        1 => schemes = Scheme::ALL.to_vec(),
        _ => {}
    }
    if schemes.len() > 1 {
        let first = choices.index(schemes.len());
        schemes.swap(0, first);
    }
    let least_entries = if schemes.len() > 1 { 2 } else { 1 };
    let ops = choices.one_in(3).then(|| choices.within(1..9)).and_then(|ops| u32::try_from(ops).ok());
    let give_up = choices.of(&[20_u64, 50, 50, 100, 300]);
    Cards {
        packet_size,
        mask_bits: choices.of(&[1_u16, 2, 7, 8, 16, 32, 32, 64]),
        registry_entries: table(choices, least_entries, 64),
        escape_slots: table(choices, 1, 64),
        windows: choices.of(&[1_u8, 2, 8]),
        contexts: table(choices, 1, 64),
        commands: table(choices, 1, 64),
        event_push: !choices.one_in(6),
        schemes,
        // The ring has space for the answers to all packets in flight.
        event_entries: if ops.is_some() { 256 } else { choices.of(&[64_u32, 64, 128, 256, 1024]) },
        ops,
        transfers: choices.one_in(3).then(|| u32::from(table(choices, 1, 64))),
        destinations: choices.one_in(3).then(|| u32::from(table(choices, 1, 8))),
        paths: choices.of(&[1_u16, 1, 4]),
        congestion: !choices.one_in(5),
        give_up: Duration::from_millis(give_up),
        packet_events: choices.one_in(4),
        incarnation: choices.of(&[1_u32, 1000, 0x7FFF_FFFE, 0xFFFF_FFFC]),
        open_windows: choices.index(4) + 1,
        poll: Nanos::new(choices.of(&[500, 2000, 10_000, 50_000])),
    }
}

fn conditions(choices: &mut Choices) -> Conditions {
    if choices.one_in(4) {
        return Conditions::default();
    }
    let some = |choices: &mut Choices, most: u64| {
        if choices.one_in(2) { 0 } else { 1 + choices.below(most) }
    };
    Conditions {
        loss: some(choices, 100),
        burst: choices.of(&[0, 0, 2, 8]),
        copies: some(choices, 100),
        damage: some(choices, 30),
        trims: if choices.one_in(4) { 1 + choices.below(100) } else { 0 },
        delay: Nanos::new(if choices.one_in(2) { 0 } else { choices.scale(20) }),
        disorder: choices.of(&[1, 1, 4, 16, 64]),
        slow: choices.of(&[0, 0, 100, 1000, 10_000]),
        marks: choices.one_in(2),
    }
}
