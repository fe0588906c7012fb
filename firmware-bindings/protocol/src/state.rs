//! Size of the state in the tables of sender, receiver and mirror, per entry, computed from the types in use.
//!
//! | side | table | one entry per | bytes | bits |
//! |---|---|---|---|---|
//! | sender | op table | packet in flight, its timer (16 bytes), its place in the order of sending (13) and its path identifier (1) included | 67 | 536 |
//! | sender | segments | segment in progress | 84 | 672 |
//! | sender | transfers | transfer queued or in progress, its timer included | 296 | 2368 |
//! | sender | queues | the same: its links in the regular queue or the big-transfer queue | 8 | 64 |
//! | sender | destinations | destination node, with the heads of its queues, its timer and the statistics of its path; 208 bytes more with a congestion window | 268 | 2144 |
//! | sender | order of destinations | destination node, their number rounded up to a power of two: its places in the order of service | 128 | 1024 |
//! | sender | path identifiers | destination node: its path identifiers, with their marks, losses and answers | 272 | 2176 |
//! | sender | hashes | hash of a destination or of a segment; as many as of these, rounded up to a power of two | 2 | 16 |
//! | sender | sheets of timers | timer; above 754 timers, every fifteenth timer plus 704: numbers of timers in one slot | 64 | 512 |
//! | sender | lists of timers | slot of a wheel, 704 each for packets, transfers and destinations | 16 | 128 |
//! | receiver | registry | operation in progress; 32 bytes more where masks are wider than 64 bits | 82 | 656 |
//! | receiver | escape channel | early packet | 120 and the packet | 960 and the packet |
//! | receiver | transfers | transfer in progress | 82 | 656 |
//! | receiver | senders | sending node with transfers in progress | 50 | 400 |
//! | receiver | hashes of both | hash of a transfer or of a sender; as many as of these, rounded up to a power of two | 2 | 16 |
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
//! bits, masks as wide as its packets need. The senders and receivers of the message schemes list their fields ([`ReusableSender::state`],
//! [`ReusableReceiver::state`]). The tests compare the numbers of this page with the types, and their sum
//! with the heap memory of sender, receiver and mirror.
//!
//! [`ReusableSender::state`]: crate::scheme::message_scheme::ReusableSender::state
//! [`ReusableReceiver::state`]: crate::scheme::message_scheme::ReusableReceiver::state

/// Lists the fields of a state machine, or of a part of one, with their sizes in memory: each as a table with one entry.
///
/// `without` names the fields that are not counted: parameters, which all contexts share; outputs, which are polled
/// after each input; counters for displays. Fields that own heap memory have its bytes behind `+`. A field that is in
/// neither list, or owns heap memory that is not counted, does not compile.
#[macro_export]
macro_rules! state_fields {
    ($value:expr, without [$($not:ident),*], $($field:ident $(+ $heap:expr)?),+ $(,)?) => {{
        let Self { $($field,)+ $($not: _),* } = $value;
        Vec::from([$($crate::state::StateTable::new(
            stringify!($field),
            1,
            $crate::state_fields!(@size $field $(+ $heap)?),
        )),+])
    }};
    (@size $field:ident) => { $crate::state::inline_size($field) };
    (@size $field:ident + $heap:expr) => { size_of_val($field) + $heap };
}

/// Returns the size of a value without heap memory.
#[must_use]
pub const fn inline_size<T>(_: &T) -> usize {
    const { assert!(!core::mem::needs_drop::<T>(), "the heap memory of this field is not counted") };
    size_of::<T>()
}

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
    /// Creates a table of `entries` entries of `bytes` bytes.
    #[must_use]
    pub const fn new(name: &'static str, entries: u64, bytes: usize) -> Self {
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
