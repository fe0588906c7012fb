//! Names of cards and channels in messages.

use core::fmt;
use std::sync::Arc;

use fpga_registers::xdma::Direction;

/// Name of a card in an error. It is shared, so that a refusal in the steady state allocates nothing.
pub(crate) type CardName = Arc<str>;

/// Direction and number of a channel, printed as `h2c0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChannelName {
    /// Direction of the data.
    pub direction: Direction,
    /// Channel number, 0 to 3.
    pub number: u8,
}

impl ChannelName {
    /// Describes in words the `available` channels of this direction.
    pub(crate) fn others(self, available: u8) -> String {
        let named = |number| Self { number, ..self };
        match available {
            0 => "none in this direction".to_owned(),
            1 => format!("1 in this direction: {}", named(0)),
            _ => format!("{available} in this direction: {} to {}", named(0), named(available - 1)),
        }
    }
}

impl fmt::Display for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::H2c => "h2c",
            Direction::C2h => "c2h",
        };
        write!(f, "{direction}{}", self.number)
    }
}
