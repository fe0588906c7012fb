//! Advice of errors as data: each front end renders it in its own words.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use fpga_pci::{DmaAccess, PciAddress};

/// Remedy of an error ([`Error::advice`](crate::Error::advice)).
///
/// Programs match on it; a front end (a command line, a language binding) renders it by an exhaustive match in terms that its users have.
/// `Display` writes it in terms of this package. A new variant is a breaking change: a front end has to find words for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    /// An instruction that is the same for every front end: it concerns the machine, the bitstream, the network or the caller's data.
    Text(Cow<'static, str>),
    /// Name the BAR with the XDMA registers: [`OpenOptions::dma_bar`](crate::OpenOptions::dma_bar).
    StateDmaBar,
    /// Name the offset of the CDMA registers: [`OpenOptions::cdma_offset`](crate::OpenOptions::cdma_offset).
    StateCdmaOffset,
    /// Say that the design has a network interface: [`OpenOptions::network_interface`](crate::OpenOptions::network_interface).
    StateNetworkInterface,
    /// Open the card for use, without [`OpenOptions::observe`](crate::OpenOptions::observe).
    OpenForUse,
    /// Build the program with simulated cards: feature `sim`.
    EnableSimulator,
    /// Name a card in one of the known forms: [`CardSpec`](crate::CardSpec).
    NameCard,
    /// Bind the function to vfio-pci.
    BindToVfio(PciAddress),
    /// Install the program that owns shared cards, or name its path in the environment.
    InstallOwner,
    /// Build the simulator's program of the design, in this folder.
    BuildSimulation(PathBuf),
    /// Open the card again when it is back: [`Card::open`](crate::Card::open).
    ReopenCard,
    /// Let the server of the card run, or allow it more time for an answer:
    /// [`AccessOptions::message_timeout`](crate::AccessOptions::message_timeout).
    AllowSlowServer,
    /// Reset the card by a hot reset of its bus: [`recovery::recover`](crate::recovery::recover).
    ResetBus,
    /// The same for an engine that waits for the design: reset the card, and find the AXI slave or stream that does not answer.
    ResetHungEngine,
    /// Look at the card's properties and choose a value that fits: [`Card::info`](crate::Card::info).
    SeeCardInfo,
    /// Take the channels as streams: [`Card::h2c_stream`](crate::Card::h2c_stream), [`Card::c2h_stream`](crate::Card::c2h_stream).
    UseStreamChannel,
    /// Take the channels as memory mapped: [`Card::h2c`](crate::Card::h2c), [`Card::c2h`](crate::Card::c2h).
    UseMemoryChannel,
    /// Drop the other handle of the resource, which has one owner at a time.
    DropOtherHandle,
    /// Do not request credit mode: [`RunMode::Batch`](crate::RunMode::Batch) is the default.
    UseBatchMode,
    /// Choose other stream buffers: [`C2hStreamOptions`](crate::stream::C2hStreamOptions).
    ChooseStreamBuffers,
    /// Use more or larger stream buffers: [`C2hStreamOptions`](crate::stream::C2hStreamOptions).
    EnlargeStreamBuffers,
    /// Take the buffer from this card: [`Card::buffer`](crate::Card::buffer).
    TakeBufferFromCard,
    /// Map the memory with this access, or with both: [`Card::map_memory`](crate::Card::map_memory).
    MapWithAccess(DmaAccess),
    /// Register the memory with this channel: [`H2cChannel::register_memory`](crate::H2cChannel::register_memory).
    RegisterMemory,
    /// Take completions, then submit again.
    TakeCompletions,
    /// Split the transfer.
    SplitTransfer,
    /// Submit the same transfer again.
    Resubmit,
    /// Wait longer, or abort the channel: [`WaitOptions::timeout`](crate::WaitOptions::timeout),
    /// [`H2cChannel::abort`](crate::H2cChannel::abort).
    WaitLongerOrAbort,
    /// Wait longer: [`WaitOptions::timeout`](crate::WaitOptions::timeout).
    WaitLonger,
    /// Wait again, or abort: [`H2cChannel::abort`](crate::H2cChannel::abort).
    WaitAgainOrAbort,
    /// Drop the handles of the card's parts first, or force the recovery:
    /// [`RecoveryOptions::force`](crate::recovery::RecoveryOptions::force).
    DropHandlesOrForce,
    /// Drop every handle of the card, then open it again.
    DropCard,
    /// Wait for the transfer, or cancel it: [`H2cChannel::cancel`](crate::H2cChannel::cancel).
    WaitOrCancel,
    /// Enable interrupts before the channel is taken, or poll: [`Card::enable_interrupts`](crate::Card::enable_interrupts).
    EnableInterrupts,
    /// Name the user interrupt that the CDMA engine is wired to, or poll:
    /// [`CdmaRingOptions::user_interrupt`](crate::CdmaRingOptions::user_interrupt).
    StateRingInterrupt,
    /// Enable the user interrupt: [`UserInterrupt::enable`](crate::UserInterrupt::enable).
    EnableUserInterrupt,
    /// Check that the design raises the user interrupt: [`Card::user_interrupt_states`](crate::Card::user_interrupt_states).
    CheckUserInterrupt,
    /// Start the stopped stream anew: [`C2hStream::abort`](crate::C2hStream::abort).
    RestartStream,
    /// Give a shorter length.
    ShortenCopy,
    /// Copy the rest.
    CopyRest,
    /// Align both addresses, or lend channels: [`Cdma::set_bounce_channels`](crate::Cdma::set_bounce_channels).
    AlignOrLendChannels,
    /// Lend an H2C channel that carries the descriptors: [`DescriptorPath`](crate::DescriptorPath).
    LendChannel,
    /// Drop the endpoint and open it again: `Endpoint::open`.
    ReopenEndpoint,
    /// Request one of these schemes: `EndpointOptions`.
    ChooseScheme,
    /// Open the endpoint with this scheme, too, or send by another one:
    /// `EndpointOptions::other_schemes`.
    OpenWithScheme,
    /// Choose other window sizes and samples: `EndpointOptions::tuning`.
    ChooseTuning,
    /// State the alignment of the CDMA engine:
    /// `EndpointOptions::source_alignment`.
    StateSourceAlignment,
    /// Choose another place for the endpoint's descriptors: `EndpointOptions::chain`.
    PlaceChain,
    /// Choose a range in the memory that transfers may use: `Endpoint::usable_memory`.
    ChooseUsableRange,
    /// Close a region first: `Endpoint::close_region`.
    CloseRegion,
    /// Poll more often, or use a larger event ring: `EndpointOptions::event_entries`.
    EnlargeEventRing,
    /// Use fewer slots, or a larger event ring:
    /// `EndpointOptions::event_entries`.
    FewerSlotsOrLargerEventRing,
    /// Send without a notification, or with one that needs no event ring: `SendNotify`.
    ChooseNotification,
    /// Choose shorter segments: `EndpointOptions::segment_size`.
    ShortenSegments,
    /// Give up earlier here, or keep entries for longer there: `EndpointOptions::give_up`,
    /// `EndpointOptions::registry_timeout`.
    MatchTimeouts,
    /// Ask the node again if it was restarted: `Endpoint::wait_peer`.
    AskPeerAgain,
    /// Wait until the system has random numbers: keys of memory regions are random.
    WaitForRandomNumbers,
    /// Open the endpoint before interrupts are enabled.
    OpenEndpointBeforeInterrupts,
    /// Wait for a read to end: there is a limit to reads in progress.
    WaitForRead,
    /// Use the copy engine for copies inside the card: [`Cdma`](crate::Cdma).
    UseCopyEngine,
    /// Test the network with a second card: `Endpoint` on each.
    TestWithSecondCard,
    /// Wait by interrupt or by polling, not by [`WaitMode::Hybrid`](crate::WaitMode::Hybrid).
    AvoidHybridWaits,
    /// Keep [`ChannelOptions::long_blocks`](crate::ChannelOptions::long_blocks) off.
    AvoidLongBlocks,
    /// Test the card: package `fpga-diag`.
    TestCard,
}

