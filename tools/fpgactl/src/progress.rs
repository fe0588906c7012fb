//! Progress display on a terminal, and the time limit of `--timeout`.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::Write as _;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fpga_driver::WaitOptions;
use fpga_pci::lock;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::CliError;
use crate::signal_state;
use crate::style;
use crate::units;

/// Time between two updates of a line: it also moves without progress.
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// Assumed width of a terminal that does not report it.
const COLUMNS: usize = 80;
/// Minimum and maximum width of the bar.
const BAR_COLUMNS: core::ops::RangeInclusive<usize> = 8..=40;
/// Characters of the spinner at the beginning of a line.
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];

/// Unit of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Bytes: shown with their rate.
    Bytes,
    /// Other items: shown with the remaining time.
    Counted(&'static str),
}

/// Progress line on standard error; empty if standard error is not a terminal. It is never wider than the terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    phase: Arc<Mutex<String>>,
    /// Whether the line is on a terminal.
    is_shown: bool,
    /// Percentage shown last: the phase text is rebuilt only when it changes.
    shown: Cell<u64>,
}

impl Progress {
    /// Progress over `total` bytes, if known; `wanted`: if standard error is a terminal with a movable cursor.
    #[must_use]
    pub fn new(total: impl Into<Option<u64>>, wanted: bool) -> Self {
        Self::of(total.into(), Unit::Bytes, wanted)
    }

    /// Progress over `total` items.
    #[must_use]
    pub fn counting(total: u64, what: &'static str, wanted: bool) -> Self {
        Self::of(Some(total), Unit::Counted(what), wanted)
    }

    /// Progress over an unknown number of items.
    #[must_use]
    pub fn open_ended(what: &'static str, wanted: bool) -> Self {
        Self::of(None, Unit::Counted(what), wanted)
    }

    fn of(total: Option<u64>, unit: Unit, wanted: bool) -> Self {
        let seen = wanted && style::redraws(&std::io::stderr());
        let target = if seen { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target);
        let phase = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&phase);
        let line = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let width = style::columns_of(&std::io::stderr()).unwrap_or(COLUMNS);
            let phase = lock(&shown);
            let done = Done { count: state.pos(), total, elapsed: state.elapsed(), left: state.eta() };
            let _ = out.write_str(&line(&phase, unit, &done, width));
        };
        // The template is a constant: if it were invalid, the bar would keep its default style.
        if let Ok(style) = ProgressStyle::with_template("{line}") {
            bar.set_style(style.with_key("line", line));
        }
        if seen {
            // Drawn at once, then periodically.
            bar.tick();
            bar.enable_steady_tick(TICK_INTERVAL);
        }
        Self { bar, phase, is_shown: seen, shown: Cell::new(u64::MAX) }
    }

    /// Returns whether the line is on a terminal.
    #[must_use]
    pub const fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Sets the number of completed items.
    pub fn at(&self, count: u64) {
        if self.is_shown {
            self.bar.set_position(count);
        }
    }

    /// Counts one more completed item.
    pub fn advance(&self) {
        self.bar.inc(1);
    }

    /// Shows the progress of the current step as a percentage after its name.
    pub fn step(&self, name: impl FnOnce() -> String, done: u64, total: u64) {
        if !self.is_shown {
            return;
        }
        let percent = done.saturating_mul(100).checked_div(total).unwrap_or(100).min(100);
        if self.shown.replace(percent) != percent {
            self.phase(format!("{} {percent} %", name()));
        }
    }

    /// Sets the name of the current phase.
    pub fn phase(&self, text: impl Into<Cow<'static, str>>) {
        *lock(&self.phase) = text.into().into_owned();
        self.bar.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Amount of progress.
#[derive(Debug, Clone, Copy)]
struct Done {
    count: u64,
    total: Option<u64>,
    elapsed: Duration,
    left: Duration,
}

impl Done {
    fn share(&self, of: usize) -> usize {
        let total = u128::from(self.total.unwrap_or(0)).max(1);
        let part = u128::from(self.count) * of as u128 / total;
        usize::try_from(part).unwrap_or(of).min(of)
    }
}

/// Line of at most `width` characters: spinner, current phase, a bar if there is space for one, and the amount done.
fn line(phase: &str, unit: Unit, done: &Done, width: usize) -> String {
    let tick = usize::try_from(done.elapsed.as_millis() / TICK_INTERVAL.as_millis()).unwrap_or(0);
    let turning = SPINNER.get(tick % SPINNER.len()).copied().unwrap_or('|');
    let mut text = turning.to_string();
    if !phase.is_empty() {
        let _ = write!(text, " {phase}");
    }
    let elapsed = done.elapsed.as_secs();
    let amount = match (unit, done.total) {
        (Unit::Bytes, Some(total)) => {
            format!("{}/{}", units::binary_size(done.count), units::binary_size(total))
        }
        (Unit::Bytes, None) => units::binary_size(done.count),
        (Unit::Counted(what), Some(total)) => format!("{}/{total} {what}", done.count),
        (Unit::Counted(what), None) => format!("{} {what}", done.count),
    };
    let extra = match unit {
        Unit::Bytes => units::rate(done.count, done.elapsed),
        Unit::Counted(_) if done.count > 0 && done.total.is_some() => {
            format!("{elapsed} s, {} s left", done.left.as_secs())
        }
        Unit::Counted(_) => format!("{elapsed} s"),
    };
    let percent = done.total.map(|_| format!("{} %", done.share(100)));
    let long = format!(" {amount} {extra}");
    let short = format!(" {amount}");
    let (space, length) = (width.saturating_sub(count(&text)), count(&long));
    if space >= length {
        let bar = space - length;
        // A space and two brackets.
        if done.total.is_some() && bar >= BAR_COLUMNS.start() + 3 {
            let bar = (bar - 3).min(*BAR_COLUMNS.end());
            let full = done.share(bar);
            let head = if full < bar { ">" } else { "" };
            let _ = write!(text, " [{}{head}{}]", "=".repeat(full), " ".repeat(bar - full - head.len()));
        }
        return text + &long;
    }
    // The amount is more important than the words before it.
    let end = [short, percent.map(|percent| format!(" {percent}")).unwrap_or_default()];
    let end = end.into_iter().find(|end| count(end) < width).unwrap_or_default();
    let kept = width - count(&end).min(width);
    text.chars().take(kept).collect::<String>() + &end
}

fn count(text: &str) -> usize {
    text.chars().count()
}

/// Deadline of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    end: Option<(Instant, Duration)>,
}

