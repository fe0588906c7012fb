//! The host's mirror of a card's receive registry, kept from events alone.
//!
//! Feed it every event in order, then hold an entry of the card's registry window against it: any field that differs is
//! reported. A difference means a lost or reordered event, or a registry that does not do what it reports.
//!
//! What an event does not carry is not compared: the mask is only known while the NI reports every packet
//! ([`Mirror::track_masks`]), and the age is never compared.

use alloc::boxed::Box;

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::ids::{Incarnation, NodeId, SegmentIndex, TransferId};
use fpga_registers::CardAddr;

use crate::receiver::{EntryView, Mask};

/// What the mirror believes about an operation in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    node: NodeId,
    incarnation: Incarnation,
    transfer: TransferId,
    segment: SegmentIndex,
    base: CardAddr,
    length: u64,
    expected: u32,
    mask: Option<Mask>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Unknown until the first event about the entry.
    generation: Option<u32>,
    operation: Option<Operation>,
}

/// A field of a registry entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// Whether an operation is in progress.
    Valid,
    /// How often the entry was used.
    Generation,
    /// Sender.
    Source,
    /// The sender's life.
    Incarnation,
    /// Transfer.
    Transfer,
    /// Segment.
    Segment,
    /// First byte.
    Base,
    /// Bytes.
    Length,
    /// Packets.
    Expected,
    /// A word of the mask.
    Mask {
        /// Which word.
        word: u8,
    },
}

/// One field on which mirror and card disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("registry entry {index}: {field:?} is {card:#x} on the card, {mirror:#x} by its events")]
pub struct Difference {
    /// The entry.
    pub index: u16,
    /// The field.
    pub field: Field,
    /// What the events said.
    pub mirror: u64,
    /// What the card's window shows.
    pub card: u64,
}

/// An event that cannot follow those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MirrorError {
    /// There is no such entry.
    #[error(
        "an event about registry entry {index}, of {entries}: the event or the capability register is wrong"
    )]
    Index {
        /// Entry named.
        index: u16,
        /// Entries of the registry.
        entries: u16,
    },
    /// An operation was registered where one is in progress.
    #[error(
        "entry {index} was registered while its operation of generation {generation} is in progress: an event is missing"
    )]
    Occupied {
        /// Entry named.
        index: u16,
        /// Generation in progress.
        generation: u32,
    },
    /// An operation moved or ended that is not the one in progress.
    #[error(
        "an event about generation {generation} of entry {index}, which is not in progress: an event is missing"
    )]
    NotInProgress {
        /// Entry named.
        index: u16,
        /// Generation named.
        generation: u32,
    },
}

/// The mirror; see the module's description.
#[derive(Clone, Debug)]
pub struct Mirror {
    places: Box<[Place]>,
    masks: bool,
    occupancy: u16,
}

impl Mirror {
    /// A mirror of a registry of `entries` entries, all vacant.
    #[must_use]
    pub fn new(entries: u16) -> Self {
        Self {
            places: alloc::vec![Place::default(); usize::from(entries)].into_boxed_slice(),
            masks: false,
            occupancy: 0,
        }
    }

    /// Whether the NI reports every packet, so that masks can be compared too. Holds for operations registered
    /// from now on.
    pub fn track_masks(&mut self, on: bool) {
        self.masks = on;
    }

    /// Operations in progress.
    #[must_use]
    pub const fn occupancy(&self) -> u16 {
        self.occupancy
    }

    /// Takes one event; those that are not about the registry are ignored.
    ///
    /// # Errors
    /// [`MirrorError`] for an event that contradicts those before. The mirror follows the event as far as it can, so that
    /// one lost event is reported once and not for ever.
    pub fn handle_event(&mut self, event: &Event) -> Result<(), MirrorError> {
        if !matches!(
            event.kind,
            EventKind::Registered | EventKind::Packet | EventKind::Completed | EventKind::Expired
        ) {
            return Ok(());
        }
        let Event { index, generation, .. } = *event;
        let entries = u16::try_from(self.places.len()).unwrap_or(u16::MAX);
        let place = self.places.get_mut(usize::from(index)).ok_or(MirrorError::Index { index, entries })?;
        let current = place.operation.is_some() && place.generation == Some(generation);
        let mismatch = MirrorError::NotInProgress { index, generation };
        match event.kind {
            EventKind::Registered => {
                let before = place.operation.is_some().then_some(place.generation).flatten();
                self.occupancy += u16::from(place.operation.is_none());
                let expected = u16::try_from(event.count).ok().and_then(Mask::first_of);
                *place = Place {
                    generation: Some(generation),
                    operation: Some(Operation {
                        node: event.node,
                        incarnation: event.incarnation,
                        transfer: event.transfer,
                        segment: event.segment,
                        base: event.address,
                        length: event.length,
                        expected: event.count,
                        mask: expected.filter(|_| self.masks),
                    }),
                };
                before.map_or(Ok(()), |generation| Err(MirrorError::Occupied { index, generation }))
            }
            EventKind::Packet => {
                let mask = place.operation.as_mut().and_then(|operation| operation.mask.as_mut());
                if let (Some(mask), Ok(bit)) = (mask, u16::try_from(event.count)) {
                    mask.insert(bit);
                }
                if current { Ok(()) } else { Err(mismatch) }
            }
            _ => {
                self.occupancy -= u16::from(place.operation.is_some());
                place.operation = None;
                place.generation = Some(generation);
                if current { Ok(()) } else { Err(mismatch) }
            }
        }
    }

