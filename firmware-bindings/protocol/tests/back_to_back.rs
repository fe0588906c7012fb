//! Sender and receiver connected by a network that reorders packets and, in some tests, loses and duplicates them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test helper that cannot continue may as well stop the test"
)]

use crate::common;

use common::{INCARNATION, KEY, RECEIVER, SENDER, pattern};
use fpga_firmware::event::EventKind;
use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::{Incarnation, OpNumber};
use fpga_firmware::wire::{Arrived, Common, Control, DataHeader, Flags, Packet, StartFields, trim};
use fpga_netmodel::{DeliveryPath, Order};
use fpga_protocol::Nanos;
use fpga_protocol::mirror::Mirror;
use fpga_protocol::receiver::{MemoryFault, MemoryWindow, Output, ReceiveMemory, Receiver, ReceiverConfig};
use fpga_protocol::sender::{
    Answer, Command, CommandCompletion, Notify, Sender, SenderConfig, TimeoutPolicy, Transmit, TransmitKind,
};
use fpga_registers::CardAddr;

const WINDOW: u64 = 0x100_0000;

struct Bytes {
    bytes: Vec<u8>,
    /// Ranges of transfers whose notice has been posted: they must not be written again.
    closed: Vec<std::ops::Range<u64>>,
}

impl ReceiveMemory for Bytes {
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        let start = at.get() - WINDOW;
        assert!(
            self.closed.iter().all(|r| start >= r.end || start + bytes.len() as u64 <= r.start),
            "late write"
        );
        let start = usize::try_from(start).unwrap();
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

#[derive(Clone, Copy, Default)]
struct Faults {
    /// Probability of loss, in units of 1/256.
    lost: u32,
    doubled: u32,
    /// Packets of which a switch cuts off the payload.
    trimmed: u32,
}

struct Testbed {
    sender: Sender,
    receiver: Receiver,
    memory: Bytes,
    there: DeliveryPath<Vec<u8>>,
    back: DeliveryPath<Control>,
    mirror: Mirror,
    now: Nanos,
    completions: Vec<CommandCompletion>,
    notices: u32,
    silent: u64,
    faults: Faults,
    dice: u64,
}

impl Testbed {
    fn new(sender: SenderConfig, receiver: ReceiverConfig, depth: usize, seed: u64, faults: Faults) -> Self {
        let order = || Order::Random { depth, patience: Nanos::from_micros(5) };
        let mut receiver = Receiver::new(receiver).unwrap();
        receiver
            .access_mut()
            .install(
                0,
                MemoryWindow {
                    source: SENDER,
                    base: CardAddr::new(WINDOW),
                    length: 1 << 22,
                    key: KEY,
                    permissions: Permissions::WRITE,
                },
            )
            .unwrap();
        let entries = u16::try_from(receiver.config().registry_entries).unwrap();
        let mut mirror = Mirror::new(entries, receiver.config().escape_slots);
        mirror.track_masks(receiver.config().packet_events);
        Self {
            sender: Sender::new(sender, INCARNATION).unwrap(),
            receiver,
            memory: Bytes { bytes: vec![0; 1 << 22], closed: Vec::new() },
            there: DeliveryPath::new(order(), 4096, seed).unwrap(),
            back: DeliveryPath::new(order(), 4096, seed + 1).unwrap(),
            mirror,
            now: Nanos::ZERO,
            completions: Vec::new(),
            notices: 0,
            silent: 0,
            faults,
            dice: seed,
        }
    }

    fn roll(&mut self) -> u32 {
        self.dice = self.dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        u32::try_from(self.dice >> 56).unwrap()
    }

    fn copies(&mut self) -> u32 {
        let roll = self.roll();
        if roll < self.faults.lost {
            0
        } else if roll < self.faults.lost + self.faults.doubled {
            2
        } else {
            1
        }
    }

