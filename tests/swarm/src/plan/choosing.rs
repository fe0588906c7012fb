//! Choices of a plan.

use std::time::Duration;

use fpga_firmware::generated::Scheme;
use fpga_protocol::Nanos;

use super::{
    Action, Aim, Cards, Conditions, Fault, MAX_NODES, Notice, Outage, PLANNED_LENGTH, Plan, READABLE_LENGTH,
    Read, SOURCES, Send, TARGETS, Timed, Topology, WINDOW_STRIDE, Work,
};
use crate::choices::{Choices, mix};
use crate::messages::plan::Messages;
use crate::streams::plan::Streams;

/// Maximum number of processes with messengers.
const MAX_PROCESSES: usize = 6;
/// Maximum number of publishers and subscribers.
const MAX_STREAM_NODES: usize = 8;

impl Plan {
    /// Plan of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut plan = Self::basic(seed);
        plan.add_extras();
        if mix(seed ^ 0x4D53).is_multiple_of(3) {
            plan.choose_messages();
        } else if mix(seed ^ 0x4652).is_multiple_of(4) {
            plan.choose_streams();
        }
        plan
    }

    /// Plan of a seed without rare circumstances and without messages.
    #[must_use]
    pub fn basic(seed: u64) -> Self {
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
            work: Work::Transfers,
            actions: Vec::new(),
            faults: Vec::new(),
            heal: Nanos::ZERO,
            limited: None,
            other_packet_size: None,
            clock_back: None,
            clock_spread: 0,
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

    /// Makes the world one of messages.
    fn choose_messages(&mut self) {
        let mut choices = Choices::new(mix(self.seed ^ 0x4D53_4753));
        let busy = self.actions.last().map_or(Nanos::from_micros(100), |action| action.time);
        let busy = busy.max(Nanos::from_micros(20));
        self.actions.clear();
        self.nodes = self.nodes.min(MAX_PROCESSES);
        self.faults.retain_mut(|fault| fault.item.fault.fits(self.nodes));
        self.limited = None;
        // Channel 0 is that of the messenger.
        self.cards.event_push = true;
        // Host memory is sent by the registry's scheme.
        self.cards.schemes = vec![Scheme::Registry];
        let mut messages = Messages::choose(&mut choices, self.nodes, self.cards.packet_size, busy);
        if choices.one_in(5) {
            self.restart_sender(&mut choices, &mut messages);
        }
        let mut gets = Choices::new(mix(self.seed ^ 0x0047_4554));
        if gets.one_in(3) {
            messages.choose_gets(&mut gets);
        }
        self.work = Work::Messages(messages);
    }

    /// Makes the world one of frame streams.
    fn choose_streams(&mut self) {
        let mut choices = Choices::new(mix(self.seed ^ 0x4652_4D53));
        self.actions.clear();
        self.nodes = self.nodes.min(MAX_STREAM_NODES);
        self.faults.retain(|fault| fault.item.fault.fits(self.nodes));
        (self.limited, self.other_packet_size, self.clock_back) = (None, None, None);
        // A subscriber's ring has space for the events of all its slots.
        self.cards.event_entries = 1024;
        // A publisher has an entry for each subscriber.
        self.cards.destinations = None;
        // A join takes some milliseconds.
        let busy = Nanos::from_millis(choices.within(4..20));
        for fault in &mut self.faults {
            fault.time = Nanos::new(choices.below(busy.get()));
        }
        self.faults.sort_by_key(|fault| fault.time);
        let end = self.faults.iter().map(|fault| fault.time.saturating_add(fault.item.span)).max();
        let end = end.unwrap_or(Nanos::ZERO).max(busy);
        self.heal = if choices.one_in(2) { end } else { Nanos::new(1 + choices.below(end.get())) };
        let mut streams = Streams::choose(&mut choices, self.nodes, self.cards.packet_size, busy);
        // Statuses, which precede frames, must not fill a card that sends one packet in a round trip.
        let least = Nanos::from(self.round_trip() * 2 * u32::try_from(self.nodes).unwrap_or(1));
        for source in &mut streams.sources {
            source.heartbeat = source.heartbeat.max(least);
        }
        self.work = Work::Streams(streams);
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
        first_transfer: 0,
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
        target: None,
    }
}
