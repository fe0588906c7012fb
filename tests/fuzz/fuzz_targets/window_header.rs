//! Fuzzes header blocks: each is accepted or refused, and an accepted one gives only packets that a receiver accepts.
#![no_main]

use fpga_firmware::window::{MAX_HEADER_BLOCK, WindowHeader};
use fpga_firmware::wire::{Control, MAX_PACKET_LENGTH, Packet};
use fpga_firmware::{Incarnation, NodeId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok((header, ops)) = WindowHeader::decode(input) else { return };
    let numbers: Vec<_> = ops.iter().collect();
    let mut again = [0xa5; MAX_HEADER_BLOCK];
    let length = header.encode(&numbers, ops.paths(), &mut again).expect("a decoded block can be encoded");
    assert_eq!(&again[..length], &input[..length]);

    let (source, incarnation) = (NodeId::new(1), Incarnation::new(2));
    let payload = vec![0; header.payload_length() as usize];
    let mut frame = [0; MAX_PACKET_LENGTH];
    let mut end = 0;
    for (index, op) in (0..).zip(ops.iter()) {
        let range = header.payload_range(index).expect("an op number for every packet");
        assert_eq!(range.start, end);
        end = range.end;
        let packet = header.packet(index, op, header.path, source, incarnation).expect("an op number for every packet");
        let part = &payload[range.start as usize..range.end as usize];
        let length = packet.encode(part, &mut frame).expect("a valid window gives valid packets");
        assert!(Packet::parse(&frame[..length]).is_ok());
    }
    assert_eq!(end as usize, payload.len());
    assert_eq!(header.packet(header.packet_count, 0.into(), 0, source, incarnation), None);
    if let Some(arrived) = header.arrival(source, incarnation) {
        assert!(Control::Arrived(arrived).encode(&mut frame).is_ok());
    }
});
