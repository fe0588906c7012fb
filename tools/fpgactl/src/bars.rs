//! BARs on the command line: named by number or by role.

use core::fmt;
use core::str::FromStr;

use fpga_driver::{BarRoles, Card, CardInfo};
use fpga_pci::{Backend, Bar, BarInfo};
use fpga_register_map::hint;

use crate::error::CliError;

/// Role of a BAR (PG195, the order of the BARs).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Registers of the DMA engine (DMA BAR).
    Dma,
    /// AXI4-Lite master: registers of the design (user BAR).
    User,
    /// Bypass master: window onto the card's memory (bypass BAR).
    Bypass,
}

impl Role {
    const ALL: [Self; 3] = [Self::Dma, Self::User, Self::Bypass];

    /// Name of the role.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dma => "dma",
            Self::User => "user",
            Self::Bypass => "bypass",
        }
    }

    fn bar(self, roles: &BarRoles) -> Option<BarInfo> {
        match self {
            Self::Dma => Some(roles.dma),
            Self::User => roles.user,
            Self::Bypass => roles.bypass,
        }
    }

    /// Role of BAR `index`, if it has one.
    #[must_use]
    pub fn of(info: &CardInfo, index: u8) -> Option<Self> {
        Self::among(&info.roles, index)
    }

    /// Role of BAR `index` of a card that is not opened yet.
    #[must_use]
    pub fn among(roles: &BarRoles, index: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.bar(roles).is_some_and(|bar| bar.index == index))
    }
}

/// BAR as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarChoice {
    /// By role.
    Role(Role),
    /// By number, 0 to 5.
    Index(u8),
}

/// Text that names no BAR.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" names no BAR; write dma, user or bypass, or a number from 0 to 5{hint}", hint = self.hint())]
pub struct ParseBarError(String);

impl ParseBarError {
    fn hint(&self) -> String {
        let names = Role::ALL.map(Role::name);
        hint(&self.0, names).map_or_else(String::new, |hint| format!("; {hint}"))
    }
}

impl FromStr for BarChoice {
    type Err = ParseBarError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let role = Role::ALL.into_iter().find(|role| text.eq_ignore_ascii_case(role.name()));
        if let Some(role) = role {
            return Ok(Self::Role(role));
        }
        match text.parse() {
            // The standard parser would also take a sign.
            Ok(index @ 0..=5) if text.len() == 1 => Ok(Self::Index(index)),
            _ => Err(ParseBarError(text.chars().take(40).collect())),
        }
    }
}

impl fmt::Display for BarChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Role(role) => f.write_str(role.name()),
            Self::Index(index) => write!(f, "{index}"),
        }
    }
}

/// BAR of an opened card.
#[derive(Debug)]
pub struct Found {
    /// Number of the BAR.
    pub index: u8,
    /// Role of the BAR, if known.
    pub role: Option<Role>,
    /// The BAR.
    pub bar: Bar,
}

impl Found {
    /// Name of the role, or `unknown`.
    #[must_use]
    pub fn role_name(&self) -> &'static str {
        self.role.map_or("unknown", Role::name)
    }
}

/// Opens the BAR that `choice` names.
///
/// # Errors
/// Wrong usage if the card has no such BAR, a failure if it cannot be opened.
pub fn open(card: &Card, backend: &dyn Backend, choice: BarChoice) -> Result<Found, CliError> {
    let info = card.info();
    let index = match choice {
        BarChoice::Role(role) => role.bar(&info.roles).map(|bar| bar.index),
        BarChoice::Index(index) => {
            backend.bars().into_iter().flatten().find(|bar| bar.index == index).map(|bar| bar.index)
        }
    };
    let Some(index) = index else {
        let there = backend.bars().into_iter().flatten().map(|bar| {
            let role = Role::of(info, bar.index).map_or("unknown", Role::name);
            format!("{} ({role})", bar.index)
        });
        let there = there.collect::<Vec<_>>().join(", ");
        return Err(CliError::usage(format!(
            "{}: there is no BAR {choice}; the card has {there}",
            card.name()
        )));
    };
    let bar = backend
        .open_bar(index)
        .map_err(|error| CliError::failed(format!("{}: {error}", card.name())).advised(error.help()))?;
    Ok(Found { index, role: Role::of(info, index), bar })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_choice_parses_role_and_number() {
        for text in ["dma", "user", "bypass", "0", "5"] {
            assert_eq!(text.parse::<BarChoice>().unwrap().to_string(), text);
        }
        assert_eq!("DMA".parse(), Ok(BarChoice::Role(Role::Dma)));
        for text in ["", "6", "+1", "-1", "01", "config", "bar0", "0x1"] {
            let error = text.parse::<BarChoice>().unwrap_err().to_string();
            assert!(error.contains("dma, user or bypass"), "{text}: {error}");
        }
    }
}
