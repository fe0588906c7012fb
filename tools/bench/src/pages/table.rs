//! Parts that the pages share: headings, tables, and cells of figures.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::super::cells::{Ring, size_text};
use super::super::data::{Key, MachineFigures, Row};
use super::super::goals::{Goal, Quantity};
use super::super::placement::CpuPlacement;
use super::super::statistics::Figure;

/// Command that measures and writes all pages.
pub(super) const COMMAND: &str = "cargo measure --peer --write";

/// Explanation of cells, for each page with goals.
pub(super) const CELLS: &str =
    "Cells: median (minimum-maximum; number of runs); `-`: not measured; **bold**: misses the goal.";

/// Title, question and command of a page in `docs/benchmarks`.
pub(super) fn heading(title: &str, question: &str, command: &str) -> String {
    format!(
        "# {title}\n\n{question}\n\n    {command}\n\n\
        Written by `cargo measure`; do not edit. All measurements and machines: [BENCHMARKS.md](../../BENCHMARKS.md).\n\n"
    )
}

/// Table: header, then rows of as many columns; columns after the first `left` are right-aligned.
pub(super) fn table(header: &[String], left: usize, rows: &[Vec<String>]) -> String {
    let rule: Vec<&str> =
        (0..header.len()).map(|column| if column < left { "---" } else { "---:" }).collect();
    let mut text = format!("| {} |\n| {} |\n", header.join(" | "), rule.join(" | "));
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// Header: the columns of the row's parameters, then `columns` of each machine.
pub(super) fn header(first: &[&str], machines: &[MachineFigures], columns: &[&str]) -> Vec<String> {
    let of = |machine: &MachineFigures| {
        let cpu = machine.cpu.clone();
        columns.iter().map(move |column| format!("{cpu}: {column}"))
    };
    first.iter().map(|name| (*name).to_owned()).chain(machines.iter().flat_map(of)).collect()
}

/// Rows of a quantity: each key that a machine has, with the row of each machine.
pub(super) fn side_by_side<R: Row>(
    machines: &[MachineFigures],
    rows: fn(&MachineFigures) -> &[R],
) -> Vec<(Key, Vec<Option<&R>>)> {
    let keys: BTreeSet<Key> = machines.iter().flat_map(rows).map(Row::key).collect();
    let of = |key: Key| {
        let row = |machine| rows(machine).iter().find(|row| row.key() == key);
        (key, machines.iter().map(row).collect())
    };
    keys.into_iter().map(of).collect()
}

/// Size, direction and CPU placement of a row.
pub(super) fn parameters(key: &Key) -> Vec<String> {
    vec![size_text(key.size), key.direction.name().to_owned(), key.placement.name().to_owned()]
}

/// Name of a ring mode as a heading.
pub(super) const fn ring_heading(ring: Ring) -> &'static str {
    match ring {
        Ring::Credit => "Credit mode",
        Ring::Stop => "Batch mode (the default)",
    }
}

/// Cell of a figure, scaled, with `digits` decimal places.
pub(super) fn cell(figure: Option<Figure>, scale: f64, digits: usize, goal: Option<&Goal>) -> String {
    let Some(figure) = figure else { return "-".to_owned() };
    if goal.is_none_or(|goal| goal.is_met(figure.median)) {
        return figure.text(scale, digits);
    }
    format!("**{:.digits$}** {}", figure.median / scale, figure.spread(scale, digits))
}

/// Cell of a value without spread.
pub(super) fn value_cell(value: Option<f64>, digits: usize, goal: Option<&Goal>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let is_met = goal.is_none_or(|goal| goal.is_met(value));
    if is_met { format!("{value:.digits$}") } else { format!("**{value:.digits$}**") }
}

/// Goal of a quantity in one placement.
pub(super) fn goal_cell(goal: Option<&Goal>) -> String {
    goal.map_or_else(|| "-".to_owned(), |goal| goal.text(1.0))
}

/// Goals of a quantity in all placements.
pub(super) fn goals_cell(quantity: Quantity, scale: f64) -> String {
    let goal = |placement| Goal::of(quantity, Some(placement));
    match (goal(CpuPlacement::SharedCache), goal(CpuPlacement::NoSharedCache)) {
        (Some(near), Some(far)) if near != far => {
            format!("near {}, far {}", near.text(scale), far.text(scale))
        }
        (Some(goal), _) => goal.text(scale),
        (None, _) => "-".to_owned(),
    }
}
