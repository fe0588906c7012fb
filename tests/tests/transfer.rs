//! One file through two cards: every byte arrives, whatever order the network delivers in.
#![expect(clippy::cast_possible_truncation, reason = "lengths of tests")]

use fpga_driver::mock::DeliveryOrder;
use fpga_tests::{Pair, SOURCE, TARGET, bytes};

fn carry(pair: &mut Pair, seed: u64, length: usize) {
    let data = bytes(seed, length);
    pair.load(&data, SOURCE);
    let region = pair.region(length.max(1) as u64);
    let (completions, notifications) = pair.transfer(&region, length as u64);

    assert_eq!(completions.len(), 1, "exactly one local completion");
    assert_eq!(completions[0].result, Ok(()));
    let segments = length.div_ceil(16 << 10) as u32;
    assert_eq!(completions[0].segments, segments);
    assert_eq!(completions[0].silent_segments, segments.saturating_sub(1));
    if length == 0 {
        assert_eq!(notifications, [], "nothing was sent, nothing arrives");
    } else {
        assert_eq!(notifications.len(), 1, "exactly one remote notification");
        assert_eq!((notifications[0].address, notifications[0].length), (TARGET, length as u64));
        assert_eq!(notifications[0].node, pair.node_a());
    }
    assert!(pair.fetch(TARGET, length) == data, "{length} bytes differ (seed {seed})");
    pair.assert_empty();
}

#[test]
fn one_transfer_in_order() {
    let mut pair = Pair::new(DeliveryOrder::InOrder);
    carry(&mut pair, 1, 100_000);
}

/// Each length under 100 delivery orders; the orders of one length share a pair of cards, so that whatever one transfer leaves
/// behind would disturb the next.
fn hundred_orders(length: usize) {
    for seed in 0..100 {
        // From a few frames shuffled with each other to all that can be on the wire at once.
        let depth = [2, 8, 64, 256, 1024][seed as usize % 5];
        let mut pair = Pair::new(DeliveryOrder::Random { seed, depth });
        carry(&mut pair, seed, length);
    }
}

macro_rules! hundred_orders {
    ($($name:ident: $length:expr;)*) => {
        $(#[test]
        fn $name() {
            hundred_orders($length);
        })*
    };
}

hundred_orders! {
    length_0: 0;
    length_1: 1;
    length_511: 511;
    length_512: 512;
    length_513: 513;
    length_16_kib: 16 << 10;
    length_16_kib_and_1: (16 << 10) + 1;
    length_64_mib: 64 << 20;
}
