//! BENCHMARKS.md: machines, headline figures and links.

use super::super::cells::Ring;
use super::super::data::{ChannelQuantity, Channels, Key, MachineFigures};
use super::super::goals::{Goal, Quantity};
use super::super::placement::CpuPlacement;
use super::table::{COMMAND, goals_cell, header, table, value_cell};

/// Headline figures: name, quantity, scale and digits.
const HEADLINES: [(&str, Quantity, f64, usize); 15] = [
    ("share of the copy limit, 512 B", Quantity::CopyShare(512), 1.0, 3),
    ("share of the copy limit, 4 KiB", Quantity::CopyShare(4096), 1.0, 3),
    ("share of the copy limit, 64 KiB", Quantity::CopyShare(64 << 10), 1.0, 3),
    ("share of the copy limit, 1 MiB", Quantity::CopyShare(1 << 20), 1.0, 3),
    ("rate / DPDK's, 64 B", Quantity::PeerRatio(64), 1.0, 2),
    ("rate / DPDK's, 512 B", Quantity::PeerRatio(512), 1.0, 2),
    ("rate / DPDK's, 4 KiB", Quantity::PeerRatio(4096), 1.0, 2),
    ("rate / DPDK's, 64 KiB", Quantity::PeerRatio(64 << 10), 1.0, 2),
    ("rate / DPDK's, 1 MiB", Quantity::PeerRatio(1 << 20), 1.0, 2),
    ("latency / DPDK's, 64 B, median or p99", Quantity::PeerLatency, 1.0, 2),
    ("CPU time of an operation, ns", Quantity::CpuTime, 1.0, 1),
    (
        "share of the copy limit, 4 channels per direction / 1, 64 KiB",
        Quantity::Channels(ChannelQuantity::FourChannels),
        1.0,
        2,
    ),
    ("p99 of 64 B beside 1 MiB / alone", Quantity::Channels(ChannelQuantity::Beside), 1.0, 2),
    ("one CPU: share of the copy limit, 64 KiB", Quantity::Channels(ChannelQuantity::OneCpuShare), 1.0, 2),
    ("one CPU: p99 of an operation, µs", Quantity::Channels(ChannelQuantity::OneCpuLatency), 1e3, 1),
];

pub(super) fn page(machines: &[MachineFigures]) -> String {
    format!(
        "# Benchmarks\n\n\
        Written by `cargo measure` from the files in `docs/benchmarks/machines`; do not edit. Measured are the driver and a simulated card,\n\
        each on a CPU, against a plain copy on the same CPU and against DPDK's software DMA device. Compare ratios, not rates of two machines.\n\n\
        | Page | Question |\n| --- | --- |\n\
        | [Throughput](docs/benchmarks/throughput.md) | share of the copy limit and ratio to DPDK, by size, direction and ring mode |\n\
        | [Latency](docs/benchmarks/latency.md) | duration of one operation at a time |\n\
        | [CPU time](docs/benchmarks/cpu-time.md) | cost of an operation on the submitting CPU |\n\
        | [Channels](docs/benchmarks/channels.md) | several channels, small operations beside large ones, one CPU |\n\
        | [Building blocks](docs/benchmarks/building-blocks.md) | benchmarks of the packages |\n\n\
        ## Summary\n\n\
        Medians of the worse direction, in credit mode for the first eleven rows; `-`: not measured; **bold**: misses the goal.\n\n\
        {}\n\
        ![Share of the copy limit by operation size, one curve per machine and direction](docs/benchmarks/throughput.svg)\n\n\
        ## Machines\n\n{}\n\
        ## Measuring\n\n\
        `{COMMAND}` replaces the file of this machine and writes all pages; `cargo measure --render` writes the pages alone.\n\
        `cargo measure --check` compares a release build with wide bounds in at most 90 seconds, as `.ci/run` does.\n",
        summary(machines),
        facts(machines)
    )
}

