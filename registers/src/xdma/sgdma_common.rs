//! Descriptor control of all channels (PG195 "SGDMA Common Registers (0x6)").
//!
//! The bits of a channel are at fixed positions here (H2C 3:0, C2H 19:16), in contrast to the interrupt block, where C2H channels follow
//! the last H2C channel that is built: see X19 of [`errata`](crate::errata).

use crate::decode::FieldKind;
use crate::xdma::{Direction, Identifier};

register_block! {
    /// Halt and credit mode of the descriptor engines.
    pub struct SgdmaCommonBlock [0x100] {
        /// Block identifier, `0x1FC6_xxxx`.
        0x00 identifier IDENTIFIER: Ro<Identifier>;
        skip _reserved_04 [3];
        /// Channels that must not fetch descriptors.
        0x10 halt HALT: Rw<PerChannel> = 0;
        /// Sets bits of `halt`.
        0x14 halt_set HALT_SET: W1s<PerChannel>;
        /// Clears bits of `halt`.
        0x18 halt_clear HALT_CLEAR: W1c<PerChannel>;
        skip _reserved_1c [1];
        /// Channels that fetch only as many descriptors as they have been given credits for.
        0x20 credit_mode CREDIT_MODE: Rw<PerChannel> = 0;
        /// Sets bits of `credit_mode`.
        0x24 credit_mode_set CREDIT_MODE_SET: W1s<PerChannel>;
        /// Clears bits of `credit_mode`.
        0x28 credit_mode_clear CREDIT_MODE_CLEAR: W1c<PerChannel>;
        end _reserved_2c [53]
    }
}

const CHANNELS: FieldKind = FieldKind::Flags(&["0", "1", "2", "3"]);

register_value! {
    /// One bit per channel, at places that do not depend on the build (PG195 "SGDMA Descriptor Control Register
    /// (0x10)").
    pub struct PerChannel {
        /// H2C channels, bit n for channel n.
        4 h2c: u8, CHANNELS;
        12 _reserved_4: u16;
        /// C2H channels, bit n for channel n.
        4 c2h: u8, CHANNELS;
        12 _reserved_20: u16;
    }
}

impl PerChannel {
    /// Sets only the bit of one channel; none for a number of 4 or more.
    #[must_use]
    pub const fn one(direction: Direction, channel: u8) -> Self {
        if channel >= super::MAX_CHANNELS {
            return Self::new();
        }
        match direction {
            Direction::H2c => Self::new().with_h2c(1 << channel),
            Direction::C2h => Self::new().with_c2h(1 << channel),
        }
    }
}
