//! Progress on a terminal, and the time limit of `--timeout`.

use std::cell::Cell;
use std::time::{Duration, Instant};

use fpga_driver::WaitOptions;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::error::CliError;
use crate::stop;
use crate::style;
use crate::units;

/// A bar on standard error, or nothing where nobody looks.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// Percentage shown last: the message is only made again when it changes.
    shown: Cell<u64>,
}

impl Progress {
    /// A bar over `total` bytes; `wanted`: if standard error is a terminal that moves its cursor.
    #[must_use]
    pub fn new(total: u64, wanted: bool) -> Self {
        let progress = Self::bare(total, wanted);
        // The template is a constant: where it were wrong, the bar keeps its default style.
        if let Ok(style) =
            ProgressStyle::with_template("{msg:32} [{bar:30}] {binary_bytes}/{binary_total_bytes} {extra}")
        {
            progress.bar.set_style(style.progress_chars("=> ").with_key(
                "extra",
                |state: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
                    // Bytes per second are printed as everywhere else: in GB/s.
                    let _ = write!(out, "{}", units::rate(state.pos(), state.elapsed()));
                },
            ));
        }
        progress
    }

    /// A bar over `total` of something that is counted.
    #[must_use]
    pub fn counting(total: u64, what: &str, wanted: bool) -> Self {
        let progress = Self::bare(total, wanted);
        let template = format!("{{msg:16}} [{{bar:40}}] {{human_pos}}/{{human_len}} {what}, {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            progress.bar.set_style(style.progress_chars("=> "));
        }
        progress
    }

    fn bare(total: u64, wanted: bool) -> Self {
        let target = if wanted && style::redraws(&std::io::stderr()) {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        Self { bar, shown: Cell::new(u64::MAX) }
    }

    /// So many bytes are done.
    pub fn at(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    /// How far the step that is under way has come, as a percentage behind its name.
    pub fn step(&self, name: impl FnOnce() -> String, done: u64, total: u64) {
        let percent = done.saturating_mul(100).checked_div(total).unwrap_or(100).min(100);
        if self.shown.replace(percent) != percent && !self.bar.is_hidden() {
            self.bar.set_message(format!("{} {percent} %", name()));
        }
    }

    /// What is under way.
    pub fn phase(&self, text: impl Into<std::borrow::Cow<'static, str>>) {
        self.bar.set_message(text);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// When a command has to give up.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    end: Option<(Instant, Duration)>,
}

impl Deadline {
    /// `limit` from now on; `None`: never.
    #[must_use]
    pub fn after(limit: Option<Duration>) -> Self {
        // A limit beyond what the clock can hold is none.
        Self { end: limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit))) }
    }

    /// How to wait for a piece of a long transfer: until the time is over, or as long as the driver waits by itself.
    #[must_use]
    pub fn wait(&self) -> WaitOptions {
        let options = WaitOptions::default();
        match self.end {
            Some((end, _)) => {
                options.timeout(options.timeout.min(end.saturating_duration_since(Instant::now())))
            }
            None => options,
        }
    }

    /// How long was given in all.
    #[must_use]
    pub fn limit(&self) -> Option<Duration> {
        self.end.map(|(_, limit)| limit)
    }

    /// How much of it is left, for a limit of the driver's.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.end.map(|(end, _)| end.saturating_duration_since(Instant::now()))
    }

    /// Fails if the time is over, or a signal has asked for an end.
    ///
    /// # Errors
    /// [`CliError::TimedOut`], [`CliError::Stopped`].
    pub fn check(&self, what: impl FnOnce() -> String) -> Result<(), CliError> {
        if stop::is_asked() {
            return Err(CliError::Stopped { what: what(), done: None });
        }
        self.check_time(what)
    }

    /// Fails if the time is over: for commands that a signal ends in order, which look for it themselves.
    ///
    /// # Errors
    /// [`CliError::TimedOut`].
    pub fn check_time(&self, what: impl FnOnce() -> String) -> Result<(), CliError> {
        match self.end {
            Some((end, limit)) if Instant::now() >= end => Err(CliError::TimedOut { what: what(), limit }),
            _ => Ok(()),
        }
    }
}
