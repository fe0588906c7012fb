//! Advice of the driver in terms of this interface.

use fpga_driver::Advice;

/// Returns the advice as a C program can follow it. Functions that the interface does not have yet are not named.
pub(crate) fn render(advice: &Advice) -> String {
    match advice {
        Advice::Text(text) => text,
        Advice::NameCard => "use a PCI address, mock, mock:FILE.yaml, mock:NAME or vfio-user:SOCKET",
        Advice::BindToVfio(address) => return format!("bind {address} to vfio-pci"),
        Advice::EnableSimulator => "build the library with simulated cards, or name another card",
        Advice::OpenForUse | Advice::ReopenCard => "open the card again with fpga_open when it is back",
        Advice::ResetBus => "reset the card (fpgactl reset --level bus), then open it again with fpga_open",
        Advice::SeeCardInfo | Advice::ChooseUsableRange => {
            "choose a range inside the card's memory: fpga_get_info has its first range"
        }
        Advice::UseStreamChannel => "use a bitstream with memory-mapped channels",
        Advice::UseMemoryChannel => "use fpga_channel_open",
        Advice::DropOtherHandle => "close the other handle first (fpga_channel_close)",
        Advice::TakeBufferFromCard | Advice::RegisterMemory | Advice::MapWithAccess(_) => {
            "create the buffer with fpga_buffer_create for this channel"
        }
        Advice::TakeCompletions => "call fpga_poll, then submit again",
        Advice::SplitTransfer => "split the transfer",
        Advice::Resubmit => "submit it again with fpga_submit",
        Advice::WaitLonger => "wait longer",
        Advice::WaitLongerOrAbort | Advice::WaitAgainOrAbort => {
            "wait longer with fpga_wait, or call fpga_abort"
        }
        Advice::WaitOrCancel => "wait for the transfer with fpga_wait, or end it with fpga_abort",
        Advice::DropHandlesOrForce | Advice::DropCard => {
            "close every handle of the card, then open it again with fpga_open"
        }
        Advice::EnableInterrupts | Advice::StateRingInterrupt => "wait by polling",
        Advice::ShortenCopy => "give a shorter length",
        Advice::CopyRest => "copy the rest, with more time if needed",
        Advice::AlignOrLendChannels => {
            "align both addresses to the engine's data width: multiples of 128 bytes suit every build"
        }
        Advice::TestCard => "test the card (fpgactl validate)",
        Advice::StateDmaBar
        | Advice::StateCdmaOffset
        | Advice::StateNetworkInterface
        | Advice::UseBatchMode
        | Advice::ChooseStreamBuffers
        | Advice::EnlargeStreamBuffers
        | Advice::EnableUserInterrupt
        | Advice::CheckUserInterrupt
        | Advice::RestartStream
        | Advice::LendChannel
        | Advice::ReopenEndpoint
        | Advice::ChooseScheme
        | Advice::OpenWithScheme
        | Advice::ChooseTuning
        | Advice::StateSourceAlignment
        | Advice::PlaceChain
        | Advice::CloseRegion
        | Advice::EnlargeEventRing
        | Advice::FewerSlotsOrLargerEventRing
        | Advice::ChooseNotification
        | Advice::ShortenSegments
        | Advice::MatchTimeouts
        | Advice::AskPeerAgain
        | Advice::StateIncarnation
        | Advice::OpenEndpointBeforeInterrupts
        | Advice::WaitForRead
        | Advice::UseCopyEngine
        | Advice::TestWithSecondCard
        | Advice::AvoidHybridWaits
        | Advice::AvoidLongBlocks => {
            "the function that would help is not in this interface; use fpgactl or Rust"
        }
    }
    .to_owned()
}
