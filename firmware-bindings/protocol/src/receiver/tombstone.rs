//! Receiver state beyond the registry: the completed transfers of each sender, and the progress of the live ones (spec
//! 2.2.5, 2.2.8).
//!
//! A sender numbers its transfers towards one node without gaps, in the order in which they start, and every packet
//! names the oldest transfer that is still live. Therefore a late packet is distinguished from a new one with bounded
//! memory and without a timer: ids below the oldest live one are over; above it, completed ids form at most one range
//! per live transfer, plus one. Each range is a tombstone that covers any number of transfers [E1-4].

use alloc::boxed::Box;

use fpga_firmware::generated::Flags;
use fpga_firmware::ids::{Incarnation, NodeId, TransferId};
use fpga_registers::CardAddr;

use fpga_registers::cast::low16;

use super::mask::SegmentWindow;
use crate::scheme::bits::PacketSet;
use crate::slot_index::SlotIndex;
use crate::time::Nanos;

/// Range of completed transfers: the first one and the number that follow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct TransferRange {
    first: u32,
    len: u32,
}

/// Completed transfers of one sender that are not older than its oldest live one: sorted ranges that neither touch nor
/// overlap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Completed {
    oldest_live: TransferId,
    runs: Box<[TransferRange]>,
    used: u16,
}

impl Completed {
    fn new(capacity: u16) -> Self {
        Self {
            oldest_live: TransferId::new(0),
            runs: alloc::vec![TransferRange::default(); usize::from(capacity)].into_boxed_slice(),
            used: 0,
        }
    }

    fn reset(&mut self, oldest_live: TransferId) {
        self.oldest_live = oldest_live;
        self.runs.fill(TransferRange::default());
        self.used = 0;
    }

    pub(super) const fn oldest_live(&self) -> TransferId {
        self.oldest_live
    }

    pub(super) const fn used(&self) -> u16 {
        self.used
    }

    fn live_runs(&self) -> &[TransferRange] {
        self.runs.get(..usize::from(self.used)).unwrap_or_default()
    }

    /// Returns the distance from the oldest live transfer. Ids wrap; live ones lie within 2^31 of each other.
    const fn offset(&self, id: u32) -> u32 {
        id.wrapping_sub(self.oldest_live.get())
    }

    /// Whether `transfer` is over.
    #[inline]
    pub(super) fn contains(&self, transfer: TransferId) -> bool {
        transfer.is_older_than(self.oldest_live)
            || self.live_runs().iter().any(|run| transfer.get().wrapping_sub(run.first) < run.len)
    }

    /// Whether completing `transfer` would extend an existing range, and so need no new one.
    pub(super) fn is_adjacent(&self, transfer: TransferId) -> bool {
        let id = transfer.get();
        transfer == self.oldest_live
            || self
                .live_runs()
                .iter()
                .any(|run| run.first == id.wrapping_add(1) || run.first.wrapping_add(run.len) == id)
    }

    /// Records the oldest live transfer that a packet carries, if it is newer. Returns whether it was.
    #[inline]
    pub(super) fn advance(&mut self, oldest_live: TransferId) -> bool {
        if !self.oldest_live.is_older_than(oldest_live) {
            return false;
        }
        let passed = self.offset(oldest_live.get());
        let mut kept = 0;
        for at in 0..usize::from(self.used) {
            let run = self.runs[at];
            let end = self.offset(run.first) + run.len;
            if end > passed {
                let cut = passed.saturating_sub(self.offset(run.first));
                self.runs[kept] = TransferRange { first: run.first.wrapping_add(cut), len: run.len - cut };
                kept += 1;
            }
        }
        // Cleared, so that equal states compare equal.
        self.runs[kept..].fill(TransferRange::default());
        self.used = u16::try_from(kept).unwrap_or(u16::MAX);
        self.oldest_live = oldest_live;
        true
    }

