//! Bursts have the effects of single steps: two equal cards, one stepped and one worked, are compared after every stimulus.

use crate::support::*;
use crate::xdma::{C2H0, DATA, DESCRIPTORS, H2C0, START_INTERRUPT, WRITEBACK};
use fpga_card::description::WritebackRule;
use fpga_card::fault_plan::Opportunity;
use fpga_card::{CardDescription, Fault, FaultPlan, InjectedFault, PlannedFault};
use fpga_protocol::time::Nanos;
use fpga_registers::CardAddr;
use proptest::prelude::*;

/// Slots for descriptors at DESCRIPTORS; the write-back is behind them.
const SLOTS: u64 = 0x8000 / 32;
/// Size of the compared card memory; no descriptor reaches memory beyond it.
const COMPARED: usize = 0x6_0000;

/// One descriptor of a chain.
#[derive(Clone, Debug)]
struct Link {
    magic: u32,
    flags: u32,
    length: u32,
    host: u64,
    card: u64,
    /// Added to the correct adjacency count.
    adjacency: u32,
}

/// Stimulus for both cards.
#[derive(Clone, Debug)]
enum Stimulus {
    /// Descriptors from slot `first` on, the last one linked to slot `after`; the channel is started if `start`.
    Chain {
        first: u64,
        after: u64,
        block: u64,
        links: Vec<Link>,
        start: Option<u32>,
    },
    Credits(u32),
    /// Below 0x1000: a channel register.
    Register {
        at: u64,
        value: u32,
    },
    Poison {
        at: u64,
        length: u64,
    },
    Silence {
        at: u64,
        length: u64,
    },
    Completed(Option<u32>),
    /// Fault of the whole card after a number of descriptors.
    Strike {
        fault: InjectedFault,
        after: u64,
    },
    BusMaster(bool),
    /// Number of units; the worked card does them in parts of `piece`.
    Units {
        count: u32,
        piece: u32,
    },
    Reset,
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => 1_u32..300,
        3 => Just(64_u32),
        2 => prop_oneof![Just(4095_u32), Just(4096), Just(4097)],
        // From 2048 bytes on, several descriptors are moved together.
        3 => prop_oneof![Just(2047_u32), Just(2048), 2049_u32..4096],
        1 => Just(0_u32),
        2 => 4097_u32..0x1_8000,
    ]
}

fn link() -> impl Strategy<Value = Link> {
    let magic = prop_oneof![60 => Just(MAGIC), 1 => Just(0_u32), 1 => Just(0xAD4A_0000_u32)];
    let flags =
        prop_oneof![20 => Just(0_u32), 10 => Just(COMPLETED), 1 => Just(STOP), 1 => Just(STOP | COMPLETED)];
    let host = prop_oneof![
        40 => (0_u64..0x1_0000).prop_map(|offset| DATA + offset),
        1 => Just(0xDEAD_0000_u64),
        1 => Just(0x20_0000_u64 - 100),
        1 => Just(0x40_0000_u64),
    ];
    let card = prop_oneof![
        30 => 0_u64..0x4_0000,
        4 => (1_u64..4, 0_u64..300).prop_map(|(page, before)| (page << 16) - before),
        1 => Just((64_u64 << 20) - 100),
        1 => Just(u64::MAX - 30),
    ];
    let adjacency = prop_oneof![30 => Just(0_u32), 1 => 1_u32..64];
    (magic, flags, length(), host, card, adjacency).prop_map(
        |(magic, flags, length, host, card, adjacency)| Link { magic, flags, length, host, card, adjacency },
    )
}

fn control() -> impl Strategy<Value = u32> {
    // Control values of drivers, and runs without error enables, in poll mode, with a fixed address.
    prop_oneof![
        4 => Just(0x00FF_FE7F_u32),
        4 => Just(0x04FF_FE7F),
        2 => Just(0x04F8_3E19),
        1 => Just(0x0400_0007),
        1 => Just(0x06FF_FE7F),
        1 => any::<u32>().prop_map(|word| word | 1),
    ]
}

