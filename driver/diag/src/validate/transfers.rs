//! Tests of every channel: sizes, offsets and patterns, byte for byte, with guard bytes; then of all channels at once.

use fpga_registers::{CardAddr, quantity};

use super::context::{HostMemory, ResultRecorder, TestContext, list, skip_reason, skipped_channels};
use super::memory::{descriptors, read, write};
use super::pattern::{Expected, GUARD, GUARD_BYTE, Pattern, compare};
use super::problem::{TestError, Verdict};
use super::registers::granularity;
use super::test_channel::{Availability, ChainLayout, TestChannel, record_all};
use fpga_driver::ChannelName;
use fpga_driver::Direction;

/// Transfer sizes around all relevant boundaries: words, cache lines, packets, pages.
const SIZES: [usize; 12] = [1, 3, 4, 63, 64, 65, 512, 4095, 4096, 4097, 65_536, 1 << 20];
/// Offsets of host and card address: both aligned, each slightly off, across a cache line, across a page.
const OFFSETS: [(usize, usize); 6] = [(0, 0), (1, 0), (0, 1), (3, 5), (63, 31), (4093, 4090)];
/// Size in bytes above which only the first offsets are tested: larger transfers take long and reach no new boundaries.
const MANY_OFFSETS_UP_TO: usize = 4097;
const FEW_OFFSETS: usize = 2;

/// Transfer of the test.
#[derive(Debug, Clone, Copy)]
struct Case {
    size: usize,
    host: usize,
    card: usize,
    pattern: Pattern,
    /// Maximum length of a descriptor in bytes.
    step: usize,
}

impl Case {
    fn describe(&self, channel: ChannelName) -> String {
        let Self { size, host, card, pattern, step } = self;
        let descriptors = size.div_ceil(*step);
        format!(
            "{channel}: {size} bytes of {} in {descriptors} descriptors at host offset {host}, card offset {card}",
            pattern.name()
        )
    }
}

/// Returns the cases that fit into `available` bytes of card memory and keep the card's alignment.
fn cases(available: usize, (address, length): (usize, usize)) -> Vec<Case> {
    let mut cases = Vec::new();
    for (n, size) in SIZES.into_iter().enumerate().filter(|(_, size)| size % length == 0) {
        let offsets = if size <= MANY_OFFSETS_UP_TO { OFFSETS.len() } else { FEW_OFFSETS };
        for (m, (host, card)) in OFFSETS.into_iter().enumerate().take(offsets) {
            let fits = card + size + 2 * GUARD <= available;
            if !fits || host % address != 0 || card % address != 0 {
                continue;
            }
            let case = |pattern, step| Case { size, host, card, pattern, step };
            // All patterns if both ends are aligned, otherwise one of them in turn.
            let patterns = Pattern::ALL.into_iter().cycle().skip(n + m).take(if m == 0 { 3 } else { 1 });
            cases.extend(patterns.map(|pattern| case(pattern, size)));
            if m == 0 && size > 4096 {
                // The same transfer in several descriptors, and in more than one block if there are more than 64.
                cases.push(case(Pattern::Random, 4096));
            }
        }
    }
    cases
}

pub(super) fn run(context: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    for direction in Direction::ALL {
        for name in context.channels(direction) {
            recorder.test(context, format!("transfer.{name}"), |context| one_channel(context, name));
        }
    }
    recorder.test(context, "transfer.together", |context| test_all_channels(context));
}

fn one_channel(context: &TestContext<'_>, name: ChannelName) -> Result<Verdict, TestError> {
    let scratch = context.scratch()?;
    let (out, back) = (context.host()?, context.host()?);
    let Availability::Free(mut tested) = context.take(name)? else { return Ok(skip_reason(name)) };
    let other = if name.direction == Direction::H2c { Direction::C2h } else { Direction::H2c };
    let Some(mut other) = context.any(other)? else {
        return Ok(skip_reason(format_args!("every {other} channel, which the check of {name} requires,")));
    };
    let available = context.max_transfer_length() + 2 * GUARD;
    let cases = cases(available, granularity(context));
    let mut moved = 0_u64;
    for case in &cases {
        match name.direction {
            Direction::H2c => to_card(context, &mut tested, &mut other, (&out, &back), scratch.start, case)?,
            Direction::C2h => to_host(context, &mut tested, &mut other, (&out, &back), scratch.start, case)?,
        }
        moved += case.size as u64;
    }
    let longest = cases.iter().map(|case| case.size).max().unwrap_or(0);
    Ok(Verdict::pass(format!(
        "{} of 1 to {longest} bytes, {moved} bytes in total, arrived byte for byte{}",
        quantity(cases.len(), "transfer"),
        if longest < 1 << 20 { " (longer ones do not fit into the scratch memory)" } else { "" }
    )))
}

/// Returns the expected bytes of card memory at `start`, including guards.
fn guarded(context: &TestContext<'_>, case: &Case, start: CardAddr) -> Vec<u8> {
    let mut bytes = vec![GUARD_BYTE; case.size + 2 * GUARD];
    if let Some(data) = bytes.get_mut(GUARD..GUARD + case.size) {
        case.pattern.fill(context.options.seed, CardAddr::new(start.get() + GUARD as u64), data);
    }
    bytes
}

/// Returns the start of the guarded range of a case.
const fn place(scratch: CardAddr, case: &Case) -> CardAddr {
    CardAddr::new(scratch.get() + case.card as u64)
}

