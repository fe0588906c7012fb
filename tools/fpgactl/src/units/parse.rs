//! Parsing of numbers.

use std::time::Duration;

use fpga_driver::{BarOffset, CardAddr};
use fpga_netmodel::BitRate;
use fpga_registers::quantity;

/// Text that is not a valid quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a {quantity}: {problem}; write {example}")]
pub struct UnitError {
    /// The text, shortened if it is long.
    pub text: String,
    /// Expected quantity.
    pub quantity: &'static str,
    /// Description of the error.
    pub problem: String,
    /// Valid example.
    pub example: &'static str,
}

const SIZE_EXAMPLE: &str = "for example 4096, 0x1000, 4KiB, 64MiB or 4GiB";
const DURATION_EXAMPLE: &str = "for example 10us, 5ms or 2s";

/// Maximum length of text that an error repeats.
const MAX_QUOTED: usize = 40;

fn error(text: &str, quantity: &'static str, problem: impl Into<String>, example: &'static str) -> UnitError {
    UnitError { text: text.chars().take(MAX_QUOTED).collect(), quantity, problem: problem.into(), example }
}

/// Parses a number of bytes: `4096`, `0x1000`, `4KiB`, `64MiB`, `4GiB`, `1TiB`. The unit's case does not matter; `B` stands for bytes.
///
/// # Errors
/// [`UnitError`]: no digits, an unknown unit, or more than 64 bits.
pub fn bytes(text: &str) -> Result<u64, UnitError> {
    number(text).map_err(|problem| error(text, "size", problem, SIZE_EXAMPLE))
}

/// Parses a card address, written as a size.
pub fn address(text: &str) -> Result<CardAddr, UnitError> {
    number(text).map(CardAddr::new).map_err(|problem| error(text, "card address", problem, SIZE_EXAMPLE))
}

/// Parses an offset in a BAR, written as a size. It has to be a multiple of 4, because registers are words.
///
/// # Errors
/// As [`bytes`]; [`UnitError`] for an offset between two words.
pub fn offset(text: &str) -> Result<BarOffset, UnitError> {
    let fail = |problem: String| error(text, "BAR offset", problem, "for example 0, 0x40 or 4KiB");
    let offset = number(text).map_err(fail)?;
    if !offset.is_multiple_of(4) {
        let below = offset & !3;
        return Err(fail(format!(
            "it is {} into the word at {below:#x}, not a multiple of 4",
            quantity(offset - below, "byte")
        )));
    }
    Ok(BarOffset::new(offset))
}

/// Parses a 32-bit word, written as a size.
///
/// # Errors
/// As [`bytes`]; [`UnitError`] for more than 32 bits.
pub fn word(text: &str) -> Result<u32, UnitError> {
    let fail = |problem: String| error(text, "32-bit word", problem, "for example 1, 0x1000 or 4KiB");
    let value = number(text).map_err(fail)?;
    u32::try_from(value).map_err(|_| fail("it does not fit 32 bits".to_owned()))
}

fn number(text: &str) -> Result<u64, String> {
    let too_large = || "it does not fit 64 bits".to_owned();
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // The standard parser also accepts a sign.
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err("hexadecimal digits (and no unit) must follow 0x".to_owned());
        }
        return u64::from_str_radix(digits, 16).map_err(|_| too_large());
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    if digits.is_empty() {
        return Err("it does not start with a digit".to_owned());
    }
    let unit = unit.trim_start();
    let shift = shift_of(unit)?;
    let count: u64 = digits.parse().map_err(|_| too_large())?;
    count.checked_mul(1 << shift).ok_or_else(too_large)
}

/// Returns the unit as a power of two.
fn shift_of(unit: &str) -> Result<u32, String> {
    let known = [("", 0), ("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    if let Some((_, shift)) = known.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name)) {
        return Ok(*shift);
    }
    if unit.starts_with('.') {
        return Err("fractions are not accepted".to_owned());
    }
    let decimal = ["k", "m", "g", "t", "kb", "mb", "gb", "tb"];
    if decimal.iter().any(|name| unit.eq_ignore_ascii_case(name)) {
        return Err(format!("the unit \"{unit}\" could be 1000 or 1024"));
    }
    Err(format!("the unit \"{}\" is not known", unit.chars().take(MAX_QUOTED).collect::<String>()))
}

/// Parses a span of time above zero: `10us`, `5ms`, `2s`, `1m 30s`.
///
/// # Errors
/// [`UnitError`]: no unit, an unknown unit, zero, or more than a `Duration` holds.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    let fail = |problem: String| error(text, "duration", problem, DURATION_EXAMPLE);
    let span = humantime::parse_duration(text).map_err(|source| fail(duration_problem(&source)))?;
    if span.is_zero() {
        return Err(fail("it must be above zero".to_owned()));
    }
    Ok(span)
}

/// Description of what is wrong with a duration.
fn duration_problem(error: &humantime::DurationError) -> String {
    use humantime::DurationError as Error;
    match error {
        Error::Empty => "it is empty".to_owned(),
        Error::NumberExpected(0) => "it does not start with a digit".to_owned(),
        Error::NumberExpected(at) => format!("a digit must follow character {at}"),
        Error::InvalidCharacter(at) => format!("character {} is neither a digit nor a unit", at + 1),
        Error::NumberOverflow => "it is too long, or below 1 ns".to_owned(),
        Error::UnknownUnit { unit, .. } if unit.is_empty() => "the unit is missing".to_owned(),
        Error::UnknownUnit { unit, .. } => {
            format!("the unit \"{}\" is not known", unit.chars().take(MAX_QUOTED).collect::<String>())
        }
    }
}

