//! Records between messengers: conversion between bytes and fields. All integers are little-endian.

use fpga_driver::{Incarnation, NodeId};

/// Bytes of a header, and of a hello.
pub(crate) const HEADER: usize = 64;
/// Maximum number of landing slots that one header grants.
pub(crate) const MAX_GRANT: usize = 8;
/// Version of the records.
const VERSION: u16 = 2;
const MAGIC: u32 = u32::from_le_bytes(*b"FPMS");

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message with its data.
    Message = 1,
    /// A message whose data follows once landing slots are granted.
    LargeMessage = 2,
    /// Landing slots for the data of `peer_operation`; `length` bytes are wanted.
    Grant = 3,
    /// A write with its data.
    Write = 4,
    /// A write whose data follows once landing slots are granted.
    LargeWrite = 5,
    /// A read, whose answer has a record for its data.
    Read = 6,
    /// A read, whose answer goes to the granted landing slots.
    LargeRead = 7,
    /// Data that `peer_operation` has asked for.
    Answer = 8,
    /// An atomic operation with its operands.
    Atomic = 9,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Message,
        Self::LargeMessage,
        Self::Grant,
        Self::Write,
        Self::LargeWrite,
        Self::Read,
        Self::LargeRead,
        Self::Answer,
        Self::Atomic,
    ];
}

/// Landing slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) slots: [u16; MAX_GRANT],
    pub(crate) count: u8,
}

impl Grant {
    pub(crate) fn as_slice(&self) -> &[u16] {
        self.slots.get(..usize::from(self.count)).unwrap_or_default()
    }

    pub(crate) fn push(&mut self, slot: u16) -> bool {
        match self.slots.get_mut(usize::from(self.count)) {
            Some(place) => {
                *place = slot;
                self.count += 1;
                true
            }
            None => false,
        }
    }
}

/// Header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Whether the message has a tag.
    pub(crate) is_tagged: bool,
    /// Whether the sender waits for the end of the operation at the receiver.
    pub(crate) wants_done: bool,
    pub(crate) immediate: Option<u64>,
    /// Units of the receiver's ring towards the sender that are free again.
    pub(crate) credit: u16,
    /// Number of the operation at its sender.
    pub(crate) operation: u32,
    /// Bytes of the message or access.
    pub(crate) length: u64,
    /// Tag of a message, or key of an access.
    pub(crate) tag: u64,
    /// Address of an access.
    pub(crate) address: u64,
    /// Number of an operation of the receiver.
    pub(crate) peer_operation: u32,
    /// Atomic operation and data type.
    pub(crate) atomic: [u8; 2],
    pub(crate) grant: Grant,
}

const FLAG_IMMEDIATE: u8 = 1;
const FLAG_TAGGED: u8 = 2;
const FLAG_DONE: u8 = 4;

impl Header {
    /// Header of `kind` without anything else.
    pub(crate) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            is_tagged: false,
            wants_done: false,
            immediate: None,
            credit: 0,
            operation: 0,
            length: 0,
            tag: 0,
            address: 0,
            peer_operation: 0,
            atomic: [0; 2],
            grant: Grant { slots: [0; MAX_GRANT], count: 0 },
        }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let flags = [
            (self.immediate.is_some(), FLAG_IMMEDIATE),
            (self.is_tagged, FLAG_TAGGED),
            (self.wants_done, FLAG_DONE),
        ];
        let flags = flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
        let mut put = Writer { bytes: &mut bytes, at: 0 };
        put.bytes(&[self.kind as u8, flags]);
        put.bytes(&self.credit.to_le_bytes());
        put.bytes(&self.operation.to_le_bytes());
        put.bytes(&self.length.to_le_bytes());
        put.bytes(&self.tag.to_le_bytes());
        put.bytes(&self.immediate.unwrap_or(0).to_le_bytes());
        put.bytes(&self.address.to_le_bytes());
        put.bytes(&self.peer_operation.to_le_bytes());
        put.bytes(&self.atomic);
        put.bytes(&[self.grant.count, 0]);
        for slot in self.grant.slots {
            put.bytes(&slot.to_le_bytes());
        }
        bytes
    }

    /// `None` if the bytes are not a header.
    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let mut get = Reader { bytes, at: 0 };
        let [kind, flags] = get.array()?;
        let kind = Kind::ALL.into_iter().find(|known| *known as u8 == kind)?;
        let credit = u16::from_le_bytes(get.array()?);
        let operation = u32::from_le_bytes(get.array()?);
        let length = u64::from_le_bytes(get.array()?);
        let tag = u64::from_le_bytes(get.array()?);
        let immediate = u64::from_le_bytes(get.array()?);
        let address = u64::from_le_bytes(get.array()?);
        let peer_operation = u32::from_le_bytes(get.array()?);
        let atomic = get.array()?;
        let [count, _] = get.array()?;
        let mut grant = Grant { slots: [0; MAX_GRANT], count };
        for slot in &mut grant.slots {
            *slot = u16::from_le_bytes(get.array()?);
        }
        (usize::from(count) <= MAX_GRANT).then_some(Self {
            kind,
            is_tagged: flags & FLAG_TAGGED != 0,
            wants_done: flags & FLAG_DONE != 0,
            immediate: (flags & FLAG_IMMEDIATE != 0).then_some(immediate),
            credit,
            operation,
            length,
            tag,
            address,
            peer_operation,
            atomic,
            grant,
        })
    }
}

