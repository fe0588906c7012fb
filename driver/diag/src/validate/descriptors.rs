//! Tests of descriptor chains: completed counts, fetching in blocks, and long descriptors.

use fpga_driver::Advice;
use fpga_registers::{CardAddr, quantity};

use super::context::{HostMemory, ResultRecorder, TestContext, skip_reason, skipped_channels};
use super::memory::{descriptors, read, write};
use super::pattern::{Expected, GUARD_BYTE, Pattern, compare};
use super::problem::{TestError, Verdict};
use super::registers::granularity;
use super::test_channel::{ChainLayout, DescriptorSpec, TestChannel, record_all};
use fpga_driver::ChannelName;
use fpga_driver::Direction;

/// Chains around the limits of a block (64) and of a page of descriptors (128): first entry and number of descriptors.
const CHAINS: [(usize, usize); 7] = [(0, 1), (0, 2), (0, 64), (0, 65), (0, 200), (100, 61), (127, 130)];
/// Block sizes: single descriptors, one read request of 512 bytes, the maximum.
const BLOCKS: [u32; 3] = [1, 16, 64];
/// Lengths of long descriptors for the quirk, and their number: two full blocks and a part.
const LONG: [usize; 2] = [4097, 8192];
const LONG_DESCRIPTORS: usize = 80;

pub(super) fn run(context: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    recorder.test(context, "descriptors.count", |context| count(context));
    recorder.test(context, "descriptors.small", |context| small(context));
}

pub(super) fn run_long(context: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    recorder.test(context, "descriptors.long", |context| long(context));
}

/// Returns the length of a small descriptor in bytes: 16, or more if the card's alignment requires it.
fn small_bytes(context: &TestContext<'_>) -> usize {
    let (address, length) = granularity(context);
    16_usize.next_multiple_of(address).next_multiple_of(length)
}

/// Returns `count` small descriptors between host and card. The card side starts again at the end of scratch memory.
fn small_descriptors(
    host: &HostMemory,
    card: CardAddr,
    size: usize,
    count: usize,
    available: usize,
) -> Vec<DescriptorSpec> {
    let places = (available / size).max(1);
    (0..count)
        .map(|n| DescriptorSpec {
            host: host.at(n * size),
            // Inside scratch memory, so the sum is a valid address.
            card: CardAddr::new(card.get() + (n % places * size) as u64),
            length: u32::try_from(size).unwrap_or(0),
        })
        .collect()
}

fn count(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let scratch = context.scratch()?;
    let host = context.host()?;
    let (mut channels, busy) = context.free()?;
    if channels.is_empty() {
        return Ok(skip_reason("every channel"));
    }
    let size = small_bytes(context);
    for channel in &mut channels {
        for (first, count) in CHAINS {
            let descriptors =
                small_descriptors(&host, scratch.start, size, count, context.max_transfer_length());
            let post = channel.write(&descriptors, ChainLayout { first, ..ChainLayout::default() })?;
            channel.start(post, record_all())?;
            // The count of an ended run, read before another run starts.
            channel.finish()?;
            let found = channel.completed()?;
            if found as usize != count {
                return Ok(Verdict::fail(format!(
                    "{} reports {found} completed descriptors after a run of {count} that succeeded: its counts are unreliable, so \
                     completions and the position of an error are unreliable too",
                    channel.name
                )));
            }
        }
    }
    Ok(Verdict::pass(format!(
        "counted right by {}: {} descriptors of runs of 1 to 200 each{}",
        quantity(channels.len(), "channel"),
        CHAINS.iter().map(|(_, count)| count).sum::<usize>(),
        skipped_channels(&busy)
    )))
}

/// Many small descriptors in one run: blocks of 64 and fewer, across pages of descriptors.
fn small(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let scratch = context.scratch()?;
    let (out, back) = (context.host()?, context.host()?);
    let (Some(mut h2c), Some(mut c2h)) = (context.any(Direction::H2c)?, context.any(Direction::C2h)?) else {
        return Ok(skip_reason("every channel of one direction"));
    };
    let size = small_bytes(context);
    let most = context.max_transfer_length() / size;
    let mut runs = 0;
    for (first, count) in CHAINS {
        let count = count.min(most);
        for block in BLOCKS {
            let chain = ChainLayout { first, block, circular: false };
            let mut expected = vec![0; count * size];
            Pattern::Random.fill(context.options.seed ^ u64::from(block), scratch.start, &mut expected);
            out.memory().write(0, &expected)?;
            back.memory().fill(0, expected.len(), GUARD_BYTE)?;
            for (channel, host) in [(&mut h2c, &out), (&mut c2h, &back)] {
                let descriptors =
                    small_descriptors(host, scratch.start, size, count, context.max_transfer_length());
                channel.transfer_as(&descriptors, chain, record_all())?;
            }
            let mut found = vec![0; expected.len()];
            back.memory().read(0, &mut found)?;
            let what = || {
                format!(
                    "{} and {}: {count} descriptors of {size} bytes in blocks of {block} from entry {first} on",
                    h2c.name, c2h.name
                )
            };
            compare(what, &Expected { bytes: &expected, guard: 0, card: scratch.start }, &found)?;
            runs += 1;
        }
    }
    Ok(Verdict::pass(format!(
        "{} of up to {} descriptors of {size} bytes, in blocks of 1, 16 and 64, across pages, by {} and {}",
        quantity(runs, "run"),
        most.min(200),
        h2c.name,
        c2h.name
    )))
}

