//! Mirror of the escape channel: the packet in each slot.

use alloc::boxed::Box;

use fpga_firmware::event::Event;
use fpga_firmware::ids::{Incarnation, NodeId, SegmentIndex, TransferId};
use fpga_registers::CardAddr;

use super::{Difference, Field, MirrorError, Table};
use crate::time::Nanos;

/// Packet that waits for the registration of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EscapedPacket {
    /// Sender.
    pub node: NodeId,
    /// Incarnation of the sender.
    pub incarnation: Incarnation,
    /// Transfer of the sender.
    pub transfer: TransferId,
    /// Segment within the transfer.
    pub segment: SegmentIndex,
    /// Destination address of the packet.
    pub address: CardAddr,
    /// Payload bytes.
    pub length: u64,
    /// Card time of its arrival. Not compared: the card shows an age.
    pub since: Nanos,
}

impl EscapedPacket {
    const fn of(event: &Event) -> Self {
        Self {
            node: event.node,
            incarnation: event.incarnation,
            transfer: event.transfer,
            segment: event.segment,
            address: event.address,
            length: event.length,
            since: Nanos::new(event.time),
        }
    }

    fn is(&self, other: &Self) -> bool {
        Self { since: other.since, ..*self } == *other
    }
}

#[derive(Clone, Debug)]
pub(super) struct EscapeMirror {
    slots: Box<[Option<EscapedPacket>]>,
    occupancy: u16,
}

impl EscapeMirror {
    pub(super) fn new(slots: u16) -> Self {
        Self { slots: alloc::vec![None; usize::from(slots)].into_boxed_slice(), occupancy: 0 }
    }

    /// Bytes of state of one slot.
    pub(super) const BYTES: usize = size_of::<Option<EscapedPacket>>();

    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(super) const fn occupancy(&self) -> u16 {
        self.occupancy
    }

