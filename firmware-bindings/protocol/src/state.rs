//! Size of the state in the tables of sender, receiver and mirror, per entry, computed from the types in use.
//!
//! | side | table | one entry per | bytes | bits |
//! |---|---|---|---|---|
//! | sender | op table | packet in flight, its timer (16 bytes) and its place in the order of sending (12) included | 65 | 520 |
//! | sender | segments | segment in progress | 82 | 656 |
//! | sender | transfers | transfer queued or in progress, its timer included | 288 | 2304 |
//! | sender | queues | the same: its links in the regular queue or the big-transfer queue | 8 | 64 |
//! | sender | destinations | destination node, with the heads of its queues, its timer and the statistics of its path | 240 | 1920 |
//! | sender | sheets of timers | timer; above 754 timers, every fifteenth timer plus 704: numbers of timers in one slot | 64 | 512 |
//! | sender | lists of timers | slot of a wheel, 704 each for packets, transfers and destinations | 16 | 128 |
//! | receiver | registry | operation in progress; 32 bytes more where masks are wider than 64 bits | 82 | 656 |
//! | receiver | escape channel | early packet | 120 and the packet | 960 and the packet |
//! | receiver | transfers | transfer in progress | 80 | 640 |
//! | receiver | senders | sending node with transfers in progress | 48 | 384 |
//! | receiver | tombstones | range of completed transfers of a sending node, and one in reserve | 8 | 64 |
//! | receiver | incarnations | sending node: its newest incarnation | 32 | 256 |
//! | receiver | memory windows | window | 40 | 320 |
//! | receiver | answers and events | answer or event to output; twice four for each operation, transfer and escape slot | 64 | 512 |
//! | mirror | mirror of the registry | registry entry of the card | 112 | 896 |
//! | mirror | mirror of the escape channel | escape slot of the card | 48 | 384 |
//!
//! Transfers in the big-transfer queue are not copied: the transfer's own record, at the head, is advanced in place
//! (docs/protocol.md 4.2).
//!
//! A bitstream packs the same fields more densely: no alignment, indices as wide as their tables, times in ticks of 32
//! bits, masks as wide as its packets need. The tests compare the numbers of this page with the types, and their sum
//! with the heap memory of sender, receiver and mirror.

/// Size of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StateTable {
    /// Name of the table.
    pub name: &'static str,
    /// Number of entries.
    pub entries: u64,
    /// Bytes of state per entry.
    pub bytes: u64,
}

impl StateTable {
    pub(crate) const fn new(name: &'static str, entries: u64, bytes: usize) -> Self {
        Self { name, entries, bytes: bytes as u64 }
    }

    /// Returns the bits of state per entry.
    #[must_use]
    pub const fn bits(&self) -> u64 {
        self.bytes * 8
    }

    /// Returns the bytes of the whole table.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.entries.saturating_mul(self.bytes)
    }
}