impl Advice {
    /// Creates an instruction that is the same for every front end.
    pub const fn text(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text(text) => text,
            Self::StateDmaBar => "name the BAR with OpenOptions::dma_bar",
            Self::StateCdmaOffset => "give the offset of its registers in the user BAR with OpenOptions::cdma_offset",
            Self::StateNetworkInterface => "if the design has one, say so with OpenOptions::network_interface",
            Self::OpenForUse => "open the card without OpenOptions::observe",
            Self::EnableSimulator => {
                "enable the feature `sim` of fpga-driver, or name a PCI address or a vfio-user socket"
            }
            Self::NameCard => "use a PCI address, mock, mock:FILE.yaml, mock:NAME, vfio-user:SOCKET, rtl:FOLDER or shared:CARD",
            Self::InstallOwner => "install the program that shares cards, or set the environment variable FPGACTL to its path",
            Self::BindToVfio(address) => return write!(f, "bind {address} to vfio-pci"),
            Self::BuildSimulation(folder) => {
                return write!(f, "build the design's simulation in {}", folder.display());
            }
            Self::ReopenCard => "open the card again when it is back",
            Self::AllowSlowServer => {
                "let the card's server run, or allow it more time for an answer: AccessOptions::message_timeout, FPGA_MESSAGE_TIMEOUT"
            }
            Self::ResetHungEngine => {
                "reset the card with recovery::recover up to RecoveryLevel::Bus, then open it again; an engine that hangs again waits for the design: an AXI slave or stream does not answer"
            }
            Self::ResetBus => {
                "reset the card with recovery::recover up to RecoveryLevel::Bus, then open it again"
            }
            Self::SeeCardInfo => "choose a value that fits the card: see Card::info",
            Self::UseStreamChannel => "take the channel with Card::h2c_stream or Card::c2h_stream",
            Self::UseMemoryChannel => "take the channel with Card::h2c or Card::c2h",
            Self::DropOtherHandle => "drop the other handle first",
            Self::UseBatchMode => "use RunMode::Batch, the default",
            Self::ChooseStreamBuffers => {
                "set 2 to 65536 buffers (a power of two) of a multiple of 64 bytes, at most 64 MiB, in C2hStreamOptions"
            }
            Self::EnlargeStreamBuffers => "use more or larger buffers (C2hStreamOptions)",
            Self::TakeBufferFromCard => "take the buffer from this card with Card::buffer",
            Self::MapWithAccess(access) => {
                return write!(f, "map the memory with DmaAccess::{access:?}, or with DmaAccess::Both");
            }
            Self::RegisterMemory => "register the memory with this channel: each channel has its own",
            Self::TakeCompletions => "poll and take completions, then submit again",
            Self::SplitTransfer => "split the transfer, or take the channel with a larger ring (ChannelOptions)",
            Self::Resubmit => "submit it again",
            Self::WaitLongerOrAbort => "wait longer (WaitOptions::timeout), or abort",
            Self::WaitLonger => "wait longer",
            Self::WaitAgainOrAbort => "wait again, or abort",
            Self::DropHandlesOrForce => {
                "drop the handles first, or set RecoveryOptions::force: it ends their transfers, and a reset makes them stale"
            }
            Self::DropCard => "drop every handle of the card, then open it again",
            Self::WaitOrCancel => "wait for the transfer, or cancel it",
            Self::EnableInterrupts => "call Card::enable_interrupts before taking the channel, or wait by polling",
            Self::StateRingInterrupt => {
                "call Card::enable_interrupts, name the engine's line (CdmaRingOptions::user_interrupt), drop your handle of it; or poll"
            }
            Self::EnableUserInterrupt => "call UserInterrupt::enable before waiting",
            Self::CheckUserInterrupt => {
                "wait longer, or check that the design raises usr_irq_req (Card::user_interrupt_states)"
            }
            Self::RestartStream => "call C2hStream::abort to start it anew",
            Self::ShortenCopy => "give a shorter length",
            Self::CopyRest => "copy the rest, with more time if needed",
            Self::AlignOrLendChannels => {
                "align both addresses to the engine's data width (128 bytes suit every build), or call Cdma::set_bounce_channels"
            }
            Self::LendChannel => "lend an H2C channel to carry the descriptors (DescriptorPath)",
            Self::ReopenEndpoint => "drop the endpoint and open it again",
            Self::ChooseScheme => "choose a supported scheme in EndpointOptions, or load another build",
            Self::OpenWithScheme => {
                "name one of these with SendOptions::scheme, or add it with EndpointOptions::other_schemes"
            }
            Self::ChooseTuning => {
                "set windows of 1 to 128 packets (Selective: 512), 1 to 256 samples and times above 0 in EndpointOptions::tuning"
            }
            Self::StateSourceAlignment => {
                "check the sources; for a build without data realignment set EndpointOptions::source_alignment; open the endpoint again"
            }
            Self::PlaceChain => "check the place of the descriptors (EndpointOptions::chain), and open the endpoint again",
            Self::ChooseUsableRange => "choose a range inside Endpoint::usable_memory",
            Self::CloseRegion => "close a region first",
            Self::EnlargeEventRing => {
                "poll more often, or set a larger EndpointOptions::event_entries, and open the endpoint again"
            }
            Self::FewerSlotsOrLargerEventRing => {
                "join with fewer slots, or open the endpoint with more EndpointOptions::event_entries (up to 65536)"
            }
            Self::ChooseNotification => "use Notify::Receiver or Notify::None",
            Self::ShortenSegments => "open this endpoint with a shorter EndpointOptions::segment_size",
            Self::MatchTimeouts => {
                "set a shorter EndpointOptions::give_up here, or a longer EndpointOptions::registry_timeout at the node"
            }
            Self::AskPeerAgain => "if the node was restarted, ask it again with Endpoint::wait_peer",
            Self::WaitForRandomNumbers => "wait until the system has random numbers, which are the keys of regions",
            Self::OpenEndpointBeforeInterrupts => "open the endpoint before interrupts are enabled: it polls then",
            Self::WaitForRead => "wait for a read to end",
            Self::UseCopyEngine => "copy with Cdma, or use other addresses",
            Self::TestWithSecondCard => "send from one card to another",
            Self::AvoidHybridWaits => "wait by interrupt or by polling, not by WaitMode::Hybrid",
            Self::AvoidLongBlocks => "keep ChannelOptions::long_blocks off, the default, or descriptors at 4 KiB",
            Self::TestCard => "open the endpoint again; if that does not help, test the card (package fpga-diag)",
        })
    }
}
