//! Options for opening a device.

use core::fmt;
use core::str::FromStr;
use std::borrow::Cow;

use fpga_host::Roots;

/// Environment variable that [`VfioOptions::from_environment`] reads the interface from: `auto`, `group` or `iommufd`.
pub const INTERFACE_VARIABLE: &str = "FPGA_VFIO";
/// Environment variable that [`VfioOptions::from_environment`] reads the VF token from: a UUID.
pub const VF_TOKEN_VARIABLE: &str = "FPGA_VF_TOKEN";

/// Kernel interface through which a device is opened. Both use the same vfio-pci.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VfioInterface {
    /// The device file with iommufd if the kernel has both (6.6 and later, if built with them), else group and container; also if the user
    /// may open the group but not the device file.
    #[default]
    Auto,
    /// `/dev/vfio/GROUP` in a `/dev/vfio/vfio` container with a type 1 v2 IOMMU. Every distribution has it.
    Group,
    /// `/dev/vfio/devices/vfioN` bound to `/dev/iommu`.
    Iommufd,
}

impl fmt::Display for VfioInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Group => "group",
            Self::Iommufd => "iommufd",
        })
    }
}

impl FromStr for VfioInterface {
    type Err = ParseVfioOptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "group" => Ok(Self::Group),
            "iommufd" => Ok(Self::Iommufd),
            _ => Err(ParseVfioOptionError::Interface { text: text.to_owned() }),
        }
    }
}

/// Access method for mapped BARs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BarAccess {
    /// As [`Mapped`](Self::Mapped) if [`catch_bus_errors`](crate::catch_bus_errors) is on when the BAR is opened, which turns a SIGBUS into
    /// an error; else as [`File`](Self::File). A program that needs fast doorbells calls that function first; any other program is slower
    /// and safe.
    #[default]
    Auto,
    /// All accesses use the mapping, with or without the handler: without it, SIGBUS from a device that is gone ends the process.
    Mapped,
    /// All accesses are system calls: never SIGBUS, but about a microsecond for every doorbell.
    File,
}

/// VF token: the secret that a physical function and its virtual functions share (`linux/vfio.h`, `VFIO_DEVICE_FEATURE_PCI_VF_TOKEN`), a
/// UUID.
///
/// Needed for a virtual function whose physical function is used through VFIO too, and for such a physical function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VfToken([u8; 16]);

impl VfToken {
    /// Creates a token from the 16 bytes of a UUID, most significant first.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes, most significant first.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for VfToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for VfToken {
    type Err = ParseVfioOptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || ParseVfioOptionError::Token { text: text.to_owned() };
        let groups: Vec<usize> = text.split('-').map(str::len).collect();
        if groups != [8, 4, 4, 4, 12] {
            return Err(bad());
        }
        let mut bytes = [0; 16];
        let mut digits = text.chars().filter(|digit| *digit != '-').map(|digit| digit.to_digit(16));
        for byte in &mut bytes {
            let (Some(Some(high)), Some(Some(low))) = (digits.next(), digits.next()) else {
                return Err(bad());
            };
            *byte = u8::try_from(high << 4 | low).map_err(|_| bad())?;
        }
        Ok(Self(bytes))
    }
}

/// Text that is not a valid option value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseVfioOptionError {
    /// Not an interface name.
    #[error("\"{text}\" is not a VFIO interface: auto, group or iommufd")]
    Interface {
        /// The text.
        text: String,
    },
    /// Not a UUID.
    #[error("\"{text}\" is not a VF token, which is a UUID")]
    Token {
        /// The text.
        text: String,
    },
    /// An environment variable has an invalid value.
    #[error("environment variable {variable}: {source}")]
    Environment {
        /// Name of the variable.
        variable: &'static str,
        /// Error of its value.
        r#source: Box<ParseVfioOptionError>,
    },
}

impl ParseVfioOptionError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Interface { .. } => None,
            Self::Token { .. } => {
                Some("write it as a UUID, for example 14d63f20-8445-11ea-8900-1f9ce7d5650d".into())
            }
            Self::Environment { source, .. } => source.help(),
        }
    }
}

