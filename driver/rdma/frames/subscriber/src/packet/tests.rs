use super::*;

const OURS: Common = Common { source: 2, destination: 1, incarnation: 5 };
const DATA: Data<'_> = Data {
    transfer: 20,
    oldest_live: 20,
    segment: 0,
    segment_count: 1,
    address: 0x40,
    key: 6,
    op: 9,
    tries: 3,
    packet_size_log2: 9,
    notify: true,
    path: 0x70,
    marked: true,
    start: None,
    payload: &[3; BLOCK],
};

fn credit() -> Writer {
    let mut out = Writer::default();
    let packet = SinglePacket { transfer: 20, address: 0x40, key: 6, op: 9, tries: 3, packet_size_log2: 9 };
    single(&mut out, OURS, &packet, &[3; BLOCK]);
    out
}

#[test]
fn packet_single_round_trips() {
    let out = credit();
    let start =
        Start { base: 0x40, segment_length: 64, packets: 1, transfer_base: 0x40, transfer_length: 64 };
    let data = Data { path: 0, marked: false, start: Some(start), ..DATA };
    assert_eq!(parse(&out.0), Some((OURS, Packet::Data(data))));
}

#[test]
fn packet_answers_and_hellos_round_trip() {
    let mut out = Writer::default();
    for reason in [None, Some(NackReason::Busy), Some(NackReason::BadPacket)] {
        answer(&mut out, OURS, &DATA, 9, reason);
        assert_eq!(
            parse(&out.0),
            Some((OURS, Packet::Answer(Answer { op: 9, peer_incarnation: 9, reason })))
        );
        let wire::Packet::Control(control) = wire::Packet::parse(&out.0[16..]).unwrap() else {
            panic!("{reason:?}")
        };
        assert_eq!((control.common().flags, control.common().path), (Flags::ECHO, 0x70));
    }
    segment_done(&mut out, OURS, &DATA, 9);
    assert_eq!(parse(&out.0), Some((OURS, Packet::Other)));
    hello(&mut out, OURS, 9, false);
    assert_eq!(parse(&out.0), Some((OURS, Packet::Hello)));
    hello(&mut out, OURS, 9, true);
    assert_eq!(parse(&out.0), Some((OURS, Packet::HelloReply { packet_size_log2: 9, registry: true })));
}

#[test]
fn packet_damage_and_truncation_are_detected() {
    let datagram = credit().0;
    for bit in 0..8 * datagram.len() {
        let mut other = datagram.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(parse(&other), None, "bit {bit}");
    }
    for end in 0..datagram.len() {
        assert_eq!(parse(&datagram[..end]), None, "cut at {end}");
    }
}