/// Descriptors above 4 KiB in more than one adjacent block: some IP builds stall on them, or stop with a magic error.
fn long(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let scratch = context.scratch()?;
    let (address, length) = granularity(context);
    let sizes: Vec<usize> = LONG
        .into_iter()
        .filter(|size| *size <= context.max_transfer_length() && size % address == 0 && size % length == 0)
        .collect();
    if sizes.is_empty() {
        return Ok(Verdict::skip(
            "descriptors above 4 KiB do not fit into the scratch memory; give a longer range to test them"
                .to_owned(),
        ));
    }
    let (out, back) = (context.host()?, context.host()?);
    let (mut channels, busy) = context.free()?;
    let Some(at) = channels.iter().position(|channel| channel.name.direction == Direction::H2c) else {
        return Ok(skip_reason("every H2C channel"));
    };
    // Data that the C2H channels read.
    let mut expected = vec![0; sizes.iter().copied().max().unwrap_or(0)];
    Pattern::Random.fill(context.options.seed, scratch.start, &mut expected);
    if let Some(writer) = channels.get_mut(at) {
        write(writer, &out, scratch.start, &expected)?;
    }
    for channel in &mut channels {
        for size in &sizes {
            for (block, count) in [(16, 17), (16, LONG_DESCRIPTORS), (64, LONG_DESCRIPTORS)] {
                let data = expected.get(..*size).unwrap_or_default();
                let tried = long_run(channel, (&out, &back), scratch.start, data, block, count);
                if let Some(verdict) = judge(channel.name, *size, block, count, tried)? {
                    return Ok(verdict);
                }
            }
        }
    }
    // The content that the H2C channels wrote is unchanged.
    let reader = channels.iter_mut().find(|channel| channel.name.direction == Direction::C2h);
    if let Some(reader) = reader {
        let mut found = vec![0; expected.len()];
        read(reader, &back, scratch.start, &mut found)?;
        let expected = Expected { bytes: &expected, guard: 0, card: scratch.start };
        compare(|| "long descriptors to the card".to_owned(), &expected, &found)?;
    }
    Ok(Verdict::pass(format!(
        "runs of {LONG_DESCRIPTORS} descriptors above 4 KiB in up to {} blocks work on {}{}: the option long_blocks of channels may be set",
        LONG_DESCRIPTORS.div_ceil(16),
        quantity(channels.len(), "channel"),
        skipped_channels(&busy)
    )))
}

/// Executes one run of long descriptors, all from or to the same card memory.
fn long_run(
    channel: &mut TestChannel,
    (out, back): (&HostMemory, &HostMemory),
    card: CardAddr,
    data: &[u8],
    block: u32,
    count: usize,
) -> Result<(), TestError> {
    let host = if channel.name.direction == Direction::H2c { out } else { back };
    // H2C descriptors write the same bytes to the same address; C2H descriptors read them to separate ranges.
    let step = match channel.name.direction {
        Direction::H2c => 0,
        Direction::C2h => data.len().next_multiple_of(64),
    };
    host.memory().fill(0, host.len(), GUARD_BYTE)?;
    if channel.name.direction == Direction::H2c {
        host.memory().write(0, data)?;
    }
    let count = host.len().checked_div(step).map_or(count, |available| count.min(available));
    let all: Vec<DescriptorSpec> =
        (0..count).flat_map(|n| descriptors(host, n * step, card, data.len(), data.len())).collect();
    channel.transfer_as(&all, ChainLayout { first: 0, block, circular: false }, record_all())?;
    if step == 0 {
        return Ok(());
    }
    let mut found = vec![0; data.len()];
    for n in 0..count {
        host.memory().read(n * step, &mut found)?;
        let expected = Expected { bytes: data, guard: 0, card };
        compare(|| format!("{}: descriptor {n}", channel.name), &expected, &found)?;
    }
    Ok(())
}

/// Interprets a failure as the quirk, unless the card is lost.
fn judge(
    name: ChannelName,
    size: usize,
    block: u32,
    count: usize,
    tried: Result<(), TestError>,
) -> Result<Option<Verdict>, TestError> {
    let problem = match tried {
        Ok(()) => return Ok(None),
        Err(TestError::Stuck { channel, waited, status, .. }) => {
            let hint = ". Several blocks of descriptors above 4 KiB cause this on some IP builds";
            return Err(TestError::Stuck { channel, waited, status, hint });
        }
        Err(
            problem @ (TestError::Engine { .. }
            | TestError::Slow { .. }
            | TestError::Silent { .. }
            | TestError::Mismatch(_)),
        ) => problem.to_string(),
        Err(problem) => return Err(problem),
    };
    let what = format!(
        "{name} does not execute {count} descriptors of {size} bytes in blocks of {block} ({problem}). This is a known fault of some IP builds"
    );
    Ok(Some(Verdict::warn(what).advise(Advice::AvoidLongBlocks)))
}
