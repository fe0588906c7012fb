//! Contexts of a sender: assignment to messages, schemes, answers and timeouts.

use crate::messages::net::{Net, write};
use crate::messages::{ROUND_TRIP, clean, configs, node};
use fpga_firmware::event::{EventKind, Registration};
use fpga_firmware::generated::{Flags, Scheme};
use fpga_firmware::ids::{Incarnation, MessageId, NodeId, TransferId};
use fpga_firmware::wire::{AnswerBody, Common, Message, MessageAnswer, NackReason};
use fpga_protocol::Nanos;
use fpga_protocol::scheme::any::{SchemeConfig, SchemeSet};
use fpga_protocol::scheme::messages::Sender;
use fpga_protocol::scheme::traits::{Header, OutgoingPacket, SchemeSender};
use fpga_protocol::sender::{CommandError, SendFailure};

fn rules(scheme: Scheme) -> SchemeConfig {
    SchemeConfig::new(scheme, ROUND_TRIP).unwrap()
}

fn sender(scheme: Scheme) -> Sender {
    let (sender, receiver) = configs(rules(scheme), 0);
    Sender::new(sender, receiver.incarnation).unwrap()
}

/// Three quarters of four contexts are available to one node.
#[test]
fn transfers_of_one_message_begin_up_to_share_of_node() {
    let mut sender = sender(Scheme::Selective);
    for queued in 1..=6 {
        let node = if queued < 6 { 1 } else { 0 };
        sender.submit(Nanos::ZERO, write(node, 0, 0, 100)).unwrap();
        assert_eq!((sender.queued(), sender.live()), (queued, 0));
    }
    assert!(sender.poll_packet(Nanos::ZERO).is_some());
    assert_eq!((sender.queued(), sender.live()), (6, 4));
    let nodes = (0..4).map(|slot| sender.context(slot, Nanos::ZERO).unwrap().node.get());
    assert_eq!(nodes.collect::<Vec<_>>(), [2, 2, 2, 1]);
}

#[test]
fn transfer_submitted_by_other_scheme_goes_by_it() {
    let others = SchemeSet::NONE.with(rules(Scheme::AdaptiveWindow)).with(rules(Scheme::ReceiverWindow));
    let nodes = [0, 1].map(|at| {
        let (mut sender, mut receiver) = configs(rules(Scheme::Selective), at);
        (sender.others, receiver.others) = (others, others);
        (sender.contexts, receiver.contexts) = (1, 1);
        node(sender, receiver)
    });
    let mut net = Net::new(nodes, &clean(), 0);
    for (done, scheme) in
        [Scheme::ReceiverWindow, Scheme::Selective, Scheme::AdaptiveWindow, Scheme::ReceiverWindow]
            .into_iter()
            .enumerate()
    {
        net.nodes[0].sender.submit_by(net.now, write(1, 0, 0, 2000), scheme).unwrap();
        assert!(net.run(|net| net.nodes[0].completions.len() == done + 1), "{scheme}");
        assert_eq!(net.nodes[0].completions[done].result, Ok(()), "{scheme}");
        let registered = net.nodes[1].events.iter().rfind(|event| event.kind == EventKind::Registered);
        let expected = Registration::byte(Flags::NOTIFY_RECEIVER, scheme);
        assert_eq!(registered.map(|event| event.tries), Some(expected), "{scheme}");
    }
    let refused = net.nodes[0].sender.submit_by(net.now, write(1, 0, 0, 1), Scheme::Registry);
    assert_eq!(refused, Err(CommandError::Scheme { scheme: Scheme::Registry }));
}

/// Each unanswered request or packet is one timeout, including the last one.
#[test]
fn silence_every_timeout_counted() {
    for scheme in [Scheme::ReceiverWindow, Scheme::Selective] {
        let mut sender = sender(scheme);
        let mut now = Nanos::ZERO;
        sender.submit(now, write(1, 0, 0, 10)).unwrap();
        let mut sent = 0;
        let completion = loop {
            sent += std::iter::from_fn(|| sender.poll_packet(now)).count() as u64;
            if let Some(completion) = sender.poll_completion() {
                break completion;
            }
            now = sender.poll_timeout().unwrap();
            sender.handle_timeout(now);
        };
        assert!(matches!(completion.result, Err(SendFailure::Unanswered { .. })), "{scheme}");
        let counters = sender.counters();
        assert_eq!(counters.requests + counters.packets + counters.retransmits, sent, "{scheme}");
        assert!(sent > 8 && counters.timeouts == sent, "{scheme}: {counters:?}");
        assert_eq!((counters.failed, counters.completed), (1, 0), "{scheme}");
    }
}

