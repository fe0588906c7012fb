//! The sender's fixed tables: transfers, the segments that are under way, and destinations.

use alloc::boxed::Box;

use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_registers::CardAddr;

use super::retry::RoundTrip;
use super::types::{Command, TransferError};
use crate::free::FreeSlots;
use crate::list::List;
use crate::receiver::SegmentWindow;
use crate::segment::TransferClass;
use crate::time::Nanos;
use fpga_registers::cast::index;

/// Where a transfer stands.
///
/// free -> queued (submit) -> under way (first packet) -> announcing (all acknowledged, the sender notifies) ->
/// finished (acknowledged, given up or cancelled; from any state but free) -> free (polled).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum TransferState {
    #[default]
    Free,
    Queued,
    InProgress,
    Announcing,
    Finished,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) generation: u32,
    pub(super) state: TransferState,
    pub(super) class: TransferClass,
    pub(super) command: Command,
    pub(super) destination: u32,
    /// Valid from the first packet on.
    pub(super) id: TransferId,
    /// The in-place head: what the next segment starts from (spec 2.1.2).
    pub(super) next_source: CardAddr,
    pub(super) next_base: CardAddr,
    pub(super) remaining: u64,
    pub(super) next_segment: u32,
    pub(super) segments: u32,
    /// The segment whose packets have not all got an op number yet.
    pub(super) partial: Option<u16>,
    /// Segments cut and not acknowledged.
    pub(super) outstanding: u32,
    pub(super) done: SegmentWindow,
    pub(super) acknowledged: u64,
    pub(super) packets: u64,
    pub(super) retransmits: u64,
    /// Order of arrival, and how many big segments had been issued by then.
    pub(super) arrival: u64,
    pub(super) big_issues_at_arrival: u64,
    pub(super) started: Nanos,
    pub(super) finished: Nanos,
    /// When something came back, or the first packet left.
    pub(super) progress: Nanos,
    /// When the latest packet left that was answered, or the first one: the receiver remembered the transfer then. Earlier than
    /// `progress`, and much so where answers have waited for a host that stood still.
    pub(super) remembered: Nanos,
    /// When its receiver said first in a row that its host is not ready for the notification.
    pub(super) not_ready: Option<Nanos>,
    pub(super) result: Result<(), TransferError>,
}

impl Transfer {
    pub(super) const EMPTY: Self = Self {
        generation: 0,
        state: TransferState::Free,
        class: TransferClass::Regular,
        command: Command {
            source: CardAddr::ZERO,
            node: NodeId::ANY,
            destination: CardAddr::ZERO,
            length: 0,
            key: 0,
            notify: super::types::Notify::Receiver,
            deadline: None,
            priority: 0,
        },
        destination: 0,
        id: TransferId::new(0),
        next_source: CardAddr::ZERO,
        next_base: CardAddr::ZERO,
        remaining: 0,
        next_segment: 0,
        segments: 0,
        partial: None,
        outstanding: 0,
        done: SegmentWindow::EMPTY,
        acknowledged: 0,
        packets: 0,
        retransmits: 0,
        arrival: 0,
        big_issues_at_arrival: 0,
        started: Nanos::ZERO,
        finished: Nanos::ZERO,
        progress: Nanos::ZERO,
        remembered: Nanos::ZERO,
        not_ready: None,
        result: Ok(()),
    };
}

/// A segment from its cut to its last acknowledgement.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Segment {
    pub(super) in_use: bool,
    pub(super) transfer: u32,
    pub(super) index: u32,
    pub(super) source: CardAddr,
    pub(super) base: CardAddr,
    pub(super) length: u32,
    pub(super) packets: u16,
    /// Packets that got an op number.
    pub(super) issued: u16,
    pub(super) acknowledged: u16,
    pub(super) start: StartState,
}

impl Segment {
    /// Whether the receiver expects its packets, as far as the sender knows.
    pub(super) fn is_expected(&self) -> bool {
        self.start.known != Nanos::MAX
    }
}

/// What is known of a segment's first packet. The others are of no use before it: the receiver keeps them aside meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StartState {
    /// Its op number.
    pub(super) op: OpNumber,
    /// When it was first sent, or when the latest try of it was sent that was refused: the receiver had no entry before.
    pub(super) first: Nanos,
    /// When it was last sent again; zero if never.
    pub(super) again: Nanos,
    /// When it was acknowledged: whatever is sent from then on, the receiver expects. [`Nanos::MAX`] if it was not.
    pub(super) known: Nanos,
}

impl Default for StartState {
    fn default() -> Self {
        Self { op: OpNumber::new(0), first: Nanos::ZERO, again: Nanos::ZERO, known: Nanos::MAX }
    }
}

/// The segment records and those that are free.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    records: Box<[Segment]>,
    free: FreeSlots,
}

impl Segments {
    /// Bytes of state of one record, and of its place in the list of free ones.
    pub(super) const BYTES: usize = size_of::<Segment>() + size_of::<u16>();

    pub(super) fn capacity(&self) -> u64 {
        self.records.len() as u64
    }

