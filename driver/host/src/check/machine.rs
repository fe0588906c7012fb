//! Checks of the machine: IOMMU, modules, interfaces, limits.

use super::Status::{Fail, Pass, Skip, Warn};
use super::{Check, Fix, Machine};
use crate::group::{VFIO_PCI, listed};
use crate::roots::{attribute, names, number};
use crate::{Caller, HostError, IommuGroup, PciFunction, Roots};

/// Minimum limit of locked memory in bytes: a ring and one buffer.
const MIN_LOCKED_MEMORY: u64 = 1 << 20;
/// Recommended limit of locked memory in bytes: the simultaneous mappings of transfers at full speed, with some margin.
const RECOMMENDED_LOCKED_MEMORY: u64 = 256 << 20;

pub(super) fn examine(roots: &Roots, caller: Caller) -> Result<(Machine<'_>, Vec<Check>), HostError> {
    let groups = IommuGroup::numbers(roots)?.len();
    let has_driver = roots.pci_driver(VFIO_PCI).exists();
    let machine = Machine { roots, caller, has_iommu: groups > 0, has_driver };
    let checks = vec![
        iommu(roots, groups)?,
        isolation(roots)?,
        module(&machine)?,
        interface(&machine),
        locked_memory(&machine.caller),
        huge_pages(roots)?,
    ];
    Ok((machine, checks))
}

/// Checks whether the machine has an enabled IOMMU. Sources of the advice: the kernel's `Documentation/admin-guide/kernel-parameters.txt`
/// (`intel_iommu`, `amd_iommu`, `iommu`) and `CONFIG_INTEL_IOMMU_DEFAULT_ON`, which not every distribution sets.
fn iommu(roots: &Roots, groups: usize) -> Result<Check, HostError> {
    let units = names(&roots.sysfs.join("class/iommu"))?.unwrap_or_default();
    if groups > 0 {
        let units = if units.is_empty() { String::new() } else { format!(" ({})", listed(&units)) };
        return Ok(Check::new("iommu", Pass, format!("the IOMMU is on{units}: {groups} groups")));
    }
    let line = attribute(&roots.proc.join("cmdline"))?.unwrap_or_default();
    let off = ["intel_iommu=off", "amd_iommu=off", "iommu=off", "iommu.off=1"];
    let off: Vec<&str> = line.split_ascii_whitespace().filter(|word| off.contains(word)).collect();
    let processor = attribute(&roots.proc.join("cpuinfo"))?.unwrap_or_default();
    let is_virtual = processor
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split_ascii_whitespace().any(|flag| flag == "hypervisor"));
    let fix = if !off.is_empty() {
        format!("remove {} from the kernel's command line (/proc/cmdline) and restart", listed(&off))
    } else if is_virtual {
        "give this virtual machine a virtual IOMMU (QEMU: -device intel-iommu,intremap=on -machine q35,kernel-irqchip=split)".to_owned()
    } else if processor.contains("AuthenticAMD") {
        "enable the IOMMU (AMD-Vi) in the firmware, restart, and check with dmesg | grep -i AMD-Vi".to_owned()
    } else if processor.contains("GenuineIntel") {
        "enable VT-d in the firmware, add intel_iommu=on to the kernel's command line, restart, and check with dmesg | grep -i DMAR".to_owned()
    } else {
        "enable the IOMMU (SMMU) in the firmware, restart, and check with dmesg | grep -i iommu".to_owned()
    };
    let why =
        if units.is_empty() { "the IOMMU is off or absent" } else { "the IOMMU exists and has no groups" };
    let message = format!("{why}: no group in /sys/kernel/iommu_groups has an IOMMU, which VFIO requires");
    Ok(Check::new("iommu", Fail, message).fix(fix))
}

/// Checks whether the kernel was configured to work without isolation.
fn isolation(roots: &Roots) -> Result<Check, HostError> {
    let modules = roots.sysfs.join("module");
    let mut given_up = Vec::new();
    let mut fixes = Vec::new();
    for (module, parameter, what) in [
        ("vfio", "enable_unsafe_noiommu_mode", "cards may be used without an IOMMU"),
        ("vfio_iommu_type1", "allow_unsafe_interrupts", "cards may send any interrupt"),
    ] {
        let path = modules.join(module).join("parameters").join(parameter);
        if attribute(&path)?.is_some_and(|value| matches!(value.as_str(), "Y" | "1")) {
            given_up.push(format!("{what} ({module}.{parameter})"));
            fixes.push(format!("echo N > {}", path.display()));
        }
    }
    if given_up.is_empty() {
        return Ok(Check::new("isolation", Pass, "the kernel requires IOMMU and interrupt remapping"));
    }
    Ok(Check::new("isolation", Warn, format!("protection is disabled: {}", listed(&given_up)))
        .fix(format!("{}, and remove the option from /etc/modprobe.d", listed(&fixes))))
}

