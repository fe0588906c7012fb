//! To vfio-pci, and back to the driver that had it.
//!
//! What happens, in this order, so that a program that dies in between leaves something that [`release`] understands:
//!
//! 1. everything that could be refused is refused, before anything is changed;
//! 2. what there is is remembered (`record`);
//! 3. `driver_override` names the only driver that may have the function, so that nobody else's probe takes it in between;
//! 4. the function is unbound from the driver it has, and bound to the one it is to have;
//! 5. if that cannot be done, it gets its old driver back.
//!
//! Others bind drivers, too (udev, a module that is being loaded, somebody at the next terminal). So each step is chosen from
//! what is the case, never from what was the case before, and steps that come too late are taken again, a bounded number of times.

mod error;
#[cfg(test)]
mod fake;
mod kernel;
mod record;
mod settle;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use error::{BindError, Failure, Outcome};
pub use record::{Record, RecordError};

use crate::function::PciFunction;
use crate::group::VFIO_PCI;
use crate::{HostError, IommuGroup, OtherFunction, PciAddress, Roots};
use kernel::{Kernel, System};
use record::Records;
use settle::{Goal, settle};

/// What [`bind`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bound {
    /// The function.
    pub address: PciAddress,
    /// The driver it has now.
    pub driver: String,
    /// The driver it had.
    pub previous: Option<String>,
    /// Whether there was nothing to do.
    pub already: bool,
    /// Its group.
    pub group: u32,
    /// The group's other functions.
    pub others: Vec<OtherFunction>,
    /// Files by which it is opened, those that exist.
    pub files: Vec<PathBuf>,
}

/// What [`release`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// The function.
    pub address: PciAddress,
    /// The driver it has now.
    pub driver: Option<String>,
    /// The driver it had.
    pub previous: Option<String>,
    /// Whether it was known which driver it should have.
    pub remembered: bool,
}

/// Whether `driver`, which `address` is bound to, gives functions to user space: vfio-pci, or a vendor's variant, which makes a
/// directory for the function's device file as vfio-pci does.
#[must_use]
pub fn is_user_driver(roots: &Roots, address: PciAddress, driver: Option<&str>) -> bool {
    driver == Some(VFIO_PCI) || driver.is_some() && roots.function_file(address).is_some()
}

/// Gives a function to vfio-pci. `force`: one whose ids are not those of a known card, too.
///
/// # Errors
/// See [`BindError`]. The function has the driver that it had, unless [`BindError::Failed`] says otherwise.
pub fn bind(roots: &Roots, function: &PciFunction, force: bool) -> Result<Bound, BindError> {
    bind_with(roots, &System, function, force)
}

/// Gives a function back to the driver that it had before [`bind`]; where that is not known, to whichever driver of the kernel's wants it.
///
/// # Errors
/// See [`BindError`]. The function stays with vfio-pci, unless [`BindError::Failed`] or [`BindError::RecordNotRemoved`] says otherwise.
pub fn release(roots: &Roots, function: &PciFunction) -> Result<Released, BindError> {
    release_with(roots, &System, function)
}

fn bind_with(
    roots: &Roots,
    kernel: &dyn Kernel,
    function: &PciFunction,
    force: bool,
) -> Result<Bound, BindError> {
    let address = function.address;
    let group = check(roots, function, force)?;
    let group = IommuGroup::read(roots, group)?;
    if group.unprotected {
        return Err(BindError::NoIommuMode { address, group: group.number });
    }
    let records = Records::lock(roots)?;
    // Nobody of ours changes it any more: what counts is what is the case now.
    let PciFunction { driver: previous, driver_override: only, .. } = PciFunction::read(roots, address)?;
    let already = previous.as_deref() == Some(VFIO_PCI);
    if !already {
        let old = match records.read(address)? {
            // A program that did this before has died half-way: what it found is what counts.
            Some(first) if previous.is_none() && only.as_deref() == Some(VFIO_PCI) => first,
            _ => Record { driver: previous.clone(), driver_override: only },
        };
        records.write(address, &old)?;
        let goal = Goal::Driver(VFIO_PCI.to_owned());
        if let Err(failure) = settle(roots, kernel, address, Some(VFIO_PCI), &goal) {
            let outcome = put_back(roots, kernel, address, &old, &failure).and(|| records.remove(address));
            return Err(BindError::Failed { address, to: VFIO_PCI.to_owned(), failure, outcome });
        }
    }
    let files = files(roots, kernel, address, group.number);
    Ok(Bound {
        address,
        driver: VFIO_PCI.to_owned(),
        previous,
        already,
        group: group.number,
        others: group.others(address).cloned().collect(),
        files,
    })
}

