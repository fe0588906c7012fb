//! Output on standard output: a text report or exactly one JSON document.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use std::fmt::Write as _;

use crate::error::CliError;
use crate::settings::Settings;
use crate::stop;
use crate::style;

/// Version of the JSON documents. It rises when a key changes its meaning or is removed, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;
/// Mark at the end of a line that was cut off.
const TRUNCATION_MARK: &str = "..";
/// Columns between the columns of a table.
const GAP: usize = 2;
/// Indentation of a part of a line that stands below the first one.
const INDENT: usize = 4;
/// Minimum width of a table's last column whose cells continue on the next line: narrower ones are no easier to read.
const FOLDED: usize = 20;
/// Bytes written at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Report of a command.
pub trait Report: Serialize {
    /// Returns the report for people, with a line feed at the end.
    fn text(&self) -> String;

    /// Writes the report for people. Long reports are written in chunks, so that only one chunk is in memory.
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.text().as_bytes())
    }
}

#[derive(Serialize)]
struct Document<'a, T: Serialize> {
    schema_version: u32,
    #[serde(flatten)]
    content: &'a T,
}

#[derive(Serialize)]
struct Failed {
    error: Problem,
}

/// Failure in a JSON document.
#[derive(Debug, Serialize)]
pub struct Problem {
    /// `usage`, `operation` or `closed`: the reader of the data has closed the pipe.
    kind: &'static str,
    /// The failure, its object and its value.
    message: String,
    /// Advice in terms of the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

impl From<&CliError> for Problem {
    fn from(error: &CliError) -> Self {
        let kind = match error.exit_status() {
            0 => "closed",
            2 => "usage",
            _ => "operation",
        };
        Self { kind, message: error.to_string(), help: error.help().map(str::to_owned) }
    }
}

/// Writes a report to `out`, as JSON or as text.
pub fn print(report: &impl Report, json: bool, out: &mut dyn Write) -> Result<(), CliError> {
    stop::finish();
    if json {
        return document(report, out);
    }
    buffered(out, |out| report.write(out))
}

/// Writes a report whose lines begin with a status word, coloured by status if there are colours.
pub fn print_statuses(
    report: &impl Report,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    stop::finish();
    if settings.json {
        return document(report, out);
    }
    write_all(settings.style.paint_status(&report.text()).as_bytes(), out)
}

/// Writes one of several reports to `out`: as one line of JSON, or as text.
pub fn print_line(report: &impl Report, json: bool, out: &mut dyn Write) -> Result<(), CliError> {
    if !json {
        return write_all(report.text().as_bytes(), out);
    }
    line(report, out)
}

/// Writes bytes to `out`. A closed reader (`| head`) is not a failure.
pub fn write_all(bytes: &[u8], out: &mut dyn Write) -> Result<(), CliError> {
    write_while_read(bytes, out).map(drop)
}

/// Writes bytes to `out`. Returns `false` if the reader has closed the output, so that the caller can stop writing.
pub fn write_while_read(bytes: &[u8], out: &mut dyn Write) -> Result<bool, CliError> {
    stop::finish();
    while_read(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Writes in chunks. A closed reader is not a failure.
fn buffered(
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), CliError> {
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, out);
    let written = write(&mut out).and_then(|()| out.flush());
    // After a failure, the unwritten rest is dropped.
    drop(out.into_parts());
    while_read(written).map(drop)
}

fn failed(error: io::Error) -> CliError {
    CliError::failed(format!("standard output: {error}"))
}

fn while_read(written: io::Result<()>) -> Result<bool, CliError> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(failed(error)),
        Ok(()) => Ok(true),
    }
}

/// Writes the JSON document of a failure to `out`.
pub fn print_failure(error: &CliError, out: &mut dyn Write) -> Result<(), CliError> {
    document(&Failed { error: Problem::from(error) }, out)
}

/// Writes the JSON document of `content` to `out`.
pub fn document(content: &impl Serialize, out: &mut dyn Write) -> Result<(), CliError> {
    let document = Document { schema_version: SCHEMA_VERSION, content };
    buffered(out, |out| {
        serde_json::to_writer_pretty(&mut *out, &document)?;
        out.write_all(b"\n")
    })
}

/// Returns a JSON document in one line, with its line feed.
pub fn line_of(content: &impl Serialize) -> Result<Vec<u8>, CliError> {
    let document = Document { schema_version: SCHEMA_VERSION, content };
    let mut text = serde_json::to_vec(&document).map_err(|error| failed(error.into()))?;
    text.push(b'\n');
    Ok(text)
}

/// Writes a JSON document in one line.
pub fn line(content: &impl Serialize, out: &mut dyn Write) -> Result<(), CliError> {
    write_all(&line_of(content)?, out)
}

