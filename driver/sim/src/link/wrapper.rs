//! Wrapper of a frame in a datagram: conversion between bytes and fields.

use fpga_firmware::NodeId;
use fpga_registers::bytes::{u16_at, u32_at};
use fpga_registers::quantity;

/// First word of every datagram: the letters FPLK in memory order.
pub const MAGIC: u32 = u32::from_le_bytes(*b"FPLK");
/// Version of the wrapper. Datagrams of other versions are dropped.
pub const VERSION: u8 = 1;
/// Bytes before the frame.
pub const WRAPPER_LENGTH: usize = 16;

/// Offset of the kind of a datagram: 0 for a whole frame, others in [`super::parts`].
pub(super) const KIND_AT: usize = 5;
/// Offset of the frame's length.
const LENGTH_AT: usize = 6;

/// Offsets of source and destination in a frame's own header (layout `common` of the contract).
const SOURCE_AT: usize = fpga_firmware::generated::layout::common::SOURCE;
const DESTINATION_AT: usize = fpga_firmware::generated::layout::common::DESTINATION;

/// Reason why a datagram is not a wrapped frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WrapperError {
    /// Shorter than the wrapper and the addresses.
    #[error(
        "a datagram of {length} is too short for the wrapper and the addresses of a frame",
        length = quantity(*length, "byte"),
    )]
    TooShort {
        /// Length in bytes.
        length: usize,
    },
    /// Longer than the wrapper's length field can express.
    #[error("a frame of {length} is too long for a datagram", length = quantity(*length, "byte"))]
    TooLong {
        /// Bytes of the frame.
        length: usize,
    },
    /// Not a datagram of this protocol.
    #[error("the first word is {found:#x}: not a datagram of this protocol")]
    Magic {
        /// Word found.
        found: u32,
    },
    /// Unknown version, or the reserved byte is set.
    #[error(
        "wrapper version {version} with reserved byte {reserved}: only version {VERSION} with reserved byte 0 is supported"
    )]
    Version {
        /// Version found.
        version: u8,
        /// Reserved byte found.
        reserved: u8,
    },
    /// The length in the wrapper differs from the datagram's.
    #[error(
        "the wrapper's length field is {stated}, but {found} follow",
        stated = quantity(*stated, "byte"),
        found = quantity(*found, "byte"),
    )]
    Length {
        /// Length in the wrapper.
        stated: usize,
        /// Actual length.
        found: usize,
    },
    /// Wrapper and frame name different nodes.
    #[error("the wrapper has nodes {} to {}, the frame has nodes {} to {}", .wrapper.0, .wrapper.1, .frame.0, .frame.1)]
    Nodes {
        /// Source and destination of the wrapper.
        wrapper: (NodeId, NodeId),
        /// Source and destination of the frame.
        frame: (NodeId, NodeId),
    },
}

/// Nodes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nodes {
    pub(super) source: NodeId,
    pub(super) destination: NodeId,
}

fn nodes(bytes: &[u8], source: usize, destination: usize) -> Option<(NodeId, NodeId)> {
    Some((NodeId::new(u32_at(bytes, source)?), NodeId::new(u32_at(bytes, destination)?)))
}

/// Node that a datagram says it comes from.
pub(super) fn source(datagram: &[u8]) -> Option<NodeId> {
    u32_at(datagram, 8).map(NodeId::new)
}

/// Node for which a frame is.
pub(super) fn destination(frame: &[u8]) -> Option<NodeId> {
    u32_at(frame, DESTINATION_AT).map(NodeId::new)
}

/// Appends wrapper and frame to `out`; returns the nodes.
#[cfg(test)]
pub(super) fn wrap(frame: &[u8], out: &mut Vec<u8>) -> Result<Nodes, WrapperError> {
    let (header, nodes) = header(frame)?;
    out.extend(header);
    out.extend(frame);
    Ok(nodes)
}

/// Length of the frame that a wrapper states, in bytes.
pub(super) fn stated_length(wrapper: &[u8; WRAPPER_LENGTH]) -> Option<usize> {
    u16_at(wrapper, LENGTH_AT).map(usize::from)
}

/// Returns the wrapper of `frame`, and its nodes.
pub(super) fn header(frame: &[u8]) -> Result<([u8; WRAPPER_LENGTH], Nodes), WrapperError> {
    header_of(frame, frame.len())
}

