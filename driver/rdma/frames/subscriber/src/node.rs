//! Receiving node in software: the receiver of `fpga-protocol`, as in a card, with the packets of one sender (docs/protocol.md 5).
//!
//! No I/O: answers go to a caller's function.

use std::collections::VecDeque;
use std::time::Instant;

use fpga_firmware::event::EventKind;
use fpga_firmware::generated::{Permissions, SEGMENT_PACKETS_MAX};
use fpga_firmware::wire::{Arrived, Data};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{MemoryFault, MemoryWindow, Output, ReceiveMemory, Receiver, ReceiverConfig};
use fpga_registers::CardAddr;

use crate::memory::Memory;
use crate::packet::{Identity, REGISTRY_TIMEOUT_US};

/// Maximum number of packets that wait for the start of their segment.
const ESCAPE_SLOTS: u16 = 256;
/// Time after which such a packet is dropped; its sender retransmits it.
const ESCAPE_TIMEOUT: Nanos = Nanos::from_millis(20);
/// Maximum number of segments in progress.
const REGISTRY_ENTRIES: u32 = 1024;
/// Transfers beyond one per slot: statuses, and transfers that were given up.
const MORE_TRANSFERS: u32 = 16;
/// Maximum number of transfers in progress, and of completed ones, that a receiver can have.
const MAX_TRANSFERS: u16 = 4096;

/// Counts of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeCounts {
    /// Packets with data, from the publisher.
    pub packets: u64,
    /// Packets that were in memory already.
    pub duplicates: u64,
    /// Packets that arrived before the start of their segment.
    pub early: u64,
    /// Packets that were refused.
    pub refused: u64,
    /// Datagrams that are damaged, or not of the publisher.
    pub foreign: u64,
}

/// Receiving node with one sender.
#[derive(Debug)]
pub(crate) struct ReceivingNode {
    pub(crate) identity: Identity,
    pub(crate) memory: Memory,
    /// Datagrams that are damaged, or not of the publisher.
    pub(crate) foreign: u64,
    /// Address and length of completed transfers, in the order of completion.
    pub(crate) notices: VecDeque<(u64, u64)>,
    receiver: Receiver,
    /// Start of the receiver's time.
    began: Instant,
    out: Vec<u8>,
}

impl ReceivingNode {
    /// Creates a node whose sender may write all of `memory`, which holds `slots` slots. `None`: `identity` or the memory is not possible.
    pub(crate) fn new(identity: Identity, memory: Memory, slots: u32, now: Instant) -> Option<Self> {
        let mut config = ReceiverConfig::new(identity.node, identity.incarnation);
        config.packet_size_log2 = identity.packet_size_log2;
        config.mask_bits = SEGMENT_PACKETS_MAX;
        config.registry_entries = REGISTRY_ENTRIES;
        (config.escape_slots, config.escape_timeout) = (ESCAPE_SLOTS, ESCAPE_TIMEOUT);
        config.registry_timeout = Nanos::from_micros(REGISTRY_TIMEOUT_US.into());
        let transfers = u16::try_from(slots.saturating_add(MORE_TRANSFERS)).unwrap_or(MAX_TRANSFERS);
        config.transfers = transfers.min(MAX_TRANSFERS);
        config.tombstones = MAX_TRANSFERS;
        (config.sources, config.nodes, config.windows) = (1, 1, 1);
        let mut receiver = Receiver::new(config).ok()?;
        let (base, length) = (CardAddr::new(0), memory.length());
        let Identity { peer: source, key, .. } = identity;
        let window = MemoryWindow { source, base, length, key, permissions: Permissions::WRITE };
        receiver.access_mut().install(0, window).ok()?;
        let (notices, out) = (VecDeque::new(), Vec::new());
        Some(Self { identity, memory, foreign: 0, notices, receiver, began: now, out })
    }

    fn time(&self, now: Instant) -> Nanos {
        now.saturating_duration_since(self.began).into()
    }

    /// Handles a DATA or START packet of the sender.
    pub(crate) fn data(&mut self, now: Instant, data: &Data<'_>, send: &mut impl FnMut(&[u8])) {
        self.receiver.handle_data(self.time(now), data, &mut self.memory);
        self.outputs(send);
    }

    /// Handles an ARRIVED packet of the sender.
    pub(crate) fn arrived(&mut self, now: Instant, arrived: &Arrived, send: &mut impl FnMut(&[u8])) {
        self.receiver.handle_arrived(self.time(now), arrived);
        self.outputs(send);
    }

    /// Drops packets whose escape timeout has expired.
    pub(crate) fn tick(&mut self, now: Instant, send: &mut impl FnMut(&[u8])) {
        let now = self.time(now);
        if self.receiver.poll_timeout().is_some_and(|due| due <= now) {
            self.receiver.handle_timeout(now);
            self.outputs(send);
        }
    }

