//! Cost of an operation, counted in the backend, so that it can be compared on any card: register reads, register writes, interrupts. Where
//! the card counts too, both counts must agree.

use core::time::Duration;
use std::time::Instant;

use fpga_driver::{Card, RunMode, WaitMode, WaitOptions};
use fpga_pci::Backend as _;
use fpga_pci::config;
use fpga_sim::served::MessageCount;

use super::{Case, CaseContext, Verdict, case};
use crate::bed::{TestSetup, relax};
use crate::conformance::Cost;
use crate::conformance::case_context::{ChannelPair, Opened, long_wait};
use crate::fault_injecting::AccessTraffic;

pub(super) const CASES: &[Case] = &[
    case("cost.poll", &[], poll),
    case("cost.interrupt", &[], interrupt),
    case("cost.hybrid_polls_first", &[], hybrid),
];

/// Counts the cost of `work`. The card's interrupt count is preferred to the backend's, because it includes interrupts that no wait
/// expected. Where the card is reached by messages, each read is one message, each write at most one, which wakes a server that sleeps beside the
/// ring of writes, and there are no others.
pub(super) fn cost(opened: &Opened, work: impl FnOnce()) -> AccessTraffic {
    let now = |card: &Card| {
        // Posted writes may still be in flight. The response to this read follows them, and it is not a register access.
        opened.injector.config_read(0, &mut [0; 4]).expect("configuration space");
        (opened.injector.traffic(), card.counters(), opened.messages.as_ref().map(MessageCount::get))
    };
    let (injector, card, messages) = now(&opened.card);
    work();
    let (injector_after, card_after, messages_after) = now(&opened.card);
    let mut cost = AccessTraffic {
        reads: injector_after.reads - injector.reads,
        writes: injector_after.writes - injector.writes,
        interrupts: injector_after.interrupts - injector.interrupts,
    };
    if let (Some(before), Some(after)) = (card, card_after) {
        assert_eq!(
            after.mmio_reads - before.mmio_reads,
            cost.reads,
            "register reads: the card's count equals the backend's"
        );
        assert_eq!(
            after.mmio_writes - before.mmio_writes,
            cost.writes,
            "register writes: the card's count equals the backend's"
        );
        cost.interrupts = after.interrupts - before.interrupts;
    }
    if let (Some(before), Some(after)) = (messages, messages_after) {
        // The query for the count is one message itself.
        let count = after - before - 1;
        let limits = cost.reads..=cost.reads + cost.writes;
        assert!(limits.contains(&count), "{count} messages, by the server's count: {cost:?}");
    }
    cost
}

/// Reports the cost of `transfers` transfers of 4 KiB.
fn show(context: &CaseContext<'_>, waited: &str, setup: TestSetup, transfers: usize, cost: AccessTraffic) {
    let ring = match setup.mode {
        RunMode::Credit => "credit mode",
        _ => "batch mode",
    };
    context.show(Cost {
        work: format!("{waited}, {}, {ring}", if setup.to_card() { "H2C" } else { "C2H" }),
        transfers: transfers as u64,
        reads: cost.reads,
        writes: cost.writes,
        interrupts: cost.interrupts,
    });
}

/// Runs `count` batches of transfers of 4 KiB and waits for each batch.
fn batches(
    pair: &mut ChannelPair,
    memory: fpga_driver::MemoryHandle,
    batches: usize,
    depth: usize,
    wait: WaitOptions,
) {
    batches_of(pair, memory, 4096, batches, depth, wait);
}

/// Runs `count` batches of transfers of `length` bytes, at most 4 KiB, and waits for each batch.
fn batches_of(
    pair: &mut ChannelPair,
    memory: fpga_driver::MemoryHandle,
    length: usize,
    batches: usize,
    depth: usize,
    wait: WaitOptions,
) {
    for _ in 0..batches {
        let mut last = None;
        for n in 0..depth {
            let at = pair.at((n % 64 * 4096) as u64);
            last = Some(pair.channel.submit_at(memory, n % 64 * 4096, length, at).expect("accepted"));
        }
        pair.channel.wait_ended(last.expect("a batch that is not empty"), wait).expect("the batch completes");
    }
}

/// Descriptors that the card has executed and bytes that it has moved, where it counts them.
fn executed(opened: &Opened) -> Option<(u64, u64)> {
    opened.card.counters().map(|counters| (counters.descriptors, counters.dma_bytes))
}

/// Asserts that the card has executed exactly `count` descriptors of `length` bytes since `before`.
fn assert_executed(opened: &Opened, before: Option<(u64, u64)>, count: u64, length: u64) {
    if let (Some(before), Some(after)) = (before, executed(opened)) {
        assert_eq!(
            (after.0 - before.0, after.1 - before.1),
            (count, count * length),
            "descriptors and bytes"
        );
    }
}