/// Answer of node 2 to a request or a packet.
fn answer(departure: &OutgoingPacket, body: AnswerBody) -> MessageAnswer {
    let (to, message) = match departure.header {
        Header::Message(Message::Request(request)) => (request.common, request.message),
        Header::Message(Message::Data(packet)) => (packet.common, packet.message),
        other => panic!("{other:?}"),
    };
    let common = Common {
        source: to.destination,
        destination: to.source,
        incarnation: Incarnation::new(77),
        flags: Flags::NONE,
        path: 0,
    };
    MessageAnswer { common, message, peer_incarnation: to.incarnation, senders: 0, context: None, body }
}

fn hear(sender: &mut Sender, now: Nanos, answer: MessageAnswer) {
    sender.handle_packet(now, &Header::Message(Message::Answer(answer)));
}

#[test]
fn answers_to_other_messages_counted_as_stale_and_ignored() {
    let mut sender = sender(Scheme::Selective);
    assert!(sender.is_idle());
    sender.submit(Nanos::ZERO, write(1, 0, 0, 10)).unwrap();
    let done = answer(&sender.poll_packet(Nanos::ZERO).unwrap(), AnswerBody::Done);
    let (common, context, number) = (done.common, done.message.context(), done.message.number());
    let others = [
        MessageAnswer { message: MessageId::from_parts(context, number + 1), ..done },
        MessageAnswer { message: MessageId::from_parts(context + 1, number), ..done },
        MessageAnswer { message: MessageId::from_parts(4000, number), ..done },
        MessageAnswer { common: Common { source: NodeId::new(9), ..common }, ..done },
        MessageAnswer { common: Common { destination: NodeId::new(9), ..common }, ..done },
        MessageAnswer { peer_incarnation: Incarnation::new(5), ..done },
    ];
    for (stale, other) in (1..).zip(others) {
        hear(&mut sender, Nanos::ZERO, other);
        assert_eq!((sender.counters().stale, sender.live()), (stale, 1), "{other:?}");
    }
    hear(&mut sender, Nanos::ZERO, done);
    assert_eq!((sender.counters().stale, sender.live()), (6, 0));
    let completion = sender.poll_completion().unwrap();
    assert_eq!((completion.result, completion.transfer), (Ok(()), Some(TransferId::new(0))));
    assert!(sender.is_idle());
}

#[test]
fn message_refused_as_busy_begins_again_after_doubled_wait() {
    let busy = AnswerBody::Refused(NackReason::Busy, 0);
    // Each request counts as a try, and so does each refusal.
    for (scheme, waits) in [(Scheme::AdaptiveWindow, [20, 40]), (Scheme::ReceiverWindow, [40, 160])] {
        let mut sender = sender(scheme);
        let mut now = Nanos::ZERO;
        sender.submit(now, write(1, 0, 0, 10)).unwrap();
        let first = sender.poll_packet(now).unwrap();
        for wait in waits {
            hear(&mut sender, now, answer(&first, busy));
            assert!(sender.context(0, now).unwrap().held, "{scheme}");
            let due = now.saturating_add(Nanos::from_micros(wait));
            let early = due.saturating_sub(Nanos::new(1));
            sender.handle_timeout(early);
            assert_eq!(sender.poll_packet(early), None, "{scheme}: waits {wait} us");
            sender.handle_timeout(due);
            let again = sender.poll_packet(due).unwrap();
            assert_eq!(again.header.length(), first.header.length(), "{scheme}");
            assert!(again.source == first.source && !sender.context(0, due).unwrap().held, "{scheme}");
            now = due;
        }
        let counters = sender.counters();
        assert_eq!((counters.busy, counters.timeouts), (2, 0), "{scheme}");
    }
}
