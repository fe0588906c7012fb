//! Trees of machines, written to a directory: what sysfs, procfs and `/dev` show of them.
//!
//! [`MACHINES`] are typical ones, each with one thing that is so or not so; [`Tree`] makes others.

mod machines;

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

pub use machines::{MACHINES, Machine, machine};

use crate::Roots;

/// A machine's tree below one directory. Paths are relative to it.
#[derive(Debug, Clone)]
pub struct Tree {
    root: PathBuf,
}

/// A PCI function to be put into a tree.
#[derive(Debug, Clone)]
pub struct Function<'a> {
    /// Its address, in full.
    pub address: &'a str,
    /// The port above it, where it is not on the root bus.
    pub below: Option<&'a str>,
    /// Vendor and device id.
    pub id: (u16, u16),
    /// Class code.
    pub class: u32,
    /// Its driver.
    pub driver: Option<&'a str>,
    /// Its IOMMU group.
    pub group: Option<u32>,
    /// Current speed, current width, largest speed, largest width.
    pub link: Option<(&'a str, u8, &'a str, u8)>,
}

impl Function<'_> {
    /// An XDMA card in group 14, behind the port 0000:64:00.0, with a link as fast as it can be and no driver.
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
    /// A tree in `root` with nothing in it but the directories of PCI.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(root: &Path) -> io::Result<Self> {
        let tree = Self { root: root.to_owned() };
        for directory in ["sys/bus/pci/devices", "sys/bus/pci/drivers", "sys/kernel/iommu_groups", "dev"] {
            fs::create_dir_all(root.join(directory))?;
        }
        tree.file("sys/bus/pci/drivers_probe", "")?;
        Ok(tree)
    }

    /// Where its parts are.
    #[must_use]
    pub fn roots(&self) -> Roots {
        Roots::with_root(&self.root)
    }

    /// Its directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes a file, and makes the directories above it.
    ///
    /// # Errors
    /// What the system says.
    pub fn file(&self, path: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        let path = self.root.join(path);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above)?;
        }
        fs::write(path, content)
    }

    /// Makes a symbolic link, and the directories above it.
    ///
    /// # Errors
    /// What the system says.
    pub fn link(&self, path: &str, target: &str) -> io::Result<()> {
        let path = self.root.join(path);
        if let Some(above) = path.parent() {
            fs::create_dir_all(above)?;
        }
        symlink(target, path)
    }

    /// Removes a file, a link or a directory with all that is in it.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(&self, path: &str) -> io::Result<()> {
        let path = self.root.join(path);
        if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
    }

    /// A file of `/dev` with these permission bits.
    ///
    /// # Errors
    /// What the system says.
    pub fn device_file(&self, path: &str, mode: u32) -> io::Result<()> {
        self.file(path, "")?;
        fs::set_permissions(self.root.join(path), fs::Permissions::from_mode(mode))
    }

    /// A PCI driver that is loaded.
    ///
    /// # Errors
    /// What the system says.
    pub fn driver(&self, name: &str) -> io::Result<()> {
        for file in ["bind", "unbind"] {
            self.file(&format!("sys/bus/pci/drivers/{name}/{file}"), "")?;
        }
        Ok(())
    }

    /// Adds a function, with its driver and its place in its group.
    ///
    /// # Errors
    /// What the system says.
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

    /// Binds a function that is there to a driver.
    ///
    /// # Errors
    /// What the system says.
    pub fn bound(&self, address: &str, driver: &str) -> io::Result<()> {
        self.link(
            &format!("sys/bus/pci/devices/{address}/driver"),
            &format!("../../../../bus/pci/drivers/{driver}"),
        )
    }
}