/// Whether it may be bound; gives the number of its group.
fn check(roots: &Roots, function: &PciFunction, force: bool) -> Result<u32, BindError> {
    let address = function.address;
    if function.is_bridge() {
        return Err(BindError::Bridge { address });
    }
    if !function.is_known() && !force {
        let driver = function.driver.clone();
        return Err(BindError::NotACard { address, id: function.id, kind: function.kind(), driver });
    }
    let Some(group) = function.group else {
        let others = !IommuGroup::numbers(roots)?.is_empty();
        return Err(BindError::NoIommu { address, others });
    };
    if function.virtual_functions > 0 {
        return Err(BindError::HasVirtualFunctions { address, count: function.virtual_functions });
    }
    if !roots.pci_driver(VFIO_PCI).exists() {
        return Err(BindError::NoDriver { address });
    }
    Ok(group)
}

fn release_with(roots: &Roots, kernel: &dyn Kernel, function: &PciFunction) -> Result<Released, BindError> {
    let address = function.address;
    let records = Records::lock(roots)?;
    let old = records.read(address)?;
    let PciFunction { driver: previous, driver_override: only_before, .. } =
        PciFunction::read(roots, address)?;
    if !is_user_driver(roots, address, previous.as_deref()) && old.is_none() {
        return Err(BindError::NotBound { address, driver: previous });
    }
    // To unbind a function that is open blocks in the kernel until its user has closed it.
    let group = function.group.map(|group| roots.group_file(group));
    let files = group.into_iter().chain(roots.function_file(address));
    let mut holders: Vec<_> = files.flat_map(|file| roots.holders(&file)).collect();
    holders.sort_unstable();
    holders.dedup();
    if !holders.is_empty() {
        return Err(BindError::InUse { address, holders });
    }
    let remembered = old.is_some();
    let (goal, only) = match &old {
        Some(Record { driver: Some(driver), driver_override }) => {
            (Goal::Driver(driver.clone()), driver_override.as_deref())
        }
        Some(Record { driver: None, driver_override }) => (Goal::Unbound, driver_override.as_deref()),
        None => (Goal::AnyExcept { leaving: previous.clone() }, None),
    };
    let driver = match settle(roots, kernel, address, only, &goal) {
        Ok(driver) => driver,
        Err(failure) => {
            let here = Record { driver: previous, driver_override: only_before };
            let outcome = put_back(roots, kernel, address, &here, &failure);
            return Err(BindError::Failed { address, to: goal.to_string(), failure, outcome });
        }
    };
    if let Err(source) = records.remove(address) {
        return Err(BindError::RecordNotRemoved { address, driver, source });
    }
    Ok(Released { address, driver, previous, remembered })
}

/// Gives a function back what it had when a step has failed.
fn put_back(
    roots: &Roots,
    kernel: &dyn Kernel,
    address: PciAddress,
    old: &Record,
    failure: &Failure,
) -> Outcome {
    if matches!(failure, Failure::Gone) {
        return Outcome::Gone;
    }
    let goal = old.driver.clone().map_or(Goal::Unbound, Goal::Driver);
    match settle(roots, kernel, address, old.driver_override.as_deref(), &goal) {
        Ok(driver) => Outcome::Restored { driver, kept: None },
        Err(Failure::Gone) => Outcome::Gone,
        Err(failure) => {
            // Any driver is better than none: whichever wants it may have it.
            if old.driver.is_some() {
                let _ = settle(roots, kernel, address, None, &Goal::AnyExcept { leaving: None });
            }
            let driver = roots.driver_of(address).ok().flatten();
            Outcome::NotRestored { driver, wanted: old.driver.clone(), failure }
        }
    }
}

/// Files by which the function is opened. The kernel makes them while it binds, and udev may move or rename them a moment later.
fn files(roots: &Roots, kernel: &dyn Kernel, address: PciAddress, group: u32) -> Vec<PathBuf> {
    for turn in 0..settle::MAX_ATTEMPTS {
        let files = std::iter::once(roots.group_file(group)).chain(roots.function_file(address));
        let found: Vec<PathBuf> = files.filter(|file| file.exists()).collect();
        if !found.is_empty() {
            return found;
        }
        kernel.pause(turn);
    }
    Vec::new()
}

impl From<HostError> for BindError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}