fn summary(machines: &[MachineFigures]) -> String {
    let mut rows = vec![vec!["CPU placement".to_owned(), "-".to_owned()]];
    if let [row] = rows.as_mut_slice() {
        row.extend(machines.iter().map(|machine| machine.main_placement().name().to_owned()));
    }
    for (name, quantity, scale, digits) in HEADLINES {
        let mut row = vec![name.to_owned(), goals_cell(quantity, scale)];
        row.extend(machines.iter().map(|machine| {
            let placement = machine.main_placement();
            let goal = Goal::of(quantity, Some(placement));
            let value = headline(machine, quantity, placement);
            match (value, goal) {
                (Some(value), Some(goal)) if !goal.is_met(value) => format!("**{:.digits$}**", value / scale),
                (value, _) => value_cell(value.map(|value| value / scale), digits, None),
            }
        }));
        rows.push(row);
    }
    let mut names = header(&["figure", "goal"], &[], &[]);
    names.extend(machines.iter().map(|machine| machine.cpu.clone()));
    table(&names, 1, &rows)
}

/// Value of a headline figure: of both directions, the worse one.
fn headline(machine: &MachineFigures, quantity: Quantity, placement: CpuPlacement) -> Option<f64> {
    let fits = |key: &Key, size| key.ring == Ring::Credit && key.size == size && key.placement == placement;
    let values: Vec<f64> = match quantity {
        Quantity::CopyShare(size) => {
            let rows = machine.throughput.iter().filter(|row| fits(&row.key, size));
            rows.filter_map(|row| Some(row.copy_share?.median)).collect()
        }
        Quantity::PeerRatio(size) => {
            let rows = machine.throughput.iter().filter(|row| fits(&row.key, size));
            rows.filter_map(|row| Some(row.peer_ratio?.median)).collect()
        }
        Quantity::PeerLatency => {
            let rows = machine.latency.iter().filter(|row| fits(&row.key, 64));
            let pairs = rows.filter_map(|row| Some((row.ours, row.peer?)));
            let ratios = pairs.flat_map(|(ours, peer)| {
                [ours.p50_ns.median / peer.p50_ns.median, ours.p99_ns.median / peer.p99_ns.median]
            });
            ratios.collect()
        }
        Quantity::CpuTime => {
            let rows = machine.cpu_time.iter().filter(|row| fits(&row.key, 64));
            rows.map(|row| row.ours_ns.median).collect()
        }
        Quantity::Channels(quantity) => {
            let fits = |row: &&Channels| {
                row.quantity == quantity && row.placement.is_none_or(|found| found == placement)
            };
            machine.channels.iter().filter(fits).map(|row| row.value.median).collect()
        }
    };
    let goal = Goal::of(quantity, Some(CpuPlacement::SharedCache))?;
    values.into_iter().reduce(|first, second| goal.worse(first, second))
}

/// Machines side by side: one row per fact.
fn facts(machines: &[MachineFigures]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in machines.iter().flat_map(|machine| &machine.facts) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let row = |name: &str, value: &dyn Fn(&MachineFigures) -> String| {
        let values = machines.iter().map(value);
        std::iter::once(name.to_owned()).chain(values).collect::<Vec<_>>()
    };
    let mut rows = vec![
        row("measured on", &|machine| machine.date.clone()),
        row("commit", &|machine| machine.commit.clone()),
        row("command", &|machine| format!("`{}`", machine.command)),
    ];
    rows.extend(names.into_iter().map(|name| {
        row(name, &|machine| {
            let found = machine.facts.iter().find(|(known, _)| known == name);
            found.map_or_else(|| "-".to_owned(), |(_, value)| value.clone())
        })
    }));
    let mut names = vec!["machine".to_owned()];
    names.extend(machines.iter().map(|machine| machine.cpu.clone()));
    let columns = names.len();
    table(&names, columns, &rows)
}