fn card_wide() -> impl Strategy<Value = InjectedFault> {
    let on = Opportunity::Descriptor;
    prop_oneof![
        Just(InjectedFault::AllOnes { on }),
        Just(InjectedFault::SurpriseRemoval { on }),
        Just(InjectedFault::Reset { on }),
        Just(InjectedFault::SpuriousInterrupt { vector: 9, on }),
    ]
}

fn act() -> impl Strategy<Value = Stimulus> {
    let chain = (
        (0..SLOTS, 0..SLOTS, 1_u64..65, prop::option::weighted(0.8, control())),
        prop::collection::vec(link(), 1..150),
    )
        .prop_map(|((first, after, block, start), links)| Stimulus::Chain {
            first,
            after,
            block,
            links,
            start,
        });
    let register = prop_oneof![
        (Just(0x04_u64), control()),
        (Just(0x08_u64), control()),
        (Just(0x0C_u64), prop_oneof![Just(1_u32), any::<u32>()]),
        (Just(0x40_u64), any::<u32>()),
        (Just(0x90_u64), any::<u32>()),
        (Just(0xC0_u64), 0_u32..8),
        (Just(0x88_u64), prop_oneof![Just(WRITEBACK as u32), Just(0xDEAD_0000)]),
        (Just(0x2010), any::<u32>()),
        (Just(0x6010), prop_oneof![3 => Just(0_u32), 1 => any::<u32>()]),
        (Just(0x6020), prop_oneof![Just(0_u32), Just(u32::MAX)]),
    ];
    prop_oneof![
        6 => chain,
        6 => (1_u32..200).prop_map(Stimulus::Credits),
        6 => register.prop_map(|(at, value)| Stimulus::Register { at, value }),
        3 => (0_u64..0x4_0000, prop_oneof![1 => Just(0_u64), 3 => 1_u64..0x1_0000]).prop_map(|(at, length)| Stimulus::Poison { at, length }),
        1 => (0_u64..0x4_0000, prop_oneof![Just(0_u64), 1_u64..0x1000]).prop_map(|(at, length)| Stimulus::Silence { at, length }),
        1 => prop::option::of(any::<u32>()).prop_map(Stimulus::Completed),
        1 => (card_wide(), 0_u64..100).prop_map(|(fault, after)| Stimulus::Strike { fault, after }),
        3 => prop::bool::weighted(0.6).prop_map(Stimulus::BusMaster),
        12 => (prop_oneof![1_u32..20, 1_u32..400], 1_u32..100).prop_map(|(count, piece)| Stimulus::Units { count, piece }),
        1 => Just(Stimulus::Reset),
    ]
}

fn description() -> impl Strategy<Value = CardDescription> {
    (1_u8..5, prop_oneof![Just(64_u16), Just(512)], any::<bool>(), any::<bool>()).prop_map(
        |(channels, width, rule, quirk)| {
            let mut description = small();
            (description.xdma.h2c_channels, description.xdma.c2h_channels) = (channels, channels);
            description.xdma.data_width = width;
            if rule {
                description.xdma.completed_writeback = WritebackRule::FlagAndEnable;
            }
            description.xdma.long_descriptor_quirk = quirk;
            description.quirks.busy_after_error = quirk;
            description
        },
    )
}

/// Writes `links` in the direction of channel `base`, in blocks of `block` descriptors that end at 4 KiB.
fn chain(testbed: &mut CardTestbed, base: u64, first: u64, after: u64, block: u64, links: &[Link]) -> u32 {
    let slot = |index: u64| (first + index) % SLOTS;
    let count = links.len() as u64;
    // Number of contiguous descriptors from `index` on, within its block.
    let together = |index: u64| {
        let in_page = 128 - slot(index) % 128;
        (block - index % block).min(count - index).min(in_page).min(64) as u32
    };
    for (index, link) in (0..).zip(links) {
        let last = index + 1 == count;
        let next = DESCRIPTORS + 32 * if last { after } else { slot(index + 1) };
        let adjacent = if last { 0 } else { together(index + 1) - 1 };
        let adjacent = (adjacent + link.adjacency) & 0x3F;
        let control = link.magic | adjacent << 8 | link.flags;
        let (source, destination) =
            if base < 0x1000 { (link.host, link.card) } else { (link.card, link.host) };
        testbed.host.descriptor(
            DESCRIPTORS + 32 * slot(index),
            control,
            link.length,
            source,
            destination,
            next,
        );
    }
    together(0) - 1
}

