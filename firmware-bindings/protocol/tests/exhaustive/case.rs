//! Search parameters, and the packets in the simulated network.

use fpga_firmware::event::NackReason;
use fpga_firmware::ids::{Incarnation, OpNumber, TransferId};
use fpga_firmware::wire::{Common, DataHeader, Flags, StartFields};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::ReceiverConfig;
use fpga_protocol::sender::{Command, Notify, Sender, SenderConfig, TimeoutPolicy};
use fpga_registers::CardAddr;

use crate::exhaustive::common::{self, BASE, KEY, RECEIVER, SENDER};

pub(crate) const PACKET: u64 = 64;
/// Bytes in the last packet of a transfer.
pub(crate) const LAST: u64 = 17;

/// Incarnation of the sender, counted from 1, and number of its transfer.
pub(crate) type TransferName = (u32, u32);

/// Packet or answer in flight. A packet keeps its op number when it is retransmitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum WirePacket {
    /// `trimmed`: a switch has cut off the payload.
    Data {
        name: TransferName,
        oldest_live: u32,
        segment: u32,
        packet: u16,
        op: u32,
        tries: u8,
        trimmed: bool,
    },
    Arrival {
        name: TransferName,
    },
    Ack {
        name: TransferName,
        segment: u32,
        op: u32,
        tries: u8,
    },
    Nack {
        name: TransferName,
        segment: u32,
        op: u32,
        tries: u8,
        reason: NackReason,
    },
    Done {
        name: TransferName,
        segment: u32,
    },
}

impl WirePacket {
    /// Whether this is the first packet of a segment, which registers it.
    pub(crate) const fn is_start(&self) -> bool {
        matches!(self, Self::Data { packet: 0, .. })
    }

    /// The packet without its payload; `None` for others.
    pub(crate) const fn trim(mut self) -> Option<Self> {
        match &mut self {
            Self::Data { trimmed, .. } if !*trimmed => *trimmed = true,
            _ => return None,
        }
        Some(self)
    }
}

/// Maximum number of faults on one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Packets and answers lost.
    pub(crate) losses: u8,
    /// Packets and answers duplicated.
    pub(crate) copies: u8,
    /// Restarts of the sender with the same transfers.
    pub(crate) restarts: u8,
    /// Restarts of the sender without transfers.
    pub(crate) deaths: u8,
    /// Copies of packets that stay in the network without limit. They arrive at any time after the receiver has written data of a later
    /// incarnation.
    pub(crate) late: u8,
    /// Timers that expire although packets are in flight.
    pub(crate) early: u8,
    /// Packets of which a switch cuts off the payload.
    pub(crate) trims: u8,
}

/// Parameters of one search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Packets of each segment; the last packet of a transfer is short.
    pub(crate) packets: u16,
    /// Segments of each transfer.
    pub(crate) segments: u32,
    pub(crate) transfers: u32,
    pub(crate) mask_bits: u16,
    pub(crate) registry_entries: u32,
    pub(crate) escape_slots: u16,
    pub(crate) escape_timeout: Nanos,
    /// Packet lifetime that the receiver assumes.
    pub(crate) packet_lifetime: Nanos,
    pub(crate) notify: Notify,
    /// Numbers of the incarnations on the wire.
    pub(crate) numbers: [u32; 3],
    /// First packets arrive after all other packets of their incarnation, and only they are duplicated.
    pub(crate) starts_last: bool,
    pub(crate) budget: Budget,
}

/// One operation of one packet, and a receiver with space for everything: a packet that it drops would be another loss.
pub(crate) const PLAIN: Case = Case {
    packets: 1,
    segments: 1,
    transfers: 1,
    mask_bits: 8,
    registry_entries: 4,
    escape_slots: 16,
    escape_timeout: Nanos::from_secs(1),
    packet_lifetime: Nanos::from_millis(10),
    notify: Notify::Receiver,
    numbers: [1, 2, 3],
    starts_last: false,
    budget: Budget { losses: 0, copies: 0, restarts: 0, deaths: 0, late: 0, early: 0, trims: 0 },
};

/// First address of a transfer. Each starts one packet after its predecessor, so that they overlap. All incarnations write to the same
/// addresses.
pub(crate) fn base(name: TransferName) -> u64 {
    BASE + u64::from(name.1) * PACKET
}

pub(crate) fn byte(name: TransferName, offset: u64) -> u8 {
    u8::try_from((offset + u64::from(name.0) * 50 + u64::from(name.1) * 91) % 251).unwrap()
}

