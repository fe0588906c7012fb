//! `regs`, `replay`, `peek`, `poke`: registers by name, replay of recorded accesses, raw words.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use fpga_driver::BarOffset;

use super::values::word_count;
use super::whole;
use crate::bars::BarChoice;
use crate::units;

/// Register listings.
#[derive(Debug, Clone, Subcommand)]
pub enum RegsCommand {
    /// List the card's registers without reading them
    #[command(after_help = "Examples:\n  \
                        fpgactl regs list\n  \
                        fpgactl regs list filter --map filter.yaml")]
    List {
        /// Only these: blocks, for example h2c0 or (of a map) filter, or registers [default: all]
        names: Vec<String>,
    },
    /// Read every register that can be read without a side effect
    #[command(after_help = "Examples:\n  \
                        fpgactl regs dump\n  \
                        fpgactl regs dump h2c0 ni --json\n  \
                        fpgactl regs dump filter --map filter.yaml")]
    Dump {
        /// Only these: blocks, for example h2c0 or (of a map) filter, or registers [default: all]
        names: Vec<String>,
    },
    /// Read one register, or one field of it
    #[command(after_help = "Examples:\n  \
                        fpgactl regs read h2c0.status\n  \
                        fpgactl regs read h2c0.status.busy\n  \
                        fpgactl regs read filter.level[0] --map filter.yaml")]
    Read {
        /// Its name, for example h2c0.status, h2c0.status.busy or (of a map) filter.gain; one of an array with its number in brackets
        name: String,
        /// Read it even if that changes the card
        #[arg(long)]
        force: bool,
    },
    /// Write one register, or one field of it, and show it before and after
    #[command(after_help = "Examples:\n  \
                        fpgactl regs write h2c0.interrupt_enable 0x6\n  \
                        fpgactl regs write filter.control.mode run --map filter.yaml")]
    Write {
        /// Its name, for example h2c0.interrupt_enable or (of a map) filter.control.mode
        name: String,
        /// The whole 32-bit word or the field, for example 0x1000, or the name of a value
        #[arg(allow_negative_numbers = true)]
        value: String,
        /// Write it even if that disturbs operations in progress
        #[arg(long)]
        force: bool,
    },
    /// Read registers repeatedly, and show changes
    Watch(WatchArgs),
}

/// Options of `regs watch`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "On a terminal each register has a line that is updated in place, with changes since the last sample in bold. Elsewhere, \
                        and with TERM=dumb, one line per register is printed first, and then one per change; with --json each line is a \
                        document. Ends after --count samples, and on Ctrl-C.\n\n\
                        Examples:\n  \
                        fpgactl regs watch h2c0.status h2c0.completed\n  \
                        fpgactl regs watch ni.status.enabled --interval 100ms --count 50 --json\n  \
                        fpgactl regs watch filter.level[0] --map filter.yaml"
)]
pub struct WatchArgs {
    /// Registers or fields, for example h2c0.status or ni.control.enable
    #[arg(required = true)]
    pub names: Vec<String>,
    /// Time between samples
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1s")]
    pub interval: Duration,
    /// Number of samples after which the command ends [default: on Ctrl-C]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1, u64::MAX))]
    pub count: Option<u64>,
    /// Read them even if that changes the card
    #[arg(long)]
    pub force: bool,
}

/// Options of `replay`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The log was written by `--record FILE` of any command, or by hand: one access per line. Writes are repeated, and \
                        read values are compared; the first difference ends the replay, with exit status 1. The value `any` of a read is not \
                        compared. Bus mastering stays off. Without --force, the replay is refused if a channel runs, or if the log writes \
                        the MSI-X table, or accesses an unknown design.\n\n\
                        Examples:\n  \
                        fpgactl regs write ni.threshold 0x8000 --record log\n  \
                        fpgactl replay log --card vfio-user:/tmp/card\n  \
                        fpgactl replay log --ignore counters.rx_packets --paced"
)]
pub struct ReplayArgs {
    /// The log; -: standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Registers whose values may differ
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub ignore: Vec<String>,
    /// Keep the recorded time between accesses
    #[arg(long)]
    pub paced: bool,
    /// Replay it even if that disturbs operations in progress
    #[arg(long)]
    pub force: bool,
}

/// Options of `peek`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  \
                        fpgactl peek dma 0\n  \
                        fpgactl peek user 0x100 16 --card 0000:65:00.0 --force")]
pub struct PeekArgs {
    /// BAR: dma, user, bypass, or its number
    pub bar: BarChoice,
    /// Offset in the BAR, a multiple of 4
    #[arg(value_parser = units::offset)]
    pub offset: BarOffset,
    /// Number of words, 1 to 65536
    #[arg(value_parser = word_count, default_value = "1")]
    pub count: u32,
    /// Read even if that may hang the card or change it
    #[arg(long)]
    pub force: bool,
}

/// Options of `poke`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  \
                        fpgactl poke dma 0x90 0\n  \
                        fpgactl poke user 0x100 0xdeadbeef --card 0000:65:00.0 --force")]
pub struct PokeArgs {
    /// BAR: dma, user, bypass, or its number
    pub bar: BarChoice,
    /// Offset in the BAR, a multiple of 4
    #[arg(value_parser = units::offset)]
    pub offset: BarOffset,
    /// The 32-bit word, for example 0x1000
    #[arg(value_parser = units::word)]
    pub value: u32,
    /// Write even if that may hang the card or disturb operations in progress
    #[arg(long)]
    pub force: bool,
}
