//! Receive registry: one packet among 64 live operations, in turn (no two packets of one operation in a row) and in a row.
//!
//! The time of a packet covers its whole path through the receiver, including the read of the answer that a network interface
//! would send. The copy of its payload to memory is not included.

use std::ops::Range;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_firmware::wire::{Common, Control, DataHeader, Flags, StartFields};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{
    MemoryFault, MemoryWindow, Output, ReceiveMemory, Receiver, ReceiverConfig, SegmentKey,
};
use fpga_registers::CardAddr;

struct Sink(u64);

impl ReceiveMemory for Sink {
    fn write(&mut self, at: CardAddr, _: &[u8]) -> Result<(), MemoryFault> {
        // The copy is not part of the measurement.
        self.0 ^= at.get();
        Ok(())
    }
}

fn packet(transfer: u32, index: u16) -> DataHeader {
    let base = u64::from(transfer) << 14;
    DataHeader {
        common: Common {
            source: NodeId::new(1),
            destination: NodeId::new(2),
            incarnation: Incarnation::new(3),
            flags: Flags::NOTIFY_RECEIVER,
            path: 0,
        },
        transfer: TransferId::new(transfer),
        oldest_live: TransferId::new(0),
        segment: 0,
        segment_count: 1,
        address: CardAddr::new(base + u64::from(index) * 512),
        key: 0,
        op: OpNumber::new(u32::from(index)),
        tries: 1,
        packet_size_log2: 9,
        start: (index == 0).then_some(StartFields {
            base: CardAddr::new(base),
            segment_length: 16384,
            packets: 32,
            transfer_base: CardAddr::new(base),
            transfer_length: 16384,
        }),
    }
}

/// Delivers headers and takes answers one by one, as a network interface does.
fn deliver(receiver: &mut Receiver, headers: &[DataHeader]) -> u64 {
    let mut sink = Sink(0);
    for header in headers {
        receiver.handle_packet(Nanos::ZERO, header, &[0; 512], &mut sink);
        while let Some(output) = receiver.poll_output() {
            if let Output::Send(Control::Ack(ack)) = output {
                sink.0 ^= u64::from(ack.op.get()) ^ u64::from(ack.transfer.get());
            }
        }
    }
    sink.0
}

/// Match, mask and decision alone, without taking the answers.
fn decide(receiver: &mut Receiver, headers: &[DataHeader]) -> u64 {
    let mut sink = Sink(0);
    for header in headers {
        receiver.handle_packet(Nanos::ZERO, header, &[0; 512], &mut sink);
    }
    sink.0
}

/// Packets `indices` of 64 operations: the first of each, the second of each, and so on.
fn in_turn(indices: Range<u16>) -> Vec<DataHeader> {
    indices.flat_map(|index| (0..64).map(move |transfer| packet(transfer, index))).collect()
}

/// A receiver with 64 operations in progress, whose packets all fall into the last of `windows` memory windows.
fn receiver(windows: u32) -> Option<Receiver> {
    let mut config = ReceiverConfig::new(NodeId::new(2), Incarnation::new(4));
    config.windows = windows;
    let mut receiver = Receiver::new(config).ok()?;
    let window = MemoryWindow {
        source: NodeId::new(1),
        base: CardAddr::ZERO,
        length: 1 << 24,
        key: 0,
        permissions: Permissions::WRITE,
    };
    receiver.access_mut().install(windows - 1, window).ok()?;
    // More than once, so that the queue of answers has reached its final capacity.
    for _ in 0..15 {
        decide(&mut receiver, &in_turn(0..1));
    }
    while receiver.poll_output().is_some() {}
    Some(receiver)
}

type Deliver = fn(&mut Receiver, &[DataHeader]) -> u64;

