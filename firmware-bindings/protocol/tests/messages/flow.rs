//! Link feedback lowers the rate at which a sender's packets leave.

use crate::messages::net::{node_id, write};
use crate::messages::{ROUND_TRIP, configs};
use fpga_firmware::generated::Scheme;
use fpga_firmware::wire::{Common, Message};
use fpga_protocol::Nanos;
use fpga_protocol::feedback::flow::{FULL, FlowConfig};
use fpga_protocol::feedback::{LinkPacket, Word};
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::messages::Sender;
use fpga_protocol::scheme::traits::{Header, OutgoingPacket, SchemeSender};

/// Time of a packet at half the rate, two nanoseconds per byte, on a line with one nanosecond per byte.
fn time_of(departure: &OutgoingPacket) -> Nanos {
    Nanos::new(2 * (departure.header.length() as u64 + u64::from(departure.payload)))
}

#[test]
fn rate_lowered_packets_leave_at_rate_in_turns() {
    let (config, receiver) = configs(SchemeConfig::new(Scheme::Selective, ROUND_TRIP).unwrap(), 0);
    let mut sender = Sender::new(config, receiver.incarnation).unwrap();
    sender.control_flow(FlowConfig::new(8_000_000_000, ROUND_TRIP));
    let mut now = Nanos::new(1);
    let common = Common { source: node_id(1), destination: node_id(0), ..Common::default() };
    let slow = LinkPacket { common, word: Word::Slow { receiver: node_id(1) } };
    sender.handle_packet(now, &Header::Link(slow));
    assert_eq!(sender.flow().map(|flow| flow.rate(node_id(1))), Some(FULL / 2));
    for _ in 0..2 {
        sender.submit(now, write(1, 0, 0, 64 * 4)).unwrap();
    }
    let mut contexts = Vec::new();
    for packet in 0..8 {
        let departure = sender.poll_packet(now).unwrap();
        assert_eq!((sender.poll_packet(now), departure.payload), (None, 64), "packet {packet}");
        let Header::Message(Message::Data(header)) = departure.header else { panic!("{departure:?}") };
        contexts.push(header.message.context());
        let next = now.saturating_add(time_of(&departure));
        if packet < 7 {
            assert_eq!(sender.poll_timeout(), Some(next), "packet {packet}");
        }
        now = next;
        sender.handle_timeout(now);
    }
    assert_eq!(contexts, [0, 1, 0, 1, 0, 1, 0, 1], "messages take turns");
}
