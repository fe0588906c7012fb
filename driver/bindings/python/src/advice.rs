//! Advice of the driver in terms of Python.

use fpga_driver::{Advice, DmaAccess};

/// Returns the advice as a Python program can follow it.
pub(crate) fn render(advice: &Advice) -> String {
    match advice {
        Advice::Text(text) => text,
        Advice::BindToVfio(address) => {
            return format!("bind {address} to the driver vfio-pci, see docs/guide/first-card.md");
        }
        Advice::BuildSimulation(folder) => {
            return format!("build the design's simulation in {}, see docs/guide/rtl.md", folder.display());
        }
        Advice::InstallOwner => "install the program that shares cards, or set the environment variable FPGACTL to its path",
        Advice::NameCard => "use a PCI address, 'mock', 'mock:FILE.yaml', 'mock:NAME', 'vfio-user:SOCKET', 'rtl:FOLDER' or 'shared:CARD'",
        Advice::EnableSimulator => "install a build with simulated cards, or name another card",
        Advice::StateDmaBar => "name the BAR: fpga_rdma.open(name, dma_bar=N)",
        Advice::StateCdmaOffset => {
            "give the offset of its registers in the user BAR: fpga_rdma.open(name, cdma_offset=N)"
        }
        Advice::StateNetworkInterface => {
            "if the design has one, say so: fpga_rdma.open(name, network_interface=True)"
        }
        Advice::OpenForUse => "open the card without observe=True",
        Advice::AllowSlowServer => {
            "let the card's server run, or set FPGA_MESSAGE_TIMEOUT to the seconds that an answer may take"
        }
        Advice::ReopenCard => "open the card again with fpga_rdma.open when it is back",
        Advice::ResetHungEngine => {
            "reset the card with card.recover('bus'), then open it again; an engine that hangs again waits for the design: an AXI slave or stream does not answer"
        }
        Advice::ResetBus => "reset the card with card.recover('bus'), then open it again",
        Advice::SeeCardInfo => "choose a value that fits the card: see card.info",
        Advice::UseStreamChannel => "use card.h2c_stream(n) or card.c2h_stream(n)",
        Advice::UseMemoryChannel => "use card.h2c[n] or card.c2h[n]",
        Advice::DropOtherHandle => "close the other object first, or leave its `with` block",
        Advice::UseBatchMode => "use run_mode='batch', the default",
        Advice::ChooseStreamBuffers => {
            "choose 2 to 65536 buffers (a power of two) of a multiple of 64 bytes, at most 64 MiB: card.c2h_stream(n, buffers=..., buffer_size=...)"
        }
        Advice::EnlargeStreamBuffers => {
            "use more or larger buffers: card.c2h_stream(n, buffers=..., buffer_size=...)"
        }
        Advice::TakeBufferFromCard => "allocate the buffer from this card: card.allocate(shape, dtype)",
        Advice::MapWithAccess(DmaAccess::ReadByDevice) => "register the memory with access='read' or 'both'",
        Advice::MapWithAccess(DmaAccess::WriteByDevice) => "register the memory with access='write' or 'both'",
        Advice::MapWithAccess(_) => "register the memory with access='both'",
        Advice::RegisterMemory => "allocate it with card.allocate, or register it with card.register",
        Advice::TakeCompletions => "call poll() on the channel, then submit again",
        Advice::SplitTransfer => "split the transfer, or use a longer ring: card.h2c.open(n, descriptors=...)",
        Advice::Resubmit => "submit it again",
        Advice::WaitLongerOrAbort => "wait longer (timeout=...), or call abort() on the channel",
        Advice::WaitLonger => "wait longer (timeout=...)",
        Advice::WaitAgainOrAbort => "wait again, or call abort() on the channel",
        Advice::DropHandlesOrForce => {
            "close the objects first, or call card.recover(level, force=True): it ends their transfers"
        }
        Advice::DropCard => "close every object of the card, then open it again with fpga_rdma.open",
        Advice::WaitOrCancel => "wait for the transfer, or cancel it",
        Advice::EnableInterrupts => "open the card with interrupts=True, or wait by polling",
        Advice::StateRingInterrupt => "open the card with interrupts=True, or poll",
        Advice::EnableUserInterrupt => "call enable() on the interrupt before waiting",
        Advice::CheckUserInterrupt => "wait longer (timeout=...), or check that the design raises usr_irq_req",
        Advice::RestartStream => "call abort() on the stream to start it anew",
        Advice::ShortenCopy => "give a shorter length",
        Advice::CopyRest => "copy the rest, with more time if needed",
        Advice::AlignOrLendChannels => {
            "align both addresses to the engine's data width: multiples of 128 bytes suit every build"
        }
        Advice::LendChannel => "lend an H2C channel to carry the descriptors",
        Advice::ReopenEndpoint => "close the endpoint and open it again: card.endpoint()",
        Advice::ChooseScheme => "choose a supported scheme: card.endpoint(scheme=...)",
        Advice::OpenWithScheme => {
            "name one of these: send(..., scheme=...), or add it: card.endpoint(other_schemes=[...])"
        }
        Advice::ChooseTuning => {
            "set windows of 1 to 128 packets ('selective': 512), 1 to 256 samples and times above 0"
        }
        Advice::StateSourceAlignment => {
            "check the sources; for a build without data realignment open card.endpoint(source_alignment=...)"
        }
        Advice::PlaceChain => "check the place of the descriptors, and open the endpoint again",
        Advice::ChooseUsableRange => "choose a range inside endpoint.usable_memory",
        Advice::CloseRegion => "close a region first",
        Advice::EnlargeEventRing => "use a larger event ring: card.endpoint(event_ring=...)",
        Advice::FewerSlotsOrLargerEventRing => "use fewer notification slots or a larger event ring",
        Advice::ChooseNotification => "choose another notification: send(..., notify=...)",
        Advice::ShortenSegments => "use shorter segments: card.endpoint(segment=...)",
        Advice::MatchTimeouts => "use the same timeouts at both ends",
        Advice::AskPeerAgain => "ask the peer again",
        Advice::WaitForRandomNumbers => "wait until the system has random numbers, which are the keys of regions",
        Advice::OpenEndpointBeforeInterrupts => "open the endpoint before the user interrupts",
        Advice::WaitForRead => "wait for a read to end, then read again",
        Advice::UseCopyEngine => "use a design with a CDMA engine",
        Advice::TestWithSecondCard => "test with a second card",
        Advice::AvoidHybridWaits => "wait by polling or by interrupt",
        Advice::AvoidLongBlocks => "use shorter transfers",
        Advice::TestCard => "run the self-test of the card, see docs/guide/when-a-card-hangs.md",
    }
    .to_owned()
}
