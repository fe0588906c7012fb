//! PCI functions as sysfs describes them.

use std::path::Path;

use fpga_registers::pci::{DefaultDesign, DeviceId, VENDOR_NONE, default_design, header, is_known_xdma};

use crate::roots::{attribute, invalid_content, link_name, names, number};
use crate::{Hint, HostError, LinkInfo, ParsePciAddressError, PciAddress, Roots};

/// Base and sub class of PCI-to-PCI bridges (PCI Code and ID Assignment Specification).
const BRIDGE: u32 = 0x0604;

/// A PCI function.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PciFunction {
    /// Address.
    pub address: PciAddress,
    /// Vendor and device id.
    pub id: DeviceId,
    /// Vendor and device id of the subsystem.
    pub subsystem: Option<DeviceId>,
    /// Class code: base class, sub class, programming interface.
    pub class: Option<u32>,
    /// Driver that it is bound to.
    pub driver: Option<String>,
    /// The only permitted driver (`driver_override`), if set.
    pub driver_override: Option<String>,
    /// IOMMU group.
    pub group: Option<u32>,
    /// PCIe link.
    pub link: Option<LinkInfo>,
    /// NUMA node, if the machine has several.
    pub numa_node: Option<u32>,
    /// The physical function, if this is a virtual one.
    pub physical_function: Option<PciAddress>,
    /// Current number of virtual functions.
    pub virtual_functions: u64,
    /// Reset methods that the kernel supports for it, in the order in which it tries them; `None`: the kernel does not list them (before
    /// 5.15), or there are none.
    pub reset_methods: Option<Vec<String>>,
    /// Whether configuration space reads as all ones, as for a removed function.
    pub is_silent: bool,
    /// Attributes that could not be read or parsed.
    pub remarks: Vec<String>,
}

/// Result of [`functions`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Listing {
    /// Functions in the order of their addresses.
    pub functions: Vec<PciFunction>,
    /// Existing functions whose ids cannot be read.
    pub unreadable: Vec<HostError>,
}

impl PciFunction {
    /// Reads the function at `address`.
    ///
    /// # Errors
    /// [`HostError::NoSuchFunction`], [`HostError::NoSysfs`], [`HostError::Unreadable`], [`HostError::InvalidContent`] for the ids. Other
    /// unreadable attributes are remarks.
    pub fn read(roots: &Roots, address: PciAddress) -> Result<Self, HostError> {
        let directory = roots.function(address);
        if std::fs::symlink_metadata(&directory).is_err() {
            let hint = suggest(roots, &address.to_string())?;
            return Err(HostError::NoSuchFunction { address, hint });
        }
        let gone = || HostError::NoSuchFunction { address, hint: Hint::Nothing };
        let id = id(&directory, "vendor", "device")?.ok_or_else(gone)?;
        let mut remarks = Vec::new();
        let remarks_of = &mut remarks;
        let mut keep = |error: HostError| remarks_of.push(error.to_string());
        let subsystem = id_or_report(&directory, "subsystem_vendor", "subsystem_device", &mut keep);
        let class = or_report(number(&directory.join("class")), &mut keep)
            .and_then(|class| u32::try_from(class).ok());
        let driver = or_report(roots.driver_of(address), &mut keep);
        // The kernel prints a null pointer as (null).
        let driver_override = or_report(attribute(&directory.join("driver_override")), &mut keep)
            .filter(|name| !name.is_empty() && name != "(null)");
        let group = or_report(roots.group_of(address), &mut keep);
        let link = or_report(LinkInfo::read(&directory), &mut keep);
        // -1 if there is one node, or the firmware does not report it.
        let numa_node =
            or_report(attribute(&directory.join("numa_node")), &mut keep).and_then(|node| node.parse().ok());
        let physical_function =
            or_report(link_name(&directory.join("physfn")), &mut keep).and_then(|name| name.parse().ok());
        let virtual_functions = or_report(number(&directory.join("sriov_numvfs")), &mut keep).unwrap_or(0);
        let reset_methods = or_report(attribute(&directory.join("reset_method")), &mut keep)
            .map(|text| text.split_ascii_whitespace().map(str::to_owned).collect());
        let is_silent = is_silent(&directory);
        Ok(Self {
            address,
            id,
            subsystem,
            class,
            driver,
            driver_override,
            group,
            link,
            numa_node,
            physical_function,
            virtual_functions,
            reset_methods,
            is_silent,
            remarks,
        })
    }

    /// Returns whether its ids are those of a known XDMA design: a hint, not a proof.
    #[must_use]
    pub fn is_known(&self) -> bool {
        is_known_xdma(self.id)
    }

    /// Returns whether it is a bridge, which user-space drivers cannot use.
    #[must_use]
    pub fn is_bridge(&self) -> bool {
        self.class.is_some_and(|class| class >> 8 == BRIDGE)
    }

    /// Name according to its ids, which the designer can choose freely.
    #[must_use]
    pub fn name(&self) -> String {
        match default_design(self.id) {
            Some(DefaultDesign { family, generation, lanes }) if self.is_known() => {
                format!("{family} Gen{generation} x{lanes}")
            }
            _ if self.is_known() => "FPGA".to_owned(),
            _ => self.kind().to_owned(),
        }
    }

    /// Kind of device according to its class code.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        // PCI Code and ID Assignment Specification, 1.
        match self.class.map(|class| class >> 16) {
            Some(0x01) => "mass storage controller",
            Some(0x02) => "network controller",
            Some(0x03) => "display controller",
            Some(0x04) => "multimedia device",
            Some(0x05) => "memory controller",
            Some(0x06) => "bridge",
            Some(0x07) => "communication controller",
            Some(0x08) => "system peripheral",
            Some(0x0C) => "serial bus controller",
            Some(0x0D) => "wireless controller",
            Some(0x10) => "encryption controller",
            Some(0x11) => "signal processing controller",
            Some(0x12) => "processing accelerator",
            _ => "device",
        }
    }
}