    pub(super) fn packets(&self) -> impl Iterator<Item = (u16, &EscapedPacket)> + '_ {
        (0..).zip(&self.slots).filter_map(|(index, slot)| Some((index, slot.as_ref()?)))
    }

    pub(super) fn clear(&mut self) {
        self.slots.fill(None);
        self.occupancy = 0;
    }

    /// Sets the content of a slot.
    pub(super) fn read(&mut self, index: u16, packet: Option<EscapedPacket>) {
        let Some(slot) = self.slots.get_mut(usize::from(index)) else { return };
        let before = core::mem::replace(slot, packet);
        self.occupancy -= u16::from(before.is_some());
        self.occupancy += u16::from(packet.is_some());
    }

    fn place(&mut self, index: u16) -> Result<&mut Option<EscapedPacket>, MirrorError> {
        let entries = u16::try_from(self.slots.len()).unwrap_or(u16::MAX);
        let place = self.slots.get_mut(usize::from(index));
        place.ok_or(MirrorError::Index { table: Table::Escape, index, entries })
    }

    pub(super) fn escaped(&mut self, event: &Event) -> Result<(), MirrorError> {
        let slot = event.index;
        let before = self.place(slot)?.replace(EscapedPacket::of(event));
        self.occupancy += u16::from(before.is_none());
        before.map_or(Ok(()), |_| Err(MirrorError::SlotOccupied { slot }))
    }

    pub(super) fn released(&mut self, event: &Event) -> Result<(), MirrorError> {
        let slot = event.index;
        let before = self.place(slot)?.take();
        self.occupancy -= u16::from(before.is_some());
        match before {
            Some(packet) if packet.is(&EscapedPacket::of(event)) => Ok(()),
            _ => Err(MirrorError::SlotVacant { slot }),
        }
    }

    pub(super) fn compare(
        &self,
        index: u16,
        card: Option<&EscapedPacket>,
        mut report: impl FnMut(Difference),
    ) -> u32 {
        let Some(mirror) = self.slots.get(usize::from(index)) else { return 0 };
        let mut count = 0;
        let mut check = |field, mirror: u64, card: u64| {
            if mirror != card {
                count += 1;
                report(Difference { table: Table::Escape, index, field, mirror, card });
            }
        };
        check(Field::Valid, mirror.is_some().into(), card.is_some().into());
        if let (Some(mirror), Some(card)) = (mirror, card) {
            check(Field::Source, mirror.node.get().into(), card.node.get().into());
            check(Field::Incarnation, mirror.incarnation.get().into(), card.incarnation.get().into());
            check(Field::Transfer, mirror.transfer.get().into(), card.transfer.get().into());
            check(Field::Segment, mirror.segment.into(), card.segment.into());
            check(Field::Address, mirror.address.get(), card.address.get());
            check(Field::Length, mirror.length, card.length);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::Mirror;
    use alloc::vec::Vec;
    use fpga_firmware::event::EventKind;

    fn event(kind: EventKind) -> Event {
        Event {
            index: 1,
            node: NodeId::new(7),
            incarnation: Incarnation::new(3),
            transfer: TransferId::new(9),
            segment: 2,
            address: CardAddr::new(0x1200),
            length: 512,
            time: 50,
            ..Event::new(kind)
        }
    }

    fn fields(mirror: &Mirror, card: Option<&EscapedPacket>) -> Vec<Field> {
        let mut fields = Vec::new();
        let count = mirror.compare_escaped(1, card, |found| {
            assert_eq!((found.table, found.index), (Table::Escape, 1));
            fields.push(found.field);
        });
        assert_eq!(count as usize, fields.len());
        fields
    }

    #[test]
    fn escape_mirror_single_differing_field_is_named() {
        let mut mirror = Mirror::new(0, 2);
        let card = EscapedPacket { since: Nanos::ZERO, ..EscapedPacket::of(&event(EventKind::Escaped)) };
        assert_eq!(fields(&mirror, None), []);
        assert_eq!(fields(&mirror, Some(&card)), [Field::Valid]);
        mirror.handle_event(&event(EventKind::Escaped)).unwrap();
        assert_eq!(fields(&mirror, Some(&card)), []);
        assert_eq!(fields(&mirror, None), [Field::Valid]);
        for (field, other) in [
            (Field::Source, EscapedPacket { node: NodeId::new(8), ..card }),
            (Field::Incarnation, EscapedPacket { incarnation: Incarnation::new(4), ..card }),
            (Field::Transfer, EscapedPacket { transfer: TransferId::new(8), ..card }),
            (Field::Segment, EscapedPacket { segment: 3, ..card }),
            (Field::Address, EscapedPacket { address: CardAddr::new(0x1201), ..card }),
            (Field::Length, EscapedPacket { length: 511, ..card }),
        ] {
            assert_eq!(fields(&mirror, Some(&other)), [field]);
        }
        assert_eq!(
            mirror.escaped().map(|(slot, packet)| (slot, packet.since.get())).collect::<Vec<_>>(),
            [(1, 50)]
        );
        mirror.handle_event(&event(EventKind::EscapeReleased)).unwrap();
        assert_eq!((mirror.escape_occupancy(), fields(&mirror, None)), (0, Vec::new()));
    }

    #[test]
    fn escape_mirror_inconsistent_events_are_reported_once() {
        let mut mirror = Mirror::new(0, 2);
        let vacant = Err(MirrorError::SlotVacant { slot: 1 });
        assert_eq!(mirror.handle_event(&event(EventKind::EscapeReleased)), vacant);
        mirror.handle_event(&event(EventKind::Escaped)).unwrap();
        let occupied = Err(MirrorError::SlotOccupied { slot: 1 });
        let other = Event { segment: 5, ..event(EventKind::Escaped) };
        assert_eq!(mirror.handle_event(&other), occupied);
        // The mirror follows the event: it now has the later packet.
        assert_eq!(mirror.escape_occupancy(), 1);
        let gone = Event { time: 99, kind: EventKind::EscapeReleased, ..other };
        assert_eq!(mirror.handle_event(&gone), Ok(()));
        mirror.handle_event(&event(EventKind::Escaped)).unwrap();
        assert_eq!(mirror.handle_event(&gone), vacant, "not the waiting packet");
        let far = Event { index: 2, ..event(EventKind::Escaped) };
        let error = MirrorError::Index { table: Table::Escape, index: 2, entries: 2 };
        assert_eq!(mirror.handle_event(&far), Err(error));
        assert_eq!(mirror.escape_occupancy(), 0);
    }
}