fn perform(testbed: &mut CardTestbed, base: u64, act: &Stimulus, bursts: bool) {
    match act {
        Stimulus::Chain { first, after, block, links, start } => {
            let adjacent = chain(testbed, base, *first, *after, *block, links);
            if let Some(control) = start {
                testbed.write(DMA, base + 0x0C, 1);
                testbed.start(base, DESCRIPTORS + 32 * first, adjacent, *control);
            }
        }
        Stimulus::Credits(count) => testbed.write(DMA, base + 0x408C, *count),
        Stimulus::Register { at, value } => {
            testbed.write(DMA, if *at < 0x1000 { base + at } else { *at }, *value)
        }
        Stimulus::Poison { at, length } => testbed.card.poison(CardAddr::new(*at), *length),
        Stimulus::Silence { at, length } => testbed.card.silence(CardAddr::new(*at), *length),
        Stimulus::Completed(count) => testbed.card.override_completed_count(*count),
        Stimulus::Strike { fault, after } => {
            let fault = PlannedFault::new(fault.clone()).after(*after);
            testbed.card.set_fault_plan(&FaultPlan::new(1).with(fault));
        }
        Stimulus::BusMaster(on) => testbed.card.set_command(true, *on),
        Stimulus::Units { count, piece } => {
            testbed.now += 100;
            let now = Nanos::new(testbed.now);
            let mut left = *count;
            if bursts {
                while left > 0 {
                    let done = testbed.card.work(now, &mut testbed.host, left.min(*piece));
                    assert!(done <= left.min(*piece));
                    if done == 0 {
                        break;
                    }
                    left -= done;
                }
            } else {
                while left > 0 && testbed.card.step(now, &mut testbed.host) {
                    left -= 1;
                }
            }
        }
        Stimulus::Reset => {
            if testbed.card.is_removed() {
                testbed.card.replug();
            }
            testbed.card.reset();
            testbed.card.set_command(true, true);
            testbed.card.enable_msix(32);
        }
    }
}

fn registers(testbed: &mut CardTestbed) -> Vec<u32> {
    let mut words = Vec::new();
    for block in 0..9_u64 {
        for channel in 0..4_u64 {
            for word in 0..64_u64 {
                let mut bytes = [0; 4];
                testbed.card.bar_peek(DMA, block << 12 | channel << 8 | word << 2, &mut bytes);
                words.push(u32::from_le_bytes(bytes));
            }
        }
    }
    words
}

fn faults(testbed: &CardTestbed) -> Vec<Fault> {
    testbed.card.faults().iter().copied().collect()
}

/// Fault hooks in force: address and length of the poisoned and of the silent range.
#[derive(Clone, Copy, Default)]
struct Hooks {
    poison: (u64, u64),
    silence: (u64, u64),
}

/// Card memory, including the ranges of fault hooks.
fn card_memory(testbed: &mut CardTestbed, hooks: Hooks) -> Vec<u8> {
    testbed.card.poison(CardAddr::ZERO, 0);
    testbed.card.silence(CardAddr::ZERO, 0);
    let bytes = testbed.memory(0, COMPARED);
    testbed.card.poison(CardAddr::new(hooks.poison.0), hooks.poison.1);
    testbed.card.silence(CardAddr::new(hooks.silence.0), hooks.silence.1);
    bytes
}

