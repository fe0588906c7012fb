//! `top`: channels, queues, op table, registry, escape channel, rates and errors of a card, sampled periodically.
//!
//! On a terminal with a movable cursor it is a view with keys (`view`, `terminal`); anywhere else, and with `--json`, it prints successive
//! reports. All of them take the same samples at the same times (`monitor`); `snapshot` defines the content of a sample.

mod keys;
mod monitor;
mod snapshot;
mod target;
mod terminal;
mod view;

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::cli::TopArgs;
use crate::error::CliError;
use crate::output;
use crate::settings::Settings;
use crate::{stop, style};

use monitor::Monitor;
pub use snapshot::Snapshot;

/// Runs the command.
pub fn run(settings: &Settings, args: &TopArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let watched = Monitor::new(settings, args)?;
    let result = shown(settings, args, watched, out);
    match result {
        // The normal end.
        Err(error) if error.stopped_after().is_some() => Ok(()),
        other => other,
    }
}

fn shown(settings: &Settings, args: &TopArgs, watched: Monitor, out: &mut dyn Write) -> Result<(), CliError> {
    let live = !settings.json && args.count().is_none() && std::io::stdin().is_terminal();
    if live && style::redraws(&std::io::stdout()) {
        return terminal::run(settings, args, watched);
    }
    lines(settings, args, watched, out)
}

/// Prints successive reports, until the requested number is reached, the reader is gone, or a signal arrives.
fn lines(
    settings: &Settings,
    args: &TopArgs,
    mut watched: Monitor,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let width = style::width(80);
    let mut number = 0;
    while args.count().is_none_or(|samples| number < samples) {
        let due = Instant::now() + args.interval;
        // The first sample is taken at once, unless a load has to make progress first.
        if number > 0 || watched.is_load() {
            let stopped = watched.advance(settings, args, &mut stop::is_asked)?;
            if stopped {
                break;
            }
        }
        let sample = watched.sample()?;
        number += 1;
        let text = if settings.json {
            output::line_of(&sample)?
        } else {
            view::text(&sample, width, settings.style).into_bytes()
        };
        if !output::write_while_read(&text, out)? {
            break;
        }
        if args.count().is_some_and(|samples| number >= samples) {
            break;
        }
        if !sleep_until(due, settings)? {
            break;
        }
    }
    Ok(())
}

/// Sleeps in intervals; returns `false` if the command has to stop.
fn sleep_until(due: Instant, settings: &Settings) -> Result<bool, CliError> {
    const SLEEP_STEP: Duration = Duration::from_millis(20);
    loop {
        if stop::is_asked() {
            return Ok(false);
        }
        settings.deadline.check(|| "top".to_owned())?;
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(true);
        }
        std::thread::sleep(left.min(SLEEP_STEP));
    }
}
