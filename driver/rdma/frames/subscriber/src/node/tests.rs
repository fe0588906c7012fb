use super::*;

const SIZE: usize = 64;
const KEY: u64 = 7;

fn node() -> ReceivingNode {
    let identity =
        Identity { node: 2, incarnation: 5, peer: 1, peer_incarnation: 9, packet_size_log2: 6, key: KEY };
    ReceivingNode::new(identity, Memory::new(4, 256).unwrap(), 4)
}

const FROM: Common = Common { source: 1, destination: 2, incarnation: 9 };

fn packet(transfer: u32, index: u64, payload: &[u8]) -> Data<'_> {
    let start =
        Start { base: 256, segment_length: 160, packets: 3, transfer_base: 256, transfer_length: 160 };
    Data {
        transfer,
        oldest_live: transfer,
        segment: 0,
        segment_count: 1,
        address: 256 + index * SIZE as u64,
        key: KEY,
        op: 77,
        tries: 1,
        packet_size_log2: 6,
        notify: true,
        path: 0,
        marked: false,
        start: (index == 0).then_some(start),
        payload,
    }
}

/// Kinds and reasons of the answers to one packet.
fn answers(node: &mut ReceivingNode, data: &Data<'_>) -> Vec<(u8, u8)> {
    let mut kinds = Vec::new();
    node.data(Instant::now(), FROM, data, &[], &mut |bytes| kinds.push((bytes[17], bytes[16 + 33])));
    kinds
}

const ACKNOWLEDGED: (u8, u8) = (3, 0);
const REFUSED: u8 = 4;

#[test]
fn node_transfer_is_written_and_noticed_once() {
    let mut node = node();
    let parts = [[1; 64], [2; 64], [3; 64]];
    assert_eq!(answers(&mut node, &packet(3, 0, &parts[0])), [ACKNOWLEDGED]);
    assert_eq!(answers(&mut node, &packet(3, 2, &parts[2][..32])), [ACKNOWLEDGED]);
    assert_eq!(answers(&mut node, &packet(3, 2, &[9; 32])), [ACKNOWLEDGED], "duplicate");
    assert!(node.notices.is_empty());
    assert_eq!(answers(&mut node, &packet(3, 1, &parts[1])).len(), 2, "acknowledged, segment done");
    assert_eq!(node.notices, [(256, 160)]);
    assert_eq!(answers(&mut node, &packet(3, 0, &[9; 64])), [ACKNOWLEDGED], "late");
    let slot = node.memory.slot(1).unwrap();
    assert_eq!(slot[..64], parts[0]);
    assert_eq!(slot[64..128], parts[1]);
    assert_eq!(slot[128..160], parts[2][..32]);
    // The next transfer makes the first one older than the oldest live one.
    answers(&mut node, &packet(4, 0, &parts[1]));
    assert_eq!(answers(&mut node, &packet(3, 1, &[9; 64])), [ACKNOWLEDGED]);
    assert_eq!((node.notices.len(), node.completed.len()), (1, 0));
}

#[test]
fn node_contradicting_and_foreign_packets_are_refused() {
    let mut node = node();
    let data = [1; 64];
    let good = packet(3, 0, &data);
    let outside = Start { transfer_base: 0, transfer_length: 2000, ..good.start.unwrap() };
    for (bad, reason) in [
        (Data { key: 8, ..good }, Refusal::Violation),
        (Data { address: 4 * 256 + 1, ..good }, Refusal::Violation),
        (Data { address: u64::MAX, ..good }, Refusal::Violation),
        (Data { packet_size_log2: 7, ..good }, Refusal::Violation),
        (Data { packet_size_log2: 255, ..good }, Refusal::Violation),
        (Data { segment: 1, ..good }, Refusal::BadPacket),
        (Data { start: Some(Start { packets: 4, ..good.start.unwrap() }), ..good }, Refusal::BadPacket),
        (Data { start: Some(Start { base: 320, ..good.start.unwrap() }), ..good }, Refusal::BadPacket),
        (Data { segment_count: 9, segment: 4, start: Some(outside), ..good }, Refusal::Violation),
    ] {
        assert_eq!(answers(&mut node, &bad), [(REFUSED, reason.value())], "{bad:?}");
    }
    let mut kinds = Vec::new();
    let earlier = Common { incarnation: 8, ..FROM };
    node.data(Instant::now(), earlier, &good, &[], &mut |bytes| kinds.push(bytes[17]));
    assert_eq!(kinds, [REFUSED]);
    // A slot with a reader is not written.
    let taken = node.memory.take(1).unwrap();
    assert_eq!(answers(&mut node, &good), [(REFUSED, Refusal::Violation.value())]);
    node.memory.give_back(1, taken);
    assert_eq!(answers(&mut node, &good), [ACKNOWLEDGED]);
    assert!(node.notices.is_empty());
}

#[test]
fn memory_write_across_slots_is_all_or_nothing() {
    let mut memory = Memory::new(2, 128).unwrap();
    assert!(memory.write(100, &[5; 64]));
    assert_eq!((memory.slot(0).unwrap()[127], memory.slot(1).unwrap()[35]), (5, 5));
    assert!(memory.write(256, &[6; 64]) && !memory.write(257, &[6; 64]));
    let _reader = memory.take(1);
    assert!(!memory.write(100, &[7; 64]));
    assert_eq!(memory.slot(0).unwrap()[127], 5);
}