fn packets(c: &mut Criterion) {
    let in_a_row: Vec<_> =
        (0..64).flat_map(|transfer| (1..31).map(move |index| packet(transfer, index))).collect();
    let mut group = c.benchmark_group("registry");
    let cases: [(&str, Deliver, u32, Vec<DataHeader>); 4] = [
        ("match, mask and decision, 64 operations in turn", decide, 1, in_turn(1..15)),
        ("packet, 64 operations in turn", deliver, 1, in_turn(1..31)),
        ("packet, in a row", deliver, 1, in_a_row),
        ("packet, 64 operations in turn, last of 64 windows", deliver, 64, in_turn(1..31)),
    ];
    for (name, run, windows, headers) in cases {
        let Some(receiver) = receiver(windows) else { continue };
        group.throughput(Throughput::Elements(headers.len() as u64));
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || receiver.clone(),
                |receiver| run(receiver, &headers),
                // One receiver at a time: several would evict each other from the cache.
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// One packet of `many`: 256 transfers of 256 segments of 32 packets.
#[derive(Clone, Copy)]
struct Place(u32);

impl Place {
    const fn new(transfer: u32, segment: u32, index: u32) -> Self {
        Self(transfer << 16 | segment << 8 | index)
    }

    /// Changes `header`, of a DATA packet, into the header of this packet.
    fn put(self, header: &mut DataHeader) {
        let (transfer, segment, index) = (self.0 >> 16, self.0 >> 8 & 0xFF, self.0 & 0xFF);
        header.transfer = TransferId::new(transfer);
        header.segment = segment;
        header.address =
            CardAddr::new(u64::from(transfer) << 22 | u64::from(segment) << 14 | u64::from(index) << 9);
        header.op = OpNumber::new(self.0);
    }
}

/// Delivers packets as a network interface does: the next ones are in its inbox, were just written, and are announced to the
/// receiver.
fn deliver_bursts(receiver: &mut Receiver, places: &[Place]) -> u64 {
    let mut inbox = [DataHeader { segment_count: 256, ..packet(0, 1) }; 16];
    let mut sum = 0;
    for burst in places.chunks(inbox.len()) {
        for (header, place) in inbox.iter_mut().zip(burst) {
            place.put(header);
            let Common { source, incarnation, .. } = header.common;
            let DataHeader { transfer, segment, .. } = *header;
            receiver.prefetch_entry(&SegmentKey { source, incarnation, transfer, segment });
        }
        sum ^= deliver(receiver, inbox.get(..burst.len()).unwrap_or_default());
    }
    sum
}

/// 65,536 operations in progress.
fn many(c: &mut Criterion) {
    let mut config = ReceiverConfig::new(NodeId::new(2), Incarnation::new(4));
    config.registry_entries = 1 << 16;
    config.transfers = 256;
    config.tombstones = 512;
    config.windows = 1;
    let Ok(mut receiver) = Receiver::new(config) else { return };
    let window = MemoryWindow {
        source: NodeId::new(1),
        base: CardAddr::ZERO,
        length: 1 << 40,
        key: 0,
        permissions: Permissions::WRITE,
    };
    if receiver.access_mut().install(0, window).is_err() {
        return;
    }
    let all = |index| (0..256).flat_map(move |t| (0..256).map(move |segment| Place::new(t, segment, index)));
    for place in all(0) {
        let mut header = packet(0, 0);
        header.segment_count = 256;
        place.put(&mut header);
        if let Some(start) = &mut header.start {
            start.base = header.address;
            start.transfer_base = CardAddr::new(u64::from(header.transfer.get()) << 22);
            start.transfer_length = 256 << 14;
        }
        deliver(&mut receiver, &[header]);
    }
    assert_eq!(receiver.registry_occupancy(), 1 << 16, "every operation is registered");
    // 16 packets of every operation, at random.
    let mut places: Vec<_> = (1..17).flat_map(all).collect();
    let mut dice = 1u64;
    for at in (1..places.len()).rev() {
        dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let other = usize::try_from((dice >> 33) % (at as u64 + 1)).unwrap_or(0);
        places.swap(at, other);
    }
    let mut group = c.benchmark_group("registry");
    group.throughput(Throughput::Elements(places.len() as u64));
    group.sample_size(10);
    group.bench_function("packet, 65536 operations at random", |b| {
        b.iter_batched_ref(
            || receiver.clone(),
            |receiver| deliver_bursts(receiver, &places),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, packets, many);
criterion_main!(benches);