    pub(super) fn new(capacity: u16) -> Self {
        Self {
            records: alloc::vec![Segment::default(); usize::from(capacity)].into_boxed_slice(),
            free: FreeSlots::all(capacity.into()),
        }
    }

    pub(super) fn take(&mut self, segment: Segment) -> Option<u16> {
        let slot = self.free.pop()?;
        self.records[usize::from(slot)] = Segment { in_use: true, ..segment };
        Some(slot)
    }

    pub(super) fn release(&mut self, slot: u16) {
        let record = &mut self.records[usize::from(slot)];
        if core::mem::take(&mut record.in_use) {
            self.free.push(slot);
        }
    }

    pub(super) fn get(&self, slot: u16) -> &Segment {
        &self.records[usize::from(slot)]
    }

    pub(super) fn get_mut(&mut self, slot: u16) -> &mut Segment {
        &mut self.records[usize::from(slot)]
    }

    pub(super) fn has_free(&self) -> bool {
        self.free.len() != 0
    }

    pub(super) fn in_use(&self) -> usize {
        self.records.len() - self.free.len()
    }

    /// Those in use.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Segment)> {
        (0..).zip(&self.records).filter(|(_, record)| record.in_use)
    }

    pub(super) fn find(&self, mut wanted: impl FnMut(&Segment) -> bool) -> Option<u16> {
        let slot = self.records.iter().position(|record| record.in_use && wanted(record))?;
        u16::try_from(slot).ok()
    }
}

/// When round trips to a node were learnt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SampleTimes {
    /// What was sent before has the initial timeout.
    pub(super) first: Nanos,
    pub(super) latest: Nanos,
}

/// One node that has, or had, transfers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination {
    pub(super) node: NodeId,
    /// Id of the next transfer that gets under way.
    pub(super) next_id: TransferId,
    pub(super) regular: List,
    pub(super) big: List,
    /// Transfers under way, by id: the head is the oldest live one.
    pub(super) live: List,
    /// Transfers in either queue or under way.
    pub(super) transfers: u32,
    pub(super) in_flight: u32,
    /// Whether the last news was a deadline that passed: no new packets until something comes back.
    pub(super) suspect: bool,
    /// Transfers under way whose notification the receiving host has no room for.
    pub(super) not_ready: u32,
    /// Regular commands in the queue that were there when the last big segment left.
    pub(super) must_pass: u32,
    pub(super) trip: RoundTrip,
    /// When the first and the latest sample of it was taken.
    pub(super) sampled: SampleTimes,
    /// The node's life, and the one before; 0 if unknown.
    pub(super) life: Incarnation,
    pub(super) former_incarnation: Incarnation,
}

/// The destinations; a record without transfers can be given to another node.
#[derive(Clone, Debug)]
pub(super) struct Destinations {
    records: Box<[Destination]>,
    used: u32,
    /// Where numbering starts for a node without a record: above every id that an evicted record had given out, so
    /// that no id is used twice towards one node.
    floor: TransferId,
}

impl Destinations {
    /// Bytes of state of one record.
    pub(super) const BYTES: usize = size_of::<Destination>();

    pub(super) fn new(capacity: u32, first: TransferId) -> Self {
        let empty = Destination {
            node: NodeId::ANY,
            next_id: TransferId::new(0),
            regular: List::EMPTY,
            big: List::EMPTY,
            live: List::EMPTY,
            transfers: 0,
            in_flight: 0,
            suspect: false,
            not_ready: 0,
            must_pass: 0,
            trip: RoundTrip::default(),
            sampled: SampleTimes::default(),
            life: Incarnation::new(0),
            former_incarnation: Incarnation::new(0),
        };
        Self { records: alloc::vec![empty; index(capacity)].into_boxed_slice(), used: 0, floor: first }
    }

    pub(super) fn capacity(&self) -> u32 {
        u32::try_from(self.records.len()).unwrap_or(u32::MAX)
    }

    /// Records that were ever used: the ones worth looking at.
    pub(super) const fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn get(&self, at: u32) -> &Destination {
        &self.records[index(at)]
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut Destination {
        &mut self.records[index(at)]
    }

    /// The record of `node`, made if need be; `None` if every record has transfers.
    pub(super) fn find_or_make(&mut self, node: NodeId) -> Option<u32> {
        let mut idle = None;
        for at in 0..self.used {
            let record = self.get(at);
            if record.node == node {
                return Some(at);
            }
            if idle.is_none() && record.transfers == 0 {
                idle = Some(at);
            }
        }
        let at = if self.used < self.capacity() {
            self.used += 1;
            self.used - 1
        } else {
            let at = idle?;
            let evicted = self.get(at).next_id;
            if self.floor.is_older_than(evicted) {
                self.floor = evicted;
            }
            at
        };
        let floor = self.floor;
        let record = self.get_mut(at);
        record.node = node;
        record.next_id = floor;
        record.in_flight = 0;
        record.suspect = false;
        record.not_ready = 0;
        record.must_pass = 0;
        record.trip = RoundTrip::default();
        record.sampled = SampleTimes::default();
        record.life = Incarnation::new(0);
        record.former_incarnation = Incarnation::new(0);
        Some(at)
    }
}