    fn submit(&mut self, offset: u64, length: u64, notify: Notify) {
        let command = Command {
            source: CardAddr::new(WINDOW + offset),
            node: RECEIVER,
            destination: CardAddr::new(WINDOW + offset),
            length,
            key: KEY,
            notify,
            deadline: None,
            priority: 0,
        };
        self.sender.submit(self.now, command).unwrap();
    }

    /// Packets that the NI makes of a transmit window.
    fn transmit(&mut self, transmit: &Transmit) {
        let common = Common {
            source: SENDER,
            destination: transmit.node,
            incarnation: INCARNATION,
            flags: transmit.notice_flags(),
            path: 0,
        };
        let mut buffer = [0; 8192];
        if transmit.kind == TransmitKind::Arrival {
            let notice = Control::Arrived(Arrived {
                common: Common { flags: Flags::NONE, ..common },
                transfer: transmit.transfer,
                address: transmit.transfer_base,
                length: transmit.transfer_length,
                key: transmit.key,
            });
            let length = notice.encode(&mut buffer).unwrap();
            self.there.offer(self.now, buffer[..length].to_vec()).unwrap();
            return;
        }
        if transmit.silent && transmit.first_packet == 0 && transmit.tries == 1 {
            self.silent += 1;
        }
        let size = 1u64 << transmit.packet_size_log2;
        let mut source = transmit.source.get();
        let end = source + u64::from(transmit.payload_length);
        for (packet, op) in (u64::from(transmit.first_packet)..).zip(transmit.ops.as_slice()) {
            let length = size.min(end - source);
            let header = DataHeader {
                common,
                transfer: transmit.transfer,
                oldest_live: transmit.oldest_live,
                segment: transmit.segment,
                segment_count: transmit.segment_count,
                address: CardAddr::new(transmit.segment_base.get() + packet * size),
                key: transmit.key,
                op: *op,
                tries: transmit.tries,
                packet_size_log2: transmit.packet_size_log2,
                start: (packet == 0).then_some(StartFields {
                    base: transmit.segment_base,
                    segment_length: transmit.segment_length,
                    packets: transmit.segment_packets,
                    transfer_base: transmit.transfer_base,
                    transfer_length: transmit.transfer_length,
                }),
            };
            let payload: Vec<u8> = (source..source + length).map(pattern).collect();
            source += length;
            let length = header.encode(&payload, &mut buffer).unwrap();
            for _ in 0..self.copies() {
                let mut frame = buffer[..length].to_vec();
                if self.roll() < self.faults.trimmed {
                    let length = trim(&mut frame).unwrap();
                    frame.truncate(length);
                }
                self.there.offer(self.now, frame).unwrap();
            }
        }
        assert_eq!(source, end, "the ops cover the payload");
    }

    fn receive(&mut self, frame: &[u8]) {
        match Packet::parse(frame).unwrap() {
            Packet::Data(data) => self.receiver.handle_data(self.now, &data, &mut self.memory),
            Packet::Control(Control::Arrived(arrived)) => self.receiver.handle_arrived(self.now, &arrived),
            other => panic!("{other:?}"),
        }
        self.outputs();
    }

    fn outputs(&mut self) {
        while let Some(output) = self.receiver.poll_output().copied() {
            match output {
                Output::Send(control) => {
                    for _ in 0..self.copies() {
                        self.back.offer(self.now, control).unwrap();
                    }
                }
                Output::Event(event) => {
                    self.mirror.handle_event(&event).unwrap();
                    if event.kind == EventKind::Notice {
                        self.notices += 1;
                        let start = event.address.get() - WINDOW;
                        self.memory.closed.push(start..start + event.length);
                    }
                }
                _ => {}
            }
        }
        for index in 0..u16::try_from(self.receiver.config().registry_entries).unwrap() {
            let view = self.receiver.entry(index, self.now).unwrap();
            self.mirror.compare(index, &view, |difference| panic!("{difference}"));
        }
    }

