//! Rare circumstances, each in a share of the worlds.

use std::time::Duration;

use fpga_firmware::generated::{PacketKind, Scheme};
use fpga_protocol::Nanos;

use super::{Action, Aim, Fault, Notice, Outage, Plan, SOURCES, Send, TARGETS, Timed};
use crate::choices::{Choices, mix};
use crate::messages::plan::{Call, Messages};

/// Kinds of packets of which most may be lost.
const TARGETED: [PacketKind; 10] = [
    PacketKind::Start,
    PacketKind::Start,
    PacketKind::Data,
    PacketKind::Ack,
    PacketKind::Nack,
    PacketKind::SegmentDone,
    PacketKind::MessageRequest,
    PacketKind::MessageData,
    PacketKind::MessageStart,
    PacketKind::MessageAnswer,
];
/// Distance of transfers to a host that does not poll, in bytes.
const FLOOD_STRIDE: u64 = 48;
const _: () = assert!(SOURCES + FLOOD_STRIDE * 200 < TARGETS, "the data lies before the targets");

impl Plan {
    /// Adds one circumstance to half of the plans, and clocks at different rates to some.
    pub(super) fn add_extras(&mut self) {
        let mut choices = Choices::new(mix(self.seed ^ 0x4558_5452_4100));
        match choices.below(12) {
            0 | 1 => {
                let kind = choices.of(&TARGETED);
                self.conditions.target = Some((kind as u8, choices.within(200..900)));
            }
            2 | 3 => self.move_apart(&mut choices),
            4 => self.restart_often(&mut choices),
            5 => self.flood(&mut choices),
            6 => self.limit_schemes(&mut choices),
            7 => self.other_packet_size = Some(choices.index(self.nodes)),
            8 => self.set_clock_back(&mut choices),
            _ => {}
        }
        if choices.one_in(4) {
            self.clock_spread = choices.of(&[1, 10, 40]);
        }
        self.cards.first_transfer = choices.of(&[0, 0, 0x7FFF_FFFC, 0xFFFF_FFFC, 0xFFFF_FFFF]);
    }

    /// Packets are in the network for almost their maximum lifetime, and nodes restart meanwhile: packets and answers of earlier incarnations meet
    /// later ones.
    fn move_apart(&mut self, choices: &mut Choices) {
        let pairs = (0..self.nodes).flat_map(|from| (0..self.nodes).map(move |to| (from, to)));
        let hops = pairs.map(|(from, to)| self.hops(from, to)).max().unwrap_or(1);
        self.hop = Nanos::new(choices.within(5_500_000..9_300_000) / hops);
        (self.conditions.delay, self.conditions.slow) = (Nanos::ZERO, 0);
        for action in &mut self.actions {
            action.time = Nanos::new(choices.below(40_000_000));
            if let Action::Send(send) = &mut action.item {
                // One of two nodes restarts, the other one receives.
                (send.deadline, send.cancel) = (None, None);
            }
        }
        self.actions.sort_by_key(|action| action.time);
        self.add_restarts(choices, Nanos::from_millis(30));
        self.heal = Nanos::from_millis(60);
    }

    /// One node restarts several times, within the time for which others remember its transfers.
    fn restart_often(&mut self, choices: &mut Choices) {
        let end = self.actions.last().map_or(Nanos::from_micros(100), |action| action.time);
        self.add_restarts(choices, end.saturating_add(Nanos::from_millis(25)));
        for action in &mut self.actions {
            // Some work before, some after a restart.
            if choices.one_in(2) {
                action.time = Nanos::new(action.time.get() + choices.below(25_000_000));
            }
        }
        self.actions.sort_by_key(|action| action.time);
        self.heal = end.saturating_add(Nanos::from_millis(choices.within(26..60)));
    }

    /// A node restarts, each time with an earlier incarnation.
    fn set_clock_back(&mut self, choices: &mut Choices) {
        self.restart_often(choices);
        self.clock_back = self.faults.iter().find_map(|fault| match fault.item.fault {
            Fault::Restart { node } => Some(node),
            _ => None,
        });
    }

