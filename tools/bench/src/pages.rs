//! Tables of BENCHMARKS.md and its pages, with the machines side by side. A page's text is its own; each table stands between the two
//! comments that [`filled`] looks for.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use fpga_netsim::figures::picture::{Curve, Extent, Panel, Picture, Scale};

use super::cells::{Direction, Ring, size_text};
use super::data::{ChannelQuantity, Key, Latency, MachineFigures, Percentiles, Row};
use super::goals::{Goal, Quantity};
use super::micro::Benchmark;
use super::placement::{CpuPlacement, chart};
use super::statistics::Figure;

const PAGES: [&str; 6] = [
    "BENCHMARKS.md",
    "docs/benchmarks/throughput.md",
    "docs/benchmarks/latency.md",
    "docs/benchmarks/cpu-time.md",
    "docs/benchmarks/channels.md",
    "docs/benchmarks/building-blocks.md",
];
const PICTURE: &str = "docs/benchmarks/throughput.svg";
const BEGIN: &str = "<!-- cargo measure: ";
const END: &str = "<!-- end -->";

/// Paths, relative to the root of the workspace, and texts of all pages and of the picture.
pub(crate) fn all(root: &Path, machines: &[MachineFigures]) -> std::io::Result<Vec<(&'static str, String)>> {
    let page = |name| Ok((name, filled(&std::fs::read_to_string(root.join(name))?, machines)));
    let picture = std::iter::once(Ok((PICTURE, picture(machines).svg())));
    PAGES.into_iter().map(page).chain(picture).collect()
}

/// The page with its tables made again. An unknown table is empty.
fn filled(page: &str, machines: &[MachineFigures]) -> String {
    let (mut text, mut rest) = (String::new(), page);
    while let Some((before, (name, old))) =
        rest.split_once(BEGIN).and_then(|(before, after)| Some((before, after.split_once(" -->")?)))
    {
        // Writing to a string cannot fail.
        let _ = write!(text, "{before}{BEGIN}{name} -->\n\n{}\n{END}", table_named(name, machines));
        rest = old.split_once(END).map_or("", |(_, after)| after);
    }
    text + rest
}

fn table_named(name: &str, machines: &[MachineFigures]) -> String {
    let latency = |part: Part, has_goal| latency(machines, part, has_goal);
    let channels = |quantity, columns: &[&str], digits| channels(machines, quantity, columns, digits);
    match name {
        "summary" => summary(machines),
        "machines" => facts(machines),
        "rates credit" => rates(machines, Ring::Credit),
        "rates stop" => rates(machines, Ring::Stop),
        "placements" => placements(machines),
        "latency p50" => latency(|percentiles| percentiles.p50_ns, true),
        "latency p99" => latency(|percentiles| percentiles.p99_ns, true),
        "latency p99.9" => latency(|percentiles| percentiles.p999_ns, false),
        "cpu-time" => cpu_time(machines),
        "channels four-channels" => channels(
            ChannelQuantity::FourChannels,
            &["4+4 channels, share", "1+1 channel, share", "ratio"],
            2,
        ),
        "channels beside" => {
            channels(ChannelQuantity::Beside, &["beside 1 MiB, ns", "alone, ns", "ratio"], 0)
        }
        "channels one-cpu-share" => {
            channels(ChannelQuantity::OneCpuShare, &["GB/s", "copy limit, GB/s", "share"], 2)
        }
        "channels one-cpu-latency" => channels(ChannelQuantity::OneCpuLatency, &["µs"], 1),
        "building-blocks" => building_blocks(machines),
        _ => String::new(),
    }
}