/// Returns the wrapper of a frame of `length` bytes that begins with `head`, and its nodes.
pub(super) fn header_of(head: &[u8], length: usize) -> Result<([u8; WRAPPER_LENGTH], Nodes), WrapperError> {
    let too_short = WrapperError::TooShort { length: head.len() };
    let (source, destination) = nodes(head, SOURCE_AT, DESTINATION_AT).ok_or(too_short)?;
    let length = u16::try_from(length).map_err(|_| WrapperError::TooLong { length })?;
    let [m0, m1, m2, m3] = MAGIC.to_le_bytes();
    let [l0, l1] = length.to_le_bytes();
    let [s0, s1, s2, s3] = source.get().to_le_bytes();
    let [d0, d1, d2, d3] = destination.get().to_le_bytes();
    let header = [m0, m1, m2, m3, VERSION, 0, l0, l1, s0, s1, s2, s3, d0, d1, d2, d3];
    Ok((header, Nodes { source, destination }))
}

/// Checks a datagram: its frame starts at [`WRAPPER_LENGTH`] and extends to its end. The card checks the frame beyond its addresses.
pub(super) fn unwrap(datagram: &[u8]) -> Result<Nodes, WrapperError> {
    unwrap_start(datagram, datagram.len())
}

/// As [`unwrap`], for a datagram of `length` bytes that begins with `start`.
pub(super) fn unwrap_start(start: &[u8], length: usize) -> Result<Nodes, WrapperError> {
    let too_short = WrapperError::TooShort { length };
    let (head, frame) = start.split_first_chunk::<WRAPPER_LENGTH>().ok_or(too_short)?;
    let found_length = length.checked_sub(WRAPPER_LENGTH).ok_or(too_short)?;
    let [m0, m1, m2, m3, version, reserved, ..] = *head;
    let found = u32::from_le_bytes([m0, m1, m2, m3]);
    if found != MAGIC {
        return Err(WrapperError::Magic { found });
    }
    if (version, reserved) != (VERSION, 0) {
        return Err(WrapperError::Version { version, reserved });
    }
    let stated = stated_length(head).ok_or(too_short)?;
    if stated != found_length {
        return Err(WrapperError::Length { stated, found: found_length });
    }
    let wrapper = nodes(head, 8, 12).ok_or(too_short)?;
    let inner = nodes(frame, SOURCE_AT, DESTINATION_AT).ok_or(too_short)?;
    if wrapper != inner || wrapper.0 == NodeId::ANY || wrapper.1 == NodeId::ANY {
        return Err(WrapperError::Nodes { wrapper, frame: inner });
    }
    Ok(Nodes { source: wrapper.0, destination: wrapper.1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(source: u32, destination: u32, rest: &[u8]) -> Vec<u8> {
        let head = [0, source, destination, 0].into_iter().flat_map(u32::to_le_bytes);
        // The common header: version, kind and flags, then the two nodes.
        head.chain(rest.iter().copied()).collect()
    }

    fn wrapped(frame: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        wrap(frame, &mut out).unwrap();
        out
    }

    #[test]
    fn wrapper_bytes_match_table() {
        let datagram = wrapped(&frame(3, 0x0102_0304, &[9]));
        assert_eq!(datagram[..16], *b"FPLK\x01\x00\x11\x00\x03\x00\x00\x00\x04\x03\x02\x01");
        assert_eq!(datagram.len(), 33);
    }

    /// Every bit of the wrapper is checked.
    #[test]
    fn wrapper_any_bit_flip_is_detected() {
        let datagram = wrapped(&frame(3, 4, &[1, 2, 3]));
        for bit in 0..8 * WRAPPER_LENGTH {
            let mut other = datagram.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(unwrap(&other).is_err(), "bit {bit}");
        }
        for end in 0..datagram.len() {
            assert!(unwrap(&datagram[..end]).is_err(), "cut at {end}");
        }
        let longer: Vec<u8> = datagram.iter().copied().chain([0]).collect();
        assert_eq!(unwrap(&longer), Err(WrapperError::Length { stated: 19, found: 20 }));
        assert!(unwrap(&wrapped(&frame(u32::MAX, 4, &[]))).is_err());
        assert!(unwrap(&wrapped(&frame(4, u32::MAX, &[]))).is_err());
    }

    #[test]
    fn wrapper_frame_without_address_or_too_long_is_refused() {
        let mut out = Vec::new();
        assert_eq!(wrap(&[0; 11], &mut out), Err(WrapperError::TooShort { length: 11 }));
        assert_eq!(wrap(&[0; 65_536], &mut out), Err(WrapperError::TooLong { length: 65_536 }));
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn wrapper_round_trips(source in 0..u32::MAX, destination in 0..u32::MAX, rest: Vec<u8>) {
            let frame = frame(source, destination, &rest);
            let datagram = wrapped(&frame);
            let opened = unwrap(&datagram).unwrap();
            prop_assert_eq!((opened.source.get(), opened.destination.get()), (source, destination));
            prop_assert_eq!(&datagram[WRAPPER_LENGTH..], frame.as_slice());
        }

        #[test]
        fn wrapper_any_bytes_do_not_panic(bytes: Vec<u8>) {
            let _ = unwrap(&bytes);
        }
    }
}