    /// A process that sends restarts while its messages wait for receives, and sends again.
    pub(super) fn restart_sender(&mut self, choices: &mut Choices, messages: &mut Messages) {
        let last = messages.calls.last().map_or(Nanos::from_micros(100), |call| call.time);
        let end = last.saturating_add(Nanos::from_millis(10));
        self.add_restarts(choices, end);
        for call in &mut messages.calls {
            let is_receive = matches!(call.item, Call::Receive { .. });
            if choices.one_in(if is_receive { 2 } else { 4 }) {
                call.time = call.time.saturating_add(Nanos::new(choices.below(10_000_000)));
            }
        }
        messages.calls.sort_by_key(|call| call.time);
        self.heal = end.saturating_add(Nanos::new(choices.scale(24)));
    }

    /// Replaces the failures by short restarts of one node.
    fn add_restarts(&mut self, choices: &mut Choices, end: Nanos) {
        let node = choices.index(self.nodes);
        let count = choices.within(1..4);
        let restart = |number| Timed {
            number,
            time: Nanos::new(choices.below(end.get())),
            item: Outage { fault: Fault::Restart { node }, span: Nanos::new(choices.scale(17)) },
        };
        self.faults = (0..usize::try_from(count).unwrap_or(1)).map(restart).collect();
        self.faults.sort_by_key(|fault| fault.time);
    }

    /// A host that does not poll gets more notifications than its event ring has space for.
    fn flood(&mut self, choices: &mut Choices) {
        self.nodes = self.nodes.min(3);
        self.cards.schemes = vec![choices.of(Scheme::ALL)];
        (self.cards.event_entries, self.cards.ops) = (64, None);
        (self.cards.transfers, self.cards.packet_events) = (None, false);
        self.cards.give_up = Duration::from_millis(100);
        let length = choices.within(1..FLOOD_STRIDE);
        let send = |number: usize| {
            let offset = FLOOD_STRIDE * number as u64;
            Send {
                from: 1 + number % (self.nodes - 1),
                to: 0,
                source: SOURCES + offset,
                window: 0,
                offset,
                length,
                aim: Aim::Window,
                scheme: self.cards.schemes[0],
                notice: Notice::Receiver,
                priority: 0,
                deadline: None,
                from_host: false,
                cancel: None,
            }
        };
        let count = usize::try_from(choices.within(80..200)).unwrap_or(80);
        self.actions = (0..count)
            .map(|number| Timed { number, time: Nanos::from_micros(20), item: Action::Send(send(number)) })
            .collect();
        let span = Nanos::new(choices.within(200_000..20_000_000));
        let item = Outage { fault: Fault::Pause { node: 0 }, span };
        self.faults = vec![Timed { number: 0, time: Nanos::from_micros(1), item }];
        self.heal = span.saturating_add(Nanos::from_micros(100));
    }

    /// One node has the first scheme alone.
    fn limit_schemes(&mut self, choices: &mut Choices) {
        if self.cards.schemes.len() == 1 {
            self.cards.schemes = Scheme::ALL.to_vec();
            self.cards.registry_entries = self.cards.registry_entries.max(2);
        }
        let (node, first) = (choices.index(self.nodes), self.cards.schemes[0]);
        self.limited = Some(node);
        for action in &mut self.actions {
            match &mut action.item {
                Action::Send(send) => {
                    let other = choices.of(&self.cards.schemes);
                    send.scheme = if send.from == node { first } else { other };
                    let by_registry = send.scheme == Scheme::Registry;
                    send.from_host &= by_registry;
                    if !by_registry && send.notice == Notice::Sender {
                        send.notice = Notice::Receiver;
                    }
                }
                Action::Read(read) if read.owner == node || read.reader == node => read.scheme = first,
                Action::Read(_) => {}
            }
        }
    }
}
