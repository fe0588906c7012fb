//! Transfers of views on the channels of the shared card.

use std::sync::Mutex;

use fpga_driver::CardAddr;
use fpga_pci::lock;
use fpga_sim::DesignError;

use crate::lane::{Lane, TransferRefused};

/// Maximum number of transfers of one channel of a view in flight.
pub(crate) const MAX_TRANSFERS: usize = 4;

/// A transfer in flight, or done.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) lane: usize,
    pub(crate) slot: usize,
    pub(crate) at: CardAddr,
    pub(crate) length: usize,
    /// The last one of its descriptor.
    pub(crate) ends: bool,
}

/// A transfer to start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start<'a> {
    /// Preferred channel of the card, of those with equally many free slots.
    pub(crate) first: usize,
    /// The only permitted channel of the card.
    pub(crate) lane: Option<usize>,
    /// The view's channel has transfers in flight.
    pub(crate) has_transfers: bool,
    pub(crate) chain: u64,
    pub(crate) at: CardAddr,
    pub(crate) length: usize,
    /// Data of a write.
    pub(crate) from: Option<&'a [u8]>,
    /// The transfer is the last one of its descriptor.
    pub(crate) ends: bool,
}

impl Start<'_> {
    /// Starts the transfer on the channel of the card with the most free slots. `None` without a free one.
    pub(crate) fn on(&self, lanes: &[Mutex<Lane>]) -> Result<Option<Part>, DesignError> {
        if lanes.is_empty() {
            return Err(DesignError::Decode);
        }
        let number = match self.lane {
            Some(lane) => Some(lane),
            None => self.lane_with_most_slots(lanes),
        };
        let Some((number, lane)) = number.and_then(|number| Some((number, lanes.get(number)?))) else {
            return Ok(None);
        };
        // One lock at a time: another view may take the slots between the two.
        let mut lane = lock(lane);
        if lane.free_slots(self.has_transfers) == 0 {
            return Ok(None);
        }
        let Self { at, length, ends, .. } = *self;
        let slot = lane.start(at, length, self.from, self.chain)?;
        Ok(slot.map(|slot| Part { lane: number, slot, at, length, ends }))
    }

    fn lane_with_most_slots(&self, lanes: &[Mutex<Lane>]) -> Option<usize> {
        let mut best = (0, None);
        let numbers = lanes.iter().enumerate().cycle().skip(self.first % lanes.len()).take(lanes.len());
        for (number, lane) in numbers {
            let free = lock(lane).free_slots(self.has_transfers);
            if free > best.0 {
                best = (free, Some(number));
            }
        }
        best.1
    }
}

impl From<TransferRefused> for DesignError {
    fn from(_: TransferRefused) -> Self {
        Self::Slave
    }
}