/// First message to a peer: what it may write here.
///
/// Peers share the slots for hellos: one may overwrite the hello of another one between its notification and its copy to host memory. The
/// last 8 bytes are therefore a checksum of the others and of the sender that the notification names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Whether it answers a hello: it is not answered itself.
    pub(crate) is_answer: bool,
    /// Region of the sender's card memory.
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) key: u64,
    /// Offset of the ring for the receiver's records in the region.
    pub(crate) ring: u64,
    /// Offset of the landing slots in the region.
    pub(crate) landing: u64,
    pub(crate) ring_length: u32,
    pub(crate) chunk: u32,
}

/// Bytes of a hello before the checksum.
const CHECKED: usize = HEADER - size_of::<u64>();

/// Checksum of a hello (FNV-1a).
fn checksum(bytes: &[u8; HEADER], sender: (NodeId, Incarnation)) -> u64 {
    let fields = bytes.iter().take(CHECKED).copied();
    let sender = [sender.0.get(), sender.1.get()];
    let all = fields.chain(sender.into_iter().flat_map(u32::to_le_bytes));
    all.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Hello {
    pub(crate) fn encode(&self, sender: (NodeId, Incarnation)) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut put = Writer { bytes: &mut bytes, at: 0 };
        put.bytes(&MAGIC.to_le_bytes());
        put.bytes(&VERSION.to_le_bytes());
        put.bytes(&[u8::from(self.is_answer), 0]);
        for word in [self.address, self.length, self.key, self.ring, self.landing] {
            put.bytes(&word.to_le_bytes());
        }
        put.bytes(&self.ring_length.to_le_bytes());
        put.bytes(&self.chunk.to_le_bytes());
        let sum = checksum(&bytes, sender);
        Writer { bytes: &mut bytes, at: CHECKED }.bytes(&sum.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are not a hello of `sender` in this version.
    pub(crate) fn decode(bytes: &[u8; HEADER], sender: (NodeId, Incarnation)) -> Option<Self> {
        let mut get = Reader { bytes, at: 0 };
        let magic = u32::from_le_bytes(get.array()?);
        let version = u16::from_le_bytes(get.array()?);
        let [is_answer, _] = get.array()?;
        let mut word = || get.array().map(u64::from_le_bytes);
        let (address, length, key, ring, landing) = (word()?, word()?, word()?, word()?, word()?);
        let ring_length = u32::from_le_bytes(get.array()?);
        let chunk = u32::from_le_bytes(get.array()?);
        let sum = u64::from_le_bytes(get.array()?);
        let fits = |offset: u64, bytes: u64| offset.checked_add(bytes).is_some_and(|end| end <= length);
        let valid = (magic, version) == (MAGIC, VERSION)
            && address.checked_add(length).is_some()
            && fits(ring, ring_length.into())
            && fits(landing, 0)
            && sum == checksum(bytes, sender);
        valid.then_some(Self {
            is_answer: is_answer != 0,
            address,
            length,
            key,
            ring,
            landing,
            ring_length,
            chunk,
        })
    }
}

/// Writes consecutive fields.
struct Writer<'a> {
    bytes: &'a mut [u8; HEADER],
    at: usize,
}

impl Writer<'_> {
    fn bytes(&mut self, field: &[u8]) {
        let end = self.at + field.len();
        if let Some(place) = self.bytes.get_mut(self.at..end) {
            place.copy_from_slice(field);
        }
        self.at = end;
    }
}

