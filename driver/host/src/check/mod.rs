//! Whether the machine is ready for cards through VFIO, check by check.
//!
//! A failed check prevents cards from being opened; a warning affects speed or safety. Checks that depend on a failed one are skipped, so
//! that the first failure is the cause.

mod card;
mod machine;

use core::fmt;
use std::borrow::Cow;

use crate::group::{VFIO_PCI, listed};
use crate::{Caller, HostError, PciAddress, PciFunction, Roots, functions};

/// Result of a check of the machine, or of a test of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Correct.
    Pass,
    /// Works, but not at full speed or not safely; the message names the limitation.
    Warn,
    /// Does not work.
    Fail,
    /// Not applicable, or not tested.
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

/// Action that makes a check pass. `Display` has no words of one front end; front ends that have a command for it match the variant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fix {
    /// Bind the function to vfio-pci.
    Bind(PciAddress),
    /// Bind these members of the group to vfio-pci too, or use a slot with a separate group.
    BindGroup(Vec<PciAddress>),
    /// Stop the engines by their registers after a fault, because the kernel cannot reset the function.
    StopEngines,
    /// Give the programs of the physical and the virtual function the same token.
    ShareToken,
    /// Rescan the bus, or name a card with other ids.
    FindCard,
    /// Another action, in one sentence.
    Text(Cow<'static, str>),
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(address) => write!(f, "bind {address} to {VFIO_PCI}"),
            Self::BindGroup(others) => {
                write!(f, "bind {} to {VFIO_PCI} too, or use a slot with a separate group", listed(others))
            }
            Self::StopEngines => f.write_str("stop the engines by their registers after a fault"),
            Self::ShareToken => f.write_str("give both programs the same token, a UUID"),
            Self::FindCard => f.write_str(
                "check its power and its bitstream, then echo 1 > /sys/bus/pci/rescan; name a card with other ids by its address",
            ),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl<T: Into<Cow<'static, str>>> From<T> for Fix {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// Name of the check: one word, stable.
    pub name: &'static str,
    /// Function that was checked; `None`: the machine.
    pub function: Option<PciAddress>,
    /// Status.
    pub status: Status,
    /// Finding.
    pub message: String,
    /// Action to take, if any.
    pub fix: Option<Fix>,
}

impl Check {
    fn new(name: &'static str, status: Status, message: impl Into<String>) -> Self {
        Self { name, function: None, status, message: message.into(), fix: None }
    }

    fn fix(mut self, fix: impl Into<Fix>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    fn at(mut self, function: PciAddress) -> Self {
        self.function = Some(function);
        self
    }
}

/// Properties of the machine that checks of functions need.
#[derive(Debug)]
struct Machine<'a> {
    roots: &'a Roots,
    caller: Caller,
    /// Whether any group has an IOMMU.
    has_iommu: bool,
    /// Whether the driver is loaded.
    has_driver: bool,
}

/// Examines the machine, and `cards`; if there are none, all functions with known ids.
///
/// # Errors
/// [`HostError::NoSysfs`], [`HostError::Unreadable`], [`HostError::InvalidContent`] for files that every check needs.
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
