//! Where virtual time went.

use fpga_card::TimePart;
use fpga_protocol::time::Nanos;

/// Parts of the virtual time since a simulated network was built. They add up to the whole: a span in which several parts work belongs to
/// a network port, otherwise to a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeSpent {
    /// PCIe links: data, descriptors, events, and the latency of requests.
    pub pcie: Nanos,
    /// Inside cards: the CDMA and card memory.
    pub card: Nanos,
    /// Network ports and the way to the next card.
    pub network: Nanos,
    /// Nothing was in progress: software, or everybody waited for a timer.
    pub host: Nanos,
}

impl TimeSpent {
    pub(crate) fn add(&mut self, part: Option<TimePart>, span: Nanos) {
        let total = match part {
            Some(TimePart::Pcie) => &mut self.pcie,
            Some(TimePart::Card) => &mut self.card,
            Some(TimePart::Network) => &mut self.network,
            _ => &mut self.host,
        };
        *total = total.saturating_add(span);
    }

    /// Sum of all parts.
    #[must_use]
    pub fn total(&self) -> Nanos {
        [self.card, self.network, self.host].iter().fold(self.pcie, |sum, part| sum.saturating_add(*part))
    }

    /// Parts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            pcie: self.pcie.saturating_sub(earlier.pcie),
            card: self.card.saturating_sub(earlier.card),
            network: self.network.saturating_sub(earlier.network),
            host: self.host.saturating_sub(earlier.host),
        }
    }
}
