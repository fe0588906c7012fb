//! Declarations of `validate`, `abort` and `reset` for `clap`.

use clap::{Args, ValueEnum};
use fpga_driver::{CardAddr, ChannelName};
use fpga_registers::xdma::MAX_CHANNELS;

use super::values::channel_name;
use super::whole;
use crate::units;

/// Options of `validate`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Every test ends as pass, warn (an optional feature does not work; the message names the setting to \
                        avoid), fail or skip (with the reason). Exit status 1 if a test failed. The card memory that is used is \
                        saved before and restored after. --timeout limits each step, by default to 2 s. On a card that another process \
                        uses, run --plan first: it lists what would be disturbed. Ctrl-C skips the remaining tests; saved state is \
                        restored.\n\n\
                        Examples:\n  \
                        fpgactl validate\n  \
                        fpgactl validate --card 0000:65:00.0 --plan\n  \
                        fpgactl validate --card 0000:65:00.0 --json\n  \
                        fpgactl validate --card 0000:65:00.0 --scratch 0x100000 --scratch-size 1MiB"
)]
pub struct ValidateArgs {
    /// Scratch memory: card memory to test in [default: the end of card memory; required where its size cannot be detected]
    #[arg(long, value_name = "A", value_parser = units::address)]
    pub scratch: Option<CardAddr>,
    /// Bytes of that memory, at least 4KiB [default: 2MiB]
    #[arg(long, value_name = "N", value_parser = units::bytes, requires = "scratch")]
    pub scratch_size: Option<u64>,
    /// Seed of the random bytes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: u64,
    /// List what would be disturbed, and test nothing
    #[arg(long)]
    pub plan: bool,
    /// AXI4-Stream: send and receive packets. A C2H channel at which no packet arrives stays busy until the card is reset
    #[arg(long)]
    pub streams: bool,
}

/// Options of `abort`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "A card belongs to one process at a time, so this command does not stop transfers of a running program: it stops \
                        engines that a killed process left running. The report shows the earlier state of each channel. Bus mastering \
                        stays off. An engine that does not stop needs `fpgactl reset`.\n\n\
                        Examples:\n  \
                        fpgactl abort --card 0000:65:00.0\n  \
                        fpgactl abort --card 0000:65:00.0 --channel 0\n  \
                        fpgactl abort --card 0000:65:00.0 --channel c2h1"
)]
pub struct AbortArgs {
    /// Only this channel, for example h2c0 or c2h1; a number is that of both directions [default: all, the copy engine and the
    /// network interface]
    #[arg(long, value_name = "N|NAME", value_parser = channel_choice)]
    pub channel: Option<ChannelChoice>,
}

/// Channels as the command line names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelChoice {
    /// One channel.
    One(ChannelName),
    /// Channels with this number, in either direction.
    Both(u8),
}

fn channel_choice(text: &str) -> Result<ChannelChoice, String> {
    match text.parse::<u8>() {
        Ok(number) if number < MAX_CHANNELS && text.len() == 1 => Ok(ChannelChoice::Both(number)),
        _ => channel_name(text)
            .map(ChannelChoice::One)
            .map_err(|error| format!("{error}, or 0 to 3 for both directions")),
    }
}

/// Highest recovery step of `reset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ResetLevel {
    /// Stop every engine by its registers
    Channel,
    /// Then a function-level reset; public XDMA cards do not offer it
    Function,
    /// Then a hot reset of the bus: every function below the port
    Bus,
}

/// Options of `reset`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The recovery steps run from the mildest one up to --level; the report shows the result of each step. The reset of \
                        --level is done even if the card is healthy before it. Exit status 1 if the card is unhealthy at the end, or \
                        if a reset was requested and the card was not reset.\n\n\
                        Examples:\n  \
                        fpgactl reset --card 0000:65:00.0\n  \
                        fpgactl reset --card 0000:65:00.0 --level bus --json"
)]
pub struct ResetArgs {
    /// Highest recovery step
    #[arg(long, value_enum, default_value_t = ResetLevel::Channel)]
    pub level: ResetLevel,
}

#[cfg(test)]
mod tests {
    use fpga_driver::Direction;

    use super::*;

    #[test]
    fn channel_choice_parses_number_and_name() {
        assert_eq!(channel_choice("3"), Ok(ChannelChoice::Both(3)));
        let c2h1 = ChannelName { direction: Direction::C2h, number: 1 };
        assert_eq!(channel_choice("c2h1"), Ok(ChannelChoice::One(c2h1)));
        for text in ["", "4", "+1", "01", "h2c4"] {
            assert!(channel_choice(text).is_err(), "{text}");
        }
    }
}