/// Options for opening a device.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct VfioOptions {
    /// Kernel interface to use.
    pub interface: VfioInterface,
    /// VF token shared with the other functions of an SR-IOV device, if one is needed.
    pub vf_token: Option<VfToken>,
    /// Access method for BARs.
    pub bar_access: BarAccess,
    /// Directories of sysfs and the device files.
    pub roots: Roots,
}

impl VfioOptions {
    /// Returns the defaults, changed by the environment variables [`INTERFACE_VARIABLE`] and [`VF_TOKEN_VARIABLE`]. An empty variable is
    /// ignored.
    ///
    /// # Errors
    /// [`ParseVfioOptionError::Environment`] for a variable with an invalid value.
    pub fn from_environment() -> Result<Self, ParseVfioOptionError> {
        Self::from_variables(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, ParseVfioOptionError> {
        fn parse<T: FromStr<Err = ParseVfioOptionError>>(
            variable: &'static str,
            value: Option<String>,
        ) -> Result<Option<T>, ParseVfioOptionError> {
            let value = value.filter(|text| !text.is_empty());
            value
                .map(|text| text.parse())
                .transpose()
                .map_err(|error| ParseVfioOptionError::Environment { variable, source: Box::new(error) })
        }
        Ok(Self {
            interface: parse(INTERFACE_VARIABLE, lookup(INTERFACE_VARIABLE))?.unwrap_or_default(),
            vf_token: parse(VF_TOKEN_VARIABLE, lookup(VF_TOKEN_VARIABLE))?,
            ..Self::default()
        })
    }

    /// Sets the directories of sysfs and the device files.
    #[must_use]
    pub fn roots(mut self, roots: Roots) -> Self {
        self.roots = roots;
        self
    }
}

fpga_registers::setters! {
    impl VfioOptions {
        /// Sets the kernel interface.
        interface: VfioInterface;
        /// Sets the VF token shared with the other functions of an SR-IOV device.
        vf_token: VfToken => Some;
        /// Sets the access method for BARs.
        bar_access: BarAccess;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn options_interface_names_parse() {
        for interface in [VfioInterface::Auto, VfioInterface::Group, VfioInterface::Iommufd] {
            assert_eq!(interface.to_string().parse(), Ok(interface));
        }
        let error = "Group".parse::<VfioInterface>().unwrap_err();
        assert!(error.to_string().contains("auto, group or iommufd"), "{error}");
    }

    #[test]
    fn options_environment_is_applied() {
        let set = |name: &str| match name {
            INTERFACE_VARIABLE => Some("iommufd".to_owned()),
            VF_TOKEN_VARIABLE => Some("00000000-0000-0000-0000-0000000000ff".to_owned()),
            _ => None,
        };
        let options = VfioOptions::from_variables(set).unwrap();
        assert_eq!(options.interface, VfioInterface::Iommufd);
        assert_eq!(options.vf_token.unwrap().to_bytes()[15], 0xFF);
        let empty = VfioOptions::from_variables(|_| Some(String::new())).unwrap();
        assert_eq!((empty.interface, empty.vf_token), (VfioInterface::Auto, None));
        let wrong = VfioOptions::from_variables(|_| Some("cdev".to_owned())).unwrap_err();
        assert!(wrong.to_string().starts_with("environment variable FPGA_VFIO: \"cdev\""), "{wrong}");
    }

    #[test]
    fn options_invalid_uuid_is_refused() {
        for text in
            ["", "14d63f20", "14d63f2084451-1ea-8900-1f9ce7d5650d", "14d63f20-8445-11ea-8900-1f9ce7d5650g"]
        {
            assert!(text.parse::<VfToken>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn options_vf_token_parses_uuid(bytes: [u8; 16]) {
            let token = VfToken::from_bytes(bytes);
            prop_assert_eq!(token.to_string().parse(), Ok(token));
        }

        #[test]
        fn options_any_text_does_not_panic(text in ".{0,40}") {
            let _ = text.parse::<VfToken>();
        }
    }
}
