//! Terminal of `top`: reads keys, shows samples, and restores the terminal at every kind of end.

use core::mem::ManuallyDrop;
use std::io;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;

use super::keys::{Key, Keys};
use super::monitor::Monitor;
use super::snapshot::Snapshot;
use super::view::{self, Page, ViewState};
use crate::cli::TopArgs;
use crate::error::CliError;
use crate::settings::Settings;
use crate::stop;

/// Minimum and maximum interval between samples: on the wall clock, and on the clock of a simulated card.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));
const STEPS: (Duration, Duration) = (Duration::from_micros(1), Duration::from_millis(100));
/// Maximum wait for a key: signals are checked in between.
const TIMEOUT: Duration = Duration::from_millis(100);

/// Restores the terminal. A panic restores it, too: `ratatui` installs itself before the hook that reports the panic.
struct TerminalGuard;

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        // Not `restore`: it reports failures to standard error, which may be gone, too, and then panics.
        let _ = ratatui::try_restore();
        let _ = execute!(io::stdout(), Show);
    }
}

/// Action of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyAction {
    None,
    Quit,
    Draw,
    /// Take a sample now.
    Refresh,
    Slower,
    Faster,
}

/// Runs the view until a key or a signal ends it.
pub(super) fn run(settings: &Settings, args: &TopArgs, mut watched: Monitor) -> Result<(), CliError> {
    // Its own drop shows the cursor, and reports failures in the same way.
    let mut terminal = ManuallyDrop::new(ratatui::try_init().map_err(failed)?);
    let restored = TerminalGuard;
    let result = live(&mut terminal, settings, args.clone(), &mut watched);
    drop(restored);
    match result {
        // The terminal has gone away: there is no reader for a message.
        Err(error) if error.cause().is_some_and(is_closed) => Ok(()),
        other => other,
    }
}

/// Error of a terminal operation.
fn failed(error: io::Error) -> CliError {
    CliError::failed(format!("the terminal: {error}"))
        .advise("use --json or --count 1, which need none")
        .because(error)
}

fn is_closed(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    error.kind() == io::ErrorKind::BrokenPipe || error.raw_os_error() == Some(EIO)
}

fn live(
    terminal: &mut DefaultTerminal,
    settings: &Settings,
    mut args: TopArgs,
    watched: &mut Monitor,
) -> Result<(), CliError> {
    let mut chosen = ViewState::new(settings.style);
    chosen.pace = pace(watched, &args);
    let mut keys = Keys::default();
    let mut sample = watched.sample()?;
    let mut due = Instant::now();
    loop {
        draw(terminal, &sample, &chosen)?;
        let wait =
            if chosen.paused { TIMEOUT } else { due.saturating_duration_since(Instant::now()).min(TIMEOUT) };
        let wish = key(wait, &mut keys, &mut chosen)?;
        if wish == KeyAction::Quit || stop::is_asked() {
            return Ok(());
        }
        if matches!(wish, KeyAction::Slower | KeyAction::Faster) {
            change_interval(watched, &mut args, wish == KeyAction::Slower);
            chosen.pace = pace(watched, &args);
        }
        let wanted = wish == KeyAction::Refresh || (!chosen.paused && Instant::now() >= due);
        if wanted {
            due = Instant::now() + args.interval;
            let mut quit = false;
            let mut stop = || {
                // A persistent error of the key input occurs again above, where it is reported.
                quit = stop::is_asked()
                    || matches!(key(Duration::ZERO, &mut keys, &mut chosen), Ok(KeyAction::Quit));
                quit
            };
            if watched.advance(settings, &args, &mut stop)? {
                return Ok(());
            }
            sample = watched.sample()?;
            chosen.remember(&sample);
        }
    }
}

fn draw(terminal: &mut DefaultTerminal, sample: &Snapshot, chosen: &ViewState) -> Result<(), CliError> {
    terminal.draw(|frame| view::draw(frame, sample, chosen)).map(drop).map_err(failed)
}

fn pace(watched: &Monitor, args: &TopArgs) -> String {
    if watched.is_simulated() {
        format!("{} of card time per sample", humantime::format_duration(args.step))
    } else {
        format!("every {}", humantime::format_duration(args.interval))
    }
}

/// Doubles or halves the interval between samples: in virtual time if the cards have it.
fn change_interval(watched: &Monitor, args: &mut TopArgs, slower: bool) {
    let changed = |span: Duration, (least, most): (Duration, Duration)| {
        let span = if slower { span.saturating_mul(2) } else { span / 2 };
        span.clamp(least, most)
    };
    if watched.is_simulated() {
        args.step = changed(args.step, STEPS);
    } else {
        args.interval = changed(args.interval, INTERVALS);
    }
}

/// Waits for a key, and performs its action if it concerns the view.
fn key(wait: Duration, keys: &mut Keys, chosen: &mut ViewState) -> Result<KeyAction, CliError> {
    let key = keys.next(wait).map_err(failed)?;
    Ok(key.map_or(KeyAction::None, |key| pressed(key, chosen)))
}

fn pressed(key: Key, chosen: &mut ViewState) -> KeyAction {
    let turn = |chosen: &mut ViewState, page: Page| {
        chosen.page = page;
        chosen.scrolled = 0;
    };
    match key {
        Key::Char(b'q') | Key::Interrupt | Key::Gone => return KeyAction::Quit,
        Key::Escape if chosen.help => chosen.help = false,
        Key::Escape => return KeyAction::Quit,
        Key::Char(b'h' | b'?') => chosen.help = !chosen.help,
        Key::Tab | Key::Right => turn(chosen, chosen.page.turned(1)),
        Key::BackTab | Key::Left => turn(chosen, chosen.page.turned(Page::ALL.len() - 1)),
        Key::Char(digit @ b'1'..=b'7') => {
            let page = Page::ALL.get(usize::from(digit - b'1')).copied();
            turn(chosen, page.unwrap_or(chosen.page));
        }
        Key::Up | Key::Char(b'k') => chosen.scrolled = chosen.scrolled.saturating_sub(1),
        Key::Down | Key::Char(b'j') => chosen.scroll(1),
        Key::PageUp => chosen.scrolled = chosen.scrolled.saturating_sub(10),
        Key::PageDown => chosen.scroll(10),
        Key::Home => chosen.scrolled = 0,
        Key::Char(b' ') => chosen.paused = !chosen.paused,
        Key::Char(b'n') => {
            chosen.paused = true;
            return KeyAction::Refresh;
        }
        Key::Char(b'+') => return KeyAction::Slower,
        Key::Char(b'-') => return KeyAction::Faster,
        Key::Char(_) | Key::Other => return KeyAction::None,
    }
    KeyAction::Draw
}