/// Compares all visible state of the two cards and their hosts.
fn compare(stepped: &mut CardTestbed, worked: &mut CardTestbed, hooks: Hooks) -> Result<(), TestCaseError> {
    prop_assert_eq!(registers(stepped), registers(worked));
    prop_assert_eq!(faults(stepped), faults(worked));
    prop_assert_eq!(stepped.card.faults().total(), worked.card.faults().total());
    prop_assert_eq!(&stepped.host.reads, &worked.host.reads);
    prop_assert_eq!(&stepped.host.writes, &worked.host.writes);
    prop_assert!(stepped.host.ranges == worked.host.ranges, "host memory");
    prop_assert!(card_memory(stepped, hooks) == card_memory(worked, hooks), "card memory");
    prop_assert_eq!(stepped.card.resident_pages(), worked.card.resident_pages());
    let (mut a, mut b) = (*stepped.card.counters(), *worked.card.counters());
    (a.interrupts, b.interrupts) = (0, 0);
    prop_assert_eq!(a, b);
    // A line that rose more than once before it was sampled gives one message, never none.
    for vector in 0..32 {
        let count =
            |testbed: &CardTestbed| testbed.host.interrupts.iter().filter(|sent| **sent == vector).count();
        let (single, burst) = (count(stepped), count(worked));
        prop_assert!(burst <= single && (burst > 0) == (single > 0), "vector {vector}: {single} and {burst}");
    }
    for testbed in [stepped, worked] {
        testbed.host.interrupts.clear();
        testbed.host.reads.clear();
        testbed.host.writes.clear();
    }
    Ok(())
}

fn testbed(description: &CardDescription) -> CardTestbed {
    let mut testbed = CardTestbed::with(description.clone());
    testbed.host.map_read_only(0x40_0000, 0x1_0000);
    testbed.host.put(DATA, &pattern(0x1_0000, 7));
    testbed.poke(0, &pattern(COMPARED, 8));
    // Every channel has its own vector.
    testbed.write(DMA, 0x20A0, 0x0302_0100);
    testbed.write(DMA, 0x20A4, 0x0706_0504);
    testbed.write(DMA, 0x2010, u32::MAX);
    testbed
}

#[test]
fn burst_restart_reports_before_clearing() {
    let mut testbed = CardTestbed::new();
    testbed.write(DMA, 0x2010, 1);
    testbed.write(DMA, 0x90, 1 << 2);
    testbed.host.descriptor(DESCRIPTORS, MAGIC | COMPLETED, 0x1_0100, DATA, 0, DESCRIPTORS + 32);
    testbed.host.descriptor(DESCRIPTORS + 64, MAGIC | STOP, 64, DATA, 0, 0);
    testbed.start(H2C0, DESCRIPTORS, 0, START_INTERRUPT);
    assert_eq!(testbed.card.work(Nanos::ZERO, &mut testbed.host, 3), 3, "two fetches, and the first page");
    // Set Run again while the first descriptor is in flight: it ends, and then everything starts over.
    testbed.write(DMA, 0x0C, 1);
    testbed.start(H2C0, DESCRIPTORS + 64, 0, START_INTERRUPT);
    testbed.card.work(Nanos::ZERO, &mut testbed.host, 100);
    assert_eq!(
        (testbed.read(DMA, 0x40), testbed.read(DMA, 0x48)),
        (0b010, 1),
        "only the second run is visible"
    );
    assert_eq!(testbed.host.interrupts, [0], "but the first one was announced");
}

#[test]
fn burst_blocks_wrap_at_buffer_end() {
    let mut description = small();
    // Smallest buffer: 64 descriptors, in which blocks of 37 start at every position.
    (description.xdma.h2c_channels, description.xdma.c2h_channels, description.xdma.data_width) = (1, 1, 64);
    let mut testbed = CardTestbed::with(description);
    let data = pattern(64 * 500, 3);
    testbed.host.put(DATA, &data);
    let links: Vec<_> = (0..500)
        .map(|index| Link {
            magic: MAGIC,
            flags: if index == 499 { STOP } else { 0 },
            length: 64,
            host: DATA + 64 * index,
            card: 64 * index,
            adjacency: 0,
        })
        .collect();
    let adjacent = chain(&mut testbed, H2C0, 0, 0, 37, &links);
    testbed.start(H2C0, DESCRIPTORS, adjacent, START_INTERRUPT);
    testbed.card.work(Nanos::ZERO, &mut testbed.host, u32::MAX);
    assert_eq!(testbed.read(DMA, 0x48), 500);
    let reads = testbed.host.reads.iter().filter(|(at, _)| *at < DATA).count() as u64;
    assert!(reads > testbed.card.counters().descriptor_fetches, "some blocks were read in two parts");
    assert!(testbed.memory(0, data.len()) == data);
}

