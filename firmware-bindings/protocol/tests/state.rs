//! Independently typed numbers of the documentation of `fpga_protocol::state`.
#![cfg(target_pointer_width = "64")]

use fpga_firmware::generated::Scheme;
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_protocol::Nanos;
use fpga_protocol::mirror::Mirror;
use fpga_protocol::receiver::{Receiver, ReceiverConfig};
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::message_scheme::{MessageScheme, ReusableReceiver, ReusableSender};
use fpga_protocol::sender::{Sender, SenderConfig};
use fpga_protocol::timers::Timers;

#[test]
fn state_bits_match_documented_table() {
    let mut config = SenderConfig::default();
    config.congestion = None;
    let sender = Sender::new(config, Incarnation::new(1)).unwrap();
    let found = sender.state().map(|table| (table.name, table.entries, table.bytes));
    let expected = [
        ("op table", 256, 67),
        ("segments", 384, 84),
        ("transfers", 1024, 296),
        ("queues", 1024, 8),
        ("destinations", 64, 268),
        ("order of destinations", 64, 128),
        ("path identifiers", 64, 272),
        ("hashes", 64 + 512, 2),
        ("sheets of timers", 256 + 1024 / 15 + 704 + 64, 64),
        ("lists of timers", 3 * 704, 16),
    ];
    assert_eq!(found, expected);
    let receiver = Receiver::new(ReceiverConfig::new(NodeId::new(1), Incarnation::new(1))).unwrap();
    let found = receiver.state().map(|table| (table.name, table.entries, table.bytes));
    let expected = [
        ("registry", 64, 82),
        ("escape channel", 64, 120 + 512),
        ("transfers", 128, 82),
        ("senders", 64, 50),
        ("hashes of both", 128 + 64, 2),
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
    let expected = [
        536,
        672,
        2368,
        64,
        2144,
        1024,
        2176,
        16,
        512,
        128,
        656,
        960 + 8 * 512,
        656,
        400,
        16,
        64,
        256,
        320,
        512,
        896,
        384,
    ];
    assert_eq!(bits, expected);
    assert_eq!(receiver.state()[7].total(), 64 * 40);
}

#[test]
fn state_of_message_schemes_lists_fields_with_heap_memory() {
    let rules = |scheme| SchemeConfig::new(scheme, Nanos::from_micros(2)).unwrap();
    let fields = |tables: Vec<fpga_protocol::state::StateTable>| -> Vec<_> {
        tables.iter().map(|table| (table.name, table.entries * table.bytes)).collect()
    };
    // 512 packets in flight with 8 bytes each, and two transmissions of 16 bytes per packet.
    let flight = fields(rules(Scheme::Selective).sending().state()).remove(0);
    assert!(flight.1 > 512 * (8 + 2 * 16) && flight.1 < 512 * (8 + 2 * 16) + 512, "{flight:?}");
    // The times of gaps are only in the receiver that has a gap time.
    let gaps = |scheme| fields(rules(scheme).receiving().state()).pop().unwrap();
    let (adaptive, selective) = (gaps(Scheme::AdaptiveWindow), gaps(Scheme::Selective));
    assert_eq!((adaptive.0, adaptive.1), ("gaps", selective.1 + 128 * 8));
}
