//! Use of the card's memory, and codes that are addresses.
//!
//! | Part | Written by | |
//! |---|---|---|
//! | hello slots | any node, with a known key | first messages of peers: [`crate::hello::Hello`]; one page for each port |
//! | doorbell source | nobody | one byte of any value, which doorbells send |
//! | areas | one peer each, with a key of its own | doorbells, a ring, and landing slots |
//!
//! Parts of an area:
//!
//! | Part | |
//! |---|---|
//! | doorbells | nothing: the address of an arriving byte is its meaning, [`Doorbell`] |
//! | ring | records: [`crate::wire::Header`] and data |
//! | landing slots | parts of large messages, as granted |
//!
//! The hello names the area and its key. The card accepts writes to an area from its peer's node alone.

use fpga_driver::{CardAddr, CardRange};

/// Number of a port, counted from 0 in the order in which ports are opened. It is the number of the port's page of hello slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PortNumber(pub(crate) u8);

/// Number of hello slots of a port, and bytes of each.
pub(crate) const HELLO_SLOTS: u64 = 64;
pub(crate) const HELLO_BYTES: u64 = 64;
/// Bytes of the hello slots of a port.
pub(crate) const HELLO_PAGE: u64 = HELLO_SLOTS * HELLO_BYTES;
/// Maximum number of ports that are opened while the card is open.
pub(crate) const MAX_PORTS: u8 = 64;
/// Key of the hello slots: it is not secret.
pub(crate) const HELLO_KEY: u64 = u64::from_le_bytes(*b"fpga-msg");

/// Bytes of the doorbells of an area.
pub(crate) const DOORBELL_BYTES: u64 = 256 << 10;
/// Number of landing slots of an area, and bytes of each.
pub(crate) const LANDING_SLOTS: u16 = 8;
pub(crate) const CHUNK: u64 = 128 << 10;
/// Bytes of a peer's ring, and granule of its records.
pub(crate) const RING: u64 = 256 << 10;
pub(crate) const UNIT: u64 = 64;
/// Offsets in an area of the ring and of the landing slots, and bytes of an area.
pub(crate) const RING_OFFSET: u64 = DOORBELL_BYTES;
pub(crate) const LANDING_OFFSET: u64 = RING_OFFSET + RING;
pub(crate) const AREA: u64 = LANDING_OFFSET + LANDING_SLOTS as u64 * CHUNK;
/// Maximum bytes of a record.
pub(crate) const MAX_RECORD: u64 = MAX_EAGER + crate::wire::HEADER as u64;
/// Maximum bytes of data in a record.
pub(crate) const MAX_EAGER: u64 = 16 << 10;
/// Unit of the credit for messages that match no receive, in bytes.
pub(crate) const EAGER_UNIT: u64 = 256;
/// Staging slots: number and bytes of each class.
pub(crate) const STAGING: [(u32, u64); 3] = [(512, 1 << 10), (64, MAX_RECORD), (16, CHUNK)];
/// Bytes of all staging slots.
pub(crate) const STAGING_BYTES: u64 = {
    let [(a, b), (c, d), (e, f)] = STAGING;
    a as u64 * b + c as u64 * d + e as u64 * f
};
/// Granule of the parts in bytes.
const PAGE: u64 = 4096;
/// Maximum number of operations in progress, numbers of acknowledgements.
pub(crate) const MAX_OPERATIONS: u32 = 1 << 16;

/// Starts of the doorbells' codes.
const CREDIT_AT: u64 = 0;
const CHUNK_AT: u64 = 8 << 10;
const EAGER_AT: u64 = 12 << 10;
const DONE_AT: u64 = 16 << 10;
const REFUSED_AT: u64 = DONE_AT + MAX_OPERATIONS as u64;
const UNSUPPORTED_AT: u64 = REFUSED_AT + MAX_OPERATIONS as u64;
const _: () = assert!(UNSUPPORTED_AT + MAX_OPERATIONS as u64 <= DOORBELL_BYTES, "codes fit");
const _: () = assert!(RING / UNIT < CHUNK_AT, "credits fit");
/// Maximum number of units of [`Doorbell::Eager`].
pub(crate) const MAX_EAGER_UNITS: u32 = 4095;
const _: () = assert!(EAGER_AT + (MAX_EAGER_UNITS as u64) < DONE_AT, "returned credit fits");

/// Meaning of a byte that arrives in the doorbells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doorbell {
    /// Number of units of the ring that are free again; 0 only shows that the peer is there.
    Credit(u32),
    /// A landing slot can be written again.
    Chunk(u16),
    /// Number of [`EAGER_UNIT`]s that messages may use again because others have matched a receive.
    Eager(u32),
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
            Self::Eager(units) => EAGER_AT + u64::from(units),
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
            EAGER_AT.. => Self::Eager(number(EAGER_AT)?),
            CHUNK_AT.. => Self::Chunk(u16::try_from(offset - CHUNK_AT).ok()?),
            _ => Self::Credit(number(CREDIT_AT)?),
        })
    }
}

/// Part of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AreaPart {
    Doorbell(Doorbell),
    /// Offset in the ring.
    Ring(u64),
    /// Number of a landing slot.
    Landing(u16),
}

