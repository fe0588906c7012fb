//! Messages of sessions that have ended, on cards of one network in virtual time.

use std::time::Duration;

use fpga_driver::{Card, NodeId};
use fpga_messages::{Address, CompleteWhen, MIN_TRANSFERS, MessengerOptions, PeerId, SendRequest};
use fpga_rdma::{Endpoint, EndpointOptions};
use fpga_sim::{CardDescription, SimNetwork};

use crate::bed::{Bed, End, bytes, receive, send};

/// Two cards, whose messengers are opened again as often as a test needs.
fn network() -> SimNetwork {
    let mut builder = SimNetwork::builder();
    for node in [1, 2] {
        let mut card = CardDescription::default();
        card.memory.size = 8 << 20;
        card.ni.node_id = node;
        builder = builder.card(card);
    }
    builder.build().unwrap()
}

fn open(network: &SimNetwork, number: usize, incarnation: u32) -> End {
    let card = Card::from_backend(network.backend(number)).unwrap();
    let mut options = EndpointOptions::default();
    options.incarnation = Some(incarnation);
    options.give_up = Duration::from_millis(100);
    options.transfers = Some(MIN_TRANSFERS);
    let endpoint = Endpoint::open_with(&card, &options).unwrap();
    let mut messages = MessengerOptions::default();
    messages.give_up = options.give_up;
    let mut end = End::on(endpoint, &messages);
    for (number, node) in [(0, 1), (1, 2)] {
        let peer = end.messenger.add_peer(Address::Node(NodeId::new(node))).unwrap();
        assert_eq!(peer, PeerId(number));
    }
    end
}

/// Lets both ends progress until `is_over`.
fn until(bed: &mut Bed, is_over: impl Fn(&Bed) -> bool) {
    // A step takes about a microsecond of virtual time: several times the give-up time.
    let mut tries = 0..1_000_000;
    while !is_over(bed) {
        assert!(tries.next().is_some(), "no end: {:?}", bed.0[0].messenger);
        bed.progress();
    }
}

/// A kept message of a process that has ended matches a receive. Its successor, whose message has the same operation number, waits for a match of
/// its own.
#[test]
fn kept_message_of_former_process_completes_no_other_send() {
    let network = network();
    let mut bed = Bed(vec![open(&network, 0, 1), open(&network, 1, 1)]);
    let matched =
        |context, tag| SendRequest { complete: CompleteWhen::Matched, ..send(0, 0, 100, Some(tag), context) };
    bed.0[1].poke(0, &bytes(1, 100));
    bed.0[1].messenger.send(&matched(1, 1)).unwrap();
    until(&mut bed, |bed| bed.0[0].messenger.unexpected().0 == 1);
    bed.0.pop();
    bed.0.push(open(&network, 1, 2));
    bed.0[1].poke(0, &bytes(2, 100));
    bed.0[1].messenger.send(&matched(2, 2)).unwrap();
    until(&mut bed, |bed| bed.0[0].messenger.unexpected().0 == 2);
    bed.0[0].messenger.receive(&receive(None, 0x1000, 100, Some(1), 3)).unwrap();
    assert_eq!(bed.wait(0, 3).result, Ok(()));
    assert!(bed.0[0].peek(0x1000, 100) == bytes(1, 100));
    for _ in 0..1000 {
        bed.progress();
    }
    assert!(bed.0[1].done.is_empty(), "no receive has matched: {:?}", bed.0[1].done);
    bed.0[0].messenger.receive(&receive(None, 0x2000, 100, Some(2), 4)).unwrap();
    assert_eq!((bed.wait(0, 4).result, bed.wait(1, 2).result), (Ok(()), Ok(())));
    assert!(bed.0[0].peek(0x2000, 100) == bytes(2, 100));
}

/// A kept message of a process that has ended matches a receive while no session is open: nothing waits for the next one.
#[test]
fn kept_message_of_ended_process_leaves_messenger_idle() {
    let network = network();
    let mut bed = Bed(vec![open(&network, 0, 1), open(&network, 1, 1)]);
    let request = SendRequest { complete: CompleteWhen::Matched, ..send(0, 0, 100, Some(1), 1) };
    bed.0[1].messenger.send(&request).unwrap();
    until(&mut bed, |bed| bed.0[0].messenger.unexpected().0 == 1);
    bed.0.pop();
    // This message shows that the process has ended.
    bed.0[0].messenger.send(&send(1, 0, 10, None, 2)).unwrap();
    assert!(bed.wait(0, 2).result.is_err());
    bed.0[0].messenger.receive(&receive(None, 0x1000, 100, Some(1), 3)).unwrap();
    assert_eq!(bed.wait(0, 3).result, Ok(()));
    until(&mut bed, |bed| bed.0[0].messenger.is_idle());
}
