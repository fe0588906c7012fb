//! Lines and tables of a sample.

use fpga_registers::quantity;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{Page, ViewState};
use crate::commands::top::snapshot::{Channel, Snapshot};
use crate::units::binary_size;

/// Column of a table.
struct Column {
    head: &'static str,
    /// Whether cells are right-aligned, as numbers are.
    right: bool,
    /// Takes the remaining width and is cut off if that is too small; only the last column may be open.
    open: bool,
}

const fn right(head: &'static str) -> Column {
    Column { head, right: true, open: false }
}

const fn left(head: &'static str) -> Column {
    Column { head, right: false, open: false }
}

const fn open(head: &'static str) -> Column {
    Column { head, right: false, open: true }
}

/// Page of rows. `remark` is shown if there are none.
pub(super) struct Table {
    remark: String,
    columns: Vec<Column>,
    /// Cells of each row, and the state that determines its colour.
    rows: Vec<(Vec<String>, &'static str)>,
}

impl Table {
    pub(super) fn of(page: Page, sample: &Snapshot, _: &ViewState) -> Self {
        match page {
            Page::Overview => Self::remark("see the pages".to_owned()),
            Page::Channels => Self::channels(sample),
            Page::Ops => Self::ops(sample),
            Page::Queues => Self::queues(sample),
            Page::Registry => Self::registry(sample),
            Page::Escape => Self::escape(sample),
            Page::Counters => Self::counters(sample),
        }
    }

    const fn remark(remark: String) -> Self {
        Self { remark, columns: Vec::new(), rows: Vec::new() }
    }

    fn no_interface() -> Self {
        Self::remark("this card has no network interface that is known".to_owned())
    }

    fn channels(sample: &Snapshot) -> Self {
        let columns =
            vec![left("channel"), left("state"), right("completed"), left("status"), open("meaning")];
        let rows = sample.ends.iter().flat_map(|end| {
            end.channels.iter().map(|channel| {
                let name = if sample.ends.len() > 1 {
                    format!("{} {}", end.role, channel.name)
                } else {
                    channel.name.clone()
                };
                let completed = channel.completed.to_string();
                (
                    vec![
                        name,
                        channel.state.to_owned(),
                        completed,
                        channel.status.clone(),
                        channel.decoded.clone(),
                    ],
                    channel.state,
                )
            })
        });
        Self { remark: "no channels".to_owned(), columns, rows: rows.collect() }
    }

    fn ops(sample: &Snapshot) -> Self {
        let Some(ops) = &sample.ops else { return Self::no_interface() };
        if !ops.messages.is_empty() {
            let columns = vec![
                left("message"),
                left("state"),
                right("node"),
                right("arrived"),
                right("begun"),
                right("packets"),
                right("tries"),
                right("heard"),
                right("sent"),
                right("transfer"),
                left("base"),
            ];
            let rows = ops.messages.iter().map(|row| {
                let cells = vec![
                    row.message.clone(),
                    row.state.to_owned(),
                    row.node.to_string(),
                    row.first_open.to_string(),
                    row.first_unsent.to_string(),
                    row.packets.to_string(),
                    row.tries.to_string(),
                    span(row.age_us),
                    row.packets_sent.to_string(),
                    row.transfer.to_string(),
                    row.base.clone(),
                ];
                (cells, row.state)
            });
            return Self { remark: String::new(), columns, rows: rows.collect() };
        }
        let columns = vec![
            left("op"),
            left("state"),
            right("node"),
            right("segment"),
            right("packet"),
            right("tries"),
            right("sent"),
            right("retry in"),
            right("bytes"),
            right("transfer"),
            left("address"),
        ];
        let rows = ops.ops.iter().map(|op| {
            let cells = vec![
                op.op.clone(),
                op.state.to_owned(),
                op.node.to_string(),
                op.segment.to_string(),
                op.packet.to_string(),
                op.tries.to_string(),
                span(op.age_us),
                op.deadline_us.map_or_else(|| "-".to_owned(), span),
                op.length.to_string(),
                op.transfer.to_string(),
                op.address.clone(),
            ];
            // A first try is the normal case.
            (cells, if op.tries > 1 { "notice" } else { "" })
        });
        let remark = match ops.capacity {
            Some(capacity) => format!("none of {capacity} entries in use"),
            None => "the op table belongs to the sending driver, and this command sends nothing".to_owned(),
        };
        Self { remark, columns, rows: rows.collect() }
    }

