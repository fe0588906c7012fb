//! Declarations of the command line for `clap`: global options and the list of commands. The help texts are in this module and its parts
//! alone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use fpga_driver::BarOffset;
use fpga_pci::vfio::{VfToken, VfioInterface};

mod card;
mod dma;
mod feedback;
mod host;
mod irq;
mod recovery;
mod regs;
mod rtl;
mod sim;
mod stream;
mod top;
mod transfer;
mod values;

pub use card::{CardCommand, ControlArgs, ControlCommand, Level, ServeArgs, ShareArgs};
pub use dma::{BenchArgs, BenchDirection, BenchMode, BenchRing, CdmaCommand, DmaCommand};
pub use feedback::{FeedbackArgs, HopSupport};
pub use host::{BindArgs, DoctorArgs, DumpArgs, HostArgs, ListArgs, ReleaseArgs};
pub use irq::{IrqCommand, IrqWaitArgs};
pub use recovery::{AbortArgs, ChannelChoice, ResetArgs, ResetLevel, ValidateArgs};
pub use regs::{PeekArgs, PokeArgs, RegsCommand, ReplayArgs, WatchArgs};
pub use rtl::{RtlBoardArgs, RtlBuildArgs, RtlCommand, RtlRegistersArgs, RtlRunArgs, RtlWrapperArgs};
pub use sim::{
    FigureName, RowName, SimCheckArgs, SimClosArgs, SimCommand, SimFigureArgs, SimGridArgs, SimRunArgs,
};
pub use stream::{PublishArgs, StreamCommand, StreamLinkArgs, SubscribeArgs};
pub use top::TopArgs;
pub use transfer::{ListingArgs, Notifier, Scheme, SegmentLength, TransferArgs, segment_length};
pub use values::{CpuList, LinkAddress};
pub(crate) use values::{chunk_size, link_address, packet_size, reorder_depth, udp_address, whole};

use crate::outfile;
use crate::stop::SignalAction;
use crate::style::ColourChoice;
use crate::target::Target;
use crate::units;

