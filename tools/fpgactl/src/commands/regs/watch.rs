//! `regs watch`: reads registers repeatedly.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use fpga_registers::quantity;
use serde::Serialize;

use super::readable;
use crate::all_ones;
use crate::cli::WatchArgs;
use crate::error::CliError;
use crate::guard::{self, BarSpan};
use crate::output;
use crate::registers::{FieldValue, Named};
use crate::settings::Settings;
use crate::stop;
use crate::style::{self, OutputStyle};
use crate::target::{self, Opened};

/// Maximum time between two checks for the end of the command.
const TIMEOUT: Duration = Duration::from_millis(50);

/// Result of sampling one register or field.
#[derive(Debug, Serialize)]
struct Change {
    /// Seconds of the card's clock since the first sample.
    seconds: f64,
    name: String,
    value: u32,
    hex: String,
    meaning: Option<String>,
    fields: Vec<FieldValue>,
    /// Previous value; `None` in the first sample.
    previous: Option<u32>,
    /// Fields that have changed.
    changed: Vec<String>,
    #[serde(skip)]
    decoded: String,
}

impl Change {
    fn new(named: &Named<'_>, seconds: f64, word: u32, before: Option<u32>) -> Self {
        let (value, meaning) = named.value(word);
        let whole = named.field.is_none();
        let fields = if whole { named.register.fields(word) } else { Vec::new() };
        let old = before.filter(|_| whole).map(|word| named.register.fields(word)).unwrap_or_default();
        let is_old = |field: &&FieldValue| !old.is_empty() && !old.contains(field);
        let changed = fields.iter().filter(is_old).map(|field| field.name.clone()).collect();
        let decoded = if whole { named.register.decoded(word) } else { meaning.clone().unwrap_or_default() };
        let hex = if whole { format!("{value:#010x}") } else { format!("{value:#x}") };
        let previous = before.map(|word| named.value(word).0);
        Self { seconds, name: named.name(), value, hex, meaning, fields, previous, changed, decoded }
    }

    fn line(&self) -> String {
        let text = format!("{:>12.6}  {} = {}  {}", self.seconds, self.name, self.hex, self.decoded);
        text.trim_end().to_owned() + "\n"
    }
}

/// Runs the command.
pub fn watch(settings: &Settings, args: &WatchArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let opened = target::observe(&settings.card)?;
    let all = opened.registers();
    let mut watched = Vec::new();
    for name in &args.names {
        let named = readable(&opened, &all, name, args.force)?;
        if !args.force
            && let Some(harm) = guard::read_hazard(&opened.card, &all, BarSpan::of(named.register))
        {
            return Err(CliError::hazard(opened.card.name(), format_args!("reading {name}"), &harm));
        }
        watched.push(named);
    }
    let screen = if settings.json { None } else { Screen::of_stdout(watched.len(), settings.style) };
    let begun = opened.now();
    let mut words: Vec<Option<u32>> = vec![None; watched.len()];
    let mut samples = 0;
    loop {
        let seconds = Duration::from_nanos(opened.now().saturating_sub(begun)).as_secs_f64();
        let mut changes = Vec::new();
        for (named, word) in watched.iter().zip(&mut words) {
            let now = named.register.read(&opened.card)?;
            let mask = named.bits().mask();
            let is_new = word.is_none_or(|before| (before ^ now) & mask != 0);
            changes.push((is_new, Change::new(named, seconds, now, *word)));
            *word = Some(now);
        }
        if changes.iter().any(|(is_new, _)| *is_new) {
            let read = watched.iter().zip(&words).filter_map(|(named, word)| Some((named, (*word)?)));
            all_ones::check(&opened.card, read.map(|(named, word)| named.register.read_word(word)))?;
        }
        samples += 1;
        let text = match &screen {
            Some(screen) => screen.draw(&changes, samples == 1).into_bytes(),
            None => {
                lines(settings.json, changes.iter().filter(|(is_new, _)| *is_new).map(|(_, change)| change))?
            }
        };
        // The reader of the output is gone: a normal end.
        if !output::write_while_read(&text, out)? || args.count.is_some_and(|count| samples >= count) {
            return Ok(());
        }
        settings.deadline.check_time(|| format!("watching, after {}", quantity(samples, "sample")))?;
        if !back_off(&opened, settings, args.interval) {
            return Ok(());
        }
    }
}

fn lines<'a>(json: bool, changes: impl Iterator<Item = &'a Change>) -> Result<Vec<u8>, CliError> {
    let mut text = Vec::new();
    for change in changes {
        if json {
            text.extend(output::line_of(change)?);
        } else {
            text.extend(change.line().into_bytes());
        }
    }
    Ok(text)
}

/// Waits; returns `false` if the command has to end.
fn back_off(opened: &Opened, settings: &Settings, span: Duration) -> bool {
    let mut left = settings.deadline.left().map_or(span, |limit| span.min(limit));
    loop {
        if stop::is_asked() {
            return false;
        }
        if left.is_zero() {
            return true;
        }
        let part = left.min(TIMEOUT);
        // A card in this process has its own virtual time, which needs no real time.
        opened.backend.pause(part);
        if opened.simulated {
            std::thread::sleep(part);
        }
        left -= part;
    }
}

