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
        move_and_compare(context, &mut tested, &mut other, (&out, &back), scratch.start, case)?;
        moved += case.size as u64;
    }
    let longest = cases.iter().map(|case| case.size).max().unwrap_or(0);
    Ok(Verdict::pass(format!(
        "{} of 1 to {longest} bytes, {moved} bytes in total, arrived byte for byte{}",
        quantity(cases.len(), "transfer"),
        if longest < 1 << 20 { " (longer ones do not fit into the scratch memory)" } else { "" }
    )))
}

/// Moves the data of a case by the channel under test, with guards at its destination, and compares data and guards. The other channel
/// moves them in the opposite direction.
fn move_and_compare(
    context: &TestContext<'_>,
    tested: &mut TestChannel,
    other: &mut TestChannel,
    (out, back): (&HostMemory, &HostMemory),
    scratch: CardAddr,
    case: &Case,
) -> Result<(), TestError> {
    let start = CardAddr::new(scratch.get() + case.card as u64);
    let at = CardAddr::new(start.get() + GUARD as u64);
    let mut expected = vec![GUARD_BYTE; case.size + 2 * GUARD];
    let guards = expected.clone();
    let mut data = vec![0; case.size];
    case.pattern.fill(context.options.seed, at, &mut data);
    expected.splice(GUARD..GUARD + case.size, data.iter().copied());
    let mut found = vec![0; expected.len()];
    match tested.name.direction {
        Direction::H2c => {
            write(tested, back, start, &guards)?;
            out.memory().write(case.host, &data)?;
            let descriptors = descriptors(out, case.host, at, case.size, case.step);
            tested.transfer_as(&descriptors, ChainLayout::default(), record_all())?;
            read(other, back, start, &mut found)?;
        }
        Direction::C2h => {
            write(other, out, at, &data)?;
            back.memory().write(case.host, &guards)?;
            let descriptors = descriptors(back, case.host + GUARD, at, case.size, case.step);
            tested.transfer_as(&descriptors, ChainLayout::default(), record_all())?;
            back.memory().read(case.host, &mut found)?;
        }
    }
    let expected = Expected { bytes: &expected, guard: GUARD, card: start };
    Ok(compare(|| case.describe(tested.name), &expected, &found)?)
}

/// Runs all free H2C channels at once, each with its own memory; then all free C2H channels while the H2C channels continue.
fn test_all_channels(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let scratch = context.scratch()?;
    let (out, back) = (context.host()?, context.host()?);
    let (channels, busy) = context.free()?;
    let (mut h2c, mut c2h): (Vec<TestChannel>, Vec<TestChannel>) =
        channels.into_iter().partition(|channel| channel.name.direction == Direction::H2c);
    if h2c.is_empty() || c2h.is_empty() {
        return Ok(skip_reason("every channel of one direction"));
    }
    let (address, _) = granularity(context);
    let parts = h2c.len().max(c2h.len());
    let size = (context.max_transfer_length() / parts).min(256 << 10) / 256 * 256 / address * address;
    let address_of = |part: usize| CardAddr::new(scratch.start.get() + (part * size) as u64);
    let mut expected = vec![0; parts * size];
    for (part, bytes) in expected.chunks_mut(size.max(1)).enumerate() {
        Pattern::Random.fill(context.options.seed, address_of(part), bytes);
    }
    out.memory().write(0, &expected)?;
    back.memory().fill(0, expected.len(), GUARD_BYTE)?;

    // One direction may have fewer channels than the other, so the parts are distributed in rounds.
    for round in 0..parts.div_ceil(h2c.len()) {
        let first = round * h2c.len();
        start_all(&mut h2c, first, parts, |part| {
            descriptors(&out, part * size, address_of(part), size, 4096)
        })?;
        h2c.iter_mut().take(parts - first).try_for_each(TestChannel::finish)?;
    }
    for round in 0..parts.div_ceil(c2h.len()) {
        let first = round * c2h.len();
        // Sends the same bytes again, so that both directions work at the same time.
        let again = h2c.len().min(parts);
        start_all(&mut h2c, 0, again, |part| descriptors(&out, part * size, address_of(part), size, 4096))?;
        start_all(&mut c2h, first, parts, |part| {
            descriptors(&back, part * size, address_of(part), size, 4096)
        })?;
        c2h.iter_mut().take(parts - first).try_for_each(TestChannel::finish)?;
        h2c.iter_mut().take(again).try_for_each(TestChannel::finish)?;
    }
    let mut found = vec![0; expected.len()];
    back.memory().read(0, &mut found)?;
    let names: Vec<ChannelName> = h2c.iter().chain(&c2h).map(|channel| channel.name).collect();
    let expected = Expected { bytes: &expected, guard: 0, card: scratch.start };
    compare(|| format!("{} at once", list(&names)), &expected, &found)?;
    Ok(Verdict::pass(format!("{} at once, {size} bytes each{}", list(&names), skipped_channels(&busy))))
}

/// Starts a transfer of one part on each channel, from part `first` on.
fn start_all(
    channels: &mut [TestChannel],
    first: usize,
    parts: usize,
    descriptors: impl Fn(usize) -> Vec<super::test_channel::DescriptorSpec>,
) -> Result<(), TestError> {
    for (channel, part) in channels.iter_mut().zip(first..parts) {
        let post = channel.write(&descriptors(part), ChainLayout::default())?;
        channel.start(post, record_all())?;
    }
    Ok(())
}