/// Lists all functions of the machine; none if there is no PCI.
///
/// # Errors
/// [`HostError::NoSysfs`], [`HostError::Unreadable`].
pub fn functions(roots: &Roots) -> Result<Listing, HostError> {
    let mut listing = Listing::default();
    for address in addresses(roots)? {
        match PciFunction::read(roots, address) {
            Ok(function) => listing.functions.push(function),
            // Removed meanwhile.
            Err(HostError::NoSuchFunction { .. }) => {}
            Err(error) => listing.unreadable.push(error),
        }
    }
    Ok(listing)
}

/// Addresses of all functions, in ascending order.
fn addresses(roots: &Roots) -> Result<Vec<PciAddress>, HostError> {
    let found = names(&roots.sysfs.join("bus/pci/devices"))?;
    let Some(found) = found else {
        // A machine without PCI still has a sysfs.
        return match names(&roots.sysfs)? {
            Some(names) if !names.is_empty() => Ok(Vec::new()),
            _ => Err(HostError::NoSysfs { path: roots.sysfs.clone() }),
        };
    };
    let mut addresses: Vec<PciAddress> = found.iter().filter_map(|name| name.parse().ok()).collect();
    addresses.sort_unstable();
    Ok(addresses)
}

/// Finds the function that `text` names.
///
/// # Errors
/// [`HostError::BadAddress`] for an incomplete or invalid address, [`HostError::NoSuchFunction`], both with suggestions; otherwise as
/// [`PciFunction::read`].
pub fn find(roots: &Roots, text: &str) -> Result<PciFunction, HostError> {
    match text.parse() {
        Ok(address) => PciFunction::read(roots, address),
        Err(source) => bad(roots, text, source),
    }
}

fn bad(roots: &Roots, text: &str, source: ParsePciAddressError) -> Result<PciFunction, HostError> {
    Err(HostError::BadAddress { source, hint: suggest(roots, text)? })
}

/// Suggests functions for a wrong address: functions whose address contains the text, or differs from it in one character (two for a known
/// card; two swapped characters count as one). The nearest come first, cards before others, at most five. If there are none, the known
/// cards are listed.
fn suggest(roots: &Roots, text: &str) -> Result<Hint, HostError> {
    let text = text.trim().to_ascii_lowercase();
    let all = functions(roots)?.functions;
    let by = |function: &PciFunction| {
        let name = function.address.to_string();
        if !text.is_empty() && name.contains(&text) {
            return Some(0);
        }
        let most = if function.is_known() { 2 } else { 1 };
        distance(&name, &text).filter(|by| *by <= most)
    };
    let near: Vec<(usize, &PciFunction)> =
        all.iter().filter_map(|function| Some((by(function)?, function))).collect();
    let is_near = !near.is_empty();
    let cards = || all.iter().filter(|function| function.is_known()).map(|function| (0, function)).collect();
    let mut found = if is_near { near } else { cards() };
    found.sort_by_key(|(by, function)| (*by, !function.is_known(), function.address));
    let describe = |(_, function): &(usize, &PciFunction)| {
        let DeviceId { vendor, device } = function.id;
        format!("{} ({vendor:04x}:{device:04x})", function.address)
    };
    let names: Vec<String> = found.iter().take(5).map(describe).collect();
    Ok(match (is_near, names.is_empty()) {
        (true, _) => Hint::Similar(names),
        (false, false) => Hint::Cards(names),
        (false, true) => Hint::Nothing,
    })
}

/// Number of characters in which a text differs from an address; a text without a domain is compared with the address without its domain.
fn distance(name: &str, text: &str) -> Option<usize> {
    // The shortest form of an address has seven characters; one character may be missing or superfluous.
    if !(6..=16).contains(&text.len()) {
        return None;
    }
    let short = name.split_once(':').map(|(_, short)| short);
    [Some(name), short].into_iter().flatten().map(|known| strsim::osa_distance(known, text)).min()
}

fn id(directory: &Path, vendor: &str, device: &str) -> Result<Option<DeviceId>, HostError> {
    let part = |name: &str| -> Result<Option<u16>, HostError> {
        let path = directory.join(name);
        let Some(value) = number(&path)? else { return Ok(None) };
        match u16::try_from(value) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(invalid_content(&path, &format!("{value:#x}"), "id of 16 bits")),
        }
    };
    Ok(part(vendor)?.zip(part(device)?).map(|(vendor, device)| DeviceId { vendor, device }))
}

fn id_or_report(
    directory: &Path,
    vendor: &str,
    device: &str,
    keep: &mut dyn FnMut(HostError),
) -> Option<DeviceId> {
    or_report(id(directory, vendor, device), keep)
}

fn or_report<T>(read: Result<Option<T>, HostError>, keep: &mut dyn FnMut(HostError)) -> Option<T> {
    read.unwrap_or_else(|error| {
        keep(error);
        None
    })
}

/// Whether configuration space reads as all ones. Sysfs keeps the ids of the first enumeration; configuration space shows whether the
/// function still answers.
fn is_silent(directory: &Path) -> bool {
    use std::io::Read as _;
    let mut vendor = [0; 2];
    let read =
        std::fs::File::open(directory.join("config")).and_then(|mut file| file.read_exact(&mut vendor));
    const { assert!(header::VENDOR_ID == 0, "the vendor id is read from the start of the file") };
    read.is_ok() && u16::from_le_bytes(vendor) == VENDOR_NONE
}