    fn queues(sample: &Snapshot) -> Self {
        let Some(queues) = &sample.queues else { return Self::no_interface() };
        let columns = vec![
            left("queue"),
            left("stage"),
            right("node"),
            right("uncut"),
            right("length"),
            right("open"),
            right("again"),
            right("age"),
            right("sent"),
            right("acked"),
            right("transfer"),
        ];
        let transfers = queues.transfers.iter().map(|row| {
            let cells = vec![
                row.queue.to_owned(),
                row.stage.to_owned(),
                row.node.to_string(),
                binary_size(row.remaining),
                binary_size(row.length),
                row.outstanding_segments.to_string(),
                row.retransmits.to_string(),
                span(row.age_us),
                row.packets_sent.to_string(),
                row.packets_acknowledged.to_string(),
                row.transfer.map_or_else(|| "-".to_owned(), |id| id.to_string()),
            ];
            (cells, if row.stage == "in flight" { "running" } else { "" })
        });
        let remark = "no transfer is queued or in flight";
        Self { remark: remark.to_owned(), columns, rows: transfers.collect() }
    }

    fn registry(sample: &Snapshot) -> Self {
        let Some(registry) = &sample.registry else { return Self::no_interface() };
        let columns = vec![right("from"), right("segment"), right("packets"), right("heard"), open("mask")];
        let rows = registry.entries.iter().map(|entry| {
            let cells = vec![
                entry.source.to_string(),
                if entry.scheme == "registry" {
                    format!("{}/{}", entry.segment, entry.segment_count)
                } else {
                    entry.segment.to_string()
                },
                format!("{}/{}", entry.received, entry.expected),
                span(entry.age_us),
                entry.bits.clone(),
            ];
            (cells, "")
        });
        let remark = format!("none of {} entries in use", registry.capacity);
        Self { remark, columns, rows: rows.collect() }
    }

    fn escape(sample: &Snapshot) -> Self {
        let Some(escape) = &sample.escape else { return Self::no_interface() };
        let columns = vec![
            right("slot"),
            right("from"),
            right("segment"),
            right("waits"),
            right("bytes"),
            left("op"),
            right("transfer"),
            left("address"),
        ];
        let rows = escape.slots.iter().map(|slot| {
            let cells = vec![
                slot.index.to_string(),
                slot.source.to_string(),
                slot.segment.to_string(),
                span(slot.age_us),
                slot.length.to_string(),
                slot.op.clone(),
                slot.transfer.to_string(),
                slot.address.clone(),
            ];
            (cells, "")
        });
        let remark = format!("none of {} slots in use", escape.capacity);
        Self { remark, columns, rows: rows.collect() }
    }

    fn counters(sample: &Snapshot) -> Self {
        let Some(stats) = &sample.stats else { return Self::no_interface() };
        let columns = vec![left("of"), left("counter"), open("value")];
        let rows = stats.lines().map(|(card, name, value)| (vec![card, name, value], ""));
        Self { remark: String::new(), columns, rows: rows.collect() }
    }

