//! What others send must not end an endpoint, however much of it comes while nobody polls.

use fpga_driver::firmware::event::{EventKind, FaultReason};
use fpga_driver::firmware::generated::Capabilities;
use fpga_driver::firmware::ids::{Incarnation, OpNumber, TransferId};
use fpga_driver::firmware::wire::{Ack, Common, Control, Flags, Hello, Nack, SegmentDone};

use super::*;

fn frame(control: &Control) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let length = control.encode(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// A whole transfer works, and nothing is left behind.
fn assert_works(net: &mut Net) {
    let region = net.region(1, TARGET, 100_000);
    net.carry(SOURCE, &region.remote, 0, &bytes(9, 100_000));
    net.end(1).close_region(&region).unwrap();
    net.assert_clean();
}

#[test]
fn a_hundred_thousand_bad_packets_while_nobody_polls() {
    let mut net = Net::new(DeliveryOrder::InOrder);
    let own = net.end(1).node();
    let common = Common {
        source: NodeId::new(66),
        destination: own,
        incarnation: Incarnation::new(6),
        flags: Flags::NONE,
    };
    let (op, transfer, stranger) = (OpNumber::new(1), TransferId::new(2), Incarnation::new(7));
    let hello = Hello {
        common,
        packet_size_log2: 9,
        wire_version: 1,
        mask_bits: 32,
        capabilities: Capabilities::NONE,
        schemes: 1,
        registry_timeout_us: 1,
    };
    let mut frames: Vec<_> = [
        Control::Ack(Ack { common, op, transfer, segment: 0, peer_incarnation: stranger, tries: 1 }),
        Control::Nack(Nack {
            common,
            op,
            transfer,
            segment: 0,
            peer_incarnation: stranger,
            tries: 1,
            reason: NackReason::Busy,
        }),
        Control::SegmentDone(SegmentDone { common, transfer, segment: 0, peer_incarnation: stranger }),
        Control::HelloReply(hello),
    ]
    .iter()
    .map(frame)
    .collect();
    // Nothing of any kind, with a good checksum.
    let mut nonsense = vec![1, 200];
    nonsense.resize(24, 0);
    assert_eq!(fpga_driver::firmware::wire::finish(&mut nonsense, 20), Ok(24));
    frames.push(nonsense);
    let now = net.world.now();
    net.world.with_card(1, |card| {
        for n in 0..100_000 {
            card.receive_frame(now, &frames[n % frames.len()]);
        }
    });
    net.settle();
    let counters = net.end(1).counters();
    assert_eq!((counters.faults, counters.faults_dropped), (20_000, 0));
    let told: Vec<_> = std::iter::from_fn(|| net.end(1).next_fault()).collect();
    assert!(
        told.iter()
            .all(|event| event.kind == EventKind::Fault
                && event.fault_reason() == Some(FaultReason::BadPacket))
    );
    assert_eq!(told.iter().map(|event| event.generation).collect::<Vec<_>>(), [0, 19_998]);
    assert_works(&mut net);
}

#[test]
fn writes_to_a_host_that_does_not_poll_wait_until_it_does() {
    for event_push in [true, false] {
        let mut description = CardDescription::default();
        description.ni.event_push = event_push;
        let mut net = Net::of(&description, DeliveryOrder::InOrder, |options| options);
        let length = 64 << 20;
        let region = net.region(1, TARGET, length);
        let data = bytes(3, length as usize);
        net.put(0, SOURCE, &data);
        net.send(0, SOURCE, &region.remote, 0, length);
        // The sender's host polls, the receiver's does not, for ten times as long as the whole would take.
        let mut refused = 0;
        while refused < 100_000 && !net.end(0).is_idle() {
            net.poll(0).unwrap();
            net.world.advance(Nanos::from_micros(20));
            refused = net.end(0).counters().sender.busy;
        }
        assert!(!net.end(0).is_idle(), "{event_push}: it went through without anybody looking");
        net.settle();
        assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
        assert_eq!(net.notifications[1].len(), 1);
        assert!(net.get(1, TARGET, length as usize) == data, "{event_push}");
        net.end(1).close_region(&region).unwrap();
        net.notifications[1].clear();
        assert_works(&mut net);
    }
}

/// By the message schemes, too: a context is given only where there is room for all that is told of its message.
#[test]
fn messages_to_a_host_that_does_not_poll_wait_until_it_does() {
    const COUNT: u64 = 200;
    for scheme in Scheme::ALL.iter().filter(|scheme| **scheme != Scheme::Registry) {
        let mut net = Net::of(&CardDescription::default(), DeliveryOrder::InOrder, |mut options| {
            options.scheme = *scheme;
            options.event_entries = 64;
            options
        });
        let region = net.region(1, TARGET, 1 << 20);
        let data = bytes(4, COUNT as usize * 1000);
        net.put(0, SOURCE, &data);
        // As many as are taken, and the sender's host polls.
        let offer = |net: &mut Net, sent: &mut u64| {
            while *sent < COUNT {
                let offset = *sent * 1000;
                if net
                    .end(0)
                    .send(at(SOURCE, offset), &region.remote, offset, 1000, SendOptions::default())
                    .is_err()
                {
                    break;
                }
                *sent += 1;
            }
            net.poll(0).unwrap();
        };
        // The sender's host polls, the receiver's does not, for long after everything could have been there.
        let mut sent = 0;
        for _ in 0..2000 {
            offer(&mut net, &mut sent);
            net.world.advance(Nanos::from_micros(20));
        }
        let arrived = net.completions[0].len();
        assert!(arrived > 0 && arrived < 32, "{scheme}: {arrived} went through without anybody looking");
        while sent < COUNT || !net.end(0).is_idle() {
            offer(&mut net, &mut sent);
            net.poll(1).unwrap();
            net.world.advance(Nanos::from_micros(20));
        }
        net.settle();
        assert_eq!((net.completions[0].len(), net.notifications[1].len()), (COUNT as usize, COUNT as usize));
        assert!(net.completions[0].iter().all(|done| done.result == Ok(())), "{scheme}");
        assert!(net.get(1, TARGET, data.len()) == data, "{scheme}");
        net.end(1).close_region(&region).unwrap();
        net.completions[0].clear();
        net.notifications[1].clear();
        assert_works(&mut net);
    }
}