    /// Records a completed transfer. Callers admit a transfer only while there is space for its tombstone.
    pub(super) fn insert(&mut self, transfer: TransferId) {
        if self.contains(transfer) {
            return;
        }
        let id = transfer.get();
        let offset = self.offset(id);
        let used = usize::from(self.used);
        let at = self.live_runs().iter().take_while(|run| self.offset(run.first) < offset).count();
        let joins_left = at > 0 && {
            let left = self.runs[at - 1];
            left.first.wrapping_add(left.len) == id
        };
        let joins_right = at < used && self.runs[at].first == id.wrapping_add(1);
        match (joins_left, joins_right) {
            (true, true) => {
                self.runs[at - 1].len += 1 + self.runs[at].len;
                self.runs.copy_within(at + 1..used, at);
                self.runs[used - 1] = TransferRange::default();
                self.used -= 1;
            }
            (true, false) => self.runs[at - 1].len += 1,
            (false, true) => {
                self.runs[at].first = id;
                self.runs[at].len += 1;
            }
            (false, false) => {
                debug_assert!(
                    used < self.runs.len(),
                    "a transfer was admitted without a free tombstone slot"
                );
                if used < self.runs.len() {
                    self.runs.copy_within(at..used, at + 1);
                    self.runs[at] = TransferRange { first: id, len: 1 };
                    self.used += 1;
                }
            }
        }
    }
}

/// Record of one incarnation of one sending node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SenderRecord {
    pub(super) in_use: bool,
    pub(super) node: NodeId,
    pub(super) incarnation: Incarnation,
    pub(super) completed: Completed,
    /// Number of its transfers in progress here.
    pub(super) transfers: u16,
    /// Number of those that wait for the sender's ARRIVED packet.
    pub(super) announced: u16,
    pub(super) touched: Nanos,
}

/// Rule that decides when the receiving host is notified of a whole transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NotifyMode {
    /// Notification with the last packet.
    OnLastPacket,
    /// Notification with the sender's ARRIVED packet.
    OnArrivedPacket,
    /// No notification.
    Never,
}

impl NotifyMode {
    pub(super) const fn of(flags: Flags) -> Self {
        if flags.contains(Flags::NO_NOTICE) {
            Self::Never
        } else if flags.contains(Flags::NOTIFY_RECEIVER) {
            Self::OnLastPacket
        } else {
            Self::OnArrivedPacket
        }
    }
}

/// Transfer in progress: at least one segment was registered, and not all are complete or its notification is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TransferProgress {
    pub(super) in_use: bool,
    pub(super) source: u16,
    pub(super) id: TransferId,
    pub(super) segment_count: u32,
    pub(super) base: CardAddr,
    pub(super) length: u64,
    pub(super) done: SegmentWindow,
    /// Segments in the registry.
    pub(super) registered: u16,
    /// Notification rule of the transfer.
    pub(super) notice: NotifyMode,
    /// Everything is in memory, and the ARRIVED packet is awaited: a slot of the event ring is reserved.
    pub(super) awaits_notice: bool,
    /// Everything is in memory, and the event ring had no slot for the notification: the sender tries again.
    pub(super) awaits_slot: bool,
    pub(super) touched: Nanos,
}

const IDLE: TransferProgress = TransferProgress {
    in_use: false,
    source: 0,
    id: TransferId::new(0),
    segment_count: 0,
    base: CardAddr::ZERO,
    length: 0,
    done: SegmentWindow::EMPTY,
    registered: 0,
    notice: NotifyMode::Never,
    awaits_notice: false,
    awaits_slot: false,
    touched: Nanos::ZERO,
};

/// Records of senders and of their transfers in progress, found by hash. The lowest free record is used first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeerTable {
    sources: Box<[SenderRecord]>,
    transfers: Box<[TransferProgress]>,
    /// Senders and transfers by their names.
    source_slots: SlotIndex,
    transfer_slots: SlotIndex,
    free_sources: PacketSet,
    free_transfers: PacketSet,
    transfers_in_use: u16,
    /// Number of those that need a slot of the event ring at their end.
    notifying: u16,
    /// Number of those with a reserved slot: they await the ARRIVED packet.
    announced: u16,
    /// Number of senders with transfers in progress.
    active: u16,
}

impl PeerTable {
    /// Bytes of state of one transfer in progress, of one sender, and of one tombstone.
    pub(super) const BYTES: (usize, usize, usize) = (
        size_of::<TransferProgress>() + SlotIndex::BYTES,
        size_of::<SenderRecord>() + SlotIndex::BYTES,
        size_of::<TransferRange>(),
    );

