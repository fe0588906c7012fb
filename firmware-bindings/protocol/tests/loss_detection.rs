//! Loss detection by the order of sending, and probes (docs/protocol.md 4.6).

#![expect(clippy::unwrap_used, reason = "a test that cannot continue may as well stop")]

use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::wire::{Ack, Common, Control, DataHeader};
use fpga_protocol::Nanos;
use fpga_protocol::scheme::traits::{Header, OutgoingPacket, RegistrySender, SchemeSender};
use fpga_protocol::sender::{Answer, Command, Notify, Sender, SenderConfig, Transmit};
use fpga_registers::CardAddr;

const INCARNATION: Incarnation = Incarnation::new(7);
const NODE: NodeId = NodeId::new(1);

fn at(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

fn sender() -> Sender {
    let mut config = SenderConfig::default();
    config.congestion = None;
    Sender::new(config, INCARNATION).unwrap()
}

fn submit(sender: &mut Sender, now: Nanos, packets: u64) -> Transmit {
    sender.submit(now, command(packets)).unwrap();
    sender.poll_transmit(now).unwrap()
}

fn command(packets: u64) -> Command {
    Command {
        source: CardAddr::new(0x1000),
        node: NODE,
        destination: CardAddr::new(0x8000),
        length: packets * 512,
        key: 5,
        notify: Notify::Receiver,
        deadline: None,
        priority: 0,
    }
}

fn ack(sender: &mut Sender, now: Nanos, transmit: &Transmit, packet: usize, tries: u8) {
    let answer = Answer {
        node: NODE,
        incarnation: INCARNATION,
        op: transmit.ops.as_slice()[packet],
        transfer: transmit.transfer,
        segment: transmit.segment,
        tries,
        peer_incarnation: Incarnation::new(0),
        notes: fpga_firmware::wire::AnswerNotes::default(),
    };
    sender.handle_ack(now, answer);
}

/// Packets that leave until the given time.
fn retransmitted(sender: &mut Sender, until: Nanos) -> Vec<(u64, u16, u8)> {
    let mut all = Vec::new();
    while let Some(now) = sender.poll_timeout().filter(|now| *now <= until) {
        sender.handle_timeout(now);
        while let Some(transmit) = sender.poll_transmit(now) {
            all.push((now.get() / 1000, transmit.first_packet, transmit.tries));
        }
    }
    all
}

#[test]
fn overtaken_packet_is_retransmitted_after_reorder_window() {
    let mut sender = sender();
    let transmit = submit(&mut sender, at(0), 32);
    for packet in (0..32).filter(|packet| *packet != 5) {
        ack(&mut sender, at(10), &transmit, packet, 1);
    }
    // The path is in order, so the window is an eighth of the round trip of 10 us; the timer is at eight round trips.
    assert_eq!(retransmitted(&mut sender, at(20)), [(11, 5, 2)]);
    assert_eq!((sender.counters().overtaken, sender.counters().timeouts), (1, 0));
    ack(&mut sender, at(21), &transmit, 5, 2);
    assert!(sender.poll_completion().unwrap().result.is_ok());
}

#[test]
fn late_packets_widen_reorder_window() {
    let mut sender = sender();
    for round in 0..8 {
        let now = at(1000 * round);
        let transmit = submit(&mut sender, now, 32);
        // Packet 0 and then the last ones first: the others are late by up to 30 us.
        ack(&mut sender, now.saturating_add(at(10)), &transmit, 0, 1);
        for packet in (1..32).rev() {
            let late = at(10 + 31 - packet as u64);
            sender.handle_timeout(now.saturating_add(late));
            ack(&mut sender, now.saturating_add(late), &transmit, packet, 1);
        }
        while sender.poll_completion().is_some() {}
    }
    let sent = sender.counters().overtaken;
    let transmit = submit(&mut sender, at(9000), 32);
    ack(&mut sender, at(9010), &transmit, 0, 1);
    ack(&mut sender, at(9010), &transmit, 31, 1);
    let times = retransmitted(&mut sender, at(9100));
    assert!(times.first().is_some_and(|(when, ..)| *when >= 9030), "{times:?}, {sent} before");
}

#[test]
fn silence_is_probed_with_last_packet_and_doubled_waits() {
    let mut sender = sender();
    let transmit = submit(&mut sender, at(0), 1);
    ack(&mut sender, at(10), &transmit, 0, 1);
    assert!(sender.poll_completion().is_some());
    let transmit = submit(&mut sender, at(100), 8);
    for packet in [0, 1, 2] {
        ack(&mut sender, at(110), &transmit, packet, 1);
    }
    // No packet has overtaken the others. From the second probe on the first one missing is a probe, too.
    assert_eq!(retransmitted(&mut sender, at(175)), [(131, 7, 2), (173, 3, 2), (173, 7, 3)]);
    assert!(sender.counters().probes > 0 && sender.counters().timeouts == 0);
}

#[test]
fn lost_start_is_probed_instead_of_packets_that_wait_for_it() {
    let mut sender = sender();
    let transmit = submit(&mut sender, at(0), 1);
    ack(&mut sender, at(10), &transmit, 0, 1);
    assert!(sender.poll_completion().is_some());
    submit(&mut sender, at(100), 8);
    let packets = retransmitted(&mut sender, at(150));
    assert!(matches!(packets[..], [(120..140, 0, 2), ..]), "{packets:?}");
    assert!(packets.iter().all(|(_, packet, _)| *packet == 0), "{packets:?}");
}

#[test]
fn lost_acknowledgement_waits_for_answer_to_segment_while_transfers_are_queued() {
    // Segments of 32 packets: three of them stay in the queue.
    let mut sender = RegistrySender::new(NODE, sender());
    sender.submit(at(0), command(128)).unwrap();
    let first: Vec<_> = (0..32).map(|number| sender.poll_packet(Nanos::new(100 * number)).unwrap()).collect();
    for (number, packet) in (0..).zip(&first).take(20).filter(|(number, _)| *number != 5) {
        acknowledge(&mut sender, Nanos::new(5_000 + 100 * number), packet);
    }
    assert_eq!(sender.inner().counters().overtaken, 0);
    // The last packet left at 3.1 us, and the round trip is 5 us. The window is seven times the mean lateness.
    let mut lost = None;
    while let Some(now) = sender.poll_timeout().filter(|now| lost.is_none() && *now < at(20)) {
        sender.handle_timeout(now);
        lost = (sender.inner().counters().overtaken != 0).then_some(now);
    }
    let lost = lost.unwrap();
    assert!((Nanos::new(8_100)..at(10)).contains(&lost), "{lost:?}");
}

#[test]
fn retransmission_leaves_before_rest_of_window() {
    let mut sender = RegistrySender::new(NODE, sender());
    sender.submit(at(0), command(8)).unwrap();
    sender.submit(at(0), command(32)).unwrap();
    let first: Vec<_> = (0..8).map(|_| sender.poll_packet(at(0)).unwrap()).collect();
    for packet in first.iter().skip(1) {
        acknowledge(&mut sender, at(10), packet);
    }
    assert_eq!(index_of(&sender.poll_packet(at(11)).unwrap()), (0, 1));
    sender.handle_timeout(at(12));
    assert_eq!(index_of(&sender.poll_packet(at(12)).unwrap()), (0, 2), "the lost start");
    assert_eq!(index_of(&sender.poll_packet(at(12)).unwrap()), (1, 1));
}

fn header_of(packet: &OutgoingPacket) -> DataHeader {
    let data = if let Header::Data(header) = packet.header { Some(header) } else { None };
    data.unwrap()
}

/// Number within the segment, and try, of a data packet.
fn index_of(packet: &OutgoingPacket) -> (u64, u8) {
    let header = header_of(packet);
    ((header.address.get() - 0x8000) / 512, header.tries)
}

fn acknowledge(sender: &mut RegistrySender, now: Nanos, packet: &OutgoingPacket) {
    let header = header_of(packet);
    let ack = Ack {
        common: Common { source: NODE, destination: NODE, ..Common::default() },
        op: header.op,
        transfer: header.transfer,
        segment: header.segment,
        peer_incarnation: INCARNATION,
        tries: header.tries,
        senders: 0,
        delay: 0,
    };
    sender.handle_packet(now, &Header::Control(Control::Ack(ack)));
}
