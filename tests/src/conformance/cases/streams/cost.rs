//! Register accesses and interrupts of packets.

use std::time::Instant;

use fpga_driver::stream::C2hStreamOptions;
use fpga_driver::{ChannelOptions, RunMode};

use super::{CaseContext, Opened, Skip, Verdict, long_wait};
use crate::conformance::Cost;
use crate::conformance::builds::SOURCE;
use crate::conformance::cases::cost::cost;
use crate::fault_injecting::AccessTraffic;

/// Polling for packets reads no register, for received and for sent ones; at least sixteen packets share a register write.
pub(super) fn packets(context: &mut CaseContext<'_>) -> Verdict {
    context.on(&SOURCE, |context| {
        let opened = context.open();
        for buffers in [64, 256] {
            let mut rx = opened
                .card
                .c2h_stream_with(0, C2hStreamOptions::default().buffers(buffers))
                .map_err(|error| Skip(error.to_string()))?;
            measure(
                context,
                &opened,
                format!("polling, packets of a C2H stream, {buffers} buffers"),
                |count| {
                    for _ in 0..count {
                        rx.wait_packet(long_wait()).expect("a packet arrives");
                    }
                },
            );
        }
        for (mode, mode_name, depth) in
            [(RunMode::Credit, "credit mode", 64), (RunMode::Batch, "batch mode", 256)]
        {
            let options = ChannelOptions::default().run_mode(mode).descriptors(2 * depth).transfers(depth);
            let mut tx = opened.card.h2c_stream_with(0, options).expect("the channel");
            let memory = tx
                .register_memory(opened.card.registered_memory(4096).expect("DMA memory"))
                .expect("registration succeeds");
            measure(context, &opened, format!("polling, packets of an H2C stream, {mode_name}"), |count| {
                let end = tx.ended() + count;
                while tx.ended() < end {
                    let mut last = None;
                    while let Ok(ticket) = tx.submit_at(memory, 0, 1000) {
                        last = Some(ticket);
                    }
                    match last {
                        // In real time a card may be faster than its user: only a sender that waits has batches that share a write.
                        Some(last) if context.real_time() => {
                            tx.wait_ended(last, long_wait()).expect("the transfers complete")
                        }
                        _ => {
                            tx.poll().expect("started");
                            tx.relax();
                        }
                    }
                }
            });
            drop(tx);
        }
        opened.assert_pool(0, 0);
        opened.close();
        Ok(())
    })
}

/// Counts the cost of `run`, which receives or sends the given number of packets.
fn measure(context: &CaseContext<'_>, opened: &Opened, work: String, mut run: impl FnMut(u64)) {
    const COUNT: u64 = 4096;
    run(1000);
    let began = Instant::now();
    let cost = cost(opened, || run(COUNT));
    // The driver reads status and count whenever a millisecond passes without progress: only in real time, on a busy machine.
    let polls = if context.real_time() { began.elapsed().as_millis() } else { 0 };
    assert!(u128::from(cost.reads) <= 2 * polls, "{work}: {cost:?}");
    assert_eq!(cost.interrupts, 0, "{work}: {cost:?}");
    assert!(cost.writes <= COUNT / 16, "{work}: {cost:?}");
    let AccessTraffic { reads, writes, interrupts } = cost;
    context.show(Cost { work, transfers: COUNT, reads, writes, interrupts });
}