    pub(super) fn new(sources: u16, transfers: u16, tombstones: u16) -> Self {
        let source = SenderRecord {
            in_use: false,
            node: NodeId::ANY,
            incarnation: Incarnation::new(0),
            completed: Completed::new(tombstones.saturating_add(1)),
            transfers: 0,
            announced: 0,
            touched: Nanos::ZERO,
        };
        let free = |count: u16| {
            let mut free = PacketSet::new(count.into());
            (0..count.into()).for_each(|slot| _ = free.insert(slot));
            free
        };
        Self {
            source_slots: SlotIndex::new(sources.into()),
            transfer_slots: SlotIndex::new(transfers.into()),
            free_sources: free(sources),
            free_transfers: free(transfers),
            sources: alloc::vec![source; usize::from(sources)].into_boxed_slice(),
            transfers: alloc::vec![IDLE; usize::from(transfers)].into_boxed_slice(),
            transfers_in_use: 0,
            notifying: 0,
            announced: 0,
            active: 0,
        }
    }

    /// Returns the number of senders with transfers in progress.
    #[inline]
    pub(super) const fn active(&self) -> u16 {
        self.active
    }

    pub(super) fn find_source(&self, node: NodeId, incarnation: Incarnation) -> Option<u16> {
        self.source_slots.find(source_key(node, incarnation), |at| {
            let source = self.source(at);
            source.node == node && source.incarnation == incarnation
        })
    }

    pub(super) fn free_source(&self) -> Option<u16> {
        self.free_sources.next_from(0).map(low16)
    }

    /// Opens a record for an incarnation that was first received from at `now`.
    pub(super) fn open_source(
        &mut self,
        at: u16,
        (node, incarnation): (NodeId, Incarnation),
        oldest_live: TransferId,
        now: Nanos,
    ) {
        self.free_sources.remove(at.into());
        self.source_slots.insert(source_key(node, incarnation), at);
        let source = self.source_mut(at);
        source.in_use = true;
        source.node = node;
        source.incarnation = incarnation;
        source.transfers = 0;
        source.announced = 0;
        source.touched = now;
        source.completed.reset(oldest_live);
    }

    pub(super) fn close_source(&mut self, at: u16) {
        let SenderRecord { node, incarnation, .. } = *self.source(at);
        self.free_sources.insert(at.into());
        self.source_slots.remove(source_key(node, incarnation), at);
        let source = self.source_mut(at);
        source.in_use = false;
        source.node = NodeId::ANY;
        source.incarnation = Incarnation::new(0);
        source.touched = Nanos::ZERO;
        source.completed.reset(TransferId::new(0));
    }

    pub(super) fn source(&self, at: u16) -> &SenderRecord {
        &self.sources[usize::from(at)]
    }

    pub(super) fn source_mut(&mut self, at: u16) -> &mut SenderRecord {
        &mut self.sources[usize::from(at)]
    }

    pub(super) fn find_transfer(&self, source: u16, id: TransferId) -> Option<u16> {
        self.transfer_slots.find(transfer_key(source, id), |at| {
            let transfer = self.transfer(at);
            transfer.source == source && transfer.id == id
        })
    }

    pub(super) fn free_transfer(&self) -> Option<u16> {
        self.free_transfers.next_from(0).map(low16)
    }

    /// Whether a new transfer of `source` is guaranteed space for its tombstone. The sender's oldest live transfer
    /// always is, so that progress is always possible.
    pub(super) fn has_tombstone_space(&self, source: u16, id: TransferId) -> bool {
        let source = self.source(source);
        let completed = &source.completed;
        // One range is reserved for the oldest live transfer, which may be admitted when all others are used or
        // reserved.
        completed.is_adjacent(id)
            || usize::from(completed.used() + source.transfers) + 1 < completed.runs.len()
    }

    pub(super) fn open_transfer(&mut self, at: u16, transfer: TransferProgress) {
        let source = self.source_mut(transfer.source);
        let is_first = source.transfers == 0;
        source.transfers += 1;
        self.active += u16::from(is_first);
        self.free_transfers.remove(at.into());
        self.transfer_slots.insert(transfer_key(transfer.source, transfer.id), at);
        self.transfers[usize::from(at)] = TransferProgress { in_use: true, ..transfer };
        self.transfers_in_use += 1;
        self.notifying += u16::from(transfer.notice != NotifyMode::Never);
    }

