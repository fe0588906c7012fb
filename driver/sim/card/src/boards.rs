//! Built-in card descriptions: the simulated card itself, and models of real boards.
//!
//! A model fixes what software has to discover: ids, BARs and their order, channels, data width, vectors, link and memory. A board with a
//! user BAR contains this project's logic, as its subsystem id indicates. The others have the vendor's example design. `cards/README.md` lists
//! them side by side.

use crate::description::{CardDescription, DEFAULT_CARD_FILE};
use crate::reading::DescriptionError;
use std::path::Path;

/// A built-in description, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Builtin {
    /// Name for [`CardDescription::builtin`].
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// The card file.
    pub file: &'static str,
}

macro_rules! boards {
    ($($name:literal: $about:literal,)*) => {
        &[$(Builtin { name: $name, about: $about, file: include_str!(concat!("../cards/", $name, ".yaml")) }),*]
    };
}

const DEFAULT: Builtin = Builtin {
    name: "default",
    about: "the simulated card: UltraScale+ Gen3 x16, 4 + 4 channels, user, DMA and bypass BAR, 8 GiB",
    file: DEFAULT_CARD_FILE,
};

const BOARDS: &[Builtin] = boards! {
    "us-plus-x16": "UltraScale+ Gen3 x16, 4 + 4 channels, three 64-bit BARs, 64 GiB (Alveo U200 class)",
    "us-plus-x16-no-bypass": "UltraScale+ Gen3 x16, 4 + 4 channels, user and DMA BAR, 8 GiB (Alveo U50 class)",
    "us-x8": "UltraScale Gen3 x8, 2 + 2 channels, user and DMA BAR, 2 GiB (KCU105 class)",
    "7-series-gen3-x8": "Virtex-7 Gen3 x8, 2 + 2 channels, DMA and bypass BAR, 8 GiB (VC709 class)",
    "7-series-gen2-x8": "7 series Gen2 x8, 1 + 1 channels, three 32-bit BARs, 1 GiB (VC707 and KC705 class)",
    "artix-x4": "Artix-7 Gen2 x4, 1 + 1 channels, DMA BAR alone, 1 GiB (AC701 class)",
    "artix-x1": "Artix-7 Gen2 x1, 1 + 1 channels, DMA BAR alone, 128 KiB of block RAM (PicoEVB class)",
    "us-plus-x8-stream": "UltraScale+ Gen3 x8, 2 + 2 AXI4-Stream channels looped back, DMA BAR alone",
    "us-plus-x8-source": "UltraScale+ Gen3 x8, 1 + 2 AXI4-Stream channels, a traffic source behind each C2H one, DMA BAR alone",
    "quirky": "the simulated card with every quirk that the model knows",
};

impl CardDescription {
    /// Built-in descriptions that [`Self::builtin`] accepts, the simulated card first.
    pub fn builtins() -> impl Iterator<Item = &'static Builtin> {
        std::iter::once(&DEFAULT).chain(BOARDS)
    }

    /// Returns the built-in description `name`.
    ///
    /// # Errors
    /// [`DescriptionError::UnknownName`] lists the available names.
    pub fn builtin(name: &str) -> Result<Self, DescriptionError> {
        let Some(found) = Self::builtins().find(|builtin| builtin.name == name) else {
            let known = Self::builtins().map(|builtin| builtin.name).collect::<Vec<_>>().join(", ");
            return Err(DescriptionError::UnknownName { name: name.to_owned(), known });
        };
        Self::parse(Path::new(found.name), found.file)
    }

    /// The description that `name` stands for: a file, or, where there is none of that name, a built-in description. Names of built-in
    /// descriptions contain neither a folder nor an extension.
    ///
    /// # Errors
    /// [`DescriptionError::UnknownName`] for a name without folder and extension; otherwise as [`load`](Self::load).
    pub fn find(name: &Path) -> Result<Self, DescriptionError> {
        match Self::builtin_name(name) {
            Some(name) => Self::builtin(name),
            None => Self::load(name),
        }
    }

    /// `name` as the name of a built-in description; `None` if [`find`](Self::find) takes it for a file.
    #[must_use]
    pub fn builtin_name(name: &Path) -> Option<&str> {
        name.to_str().filter(|text| !text.contains(['/', '\\', '.']) && !name.exists())
    }
}
