//! Channels for callers that program the registers themselves.

use std::sync::Arc;

use fpga_pci::{Backend, Bar, Interrupt, lock};
use fpga_registers::xdma::irq::channel_bit;

use crate::card::Card;
use crate::error::{At as _, Error, ResourceError};
use crate::name::ChannelName;
use crate::range::CardRange;
use crate::shared::{ChannelClaim, Shared};

/// Channel that the caller drives by its own register accesses and descriptors: for self-tests, bring-up and experiments.
///
/// The driver neither starts nor stops the engine. Before host memory that it accesses is freed, the caller stops it and confirms that it is
/// idle; otherwise the memory has to be [quarantined](fpga_pci::RegisteredMemory::quarantine). The channel is free again on drop.
#[derive(Debug)]
pub struct RawChannel {
    card: Arc<Shared>,
    claim: ChannelClaim,
}

impl RawChannel {
    /// Returns the direction and number of the channel.
    #[must_use]
    pub const fn name(&self) -> ChannelName {
        self.claim.name
    }

    /// Returns the BAR with the XDMA registers (PG195, "Register Space").
    #[must_use]
    pub fn registers(&self) -> &Bar {
        &self.card.dma_bar
    }

    /// Returns the channel's interrupt and the number of its vector; `None` unless interrupts are
    /// [enabled](Card::enable_interrupts).
    #[must_use]
    pub fn interrupt(&self) -> Option<(Interrupt, usize)> {
        let interrupts = lock(&self.card.interrupts);
        let name = self.claim.name;
        let number = channel_bit(name.direction, name.number, self.card.info.xdma.h2c_channels);
        let own = interrupts.get(usize::from(number))?;
        // If vectors are shared, the first channel with the same vector gives its number.
        let vector = interrupts.iter().position(|other| other.shares_with(own))?;
        Some((own.clone(), vector))
    }
}

impl Card {
    /// Takes channel `name` for register accesses of the caller; see [`RawChannel`].
    ///
    /// # Errors
    /// [`ResourceError::NoSuchChannel`]; [`ResourceError::InUse`] while the channel has an owner; [`ResourceError::Observed`] if the card
    /// was opened for inspection only.
    pub fn raw_channel(&self, name: ChannelName) -> Result<RawChannel, Error<ResourceError>> {
        let claim = self
            .check_channel(name)
            .and_then(|()| self.shared.claim_channel(name))
            .at(|| self.shared.place())?;
        Ok(RawChannel { card: Arc::clone(&self.shared), claim })
    }

    /// Returns the backend by which the card is reached. Resets and bus mastering through it bypass the driver: prefer
    /// [`recover`](Self::recover).
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
    }

    /// Returns the ranges of card memory that transfers may access: those of the network interface, else
    /// [`OpenOptions::card_memory`](crate::OpenOptions::card_memory). `None` if neither is known: addresses are not checked then.
    #[must_use]
    pub fn memory_ranges(&self) -> Option<&[CardRange]> {
        self.shared.reachable()
    }
}
