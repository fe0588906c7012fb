//! Page about several channels, small operations beside large ones, and one CPU.

use std::fmt::Write as _;

use super::super::data::{ChannelQuantity, Channels, MachineFigures};
use super::super::goals::{Goal, Quantity};
use super::super::placement::CpuPlacement;
use super::table::{CELLS, COMMAND, cell, header, heading, table};

/// One section of the page.
struct Section {
    quantity: ChannelQuantity,
    title: &'static str,
    /// Runs, as commands, and the goal's quantity.
    method: &'static str,
    /// Columns of the dividend and the divisor, and of the value.
    columns: &'static [&'static str],
    scale: f64,
    digits: usize,
}

const SECTIONS: [Section; 4] = [
    Section {
        quantity: ChannelQuantity::FourChannels,
        title: "Several channels",
        method: "Share of the copy limit with four channels per direction at 64 KiB, divided by that with one, both directions at once:\n\
                 `fpgactl --card mock dma bench --sizes 64KiB --direction both --channels 4` just after the same with `--channels 1`. Each\n\
                 channel has a working set of its own, and the limit is that of all of them together. One thread drives all channels, and one\n\
                 thread of the card copies, so the ratio is 1 if channels cost nothing.",
        columns: &["4+4 channels, share", "1+1 channel, share", "ratio"],
        scale: 1.0,
        digits: 2,
    },
    Section {
        quantity: ChannelQuantity::Beside,
        title: "Small operations beside large ones",
        method: "99th percentile of the latency of one operation of 64 B while one more channel is kept busy with 1 MiB operations, divided by\n\
                 that without: `fpgactl --card mock dma bench --sizes 64 --direction h2c --beside 1MiB` just after the same without `--beside`.",
        columns: &["beside 1 MiB, ns", "alone, ns", "ratio"],
        scale: 1.0,
        digits: 2,
    },
    Section {
        quantity: ChannelQuantity::OneCpuShare,
        title: "Throughput on one CPU",
        method: "Application and simulated card on one CPU: `taskset -c CPU fpgactl --card mock dma bench --sizes 64KiB --direction h2c`; rate\n\
                 divided by the copy limit of the same run.",
        columns: &["GB/s", "copy limit, GB/s", "share"],
        scale: 1.0,
        digits: 2,
    },
    Section {
        quantity: ChannelQuantity::OneCpuLatency,
        title: "Latency on one CPU",
        method: "99th percentile of the latency of one operation of 64 KiB in the same runs, in microseconds.",
        columns: &["µs"],
        scale: 1e3,
        digits: 1,
    },
];

pub(super) fn page(machines: &[MachineFigures]) -> String {
    let mut text = heading(
        "Channels",
        "What do several channels, operations of other sizes and a single CPU cost?",
        COMMAND,
    );
    let _ = write!(
        text,
        "## Method\n\n\
        Runs of this project's program alone, each ratio to a run just before. They count as pairs of the [throughput](throughput.md) do;\n\
        on one CPU, a run counts if it got 0.95 of it.\n\n{CELLS}\n"
    );
    for section in SECTIONS {
        let rows = section.rows(machines);
        let Section { title, method, columns, .. } = section;
        let header = header(&["CPUs", "goal"], machines, columns);
        let _ = write!(text, "\n## {title}\n\n{method}\n\n{}", table(&header, 1, &rows));
    }
    text
}

impl Section {
    /// One row per placement that a machine has; at least one.
    fn rows(&self, machines: &[MachineFigures]) -> Vec<Vec<String>> {
        let all = || machines.iter().flat_map(|machine| &machine.channels);
        let mut placements: Vec<Option<CpuPlacement>> =
            all().filter(|row| row.quantity == self.quantity).map(|row| row.placement).collect();
        placements.sort_unstable();
        placements.dedup();
        if placements.is_empty() {
            placements.push(self.usual_placement());
        }
        placements.into_iter().map(|placement| self.row(machines, placement)).collect()
    }

    fn usual_placement(&self) -> Option<CpuPlacement> {
        match self.quantity {
            ChannelQuantity::FourChannels | ChannelQuantity::Beside => Some(CpuPlacement::SharedCache),
            ChannelQuantity::OneCpuShare | ChannelQuantity::OneCpuLatency => None,
        }
    }

    fn row(&self, machines: &[MachineFigures], placement: Option<CpuPlacement>) -> Vec<String> {
        let goal = Goal::of(Quantity::Channels(self.quantity), placement);
        let name = placement.map_or("one CPU", CpuPlacement::name);
        let mut row =
            vec![name.to_owned(), goal.map_or_else(|| "-".to_owned(), |goal| goal.text(self.scale))];
        for machine in machines {
            let fits = |row: &&Channels| row.quantity == self.quantity && row.placement == placement;
            let found = machine.channels.iter().find(fits);
            if self.columns.len() > 1 {
                let digits = if self.quantity == ChannelQuantity::Beside { 0 } else { 2 };
                row.push(cell(found.and_then(|row| row.with), 1.0, digits, None));
                row.push(cell(found.and_then(|row| row.without), 1.0, digits, None));
            }
            row.push(cell(found.map(|row| row.value), self.scale, self.digits, goal));
        }
        row
    }
}