impl Deadline {
    /// No deadline.
    pub const NONE: Self = Self { end: None };

    /// Deadline `limit` from now; `None`: none.
    #[must_use]
    pub fn after(limit: Option<Duration>) -> Self {
        // A limit beyond the clock's range counts as no limit.
        Self { end: limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit))) }
    }

    /// Wait options for one chunk of a long transfer: until a signal, and until the deadline or for the driver's default.
    #[must_use]
    pub fn wait(&self) -> WaitOptions {
        let mut options = WaitOptions::default();
        options.cancel = signal_state::cancellation();
        match self.left() {
            Some(left) => options.timeout(left).total(left),
            None => options,
        }
    }

    /// Total time limit.
    #[must_use]
    pub fn limit(&self) -> Option<Duration> {
        self.end.map(|(_, limit)| limit)
    }

    /// Limit of a wait whose limit is `default` unless the command line states one.
    #[must_use]
    pub fn limit_or(&self, default: Duration) -> Duration {
        self.limit().unwrap_or(default)
    }

    /// Remaining time, for a limit of the driver.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.end.map(|(end, _)| end.saturating_duration_since(Instant::now()))
    }

    /// Fails if the time is over, or a signal has requested the end.
    pub fn check(&self, what: impl FnOnce() -> String) -> Result<(), CliError> {
        if signal_state::is_asked() {
            return Err(CliError::stopped(what(), None));
        }
        self.check_time(what)
    }

    /// Waits until `file` is ready for `events`.
    ///
    /// # Errors
    /// As [`check`](Self::check), in an [`io::Error`]; errors of the system.
    pub fn wait_for(&self, file: impl AsFd, events: PollFlags, what: impl Fn() -> String) -> io::Result<()> {
        loop {
            self.check(&what).map_err(io::Error::other)?;
            let left = self.left().and_then(|left| Timespec::try_from(left).ok());
            let mut waiting = vec![PollFd::new(&file, events)];
            waiting.extend(signal_state::signalled().map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)));
            match poll(&mut waiting, left.as_ref()) {
                Ok(_) if waiting.first().is_some_and(|file| !file.revents().is_empty()) => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sleeps for `span`, or until a signal arrives or the time is over.
    ///
    /// # Errors
    /// As [`check`](Self::check), in an [`io::Error`]; errors of the system.
    pub fn sleep(&self, span: Duration, what: impl Fn() -> String) -> io::Result<()> {
        let span = self.left().map_or(span, |left| left.min(span));
        let mut waiting: Vec<_> = signal_state::signalled()
            .map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN))
            .into_iter()
            .collect();
        match poll(&mut waiting, Timespec::try_from(span).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => self.check(what).map_err(io::Error::other),
            Err(error) => Err(error.into()),
        }
    }

    /// Fails if the time is over: for commands that check for signals themselves and end normally at one.
    pub fn check_time(&self, what: impl FnOnce() -> String) -> Result<(), CliError> {
        match self.end {
            Some((end, limit)) if Instant::now() >= end => Err(CliError::timed_out(what(), limit)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(count: u64, total: Option<u64>, millis: u64) -> Done {
        Done { count, total, elapsed: Duration::from_millis(millis), left: Duration::from_secs(7) }
    }

    #[test]
    fn progress_line_fits_every_width() {
        for unit in [Unit::Bytes, Unit::Counted("tests")] {
            for total in [None, Some(0), Some(1), Some(u64::MAX)] {
                for done in [0, 1, 1 << 40, u64::MAX] {
                    for width in 1..200 {
                        let text = line("transfer 1: from card B", unit, &at(done, total, 12_345), width);
                        assert!(count(&text) <= width && !text.is_empty(), "{width}: {text:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn progress_line_shows_amount_before_words() {
        let done = at(50, Some(200), 3_000);
        let runs = |width| line("reorder", Unit::Counted("runs"), &done, width);
        assert_eq!(runs(70), format!("- reorder [========>{}] 50/200 runs 3 s, 7 s left", " ".repeat(23)));
        assert_eq!(runs(20), "- reorde 50/200 runs");
        assert_eq!(runs(8), "- r 25 %");
    }

    #[test]
    fn progress_line_moves_while_nothing_is_done() {
        let lines =
            [0, 100, 200, 300].map(|millis| line("x", Unit::Counted("runs"), &at(0, Some(9), millis), 60));
        for (index, line) in lines.iter().enumerate() {
            assert!(!lines[..index].contains(line), "{line}");
        }
    }
}
