//! Descriptor fetch of one channel (PG195 "H2C SGDMA Registers (0x4)", "C2H SGDMA Registers (0x5)").

use crate::xdma::Identifier;

register_block! {
    /// Descriptor fetch registers of a channel; both directions have the same layout. See
    /// [`sgdma_base`](super::sgdma_base).
    pub struct SgdmaBlock [0x100] {
        /// Block identifier, `0x1FC4_xxxx` (H2C) or `0x1FC5_xxxx` (C2H).
        0x00 identifier IDENTIFIER: Ro<Identifier>;
        skip _reserved_04 [31];
        /// Low word of the host address of the first descriptor, a multiple of 32.
        0x80 descriptor_low DESCRIPTOR_LOW: Rw<u32> = 0;
        /// High word of the host address of the first descriptor.
        0x84 descriptor_high DESCRIPTOR_HIGH: Rw<u32> = 0;
        /// Descriptors that directly follow the first one in memory.
        0x88 adjacent ADJACENT: Rw<Adjacent> = 0;
        /// Descriptor credits, used only in credit mode.
        0x8C credits CREDITS: Rw<Credits> = 0;
        end _reserved_90 [28]
    }
}

register_value! {
    /// Descriptor adjacent (PG195 "H2C SGDMA Descriptor Adjacent (0x88)").
    pub struct Adjacent {
        /// Extra descriptors, 0 to 63, in memory right after the first, without a 4 KiB boundary in between.
        6 extra: u8;
        26 _reserved_6: u32;
    }

    /// Descriptor credits (PG195 "H2C SGDMA Descriptor Credits (0x8C)").
    ///
    /// A write adds to the credits, a read returns the remaining ones. Cleared on the falling edge of run and while credit
    /// mode is off.
    pub struct Credits {
        /// Credits to add, or credits left, 0 to 1023.
        10 credits: u16;
        22 _reserved_10: u32;
    }
}

impl Adjacent {
    /// Creates the value for `extra` descriptors; `None` above 63.
    #[must_use]
    pub const fn of(extra: u8) -> Option<Self> {
        if extra < 64 { Some(Self::new().with_extra(extra)) } else { None }
    }
}

impl Credits {
    /// Creates the value for `credits`; `None` above [`Credits::MAX`].
    #[must_use]
    pub const fn of(credits: u16) -> Option<Self> {
        if credits <= Self::MAX { Some(Self::new().with_credits(credits)) } else { None }
    }

    /// Maximum number of credits that the counter holds.
    pub const MAX: u16 = 0x3FF;
}
