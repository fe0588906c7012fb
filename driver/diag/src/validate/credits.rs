//! Test of descriptor credit mode: whether an engine executes exactly as many descriptors as it was granted credits for.
//!
//! A ring in credit mode depends on this (PG195, "Descriptor Credit Mode"). Few drivers use credits, so support is not assumed: a failure
//! here is a warning, and batch mode still works.

use fpga_driver::Advice;
use fpga_registers::quantity;
use fpga_registers::xdma::PollWriteback;

use super::context::{HostMemory, ResultRecorder, TestContext, list, skip_reason, skipped_channels};
use super::problem::{TestError, Verdict};
use super::test_channel::{ChainLayout, DescriptorSpec, TestChannel, record_all};
use fpga_driver::CardRange;
use fpga_driver::ChannelName;
use fpga_driver::Direction;
use fpga_pci::poll_until;

/// Number of descriptors in the ring.
const RING: usize = 24;
/// Length of each descriptor in bytes; the marker below is written to that memory.
const BYTES: usize = 64;
/// Credits of each grant: single ones, parts of a block, and across the end of the ring.
const CREDIT_GRANTS: [u16; 8] = [1, 3, 1, 7, 20, 2, 24, 40];
/// Time after which an engine without credits counts as stopped, in nanoseconds: some round trips.
const STOP_CONFIRM_NS: u64 = 200_000;

pub(super) fn run(context: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    recorder.test(context, "credits.enable", |context| enable(context));
    recorder.test(context, "credits.run", |context| run_credit_mode(context));
}

fn enable(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let (channels, busy) = context.free()?;
    if channels.is_empty() {
        return Ok(skip_reason("every channel"));
    }
    let mut wrong: Vec<ChannelName> = Vec::new();
    for channel in &channels {
        let taken = channel.set_credit_mode(true)?;
        if !(channel.set_credit_mode(false)? && taken) {
            wrong.push(channel.name);
        }
    }
    Ok(if wrong.is_empty() {
        Verdict::pass(format!(
            "the bits at 0x6020 of {} can be set and cleared{}",
            quantity(channels.len(), "channel"),
            skipped_channels(&busy)
        ))
    } else {
        Verdict::warn(format!("the bits at 0x6020 of {} do not keep the written value", list(&wrong)))
            .advise(Advice::UseBatchMode)
    })
}

fn run_credit_mode(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let scratch = context.scratch()?;
    let host = context.host()?;
    let (mut channels, busy) = context.free()?;
    if channels.is_empty() {
        return Ok(skip_reason("every channel"));
    }
    for channel in &mut channels {
        if !channel.set_credit_mode(true)? {
            return Ok(Verdict::skip(format!("{} has no credit mode", channel.name)));
        }
        // Single descriptors, and blocks that credits split: entry 120 is near the end of a page.
        for chain in [
            ChainLayout { first: 0, block: 1, circular: true },
            ChainLayout { first: 120, block: 64, circular: true },
        ] {
            let wrong = match check_ring(context, channel, &host, scratch, chain) {
                Ok(wrong) => wrong,
                Err(
                    problem @ (TestError::Engine { .. } | TestError::Slow { .. } | TestError::Silent { .. }),
                ) => Some(problem.to_string()),
                Err(problem) => return Err(problem),
            };
            if let Some(wrong) = wrong {
                channel.stop()?;
                let what = format!("{} in credit mode, blocks of {}: {wrong}", channel.name, chain.block);
                return Ok(Verdict::warn(what).advise(Advice::UseBatchMode));
            }
        }
        if !channel.set_credit_mode(false)? {
            return Ok(Verdict::fail(format!("{} does not leave credit mode; reset the card", channel.name)));
        }
        // Batch mode works as before.
        channel.transfer(&ring_descriptors(channel, &host, scratch))?;
    }
    let granted: u16 = CREDIT_GRANTS.iter().sum();
    Ok(Verdict::pass(format!(
        "one descriptor for each credit on {}, {granted} in {} grants around a ring of {RING}{}: \
         credit mode may be used",
        quantity(channels.len(), "channel"),
        CREDIT_GRANTS.len(),
        skipped_channels(&busy)
    )))
}

fn ring_descriptors(channel: &TestChannel, host: &HostMemory, scratch: CardRange) -> Vec<DescriptorSpec> {
    (0..RING)
        .map(|n| DescriptorSpec {
            // C2H: every entry has its own range of host memory, which shows whether it was executed.
            host: host.at(if channel.name.direction == Direction::C2h { n * BYTES } else { 0 }),
            card: scratch.start,
            length: u32::try_from(BYTES).unwrap_or(0),
        })
        .collect()
}

/// Grants credits around a ring without Stop. Returns a description of the first deviation.
fn check_ring(
    context: &TestContext<'_>,
    channel: &mut TestChannel,
    host: &HostMemory,
    scratch: CardRange,
    chain: ChainLayout,
) -> Result<Option<String>, TestError> {
    const MARK: u8 = 0xC3;
    let descriptors = ring_descriptors(channel, host, scratch);
    host.memory().fill(0, RING * BYTES, MARK)?;
    let post = channel.write(&descriptors, chain)?;
    channel.start(post, record_all())?;
    context.pause(STOP_CONFIRM_NS);
    if let Some(wrong) = check_count(channel, 0)? {
        return Ok(Some(format!("before any credit {wrong}")));
    }
    let mut granted = 0_u32;
    for grant in CREDIT_GRANTS {
        channel.grant(grant)?;
        granted += u32::from(grant);
        // Missing descriptors are reported below.
        let _ = poll_until(&**context.card.backend(), context.limit(), |_| {
            if channel.completed()? >= granted {
                return Ok(Some(()));
            }
            let status = channel.status()?;
            if status.has_error(channel.name.direction) {
                channel.finish()?;
            }
            Ok::<_, TestError>(None)
        })?;
        // The engine must not execute more than granted either.
        context.pause(STOP_CONFIRM_NS);
        if let Some(wrong) = check_count(channel, granted)? {
            return Ok(Some(format!("after {granted} credits {wrong}")));
        }
        if channel.name.direction == Direction::C2h && granted < u32::try_from(RING).unwrap_or(0) {
            let mut bytes = vec![0; RING * BYTES];
            host.memory().read(0, &mut bytes)?;
            let untouched = bytes.get(granted as usize * BYTES..).unwrap_or_default();
            if untouched.iter().any(|byte| *byte != MARK) {
                return Ok(Some(format!("after {granted} credits more entries were executed")));
            }
        }
    }
    let word = PollWriteback::from_bits(channel.writeback()?);
    channel.stop()?;
    if word.error() || word.count() != granted {
        return Ok(Some(format!(
            "the write-back word is {:#010x} after {granted} credits",
            word.into_bits()
        )));
    }
    Ok(None)
}

/// Returns a description if the completed count is not `expected`.
fn check_count(channel: &TestChannel, expected: u32) -> Result<Option<String>, TestError> {
    let found = channel.completed()?;
    Ok((found != expected).then(|| format!("{} done instead of {expected}", quantity(found, "descriptor"))))
}
