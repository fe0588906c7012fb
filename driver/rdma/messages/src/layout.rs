//! Use of the card's memory, and codes that are addresses.
//!
//! | Part | Written by | |
//! |---|---|---|
//! | hello slots | any node, with a known key | first messages of peers: [`crate::hello::Hello`] |
//! | doorbells | peers | nothing: the address of an arriving byte is its meaning, [`Doorbell`] |
//! | landing slots | peers | parts of large messages, as granted |
//! | staging slots | this host | sources of what is sent |
//! | rings | one peer each | records: [`crate::wire::Header`] and data |
//!
//! All but the first is one region with a random key, which peers learn from the hello. The hello slots end where the region begins: hellos
//! to a peer whose region is known go to the slots before it.

use fpga_driver::{CardAddr, CardRange};

/// Number of hello slots, and bytes of each.
pub(crate) const HELLO_SLOTS: u64 = 64;
pub(crate) const HELLO_BYTES: u64 = 64;
/// Key of the hello slots: it is not secret.
pub(crate) const HELLO_KEY: u64 = u64::from_le_bytes(*b"fpga-msg");

/// Bytes of the doorbells.
const DOORBELL_BYTES: u64 = 256 << 10;
/// Number of landing slots, and bytes of each.
pub(crate) const LANDING_SLOTS: u16 = 64;
pub(crate) const CHUNK: u64 = 128 << 10;
/// Bytes of a peer's ring, and granule of its records.
pub(crate) const RING: u64 = 256 << 10;
pub(crate) const UNIT: u64 = 64;
/// Maximum bytes of a record.
pub(crate) const MAX_RECORD: u64 = MAX_EAGER + crate::wire::HEADER as u64;
/// Maximum bytes of data in a record.
pub(crate) const MAX_EAGER: u64 = 16 << 10;
/// Staging slots: number and bytes of each class.
pub(crate) const STAGING: [(u32, u64); 3] = [(512, 1 << 10), (64, MAX_RECORD), (16, CHUNK)];
/// Bytes of all staging slots.
pub(crate) const STAGING_BYTES: u64 = {
    let [(a, b), (c, d), (e, f)] = STAGING;
    a as u64 * b + c as u64 * d + e as u64 * f
};
/// Maximum number of operations in progress, numbers of acknowledgements.
pub(crate) const MAX_OPERATIONS: u32 = 1 << 16;

/// Starts of the doorbells' codes.
const CREDIT_AT: u64 = 0;
const CHUNK_AT: u64 = 8 << 10;
const DONE_AT: u64 = 16 << 10;
const REFUSED_AT: u64 = DONE_AT + MAX_OPERATIONS as u64;
const UNSUPPORTED_AT: u64 = REFUSED_AT + MAX_OPERATIONS as u64;
const _: () = assert!(UNSUPPORTED_AT + MAX_OPERATIONS as u64 <= DOORBELL_BYTES, "codes fit");
const _: () = assert!(RING / UNIT < CHUNK_AT, "credits fit");

/// Meaning of a byte that arrives in the doorbells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doorbell {
    /// Number of units of the ring that are free again; 0 only shows that the peer is there.
    Credit(u32),
    /// A landing slot can be written again.
    Chunk(u16),
    /// The operation has been executed.
    Done(u32),
    /// The operation was refused: key, range or permission.
    Refused(u32),
    /// The operation was refused: not supported.
    Unsupported(u32),
}

impl Doorbell {
    /// Offset in the doorbells.
    pub(crate) fn offset(self) -> u64 {
        match self {
            Self::Credit(units) => CREDIT_AT + u64::from(units),
            Self::Chunk(slot) => CHUNK_AT + u64::from(slot),
            Self::Done(operation) => DONE_AT + u64::from(operation),
            Self::Refused(operation) => REFUSED_AT + u64::from(operation),
            Self::Unsupported(operation) => UNSUPPORTED_AT + u64::from(operation),
        }
    }

    fn at(offset: u64) -> Option<Self> {
        let number = |start: u64| u32::try_from(offset - start).ok();
        Some(match offset {
            UNSUPPORTED_AT.. => Self::Unsupported(number(UNSUPPORTED_AT)?),
            REFUSED_AT.. => Self::Refused(number(REFUSED_AT)?),
            DONE_AT.. => Self::Done(number(DONE_AT)?),
            CHUNK_AT.. => Self::Chunk(u16::try_from(offset - CHUNK_AT).ok()?),
            _ => Self::Credit(number(CREDIT_AT)?),
        })
    }
}

/// Part of card memory in which something has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Hello,
    Doorbell(Doorbell),
    Landing(u16),
    /// Offset from the start of the rings.
    Ring(u64),
    Unknown,
}

/// Addresses of the parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    start: u64,
    end: u64,
}

impl Layout {
    /// Divides `usable`; `None` if it is too small.
    pub(crate) fn new(usable: CardRange) -> Option<Self> {
        let start = usable.start.get().checked_next_multiple_of(4096)?;
        let end = usable.start.get().checked_add(usable.length)?;
        let layout = Self { start, end };
        (layout.rings() + RING <= end).then_some(layout)
    }

