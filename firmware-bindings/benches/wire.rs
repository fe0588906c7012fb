//! Cost of a packet: encoding and checking a DATA packet of 512 bytes, checksum included.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fpga_firmware::crc::crc32c;
use fpga_firmware::wire::{Common, Control, DataHeader, MAX_PACKET_LENGTH, Packet};
use fpga_firmware::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_registers::CardAddr;

const PAYLOAD: usize = 512;

fn header() -> DataHeader {
    DataHeader {
        common: Common {
            source: NodeId::new(1),
            destination: NodeId::new(2),
            incarnation: Incarnation::new(0x1234_5678),
            ..Common::default()
        },
        transfer: TransferId::new(9),
        oldest_live: TransferId::new(7),
        segment: 1,
        segment_count: 4,
        address: CardAddr::new(0x1_0000),
        key: 0x0123_4567_89ab_cdef,
        op: OpNumber::from_parts(3, 1),
        tries: 1,
        packet_size_log2: 9,
        start: None,
    }
}

fn packets(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wire");
    group.throughput(Throughput::Bytes(PAYLOAD as u64));
    let header = header();
    let payload = [0x5a; PAYLOAD];
    let mut buffer = [0; MAX_PACKET_LENGTH];
    #[expect(clippy::expect_used, reason = "an invalid header ends the benchmark")]
    let length = header.encode(&payload, &mut buffer).expect("the header is valid");
    let packet = buffer.get(..length).unwrap_or_default().to_vec();
    group.bench_function("crc32c of 568 bytes", |bencher| {
        bencher.iter(|| crc32c(black_box(packet.get(..568).unwrap_or_default())));
    });
    group.bench_function("encode 512", |bencher| {
        bencher.iter(|| black_box(&header).encode(black_box(&payload), &mut buffer));
    });
    group.bench_function("parse 512", |bencher| {
        bencher.iter(|| Packet::parse(black_box(&packet)).map(|packet| packet.kind()));
    });
    group.bench_function("encode and parse 512", |bencher| {
        bencher.iter(|| {
            let length = black_box(&header).encode(black_box(&payload), &mut buffer).unwrap_or_default();
            Packet::parse(buffer.get(..length).unwrap_or_default()).map(|packet| packet.kind())
        });
    });
    group.bench_function("encode and parse an ACK", |bencher| {
        let ack = Control::Ack(fpga_firmware::wire::Ack { common: header.common, ..Default::default() });
        bencher.iter(|| {
            let length = black_box(&ack).encode(&mut buffer).unwrap_or_default();
            Packet::parse(buffer.get(..length).unwrap_or_default()).map(|packet| packet.kind())
        });
    });
    group.finish();
}

criterion_group!(benches, packets);
criterion_main!(benches);
