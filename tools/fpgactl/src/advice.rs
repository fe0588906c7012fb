//! Advice of the library in terms of the command line.

use fpga_driver::Advice;

/// Returns the advice as a user of the command line can follow it.
pub(crate) fn render(advice: &Advice) -> String {
    match advice {
        Advice::Text(text) => text,
        Advice::StateDmaBar => "name it with --dma-bar; `fpgactl list` shows the BARs of a card",
        Advice::StateCdmaOffset => "give the offset of its registers in the user BAR with --cdma-offset",
        Advice::StateNetworkInterface => "if the design has one, say so with --ni",
        Advice::OpenForUse => "use a command that opens the card for use",
        Advice::EnableSimulator => "use a build with simulated cards, or name a PCI address or a vfio-user socket",
        Advice::NameCard => "use a PCI address, mock, mock:FILE.yaml, mock:NAME, vfio-user:SOCKET, rtl:FOLDER or shared:CARD",
        Advice::InstallOwner => "install fpgactl, or set FPGACTL to its path",
        Advice::BindToVfio(address) => return format!("bind it with `fpgactl bind {address}`"),
        Advice::BuildSimulation(folder) => {
            return format!("build it: `fpgactl rtl build TOP.sv... -o {}`", folder.display());
        }
        Advice::AllowSlowServer => "let the card's server run, or give it more time for an answer with --message-timeout",
        Advice::ReopenCard => "run the command again when the card is back",
        Advice::ResetHungEngine => "reset the card with `fpgactl reset --level bus`; an engine that hangs again waits for the design: an AXI slave or stream does not answer",
        Advice::ResetBus => "reset the card with `fpgactl reset --level bus`; if that fails, check slot, power and link",
        Advice::SeeCardInfo => "choose a range inside the card's memory: `fpgactl info` shows it",
        Advice::UseStreamChannel => "use `fpgactl dma` without --addr",
        Advice::UseMemoryChannel => "use `fpgactl dma` with --addr",
        Advice::DropOtherHandle => "end the other use of it first",
        Advice::UseBatchMode => "do not use credit mode (`dma bench --ring credit`)",
        Advice::ChooseStreamBuffers | Advice::EnlargeStreamBuffers => "give a larger --packet",
        Advice::TakeBufferFromCard | Advice::MapWithAccess(_) | Advice::RegisterMemory => {
            "report it: this is an error of fpgactl"
        }
        Advice::TakeCompletions => "give the command fewer transfers at a time",
        Advice::SplitTransfer => "give a smaller --chunk",
        Advice::Resubmit => "run the command again",
        Advice::WaitLongerOrAbort => "give more time with --timeout, or stop the engine with `fpgactl reset`",
        Advice::WaitLonger => "give more time with --timeout",
        Advice::WaitAgainOrAbort | Advice::WaitOrCancel => {
            "run the command again, or stop the engine with `fpgactl reset`"
        }
        Advice::EnableInterrupts | Advice::StateRingInterrupt => "wait by polling (--mode poll)",
        Advice::EnableUserInterrupt => "enable it first: `fpgactl irq wait` does",
        Advice::CheckUserInterrupt => {
            "wait longer, or check that the design raises usr_irq_req: `fpgactl irq list` shows the lines that are high"
        }
        Advice::RestartStream => "run the command again",
        Advice::ShortenCopy => "give a smaller --len",
        Advice::CopyRest => "copy the rest, or give more time with --timeout",
        Advice::AlignOrLendChannels => {
            "align both addresses to the engine's data width: multiples of 128 bytes suit every build"
        }
        Advice::LendChannel => "use a card with a free H2C channel",
        Advice::ReopenEndpoint | Advice::OpenEndpointBeforeInterrupts => "run the command again",
        Advice::ChooseScheme => "choose one of these with --scheme, or load another build",
        Advice::OpenWithScheme => "choose one of these with --scheme",
        Advice::ChooseTuning => {
            "give other --window, --credit and --resend-after: a window is 1 to 128 packets (selective: 512)"
        }
        Advice::StateSourceAlignment => {
            "check that the sources lie in the card's memory, and align them to the engine's data width"
        }
        Advice::PlaceChain => "check the end of the card's memory: `fpgactl validate` tests it",
        Advice::ChooseUsableRange => "choose a range inside the usable memory: `fpgactl info` shows it",
        Advice::CloseRegion => "run fewer transfers at a time",
        Advice::EnlargeEventRing => "use shorter transfers, or fewer at a time",
        Advice::FewerSlotsOrLargerEventRing => "join with fewer --slots",
        Advice::ChooseNotification => "use --notify receiver",
        Advice::ShortenSegments => "choose shorter segments with --segment",
        Advice::MatchTimeouts => "open the endpoint of the other node with a longer registry timeout",
        Advice::AskPeerAgain => "run the command again",
        Advice::WaitForRandomNumbers => {
            "wait until the system has random numbers (`head -c1 /dev/random` returns then), or give the machine a source of them"
        }
        Advice::WaitForRead => "run fewer reads at a time",
        Advice::UseCopyEngine => "use `fpgactl cdma copy`, or other addresses",
        Advice::TestCard => "run the command again; if that does not help, test the card with `fpgactl validate`",
        Advice::TestWithSecondCard => "test with a second card: `fpgactl transfer`",
        Advice::AvoidHybridWaits => "do not use hybrid waits (`dma bench --mode hybrid`)",
        Advice::AvoidLongBlocks => "keep the option long_blocks of channels off in programs",
        Advice::DropHandlesOrForce => "end the program that uses them first",
        Advice::DropCard => "run the command again",
    }
    .to_owned()
}

/// Returns an error of the library with its advice in one line, for a cell of a table.
pub(crate) fn in_one_line(problem: impl std::fmt::Display, advice: Option<Advice>) -> String {
    match advice {
        Some(advice) => format!("{problem}; {}", render(&advice)),
        None => problem.to_string(),
    }
}
