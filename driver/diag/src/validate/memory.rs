//! Saving and restoring of the card memory that tests use.

use fpga_registers::CardAddr;

use super::context::{HostMemory, ResultRecorder, TestContext, skip_reason};
use super::pattern::{Expected, compare};
use super::problem::{TestError, Verdict};
use super::test_channel::{DescriptorSpec, TestChannel};
use fpga_driver::Direction;
use fpga_pci::host::Status;

/// Length of a descriptor in bytes: short enough to avoid the long-descriptor quirk.
const STEP: usize = 4096;

/// Returns descriptors for `length` bytes between `host` and `card`, each of at most `step` bytes.
pub(super) fn descriptors(
    host: &HostMemory,
    offset: usize,
    card: CardAddr,
    length: usize,
    step: usize,
) -> Vec<DescriptorSpec> {
    (0..length)
        .step_by(step.max(1))
        .map(|done| DescriptorSpec {
            host: host.at(offset + done),
            // Inside scratch memory, so the sum is a valid address.
            card: CardAddr::new(card.get() + done as u64),
            length: u32::try_from(step.min(length - done)).unwrap_or(0),
        })
        .collect()
}

/// Writes `bytes` to card memory at `card`.
pub(super) fn write(
    channel: &mut TestChannel,
    host: &HostMemory,
    card: CardAddr,
    bytes: &[u8],
) -> Result<(), TestError> {
    let mut card = card.get();
    for part in bytes.chunks(host.len().max(1)) {
        host.memory().write(0, part)?;
        channel.transfer(&descriptors(host, 0, CardAddr::new(card), part.len(), STEP))?;
        card += part.len() as u64;
    }
    Ok(())
}

/// Reads card memory at `card`.
pub(super) fn read(
    channel: &mut TestChannel,
    host: &HostMemory,
    card: CardAddr,
    into: &mut [u8],
) -> Result<(), TestError> {
    let mut card = card.get();
    for part in into.chunks_mut(host.len().max(1)) {
        channel.transfer(&descriptors(host, 0, CardAddr::new(card), part.len(), STEP))?;
        host.memory().read(0, part)?;
        card += part.len() as u64;
    }
    Ok(())
}

pub(super) fn save(context: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    context.no_scratch = "card memory could not be saved, so it is not written to".to_owned();
    recorder.test(context, "memory.save", |context| {
        if context.card.info().xdma.stream {
            let reason = "the channels are AXI4-Stream: they reach no card memory";
            context.no_scratch = reason.to_owned();
            return Ok(Verdict::skip(reason.to_owned()));
        }
        let range = match context.choose_scratch() {
            Ok(range) => range,
            Err(verdict) => {
                if let Verdict { status: Status::Skip | Status::Fail, text: reason, .. } = &verdict {
                    context.no_scratch.clone_from(reason);
                }
                return Ok(verdict);
            }
        };
        for direction in Direction::ALL {
            if context.any(direction)?.is_none() {
                let reason = format!("no {direction} channel is free; drop a handle to test transfers");
                context.no_scratch.clone_from(&reason);
                return Ok(Verdict::skip(reason));
            }
        }
        let host = context.host()?;
        let Some(mut channel) = context.any(Direction::C2h)? else {
            return Ok(skip_reason("the last C2H channel"));
        };
        let mut saved = vec![0; usize::try_from(range.length).unwrap_or(0)];
        read(&mut channel, &host, range.start, &mut saved)?;
        context.saved = saved;
        context.scratch = Some(range);
        Ok(Verdict::pass(format!("{} bytes at {} to {} saved", range.length, range.start, range.last())))
    });
}

pub(super) fn restore(context: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    let Some(range) = context.scratch else { return };
    recorder.run_restoring_test(context, "memory.restore", |context| {
        let what = format!("{} bytes at {}", range.length, range.start);
        let lost = |problem: TestError| match problem {
            TestError::Gone | TestError::Stuck { .. } => problem,
            other => TestError::Restore { what: what.clone(), why: other.to_string() },
        };
        let host = context.host()?;
        let (Some(mut h2c), Some(mut c2h)) = (context.any(Direction::H2c)?, context.any(Direction::C2h)?)
        else {
            return Ok(Verdict::fail(format!(
                "{what} still hold test data: no channel is free to restore them"
            )));
        };
        let saved = core::mem::take(&mut context.saved);
        let mut back = vec![0; saved.len()];
        write(&mut h2c, &host, range.start, &saved)
            .and_then(|()| read(&mut c2h, &host, range.start, &mut back))
            .map_err(lost)?;
        let expected = Expected { bytes: &saved, guard: 0, card: range.start };
        compare(|| "restoring card memory".to_owned(), &expected, &back)?;
        Ok(Verdict::pass(format!("{what} are restored")))
    });
}
