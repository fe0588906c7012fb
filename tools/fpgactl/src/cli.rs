//! Declarations of the command line for `clap`. The file is long because it is the reference of all commands, read from top to
//! bottom; the help texts stand only here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fpga_driver::{BarOffset, CardAddr, ChannelName, Direction};
use fpga_firmware::generated::Scheme as Rules;
use fpga_pci::vfio::{VfToken, VfioInterface};
use fpga_registers::xdma::MAX_CHANNELS;

mod card;
mod feedback;
mod host;
mod irq;
mod regs;
mod rtl;
mod sim;
mod stream;
mod top;
mod values;

pub use card::{CardCommand, ControlArgs, ControlCommand, Level, ServeArgs, ShareArgs};
pub use feedback::{FeedbackArgs, HopSupport};
pub use host::{BindArgs, DoctorArgs, DumpArgs, HostArgs, ListArgs, ReleaseArgs};
pub use irq::{IrqCommand, IrqWaitArgs};
pub use regs::{RegsCommand, ReplayArgs, WatchArgs};
pub use rtl::{RtlBuildArgs, RtlCommand, RtlRegistersArgs, RtlRunArgs, RtlWrapperArgs};
pub use sim::{FigureName, SimCheckArgs, SimCommand, SimFigureArgs, SimGridArgs, SimRunArgs};
pub use stream::{PublishArgs, StreamCommand, StreamLinkArgs, SubscribeArgs};
pub use top::TopArgs;
pub use values::LinkAddress;
use values::{channel_name, channel_number, operation_size, pin, seconds, stream_packet, word_count};
pub(crate) use values::{chunk_size, link_address, packet_size, reorder_depth, udp_address, whole};

use crate::bars::BarChoice;
use crate::impair::ImpairArgs;
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
            Self::Sim { command: SimCommand::Run(_) | SimCommand::Figure(_) | SimCommand::Grid(_) } => {
                SignalAction::Stop
            }
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
///
/// # Errors
/// As [`units::bytes`].
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
    /// Payload bytes of a packet, 64 to 4096, a power of two [default: the card's packet size]
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

/// CPUs to which threads are bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuList {
    /// CPU of the simulated card's thread.
    pub card: usize,
    /// CPU of the submitting thread.
    pub host: usize,
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

/// Options of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Program, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<std::ffi::OsString>,
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
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn cli_definition_is_consistent() {
        Cli::command().debug_assert();
    }

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
