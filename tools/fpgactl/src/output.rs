//! What goes to standard output: a text report or exactly one JSON document.

use std::io::{self, Write};

use serde::Serialize;

use crate::error::CliError;
use crate::settings::Settings;

/// Version of the JSON documents; it rises when a key changes its meaning or goes away, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// Something that a command reports.
pub trait Report: Serialize {
    /// The report for people, with a line feed at the end.
    fn text(&self) -> String;
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
    write_all(report.text().as_bytes(), out)
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
    match out.write_all(bytes).and_then(|()| out.flush()) {
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
    let mut text = serde_json::to_vec_pretty(&document).map_err(|error| CliError::Output(error.into()))?;
    text.push(b'\n');
    write_all(&text, out)
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
