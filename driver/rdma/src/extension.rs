//! State of an endpoint for packages that examine it, as `fpga-diag` does, which has the names of these types.
//!
//! Applications need none of it: everything that they call is in the root.

use fpga_firmware::event::Event;
use fpga_firmware::generated::counters;
use fpga_pci::MmioError;
use fpga_protocol::mirror::{Mirror, MirrorError};
use fpga_protocol::sender::{Sender, TransferView};

pub use crate::windows::ReceiveWindows;

use crate::Endpoint;

impl Endpoint {
    /// Returns the sender, for listings of op table and queues; `None` if the card sends all packets.
    #[must_use]
    pub fn sender(&self) -> Option<&Sender> {
        self.sender.host()
    }

    /// Returns the transfers that have not ended, as far as this host knows.
    #[must_use]
    pub fn transfers(&self) -> Vec<TransferView> {
        self.sender.transfers()
    }

    /// Returns the mirror of the receive registry and the escape channel, which is built from events. If the card had to drop events
    /// because this host did not take them, the next poll resynchronises the mirror from the card's windows; until then it [is
    /// stale](Mirror::is_stale).
    #[must_use]
    pub const fn mirror(&self) -> &Mirror {
        &self.receiving.mirror
    }

    /// Returns the windows of the card's receive tables.
    #[must_use]
    pub const fn windows(&self) -> &ReceiveWindows {
        &self.receiving.windows
    }

    /// Reads the numbers of packets that the card has sent and received, modulo 2^32.
    ///
    /// # Errors
    /// See [`MmioError`].
    pub fn packets(&self) -> Result<(u32, u32), MmioError> {
        let block = self.receiving.windows.block(self.settings.info.counters_base);
        Ok((block.read(counters::TX_PACKETS)?, block.read(counters::RX_PACKETS)?))
    }

    /// Returns the oldest fault event of the NI that was not taken yet, of the latest 256. Its `generation` is the number of earlier faults
    /// of the same reason that have no event of their own.
    #[must_use]
    pub fn next_fault(&mut self) -> Option<Event> {
        self.health.faults.next_event()
    }

    /// Returns the oldest event that contradicted earlier ones and was not taken yet, of the latest 256.
    #[must_use]
    pub fn next_mirror_fault(&mut self) -> Option<MirrorError> {
        self.health.faults.next_contradiction()
    }
}
