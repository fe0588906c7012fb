//! Parts of the driver for packages on top of it: for those that drive a card's network interface (`fpga-rdma`), program a channel's
//! registers themselves (`fpga-diag`), or run a design's simulation (`fpgactl`).
//!
//! Applications need none of it: everything that they call is in the other modules.

use std::sync::Arc;

use fpga_pci::MmioError;

pub use crate::engine_interrupt::EngineInterrupt;
pub use crate::error::At;
pub use crate::ni::{RegisterBlock, TransmitWindows};
pub use crate::raw::RawChannel;
pub use crate::simulation::simulation_command;

use crate::card::Card;
use crate::error::{Error, ResourceError};
use crate::shared::Shared;

/// Exclusive use of a card's network interface. Dropping it releases the interface.
#[derive(Debug)]
pub struct InterfaceClaim(Arc<Shared>);

impl InterfaceClaim {
    pub(crate) fn take(card: &Arc<Shared>) -> Result<Self, ResourceError> {
        card.take_endpoint()?;
        Ok(Self(Arc::clone(card)))
    }
}

impl Drop for InterfaceClaim {
    fn drop(&mut self) {
        self.0.release_endpoint();
    }
}

impl Card {
    /// Takes the network interface.
    ///
    /// # Errors
    /// [`ResourceError::InUse`], [`ResourceError::Observed`]; [`ResourceError::Cause`] in a process that has not opened the card.
    pub fn claim_network_interface(&self) -> Result<InterfaceClaim, Error<ResourceError>> {
        InterfaceClaim::take(&self.shared).at(|| self.place())
    }

    /// Takes a line of the user interrupts for a thread that sleeps until the card has worked. `None` if interrupts are not enabled, if
    /// there is no such line, or if the program holds it.
    #[must_use]
    pub fn engine_interrupt(&self, line: u8) -> Option<EngineInterrupt> {
        EngineInterrupt::take(&self.shared, line)
    }

    /// Returns an error in another process than the one that has opened the card.
    ///
    /// # Errors
    /// [`MmioError::OtherProcess`].
    #[inline]
    pub fn check_process(&self) -> Result<(), MmioError> {
        self.shared.check_process()
    }
}
