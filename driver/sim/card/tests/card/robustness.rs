//! No register write, descriptor or packet makes the card panic or keeps it busy after a reset.

use crate::support::*;
use fpga_card::description::RangeDescription;
use fpga_card::fault_plan::{CdmaError, ChannelName, Opportunity};
use fpga_card::{FaultPlan, InjectedFault, PciError, PlannedFault, StreamWritebackFault, UncorrectableError};
use fpga_protocol::time::Nanos;
use fpga_registers::xdma::channel::StatusError;
use proptest::prelude::*;

/// Stimulus for the card.
#[derive(Clone, Debug)]
enum Stimulus {
    Read { bar: u8, at: u64, length: usize },
    Write { bar: u8, at: u64, bytes: Vec<u8> },
    Register { bar: u8, at: u64, value: u32 },
    Config { at: u16, bytes: Vec<u8> },
    ReadConfig { at: u16, length: usize },
    Descriptor { slot: u64, words: [u32; 8] },
    CardDescriptor { slot: u64, words: [u32; 8] },
    Start { base: u64, slot: u64, adjacent: u32, control: u32 },
    Frame(Vec<u8>),
    Steps(u32),
    Time(u64),
    Reset,
    Faults(FaultPlan),
    Replug,
}

/// Fault plans with frequent faults.
fn faults() -> impl Strategy<Value = FaultPlan> {
    let moment = || prop_oneof![Just(Opportunity::Access), Just(Opportunity::Descriptor)];
    let channel = || {
        prop::option::of((any::<bool>(), 0_u8..5).prop_map(|(to_card, number)| {
            if to_card { ChannelName::H2c(number) } else { ChannelName::C2h(number) }
        }))
    };
    let status = prop::sample::select([StatusError::H2C, StatusError::C2H].concat());
    let link = prop::sample::select(UncorrectableError::ALL);
    let cdma = prop::sample::select(vec![
        CdmaError::Internal,
        CdmaError::Slave,
        CdmaError::SgInternal,
        CdmaError::SgDecode,
    ]);
    let fault = prop_oneof![
        prop::option::of(0_u16..40).prop_map(|vector| InjectedFault::LostInterrupt { vector }),
        any::<u64>()
            .prop_map(|delay| InjectedFault::LateInterrupt { vector: None, delay: Nanos::new(delay) }),
        (any::<u16>(), moment()).prop_map(|(vector, on)| InjectedFault::SpuriousInterrupt { vector, on }),
        channel().prop_map(|channel| InjectedFault::Stall { channel }),
        (channel(), any::<i32>()).prop_map(|(channel, by)| InjectedFault::WrongCount { channel, by }),
        channel().prop_map(|channel| InjectedFault::StaleCount { channel }),
        channel().prop_map(|channel| InjectedFault::MissingWriteback { channel }),
        (channel(), any::<u8>()).prop_map(|(channel, bytes)| InjectedFault::TornWriteback { channel, bytes }),
        (channel(), status).prop_map(|(channel, error)| InjectedFault::StatusError { channel, error }),
        channel().prop_map(|channel| InjectedFault::RefusedFetch { channel }),
        channel().prop_map(|channel| InjectedFault::RefusedData { channel }),
        channel().prop_map(|channel| InjectedFault::LostPacketEnd { channel }),
        (channel(), any::<[u32; 2]>()).prop_map(|(channel, words)| {
            InjectedFault::Metadata { channel, fault: StreamWritebackFault::Words(words) }
        }),
        moment().prop_map(|on| InjectedFault::AllOnes { on }),
        moment().prop_map(|on| InjectedFault::SurpriseRemoval { on }),
        moment().prop_map(|on| InjectedFault::Reset { on }),
        (link, moment())
            .prop_map(|(error, on)| InjectedFault::Pci { error: PciError::Uncorrectable(error), on }),
        cdma.prop_map(|error| InjectedFault::Cdma { error }),
        Just(InjectedFault::CdmaStall),
    ];
    let planned =
        (fault, 0_u64..20, prop::option::of(0_u64..5), 0_u32..4).prop_map(|(fault, skip, times, one_in)| {
            let planned = PlannedFault::new(fault).after(skip).with_probability(one_in);
            times.map_or_else(|| planned.clone().always(), |times| planned.clone().times(times))
        });
    (any::<u64>(), prop::collection::vec(planned, 0..5))
        .prop_map(|(seed, list)| list.into_iter().fold(FaultPlan::new(seed), FaultPlan::with))
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0_u64..0x9000,
        1 => 0_u64..0x1_0010,
        1 => any::<u64>(),
        1 => (0_u64..7, 0_u64..4, 0_u64..64).prop_map(|(block, channel, word)| block << 12 | channel << 8 | word << 2),
    ]
}

fn words() -> impl Strategy<Value = [u32; 8]> {
    let address = || prop_oneof![0x10_0000_u32..0x20_0000, any::<u32>(), 0_u32..0x10_0000];
    let high = || prop_oneof![4 => Just(0_u32), 1 => any::<u32>(), 1 => Just(0x10)];
    (
        prop_oneof![
            4 => (0_u32..64, 0_u32..32).prop_map(|(adjacent, flags)| MAGIC | adjacent << 8 | flags),
            1 => any::<u32>()
        ],
        prop_oneof![4 => 0_u32..200_000, 1 => any::<u32>()],
        (address(), high(), address(), high(), address(), high()),
    )
        .prop_map(|(control, length, (a, b, c, d, e, f))| [control, length, a, b, c, d, e & !31, f])
}

