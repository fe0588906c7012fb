//! Division of an access into AXI4 bursts and beats.
//!
//! A burst never crosses 4 KiB and has at most 256 beats (16 with a fixed address) of the full data width. An unaligned start has its own
//! address; the byte lanes before it have no strobes.

use fpga_sim::AxiAccess;

/// Bytes of the widest data bus.
pub(crate) const MAX_WIDTH: usize = 64;
/// No burst crosses a multiple of it (AXI4, A3.4.1).
const BOUNDARY: u64 = 4096;
/// Maximum number of beats of a burst with incrementing addresses, and with a fixed address.
const INCREMENTING_BEATS: usize = 256;
const FIXED_BEATS: usize = 16;

/// One burst of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Burst {
    /// Address of the first byte.
    pub(crate) at: u64,
    /// Position of the first byte in the data of the access.
    pub(crate) offset: usize,
    /// Length in bytes.
    pub(crate) length: usize,
    /// Number of beats, 1 to 256.
    pub(crate) beats: usize,
    /// Every beat has the same address.
    pub(crate) is_fixed: bool,
    width: usize,
}

/// Bytes of one beat: byte lanes of the bus, and the position of the first one in the data of the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beat {
    pub(crate) lane: usize,
    pub(crate) length: usize,
    pub(crate) offset: usize,
}

impl Burst {
    /// The burst that begins at byte `offset` of `access`, which has `total` bytes, on a bus of `width` bytes.
    pub(crate) fn next(access: &AxiAccess, offset: usize, total: usize, width: usize) -> Self {
        let rest = total.saturating_sub(offset);
        if access.fixed.is_some() {
            let length = rest.min(FIXED_BEATS * width);
            let beats = length.div_ceil(width).max(1);
            return Self { at: access.at.get(), offset, length, beats, is_fixed: true, width };
        }
        let at = access.at.get().wrapping_add(offset as u64);
        let skipped = lane(at, width);
        let to_boundary = usize::try_from(BOUNDARY - at % BOUNDARY).unwrap_or(1);
        let length = rest.min(to_boundary).min(INCREMENTING_BEATS * width - skipped);
        let beats = (skipped + length).div_ceil(width).max(1);
        Self { at, offset, length, beats, is_fixed: false, width }
    }

    /// Bytes of beat `number`.
    pub(crate) fn beat(&self, number: usize) -> Beat {
        if self.is_fixed {
            let done = number * self.width;
            let length = self.length.saturating_sub(done).min(self.width);
            return Beat { lane: 0, length, offset: self.offset + done };
        }
        let skipped = lane(self.at, self.width);
        let begin = (number * self.width).max(skipped);
        let end = ((number + 1) * self.width).min(skipped + self.length);
        Beat {
            lane: begin % self.width,
            length: end.saturating_sub(begin),
            offset: self.offset + (begin - skipped),
        }
    }
}

fn lane(at: u64, width: usize) -> usize {
    usize::try_from(at % width as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_registers::CardAddr;
    use fpga_sim::Unit;
    use proptest::prelude::*;

    fn access(at: u64, fixed: Option<u32>) -> AxiAccess {
        AxiAccess { unit: Unit::H2c(0), at: CardAddr::new(at), fixed }
    }

    proptest! {
        #[test]
        fn bursts_cover_every_byte_once(at in 0_u64..20_000, total in 1_usize..20_000, log in 3_u32..7) {
            let width = 1_usize << log;
            let access = access(at, None);
            let (mut offset, mut next) = (0, 0);
            while offset < total {
                let burst = Burst::next(&access, offset, total, width);
                prop_assert!(burst.length > 0 && burst.beats <= 256);
                let (first, last) = (burst.at, burst.at + burst.length as u64 - 1);
                prop_assert_eq!(first / 4096, last / 4096);
                prop_assert_eq!(burst.beats as u64, last / width as u64 - first / width as u64 + 1);
                for number in 0..burst.beats {
                    let beat = burst.beat(number);
                    prop_assert_eq!(beat.offset, next);
                    prop_assert!(beat.length > 0 && beat.lane + beat.length <= width);
                    prop_assert_eq!((at + next as u64) % width as u64, beat.lane as u64);
                    next += beat.length;
                }
                offset += burst.length;
            }
            prop_assert_eq!(next, total);
        }
    }

    #[test]
    fn fixed_access_repeats_its_address() {
        let access = access(0x100, Some(32));
        let burst = Burst::next(&access, 0, 32 * 20, 32);
        assert_eq!((burst.at, burst.beats, burst.length), (0x100, 16, 512));
        assert_eq!(burst.beat(15), Beat { lane: 0, length: 32, offset: 480 });
        let rest = Burst::next(&access, burst.length, 32 * 20, 32);
        assert_eq!((rest.at, rest.beats, rest.offset), (0x100, 4, 512));
    }
}
