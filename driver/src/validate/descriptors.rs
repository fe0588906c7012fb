//! Tests of descriptor chains: completed counts, fetching in blocks, and long descriptors.

use fpga_registers::CardAddr;

use super::context::{HostMemory, ResultRecorder, TestContext, skip_reason, skipped_channels};
use super::memory::{pieces, read, write};
use super::pattern::{Expected, GUARD_BYTE, Pattern, compare};
use super::problem::{TestError, Verdict};
use super::registers::granularity;
use super::test_channel::{ChainLayout, DescriptorSpec, TestChannel, record_all};
use crate::Direction;
use crate::name::ChannelName;

/// Chains around the limits of a block (64) and of a page of descriptors (128): first entry and number of descriptors.
const CHAINS: [(usize, usize); 7] = [(0, 1), (0, 2), (0, 64), (0, 65), (0, 200), (100, 61), (127, 130)];
/// Block sizes: single descriptors, one read request of 512 bytes, the maximum.
const BLOCKS: [u32; 3] = [1, 16, 64];
/// Lengths of long descriptors for the quirk, and their number: two full blocks and a part.
const LONG: [usize; 2] = [4097, 8192];
const LONG_DESCRIPTORS: usize = 80;

pub(super) fn run(bench: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    recorder.test(bench, "descriptors.count", |bench| count(bench));
    recorder.test(bench, "descriptors.small", |bench| small(bench));
}

pub(super) fn run_long(bench: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    recorder.test(bench, "descriptors.long", |bench| long(bench));
}

/// Returns the length of a small descriptor in bytes: 16, or more if the card's alignment requires it.
fn small_bytes(bench: &TestContext<'_>) -> usize {
    let (address, length) = granularity(bench);
    16_usize.next_multiple_of(address).next_multiple_of(length)
}

/// Returns `count` small descriptors between host and card. The card side starts again at the end of scratch memory.
fn small_descriptors(
    host: &HostMemory,
    card: CardAddr,
    size: usize,
    count: usize,
    room: usize,
) -> Vec<DescriptorSpec> {
    let places = (room / size).max(1);
    (0..count)
        .map(|n| DescriptorSpec {
            host: host.at(n * size),
            // Inside scratch memory, so the sum is a valid address.
            card: CardAddr::new(card.get() + (n % places * size) as u64),
            length: u32::try_from(size).unwrap_or(0),
        })
        .collect()
}

fn count(bench: &TestContext<'_>) -> Result<Verdict, TestError> {
    let scratch = bench.scratch()?;
    let host = bench.host()?;
    let (mut rigs, busy) = bench.free()?;
    if rigs.is_empty() {
        return Ok(skip_reason("every channel"));
    }
    let size = small_bytes(bench);
    for rig in &mut rigs {
        for (first, count) in CHAINS {
            let pieces = small_descriptors(&host, scratch.start, size, count, bench.max_transfer_length());
            let post = rig.write(&pieces, ChainLayout { first, ..ChainLayout::default() })?;
            rig.start(post, record_all())?;
            // The count of an ended run, read before another run starts.
            rig.finish()?;
            let found = rig.completed()?;
            if found as usize != count {
                return Ok(Verdict::Fail(format!(
                    "{} reports {found} completed descriptors after a run of {count} that ended well: its counts cannot be relied \
                     on, and with them neither completions nor the place of an error",
                    rig.name
                )));
            }
        }
    }
    Ok(Verdict::Pass(format!(
        "{} channels count {} descriptors of runs of 1 to 200 each{}",
        rigs.len(),
        CHAINS.iter().map(|(_, count)| count).sum::<usize>(),
        skipped_channels(&busy)
    )))
}

