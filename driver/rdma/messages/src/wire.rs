//! Records between messengers: conversion between bytes and fields. All integers are little-endian.

/// Bytes of a header, and of a hello.
pub(crate) const HEADER: usize = 64;
/// Maximum number of landing slots that one header grants.
pub(crate) const MAX_GRANT: usize = 8;

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
    /// No further part of a refused operation arrives: `peer_operation` ends, and its landing slots are free.
    Stopped = 10,
    /// The sender has closed its end of the session. Nothing follows.
    Closed = 11,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Message,
        Self::LargeMessage,
        Self::Grant,
        Self::Write,
        Self::LargeWrite,
        Self::Read,
        Self::LargeRead,
        Self::Answer,
        Self::Atomic,
        Self::Stopped,
        Self::Closed,
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
    /// Whether the end of a message is its match: otherwise a message that is kept has ended as well.
    pub(crate) wants_match: bool,
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
const FLAG_MATCH: u8 = 8;

impl Header {
    /// Header of `kind` without anything else.
    pub(crate) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            is_tagged: false,
            wants_done: false,
            wants_match: false,
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
            (self.wants_match, FLAG_MATCH),
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
            wants_match: flags & FLAG_MATCH != 0,
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

/// Writes consecutive fields.
pub(crate) struct Writer<'a> {
    pub(crate) bytes: &'a mut [u8; HEADER],
    pub(crate) at: usize,
}

impl Writer<'_> {
    pub(crate) fn bytes(&mut self, field: &[u8]) {
        let end = self.at + field.len();
        if let Some(place) = self.bytes.get_mut(self.at..end) {
            place.copy_from_slice(field);
        }
        self.at = end;
    }
}

/// Reads consecutive fields.
pub(crate) struct Reader<'a> {
    pub(crate) bytes: &'a [u8; HEADER],
    pub(crate) at: usize,
}

impl Reader<'_> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
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
        header.wants_match = true;
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
        }
    }
}
