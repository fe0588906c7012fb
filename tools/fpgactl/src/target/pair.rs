//! Two cards that reach each other.

use fpga_driver::CardSpec;
use fpga_firmware::NodeId;
use fpga_netmodel::{Impairments, Rate};
use fpga_sim::{CardDescription, HopFeedback, Partitions, SimHop, SimNetwork};

use super::{CardOpener, Opened, Target, open};
use crate::design::Design;
use crate::error::CliError;

/// Second card beside that of `--card`, of the same design.
#[derive(Debug)]
struct Peer<'a> {
    target: &'a Target,
    design: Design,
}

impl CardOpener for Peer<'_> {
    fn target(&self) -> &Target {
        self.target
    }

    fn design(&self) -> Design {
        self.design
    }
}

/// Options of the simulated network and cards of [`open_pair`].
#[derive(Debug, Clone, Default)]
pub struct SimOptions {
    /// Payload bytes per packet; `None`: value of the description.
    pub packet: Option<u32>,
    /// Seed of the impairments.
    pub seed: u64,
    /// Impairments of the network.
    pub impairments: Impairments,
    /// Hop in front of the second card.
    pub hop: Option<HopOptions>,
    /// Whether each card has a clock of its own, and is driven by a thread of its own.
    pub partitioned: bool,
}

/// Two cards that reach each other.
#[derive(Debug)]
pub struct Pair {
    /// The first card.
    pub first: Opened,
    /// The second card.
    pub second: Opened,
    /// Their simulated networks, if [`SimOptions::partitioned`] applies.
    pub partitions: Option<Partitions>,
}

/// Options of a hop.
#[derive(Debug, Clone, Copy)]
pub struct HopOptions {
    /// Rate and maximum queueing time.
    pub rate: Rate,
    /// Support of link feedback.
    pub feedback: HopFeedback,
    /// Node of the controller.
    pub controller: Option<NodeId>,
}

/// Opens two cards that reach each other: two simulated ones in a common network, or two real ones.
///
/// # Errors
/// As [`open`]; wrong usage for two cards without a common network.
pub fn open_pair(
    choice: &impl CardOpener,
    peer: Option<&Target>,
    network: SimOptions,
) -> Result<Pair, CliError> {
    let target = choice.target();
    match (target.description()?, peer) {
        (Some(first), None) => {
            let second = next_node(&first, first.clone());
            simulated_pair(choice, first, second, network)
        }
        (Some(first), Some(peer)) => match peer.description()? {
            // A peer from a file keeps its node id, and an error reports a conflict with the first card. Built-in cards all have the same
            // node id.
            Some(second) if peer != target && is_described_in_file(&peer.spec) => {
                simulated_pair(choice, first, second, network)
            }
            Some(second) => {
                let second = next_node(&first, second);
                simulated_pair(choice, first, second, network)
            }
            None => Err(mixed(target, peer)),
        },
        (None, None) => Err(CliError::usage(format!(
            "{target} has no simulated peer in this process: such a card needs a second one on its network"
        ))
        .advise("name it with --peer")),
        (None, Some(peer)) if peer.is_simulated() => Err(mixed(target, peer)),
        (None, Some(peer)) if peer == target => {
            Err(CliError::usage(format!("--card and --peer are both {target}")).advise("name two cards"))
        }
        (None, Some(peer)) => Ok(Pair {
            first: open(choice)?,
            second: open(&Peer { target: peer, design: choice.design() })?,
            partitions: None,
        }),
    }
}

fn is_described_in_file(spec: &CardSpec) -> bool {
    matches!(spec, CardSpec::Simulated { description: Some(file) } if CardDescription::builtin_name(file).is_none())
}

fn mixed(card: &Target, peer: &Target) -> CliError {
    CliError::usage(format!(
        "{card} and {peer} have no common network: one is simulated in this process, the other is not"
    ))
    .advise("name two of a kind with --card and --peer")
}

/// The same card with the node id after the first one's.
fn next_node(first: &CardDescription, mut second: CardDescription) -> CardDescription {
    if second.ni.node_id == first.ni.node_id {
        second.ni.node_id = first.ni.node_id.wrapping_add(1);
    }
    second
}

fn simulated_pair(
    choice: &impl CardOpener,
    mut first: CardDescription,
    mut second: CardDescription,
    sim: SimOptions,
) -> Result<Pair, CliError> {
    if let Some(packet) = sim.packet {
        first.ni.packet_size = packet;
        second.ni.packet_size = packet;
    }
    let mut network = SimNetwork::builder();
    if let Some(HopOptions { rate, feedback, controller }) = sim.hop {
        let mut hop = SimHop::new(NodeId::new(second.ni.node_id), 1, rate).feedback(feedback);
        hop.controller = controller;
        network = network.hop(hop);
    }
    let network = network.card(first).card(second);
    let network = network.impairments(sim.impairments).seed(sim.seed);
    let (networks, partitions) = if sim.partitioned {
        let partitions = network.build_partitioned()?;
        let network = |card| partitions.network(card).map(|network| (network.clone(), network.backend(0)));
        let networks = [network(0), network(1)];
        (networks, Some(partitions))
    } else {
        let network = network.build()?;
        ([0, 1].map(|card| Some((network.clone(), network.backend(card)))), None)
    };
    let [Some((network, backend)), Some((peer_network, peer_backend))] = networks else {
        return Err(CliError::usage("the simulated network has fewer than two cards"));
    };
    let options = choice.design().options();
    let mut first = Opened::new(choice, choice.with_observer(backend), options.clone())?;
    let mut second = Opened::new(&Target::default(), peer_backend, options)?;
    (first.network, second.network) = (Some(network), Some(peer_network));
    Ok(Pair { first, second, partitions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_cards_without_common_network_are_refused() {
        let network = SimOptions::default();
        let pci: Target = "0000:65:00.0".parse().unwrap();
        let simulated = Target::default();
        for (card, peer) in
            [(&pci, None), (&pci, Some(&simulated)), (&simulated, Some(&pci)), (&pci, Some(&pci))]
        {
            let error = open_pair(card, peer, network.clone()).unwrap_err();
            assert_eq!(error.exit_status(), 2, "{error}");
        }
    }
}
