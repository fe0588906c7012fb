//! Typical machines.

use std::io;
use std::path::Path;

use super::{Function, Tree};

/// A typical machine.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Its name.
    pub name: &'static str,
    /// Description.
    pub about: &'static str,
    build: fn(&Tree) -> io::Result<()>,
}

/// All typical machines.
pub const MACHINES: &[Machine] = &[
    Machine { name: "ready", about: "IOMMU on, card bound to vfio-pci, alone in its group", build: ready },
    Machine { name: "vendor-driver", about: "IOMMU on, card with the vendor's driver", build: vendor_driver },
    Machine {
        name: "iommu-off",
        about: "no IOMMU: switched off on the kernel's command line",
        build: iommu_off,
    },
    Machine {
        name: "virtual-machine",
        about: "a virtual machine without a virtual IOMMU",
        build: virtual_machine,
    },
    Machine { name: "no-module", about: "IOMMU on, vfio-pci installed and not loaded", build: no_module },
    Machine { name: "small-kernel", about: "IOMMU on, a kernel without vfio-pci", build: small_kernel },
    Machine {
        name: "shared-group",
        about: "card bound, a sound device of the kernel's in its group",
        build: shared_group,
    },
    Machine {
        name: "narrow-link",
        about: "card bound, its link at x4 5 GT/s of x16 8 GT/s",
        build: narrow_link,
    },
    Machine { name: "narrow-slot", about: "card bound, in a slot with eight lanes", build: narrow_slot },
    Machine {
        name: "virtual-function",
        about: "a virtual function, its physical one bound to vfio-pci too",
        build: virtual_function,
    },
    Machine {
        name: "not-permitted",
        about: "card bound, a user who may not open it, with 8 MiB of locked memory",
        build: not_permitted,
    },
    Machine { name: "no-iommu-mode", about: "card bound in VFIO's no-IOMMU mode", build: no_iommu_mode },
    Machine { name: "gone", about: "card bound, and it does not answer any more", build: gone },
    Machine { name: "in-use", about: "card bound, and open in another program", build: in_use },
    Machine {
        name: "garbled",
        about: "card bound, and files that hold what the kernel never writes",
        build: invalid_content,
    },
    Machine { name: "no-cards", about: "IOMMU on, no card", build: no_cards },
];

/// Creates the machine `name` in the directory `root`.
///
/// # Errors
/// The error of the system; [`io::ErrorKind::NotFound`] for an unknown name.
pub fn machine(name: &str, root: &Path) -> io::Result<Tree> {
    let machine = MACHINES.iter().find(|machine| machine.name == name);
    let machine = machine.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name))?;
    let tree = Tree::new(root)?;
    (machine.build)(&tree)?;
    Ok(tree)
}

const PORT: Function<'_> = Function {
    address: "0000:64:00.0",
    below: None,
    id: (0x8086, 0x347A),
    class: 0x06_0400,
    driver: Some("pcieport"),
    group: Some(13),
    link: Some(("8.0 GT/s PCIe", 16, "16.0 GT/s PCIe", 16)),
};

/// Creates a correctly configured server without a card.
fn base(tree: &Tree) -> io::Result<()> {
    tree.file("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro intel_iommu=on\n")?;
    tree.file("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vme sse2\n")?;
    tree.file("proc/sys/kernel/osrelease", "6.12.9-amd64\n")?;
    who(tree, 0, "000001ffffffffff", "unlimited")?;
    tree.file(
        "lib/modules/6.12.9-amd64/modules.dep",
        "kernel/drivers/vfio/pci/vfio-pci.ko.xz: kernel/drivers/vfio/pci/vfio-pci-core.ko.xz\n",
    )?;
    tree.file("sys/class/iommu/dmar0/uevent", "")?;
    tree.file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64\n")?;
    tree.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "62\n")?;
    tree.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n")?;
    tree.function(&PORT)?;
    tree.function(&Function {
        address: "0000:00:1f.2",
        below: None,
        id: (0x8086, 0xA182),
        class: 0x01_0601,
        driver: Some("ahci"),
        group: Some(7),
        link: None,
    })
}

/// Creates a process with this user, these capabilities and this limit of locked memory.
fn who(tree: &Tree, user: u32, capabilities: &str, locked: &str) -> io::Result<()> {
    let four = format!("{user}\t{user}\t{user}\t{user}");
    let status =
        format!("Name:\tfpgactl\nUid:\t{four}\nGid:\t{four}\nGroups:\t{user} \nCapEff:\t{capabilities}\n");
    tree.file("proc/self/status", status)?;
    let limits = format!(
        "Limit                     Soft Limit           Hard Limit           Units     \n\
         Max locked memory         {locked:<20} {locked:<20} bytes     \n"
    );
    tree.file("proc/self/limits", limits)
}

fn vfio(tree: &Tree) -> io::Result<()> {
    tree.driver("vfio-pci")?;
    tree.device_file("dev/vfio/vfio", 0o666)
}

fn files_of_group(tree: &Tree, group: u32) -> io::Result<()> {
    tree.device_file(&format!("dev/vfio/{group}"), 0o600)
}

fn bound(tree: &Tree, link: (&str, u8, &str, u8)) -> io::Result<()> {
    base(tree)?;
    vfio(tree)?;
    tree.function(&Function { driver: Some("vfio-pci"), link: Some(link), ..Function::card() })?;
    files_of_group(tree, 14)
}