/// Parses a probability: `0.5%` or `0.005`.
///
/// # Errors
/// A message for people: not a number, or not from 0 to 1.
pub fn probability(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let part = match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    };
    part.filter(|part| (0.0..=1.0).contains(part))
        .ok_or_else(|| format!("\"{text}\" is not a probability; write for example 0.5% or 0.005"))
}

/// Parses a link's rate above zero: `10Gbit`, `800Mbit`, `64kbit`, in powers of 1000 as usual for links.
///
/// # Errors
/// [`UnitError`]: no digits, an unknown unit, zero, or more than 64 bits.
pub fn bit_rate(text: &str) -> Result<BitRate, UnitError> {
    let fail = |problem: &str| error(text, "rate", problem, "for example 800Mbit or 10Gbit");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let unit = unit.strip_suffix("/s").unwrap_or(unit);
    let known = [("bit", 1), ("kbit", 1_000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000)];
    let Some((_, factor)) = known.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name)) else {
        return Err(fail("its unit is not bit, kbit, Mbit or Gbit (per second)"));
    };
    let count: u64 = digits.parse().map_err(|_| fail("it does not start with a number of 64 bits"))?;
    match count.checked_mul(*factor) {
        Some(0) => Err(fail("it must be above zero")),
        Some(bits) => Ok(BitRate::new(bits)),
        None => Err(fail("it does not fit 64 bits")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parse_bit_rates() {
        for (text, bits) in
            [("10Gbit", 10_000_000_000), ("800 mbit/s", 800_000_000), ("64kbit", 64_000), ("1bit", 1)]
        {
            assert_eq!(bit_rate(text), Ok(BitRate::new(bits)), "{text}");
        }
        for text in
            ["", "10", "10G", "10Gbps", "Gbit", "0Gbit", "-1bit", "1.5Gbit", "99999999999999999999bit"]
        {
            assert!(bit_rate(text).is_err(), "{text}");
        }
        assert!(bit_rate("18446744073709551615Gbit").unwrap_err().problem.contains("64 bits"));
    }

    #[test]
    fn parse_sizes() {
        for (text, value) in [
            ("0", 0),
            ("4096", 4096),
            ("0x1000", 4096),
            ("0XfF", 255),
            ("4KiB", 4096),
            ("4 KiB", 4096),
            ("4kib", 4096),
            ("64MiB", 64 << 20),
            ("4GiB", 4 << 30),
            ("2TiB", 2 << 40),
            ("512B", 512),
            ("18446744073709551615", u64::MAX),
            ("0xffffffffffffffff", u64::MAX),
        ] {
            assert_eq!(bytes(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn parse_invalid_size_is_refused_with_reason() {
        for (text, part) in [
            ("", "digit"),
            ("KiB", "digit"),
            ("-1", "digit"),
            ("+1", "digit"),
            ("4KB", "1000 or 1024"),
            ("4k", "1000 or 1024"),
            ("1.5GiB", "fractions"),
            ("4Kibb", "not known"),
            ("4µ", "not known"),
            ("0x", "hexadecimal"),
            ("0x+1", "hexadecimal"),
            ("0x10KiB", "hexadecimal"),
            ("18446744073709551616", "64 bits"),
            ("0x10000000000000000", "64 bits"),
            ("16777216TiB", "64 bits"),
        ] {
            let error = bytes(text).unwrap_err();
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn parse_offsets_and_words() {
        assert_eq!(offset("0x1044"), Ok(BarOffset::new(0x1044)));
        assert_eq!(word("0xffffffff"), Ok(u32::MAX));
        for (text, part) in [("0x1046", "2 bytes into the word at 0x1044"), ("x", "BAR offset")] {
            let error = offset(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (text, part) in [("4GiB", "32 bits"), ("-1", "32-bit word"), ("0xfffffffff", "32 bits")] {
            let error = word(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn parse_probabilities() {
        for (text, part) in
            [("0", 0.0), ("0.005", 0.005), ("0.5%", 0.005), ("100%", 1.0), ("1", 1.0), ("5 %", 0.05)]
        {
            assert_eq!(probability(text), Ok(part), "{text}");
        }
        for text in ["", "%", "-1%", "101%", "2", "nan", "inf", "half"] {
            assert!(probability(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parse_durations() {
        assert_eq!(duration("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(duration("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        for text in ["", "5", "0s", "-1s", "5 parsecs", "999999999999999999999s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parse_any_text_does_not_panic(text in ".*") {
            let _ = (bytes(&text), address(&text), duration(&text), probability(&text));
        }

        /// Reference model: 128-bit arithmetic.
        #[test]
        fn parse_exact_or_refused(count in any::<u64>(), unit in 0_usize..5) {
            let (name, shift) = [("", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)][unit];
            let exact = u128::from(count) << shift;
            prop_assert_eq!(bytes(&format!("{count}{name}")).ok(), u64::try_from(exact).ok());
        }

        #[test]
        fn parse_hexadecimal_round_trips(value in any::<u64>()) {
            prop_assert_eq!(bytes(&format!("{value:#x}")), Ok(value));
            prop_assert_eq!(address(&format!("{value:#X}").replace("0X", "0x")), Ok(CardAddr::new(value)));
        }

        #[test]
        fn parse_printed_exact_size_round_trips(count in 0_u64..1024, unit in 0_u32..5) {
            let value = count << (10 * unit);
            prop_assert_eq!(bytes(&super::super::binary_size(value)), Ok(value));
        }
    }
}
