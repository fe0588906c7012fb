//! Why a command did not do what it was asked for: what, where, why, and what to do. Long because every command's reasons stand here
//! together, with their exit statuses, so that one mistake is told in one way.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fpga_driver::bulk::BulkError;
use fpga_driver::endpoint::{EndpointError, SendError};
use fpga_driver::pci::vfio::VfioOpenError;
use fpga_driver::pci::{BarError, MemoryError, MmioError};
use fpga_driver::protocol::sender::TransferError as NetworkError;
use fpga_driver::sim::SimNetworkError;
use fpga_driver::vfio_user::VfioUserOpenError;
use fpga_driver::{
    CardAddr, CdmaError, Direction, OpenError, RecoveryError, ResourceError, StreamError, TransferError,
};

use fpga_host::HostError;
use fpga_host::bind::BindError;

use crate::config::ConfigError;
use crate::units::binary_size;

/// A command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// A file could not be used.
    #[error("{}: cannot {action}: {source}; {}", path.display(), fpga_input::advice(source))]
    File {
        /// Which.
        path: PathBuf,
        /// What was to be done with it.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A text file that the user named was not read.
    #[error(transparent)]
    Read(#[from] fpga_input::ReadError),
    /// An output file whose folder does not exist.
    #[error("{}: cannot write it: the folder {} does not exist; create it (mkdir -p), or name a file in another one", path.display(), folder.display())]
    NoFolder {
        /// Which file.
        path: PathBuf,
        /// Which folder.
        folder: PathBuf,
    },
    /// An output file is complete and cannot be given its name.
    #[error("{}: the old file cannot be replaced: {source}; all of the new content is in {}, move it where you want it", path.display(), temporary.display())]
    TargetNotReplaced {
        /// Which file.
        path: PathBuf,
        /// Where the content is.
        temporary: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The reader of a pipe that data are written to has closed it. This is how `| head` ends, and no failure.
    #[error("{}: the reader has closed the pipe", path.display())]
    BrokenPipe {
        /// Which output.
        path: PathBuf,
    },
    /// A source without a length, or that cannot be read twice.
    #[error("{}: this is a {kind}; give a regular file, whose length is known and which can be read again", path.display())]
    NotAFile {
        /// Which.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// A source that was written to meanwhile.
    #[error("{}: the file changed while it was being read ({before} bytes at the start, {now}); leave it alone until the command is done", path.display())]
    Changed {
        /// Which.
        path: PathBuf,
        /// Its size at the start.
        before: u64,
        /// What it is now.
        now: String,
    },
    /// What arrived is not what was sent.
    #[error(
        "the data that arrived differs from what was sent at offset {offset} ({offset:#x}): sent {sent:#04x}, received {received:#04x}, in transfer {transfer} at card address {address} of {card}; send it again, and with -vv if it happens again"
    )]
    Mismatch {
        /// First differing byte of the whole stream.
        offset: u64,
        /// What was sent there.
        sent: u8,
        /// What was received there.
        received: u8,
        /// Which transfer, from 1.
        transfer: u64,
        /// Where in the receiving card's memory.
        address: CardAddr,
        /// The receiving card.
        card: String,
    },
    /// The network interfaces hold on to something after everything has arrived.
    #[error(
        "the data arrived and was verified, but {ops} op table entries of {sender} and {registry} registry entries and {escape} escape slots of {receiver} are still in use; this is a fault of driver or card, look at `fpgactl regs dump`"
    )]
    StillAllocated {
        /// The sending card.
        sender: String,
        /// The receiving card.
        receiver: String,
        /// Entries of the op table in use.
        ops: u64,
        /// Registry entries in use.
        registry: u64,
        /// Escape slots in use.
        escape: u64,
    },
    /// Neither end makes progress.
    #[error(
        "transfer {transfer}: nothing happened for {waited:?} of the card's time ({missing}); look at the counters of both network interfaces"
    )]
    Stalled {
        /// Which transfer, from 1.
        transfer: u64,
        /// How long.
        waited: Duration,
        /// What was still missing.
        missing: &'static str,
    },
    /// A transfer between cards failed.
    #[error("transfer {transfer} of {card}: {source}")]
    Network {
        /// The sending card.
        card: String,
        /// Which transfer, from 1.
        transfer: u64,
        /// Why.
        source: NetworkError,
    },
    /// The receiving card announced something that was not sent.
    #[error(
        "{card}: it announces the arrival of {length} bytes at {address} while {expected} bytes at {expected_address} are expected; another sender uses the same memory"
    )]
    UnexpectedNotice {
        /// The receiving card.
        card: String,
        /// Announced length.
        length: u64,
        /// Announced place.
        address: CardAddr,
        /// Expected length.
        expected: u64,
        /// Expected place.
        expected_address: CardAddr,
    },
    /// A chunk does not fit into card memory.
    #[error("{card}: a chunk of {} does not fit into its {} of usable memory; give a smaller --chunk", binary_size(*chunk), binary_size(*usable))]
    ChunkTooLarge {
        /// Which card.
        card: String,
        /// Bytes asked for.
        chunk: u64,
        /// Bytes there are.
        usable: u64,
    },
    /// Working sets do not fit into card memory.
    #[error("{card}: working sets of {} do not fit into its {} of memory; give smaller --sizes or fewer --channels", binary_size(*needed), binary_size(*usable))]
    WorkingSet {
        /// Which card.
        card: String,
        /// Bytes asked for.
        needed: u64,
        /// Bytes there are.
        usable: u64,
    },
    /// More channels than there are.
    #[error(
        "{card}: {wanted} channels are asked for, but it has {available} in direction {direction}; give fewer --channels"
    )]
    TooManyChannels {
        /// Which card.
        card: String,
        /// Channels asked for.
        wanted: u8,
        /// Which way.
        direction: Direction,
        /// Channels there are.
        available: u8,
    },
    /// A thread cannot be bound to a CPU.
    #[error("--pin: this thread cannot be bound to CPU {cpu}: {source}; name CPUs that this process may use")]
    Pin {
        /// Which CPU.
        cpu: usize,
        /// What the system said.
        source: rustix::io::Errno,
    },
    /// Memory shared with a card.
    #[error("{card}: {source}")]
    Memory {
        /// Which card.
        card: String,
        /// What failed.
        source: MemoryError,
    },
    /// No way to read the receiving card's memory.
    #[error(
        "{card}: its only C2H channel carries events, so that nothing is left to read its memory with; use a card with two C2H channels or with event push"
    )]
    NoReadChannel {
        /// Which card.
        card: String,
    },
    /// Both cards use one node id.
    #[error(
        "{first} and {second} are both node {node} of the network, which could not tell them apart; give one another ni.node_id"
    )]
    SameNode {
        /// The sending card.
        first: String,
        /// The receiving card.
        second: String,
        /// Their id.
        node: u32,
    },
    /// The time given on the command line is over.
    #[error("{what}: not done after {limit:?} (--timeout); give more time, or see with -v where it stands")]
    TimedOut {
        /// What was under way.
        what: String,
        /// The limit.
        limit: Duration,
    },
    /// A signal came.
    #[error(
        "stopped by a signal{} while {what} was under way; engines are stopped, and nothing is left of it",
        done.map_or_else(String::new, |done| format!(" after {done} bytes ({})", binary_size(done)))
    )]
    Stopped {
        /// What was under way.
        what: String,
        /// Bytes that had arrived, where that is known.
        done: Option<u64>,
    },
    /// A signal came, and the command leaves this behind.
    #[error("{what}: stopped by a signal; {left}")]
    Interrupted {
        /// The command, with how far it came.
        what: String,
        /// What it leaves behind, and what to do about it.
        left: String,
    },
    /// The terminal.
    #[error("the terminal: {0}; with --json or --count 1 none is needed")]
    Terminal(io::Error),
    /// No such register.
    #[error("{card}: there is no register \"{name}\"; {hint}")]
    NoSuchRegister {
        /// Which card.
        card: String,
        /// What was asked for.
        name: String,
        /// Names like it.
        hint: String,
    },
    /// A register map.
    #[error(transparent)]
    Map(#[from] fpga_register_map::MapError),
    /// A register log.
    #[error("register log {}: {source}", path.display())]
    Log {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it, and in which line.
        source: fpga_driver::record::log::LogError,
    },
    /// A register log that is about another card.
    #[error("{card}: register log {}: {source}", path.display())]
    Replay {
        /// Which card.
        card: String,
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: fpga_driver::record::replay::ReplayError,
    },
    /// A card did something else than the recorded one; the report says what.
    #[error("{card}: it differs from the record in line {line}")]
    Differs {
        /// Which card.
        card: String,
        /// Line of the log.
        line: usize,
    },
    /// A register that has no value to read.
    #[error("{card}: {name} is write-only, a read returns nothing of use; {hint}")]
    WriteOnly {
        /// Which card.
        card: String,
        /// Which register.
        name: String,
        /// What to read instead.
        hint: String,
    },
    /// A register that changes when it is read.
    #[error(
        "{card}: reading {name} changes the card: it is clear-on-read, so whoever else waits for these bits loses them; add --force if that is meant"
    )]
    SideEffect {
        /// Which card.
        card: String,
        /// Which register.
        name: String,
    },
    /// A register that cannot be written.
    #[error("{card}: {name} ({access}) is not written: {reason}")]
    NotWritable {
        /// Which card.
        card: String,
        /// Which register.
        name: String,
        /// Its access kind, as PG195 abbreviates it.
        access: &'static str,
        /// What to do instead.
        reason: String,
    },
    /// An access that may do harm.
    #[error("{card}: {what}: {harm}; add --force if that is meant")]
    Hazard {
        /// Which card.
        card: String,
        /// Which access.
        what: String,
        /// What may come of it.
        harm: String,
    },
    /// No such built-in card.
    #[error("no built-in card is called `{name}`; {hint}")]
    NoSuchCard {
        /// What was asked for.
        name: String,
        /// Names like it, and all there are.
        hint: String,
    },
    /// No such BAR.
    #[error("{card}: there is no BAR {wanted}; the card has {there}")]
    NoBar {
        /// Which card.
        card: String,
        /// What was asked for.
        wanted: String,
        /// The BARs there are.
        there: String,
    },
    /// Words that the BAR does not have.
    #[error("{card}: {source}")]
    OutsideBar {
        /// Which card.
        card: String,
        /// Where, and where the BAR ends.
        source: MmioError,
    },
    /// A BAR that cannot be opened.
    #[error("{card}: {source}")]
    Bar {
        /// Which card.
        card: String,
        /// Why.
        source: BarError,
    },
    /// The defaults file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A card description.
    #[error(transparent)]
    Description(#[from] fpga_driver::sim::DescriptionError),
    /// The simulated cards.
    #[error("simulated cards: {0}")]
    SimNetwork(#[from] SimNetworkError),
    /// No way to cards in other processes.
    #[error("--link {0}")]
    Link(#[from] fpga_driver::sim::link::LinkError),
    /// A card is not served.
    #[error(transparent)]
    Serve(#[from] fpga_driver::sim::served::ServeError),
    /// A plan of faults.
    #[error("{}: this is no plan of faults: {problem}; it has the keys of the section `faults` of a card description", path.display())]
    Plan {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it, and where.
        problem: String,
    },
    /// A served card was not made to do something.
    #[error(transparent)]
    Control(#[from] crate::control::ControlError),
    /// SIGINT and SIGTERM cannot be waited for.
    #[error("signals cannot be waited for: {0}")]
    Signals(io::Error),
    /// VFIO.
    #[error(transparent)]
    Vfio(#[from] VfioOpenError),
    /// The machine could not be examined.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A card was not bound or released.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Checks of the machine failed; the report says which.
    #[error("{failed} of {checks} checks failed; the report says what to do about each")]
    NotReady {
        /// How many failed.
        failed: usize,
        /// How many there are.
        checks: usize,
    },
    /// A card that another process serves.
    #[error(transparent)]
    VfioUser(#[from] VfioUserOpenError),
    /// Opening a card.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Taking something of a card.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// Waiting for a user interrupt.
    #[error(transparent)]
    UserInterrupt(#[from] fpga_driver::UserInterruptError),
    /// A DMA transfer of a file.
    #[error(transparent)]
    Bulk(BulkError),
    /// A DMA transfer.
    #[error(transparent)]
    Dma(#[from] TransferError),
    /// Packets of a stream.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The copy engine.
    #[error(transparent)]
    Cdma(#[from] CdmaError),
    /// The network interface.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// A transfer between cards was not started.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A register access.
    #[error("{card}: {source}")]
    Mmio {
        /// Which card.
        card: String,
        /// What failed.
        source: MmioError,
    },
    /// The self-test found something; the report says what.
    #[error("{card}: {failed} of {tests} tests failed; the report says what to do about each")]
    TestsFailed {
        /// Which card.
        card: String,
        /// How many failed.
        failed: usize,
        /// How many there are.
        tests: usize,
    },
    /// A benchmark ended before its last row; the report has the rows before.
    #[error(
        "{card}: dma bench: {reason}, after {done} of {rows} rows; those are in the report, and engines are stopped"
    )]
    BenchStopped {
        /// Which card.
        card: String,
        /// What ended it.
        reason: String,
        /// Complete rows.
        done: usize,
        /// Rows that were asked for.
        rows: usize,
    },
    /// A replay was stopped by a signal; the report says that there was no difference so far.
    #[error("{card}: stopped by a signal after {made} of {accesses} accesses of the log")]
    ReplayStopped {
        /// Which card.
        card: String,
        /// How many were made.
        made: u64,
        /// How many there are.
        accesses: usize,
    },
    /// The self-test was stopped by a signal; the report says how far it was.
    #[error(
        "{card}: stopped by a signal after {done} of {tests} tests; what was saved of the card is put back"
    )]
    TestsStopped {
        /// Which card.
        card: String,
        /// How many were done.
        done: usize,
        /// How many there are.
        tests: usize,
    },
    /// The card could not be brought back; the report says what was tried.
    #[error("{card}: {what}")]
    NotRecovered {
        /// Which card.
        card: String,
        /// What is left to do.
        what: String,
    },
    /// Recovery was not begun.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// A scenario file.
    #[error(transparent)]
    Scenario(#[from] fpga_netsim::file::FileError),
    /// Scenario files are not valid; the report says what is wrong with each.
    #[error("{failed} of {files} scenarios are not valid; correct what the report names")]
    InvalidScenarios {
        /// How many are not.
        failed: usize,
        /// How many were checked.
        files: usize,
    },
    /// A scenario did not run to its end.
    #[error("{}: {source}", scenario.display())]
    Simulation {
        /// Its file.
        scenario: PathBuf,
        /// Which run, and why.
        source: fpga_netsim::sweep::SweepError,
    },
    /// A figure was not made.
    #[error("figure {name}: {source}")]
    Figure {
        /// Which.
        name: &'static str,
        /// Why.
        source: fpga_netsim::figures::FigureError,
    },
    /// Publishing frames.
    #[error(transparent)]
    Publisher(#[from] fpga_frames::PublisherError),
    /// No frame to be filled.
    #[error(transparent)]
    TakeFrame(#[from] fpga_frames::TakeError),
    /// A frame was not published.
    #[error(transparent)]
    Publish(#[from] fpga_frames::PublishError),
    /// More than a frame holds.
    #[error(transparent)]
    Frame(fpga_frames::TooLong),
    /// Becoming a subscriber.
    #[error(transparent)]
    Join(#[from] fpga_frames::JoinError),
    /// Reading frames.
    #[error(transparent)]
    Subscriber(#[from] fpga_frames::SubscriberError),
    /// The publisher of the frames is gone.
    #[error("after {frames} frames: {source}")]
    PublisherLost {
        /// How many had come.
        frames: u64,
        /// How it was noticed.
        source: fpga_frames::SubscriberError,
    },
    /// Frames that are not what their checksums say.
    #[error(
        "{damaged} of {frames} frames are not what their checksums say; the report is on standard output"
    )]
    DamagedFrames {
        /// How many.
        damaged: u64,
        /// Of how many.
        frames: u64,
    },
    /// A publisher's name that nobody knows.
    #[error("{place}: {reason}; check the name, or give the publisher's address")]
    UnknownPublisher {
        /// What was asked for.
        place: String,
        /// What the system said.
        reason: String,
    },
    /// Frames that were accepted, and that did not arrive before the stream ended.
    #[error(
        "{frames} frames that were accepted did not arrive at {subscribers} of the subscribers at the end; they were stopped, or cannot be reached: the report on standard output has each of them"
    )]
    Undelivered {
        /// How many.
        frames: u64,
        /// To how many subscribers.
        subscribers: usize,
    },
    /// Standard output.
    #[error("standard output: {0}")]
    Output(io::Error),
}

impl CliError {
    /// A file could not be used.
    pub fn file(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), action, source }
    }

    /// The same, with how far it came, if it is the end that a signal asked for.
    #[must_use]
    pub fn after(self, bytes: u64) -> Self {
        match self {
            Self::Stopped { what, done } => Self::Stopped { what, done: Some(done.unwrap_or(0).max(bytes)) },
            other => other,
        }
    }

    /// An error of a stream of ours: what it carries, or itself with the name of its file.
    pub fn carried(path: &Path, action: &'static str, error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(inner) => inner,
            Err(source) => Self::file(path, action, source),
        }
    }

    /// Whether the report that says so is on standard output already.
    #[must_use]
    pub const fn is_reported(&self) -> bool {
        matches!(
            self,
            Self::TestsFailed { .. }
                | Self::InvalidScenarios { .. }
                | Self::TestsStopped { .. }
                | Self::ReplayStopped { .. }
                | Self::BenchStopped { .. }
                | Self::NotRecovered { .. }
                | Self::NotReady { .. }
                | Self::DamagedFrames { .. }
                | Self::Differs { .. }
                | Self::PublisherLost { .. }
                | Self::Undelivered { .. }
        )
    }

    /// The exit status: 2 for wrong usage, 0 if the reader of the data has had enough, else 1.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::BrokenPipe { .. } => 0,
            _ if self.is_usage() => 2,
            _ => 1,
        }
    }

    /// Whether other words on the command line would have done, and nothing else: a name that nothing has (of a register, a field, a
    /// channel, a BAR, a built-in card), a number or size that does not fit what it is for, options that contradict each other or the
    /// card. `clap` refuses with the same status what it knows by itself.
    ///
    /// Everything else failed, or was refused, though the words were right: what lies outside of the program and is not there (files,
    /// sockets, functions on the bus), what a file says, what wants `--force`, and what a card or a peer did not do.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_)
            | Self::NotAFile { .. }
            | Self::NoSuchRegister { .. }
            | Self::NoSuchCard { .. }
            | Self::NoBar { .. }
            | Self::TooManyChannels { .. }
            | Self::ChunkTooLarge { .. }
            | Self::WorkingSet { .. }
            | Self::OutsideBar { .. }
            | Self::Resource(
                ResourceError::NoSuchChannel { .. } | ResourceError::NoSuchUserInterrupt { .. },
            )
            | Self::Recovery(RecoveryError::NoSuchChannel { .. })
            // Sizes that contradict each other or the card, all from options of the command line.
            | Self::Endpoint(EndpointError::Config { .. } | EndpointError::Option { .. })
            | Self::Publisher(
                fpga_frames::PublisherError::Geometry { .. } | fpga_frames::PublisherError::Option { .. },
            )
            // As a publisher's; whether the publisher's frames fit into this card is none of the command line.
            | Self::Join(fpga_frames::JoinError::Geometry {
                source: fpga_frames::GeometryError::Slots { .. },
                ..
            }) => true,
            Self::Host(error) => error.is_usage(),
            _ => false,
        }
    }
}
