//! The registry scheme's sender through the common trait, packet by packet.

use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::wire::{Ack, Arrived, Common, Control, Flags};
use fpga_protocol::Nanos;
use fpga_protocol::scheme::traits::{Header, OutgoingPacket, RegistrySender, SchemeSender};
use fpga_protocol::sender::{Command, Notify, Sender, SenderConfig};
use fpga_registers::CardAddr;

const NOW: Nanos = Nanos::ZERO;
const SENDER: NodeId = NodeId::new(1);
const RECEIVER: NodeId = NodeId::new(2);
const INCARNATION: Incarnation = Incarnation::new(5);

#[test]
fn registry_sender_sends_its_notice_once_after_data() {
    let mut sender = RegistrySender::new(SENDER, Sender::new(SenderConfig::default(), INCARNATION).unwrap());
    let command = Command {
        source: CardAddr::new(0x100),
        node: RECEIVER,
        destination: CardAddr::new(0x700),
        length: 600,
        key: 9,
        notify: Notify::Sender,
        deadline: None,
        priority: 0,
    };
    sender.submit(NOW, command).unwrap();
    let data: Vec<OutgoingPacket> = std::iter::from_fn(|| sender.poll_packet(NOW)).collect();
    let places: Vec<_> = data.iter().map(|packet| (packet.source.get(), packet.payload)).collect();
    assert_eq!(places, [(0x100, 512), (0x300, 88)]);
    for packet in &data {
        let Header::Data(header) = packet.header else { panic!("{packet:?}") };
        let ack = Ack {
            common: Common { source: RECEIVER, destination: SENDER, ..Common::default() },
            op: header.op,
            transfer: header.transfer,
            segment: header.segment,
            peer_incarnation: INCARNATION,
            tries: header.tries,
            senders: 0,
            delay: 0,
        };
        sender.handle_packet(NOW, &Header::Control(Control::Ack(ack)));
    }
    let common = Common {
        source: SENDER,
        destination: RECEIVER,
        incarnation: INCARNATION,
        flags: Flags::NONE,
        path: 0,
    };
    let Header::Data(first) = data[0].header else { panic!("{data:?}") };
    let arrived = Arrived {
        common,
        transfer: first.transfer,
        address: command.destination,
        length: command.length,
        key: command.key,
    };
    let notice = sender.poll_packet(NOW).unwrap();
    assert_eq!((notice.header, notice.payload), (Header::Control(Control::Arrived(arrived)), 0));
    assert_eq!(sender.poll_packet(NOW), None);
    assert_eq!(sender.poll_completion().unwrap().result, Ok(()));
}
