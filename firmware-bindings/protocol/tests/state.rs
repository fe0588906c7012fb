//! Independently typed numbers of the documentation of `fpga_protocol::state`.
#![cfg(target_pointer_width = "64")]

use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_protocol::mirror::Mirror;
use fpga_protocol::receiver::{Receiver, ReceiverConfig};
use fpga_protocol::sender::{Sender, SenderConfig};
use fpga_protocol::timers::Timers;

#[test]
fn state_bits_match_documented_table() {
    let sender = Sender::new(SenderConfig::default(), Incarnation::new(1)).unwrap();
    let found = sender.state().map(|table| (table.name, table.entries, table.bytes));
    let expected = [
        ("op table", 256, 65),
        ("segments", 384, 82),
        ("transfers", 1024, 288),
        ("queues", 1024, 8),
        ("destinations", 64, 240),
        ("sheets of timers", 256 + 1024 / 15 + 704 + 64, 64),
        ("lists of timers", 3 * 704, 16),
    ];
    assert_eq!(found, expected);
    let receiver = Receiver::new(ReceiverConfig::new(NodeId::new(1), Incarnation::new(1))).unwrap();
    let found = receiver.state().map(|table| (table.name, table.entries, table.bytes));
    let expected = [
        ("registry", 64, 82),
        ("escape channel", 64, 120 + 512),
        ("transfers", 128, 80),
        ("senders", 64, 48),
        ("tombstones", 64 * 129, 8),
        ("incarnations", 1024, 32),
        ("memory windows", 64, 40),
        ("answers and events", 2 * (4 * (64 + 128 + 64) + 8), 64),
    ];
    assert_eq!(found, expected);
    let mirror = Mirror::new(64, 32);
    let found = mirror.state().map(|table| (table.name, table.entries, table.bytes));
    assert_eq!(found, [("mirror of the registry", 64, 112), ("mirror of the escape channel", 32, 48)]);
    assert_eq!(Timers::BYTES_PER_TIMER, 21);
    // Each timer has its own chunk, and many timers share chunks.
    for (timers, sheets) in [(1, 1), (754, 754), (755, 754), (15_000, 1_704)] {
        assert_eq!(Timers::new(timers).memory(), u64::from(timers) * 16 + sheets * 64 + 704 * 16);
    }
    let all = [&sender.state()[..], &receiver.state(), &mirror.state()].concat();
    let bits: Vec<_> = all.iter().map(|table| table.bits()).collect();
    let expected =
        [520, 656, 2304, 64, 1920, 512, 128, 656, 960 + 8 * 512, 640, 384, 64, 256, 320, 512, 896, 384];
    assert_eq!(bits, expected);
    assert_eq!(receiver.state()[6].total(), 64 * 40);
}
