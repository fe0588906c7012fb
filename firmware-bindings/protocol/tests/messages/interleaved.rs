//! A path with zero delay when it is idle, and with a queue under load. The measured delay is 0 at first, and 0 must not remain the limit
//! after which a packet counts as lost.

use std::collections::VecDeque;

use crate::messages::net::{KEY, write};
use fpga_firmware::generated::{Permissions, Scheme};
use fpga_firmware::{Incarnation, NodeId};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{MemoryFault, MemoryWindow, ReceiveMemory};
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::messages::{Receiver, ReceiverConfig, Sender, SenderConfig};
use fpga_protocol::scheme::traits::{Action, Header, SchemeReceiver, SchemeSender};
use fpga_protocol::scheme::{MessageReceiver, MessageSender, selective};
use fpga_registers::CardAddr;

/// Longer than the queuing delay of a full queue.
const ROUND_TRIP: Nanos = Nanos::from_micros(50);
/// Time of one packet.
const PACKET_TIME: Nanos = Nanos::new(50);
/// Capacity of the queue in packets.
const QUEUE: usize = 256;
const TRANSFERS: u64 = 20;
const LENGTH: u64 = 100_000;
const PACKETS: u64 = TRANSFERS * LENGTH.div_ceil(512);

struct NullMemory;

impl ReceiveMemory for NullMemory {
    fn write(&mut self, _at: CardAddr, _bytes: &[u8]) -> Result<(), MemoryFault> {
        Ok(())
    }
}

struct Path {
    sender: Sender,
    receiver: Receiver,
    waiting: VecDeque<(Header, usize)>,
    now: Nanos,
    sent: u64,
    done: u64,
}

impl Path {
    fn new(rules: SchemeConfig) -> Self {
        let mut config = ReceiverConfig::new(NodeId::new(2), Incarnation::new(2), rules);
        config.contexts = 8;
        let mut receiver = Receiver::new(config).unwrap();
        let window = MemoryWindow {
            source: NodeId::ANY,
            base: CardAddr::new(0),
            length: 1 << 30,
            key: KEY,
            permissions: Permissions::WRITE,
        };
        receiver.access_mut().install(0, window).unwrap();
        let mut config = SenderConfig::new(NodeId::new(1), rules);
        (config.contexts, config.message_packets) = (8, 64);
        let sender = Sender::new(config, Incarnation::new(1)).unwrap();
        Self { sender, receiver, waiting: VecDeque::new(), now: Nanos::ZERO, sent: 0, done: 0 }
    }

    /// Delivers one packet and its answer. Every `loss`-th packet is lost.
    fn step(&mut self, loss: u64) {
        while self.waiting.len() < QUEUE
            && let Some(departure) = self.sender.poll_packet(self.now)
        {
            self.sent += 1;
            if !self.sent.is_multiple_of(loss) {
                self.waiting.push_back((departure.header, departure.payload as usize));
            }
        }
        if let Some((header, length)) = self.waiting.pop_front() {
            self.receiver.handle_packet(self.now, &header, &[0; 512][..length], &mut NullMemory);
        }
        while let Some(said) = self.receiver.poll_action() {
            if let Action::Send(header) = said {
                self.sender.handle_packet(self.now, &header);
            }
        }
        while let Some(completion) = self.sender.poll_completion() {
            assert_eq!(completion.result, Ok(()));
            self.done += 1;
        }
        self.now = self.now.saturating_add(PACKET_TIME);
        if self.sender.poll_timeout().is_some_and(|due| due <= self.now) {
            self.sender.handle_timeout(self.now);
        }
        if self.receiver.poll_timeout().is_some_and(|due| due <= self.now) {
            self.receiver.handle_timeout(self.now);
        }
    }
}

#[test]
fn scheme_zero_delay_samples_cause_no_retransmission() {
    for scheme in [Scheme::ReceiverWindow, Scheme::AdaptiveWindow, Scheme::Selective] {
        let mut path = Path::new(SchemeConfig::new(scheme, ROUND_TRIP).unwrap());
        for (round, loss) in [(1, u64::MAX), (2, 301)] {
            for _ in 0..TRANSFERS {
                path.sender.submit(path.now, write(1, 0, 0, LENGTH)).unwrap();
            }
            let mut steps = 0;
            while path.done < round * TRANSFERS {
                path.step(loss);
                steps += 1;
                // A step is the time of one packet, so the limit allows for sending everything twice and for some hundred timeouts.
                assert!(
                    steps < 40 * PACKETS,
                    "{scheme}: {} of {} transfers, {} packets",
                    path.done,
                    round * TRANSFERS,
                    path.sent
                );
            }
            println!("{scheme}, round {round}: {steps} steps, {} packets", path.sent);
        }
    }
}

/// A caller serves timers until none is due: a timeout that leaves another one due at once would never end.
#[test]
fn scheme_handled_timeout_is_not_due_again_immediately() {
    for round_trip in [Nanos::ZERO, Nanos::new(1), ROUND_TRIP] {
        let mut sender = selective::Sender::new(selective::SelectiveConfig::new(round_trip), 64);
        let mut receiver = selective::Receiver::new(128, None);
        let mut now = Nanos::from_micros(1);
        while let Some(packet) = sender.poll_packet(now) {
            // The last ones are lost.
            if packet.index < 60 {
                receiver.handle_packet(now, &packet);
            }
            while let Some(answer) = receiver.poll_answer() {
                sender.handle_answer(now, &answer);
            }
        }
        for _ in 0..1000 {
            now = sender.poll_timeout().unwrap();
            sender.handle_timeout(now);
            assert!(sender.poll_timeout().unwrap() > now, "round trip {round_trip}: due at {now} again");
            while sender.poll_packet(now).is_some() {}
        }
    }
}
