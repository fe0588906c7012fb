//! A read is a request that makes the other node write, exactly once.

use crate::messages::net::KEY;
use crate::messages::{MessageNet, all_rules, bad, clean, net};
use fpga_firmware::NodeId;
use fpga_firmware::event::{Event, EventKind, NackReason};
use fpga_firmware::generated::Permissions;
use fpga_firmware::wire::Message;
use fpga_netmodel::{Conditions, Impairments, Loss, Probability};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::MemoryWindow;
use fpga_protocol::scheme::messages::{MessageReadError, Read};
use fpga_protocol::scheme::traits::{Header, SchemeReceiver};
use fpga_registers::CardAddr;

fn read(source: u64, base: u64, length: u64) -> Read {
    let (source, base) = (CardAddr::new(source), CardAddr::new(base));
    Read { node: NodeId::new(2), source, source_key: KEY, base, key: KEY, length }
}

fn outcome(net: &mut MessageNet) -> Result<(), MessageReadError> {
    let mut found = None;
    assert!(net.run(|net| {
        found = net.nodes[0].reads.as_mut().and_then(|reads| reads.poll_outcome());
        found.is_some()
    }));
    found.unwrap().result
}

fn start(net: &mut MessageNet, read: Read) {
    let now = net.now;
    net.nodes[0].reads.as_mut().unwrap().start(now, read).unwrap();
}

#[test]
fn read_returns_source_bytes() {
    for rules in all_rules() {
        for seed in 0..5 {
            let mut net = net(rules, &bad(), seed);
            for (place, byte) in net.nodes[1].memory.0.iter_mut().enumerate() {
                *byte = u8::try_from(place % 249).unwrap();
            }
            let lengths = [1, 64, 3000, 700];
            for (at, length) in (0..).zip(lengths) {
                start(&mut net, read(40_000 + at * 4000, at * 4000, length));
            }
            for _ in lengths {
                assert_eq!(outcome(&mut net), Ok(()), "{rules:?}, seed {seed}");
            }
            for (at, length) in (0..).zip(lengths) {
                let (from, to, length) = (40_000 + at * 4000, at * 4000, usize::try_from(length).unwrap());
                let (there, here) =
                    (&net.nodes[1].memory.0[from..from + length], &net.nodes[0].memory.0[to..to + length]);
                assert!(there == here, "{rules:?}, seed {seed}");
            }
            // Each read was executed once, even if it was requested several times.
            net.run(|net| net.nodes[1].completions.len() == lengths.len());
            net.drain();
            assert_eq!(net.nodes[1].completions.len(), lengths.len(), "{rules:?}, seed {seed}");
            assert_eq!(net.nodes[0].notices(), lengths.len());
        }
    }
}

#[test]
fn read_needs_window_with_read_permission() {
    for rules in all_rules() {
        let mut net = net(rules, &clean(), 0);
        let window = MemoryWindow {
            source: NodeId::ANY,
            base: CardAddr::new(0),
            length: 4096,
            key: KEY,
            permissions: Permissions::WRITE,
        };
        net.nodes[1].receiver.access_mut().install(0, window).unwrap();
        start(&mut net, read(0, 0, 100));
        let result = outcome(&mut net);
        assert!(
            matches!(result, Err(MessageReadError::Refused { reason: NackReason::Violation, .. })),
            "{result:?}"
        );
        assert!(net.nodes[1].completions.is_empty());
    }
}

#[test]
fn read_unanswered_request_times_out() {
    let all = Conditions::default().loss(Loss::Independent(Probability::ALWAYS));
    for rules in all_rules() {
        let mut net = net(rules, &Impairments::both(all), 0);
        start(&mut net, read(0, 0, 100));
        let result = outcome(&mut net);
        assert!(matches!(result, Err(MessageReadError::Unanswered { tries, .. }) if tries > 8), "{result:?}");
        assert!(net.now >= Nanos::from_secs(1));
    }
}

#[test]
fn read_accepted_without_data_times_out() {
    for rules in all_rules() {
        let mut net = net(rules, &clean(), 0);
        // The node that serves the read cannot write here.
        start(&mut net, Read { key: 5, ..read(0, 0, 100) });
        let result = outcome(&mut net);
        assert!(matches!(result, Err(MessageReadError::Silent { .. })), "{result:?}");
        assert!(net.nodes[1].completions[0].result.is_err());
    }
}

#[test]
fn read_invalid_request_is_refused() {
    let mut net = net(all_rules()[0], &clean(), 0);
    let reads = net.nodes[0].reads.as_mut().unwrap();
    for wrong in [
        read(0, 0, 0),
        read(u64::MAX, 0, 2),
        read(0, u64::MAX, 2),
        Read { node: NodeId::ANY, ..read(0, 0, 1) },
    ] {
        assert!(matches!(reads.start(Nanos::ZERO, wrong), Err(MessageReadError::Range { .. })));
    }
    for _ in 0..64 {
        reads.start(Nanos::ZERO, read(0, 0, 1)).unwrap();
    }
    assert_eq!(reads.start(Nanos::ZERO, read(0, 0, 1)), Err(MessageReadError::Full { capacity: 64 }));
}

/// Two reads in the same slot, one after the other, and a late copy of the first one's request.
#[test]
fn old_request_after_newer_one_neither_answered_nor_served() {
    let now = Nanos::ZERO;
    let mut net = net(all_rules()[0], &clean(), 0);
    let [asking, asked] = &mut net.nodes;
    let (reads, served) = (asking.reads.as_mut().unwrap(), asked.reads.as_mut().unwrap());
    let mut requests = Vec::new();
    for queued in [1, 2] {
        let read = read(0, 0, 100);
        reads.start(now, read).unwrap();
        let request = reads.poll_packet(now).unwrap().header;
        served.handle_packet(now, &request, asked.receiver.access(), &mut asked.sender);
        assert!(served.poll_packet(now).is_some(), "accepted");
        assert_eq!(asked.sender.queued(), queued);
        // All data of the read has arrived.
        let Header::Message(Message::Read(asks)) = request else { panic!("{request:?}") };
        let arrived = Event {
            node: read.node,
            count: asks.read.get(),
            address: read.base,
            length: read.length,
            ..Event::new(EventKind::Notice)
        };
        assert!(reads.handle_event(&arrived));
        assert_eq!(reads.poll_outcome().unwrap().result, Ok(()));
        assert!(!reads.handle_event(&arrived), "it has ended");
        requests.push(request);
    }
    served.handle_packet(now, &requests[0], asked.receiver.access(), &mut asked.sender);
    assert_eq!((served.poll_packet(now), asked.sender.queued()), (None, 2));
    served.handle_packet(now, &requests[1], asked.receiver.access(), &mut asked.sender);
    assert!(served.poll_packet(now).is_some(), "the latest one is answered again");
    assert_eq!(asked.sender.queued(), 2);
}

#[test]
fn events_of_no_read_not_taken() {
    let mut net = net(all_rules()[0], &clean(), 0);
    let reads = net.nodes[0].reads.as_mut().unwrap();
    for kind in [EventKind::Notice, EventKind::Completed] {
        for count in [0, 1] {
            assert!(!reads.handle_event(&Event { count, ..Event::new(kind) }), "{kind:?}, {count}");
        }
    }
}