fn act() -> impl Strategy<Value = Stimulus> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        2 => (0_u8..7, offset(), 0_usize..20).prop_map(|(bar, at, length)| Stimulus::Read { bar, at, length }),
        2 => (0_u8..7, offset(), bytes()).prop_map(|(bar, at, bytes)| Stimulus::Write { bar, at, bytes }),
        4 => (0_u8..3, offset(), any::<u32>()).prop_map(|(bar, at, value)| Stimulus::Register { bar, at: at & !3, value }),
        1 => (any::<u16>(), bytes()).prop_map(|(at, bytes)| Stimulus::Config { at, bytes }),
        1 => (any::<u16>(), 0_usize..20).prop_map(|(at, length)| Stimulus::ReadConfig { at, length }),
        3 => (0_u64..256, words()).prop_map(|(slot, words)| Stimulus::Descriptor { slot, words }),
        1 => (0_u64..256, words()).prop_map(|(slot, words)| Stimulus::CardDescriptor { slot, words }),
        2 => (0_u64..2, 0_u64..4, 0_u64..256, 0_u32..64, any::<u32>()).prop_map(
            |(direction, channel, slot, adjacent, control)| {
                Stimulus::Start { base: direction << 12 | channel << 8, slot, adjacent, control: control | 1 }
            }
        ),
        1 => prop::collection::vec(any::<u8>(), 0..700).prop_map(Stimulus::Frame),
        2 => (0_u32..200).prop_map(Stimulus::Steps),
        1 => (0_u64..10_000_000_000).prop_map(Stimulus::Time),
        1 => Just(Stimulus::Reset),
        1 => faults().prop_map(Stimulus::Faults),
        1 => Just(Stimulus::Replug),
    ]
}

fn perform(testbed: &mut CardTestbed, act: Stimulus) {
    match act {
        Stimulus::Read { bar, at, length } => testbed.card.bar_read(bar, at, &mut vec![0; length]),
        Stimulus::Write { bar, at, bytes } => testbed.card.bar_write(bar, at, &bytes, &mut testbed.host),
        Stimulus::Register { bar, at, value } => testbed.write(bar, at, value),
        Stimulus::Config { at, bytes } => testbed.card.config_write(at, &bytes),
        Stimulus::ReadConfig { at, length } => testbed.card.config_read(at, &mut vec![0; length]),
        Stimulus::Descriptor { slot, words } => {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            testbed.host.put(0x10_0000 + 32 * slot, &bytes);
        }
        Stimulus::CardDescriptor { slot, words } => {
            let [_, length, rest @ ..] = words;
            let bytes: Vec<u8> = rest.into_iter().chain([length, 0]).flat_map(u32::to_le_bytes).collect();
            testbed.poke(64 * slot, &bytes);
            testbed.card.set_command(true, true);
            testbed.write(USER, 0x1000, 8);
            testbed.write(USER, 0x1008, 64 * slot as u32);
            testbed.write(USER, 0x1010, 64 * (slot as u32 + 3));
            testbed.write(USER, 0x1014, 0);
        }
        Stimulus::Start { base, slot, adjacent, control } => {
            testbed.card.set_command(true, true);
            testbed.start(base, 0x10_0000 + 32 * slot, adjacent, control);
        }
        Stimulus::Frame(frame) => {
            testbed.card.expect_frame(&frame);
            testbed.card.receive_frame(Nanos::new(testbed.now), &frame);
        }
        Stimulus::Steps(count) => {
            for _ in 0..count {
                if !testbed.step() {
                    break;
                }
            }
        }
        Stimulus::Time(span) => testbed.now += span,
        Stimulus::Reset => testbed.card.reset(),
        Stimulus::Faults(plan) => testbed.card.set_fault_plan(&plan),
        Stimulus::Replug => testbed.card.replug(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn card_random_actions_do_not_panic(acts in prop::collection::vec(act(), 1..80), quirks: u8) {
        let mut description = small();
        let quirk = |bit: u8| quirks >> bit & 1 != 0;
        description.quirks.every_second_read_fails = quirk(0);
        description.quirks.busy_after_error = quirk(1);
        description.quirks.early_msix_writes_lost = quirk(2);
        description.quirks.silent_user_bar = quirk(3);
        description.quirks.silent_memory = quirk(4).then(|| RangeDescription::new(0x8000, 0x2_0000));
        description.quirks.intx_disable_ignored = quirk(5);
        description.pci.flr = quirk(5);
        description.xdma.stream = quirk(7);
        description.interrupts.msi_masking = quirk(6);
        description.ni.registry_entries = 4;
        description.ni.escape_slots = 4;
        let mut testbed = CardTestbed::with(description);
        for act in acts {
            perform(&mut testbed, act);
        }
        // It may run forever (a ring without Stop), but a reset always ends that.
        for _ in 0..200 {
            testbed.step();
        }
        testbed.card.reset();
        testbed.run();
    }

    #[test]
    fn card_random_window_content_does_not_panic(
        block in prop::collection::vec(any::<u8>(), 200),
        sequence in 0_u32..3,
        plausible in any::<bool>(),
        count in 0_u16..300,
    ) {
        let mut testbed = CardTestbed::new();
        testbed.write(USER, 0x2008, 1);
        let base = testbed.card.description().ni.window_base;
        let mut block = block;
        block[..4].copy_from_slice(&sequence.to_le_bytes());
        if plausible {
            block[73..128].fill(0);
            block[4..8].fill(0);
            block[66..68].copy_from_slice(&count.to_le_bytes());
            block[68..70].copy_from_slice(&[9, 0]);
        }
        testbed.poke(base, &block);
        testbed.poke(base + 0xFC0, &1_u32.to_le_bytes());
        testbed.run();
        prop_assert_eq!(testbed.read(USER, 0x204C), 0xFF);
        while let Some(frame) = testbed.card.take_frame() {
            prop_assert!(fpga_firmware::wire::Packet::parse(&frame).is_ok());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

}
