//! Value parsers of the command line that need no type of their own: sizes, spans, channels, addresses.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use fpga_driver::{ChannelName, Direction};
use fpga_registers::xdma::MAX_CHANNELS;

use crate::units;

/// CPUs to which threads are bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuList {
    /// CPU of the simulated card's thread.
    pub card: usize,
    /// CPU of the submitting thread.
    pub host: usize,
}

/// Maximum number of characters of a value that an error repeats.
const MAX_QUOTED: usize = 40;

/// Parser of a whole number from `least` to `most`.
pub(crate) fn whole<T: TryFrom<u64>>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            let quoted: String = text.chars().take(MAX_QUOTED).collect();
            let wrong = match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
                true => format!("{quoted} is out of range"),
                false => format!("\"{quoted}\" is not a whole number"),
            };
            match most {
                u64::MAX if least == 0 => format!("{wrong}; give a number of at most 64 bits, such as 1"),
                u64::MAX => format!("{wrong}; give {least} or more"),
                _ => format!("{wrong}; give {least} to {most}"),
            }
        })
    }
}

/// Parses a channel's direction and number, as reports print them.
pub(crate) fn channel_name(text: &str) -> Result<ChannelName, String> {
    let wrong = || {
        let meant =
            suggest_channel(text).map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        format!("\"{text}\" is not a channel; write h2c0 to h2c3 or c2h0 to c2h3{meant}")
    };
    let (direction, number) = match (text.strip_prefix("h2c"), text.strip_prefix("c2h")) {
        (Some(number), _) => (Direction::H2c, number),
        (_, Some(number)) => (Direction::C2h, number),
        _ => return Err(wrong()),
    };
    match number.parse::<u8>() {
        Ok(number) if number < MAX_CHANNELS && text.len() == 4 => Ok(ChannelName { direction, number }),
        _ => Err(wrong()),
    }
}

/// Channel that a text probably means: its number is valid, and the direction nearly so.
fn suggest_channel(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let direction = text.get(..text.len().checked_sub(1)?)?;
    let number = text.bytes().last().filter(|last| (b'0'..b'0' + MAX_CHANNELS).contains(last))?;
    let direction = fpga_register_map::nearest(direction, ["h2c", "c2h"]).first().copied()?;
    Some(format!("{direction}{}", number - b'0'))
}

/// Parses the number of a channel whose direction the command gives.
pub(super) fn channel_number(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| match channel_name(text) {
        Ok(name) => format!(
            "\"{text}\" is a channel's name, but the command determines the direction; write {}",
            name.number
        ),
        Err(_) => format!("\"{text}\" is not a channel number; give 0 to {}", MAX_CHANNELS - 1),
    })
}

/// Parses a packet size that the contract allows.
pub(crate) fn packet_size(text: &str) -> Result<u32, String> {
    let size = units::bytes(text).map_err(|error| error.to_string())?;
    match u32::try_from(size) {
        Ok(size) if (64..=4096).contains(&size) && size.is_power_of_two() => Ok(size),
        _ => Err(format!("a packet size of {size} is not possible; give a power of two from 64 to 4096")),
    }
}

/// Parses the size of a stream packet, in bytes.
pub(super) fn stream_packet(text: &str) -> Result<u32, String> {
    const MAX_VALUE: u64 = 16 << 20;
    let bytes = units::bytes(text).map_err(|error| error.to_string())?;
    u32::try_from(bytes).ok().filter(|bytes| (1..=MAX_VALUE).contains(&u64::from(*bytes))).ok_or_else(|| {
        format!("a packet size of {bytes} is not possible; give 1 to {}", units::binary_size(MAX_VALUE))
    })
}

