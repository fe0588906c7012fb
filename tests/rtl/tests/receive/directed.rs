//! Directed sequences: all orders of the packets of a segment.

use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

use super::common::{KEY, Shape};
use super::lockstep::{Input, Lockstep};
use super::{DEFAULT, HASHED, SMALL, Sizes, WIDE};
use crate::simulation::{open_window, orders};

/// Each order of six packets, as a transfer of its own: packets are lost and repeated on the way; then the sender repeats those without an
/// acknowledgement, in the same order.
#[test]
fn all_orders_of_six_packets_with_losses_and_duplicates_match() {
    let sizes = Sizes { ..SMALL };
    let Some(program) = sizes.build() else { return };
    let mut config = sizes.config();
    config.packet_events = true;
    for percent in [0, 100] {
        let mut both = Lockstep::new(&program, config, 1 + percent, percent);
        both.input(Input::Install { index: 0, window: open_window(0x1_0000, 0x10_0000, KEY) });
        let mut rng = Pcg64::seed_from_u64(6);
        let (mut transfer, mut now) = (u32::MAX - 300, 0);
        orders(&mut [0, 1, 2, 3, 4, 5], 0, &mut |order| {
            let shape = Shape { transfer, oldest_live: transfer, ..Shape::single(0, 6) };
            let mut send = |number: u16, both: &mut Lockstep| {
                let (header, payload) = shape.packet(number);
                now += 100;
                both.input(Input::Packet { now, header, payload });
            };
            let mut lost = Vec::new();
            for number in order {
                match rng.next_u32() % 8 {
                    0 => lost.push(*number),
                    1 => (0..2).for_each(|_| send(*number, &mut both)),
                    _ => send(*number, &mut both),
                }
            }
            // The last one again: its transfer is complete, or it is a duplicate.
            lost.push(order[5]);
            lost.iter().for_each(|number| send(*number, &mut both));
            transfer = transfer.wrapping_add(1);
        });
        both.sync();
        assert_eq!(both.receiver.counters().notices, 720);
    }
}

/// Packets of registered segments take one cycle per beat of their payload, and four more.
#[test]
fn fast_path_takes_four_cycles_more_than_payload() {
    for sizes in fpga_ni_tests::sizes(&[SMALL, HASHED, DEFAULT], &[WIDE]) {
        let Some(program) = sizes.build() else { return };
        let config = sizes.config();
        let size = 1u32 << sizes.packet_log2;
        let mut cycles = Vec::new();
        for packets in [10, 30] {
            let mut both = Lockstep::new(&program, config, 1, 100);
            both.input(Input::Install { index: 0, window: open_window(0x1_0000, 0x10_0000, KEY) });
            let length = 32 * size;
            let shape = Shape {
                length,
                transfer_length: length.into(),
                log2: sizes.packet_log2,
                ..Shape::single(0, 32)
            };
            for number in 0..=packets {
                let (header, payload) = shape.packet(number);
                both.input(Input::Packet { now: 100, header, payload });
            }
            both.sync();
            cycles.push(both.cycles());
        }
        let beats = u64::from(size) * 8 / sizes.bus;
        assert_eq!(cycles[1] - cycles[0], 20 * (beats + 4), "{}", sizes.name);
    }
}

/// START packets of new transfers of a known sender search its records and those of all transfers, four per cycle.
#[test]
fn start_of_known_sender_takes_fewer_cycles_than_it_has_records() {
    let Some(program) = DEFAULT.build() else { return };
    let mut cycles = Vec::new();
    for transfers in [10, 30] {
        let mut both = Lockstep::new(&program, DEFAULT.config(), 1, 100);
        both.input(Input::Install { index: 0, window: open_window(0x1_0000, 0x10_0000, KEY) });
        for transfer in 0..transfers {
            let shape = Shape { log2: DEFAULT.packet_log2, ..Shape::single(transfer, 1) };
            let (header, payload) = shape.packet(0);
            both.input(Input::Packet { now: 100, header, payload });
        }
        both.sync();
        cycles.push(both.cycles());
    }
    let each = (cycles[1] - cycles[0]) / 20;
    println!("{each} cycles");
    assert!(each < u64::from(DEFAULT.transfers), "{each}");
}
