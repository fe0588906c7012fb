//! Address types, one per address space, so that they cannot be confused.
//!
//! A design with XDMA and CDMA has three address spaces: host memory as the card addresses it ([`Iova`]), the card's own AXI memory map
//! ([`CardAddr`]), and the offset of a register in a BAR ([`BarOffset`]). PG195 calls the first two "host" and "AXI" address; a descriptor
//! holds both.

use core::fmt;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Address zero.
            pub const ZERO: Self = Self(0);

            /// The address with this value, in bytes.
            #[must_use]
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// The value, in bytes.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The address `bytes` further up; `None` past the end of the 64-bit space.
            #[must_use]
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(value) => Some(Self(value)),
                    None => None,
                }
            }

            /// The address `bytes` further down; `None` below zero.
            #[must_use]
            pub const fn checked_sub(self, bytes: u64) -> Option<Self> {
                match self.0.checked_sub(bytes) {
                    Some(value) => Some(Self(value)),
                    None => None,
                }
            }

            /// Distance in bytes from `lower` up to this address; `None` if `lower` lies above it.
            #[must_use]
            pub const fn distance_from(self, lower: Self) -> Option<u64> {
                self.0.checked_sub(lower.0)
            }

            /// Returns whether the address is a multiple of `alignment` bytes; false for an alignment of zero.
            #[must_use]
            pub const fn is_aligned_to(self, alignment: u64) -> bool {
                match self.0.checked_rem(alignment) {
                    Some(rest) => rest == 0,
                    None => false,
                }
            }

            /// The low and high register words of the address.
            #[must_use]
            pub const fn to_low_high(self) -> (u32, u32) {
                crate::words::split(self.0)
            }

            /// The address whose low and high register words are these.
            #[must_use]
            pub const fn from_low_high(low: u32, high: u32) -> Self {
                Self(crate::words::join(low, high))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address! {
    /// Host memory as a device addresses it on the bus (an I/O virtual address if an IOMMU translates).
    Iova
}

address! {
    /// An address in the card's AXI memory map, as XDMA's AXI side and CDMA use it.
    CardAddr
}

address! {
    /// A byte offset inside one BAR.
    BarOffset
}

impl BarOffset {
    /// Offset of a register that is `offset` bytes into a block that starts here.
    ///
    /// Saturates at the end of the 64-bit space instead of wrapping: an invalid base stays invalid, and the bounds check of the backend
    /// refuses it.
    #[must_use]
    pub const fn offset_by(self, offset: u32) -> Self {
        // Widening: `u64::from` is not callable in a const fn.
        let offset = offset as u64;
        Self(self.0.saturating_add(offset))
    }
}
