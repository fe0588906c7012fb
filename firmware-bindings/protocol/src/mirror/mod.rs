//! Host mirror of a card's receive registry and escape channel, built from events alone.
//!
//! This file is longer than most: every event changes the same tables, and the comparison with the card depends on what each one leaves.
//!
//! The caller passes every event in order, then compares entries and slots of the card's windows with the mirror. Every
//! field that differs is reported. A difference means a lost or reordered event, or a card that does not do what it
//! reports.
//!
//! The card drops events of its tables when the host does not consume them, and reports it by one Dropped event. From
//! then on the mirror is *stale* ([`Mirror::is_stale`]) and ignores events, until it is resynchronised from the card's
//! windows: [`Mirror::begin_resync`], then [`Mirror::read_entry`] and [`Mirror::read_slot`] for each entry and slot,
//! then [`Mirror::end_resync_read`]. Changes during the resynchronisation raise events that follow after the Dropped
//! event was returned to the card. These events may repeat what was read already. They are applied in order without an
//! error, so that the last one about an entry decides, until the caller has passed all of them and calls
//! [`Mirror::end_resync`].
//!
//! Fields that no event carries are not compared. The mask of a segment is only known while the NI reports every packet
//! ([`Mirror::track_masks`]); its first packet is 0. The mask and first packet of a message change without an event.
//! Never known are:
//!
//! * ages, which change with time;
//! * the length of an entry's transfer, for which the registration event has no space beside the segment's length (the
//!   notification carries it at the end);
//! * op number and try count of an escaped packet, which a retransmission changes without an event, so that
//!   retransmissions cannot fill the ring.

mod escape;

use alloc::boxed::Box;

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::generated::{Flags, Scheme};
use fpga_firmware::ids::{Incarnation, NodeId, SegmentIndex, TransferId};
use fpga_registers::{CardAddr, quantity};

use crate::receiver::{EntryView, Mask};
use crate::time::Nanos;
use escape::EscapeMirror;
pub use escape::EscapedPacket;

/// State of an operation in progress, derived from events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation {
    /// Sender.
    pub node: NodeId,
    /// Incarnation of the sender.
    pub incarnation: Incarnation,
    /// Transfer of the sender.
    pub transfer: TransferId,
    /// Segment within the transfer.
    pub segment: SegmentIndex,
    /// Address of the first byte.
    pub base: CardAddr,
    /// Length in bytes.
    pub length: u64,
    /// Number of packets.
    pub expected: u32,
    /// Number of segments of the transfer.
    pub segment_count: u32,
    /// Whether its completion raises no event at the sender.
    pub silent: bool,
    /// Whether the receiver raises a notification when the whole transfer has arrived.
    pub notify: bool,
    /// Scheme by which it is received; `None`: a scheme unknown to this software.
    pub scheme: Option<Scheme>,
    /// Packets in memory; `None` for messages, and where the NI does not report every packet.
    pub mask: Option<Mask>,
    /// Card time of its registration.
    pub registered: Nanos,
    /// Card time of the last event about it.
    pub touched: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct MirrorEntry {
    /// Unknown until the first event about the entry.
    generation: Option<u32>,
    operation: Option<Operation>,
}

/// Mirrored table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// The receive registry.
    Registry,
    /// The escape channel.
    Escape,
}

impl core::fmt::Display for Table {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Registry => "registry entry",
            Self::Escape => "escape slot",
        })
    }
}

/// Field of a registry entry or an escape slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// Whether an operation is in progress, or a packet waits.
    Valid,
    /// Number of uses of the entry.
    Generation,
    /// Sender.
    Source,
    /// Incarnation of the sender.
    Incarnation,
    /// Transfer.
    Transfer,
    /// Segment.
    Segment,
    /// Address of the first byte of an operation.
    Base,
    /// Destination address of an escaped packet.
    Address,
    /// Length in bytes.
    Length,
    /// Number of packets.
    Expected,
    /// Number of segments of the transfer.
    SegmentCount,
    /// Whether its completion raises no event at the sender.
    Silent,
    /// Whether the receiver raises a notification for the transfer.
    Notify,
    /// Scheme by which it is received.
    Scheme,
    /// Packet of bit 0 of the mask.
    First,
    /// Word of the mask.
    Mask {
        /// Index of the word.
        word: u8,
    },
}