/// Parses a chunk size: any size but 0.
pub(crate) fn chunk_size(text: &str) -> Result<u64, String> {
    match units::bytes(text) {
        Ok(0) => Err("a chunk of 0 bytes makes no progress; give at least 1".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// Parses the size of an operation in bytes: any size but 0.
pub(crate) fn operation_size(text: &str) -> Result<u64, String> {
    match units::bytes(text) {
        Ok(0) => Err("operations of 0 bytes move nothing; give at least 1".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// Parses a span of time: a plain number of seconds, or a number with a unit.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let span = match text.parse::<f64>() {
        // A value that is not a valid span becomes zero here and is refused as zero.
        Ok(seconds) => Duration::try_from_secs_f64(seconds).unwrap_or_default(),
        Err(_) => units::duration(text).map_err(|error| error.to_string())?,
    };
    if span.is_zero() || span > Duration::from_secs(3600) {
        return Err(format!("\"{text}\" is not a measuring time; give more than 0 and at most 3600 seconds"));
    }
    Ok(span)
}

/// Parses two CPU numbers.
pub(crate) fn pin(text: &str) -> Result<CpuList, String> {
    let parsed = text.split_once(',').and_then(|(card, host)| {
        Some(CpuList { card: card.trim().parse().ok()?, host: host.trim().parse().ok()? })
    });
    parsed.ok_or_else(|| format!("\"{text}\" does not name two CPUs; write for example 1,0"))
}

/// Parses the number of words to read one by one.
pub(crate) fn word_count(text: &str) -> Result<u32, String> {
    let most = 65536;
    match units::bytes(text).ok().and_then(|count| u32::try_from(count).ok()) {
        Some(count) if (1..=most).contains(&count) => Ok(count),
        _ => Err(format!("\"{text}\" is not a number of words from 1 to {most}; use `dma read` for more")),
    }
}

/// Parses the address and port of a UDP link.
pub(crate) fn udp_address(text: &str) -> Result<SocketAddr, String> {
    let address = text.strip_prefix("udp:").and_then(|rest| rest.parse().ok());
    address.ok_or_else(|| {
        format!("\"{text}\" is not a link; write for example udp:192.168.0.1:7000 or udp:[::1]:7000")
    })
}

/// Address of one end of a link between simulated networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkAddress {
    /// Address and port.
    Udp(SocketAddr),
    /// Path of a socket.
    Shm(PathBuf),
}

/// Parses the address of one end of a link.
pub(crate) fn link_address(text: &str) -> Result<LinkAddress, String> {
    let path = text.strip_prefix("shm:").filter(|path| !path.is_empty());
    let udp = || udp_address(text).map_err(|message| format!("{message}, or shm:/tmp/link"));
    path.map_or_else(|| udp().map(LinkAddress::Udp), |path| Ok(LinkAddress::Shm(path.into())))
}

/// Parses a number of packets that the simulated network can hold.
pub(crate) fn reorder_depth(text: &str) -> Result<u16, String> {
    let most = 4096;
    match text.parse() {
        Ok(depth) if depth <= most => Ok(depth),
        _ => Err(format!("\"{text}\" is not a number of packets from 0 to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_name_parses_or_suggests() {
        assert_eq!(channel_name("h2c0").map(|name| name.to_string()), Ok("h2c0".to_owned()));
        assert_eq!(channel_name("c2h3").map(|name| name.to_string()), Ok("c2h3".to_owned()));
        for text in ["", "0", "h2c", "h2c4", "c2h+1", "h2c01", "H2C0", "h2c0 ", "\u{e9}0"] {
            assert!(channel_name(text).is_err(), "{text}");
        }
        for (text, meant) in [("H2C0", "h2c0"), ("hc21", "h2c1"), ("c2j3", "c2h3"), ("ch2", "c2h2")] {
            assert_eq!(suggest_channel(text).as_deref(), Some(meant), "{text}");
        }
        for text in ["", "0", "h2c4", "dma0", "\u{e9}0", "0\u{e9}"] {
            assert_eq!(suggest_channel(text), None, "{text}");
        }
    }

    #[test]
    fn whole_number_parses_range_or_names_it() {
        assert_eq!(whole::<u8>(0, 5)("5"), Ok(5));
        assert_eq!(whole::<u64>(0, u64::MAX)("18446744073709551615"), Ok(u64::MAX));
        for (text, message) in [
            ("6", "6 is out of range; give 0 to 5"),
            ("99999999999999999999", "99999999999999999999 is out of range; give 0 to 5"),
            ("-1", "\"-1\" is not a whole number; give 0 to 5"),
            ("1.5", "\"1.5\" is not a whole number; give 0 to 5"),
            ("", "\"\" is not a whole number; give 0 to 5"),
        ] {
            assert_eq!(whole::<u8>(0, 5)(text), Err(message.to_owned()));
        }
        assert_eq!(whole::<u64>(1, u64::MAX)("0"), Err("0 is out of range; give 1 or more".to_owned()));
        let long = "9".repeat(1000);
        assert!(whole::<u64>(0, u64::MAX)(&long).unwrap_err().len() < 120);
    }

    #[test]
    fn packet_size_parses_powers_of_two() {
        assert_eq!(packet_size("512"), Ok(512));
        assert_eq!(packet_size("4KiB"), Ok(4096));
        for text in ["0", "63", "100", "8KiB", "16GiB", "x"] {
            assert!(packet_size(text).is_err(), "{text}");
        }
    }
}