    fn answer(&mut self, control: Control) {
        let now = self.now;
        let Common { source: node, incarnation: peer, .. } = control.common();
        let answer = |incarnation, (transfer, segment), op, tries| Answer {
            node,
            incarnation,
            op,
            transfer,
            segment,
            tries,
            peer_incarnation: peer,
            notes: fpga_firmware::wire::AnswerNotes::default(),
        };
        match control {
            Control::Ack(ack) => {
                let about = (ack.transfer, ack.segment);
                self.sender.handle_ack(now, answer(ack.peer_incarnation, about, ack.op, ack.tries));
            }
            Control::Nack(nack) => {
                let about = (nack.transfer, nack.segment);
                let answer = answer(nack.peer_incarnation, about, nack.op, nack.tries);
                self.sender.handle_nack(now, answer, nack.reason);
            }
            Control::SegmentDone(done) => {
                let about = (done.transfer, done.segment);
                let answer = answer(done.peer_incarnation, about, OpNumber::new(0), 0);
                self.sender.handle_segment_done(now, answer);
            }
            other => panic!("{other:?}"),
        }
    }

    fn run(&mut self) {
        for _ in 0..2_000_000 {
            while let Some(transmit) = self.sender.poll_transmit(self.now) {
                self.transmit(&transmit);
            }
            while let Some(frame) = self.there.poll(self.now) {
                self.receive(&frame);
            }
            while let Some(control) = self.back.poll(self.now) {
                self.answer(control);
            }
            while let Some(completion) = self.sender.poll_completion() {
                self.completions.push(completion);
            }
            if self.sender.is_idle() && self.there.is_empty() && self.back.is_empty() {
                return;
            }
            self.now = self.now.saturating_add(Nanos::from_micros(1));
            if self.sender.poll_timeout().is_some_and(|at| at <= self.now) {
                self.sender.handle_timeout(self.now);
            }
            if self.receiver.poll_timeout().is_some_and(|at| at <= self.now) {
                self.receiver.handle_timeout(self.now);
                self.outputs();
            }
        }
        panic!("no end: {:?}", self.sender.counters());
    }

