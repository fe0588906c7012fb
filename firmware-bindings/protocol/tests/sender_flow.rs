//! Link feedback in the registry scheme's sender: rates, order of receivers, retransmissions and inquiries.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

use std::collections::BTreeSet;

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::wire::{Common, Flags};
use fpga_protocol::Nanos;
use fpga_protocol::feedback::flow::{FULL, FlowConfig};
use fpga_protocol::feedback::{LinkLoad, LinkPacket, Word};
use fpga_protocol::sender::{
    Answer, Command, Notify, Sender, SenderConfig, TimeoutPolicy, Transmit, TransmitKind,
};
use fpga_registers::CardAddr;

const INCARNATION: Incarnation = Incarnation::new(1);
const OWN: NodeId = NodeId::new(9);
const ROUND_TRIP: Nanos = Nanos::from_micros(10);
/// Line rate in bit/s: a byte takes one nanosecond.
const LINE: u64 = 8_000_000_000;
/// Time of a packet of 512 bytes with its header at half the rate.
const PACKET: Nanos = Nanos::new(2 * (512 + 60));

fn at(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

fn controlled(controller: Option<u32>) -> Sender {
    sender(controller, 1)
}

fn sender(controller: Option<u32>, paths: u16) -> Sender {
    let mut config = SenderConfig::default();
    config.paths = paths;
    config.retry.timeout = TimeoutPolicy::Fixed { timeout: at(100), max_tries: 0 };
    let mut sender = Sender::new(config, INCARNATION).unwrap();
    let mut flow = FlowConfig::new(LINE, ROUND_TRIP);
    flow.controller = controller.map(NodeId::new);
    sender.control_flow(OWN, flow);
    sender
}

fn submit(sender: &mut Sender, node: u32, length: u64) {
    let command = Command {
        source: CardAddr::new(0x1000),
        node: NodeId::new(node),
        destination: CardAddr::new(0x8000),
        length,
        key: 5,
        notify: Notify::Receiver,
        deadline: None,
        priority: 0,
    };
    sender.submit(at(0), command).unwrap();
}

fn acknowledge(sender: &mut Sender, now: Nanos, transmit: &Transmit) {
    for op in transmit.ops.as_slice() {
        let answer = Answer {
            node: transmit.node,
            incarnation: INCARNATION,
            op: *op,
            transfer: transmit.transfer,
            segment: transmit.segment,
            tries: transmit.tries,
            peer_incarnation: Incarnation::new(0),
            notes: fpga_firmware::wire::AnswerNotes::default(),
        };
        sender.handle_ack(now, answer);
    }
}

fn tell(sender: &mut Sender, now: Nanos, word: Word) {
    tell_about(sender, now, Common::default(), word);
}

fn tell_about(sender: &mut Sender, now: Nanos, common: Common, word: Word) {
    let event = Event::of_link(&LinkPacket { common, word }).unwrap();
    assert!(sender.handle_event(now, &event));
}

fn slow(sender: &mut Sender, now: Nanos, node: u32) {
    tell(sender, now, Word::Slow { receiver: NodeId::new(node) });
}

#[test]
fn sender_flow_controlled_receiver_gets_one_packet_at_its_rate_after_others() {
    let mut sender = controlled(None);
    slow(&mut sender, at(1), 1);
    assert_eq!(sender.flow().unwrap().rate(NodeId::new(1)), FULL / 2);
    submit(&mut sender, 1, 16 << 10);
    submit(&mut sender, 2, 16 << 10);
    let first = sender.poll_transmit(at(1)).unwrap();
    assert_eq!((first.node.get(), first.ops.len()), (2, 32), "the receiver without a lowered rate");
    let second = sender.poll_transmit(at(1)).unwrap();
    assert_eq!((second.node.get(), second.ops.len()), (1, 1));
    assert_eq!(sender.poll_transmit(at(1)), None);
    // The first packet of a segment has a longer header.
    let mut next = at(1).saturating_add(PACKET).saturating_add(Nanos::new(2 * 32));
    for packet in 1..8 {
        assert_eq!(sender.poll_timeout(), Some(next), "packet {packet}");
        assert_eq!(sender.poll_transmit(next.saturating_sub(Nanos::new(1))), None, "packet {packet}");
        sender.handle_timeout(next);
        let transmit = sender.poll_transmit(next).unwrap();
        assert_eq!((transmit.first_packet, transmit.ops.len()), (packet, 1));
        next = next.saturating_add(PACKET);
    }
}

/// A report about one of the paths takes it out of use and lowers no rate; one about the link of the receiver lowers the rate.
#[test]
fn sender_flow_reported_path_is_avoided_without_lowered_rate() {
    let mut sender = sender(None, 8);
    submit(&mut sender, 1, 4 << 10);
    let first = sender.poll_transmit(at(1)).unwrap();
    let used = |transmit: &Transmit| -> BTreeSet<u8> {
        (0..transmit.ops.len()).map(|number| transmit.ops.path(number)).collect()
    };
    assert_eq!(used(&first).len(), 8);
    let word = Word::Slow { receiver: NodeId::new(1) };
    for path in [2, 2, 5] {
        tell_about(&mut sender, at(3), Common { path, ..Common::default() }, word);
    }
    assert_eq!(sender.flow().unwrap().avoided(), 3);
    submit(&mut sender, 1, 16 << 10);
    let second = sender.poll_transmit(at(4)).unwrap();
    assert_eq!(sender.flow().unwrap().rate(NodeId::new(1)), FULL);
    assert_eq!(used(&second), BTreeSet::from([0, 1, 3, 4, 6, 7]));
    let common = Common { path: 1, flags: Flags::LAST_HOP, ..Common::default() };
    tell_about(&mut sender, at(5), common, word);
    assert_eq!(sender.flow().unwrap().rate(NodeId::new(1)), FULL / 2);
}

#[test]
fn sender_flow_retransmissions_keep_rate() {
    let mut sender = controlled(None);
    submit(&mut sender, 1, 2048);
    submit(&mut sender, 2, 512);
    let whole = sender.poll_transmit(at(0)).unwrap();
    let other = sender.poll_transmit(at(0)).unwrap();
    assert_eq!((whole.ops.len(), other.node.get()), (4, 2));
    slow(&mut sender, at(100), 1);
    // All packets time out; those of the other receiver leave first or second, and of the controlled one a single packet.
    sender.handle_timeout(at(100));
    let again: Vec<_> = std::iter::from_fn(|| sender.poll_transmit(at(100))).collect();
    let nodes: Vec<u32> = again.iter().map(|transmit| transmit.node.get()).collect();
    assert_eq!(nodes.iter().filter(|node| **node == 1).count(), 1, "{nodes:?}");
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    // Nothing is lost: everything arrives, later.
    for transmit in &again {
        acknowledge(&mut sender, at(101), transmit);
    }
    for _ in 0..100 {
        let Some(now) = sender.poll_timeout() else { break };
        sender.handle_timeout(now);
        while let Some(transmit) = sender.poll_transmit(now) {
            acknowledge(&mut sender, now, &transmit);
        }
    }
    let ended: Vec<_> = std::iter::from_fn(|| sender.poll_completion()).collect();
    assert!(ended.len() == 2 && ended.iter().all(|done| done.result.is_ok()), "{ended:?}");
}

#[test]
fn sender_flow_more_than_three_late_packets_cause_inquiry() {
    for (packets, asks) in [(3, false), (4, true)] {
        let mut sender = controlled(Some(7));
        // Transfers of one packet: those behind the first packet of a segment are deferred with it.
        for _ in 0..packets {
            submit(&mut sender, 1, 512);
        }
        while sender.poll_transmit(at(0)).is_some() {}
        sender.handle_timeout(at(100));
        let first = sender.poll_transmit(at(100)).unwrap();
        let inquiry = TransmitKind::Link(Word::Inquiry { number: 1 });
        assert_eq!((first.kind == inquiry, first.node.get()), (asks, 1), "{packets} late packets");
        if !asks {
            continue;
        }
        assert!(first.ops.is_empty() && first.payload_length == 0);
        // Up to two congested links are reported to the controller, a third one lowers the rate.
        for link in 1..=3 {
            let state = LinkLoad { link, rate: 1000, queue: 900 };
            tell(&mut sender, at(101), Word::Passive { number: 1, receiver: NodeId::new(1), state });
            let report = sender.poll_transmit(at(101)).filter(|found| found.node.get() == 7);
            let expected = Word::Active { sender: OWN, receiver: NodeId::new(1), state };
            assert_eq!(
                report.map(|report| report.kind),
                (link < 3).then_some(TransmitKind::Link(expected)),
                "link {link}"
            );
        }
        let flow = sender.flow().unwrap();
        assert_eq!((flow.rate(NodeId::new(1)), flow.changes()), (FULL / 2, (1, 0, 1)));
    }
}

#[test]
fn sender_flow_short_delays_raise_rate() {
    let mut sender = controlled(None);
    submit(&mut sender, 1, 512);
    let first = sender.poll_transmit(at(0)).unwrap();
    acknowledge(&mut sender, at(10), &first);
    slow(&mut sender, at(10), 1);
    submit(&mut sender, 1, 1 << 20);
    let mut now = at(10);
    while sender.flow().unwrap().rate(NodeId::new(1)) < FULL {
        assert!(now < at(1000), "the rate stays lowered");
        while let Some(transmit) = sender.poll_transmit(now) {
            acknowledge(&mut sender, now.saturating_add(ROUND_TRIP), &transmit);
        }
        now = sender.poll_timeout().unwrap().max(now.saturating_add(Nanos::new(1)));
        sender.handle_timeout(now);
    }
    assert_eq!(sender.flow().unwrap().receivers().filter(|view| view.is_controlled()).count(), 0);
    let whole = sender.poll_transmit(now).unwrap();
    assert!(whole.ops.len() > 1, "{whole:?}");
}

/// Without flow control, events about links are taken and have no effect.
#[test]
fn sender_without_flow_ignores_link_events() {
    let mut config = SenderConfig::default();
    config.congestion = None;
    let mut sender = Sender::new(config, INCARNATION).unwrap();
    slow(&mut sender, at(1), 1);
    assert!(sender.flow().is_none() && !sender.handle_event(at(1), &Event::new(EventKind::WindowFree)));
    submit(&mut sender, 1, 16 << 10);
    assert_eq!(sender.poll_transmit(at(1)).unwrap().ops.len(), 32);
}
