//! Lines and tables of a sample.

use fpga_registers::quantity;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{Page, ViewState};
use crate::commands::top::snapshot::{Channel, Rates, Snapshot};
use crate::units::binary_size;

/// Column of a table.
#[derive(Clone, Copy)]
struct Column {
    head: &'static str,
    /// Whether cells are right-aligned, as numbers are.
    right: bool,
    /// Takes the remaining width and is cut off if that is too small; only the last column may be open.
    open: bool,
}

/// Column, and its cell for an item.
type CellColumn<'a, T> = (Column, &'a dyn Fn(&T) -> String);

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
    pub(super) fn of(page: Page, sample: &Snapshot) -> Self {
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

    /// Creates a table with a row for each of `items`. `state` determines a row's colour.
    fn new<'a, T: 'a>(
        remark: impl Into<String>,
        items: impl IntoIterator<Item = &'a T>,
        state: impl Fn(&T) -> &'static str,
        columns: &[CellColumn<'_, T>],
    ) -> Self {
        let row = |item: &T| (columns.iter().map(|(_, cell)| cell(item)).collect(), state(item));
        Self {
            remark: remark.into(),
            columns: columns.iter().map(|(column, _)| *column).collect(),
            rows: items.into_iter().map(row).collect(),
        }
    }

    fn channels(sample: &Snapshot) -> Self {
        let are_several = sample.ends.len() > 1;
        let channels: Vec<(&str, &Channel)> = sample
            .ends
            .iter()
            .flat_map(|end| end.channels.iter().map(|channel| (end.role, channel)))
            .collect();
        let name = |(role, channel): &(&str, &Channel)| match are_several {
            true => format!("{role} {}", channel.name),
            false => channel.name.clone(),
        };
        Self::new(
            "no channels",
            &channels,
            |(_, channel)| channel.state,
            &[
                (left("channel"), &name),
                (left("state"), &|(_, channel)| channel.state.to_owned()),
                (right("completed"), &|(_, channel)| channel.completed.to_string()),
                (left("status"), &|(_, channel)| channel.status.clone()),
                (open("meaning"), &|(_, channel)| channel.decoded.clone()),
            ],
        )
    }

    fn ops(sample: &Snapshot) -> Self {
        let Some(ops) = &sample.ops else { return Self::no_interface() };
        if !ops.messages.is_empty() {
            return Self::new(
                "",
                &ops.messages,
                |row| row.state,
                &[
                    (left("message"), &|row| row.message.clone()),
                    (left("state"), &|row| row.state.to_owned()),
                    (right("node"), &|row| row.node.to_string()),
                    (right("arrived"), &|row| row.first_open.to_string()),
                    (right("begun"), &|row| row.first_unsent.to_string()),
                    (right("packets"), &|row| row.packets.to_string()),
                    (right("tries"), &|row| row.tries.to_string()),
                    (right("heard"), &|row| span(row.age_us)),
                    (right("sent"), &|row| row.packets_sent.to_string()),
                    (right("transfer"), &|row| row.transfer.to_string()),
                    (left("base"), &|row| row.base.clone()),
                ],
            );
        }
        let remark = match ops.capacity {
            Some(capacity) => format!("none of {capacity} entries in use"),
            None => "the op table belongs to the sending driver, and this command sends nothing".to_owned(),
        };
        Self::new(
            remark,
            &ops.ops,
            // A first try is the normal case.
            |op| if op.tries > 1 { "notice" } else { "" },
            &[
                (left("op"), &|op| op.op.clone()),
                (left("state"), &|op| op.state.to_owned()),
                (right("node"), &|op| op.node.to_string()),
                (right("segment"), &|op| op.segment.to_string()),
                (right("packet"), &|op| op.packet.to_string()),
                (right("tries"), &|op| op.tries.to_string()),
                (right("sent"), &|op| span(op.age_us)),
                (right("retry in"), &|op| op.deadline_us.map_or_else(|| "-".to_owned(), span)),
                (right("bytes"), &|op| op.length.to_string()),
                (right("transfer"), &|op| op.transfer.to_string()),
                (left("address"), &|op| op.address.clone()),
            ],
        )
    }

    fn queues(sample: &Snapshot) -> Self {
        let Some(queues) = &sample.queues else { return Self::no_interface() };
        Self::new(
            "no transfer is queued or in flight",
            &queues.transfers,
            |row| if row.stage == "in flight" { "running" } else { "" },
            &[
                (left("queue"), &|row| row.queue.to_owned()),
                (left("stage"), &|row| row.stage.to_owned()),
                (right("node"), &|row| row.node.to_string()),
                (right("uncut"), &|row| binary_size(row.remaining)),
                (right("length"), &|row| binary_size(row.length)),
                (right("open"), &|row| row.outstanding_segments.to_string()),
                (right("again"), &|row| row.retransmits.to_string()),
                (right("age"), &|row| span(row.age_us)),
                (right("sent"), &|row| row.packets_sent.to_string()),
                (right("acked"), &|row| row.packets_acknowledged.to_string()),
                (right("transfer"), &|row| row.transfer.map_or_else(|| "-".to_owned(), |id| id.to_string())),
            ],
        )
    }

    fn registry(sample: &Snapshot) -> Self {
        let Some(registry) = &sample.registry else { return Self::no_interface() };
        Self::new(
            format!("none of {} entries in use", registry.capacity),
            &registry.entries,
            |_| "",
            &[
                (right("from"), &|entry| entry.source.to_string()),
                (right("segment"), &|entry| match entry.scheme {
                    "registry" => format!("{}/{}", entry.segment, entry.segment_count),
                    _ => entry.segment.to_string(),
                }),
                (right("packets"), &|entry| format!("{}/{}", entry.received, entry.expected)),
                (right("heard"), &|entry| span(entry.age_us)),
                (open("mask"), &|entry| entry.bits.clone()),
            ],
        )
    }

    fn escape(sample: &Snapshot) -> Self {
        let Some(escape) = &sample.escape else { return Self::no_interface() };
        Self::new(
            format!("none of {} slots in use", escape.capacity),
            &escape.slots,
            |_| "",
            &[
                (right("slot"), &|slot| slot.index.to_string()),
                (right("from"), &|slot| slot.source.to_string()),
                (right("segment"), &|slot| slot.segment.to_string()),
                (right("waits"), &|slot| span(slot.age_us)),
                (right("bytes"), &|slot| slot.length.to_string()),
                (left("op"), &|slot| slot.op.clone()),
                (right("transfer"), &|slot| slot.transfer.to_string()),
                (left("address"), &|slot| slot.address.clone()),
            ],
        )
    }

    fn counters(sample: &Snapshot) -> Self {
        let Some(stats) = &sample.stats else { return Self::no_interface() };
        let lines: Vec<(String, String, String)> = stats.lines().collect();
        Self::new(
            "",
            &lines,
            |_| "",
            &[
                (left("of"), &|line| line.0.clone()),
                (left("counter"), &|line| line.1.clone()),
                (open("value"), &|line| line.2.clone()),
            ],
        )
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
    let rates: Vec<(&str, &Rates)> =
        sample.ends.iter().filter_map(|end| Some((end.role, end.rates.as_ref()?))).collect();
    let count = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), per_second);
    let table = Table::new(
        "from the second sample on",
        &rates,
        |_| "",
        &[
            (left(""), &|(role, _)| (*role).to_owned()),
            (right("dma GB/s"), &|(_, rates)| {
                rates.dma_gb_per_s.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.3}"))
            }),
            (right("in/s"), &|(_, rates)| count(rates.packets_in_per_s)),
            (right("out/s"), &|(_, rates)| count(rates.packets_out_per_s)),
            (right("acks/s"), &|(_, rates)| count(rates.acks_per_s)),
            (right("irqs/s"), &|(_, rates)| count(rates.interrupts_per_s)),
            (right("descr/s"), &|(_, rates)| count(rates.descriptors_per_s)),
            (right("reads/s"), &|(_, rates)| count(rates.mmio_reads_per_s)),
        ],
    );
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