    /// Head and rows, in as many columns as fit into `width`.
    pub(super) fn lines(&self, width: u16, chosen: &ViewState) -> Vec<Line<'static>> {
        if self.rows.is_empty() {
            return vec![Line::from(self.remark.clone())];
        }
        let width = usize::from(width);
        let cell = |row: &(Vec<String>, &str), number: usize| {
            row.0.get(number).map_or(0, |text| text.chars().count())
        };
        let mut shown = Vec::new();
        let mut used = 0;
        for (number, column) in self.columns.iter().enumerate() {
            let widest =
                self.rows.iter().map(|row| cell(row, number)).max().unwrap_or(0).max(column.head.len());
            let left = width.saturating_sub(used);
            // Part of the first two columns is always shown.
            let wanted = if column.open || number < 2 { widest.min(left) } else { widest };
            if wanted > left || wanted == 0 {
                break;
            }
            shown.push((number, column, wanted));
            used += wanted + 2;
        }
        let line = |texts: &dyn Fn(usize) -> String, style: Style| {
            let mut text = String::new();
            for (place, (number, column, width)) in shown.iter().enumerate() {
                let gap = if place == 0 { "" } else { "  " };
                let cut: String = texts(*number).chars().take(*width).collect();
                text += gap;
                text += &if column.right { format!("{cut:>width$}") } else { format!("{cut:<width$}") };
            }
            Line::styled(text.trim_end().to_owned(), style)
        };
        let head = line(
            &|number| self.columns.get(number).map_or_else(String::new, |column| column.head.to_owned()),
            chosen.bold(),
        );
        let rows = self.rows.iter().map(|(cells, state)| {
            line(&|number| cells.get(number).cloned().unwrap_or_default(), chosen.state(state))
        });
        std::iter::once(head).chain(rows).collect()
    }
}

/// Formats a span of microseconds in few characters.
pub(super) fn span(micros: f64) -> String {
    match micros {
        ..0.0 => "over".to_owned(),
        ..1_000.0 => format!("{micros:.1} µs"),
        ..1_000_000.0 => format!("{:.2} ms", micros / 1e3),
        ..1e9 => format!("{:.2} s", micros / 1e6),
        _ => format!("{:.0} s", micros / 1e6),
    }
}

/// Formats a count per second in few characters.
fn per_second(rate: f64) -> String {
    match rate {
        ..1e3 => format!("{rate:.0}"),
        ..1e6 => format!("{:.1}k", rate / 1e3),
        ..1e9 => format!("{:.1}M", rate / 1e6),
        _ => format!("{:.1}G", rate / 1e9),
    }
}

/// Rates of each end.
pub(super) fn rates(sample: &Snapshot, chosen: &ViewState, width: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(rate) = sample.goodput_gb_per_s {
        lines.push(Line::styled(
            format!("goodput {rate:.3} GB/s"),
            chosen.style(ratatui::style::Color::Green),
        ));
    }
    let columns = vec![
        left(""),
        right("dma GB/s"),
        right("in/s"),
        right("out/s"),
        right("acks/s"),
        right("irqs/s"),
        right("descr/s"),
        right("reads/s"),
    ];
    let rows = sample.ends.iter().filter_map(|end| {
        let rates = end.rates.as_ref()?;
        let count = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), per_second);
        let cells = vec![
            end.role.to_owned(),
            rates.dma_gb_per_s.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.3}")),
            count(rates.packets_in_per_s),
            count(rates.packets_out_per_s),
            count(rates.acks_per_s),
            count(rates.interrupts_per_s),
            count(rates.descriptors_per_s),
            count(rates.mmio_reads_per_s),
        ];
        Some((cells, ""))
    });
    let table = Table { remark: "from the second sample on".to_owned(), columns, rows: rows.collect() };
    lines.extend(table.lines(width, chosen));
    lines
}

const fn letter(state: &str) -> char {
    match state.as_bytes() {
        b"running" => 'R',
        b"waiting" => 'W',
        b"error" => 'E',
        b"gone" => 'X',
        b"stopping" => 'S',
        _ => '-',
    }
}

