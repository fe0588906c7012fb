//! How much state the tables of sender, receiver and mirror hold, per entry, counted from the types that are used.
//!
//! | side | table | one entry per | bytes | bits |
//! |---|---|---|---|---|
//! | sender | op table | packet in flight, its timer (16 bytes) included | 53 | 424 |
//! | sender | segments | segment under way | 74 | 592 |
//! | sender | transfers | transfer queued or under way, its timer included | 288 | 2304 |
//! | sender | queues | the same: its place in the regular queue or the big-transfer queue | 8 | 64 |
//! | sender | destinations | node that is sent to, with the heads of its queues | 120 | 960 |
//! | sender | sheets of timers | timer, but of more than 754 only every fifteenth and 704 beside: numbers of timers that run out together | 64 | 512 |
//! | sender | lists of timers | slot of a wheel, 704 for packets and 704 for transfers | 16 | 128 |
//! | receiver | registry | operation in progress; 32 bytes more where masks are wider than 64 bits | 82 | 656 |
//! | receiver | escape channel | early packet | 120 and the packet | 960 and the packet |
//! | receiver | transfers | transfer in progress | 80 | 640 |
//! | receiver | senders | life of a sending node | 56 | 448 |
//! | receiver | tombstones | run of completed transfers of a sending node, and one to spare | 8 | 64 |
//! | receiver | memory windows | window | 40 | 320 |
//! | receiver | answers and events | answer to send or event to tell; four for each operation, transfer and escape slot, twice | 64 | 512 |
//! | mirror | mirror of the registry | registry entry of the card | 112 | 896 |
//! | mirror | mirror of the escape channel | escape slot of the card | 48 | 384 |
//!
//! What waits in the big-transfer queue is not copied: the transfer's own record, at the head, is moved in place (spec 2.1.2).
//!
//! A bitstream packs the same fields tighter: no alignment, indices as wide as their tables, times in ticks of 32 bits, masks
//! as wide as its packets need. The tests hold the numbers of this page against the types, and their sum against what sender, receiver
//! and mirror take from the heap.

/// One table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StateTable {
    /// Its name.
    pub name: &'static str,
    /// Entries.
    pub entries: u64,
    /// Bytes of state of each.
    pub bytes: u64,
}

impl StateTable {
    pub(crate) const fn new(name: &'static str, entries: u64, bytes: usize) -> Self {
        Self { name, entries, bytes: bytes as u64 }
    }

    /// Bits of state of each entry.
    #[must_use]
    pub const fn bits(&self) -> u64 {
        self.bytes * 8
    }

    /// Bytes of the whole table.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.entries.saturating_mul(self.bytes)
    }
}
