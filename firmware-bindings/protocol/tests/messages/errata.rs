//! Errata of the sources 000 and 004 that only whole nodes can show: answers that are lost, one after the other.

use std::cell::Cell;

use crate::messages::net::{KEY, Memory, write};
use crate::messages::{ROUND_TRIP, configs};
use fpga_firmware::generated::{Permissions, Scheme};
use fpga_firmware::wire::{AnswerBody, Message};
use fpga_firmware::{Incarnation, NodeId};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::MemoryWindow;
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::messages::{Receiver, Sender};
use fpga_protocol::scheme::traits::{Action, Header, OutgoingPacket, SchemeReceiver, SchemeSender};
use fpga_registers::CardAddr;

/// A sender, a receiver, and a network that loses the packets that the test selects.
struct Pair {
    sender: Sender,
    receiver: Receiver,
    memory: Memory,
    now: Nanos,
    departures: Vec<OutgoingPacket>,
}

impl Pair {
    fn new(rules: SchemeConfig) -> Self {
        let (sender, _) = configs(rules, 0);
        let (_, receiver) = configs(rules, 1);
        let mut receiver = Receiver::new(receiver).unwrap();
        let window = MemoryWindow {
            source: NodeId::ANY,
            base: CardAddr::new(0),
            length: 1 << 16,
            key: KEY,
            permissions: Permissions::WRITE,
        };
        receiver.access_mut().install(0, window).unwrap();
        let sender = Sender::new(sender, Incarnation::new(0x1000)).unwrap();
        let memory = Memory(vec![0; 1 << 16]);
        Self { sender, receiver, memory, now: Nanos::ZERO, departures: Vec::new() }
    }

    /// Runs until the sender's transfer has ended. `departs` and `says` return how many copies of a packet and of an answer arrive.
    fn run(
        &mut self,
        mut departs: impl FnMut(&Header) -> usize,
        mut says: impl FnMut(&Header) -> usize,
    ) -> bool {
        for _ in 0..10_000 {
            while let Some(departure) = self.sender.poll_packet(self.now) {
                self.departures.push(departure);
                for _ in 0..departs(&departure.header) {
                    let payload = vec![7; departure.payload as usize];
                    self.receiver.handle_packet(self.now, &departure.header, &payload, &mut self.memory);
                }
            }
            while let Some(said) = self.receiver.poll_action() {
                if let Action::Send(header) = said {
                    for _ in 0..says(&header) {
                        self.sender.handle_packet(self.now, &header);
                    }
                }
            }
            if let Some(completion) = self.sender.poll_completion() {
                return completion.result.is_ok();
            }
            let due = [self.sender.poll_timeout(), self.receiver.poll_timeout()].into_iter().flatten().min();
            self.now = due.map_or(self.now, |due| self.now.max(due)).saturating_add(Nanos::new(1));
            self.sender.handle_timeout(self.now);
            self.receiver.handle_timeout(self.now);
        }
        false
    }
}

fn rules() -> SchemeConfig {
    SchemeConfig::new(Scheme::ReceiverWindow, ROUND_TRIP).unwrap()
}

fn is_done(header: &Header) -> bool {
    matches!(header, Header::Message(Message::Answer(answer)) if answer.body == AnswerBody::Done)
}

/// "Done" is lost three times: it is repeated from a tombstone at every request, and nothing is written twice.
#[test]
fn e0_15_done_lost_is_repeated_on_request() {
    let mut pair = Pair::new(rules());
    pair.sender.submit(pair.now, write(1, 0, 0, 640)).unwrap();
    let mut lost = 0;
    let ended = pair.run(
        |_| 1,
        |header| {
            lost += usize::from(is_done(header));
            usize::from(!is_done(header) || lost > 3)
        },
    );
    assert!(ended && lost == 4, "{lost} lost");
    let counters = pair.receiver.counters();
    assert_eq!((counters.complete, counters.written, pair.receiver.live()), (1, 10, 0), "{counters:?}");
}

/// Every request arrives twice, and the answers to the first copy are lost: there is one message, in one context.
#[test]
fn e0_16_repeated_request_gives_one_context() {
    let mut pair = Pair::new(rules());
    pair.sender.submit(pair.now, write(1, 0, 0, 640)).unwrap();
    let requests = Cell::new(0);
    let ended = pair.run(
        |header| {
            let asks = matches!(header, Header::Message(Message::Request(_)));
            requests.set(requests.get() + usize::from(asks));
            1 + usize::from(asks)
        },
        |_| usize::from(requests.get() >= 3),
    );
    assert!(ended && requests.get() == 3, "{} requests", requests.get());
    let counters = pair.receiver.counters();
    assert_eq!((counters.begun, counters.complete, pair.receiver.live()), (1, 1, 0), "{counters:?}");
}

/// A retransmission reads the source again: an outgoing packet refers to the same source address each time, and no copy is kept. So the
/// source must not change before the completion.
#[test]
fn e0_20_retransmission_reads_source_again() {
    let mut pair = Pair::new(rules());
    pair.sender.submit(pair.now, write(1, 0x400, 0, 640)).unwrap();
    let mut sent = 0;
    assert!(pair.run(
        |header| {
            sent += usize::from(header.is_data());
            // The third one is lost.
            usize::from(!(header.is_data() && sent == 3))
        },
        |_| 1
    ));
    let data: Vec<(u64, u32)> = pair
        .departures
        .iter()
        .filter(|departure| departure.header.is_data())
        .map(|departure| (departure.source.get(), departure.payload))
        .collect();
    assert_eq!(data.iter().filter(|place| **place == (0x400 + 2 * 64, 64)).count(), 2, "{data:x?}");
    assert!(data.iter().all(|(source, _)| (0x400..0x400 + 640).contains(source)));
}
