//! Whether the machine is ready for cards through VFIO, check by check.
//!
//! A check that fails keeps cards from being opened; one that warns costs speed or safety. What a failed check makes pointless is
//! skipped, so that the first failure is the cause.

mod card;
mod machine;

use core::fmt;

use crate::{Caller, HostError, PciAddress, PciFunction, Roots, functions};

/// Result of a check of the machine, or of a test of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// As it should be.
    Pass,
    /// It works, but not as well or not as safely as it could; the message says what to avoid.
    Warn,
    /// It does not work.
    Fail,
    /// It does not apply, or was not tested.
    Skip,
}

impl Status {
    /// `pass`, `warn`, `fail`, `skip`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// What was looked at: one word, stable.
    pub name: &'static str,
    /// At which function; `None`: at the machine.
    pub function: Option<PciAddress>,
    /// How it ended.
    pub status: Status,
    /// What was found.
    pub message: String,
    /// What to do, where something is to be done.
    pub fix: Option<String>,
}

impl Check {
    fn new(name: &'static str, status: Status, message: impl Into<String>) -> Self {
        Self { name, function: None, status, message: message.into(), fix: None }
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    fn at(mut self, function: PciAddress) -> Self {
        self.function = Some(function);
        self
    }
}

/// What checks of functions need to know of the machine.
#[derive(Debug)]
struct Machine<'a> {
    roots: &'a Roots,
    caller: Caller,
    /// Whether an IOMMU stands behind any group.
    has_iommu: bool,
    /// Whether the driver is loaded.
    has_driver: bool,
}

/// Examines the machine, and `cards`; without any, all functions with known ids.
///
/// # Errors
/// [`HostError::NoSysfs`], [`HostError::Unreadable`], [`HostError::InvalidContent`]: what no check can do without.
pub fn examine(roots: &Roots, cards: &[PciFunction]) -> Result<Vec<Check>, HostError> {
    let listing = functions(roots)?;
    let known: Vec<PciFunction>;
    let (cards, named) = match cards {
        [] => {
            known = listing.functions.into_iter().filter(PciFunction::is_known).collect();
            (&known[..], false)
        }
        cards => (cards, true),
    };
    let caller = Caller::read(roots)?;
    let (machine, mut checks) = machine::examine(roots, caller)?;
    checks.push(machine::cards(cards, named, &listing.unreadable));
    for function in cards {
        let found = card::examine(&machine, function)?;
        checks.extend(found.into_iter().map(|check| check.at(function.address)));
    }
    Ok(checks)
}