/// Command line for FPGA cards with XDMA and CDMA, and for reliable transfers between them.
#[derive(Debug, Parser)]
#[command(
    name = "fpgactl",
    version,
    max_term_width = 100,
    after_help = "CARD is `mock` (a simulated card in this process, new for every command), `mock:FILE.yaml` (with a card description), \
                  `mock:NAME` (a built-in description of a real board's kind, such as us-plus-x16; a wrong name lists them), a PCI address \
                  such as 0000:65:00.0 (through VFIO), `vfio-user:SOCKET`, `rtl:FOLDER` (a design in an RTL simulator), or `shared:CARD` (one of these, for several processes: `fpgactl card share --help`).\n\
                  Sizes and addresses: 4096, 0x1000, 4KiB, 64MiB. Durations: 10us, 5ms, 2s.\n\
                  A file named - is standard input or standard output; if standard output carries data, reports and JSON go to standard \
                  error. An existing output file is replaced when the new one is complete, and is not changed otherwise. A reader that closes \
                  the pipe (| head) ends the command with status 0.\n\
                  Exit status: 0 done; 1 failed or refused; 2 wrong usage: an option, value or name (of a register, field, channel, BAR \
                  or built-in card) that does not exist, or a number out of range. Ctrl-C (SIGINT) and SIGTERM abort a job, which reports its progress (status 1), and \
                  stop a server or live view (top, events, regs watch, stream, card serve; status 0). A second signal ends either at \
                  once, with 130 or 143."
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// Command.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Card to use [default: mock]
    #[arg(long, global = true, value_name = "CARD")]
    pub card: Option<Target>,
    /// Kernel interface for a card at a PCI address: auto, group (and container) or iommufd [default: $FPGA_VFIO, or auto]
    #[arg(long, global = true, value_name = "INTERFACE")]
    pub vfio: Option<VfioInterface>,
    /// VF token: secret shared by a virtual function and its physical function, a UUID [default: $FPGA_VF_TOKEN]
    #[arg(long, global = true, value_name = "UUID")]
    pub vf_token: Option<VfToken>,
    /// Timeout of one message to the server of a vfio-user: card; an access without an answer by then fails [default: $FPGA_MESSAGE_TIMEOUT in seconds, --timeout, or 30s]
    #[arg(long, global = true, value_name = "DURATION", value_parser = units::duration)]
    pub message_timeout: Option<Duration>,
    /// Number of the BAR with the registers of the DMA engine, for cards where it cannot be detected
    #[arg(long, global = true, value_name = "N", value_parser = whole::<u8>(0, 5))]
    pub dma_bar: Option<u8>,
    /// Offset of the copy engine (AXI CDMA) in the user BAR, for designs without an identity block
    #[arg(long, global = true, value_name = "OFFSET", value_parser = units::offset)]
    pub cdma_offset: Option<BarOffset>,
    /// Read the identity block of the network interface even if the card's subsystem ids do not announce one
    #[arg(long, global = true)]
    pub ni: bool,
    /// Names of the user BAR's registers, from a YAML file (-: standard input): docs/guide/register-maps.md
    #[arg(long, global = true, value_name = "FILE.yaml")]
    pub map: Option<PathBuf>,
    /// Write every register access of the command to this file (-: standard output), with names and times, for `replay`
    #[arg(long, global = true, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Defaults for options, from a YAML file (-: standard input): docs/guide/command-line.md
    #[arg(long, global = true, value_name = "FILE.yaml")]
    pub config: Option<PathBuf>,
    /// Print one JSON document on standard output, and no other output there
    #[arg(long, global = true)]
    pub json: bool,
    /// Log more to standard error: -v events, -vv details
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Colour the output: auto, always or never. Auto: on a terminal, unless NO_COLOR is set [default: auto]
    #[arg(long, global = true, value_name = "WHEN", value_enum, hide_possible_values = true)]
    pub color: Option<ColourChoice>,
    /// Show no progress bar
    #[arg(long, global = true)]
    pub no_progress: bool,
    /// Maximum wall-clock time of the command [default: only the driver's limit for each step]
    ///
    /// The time includes opening the card and stopping its engines: a card that hangs delays the end by up to a tenth. On a simulated card
    /// in this process (mock), the limit also applies to each single wait by the card's virtual clock: such a wait may end earlier.
    #[arg(long, global = true, value_name = "DURATION", value_parser = units::duration)]
    pub timeout: Option<Duration>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Move a file or random bytes from host A through card A, the network and card B to host B, and verify them
    #[command(after_help = "Examples:\n  \
                        fpgactl transfer\n  \
                        fpgactl transfer FILE --out COPY --loss 5% --reorder 256\n  \
                        tar c DIR | fpgactl transfer - --out - | tar t\n  \
                        fpgactl transfer --size 1MiB --scheme selective --loss 1% --json\n  \
                        fpgactl transfer --card vfio-user:/tmp/a --peer vfio-user:/tmp/b --size 16MiB")]
    Transfer(TransferArgs),
    /// Move data between host memory and card memory
    Dma {
        /// Direction.
        #[command(subcommand)]
        command: DmaCommand,
    },
    /// Copy inside the card
    Cdma {
        /// Subcommand.
        #[command(subcommand)]
        command: CdmaCommand,
    },
    /// List the cards of this machine, with drivers, IOMMU groups and links, and the simulated ones
    List(ListArgs),
    /// Check whether this machine is ready for cards, with the necessary actions
    Doctor(DoctorArgs),
    /// Bind a card to vfio-pci, so that programs can use it
    Bind(BindArgs),
    /// Return a card to its previous driver
    Release(ReleaseArgs),
    /// Show the properties of the card: BARs, DMA engine, identity block, network interface
    #[command(after_help = "Examples:\n  \
                        fpgactl info\n  \
                        fpgactl info --card 0000:65:00.0 --json\n  \
                        fpgactl info --card mock:us-plus-x16")]
    Info,
    /// Show registers by name, with their fields
    Regs {
        /// Subcommand.
        #[command(subcommand)]
        command: RegsCommand,
    },
    /// Run a recorded register log against a card, and report the first difference
    Replay(ReplayArgs),
    /// Read raw 32-bit words of a BAR
    Peek(PeekArgs),
    /// Write a raw 32-bit word of a BAR
    Poke(PokeArgs),
    /// Write one file for a bug report: registers, configuration space, counters, versions, kernel log, doctor
    Dump(DumpArgs),
    /// Test the card: registers, every channel, interrupts, credits, copy engine, network interface
    Validate(ValidateArgs),
    /// Stop engines that an earlier process left running
    Abort(AbortArgs),
    /// Recover a card: stop its engines, then reset it up to the requested level
    Reset(ResetArgs),
    /// List the packets in flight: op numbers, tries, ages, deadlines
    Ops(ListingArgs),
    /// List the queues of transfers, and the progress of each transfer
    Queues(ListingArgs),
    /// List the receive registry, with its masks drawn packet by packet
    Registry(ListingArgs),
    /// List the packets in the escape channel
    Escape(ListingArgs),
    /// Show the counters of both ends
    Stats(ListingArgs),
    /// Watch channels, queues, op table, registry, escape channel, rates and errors live
    Top(TopArgs),
    /// Run a program that uses the device files of the vendor's XDMA driver (/dev/xdma0_h2c_0 and so on)
    ///
    /// The program and all its children find the card as xdma0, without the vendor's kernel module. They need no changes, and may be linked
    /// dynamically or statically. The exit status is the program's.
    #[command(after_help = "Examples:\n  \
                        fpgactl run -- dma_to_device -d /dev/xdma0_h2c_0 -f FILE -s 4096\n  \
                        fpgactl run --card 0000:65:00.0 -- ./application\n  \
                        fpgactl run -- sh -c 'dd if=in of=/dev/xdma0_h2c_0; dd if=/dev/xdma0_c2h_0 of=out count=8'")]
    Run(RunArgs),
    /// Watch a card: print bus errors and device-release requests (REQ)
    Events(EventsArgs),
    /// Show user interrupts, and wait for them
    Irq {
        /// Subcommand.
        #[command(subcommand)]
        command: IrqCommand,
    },
    /// Work with card descriptions
    Card {
        /// Subcommand.
        #[command(subcommand)]
        command: CardCommand,
    },
    /// Simulate your RTL behind the driver, with Verilator
    Rtl {
        /// Subcommand.
        #[command(subcommand)]
        command: RtlCommand,
    },
    /// Frame streams: one publisher, many subscribers, in real time
    Stream {
        /// Side.
        #[command(subcommand)]
        command: StreamCommand,
    },
    /// Simulate the schemes on whole networks, without cards
    Sim {
        /// Subcommand.
        #[command(subcommand)]
        command: SimCommand,
    },
    /// Print a completion script for a shell
    #[command(after_help = "Examples:\n  \
                        fpgactl completions bash > /etc/bash_completion.d/fpgactl\n  \
                        fpgactl completions zsh > ~/.zfunc/_fpgactl   # where ~/.zfunc is in $fpath\n  \
                        fpgactl completions fish > ~/.config/fish/completions/fpgactl.fish")]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    #[command(after_help = "Examples:\n  \
                        fpgactl man --out /usr/local/share/man/man1")]
    Man {
        /// Output directory
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

impl Cli {
    /// Number of outputs that go to standard output. Reports go to standard error if there is one; more than one is refused.
    #[must_use]
    pub fn outputs_to_stdout(&self) -> usize {
        let record = self.global.record.as_deref();
        self.command.outputs().into_iter().chain(record).filter(|path| outfile::is_stdout(path)).count()
    }
}

impl Command {
    /// Files that the command writes, as given. Folders are not included, except those that `-` stands for.
    #[must_use]
    pub fn outputs(&self) -> Vec<&Path> {
        let named: [Option<&PathBuf>; 2] = match self {
            Self::Transfer(args) => [args.out.as_ref(), None],
            Self::Dma { command: DmaCommand::Read { out, index, .. } } => [Some(out), index.as_ref()],
            Self::Dma { command: DmaCommand::Bench(args) } => [args.svg.as_ref(), None],
            Self::Dump(args) => [Some(&args.out), None],
            Self::Card { command: CardCommand::Serve(args) } => [args.stats.as_ref(), None],
            Self::Stream { command: StreamCommand::Subscribe(args) } => [args.out.as_ref(), None],
            Self::Sim { command: SimCommand::Run(args) } => [Some(&args.out), None],
            Self::Sim { command: SimCommand::Figure(args) } => [Some(&args.out), None],
            Self::Sim { command: SimCommand::Clos(args) } => [args.out.as_ref(), None],
            Self::Rtl { command: RtlCommand::Wrapper(args) } => [Some(&args.out), None],
            Self::Rtl { command: RtlCommand::Registers(args) } => [Some(&args.out), None],
            _ => [None, None],
        };
        named.into_iter().flatten().map(PathBuf::as_path).collect()
    }

    /// The file that receives data as it is, and not text.
    #[must_use]
    pub fn binary_output(&self) -> Option<&Path> {
        match self {
            Self::Transfer(args) => args.out.as_deref(),
            Self::Dma { command: DmaCommand::Read { out, .. } } => Some(out),
            Self::Stream { command: StreamCommand::Subscribe(args) } => args.out.as_deref(),
            _ => None,
        }
    }

    /// Effect of SIGINT and SIGTERM on the command.
    #[must_use]
    pub const fn on_signal(&self) -> SignalAction {
        match self {
            Self::Transfer(_)
            | Self::Dma { .. }
            | Self::Replay(_)
            | Self::Ops(_)
            | Self::Queues(_)
            | Self::Registry(_)
            | Self::Escape(_)
            | Self::Stats(_)
            | Self::Irq { command: IrqCommand::Wait(_) }
            | Self::Validate(_) => SignalAction::Stop,
            Self::Top(_)
            | Self::Events(_)
            | Self::Stream { .. }
            | Self::Regs { command: RegsCommand::Watch(_) }
            | Self::Card { command: CardCommand::Serve(_) | CardCommand::Share(_) } => SignalAction::End,
            Self::Sim {
                command:
                    SimCommand::Run(_) | SimCommand::Figure(_) | SimCommand::Grid(_) | SimCommand::Clos(_),
            } => SignalAction::Stop,
            _ => SignalAction::Abort,
        }
    }

    /// Returns whether the command reads a file before it checks for signals: a file that is a pipe may block it.
    #[must_use]
    pub const fn reads_file_before_signals(&self) -> bool {
        matches!(self, Self::Sim { command: SimCommand::Run(_) } | Self::Replay(_))
    }

    /// State that remains if a signal ends the command at once, and how to clean up. `card_remains`: the card is not simulated inside this
    /// process.
    #[must_use]
    pub const fn cleanup_advice(&self, card_remains: bool) -> &'static str {
        match self {
            Self::Abort(_)
            | Self::Reset(_)
            | Self::Cdma { .. }
            | Self::Poke(_)
            | Self::Regs { command: RegsCommand::Write { .. } }
                if !card_remains =>
            {
                "the simulated card has ended with the command, so there is nothing to clean up"
            }
            Self::Bind(_) | Self::Release(_) => {
                "check the card's driver with `fpgactl list`, and run the command again"
            }
            Self::Abort(_) | Self::Reset(_) => {
                "the card may be half reset: run `fpgactl reset` before it is used"
            }
            Self::Cdma { .. } => {
                "a part may have been copied, and the copy engine may still run: stop it with `fpgactl abort`"
            }
            Self::Poke(_) | Self::Regs { command: RegsCommand::Write { .. } } => {
                "read the register to see whether it was written"
            }
            Self::Man { .. } => "not all pages were written: run the command again",
            Self::Dump(_) => "no file was written: run the command again",
            _ => "nothing was changed",
        }
    }
}

/// Options of `events`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  \
                        fpgactl events --card 0000:65:00.0\n  \
                        fpgactl events --card 0000:65:00.0 --count 1 --timeout 60s --json")]
pub struct EventsArgs {
    /// Number of events after which the command ends [default: until a device-release request]
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true, value_parser = whole::<u64>(1, u64::MAX))]
    pub count: u64,
}

/// Options of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Program, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<std::ffi::OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn cli_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
