//! Packets of messages that ended long ago, whose message numbers are in use again [E0-17].

use crate::messages::net::{Net, write};
use crate::messages::{all_rules, configs, node};
use fpga_netmodel::{Conditions, Delay, Impairments, Loss, Probability};
use fpga_protocol::Nanos;
use fpga_protocol::scheme::traits::SchemeSender;

/// Maximum delay of a copy. Short, so that little virtual time passes between two uses of a number.
const PACKET_LIFETIME: Nanos = Nanos::from_micros(400);

/// Message numbers of 3 bits and one context: every eighth message reuses a number. Copies stay in the network for the whole packet
/// lifetime, and each transfer writes other bytes to the same address.
fn held_back(rounds: u32, seed: u64) -> u64 {
    let chance = |fraction| Probability::new(fraction).unwrap();
    let conditions = Conditions::default()
        .loss(Loss::Independent(chance(0.02)))
        .copies(chance(0.5), Delay::Uniform { least: Nanos::from_micros(5), most: PACKET_LIFETIME });
    let impairments = Impairments::both(conditions).distance(Nanos::from_micros(2));
    let mut duplicates = 0;
    for rules in all_rules() {
        let nodes = [0, 1].map(|at| {
            let (mut sender, mut receiver) = configs(rules, at);
            (sender.number_bits, receiver.number_bits) = (3, 3);
            (sender.contexts, sender.contexts_per_node) = (1, 1);
            sender.give_up = Nanos::from_millis(2);
            receiver.tombstone = Nanos::from_millis(3);
            receiver.silence = Nanos::from_millis(3);
            sender.rest = Nanos::from_micros(3500);
            node(sender, receiver)
        });
        let mut net = Net::new(nodes, &impairments, seed);
        let mut before = vec![0; 200];
        let mut used = 0;
        for round in 0..rounds {
            // Packets that arrived since the last transfer's end have changed nothing.
            assert_eq!(net.nodes[1].memory.0[..200], before[..], "{rules:?}, seed {seed}, round {round}");
            net.nodes[0].memory.0[..200].fill(u8::try_from(round % 255 + 1).unwrap());
            net.nodes[0].sender.submit(net.now, write(1, 0, 0, 200)).unwrap();
            assert!(net.run(|net| net.nodes[0].completions.len() == 1), "{rules:?}");
            let completion = net.nodes[0].completions.remove(0);
            net.nodes[1].events.clear();
            assert_eq!(completion.result, Ok(()), "{rules:?}, seed {seed}, round {round}");
            before = net.nodes[0].memory.0[..200].to_vec();
            used += 1;
        }
        assert!(used > 8);
        duplicates += net.nodes[1].receiver.counters().delayed_duplicates;
    }
    duplicates
}

#[test]
fn e0_17_delayed_packets_with_reused_numbers_change_nothing() {
    let duplicates: u64 = (0..2).map(|seed| held_back(60, seed)).sum();
    assert!(duplicates > 500, "{duplicates}");
}

#[test]
#[ignore = "long: 300 s: a million messages"]
fn e0_17_million_messages_stay_separate() {
    let duplicates: u64 = (0..125).map(|seed| held_back(1000, 1000 + seed)).sum();
    println!("{duplicates} delayed duplicates");
    assert!(duplicates > 1_000_000);
}