    /// Ends a transfer's record; with `complete`, a tombstone replaces it.
    pub(super) fn close_transfer(&mut self, at: u16, complete: bool) {
        let TransferProgress { source, id, notice, awaits_notice, .. } = self.transfers[usize::from(at)];
        self.free_transfers.insert(at.into());
        self.transfer_slots.remove(transfer_key(source, id), at);
        self.transfers[usize::from(at)] = IDLE;
        self.transfers_in_use -= 1;
        self.notifying -= u16::from(notice != NotifyMode::Never);
        self.announced -= u16::from(awaits_notice);
        let source = self.source_mut(source);
        source.transfers -= 1;
        let is_last = source.transfers == 0;
        source.announced -= u16::from(awaits_notice);
        if complete {
            source.completed.insert(id);
        }
        self.active -= u16::from(is_last);
    }

    pub(super) fn transfer(&self, at: u16) -> &TransferProgress {
        &self.transfers[usize::from(at)]
    }

    pub(super) fn transfer_mut(&mut self, at: u16) -> &mut TransferProgress {
        &mut self.transfers[usize::from(at)]
    }

    /// Reserves a slot of the event ring for a transfer that is in memory and awaits its ARRIVED packet.
    pub(super) fn await_notice(&mut self, at: u16) {
        let record = self.transfer_mut(at);
        record.awaits_notice = true;
        let source = record.source;
        self.source_mut(source).announced += 1;
        self.announced += 1;
    }

    /// Returns the number of transfers in progress that need a slot of the event ring at their end.
    pub(super) const fn notifying(&self) -> u16 {
        self.notifying
    }

    /// Returns the number of reserved slots of the event ring.
    pub(super) const fn announced(&self) -> u16 {
        self.announced
    }

    pub(super) fn source_count(&self) -> u16 {
        u16::try_from(self.sources.len()).unwrap_or(u16::MAX)
    }

    pub(super) fn transfer_count(&self) -> u16 {
        u16::try_from(self.transfers.len()).unwrap_or(u16::MAX)
    }

    /// Returns the number of transfers in progress.
    pub(super) const fn transfers_in_use(&self) -> u16 {
        self.transfers_in_use
    }

    /// Returns the number of stored ranges of completed transfers, over all senders.
    pub(super) fn tombstones(&self) -> usize {
        self.sources.iter().map(|source| usize::from(source.completed.used())).sum()
    }
}

fn source_key(node: NodeId, incarnation: Incarnation) -> u64 {
    u64::from(incarnation.get()) << 32 | u64::from(node.get())
}

fn transfer_key(source: u16, id: TransferId) -> u64 {
    u64::from(source) << 32 | u64::from(id.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a plain set of ids: same results for any order of completions and advances, across the wrap of
        /// ids, and never more ranges than live transfers + 1.
        #[test]
        fn e1_4_tombstones_match_set(start in prop_oneof![Just(0u32), Just(u32::MAX - 20)],
                                      steps in prop::collection::vec((0u32..40, any::<bool>()), 1..200)) {
            let mut completed = Completed::new(64);
            completed.reset(TransferId::new(start));
            let mut set = BTreeSet::new();
            let mut floor = 0u32;
            for (step, advance) in steps {
                let id = TransferId::new(start.wrapping_add(step));
                if advance {
                    let news = completed.advance(id);
                    prop_assert_eq!(news, step > floor);
                    floor = floor.max(step);
                } else {
                    completed.insert(id);
                    set.insert(step);
                }
                for probe in 0..45 {
                    let expected = probe < floor || set.contains(&probe);
                    prop_assert_eq!(completed.contains(TransferId::new(start.wrapping_add(probe))), expected);
                }
                let runs = (floor..45).filter(|n| set.contains(n) && (*n == floor || !set.contains(&(n - 1)))).count();
                prop_assert_eq!(usize::from(completed.used()), runs);
            }
        }
    }
}
