//! Packets whose payload the caller writes itself. `TestBed::deliver` checks in all tests that an announced packet makes exactly one write.

use fpga_firmware::wire::DataHeader;
use fpga_registers::CardAddr;

use crate::common::{Shape, TestBed, config};

fn would_write(bed: &mut TestBed, shape: &Shape, index: u16) -> bool {
    let (header, payload) = shape.packet(index);
    bed.receiver.would_write(&header, payload.len())
}

#[test]
fn receiver_announces_write_of_each_missing_packet_once() {
    let mut bed = TestBed::new(config());
    // The sender has no record yet.
    assert!(!would_write(&mut bed, &Shape::single(0, 2), 0));
    bed.send(&Shape::single(0, 2), 0);
    let shape = Shape::single(1, 20);
    for index in [0, 7, 19, 1] {
        assert!(would_write(&mut bed, &shape, index), "{index}");
        bed.send(&shape, index);
        assert!(!would_write(&mut bed, &shape, index), "{index} has arrived");
    }
    bed.send(&Shape::single(0, 2), 1);
    assert!((0..2).all(|index| !would_write(&mut bed, &Shape::single(0, 2), index)), "the transfer is over");
}

#[test]
fn receiver_does_not_announce_packets_for_the_escape_channel() {
    let mut bed = TestBed::new(config());
    bed.send(&Shape::single(0, 2), 0);
    let shape = Shape::single(1, 3);
    assert!(!would_write(&mut bed, &shape, 1));
    bed.send(&shape, 1);
    // Its start causes two writes.
    assert!(!would_write(&mut bed, &shape, 0));
    bed.send(&shape, 0);
    assert!(would_write(&mut bed, &shape, 2));
}

#[test]
fn receiver_does_not_announce_refused_packets() {
    let mut bed = TestBed::new(config());
    bed.send(&Shape::single(0, 2), 0);
    let shape = Shape::single(1, 2);
    let (header, payload) = shape.packet(0);
    for wrong in [
        DataHeader { key: header.key + 1, ..header },
        DataHeader { address: CardAddr::new(header.address.get() + 64), ..header },
        DataHeader { packet_size_log2: 7, ..header },
    ] {
        assert!(!bed.receiver.would_write(&wrong, payload.len()));
    }
    assert!(!bed.receiver.would_write(&header, payload.len() - 1));
    // Both registry entries are in use.
    bed.send(&shape, 0);
    assert!(!would_write(&mut bed, &Shape::single(2, 2), 0));
}
