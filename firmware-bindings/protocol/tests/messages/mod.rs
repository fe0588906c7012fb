//! Nodes that run the message schemes, over networks with every kind of impairment.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue may as well stop")]

mod contexts;
mod delayed_duplicates;
mod delivery;
mod errata;
mod flow;
mod incarnations;
mod interleaved;
mod net;
mod packets;
mod reads;
mod refusals;

use fpga_firmware::Incarnation;
use fpga_firmware::generated::Scheme;
use fpga_netmodel::{BitRate, Bursts, Conditions, Delay, Impairments, Loss, Probability, Rate};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{Receiver as Registry, ReceiverConfig as RegistryConfig};
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::messages::{ReadConfig, Reads, Receiver, ReceiverConfig, Sender, SenderConfig};
use fpga_protocol::scheme::traits::{Header, RegistrySender};
use net::{Net, Node, ReadSupport, node_id};

pub(crate) const ROUND_TRIP: Nanos = Nanos::from_micros(4);
pub(crate) const SCHEMES: [Scheme; 3] = [Scheme::ReceiverWindow, Scheme::AdaptiveWindow, Scheme::Selective];

/// Every scheme with the specification's parameters, and the receiver window with credits and with a narrow window.
pub(crate) fn all_rules() -> Vec<SchemeConfig> {
    let mut all: Vec<SchemeConfig> =
        SCHEMES.iter().filter_map(|scheme| SchemeConfig::new(*scheme, ROUND_TRIP)).collect();
    let config = fpga_protocol::scheme::receiver_window::ReceiverWindowConfig::new(ROUND_TRIP);
    for (window, credit) in [(128, true), (4, true), (4, false)] {
        let config =
            fpga_protocol::scheme::receiver_window::ReceiverWindowConfig { window, credit, ..config };
        all.push(SchemeConfig::ReceiverWindow(config));
    }
    all
}

pub(crate) type MessageNode = Node<Sender, Receiver>;
pub(crate) type MessageNet = Net<Sender, Receiver>;

impl ReadSupport for MessageNode {
    fn reads_packet(&mut self, now: Nanos, header: &Header) {
        if let Some(reads) = &mut self.reads {
            reads.handle_packet(now, header, self.receiver.access(), &mut self.sender);
        }
    }

    fn reads_timeout(&mut self, now: Nanos) {
        if let Some(reads) = &mut self.reads
            && reads.poll_timeout().is_some_and(|due| due <= now)
        {
            reads.handle_timeout(now, &self.receiver);
        }
    }
}

impl ReadSupport for Node<RegistrySender, Registry> {
    fn reads_packet(&mut self, _now: Nanos, _header: &Header) {}
    fn reads_timeout(&mut self, _now: Nanos) {}
}

pub(crate) fn configs(rules: SchemeConfig, at: usize) -> (SenderConfig, ReceiverConfig) {
    let incarnation = Incarnation::new(0x1000 + u32::try_from(at).unwrap());
    let mut sender = SenderConfig::new(node_id(at), rules);
    let mut receiver = ReceiverConfig::new(node_id(at), incarnation, rules);
    (sender.packet_size_log2, receiver.packet_size_log2) = (6, 6);
    (sender.message_packets, sender.contexts, receiver.contexts) = (16, 4, 8);
    (sender, receiver)
}

pub(crate) fn node(sender: SenderConfig, receiver: ReceiverConfig) -> MessageNode {
    let incarnation = receiver.incarnation;
    let reads = Reads::new(ReadConfig::new(receiver.node, incarnation)).unwrap();
    let mut node = Node::new(Sender::new(sender, incarnation).unwrap(), Receiver::new(receiver).unwrap());
    node.reads = Some(reads);
    node
}

pub(crate) fn net(rules: SchemeConfig, impairments: &Impairments, seed: u64) -> MessageNet {
    let nodes = [0, 1].map(|at| {
        let (sender, receiver) = configs(rules, at);
        node(sender, receiver)
    });
    Net::new(nodes, impairments, seed)
}

pub(crate) fn registry_net(impairments: &Impairments, seed: u64) -> Net<RegistrySender, Registry> {
    let nodes = [0, 1].map(|at| {
        let incarnation = Incarnation::new(0x1000 + u32::try_from(at).unwrap());
        let mut config = fpga_protocol::sender::SenderConfig::default();
        (config.packet_size_log2, config.segment_size, config.big_threshold) = (6, 1024, 1024);
        let mut receiver = RegistryConfig::new(node_id(at), incarnation);
        receiver.packet_size_log2 = 6;
        let sender = RegistrySender::new(
            node_id(at),
            fpga_protocol::sender::Sender::new(config, incarnation).unwrap(),
        );
        Node::new(sender, Registry::new(receiver).unwrap())
    });
    Net::new(nodes, impairments, seed)
}

/// No impairments; the path's delay, with the time of a message's own packets, is half a round trip.
pub(crate) fn clean() -> Impairments {
    let rate = Rate { rate: BitRate::from_gbps(40), queue: Nanos::MAX };
    Impairments::default().rate(rate).distance(Nanos::from_micros(1))
}

/// All impairments, also for answers.
pub(crate) fn bad() -> Impairments {
    let chance = |fraction| Probability::new(fraction).unwrap();
    let delay = Delay::Exponential { least: Nanos::ZERO, mean: Nanos::new(700) };
    let conditions = Conditions::default()
        .loss(Loss::Bursts(Bursts::of(0.05, 2.0).unwrap()))
        .delay(delay)
        .copies(chance(0.1), Delay::Uniform { least: Nanos::ZERO, most: Nanos::from_micros(40) })
        .damage(chance(0.03));
    Impairments::both(conditions).distance(Nanos::from_micros(2))
}
