//! Numbers with their nouns, for messages.

use core::fmt;

/// A number of things. Prints as `1 packet` or `2 packets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    number: u64,
    noun: &'static str,
}

/// Returns a number with its noun, which is given in the singular: `quantity(2, "entry")` prints as `2 entries`.
///
/// A number above 64 bits prints as the largest one of 64 bits.
#[must_use]
pub fn quantity(number: impl TryInto<u64>, noun: &'static str) -> Quantity {
    Quantity { number: number.try_into().unwrap_or(u64::MAX), noun }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, noun } = self;
        let vowels = ["ay", "ey", "oy", "uy"];
        match noun.strip_suffix('y') {
            _ if *number == 1 => write!(f, "1 {noun}"),
            Some(stem) if !vowels.iter().any(|end| noun.ends_with(end)) => write!(f, "{number} {stem}ies"),
            _ if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => {
                write!(f, "{number} {noun}es")
            }
            _ => write!(f, "{number} {noun}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn quantity_prints_singular_or_plural() {
        for (number, noun, text) in [
            (0_u64, "byte", "0 bytes"),
            (1, "byte", "1 byte"),
            (2, "op table entry", "2 op table entries"),
            (1, "op table entry", "1 op table entry"),
            (2, "delay", "2 delays"),
            (3, "address", "3 addresses"),
            (3, "match", "3 matches"),
        ] {
            assert_eq!(std::format!("{}", quantity(number, noun)), text);
        }
        assert_eq!(std::format!("{}", quantity(u128::MAX, "byte")), "18446744073709551615 bytes");
    }
}