impl Case {
    pub(crate) fn segment_size(&self) -> u64 {
        u64::from(self.packets) * PACKET
    }

    /// Length of a transfer in bytes.
    pub(crate) fn length(&self) -> u64 {
        u64::from(self.segments) * self.segment_size() - PACKET + LAST
    }

    /// Number of packets of a transfer.
    pub(crate) fn all_packets(&self) -> u32 {
        self.segments * u32::from(self.packets)
    }

    pub(crate) fn incarnations(&self) -> u32 {
        1 + u32::from(self.budget.restarts) + u32::from(self.budget.deaths)
    }

    /// Number of an incarnation on the wire.
    pub(crate) fn number(&self, incarnation: u32) -> Incarnation {
        Incarnation::new(self.numbers[usize::try_from(incarnation - 1).unwrap()])
    }

    /// Incarnation with this number on the wire, counted from 1.
    pub(crate) fn incarnation(&self, number: Incarnation) -> u32 {
        let at = self.numbers.iter().position(|own| *own == number.get()).unwrap();
        u32::try_from(at + 1).unwrap()
    }

    pub(crate) fn sender(&self, incarnation: u32, transfers: u32, now: Nanos) -> Sender {
        let mut config = SenderConfig::default();
        config.packet_size_log2 = 6;
        config.mask_bits = self.mask_bits;
        config.segment_size = u32::try_from(self.segment_size()).unwrap();
        config.big_threshold = config.segment_size;
        config.op_entries = 16;
        config.ops_per_destination = 16;
        config.transfers = self.transfers;
        config.destinations = 1;
        config.retry.timeout = TimeoutPolicy::Fixed { timeout: Nanos::from_millis(1), max_tries: 0 };
        // Longer than the default, so that a packet that waits for an entry is not retransmitted twenty times.
        config.retry.busy_backoff = Nanos::from_millis(4);
        config.retry.busy_backoff_max = Nanos::from_millis(8);
        let mut sender = Sender::new(config, self.number(incarnation)).unwrap();
        for transfer in 0..transfers {
            let command = Command {
                source: CardAddr::new(0),
                node: RECEIVER,
                destination: CardAddr::new(base((incarnation, transfer))),
                length: self.length(),
                key: KEY,
                notify: self.notify,
                deadline: None,
                priority: 0,
            };
            sender.submit(now, command).unwrap();
        }
        sender
    }

    pub(crate) fn receiver(&self) -> ReceiverConfig {
        let mut config = common::config();
        config.mask_bits = self.mask_bits;
        config.registry_entries = self.registry_entries;
        config.escape_slots = self.escape_slots;
        config.escape_timeout = self.escape_timeout;
        config.packet_lifetime = self.packet_lifetime;
        config.sources = u16::try_from(self.incarnations()).unwrap();
        config.nodes = 2;
        config
    }

    /// The packet as the network delivers it.
    pub(crate) fn packet(&self, flight: WirePacket) -> Option<(DataHeader, Vec<u8>)> {
        let WirePacket::Data { name, oldest_live, segment, packet, op, tries, trimmed } = flight else {
            return None;
        };
        let segment_offset = u64::from(segment) * self.segment_size();
        let segment_length = self.segment_size().min(self.length() - segment_offset);
        let offset = segment_offset + u64::from(packet) * PACKET;
        let length = PACKET.min(self.length() - offset);
        let last = segment + 1 == self.segments;
        let mut flags = if last { Flags::NONE } else { Flags::SILENT };
        if self.notify == Notify::Receiver {
            flags = flags.with(Flags::NOTIFY_RECEIVER);
        }
        if trimmed {
            flags = flags.with(Flags::TRIMMED);
        }
        let start = StartFields {
            base: CardAddr::new(base(name) + segment_offset),
            segment_length: u32::try_from(segment_length).unwrap(),
            packets: self.packets,
            transfer_base: CardAddr::new(base(name)),
            transfer_length: self.length(),
        };
        let header = DataHeader {
            common: Common {
                source: SENDER,
                destination: RECEIVER,
                incarnation: self.number(name.0),
                flags,
                path: 0,
            },
            transfer: TransferId::new(name.1),
            oldest_live: TransferId::new(oldest_live),
            segment,
            segment_count: self.segments,
            address: CardAddr::new(base(name) + offset),
            key: KEY,
            op: OpNumber::new(op),
            tries,
            packet_size_log2: 6,
            start: (packet == 0).then_some(start),
        };
        let length = if trimmed { 0 } else { length };
        Some((header, (offset..offset + length).map(|at| byte(name, at)).collect()))
    }
}
