//! Impossible requests end in an error with its reason, and leave no state.

use crate::messages::net::{Net, write};
use crate::messages::{ROUND_TRIP, SCHEMES, all_rules, bad, clean, configs, net, node};
use fpga_firmware::event::NackReason;
use fpga_firmware::generated::Scheme;
use fpga_firmware::{Incarnation, NodeId};
use fpga_netmodel::{Conditions, Impairments, Loss, Probability};
use fpga_protocol::Nanos;
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::messages::{Receiver, ReceiverConfig, Sender, SenderConfig};
use fpga_protocol::scheme::traits::{SchemeReceiver, SchemeSender};
use fpga_protocol::sender::{Command, CommandError, Notify, SendFailure};

#[test]
fn message_write_outside_window_is_refused() {
    for rules in all_rules() {
        let mut net = net(rules, &bad(), 3);
        let command = Command { key: 1, ..write(1, 0, 0, 3000) };
        net.nodes[0].sender.submit(net.now, command).unwrap();
        assert!(net.run(|net| !net.nodes[0].completions.is_empty()));
        let result = net.nodes[0].completions[0].result;
        let refused = matches!(result, Err(SendFailure::Refused { reason: NackReason::Violation, .. }));
        assert!(refused, "{rules:?}: {result:?}");
        net.drain();
        assert!(net.nodes[1].memory.0.iter().all(|byte| *byte == 0));
        assert!(net.nodes[1].receiver.counters().violations > 0);
        assert!(net.nodes[0].sender.is_idle() && net.nodes[1].receiver.live() == 0);
    }
}

#[test]
fn message_window_closed_during_transfer_ends_message() {
    for rules in all_rules() {
        let mut net = net(rules, &clean(), 3);
        net.nodes[0].sender.submit(net.now, write(1, 0, 0, 3000)).unwrap();
        assert!(net.run(|net| net.nodes[1].receiver.counters().written > 0));
        net.nodes[1].receiver.access_mut().remove(0).unwrap();
        let written = net.nodes[1].receiver.counters().written;
        assert!(net.run(|net| !net.nodes[0].completions.is_empty()));
        let result = net.nodes[0].completions[0].result;
        // Packets that arrived at the same time as the first one may have been the whole message.
        assert!(result.is_err(), "{rules:?}: {result:?}");
        assert_eq!(net.nodes[1].receiver.counters().written, written, "{rules:?}");
    }
}

#[test]
fn message_unreachable_node_gives_up() {
    const GIVE_UP: Nanos = Nanos::from_millis(200);
    let all = Conditions::default().loss(Loss::Independent(Probability::ALWAYS));
    for rules in all_rules() {
        let nodes = [0, 1].map(|at| {
            let (mut sender, receiver) = configs(rules, at);
            sender.give_up = GIVE_UP;
            node(sender, receiver)
        });
        let mut net = Net::new(nodes, &Impairments::both(all), 3);
        net.nodes[0].sender.submit(net.now, write(1, 0, 0, 3000)).unwrap();
        assert!(net.run(|net| !net.nodes[0].completions.is_empty()));
        let completion = net.nodes[0].completions[0];
        let tried = matches!(completion.result, Err(SendFailure::Unanswered { tries, .. }) if tries > 0);
        assert!(tried, "{rules:?}: {completion:?}");
        assert_eq!(completion.finished, GIVE_UP, "{rules:?}");
        assert!(net.nodes[0].sender.is_idle());
        assert_eq!(net.nodes[0].sender.poll_timeout(), None);
    }
}

#[test]
fn message_receiver_reset_reports_forgotten() {
    for rules in all_rules() {
        let mut net = net(rules, &bad(), 3);
        net.nodes[0].sender.submit(net.now, write(1, 0, 0, 20_000)).unwrap();
        let begun = |net: &mut crate::messages::MessageNet| {
            net.nodes[1].receiver.counters().written > 40 && net.nodes[1].receiver.live() > 0
        };
        assert!(net.run(begun));
        let (_, mut config) = configs(rules, 1);
        config.incarnation = Incarnation::new(0x2000);
        let mut fresh = Receiver::new(config).unwrap();
        let window = *net.nodes[1].receiver.access().get(0).unwrap();
        fresh.access_mut().install(0, window).unwrap();
        net.nodes[1].receiver = fresh;
        assert!(net.run(|net| !net.nodes[0].completions.is_empty()));
        let result = net.nodes[0].completions[0].result;
        assert!(matches!(result, Err(SendFailure::Forgotten { .. })), "{rules:?}: {result:?}");
    }
}