    /// Checks that everything arrived exactly once and that no state remains.
    fn check(&self, offset: u64, length: u64) {
        for at in offset..offset + length {
            assert_eq!(self.memory.bytes[usize::try_from(at).unwrap()], pattern(WINDOW + at), "byte {at}");
        }
        assert_eq!(self.receiver.registry_occupancy(), 0);
        assert_eq!(self.receiver.escape_occupancy(), 0);
        assert_eq!(self.sender.ops().count(), 0);
        assert_eq!((self.mirror.occupancy(), self.mirror.escape_occupancy()), (0, 0));
        assert_eq!(self.receiver.counters().unpolled, 0);
    }
}

fn receiver_config() -> ReceiverConfig {
    let mut config = ReceiverConfig::new(RECEIVER, Incarnation::new(9));
    config.packet_events = true;
    config
}

const SIZES: [u64; 9] = [0, 1, 511, 512, 513, 16 << 10, (16 << 10) + 1, (64 << 10) + 3, (1 << 20) + 77];

#[test]
fn back_to_back_every_size_in_random_order_arrives() {
    for (seed, length) in (0..).zip(SIZES) {
        for notify in [Notify::Receiver, Notify::Sender] {
            let mut network =
                Testbed::new(SenderConfig::default(), receiver_config(), 64, seed, Faults::default());
            network.submit(13, length, notify);
            network.run();
            assert_eq!(network.completions.len(), 1, "exactly one local completion");
            let completion = network.completions[0];
            assert_eq!(completion.result, Ok(()));
            let segments = u32::try_from(length.div_ceil(16 << 10)).unwrap();
            assert_eq!(completion.segments, segments);
            assert_eq!(u64::from(completion.silent_segments), u64::from(segments).saturating_sub(1));
            assert_eq!(network.silent, u64::from(completion.silent_segments));
            assert_eq!(completion.packets, length.div_ceil(512));
            assert_eq!(network.notices, u32::from(length != 0), "exactly one notice");
            assert_eq!(network.receiver.transfers_in_progress(), 0);
            network.check(13, length);
        }
    }
}

#[test]
fn back_to_back_small_tables_with_loss_and_copies_deliver_all() {
    for seed in 0..12 {
        let mut sender = SenderConfig::default();
        sender.op_entries = 64;
        sender.generation_bits = 4;
        sender.packet_lifetime = Nanos::from_micros(300);
        sender.retry.timeout = TimeoutPolicy::Fixed { timeout: Nanos::from_micros(200), max_tries: 60 };
        sender.live_per_destination = 8;
        let mut receiver = receiver_config();
        receiver.registry_entries = 3;
        receiver.escape_slots = 5;
        receiver.escape_timeout = Nanos::from_micros(50);
        receiver.transfers = 4;
        receiver.tombstones = 3;
        receiver.registry_timeout = Nanos::from_millis(100);
        let faults = Faults { lost: 20, doubled: 30, trimmed: 0 };
        let mut network = Testbed::new(sender, receiver, 24, seed, faults);
        let mut offset = 0;
        let mut total = 0;
        for n in 0..40u64 {
            let length =
                [1, 100, 513, 20_000, 40_000, 512, 7000][usize::try_from((n * 5 + seed) % 7).unwrap()];
            network.submit(offset, length, if n % 3 == 0 { Notify::Sender } else { Notify::Receiver });
            offset += length;
            total += 1;
        }
        network.run();
        assert_eq!(network.completions.len(), total);
        assert!(network.completions.iter().all(|c| c.result == Ok(())));
        // Arrival notices of the sender are not acknowledged. A lost one without later traffic is reported when the record expires.
        network.now = network.now.saturating_add(Nanos::from_secs(1));
        network.receiver.handle_timeout(network.now);
        network.outputs();
        assert_eq!(network.notices as usize, total);
        network.check(0, offset);
        let counters = network.receiver.counters();
        assert!(
            counters.duplicates > 0 && counters.registry_full > 0 && counters.escape_hits > 0,
            "{counters:?}"
        );
        assert!(network.sender.counters().retransmits > 0);
    }
}

/// A network that cuts off payloads instead of dropping packets: everything arrives, and no packet waits for a timer.
#[test]
fn back_to_back_trimmed_packets_arrive_without_timeouts() {
    for (seed, trimmed) in (0..).zip([1, 20, 64, 128, 200, 240]) {
        for (lost, doubled) in [(0, 0), (0, 30), (20, 30)] {
            let mut receiver = receiver_config();
            receiver.registry_entries = 64;
            receiver.escape_slots = 256;
            let mut sender = SenderConfig::default();
            sender.paths = 16;
            // Without other faults in order: packets that arrive late may count as lost.
            let depth = if lost + doubled == 0 { 1 } else { 8 };
            let mut network = Testbed::new(sender, receiver, depth, seed, Faults { lost, doubled, trimmed });
            let mut offset = 0;
            let sizes = [1, 513, 40_000, 512, 100_000, 16 << 10];
            for length in sizes {
                network.submit(offset, length, Notify::Receiver);
                offset += length;
            }
            network.run();
            assert_eq!(network.completions.len(), sizes.len());
            assert!(network.completions.iter().all(|c| c.result == Ok(())));
            assert_eq!(network.notices as usize, sizes.len());
            network.check(0, offset);
            let (near, far) = (network.sender.counters(), network.receiver.counters());
            assert!(near.trimmed <= far.trimmed && (trimmed == 1 || near.trimmed > 0), "{near:?} {far:?}");
            if lost == 0 && doubled == 0 {
                // An answer that comes late by more than the reorder window costs a retransmission.
                assert_eq!(near.timeouts, 0);
                assert!(near.retransmits <= far.trimmed + far.trimmed / 16, "{near:?} {far:?}");
            }
        }
    }
}