    /// Holds entry `index`, as the card's window shows it, against the mirror; calls `report` once per field that differs
    /// and returns how many did.
    pub fn compare(&self, index: u16, card: &EntryView, mut report: impl FnMut(Difference)) -> u32 {
        let Some(place) = self.places.get(usize::from(index)) else { return 0 };
        let mut count = 0;
        let mut check = |field, mirror: u64, card: u64| {
            if mirror != card {
                count += 1;
                report(Difference { index, field, mirror, card });
            }
        };
        check(Field::Valid, place.operation.is_some().into(), card.valid.into());
        if let Some(generation) = place.generation {
            // A vacant entry's window may show no generation.
            if card.valid {
                check(Field::Generation, generation.into(), card.generation.into());
            }
        }
        let Some(operation) = place.operation.filter(|_| card.valid) else { return count };
        check(Field::Source, operation.node.get().into(), card.source.get().into());
        check(Field::Incarnation, operation.incarnation.get().into(), card.incarnation.get().into());
        check(Field::Transfer, operation.transfer.get().into(), card.transfer.get().into());
        check(Field::Segment, operation.segment.into(), card.segment.into());
        check(Field::Base, operation.base.get(), card.base.get());
        check(Field::Length, operation.length, card.length.into());
        check(Field::Expected, operation.expected.into(), card.expected.into());
        if let Some(mask) = operation.mask {
            for (word, (mirror, card)) in (0u8..).zip(mask.words().into_iter().zip(card.mask)) {
                check(Field::Mask { word }, mirror.into(), card.into());
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn registered() -> Event {
        Event {
            index: 1,
            generation: 4,
            node: NodeId::new(7),
            count: 3,
            address: CardAddr::new(0x1000),
            length: 1100,
            ..Event::new(EventKind::Registered)
        }
    }

    fn on_card() -> EntryView {
        EntryView {
            valid: true,
            generation: 4,
            source: NodeId::new(7),
            base: CardAddr::new(0x1000),
            length: 1100,
            expected: 3,
            mask: Mask::first_of(3).map_or([0; 8], |mask| mask.words()),
            ..EntryView::vacant(4)
        }
    }

    fn fields(mirror: &Mirror, card: &EntryView) -> Vec<Field> {
        let mut fields = Vec::new();
        let count = mirror.compare(1, card, |difference| fields.push(difference.field));
        assert_eq!(count as usize, fields.len());
        fields
    }

    #[test]
    fn every_field_that_differs_is_named() {
        let mut mirror = Mirror::new(2);
        mirror.track_masks(true);
        assert_eq!(fields(&mirror, &on_card()), [Field::Valid]);
        mirror.handle_event(&registered()).unwrap();
        assert_eq!(fields(&mirror, &on_card()), []);
        let other = EntryView { base: CardAddr::new(0x1001), expected: 4, mask: [9; 8], ..on_card() };
        assert_eq!(fields(&mirror, &other)[..2], [Field::Base, Field::Expected]);
        assert_eq!(fields(&mirror, &other).len(), 10);
        mirror.handle_event(&Event { count: 2, ..registered_as(EventKind::Packet) }).unwrap();
        assert_eq!(fields(&mirror, &on_card()), [Field::Mask { word: 0 }]);
        mirror.handle_event(&registered_as(EventKind::Completed)).unwrap();
        assert_eq!(fields(&mirror, &EntryView::vacant(0)), []);
        assert_eq!(mirror.occupancy(), 0);
    }

    fn registered_as(kind: EventKind) -> Event {
        Event { kind, ..registered() }
    }

    #[test]
    fn events_that_do_not_fit_are_reported_once() {
        let mut mirror = Mirror::new(2);
        let far = Event { index: 2, ..registered() };
        assert_eq!(mirror.handle_event(&far), Err(MirrorError::Index { index: 2, entries: 2 }));
        let gone = MirrorError::NotInProgress { index: 1, generation: 4 };
        assert_eq!(mirror.handle_event(&registered_as(EventKind::Completed)), Err(gone));
        mirror.handle_event(&registered()).unwrap();
        let next = Event { generation: 5, ..registered() };
        assert_eq!(mirror.handle_event(&next), Err(MirrorError::Occupied { index: 1, generation: 4 }));
        mirror.handle_event(&Event { generation: 5, ..registered_as(EventKind::Expired) }).unwrap();
        assert_eq!(mirror.occupancy(), 0);
    }
}
