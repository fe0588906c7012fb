//! Builds of the simulated card that cases need besides the usual one. A backend of this process creates them; existing cards are served
//! from the same files.

use std::path::Path;

use fpga_card::CardDescription;

/// Build of a simulated card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    /// Name: that of the file in `tests/cards`.
    pub name: &'static str,
    text: &'static str,
}

impl Build {
    /// Description of a simulated card of this build.
    ///
    /// # Panics
    /// If the file is invalid.
    #[must_use]
    pub fn description(&self) -> CardDescription {
        CardDescription::parse(Path::new(self.name), self.text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the build with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        BUILDS.iter().copied().find(|build| build.name == name)
    }
}

macro_rules! build {
    ($name:literal) => {
        Build { name: $name, text: include_str!(concat!("../../cards/", $name, ".yaml")) }
    };
}

/// Two stream loopbacks. Without data the engine closes a descriptor after the write flush timeout; dropped buffers are returned.
pub const LOOPS: Build = build!("loops");
/// One loopback. A descriptor without data is closed neither by the write flush timeout nor by clearing Run.
pub const GUIDE_LOOPBACK: Build = build!("loop-as-the-guide-has-it");
/// Streams from an endless packet source.
pub const SOURCE: Build = build!("source");
/// Streams of 500 packets.
pub const SOURCE_500: Build = build!("source-500");
/// Streams of 500 packets, one after the other.
pub const SOURCE_500_SLOW: Build = build!("source-500-slow");
/// A source that never ends its packet.
pub const ENDLESS_PACKET: Build = build!("endless-packet");

/// A CDMA that requires source and destination to have the same offset in their 64-byte beats.
pub const NO_REALIGNMENT: Build = build!("copies-without-realignment");

/// Interrupts by INTx only.
pub const LEGACY_LINE: Build = build!("legacy-line");

/// One MSI message for all interrupts.
pub const ONE_MESSAGE: Build = build!("one-message");

/// Fewer vectors than channels and user interrupts.
pub const FEW_VECTORS: Build = build!("few-vectors");

/// An event ring in card memory, from which the host fetches events.
pub const FETCHED_EVENTS: Build = build!("fetched-events");

/// All builds.
pub const BUILDS: &[&Build] = &[
    &LOOPS,
    &GUIDE_LOOPBACK,
    &SOURCE,
    &SOURCE_500,
    &SOURCE_500_SLOW,
    &ENDLESS_PACKET,
    &NO_REALIGNMENT,
    &LEGACY_LINE,
    &ONE_MESSAGE,
    &FEW_VECTORS,
    &FETCHED_EVENTS,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_every_name_is_found_and_builds() {
        for build in BUILDS {
            assert_eq!(Build::named(build.name), Some(*build));
            let description = build.description();
            let plain = [NO_REALIGNMENT, LEGACY_LINE, ONE_MESSAGE, FEW_VECTORS, FETCHED_EVENTS];
            let plain = plain.contains(build);
            assert!(description.xdma.stream || plain, "{}", build.name);
        }
        assert_eq!(Build::named("other"), None);
    }
}