#[test]
fn message_silent_sender_is_forgotten() {
    for rules in all_rules() {
        let half = Conditions::default().loss(Loss::Independent(Probability::one_in(2)));
        let mut net = net(rules, &Impairments::both(half), 3);
        let ticket = net.nodes[0].sender.submit(net.now, write(1, 0, 0, 3000)).unwrap();
        assert!(net.run(|net| net.nodes[1].receiver.counters().written > 0));
        assert!(net.nodes[1].receiver.live() > 0, "{rules:?}");
        let now = net.now;
        assert!(net.nodes[0].sender.cancel(now, ticket) && !net.nodes[0].sender.cancel(now, ticket));
        assert!(net.run(|net| net.nodes[1].receiver.live() == 0), "{rules:?}");
        assert!(net.now >= Nanos::from_secs(3));
        let result = net.nodes[0].completions[0].result;
        assert!(matches!(result, Err(SendFailure::Cancelled { .. })), "{result:?}");
        assert_eq!(net.nodes[1].receiver.poll_timeout(), None);
    }
}

#[test]
fn message_deadline_ends_transfer() {
    for rules in all_rules() {
        let mut net = net(rules, &clean(), 3);
        let command = Command { deadline: Some(Nanos::from_micros(5)), ..write(1, 0, 0, 30_000) };
        net.nodes[0].sender.submit(net.now, command).unwrap();
        assert!(net.run(|net| !net.nodes[0].completions.is_empty()));
        let completion = net.nodes[0].completions[0];
        assert!(matches!(completion.result, Err(SendFailure::Deadline { .. })), "{completion:?}");
        assert_eq!(completion.finished, Nanos::from_micros(5));
        assert!(net.nodes[0].sender.is_idle());
    }
}

/// An unreachable node keeps its share of the contexts, and no more.
#[test]
fn message_unreachable_node_does_not_block_others() {
    for rules in all_rules() {
        let mut net = net(rules, &clean(), 3);
        for _ in 0..20 {
            // The network of this test delivers packets for any other node to node 2, which drops them.
            let command = Command { node: NodeId::new(9), ..write(1, 0, 0, 3000) };
            net.nodes[0].sender.submit(net.now, command).unwrap();
        }
        net.nodes[0].sender.submit(net.now, write(1, 0, 0, 3000)).unwrap();
        assert!(net.run(|net| !net.nodes[0].completions.is_empty()));
        assert_eq!(net.nodes[0].completions[0].result, Ok(()), "{rules:?}");
        assert!(net.now < Nanos::from_millis(1), "{rules:?}: {}", net.now);
    }
}

#[test]
fn message_scheme_mismatch_is_reported() {
    let [first, .., last] = SCHEMES;
    let nodes = [(0, first), (1, last)].map(|(at, scheme)| {
        let (sender, receiver) = configs(SchemeConfig::new(scheme, ROUND_TRIP).unwrap(), at);
        node(sender, receiver)
    });
    let mut net = Net::new(nodes, &clean(), 3);
    for at in 0..2 {
        net.nodes[at].sender.submit(net.now, write(1 - at, 0, 0, 100)).unwrap();
    }
    assert!(net.run(|net| net.nodes.iter().all(|node| !node.completions.is_empty())));
    for node in &net.nodes {
        let result = node.completions[0].result;
        assert!(matches!(result, Err(SendFailure::Scheme { .. })), "{result:?}");
    }
}

#[test]
fn message_invalid_submission_or_configuration_is_refused() {
    let rules = SchemeConfig::new(Scheme::Selective, ROUND_TRIP).unwrap();
    let mut net = net(rules, &clean(), 0);
    let sender = &mut net.nodes[0].sender;
    let mut refused = |command| sender.submit(Nanos::ZERO, command).unwrap_err();
    assert_eq!(
        refused(Command { node: NodeId::ANY, ..write(1, 0, 0, 1) }),
        CommandError::Node { node: NodeId::ANY }
    );
    assert_eq!(refused(Command { notify: Notify::Sender, ..write(1, 0, 0, 1) }), CommandError::Notify);
    assert!(matches!(refused(write(1, 0, u64::MAX, 2)), CommandError::Address { .. }));
    assert!(matches!(refused(write(1, 0, 0, u64::MAX)), CommandError::TooLong { .. }));
    assert!(SchemeConfig::new(Scheme::Registry, ROUND_TRIP).is_none());
    let good = SenderConfig::new(NodeId::new(1), rules);
    let mut wrong = [good; 5];
    wrong[0].contexts = 4097;
    wrong[1].packet_size_log2 = 16;
    wrong[2].message_packets = 4097;
    wrong[3].number_bits = 2;
    wrong[4].ask = Nanos::ZERO;
    for config in wrong {
        let error = Sender::new(config, Incarnation::new(1)).unwrap_err();
        assert!(error.to_string().contains("give"), "{error}");
    }
    let mut config = ReceiverConfig::new(NodeId::new(1), Incarnation::new(1), rules);
    config.contexts = 0;
    let error = Receiver::new(config).unwrap_err().to_string();
    assert_eq!(error, "contexts = 0: give 1 to 4096");
}