/// Keeps the ring full of transfers of `length` bytes until `count` have been submitted and have ended.
fn stream(pair: &mut ChannelPair, memory: fpga_driver::MemoryHandle, length: usize, count: u64) {
    let end = pair.channel.ended() + u64::from(pair.channel.in_flight()) + count;
    let mut left = count;
    while pair.channel.ended() < end {
        while left > 0 {
            let offset = left % 64 * length as u64;
            let (place, at) = (usize::try_from(offset).expect("inside the memory"), pair.at(offset));
            match pair.channel.submit_at(memory, place, length, at) {
                Ok(_) => left -= 1,
                Err(refused) if refused.is_full() => break,
                Err(refused) => panic!("{refused}"),
            }
        }
        pair.channel.poll().expect("polling succeeds");
        relax(&pair.channel);
    }
}

/// A ring that is kept full reads no register and writes few. Tested with and without space in the ring between queued and fetched
/// descriptors.
fn full_ring(opened: &Opened, setup: TestSetup) -> Verdict {
    const COUNT: u64 = 8192;
    let depth = if setup.mode == RunMode::Batch { 256 } else { 64 };
    for (descriptors, length) in [(2 * depth, 64), (2 * depth, 4096), (depth, 64)] {
        let mut pair = opened.pair_with(setup, setup.options().descriptors(descriptors).transfers(depth))?;
        let memory = pair
            .channel
            .register_memory(opened.card.registered_memory(64 * 4096).expect("DMA memory"))
            .expect("registration succeeds");
        stream(&mut pair, memory, length, 1000);
        let before = executed(opened);
        let cost = cost(opened, || stream(&mut pair, memory, length, COUNT));
        assert_eq!((cost.reads, cost.interrupts), (0, 0), "{setup:?}");
        assert!(cost.writes <= COUNT / 16, "{setup:?}: {cost:?}");
        assert_executed(opened, before, COUNT, length as u64);
    }
    Ok(())
}

/// Buffers that are queued before the first poll go in one run, whose start is the only cost. Every buffer is returned.
fn runs(opened: &Opened, pair: &mut ChannelPair) {
    let setup = pair.setup;
    let most = if setup.mode == RunMode::Batch { 5 } else { 2 };
    for depth in [1, 2, 64, 256] {
        let before = executed(opened);
        let cost = cost(opened, || {
            let at = pair.at(0);
            let submit = |_| {
                let buffer = opened.card.buffer(4096).expect("DMA memory");
                pair.channel.submit(buffer, at).expect("accepted")
            };
            let last = (0..depth).map(submit).last().expect("a run that is not empty");
            pair.channel.wait_ended(last, long_wait()).expect("the run completes");
            let done: Vec<_> = core::iter::from_fn(|| pair.channel.next_completion()).collect();
            assert!(done.iter().all(|done| done.outcome == Ok(4096) && done.buffer.is_some()));
            assert_eq!(done.len() as u64, depth);
        });
        assert_eq!((cost.reads, cost.interrupts), (0, 0), "{setup:?} {depth}");
        assert!((1..=most).contains(&cost.writes), "{setup:?} {depth}: {cost:?}");
        assert_executed(opened, before, depth, 4096);
    }
}

/// Polling reads no register; at least sixteen transfers share one register write.
fn poll(context: &mut CaseContext<'_>) -> Verdict {
    const DEPTH: usize = 128;
    const BATCHES: usize = 16;
    const BUSY: u32 = 3000;
    /// Batches before their depth is halved.
    const SAME_DEPTH: u32 = 50;
    let opened = context.open();
    opened.needs(64 * 4096)?;
    opened.interrupts()?;
    for setup in opened.setups() {
        let mut pair = opened.pair(setup)?;
        let memory = pair
            .channel
            .register_memory(opened.card.registered_memory(64 * 4096).expect("DMA memory"))
            .expect("registration succeeds");
        batches(&mut pair, memory, 2, DEPTH, long_wait());
        let began = Instant::now();
        let mut all = cost(&opened, || batches(&mut pair, memory, BATCHES, DEPTH, long_wait()));
        let (passed, counted) = (began.elapsed(), all);
        assert!(all.writes <= (BATCHES * DEPTH / 16) as u64, "{setup:?}: {all:?}");
        assert_eq!(all.interrupts, 0, "{setup:?}: {all:?}");
        // The driver reads status and count whenever a millisecond passes without progress, hence the limit by elapsed time: in real time a
        // busy machine may stop the card for any time.
        let polls = if context.real_time() { passed.as_millis() } else { 0 };
        assert!(u128::from(all.reads) <= 2 * polls, "{setup:?}: {all:?} in {passed:?}");
        // At least one of `BUSY` further batches must run without such a stop, which shows that polling itself reads no register. A batch
        // of a simulated design takes tens of milliseconds, so that each has a stop on a busy machine: the batches become smaller, down to
        // one transfer.
        for tried in 0..BUSY {
            if all.reads == 0 {
                break;
            }
            let depth = DEPTH.checked_shr(tried / SAME_DEPTH).unwrap_or(0).max(1);
            all = cost(&opened, || batches(&mut pair, memory, 1, depth, long_wait()));
        }
        assert_eq!(all.reads, 0, "{setup:?}: each of {BUSY} batches read registers: {all:?}");
        show(context, "polling, 128 deep", setup, BATCHES * DEPTH, counted);
        // Exact counts need a card that runs in this thread.
        if !context.real_time() {
            runs(&opened, &mut pair);
            let by_interrupt = long_wait().mode(WaitMode::Interrupt);
            let once = cost(&opened, || batches(&mut pair, memory, 1, 1, by_interrupt));
            assert_eq!(once.interrupts, 1, "{setup:?}: {once:?}");
            let after = cost(&opened, || batches(&mut pair, memory, 100, 1, long_wait()));
            assert_eq!((after.reads, after.interrupts), (0, 0), "{setup:?}: polling after an interrupt");
            drop(pair);
            full_ring(&opened, setup)?;
        }
    }
    opened.close();
    Ok(())
}

