//! Packets whose payload is written to memory before they are processed.
//!
//! A caller that has a packet's header, but whose payload is in memory that others may change, can copy the payload once: to its
//! destination. It checks the checksum there, and passes the packet to [`Receiver::handle_packet`] only if it is correct, with a memory that
//! accepts the one write that was made. Otherwise the packet counts as lost.
//!
//! Until then, the bytes belong to a packet that has not arrived. The packet of a registered segment overwrites nothing that has arrived,
//! even if its header is damaged. The first packet of a segment writes to any part of its source's windows: its header must be intact.

use fpga_firmware::ids::NodeId;
use fpga_firmware::wire::{DataHeader, Flags, StartFields};

use super::expected::position;
use super::mask::Mask;
use super::unexpected::geometry;
use super::{Receiver, key_of};

impl Receiver {
    /// Returns whether [`Receiver::handle_packet`] would write `length` bytes of payload to the packet's address, and to no other. May return
    /// `false` for such a packet, but not `true` for another one.
    pub fn would_write(&mut self, header: &DataHeader, length: usize) -> bool {
        if self.outputs.space() < self.burst
            || header.common.destination != self.config.node
            || header.common.source == NodeId::ANY
            || header.packet_size_log2 != self.config.packet_size_log2
            || header.common.flags.contains(Flags::TRIMMED)
            || length == 0
            || length > fpga_registers::cast::index(self.config.packet_size())
        {
            return false;
        }
        match (self.registry.find(&key_of(header)), &header.start) {
            (Some(slot), _) => self.is_missing(slot, header, length as u64),
            (None, Some(start)) => self.may_begin(header, start, length),
            (None, None) => false,
        }
    }

    /// Returns whether a packet of the registered segment in `slot` is one that has not arrived.
    fn is_missing(&mut self, slot: u16, header: &DataHeader, length: u64) -> bool {
        let source = self.registry.entry(slot).source;
        let oldest_live = self.peers.source(source).completed.oldest_live();
        if header.transfer.is_older_than(oldest_live) || header.transfer.is_older_than(header.oldest_live) {
            return false;
        }
        let transfer_length = |at| self.peers.transfer(at).length;
        let operation = self.registry.operation(slot);
        let window = operation.entry.window.0;
        position(operation.entry, transfer_length, header, length, self.config.packet_size_log2)
            .is_some_and(|bit| !operation.contains(bit))
            && self
                .access
                .allowing_write(window, header.common.source, header.key, header.address, length)
                .is_some()
    }

    /// Returns whether the segment of a first packet can be registered without other changes.
    fn may_begin(&self, header: &DataHeader, start: &StartFields, length: usize) -> bool {
        let (node, incarnation) = (header.common.source, header.common.incarnation);
        let Some(source) = self.peers.find_source(node, incarnation) else { return false };
        let completed = &self.peers.source(source).completed;
        let is_over = header.transfer.is_older_than(header.oldest_live)
            || completed.contains(header.transfer)
            || self
                .peers
                .find_transfer(source, header.transfer)
                .is_some_and(|at| self.peers.transfer(at).done.contains(header.segment));
        // Packets in the escape channel may belong to the segment: they are written with it.
        !is_over
            && self.escape.occupancy() == 0
            && self.superseding(node, incarnation).is_none()
            && self.first_mask(header, start, Some(length)).is_some()
            && self.access.allows_write(node, header.key, start.base, start.segment_length.into())
            && self.find_records(header, start).is_ok()
    }

    /// Returns the packets that have arrived with the first one of a segment, or without its payload, if the packet agrees with itself.
    pub(super) fn first_mask(
        &self,
        header: &DataHeader,
        start: &StartFields,
        length: Option<usize>,
    ) -> Option<Mask> {
        let expected = start.segment_length.min(self.config.packet_size());
        let is_sound = geometry(header, start).check().is_ok()
            && header.address == start.base
            && length.is_none_or(|length| length as u64 == u64::from(expected))
            && start.packets <= self.config.mask_bits;
        let mask =
            if length.is_some() { Mask::first_of(start.packets) } else { Mask::none_of(start.packets) };
        mask.filter(|_| is_sound)
    }
}
