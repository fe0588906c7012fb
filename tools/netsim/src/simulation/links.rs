//! Link feedback: the network's ports as hops, and the controller at one of its hosts.
//!
//! The messages of a port leave at its own switch and travel as any packet does: they take time, wait in queues and may be dropped.

use fpga_firmware::NodeId;
use fpga_firmware::wire::{Common, Flags, LINK_WHOLE};
use fpga_netmodel::{Conditions, ImpairedLink, Impairments};
use fpga_protocol::feedback::controller::{self, Controller, Routing};
use fpga_protocol::feedback::hop::{self, Hop};
use fpga_protocol::feedback::{Limits, LinkLoad, LinkPacket, Word};
use fpga_protocol::scheme::traits::Header;

use super::{LinkFeedbackCounts, NONE, Packet, RateChange, Simulation};
use crate::event_queue::{Event, EventAction};
use crate::host::AnySender;
use crate::scenario::{Scenario, ScenarioError, incarnation_of, node_of};
use crate::topology::{PlainSwitch, SwitchFabric};

/// Hops and controller.
#[derive(Debug)]
pub(super) struct Feedback {
    hops: Vec<Hop>,
    config: hop::HopConfig,
    controller: Controller,
    at: u32,
    /// Applies the loss of hosts' control packets to the messages of links.
    loss: ImpairedLink<Packet>,
    words: LinkFeedbackCounts,
    /// Switches without link feedback.
    plain: Vec<PlainSwitch>,
}

/// Routes of the simulated network as the controller changes them: it reroutes a pair around a link, if routes are fixed and there is
/// another route.
struct FixedRoutes<'a> {
    network: &'a mut SwitchFabric,
    now: u64,
}

impl Routing for FixedRoutes<'_> {
    fn avoid(&mut self, link: u32, sender: NodeId, receiver: NodeId) -> bool {
        let host = |node: NodeId| node.get().wrapping_sub(1);
        self.network.avoid(link, host(sender), host(receiver), self.now)
    }
}

impl Feedback {
    /// Returns `None` if the scenario has no controller.
    pub(super) fn new(scenario: &Scenario, ports: usize) -> Result<Option<Self>, ScenarioError> {
        let Some(at) = scenario.controller else { return Ok(None) };
        let round_trip = scenario.timers_for();
        // About sixteen messages per round trip and port: less than a hundredth of what the link carries meanwhile.
        let gap = fpga_protocol::Nanos::new(round_trip.get() / 16 + 1);
        let controller = controller::ControllerConfig { links: 2, memory: round_trip.saturating_mul(4) };
        let mut impairments = Impairments::default();
        impairments.control = Conditions::default().loss(scenario.control.loss);
        // Random numbers separate from those of the hosts.
        let loss = ImpairedLink::new(impairments, 1, !scenario.seed)?;
        Ok(Some(Self {
            hops: vec![Hop::default(); ports],
            config: hop::HopConfig { limits: Limits::default(), gap, patience: round_trip },
            controller: Controller::new(controller),
            at,
            loss,
            words: LinkFeedbackCounts::default(),
            plain: scenario.plain_switches.clone(),
        }))
    }

    /// Counts of feedback messages. The senders count their inquiries themselves.
    pub(super) const fn words(&self) -> LinkFeedbackCounts {
        let (rerouted, slowed) = self.controller.actions();
        LinkFeedbackCounts { rerouted, slowed, ..self.words }
    }
}

impl Simulation {
    /// Handles a packet that arrives at `vertex` and leaves by `port`: the port may report on its link. Returns whether the packet is
    /// forwarded.
    pub(super) fn at_hop(&mut self, vertex: u32, port: u32, packet: u32) -> bool {
        let now = self.nanos();
        let Some(feedback) = &mut self.feedback else { return true };
        let Some(header) = self.packets.get(packet as usize).map(|packet| packet.header) else { return true };
        if let Some(PlainSwitch { drops, .. }) = feedback.plain.iter().find(|plain| plain.vertex == vertex) {
            let dropped = *drops && matches!(header, Header::Link(_));
            feedback.words.dropped += u64::from(dropped);
            return !dropped;
        }
        let Some(hop) = feedback.hops.get_mut(port as usize) else { return true };
        let queue = self.network.filled(port, self.now).min(LINK_WHOLE);
        let state = LinkLoad { link: port, rate: self.network.rate(port).min(LINK_WHOLE), queue };
        let Common { source, destination, path, .. } = header.common();
        let last_hop = self.network.ends_at_host(port);
        let word = match header {
            Header::Link(LinkPacket { word: Word::Inquiry { number }, .. }) => {
                let word = hop.inquiry(now, &feedback.config, state, number, destination);
                word.map(|word| (source, word))
            }
            _ if header.is_data() => {
                let word = hop.packet(now, &feedback.config, state, (source, destination));
                word.map(|word| (node_of(feedback.at), word))
            }
            _ => None,
        };
        if let Some((to, word)) = word {
            let count = if matches!(word, Word::Passive { .. }) {
                &mut feedback.words.passive
            } else {
                &mut feedback.words.active
            };
            *count += 1;
            let common = Common {
                source: destination,
                destination: to,
                incarnation: incarnation_of(destination.get().wrapping_sub(1)),
                flags: if last_hop { Flags::LAST_HOP } else { Flags::NONE },
                path,
            };
            self.send_feedback_at(vertex, LinkPacket { common, word });
        }
        true
    }

    /// Sends a hop's message from `vertex`.
    fn send_feedback_at(&mut self, vertex: u32, packet: LinkPacket) {
        let to = packet.common.destination;
        let header = Header::Link(packet);
        let length = u32::try_from(header.length()).unwrap_or(0);
        let packet = Packet::new(header, 0, length, NONE);
        let now = self.nanos();
        if let Some(feedback) = &mut self.feedback {
            let _ = feedback.loss.offer(now, packet);
            if feedback.loss.poll(now).is_none() {
                feedback.words.lost += 1;
                return;
            }
        }
        let packet = self.keep(packet);
        self.push(
            Event::new(self.now, EventAction::Arrive, vertex)
                .of(packet)
                .bound(to.get().wrapping_sub(1), length),
        );
    }

    /// Handles a packet about links that arrives at a host. Returns whether it was for the controller.
    pub(super) fn at_controller(&mut self, host: u32, packet: &LinkPacket) -> bool {
        let now = self.nanos();
        let Some(feedback) = self.feedback.as_mut().filter(|feedback| feedback.at == host) else {
            return false;
        };
        if !matches!(packet.word, Word::Active { .. }) {
            return false;
        }
        let mut ways = FixedRoutes { network: &mut self.network, now: self.now };
        if let Some(LinkPacket { common, word }) = feedback.controller.report(now, packet, &mut ways) {
            let common = Common { source: node_of(host), incarnation: incarnation_of(host), ..common };
            self.inject(host, Header::Link(LinkPacket { common, word }), 0, NONE);
        }
        true
    }

    /// Records the changes of a host's rates.
    pub(super) fn note_rates(&mut self, host: u32) {
        let at = self.nanos();
        let Some(AnySender::Card(sender)) = self.hosts.get_mut(host as usize).map(|node| &mut node.sender)
        else {
            return;
        };
        while let Some((node, rate)) = sender.flow_mut().and_then(|flow| flow.poll_change()) {
            let to = node.get().wrapping_sub(1);
            self.report.rates.push(RateChange { at, from: host, to, rate });
        }
    }
}
