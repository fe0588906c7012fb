//! Speed and width of a PCI Express link.

use core::fmt;
use std::path::Path;

use crate::roots::{attribute, invalid_content};
use crate::{HostError, PciAddress};

/// Transfer rate of one lane, in tenths of GT/s: 25, 50, 80, 160, 320, 640.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkSpeed(u32);

/// Speed and width, if known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LinkParameters {
    /// Speed of a lane.
    pub speed: Option<LinkSpeed>,
    /// Number of lanes.
    pub width: Option<u8>,
}

/// PCIe link of a function: current and maximum parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LinkInfo {
    /// Current parameters.
    pub current: LinkParameters,
    /// Maximum parameters of the function.
    pub maximum: LinkParameters,
    /// The upstream port and its maximum parameters.
    pub port: Option<(PciAddress, LinkParameters)>,
}

impl LinkSpeed {
    /// Transfer rate of a lane in GT/s.
    #[must_use]
    pub fn gigatransfers(self) -> f64 {
        f64::from(self.0) / 10.0
    }

    /// Parses the kernel's format: `8.0 GT/s PCIe`, before 5.7 `8 GT/s`. `Some(None)`: unknown to the kernel.
    fn parse(text: &str) -> Option<Option<Self>> {
        if text.starts_with("Unknown") {
            return Some(None);
        }
        let mut words = text.split_ascii_whitespace();
        let (number, unit) = (words.next()?, words.next()?);
        let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
        let (whole, tenth): (u32, u32) = (whole.parse().ok()?, tenth.parse().ok()?);
        (unit == "GT/s" && tenth < 10 && (1..=1000).contains(&whole))
            .then_some(Some(Self(whole * 10 + tenth)))
    }

    /// Share of payload bits on the wire: 8b/10b below 8 GT/s, 128b/130b from there on. (64 GT/s has another code with a similar overhead.)
    fn efficiency(self) -> f64 {
        if self.0 < 80 { 0.8 } else { 128.0 / 130.0 }
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} GT/s", self.0 / 10, self.0 % 10)
    }
}

impl fmt::Display for LinkParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.speed, self.width) {
            (Some(speed), Some(width)) => write!(f, "x{width} {speed}"),
            (None, Some(width)) => write!(f, "x{width}"),
            (Some(speed), None) => write!(f, "{speed}"),
            (None, None) => f.write_str("unknown"),
        }
    }
}

impl LinkParameters {
    /// Creates parameters with this speed (in tenths of GT/s) and width.
    #[must_use]
    pub const fn new(speed: Option<LinkSpeed>, width: Option<u8>) -> Self {
        Self { speed, width }
    }

    /// Bytes per second in one direction before packet headers, in GB/s (10^9).
    #[must_use]
    pub fn gigabytes_per_second(self) -> Option<f64> {
        let (speed, width) = (self.speed?, self.width?);
        Some(speed.gigatransfers() * speed.efficiency() * f64::from(width) / 8.0)
    }

    /// Highest parameters that both ends support. Unknown values impose no limit.
    #[must_use]
    pub fn min_link(self, other: Self) -> Self {
        Self { speed: min_link(self.speed, other.speed), width: min_link(self.width, other.width) }
    }

    /// Returns whether it is slower or narrower than `other`, if both are known.
    #[must_use]
    pub fn is_below(self, other: Self) -> bool {
        matches!((self.speed, other.speed), (Some(a), Some(b)) if a < b)
            || matches!((self.width, other.width), (Some(a), Some(b)) if a < b)
    }

    fn read(directory: &Path, which: &str) -> Result<Option<Self>, HostError> {
        let path = directory.join(format!("{which}_link_speed"));
        let Some(text) = attribute(&path)? else { return Ok(None) };
        let speed =
            LinkSpeed::parse(&text).ok_or_else(|| invalid_content(&path, &text, "speed of a link"))?;
        let path = directory.join(format!("{which}_link_width"));
        let text = attribute(&path)?.unwrap_or_default();
        let lanes: u8 = match text.as_str() {
            "" => 0,
            text => text.parse().map_err(|_| invalid_content(&path, text, "width of a link"))?,
        };
        // 0: no link (a function of the root complex, a virtual function); 255: unknown to the kernel.
        let width = (1..=32).contains(&lanes).then_some(lanes);
        Ok(Some(Self { speed, width }))
    }
}

fn min_link<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl LinkInfo {
    /// Reads the link of the function with this directory; `None` without PCI Express or without a link.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, HostError> {
        let (Some(current), Some(maximum)) =
            (LinkParameters::read(directory, "current")?, LinkParameters::read(directory, "max")?)
        else {
            return Ok(None);
        };
        if current == LinkParameters::default() && maximum == LinkParameters::default() {
            return Ok(None);
        }
        // The directory is a link into the tree of buses, where a function is below its port.
        let above = std::fs::canonicalize(directory).ok();
        let above = above.as_deref().and_then(Path::parent);
        let address = above.and_then(Path::file_name).and_then(|name| name.to_str()?.parse().ok());
        let port = match (address, above) {
            (Some(address), Some(above)) => LinkParameters::read(above, "max")?.map(|link| (address, link)),
            _ => None,
        };
        Ok(Some(Self { current, maximum, port }))
    }

    /// Highest parameters that function and port both support.
    #[must_use]
    pub fn possible(&self) -> LinkParameters {
        self.port.map_or(self.maximum, |(_, port)| self.maximum.min_link(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(speed: u32, width: u8) -> LinkParameters {
        LinkParameters::new(Some(LinkSpeed(speed)), Some(width))
    }

    #[test]
    fn link_speed_parses_every_kernel_format() {
        for (text, tenths) in [
            ("2.5 GT/s PCIe", Some(25)),
            ("5.0 GT/s PCIe", Some(50)),
            ("8 GT/s", Some(80)),
            ("64.0 GT/s PCIe", Some(640)),
            ("Unknown", None),
            ("Unknown speed", None),
        ] {
            assert_eq!(LinkSpeed::parse(text), Some(tenths.map(LinkSpeed)), "{text}");
        }
        for text in ["", "8", "8 GB/s", "8.0.0 GT/s", "-8 GT/s", "8.25 GT/s", "99999999999 GT/s", "GT/s 8"] {
            assert_eq!(LinkSpeed::parse(text), None, "{text}");
        }
    }

    #[test]
    fn link_rates_match_specification() {
        // PCI Express Base Specification 5.0, 1.2: 250 MB/s per lane at 2.5 GT/s, 985 at 8, 3938 at 32.
        for (link, expected) in [(link(25, 1), 0.25), (link(80, 16), 15.754), (link(320, 4), 15.754)] {
            let rate = link.gigabytes_per_second().unwrap();
            assert!((rate - expected).abs() < 0.001, "{link}: {rate}");
        }
        assert_eq!(LinkParameters::default().gigabytes_per_second(), None);
    }

    #[test]
    fn link_reduced_speed_or_width_is_worse() {
        assert!(link(80, 8).is_below(link(80, 16)) && link(50, 16).is_below(link(80, 16)));
        assert!(!link(80, 16).is_below(link(80, 16)) && !link(160, 16).is_below(link(80, 16)));
        assert!(
            !LinkParameters::default().is_below(link(80, 16))
                && !link(25, 1).is_below(LinkParameters::default())
        );
        assert_eq!(link(80, 16).min_link(link(160, 8)), link(80, 8));
        assert_eq!(link(80, 16).min_link(LinkParameters::default()), link(80, 16));
        assert_eq!(link(80, 16).to_string(), "x16 8.0 GT/s");
    }
}
