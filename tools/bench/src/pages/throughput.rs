//! Page about throughput: share of the copy limit, ratio to DPDK, and the method of all pairs of runs.

use std::fmt::Write as _;

use super::super::cells::Ring;
use super::super::data::{MachineFigures, PlacementSummary, Throughput};
use super::super::goals::{Goal, Quantity};
use super::super::placement::chart;
use super::super::programs::PEER_FLAGS;
use super::super::runs::BUSY_CPUS;
use super::table::{
    CELLS, COMMAND, cell, goal_cell, header, heading, parameters, ring_heading, side_by_side, table,
};

pub(super) fn page(machines: &[MachineFigures]) -> String {
    let mut text = heading(
        "Throughput",
        "How close is the rate of transfers to that of a plain copy, and what is its ratio to that of DPDK's software DMA device?",
        COMMAND,
    );
    text += "![Share of the copy limit by operation size, one curve per machine and direction](throughput.svg)\n\n";
    text += &method();
    for ring in [Ring::Credit, Ring::Stop] {
        let _ = writeln!(text, "## {}\n\n{}", ring_heading(ring), rates(machines, ring));
    }
    text + &placements(machines)
}

fn method() -> String {
    format!(
        "## Method\n\n\
        *Ours*: the driver on one thread, a simulated card on a second one, which fetches descriptors, translates addresses, copies\n\
        and writes back as the hardware does; `fpgactl dma bench --card mock`.\n\
        *Copy limit*: rate of the fastest plain copy of operations of that size on this CPU (`copy_gb_per_s`), which the same program\n\
        measures just before each row. The share is that of one run.\n\
        *DPDK*: its software DMA device (`dma_skeleton`: rings, and a thread that copies) through the dmadev API;\n\
        `tools/bench/peer/dmadev_skeleton.c`, `gcc {}`. It is built for the machine's CPU, ours is not.\n\n\
        Both programs copy from a working set of 16 MiB (at most 4096 buffers) to another one, keep 256 operations in flight, submit at\n\
        most 32 per round and then poll once for completions, are bound to the same two CPUs, and compare the memory afterwards:\n\
        a run whose data differs ends the benchmark.\n\n\
        Runs come in pairs, ours and then DPDK's. Before, between and after, two threads pass a cache line back and forth. A pair\n\
        counts as *far* if all three latencies reach the limit of far CPUs, as *near* if all reach that of near CPUs only, and as\n\
        *one core* if none does: the CPUs of the virtual machine are then two hardware threads of one core. Otherwise their placement\n\
        changed during the pair, which is discarded as torn. A pair is discarded as disturbed if either program got less than\n\
        {BUSY_CPUS} of the two CPUs' time. A ratio is that of one pair. Goals apply to separate cores.\n\
        Compare ratios, not rates of two machines.\n\n{CELLS}\n\n",
        PEER_FLAGS.join(" "),
    )
}

fn rates(machines: &[MachineFigures], ring: Ring) -> String {
    let rows: Vec<Vec<String>> = side_by_side::<Throughput>(machines, |machine| &machine.throughput)
        .into_iter()
        .filter(|(key, _)| key.ring == ring)
        .map(|(key, found)| {
            let goal = |quantity| Goal::of(quantity, Some(key.placement));
            let (share, ratio) = (goal(Quantity::CopyShare(key.size)), goal(Quantity::PeerRatio(key.size)));
            let mut row = parameters(&key);
            row.extend([goal_cell(share), goal_cell(ratio)]);
            for found in found {
                row.extend([
                    cell(found.map(|row| row.gb_per_s), 1.0, 2, None),
                    cell(found.and_then(|row| row.copy_share), 1.0, 3, share),
                    cell(found.and_then(|row| row.peer_ratio), 1.0, 2, ratio),
                ]);
            }
            row
        })
        .collect();
    let first = ["size", "direction", "CPUs", "goal: share", "goal: ratio"];
    let columns = ["GB/s", "share of the copy limit", "ratio to DPDK"];
    table(&header(&first, machines, &columns), 3, &rows)
}

/// Latencies between the CPUs of each machine.
fn placements(machines: &[MachineFigures]) -> String {
    let mut text = String::from(
        "## Latency between the two CPUs, one way\n\n\
        x: factor by which arithmetic on one CPU slows down while the other does the same (median). Number of samples, and bars.\n",
    );
    for machine in machines {
        let Some(PlacementSummary { limits, near, far, one_core, torn, disturbed, latencies }) =
            &machine.placement
        else {
            continue;
        };
        let _ = write!(
            text,
            "\n{}: {near} pairs near (from {} ns), {far} far (from {} ns), {one_core} on one core; discarded: {torn} torn,\n\
            {disturbed} disturbed.\n\n```text\n{}```\n",
            machine.cpu,
            limits.near_ns,
            limits.far_ns,
            chart(latencies)
        );
    }
    text
}
