//! Checks of one function: driver, group, files, link, reset.

use super::Status::{Fail, Pass, Skip, Warn};
use super::{Check, Fix, Machine};
use crate::bind;
use crate::group::{VFIO_PCI, listed};
use crate::{Access, HostError, IommuGroup, LinkInfo, LinkParameters, PciFunction};

pub(super) fn examine(machine: &Machine<'_>, function: &PciFunction) -> Result<Vec<Check>, HostError> {
    let group = match function.group {
        Some(number) => Some(IommuGroup::read(machine.roots, number)?),
        None => None,
    };
    let bound = bind::is_user_driver(machine.roots, function.address, function.driver.as_deref());
    let mut checks =
        vec![answers(function), driver(machine, function, bound), viable(machine, function, group.as_ref())];
    let usable = group.as_ref().is_some_and(|group| bound && !group.unprotected);
    checks.extend(files(machine, function, usable));
    checks.push(link(function));
    checks.push(reset(function));
    checks.extend(token(machine, function)?);
    if !function.remarks.is_empty() {
        checks.push(Check::new("sysfs", Warn, function.remarks.join("; ")));
    }
    Ok(checks)
}

fn answers(function: &PciFunction) -> Check {
    if !function.is_silent {
        return Check::new("present", Pass, format!("{} responds", function.kind()));
    }
    let directory = format!("/sys/bus/pci/devices/{}", function.address);
    Check::new("present", Fail, "configuration space reads as all ones: the card lost power, was reconfigured, or its link is down")
        .fix(format!("echo 1 > {directory}/remove; echo 1 > /sys/bus/pci/rescan; or restart the machine and keep the card powered"))
}

fn driver(machine: &Machine<'_>, function: &PciFunction, bound: bool) -> Check {
    let address = function.address;
    match &function.driver {
        Some(driver) if bound => Check::new("driver", Pass, format!("bound to {driver}")),
        _ if !machine.has_iommu => {
            Check::new("driver", Skip, format!("not checked: {VFIO_PCI} requires an IOMMU"))
        }
        Some(driver) => {
            Check::new("driver", Fail, format!("bound to the kernel driver {driver}")).fix(Fix::Bind(address))
        }
        None => {
            let why = match &function.driver_override {
                Some(name) if name != VFIO_PCI => {
                    format!("bound to no driver, and reserved for {name} (driver_override)")
                }
                _ => "bound to no driver".to_owned(),
            };
            Check::new("driver", Fail, why).fix(Fix::Bind(address))
        }
    }
}

fn viable(machine: &Machine<'_>, function: &PciFunction, group: Option<&IommuGroup>) -> Check {
    let Some(group) = group else {
        return if machine.has_iommu {
            Check::new(
                "group",
                Fail,
                "the IOMMU does not cover the function: it has no group, other functions have one",
            )
            .fix("use another slot, or check the firmware's settings for its root port")
        } else {
            Check::new("group", Skip, "not checked: groups require an IOMMU")
        };
    };
    let number = group.number;
    if group.unprotected {
        return Check::new(
            "group",
            Fail,
            format!("group {number} has no IOMMU (no-IOMMU mode): the card can access all memory"),
        )
        .fix("enable the IOMMU and disable no-IOMMU mode: see the checks iommu and isolation");
    }
    let blocking_members: Vec<_> =
        group.others(function.address).filter(|other| other.blocks_group()).collect();
    if !blocking_members.is_empty() {
        let fix = Fix::BindGroup(blocking_members.iter().map(|other| other.address).collect());
        return Check::new(
            "group",
            Fail,
            format!(
                "group {number} is not viable: members with kernel drivers: {}",
                listed(blocking_members)
            ),
        )
        .fix(fix);
    }
    let others: Vec<_> = group.others(function.address).collect();
    let with = if others.is_empty() {
        "no other functions".to_owned()
    } else {
        format!("shared with {}", listed(others))
    };
    Check::new("group", Pass, format!("group {number}, {with}"))
}

