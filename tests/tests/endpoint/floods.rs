//! A flood of packets from other nodes must not end an endpoint while its host does not poll.

use fpga_firmware::event::{EventKind, FaultReason};
use fpga_firmware::generated::Capabilities;
use fpga_firmware::ids::{Incarnation, OpNumber, TransferId};
use fpga_firmware::wire::{Ack, Common, Control, Flags, Hello, Nack, SegmentDone, WIRE_VERSION};

use super::*;

fn frame(control: &Control) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    let length = control.encode(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// Asserts that a whole transfer works and leaves no state behind.
fn assert_works(net: &mut Testbed) {
    let region = net.region(1, TARGET, 100_000);
    net.carry(SOURCE, &region.remote, 0, &bytes(9, 100_000));
    net.end(1).close_region(&region).unwrap();
    net.assert_clean();
}

#[test]
fn bad_packet_flood_without_polling_loses_no_event() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let own = net.end(1).node();
    let common = Common {
        source: NodeId::new(66),
        destination: own,
        incarnation: Incarnation::new(6),
        flags: Flags::NONE,
    };
    let (op, transfer, foreign) = (OpNumber::new(1), TransferId::new(2), Incarnation::new(7));
    let hello = Hello {
        common,
        packet_size_log2: 9,
        wire_version: WIRE_VERSION,
        mask_bits: 32,
        capabilities: Capabilities::NONE,
        schemes: 1,
        registry_timeout_us: 1,
    };
    let mut frames: Vec<_> = [
        Control::Ack(Ack { common, op, transfer, segment: 0, peer_incarnation: foreign, tries: 1 }),
        Control::Nack(Nack {
            common,
            op,
            transfer,
            segment: 0,
            peer_incarnation: foreign,
            tries: 1,
            reason: NackReason::Busy,
        }),
        Control::SegmentDone(SegmentDone { common, transfer, segment: 0, peer_incarnation: foreign }),
        Control::HelloReply(hello),
    ]
    .iter()
    .map(frame)
    .collect();
    // A packet of an unknown type with a valid checksum.
    let mut nonsense = vec![WIRE_VERSION, 200];
    nonsense.resize(24, 0);
    assert_eq!(fpga_firmware::wire::finish(&mut nonsense, 20), Ok(24));
    frames.push(nonsense);
    let now = net.network.now();
    net.network.with_card(1, |card| {
        for n in 0..100_000 {
            card.receive_frame(now, &frames[n % frames.len()]);
        }
    });
    net.settle();
    let counters = net.end(1).counters();
    assert_eq!((counters.faults, counters.faults_dropped), (20_000, 0));
    let reported: Vec<_> = std::iter::from_fn(|| net.end(1).next_fault()).collect();
    assert!(
        reported
            .iter()
            .all(|event| event.kind == EventKind::Fault
                && event.fault_reason() == Some(FaultReason::BadPacket))
    );
    assert_eq!(reported.iter().map(|event| event.generation).collect::<Vec<_>>(), [0, 19_998]);
    assert_works(&mut net);
}
