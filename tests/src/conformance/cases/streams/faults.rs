//! Invalid stream data, as rows of the fault table.

use fpga_card::fault_plan::{ChannelName, FaultEntry, FaultName};
use fpga_driver::Error;
use fpga_driver::stream::{PacketFault, StreamError};

use super::{Case, CaseContext, Ends, LOOPS, Verdict, case, on_loops};
use crate::conformance::Capability;
use crate::conformance::faults::{AfterFault, ExpectedError, MemoryOutcome, row};

const CARD: &[Capability] = &[Capability::CardFaults];

/// Cases by row.
pub(in crate::conformance::cases) const FAULTS: &[Case] = &[
    case("fault.stream_metadata_missing", CARD, |context| {
        let missing = fault(FaultName::MissingMetadata);
        metadata(context, "stream_metadata_missing", &[(missing, PacketFault::Missing { entry: 1 })])
    }),
    case("fault.stream_metadata_torn", CARD, |context| {
        let torn = fault(FaultName::TornMetadata);
        metadata(context, "stream_metadata_torn", &[(torn, PacketFault::Empty { entry: 1 })])
    }),
    case("fault.stream_metadata_magic", CARD, |context| {
        let magic = |word, length| (words([word, length]), PacketFault::Magic { entry: 1, word });
        let faults = [magic(0x1234_0001, 100), magic(0x52B5_0001, 100), magic(u32::MAX, u32::MAX)];
        metadata(context, "stream_metadata_magic", &faults)
    }),
    case("fault.stream_metadata_length", CARD, |context| {
        let length =
            |length| (words([0x52B4_0001, length]), PacketFault::Length { entry: 1, length, buffer: 512 });
        metadata(context, "stream_metadata_length", &[length(513), length(u32::MAX)])
    }),
    case("fault.stream_metadata_no_end", CARD, |context| {
        let no_end = PacketFault::NoEnd { entry: 1, length: 100, buffer: 512 };
        metadata(context, "stream_metadata_no_end", &[(words([0x52B4_0000, 100]), no_end)])
    }),
    case("fault.stream_end_lost", CARD, end_lost),
];

/// Fault of the second packet on the first C2H channel.
fn fault(name: FaultName) -> FaultEntry {
    FaultEntry { channel: Some(ChannelName::C2h(0)), skip: 1, ..FaultEntry::new(name) }
}

/// Fault that replaces the metadata by these words.
fn words(words: [u32; 2]) -> FaultEntry {
    FaultEntry { words: Some(words), ..fault(FaultName::WrongMetadata) }
}

/// The second packet's metadata is wrong. The error is reported once, no data of the packet is returned, and reception continues after the
/// next end of packet.
fn metadata(context: &mut CaseContext<'_>, name: &str, faults: &[(FaultEntry, PacketFault)]) -> Verdict {
    let row = row(name);
    faults.iter().try_for_each(|(fault, expected)| {
        on_loops(context, &LOOPS, |context, mode| {
            let mut ends = Ends::open(context, mode, 16, 512)?;
            context.set_faults([fault.clone()]);
            for n in 1..=4_u8 {
                ends.send(&[n; 100]);
            }
            assert_eq!(ends.receive(), [1; 100], "{mode:?}");
            let reported = match ends.next() {
                Err(Error { kind: StreamError::Packet(source), .. }) if source == *expected => {
                    ExpectedError::Metadata
                }
                other => panic!("{mode:?}: {other:?} instead of {expected:?}"),
            };
            assert_eq!([reported], row.errors);
            // The lost packet's end is unknown, so everything up to the next end of packet is discarded.
            assert_eq!(ends.receive(), [4; 100], "{mode:?} {expected:?}");
            assert_eq!(ends.rx.statistics().lost, 1);
            assert_eq!((row.memory, row.after), (MemoryOutcome::Returned, AfterFault::Channel));
            ends.assert_works(5);
            ends.close();
            Ok(())
        })
    })
}

/// The end of the second packet is lost in the card, and the metadata does not show it.
fn end_lost(context: &mut CaseContext<'_>) -> Verdict {
    let row = row("stream_end_lost");
    on_loops(context, &LOOPS, |context, mode| {
        let mut ends = Ends::open(context, mode, 16, 512)?;
        context.set_faults([fault(FaultName::LostPacketEnd)]);
        for n in 1..=4_u8 {
            ends.send(&[n; 100]);
        }
        assert_eq!(ends.receive(), [1; 100], "{mode:?}");
        let joined = ends.receive();
        assert!(joined == [[2; 100], [3; 100]].concat(), "{mode:?}: {} bytes", joined.len());
        assert_eq!(
            (row.errors, row.memory, row.after),
            (&[ExpectedError::Joined][..], MemoryOutcome::Returned, AfterFault::Channel)
        );
        assert_eq!(ends.receive(), [4; 100], "{mode:?}");
        ends.assert_works(5);
        ends.close();
        Ok(())
    })
}
