//! Names of cards, and the backends that they stand for.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::path::PathBuf;

use fpga_pci::vfio::{VfToken, VfioInterface};

use crate::advice::Advice;
use crate::error::{Cause, CauseClass, Classified, LowerError};
use fpga_pci::{ParsePciAddressError, PciAddress};

/// A card, as users name it. The text form is the same for programs and for `fpgactl --card`:
///
/// | Text | Card |
/// |---|---|
/// | `0000:65:00.0`, `65:00.0` | PCI function bound to vfio-pci |
/// | `vfio-user:SOCKET` | card that another process serves, for example `fpgactl card serve` |
/// | `mock` | simulated card in this process |
/// | `mock:NAME` | the same with the shape of a real board; the error of an unknown name lists the names |
/// | `mock:FILE.yaml` | the same from a card description |
/// | `rtl:FOLDER` | design in an RTL simulator, which runs as long as the card is open; `fpgactl rtl build` makes the folder |
/// | `shared:CARD` | one of these, shared by several processes of one user: the first opener starts its owner, `fpgactl card share` |
///
/// A card outside this process that has such an owner is opened through it, by its plain name, too.
///
/// Simulated cards can be named by every program, and opened if `fpga-driver` has the feature `sim`.
///
/// ```
/// use fpga_driver::CardSpec;
///
/// let card: CardSpec = "65:00.0".parse()?;
/// assert_eq!(card.to_string(), "0000:65:00.0");
/// # Ok::<(), fpga_driver::errors::Cause>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CardSpec {
    /// PCI function bound to vfio-pci.
    Pci(PciAddress),
    /// Path of the socket of a vfio-user server.
    VfioUser(PathBuf),
    /// Simulated card in this process.
    Simulated {
        /// Name of a built-in card description, or path of a file with one; `None`: the default card.
        description: Option<PathBuf>,
    },
    /// Simulation of RTL in this folder, which runs as long as the backend.
    Rtl(PathBuf),
    /// Card that processes share: its owner process opens it. The program `fpgactl` becomes the owner: its path is in the environment
    /// variable `FPGACTL`, or it is in a folder of `PATH`.
    Shared(Box<CardSpec>),
}

/// Text that names no card.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CardSpecError {
    /// Nothing after the colon.
    #[error("the {what} is missing after \"{before}\"")]
    Missing {
        /// Expected text.
        what: &'static str,
        /// Preceding text.
        before: &'static str,
    },
    /// The name of a shared card after `shared:`.
    #[error("the card after \"shared:\" is shared already: write {card}")]
    SharedTwice {
        /// The card.
        card: CardSpec,
    },
}

impl LowerError for CardSpecError {
    fn classify(&self) -> Classified {
        (CauseClass::Argument, Some(Advice::NameCard))
    }
}

impl FromStr for CardSpec {
    type Err = Cause;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "mock" {
            return Ok(Self::Simulated { description: None });
        }
        let rest = |before: &'static str, what| match text.strip_prefix(before) {
            Some("") => Err(Cause::from(CardSpecError::Missing { what, before })),
            other => Ok(other.map(PathBuf::from)),
        };
        if let Some(file) = rest("mock:", "card description")? {
            return Ok(Self::Simulated { description: Some(file) });
        }
        if let Some(socket) = rest("vfio-user:", "socket")? {
            return Ok(Self::VfioUser(socket));
        }
        if let Some(folder) = rest("rtl:", "folder of a simulation")? {
            return Ok(Self::Rtl(folder));
        }
        if let Some(card) = rest("shared:", "card")? {
            return match card.to_str().unwrap_or_default().parse()? {
                card @ Self::Shared(_) => Err(CardSpecError::SharedTwice { card }.into()),
                card => Ok(Self::Shared(Box::new(card))),
            };
        }
        text.parse().map(Self::Pci).map_err(|error: ParsePciAddressError| error.into())
    }
}

impl fmt::Display for CardSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(address) => write!(f, "{address}"),
            Self::VfioUser(socket) => write!(f, "vfio-user:{}", socket.display()),
            Self::Rtl(folder) => write!(f, "rtl:{}", folder.display()),
            Self::Shared(card) => write!(f, "shared:{card}"),
            Self::Simulated { description: None } => f.write_str("mock"),
            Self::Simulated { description: Some(file) } => write!(f, "mock:{}", file.display()),
        }
    }
}

impl CardSpec {
    /// Returns the card itself: of a shared card the card that its owner opens.
    #[must_use]
    pub fn card(&self) -> &Self {
        match self {
            Self::Shared(card) => card,
            card => card,
        }
    }
}

impl From<PciAddress> for CardSpec {
    fn from(address: PciAddress) -> Self {
        Self::Pci(address)
    }
}

/// How a card outside this process is accessed. What is `None` is taken from the environment
/// ([`VfioOptions::from_environment`](fpga_pci::vfio::VfioOptions::from_environment)), then from the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AccessOptions {
    /// The kernel's interface for PCI cards.
    pub vfio: Option<VfioInterface>,
    /// Secret shared with the other functions of an SR-IOV device.
    pub vf_token: Option<VfToken>,
    /// Maximum time for a message to a vfio-user server and its answer. Environment variable `FPGA_MESSAGE_TIMEOUT` (seconds), default 30 s.
    pub message_timeout: Option<Duration>,
}

fpga_registers::setters! {
    impl AccessOptions {
        /// Opens PCI cards through `vfio`.
        vfio: VfioInterface => Some;
        /// Presents `vf_token` to the SR-IOV device.
        vf_token: VfToken => Some;
        /// Maximum time for a message to a vfio-user server and its answer.
        message_timeout: Duration => Some;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spec_every_form_round_trips() {
        for text in [
            "mock",
            "mock:cards/a.yaml",
            "0000:65:00.0",
            "vfio-user:/run/card.sock",
            "shared:0000:65:00.0",
            "rtl:build/sim",
            "shared:mock:us-x8",
            "shared:rtl:build/sim",
            "shared:vfio-user:/run/card.sock",
        ] {
            assert_eq!(text.parse::<CardSpec>().unwrap().to_string(), text);
        }
        assert_eq!("65:00.1".parse::<CardSpec>().unwrap().to_string(), "0000:65:00.1");
    }

    #[test]
    fn spec_without_name_after_colon_is_refused() {
        let missing = |what, before| Err(Cause::from(CardSpecError::Missing { what, before }));
        assert_eq!("mock:".parse::<CardSpec>(), missing("card description", "mock:"));
        assert_eq!("vfio-user:".parse::<CardSpec>(), missing("socket", "vfio-user:"));
        assert_eq!("rtl:".parse::<CardSpec>(), missing("folder of a simulation", "rtl:"));
        assert_eq!("shared:".parse::<CardSpec>(), missing("card", "shared:"));
        assert_eq!("shared:mock:".parse::<CardSpec>(), missing("card description", "mock:"));
        let twice = "shared:shared:mock".parse::<CardSpec>().unwrap_err();
        assert_eq!(twice.to_string(), "the card after \"shared:\" is shared already: write shared:mock");
    }

    proptest! {
        #[test]
        fn spec_that_parses_round_trips(text in ".{0,40}") {
            if let Ok(spec) = text.parse::<CardSpec>() {
                prop_assert_eq!(spec.to_string().parse::<CardSpec>(), Ok(spec));
            }
        }
    }
}
