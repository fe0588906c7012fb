//! The shared card.

use std::sync::Mutex;
use std::time::Duration;

use fpga_driver::{Card, Direction};
use fpga_pci::Bar;
use fpga_registers::BarOffset;

use crate::error::ShareError;
use crate::lane::Lane;

/// A card that several views access.
///
/// Each access becomes a transfer on the channel of its direction with the fewest transfers in flight.
#[derive(Debug)]
pub struct SharedCard {
    card: Card,
    user: Option<Bar>,
    /// The user BAR has registers with addresses of host memory.
    has_ni: bool,
    h2c: Vec<Mutex<Lane>>,
    c2h: Vec<Mutex<Lane>>,
    timeout: Duration,
}

impl SharedCard {
    /// Takes all channels of `card`. An access of a view fails after `timeout`.
    ///
    /// # Errors
    /// [`ShareError`].
    pub fn new(card: Card, timeout: Duration) -> Result<Self, ShareError> {
        let xdma = card.info().xdma;
        if xdma.stream {
            return Err(ShareError::Streams);
        }
        let lanes = |direction, count| {
            (0..count).map(|number| Lane::open(&card, direction, number).map(Mutex::new)).collect()
        };
        let (h2c, c2h): (Result<_, ShareError>, Result<_, ShareError>) =
            (lanes(Direction::H2c, xdma.h2c_channels), lanes(Direction::C2h, xdma.c2h_channels));
        let (h2c, c2h) = (h2c?, c2h?);
        let has_ni = card.info().ni.is_some();
        Ok(Self { user: card.user_bar().cloned(), has_ni, h2c, c2h, timeout, card })
    }

    /// The card.
    #[must_use]
    pub const fn card(&self) -> &Card {
        &self.card
    }

    /// Its channels of a direction.
    pub(crate) fn lanes(&self, direction: Direction) -> &[Mutex<Lane>] {
        match direction {
            Direction::H2c => &self.h2c,
            Direction::C2h => &self.c2h,
        }
    }

    /// Maximum duration of a transfer.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }
}

impl SharedCard {
    pub(crate) fn read_register(&self, offset: u64) -> u32 {
        // What the root complex returns for a register that does not answer.
        self.user.as_ref().and_then(|bar| bar.read32(BarOffset::new(offset)).ok()).unwrap_or(u32::MAX)
    }

    pub(crate) fn write_register(&self, offset: u64, value: u32) {
        if self.has_ni {
            tracing::warn!(
                offset,
                value,
                "a client's write of the user BAR is refused: registers of the card's network interface contain addresses"
            );
        } else if let Some(bar) = &self.user
            && let Err(error) = bar.write32(BarOffset::new(offset), value)
        {
            tracing::warn!(%error, "a client's write of the user BAR failed");
        }
    }
}
