//! Addresses of PCI functions.

use core::fmt;
use core::str::FromStr;
use std::borrow::Cow;

/// Address of a PCI function: domain, bus, device, function. Written `0000:65:00.0`; the domain may be omitted and is then 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// Reason why a text is not a PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a PCI address: {problem}")]
pub struct ParsePciAddressError {
    /// The text, shortened if it is long.
    pub text: String,
    /// Description of the problem.
    pub problem: &'static str,
}

impl ParsePciAddressError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub const fn help(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed("write it as lspci -D does, for example 0000:65:00.0"))
    }
}

impl PciAddress {
    /// Creates an address; `None` if the device is above 31 or the function above 7.
    #[must_use]
    pub const fn new(domain: u32, bus: u8, device: u8, function: u8) -> Option<Self> {
        if device > 31 || function > 7 {
            return None;
        }
        Some(Self { domain, bus, device, function })
    }

    /// PCI domain (segment); above 65535 with some host bridges.
    #[must_use]
    pub const fn domain(self) -> u32 {
        self.domain
    }

    /// Bus number.
    #[must_use]
    pub const fn bus(self) -> u8 {
        self.bus
    }

    /// Device number, 0 to 31.
    #[must_use]
    pub const fn device(self) -> u8 {
        self.device
    }

    /// Function number, 0 to 7.
    #[must_use]
    pub const fn function(self) -> u8 {
        self.function
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for PciAddress {
    type Err = ParsePciAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|problem| ParsePciAddressError { text: text.chars().take(40).collect(), problem })
    }
}

fn parse(text: &str) -> Result<PciAddress, &'static str> {
    let (place, function) = text.rsplit_once('.').ok_or("no '.' before the function")?;
    let mut parts = place.rsplit(':');
    let device = parts.next().ok_or("the device is missing")?;
    let bus = parts.next().ok_or("no ':' between bus and device")?;
    let domain = parts.next().unwrap_or("0");
    if parts.next().is_some() {
        return Err("it has more than three parts separated by ':'");
    }
    let domain = hex(domain, 8).ok_or("the domain is not a hexadecimal number of at most 8 digits")?;
    let bus = hex(bus, 2).and_then(|bus| u8::try_from(bus).ok());
    let bus = bus.ok_or("the bus is not a hexadecimal number from 00 to ff")?;
    let device = hex(device, 2).and_then(|device| u8::try_from(device).ok()).filter(|device| *device < 32);
    let device = device.ok_or("the device is not a hexadecimal number from 00 to 1f")?;
    let function =
        hex(function, 1).and_then(|function| u8::try_from(function).ok()).filter(|number| *number < 8);
    let function = function.ok_or("the function is not a digit from 0 to 7")?;
    Ok(PciAddress { domain, bus, device, function })
}

/// Parses hexadecimal digits only: the standard parser would also accept a sign.
fn hex(text: &str, most: usize) -> Option<u32> {
    if text.is_empty() || text.len() > most || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pci_address_usual_forms_parse() {
        for (text, written) in [
            ("0000:65:00.0", "0000:65:00.0"),
            ("65:00.0", "0000:65:00.0"),
            ("10000:01:1F.7", "10000:01:1f.7"),
            ("0:1:2.3", "0000:01:02.3"),
        ] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn pci_address_invalid_text_is_refused_with_reason() {
        for (text, part) in [
            ("", "no '.'"),
            ("65:00", "no '.'"),
            ("00.0", "no ':'"),
            ("0:0:0:0.0", "more than three"),
            ("+1:00:00.0", "domain"),
            ("123456789:00:00.0", "domain"),
            ("0000:100:00.0", "bus"),
            ("0000:00:20.0", "device"),
            ("0000:00:1g.0", "device"),
            ("0000:00:00.8", "function"),
            ("0000:00:00.", "function"),
            ("../../etc:00:00.0", "domain"),
        ] {
            let error = text.parse::<PciAddress>().unwrap_err();
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn pci_address_text_round_trips(domain in any::<u32>(), bus in any::<u8>(), device in 0_u8..32, function in 0_u8..8) {
            let address = PciAddress::new(domain, bus, device, function).unwrap();
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn pci_address_any_text_does_not_panic(text in ".*") {
            let _ = text.parse::<PciAddress>();
        }
    }
}
