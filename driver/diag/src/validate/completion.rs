//! Tests of completion by write-back, by interrupt and by both together; and of stopping a run.

use core::time::Duration;
use fpga_driver::Advice;

use fpga_pci::{Interrupt, InterruptError};
use fpga_registers::quantity;
use fpga_registers::xdma::PollWriteback;

use super::context::{HostMemory, ResultRecorder, TestContext, list, skip_reason, skipped_channels};
use super::memory::descriptors;
use super::problem::{TestError, Verdict};
use super::test_channel::{
    Availability, ChainLayout, DescriptorSpec, MAX_DESCRIPTORS, TestChannel, record_all,
};
use fpga_driver::CardRange;
use fpga_driver::ChannelName;
use fpga_driver::Direction;
use fpga_driver::InterruptVectors;
use fpga_driver::ResourceError;

/// Number of descriptors of a short run.
const SHORT: usize = 5;
/// Length of each of its descriptors in bytes.
const BYTES: usize = 256;

pub(super) fn run(context: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    recorder.test(context, "writeback", writeback);
    interrupts(context, recorder);
    recorder.test(context, "abort", |context| abort(context));
}

/// Returns the descriptors of a short run in scratch memory.
fn short(host: &HostMemory, scratch: CardRange) -> Vec<DescriptorSpec> {
    descriptors(host, 0, scratch.start, SHORT * BYTES, BYTES)
}

fn writeback(context: &mut TestContext<'_>) -> Result<Verdict, TestError> {
    let scratch = context.scratch()?;
    let host = context.host()?;
    let (mut channels, busy) = context.free()?;
    if channels.is_empty() {
        return Ok(skip_reason("every channel"));
    }
    let mut without_bit = Vec::new();
    for channel in &mut channels {
        channel.transfer(&short(&host, scratch))?;
        let word = PollWriteback::from_bits(channel.writeback()?);
        if word.into_bits() == 0 {
            return Ok(Verdict::fail(format!(
                "{} does not write back its count although control bits 2 and 26 are set: polling does not work, wait by interrupt; an IP \
                 older than 2016.1 has no write-back",
                channel.name
            )));
        }
        if word.error() || word.count() as usize != SHORT {
            return Ok(Verdict::fail(format!(
                "{} writes back {:#010x} after a run of {SHORT} descriptors that succeeded: completion by polling is \
                 unreliable",
                channel.name,
                word.into_bits()
            )));
        }
        // Bit 26 alone, as in the vendor's driver.
        let control = record_all().with_ie_descriptor_completed(false);
        channel.transfer_as(&short(&host, scratch), ChainLayout::default(), control)?;
        if channel.writeback()? != 0 {
            without_bit.push(channel.name);
        }
    }
    context.findings.writeback_needs_enable = Some(without_bit.len() != channels.len());
    let needed = match without_bit.len() {
        0 => "this needs control bit 2, which the driver sets".to_owned(),
        n if n == channels.len() => "this does not need control bit 2".to_owned(),
        _ => format!("without control bit 2 only {} do so", list(&without_bit)),
    };
    Ok(Verdict::pass(format!(
        "counts are written back by {}; {needed}{}",
        quantity(channels.len(), "channel"),
        skipped_channels(&busy)
    )))
}

fn interrupts(context: &mut TestContext<'_>, recorder: &mut ResultRecorder<'_>) {
    let names: Vec<ChannelName> = context.card.info().xdma.channels().collect();
    let was_enabled = context.card.has_interrupts();
    recorder.test(context, "interrupts.enable", |context| match context.card.enable_interrupts() {
        Ok(granted) if granted.is_shared() => {
            let InterruptVectors { vectors, channels, .. } = granted;
            let (vectors, channels) = (quantity(vectors, "vector"), quantity(channels, "channel"));
            Ok(Verdict::warn(format!("only {vectors} for {channels}: channels share them")))
        }
        Ok(_) => Ok(Verdict::pass(format!("{}, one per channel", quantity(names.len(), "vector")))),
        Err(error) => {
            let cause = match &error.kind {
                ResourceError::Cause(cause) => cause.get(),
                _ => None,
            };
            match cause {
                Some(InterruptError::TooMany { asked, available }) => Ok(Verdict::warn(format!(
                    "the card has {} for {}: wait by polling",
                    quantity(*available, "vector"),
                    quantity(*asked, "channel")
                ))),
                Some(_) => Ok(Verdict::fail(error.to_string())),
                None => Err(error.into()),
            }
        }
    });
    for name in names {
        recorder.test(context, format!("interrupts.{name}"), |context| one_interrupt(context, name));
    }
    recorder.test(context, "interrupts.writeback", |context| interrupt_and_writeback(context));
    if !was_enabled {
        // Fails if another owner has taken a part of the card with an interrupt meanwhile: then they stay enabled.
        let _ = context.card.disable_interrupts();
    }
}

/// Executes a short run with the interrupt enabled; `None` if no interrupt came.
fn interrupted(
    context: &TestContext<'_>,
    channel: &mut TestChannel,
    interrupt: &Interrupt,
    host: &HostMemory,
    scratch: CardRange,
) -> Result<Option<u32>, TestError> {
    let _ = interrupt.try_take();
    interrupt.rearm();
    let post = channel.write(&short(host, scratch), ChainLayout::default())?;
    channel.enable_interrupt(true)?;
    channel.start(post, record_all())?;
    let limit = Duration::from_nanos(context.limit());
    let woken = context.card.backend().wait_interrupt(interrupt, limit);
    // Before a register is read, because the read would push a write-back in flight.
    let word = channel.writeback()?;
    channel.enable_interrupt(false)?;
    channel.finish()?;
    match woken {
        Ok(woken) => Ok(woken.map(|_| word)),
        Err(source) => Err(TestError::Interrupt(source)),
    }
}

