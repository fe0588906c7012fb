//! Interrupts (PG195 "IRQ Block Registers (0x2)").

use crate::access::{Reg, Rw};
use crate::decode::FieldKind;
use crate::xdma::{Direction, Identifier};

register_block! {
    /// Masks, requests and vector numbers of all interrupts.
    pub struct IrqBlock [0x100] {
        /// Block identifier, `0x1FC2_xxxx`.
        0x00 identifier IDENTIFIER: Ro<Identifier>;
        /// User interrupts that may be sent. Enabling one whose request is up sends it.
        0x04 user_enable USER_ENABLE: Rw<UserMask> = 0;
        /// Sets bits of `user_enable`.
        0x08 user_enable_set USER_ENABLE_SET: W1s<UserMask>;
        /// Clears bits of `user_enable`.
        0x0C user_enable_clear USER_ENABLE_CLEAR: W1c<UserMask>;
        /// Channel interrupts that may be sent. Enabling one whose source is up sends it.
        0x10 channel_enable CHANNEL_ENABLE: Rw<ChannelMask> = 0;
        /// Sets bits of `channel_enable`.
        0x14 channel_enable_set CHANNEL_ENABLE_SET: W1s<ChannelMask>;
        /// Clears bits of `channel_enable`.
        0x18 channel_enable_clear CHANNEL_ENABLE_CLEAR: W1c<ChannelMask>;
        skip _reserved_1c [9];
        /// User interrupt sources that are up and enabled.
        0x40 user_request USER_REQUEST: Ro<UserMask> = 0;
        /// Channel interrupt sources that are up and enabled.
        0x44 channel_request CHANNEL_REQUEST: Ro<ChannelMask> = 0;
        /// User interrupt sources that are up, enabled or not.
        0x48 user_pending USER_PENDING: Ro<UserMask> = 0;
        /// Channel interrupt sources that are up, enabled or not; goes away with the channel's status bits.
        0x4C channel_pending CHANNEL_PENDING: Ro<ChannelMask> = 0;
        skip _reserved_50 [12];
        /// Vector numbers of user interrupts 0 to 3.
        0x80 user_vectors0 USER_VECTORS0: Rw<VectorNumbers> = 0;
        /// Vector numbers of user interrupts 4 to 7.
        0x84 user_vectors1 USER_VECTORS1: Rw<VectorNumbers> = 0;
        /// Vector numbers of user interrupts 8 to 11.
        0x88 user_vectors2 USER_VECTORS2: Rw<VectorNumbers> = 0;
        /// Vector numbers of user interrupts 12 to 15.
        0x8C user_vectors3 USER_VECTORS3: Rw<VectorNumbers> = 0;
        skip _reserved_90 [4];
        /// Vector numbers of channel interrupts 0 to 3.
        0xA0 channel_vectors0 CHANNEL_VECTORS0: Rw<VectorNumbers> = 0;
        /// Vector numbers of channel interrupts 4 to 7.
        0xA4 channel_vectors1 CHANNEL_VECTORS1: Rw<VectorNumbers> = 0;
        end _reserved_a8 [22]
    }
}

impl IrqBlock {
    /// Vector numbers of the user interrupts, four per register.
    pub const USER_VECTORS: [Reg<Rw<VectorNumbers>>; 4] =
        [Self::USER_VECTORS0, Self::USER_VECTORS1, Self::USER_VECTORS2, Self::USER_VECTORS3];
    /// Vector numbers of the channel interrupts, four per register.
    pub const CHANNEL_VECTORS: [Reg<Rw<VectorNumbers>>; 2] = [Self::CHANNEL_VECTORS0, Self::CHANNEL_VECTORS1];
}

const SIXTEEN: FieldKind =
    FieldKind::Flags(&["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"]);
const EIGHT: FieldKind = FieldKind::Flags(&["0", "1", "2", "3", "4", "5", "6", "7"]);

register_value! {
    /// One bit per user interrupt (PG195 "IRQ Block User Interrupt Enable Mask (0x04)").
    pub struct UserMask {
        /// Bit n for `usr_irq_req[n]`.
        16 user: u16, SIXTEEN;
        16 _reserved_16: u16;
    }

    /// One bit per channel that is built: H2C channels first, C2H channels right after the last of them (PG195 "IRQ
    /// Block Channel Interrupt Enable Mask (0x10)").
    pub struct ChannelMask {
        /// Bit of a channel: see [`channel_bit`].
        8 channels: u8, EIGHT;
        24 _reserved_8: u32;
    }

    /// Four interrupt vector numbers (PG195 "IRQ Block User Vector Number (0x80)"). With legacy interrupts only
    /// the two low bits of each count.
    pub struct VectorNumbers {
        /// Of the first interrupt of the group.
        5 vector0: u8;
        3 _reserved_5: u8;
        /// Of the second interrupt of the group.
        5 vector1: u8;
        3 _reserved_13: u8;
        /// Of the third interrupt of the group.
        5 vector2: u8;
        3 _reserved_21: u8;
        /// Of the fourth interrupt of the group.
        5 vector3: u8;
        3 _reserved_29: u8;
    }
}

impl VectorNumbers {
    /// Creates a word of four vector numbers, of which the low five bits are kept.
    #[must_use]
    pub const fn of(vectors: [u8; 4]) -> Self {
        Self::new()
            .with_vector0(vectors[0] & 0x1F)
            .with_vector1(vectors[1] & 0x1F)
            .with_vector2(vectors[2] & 0x1F)
            .with_vector3(vectors[3] & 0x1F)
    }

    /// The four vector numbers.
    #[must_use]
    pub const fn vectors(self) -> [u8; 4] {
        [self.vector0(), self.vector1(), self.vector2(), self.vector3()]
    }
}

/// Bit of channel `n` in a [`ChannelMask`] and its index among the channel vectors, on a card with `h2c_channels` H2C channels: C2H
/// channels follow the last H2C channel that is built.
#[must_use]
pub const fn channel_bit(direction: Direction, n: u8, h2c_channels: u8) -> u8 {
    match direction {
        Direction::H2c => n,
        Direction::C2h => h2c_channels.saturating_add(n),
    }
}
