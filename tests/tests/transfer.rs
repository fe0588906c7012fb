//! One file through two cards: every byte arrives, in any delivery order of the network.
#![expect(clippy::cast_possible_truncation, reason = "lengths of tests")]

use std::ops::Range;

use fpga_tests::{DeliveryOrder, Pair, SOURCE, TARGET, bytes};

fn carry(pair: &mut Pair, data: &[u8]) {
    let length = data.len();
    pair.load(data, SOURCE);
    let region = pair.region(length.max(1) as u64);
    let (completions, notifications) = pair.transfer(&region, length as u64);

    assert_eq!(completions.len(), 1, "exactly one local completion");
    assert_eq!(completions[0].result, Ok(()));
    // A transfer above 8 KiB is big: it has at least two segments.
    let segments = length.div_ceil(16 << 10).max(length.div_ceil(8 << 10).min(2)) as u32;
    assert_eq!(completions[0].segments, segments);
    assert_eq!(completions[0].silent_segments, segments.saturating_sub(1));
    if length == 0 {
        assert_eq!(notifications, [], "an empty transfer sends no notification");
    } else {
        assert_eq!(notifications.len(), 1, "exactly one remote notification");
        assert_eq!((notifications[0].address, notifications[0].length), (TARGET, length as u64));
        assert_eq!(notifications[0].node, pair.node_a());
    }
    assert!(pair.fetch(TARGET, length) == data, "{length} bytes differ");
    pair.assert_empty();
}

#[test]
fn transfer_in_order_completes() {
    let mut pair = Pair::new(DeliveryOrder::InOrder);
    carry(&mut pair, &bytes(1, 100_000));
}

/// Transfers one length under a range of delivery orders.
fn orders(length: usize, seeds: Range<u64>) {
    let data = bytes(length as u64, length);
    for seed in seeds {
        // From two frames shuffled with each other to more frames than can be in flight at once.
        let depth = [2, 8, 64, 256, 1024][seed as usize % 5];
        let mut pair = Pair::new(DeliveryOrder::Random { seed, depth });
        carry(&mut pair, &data);
    }
}

macro_rules! hundred_orders {
    ($($name:ident: $length:expr, $seeds:expr;)*) => {
        $(#[test]
        fn $name() {
            orders($length, $seeds);
        })*
    };
}

/// Far more segments than the tables of sender and receiver have entries: one order of each depth.
#[test]
fn length_8_mib() {
    orders(8 << 20, 0..5);
}

#[test]
#[ignore = "long: 5 s: 4096 segments"]
fn length_64_mib() {
    orders(64 << 20, 0..5);
}

/// Five orders of each depth.
#[test]
fn length_1_mib() {
    orders(1 << 20, 0..25);
}

#[test]
#[ignore = "long: 2 s: a hundred orders"]
fn length_1_mib_hundred_orders() {
    orders(1 << 20, 0..100);
}

hundred_orders! {
    length_0: 0, 0..100;
    length_1: 1, 0..100;
    length_511: 511, 0..100;
    length_512: 512, 0..100;
    length_513: 513, 0..100;
    length_16_kib: 16 << 10, 0..100;
    length_16_kib_and_1: (16 << 10) + 1, 0..100;
}