fn one_interrupt(context: &TestContext<'_>, name: ChannelName) -> Result<Verdict, TestError> {
    let scratch = context.scratch()?;
    let host = context.host()?;
    let Availability::Free(mut channel) = context.take(name)? else { return Ok(skip_reason(name)) };
    let Some((interrupt, vector)) = channel.interrupt() else {
        return Ok(Verdict::skip("interrupts are not enabled"));
    };
    // The other free channels are idle, so an interrupt on their vectors now belongs to this channel.
    let (others, _) = context.free()?;
    let others: Vec<(ChannelName, usize, Interrupt)> = others
        .iter()
        .filter_map(|other| other.interrupt().map(|(interrupt, vector)| (other.name, vector, interrupt)))
        .filter(|(_, other, _)| *other != vector)
        .collect();
    for (_, _, other) in &others {
        let _ = other.try_take();
    }
    let woken = interrupted(context, &mut channel, &interrupt, &host, scratch)?;
    let stray = others.iter().find(|(_, _, other)| other.try_take() != 0);
    Ok(match (woken, stray) {
        (Some(_), None) => Verdict::pass(format!("vector {vector} fires when a run ends")),
        (Some(_), Some((other, wrong, _))) => Verdict::fail(format!(
            "vectors {vector} and {wrong} ({other}'s) fire when a run ends: the vector registers at 0x20a0 do not hold what was \
             written; wait by polling"
        )),
        (None, Some((other, wrong, _))) => Verdict::fail(format!(
            "vector {wrong} ({other}'s) fires instead of {vector}: the vector registers at 0x20a0 do not hold what was written; \
             wait by polling"
        )),
        (None, None) => Verdict::fail(format!(
            "no interrupt on vector {vector} within {} ms though the run ended: check that the interrupt is not masked (lspci \
             -vv: MSI-X Enable+ Masked-), or wait by polling",
            context.limit() / 1_000_000
        )),
    })
}

/// A hybrid wait requires that the write-back word is in memory when the interrupt arrives.
fn interrupt_and_writeback(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let scratch = context.scratch()?;
    let host = context.host()?;
    let (mut channels, busy) = context.free()?;
    let mut tried = 0;
    for channel in &mut channels {
        let Some((interrupt, _)) = channel.interrupt() else { continue };
        match interrupted(context, channel, &interrupt, &host, scratch)? {
            None => {
                let what = format!("{} sends no interrupt if write-back is enabled", channel.name);
                return Ok(Verdict::warn(what).advise(Advice::AvoidHybridWaits));
            }
            Some(0) => {
                let what =
                    format!("{}'s interrupt arrives before its write-back, or without it", channel.name);
                return Ok(Verdict::warn(what).advise(Advice::AvoidHybridWaits));
            }
            Some(_) => tried += 1,
        }
    }
    Ok(if tried == 0 {
        Verdict::skip("no channel with an interrupt is free")
    } else {
        Verdict::pass(format!(
            "the write-back is in memory when the interrupt arrives, on {}{}: hybrid waits may be used",
            quantity(tried, "channel"),
            skipped_channels(&busy)
        ))
    })
}

/// Clears Run in the middle of a long run: the engine finishes its current descriptor and executes no further one.
fn abort(context: &TestContext<'_>) -> Result<Verdict, TestError> {
    let scratch = context.scratch()?;
    let host = context.host()?;
    let (mut channels, busy) = context.free()?;
    if channels.is_empty() {
        return Ok(skip_reason("every channel"));
    }
    let size = context.max_transfer_length().min(4096) / 64 * 64;
    let one = descriptors(&host, 0, scratch.start, size, size);
    let run: Vec<DescriptorSpec> = one.iter().copied().cycle().take(MAX_DESCRIPTORS).collect();
    let (mut stopped, mut too_fast) = (Vec::new(), Vec::new());
    for channel in &mut channels {
        let post = channel.write(&run, ChainLayout::default())?;
        channel.start(post, record_all())?;
        context.relax();
        let status = channel.stop()?;
        if status.descriptor_stopped() {
            too_fast.push(channel.name);
        } else {
            stopped.push(channel.name);
        }
        if channel.name.direction == Direction::C2h {
            // An idle engine must not write: a pattern shows later writes.
            host.memory().fill(0, size, 0x5A)?;
            context.pause(100_000);
            let mut found = vec![0; size];
            host.memory().read(0, &mut found)?;
            if found.iter().any(|byte| *byte != 0x5A) {
                return Ok(Verdict::fail(format!(
                    "{} still writes to host memory after it was stopped and reported idle: do not reuse its buffers \
                     after an abort, reset the card",
                    channel.name
                )));
            }
        }
        channel.transfer(&short(&host, scratch))?;
    }
    let bytes = MAX_DESCRIPTORS * size;
    Ok(if stopped.is_empty() {
        Verdict::skip(format!("every run of {bytes} bytes ended before it could be stopped"))
    } else {
        let fast = if too_fast.is_empty() {
            String::new()
        } else {
            format!("; the runs of {} ended before they could be stopped", list(&too_fast))
        };
        Verdict::pass(format!(
            "{} stop in the middle of a run and work again{fast}{}",
            list(&stopped),
            skipped_channels(&busy)
        ))
    })
}
