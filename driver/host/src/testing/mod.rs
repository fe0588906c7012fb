//! Simulated machines as directory trees: their sysfs, procfs and `/dev`.
//!
//! [`MACHINES`] are typical ones, each with one property to test; [`Tree`] creates others.

mod machines;

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

pub use machines::{MACHINES, Machine, machine};

use crate::Roots;

/// Directory tree of a machine. Paths are relative to it.
#[derive(Debug, Clone)]
pub struct Tree {
    root: PathBuf,
}

/// A PCI function to be added to a tree.
#[derive(Debug, Clone)]
pub struct Function<'a> {
    /// Address, in full.
    pub address: &'a str,
    /// The upstream port, if it is not on the root bus.
    pub below: Option<&'a str>,
    /// Vendor and device id.
    pub id: (u16, u16),
    /// Class code.
    pub class: u32,
    /// Driver.
    pub driver: Option<&'a str>,
    /// IOMMU group.
    pub group: Option<u32>,
    /// Current speed, current width, maximum speed, maximum width.
    pub link: Option<(&'a str, u8, &'a str, u8)>,
}

impl Function<'_> {
    /// Creates an XDMA card in group 14, below the port 0000:64:00.0, with a link at its maximum and no driver.
    #[must_use]
    pub const fn card() -> Self {
        Function {
            address: "0000:65:00.0",
            below: Some("0000:64:00.0"),
            id: (0x10EE, 0x903F),
            class: 0x07_0001,
            driver: None,
            group: Some(14),
            link: Some(("8.0 GT/s PCIe", 16, "8.0 GT/s PCIe", 16)),
        }
    }
}

impl Tree {
    /// Creates a tree in `root` with only the directories of PCI.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new(root: &Path) -> io::Result<Self> {
        let tree = Self { root: root.to_owned() };
        for directory in ["sys/bus/pci/devices", "sys/bus/pci/drivers", "sys/kernel/iommu_groups", "dev"] {
            fs::create_dir_all(root.join(directory))?;
        }
        tree.file("sys/bus/pci/drivers_probe", "")?;
        Ok(tree)
    }

    /// Paths of the tree's parts.
    #[must_use]
    pub fn roots(&self) -> Roots {
        Roots::with_root(&self.root)
    }

    /// Root directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes a file, and creates its parent directories.
    ///
    /// # Errors
    /// The error of the system.
    pub fn file(&self, path: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        let path = self.root.join(path);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above)?;
        }
        fs::write(path, content)
    }

    /// Creates a symbolic link, and its parent directories.
    ///
    /// # Errors
    /// The error of the system.
    pub fn link(&self, path: &str, target: &str) -> io::Result<()> {
        let path = self.root.join(path);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above)?;
        }
        symlink(target, path)
    }

    /// Removes a file, a link or a directory with its content.
    ///
    /// # Errors
    /// The error of the system.
    pub fn remove(&self, path: &str) -> io::Result<()> {
        let path = self.root.join(path);
        if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
    }

    /// Creates a file of `/dev` with these permission bits.
    ///
    /// # Errors
    /// The error of the system.
    pub fn device_file(&self, path: &str, mode: u32) -> io::Result<()> {
        self.file(path, "")?;
        fs::set_permissions(self.root.join(path), fs::Permissions::from_mode(mode))
    }

    /// Adds a loaded PCI driver.
    ///
    /// # Errors
    /// The error of the system.
    pub fn driver(&self, name: &str) -> io::Result<()> {
        for file in ["bind", "unbind"] {
            self.file(&format!("sys/bus/pci/drivers/{name}/{file}"), "")?;
        }
        Ok(())
    }

    /// Adds a function, with its driver and its group membership.
    ///
    /// # Errors
    /// The error of the system.
    pub fn function(&self, function: &Function<'_>) -> io::Result<()> {
        let Function { address, below, id: (vendor, device), class, driver, group, link } = function;
        let below = below.map_or_else(String::new, |port| format!("{port}/"));
        let place = format!("devices/pci0000:00/{below}{address}");
        let file = |name: &str, content: String| self.file(&format!("sys/{place}/{name}"), content);
        file("vendor", format!("{vendor:#06x}\n"))?;
        file("device", format!("{device:#06x}\n"))?;
        file("subsystem_vendor", "0x10ee\n".to_owned())?;
        file("subsystem_device", "0x0007\n".to_owned())?;
        file("class", format!("{class:#08x}\n"))?;
        file("driver_override", "(null)\n".to_owned())?;
        file("numa_node", "0\n".to_owned())?;
        file("reset_method", "bus\n".to_owned())?;
        self.file(&format!("sys/{place}/config"), vendor.to_le_bytes())?;
        if let Some((speed, width, most_speed, most_width)) = link {
            file("current_link_speed", format!("{speed}\n"))?;
            file("current_link_width", format!("{width}\n"))?;
            file("max_link_speed", format!("{most_speed}\n"))?;
            file("max_link_width", format!("{most_width}\n"))?;
        }
        self.link(&format!("sys/bus/pci/devices/{address}"), &format!("../../../{place}"))?;
        if let Some(group) = group {
            let members = format!("kernel/iommu_groups/{group}/devices");
            self.link(&format!("sys/{members}/{address}"), &format!("../../../../{place}"))?;
            self.file(&format!("sys/kernel/iommu_groups/{group}/type"), "DMA-FQ\n")?;
            let up = if below.is_empty() { "../../../" } else { "../../../../" };
            self.link(&format!("sys/{place}/iommu_group"), &format!("{up}kernel/iommu_groups/{group}"))?;
        }
        if let Some(driver) = driver {
            self.driver(driver)?;
            self.bound(address, driver)?;
        }
        Ok(())
    }

    /// Binds an existing function to a driver.
    ///
    /// # Errors
    /// The error of the system.
    pub fn bound(&self, address: &str, driver: &str) -> io::Result<()> {
        self.link(
            &format!("sys/bus/pci/devices/{address}/driver"),
            &format!("../../../../bus/pci/drivers/{driver}"),
        )
    }
}