/// Table: the columns `first`, the first `left` of them left-aligned, then `columns` of each machine; and rows of as many columns.
fn table(
    first: &[&str],
    left: usize,
    machines: &[MachineFigures],
    columns: &[&str],
    rows: &[Vec<String>],
) -> String {
    let named = |machine: &MachineFigures| {
        let cpu = machine.cpu.clone();
        columns
            .iter()
            .map(move |column| if column.is_empty() { cpu.clone() } else { format!("{cpu}: {column}") })
    };
    let header: Vec<String> =
        first.iter().map(|name| (*name).to_owned()).chain(machines.iter().flat_map(named)).collect();
    let rule: Vec<&str> =
        (0..header.len()).map(|column| if column < left { "---" } else { "---:" }).collect();
    let mut text = format!("| {} |\n| {} |\n", header.join(" | "), rule.join(" | "));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// Rows of a quantity: each key that a machine has, its parameters, and the cells of each machine.
fn keyed<T>(
    machines: &[MachineFigures],
    rows: fn(&MachineFigures) -> &[Row<T>],
    parameters: impl Fn(&Key) -> Option<Vec<String>>,
    cells: impl Fn(&Key, Option<&T>) -> Vec<String>,
) -> Vec<Vec<String>> {
    let keys: BTreeSet<Key> = machines.iter().flat_map(rows).map(|row| row.key).collect();
    let row = |key: Key| {
        let found = |machine| rows(machine).iter().find(|row| row.key == key).map(|row| &row.figures);
        let cells = machines.iter().flat_map(|machine| cells(&key, found(machine)));
        Some(parameters(&key)?.into_iter().chain(cells).collect())
    };
    keys.into_iter().filter_map(row).collect()
}

/// Size, direction, ring mode and CPU placement of a row.
fn parameters(key: &Key) -> [String; 4] {
    [
        size_text(key.size),
        key.direction.name().to_owned(),
        key.ring.name().to_owned(),
        key.placement.name().to_owned(),
    ]
}

/// Text in bold if the value misses the goal.
fn bold(text: String, value: f64, goal: Option<&Goal>) -> String {
    if goal.is_none_or(|goal| goal.is_met(value)) { text } else { format!("**{text}**") }
}

/// Cell of a figure, scaled, with `digits` decimal places.
fn cell(figure: Option<Figure>, scale: f64, digits: usize, goal: Option<&Goal>) -> String {
    figure.map_or_else(missing, |figure| {
        let median = bold(format!("{:.digits$}", figure.median / scale), figure.median, goal);
        format!("{median} {}", figure.spread(scale, digits))
    })
}

fn missing() -> String {
    "-".to_owned()
}

fn goal_text(goal: Option<&Goal>, scale: f64) -> String {
    goal.map_or_else(missing, |goal| goal.text(scale))
}

fn rates(machines: &[MachineFigures], ring: Ring) -> String {
    let goals = |key: &Key| {
        let goal = |quantity| Goal::of(quantity, Some(key.placement));
        (goal(Quantity::CopyShare(key.size)), goal(Quantity::PeerRatio(key.size)))
    };
    let first = |key: &Key| {
        let ([size, direction, _, placement], (share, ratio)) = (parameters(key), goals(key));
        let row = vec![size, direction, placement, goal_text(share, 1.0), goal_text(ratio, 1.0)];
        (key.ring == ring).then_some(row)
    };
    let rows = keyed(
        machines,
        |machine| &machine.throughput,
        first,
        |key, found| {
            let (share, ratio) = goals(key);
            vec![
                cell(found.map(|row| row.gb_per_s), 1.0, 2, None),
                cell(found.and_then(|row| row.copy_share), 1.0, 3, share),
                cell(found.and_then(|row| row.peer_ratio), 1.0, 2, ratio),
            ]
        },
    );
    let columns = ["GB/s", "share of the copy limit", "ratio to DPDK"];
    table(&["size", "direction", "CPUs", "goal: share", "goal: ratio"], 3, machines, &columns, &rows)
}

/// Reads one percentile.
type Part = fn(&Percentiles) -> Figure;

fn latency(machines: &[MachineFigures], part: Part, has_goal: bool) -> String {
    let cells = |key: &Key, found: Option<&Latency>| {
        let goal =
            Goal::of(Quantity::PeerLatency, Some(key.placement)).filter(|_| has_goal && key.size <= 64);
        let (ours, peer) =
            (found.map(|row| part(&row.ours)), found.and_then(|row| row.peer.as_ref()).map(part));
        // The goal is about the ratio.
        let ratio = Option::zip(ours, peer).map(|(ours, peer)| ours.median / peer.median);
        let ours = ours.map_or_else(missing, |ours| {
            let median = format!("{:.0}", ours.median);
            let median = if let Some(ratio) = ratio { bold(median, ratio, goal) } else { median };
            format!("{median} {}", ours.spread(1.0, 0))
        });
        vec![ours, cell(peer, 1.0, 0, None)]
    };
    let rows = keyed(machines, |machine| &machine.latency, |key| Some(parameters(key).into()), cells);
    table(&["size", "direction", "ring", "CPUs"], 4, machines, &["ours", "DPDK"], &rows)
}

fn cpu_time(machines: &[MachineFigures]) -> String {
    let goal = |key: &Key| Goal::of(Quantity::CpuTime, Some(key.placement)).filter(|_| key.size <= 64);
    let first = |key: &Key| Some(parameters(key).into_iter().chain([goal_text(goal(key), 1.0)]).collect());
    let rows = keyed(
        machines,
        |machine| &machine.cpu_time,
        first,
        |key, found| {
            let (ours, peer) = (found.map(|row| row.ours_ns), found.and_then(|row| row.peer_ns));
            let ratio = Option::zip(ours, peer).map(|(ours, peer)| peer.median / ours.median);
            let ratio = ratio.map_or_else(missing, |ratio| format!("{ratio:.2}"));
            vec![cell(ours, 1.0, 1, goal(key)), cell(peer, 1.0, 1, None), ratio]
        },
    );
    let first = ["size", "direction", "ring", "CPUs", "goal"];
    table(&first, 4, machines, &["ours", "DPDK", "DPDK / ours"], &rows)
}

/// One row per placement that a machine has; at least one.
fn channels(
    machines: &[MachineFigures],
    quantity: ChannelQuantity,
    columns: &[&str],
    digits: usize,
) -> String {
    let all = machines.iter().flat_map(|machine| &machine.channels).filter(|row| row.quantity == quantity);
    let mut placements: BTreeSet<Option<CpuPlacement>> = all.map(|row| row.placement).collect();
    if placements.is_empty() {
        let on_one_cpu = matches!(quantity, ChannelQuantity::OneCpuShare | ChannelQuantity::OneCpuLatency);
        placements.insert((!on_one_cpu).then_some(CpuPlacement::SharedCache));
    }
    // A latency is in microseconds, a ratio has two digits.
    let (scale, last) = if columns.len() > 1 { (1.0, 2) } else { (1e3, digits) };
    let row = |placement: Option<CpuPlacement>| {
        let goal = Goal::of(Quantity::Channels(quantity), placement);
        let name = placement.map_or("one CPU", CpuPlacement::name);
        let mut row = vec![name.to_owned(), goal_text(goal, scale)];
        for machine in machines {
            let found =
                machine.channels.iter().find(|row| (row.quantity, row.placement) == (quantity, placement));
            if columns.len() > 1 {
                row.push(cell(found.and_then(|row| row.with), 1.0, digits, None));
                row.push(cell(found.and_then(|row| row.without), 1.0, digits, None));
            }
            row.push(cell(found.map(|row| row.value), scale, last, goal));
        }
        row
    };
    table(&["CPUs", "goal"], 1, machines, columns, &placements.into_iter().map(row).collect::<Vec<_>>())
}

fn building_blocks(machines: &[MachineFigures]) -> String {
    let machines: Vec<MachineFigures> =
        machines.iter().filter(|machine| !machine.building_blocks.is_empty()).cloned().collect();
    let is_same = |a: &Benchmark, b: &Benchmark| (&a.package, &a.name) == (&b.package, &b.name);
    let mut benchmarks: Vec<&Benchmark> = Vec::new();
    for benchmark in machines.iter().flat_map(|machine| &machine.building_blocks) {
        if !benchmarks.iter().any(|known| is_same(known, benchmark)) {
            benchmarks.push(benchmark);
        }
    }
    let row = |benchmark: &&Benchmark| {
        let budget = match benchmark.budgets() {
            Some((near, far)) if near < far => format!("{near:.0} / {far:.0}"),
            Some((near, _)) => format!("{near:.0}"),
            None => missing(),
        };
        let cell = |machine: &MachineFigures| {
            let Some(found) = machine.building_blocks.iter().find(|found| is_same(found, benchmark)) else {
                return missing();
            };
            // If the CPU placement changed meanwhile, the stricter budget applies.
            let budget = found.budget(machine.building_blocks_placement.unwrap_or(CpuPlacement::SharedCache));
            let above = if budget.is_some_and(|budget| found.nanoseconds > budget) { "**" } else { "" };
            let interval = found.interval.map(|(low, high)| format!(" ({low:.2}-{high:.2})"));
            format!("{above}{:.2}{above}{}", found.nanoseconds, interval.unwrap_or_default())
        };
        let first = [benchmark.package.clone(), benchmark.name.clone(), budget];
        first.into_iter().chain(machines.iter().map(cell)).collect()
    };
    let rows: Vec<Vec<String>> = benchmarks.iter().map(row).collect();
    let placements = machines.iter().map(|machine| {
        let placement = machine.building_blocks_placement.map_or("changing", CpuPlacement::name);
        format!("{} {placement}", machine.cpu)
    });
    let placements = placements.collect::<Vec<_>>().join("; ");
    let table = table(&["package", "benchmark", "budget"], 2, &machines, &["ns"], &rows);
    format!("CPU placement: {placements}.\n\n{table}")
}

/// Latencies between the CPUs of each machine.
fn placements(machines: &[MachineFigures]) -> String {
    let of = |machine: &MachineFigures| {
        let found = machine.placement.as_ref()?;
        let (near, far) = (found.limits.near_ns, found.limits.far_ns);
        Some(format!(
            "{}: {} pairs near (from {near} ns), {} far (from {far} ns), {} on one core; discarded: {} torn,\n\
            {} disturbed.\n\n```text\n{}```\n",
            machine.cpu,
            found.near,
            found.far,
            found.one_core,
            found.torn,
            found.disturbed,
            chart(&found.latencies)
        ))
    };
    machines.iter().filter_map(of).collect::<Vec<_>>().join("\n")
}

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

fn summary(machines: &[MachineFigures]) -> String {
    let placements = machines.iter().map(|machine| machine.main_placement().name().to_owned());
    let mut rows = vec![["CPU placement".to_owned(), missing()].into_iter().chain(placements).collect()];
    for (name, quantity, scale, digits) in HEADLINES {
        let goal = |placement| Goal::of(quantity, Some(placement));
        let goals = match (goal(CpuPlacement::SharedCache), goal(CpuPlacement::NoSharedCache)) {
            (Some(near), Some(far)) if near != far => {
                format!("near {}, far {}", near.text(scale), far.text(scale))
            }
            (near, _) => goal_text(near, scale),
        };
        let value = |machine: &MachineFigures| {
            let placement = machine.main_placement();
            let value = headline(machine, quantity, placement);
            value.map_or_else(missing, |value| {
                bold(format!("{:.digits$}", value / scale), value, goal(placement))
            })
        };
        rows.push([name.to_owned(), goals].into_iter().chain(machines.iter().map(value)).collect());
    }
    table(&["figure", "goal"], 1, machines, &[""], &rows)
}

/// Value of a headline figure: of both directions, the worse one.
fn headline(machine: &MachineFigures, quantity: Quantity, placement: CpuPlacement) -> Option<f64> {
    fn of<T>(
        rows: &[Row<T>],
        size: u64,
        placement: CpuPlacement,
        value: impl Fn(&T) -> Option<f64>,
    ) -> Vec<f64> {
        let fits = |key: &Key| (key.ring, key.size, key.placement) == (Ring::Credit, size, placement);
        rows.iter().filter(|row| fits(&row.key)).filter_map(|row| value(&row.figures)).collect()
    }
    let values = match quantity {
        Quantity::CopyShare(size) => {
            of(&machine.throughput, size, placement, |row| Some(row.copy_share?.median))
        }
        Quantity::PeerRatio(size) => {
            of(&machine.throughput, size, placement, |row| Some(row.peer_ratio?.median))
        }
        Quantity::PeerLatency => of(&machine.latency, 64, placement, |row| {
            let peer = row.peer?;
            let ratio = |part: Part| part(&row.ours).median / part(&peer).median;
            Some(ratio(|it| it.p50_ns).max(ratio(|it| it.p99_ns)))
        }),
        Quantity::CpuTime => of(&machine.cpu_time, 64, placement, |row| Some(row.ours_ns.median)),
        Quantity::Channels(quantity) => {
            let rows = machine.channels.iter().filter(|row| row.quantity == quantity);
            let rows = rows.filter(|row| row.placement.is_none_or(|found| found == placement));
            rows.map(|row| row.value.median).collect()
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
        std::iter::once(name.to_owned()).chain(machines.iter().map(value)).collect::<Vec<_>>()
    };
    let mut rows = vec![
        row("measured on", &|machine| machine.date.clone()),
        row("commit", &|machine| machine.commit.clone()),
        row("command", &|machine| format!("`{}`", machine.command)),
    ];
    rows.extend(names.into_iter().map(|name| {
        row(name, &|machine| {
            let found = machine.facts.iter().find(|(known, _)| known == name);
            found.map_or_else(missing, |(_, value)| value.clone())
        })
    }));
    table(&["machine"], machines.len() + 1, machines, &[""], &rows)
}

/// Share of the copy limit by operation size: one curve per machine and direction, in credit mode and the placement of the summary. A panel
/// of its own for each machine would hide their differences.
fn picture(machines: &[MachineFigures]) -> Picture {
    /// Upper end of the share axis: a run may exceed a copy that was measured in a slow moment.
    const MAX_SHARE: f64 = 1.1;
    let mut panel = Panel::default();
    panel.x_label = "size of an operation".to_owned();
    panel.y_label = "rate / rate of a plain copy".to_owned();
    panel.x_scale = Scale::Bytes;
    panel.y_extent = Extent::Between(0.0, MAX_SHARE);
    for (machine, direction) in
        machines.iter().flat_map(|machine| [Direction::H2c, Direction::C2h].map(|way| (machine, way)))
    {
        let shown = (Ring::Credit, direction, machine.main_placement());
        let rows = machine
            .throughput
            .iter()
            .filter(|row| (row.key.ring, row.key.direction, row.key.placement) == shown);
        let points = rows.filter_map(|row| {
            #[expect(clippy::cast_precision_loss, reason = "sizes are small")]
            let size = row.key.size as f64;
            let share = row.figures.copy_share?;
            Some([size, share.median, share.least, share.most.min(MAX_SHARE)])
        });
        let mut curve = Curve::new(format!("{}, {}", machine.cpu, direction.name()), panel.curves.len());
        curve.points = points.collect();
        panel.curves.push(curve);
    }
    let mut picture = Picture::default();
    picture.title = "Share of the copy limit".to_owned();
    picture.caption = vec![
        "Credit mode, simulated card; medians, with minimum and maximum. CPU placement: see BENCHMARKS.md."
            .to_owned(),
    ];
    picture.columns = 1;
    picture.panels = vec![panel];
    picture
}

#[cfg(test)]
mod tests;
