//! Error responses of the card's AXI bus, and the fault hooks that cause them.

use fpga_registers::CardAddr;

/// An AXI error response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AxiError {
    /// DECERR: no slave at this address.
    Decode,
    /// SLVERR: the slave refused (fault hooks).
    Slave,
    /// No response, ever (fault hooks): the requesting engine hangs.
    Silent,
    /// A design outside the model has not answered yet: the engine asks again.
    Pending,
}

/// Fault hooks: ranges (first and last address) that answer with errors instead of the memory behind them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hooks {
    pub(crate) poisoned: Option<(u64, u64)>,
    pub(crate) silent: Option<(u64, u64)>,
}

impl Hooks {
    #[inline]
    pub(crate) const fn none(&self) -> bool {
        self.poisoned.is_none() && self.silent.is_none()
    }

    pub(crate) fn answer(&self, at: u64) -> Result<(), AxiError> {
        let within =
            |range: Option<(u64, u64)>| range.is_some_and(|(first, last)| (first..=last).contains(&at));
        if within(self.silent) {
            Err(AxiError::Silent)
        } else if within(self.poisoned) {
            Err(AxiError::Slave)
        } else {
            Ok(())
        }
    }

    /// Bytes, at most `most`, until the next such range begins, so that an access stops exactly at it.
    pub(crate) fn until_next(&self, at: u64, most: usize) -> usize {
        [self.poisoned, self.silent]
            .into_iter()
            .flatten()
            .filter_map(|(first, _)| first.checked_sub(at).filter(|gap| *gap > 0))
            .fold(most, |most, gap| usize::try_from(gap).map_or(most, |gap| gap.min(most)))
    }
}

/// Range of `length` bytes at `at`; `None` if it is empty.
pub(crate) fn range(at: CardAddr, length: u64) -> Option<(u64, u64)> {
    (length > 0).then(|| (at.get(), at.get().saturating_add(length - 1)))
}