/// Checks whether this process may open the function, and whether another process has it open.
fn files(machine: &Machine<'_>, function: &PciFunction, usable: bool) -> Vec<Check> {
    let Some(group) = function.group.filter(|_| usable) else {
        let why = "not checked: the device file exists only while vfio-pci is bound and the IOMMU is on";
        return vec![Check::new("permission", Skip, why), Check::new("in-use", Skip, why)];
    };
    let roots = machine.roots;
    let by_group = vec![roots.container_file(), roots.group_file(group)];
    let by_file = roots.function_file(function.address).map(|file| vec![roots.iommufd_file(), file]);
    let ways: Vec<_> = std::iter::once(by_group).chain(by_file).collect();
    let mut denied = Vec::new();
    let mut granted = Vec::new();
    for way in &ways {
        let judged: Vec<_> = way.iter().map(|file| (file, machine.caller.access(file))).collect();
        if judged.iter().all(|(_, access)| *access == Access::Granted) {
            granted.extend(way.last());
        }
        denied.extend(judged.into_iter().filter(|(_, access)| *access != Access::Granted));
    }
    let permission = if granted.is_empty() {
        let reasons = denied.iter().map(|(file, access)| match access {
            Access::Denied { owner, group, mode } => {
                format!("{} has owner {owner}, group {group}, mode {mode:04o}", file.display())
            }
            _ => format!("{} does not exist", file.display()),
        });
        Check::new("permission", Fail, format!("user {} has no permission: {}", machine.caller.user, listed(reasons)))
            .fix("add a udev rule (SUBSYSTEM==\"vfio\", GROUP=\"fpga\", MODE=\"0660\") and join that group, or run as root")
    } else {
        Check::new(
            "permission",
            Pass,
            format!("{} can be opened", listed(granted.iter().map(|file| file.display()))),
        )
    };
    let mut holders: Vec<_> =
        ways.iter().filter_map(|way| way.last()).flat_map(|file| roots.holders(file)).collect();
    holders.sort_unstable();
    holders.dedup();
    let in_use = if holders.is_empty() {
        Check::new("in-use", Pass, "not open in any process visible to this user")
    } else {
        Check::new("in-use", Warn, format!("open in {}", listed(&holders)))
            .fix("end that process: only one process can use a card")
    };
    vec![permission, in_use]
}

fn link(function: &PciFunction) -> Check {
    let Some(link @ LinkInfo { current, maximum, port }) = function.link else {
        return Check::new("link", Skip, "the kernel reports no link for this function");
    };
    let rate = current.gigabytes_per_second();
    let rate = rate.map_or_else(String::new, |rate| format!(" ({rate:.1} GB/s per direction)"));
    let possible = link.possible();
    if current.is_below(possible) {
        return Check::new("link", Warn, format!("{current}{rate}; {possible} is possible"))
            .fix("reseat the card, check riser, cable and slot, or retrain the link (restart, or setpci -s PORT CAP_EXP+10.w=20:20)");
    }
    match port {
        Some((port, limit)) if possible.is_below(maximum) => Check::new(
            "link",
            Warn,
            format!("{current}{rate}: the card supports {maximum}, the port {port} above it {limit}"),
        )
        .fix(format!("use a slot that supports {maximum}")),
        _ if current == LinkParameters::default() => {
            Check::new("link", Skip, "the kernel does not report the state of its link")
        }
        _ => Check::new("link", Pass, format!("{current}{rate}, the maximum")),
    }
}

fn reset(function: &PciFunction) -> Check {
    match function.reset_methods.as_deref() {
        Some([]) | None => Check::new(
            "reset",
            Warn,
            "the kernel has no reset method: the state of the card persists from one program to the next",
        )
        .fix(Fix::StopEngines),
        Some(methods) => {
            Check::new("reset", Pass, format!("reset methods of the kernel: {}", listed(methods)))
        }
    }
}

/// Checks the token: a virtual function whose physical function is used through VFIO needs the token that was set there.
fn token(machine: &Machine<'_>, function: &PciFunction) -> Result<Option<Check>, HostError> {
    let Some(physical) = function.physical_function else { return Ok(None) };
    let driver = machine.roots.driver_of(physical)?;
    Ok(Some(if driver.as_deref() == Some(VFIO_PCI) {
        Check::new(
            "vf-token",
            Warn,
            format!(
                "virtual function of {physical}, which is also bound to {VFIO_PCI}: both require the same token"
            ),
        )
        .fix(Fix::ShareToken)
    } else {
        let driver = driver.as_deref().unwrap_or("no driver");
        Check::new("vf-token", Pass, format!("virtual function of {physical} ({driver}): no token required"))
    }))
}
