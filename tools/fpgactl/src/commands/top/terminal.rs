//! The terminal of `top`: keys in, looks out, and the terminal as it was at the end, whatever the end is.

use std::io;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::look::Look;
use super::view::{self, Chosen, Page};
use super::watched::Watched;
use crate::cli::TopArgs;
use crate::error::CliError;
use crate::settings::Settings;
use crate::stop;

/// Looks are at least and at most so far apart, and a simulated card's by its own clock.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));
const STEPS: (Duration, Duration) = (Duration::from_micros(1), Duration::from_millis(100));
/// How long a key is waited for at a time: a signal is seen in between.
const PATIENCE: Duration = Duration::from_millis(100);

/// Puts the terminal back. A panic does it, too: `ratatui` hangs itself before the hook that reports it.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Nothing,
    Quit,
    Draw,
    /// A look now.
    Look,
    Slower,
    Faster,
}

/// Runs the view until a key or a signal ends it.
pub(super) fn run(settings: &Settings, args: &TopArgs, mut watched: Watched) -> Result<(), CliError> {
    let mut terminal = ratatui::try_init().map_err(CliError::Terminal)?;
    let restored = Restored;
    let result = live(&mut terminal, settings, args.clone(), &mut watched);
    drop(restored);
    match result {
        // The terminal has gone away: nobody is left to be told.
        Err(CliError::Terminal(error)) if is_closed(&error) => Ok(()),
        other => other,
    }
}

fn is_closed(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    error.kind() == io::ErrorKind::BrokenPipe || error.raw_os_error() == Some(EIO)
}

fn live(
    terminal: &mut DefaultTerminal,
    settings: &Settings,
    mut args: TopArgs,
    watched: &mut Watched,
) -> Result<(), CliError> {
    let mut chosen = Chosen::new(settings.manner);
    chosen.pace = pace(watched, &args);
    let mut look = watched.look()?;
    let mut due = Instant::now();
    loop {
        draw(terminal, &look, &chosen)?;
        let wait = if chosen.paused {
            PATIENCE
        } else {
            due.saturating_duration_since(Instant::now()).min(PATIENCE)
        };
        let wish = key(wait, &mut chosen)?;
        if wish == Wish::Quit || stop::is_asked() {
            return Ok(());
        }
        if matches!(wish, Wish::Slower | Wish::Faster) {
            change_pace(watched, &mut args, wish == Wish::Slower);
            chosen.pace = pace(watched, &args);
        }
        let wanted = wish == Wish::Look || (!chosen.paused && Instant::now() >= due);
        if wanted {
            due = Instant::now() + args.interval;
            let mut quit = false;
            let mut stop = || {
                // Whatever goes wrong with keys here goes wrong again above, where it is told.
                quit = stop::is_asked() || matches!(key(Duration::ZERO, &mut chosen), Ok(Wish::Quit));
                quit
            };
            if watched.advance(settings, &args, &mut stop)? {
                return Ok(());
            }
            look = watched.look()?;
            chosen.remember(&look);
        }
    }
}

fn draw(terminal: &mut DefaultTerminal, look: &Look, chosen: &Chosen) -> Result<(), CliError> {
    terminal.draw(|frame| view::draw(frame, look, chosen)).map(drop).map_err(CliError::Terminal)
}

fn pace(watched: &Watched, args: &TopArgs) -> String {
    if watched.is_simulated() {
        format!("{} of its time a look", humantime::format_duration(args.step))
    } else {
        format!("every {}", humantime::format_duration(args.interval))
    }
}

/// Looks twice as far apart, or half: in the cards' time where that is their own.
fn change_pace(watched: &Watched, args: &mut TopArgs, slower: bool) {
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

/// Waits for a key, and does what it says as far as that is about the view.
fn key(wait: Duration, chosen: &mut Chosen) -> Result<Wish, CliError> {
    // What has come already may be with crossterm, not with the terminal.
    let mut hung_up = wait_for_input(Duration::ZERO)?;
    if !hung_up && !event::poll(Duration::ZERO).map_err(CliError::Terminal)? {
        hung_up = wait_for_input(wait)?;
        if !hung_up && !event::poll(Duration::ZERO).map_err(CliError::Terminal)? {
            return Ok(Wish::Nothing);
        }
    }
    if hung_up {
        return Ok(Wish::Quit);
    }
    match event::read().map_err(CliError::Terminal)? {
        Event::Key(key) if key.kind != KeyEventKind::Release => Ok(pressed(key, chosen)),
        Event::Resize(..) => Ok(Wish::Draw),
        _ => Ok(Wish::Nothing),
    }
}

/// Waits until there is something to read, at most so long; whether the terminal has gone away. Asking it for keys then would never
/// return: `crossterm` reads until something comes.
fn wait_for_input(limit: Duration) -> Result<bool, CliError> {
    let stdin = io::stdin();
    let mut waited = [PollFd::new(&stdin, PollFlags::IN)];
    // Limits here are far from what a time holds.
    let limit = Timespec::try_from(limit).unwrap_or_default();
    match poll(&mut waited, Some(&limit)) {
        // A signal: whoever asks looks what it was.
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(CliError::Terminal(error.into())),
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(waited.iter().any(|waited| waited.revents().intersects(gone)))
}

fn pressed(key: KeyEvent, chosen: &mut Chosen) -> Wish {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return if key.code == KeyCode::Char('c') { Wish::Quit } else { Wish::Nothing };
    }
    let turn = |chosen: &mut Chosen, page: Page| {
        chosen.page = page;
        chosen.scrolled = 0;
    };
    match key.code {
        KeyCode::Char('q') => return Wish::Quit,
        KeyCode::Esc if chosen.help => chosen.help = false,
        KeyCode::Esc => return Wish::Quit,
        KeyCode::Char('h' | '?') => chosen.help = !chosen.help,
        KeyCode::Tab | KeyCode::Right => turn(chosen, chosen.page.turned(1)),
        KeyCode::BackTab | KeyCode::Left => turn(chosen, chosen.page.turned(Page::ALL.len() - 1)),
        KeyCode::Char(digit @ '1'..='7') => {
            let page = digit.to_digit(10).and_then(|digit| Page::ALL.get(digit as usize - 1)).copied();
            turn(chosen, page.unwrap_or(chosen.page));
        }
        KeyCode::Up | KeyCode::Char('k') => chosen.scrolled = chosen.scrolled.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => chosen.scroll(1),
        KeyCode::PageUp => chosen.scrolled = chosen.scrolled.saturating_sub(10),
        KeyCode::PageDown => chosen.scroll(10),
        KeyCode::Home => chosen.scrolled = 0,
        KeyCode::Char(' ') => chosen.paused = !chosen.paused,
        KeyCode::Char('n') => {
            chosen.paused = true;
            return Wish::Look;
        }
        KeyCode::Char('+') => return Wish::Slower,
        KeyCode::Char('-') => return Wish::Faster,
        _ => return Wish::Nothing,
    }
    Wish::Draw
}