/// Whether the card has neither MSI-X nor MSI (PCI Code and ID Assignment: capabilities 11h and 05h), so that it interrupts by INTx.
fn has_line_only(opened: &Opened) -> bool {
    let found = config::capabilities(&*opened.injector).expect("configuration space");
    !found.iter().any(|capability| matches!(capability.id, 0x05 | 0x11))
}

fn interrupt(context: &mut CaseContext<'_>) -> Verdict {
    const BATCHES: usize = 24;
    const TRIES: usize = 50;
    /// Maximum time of a batch: a twentieth of the time after which a sleeping wait looks at the channel's registers.
    const BATCH_SPAN: Duration = Duration::from_millis(5);
    let opened = context.open();
    opened.needs(64 * 4096)?;
    opened.interrupts()?;
    // The level must be cleared at the card before the line can be unmasked: one more write per wake-up.
    let more = u64::from(has_line_only(&opened));
    let paced = context.bytes_within(&opened, BATCH_SPAN);
    for setup in opened.setups() {
        for depth in [1, 16, 64, 256] {
            let length = (paced / depth).clamp(64, 4096);
            let wait = long_wait().mode(WaitMode::Interrupt);
            // Counting starts with the first batch. The interrupt of a warm-up batch could still be in flight when its poll has ended, and
            // would then be counted with the others: one too many, of unknown origin.
            let mut tries = 0;
            let (cost, count) = loop {
                // Fewer batches after each ten measurements: on a simulated design, 24 take a second, in which a busy machine always stops it
                // once.
                let count = (BATCHES >> (tries / 10)).max(1);
                let most = count as u64;
                let mut pair = opened.pair(setup)?;
                let memory = pair
                    .channel
                    .register_memory(opened.card.registered_memory(64 * 4096).expect("DMA memory"))
                    .expect("registration succeeds");
                let (before, began) = (executed(&opened), Instant::now());
                let cost = cost(&opened, || batches_of(&mut pair, memory, length, count, depth, wait));
                let passed = began.elapsed();
                assert_executed(&opened, before, (count * depth) as u64, length as u64);
                // As with polling: two more reads for each millisecond without progress, which a busy machine may insert at any time. One
                // of `TRIES` measurements must do without.
                let stalled = if context.real_time() { 2 * passed.as_millis() } else { 0 };
                assert!(
                    u128::from(cost.reads) <= u128::from(most) + stalled,
                    "{setup:?} {depth}: {cost:?} in {passed:?}"
                );
                tries += 1;
                if cost.reads <= most || tries == TRIES {
                    break (cost, count);
                }
            };
            let most = count as u64;
            assert!(cost.reads <= most, "{setup:?} {depth}: each of {TRIES} measurements: {cost:?}");
            assert!(cost.interrupts <= most, "{setup:?} {depth}: {cost:?}");
            assert!(context.real_time() || cost.interrupts == most, "{setup:?} {depth}: {cost:?}");
            // The first wait enables the interrupt with one more write.
            assert!(cost.writes <= (6 + more) * most + 1 + more, "{setup:?} {depth}: {cost:?}");
            show(context, &format!("interrupt, {depth} deep"), setup, count * depth, cost);
        }
    }
    opened.close();
    Ok(())
}

/// No interrupt is raised as long as polling finds completions.
fn hybrid(context: &mut CaseContext<'_>) -> Verdict {
    let opened = context.open();
    opened.needs(64 * 4096)?;
    opened.interrupts()?;
    for setup in opened.setups() {
        let mut pair = opened.pair(setup)?;
        let memory = pair
            .channel
            .register_memory(opened.card.registered_memory(64 * 4096).expect("DMA memory"))
            .expect("registration succeeds");
        let wait = long_wait().mode(WaitMode::Hybrid { spin: Duration::from_secs(20) });
        // The same holds after a wait that slept.
        batches(&mut pair, memory, 1, 4, long_wait().mode(WaitMode::Interrupt));
        batches(&mut pair, memory, 1, 4, wait);
        let cost = cost(&opened, || batches(&mut pair, memory, 16, 64, wait));
        assert_eq!(cost.interrupts, 0, "{setup:?}: {cost:?}");
        let most = if setup.mode == RunMode::Batch { 5 } else { 2 };
        assert!(cost.writes <= 16 * most, "{setup:?}: {cost:?}");
        show(context, "hybrid, 64 deep", setup, 16 * 64, cost);
    }
    opened.close();
    Ok(())
}
