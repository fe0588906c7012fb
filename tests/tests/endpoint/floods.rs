//! A flood of packets from other nodes must not end an endpoint while its host does not poll.

use fpga_firmware::event::{EventKind, FaultReason};
use fpga_firmware::generated::Capabilities;
use fpga_firmware::ids::{Incarnation, OpNumber, TransferId};
use fpga_firmware::wire::{Ack, Common, Control, Flags, Hello, Nack, SegmentDone, WIRE_VERSION};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;

/// Counts warnings and errors.
struct LineCounter(Arc<AtomicUsize>);

impl Subscriber for LineCounter {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if *event.metadata().level() <= Level::WARN {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

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

/// Twenty thousand forged packets are counted one by one, and logged by a burst and then once per second.
#[test]
fn bad_packet_flood_writes_few_log_lines() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let mut forged = vec![WIRE_VERSION, 200];
    forged.resize(24, 0);
    assert_eq!(fpga_firmware::wire::finish(&mut forged, 20), Ok(24));
    let lines = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::with_default(LineCounter(Arc::clone(&lines)), || {
        for _ in 0..200 {
            let now = net.network.now();
            net.network.with_card(1, |card| (0..100).for_each(|_| card.receive_frame(now, &forged)));
            net.settle();
        }
    });
    let counters = net.end(1).counters();
    assert_eq!(counters.faults, 20_000);
    let lines = lines.load(Ordering::Relaxed);
    assert!((1..=20).contains(&lines), "{lines} lines");
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
        path: 0,
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
        Control::Ack(Ack {
            common,
            op,
            transfer,
            segment: 0,
            peer_incarnation: foreign,
            tries: 1,
            senders: 0,
            delay: 0,
        }),
        Control::Nack(Nack {
            common,
            op,
            transfer,
            segment: 0,
            peer_incarnation: foreign,
            tries: 1,
            reason: NackReason::Busy,
            delay: 0,
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
