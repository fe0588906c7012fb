//! Senders that restart repeatedly while packets of earlier incarnations are in flight.

use crate::messages::net::{Net, node_id, write};
use crate::messages::{all_rules, configs, node};
use fpga_firmware::event::EventKind;
use fpga_firmware::ids::Incarnation;
use fpga_netmodel::{Conditions, Delay, Impairments, Loss, Probability};
use fpga_protocol::Nanos;
use fpga_protocol::scheme::messages::Sender;
use fpga_protocol::scheme::traits::SchemeSender;

/// Maximum time of a packet in the network, copies included.
const PACKET_LIFETIME: Nanos = Nanos::from_micros(120);
const LENGTH: usize = 700;

/// Each incarnation sends other bytes to the same address. Every other one is aborted at some moment; the data of the others must arrive
/// and stay. Returns the number of violations, and the number of messages given up for a newer incarnation.
fn incarnations(lifetime: Nanos, count: u32, seed: u64) -> (u64, u64) {
    let chance = |fraction| Probability::new(fraction).unwrap();
    let most = PACKET_LIFETIME.saturating_sub(Nanos::from_micros(2));
    let conditions = Conditions::default()
        .loss(Loss::Independent(chance(0.05)))
        .delay(Delay::Uniform { least: Nanos::ZERO, most: Nanos::from_micros(30) })
        .copies(
            chance(0.3),
            Delay::Uniform { least: Nanos::ZERO, most: most.saturating_sub(Nanos::from_micros(30)) },
        );
    let impairments = Impairments::both(conditions).distance(Nanos::from_micros(2));
    let (mut spoilt, mut given_up) = (0, 0);
    for rules in all_rules() {
        let nodes = [0, 1].map(|at| {
            let (sender, mut receiver) = configs(rules, at);
            receiver.lifetime = lifetime;
            node(sender, receiver)
        });
        let mut net = Net::new(nodes, &impairments, seed);
        let mut dice = seed;
        for number in 1..=count {
            let incarnation = Incarnation::new(0x2000 + number);
            net.nodes[0].sender = Sender::new(configs(rules, 0).0, incarnation).unwrap();
            net.nodes[0].completions.clear();
            net.nodes[1].events.clear();
            let byte = u8::try_from(number % 255 + 1).unwrap();
            net.nodes[0].memory.0[..LENGTH].fill(byte);
            net.nodes[0].sender.submit(net.now, write(1, 0, 0, LENGTH as u64)).unwrap();
            if number % 2 == 1 {
                dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                let until = net.now.saturating_add(Nanos::new((dice >> 33) % 400_000));
                net.run(|net| net.now >= until);
                continue;
            }
            assert!(net.run(|net| net.nodes[0].completions.len() == 1), "{rules:?}");
            let notices = net.nodes[1].events.iter().filter(|event| {
                event.kind == EventKind::Notice
                    && (event.node, event.incarnation) == (node_id(0), incarnation)
            });
            let succeeded = net.nodes[0].completions[0].result == Ok(()) && notices.count() == 1;
            // All packets in flight arrive and change nothing.
            net.drain();
            let stays = net.nodes[1].memory.0[..LENGTH] == net.nodes[0].memory.0[..LENGTH];
            spoilt += u64::from(!(succeeded && stays));
        }
        given_up += net.nodes[1].receiver.counters().abandoned;
    }
    (spoilt, given_up)
}

#[test]
fn incarnation_former_packets_never_overwrite_newer_data() {
    let results = (0..8).map(|seed| incarnations(PACKET_LIFETIME, 60, seed));
    let (spoilt, given_up) = results.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!(spoilt, 0);
    assert!(given_up > 100, "{given_up}");
}

/// Without the rule that a new incarnation waits for a packet lifetime.
#[test]
fn incarnation_new_without_wait_is_corrupted() {
    let spoilt: u64 = (0..8).map(|seed| incarnations(Nanos::ZERO, 60, seed).0).sum();
    assert!(spoilt > 0);
}
