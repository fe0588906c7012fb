//! Reasons why a command fails: what failed, on which object, why, and what to do. The file is long because the reasons of every command
//! stand here together with their exit statuses, so that one error always has the same message.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fpga_driver::bulk::BulkError;
use fpga_driver::{
    Advice, CardAddr, CdmaError, ChannelError, Direction, Error, ErrorPlace, OpenError, ResourceError,
    TransferError, errors::AllOnesCause, recovery::RecoveryError, stream::StreamError,
};
use fpga_pci::vfio::VfioOpenError;
use fpga_pci::{BarError, InterruptError, MemoryError, MmioError};
use fpga_protocol::sender::SendFailure;
use fpga_rdma::{EndpointError, SendError};
use fpga_registers::quantity;
use fpga_sim::SimNetworkError;
use fpga_vfio_user::VfioUserOpenError;

use fpga_host::HostError;
use fpga_host::bind::BindError;

use crate::advice;
use crate::config::error::ConfigError;
use crate::machine_advice;
use crate::shown::{HELP, Shown};
use crate::units::binary_size;

/// Amount of data that is received from a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamAmount {
    /// Number of packets.
    Packets(u64),
    /// Number of bytes, regardless of packets.
    Bytes(u64),
}

/// Progress of receiving that has ended early.
fn received(packets: u64, bytes: u64, amount: &StreamAmount, discarded: u64, out: &Path) -> String {
    let count = match amount {
        StreamAmount::Packets(wanted) => {
            format!("{packets} of {} ({})", quantity(*wanted, "packet"), quantity(bytes, "byte"))
        }
        StreamAmount::Bytes(wanted) => format!("{bytes} of {}", quantity(*wanted, "byte")),
    };
    let rest = match discarded {
        0 => String::new(),
        bytes => format!(", {} of incomplete packets were discarded", quantity(bytes, "byte")),
    };
    match bytes {
        0 => format!("{count} were received{rest}; {} was not written", out.display()),
        _ => format!("{count} were received and are in {}{rest}", out.display()),
    }
}

