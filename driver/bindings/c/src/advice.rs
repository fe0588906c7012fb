//! Advice of the driver in terms of this interface.

use fpga_driver::Advice;

/// Returns the advice as a C program can follow it: by functions and options of the header, or by the command-line tool for what a program
/// does not do.
pub(crate) fn render(advice: &Advice) -> String {
    match advice {
        Advice::Text(text) => text,
        Advice::NameCard => "use a PCI address, mock, mock:FILE.yaml, mock:NAME, vfio-user:SOCKET, rtl:FOLDER or shared:CARD",
        Advice::InstallOwner => "install the program that shares cards, or set the environment variable FPGACTL to its path",
        Advice::BindToVfio(address) => return format!("bind {address} to vfio-pci"),
        Advice::BuildSimulation(folder) => {
            return format!("build the design's simulation in {}, see docs/guide/rtl.md", folder.display());
        }
        Advice::EnableSimulator => "build the library with simulated cards, or name another card",
        Advice::OpenForUse => "open the card without observe in fpga_open_options",
        Advice::AllowSlowServer => {
            "let the card's server run, or set FPGA_MESSAGE_TIMEOUT to the seconds that an answer may take"
        }
        Advice::ReopenCard => "open the card again with fpga_open when it is back",
        Advice::ResetHungEngine => {
            "reset the card (fpga_recover or fpga_recover_named, at_least = FPGA_RECOVERY_BUS), then open it again; an engine that hangs again waits for the design: an AXI slave or stream does not answer"
        }
        Advice::ResetBus => {
            "reset the card (fpga_recover or fpga_recover_named, at_least = FPGA_RECOVERY_BUS), then open it again"
        }
        Advice::SeeCardInfo => "choose a range inside the card's memory: fpga_get_info has its first range",
        Advice::ChooseUsableRange => "choose a range inside the memory of fpga_endpoint_get_info",
        Advice::UseStreamChannel => "use fpga_stream_open",
        Advice::UseMemoryChannel => "use fpga_channel_open",
        Advice::DropOtherHandle => "close the other handle first",
        Advice::TakeBufferFromCard | Advice::RegisterMemory | Advice::MapWithAccess(_) => {
            "create the buffer for this card with fpga_buffer_create or fpga_buffer_register"
        }
        Advice::TakeCompletions => "call the poll function of the handle and take what has ended, then try again",
        Advice::SplitTransfer => {
            "split the transfer, or open the channel with more descriptors (fpga_channel_open_with)"
        }
        Advice::Resubmit => "submit it again with fpga_submit",
        Advice::WaitLonger => "wait longer",
        Advice::WaitLongerOrAbort | Advice::WaitAgainOrAbort => {
            "wait longer with fpga_wait (a stream that receives: call the function again), or call fpga_abort"
        }
        Advice::WaitOrCancel => "wait for the transfer with fpga_wait, or end it with fpga_cancel or fpga_abort",
        Advice::DropHandlesOrForce => {
            "close the handles of the card's parts first, or set force in fpga_recovery_options"
        }
        Advice::DropCard => "close every handle of the card, then open it again with fpga_open",
        Advice::EnableInterrupts => {
            "call fpga_enable_interrupts before the channel is opened, or use FPGA_WAIT_POLL"
        }
        Advice::StateRingInterrupt => {
            "set user_interrupt_plus_1 in fpga_cdma_ring_options, close your handle of that line, or use FPGA_WAIT_POLL"
        }
        Advice::EnableUserInterrupt => "call fpga_interrupt_enable before waiting",
        Advice::CheckUserInterrupt => {
            "wait longer, or check with fpga_get_user_lines that the design raises the line"
        }
        Advice::RestartStream => "call fpga_abort to start it anew",
        Advice::ChooseStreamBuffers => {
            "set buffers (2 to 65536, a power of two) and buffer_size (a multiple of 64, at most 64 MiB) in fpga_stream_options"
        }
        Advice::EnlargeStreamBuffers => "set more buffers or a larger buffer_size in fpga_stream_options",
        Advice::UseBatchMode => "use FPGA_RUN_BATCH",
        Advice::ShortenCopy => "give a shorter length",
        Advice::CopyRest => "copy the rest, with more time if needed",
        Advice::AlignOrLendChannels => {
            "align both addresses to the engine's data width: multiples of 128 bytes suit every build"
        }
        Advice::StateCdmaOffset => "use fpga_cdma_open_at with the offset of its registers in the user BAR",
        Advice::TestCard => "open the endpoint again; if that does not help, run the self-test of the card, see docs/guide/when-a-card-hangs.md",
        Advice::ReopenEndpoint => "close the endpoint and open it again with fpga_endpoint_open",
        Advice::ChooseScheme => "name a supported scheme in fpga_endpoint_options, or load another build",
        Advice::OpenWithScheme => {
            "name one of these in fpga_send_options, or add it to other_schemes of fpga_endpoint_options"
        }
        Advice::ChooseTuning => "choose another window in fpga_endpoint_options",
        Advice::StateSourceAlignment => {
            "check the sources; for a build without data realignment set source_alignment in fpga_endpoint_options; open the endpoint again"
        }
        Advice::CloseRegion => "close a region first with fpga_region_close",
        Advice::EnlargeEventRing => {
            "poll more often, or set more event_entries in fpga_endpoint_options, and open the endpoint again"
        }
        Advice::FewerSlotsOrLargerEventRing => {
            "join with fewer slots, or open the endpoint with more event_entries (up to 65536)"
        }
        Advice::ChooseNotification => "use FPGA_NOTIFY_RECEIVER or FPGA_NOTIFY_NONE",
        Advice::ShortenSegments => "set a shorter segment_size in fpga_endpoint_options",
        Advice::MatchTimeouts => {
            "set a shorter give_up_ns here, or a longer registry_timeout_ns at the node, in fpga_endpoint_options"
        }
        Advice::AskPeerAgain => "if the node was restarted, ask it again with fpga_endpoint_wait_peer",
        Advice::WaitForRandomNumbers => {
            "wait until the system has random numbers, which are the keys of regions"
        }
        Advice::OpenEndpointBeforeInterrupts => {
            "call fpga_endpoint_open before fpga_enable_interrupts: it polls then"
        }
        Advice::WaitForRead => "wait for a read to end with fpga_endpoint_wait_read",
        Advice::UseCopyEngine => "copy with fpga_cdma_copy, or use other addresses",
        Advice::AvoidHybridWaits => "use FPGA_WAIT_INTERRUPT or FPGA_WAIT_POLL",
        Advice::AvoidLongBlocks => "leave long_blocks of fpga_channel_options 0",
        Advice::TestWithSecondCard => "send from one card to another",
        Advice::PlaceChain => {
            "check that the end of the card's memory can be written, and open the endpoint again"
        }
        Advice::StateDmaBar => "set dma_bar_plus_1 in fpga_open_options",
        Advice::StateNetworkInterface => {
            "if the design has one, set network_interface to FPGA_INTERFACE_EXPECT in fpga_open_options"
        }
        Advice::LendChannel => "set use_channel in fpga_cdma_ring_options",
    }
    .to_owned()
}
