//! PCI functions as sysfs shows them.

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
    /// Where it sits.
    pub address: PciAddress,
    /// Vendor and device id.
    pub id: DeviceId,
    /// Vendor and device id of the subsystem.
    pub subsystem: Option<DeviceId>,
    /// Class code: base class, sub class, programming interface.
    pub class: Option<u32>,
    /// The driver it is bound to.
    pub driver: Option<String>,
    /// The only driver that may have it, where one is named.
    pub driver_override: Option<String>,
    /// Its IOMMU group.
    pub group: Option<u32>,
    /// Its link.
    pub link: Option<LinkInfo>,
    /// NUMA node, where the machine has several.
    pub numa_node: Option<u32>,
    /// The physical function, if this is a virtual one.
    pub physical_function: Option<PciAddress>,
    /// How many virtual functions it has just now.
    pub virtual_functions: u64,
    /// Ways that the kernel knows to reset it, in the order in which it tries them; `None`: the kernel does not tell (before 5.15),
    /// or there are none.
    pub reset_methods: Option<Vec<String>>,
    /// Whether configuration space reads as all ones, as that of a function which is not there any more.
    pub is_silent: bool,
    /// What could not be read or understood.
    pub remarks: Vec<String>,
}

/// What [`functions`] found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Listing {
    /// Functions in the order of their addresses.
    pub functions: Vec<PciFunction>,
    /// Functions that are there and whose ids cannot be read.
    pub unreadable: Vec<HostError>,
}

impl PciFunction {
    /// The function at `address`.
    ///
    /// # Errors
    /// [`HostError::NoSuchFunction`], [`HostError::NoSysfs`], [`HostError::Unreadable`], [`HostError::InvalidContent`]: the ids. What else cannot be read is a remark.
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
        // -1 where there is one node, or the firmware does not say.
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

    /// Whether XDMA designs are known by its ids: a hint, no proof.
    #[must_use]
    pub fn is_known(&self) -> bool {
        is_known_xdma(self.id)
    }

    /// Whether it is a bridge, which no user-space driver can have.
    #[must_use]
    pub fn is_bridge(&self) -> bool {
        self.class.is_some_and(|class| class >> 8 == BRIDGE)
    }

    /// What it is, as far as its ids tell: they are the designer's to choose.
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

    /// What its class code says it is.
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

/// All functions of the machine. There are none where there is no PCI.
///
/// # Errors
/// [`HostError::NoSysfs`], [`HostError::Unreadable`].
pub fn functions(roots: &Roots) -> Result<Listing, HostError> {
    let mut listing = Listing::default();
    for address in addresses(roots)? {
        match PciFunction::read(roots, address) {
            Ok(function) => listing.functions.push(function),
            // Taken away meanwhile.
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
        // A machine without PCI has a sysfs all the same.
        return match names(&roots.sysfs)? {
            Some(names) if !names.is_empty() => Ok(Vec::new()),
            _ => Err(HostError::NoSysfs { path: roots.sysfs.clone() }),
        };
    };
    let mut addresses: Vec<PciAddress> = found.iter().filter_map(|name| name.parse().ok()).collect();
    addresses.sort_unstable();
    Ok(addresses)
}

/// The function that `text` names.
///
/// # Errors
/// [`HostError::BadAddress`] for a part of an address or none, [`HostError::NoSuchFunction`]: both with functions that may have been
/// meant; as [`PciFunction::read`].
pub fn find(roots: &Roots, text: &str) -> Result<PciFunction, HostError> {
    match text.parse() {
        Ok(address) => PciFunction::read(roots, address),
        Err(source) => bad(roots, text, source),
    }
}

fn bad(roots: &Roots, text: &str, source: ParsePciAddressError) -> Result<PciFunction, HostError> {
    Err(HostError::BadAddress { source, hint: suggest(roots, text)? })
}

/// What a wrong address may have meant: functions that it is a part of, or that are written like it but for one character (two, if it is a
/// known card; two that changed places are one). The nearest come first, cards before others, and there are at most five. If there
/// are none, whoever typed it has something else in mind, and is told of the known cards.
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

/// In how many characters a text differs from an address; one without a domain is compared with the address without its.
fn distance(name: &str, text: &str) -> Option<usize> {
    // The shortest form of an address has seven characters, and one character may be missing or too many.
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

/// Sysfs keeps the ids that the kernel found when it looked first. Configuration space itself tells whether somebody still answers.
fn is_silent(directory: &Path) -> bool {
    use std::io::Read as _;
    let mut vendor = [0; 2];
    let read =
        std::fs::File::open(directory.join("config")).and_then(|mut file| file.read_exact(&mut vendor));
    const { assert!(header::VENDOR_ID == 0, "the vendor id is read from the start of the file") };
    read.is_ok() && u16::from_le_bytes(vendor) == VENDOR_NONE
}
