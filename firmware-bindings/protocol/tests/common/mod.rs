//! A receiver with memory, and packets for it.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part")]

use fpga_firmware::event::{Event, EventKind, NackReason};
use fpga_firmware::generated::Permissions;
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_firmware::wire::{Common, Control, DataHeader, Flags, StartFields};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{MemoryFault, MemoryWindow, Output, ReceiveMemory, Receiver, ReceiverConfig};
use fpga_registers::CardAddr;

pub const SENDER: NodeId = NodeId::new(1);
pub const RECEIVER: NodeId = NodeId::new(2);
pub const INCARNATION: Incarnation = Incarnation::new(0x5EED);
pub const KEY: u64 = 0xFEED_F00D;
pub const BASE: u64 = 0x1_0003;

/// The byte that every transfer writes to `address`.
pub fn pattern(address: u64) -> u8 {
    u8::try_from((address.wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 56).unwrap()
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// All writes, in order.
    pub writes: Vec<(u64, Vec<u8>)>,
}

impl ReceiveMemory for Memory {
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.writes.push((at.get(), bytes.to_vec()));
        Ok(())
    }
}

pub fn config() -> ReceiverConfig {
    let mut config = ReceiverConfig::new(RECEIVER, Incarnation::new(0xCAFE));
    config.packet_size_log2 = 6;
    config.registry_entries = 2;
    config.escape_slots = 8;
    config.transfers = 4;
    config.sources = 2;
    config.tombstones = 4;
    config.windows = 2;
    config
}

pub fn receiver(config: ReceiverConfig) -> Receiver {
    let mut receiver = Receiver::new(config).unwrap();
    let window = MemoryWindow {
        source: SENDER,
        base: CardAddr::new(0x1_0000),
        length: 0x10_0000,
        key: KEY,
        permissions: Permissions::WRITE,
    };
    receiver.access_mut().install(0, window).unwrap();
    receiver
}

/// One segment of a transfer, to be divided into packets.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub transfer: u32,
    pub oldest_live: u32,
    pub segment: u32,
    pub segment_count: u32,
    pub base: u64,
    pub length: u32,
    pub transfer_base: u64,
    pub transfer_length: u64,
    pub log2: u8,
    pub notify: bool,
}

impl Shape {
    /// A transfer of one segment of `packets` packets, the last one short.
    pub fn single(transfer: u32, packets: u16) -> Self {
        let length = u32::from(packets) * 64 - 47;
        Self {
            transfer,
            oldest_live: 0,
            segment: 0,
            segment_count: 1,
            base: BASE,
            length,
            transfer_base: BASE,
            transfer_length: u64::from(length),
            log2: 6,
            notify: true,
        }
    }

    pub fn packets(&self) -> u16 {
        u16::try_from(self.length.div_ceil(1 << self.log2)).unwrap()
    }

    pub fn packet(&self, index: u16) -> (DataHeader, Vec<u8>) {
        let offset = u32::from(index) << self.log2;
        let address = self.base + u64::from(offset);
        let length = (self.length - offset).min(1 << self.log2);
        let start = (index == 0).then_some(StartFields {
            base: CardAddr::new(self.base),
            segment_length: self.length,
            packets: self.packets(),
            transfer_base: CardAddr::new(self.transfer_base),
            transfer_length: self.transfer_length,
        });
        let header = DataHeader {
            common: Common {
                source: SENDER,
                destination: RECEIVER,
                incarnation: INCARNATION,
                flags: if self.notify { Flags::NOTIFY_RECEIVER } else { Flags::NONE },
                path: 0,
            },
            transfer: TransferId::new(self.transfer),
            oldest_live: TransferId::new(self.oldest_live),
            segment: self.segment,
            segment_count: self.segment_count,
            address: CardAddr::new(address),
            key: KEY,
            op: OpNumber::from_parts(index, u16::try_from(self.segment).unwrap()),
            tries: 1,
            packet_size_log2: self.log2,
            start,
        };
        (header, (address..address + u64::from(length)).map(pattern).collect())
    }
}

/// A receiver, its memory, and its outputs.
#[derive(Clone, Debug)]
pub struct TestBed {
    pub receiver: Receiver,
    pub memory: Memory,
    pub now: Nanos,
}

impl TestBed {
    pub fn new(config: ReceiverConfig) -> Self {
        Self { receiver: receiver(config), memory: Memory::default(), now: Nanos::ZERO }
    }

    pub fn deliver(&mut self, packet: &(DataHeader, Vec<u8>)) -> Vec<Output> {
        let would_write = self.receiver.would_write(&packet.0, packet.1.len());
        let before = self.memory.writes.len();
        self.receiver.handle_packet(self.now, &packet.0, &packet.1, &mut self.memory);
        if would_write {
            let written = &self.memory.writes[before..];
            assert_eq!(written, [(packet.0.address.get(), packet.1.clone())], "announced: one write");
        }
        self.drain()
    }

    pub fn send(&mut self, shape: &Shape, index: u16) -> Vec<Output> {
        self.deliver(&shape.packet(index))
    }

    pub fn advance(&mut self, span: Nanos) -> Vec<Output> {
        self.now = self.now.saturating_add(span);
        self.receiver.handle_timeout(self.now);
        self.drain()
    }

    pub fn drain(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.receiver.poll_output().copied()).collect()
    }
}

pub fn acks(outputs: &[Output]) -> Vec<OpNumber> {
    outputs
        .iter()
        .filter_map(|o| if let Output::Send(Control::Ack(ack)) = o { Some(ack.op) } else { None })
        .collect()
}

pub fn nacks(outputs: &[Output]) -> Vec<NackReason> {
    outputs
        .iter()
        .filter_map(|o| if let Output::Send(Control::Nack(n)) = o { Some(n.reason) } else { None })
        .collect()
}

pub fn dones(outputs: &[Output]) -> usize {
    outputs.iter().filter(|o| matches!(o, Output::Send(Control::SegmentDone(_)))).count()
}

pub fn events(outputs: &[Output], kind: EventKind) -> Vec<Event> {
    outputs
        .iter()
        .filter_map(|o| if let Output::Event(e) = o { Some(*e) } else { None })
        .filter(|e| e.kind == kind)
        .collect()
}