/// Checks whether vfio-pci is loaded, or could be.
fn module(machine: &Machine<'_>) -> Result<Check, HostError> {
    if machine.has_driver {
        return Ok(Check::new("vfio-pci", Pass, "the driver is loaded"));
    }
    let release = attribute(&machine.roots.proc.join("sys/kernel/osrelease"))?.unwrap_or_default();
    let modules = machine.roots.modules.join(&release);
    // `modules.dep` lists the modules that modprobe finds; without it the answer is unknown.
    let dependencies = attribute_whole(&modules.join("modules.dep"))?;
    let is_there = dependencies.as_deref().map(|list| {
        list.lines()
            .filter_map(|line| line.split(':').next())
            .any(|path| path.rsplit('/').next().is_some_and(|name| name.starts_with("vfio-pci.ko")))
    });
    let keep = "and to load it at each start: echo vfio-pci > /etc/modules-load.d/vfio-pci.conf";
    Ok(match is_there {
        Some(true) => Check::new("vfio-pci", Fail, "the driver is not loaded").fix(format!("modprobe vfio-pci; {keep}")),
        Some(false) => Check::new("vfio-pci", Fail, format!("kernel {release} has no module vfio-pci"))
            .fix("install the kernel's other modules (Debian, Ubuntu: linux-image or linux-modules-extra; elsewhere CONFIG_VFIO_PCI)"),
        None => Check::new("vfio-pci", Fail, format!("the driver is not loaded, and {} lists no modules", modules.display()))
            .fix(format!("modprobe vfio-pci, on a kernel with CONFIG_VFIO_PCI; {keep}")),
    })
}

/// Reads all of a file: `modules.dep` is longer than any attribute.
fn attribute_whole(path: &std::path::Path) -> Result<Option<String>, HostError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(HostError::Unreadable { path: path.to_owned(), source }),
    }
}

/// Checks which of the two interfaces exist.
fn interface(machine: &Machine<'_>) -> Check {
    let roots = machine.roots;
    let (container, iommufd) = (roots.container_file(), roots.iommufd_file());
    let message = match (container.exists(), iommufd.exists()) {
        (true, true) => "container and group, and iommufd for cards that have a device file",
        (true, false) => "container and group; iommufd is absent and not required",
        (false, true) => "iommufd only",
        (false, false) => {
            let (status, fix) = if machine.has_driver {
                (
                    Fail,
                    "modprobe vfio-pci again, and check that udev or devtmpfs runs (in a container: --device /dev/vfio)",
                )
            } else {
                (Skip, "load the driver first")
            };
            let message = format!("neither {} nor {} exists", container.display(), iommufd.display());
            return Check::new("interface", status, message).fix(fix);
        }
    };
    Check::new("interface", Pass, message)
}

/// Checks the limit of locked memory: memory that a card can access is locked, and counted against it.
fn locked_memory(caller: &Caller) -> Check {
    let Some(limit) = caller.locked_memory.filter(|_| !caller.locks_without_limit()) else {
        return Check::new("memlock", Pass, "locked memory of this process: unlimited");
    };
    let message = format!("locked memory of this process: at most {}", size(limit));
    let fix = "raise the limit: \"@fpga - memlock unlimited\" in /etc/security/limits.d, LimitMEMLOCK=infinity (systemd), or --ulimit memlock=-1 (container)";
    match limit {
        ..MIN_LOCKED_MEMORY => {
            Check::new("memlock", Fail, format!("{message}, too small for a ring and one buffer")).fix(fix)
        }
        MIN_LOCKED_MEMORY..RECOMMENDED_LOCKED_MEMORY => {
            Check::new("memlock", Warn, format!("{message}; larger transfers are refused")).fix(fix)
        }
        _ => Check::new("memlock", Pass, message),
    }
}

/// Checks for huge pages, which make mappings fewer and larger.
fn huge_pages(roots: &Roots) -> Result<Check, HostError> {
    let directory = roots.sysfs.join("kernel/mm/hugepages");
    let mut found = Vec::new();
    for name in names(&directory)?.unwrap_or_default() {
        let page =
            name.strip_prefix("hugepages-").and_then(|rest| rest.strip_suffix("kB")?.parse::<u64>().ok());
        let (Some(page), Some(all)) = (page, number(&directory.join(&name).join("nr_hugepages"))?) else {
            continue;
        };
        let free = number(&directory.join(&name).join("free_hugepages"))?.unwrap_or(0);
        if all > 0 {
            found.push(format!("{free} of {all} pages of {} are free", size(page.saturating_mul(1024))));
        }
    }
    Ok(if found.is_empty() {
        Check::new("hugepages", Warn, "no huge pages are reserved: normal pages require more mappings and are slower")
            .fix("echo 64 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages (to keep it: vm.nr_hugepages=64 in /etc/sysctl.d)")
    } else {
        Check::new("hugepages", Pass, listed(&found))
    })
}

/// Checks whether there is a card.
pub(super) fn cards(cards: &[PciFunction], named: bool, unreadable: &[HostError]) -> Check {
    if !cards.is_empty() {
        let names = listed(cards.iter().map(|card| card.address));
        let message = if named {
            format!("requested cards: {names}")
        } else {
            format!("cards with known ids: {names}")
        };
        return Check::new("cards", Pass, message);
    }
    let message = match unreadable {
        [] => "no PCI function has the ids of a known XDMA design".to_owned(),
        [first, ..] => {
            format!("no PCI function has known ids, and {} cannot be read: {first}", unreadable.len())
        }
    };
    Check::new("cards", Warn, message).fix(Fix::FindCard)
}

/// Formats bytes in the largest binary unit that yields a whole number.
fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{} {name}", bytes / unit))
}
