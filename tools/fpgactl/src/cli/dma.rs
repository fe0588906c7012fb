//! Declarations of `dma` and `cdma` for `clap`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use fpga_driver::{CardAddr, Direction};

use super::values::{CpuList, channel_number, operation_size, pin, seconds, stream_packet};
use super::whole;
use crate::units;

/// Transfers between host and card.
#[derive(Debug, Clone, Subcommand)]
pub enum DmaCommand {
    /// Write a file to card memory, or send it into a stream
    #[command(after_help = "Examples:\n  \
                        fpgactl dma write FILE --addr 0x1000\n  \
                        fpgactl dma write FILE --addr 1GiB --channel 2 --card 0000:65:00.0\n  \
                        gunzip -c FILE.gz | fpgactl dma write - --addr 0x1000\n  \
                        fpgactl dma write FILE --packet 1KiB --card mock:us-plus-x8-source")]
    Write {
        /// File to write; -: standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Card address to write to [required, except with AXI4-Stream channels]
        #[arg(long, value_name = "A", value_parser = units::address)]
        addr: Option<CardAddr>,
        /// AXI4-Stream: bytes of a packet; the last one may be shorter [default: 4KiB]
        #[arg(long, value_name = "N", value_parser = stream_packet, conflicts_with = "addr")]
        packet: Option<u32>,
        /// H2C channel
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = channel_number)]
        channel: u8,
    },
    /// Read card memory, or packets of a stream, to a file
    #[command(after_help = "Examples:\n  \
                        fpgactl dma read --addr 0x1000 --len 4KiB --out FILE\n  \
                        fpgactl dma read --addr 0x1000 --len 4KiB --out - | xxd\n  \
                        fpgactl dma read --packets 20 --out FILE --index FILE.csv --card mock:us-plus-x8-source\n  \
                        fpgactl dma read --len 1MiB --out FILE --card mock:us-plus-x8-source")]
    Read {
        /// Card address to read from [required, except with AXI4-Stream channels]
        #[arg(long, value_name = "A", value_parser = units::address, requires = "len")]
        addr: Option<CardAddr>,
        /// Bytes to read; from an AXI4-Stream channel, regardless of packets
        #[arg(long, value_name = "N", value_parser = units::bytes)]
        len: Option<u64>,
        /// AXI4-Stream: number of packets to receive [default: 1]
        #[arg(long, value_name = "N", value_parser = whole::<u64>(1, u64::MAX), conflicts_with_all = ["addr", "len"])]
        packets: Option<u64>,
        /// AXI4-Stream: maximum bytes of a packet [default: 64KiB]
        #[arg(long, value_name = "N", value_parser = stream_packet, conflicts_with_all = ["addr", "len"])]
        packet: Option<u32>,
        /// File to write; -: standard output
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// AXI4-Stream: write the offset of each packet in FILE, and its length, to this CSV file
        #[arg(long, value_name = "FILE.csv", conflicts_with_all = ["addr", "len"])]
        index: Option<PathBuf>,
        /// C2H channel
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = channel_number)]
        channel: u8,
    },
    /// Measure operations per second, latency and CPU time (overwrites card memory)
    Bench(BenchArgs),
}

/// Options of `dma bench`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  \
                        fpgactl dma bench\n  \
                        fpgactl dma bench --sizes 64,4KiB --ring credit --chart\n  \
                        fpgactl dma bench --direction both --mode poll,irq,hybrid --seconds 0.2 --svg bench.svg\n  \
                        fpgactl dma bench --card 0000:65:00.0 --channels 4 --json")]
pub struct BenchArgs {
    /// Bytes of an operation
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = operation_size, default_value = "64,512,4KiB,64KiB,1MiB")]
    pub sizes: Vec<u64>,
    /// Operations in flight per channel, 1 to 32768
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = whole::<u32>(1, 32768))]
    pub depth: u32,
    /// Direction; both: an H2C and a C2H channel in turn
    #[arg(long, value_name = "WAY,...", value_delimiter = ',', value_enum, default_value = "h2c,c2h")]
    pub direction: Vec<BenchDirection>,
    /// Wait mode: poll memory, sleep until an interrupt, or poll for 20 µs and then sleep
    #[arg(long, value_name = "MODE,...", value_delimiter = ',', value_enum, default_value = "poll")]
    pub mode: Vec<BenchMode>,
    /// Channels per direction, driven in turn by one thread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u8>(1, 255))]
    pub channels: u8,
    /// Measuring time of each row, in seconds: most of it the throughput run, then latencies and closed batches
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub seconds: Duration,
    /// Run mode of the ring
    #[arg(long, value_name = "RING", value_enum, default_value = "stop")]
    pub ring: BenchRing,
    /// Operations submitted per round, 1 to 32768
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole::<u32>(1, 32768))]
    pub batch: u32,
    /// Keep one more channel of the direction (both: H2C) busy with 16 operations of this size, which are not counted
    #[arg(long, value_name = "N", value_parser = operation_size)]
    pub beside: Option<u64>,
    /// Bind the simulated card's thread and this one to CPUs
    #[arg(long, value_name = "CARD_CPU,HOST_CPU", value_parser = pin)]
    pub pin: Option<CpuList>,
    /// Write a picture of rate and latency by size to this file; -: standard output
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Also draw charts below the report [default: on a terminal, with several sizes]
    #[arg(long)]
    pub chart: bool,
    /// Maximum number of operations whose latency is measured, as time permits (at least 100); 0: none
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = whole::<u64>(0, 10_000_000))]
    pub samples: u64,
    /// Maximum number of batches whose CPU time is measured, as time permits (at least 16); 0: none
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = whole::<u64>(0, 10_000_000))]
    pub batches: u64,
}

/// Direction of the data of `dma bench`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchDirection {
    /// Host to card
    H2c,
    /// Card to host
    C2h,
    /// Both at once
    Both,
}

impl BenchDirection {
    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::H2c => "h2c",
            Self::C2h => "c2h",
            Self::Both => "both",
        }
    }

    /// Returns whether channels of `direction` take part.
    #[must_use]
    pub const fn includes(self, direction: Direction) -> bool {
        match direction {
            Direction::H2c => !matches!(self, Self::C2h),
            Direction::C2h => !matches!(self, Self::H2c),
        }
    }
}

/// How `dma bench` waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchMode {
    /// Poll the count in host memory
    Poll,
    /// Sleep until an interrupt
    Irq,
    /// Poll for a while, then sleep
    Hybrid,
}

impl BenchMode {
    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Irq => "irq",
            Self::Hybrid => "hybrid",
        }
    }
}

/// How `dma bench` keeps the ring running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchRing {
    /// Batch mode: each batch ends in a Stop
    Stop,
    /// Credit mode: a circular ring with descriptor credits
    Credit,
}

impl BenchRing {
    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Credit => "credit",
        }
    }
}

/// Work of the copy engine.
#[derive(Debug, Clone, Subcommand)]
pub enum CdmaCommand {
    /// Copy card memory to card memory
    #[command(after_help = "Examples:\n  \
                        fpgactl cdma copy --src 0x1000 --dst 1MiB --len 4KiB")]
    Copy {
        /// Card address to copy from
        #[arg(long, value_name = "A", value_parser = units::address)]
        src: CardAddr,
        /// Card address to copy to
        #[arg(long, value_name = "A", value_parser = units::address)]
        dst: CardAddr,
        /// Bytes to copy
        #[arg(long, value_name = "N", value_parser = units::bytes)]
        len: u64,
    },
}
