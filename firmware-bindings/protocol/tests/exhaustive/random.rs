//! Random samples for masks that are too wide for a search.

use fpga_firmware::event::EventKind;

use crate::exhaustive::common::{self, BASE, Shape, TestBed, config, events};

/// Wide masks, where the words meet, are too large for a search. Random orders with copies and losses instead, compared with the
/// definition, for every number of packets up to the width.
#[test]
fn wide_masks_random_orders_match_definition() {
    let mut dice = 7u64;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (dice >> 33) % sides
    };
    for width in [31u16, 32, 33, 63, 64, 65, 128, 255, 256] {
        for packets in 1..=width {
            let at_an_edge = [1, 2, width / 2, width - 1, width].contains(&packets) || packets % 32 <= 1;
            for _ in 0..if at_an_edge { 12 } else { 2 } {
                let mut config = config();
                config.mask_bits = width;
                config.escape_slots = u16::try_from(roll(300)).unwrap();
                let mut bed = TestBed::new(config);
                let shape = Shape::single(0, packets);
                let mut missing: Vec<u16> = (0..packets).collect();
                let (mut notices, mut rounds) = (0, 0);
                while !missing.is_empty() {
                    rounds += 1;
                    assert!(rounds < 1000, "it hangs");
                    let mut in_flight: Vec<u16> = missing.clone();
                    in_flight.extend(missing.iter().filter(|_| roll(8) == 0));
                    in_flight.retain(|_| roll(10) != 0);
                    while !in_flight.is_empty() {
                        let at = usize::try_from(roll(in_flight.len() as u64)).unwrap();
                        let outputs = bed.send(&shape, in_flight.swap_remove(at));
                        notices += events(&outputs, EventKind::Notice).len();
                        for op in common::acks(&outputs) {
                            missing.retain(|packet| *packet != op.slot());
                        }
                    }
                    assert_eq!(notices, usize::from(bed.memory.writes.len() == usize::from(packets)));
                }
                assert_eq!(notices, 1);
                let mut bytes = vec![0; shape.length as usize];
                for (address, part) in &bed.memory.writes {
                    let start = usize::try_from(address - BASE).unwrap();
                    bytes[start..start + part.len()].copy_from_slice(part);
                }
                assert!(bytes.iter().zip(BASE..).all(|(byte, at)| *byte == common::pattern(at)));
                let written = bed.memory.writes.len();
                for packet in 0..packets {
                    bed.send(&shape, packet);
                }
                assert_eq!((bed.memory.writes.len(), bed.receiver.registry_occupancy()), (written, 0));
            }
        }
    }
}
