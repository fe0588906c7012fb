//! Page about the benchmarks of the packages.

use super::super::data::MachineFigures;
use super::super::micro::Benchmark;
use super::super::placement::CpuPlacement;
use super::table::{header, heading, table};

pub(super) fn page(machines: &[MachineFigures]) -> String {
    let measured: Vec<MachineFigures> =
        machines.iter().filter(|machine| !machine.building_blocks.is_empty()).cloned().collect();
    let mut names: Vec<&Benchmark> = Vec::new();
    for benchmark in measured.iter().flat_map(|machine| &machine.building_blocks) {
        if !names.iter().any(|known| is_same(known, benchmark)) {
            names.push(benchmark);
        }
    }
    let rows: Vec<Vec<String>> = names.iter().map(|benchmark| row(benchmark, &measured)).collect();
    let header = header(&["package", "benchmark", "budget"], &measured, &["ns"]);
    let placements: Vec<String> = measured
        .iter()
        .map(|machine| {
            let placement = machine.building_blocks_placement.map_or("changing", CpuPlacement::name);
            format!("{} {placement}", machine.cpu)
        })
        .collect();
    heading(
        "Building blocks",
        "How long do the steps of a transfer take, each by itself?",
        "cargo bench -p PACKAGE",
    ) + &format!(
        "## Method\n\n\
        Nanoseconds per operation. With an interval: criterion's mean and its 95 % interval; without: as the benchmark prints it.\n\
        CPU placement: {}. Budgets with two values apply to near and to far CPUs. `-`: not measured; **bold**: above the budget.\n\n\
        ## Benchmarks of the packages\n\n{}",
        placements.join("; "),
        table(&header, 2, &rows)
    )
}

fn is_same(first: &Benchmark, second: &Benchmark) -> bool {
    (&first.package, &first.name) == (&second.package, &second.name)
}

fn row(benchmark: &Benchmark, machines: &[MachineFigures]) -> Vec<String> {
    let budget = match benchmark.budgets() {
        Some((near, far)) if near < far => format!("{near:.0} / {far:.0}"),
        Some((near, _)) => format!("{near:.0}"),
        None => "-".to_owned(),
    };
    let mut row = vec![benchmark.package.clone(), benchmark.name.clone(), budget];
    for machine in machines {
        let found = machine.building_blocks.iter().find(|found| is_same(found, benchmark));
        row.push(
            found.map_or_else(|| "-".to_owned(), |found| cell(found, machine.building_blocks_placement)),
        );
    }
    row
}

fn cell(found: &Benchmark, placement: Option<CpuPlacement>) -> String {
    // If the CPU placement changed meanwhile, the stricter budget applies.
    let budget = found.budget(placement.unwrap_or(CpuPlacement::SharedCache));
    let value = format!("{:.2}", found.nanoseconds);
    let value =
        if budget.is_some_and(|budget| found.nanoseconds > budget) { format!("**{value}**") } else { value };
    found.interval.map_or_else(|| value.clone(), |(low, high)| format!("{value} ({low:.2}-{high:.2})"))
}
