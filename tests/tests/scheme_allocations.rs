//! Heap use of message-scheme nodes after they are built: none, also with lost packets.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use std::collections::VecDeque;

use fpga_driver::CardAddr;
use fpga_firmware::generated::{Permissions, Scheme};
use fpga_firmware::{Incarnation, NodeId};
use fpga_pci::testing::CountingAllocator;
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{MemoryFault, MemoryWindow, ReceiveMemory};
use fpga_protocol::scheme::any::{SchemeConfig, SchemeSet};
use fpga_protocol::scheme::messages::{Receiver, ReceiverConfig, Sender, SenderConfig};
use fpga_protocol::scheme::traits::{Action, Header, SchemeReceiver, SchemeSender};
use fpga_protocol::sender::{Command, Notify};

/// Longer than the transmission of all contexts' packets: shorter timers would retransmit everything.
const ROUND_TRIP: Nanos = Nanos::from_micros(50);
const LOCAL_NODE: NodeId = NodeId::new(1);
const REMOTE_NODE: NodeId = NodeId::new(2);

struct NullMemory;

impl ReceiveMemory for NullMemory {
    fn write(&mut self, _at: CardAddr, _bytes: &[u8]) -> Result<(), MemoryFault> {
        Ok(())
    }
}

static SCHEMES: [Scheme; 3] = [Scheme::ReceiverWindow, Scheme::AdaptiveWindow, Scheme::Selective];

struct Pair {
    /// Schemes that successive transfers use in turn.
    schemes: &'static [Scheme],
    sender: Sender,
    receiver: Receiver,
    there: VecDeque<(Header, usize)>,
    back: VecDeque<Header>,
    now: Nanos,
    sent: u64,
    done: u64,
}

impl Pair {
    fn new(schemes: &'static [Scheme]) -> Self {
        let mut all = schemes.iter().filter_map(|scheme| SchemeConfig::new(*scheme, ROUND_TRIP));
        let rules = all.next().unwrap();
        let others = all.fold(SchemeSet::NONE, SchemeSet::with);
        let mut config = ReceiverConfig::new(REMOTE_NODE, Incarnation::new(2), rules);
        (config.contexts, config.others) = (8, others);
        let mut receiver = Receiver::new(config).unwrap();
        let window = MemoryWindow {
            source: LOCAL_NODE,
            base: CardAddr::new(0),
            length: 1 << 30,
            key: 5,
            permissions: Permissions::WRITE,
        };
        receiver.access_mut().install(0, window).unwrap();
        let mut config = SenderConfig::new(LOCAL_NODE, rules);
        (config.contexts, config.message_packets, config.others) = (8, 64, others);
        let sender = Sender::new(config, Incarnation::new(1)).unwrap();
        let (there, back) = (VecDeque::with_capacity(4096), VecDeque::with_capacity(4096));
        Self { schemes, sender, receiver, there, back, now: Nanos::ZERO, sent: 0, done: 0 }
    }

    /// Sends `count` transfers of 100 kB; one packet in `loss` is lost.
    fn run(&mut self, count: u64, loss: u64) {
        let payload = [0; 512];
        for (_, scheme) in (0..count).zip(self.schemes.iter().cycle()) {
            let command = Command {
                source: CardAddr::new(0),
                node: REMOTE_NODE,
                destination: CardAddr::new(0),
                length: 100_000,
                key: 5,
                notify: Notify::Receiver,
                deadline: None,
                priority: 0,
            };
            self.sender.submit_by(self.now, command, *scheme).unwrap();
        }
        let end = self.done + count;
        while self.done < end {
            while self.there.len() < 256
                && let Some(departure) = self.sender.poll_packet(self.now)
            {
                self.sent += 1;
                if !self.sent.is_multiple_of(loss) {
                    self.there.push_back((departure.header, departure.payload as usize));
                }
            }
            if let Some((header, length)) = self.there.pop_front() {
                self.receiver.handle_packet(self.now, &header, &payload[..length], &mut NullMemory);
            }
            while let Some(action) = self.receiver.poll_action() {
                if let Action::Send(header) = action {
                    self.back.push_back(header);
                }
            }
            while let Some(header) = self.back.pop_front() {
                self.sender.handle_packet(self.now, &header);
            }
            while let Some(completion) = self.sender.poll_completion() {
                assert_eq!(completion.result, Ok(()));
                self.done += 1;
            }
            self.now = self.now.saturating_add(Nanos::new(50));
            if self.sender.poll_timeout().is_some_and(|due| due <= self.now) {
                self.sender.handle_timeout(self.now);
            }
            if self.receiver.poll_timeout().is_some_and(|due| due <= self.now) {
                self.receiver.handle_timeout(self.now);
            }
        }
    }
}

#[test]
fn message_schemes_allocate_nothing() {
    // Each scheme alone, and all of them in turn.
    for schemes in SCHEMES.chunks(1).chain([SCHEMES.as_slice()]) {
        let mut pair = Pair::new(schemes);
        // Counted from the first packet on: all memory is allocated when the nodes are built.
        let (allocations, ()) = CountingAllocator::count(|| {
            pair.run(20, u64::MAX);
            pair.run(20, 301);
        });
        assert!(pair.sent > 40 * 196, "{schemes:?}");
        assert_eq!(allocations, 0, "{schemes:?}: {allocations} allocations in {} packets", pair.sent);
    }
}