/// Part of card memory in which something has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Hello slots of a port.
    Hello(PortNumber),
    /// Part of the area with a number.
    Area(u32, AreaPart),
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
        let start = usable.start.get().checked_next_multiple_of(HELLO_PAGE)?;
        let end = usable.start.get().checked_add(usable.length)?;
        let layout = Self { start, end };
        (layout.areas() + AREA <= end).then_some(layout)
    }

    /// Bytes that a card needs for `peers` peers.
    pub(crate) const fn needed(peers: u64) -> u64 {
        (MAX_PORTS as u64 + 1) * HELLO_PAGE + PAGE + peers * AREA
    }

    /// First byte behind the hello slots.
    const fn hello_end(self) -> u64 {
        self.start + MAX_PORTS as u64 * HELLO_PAGE
    }

    const fn areas(self) -> u64 {
        self.hello_end() + PAGE
    }

    /// Hello slots of a port.
    pub(crate) const fn hello(self, port: PortNumber) -> CardRange {
        CardRange::new(CardAddr::new(self.start + port.0 as u64 * HELLO_PAGE), HELLO_PAGE)
    }

    /// Address of the hello slots that a messenger's address with the card address `memory` names; `None` without such addresses.
    pub(crate) fn hello_of(memory: CardAddr) -> Option<CardAddr> {
        memory.get().checked_next_multiple_of(HELLO_PAGE).map(CardAddr::new)
    }

    /// Area `number`; `None` if the memory has no space for it.
    pub(crate) fn area(self, number: u32) -> Option<CardRange> {
        let start = self.areas() + u64::from(number) * AREA;
        (start + AREA <= self.end).then(|| CardRange::new(CardAddr::new(start), AREA))
    }

    /// Card address of an offset in an area.
    pub(crate) const fn address(self, area: u32, offset: u64) -> CardAddr {
        CardAddr::new(self.areas() + area as u64 * AREA + offset)
    }

    pub(crate) const fn landing_slot(self, area: u32, slot: u16) -> CardAddr {
        self.address(area, LANDING_OFFSET + slot as u64 * CHUNK)
    }

    /// Card address of the byte that doorbells send.
    pub(crate) const fn doorbell_source(self) -> CardAddr {
        CardAddr::new(self.hello_end())
    }

    /// Part that `address` is in.
    pub(crate) fn arrival(self, address: CardAddr) -> Arrival {
        let address = address.get();
        let Some(offset) = address.checked_sub(self.areas()) else {
            let hello = address.checked_sub(self.start).filter(|_| address < self.hello_end());
            let port = hello.and_then(|offset| u8::try_from(offset / HELLO_PAGE).ok());
            return port.map_or(Arrival::Unknown, |port| Arrival::Hello(PortNumber(port)));
        };
        let part = match offset % AREA {
            part @ LANDING_OFFSET.. => {
                u16::try_from((part - LANDING_OFFSET) / CHUNK).ok().map(AreaPart::Landing)
            }
            part @ RING_OFFSET.. => Some(AreaPart::Ring(part - RING_OFFSET)),
            part => Doorbell::at(part).map(AreaPart::Doorbell),
        };
        let area = u32::try_from(offset / AREA).ok();
        area.zip(part).map_or(Arrival::Unknown, |(area, part)| Arrival::Area(area, part))
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
            Doorbell::Chunk(7),
            Doorbell::Eager(0),
            Doorbell::Eager(MAX_EAGER_UNITS),
            Doorbell::Done(0),
            Doorbell::Done(MAX_OPERATIONS - 1),
            Doorbell::Refused(0),
            Doorbell::Refused(MAX_OPERATIONS - 1),
            Doorbell::Unsupported(0),
            Doorbell::Unsupported(MAX_OPERATIONS - 1),
        ];
        for area in [0, 1, 5] {
            let arrival = |offset| layout.arrival(layout.address(area, offset));
            for doorbell in doorbells {
                assert_eq!(arrival(doorbell.offset()), Arrival::Area(area, AreaPart::Doorbell(doorbell)));
            }
            assert_eq!(arrival(RING_OFFSET), Arrival::Area(area, AreaPart::Ring(0)));
            assert_eq!(arrival(LANDING_OFFSET - 1), Arrival::Area(area, AreaPart::Ring(RING - 1)));
            let last = LANDING_SLOTS - 1;
            assert_eq!(
                layout.arrival(layout.landing_slot(area, last)),
                Arrival::Area(area, AreaPart::Landing(last))
            );
            assert_eq!(layout.area(area).unwrap().start, layout.address(area, 0));
        }
        for port in [PortNumber(0), PortNumber(MAX_PORTS - 1)] {
            assert_eq!(layout.arrival(layout.hello(port).start), Arrival::Hello(port));
        }
        assert_eq!(layout.arrival(layout.doorbell_source()), Arrival::Unknown);
        assert_eq!(layout.area(1 << 20), None);
    }

    #[test]
    fn layout_memory_that_is_too_small_is_refused() {
        let range = |length| CardRange::new(CardAddr::new(0), length);
        assert!(Layout::new(range(Layout::needed(1))).is_some());
        assert!(Layout::new(range(1 << 20)).is_none());
    }
}
