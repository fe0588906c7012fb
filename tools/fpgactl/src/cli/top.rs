//! Declarations of `top` for `clap`.

use std::time::Duration;

use clap::Args;

use super::{TransferArgs, whole};
use crate::units;

/// Options of `top`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "On a terminal: q quits, h lists the keys. Anywhere else, and with --count, --once or --json, a report \
                  per sample is printed (with --json one document per line).\n\n\
                  A simulated card in this process is new for every command, so it runs a load: the transfer that the options \
                  describe, repeatedly. Its virtual time advances by --step between samples, so that masks can be \
                  watched packet by packet. Another card is sampled as it is, unless --peer, --size or a file requests a load. \
                  Sampling does not stop or change a card.\n\n\
                  Examples:\n  \
                  fpgactl top --loss 5% --reorder 128\n  \
                  fpgactl top --card 0000:65:00.0 --interval 1s\n  \
                  fpgactl top --card vfio-user:/tmp/a --peer vfio-user:/tmp/b\n  \
                  fpgactl top --loss 1% --step 10us --count 100 --json | jq .registry.occupancy"
)]
pub struct TopArgs {
    /// Time between samples
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = interval)]
    pub interval: Duration,
    /// Virtual time of a simulated card between samples
    #[arg(long, value_name = "DURATION", default_value = "100us", value_parser = step)]
    pub step: Duration,
    /// Number of samples after which the command ends [default: until q, Ctrl-C or the end of the pipe]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, u64::MAX))]
    pub count: Option<u64>,
    /// End after one sample
    #[arg(long, conflicts_with = "count")]
    pub once: bool,
    /// The load.
    #[command(flatten)]
    pub load: TransferArgs,
}

impl TopArgs {
    /// Number of samples; `None`: no limit.
    #[must_use]
    pub const fn count(&self) -> Option<u64> {
        if self.once { Some(1) } else { self.count }
    }
}

fn within(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let span = units::duration(text).map_err(|error| error.to_string())?;
    if (least..=most).contains(&span) {
        return Ok(span);
    }
    let shown = |span| humantime::format_duration(span).to_string();
    Err(format!("\"{text}\" is not a time between samples; give {} to {}", shown(least), shown(most)))
}

fn interval(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_millis(1), Duration::from_secs(3600))
}

fn step(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_nanos(100), Duration::from_secs(1))
}
