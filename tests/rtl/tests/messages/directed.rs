//! Directed sequences: all orders of the packets of a message, and the rate.

use fpga_firmware::ids::MessageId;
use fpga_firmware::wire::Message;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

use super::lockstep::{Input, Lockstep};
use super::packets::{KEY, Shape};
use super::{DEFAULT, SMALL, Scheme, WIDE};
use crate::simulation::{open_window, orders};

const CREDIT: Scheme = Scheme { credit: true, ..Scheme::of(32) };

/// Each order of six packets, as a message of its own: packets are lost and repeated on the way; then those requested are sent again.
#[test]
fn all_orders_of_six_packets_with_losses_and_duplicates_match() {
    let Some(program) = SMALL.build() else { return };
    let others = [(Scheme::of(32), 0), (CREDIT, 100)];
    for (scheme, percent) in fpga_ni_tests::sizes(&[(Scheme::of(4), 100), (CREDIT, 0)], &others) {
        let config = SMALL.config(scheme);
        let mut both = Lockstep::new(&program, config, &scheme.arguments(), 1 + percent, percent);
        both.input(Input::Install { index: 0, window: open_window(0x1_0000, 0x10_0000, KEY) });
        let mut rng = Pcg64::seed_from_u64(6);
        let (mut number, mut now) = (0xFFF00, 0);
        orders(&mut [0, 1, 2, 3, 4, 5], 0, &mut |order| {
            let shape = Shape::new(9, MessageId::from_parts(3, number), config.packet_size_log2, 6, 0x1_0000);
            both.input(Input::Packet {
                now,
                message: Message::Request(shape.request(1)),
                payload: Vec::new(),
            });
            let mut send = |index: u16, repeated: bool, both: &mut Lockstep| {
                let (mut header, length) = shape.packet(index.into(), false, 5);
                header.sequence = 1 + u32::from(repeated);
                header.context = both.last_answers.last().and_then(|answer| answer.context);
                now += 100;
                let payload = vec![u8::try_from(index).unwrap(); length];
                both.input(Input::Packet { now, message: Message::Data(header), payload });
            };
            let mut lost = Vec::new();
            for index in order {
                match rng.next_u32() % 8 {
                    0 => lost.push(*index),
                    1 => (0..2).for_each(|_| send(*index, false, &mut both)),
                    _ => send(*index, false, &mut both),
                }
            }
            // The first one again: the message is complete, or it is a duplicate.
            lost.push(order[0]);
            // Packets beyond the window are sent again until it has moved.
            for _ in 0..3 {
                lost.iter().chain(order).for_each(|index| send(*index, true, &mut both));
            }
            both.input(Input::Time(now));
            now += 1;
            number = (number + 1) & 0xF_FFFF;
        });
        both.sync();
        assert_eq!(both.receiver.counters().notices, 720);
    }
}

/// Packets in order take one cycle per beat of their payload, and four more; with limits, too.
#[test]
fn packets_in_order_take_four_cycles_more_than_payload() {
    for sizes in fpga_ni_tests::sizes(&[SMALL], &[DEFAULT, WIDE]) {
        let Some(program) = sizes.build() else { return };
        for credit in [false, true] {
            let scheme = Scheme { credit, ..Scheme::of(32) };
            let mut cycles = Vec::new();
            // The difference is a multiple of the period of the timers' scan, for which the last command waits.
            for packets in [10, 42] {
                let config = sizes.config(scheme);
                let mut both = Lockstep::new(&program, config, &scheme.arguments(), 1, 100);
                both.input(Input::Install { index: 0, window: open_window(0x1_0000, 0x10_0000, KEY) });
                let shape = Shape::new(9, MessageId::from_parts(0, 1), sizes.packet_log2, 64, 0x1_0000);
                let request = Message::Request(shape.request(1));
                both.input(Input::Packet { now: 100, message: request, payload: Vec::new() });
                both.sync();
                for index in 0..packets {
                    let (mut header, length) = shape.packet(index, false, 1);
                    header.context = Some(0);
                    let message = Message::Data(header);
                    both.input(Input::Packet { now: 100, message, payload: vec![7; length] });
                }
                both.sync();
                cycles.push(both.cycles());
            }
            let beats = (8 << sizes.packet_log2) / sizes.bus;
            assert_eq!(cycles[1] - cycles[0], 32 * (beats + 4), "{} {credit}", sizes.name);
        }
    }
}
