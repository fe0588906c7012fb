//! The tables of `fpga_protocol::state` are complete: the heap use of sender, receiver and mirror equals the sum of their tables.

use fpga_firmware::{Incarnation, NodeId};
use fpga_pci::testing::CountingAllocator;
use fpga_protocol::mirror::Mirror;
use fpga_protocol::receiver::{Receiver, ReceiverConfig};
use fpga_protocol::sender::{Sender, SenderConfig};
use fpga_protocol::state::StateTable;

/// Compares the bytes with the tables. State that is not counted per entry is a few words; entries counted in whole bytes may need less.
fn compare(what: &str, bytes: u64, tables: &[StateTable]) {
    let reported: u64 = tables.iter().map(StateTable::total).sum();
    let (most, least) = (reported + 256, reported - reported / 50);
    assert!(
        (least..=most).contains(&bytes),
        "{what}: {bytes} bytes, of which the tables report {reported}: {tables:?}"
    );
}

#[test]
fn state_bytes_match_reported_tables() {
    for scale in [1, 4] {
        let mut config = SenderConfig::default();
        (config.op_entries, config.transfers) = (256 * scale, 1024 * scale);
        config.destinations = 64 * scale;
        let (bytes, sender) = CountingAllocator::peak(|| Sender::new(config, Incarnation::new(1)).unwrap());
        compare("sender", bytes, &sender.state());

        for mask_bits in [32, 64, 256] {
            let mut config = ReceiverConfig::new(NodeId::new(1), Incarnation::new(1));
            config.mask_bits = mask_bits;
            (config.registry_entries, config.windows) = (64 * scale, 64 * scale);
            config.escape_slots *= u16::try_from(scale).unwrap();
            let (bytes, receiver) = CountingAllocator::peak(|| Receiver::new(config).unwrap());
            compare("receiver", bytes, &receiver.state());
        }

        let entries = u16::try_from(64 * scale).unwrap();
        let (bytes, mirror) = CountingAllocator::peak(|| Mirror::new(entries, entries));
        compare("mirror", bytes, &mirror.state());
    }
}
