//! Binding to vfio-pci, and release to the previous driver.
//!
//! Steps in this order, so that [`release`] can handle the state left by a program that exits in between:
//!
//! 1. every check that could refuse is done before anything is changed;
//! 2. the previous state is recorded (`record`);
//! 3. `driver_override` names the only permitted driver, so that no other driver's probe takes the function in between;
//! 4. the function is unbound from its driver, and bound to the new one;
//! 5. if this fails, the previous driver is restored.
//!
//! Other processes bind drivers, too (udev, a module that is being loaded, another user). Therefore each step is chosen by the current
//! state, never by an earlier one, and steps that are too late are repeated a bounded number of times.

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

/// Result of [`bind`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bound {
    /// The function.
    pub address: PciAddress,
    /// Current driver.
    pub driver: String,
    /// Previous driver.
    pub previous: Option<String>,
    /// Whether there was nothing to do.
    pub already: bool,
    /// IOMMU group of the function.
    pub group: u32,
    /// The group's other functions.
    pub others: Vec<OtherFunction>,
    /// Existing files by which the function is opened.
    pub files: Vec<PathBuf>,
}

/// Result of [`release`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// The function.
    pub address: PciAddress,
    /// Current driver.
    pub driver: Option<String>,
    /// Previous driver.
    pub previous: Option<String>,
    /// Whether there was a record of the driver to restore.
    pub remembered: bool,
}

/// Whether `driver`, which `address` is bound to, gives functions to user space: vfio-pci, or a vendor's variant, which creates a directory
/// for the function's device file as vfio-pci does.
#[must_use]
pub fn is_user_driver(roots: &Roots, address: PciAddress, driver: Option<&str>) -> bool {
    driver == Some(VFIO_PCI) || driver.is_some() && roots.function_file(address).is_some()
}

/// Binds a function to vfio-pci. `force`: also if its ids are not those of a known card.
///
/// # Errors
/// See [`BindError`]. The function keeps its previous driver, unless [`BindError::Failed`] reports otherwise.
pub fn bind(roots: &Roots, function: &PciFunction, force: bool) -> Result<Bound, BindError> {
    bind_with(roots, &System, function, force)
}

/// Releases a function to the driver that it had before [`bind`]; if that is unknown, to any driver of the kernel that matches.
///
/// # Errors
/// See [`BindError`]. The function stays bound to vfio-pci, unless [`BindError::Failed`] or [`BindError::RecordNotRemoved`] reports
/// otherwise.
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
    // No other program that takes the lock changes it any more: use the current state.
    let PciFunction { driver: previous, driver_override: only, .. } = PciFunction::read(roots, address)?;
    let already = previous.as_deref() == Some(VFIO_PCI);
    if !already {
        let old = match records.read(address)? {
            // An earlier bind has exited half-way: its record holds the original state.
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

/// Checks whether the function may be bound; returns the number of its group.
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
    // Unbinding an open function blocks in the kernel until its user has closed it.
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

/// Restores the previous state of a function after a failed step.
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
            // Any driver is better than none: let the kernel choose.
            if old.driver.is_some() {
                let _ = settle(roots, kernel, address, None, &Goal::AnyExcept { leaving: None });
            }
            let driver = roots.driver_of(address).ok().flatten();
            Outcome::NotRestored { driver, wanted: old.driver.clone(), failure }
        }
    }
}

/// Files by which the function is opened. The kernel creates them during binding, and udev may move or rename them shortly after.
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