/// One channel: equal after every stimulus.
fn check_single_channel(
    description: &CardDescription,
    to_host: bool,
    acts: &[Stimulus],
) -> Result<(), TestCaseError> {
    let base = if to_host { C2H0 } else { H2C0 };
    let (mut stepped, mut worked) = (testbed(description), testbed(description));
    let mut hooks = Hooks::default();
    for act in acts {
        match act {
            Stimulus::Poison { at, length } => hooks.poison = (*at, *length),
            Stimulus::Silence { at, length } => hooks.silence = (*at, *length),
            _ => {}
        }
        perform(&mut stepped, base, act, false);
        perform(&mut worked, base, act, true);
        compare(&mut stepped, &mut worked, hooks)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn burst_single_channel_equals_steps(
        description in description(),
        to_host in any::<bool>(),
        acts in prop::collection::vec(act(), 1..25),
    ) {
        check_single_channel(&description, to_host, &acts)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "long: 16 s: a thousand random sequences"]
    fn burst_single_channel_equals_steps_in_many_cases(
        description in description(),
        to_host in any::<bool>(),
        acts in prop::collection::vec(act(), 1..25),
    ) {
        check_single_channel(&description, to_host, &acts)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// All engines in parallel, each in its own memory: equal when all are idle.
    #[test]
    fn burst_parallel_engines_equal_steps(
        channels in prop::collection::vec((prop::collection::vec(link(), 1..60), 1_u64..65, control()), 4),
        copies in prop::collection::vec((0_u64..0x1_0000, 0_u64..0x1_0000, 1_u32..0x9000), 1..10),
        events in 1_u64..6,
        piece in 1_u32..200,
    ) {
        let mut description = small();
        (description.xdma.h2c_channels, description.xdma.c2h_channels) = (2, 2);
        let (mut stepped, mut worked) = (testbed(&description), testbed(&description));
        for (testbed, bursts) in [(&mut stepped, false), (&mut worked, true)] {
            // Transmit windows with empty headers, whose faults are reported in an event ring in host memory.
            testbed.write(USER, 0x2080, 0x13_0000);
            testbed.write(USER, 0x2088, 16);
            testbed.write(USER, 0x2008, 0b101);
            testbed.host.map(0x50_0000, 0x8_0000);
            for (number, (links, block, control)) in (0..).zip(&channels) {
                let base = if number < 2 { number << 8 } else { C2H0 + ((number - 2) << 8) };
                // Each channel has a quarter of the slots, of host memory and of card memory.
                let links: Vec<_> = links
                    .iter()
                    .map(|link| Link {
                        host: 0x50_0000 + number * 0x2_0000 + link.host % 0x8000,
                        card: 0x10_0000 * (number + 1) + link.card % 0x8000,
                        length: link.length.min(0x1_8000),
                        ..link.clone()
                    })
                    .collect();
                let first = number * SLOTS / 4;
                let adjacent = chain(testbed, base, first, first, *block, &links);
                let last = DESCRIPTORS + 32 * (first + links.len() as u64 - 1);
                let word = testbed.host.get_word(last) | STOP;
                testbed.host.put(last, &word.to_le_bytes());
                testbed.write(DMA, base + 0x88, (WRITEBACK + 64 * number) as u32);
                testbed.start(base, DESCRIPTORS + 32 * first, adjacent, *control & !(1 << 25));
            }
            for (index, (source, destination, count)) in (0_u64..).zip(&copies) {
                let at = 0x80_0000 + 64 * index;
                let next = at + 64;
                let words = [next, 0x90_0000 + source, 0xA0_0000 + destination, u64::from(*count)];
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                testbed.poke(at, &bytes);
            }
            testbed.write(USER, 0x1000, 8);
            testbed.write(USER, 0x1008, 0x80_0000);
            testbed.write(USER, 0x1010, 0x80_0000 + 64 * (copies.len() as u32 - 1));
            testbed.write(USER, 0x1014, 0);
            for window in 0..events {
                let base = testbed.card.description().ni.window_base;
                testbed.poke(base + window * 0x8000 + 0xFC0, &[1, 0, 0, 0]);
            }
            while if bursts { testbed.card.work(Nanos::ZERO, &mut testbed.host, piece) > 0 } else { testbed.card.step(Nanos::ZERO, &mut testbed.host) } {}
        }
        prop_assert_eq!(stepped.card.counters().events, worked.card.counters().events);
        prop_assert!(worked.card.counters().events > 0 && worked.card.counters().cdma_descriptors > 0);
        let sorted = |testbed: &CardTestbed| {
            let mut faults: Vec<_> = faults(testbed).iter().map(|fault| (fault.unit.code(), fault.kind as u8, fault.address, fault.detail)).collect();
            faults.sort_unstable();
            faults
        };
        prop_assert_eq!(sorted(&stepped), sorted(&worked));
        prop_assert_eq!(registers(&mut stepped), registers(&mut worked));
        prop_assert!(stepped.host.ranges == worked.host.ranges, "host memory");
        // Quarters of the channels, CDMA descriptors and CDMA target.
        for at in [0x10_0000, 0x20_0000, 0x30_0000, 0x40_0000, 0x80_0000, 0xA0_0000] {
            prop_assert!(stepped.memory(at, 0x2_0000) == worked.memory(at, 0x2_0000), "card memory at {at:#x}");
        }
        let (mut a, mut b) = (*stepped.card.counters(), *worked.card.counters());
        prop_assert!(b.interrupts <= a.interrupts);
        (a.interrupts, b.interrupts) = (0, 0);
        prop_assert_eq!(a, b);
        let vectors = |testbed: &CardTestbed| testbed.host.interrupts.iter().copied().collect::<std::collections::BTreeSet<_>>();
        prop_assert_eq!(vectors(&stepped), vectors(&worked));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 14, failure_persistence: None, ..ProptestConfig::default() })]

    /// Descriptors of several pages on a channel that is alone: its turns become long, and move pages together.
    #[test]
    fn burst_long_descriptors_equal_steps(
        to_host in any::<bool>(),
        lengths in prop::collection::vec(prop_oneof![0x1_0000_u32..0x5_0000, 0x2_0000_u32..0x2_0004], 4..16),
        (host, card) in (0_u64..0x1_0000, 0_u64..0x1_0000),
        hole in prop::option::of(0_u64..0x8_0000),
        reported in control(),
        pieces in prop::collection::vec(1_u32..100, 1..8),
    ) {
        let base = if to_host { C2H0 } else { H2C0 };
        let (mut stepped, mut worked) = (testbed(&small()), testbed(&small()));
        let links: Vec<_> = (0..).zip(&lengths).map(|(index, length)| Link {
            magic: MAGIC,
            flags: if index + 1 == lengths.len() { STOP } else { COMPLETED },
            length: *length,
            host: 0x100_0000 + host,
            card: card.min(COMPARED as u64 - 0x5_0000),
            adjacency: 0,
        }).collect();
        for (testbed, bursts) in [(&mut stepped, false), (&mut worked, true)] {
            // The hole is a page that the card cannot reach.
            let start = hole.map_or(0x8_0000, |at| at & !0xFFF);
            testbed.host.map(0x100_0000, usize::try_from(start).unwrap().max(1));
            testbed.host.map(0x100_1000 + start, 0x8_0000);
            testbed.host.put(0x100_0000, &pattern(usize::try_from(start).unwrap(), 9));
            let adjacent = chain(testbed, base, 0, 0, 16, &links);
            testbed.start(base, DESCRIPTORS, adjacent, reported | 1);
            for piece in &pieces {
                perform(testbed, base, &Stimulus::Units { count: 40, piece: *piece }, bursts);
            }
            perform(testbed, base, &Stimulus::Units { count: 100_000, piece: 64 }, bursts);
        }
        compare(&mut stepped, &mut worked, Hooks::default())?;
    }
}
