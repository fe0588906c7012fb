//! BENCHMARKS.md and its pages: one per question, with the machines side by side.

mod building_blocks;
mod channels;
mod cpu_time;
mod index;
mod latency;
mod picture;
mod table;
mod throughput;

use super::data::MachineFigures;

/// Paths, relative to the root of the workspace, and texts of all pages and pictures.
pub(crate) fn all(machines: &[MachineFigures]) -> Vec<(&'static str, String)> {
    vec![
        ("BENCHMARKS.md", index::page(machines)),
        ("docs/benchmarks/throughput.md", throughput::page(machines)),
        ("docs/benchmarks/latency.md", latency::page(machines)),
        ("docs/benchmarks/cpu-time.md", cpu_time::page(machines)),
        ("docs/benchmarks/channels.md", channels::page(machines)),
        ("docs/benchmarks/building-blocks.md", building_blocks::page(machines)),
        ("docs/benchmarks/throughput.svg", picture::throughput(machines).svg()),
    ]
}

#[cfg(test)]
mod tests;