    fn outputs(&mut self, send: &mut impl FnMut(&[u8])) {
        while let Some(output) = self.receiver.poll_output() {
            match output {
                Output::Send(control) => {
                    self.identity.control(&mut self.out, control);
                    send(&self.out);
                }
                Output::Event(event) if event.kind == EventKind::Notice => {
                    self.notices.push_back((event.address.get(), event.length));
                }
                _ => {}
            }
        }
    }

    pub(crate) fn counts(&self) -> NodeCounts {
        let counters = self.receiver.counters();
        NodeCounts {
            packets: counters.packets,
            duplicates: counters.duplicates + counters.tombstone_hits,
            early: counters.escape_hits,
            refused: counters.nacks,
            foreign: self.foreign,
        }
    }
}

impl ReceiveMemory for Memory {
    fn write(&mut self, address: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        let length = bytes.len() as u64;
        if self.write(address.get(), bytes) { Ok(()) } else { Err(MemoryFault { address, length }) }
    }
}

#[cfg(test)]
mod tests {
    use fpga_firmware::wire::{Common, Control, DataHeader, Flags, NackReason, Packet, StartFields};
    use fpga_firmware::{Incarnation, NodeId, OpNumber, TransferId};

    use super::*;

    const IDENTITY: Identity = Identity {
        node: NodeId::new(2),
        incarnation: Incarnation::new(5),
        peer: NodeId::new(1),
        peer_incarnation: Incarnation::new(9),
        packet_size_log2: 6,
        key: 7,
    };
    const SENDER: Identity =
        Identity { node: IDENTITY.peer, incarnation: Incarnation::new(9), peer: IDENTITY.node, ..IDENTITY };

    /// Packets that answer the packet `index` of a transfer of 160 bytes to slot 1.
    fn answers(node: &mut ReceivingNode, index: u64, payload: &[u8]) -> Vec<Control> {
        let base = CardAddr::new(256);
        let start =
            StartFields { base, segment_length: 160, packets: 3, transfer_base: base, transfer_length: 160 };
        let common = Common { ..SENDER.common(Flags::NOTIFY_RECEIVER) };
        let header = DataHeader {
            common,
            transfer: TransferId::new(3),
            oldest_live: TransferId::new(3),
            segment: 0,
            segment_count: 1,
            address: CardAddr::new(256 + index * 64),
            key: IDENTITY.key,
            op: OpNumber::new(77),
            tries: 1,
            packet_size_log2: 6,
            start: (index == 0).then_some(start),
        };
        let mut datagram = Vec::new();
        SENDER.wrap(&mut datagram, |bytes| header.encode(payload, bytes));
        let Some(Packet::Data(data)) = IDENTITY.parse(&datagram) else { panic!("{header:?}") };
        let mut answers = Vec::new();
        node.data(node.began, &data, &mut |datagram| match SENDER.parse(datagram) {
            Some(Packet::Control(control)) => answers.push(control),
            other => panic!("{other:?}"),
        });
        answers
    }

    #[test]
    fn node_transfer_is_noticed_once_and_slot_of_reader_is_not_written() {
        let memory = Memory::new(4, 256).unwrap();
        let mut node = ReceivingNode::new(IDENTITY, memory, 4, Instant::now()).unwrap();
        let taken = node.memory.take(1).unwrap();
        let refused = answers(&mut node, 0, &[1; 64]);
        assert!(matches!(refused[..], [Control::Nack(nack)] if nack.reason == NackReason::Violation));
        node.memory.put_back(1, taken);
        assert_eq!(answers(&mut node, 2, &[3; 32]), [], "waits for the start");
        assert_eq!(answers(&mut node, 0, &[1; 64]).len(), 2, "with the early packet");
        assert_eq!(node.notices, []);
        assert_eq!(answers(&mut node, 1, &[2; 64]).len(), 2, "acknowledged, segment done");
        assert_eq!(answers(&mut node, 0, &[9; 64]).len(), 1, "late");
        assert_eq!(node.notices, [(256, 160)]);
        let slot = node.memory.slot(1).unwrap();
        assert_eq!(
            (&slot[..64], &slot[64..128], &slot[128..160]),
            (&[1; 64][..], &[2; 64][..], &[3; 32][..])
        );
        let counts = node.counts();
        assert_eq!((counts.packets, counts.duplicates, counts.early, counts.refused), (5, 1, 1, 1));
    }

    #[test]
    fn memory_write_across_slots_is_all_or_nothing() {
        let mut memory = Memory::new(2, 128).unwrap();
        assert!(memory.write(100, &[5; 64]));
        assert_eq!((memory.slot(0).unwrap()[127], memory.slot(1).unwrap()[35]), (5, 5));
        assert!(memory.write(256, &[6; 64]) && !memory.write(257, &[6; 64]));
        let _reader = memory.take(1);
        assert!(!memory.write(100, &[7; 64]));
        assert_eq!(memory.slot(0).unwrap()[127], 5);
    }
}