/// Terminal whose lines are updated in place.
struct Screen {
    columns: usize,
    /// Whether bold is shown.
    bold: bool,
}

impl Screen {
    /// Returns `None` if standard output has no movable cursor, or has too few lines for `lines`.
    fn of_stdout(lines: usize, manner: OutputStyle) -> Option<Self> {
        let stdout = io::stdout();
        if !style::redraws(&stdout) {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(&stdout).ok();
        let (columns, rows) = size.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()));
        // Terminals that do not know their size report zero.
        let (columns, rows) = if columns == 0 || rows == 0 { (80, 24) } else { (columns, rows) };
        (lines < rows).then_some(Self { columns, bold: manner.colours })
    }

    fn draw(&self, changes: &[(bool, Change)], first: bool) -> String {
        let mut text = String::new();
        if !first {
            // Moves up to the first line.
            let _ = write!(text, "\x1b[{}A", changes.len());
        }
        let width = changes.iter().map(|(_, change)| change.name.len()).max().unwrap_or(0);
        for (is_new, change) in changes {
            let is_new = *is_new && !first;
            let mark = if is_new { '*' } else { ' ' };
            // Values first: a narrow terminal cuts off field names.
            let mut line = TerminalLine { text: &mut text, left: self.columns };
            line.push(&format!("{mark} {:width$} = ", change.name), false);
            line.push(&change.hex, is_new && self.bold);
            line.push("  ", false);
            let plain = change.changed.is_empty();
            for (number, word) in change.decoded.split(' ').enumerate() {
                let name = word.split(['=', '(']).next().unwrap_or_default();
                let is_changed = is_new && (plain || change.changed.iter().any(|field| field == name));
                line.push(if number == 0 { "" } else { " " }, false);
                line.push(word, is_changed && self.bold);
            }
            text.push_str("\x1b[K\n");
        }
        text
    }
}

/// Line that ends at the terminal's width.
struct TerminalLine<'a> {
    text: &'a mut String,
    left: usize,
}

impl TerminalLine<'_> {
    fn push(&mut self, part: &str, bold: bool) {
        let kept: String = part.chars().take(self.left).collect();
        self.left -= kept.chars().count();
        if bold && !kept.is_empty() {
            let _ = write!(self.text, "\x1b[1m{kept}\x1b[0m");
        } else {
            self.text.push_str(&kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers;
    use crate::target::Target;

    fn changes(words: &[u32]) -> Vec<Vec<(bool, Change)>> {
        let opened = target::observe(&Target::default()).unwrap();
        let all = opened.registers();
        let names = ["ni.control", "ni.control.enable", "ni.threshold"];
        let named: Vec<_> = names.iter().map(|name| registers::find("mock", &all, name).unwrap()).collect();
        let mut before: Option<u32> = None;
        words
            .iter()
            .map(|word| {
                let of = |named| {
                    (before.is_none_or(|before| before != *word), Change::new(named, 0.0, *word, before))
                };
                let sample = named.iter().map(of).collect();
                before = Some(*word);
                sample
            })
            .collect()
    }

    #[test]
    fn watch_changes_are_marked() {
        let samples = changes(&[0, 3, 3]);
        let screen = Screen { columns: 80, bold: true };
        let first = screen.draw(&samples[0], true);
        assert!(
            !first.contains("\x1b[1m") && !first.contains("\x1b[3A") && !first.contains('*'),
            "{first:?}"
        );
        let second = screen.draw(&samples[1], false);
        let lines: Vec<&str> = second.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("\x1b[3A* ni.control        = \x1b[1m0x00000003\x1b[0m"), "{second:?}");
        assert!(lines[0].contains("\x1b[1menable\x1b[0m"), "{second:?}");
        assert!(lines[1].starts_with("* ni.control.enable = \x1b[1m0x1\x1b[0m"), "{second:?}");
        let third = screen.draw(&samples[2], false);
        assert!(!third.contains("\x1b[1m") && !third.contains('*'), "{third:?}");
        // Without bold the mark shows the change.
        let plain = Screen { columns: 80, bold: false }.draw(&samples[1], false);
        assert!(plain.contains('*') && !plain.contains("\x1b[1m"), "{plain:?}");
    }

    #[test]
    fn watch_lines_fit_terminal() {
        let samples = changes(&[0, u32::MAX]);
        for columns in 1..90 {
            for bold in [false, true] {
                let text = Screen { columns, bold }.draw(&samples[1], false);
                for line in text.lines() {
                    let mut shown = line.to_owned();
                    for code in ["\x1b[3A", "\x1b[K", "\x1b[1m", "\x1b[0m"] {
                        shown = shown.replace(code, "");
                    }
                    assert!(shown.chars().count() <= columns, "{columns}: {shown:?}");
                }
            }
        }
    }
}