    /// Bytes that a card needs for `peers` peers.
    pub(crate) const fn needed(peers: u64) -> u64 {
        8192 + DOORBELL_BYTES + LANDING_SLOTS as u64 * CHUNK + STAGING_BYTES + peers * RING
    }

    const fn doorbells(self) -> u64 {
        self.start + 4096
    }

    const fn landing(self) -> u64 {
        self.doorbells() + DOORBELL_BYTES
    }

    const fn staging(self) -> u64 {
        self.landing() + LANDING_SLOTS as u64 * CHUNK
    }

    const fn rings(self) -> u64 {
        self.staging() + STAGING_BYTES
    }

    pub(crate) const fn hello(self) -> CardRange {
        CardRange::new(CardAddr::new(self.start), HELLO_SLOTS * HELLO_BYTES)
    }

    /// The hello slots of a card whose memory begins at `memory`; `None` without such addresses.
    pub(crate) fn hello_of(memory: CardAddr) -> Option<CardRange> {
        let start = CardAddr::new(memory.get().checked_next_multiple_of(4096)?);
        Some(CardRange::new(start, HELLO_SLOTS * HELLO_BYTES))
    }

    /// The hello slots of a card whose region begins at `region`.
    pub(crate) fn hello_before(region: CardAddr) -> Option<CardRange> {
        let start = CardAddr::new(region.get().checked_sub(HELLO_SLOTS * HELLO_BYTES)?);
        Some(CardRange::new(start, HELLO_SLOTS * HELLO_BYTES))
    }

    /// The region of peers. It starts with the doorbells.
    pub(crate) const fn region(self) -> CardRange {
        CardRange::new(CardAddr::new(self.doorbells()), self.end - self.doorbells())
    }

    /// Offset of the landing slots in the region.
    pub(crate) const fn landing_offset() -> u64 {
        DOORBELL_BYTES
    }

    /// Offset of ring `number` in the region; `None` if the memory has no space for it.
    pub(crate) fn ring_offset(self, number: u32) -> Option<u64> {
        let start = self.rings() + u64::from(number) * RING;
        (start + RING <= self.end).then(|| start - self.doorbells())
    }

    /// Card address of an offset in the region.
    pub(crate) const fn address(self, offset: u64) -> CardAddr {
        CardAddr::new(self.doorbells() + offset)
    }

    pub(crate) const fn landing_slot(self, slot: u16) -> CardAddr {
        CardAddr::new(self.landing() + slot as u64 * CHUNK)
    }

    /// Card address of the staging slots' byte `offset`.
    pub(crate) const fn staged(self, offset: u64) -> CardAddr {
        CardAddr::new(self.staging() + offset)
    }

    /// Part that `address` is in.
    pub(crate) fn arrival(self, address: CardAddr) -> Arrival {
        let address = address.get();
        if address >= self.rings() {
            Arrival::Ring(address - self.rings())
        } else if address >= self.staging() {
            Arrival::Unknown
        } else if let Some(offset) = address.checked_sub(self.landing()) {
            u16::try_from(offset / CHUNK).map_or(Arrival::Unknown, Arrival::Landing)
        } else if let Some(offset) = address.checked_sub(self.doorbells()) {
            Doorbell::at(offset).map_or(Arrival::Unknown, Arrival::Doorbell)
        } else if address >= self.start {
            Arrival::Hello
        } else {
            Arrival::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_arrival_is_the_inverse_of_addresses() {
        let layout = Layout::new(CardRange::new(CardAddr::new(100), 64 << 20)).unwrap();
        let doorbells = [
            Doorbell::Credit(0),
            Doorbell::Credit(4096),
            Doorbell::Chunk(0),
            Doorbell::Chunk(63),
            Doorbell::Done(0),
            Doorbell::Done(MAX_OPERATIONS - 1),
            Doorbell::Refused(0),
            Doorbell::Refused(MAX_OPERATIONS - 1),
            Doorbell::Unsupported(0),
            Doorbell::Unsupported(MAX_OPERATIONS - 1),
        ];
        for doorbell in doorbells {
            assert_eq!(layout.arrival(layout.address(doorbell.offset())), Arrival::Doorbell(doorbell));
        }
        assert_eq!(layout.arrival(layout.hello().start), Arrival::Hello);
        assert_eq!(Layout::hello_before(layout.region().start), Some(layout.hello()));
        assert_eq!(layout.arrival(layout.landing_slot(63)), Arrival::Landing(63));
        assert_eq!(layout.arrival(layout.staged(0)), Arrival::Unknown);
        assert_eq!(layout.arrival(layout.address(layout.ring_offset(2).unwrap())), Arrival::Ring(2 * RING));
        assert_eq!(layout.ring_offset(1 << 20), None);
    }

    #[test]
    fn layout_memory_that_is_too_small_is_refused() {
        let range = |length| CardRange::new(CardAddr::new(0), length);
        assert!(Layout::new(range(Layout::needed(1))).is_some());
        assert!(Layout::new(range(8 << 20)).is_none());
    }
}
