//! Tables of the hosts, sized by the traffic of each one.

use fpga_protocol::receiver::ReceiverConfig;
use fpga_protocol::scheme::message_scheme::MessageScheme;
use fpga_protocol::scheme::{MAX_MESSAGE_PACKETS, messages};
use fpga_protocol::sender::SenderConfig;

use super::{Scenario, ScenarioError, incarnation_of, node_of};
use crate::Scheme;

/// Traffic of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostLoad {
    /// Flows that it sends.
    pub(crate) flows_sent: u32,
    /// Messages of the message schemes that it sends.
    pub(crate) sent: u32,
    /// Flows that it receives.
    pub(crate) flows_received: u32,
    /// Messages of the message schemes that it receives.
    pub(crate) received: u32,
}

impl HostLoad {
    /// Bounds the tables of the registry scheme's sender.
    fn bound_sender(&self, config: &mut SenderConfig) {
        config.transfers = config.transfers.min(self.flows_sent.max(1));
        config.destinations = config.destinations.min(self.flows_sent.max(1));
    }

    /// Bounds the tables of the registry scheme's receiver.
    fn bound_receiver(&self, config: &mut ReceiverConfig) {
        let flows = u16::try_from(self.flows_received).unwrap_or(u16::MAX);
        config.transfers = config.transfers.min(flows.max(1));
        config.sources = config.sources.min(flows.max(1));
        // One range for each transfer in progress, and one for the transfers before them.
        config.tombstones = config.tombstones.min(flows.saturating_add(2));
        if flows <= 32 {
            config.nodes = config.nodes.min(2 * u32::from(flows.max(1)));
        }
    }
}

/// Configurations of a host's sender and receiver, registry scheme.
pub(crate) fn registry_configs(
    scenario: &Scenario,
    host: u32,
    load: HostLoad,
) -> (SenderConfig, ReceiverConfig) {
    let (mut sender, mut receiver) = (scenario.sender, scenario.receiver);
    sender.paths = scenario.paths;
    sender.congestion = scenario.congestion;
    load.bound_sender(&mut sender);
    (receiver.node, receiver.incarnation) = (node_of(host), incarnation_of(host));
    receiver.packet_size_log2 = scenario.sender.packet_size_log2;
    receiver.mask_bits = scenario.sender.mask_bits;
    receiver.windows = 1;
    load.bound_receiver(&mut receiver);
    (sender, receiver)
}

impl Scenario {
    /// Traffic of each host. Tables larger than it needs would never be filled: smaller ones change nothing, and save most of the memory of
    /// a large network, and with it most of the cache misses.
    pub(crate) fn loads(&self) -> Vec<HostLoad> {
        let mut all = vec![HostLoad::default(); usize::try_from(self.topology.hosts()).unwrap_or(0)];
        let span = u64::from(self.sender.packet_size()) * u64::from(MAX_MESSAGE_PACKETS);
        for flow in &self.flows {
            let count = u32::try_from(flow.length.div_ceil(span)).unwrap_or(u32::MAX);
            if let Some(load) = all.get_mut(flow.from as usize) {
                load.flows_sent = load.flows_sent.saturating_add(1);
                load.sent = load.sent.saturating_add(count);
            }
            if let Some(load) = all.get_mut(flow.to as usize) {
                load.flows_received = load.flows_received.saturating_add(1);
                load.received = load.received.saturating_add(count);
            }
        }
        all
    }
}

type MessageEnds<R> = (Box<messages::Sender<R>>, Box<messages::Receiver<R>>);

/// Sender and receiver of a host, message schemes.
pub(crate) fn message_ends<R: MessageScheme>(
    scenario: &Scenario,
    rules: R,
    host: u32,
    load: HostLoad,
) -> Result<MessageEnds<R>, ScenarioError> {
    let mut sender = messages::SenderConfig::new(node_of(host), rules);
    let mut receiver = messages::ReceiverConfig::new(node_of(host), incarnation_of(host), rules);
    (sender.packet_size_log2, receiver.packet_size_log2) =
        (scenario.sender.packet_size_log2, scenario.sender.packet_size_log2);
    let sending = scenario.sending_contexts().min(load.sent.max(1));
    (sender.contexts, sender.contexts_per_node) = (sending, sending);
    receiver.contexts = scenario.receiving_contexts().min(load.received.max(1));
    sender.message_packets = MAX_MESSAGE_PACKETS;
    sender.ask = scenario.timers_for();
    sender.transfers = load.flows_sent.clamp(1, 256);
    sender.paths = scenario.paths;
    // The receiver counter has none: nothing is known of its packets in flight.
    sender.congestion = scenario.congestion.filter(|_| scenario.scheme != Scheme::ReceiverCounter);
    // Each message comes from one context of a sender. A table of at most 64 records is searched completely.
    (receiver.windows, receiver.peers) =
        (1, if load.received <= 32 { 2 * load.received.max(1) } else { 1024 });
    let sender = messages::Sender::new(sender, incarnation_of(host))?;
    Ok((Box::new(sender), Box::new(messages::Receiver::new(receiver)?)))
}

#[cfg(test)]
mod tests {
    use fpga_protocol::state::StateTable;
    use fpga_protocol::{receiver, sender};

    use super::*;
    use crate::scheme::Rules;
    use crate::{Scheme, Topology};

    fn bytes(tables: &[StateTable]) -> u64 {
        tables.iter().map(StateTable::total).sum()
    }

    fn of_messages(scenario: &Scenario, rules: impl MessageScheme, load: HostLoad) -> u64 {
        let (sender, receiver) = message_ends(scenario, rules, 0, load).unwrap();
        bytes(&sender.state()) + bytes(&receiver.state())
    }

    /// Bytes of the tables of a host that sends a flow and receives one, without the stores of packets of its contexts.
    fn tables(scheme: Scheme) -> u64 {
        let scenario =
            Scenario::new(1).scheme(scheme).topology(Topology::Torus { side: 16 }).permutation(1 << 16);
        let load = scenario.loads().into_iter().next().unwrap();
        assert_eq!(load, HostLoad { flows_sent: 1, sent: 1, flows_received: 1, received: 1 });
        match scenario.rules_in_use() {
            None => {
                let (sender, receiver) = registry_configs(&scenario, 0, load);
                let sender = sender::Sender::new(sender, incarnation_of(0)).unwrap();
                let receiver = receiver::Receiver::new(receiver).unwrap();
                bytes(&sender.state()) + bytes(&receiver.state())
            }
            Some(Rules::Card(rules)) => of_messages(&scenario, rules, load),
            Some(Rules::SenderWindow(rules)) => of_messages(&scenario, rules, load),
            Some(Rules::ReceiverCounter(rules)) => of_messages(&scenario, rules, load),
        }
    }

    #[test]
    fn host_tables_of_one_flow_are_small() {
        for scheme in Scheme::ALL.iter().copied().filter(|scheme| *scheme != Scheme::Registry) {
            assert!(tables(scheme) <= 2 << 10, "{scheme}: {} bytes", tables(scheme));
        }
        // Its op table, its registry and its escape channel do not depend on the traffic.
        assert!(tables(Scheme::Registry) <= 192 << 10, "{} bytes", tables(Scheme::Registry));
    }
}
