//! Page about the CPU time of an operation.

use super::super::data::{CpuTime, MachineFigures};
use super::super::goals::{Goal, Quantity};
use super::table::{
    CELLS, COMMAND, cell, goal_cell, header, heading, parameters, side_by_side, table, value_cell,
};

pub(super) fn page(machines: &[MachineFigures]) -> String {
    let rows: Vec<Vec<String>> = side_by_side::<CpuTime>(machines, |machine| &machine.cpu_time)
        .into_iter()
        .map(|(key, found)| {
            let goal = Goal::of(Quantity::CpuTime, Some(key.placement)).filter(|_| key.size <= 64);
            let mut row = parameters(&key);
            row.insert(2, key.ring.name().to_owned());
            row.push(goal_cell(goal));
            for found in found {
                let (ours, peer) = (found.map(|row| row.ours_ns), found.and_then(|row| row.peer_ns));
                let ratio = Option::zip(ours, peer).map(|(ours, peer)| peer.median / ours.median);
                row.extend([cell(ours, 1.0, 1, goal), cell(peer, 1.0, 1, None), value_cell(ratio, 2, None)]);
            }
            row
        })
        .collect();
    let first = ["size", "direction", "ring", "CPUs", "goal"];
    let header = header(&first, machines, &["ours", "DPDK", "DPDK / ours"]);
    heading("CPU time", "How much CPU time of the submitting thread does one operation need?", COMMAND)
        + &format!(
            "## Method\n\n\
            Closed batches of 32. Submitting the batch is timed. A pause follows, long enough for the card or device to complete it, which\n\
            is not timed. Then reaping in one call is timed. Batches that are not complete by then are excluded; the figure is the median\n\
            of the others, less the cost of the clock. It contains no waiting, but every cache line that comes from the other CPU.\n\
            Nanoseconds per operation. The runs are separate from those of the [throughput](throughput.md). A run counts if no other program\n\
            used the core of the submitting CPU: arithmetic on it took at most a tenth longer before and after than in the best case.\n\n\
            {CELLS}\n\n## Submitting and reaping\n\n{}",
            table(&header, 4, &rows)
        )
}