/// Table as [`table`] makes it, for numbers of rows that should not be in memory: there are two passes over the rows, one to measure the
/// columns, and one to write.
#[derive(Debug)]
pub struct LongTable<const N: usize> {
    header: [&'static str; N],
    widths: [usize; N],
    /// Maximum line width.
    limit: Option<usize>,
    /// Whether text that does not fit continues on the next line instead of being cut off.
    is_folded: bool,
}

impl<const N: usize> LongTable<N> {
    /// Creates a table with these columns.
    #[must_use]
    pub fn new(header: [&'static str; N]) -> Self {
        Self { header, widths: header.map(|text| text.chars().count()), limit: None, is_folded: false }
    }

    /// Cuts off the last column at the terminal's width: for a dispensable column.
    #[must_use]
    pub const fn within(mut self, columns: Option<usize>) -> Self {
        self.limit = columns;
        self
    }

    /// Continues the cells of the last column on the next line: for a column that has to be complete.
    #[must_use]
    pub const fn folded(mut self, columns: Option<usize>) -> Self {
        self.limit = columns;
        self.is_folded = true;
        self
    }

    /// Measures a row that will be written.
    pub fn measure(&mut self, row: [&str; N]) {
        for (width, text) in self.widths.iter_mut().zip(row) {
            *width = text.chars().count().max(*width);
        }
    }

    /// Writes the header.
    pub fn begin(&self, out: &mut dyn Write) -> io::Result<()> {
        self.row(self.header, out)
    }

    /// Writes a row.
    pub fn row(&self, row: [&str; N], out: &mut dyn Write) -> io::Result<()> {
        let mut line = String::new();
        for (width, text) in self.widths.iter().zip(row) {
            let _ = write!(line, "{text:width$}  ");
        }
        let before: usize = self.widths.iter().take(N.saturating_sub(1)).map(|width| width + GAP).sum();
        let least = if self.is_folded { FOLDED } else { TRUNCATION_MARK.len() + 1 };
        // If the other columns alone are too wide, the limit does not help.
        let limit = self.limit.filter(|limit| *limit >= before + least).unwrap_or(usize::MAX);
        let line = line.trim_end();
        match line.char_indices().nth(limit) {
            None => writeln!(out, "{line}"),
            Some(_) if self.is_folded => {
                let start: String = line.chars().take(before).collect();
                let parts = folded(row.last().copied().unwrap_or_default(), limit - before);
                parts.iter().enumerate().try_for_each(|(number, part)| {
                    writeln!(out, "{:before$}{part}", if number == 0 { start.as_str() } else { "" })
                })
            }
            Some(_) => {
                let kept: String = line.chars().take(limit - TRUNCATION_MARK.len()).collect();
                writeln!(out, "{}{TRUNCATION_MARK}", kept.trim_end())
            }
        }
    }
}

/// Creates a table without lines, so that other programs can split it; `right` names the numeric columns.
#[must_use]
pub fn table(header: &[&str], right: &[usize]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table
        .load_style(comfy_table::presets::NOTHING)
        .set_content_arrangement(comfy_table::ContentArrangement::Disabled);
    if !header.is_empty() {
        table.set_header(header.iter().copied());
    }
    for column in right {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    table
}

/// Column of a table of `T`s: its heading, after `>` if it is right-aligned, and its cells.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

/// Returns a table as text, with a line for each of `rows`.
pub fn listing<'a, T: 'a>(rows: impl IntoIterator<Item = &'a T>, columns: &[Column<'_, T>]) -> String {
    let heads: Vec<&str> = columns.iter().map(|(head, _)| head.trim_start_matches('>')).collect();
    let is_right = |(at, (head, _)): (usize, &Column<'_, T>)| head.starts_with('>').then_some(at);
    let right: Vec<usize> = columns.iter().enumerate().filter_map(is_right).collect();
    let mut table = table(&heads, &right);
    for row in rows {
        table.add_row(columns.iter().map(|(_, cell)| cell(row)));
    }
    render(&table)
}

/// Returns a table as text: without spaces around lines except for alignment, with a line feed at the end. On a terminal that is too
/// narrow, cells of the last column continue on the next line. If there is no space for that either, the remaining columns continue on the
/// next line.
#[must_use]
pub fn render(table: &comfy_table::Table) -> String {
    rendered(table, style::columns())
}

fn rendered(table: &comfy_table::Table, columns: Option<usize>) -> String {
    let mut table = table.clone();
    let widths: Vec<usize> = table.column_max_content_widths().into_iter().map(usize::from).collect();
    let before: usize = widths.iter().rev().skip(1).map(|width| width + GAP).sum();
    let room = columns.and_then(|columns| columns.checked_sub(before)).filter(|room| *room >= FOLDED);
    if let Some(room) = room
        && let Ok(width) = u16::try_from(before + room + GAP)
    {
        table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic).set_width(width);
        for column in table.column_iter_mut().take(widths.len().saturating_sub(1)) {
            column.set_constraint(comfy_table::ColumnConstraint::ContentWidth);
        }
    }
    let parts = match columns {
        Some(columns) if room.is_none() => parts(&widths, columns),
        _ => vec![0],
    };
    let mut text = String::new();
    for line in table.lines() {
        // Padding of the first column.
        let line = line.strip_prefix(' ').unwrap_or(&line);
        for (number, start) in parts.iter().enumerate() {
            let length = parts.get(number + 1).map_or(usize::MAX, |end| end - start);
            let part: String = line.chars().skip(*start).take(length).collect();
            let indent = if number == 0 { 0 } else { INDENT };
            if number == 0 || !part.trim().is_empty() {
                text += &format!("{:indent$}{}\n", "", part.trim_end());
            }
        }
    }
    text
}

/// Positions at which lines of columns with these widths are broken, so that no line is longer than the terminal if possible.
fn parts(widths: &[usize], columns: usize) -> Vec<usize> {
    let mut parts = vec![0];
    let (mut start, mut from, mut indent) = (0, 0, 0);
    for width in widths {
        if start > from && indent + start - from + width > columns {
            parts.push(start);
            (from, indent) = (start, INDENT);
        }
        start += width + GAP;
    }
    parts
}

/// Folds `text` into lines of at most `width`, as far as its words permit.
#[must_use]
pub fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Lines of names and values.
#[must_use]
pub fn pairs(rows: &[(&str, String)]) -> String {
    let mut table = table(&[], &[]);
    for (name, value) in rows {
        table.add_row([*name, value.as_str()]);
    }
    render(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(limit: Option<usize>) -> String {
        let rows = [["a", "what there is to say of it"], ["name", "nothing \u{e9}\u{e9}\u{e9}"]];
        let mut table = LongTable::new(["NAME", "MEANING"]).within(limit);
        rows.iter().for_each(|row| table.measure(*row));
        let mut out = Vec::new();
        table.begin(&mut out).unwrap();
        rows.iter().for_each(|row| table.row(*row, &mut out).unwrap());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn table_last_column_folds() {
        let mut plain = table(&["NAME", "N", "MEANING"], &[1]);
        let mut long = LongTable::new(["NAME", "N", "MEANING"]).folded(Some(32));
        let rows = [["a", "12", "what there is to say of it, and more"], ["name", " 5", "little"]];
        rows.iter().for_each(|row| long.measure(*row));
        let mut out = Vec::new();
        long.begin(&mut out).unwrap();
        for row in rows {
            long.row(row, &mut out).unwrap();
            plain.add_row(row.map(str::trim));
        }
        let folded = "NAME   N  MEANING\na     12  what there is to say\n          of it, and more\nname   5  little\n";
        assert_eq!(rendered(&plain, Some(32)), folded);
        assert_eq!(String::from_utf8(out).unwrap(), folded.replace("NAME   N", "NAME  N "));
        let whole = "NAME   N  MEANING\na     12  what there is to say of it, and more\nname   5  little\n";
        // Without a terminal, on one that is wide enough, and on ones that would break the text at every word.
        for columns in [None, Some(46), Some(200)] {
            assert_eq!(rendered(&plain, columns), whole, "{columns:?}");
        }
        let broken = "NAME   N\n    MEANING\na     12\n    what there is to say of it, and more\nname   5\n    little\n";
        for columns in [29, 8] {
            assert_eq!(rendered(&plain, Some(columns)), broken, "{columns}");
        }
        assert_eq!(rendered(&plain, Some(0)).lines().count(), 9);
        for columns in 30..46 {
            let text = rendered(&plain, Some(columns));
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}: {text}");
        }
    }

    #[test]
    fn table_last_column_is_truncated_at_terminal() {
        let whole = "NAME  MEANING\na     what there is to say of it\nname  nothing \u{e9}\u{e9}\u{e9}\n";
        // Without a terminal, on one that is wide enough, and on one that is too narrow for the other columns.
        for limit in [None, Some(32), Some(200), Some(8), Some(0)] {
            assert_eq!(lines(limit), whole, "{limit:?}");
        }
        assert_eq!(lines(Some(16)), "NAME  MEANING\na     what the..\nname  nothing..\n");
        for limit in 9..40 {
            assert!(lines(Some(limit)).lines().all(|line| line.chars().count() <= limit), "{limit}");
        }
    }
}
