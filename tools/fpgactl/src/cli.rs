//! The command line as `clap` sees it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fpga_driver::{BarOffset, CardAddr};

use crate::bars::BarChoice;
use crate::target::Target;
use crate::units;

/// Command line for FPGA cards with XDMA and CDMA, and for reliable transfers between them.
#[derive(Debug, Parser)]
#[command(
    name = "fpgactl",
    version,
    max_term_width = 100,
    after_help = "CARD is `mock` (a simulated card in this process, fresh for every command), `mock:FILE.yaml` (one that you describe), \
                  `mock:NAME` (a built-in one with the shape of a real board, such as us-plus-x16; a wrong name lists them), a PCI address such as 0000:65:00.0 (through VFIO) or `vfio-user:SOCKET`.\n\
                  Sizes and addresses: 4096, 0x1000, 4KiB, 64MiB. Durations: 10us, 5ms, 2s.\n\
                  Exit status: 0 done, 1 failed, 2 wrong usage."
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Which card [default: mock]
    #[arg(long, global = true, value_name = "CARD")]
    pub card: Option<Target>,
    /// Defaults for options, from a YAML file
    #[arg(long, global = true, value_name = "FILE.yaml")]
    pub config: Option<PathBuf>,
    /// Print one JSON document on standard output, and nothing else there
    #[arg(long, global = true)]
    pub json: bool,
    /// Log more to standard error: -v what happens, -vv details
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Show no progress bar
    #[arg(long, global = true)]
    pub no_progress: bool,
    /// Give up when moving the data takes longer than this [default: no limit but the driver's on each step]
    #[arg(long, global = true, value_name = "DURATION", value_parser = units::duration)]
    pub timeout: Option<Duration>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Move a file or random bytes from host A through card A, the network and card B to host B, and verify them
    Transfer(TransferArgs),
    /// Move data between host memory and card memory
    Dma {
        /// Which way.
        #[command(subcommand)]
        command: DmaCommand,
    },
    /// Copy inside the card
    Cdma {
        /// What.
        #[command(subcommand)]
        command: CdmaCommand,
    },
    /// Show what the card is: BARs, DMA engine, identity block, network interface
    Info,
    /// Show registers by name, with their fields
    Regs {
        /// What.
        #[command(subcommand)]
        command: RegsCommand,
    },
    /// Read raw 32-bit words of a BAR
    Peek(PeekArgs),
    /// Write a raw 32-bit word of a BAR
    Poke(PokeArgs),
    /// Work with card descriptions
    Card {
        /// What.
        #[command(subcommand)]
        command: CardCommand,
    },
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    Man {
        /// Directory to write them to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Who tells the receiving application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Notifier {
    /// The receiving card, when the last packet arrives
    Receiver,
    /// The sender, when everything is acknowledged
    Sender,
}

/// How the receiving card keeps track of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scheme {
    /// A receive registry with a mask per segment
    Registry,
}

/// Options of `transfer`.
#[derive(Debug, Clone, Args)]
pub struct TransferArgs {
    /// What to send [default: random bytes]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The receiving card [default: a second simulated card like the first]
    #[arg(long, value_name = "CARD")]
    pub peer: Option<Target>,
    /// Send so many random bytes [default: 64MiB]
    #[arg(long, value_name = "N", value_parser = units::bytes, conflicts_with = "file")]
    pub size: Option<u64>,
    /// Transfers longer than this are cut into segments [default: 16KiB, at most a segment]
    #[arg(long, value_name = "N", value_parser = units::bytes)]
    pub threshold: Option<u64>,
    /// Bytes of a segment [default: as many as a mask holds, at most 16KiB]
    #[arg(long, value_name = "N", value_parser = units::bytes)]
    pub segment: Option<u64>,
    /// Payload bytes of a packet, 64 to 4096, a power of two [default: what the card is built for]
    #[arg(long, value_name = "N", value_parser = packet_size)]
    pub packet: Option<u32>,
    /// Longer data becomes several transfers of so many bytes through the same card memory [default: 256MiB]
    #[arg(long, value_name = "N", value_parser = chunk_size)]
    pub chunk: Option<u64>,
    /// Who tells the receiving application [default: receiver]
    #[arg(long, value_enum)]
    pub notify: Option<Notifier>,
    /// Seed of the random bytes and of the delivery order [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Write what arrives to this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// How many packets the simulated network holds back and releases in random order, 0 to 4096; 0: in order [default: 64]
    #[arg(long, value_name = "N", value_parser = reorder_depth)]
    pub reorder: Option<u16>,
    /// How the receiving card keeps track of packets
    #[arg(long, value_enum, default_value_t = Scheme::Registry)]
    pub scheme: Scheme,
}