/// Field in which mirror and card differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{table} {index}: {field:?} is {card:#x} on the card, but {mirror:#x} according to its events")]
pub struct Difference {
    /// Table of the entry.
    pub table: Table,
    /// Index of the entry or slot.
    pub index: u16,
    /// The field.
    pub field: Field,
    /// Value according to the events.
    pub mirror: u64,
    /// Value in the card's window.
    pub card: u64,
}

/// Event that contradicts the earlier events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MirrorError {
    /// The entry or slot does not exist.
    #[error(
        "an event names {table} {index}, but the table has {entries}: the event or the capability register is wrong",
        entries = quantity(*entries, "entry"),
    )]
    Index {
        /// Table named.
        table: Table,
        /// Entry named.
        index: u16,
        /// Number of entries of the table.
        entries: u16,
    },
    /// An operation was registered in an entry whose operation is in progress.
    #[error(
        "entry {index} was registered while its operation of generation {generation} was in progress: an event is missing"
    )]
    Occupied {
        /// Entry named.
        index: u16,
        /// Generation in progress.
        generation: u32,
    },
    /// An event names an operation that is not in progress.
    #[error(
        "an event names generation {generation} of entry {index}, which is not in progress: an event is missing"
    )]
    NotInProgress {
        /// Entry named.
        index: u16,
        /// Generation named.
        generation: u32,
    },
    /// A packet was stored in an escape slot that is occupied.
    #[error("a packet was stored in escape slot {slot}, which is occupied: an event is missing")]
    SlotOccupied {
        /// Slot named.
        slot: u16,
    },
    /// A packet left an escape slot that is vacant or holds another packet.
    #[error("a packet was removed from escape slot {slot}, which does not hold it: an event is missing")]
    SlotVacant {
        /// Slot named.
        slot: u16,
    },
}

/// Mirror; see the module documentation.
#[derive(Clone, Debug)]
pub struct Mirror {
    places: Box<[MirrorEntry]>,
    masks: bool,
    occupancy: u16,
    escape: EscapeMirror,
    phase: Phase,
    /// Card time of the latest event.
    latest: Nanos,
}

/// Treatment of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Events are complete and checked.
    InSync,
    /// Events were dropped: the content is unknown.
    Stale,
    /// The card's windows are being read.
    Resyncing,
    /// The windows were read; events may repeat what was read.
    Settling,
}

impl Mirror {
    /// Creates a mirror of a registry of `entries` entries and an escape channel of `slots` slots, all vacant.
    #[must_use]
    pub fn new(entries: u16, slots: u16) -> Self {
        Self {
            escape: EscapeMirror::new(slots),
            places: alloc::vec![MirrorEntry::default(); usize::from(entries)].into_boxed_slice(),
            masks: false,
            occupancy: 0,
            phase: Phase::InSync,
            latest: Nanos::ZERO,
        }
    }

    /// Returns the tables and the bytes of state per entry.
    #[must_use]
    pub fn state(&self) -> [crate::state::StateTable; 2] {
        let escape = (self.escape.capacity(), EscapeMirror::BYTES);
        [
            ("mirror of the registry", (self.places.len(), size_of::<MirrorEntry>())),
            ("mirror of the escape channel", escape),
        ]
        .map(|(name, (entries, bytes))| crate::state::StateTable::new(name, entries as u64, bytes))
    }

    /// Sets whether the NI reports every packet, so that masks of segments are compared, too. Applies to operations
    /// registered from now on.
    pub fn track_masks(&mut self, on: bool) {
        self.masks = on;
    }

    /// Returns the number of operations in progress.
    #[must_use]
    pub const fn occupancy(&self) -> u16 {
        self.occupancy
    }

