//! Declarations of `transfer`, and of the listings of a transfer in progress, for `clap`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fpga_firmware::generated::Scheme as Rules;

use super::{FeedbackArgs, chunk_size, packet_size, reorder_depth, whole};
use crate::impair::ImpairArgs;
use crate::target::Target;
use crate::units;

/// Origin of the notification of the receiving application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Notifier {
    /// The receiving card notifies when the last packet arrives
    Receiver,
    /// The sender notifies when every packet is acknowledged
    Sender,
}

/// Scheme of both cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scheme {
    /// A receive registry with a mask per segment; the driver sends
    Registry,
    /// The receiver tracks a window and requests missing packets; the card sends, as in the schemes below
    ReceiverWindow,
    /// Bitmaps in every acknowledgement, and a timeout that follows the measured delays
    AdaptiveWindow,
    /// Selective retransmission: loss detection by the order of sending, with a tail probe
    Selective,
}

impl Scheme {
    /// Name in the contract of the network interface.
    #[must_use]
    pub const fn rules(self) -> Rules {
        match self {
            Self::Registry => Rules::Registry,
            Self::ReceiverWindow => Rules::ReceiverWindow,
            Self::AdaptiveWindow => Rules::AdaptiveWindow,
            Self::Selective => Rules::Selective,
        }
    }

    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Registry => "registry",
            Self::ReceiverWindow => "receiver-window",
            Self::AdaptiveWindow => "adaptive-window",
            Self::Selective => "selective",
        }
    }

    /// Command-line name of the contract's `rules`.
    #[must_use]
    pub fn name_of(rules: Rules) -> &'static str {
        let known = Self::value_variants().iter().find(|scheme| scheme.rules() == rules);
        known.map_or("unknown", |scheme| scheme.name())
    }
}

/// Argument of `--segment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentLength {
    /// Chosen by the driver.
    Auto,
    /// Bytes.
    Bytes(u64),
}

/// Parses a segment length: `auto`, or a size.
pub fn segment_length(text: &str) -> Result<SegmentLength, units::UnitError> {
    if text == "auto" { Ok(SegmentLength::Auto) } else { units::bytes(text).map(SegmentLength::Bytes) }
}

/// Options of `transfer`.
#[derive(Debug, Clone, Default, Args)]
pub struct TransferArgs {
    /// File to send; -: standard input, buffered in $TMPDIR one chunk at a time [default: random bytes]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Receiving card [default: a second simulated card like the first]
    #[arg(long, value_name = "CARD")]
    pub peer: Option<Target>,
    /// Number of random bytes to send [default: 64MiB; for listings of a transfer in progress, 1MiB]
    #[arg(long, value_name = "N", value_parser = units::bytes, conflicts_with = "file")]
    pub size: Option<u64>,
    /// Transfer length above which a transfer is cut into segments [default: 8KiB, at most a segment]
    #[arg(long, value_name = "N", value_parser = units::bytes)]
    pub threshold: Option<u64>,
    /// Bytes of a segment, or of a message in schemes other than registry; auto: chosen by the length of the transfer and the rates and
    /// latencies of the card, for a message 256 packets [default: auto]
    #[arg(long, value_name = "N|auto", value_parser = segment_length)]
    pub segment: Option<SegmentLength>,
    /// Payload bytes of a packet, 64 to 4096, a power of two [default: between two default cards 4096, or 512 to 2048 for shorter
    /// segments; otherwise the card's packet size]
    #[arg(long, value_name = "N", value_parser = packet_size)]
    pub packet: Option<u32>,
    /// Maximum bytes of one transfer; longer data becomes several transfers through the same card memory, two at a time [default: 8MiB]
    #[arg(long, value_name = "N", value_parser = chunk_size)]
    pub chunk: Option<u64>,
    /// Origin of the notification of the receiving application [default: receiver]
    #[arg(long, value_enum)]
    pub notify: Option<Notifier>,
    /// Seed of the random bytes and of the delivery order [default: 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: Option<u64>,
    /// File for the received data; -: standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Draw a chart of where the time of simulated cards went, too [default: on a terminal]
    #[arg(long)]
    pub chart: bool,
    /// Number of packets that the simulated network holds back and releases in random order, 0 to 4096; 0: in order [default: 64]
    #[arg(long, value_name = "N", value_parser = reorder_depth)]
    pub reorder: Option<u16>,
    /// Scheme of both cards; with several, S,S,..., the transfers of a file longer than a chunk use them in turn
    #[arg(long, value_name = "S", value_enum, value_delimiter = ',', default_value = "registry")]
    pub scheme: Vec<Scheme>,
    /// Window of schemes other than registry, in packets, at the receiver or the sender [default: 128, selective 512]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0, 4_294_967_295))]
    pub window: Option<u32>,
    /// Scheme receiver-window: the receiver reports to the sender up to which packet it may send; always on with congestion windows
    #[arg(long)]
    pub credit: bool,
    /// Send without congestion windows, as fast as the scheme allows
    #[arg(long)]
    pub no_congestion_window: bool,
    /// Scheme receiver-window: number of requests for a gap alone before all packets after it are requested too, 1 to 255 [default: 3]
    #[arg(long, value_name = "K", value_parser = whole::<u8>(1, 255))]
    pub resend_after: Option<u8>,
    /// Scheme adaptive-window: timeout of the source document as it is written, which retransmits more
    #[arg(long)]
    pub literal: bool,
    /// Round trip time as a first guess for the timers of schemes other than registry; a transfer is given up no earlier than after eight of
    /// it [default: 100us]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub round_trip: Option<Duration>,
    /// Time after which an unfinished transfer ends with an error, whatever its progress [default: none]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub deadline: Option<Duration>,
    /// Priority over transfers of the same card with a lower number, 0 to 255 [default: 0]
    #[arg(long, value_name = "N", value_parser = whole::<u8>(0, 255))]
    pub priority: Option<u8>,
    /// Link feedback.
    #[command(flatten)]
    pub feedback: FeedbackArgs,
    /// Other impairments of the simulated network.
    #[command(flatten)]
    pub impair: ImpairArgs,
}

/// Options of `ops`, `queues`, `registry`, `escape` and `stats`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "A simulated card in this process is new for every command, so the command starts a transfer as `fpgactl transfer` \
                        does, pauses it at --at, lists the state and abandons the transfer: ops and queues of the sending host, \
                        registry and escape of the receiving card, stats of both. The state of another card is read as it is, unless \
                        --peer, --size or a file requests a transfer.\n\n\
                        Examples:\n  \
                        fpgactl registry --size 1MiB --loss 5% --reorder 128\n  \
                        fpgactl ops --at 90% --loss 10% --json\n  \
                        fpgactl stats --card vfio-user:/tmp/card\n  \
                        fpgactl escape --card vfio-user:/tmp/a --peer vfio-user:/tmp/b --at 25%"
)]
pub struct ListingArgs {
    /// Acknowledged share of the transfer at which the listing is taken
    #[arg(long, value_name = "P", default_value = "50%", value_parser = units::probability)]
    pub at: f64,
    /// The transfer.
    #[command(flatten)]
    pub load: TransferArgs,
}
