//! Receive registry: one packet among 64 live operations, in turn (no two packets of one operation in a row) and in a row.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use fpga_core::Nanos;
use fpga_core::receiver::{MemoryFault, MemoryWindow, ReceiveMemory, Receiver, ReceiverConfig};
use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_firmware::wire::{Common, DataHeader, Flags, StartFields};
use fpga_registers::CardAddr;

struct Sink(u64);

impl ReceiveMemory for Sink {
    fn write(&mut self, at: CardAddr, _: &[u8]) -> Result<(), MemoryFault> {
        // The copy is not what is measured.
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

fn deliver(receiver: &mut Receiver, headers: &[DataHeader]) -> u64 {
    let mut sink = Sink(0);
    for header in headers {
        receiver.handle_packet(Nanos::ZERO, header, &[0; 512], &mut sink);
        while receiver.poll_output().is_some() {}
    }
    sink.0
}

fn packets(c: &mut Criterion) {
    let mut config = ReceiverConfig::new(NodeId::new(2), Incarnation::new(4));
    config.windows = 4;
    let Ok(mut receiver) = Receiver::new(config) else { return };
    let window = MemoryWindow {
        source: NodeId::new(1),
        base: CardAddr::ZERO,
        length: 1 << 24,
        key: 0,
        permissions: Permissions::WRITE,
    };
    if receiver.access_mut().install(0, window).is_err() {
        return;
    }
    deliver(&mut receiver, &(0..64).map(|transfer| packet(transfer, 0)).collect::<Vec<_>>());
    let in_turn: Vec<_> =
        (1..31).flat_map(|index| (0..64).map(move |transfer| packet(transfer, index))).collect();
    let in_a_row: Vec<_> =
        (0..64).flat_map(|transfer| (1..31).map(move |index| packet(transfer, index))).collect();
    let mut group = c.benchmark_group("registry");
    group.throughput(Throughput::Elements(in_turn.len() as u64));
    for (name, headers) in [("packet, 64 operations in turn", &in_turn), ("packet, in a row", &in_a_row)] {
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || receiver.clone(),
                |receiver| deliver(receiver, headers),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, packets);
criterion_main!(benches);
