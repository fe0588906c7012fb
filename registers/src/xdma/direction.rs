//! Direction of a channel.

use core::fmt;

/// Direction in which a DMA channel moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Host to card: the engine reads host memory.
    H2c,
    /// Card to host: the engine writes host memory.
    C2h,
}

impl Direction {
    /// Both directions, in the order of the register space.
    pub const ALL: [Self; 2] = [Self::H2c, Self::C2h];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::H2c => "h2c",
            Self::C2h => "c2h",
        })
    }
}
