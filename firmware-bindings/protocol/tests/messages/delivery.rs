//! Everything that is sent arrives once, byte for byte.

use crate::messages::net::{MEMORY, Net, Node, ReadSupport, write};
use crate::messages::{all_rules, bad, clean, configs, net, node, registry_net};
use fpga_protocol::scheme::traits::{SchemeReceiver, SchemeSender};

const LENGTHS: [u64; 9] = [1, 63, 64, 65, 1000, 1024, 1025, 5000, 0];

/// Transfers of all lengths at the same time, each to its own address, from the upper half of a memory to the lower half of the other.
fn transfers<S: SchemeSender, R: SchemeReceiver>(name: &str, mut net: Net<S, R>)
where
    Node<S, R>: ReadSupport,
{
    for (place, byte) in net.nodes[0].memory.0.iter_mut().enumerate() {
        *byte = u8::try_from((place * 7 + place / 251) % 251 + 1).unwrap();
    }
    let half = (MEMORY / 2) as u64;
    let mut expected = vec![0; MEMORY];
    let mut at = 0;
    for length in LENGTHS {
        let (from, to) = (half + at, at + 3);
        net.nodes[0].sender.submit(net.now, write(1, from, to, length)).unwrap();
        let places = (from.try_into().unwrap(), to.try_into().unwrap(), length.try_into().unwrap());
        let (from, to, length): (usize, usize, usize) = places;
        expected[to..to + length].copy_from_slice(&net.nodes[0].memory.0[from..from + length]);
        at += u64::try_from(length).unwrap() + 5;
    }
    let told = LENGTHS.iter().filter(|length| **length != 0).count();
    let done = |net: &mut Net<S, R>| {
        net.nodes[0].completions.len() == LENGTHS.len() && net.nodes[1].notices() >= told
    };
    assert!(net.run(done), "{name}: {:?}", net.nodes[0].completions);
    for completion in &net.nodes[0].completions {
        assert_eq!(completion.result, Ok(()), "{name}: {completion:?}");
    }
    net.drain();
    assert!(net.nodes[1].memory.0 == expected, "{name}: other bytes, or bytes elsewhere");
    assert_eq!(net.nodes[1].notices(), told, "{name}: one notice per transfer");
}

#[test]
fn message_every_scheme_delivers_over_perfect_network() {
    transfers("registry", registry_net(&clean(), 0));
    for rules in all_rules() {
        let net = net(rules, &clean(), 0);
        transfers(&format!("{rules:?}"), net);
    }
}

#[test]
fn message_every_scheme_delivers_over_impaired_network() {
    for seed in 0..8 {
        transfers("registry", registry_net(&bad(), seed));
        for rules in all_rules() {
            transfers(&format!("{rules:?}, seed {seed}"), net(rules, &bad(), seed));
        }
    }
}

#[test]
fn message_no_loss_sends_nothing_twice() {
    for rules in all_rules() {
        let mut net = net(rules, &clean(), 0);
        net.nodes[0].sender.submit(net.now, write(1, 0, 0, 5000)).unwrap();
        assert!(net.run(|net| !net.nodes[0].completions.is_empty()));
        let completion = net.nodes[0].completions[0];
        // 5000 bytes are four messages of 1024 and one of 904: 16 packets each, and 15.
        assert_eq!((completion.packets, completion.segments), (79, 5), "{rules:?}");
        if !matches!(rules, fpga_protocol::scheme::any::SchemeConfig::ReceiverWindow(config) if config.window < 16)
        {
            assert_eq!(completion.retransmits, 0, "{rules:?}");
            let counters = net.nodes[0].sender.counters();
            assert_eq!((counters.packets, counters.retransmits, counters.timeouts), (79, 0, 0), "{rules:?}");
            assert_eq!((counters.messages, counters.completed, counters.failed), (5, 1, 0), "{rules:?}");
        }
        let counters = net.nodes[1].receiver.counters();
        assert_eq!((counters.begun, counters.complete, counters.notices), (5, 5, 1), "{rules:?}");
        assert_eq!(net.nodes[1].receiver.live(), 0);
        assert!(net.nodes[0].sender.is_idle());
    }
}

/// More messages than the receiver has contexts: refused messages wait and are retried.
#[test]
fn message_no_free_context_is_refused_and_retried() {
    for rules in all_rules() {
        let nodes = [0, 1].map(|at| {
            let (sender, mut receiver) = configs(rules, at);
            receiver.contexts = 1;
            node(sender, receiver)
        });
        let mut net = Net::new(nodes, &clean(), 1);
        for at in 0..8 {
            net.nodes[0].sender.submit(net.now, write(1, at * 2000, at * 2000, 2000)).unwrap();
        }
        net.nodes[0].memory.0.fill(9);
        assert!(net.run(|net| net.nodes[0].completions.len() == 8), "{rules:?}");
        assert!(net.nodes[0].completions.iter().all(|completion| completion.result.is_ok()), "{rules:?}");
        assert!(net.nodes[1].memory.0[..16000].iter().all(|byte| *byte == 9));
        let counters = net.nodes[1].receiver.counters();
        assert!(counters.busy > 0, "{rules:?}: {counters:?}");
        assert_eq!(counters.complete, 16, "{rules:?}");
    }
}