/// Reads consecutive fields.
struct Reader<'a> {
    bytes: &'a [u8; HEADER],
    at: usize,
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let field = self.bytes.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(*field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips() {
        let mut header = Header::new(Kind::Atomic);
        header.is_tagged = true;
        header.wants_done = true;
        header.immediate = Some(u64::MAX - 1);
        header.credit = 0x1234;
        header.operation = 0x89ab_cdef;
        header.length = 1 << 40;
        header.tag = 0x0123_4567_89ab_cdef;
        header.address = 0xfedc_ba98_7654_3210;
        header.peer_operation = 77;
        header.atomic = [3, 9];
        for slot in 0..8 {
            assert!(header.grant.push(slot * 1000));
        }
        assert!(!header.grant.push(1));
        assert_eq!(Header::decode(&header.encode()), Some(header));
    }

    #[test]
    fn header_of_unknown_kind_or_grant_is_refused() {
        assert_eq!(Header::decode(&[0; HEADER]), None);
        let mut bytes = Header::new(Kind::Grant).encode();
        bytes[46] = 9;
        assert_eq!(Header::decode(&bytes), None);
    }

    proptest::proptest! {
        /// Any bytes of a peer are refused, or are what encoding gives but for unused bits.
        #[test]
        fn records_of_any_bytes_are_stable(bytes: [u8; HEADER]) {
            if let Some(header) = Header::decode(&bytes) {
                let again = Header::decode(&header.encode());
                proptest::prop_assert!(again.is_some_and(|again| again.kind == header.kind && again.grant == header.grant));
            }
            let mut bytes = bytes;
            // With the right magic, version and checksum.
            bytes[..6].copy_from_slice(&Hello::encode(&HELLO, SENDER)[..6]);
            let sum = checksum(&bytes, SENDER);
            bytes[CHECKED..].copy_from_slice(&sum.to_le_bytes());
            if let Some(hello) = Hello::decode(&bytes, SENDER) {
                proptest::prop_assert_eq!(Hello::decode(&hello.encode(SENDER), SENDER), Some(hello));
            }
        }
    }

    const SENDER: (NodeId, Incarnation) = (NodeId::new(7), Incarnation::new(9));
    const HELLO: Hello = Hello {
        is_answer: true,
        address: 4096,
        length: 1 << 20,
        key: 5,
        ring: 0x1000,
        landing: 0x2000,
        ring_length: 0x8000,
        chunk: 0x100,
    };

    #[test]
    fn hello_round_trips_and_checks_its_ranges() {
        let is_decoded = |hello: Hello| Hello::decode(&hello.encode(SENDER), SENDER) == Some(hello);
        assert!(is_decoded(HELLO));
        assert!(!is_decoded(Hello { ring: 1 << 20, ..HELLO }));
        assert!(!is_decoded(Hello { address: u64::MAX, ..HELLO }));
        assert_eq!(Hello::decode(&[0; HEADER], SENDER), None);
    }

    /// Two peers have written to one slot: the content belongs to one notification only, or, if it is mixed, to none.
    #[test]
    fn hello_of_another_sender_is_refused() {
        let other = (NodeId::new(8), SENDER.1);
        let (mine, theirs) = (HELLO.encode(SENDER), Hello { key: 6, ..HELLO }.encode(other));
        assert_eq!(Hello::decode(&theirs, SENDER), None);
        assert_eq!(Hello::decode(&mine, (SENDER.0, Incarnation::new(10))), None);
        for at in [8, 16, 32, 48] {
            let mut mixed = mine;
            mixed[at..].copy_from_slice(&theirs[at..]);
            assert_eq!(
                (Hello::decode(&mixed, SENDER), Hello::decode(&mixed, other).filter(|hello| hello.key == 5)),
                (None, None)
            );
        }
    }
}
