//! What goes to standard output: a text report or exactly one JSON document.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use std::fmt::Write as _;

use crate::error::CliError;
use crate::settings::Settings;

/// Version of the JSON documents; it rises when a key changes its meaning or goes away, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;
/// Bytes that are written at a time.
const PIECE: usize = 64 << 10;

/// Something that a command reports.
pub trait Report: Serialize {
    /// The report for people, with a line feed at the end.
    fn text(&self) -> String;

    /// Writes that report; long ones piece by piece, so that no more than a piece of them is in memory.
    ///
    /// # Errors
    /// What the system says.
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
struct Failed<'a> {
    error: Problem<'a>,
}

#[derive(Serialize)]
struct Problem<'a> {
    /// `usage` or `operation`.
    kind: &'static str,
    message: &'a str,
}

/// Writes a report to `out`, as JSON or as text.
///
/// # Errors
/// [`CliError::Output`].
pub fn print(report: &impl Report, json: bool, out: &mut dyn Write) -> Result<(), CliError> {
    if json {
        return document(report, out);
    }
    buffered(out, |out| report.write(out))
}

/// Writes a report whose lines begin with how something ended, in the colours of that where there are colours.
///
/// # Errors
/// [`CliError::Output`].
pub fn print_statuses(
    report: &impl Report,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    if settings.json {
        return document(report, out);
    }
    write_all(settings.manner.paint_status(&report.text()).as_bytes(), out)
}

/// Writes one of several reports to `out`: as one line of JSON, or as text.
///
/// # Errors
/// [`CliError::Output`].
pub fn print_line(report: &impl Report, json: bool, out: &mut dyn Write) -> Result<(), CliError> {
    if !json {
        return write_all(report.text().as_bytes(), out);
    }
    line(report, out)
}

/// Writes bytes to `out`. That nobody reads any more (`| head`) is no failure.
///
/// # Errors
/// [`CliError::Output`].
pub fn write_all(bytes: &[u8], out: &mut dyn Write) -> Result<(), CliError> {
    write_while_read(bytes, out).map(drop)
}

/// Writes bytes to `out`; `false` if nobody reads them any more, so that whoever goes on writing can end.
///
/// # Errors
/// [`CliError::Output`].
pub fn write_while_read(bytes: &[u8], out: &mut dyn Write) -> Result<bool, CliError> {
    while_read(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Writes in pieces. That nobody reads any more is no failure.
fn buffered(
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), CliError> {
    let mut out = BufWriter::with_capacity(PIECE, out);
    let written = write(&mut out).and_then(|()| out.flush());
    // What is left after a failure is not tried again.
    drop(out.into_parts());
    while_read(written).map(drop)
}

fn while_read(written: io::Result<()>) -> Result<bool, CliError> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CliError::Output(error)),
        Ok(()) => Ok(true),
    }
}

/// Writes the JSON document of a failure to `out`.
///
/// # Errors
/// [`CliError::Output`].
pub fn print_failure(status: u8, message: &str, out: &mut dyn Write) -> Result<(), CliError> {
    let kind = if status == 2 { "usage" } else { "operation" };
    document(&Failed { error: Problem { kind, message } }, out)
}

/// Writes the JSON document of `content` to `out`.
///
/// # Errors
/// [`CliError::Output`].
pub fn document(content: &impl Serialize, out: &mut dyn Write) -> Result<(), CliError> {
    let document = Document { schema_version: SCHEMA_VERSION, content };
    buffered(out, |out| {
        serde_json::to_writer_pretty(&mut *out, &document)?;
        out.write_all(b"\n")
    })
}

/// A JSON document in one line, with its line feed.
///
/// # Errors
/// [`CliError::Output`].
pub fn line_of(content: &impl Serialize) -> Result<Vec<u8>, CliError> {
    let document = Document { schema_version: SCHEMA_VERSION, content };
    let mut text = serde_json::to_vec(&document).map_err(|error| CliError::Output(error.into()))?;
    text.push(b'\n');
    Ok(text)
}

/// Writes a JSON document in one line.
///
/// # Errors
/// [`CliError::Output`].
pub fn line(content: &impl Serialize, out: &mut dyn Write) -> Result<(), CliError> {
    write_all(&line_of(content)?, out)
}

/// A table as [`table`] makes it, for so many rows that they are not to be in memory: they are gone through twice, once to see how wide
/// the columns are, and once to be written.
#[derive(Debug)]
pub struct LongTable<const N: usize> {
    header: [&'static str; N],
    widths: [usize; N],
    /// Where lines are cut off.
    limit: Option<usize>,
}

impl<const N: usize> LongTable<N> {
    /// A table with these columns.
    #[must_use]
    pub fn new(header: [&'static str; N]) -> Self {
        Self { header, widths: header.map(|text| text.chars().count()), limit: None }
    }

    /// The same, with its last column cut off where the terminal ends: a column that can be done without.
    #[must_use]
    pub const fn within(mut self, columns: Option<usize>) -> Self {
        self.limit = columns;
        self
    }

    /// A row that will be written.
    pub fn measure(&mut self, row: [&str; N]) {
        for (width, text) in self.widths.iter_mut().zip(row) {
            *width = text.chars().count().max(*width);
        }
    }

    /// Writes the header.
    ///
    /// # Errors
    /// What the system says.
    pub fn begin(&self, out: &mut dyn Write) -> io::Result<()> {
        self.row(self.header, out)
    }

    /// Writes a row.
    ///
    /// # Errors
    /// What the system says.
    pub fn row(&self, row: [&str; N], out: &mut dyn Write) -> io::Result<()> {
        let mut line = String::new();
        for (width, text) in self.widths.iter().zip(row) {
            let _ = write!(line, "{text:width$}  ");
        }
        let before: usize = self.widths.iter().take(N.saturating_sub(1)).map(|width| width + 2).sum();
        // Where the other columns alone are too wide there is nothing to be saved.
        let limit = self.limit.filter(|limit| *limit > before).unwrap_or(usize::MAX);
        let cut =
            line.char_indices().nth(limit).map_or(line.as_str(), |(end, _)| line.get(..end).unwrap_or(&line));
        writeln!(out, "{}", cut.trim_end())
    }
}

/// A table without lines, so that it can be cut apart by other programs; `right` names the columns of numbers.
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

/// A table as text: no spaces around lines but what alignment needs, a line feed at the end.
#[must_use]
pub fn render(table: &comfy_table::Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        // The first column's padding.
        text.push_str(line.strip_prefix(' ').unwrap_or(&line).trim_end());
        text.push('\n');
    }
    text
}

/// Lines of a name and a value.
#[must_use]
pub fn pairs(rows: &[(&str, String)]) -> String {
    let mut table = table(&[], &[]);
    for (name, value) in rows {
        table.add_row([*name, value.as_str()]);
    }
    render(&table)
}