const FULL_LINK: (&str, u8, &str, u8) = ("8.0 GT/s PCIe", 16, "8.0 GT/s PCIe", 16);

fn ready(tree: &Tree) -> io::Result<()> {
    bound(tree, FULL_LINK)
}

fn vendor_driver(tree: &Tree) -> io::Result<()> {
    base(tree)?;
    vfio(tree)?;
    tree.function(&Function { driver: Some("xdma"), ..Function::card() })
}

fn without_iommu(tree: &Tree) -> io::Result<()> {
    base(tree)?;
    tree.function(&Function { driver: Some("xdma"), group: None, ..Function::card() })?;
    tree.remove("sys/class/iommu")?;
    tree.remove("sys/kernel/iommu_groups")?;
    for address in ["0000:64:00.0", "0000:00:1f.2"] {
        tree.remove(&format!("sys/bus/pci/devices/{address}/iommu_group"))?;
    }
    vfio(tree)
}

fn iommu_off(tree: &Tree) -> io::Result<()> {
    without_iommu(tree)?;
    tree.file("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro intel_iommu=off\n")
}

fn virtual_machine(tree: &Tree) -> io::Result<()> {
    without_iommu(tree)?;
    tree.file("proc/cmdline", "console=ttyS0\n")?;
    tree.file(
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu hypervisor lahf_lm\n",
    )
}

fn no_module(tree: &Tree) -> io::Result<()> {
    base(tree)?;
    tree.function(&Function { driver: Some("xdma"), ..Function::card() })
}

fn small_kernel(tree: &Tree) -> io::Result<()> {
    no_module(tree)?;
    tree.file("lib/modules/6.12.9-amd64/modules.dep", "kernel/drivers/net/dummy.ko:\n")
}

fn shared_group(tree: &Tree) -> io::Result<()> {
    ready(tree)?;
    tree.function(&Function {
        address: "0000:65:00.1",
        id: (0x10DE, 0x10F0),
        class: 0x04_0300,
        driver: Some("snd_hda_intel"),
        ..Function::card()
    })
}

fn narrow_link(tree: &Tree) -> io::Result<()> {
    bound(tree, ("5.0 GT/s PCIe", 4, "8.0 GT/s PCIe", 16))
}

fn narrow_slot(tree: &Tree) -> io::Result<()> {
    bound(tree, ("8.0 GT/s PCIe", 8, "8.0 GT/s PCIe", 16))?;
    tree.file("sys/bus/pci/devices/0000:64:00.0/max_link_width", "8\n")
}

fn virtual_function(tree: &Tree) -> io::Result<()> {
    ready(tree)?;
    tree.file("sys/bus/pci/devices/0000:65:00.0/sriov_numvfs", "1\n")?;
    tree.function(&Function {
        address: "0000:65:00.4",
        driver: Some("vfio-pci"),
        group: Some(15),
        link: Some(("Unknown", 0, "Unknown", 0)),
        ..Function::card()
    })?;
    tree.link("sys/bus/pci/devices/0000:65:00.4/physfn", "../0000:65:00.0")?;
    files_of_group(tree, 15)
}

fn not_permitted(tree: &Tree) -> io::Result<()> {
    ready(tree)?;
    // A user id that no test runs as.
    who(tree, 987_654_321, "0000000000000000", "8388608")
}

fn no_iommu_mode(tree: &Tree) -> io::Result<()> {
    without_iommu(tree)?;
    tree.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n")?;
    tree.remove("sys/bus/pci/devices/0000:65:00.0/driver")?;
    tree.bound("0000:65:00.0", "vfio-pci")?;
    tree.file("sys/kernel/iommu_groups/0/name", "vfio-noiommu\n")?;
    tree.link(
        "sys/kernel/iommu_groups/0/devices/0000:65:00.0",
        "../../../../devices/pci0000:00/0000:64:00.0/0000:65:00.0",
    )?;
    tree.link("sys/bus/pci/devices/0000:65:00.0/iommu_group", "../../../../kernel/iommu_groups/0")?;
    tree.device_file("dev/vfio/noiommu-0", 0o600)
}

fn gone(tree: &Tree) -> io::Result<()> {
    ready(tree)?;
    tree.file("sys/bus/pci/devices/0000:65:00.0/config", [0xFF; 64])
}

fn in_use(tree: &Tree) -> io::Result<()> {
    ready(tree)?;
    tree.file("proc/4711/comm", "my-program\n")?;
    let file = tree.roots().group_file(14);
    tree.link("proc/4711/fd/5", &file.to_string_lossy())
}

fn invalid_content(tree: &Tree) -> io::Result<()> {
    ready(tree)?;
    let card = "sys/bus/pci/devices/0000:65:00.0";
    tree.file(&format!("{card}/max_link_speed"), "fast\n")?;
    tree.file(&format!("{card}/subsystem_vendor"), [0xFF, 0xFE, 0x00, b'\n'])?;
    tree.function(&Function { address: "0000:66:00.0", below: None, ..Function::card() })?;
    tree.file("sys/bus/pci/devices/0000:66:00.0/vendor", "0x123456\n")
}

fn no_cards(tree: &Tree) -> io::Result<()> {
    base(tree)?;
    vfio(tree)
}
