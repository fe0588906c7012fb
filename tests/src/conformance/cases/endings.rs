//! Ending in the middle: cancelled, aborted, dropped in every order. Every buffer is accounted for, and the card works.

use std::any::Any;

use fpga_driver::FaultCause;

use super::{Bench, Case, Verdict, case};
use crate::conformance::bench::{Lane, Opened, patient};
use crate::{bytes, orders};

pub(super) const CASES: &[Case] = &[
    case("ending.cancel", &[], cancel),
    case("ending.abort", &[], abort),
    case("ending.dropped_in_every_order", &[], dropped),
    case("ending.completions_not_taken", &[], not_taken),
];

const LENGTH: usize = 100_001;
const PLACE: u64 = 1 << 20;

/// Some transfers under way: buffers in flight, with what they carry. `step`: how far a card in this thread has come.
fn begin(bench: &Bench<'_>, lane: &mut Lane, count: u64, step: usize) -> Vec<(fpga_driver::Ticket, Vec<u8>)> {
    let mut flying = Vec::new();
    let ready: Vec<_> = (0..count)
        .map(|n| {
            let (data, at) = (bytes(n, LENGTH), lane.at(n * PLACE));
            (lane.buffer(at, &data), data, at)
        })
        .collect();
    for (buffer, data, at) in ready {
        flying.push((lane.channel.submit(buffer, at).expect("accepted"), data));
    }
    lane.channel.poll().expect("started");
    if let Some((world, _)) = bench.simulated() {
        for _ in 0..step {
            world.step();
        }
    }
    flying
}

fn lane(opened: &Opened, way: crate::rig::Way) -> Result<Lane, crate::conformance::Skip> {
    opened.needs(6 * PLACE)?;
    opened.lane_with(way, way.options().max_descriptor_length(4096))
}

/// One is taken back, wherever it is; the others arrive.
fn cancel(bench: &mut Bench<'_>) -> Verdict {
    let opened = bench.open();
    for way in opened.ways() {
        let mut lane = lane(&opened, way)?;
        for (victim, step) in [(0, 0), (1, 10), (3, 40), (4, 0), (2, 90)] {
            let flying = begin(bench, &mut lane, 5, step);
            let cancelled = lane.channel.cancel(flying[victim].0).expect("the engine stops");
            for (n, (ticket, data)) in flying.into_iter().enumerate() {
                let done = lane.channel.wait(ticket, patient()).expect("it ends");
                let buffer = done.buffer.expect("it comes back");
                match done.outcome {
                    Ok(_) => {
                        assert!(n != victim || !cancelled, "{way:?}: cancelled, but done");
                        let at = lane.at(n as u64 * PLACE);
                        assert!(lane.moved(&buffer, at, &data), "{way:?}: transfer {n}");
                    }
                    Err(fault) => {
                        assert!(n == victim && cancelled, "{way:?}: transfer {n}: {fault}");
                        assert_eq!(fault.cause, FaultCause::Aborted);
                    }
                }
            }
        }
        lane.assert_works(1);
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

fn abort(bench: &mut Bench<'_>) -> Verdict {
    let opened = bench.open();
    for way in opened.ways() {
        let mut lane = lane(&opened, way)?;
        for step in [0, 1, 7, 30, 60, 200] {
            let flying = begin(bench, &mut lane, 5, step);
            lane.channel.abort().expect("the engine stops");
            assert_eq!(lane.channel.in_flight(), 0);
            let mut failed = false;
            for (n, (ticket, data)) in flying.into_iter().enumerate() {
                let done = lane.channel.wait(ticket, patient()).expect("it has ended");
                let buffer = done.buffer.expect("it comes back");
                match done.outcome {
                    Ok(_) => {
                        assert!(!failed, "{way:?}: in order");
                        let at = lane.at(n as u64 * PLACE);
                        assert!(lane.moved(&buffer, at, &data), "{way:?}: transfer {n}");
                    }
                    Err(fault) => {
                        assert_eq!(fault.cause, FaultCause::Aborted, "{way:?}");
                        failed = true;
                    }
                }
            }
            lane.assert_works(step as u64);
        }
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// Channels, buffer and card go in every order while transfers are under way.
fn dropped(bench: &mut Bench<'_>) -> Verdict {
    // A real kernel takes its time to open and close: there each of them goes first twice, and the rest is for the doors of a process.
    let each = if bench.simulated().is_some() { 1 } else { 3 };
    for (n, order) in orders(4).into_iter().step_by(each).enumerate() {
        let opened = bench.open();
        let ways = opened.ways();
        let way = ways[n % ways.len()];
        let mut lane = lane(&opened, way)?;
        begin(bench, &mut lane, 4, [0, 3, 10, 25, 40, 300][n % 6]);
        let Opened { card, seam, .. } = opened;
        let pool = card.memory().clone();
        let (buffer, area) = (card.buffer(5000).expect("memory"), card.area(5000).expect("memory"));
        let mut things: [Option<Box<dyn Any>>; 4] =
            [Some(Box::new(lane)), Some(Box::new(card)), Some(Box::new(buffer)), Some(Box::new(area))];
        for index in &order {
            things[*index] = None;
        }
        let stats = pool.stats();
        assert_eq!((stats.in_use, stats.quarantined), (0, 0), "{way:?} {order:?}: {stats:?}");
        drop(pool);
        assert!(seam.mappings().is_empty(), "{way:?} {order:?}: still mapped");
    }
    let opened = bench.open();
    opened.lane(opened.ways()[0])?.assert_works(1);
    opened.close();
    Ok(())
}

fn not_taken(bench: &mut Bench<'_>) -> Verdict {
    let opened = bench.open();
    for way in opened.ways() {
        let mut lane = lane(&opened, way)?;
        let flying = begin(bench, &mut lane, 5, 0);
        lane.channel.wait_ended(flying[4].0, patient()).expect("they end");
        drop(lane);
        opened.assert_pool(0, 0);
    }
    opened.close();
    Ok(())
}