/// Transfers between host and card.
#[derive(Debug, Clone, Subcommand)]
pub enum DmaCommand {
    /// Write a file to card memory
    Write {
        /// What to write
        file: PathBuf,
        /// Card address to write to
        #[arg(long, value_name = "A", value_parser = units::address)]
        addr: CardAddr,
        /// H2C channel
        #[arg(long, value_name = "N", default_value_t = 0)]
        channel: u8,
    },
    /// Read card memory to a file
    Read {
        /// Card address to read from
        #[arg(long, value_name = "A", value_parser = units::address)]
        addr: CardAddr,
        /// Bytes to read
        #[arg(long, value_name = "N", value_parser = units::bytes)]
        len: u64,
        /// File to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// C2H channel
        #[arg(long, value_name = "N", default_value_t = 0)]
        channel: u8,
    },
}

/// Work of the copy engine.
#[derive(Debug, Clone, Subcommand)]
pub enum CdmaCommand {
    /// Copy card memory to card memory
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

/// Register listings.
#[derive(Debug, Clone, Subcommand)]
pub enum RegsCommand {
    /// List the card's registers without reading them
    List,
    /// Read every register that can be read without a side effect
    Dump,
    /// Read one register
    Read {
        /// Its name, for example h2c0.status
        name: String,
        /// Read it even if that changes the card
        #[arg(long)]
        force: bool,
    },
    /// Write one register, and show it before and after
    Write {
        /// Its name, for example h2c0.interrupt_enable
        name: String,
        /// The whole 32-bit word, for example 0x1000
        #[arg(value_parser = units::word)]
        value: u32,
        /// Write it even if that disturbs what is under way
        #[arg(long)]
        force: bool,
    },
}

/// Options of `peek`.
#[derive(Debug, Clone, Args)]
pub struct PeekArgs {
    /// Which BAR: dma, user, bypass, or its number
    pub bar: BarChoice,
    /// Where in the BAR, a multiple of 4
    #[arg(value_parser = units::offset)]
    pub offset: BarOffset,
    /// How many words, 1 to 65536
    #[arg(value_parser = word_count, default_value = "1")]
    pub count: u32,
    /// Read even if that may hang the card or change it
    #[arg(long)]
    pub force: bool,
}

/// Options of `poke`.
#[derive(Debug, Clone, Args)]
pub struct PokeArgs {
    /// Which BAR: dma, user, bypass, or its number
    pub bar: BarChoice,
    /// Where in the BAR, a multiple of 4
    #[arg(value_parser = units::offset)]
    pub offset: BarOffset,
    /// The 32-bit word, for example 0x1000
    #[arg(value_parser = units::word)]
    pub value: u32,
    /// Write even if that may hang the card or disturb what is under way
    #[arg(long)]
    pub force: bool,
}

/// Work with card descriptions.
#[derive(Debug, Clone, Subcommand)]
pub enum CardCommand {
    /// Check a card description
    Check {
        /// The description
        #[arg(value_name = "FILE.yaml")]
        file: PathBuf,
    },
}

/// A packet size that the contract allows.
pub(crate) fn packet_size(text: &str) -> Result<u32, String> {
    let size = units::bytes(text).map_err(|error| error.to_string())?;
    match u32::try_from(size) {
        Ok(size) if (64..=4096).contains(&size) && size.is_power_of_two() => Ok(size),
        _ => Err(format!("packets of {size} bytes are not possible; give a power of two from 64 to 4096")),
    }
}

/// A chunk size: anything but nothing.
pub(crate) fn chunk_size(text: &str) -> Result<u64, String> {
    match units::bytes(text) {
        Ok(0) => Err("a chunk of 0 bytes never gets anywhere; give at least 1".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// A number of words that is read one by one.
pub(crate) fn word_count(text: &str) -> Result<u32, String> {
    let most = 65536;
    match units::bytes(text).ok().and_then(|count| u32::try_from(count).ok()) {
        Some(count) if (1..=most).contains(&count) => Ok(count),
        _ => Err(format!(
            "\"{text}\" is no number of words from 1 to {most}; `dma read` moves more, and faster"
        )),
    }
}

/// A number of packets that the simulated network can hold.
pub(crate) fn reorder_depth(text: &str) -> Result<u16, String> {
    let most = 4096;
    match text.parse() {
        Ok(depth) if depth <= most => Ok(depth),
        _ => Err(format!("\"{text}\" is no number of packets from 0 to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn packet_sizes() {
        assert_eq!(packet_size("512"), Ok(512));
        assert_eq!(packet_size("4KiB"), Ok(4096));
        for text in ["0", "63", "100", "8KiB", "16GiB", "x"] {
            assert!(packet_size(text).is_err(), "{text}");
        }
    }
}