/// All channels in a few lines: one letter each.
pub(super) fn channel_lines(sample: &Snapshot, chosen: &ViewState, width: u16) -> Vec<Line<'static>> {
    let label = 10;
    let room = (usize::from(width).saturating_sub(label) / 8).max(1);
    let mut lines = Vec::new();
    for end in &sample.ends {
        for (number, part) in end.channels.chunks(room).enumerate() {
            let name = if number == 0 { end.role } else { "" };
            let one = |channel: &Channel| {
                let text = format!("{} {}  ", channel.name, letter(channel.state));
                Span::styled(text, chosen.state(channel.state))
            };
            let mut spans = vec![Span::raw(format!("{name:<label$}"))];
            spans.extend(part.iter().map(one));
            lines.push(Line::from(spans));
        }
    }
    lines
}

/// Occupancy of the tables.
pub(super) fn occupancy(sample: &Snapshot, chosen: &ViewState, width: u16) -> Vec<Line<'static>> {
    let mut rows: Vec<(&str, u64, u64, Option<u32>)> = Vec::new();
    if let Some(ops) = &sample.ops
        && let Some(capacity) = ops.capacity
    {
        let name = if ops.schemes.contains(&"registry") { "op table" } else { "contexts" };
        rows.push((name, ops.in_use as u64, capacity.into(), None));
    }
    if let Some(registry) = &sample.registry {
        rows.push((
            "registry",
            registry.occupancy.into(),
            registry.capacity.into(),
            Some(registry.high_water),
        ));
    }
    if let Some(escape) = &sample.escape {
        rows.push(("escape", escape.occupancy.into(), escape.capacity.into(), Some(escape.high_water)));
    }
    let mut lines: Vec<Line<'static>> = rows
        .into_iter()
        .map(|(name, used, capacity, most)| {
            let most = most.map(|most| format!(", {most} at most")).unwrap_or_default();
            let text = format!("{used} of {capacity}{most}");
            let room = usize::from(width).saturating_sub(10 + 2 + text.len()).min(40);
            let filled = usize::try_from(used.saturating_mul(room as u64).div_ceil(capacity.max(1)))
                .unwrap_or(room)
                .min(room);
            let state = if used >= capacity { "notice" } else { "" };
            let bar = if room < 8 {
                String::new()
            } else {
                format!("{}{}  ", "#".repeat(filled), ".".repeat(room - filled))
            };
            Line::from(vec![
                Span::raw(format!("{name:<10}")),
                Span::styled(bar, chosen.state(state)),
                Span::raw(text),
            ])
        })
        .collect();
    if let Some(queues) = &sample.queues {
        for to in &queues.destinations {
            let suspect = if to.suspect { ", last event was a time-out" } else { "" };
            lines.push(Line::from(format!(
                "to {:<7}{} regular, {} big, {} in flight{suspect}",
                to.node,
                to.regular,
                to.big,
                quantity(to.packets_in_flight, "packet")
            )));
        }
    }
    if lines.is_empty() {
        lines.push(Line::from("no network interface that is known"));
    }
    lines
}

/// Warnings, in at most `most` lines, new ones first.
pub(super) fn warnings(sample: &Snapshot, chosen: &ViewState, most: usize) -> Vec<Line<'static>> {
    let mut all: Vec<_> = sample.trouble.iter().collect();
    all.sort_by_key(|trouble| (trouble.level != "error", trouble.new == 0));
    if all.is_empty() {
        return vec![Line::from("none")];
    }
    let hidden = all.len().saturating_sub(most.max(1));
    let shown = all.into_iter().take(most.max(1)).map(|trouble| {
        let new = if trouble.new > 0 { format!(" (+{})", trouble.new) } else { String::new() };
        let text = format!("{:>7}{new} {}, {}", trouble.count, trouble.what, trouble.card);
        Line::styled(text, chosen.state(trouble.level))
    });
    let mut lines: Vec<Line<'static>> = shown.collect();
    if hidden > 0
        && let Some(last) = lines.last_mut()
    {
        *last = Line::from(format!("        ... {} more kinds", hidden + 1));
    }
    lines
}