/// Many small descriptors in one run: blocks of 64 and fewer, across pages of descriptors.
fn small(bench: &TestContext<'_>) -> Result<Verdict, TestError> {
    let scratch = bench.scratch()?;
    let (out, back) = (bench.host()?, bench.host()?);
    let (Some(mut h2c), Some(mut c2h)) = (bench.any(Direction::H2c)?, bench.any(Direction::C2h)?) else {
        return Ok(skip_reason("every channel of one direction"));
    };
    let size = small_bytes(bench);
    let most = bench.max_transfer_length() / size;
    let mut runs = 0;
    for (first, count) in CHAINS {
        let count = count.min(most);
        for block in BLOCKS {
            let chain = ChainLayout { first, block, circular: false };
            let mut expected = vec![0; count * size];
            Pattern::Random.fill(bench.options.seed ^ u64::from(block), scratch.start, &mut expected);
            out.memory().write(0, &expected)?;
            back.memory().fill(0, expected.len(), GUARD_BYTE)?;
            for (rig, host) in [(&mut h2c, &out), (&mut c2h, &back)] {
                let pieces = small_descriptors(host, scratch.start, size, count, bench.max_transfer_length());
                rig.transfer_as(&pieces, chain, record_all())?;
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
    Ok(Verdict::Pass(format!(
        "{runs} runs of up to {} descriptors of {size} bytes, in blocks of 1, 16 and 64, across pages, by {} and {}",
        most.min(200),
        h2c.name,
        c2h.name
    )))
}

/// Descriptors above 4 KiB in more than one adjacent block: some IP builds stall on them, or stop with a magic error.
fn long(bench: &TestContext<'_>) -> Result<Verdict, TestError> {
    let scratch = bench.scratch()?;
    let (address, length) = granularity(bench);
    let sizes: Vec<usize> = LONG
        .into_iter()
        .filter(|size| *size <= bench.max_transfer_length() && size % address == 0 && size % length == 0)
        .collect();
    if sizes.is_empty() {
        return Ok(Verdict::Skip(
            "descriptors above 4 KiB do not fit into the scratch memory; give a longer range to try them"
                .to_owned(),
        ));
    }
    let (out, back) = (bench.host()?, bench.host()?);
    let (mut rigs, busy) = bench.free()?;
    let Some(at) = rigs.iter().position(|rig| rig.name.direction == Direction::H2c) else {
        return Ok(skip_reason("every H2C channel"));
    };
    // Data that the C2H channels read.
    let mut expected = vec![0; sizes.iter().copied().max().unwrap_or(0)];
    Pattern::Random.fill(bench.options.seed, scratch.start, &mut expected);
    if let Some(writer) = rigs.get_mut(at) {
        write(writer, &out, scratch.start, &expected)?;
    }
    for rig in &mut rigs {
        for size in &sizes {
            for (block, count) in [(16, 17), (16, LONG_DESCRIPTORS), (64, LONG_DESCRIPTORS)] {
                let data = expected.get(..*size).unwrap_or_default();
                let tried = long_run(rig, (&out, &back), scratch.start, data, block, count);
                if let Some(verdict) = judge(rig.name, *size, block, count, tried)? {
                    return Ok(verdict);
                }
            }
        }
    }
    // The content that the H2C channels wrote is unchanged.
    let reader = rigs.iter_mut().find(|rig| rig.name.direction == Direction::C2h);
    if let Some(reader) = reader {
        let mut found = vec![0; expected.len()];
        read(reader, &back, scratch.start, &mut found)?;
        let expected = Expected { bytes: &expected, guard: 0, card: scratch.start };
        compare(|| "long descriptors to the card".to_owned(), &expected, &found)?;
    }
    Ok(Verdict::Pass(format!(
        "runs of {LONG_DESCRIPTORS} descriptors above 4 KiB in up to {} blocks work on {} channels{}: ChannelOptions::long_blocks may be set",
        LONG_DESCRIPTORS.div_ceil(16),
        rigs.len(),
        skipped_channels(&busy)
    )))
}

/// Executes one run of long descriptors, all from or to the same card memory.
fn long_run(
    rig: &mut TestChannel,
    (out, back): (&HostMemory, &HostMemory),
    card: CardAddr,
    data: &[u8],
    block: u32,
    count: usize,
) -> Result<(), TestError> {
    let host = if rig.name.direction == Direction::H2c { out } else { back };
    // H2C descriptors write the same bytes to the same address; C2H descriptors read them to separate ranges.
    let step = match rig.name.direction {
        Direction::H2c => 0,
        Direction::C2h => data.len().next_multiple_of(64),
    };
    host.memory().fill(0, host.len(), GUARD_BYTE)?;
    if rig.name.direction == Direction::H2c {
        host.memory().write(0, data)?;
    }
    let count = host.len().checked_div(step).map_or(count, |room| count.min(room));
    let all: Vec<DescriptorSpec> =
        (0..count).flat_map(|n| pieces(host, n * step, card, data.len(), data.len())).collect();
    rig.transfer_as(&all, ChainLayout { first: 0, block, circular: false }, record_all())?;
    if step == 0 {
        return Ok(());
    }
    let mut found = vec![0; data.len()];
    for n in 0..count {
        host.memory().read(n * step, &mut found)?;
        let expected = Expected { bytes: data, guard: 0, card };
        compare(|| format!("{}: descriptor {n}", rig.name), &expected, &found)?;
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
        Err(TestError::Stuck { channel, waited_ms, status, .. }) => {
            let hint = ". Several blocks of descriptors above 4 KiB do that on some IP builds: keep ChannelOptions::long_blocks off \
                        (the default)";
            return Err(TestError::Stuck { channel, waited_ms, status, hint });
        }
        Err(
            problem @ (TestError::Engine { .. }
            | TestError::Slow { .. }
            | TestError::Silent { .. }
            | TestError::Mismatch(_)),
        ) => problem.to_string(),
        Err(problem) => return Err(problem),
    };
    Ok(Some(Verdict::Warn(format!(
        "{name} does not do {count} descriptors of {size} bytes in blocks of {block} ({problem}). This is a known fault of some IP \
         builds: keep ChannelOptions::long_blocks off (the default), or descriptors at 4 KiB"
    ))))
}
