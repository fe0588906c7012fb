//! Builds of the simulated card that cases need beside the usual one. A door in this process makes them; where cards are there
//! already, they are served from the same files.

use std::path::Path;

use fpga_card::CardDescription;

/// A build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    /// Its name: that of its file in `tests/cards`.
    pub name: &'static str,
    text: &'static str,
}

impl Build {
    /// What a simulated card of this build is made from.
    ///
    /// # Panics
    /// If the file is wrong.
    #[must_use]
    pub fn description(&self) -> CardDescription {
        CardDescription::parse(Path::new(self.name), self.text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The one of this name.
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

/// Two stream loops, which an engine without data leaves when the flush timeout says so: what is dropped is given back.
pub const LOOPS: Build = build!("loops");
/// One loop; a descriptor without data is closed neither by the flush timeout nor by clearing Run.
pub const GUIDE_LOOPBACK: Build = build!("loop-as-the-guide-has-it");
/// Streams that come from a source of packets, without an end.
pub const SOURCE: Build = build!("source");
/// Streams of 500 packets.
pub const SOURCE_500: Build = build!("source-500");
/// Streams of 500 packets, which come one after the other.
pub const SOURCE_500_SLOW: Build = build!("source-500-slow");
/// A source that never ends its packet.
pub const ENDLESS_PACKET: Build = build!("endless-packet");

/// A copy engine that moves only what lies equally far into its beats of 64 bytes.
pub const NO_REALIGNMENT: Build = build!("copies-without-realignment");

/// Interrupts by the legacy line alone.
pub const LEGACY_LINE: Build = build!("legacy-line");

/// One MSI message for everything.
pub const ONE_MESSAGE: Build = build!("one-message");

/// Fewer vectors than channels and user interrupts.
pub const FEW_VECTORS: Build = build!("few-vectors");

/// All of them.
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
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_every_name_is_found_and_builds() {
        for build in BUILDS {
            assert_eq!(Build::named(build.name), Some(*build));
            let description = build.description();
            let plain = [NO_REALIGNMENT, LEGACY_LINE, ONE_MESSAGE, FEW_VECTORS].contains(build);
            assert!(description.xdma.stream || plain, "{}", build.name);
        }
        assert_eq!(Build::named("other"), None);
    }
}