/// Writes to the card by the channel under test, and reads the data and its guards back by another channel.
fn to_card(
    context: &TestContext<'_>,
    tested: &mut TestChannel,
    other: &mut TestChannel,
    (out, back): (&HostMemory, &HostMemory),
    scratch: CardAddr,
    case: &Case,
) -> Result<(), TestError> {
    let start = place(scratch, case);
    let expected = guarded(context, case, start);
    write(tested, back, start, &vec![GUARD_BYTE; expected.len()])?;
    let data = expected.get(GUARD..GUARD + case.size).unwrap_or_default();
    out.memory().write(case.host, data)?;
    let at = CardAddr::new(start.get() + GUARD as u64);
    tested.transfer_as(
        &descriptors(out, case.host, at, case.size, case.step),
        ChainLayout::default(),
        record_all(),
    )?;
    let mut found = vec![0; expected.len()];
    read(other, back, start, &mut found)?;
    let expected = Expected { bytes: &expected, guard: GUARD, card: start };
    Ok(compare(|| case.describe(tested.name), &expected, &found)?)
}

/// Reads from the card by the channel under test, and checks the guards in host memory.
fn to_host(
    context: &TestContext<'_>,
    tested: &mut TestChannel,
    other: &mut TestChannel,
    (out, back): (&HostMemory, &HostMemory),
    scratch: CardAddr,
    case: &Case,
) -> Result<(), TestError> {
    let start = place(scratch, case);
    let expected = guarded(context, case, start);
    let data = expected.get(GUARD..GUARD + case.size).unwrap_or_default();
    let at = CardAddr::new(start.get() + GUARD as u64);
    write(other, out, at, data)?;
    back.memory().fill(case.host, expected.len(), GUARD_BYTE)?;
    let descriptors = descriptors(back, case.host + GUARD, at, case.size, case.step);
    tested.transfer_as(&descriptors, ChainLayout::default(), record_all())?;
    let mut found = vec![0; expected.len()];
    back.memory().read(case.host, &mut found)?;
    let expected = Expected { bytes: &expected, guard: GUARD, card: start };
    Ok(compare(|| case.describe(tested.name), &expected, &found)?)
}

/// Runs all free H2C channels at once, each with its own memory; then all free C2H channels while the H2C channels continue.
fn test_all_channels(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let scratch = context.scratch()?;
    let (out, back) = (context.host()?, context.host()?);
    let (beds, busy) = context.free()?;
    let (mut h2c, mut c2h): (Vec<TestChannel>, Vec<TestChannel>) =
        beds.into_iter().partition(|bed| bed.name.direction == Direction::H2c);
    if h2c.is_empty() || c2h.is_empty() {
        return Ok(skip_reason("every channel of one direction"));
    }
    let (address, _) = granularity(context);
    let lanes = h2c.len().max(c2h.len());
    let size = (context.max_transfer_length() / lanes).min(256 << 10) / 256 * 256 / address * address;
    let place = |lane: usize| CardAddr::new(scratch.start.get() + (lane * size) as u64);
    let mut expected = vec![0; lanes * size];
    for (lane, bytes) in expected.chunks_mut(size.max(1)).enumerate() {
        Pattern::Random.fill(context.options.seed, place(lane), bytes);
    }
    out.memory().write(0, &expected)?;
    back.memory().fill(0, expected.len(), GUARD_BYTE)?;

    // One direction may have fewer channels than the other, so lanes are distributed in rounds.
    for round in 0..lanes.div_ceil(h2c.len()) {
        let first = round * h2c.len();
        start_all(&mut h2c, first, lanes, |lane| descriptors(&out, lane * size, place(lane), size, 4096))?;
        h2c.iter_mut().take(lanes - first).try_for_each(TestChannel::finish)?;
    }
    for round in 0..lanes.div_ceil(c2h.len()) {
        let first = round * c2h.len();
        // Sends the same bytes again, so that both directions work at the same time.
        let again = h2c.len().min(lanes);
        start_all(&mut h2c, 0, again, |lane| descriptors(&out, lane * size, place(lane), size, 4096))?;
        start_all(&mut c2h, first, lanes, |lane| descriptors(&back, lane * size, place(lane), size, 4096))?;
        c2h.iter_mut().take(lanes - first).try_for_each(TestChannel::finish)?;
        h2c.iter_mut().take(again).try_for_each(TestChannel::finish)?;
    }
    let mut found = vec![0; expected.len()];
    back.memory().read(0, &mut found)?;
    let names: Vec<ChannelName> = h2c.iter().chain(&c2h).map(|bed| bed.name).collect();
    let expected = Expected { bytes: &expected, guard: 0, card: scratch.start };
    compare(|| format!("{} at once", list(&names)), &expected, &found)?;
    Ok(Verdict::pass(format!("{} at once, {size} bytes each{}", list(&names), skipped_channels(&busy))))
}

/// Starts the lanes from `first`, as many as there are channels.
fn start_all(
    beds: &mut [TestChannel],
    first: usize,
    lanes: usize,
    descriptors: impl Fn(usize) -> Vec<super::test_channel::DescriptorSpec>,
) -> Result<(), TestError> {
    for (bed, lane) in beds.iter_mut().zip(first..lanes) {
        let post = bed.write(&descriptors(lane), ChainLayout::default())?;
        bed.start(post, record_all())?;
    }
    Ok(())
}