    /// Returns the operations in progress, with their entries.
    pub fn operations(&self) -> impl Iterator<Item = (u16, &Operation)> + '_ {
        (0..).zip(&self.places).filter_map(|(index, place)| Some((index, place.operation.as_ref()?)))
    }

    /// Returns the operation in progress in entry `index`; `None` without one.
    #[must_use]
    pub fn operation(&self, index: u16) -> Option<&Operation> {
        self.places.get(usize::from(index))?.operation.as_ref()
    }

    /// Returns the number of packets in the escape channel.
    #[must_use]
    pub const fn escape_occupancy(&self) -> u16 {
        self.escape.occupancy()
    }

    /// Returns the packets in the escape channel, with their slots.
    pub fn escaped(&self) -> impl Iterator<Item = (u16, &EscapedPacket)> + '_ {
        self.escape.packets()
    }

    /// Compares escape slot `index`, as the card's window shows it (`None`: vacant), with the mirror. Calls `report`
    /// once per field that differs and returns the number of differences.
    pub fn compare_escaped(
        &self,
        index: u16,
        card: Option<&EscapedPacket>,
        report: impl FnMut(Difference),
    ) -> u32 {
        self.escape.compare(index, card, report)
    }

    /// Whether events were dropped and the card's windows have not been read completely since: the content is out of
    /// date.
    #[must_use]
    pub const fn is_stale(&self) -> bool {
        matches!(self.phase, Phase::Stale | Phase::Resyncing)
    }

    /// Begins the resynchronisation: every entry and slot is vacant until it is read. To be called after the Dropped
    /// event was returned to the card.
    pub fn begin_resync(&mut self) {
        self.phase = Phase::Resyncing;
        self.places.fill(MirrorEntry::default());
        self.occupancy = 0;
        self.escape.clear();
    }

    /// Sets registry entry `index` from the card's window. Ages are converted to times relative to the card's latest
    /// event.
    pub fn read_entry(&mut self, index: u16, card: &EntryView) {
        let Some(place) = self.places.get_mut(usize::from(index)) else { return };
        let touched = self.latest.saturating_sub(card.age);
        let tells_packets = self.masks && card.scheme == Scheme::Registry;
        self.occupancy -= u16::from(place.operation.is_some());
        self.occupancy += u16::from(card.valid);
        *place = MirrorEntry {
            generation: card.valid.then_some(card.generation),
            operation: card.valid.then(|| Operation {
                node: card.source,
                incarnation: card.incarnation,
                transfer: card.transfer,
                segment: card.segment,
                base: card.base,
                length: card.length.into(),
                expected: card.expected.into(),
                segment_count: card.segment_count,
                silent: card.silent,
                notify: card.notify,
                scheme: Some(card.scheme),
                mask: tells_packets.then(|| Mask::from_words(card.mask)),
                registered: touched,
                touched,
            }),
        };
    }

    /// Sets escape slot `index` from the card's window (`None`: vacant); `age`: time since the packet was stored.
    pub fn read_slot(&mut self, index: u16, card: Option<&EscapedPacket>, age: Nanos) {
        let since = self.latest.saturating_sub(age);
        self.escape.read(index, card.map(|packet| EscapedPacket { since, ..*packet }));
    }

    /// Ends the reading of the windows: the mirror is no longer stale.
    pub fn end_resync_read(&mut self) {
        if self.phase == Phase::Resyncing {
            self.phase = Phase::Settling;
        }
    }

    /// Ends the resynchronisation: all events that could repeat what was read have been passed. Events are checked
    /// again.
    pub fn end_resync(&mut self) {
        if self.phase == Phase::Settling {
            self.phase = Phase::InSync;
        }
    }

    /// Applies one event. Events that concern neither registry nor escape channel are ignored.
    ///
    /// # Errors
    /// [`MirrorError`] for an event that contradicts the earlier ones. The mirror follows the event as far as it can,
    /// so that one lost event is reported only once.
    pub fn handle_event(&mut self, event: &Event) -> Result<(), MirrorError> {
        self.latest = Nanos::new(event.time);
        if event.kind == EventKind::Dropped {
            self.phase = Phase::Stale;
        }
        let taken = match (self.phase, event.kind) {
            (Phase::Stale, _) => return Ok(()),
            (_, kind) => self.apply(kind, event),
        };
        if self.phase == Phase::InSync { taken } else { Ok(()) }
    }

    fn apply(&mut self, kind: EventKind, event: &Event) -> Result<(), MirrorError> {
        match kind {
            EventKind::Registered | EventKind::Packet | EventKind::Completed | EventKind::Expired => {
                self.handle_entry(event)
            }
            EventKind::Escaped => self.escape.escaped(event),
            EventKind::EscapeReleased => self.escape.released(event),
            _ => Ok(()),
        }
    }

    fn handle_entry(&mut self, event: &Event) -> Result<(), MirrorError> {
        let Event { index, generation, .. } = *event;
        let entries = u16::try_from(self.places.len()).unwrap_or(u16::MAX);
        let is_exact = self.phase == Phase::InSync;
        let place = self.places.get_mut(usize::from(index)).ok_or(MirrorError::Index {
            table: Table::Registry,
            index,
            entries,
        })?;
        let current = place.operation.is_some() && place.generation == Some(generation);
        let mismatch = MirrorError::NotInProgress { index, generation };
        match event.kind {
            EventKind::Registered => {
                let before = place.operation.is_some().then_some(place.generation).flatten();
                self.occupancy += u16::from(place.operation.is_none());
                let (flags, scheme) =
                    event.registration().map_or((Flags::NONE, None), |how| (how.flags, how.scheme));
                let mask = if flags.contains(Flags::TRIMMED) { Mask::none_of } else { Mask::first_of };
                let expected = u16::try_from(event.count).ok().and_then(mask);
                let tells_packets = self.masks && scheme == Some(Scheme::Registry);
                *place = MirrorEntry {
                    generation: Some(generation),
                    operation: Some(Operation {
                        node: event.node,
                        incarnation: event.incarnation,
                        transfer: event.transfer,
                        segment: event.segment,
                        base: event.address,
                        length: event.length,
                        expected: event.count,
                        segment_count: event.op.get(),
                        silent: flags.contains(Flags::SILENT),
                        notify: flags.contains(Flags::NOTIFY_RECEIVER),
                        scheme,
                        mask: expected.filter(|_| tells_packets),
                        registered: Nanos::new(event.time),
                        touched: Nanos::new(event.time),
                    }),
                };
                before.map_or(Ok(()), |generation| Err(MirrorError::Occupied { index, generation }))
            }
            EventKind::Packet => {
                // While settling, the event may belong to an operation before the one that was read.
                if let Some(operation) = place.operation.as_mut().filter(|_| current || is_exact) {
                    operation.touched = Nanos::new(event.time);
                    if let (Some(mask), Ok(bit)) = (&mut operation.mask, u16::try_from(event.count)) {
                        mask.insert(bit);
                    }
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

    /// Compares entry `index`, as the card's window shows it, with the mirror. Calls `report` once per field that
    /// differs and returns the number of differences.
    pub fn compare(&self, index: u16, card: &EntryView, mut report: impl FnMut(Difference)) -> u32 {
        let Some(place) = self.places.get(usize::from(index)) else { return 0 };
        let mut count = 0;
        let mut check = |field, mirror: u64, card: u64| {
            if mirror != card {
                count += 1;
                report(Difference { table: Table::Registry, index, field, mirror, card });
            }
        };
        check(Field::Valid, place.operation.is_some().into(), card.valid.into());
        if let Some(generation) = place.generation {
            // The window of a vacant entry may show no generation.
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
        check(Field::SegmentCount, operation.segment_count.into(), card.segment_count.into());
        check(Field::Silent, operation.silent.into(), card.silent.into());
        check(Field::Notify, operation.notify.into(), card.notify.into());
        if let Some(scheme) = operation.scheme {
            check(Field::Scheme, scheme.value().into(), card.scheme.value().into());
        }
        if operation.scheme == Some(Scheme::Registry) {
            check(Field::First, 0, card.first.into());
        }
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
    use fpga_firmware::event::Registration;
    use fpga_firmware::ids::OpNumber;

    fn registered() -> Event {
        Event {
            index: 1,
            generation: 4,
            node: NodeId::new(7),
            count: 3,
            address: CardAddr::new(0x1000),
            length: 1100,
            op: OpNumber::new(1),
            tries: Registration::byte(Flags::NOTIFY_RECEIVER, Scheme::Registry),
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
            segment_count: 1,
            notify: true,
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
    fn mirror_differing_fields_are_all_named() {
        let mut mirror = Mirror::new(2, 2);
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

    /// Changes one field at a time, so that no field masks another.
    #[test]
    fn mirror_single_differing_field_is_named() {
        let mut mirror = Mirror::new(2, 0);
        mirror.track_masks(true);
        mirror.handle_event(&registered()).unwrap();
        let mut cases = alloc::vec![
            (Field::Valid, EntryView { valid: false, ..on_card() }),
            (Field::Generation, EntryView { generation: 5, ..on_card() }),
            (Field::Source, EntryView { source: NodeId::new(6), ..on_card() }),
            (Field::Incarnation, EntryView { incarnation: Incarnation::new(1), ..on_card() }),
            (Field::Transfer, EntryView { transfer: TransferId::new(1), ..on_card() }),
            (Field::Segment, EntryView { segment: 1, ..on_card() }),
            (Field::Base, EntryView { base: CardAddr::new(0x1001), ..on_card() }),
            (Field::Length, EntryView { length: 1101, ..on_card() }),
            (Field::Expected, EntryView { expected: 4, ..on_card() }),
            (Field::SegmentCount, EntryView { segment_count: 2, ..on_card() }),
            (Field::Silent, EntryView { silent: true, ..on_card() }),
            (Field::Notify, EntryView { notify: false, ..on_card() }),
            (Field::Scheme, EntryView { scheme: Scheme::Selective, ..on_card() }),
            (Field::First, EntryView { first: 1, ..on_card() }),
        ];
        for word in 0..8u8 {
            let mut other = on_card();
            other.mask[usize::from(word)] ^= 0x10;
            cases.push((Field::Mask { word }, other));
        }
        for (field, other) in cases {
            assert_eq!(fields(&mirror, &other), [field]);
        }
    }

    /// Mask and first packet of a message change without an event; its scheme does not change.
    #[test]
    fn mirror_message_compares_scheme_not_window() {
        let mut mirror = Mirror::new(2, 0);
        mirror.track_masks(true);
        let tries = Registration::byte(Flags::NOTIFY_RECEIVER, Scheme::Selective);
        mirror.handle_event(&Event { tries, ..registered() }).unwrap();
        let card = EntryView { scheme: Scheme::Selective, first: 2, mask: [7; 8], ..on_card() };
        assert_eq!(fields(&mirror, &card), []);
        for other in Scheme::ALL.iter().filter(|other| **other != Scheme::Selective) {
            assert_eq!(fields(&mirror, &EntryView { scheme: *other, ..card }), [Field::Scheme]);
        }
        // An unknown scheme is not compared.
        let unknown = Event { tries: tries | 0x70, generation: 5, ..registered() };
        assert!(mirror.handle_event(&unknown).is_err(), "in progress");
        assert_eq!(mirror.operations().next().unwrap().1.scheme, None);
        assert_eq!(fields(&mirror, &EntryView { generation: 5, ..card }), []);
    }

    #[test]
    fn mirror_resync_accepts_repeated_events() {
        let mut mirror = Mirror::new(2, 2);
        mirror.track_masks(true);
        mirror.handle_event(&registered()).unwrap();
        mirror.handle_event(&Event::new(EventKind::Dropped)).unwrap();
        assert!(mirror.is_stale());
        // Events are ignored now: they may refer to dropped ones.
        mirror.handle_event(&Event { generation: 9, ..registered_as(EventKind::Completed) }).unwrap();
        assert_eq!(mirror.occupancy(), 1);
        mirror.begin_resync();
        assert!(mirror.is_stale());
        mirror.read_entry(1, &on_card());
        mirror.read_slot(0, None, Nanos::ZERO);
        mirror.end_resync_read();
        assert!(!mirror.is_stale());
        assert_eq!((mirror.occupancy(), fields(&mirror, &on_card())), (1, Vec::new()));
        // Repeated events have no effect, both of the previous operation and of this one.
        let before = Event { generation: 3, ..registered_as(EventKind::Packet) };
        mirror.handle_event(&before).unwrap();
        assert_eq!(fields(&mirror, &on_card()), []);
        mirror.handle_event(&Event { generation: 3, ..registered_as(EventKind::Completed) }).unwrap();
        mirror.handle_event(&registered()).unwrap();
        assert_eq!(fields(&mirror, &on_card()), []);
        mirror.end_resync();
        assert_eq!(
            mirror.handle_event(&registered()),
            Err(MirrorError::Occupied { index: 1, generation: 4 })
        );
    }

    fn registered_as(kind: EventKind) -> Event {
        Event { kind, ..registered() }
    }

    #[test]
    fn mirror_inconsistent_events_are_reported_once() {
        let mut mirror = Mirror::new(2, 2);
        let far = Event { index: 2, ..registered() };
        assert_eq!(
            mirror.handle_event(&far),
            Err(MirrorError::Index { table: Table::Registry, index: 2, entries: 2 })
        );
        let gone = MirrorError::NotInProgress { index: 1, generation: 4 };
        assert_eq!(mirror.handle_event(&registered_as(EventKind::Completed)), Err(gone));
        mirror.handle_event(&registered()).unwrap();
        let next = Event { generation: 5, ..registered() };
        assert_eq!(mirror.handle_event(&next), Err(MirrorError::Occupied { index: 1, generation: 4 }));
        mirror.handle_event(&Event { generation: 5, ..registered_as(EventKind::Expired) }).unwrap();
        assert_eq!(mirror.occupancy(), 0);
    }
}
