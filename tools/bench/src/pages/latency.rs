//! Page about the latency of one operation at a time.

use std::fmt::Write as _;

use super::super::data::{Latency, MachineFigures, Percentiles};
use super::super::goals::{Goal, Quantity};
use super::super::statistics::Figure;
use super::table::{CELLS, COMMAND, cell, header, heading, parameters, side_by_side, table};

/// Reads one percentile.
type Part = fn(&Percentiles) -> Figure;

/// Percentiles: heading, part of the figures, and whether the goal applies to it.
const PARTS: [(&str, Part, bool); 3] = [
    ("Median", |percentiles| percentiles.p50_ns, true),
    ("99th percentile", |percentiles| percentiles.p99_ns, true),
    ("99.9th percentile", |percentiles| percentiles.p999_ns, false),
];

/// Causes of the slowest operations.
const OUTLIERS: &str = "\n## Outliers\n\n\
    The slowest operation of a thousand waits for the system, in both directions alike:\n\n\
    * on an idle machine for the timer interrupt of one of the two CPUs (`CONFIG_HZ` times a second; in a virtual machine each takes\n  \
      tens of microseconds). The longer the operation, the more of them meet an interrupt. `nohz_full=` on the kernel's command line\n  \
      removes it;\n\
    * on a busy machine for another program that runs in place of the card's thread: a time slice, some milliseconds. A real card has no\n  \
      such thread. With a real-time priority the time slices disappear.\n\n\
    Both programs, for comparison:\n\n    \
    fpgactl dma bench --sizes 64KiB\n    \
    chrt -f 10 fpgactl dma bench --sizes 64KiB\n";

pub(super) fn page(machines: &[MachineFigures]) -> String {
    let mut text = heading("Latency", "How long does one operation take if no other is in flight?", COMMAND);
    let _ = write!(
        text,
        "## Method\n\n\
        From before the submission to after the poll that found the operation done, up to 100 000 in a row, in the runs of the\n\
        [throughput](throughput.md). Each sample contains one reading of the clock, on both sides. Nanoseconds.\n\
        Goal: median and 99th percentile of 64 B are at most those of DPDK.\n\n{CELLS}\n"
    );
    for (name, part, has_goal) in PARTS {
        let _ = write!(text, "\n## {name}\n\n{}", percentile(machines, part, has_goal));
    }
    text.push_str(OUTLIERS);
    text
}

fn percentile(machines: &[MachineFigures], part: Part, has_goal: bool) -> String {
    let rows: Vec<Vec<String>> = side_by_side::<Latency>(machines, |machine| &machine.latency)
        .into_iter()
        .map(|(key, found)| {
            let mut row = parameters(&key);
            row.insert(2, key.ring.name().to_owned());
            let goal =
                Goal::of(Quantity::PeerLatency, Some(key.placement)).filter(|_| has_goal && key.size <= 64);
            for found in found {
                let ours = found.map(|row| part(&row.ours));
                let peer = found.and_then(|row| row.peer.as_ref()).map(part);
                let ratio = Option::zip(ours, peer).map(|(ours, peer)| ours.median / peer.median);
                let missed = goal.filter(|goal| ratio.is_some_and(|ratio| !goal.is_met(ratio)));
                // The goal is about the ratio: a bold cell needs the goal that this figure misses.
                let ours = match (ours, missed) {
                    (Some(ours), Some(_)) => format!("**{:.0}** {}", ours.median, ours.spread(1.0, 0)),
                    (ours, _) => cell(ours, 1.0, 0, None),
                };
                row.extend([ours, cell(peer, 1.0, 0, None)]);
            }
            row
        })
        .collect();
    table(&header(&["size", "direction", "ring", "CPUs"], machines, &["ours", "DPDK"]), 4, &rows)
}
