//! A sender whose receiver's host is not ready for notifications: retries, order of transfers, give-up time.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

use fpga_firmware::event::NackReason;
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_protocol::Nanos;
use fpga_protocol::sender::{
    Answer, Command, Notify, SendFailure, SendTicket, Sender, SenderConfig, Transmit,
};
use fpga_registers::CardAddr;

const INCARNATION: Incarnation = Incarnation::new(1);
const NODE: NodeId = NodeId::new(1);

fn at(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

fn sender() -> Sender {
    Sender::new(SenderConfig::default(), INCARNATION).unwrap()
}

/// Submits a transfer of one packet.
fn submit(sender: &mut Sender, now: Nanos, notify: Notify) -> SendTicket {
    let command = Command {
        source: CardAddr::new(0x1000),
        node: NODE,
        destination: CardAddr::new(0x8000),
        length: 100,
        key: 5,
        notify,
        deadline: None,
        priority: 0,
    };
    sender.submit(now, command).unwrap()
}

fn answer(transmit: &Transmit) -> Answer {
    Answer {
        node: NODE,
        incarnation: INCARNATION,
        op: transmit.ops.as_slice()[0],
        transfer: transmit.transfer,
        segment: transmit.segment,
        tries: transmit.tries,
        peer_incarnation: Incarnation::new(0),
        notes: fpga_firmware::wire::AnswerNotes::default(),
    }
}

fn refuse(sender: &mut Sender, now: Nanos, transmit: &Transmit) {
    sender.handle_nack(now, answer(transmit), NackReason::NotReady);
}

/// Everything that can be sent now.
fn sent(sender: &mut Sender, now: Nanos) -> Vec<Transmit> {
    std::iter::from_fn(|| sender.poll_transmit(now)).collect()
}

fn tickets(transmits: &[Transmit]) -> Vec<SendTicket> {
    transmits.iter().map(|transmit| transmit.ticket).collect()
}

#[test]
fn refused_packet_sent_again_until_acknowledged() {
    let mut sender = sender();
    submit(&mut sender, at(0), Notify::Receiver);
    let first = sender.poll_transmit(at(0)).unwrap();
    refuse(&mut sender, at(10), &first);
    assert_eq!((sender.poll_transmit(at(10)), sender.poll_completion()), (None, None));
    // The first wait after a refusal is 20 us.
    sender.handle_timeout(at(29));
    assert_eq!(sender.poll_transmit(at(29)), None);
    sender.handle_timeout(at(30));
    let again = sender.poll_transmit(at(30)).unwrap();
    assert_eq!((again.ops, again.tries), (first.ops, 2));
    sender.handle_ack(at(40), answer(&again));
    assert_eq!(sender.poll_completion().unwrap().result, Ok(()));
    let counters = sender.counters();
    assert_eq!((counters.not_ready, counters.busy, counters.refused, counters.timeouts), (1, 0, 0, 0));
}

#[test]
fn refused_for_time_to_give_up_transfer_fails() {
    let mut sender = sender();
    submit(&mut sender, at(0), Notify::Receiver);
    let (mut now, mut refusals) = (at(10), 0);
    let completion = loop {
        for transmit in sent(&mut sender, now) {
            refuse(&mut sender, now, &transmit);
            refusals += 1;
        }
        if let Some(completion) = sender.poll_completion() {
            break completion;
        }
        now = sender.poll_timeout().unwrap();
        sender.handle_timeout(now);
    };
    let error = completion.result.unwrap_err();
    assert!(matches!(error, SendFailure::ReceiverNotReady { node: NODE, acknowledged: 0, .. }), "{error}");
    let give_up = at(1_000_000);
    assert!((give_up..at(1_002_000)).contains(&now), "given up at {now}");
    assert_eq!((sender.counters().not_ready, sender.counters().failed), (refusals, 1));
}

#[test]
fn submitted_transfers_without_notice_go_first_until_host_ready() {
    let mut sender = sender();
    submit(&mut sender, at(0), Notify::Receiver);
    let waiting = sender.poll_transmit(at(0)).unwrap();
    refuse(&mut sender, at(1), &waiting);
    let second = submit(&mut sender, at(1), Notify::Receiver);
    let third = submit(&mut sender, at(1), Notify::None);
    let passed = sent(&mut sender, at(1));
    assert_eq!(tickets(&passed), [third, second]);
    // The host is ready: in submission order again.
    for transmit in std::iter::once(&waiting).chain(&passed) {
        sender.handle_ack(at(2), answer(transmit));
    }
    let fourth = submit(&mut sender, at(3), Notify::Receiver);
    let fifth = submit(&mut sender, at(3), Notify::None);
    assert_eq!(tickets(&sent(&mut sender, at(3))), [fourth, fifth]);
}

#[test]
fn queued_transfers_without_notice_move_first_at_first_refusal() {
    let mut sender = sender();
    submit(&mut sender, at(0), Notify::Receiver);
    let waiting = sender.poll_transmit(at(0)).unwrap();
    let queued =
        [Notify::Receiver, Notify::None, Notify::Sender, Notify::None].map(|n| submit(&mut sender, at(0), n));
    refuse(&mut sender, at(1), &waiting);
    assert_eq!(tickets(&sent(&mut sender, at(1))), [queued[1], queued[3], queued[0], queued[2]]);
}