/// Reason why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// The command line asks for something impossible.
    #[error("{0}")]
    Usage(String),
    /// A file could not be used.
    #[error("{}: cannot {action}: {source}\nhelp: {}", path.display(), fpga_input::advice(source))]
    File {
        /// Path.
        path: PathBuf,
        /// Intended action.
        action: &'static str,
        /// System error.
        r#source: io::Error,
    },
    /// A text file that the user named could not be read.
    #[error(transparent)]
    Read(#[from] fpga_input::InputError),
    /// The folder of an output file does not exist.
    #[error("{}: cannot write it: the folder {} does not exist\nhelp: create it (mkdir -p), or name a file in another one", path.display(), folder.display())]
    NoFolder {
        /// File path.
        path: PathBuf,
        /// Folder.
        folder: PathBuf,
    },
    /// An output file is complete and cannot be renamed to its final name.
    #[error("{}: the old file cannot be replaced: {source}\nhelp: move the new content from {}", path.display(), temporary.display())]
    TargetNotReplaced {
        /// File path.
        path: PathBuf,
        /// Path of the complete content.
        temporary: PathBuf,
        /// System error.
        r#source: io::Error,
    },
    /// The reader of a data pipe has closed it. `| head` ends this way; it is not a failure.
    #[error("{}: the reader has closed the pipe", path.display())]
    BrokenPipe {
        /// Output.
        path: PathBuf,
    },
    /// A program run below `run` has failed; it has said why.
    #[error("the program has ended with status {status}")]
    Program {
        /// Status of the program.
        status: u8,
    },
    /// A card cannot be shared.
    #[error(transparent)]
    Share(#[from] fpgad::OwnerError),
    /// The owner of a shared card has ended before it was ready.
    #[error("{message}")]
    Owner {
        /// Its error message.
        message: String,
    },
    /// A program cannot be run with device files.
    #[error(transparent)]
    Run(#[from] xdma_compat::RunError),
    /// A model of RTL cannot be built or run.
    #[error(transparent)]
    Model(#[from] fpga_rtl::model::ModelError),
    /// There is no wrapper of such an IP instance.
    #[error(transparent)]
    Wrapper(#[from] fpga_rtl::wrapper::WrapperError),
    /// There is no RTL of such a register map.
    #[error("register map {}: {source}", map.display())]
    Skeleton {
        /// Map.
        map: PathBuf,
        /// Reason.
        r#source: fpga_register_map::rtl::SkeletonError,
    },
    /// A source has no length, or cannot be read twice.
    #[error("{}: this is a {kind}\nhelp: give a regular file, whose length is known and which can be read again", path.display())]
    NotAFile {
        /// Path.
        path: PathBuf,
        /// Kind of the source.
        kind: &'static str,
    },
    /// A source changed while it was read.
    #[error(
        "{}: the file changed while it was being read ({before} at the start, {now})\nhelp: do not change it while the command runs",
        path.display(),
        before = quantity(*before, "byte"),
    )]
    Changed {
        /// Path.
        path: PathBuf,
        /// Its size at the start.
        before: u64,
        /// Description of its current state.
        now: String,
    },
    /// The received data differs from the data sent.
    #[error(
        "data differ at offset {offset} ({offset:#x}): sent {sent:#04x}, received {received:#04x}, in transfer {transfer} at card address {address} of {card}\nhelp: run the command again, with -vv if the error is repeated"
    )]
    Mismatch {
        /// First differing byte of the whole stream.
        offset: u64,
        /// Byte sent at this offset.
        sent: u8,
        /// Byte received at this offset.
        received: u8,
        /// Number of the transfer, from 1.
        transfer: u64,
        /// Address in the receiving card's memory.
        address: CardAddr,
        /// The receiving card.
        card: String,
    },
    /// The network interfaces still have entries in use after everything has arrived.
    #[error(
        "the data arrived, but {ops} op table entries of {sender}, {registry} registry entries and {escape} escape slots of {receiver} are still in use\nhelp: look at the state with `fpgactl regs dump`: this is a fault of driver or card"
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
    /// The folder contains no model of RTL.
    #[error("{} contains no model\nhelp: build it: fpgactl rtl build TOP.sv... -o {}", folder.display(), folder.display())]
    NoModel {
        /// Folder.
        folder: PathBuf,
    },
    /// A model of RTL was built without support for waveforms.
    #[error("the model in {} was built without waveforms\nhelp: build it again with --trace", folder.display())]
    NoTrace {
        /// Folder.
        folder: PathBuf,
    },
    /// A thread cannot be started.
    #[error(
        "a thread of this program cannot be started: {cause}\nhelp: check the limits on processes and memory"
    )]
    Thread {
        /// Error of the system.
        cause: io::Error,
    },
    /// Neither end makes progress.
    #[error(
        "transfer {transfer}: no progress for {waited:?} of the card's time ({missing})\nhelp: check the counters of both network interfaces"
    )]
    Stalled {
        /// Number of the transfer, from 1.
        transfer: u64,
        /// Time without progress.
        waited: Duration,
        /// Description of the missing progress.
        missing: &'static str,
    },
    /// A transfer between cards failed.
    #[error("transfer {transfer} of {card}: {source}")]
    Network {
        /// The sending card.
        card: String,
        /// Number of the transfer, from 1.
        transfer: u64,
        /// Reason.
        r#source: SendFailure,
    },
    /// The receiving card reported the arrival of something that was not sent.
    #[error(
        "{card}: it announces the arrival of {length} at {address} instead of {expected} at {expected_address}: another sender uses the same memory",
        length = quantity(*length, "byte"),
        expected = quantity(*expected, "byte"),
    )]
    UnexpectedNotice {
        /// The receiving card.
        card: String,
        /// Reported length.
        length: u64,
        /// Reported address.
        address: CardAddr,
        /// Expected length.
        expected: u64,
        /// Expected address.
        expected_address: CardAddr,
    },
    /// A chunk does not fit into card memory.
    #[error("{card}: a chunk of {} does not fit into its {} of usable memory\nhelp: give a smaller --chunk", binary_size(*chunk), binary_size(*usable))]
    ChunkTooLarge {
        /// Card name.
        card: String,
        /// Requested bytes.
        chunk: u64,
        /// Available bytes.
        usable: u64,
    },
    /// Working sets do not fit into card memory.
    #[error("{card}: working sets of {} do not fit into its {} of memory\nhelp: give smaller --sizes or fewer --channels", binary_size(*needed), binary_size(*usable))]
    WorkingSet {
        /// Card name.
        card: String,
        /// Requested bytes.
        needed: u64,
        /// Available bytes.
        usable: u64,
    },
    /// More channels were requested than the card has.
    #[error(
        "{card}: {wanted} channels are requested, but it has {available} in direction {direction}\nhelp: give fewer --channels"
    )]
    TooManyChannels {
        /// Card name.
        card: String,
        /// Requested number of channels.
        wanted: u8,
        /// Direction.
        direction: Direction,
        /// Available number of channels.
        available: u8,
    },
    /// A thread cannot be bound to a CPU.
    #[error(
        "--pin: this thread cannot be bound to CPU {cpu}: {source}\nhelp: name CPUs that this process may use"
    )]
    Pin {
        /// CPU number.
        cpu: usize,
        /// System error.
        r#source: rustix::io::Errno,
    },
    /// Allocating or mapping memory shared with a card failed.
    #[error("{card}: {source}")]
    Memory {
        /// Card name.
        card: String,
        /// Failed operation.
        r#source: MemoryError,
    },
    /// The receiving card's memory cannot be read.
    #[error(
        "{card}: its only C2H channel carries events, and no channel remains to read its memory\nhelp: use a card with two C2H channels or with event push"
    )]
    NoReadChannel {
        /// Card name.
        card: String,
    },
    /// Both cards use the same node id.
    #[error(
        "{first} and {second} are both node {node} of the network, and node ids must be unique\nhelp: give one of them another ni.node_id"
    )]
    SameNode {
        /// The sending card.
        first: String,
        /// The receiving card.
        second: String,
        /// Node id of both.
        node: u32,
    },
    /// The time limit of the command line is over.
    #[error(
        "{what}: not done after {limit:?} (--timeout)\nhelp: give more time, or see its progress with -v"
    )]
    TimedOut {
        /// Operation in progress.
        what: String,
        /// The limit.
        limit: Duration,
    },
    /// The card's events cannot be waited for.
    #[error("{card}: {source}")]
    Events {
        /// Card name.
        card: String,
        /// Reason.
        r#source: InterruptError,
    },
    /// The server of the card has ended while the command watched it.
    #[error(
        "{card}: the process that serves the card has ended\nhelp: start it again with `fpgactl card serve`"
    )]
    ServerGone {
        /// Card name.
        card: String,
    },
    /// A signal stopped the command.
    #[error(
        "{what}: stopped by a signal{}; engines are stopped, and nothing was kept",
        done.map_or_else(String::new, |done| format!(" after {} ({})", quantity(done, "byte"), binary_size(done)))
    )]
    Stopped {
        /// Operation in progress.
        what: String,
        /// Bytes that had arrived, if known.
        done: Option<u64>,
    },
    /// Receiving from a stream ended early. What was received is kept.
    #[error("{}: {reason}", received(*packets, *bytes, amount, *discarded, out))]
    Received {
        /// Reason.
        reason: String,
        /// Packets whose end was received.
        packets: u64,
        /// Bytes in the file.
        bytes: u64,
        /// Requested amount.
        amount: StreamAmount,
        /// Received bytes that are not in the file.
        discarded: u64,
        /// The file.
        out: PathBuf,
    },
    /// Sending packets ended early.
    #[error(
        "{reason}: the card accepted {} ({}), and possibly a part of the next one; {left}",
        wanted.map_or_else(|| quantity(*packets, "packet").to_string(), |wanted| format!("{packets} of {}", quantity(wanted, "packet"))),
        binary_size(*bytes)
    )]
    Sent {
        /// Reason.
        reason: String,
        /// Number of accepted packets.
        packets: u64,
        /// Number of packets, if known.
        wanted: Option<u64>,
        /// Bytes in the accepted packets.
        bytes: u64,
        /// State of the channel.
        left: String,
    },
    /// A signal interrupted the command, and something remains to be cleaned up.
    #[error("{what}: stopped by a signal; {left}")]
    Interrupted {
        /// The command, with its progress.
        what: String,
        /// State that remains, and the action that cleans it up.
        left: String,
    },
    /// A terminal operation failed.
    #[error("the terminal: {0}\nhelp: use --json or --count 1, which need none")]
    Terminal(io::Error),
    /// There is no such register.
    #[error("{card}: there is no register \"{name}\"\nhelp: {hint}")]
    NoSuchRegister {
        /// Card name.
        card: String,
        /// Requested name.
        name: String,
        /// Similar names.
        hint: String,
    },
    /// A register map is invalid.
    #[error(transparent)]
    Map(#[from] fpga_register_map::MapError),
    /// A register log is invalid.
    #[error("register log {}: {source}", path.display())]
    Log {
        /// File path.
        path: PathBuf,
        /// Error, with its line.
        r#source: fpga_diag::record::log::LogError,
    },
    /// A register log does not fit the card.
    #[error("{card}: register log {}: {source}", path.display())]
    Replay {
        /// Card name.
        card: String,
        /// File path.
        path: PathBuf,
        /// Error.
        r#source: fpga_diag::record::replay::ReplayError,
    },
    /// A card behaves differently from the recorded one; the report contains the difference.
    #[error("{card}: it differs from the record in line {line}")]
    Differs {
        /// Card name.
        card: String,
        /// Line of the log.
        line: usize,
    },
    /// The register has no readable value.
    #[error("{card}: {name} is write-only, a read returns no useful value\nhelp: {hint}")]
    WriteOnly {
        /// Card name.
        card: String,
        /// Register name.
        name: String,
        /// Register to read instead.
        hint: String,
    },
    /// Reading the register changes it.
    #[error(
        "{card}: reading {name} changes the card: it is clear-on-read, so other processes that wait for these bits lose them\nhelp: add --force to read it anyway"
    )]
    SideEffect {
        /// Card name.
        card: String,
        /// Register name.
        name: String,
    },
    /// The register cannot be written.
    #[error("{card}: {name} ({access}) is not written: {reason}")]
    NotWritable {
        /// Card name.
        card: String,
        /// Register name.
        name: String,
        /// Its access kind, as PG195 abbreviates it.
        access: &'static str,
        /// Alternative.
        reason: String,
    },
    /// The registers read as all ones because the card does not answer.
    #[error("{card}: {cause}")]
    AllOnes {
        /// Card name.
        card: String,
        /// Cause.
        cause: AllOnesCause,
    },
    /// The access may do harm.
    #[error(
        "{card}: {what}: {harm}\nhelp: name the registers there with --map or --cdma-offset, or add --force to do it anyway"
    )]
    Hazard {
        /// Card name.
        card: String,
        /// Access.
        what: String,
        /// Possible harm.
        harm: String,
    },
    /// There is no such built-in card.
    #[error("no built-in card is called `{name}`\nhelp: {hint}")]
    NoSuchCard {
        /// Requested name.
        name: String,
        /// Similar names, and all available ones.
        hint: String,
    },
    /// The card has no such BAR.
    #[error("{card}: there is no BAR {wanted}; the card has {there}")]
    NoBar {
        /// Card name.
        card: String,
        /// Requested BAR.
        wanted: String,
        /// Available BARs.
        there: String,
    },
    /// The BAR does not have the requested words.
    #[error("{card}: {source}")]
    OutsideBar {
        /// Card name.
        card: String,
        /// Requested range, and end of the BAR.
        r#source: MmioError,
    },
    /// The BAR cannot be opened.
    #[error("{card}: {source}")]
    Bar {
        /// Card name.
        card: String,
        /// Reason.
        r#source: BarError,
    },
    /// The defaults file is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A card description is invalid.
    #[error(transparent)]
    Description(#[from] fpga_sim::DescriptionError),
    /// The simulated cards could not be built.
    #[error("simulated cards: {0}")]
    SimNetwork(SimNetworkError),
    /// Cards in other processes cannot be reached.
    #[error("--link {0}")]
    Link(fpga_sim::link::LinkError),
    /// The card could not be served.
    #[error(transparent)]
    Serve(#[from] fpga_sim::served::ServeError),
    /// A fault plan is invalid.
    #[error("{}: this is not a fault plan: {problem}\nhelp: write the keys of the section `faults` of a card description", path.display())]
    Plan {
        /// File path.
        path: PathBuf,
        /// Error and its position.
        problem: String,
    },
    /// A request to a served card failed.
    #[error(transparent)]
    Control(#[from] crate::control::ControlError),
    /// SIGINT and SIGTERM cannot be handled.
    #[error("signals cannot be waited for: {0}")]
    Signals(io::Error),
    /// Opening a card through VFIO failed.
    #[error(transparent)]
    Vfio(#[from] VfioOpenError),
    /// The machine could not be examined.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A card could not be bound or released.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Checks of the machine failed; the report lists them.
    #[error("{failed} of {checks} checks failed; the report has the advice for each")]
    NotReady {
        /// Number of failed checks.
        failed: usize,
        /// Number of checks.
        checks: usize,
    },
    /// Opening a card that another process serves failed.
    #[error(transparent)]
    VfioUser(#[from] VfioUserOpenError),
    /// Opening a card failed.
    #[error(transparent)]
    Open(#[from] Error<OpenError>),
    /// Taking a resource of a card failed.
    #[error(transparent)]
    Resource(#[from] Error<ResourceError>),
    /// Waiting for a user interrupt failed.
    #[error(transparent)]
    UserInterrupt(#[from] Error<fpga_driver::user_interrupt::UserInterruptError>),
    /// A DMA transfer of a file failed.
    #[error(transparent)]
    Bulk(Error<BulkError>),
    /// A DMA transfer failed.
    #[error(transparent)]
    Dma(Error<TransferError>),
    /// A packet stream failed.
    #[error(transparent)]
    Stream(Error<StreamError>),
    /// The copy engine failed.
    #[error(transparent)]
    Cdma(#[from] Error<CdmaError>),
    /// The network interface failed.
    #[error(transparent)]
    Endpoint(#[from] Error<EndpointError>),
    /// A transfer between cards could not be started.
    #[error(transparent)]
    Send(#[from] Error<SendError>),
    /// A register access failed.
    #[error("{card}: {source}")]
    Mmio {
        /// Card name.
        card: String,
        /// Failed operation.
        r#source: MmioError,
    },
    /// Tests of the self-test failed; the report lists them.
    #[error(
        "{card}: {failed} of {tests} failed; the report has the advice for each",
        tests = quantity(*tests, "test"),
    )]
    TestsFailed {
        /// Card name.
        card: String,
        /// Number of failed tests.
        failed: usize,
        /// Number of tests.
        tests: usize,
    },
    /// A benchmark ended before its last row; the report contains the complete rows.
    #[error(
        "{card}: dma bench: {reason}, after {done} of {rows}; the report contains what was measured, and engines are stopped",
        rows = quantity(*rows, "row"),
    )]
    BenchStopped {
        /// Card name.
        card: String,
        /// Reason.
        reason: String,
        /// Number of complete rows.
        done: usize,
        /// Number of requested rows.
        rows: usize,
    },
    /// A signal stopped a replay; the report states that there was no difference so far.
    #[error(
        "{card}: stopped by a signal after {made} of {accesses} of the log",
        accesses = quantity(*accesses, "access"),
    )]
    ReplayStopped {
        /// Card name.
        card: String,
        /// Number of accesses made.
        made: u64,
        /// Number of accesses in the log.
        accesses: usize,
    },
    /// A signal stopped the self-test; the report shows its progress.
    #[error(
        "{card}: stopped by a signal after {done} of {tests}; the saved state of the card is restored",
        tests = quantity(*tests, "test"),
    )]
    TestsStopped {
        /// Card name.
        card: String,
        /// Number of completed tests.
        done: usize,
        /// Number of tests.
        tests: usize,
    },
    /// The card could not be recovered; the report lists the attempts.
    #[error("{card}: {what}")]
    NotRecovered {
        /// Card name.
        card: String,
        /// Remaining action for the user.
        what: String,
    },
    /// Recovery could not begin.
    #[error(transparent)]
    Recovery(#[from] Error<RecoveryError>),
    /// A scenario file is invalid.
    #[error(transparent)]
    Scenario(#[from] fpga_netsim::file::FileError),
    /// Scenario files are invalid; the report lists the errors of each.
    #[error(
        "{failed} of {files} not valid\nhelp: correct what the report names",
        files = quantity(*files, "scenario"),
    )]
    InvalidScenarios {
        /// Number of invalid files.
        failed: usize,
        /// Number of checked files.
        files: usize,
    },
    /// A scenario did not run to its end.
    #[error("{}: {source}", scenario.display())]
    Simulation {
        /// Scenario file.
        scenario: PathBuf,
        /// Failed run, and the reason.
        r#source: fpga_netsim::sweep::SweepError,
    },
    /// A figure could not be made.
    #[error("figure {name}: {source}")]
    Figure {
        /// Name of the figure.
        name: &'static str,
        /// Reason.
        r#source: fpga_netsim::figures::FigureError,
    },
    /// A figure could not be converted to PNG.
    #[cfg(feature = "png")]
    #[error("figure {name}, PNG: {source}")]
    Png {
        /// Name of the figure.
        name: &'static str,
        /// Reason.
        r#source: fpga_netsim::figures::picture::PngError,
    },
    /// Publishing frames failed.
    #[error(transparent)]
    Publisher(#[from] fpga_frames::PublisherError),
    /// No frame could be taken from the pool.
    #[error(transparent)]
    TakeFrame(#[from] fpga_frames::TakeError),
    /// A frame could not be published.
    #[error(transparent)]
    Publish(#[from] fpga_frames::PublishError),
    /// The data exceeds the frame size.
    #[error(transparent)]
    Frame(fpga_frames::TooLong),
    /// Joining a stream failed.
    #[error(transparent)]
    Join(#[from] fpga_frames::JoinError),
    /// Reading frames failed.
    #[error(transparent)]
    Subscriber(#[from] fpga_frames::SubscriberError),
    /// The publisher of the frames is gone.
    #[error("after {frames}: {source}", frames = quantity(*frames, "frame"))]
    PublisherLost {
        /// Number of received frames.
        frames: u64,
        /// Error that showed it.
        r#source: fpga_frames::SubscriberError,
    },
    /// Frames do not match their checksums.
    #[error(
        "wrong checksum: {damaged} of {frames}; the report is on standard output",
        frames = quantity(*frames, "frame"),
    )]
    DamagedFrames {
        /// Number of damaged frames.
        damaged: u64,
        /// Number of frames.
        frames: u64,
    },
    /// The publisher's name cannot be resolved.
    #[error("{place}: {reason}\nhelp: check the name, or give the publisher's address")]
    UnknownPublisher {
        /// Requested name.
        place: String,
        /// System error.
        reason: String,
    },
    /// Accepted frames did not arrive before the stream ended.
    #[error(
        "of the accepted frames, {frames} did not arrive at the end, at {subscribers} of the subscribers: the report on standard output has each of them",
        frames = quantity(*frames, "frame"),
    )]
    Undelivered {
        /// Number of frames.
        frames: u64,
        /// Number of subscribers that miss frames.
        subscribers: usize,
    },
    /// Writing to standard output failed.
    #[error("standard output: {0}")]
    Output(io::Error),
}

/// Returns the end that a signal requested, if that is the reason of a channel's error.
fn stopped(error: &ChannelError, place: &ErrorPlace, done: Option<u64>) -> Option<CliError> {
    matches!(error, ChannelError::Cancelled { .. })
        .then(|| CliError::Stopped { what: place.to_string(), done })
}

impl From<Error<TransferError>> for CliError {
    fn from(error: Error<TransferError>) -> Self {
        match &error.kind {
            TransferError::Channel(cause) => stopped(cause, &error.place, None),
            _ => None,
        }
        .unwrap_or(Self::Dma(error))
    }
}

impl From<Error<StreamError>> for CliError {
    fn from(error: Error<StreamError>) -> Self {
        match &error.kind {
            StreamError::Channel(cause) => stopped(cause, &error.place, None),
            _ => None,
        }
        .unwrap_or(Self::Stream(error))
    }
}

impl From<Error<BulkError>> for CliError {
    fn from(error: Error<BulkError>) -> Self {
        let Error { kind, place } = error;
        match kind {
            BulkError::Stream { done, cause } => match cause.downcast::<Self>() {
                Ok(inner) => inner.after(done),
                Err(cause) => Self::Bulk(Error { kind: BulkError::Stream { done, cause }, place }),
            },
            BulkError::Channel { done, cause } => stopped(&cause, &place, Some(done))
                .unwrap_or_else(|| Self::Bulk(Error { kind: BulkError::Channel { done, cause }, place })),
            kind => Self::Bulk(Error { kind, place }),
        }
    }
}

impl CliError {
    /// Error of a file.
    pub fn file(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::File { path: path.to_owned(), action, source }
    }

    /// Returns what to do about the error, in terms of the command line; `None` if the message has it, or there is nothing to advise.
    #[must_use]
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::Host(error) => machine_advice::host(error),
            Self::Bind(error) => machine_advice::bind(error),
            Self::Vfio(error) => machine_advice::vfio(error),
            Self::VfioUser(error) => machine_advice::vfio_user(error),
            Self::Open(error) => match &error.kind {
                OpenError::Vfio(error) => machine_advice::vfio(error),
                OpenError::VfioUser(error) => machine_advice::vfio_user(error),
                _ => error.advice().map(|advice| advice::render(&advice).into()),
            },
            Self::Memory { source, .. } => source.help(),
            Self::Network { source, .. } => machine_advice::transfer(source),
            Self::Mmio { source, .. } | Self::OutsideBar { source, .. } => source.help(),
            Self::Bar { source, .. } => source.help(),
            Self::Run(xdma_compat::RunError::Nested { .. }) => {
                Some("start both programs below one `fpgactl run`".into())
            }
            _ => self.advice().map(|advice| advice::render(&advice).into()),
        }
        .map(Into::into)
    }

    /// Returns the advice of the library's error.
    fn advice(&self) -> Option<Advice> {
        match self {
            Self::AllOnes { cause, .. } => Some(cause.advice()),
            Self::Open(error) => error.advice(),
            Self::Resource(error) => error.advice(),
            Self::UserInterrupt(error) => error.advice(),
            Self::Bulk(error) => error.advice(),
            Self::Dma(error) => error.advice(),
            Self::Stream(error) => error.advice(),
            Self::Cdma(error) => error.advice(),
            Self::Endpoint(error) => error.advice(),
            Self::Send(error) => error.advice(),
            Self::Recovery(error) => error.advice(),
            Self::Publisher(error) => error.advice(),
            Self::TakeFrame(error) => error.advice(),
            Self::Publish(error) => error.advice(),
            Self::Join(error) => error.advice(),
            Self::Subscriber(source) | Self::PublisherLost { source, .. } => source.advice(),
            _ => None,
        }
    }

    /// Returns the reason of an early end, without the state that the command leaves.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Stopped { what, .. } | Self::Interrupted { what, .. } => {
                format!("{what}: stopped by a signal")
            }
            Self::TimedOut { what, limit } => format!("{what}: not done after {limit:?} (--timeout)"),
            other => Shown::from(other).in_one_line(),
        }
    }

    /// Adds the progress in bytes if this is the end that a signal requested.
    #[must_use]
    pub fn after(self, bytes: u64) -> Self {
        match self {
            Self::Stopped { what, done } => Self::Stopped { what, done: Some(done.unwrap_or(0).max(bytes)) },
            other => other,
        }
    }

    /// Unpacks an error of this program's streams: the error it carries, or itself with the name of its file.
    pub fn carried(path: &Path, action: &'static str, error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(inner) => inner,
            Err(source) => Self::file(path, action, source),
        }
    }

    /// Returns whether the report on standard output contains this failure already.
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
                | Self::Received { bytes: 1.., .. }
        )
    }

    /// Exit status: 2 for wrong usage, 0 if the reader of the data closed the pipe, else 1.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::BrokenPipe { .. } => 0,
            Self::Program { status } => *status,
            _ if self.is_usage() => 2,
            _ => 1,
        }
    }

    /// Returns whether only the command line is wrong, so that a corrected one would succeed: an unknown name (of a register, a field, a
    /// channel, a BAR, a built-in card), a number or size that does not fit its use, options that contradict each other or the card. `clap`
    /// uses the same status for the errors that it detects.
    ///
    /// Every other error is a failure or a refusal in spite of a valid command line: objects outside the program that are missing (files,
    /// sockets, functions on the bus), the content of a file, an action that needs `--force`, and an action that a card or a peer did not
    /// perform.
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
            | Self::Resource(Error {
                kind: ResourceError::NoSuchChannel { .. } | ResourceError::NoSuchUserInterrupt { .. },
                ..
            })
            | Self::Recovery(Error { kind: RecoveryError::NoSuchChannel { .. }, .. })
            // Sizes from command-line options that contradict each other or the card.
            | Self::Endpoint(Error { kind: EndpointError::Config(_) | EndpointError::Option { .. }, .. })
            | Self::Publisher(
                fpga_frames::PublisherError::Geometry { .. } | fpga_frames::PublisherError::Option { .. },
            )
            // As for a publisher. Whether the publisher's frames fit into this card does not depend on the command line.
            | Self::Join(fpga_frames::JoinError::Geometry {
                cause: fpga_frames::GeometryError::Slots { .. },
                ..
            }) => true,
            Self::Host(error) => error.is_usage(),
            _ => false,
        }
    }
}

impl From<SimNetworkError> for CliError {
    fn from(error: SimNetworkError) -> Self {
        Self::SimNetwork(error)
    }
}

impl From<fpga_sim::link::LinkError> for CliError {
    fn from(error: fpga_sim::link::LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<&CliError> for Shown {
    fn from(error: &CliError) -> Self {
        let text = error.to_string();
        match text.split_once(HELP) {
            Some((problem, help)) => Self { problem: problem.to_owned(), help: Some(help.to_owned()) },
            None => Self { problem: text, help: error.help() },
        }
    }
}

/// Adds the file's name to an error. Interruptions stay unchanged: the caller retries.
pub(crate) fn wrap(path: &Path, action: &'static str, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::Interrupted => error,
        _ => io::Error::other(CliError::file(path, action, error)),
    }
}
