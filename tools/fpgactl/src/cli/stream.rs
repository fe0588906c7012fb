//! Declarations of `stream` for `clap`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{udp_address, whole};
use crate::units;

/// Subcommands of `stream`.
#[derive(Debug, Clone, Subcommand)]
pub enum StreamCommand {
    /// Publish frames: of a file, of standard input, or of a test pattern
    Publish(Box<PublishArgs>),
    /// Subscribe to a publisher's frames: write them to files or to standard output, or check them
    Subscribe(Box<SubscribeArgs>),
}

/// How a card of this process reaches others.
#[derive(Debug, Clone, Args)]
pub struct StreamLinkArgs {
    /// Connect a simulated card of this process to those of other processes by UDP: its receive address, then those of the others.
    /// Without further addresses it answers the first sender
    #[arg(long, value_name = "udp:ADDR", value_parser = udp_address)]
    pub link: Vec<SocketAddr>,
    /// Node id of that card [default: from the description]
    #[arg(long, value_name = "NODE", requires = "link", value_parser = whole::<u32>(0, 4_294_967_294))]
    pub node: Option<u32>,
    /// Seed of the network's random choices, and of a publisher's test pattern
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: u64,
    /// Share of the packets of that card that are lost, for example 1% or 0.01
    #[arg(long, value_name = "P", requires = "link", value_parser = units::probability)]
    pub loss: Option<f64>,
}

/// Options of `stream publish`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Prints one line, `ready ADDRESS`, on standard error when subscribers can connect. Without --rate a frame is published when \
                  every subscriber has a free slot, so that no frame is missed; with it, frames are published at that rate, and a \
                  subscriber without a free slot misses them. Each frame carries its number and a CRC-32C of its data, which `stream subscribe` checks. Ends at \
                  the end of the input, after --count frames, or with SIGINT or SIGTERM: accepted frames arrive first, and subscribers \
                  are notified of the end. With --every, each report is a line with --json.\n\n\
                  Examples:\n  \
                  fpgactl stream publish --card vfio-user:/tmp/a --listen 10.0.0.1:7400 --rate 1000 --frame 64KiB\n  \
                  fpgactl stream publish FILE --frame 1MiB --subscribers 2 --link udp:127.0.0.1:7001 --link udp:127.0.0.1:7002"
)]
pub struct PublishArgs {
    /// File to publish; `-`: standard input [default: an endless test pattern]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Listen address for subscribers
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7400", value_parser = listen_address)]
    pub listen: SocketAddr,
    /// Bytes of a frame; the last one of a file may be shorter
    #[arg(long, value_name = "N", value_parser = units::bytes, default_value = "64KiB")]
    pub frame: u64,
    /// Frame sizes of the test pattern: most frames have N/2 to N bytes, and one in 32 half to all of --frame [default: all have --frame
    /// bytes]
    #[arg(long, value_name = "N", value_parser = units::bytes, conflicts_with = "file")]
    pub mostly: Option<u64>,
    /// Frames per second [default: as subscribers have free slots]
    #[arg(long, value_name = "N", value_parser = frames_per_second)]
    pub rate: Option<f64>,
    /// Maximum number of frames [default: until the end]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX))]
    pub count: Option<u64>,
    /// Number of subscribers at which publishing begins
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(0, 4_294_967_295))]
    pub subscribers: u32,
    /// Maximum number of subscribers
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = whole::<u32>(0, 4_294_967_295))]
    pub max_subscribers: u32,
    /// Slots of the frame pool: maximum number of frames in flight
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = whole::<u32>(0, 4_294_967_295))]
    pub slots: u32,
    /// Heartbeat period: maximum time between two transfers to a subscriber
    #[arg(long, value_name = "DURATION", value_parser = heartbeat, default_value = "500ms")]
    pub heartbeat: Duration,
    /// Time for which transfers to a subscriber may fail before it is dropped
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "20s")]
    pub max_silence: Duration,
    /// Period of progress reports [default: at the end only]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub every: Option<Duration>,
    /// How a simulated card reaches others.
    #[command(flatten)]
    pub link: StreamLinkArgs,
}

/// Options of `stream subscribe`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Frames that carry a checksum, as those of `stream publish` do, are checked; a frame that does not match its checksum \
                  ends the command with status 1. Missed frames are counted, and are not a failure. Ends with the stream, after --count \
                  frames, or with SIGINT or SIGTERM. With --every, each report is a line with --json.\n\n\
                  Examples:\n  \
                  fpgactl stream subscribe 10.0.0.1:7400 --card vfio-user:/tmp/b --json\n  \
                  fpgactl stream subscribe 127.0.0.1:7400 --out frames --link udp:127.0.0.1:7002 --link udp:127.0.0.1:7001 --node 2"
)]
pub struct SubscribeArgs {
    /// Listen address of the publisher, or a host name
    #[arg(value_name = "HOST:PORT", value_parser = host_and_port)]
    pub publisher: String,
    /// Directory for one file per frame; `-`: all frames to standard output [default: frames are only checked]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Maximum number of frames [default: until the end]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX))]
    pub count: Option<u64>,
    /// Number of frames that can wait to be read, a power of two
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = whole::<u32>(0, 4_294_967_295))]
    pub slots: u32,
    /// Delay for each frame, to imitate a slow program
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub delay: Option<Duration>,
    /// Period of progress reports [default: at the end only]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub every: Option<Duration>,
    /// Time for which the connection is retried [default: one try]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub retry: Option<Duration>,
    /// Time without a message, and at least six heartbeats, after which the publisher counts as failed
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "20s")]
    pub max_silence: Duration,
    /// How a simulated card reaches others.
    #[command(flatten)]
    pub link: StreamLinkArgs,
}

/// Checks the form only. The name is resolved when it is needed, and again at each `--retry`.
fn host_and_port(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':').filter(|(host, port)| {
        // An IPv6 address contains colons and therefore stands in brackets.
        !host.is_empty()
            && port.parse::<u16>().is_ok_and(|port| port > 0)
            && (!host.contains(':') || text.parse::<SocketAddr>().is_ok())
    });
    parts.map(|_| text.to_owned()).ok_or_else(|| {
        format!("\"{text}\" is not the address of a publisher; write for example 10.0.0.1:7400, camera.local:7400 or [fd00::1]:7400")
    })
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!(
            "\"{text}\" is not an address to listen on; write for example 10.0.0.1:7400 or [fd00::1]:7400"
        )
    })
}

fn heartbeat(text: &str) -> Result<Duration, String> {
    let span = units::duration(text).map_err(|error| error.to_string())?;
    // Sent to subscribers as milliseconds in 32 bits.
    if (Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&span) {
        Ok(span)
    } else {
        Err(format!("\"{text}\" is not a heartbeat period; give 1ms to 24h"))
    }
}

fn frames_per_second(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && (1e-3..=1e7).contains(&rate) => Ok(rate),
        _ => Err(format!("\"{text}\" is not a number of frames per second from 0.001 to 10000000")),
    }
}
