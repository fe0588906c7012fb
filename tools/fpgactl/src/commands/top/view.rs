//! Pages that `top` shows of a sample, on terminals of at least 20 columns.
//!
//! Everything here is a function of a [`Snapshot`] and of the key selections, so that a test draws into a buffer what a terminal would
//! show. The columns of a table are in order of importance: a narrow terminal omits the last ones.

mod pages;

use std::collections::VecDeque;

use fpga_registers::quantity;
use ratatui::Frame;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Sparkline};

use super::snapshot::Snapshot;
use crate::style::OutputStyle;
use pages::Table;

/// Minimum terminal size, in columns and rows.
const MIN_TERMINAL_SIZE: (u16, u16) = (20, 6);
/// Minimum size for an overview with two columns.
const TWO_COLUMN_SIZE: (u16, u16) = (140, 30);
/// Number of samples whose rates are kept: the columns of a wide terminal.
const HISTORY_LENGTH: usize = 200;

/// Pages of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    Overview,
    Channels,
    Ops,
    Queues,
    Registry,
    Escape,
    Counters,
}

impl Page {
    pub(super) const ALL: [Self; 7] = [
        Self::Overview,
        Self::Channels,
        Self::Ops,
        Self::Queues,
        Self::Registry,
        Self::Escape,
        Self::Counters,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Overview => "overview",
            Self::Channels => "channels",
            Self::Ops => "ops",
            Self::Queues => "queues",
            Self::Registry => "registry",
            Self::Escape => "escape",
            Self::Counters => "counters",
        }
    }

    /// Page `steps` further, cyclically.
    pub(super) fn turned(self, steps: usize) -> Self {
        let at = Self::ALL.iter().position(|page| *page == self).unwrap_or(0);
        Self::ALL.get((at + steps) % Self::ALL.len()).copied().unwrap_or(self)
    }
}

/// Selections made by keys.
#[derive(Debug)]
pub(super) struct ViewState {
    pub(super) page: Page,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// Lines scrolled off above the page.
    pub(super) scrolled: usize,
    pub(super) style: OutputStyle,
    /// Sampling interval in words.
    pub(super) pace: String,
    /// Rates of the samples so far, newest last.
    history: VecDeque<u64>,
}

impl ViewState {
    pub(super) const fn new(manner: OutputStyle) -> Self {
        Self {
            page: Page::Overview,
            paused: false,
            help: false,
            scrolled: 0,
            style: manner,
            pace: String::new(),
            history: VecDeque::new(),
        }
    }

    /// Stores the rate for the graph over time.
    pub(super) fn remember(&mut self, sample: &Snapshot) {
        if let Some(rate) = sample.headline() {
            if self.history.len() >= HISTORY_LENGTH {
                self.history.pop_front();
            }
            self.history.push_back(rate);
        }
    }

    /// Scrolls down; the limit is known only when the page is drawn.
    pub(super) const fn scroll(&mut self, lines: usize) {
        self.scrolled = self.scrolled.saturating_add(lines);
    }

    fn style(&self, colour: Color) -> Style {
        if self.style.colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn bold(&self) -> Style {
        if self.style.colours { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() }
    }

    /// Style of a state.
    fn state(&self, state: &str) -> Style {
        match state {
            "running" | "sending" | "in flight" => self.style(Color::Green),
            "error" | "gone" => self.style(Color::Red).add_modifier(if self.style.colours {
                Modifier::BOLD
            } else {
                Modifier::empty()
            }),
            "notice" | "stopping" | "waiting" | "due" | "asking" | "held" => self.style(Color::Yellow),
            _ => Style::new(),
        }
    }
}

/// Draws `sample`.
pub(super) fn draw(frame: &mut Frame<'_>, sample: &Snapshot, chosen: &ViewState) {
    let area = frame.area();
    if area.width < MIN_TERMINAL_SIZE.0 || area.height < MIN_TERMINAL_SIZE.1 {
        let text = format!("top: {} x {} at least", MIN_TERMINAL_SIZE.0, MIN_TERMINAL_SIZE.1);
        frame.render_widget(Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true }), area);
        return;
    }
    let [title, tabs, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    let reversed =
        if chosen.style.colours { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
    frame.render_widget(Paragraph::new(head(sample, chosen)).style(reversed), title);
    frame.render_widget(Paragraph::new(tab_line(chosen, tabs.width)), tabs);
    frame.render_widget(Paragraph::new(key_line(keys.width)), keys);
    match chosen.page {
        Page::Overview => overview(frame, body, sample, chosen),
        page => table(frame, body, &Table::of(page, sample), chosen),
    }
    if chosen.help {
        help(frame, body);
    }
}

/// Returns a sample as text: the overview without colours and keys, at full height.
pub(super) fn text(sample: &Snapshot, width: u16, manner: OutputStyle) -> String {
    // High enough for all channels, masks and warnings; empty lines are cut off.
    let height = 80;
    let chosen = ViewState::new(OutputStyle { colours: false, ..manner });
    let backend = TestBackend::new(width.max(MIN_TERMINAL_SIZE.0), height);
    // Neither can fail: the backend is a buffer.
    let Ok(mut terminal) = ratatui::Terminal::new(backend);
    let Ok(_) = terminal.draw(|frame| {
        let area = frame.area();
        let [title, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas::<2>(area);
        frame.render_widget(Paragraph::new(head(sample, &chosen)), title);
        narrow(frame, body, sample, &chosen);
    });
    let buffer = terminal.backend().buffer();
    let mut lines: Vec<String> = buffer
        .content()
        .chunks(usize::from(buffer.area.width.max(1)))
        .map(|cells| {
            cells.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
        })
        .collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.push(String::new());
    lines.push(String::new());
    lines.join("\n")
}

fn head<'a>(sample: &Snapshot, chosen: &ViewState) -> Line<'a> {
    let cards: Vec<&str> = sample.ends.iter().map(|end| end.card.as_str()).collect();
    let paused = if chosen.paused { "  PAUSED" } else { "" };
    let pace = if chosen.pace.is_empty() { String::new() } else { format!("  {}", chosen.pace) };
    let transfers =
        sample.transfers.map(|count| format!("  {}", quantity(count, "transfer"))).unwrap_or_default();
    Line::from(format!(
        "{}{paused}  sample {}  {}{transfers}{pace}",
        cards.join(" -> "),
        sample.snapshot,
        pages::span(sample.time_us)
    ))
}

fn tab_line<'a>(chosen: &ViewState, width: u16) -> Line<'a> {
    let short = width < 76;
    let spans = (1..).zip(Page::ALL).flat_map(|(number, page)| {
        let is_current = page == chosen.page;
        let text = match (is_current, short) {
            (true, _) => format!("[{number} {}]", page.name()),
            (false, true) => format!("{number}"),
            (false, false) => format!("{number} {}", page.name()),
        };
        let style = if is_current { chosen.bold() } else { Style::new() };
        [Span::styled(text, style), Span::raw(if short { " " } else { "  " })]
    });
    Line::from(spans.collect::<Vec<_>>())
}

fn key_line<'a>(width: u16) -> Line<'a> {
    Line::from(match width {
        ..40 => "q quit  h help",
        40..72 => "q quit  tab page  space pause  h help",
        _ => "q quit  tab page  up/down scroll  space pause  n next  +/- pace  h help",
    })
}

const HELP: &[&str] = &[
    "q, Esc, Ctrl-C  quit",
    "Tab, right      next page",
    "left            previous page",
    "1 to 7          that page",
    "up, down, k, j  scroll a line",
    "PgUp, PgDn      scroll a page",
    "Home            to the top",
    "space           pause, resume",
    "n               one sample, and pause",
    "+, -            longer, shorter interval",
    "h, ?            this help",
    "",
    "# in memory, . missing; R running, W waiting,",
    "S stopping, - stopped, E error, X no answer",
];

fn help(frame: &mut Frame<'_>, body: Rect) {
    let width = body.width.min(48);
    let height = body.height.min(u16::try_from(HELP.len()).unwrap_or(u16::MAX) + 2);
    let area =
        Rect { x: body.x + (body.width - width) / 2, y: body.y + (body.height - height) / 2, width, height };
    let block = ratatui::widgets::Block::bordered().title("keys");
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(*line)).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// Heading (unless empty) with lines below it; those that do not fit are counted.
fn section(
    frame: &mut Frame<'_>,
    area: Rect,
    chosen: &ViewState,
    name: &str,
    mut lines: Vec<Line<'static>>,
) -> Rect {
    let heading = usize::from(!name.is_empty());
    let space = usize::from(area.height).saturating_sub(heading);
    if lines.len() > space {
        let hidden = lines.len() - space.saturating_sub(1);
        lines.truncate(space.saturating_sub(1));
        lines.push(Line::from(format!("... {hidden} more")));
    }
    if heading > 0 {
        lines.insert(0, Line::styled(name.to_owned(), chosen.bold()));
    }
    let used = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(area.height);
    frame.render_widget(Paragraph::new(lines), Rect { height: used, ..area });
    Rect { y: area.y + used, height: area.height - used, ..area }
}

fn overview(frame: &mut Frame<'_>, area: Rect, sample: &Snapshot, chosen: &ViewState) {
    if area.width < TWO_COLUMN_SIZE.0 || area.height < TWO_COLUMN_SIZE.1 {
        return narrow(frame, area, sample, chosen);
    }
    let [left, _, right] =
        Layout::horizontal([Constraint::Length(76), Constraint::Length(2), Constraint::Min(60)]).areas(area);
    let rest = section(frame, left, chosen, "rates", pages::rates(sample, chosen, left.width));
    let rest = history(frame, rest, chosen, 4);
    let rest = section(frame, rest, chosen, "in use", pages::occupancy(sample, chosen, left.width));
    let rest = section(
        frame,
        rest,
        chosen,
        "trouble",
        pages::warnings(sample, chosen, usize::from(rest.height.min(16))),
    );
    titled(frame, rest, "channels", &Table::of(Page::Channels, sample), chosen);
    let third = right.height / 3;
    let part = |number: u16, height: u16| Rect { y: right.y + third * number, height, ..right };
    titled(frame, part(0, third), "receive registry", &Table::of(Page::Registry, sample), chosen);
    titled(frame, part(1, third), "op table", &Table::of(Page::Ops, sample), chosen);
    let last = right.height - 2 * third;
    titled(frame, part(2, last), "queues", &Table::of(Page::Queues, sample), chosen);
}

/// One column, most important sections first.
fn narrow(frame: &mut Frame<'_>, area: Rect, sample: &Snapshot, chosen: &ViewState) {
    let width = area.width;
    // Most sections need no heading: each heading omitted is one more line of masks.
    let rest = section(frame, area, chosen, "", pages::rates(sample, chosen, width));
    let rest = history(frame, rest, chosen, 1);
    let rest = section(frame, rest, chosen, "", pages::channel_lines(sample, chosen, width));
    let rest = section(frame, rest, chosen, "", pages::occupancy(sample, chosen, width));
    // Masks must not push warnings off the screen: warnings get the lines they need, up to a sixth.
    let most = usize::from((area.height / 6).max(2));
    let rest = section(frame, rest, chosen, "trouble", pages::warnings(sample, chosen, most));
    if sample.registry.is_some() && rest.height > 1 {
        titled(frame, rest, "receive registry", &Table::of(Page::Registry, sample), chosen);
    }
}

fn titled(frame: &mut Frame<'_>, area: Rect, name: &str, page: &Table, chosen: &ViewState) {
    let rest = section(frame, area, chosen, name, Vec::new());
    table(frame, rest, page, chosen);
}

/// Rates over time, if the terminal has the characters for it.
fn history(frame: &mut Frame<'_>, area: Rect, chosen: &ViewState, height: u16) -> Rect {
    if !chosen.style.unicode || chosen.history.is_empty() || area.height <= height {
        return area;
    }
    let shown = chosen.history.iter().rev().take(area.width.into()).rev().copied().collect::<Vec<_>>();
    let line = Sparkline::default().data(shown).style(chosen.style(Color::Green));
    frame.render_widget(line, Rect { height, ..area });
    Rect { y: area.y + height, height: area.height - height, ..area }
}

fn table(frame: &mut Frame<'_>, area: Rect, table: &Table, chosen: &ViewState) {
    let mut lines = table.lines(area.width, chosen);
    let head = if lines.is_empty() { None } else { Some(lines.remove(0)) };
    let space = usize::from(area.height).saturating_sub(1);
    // Never scrolls past the last line.
    let scrolled = if chosen.page == Page::Overview {
        0
    } else {
        chosen.scrolled.min(lines.len().saturating_sub(space))
    };
    let more = lines.len().saturating_sub(scrolled + space);
    let mut shown: Vec<Line<'static>> = lines.into_iter().skip(scrolled).take(space).collect();
    if more > 0
        && let Some(last) = shown.last_mut()
    {
        *last = Line::from(format!("... {} more", more + 1));
    }
    shown.splice(0..0, head);
    frame.render_widget(Paragraph::new(shown), area);
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, TopArgs};
    use crate::commands::top::monitor::Monitor;
    use crate::settings::Settings;

    /// Samples the cards that a command line names. Returns the last of `samples` samples and the view state.
    fn sample_until(arguments: &[&str], samples: usize) -> (Snapshot, ViewState) {
        let cli = Cli::try_parse_from([&["fpgactl", "top"], arguments].concat()).unwrap();
        let settings = Settings::new(&cli.global).unwrap();
        let Command::Top(args) = cli.command else { panic!("not the command top") };
        let mut watched = Monitor::new(&settings, &args).unwrap();
        let mut chosen = ViewState::new(OutputStyle { colours: false, unicode: true });
        let mut sample = self::sample(&mut watched, &settings, &args);
        for _ in 1..samples {
            sample = self::sample(&mut watched, &settings, &args);
            chosen.remember(&sample);
        }
        (sample, chosen)
    }

    fn sample(watched: &mut Monitor, settings: &Settings, args: &TopArgs) -> Snapshot {
        assert!(!watched.advance(settings, args, &mut || false).unwrap());
        watched.sample().unwrap()
    }

    /// Content of a terminal of that size.
    fn screen((width, height): (u16, u16), sample: &Snapshot, chosen: &ViewState) -> String {
        let mut terminal = ratatui::Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, sample, chosen)).unwrap();
        terminal.backend().to_string()
    }

    const LOAD: [&str; 7] =
        ["--size=1MiB", "--loss=5%", "--reorder=128", "--seed=7", "--step", "60us", "--count=5"];

    #[test]
    fn view_every_page_on_every_terminal() {
        let (sample, mut chosen) = sample_until(&LOAD, 5);
        for size in [(80, 24), (200, 50), (20, 10)] {
            let mut all = String::new();
            for page in Page::ALL {
                chosen.page = page;
                all += &format!("== {}\n{}", page.name(), screen(size, &sample, &chosen));
            }
            chosen.page = Page::Overview;
            chosen.help = true;
            all += &format!("== help\n{}", screen(size, &sample, &chosen));
            chosen.help = false;
            insta::assert_snapshot!(format!("{}x{}", size.0, size.1), all);
        }
    }

    #[test]
    fn view_any_size_and_scroll_does_not_panic() {
        let (sample, mut chosen) = sample_until(&LOAD, 2);
        for colours in [false, true] {
            chosen.style = OutputStyle { colours, unicode: colours };
            for (width, height) in
                (1..=60).step_by(4).flat_map(|width| [1, 5, 6, 7, 12, 31].map(|height| (width, height)))
            {
                for (number, page) in Page::ALL.into_iter().enumerate() {
                    chosen.page = page;
                    chosen.help = number % 2 == 0;
                    chosen.scrolled = if height > 6 { usize::MAX } else { 3 };
                    let shown = screen((width, height), &sample, &chosen);
                    if width < MIN_TERMINAL_SIZE.0 && width > 8 && height > 1 {
                        assert!(shown.contains("least") || shown.contains("top:"), "{shown}");
                    }
                }
            }
        }
    }

    #[test]
    fn view_scrolled_to_end_shows_last_line() {
        let (sample, mut chosen) = sample_until(&LOAD, 3);
        chosen.page = Page::Ops;
        let ops = sample.ops.as_ref().unwrap().ops.len();
        assert!(ops > 20, "{ops}");
        chosen.scroll(1_000_000);
        let shown = screen((80, 24), &sample, &chosen);
        assert!(shown.contains(&sample.ops.as_ref().unwrap().ops.last().unwrap().op), "{shown}");
        assert!(!shown.contains("more"), "{shown}");
        chosen.scrolled = 0;
        let shown = screen((80, 24), &sample, &chosen);
        assert!(shown.contains(&format!("... {} more", ops - 19)), "{shown}");
    }

    #[test]
    fn view_card_without_ni_shows_channels() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plain.yaml");
        std::fs::write(&file, "schema_version: 1\npci: {subsystem_device: 7}\n").unwrap();
        let card: crate::target::Target = format!("mock:{}", file.display()).parse().unwrap();
        let opened = crate::target::observe(&card).unwrap();
        let mut watched = Monitor::of(opened).unwrap();
        let (sample, chosen) = (watched.sample().unwrap(), ViewState::new(OutputStyle::default()));
        let shown = screen((80, 24), &sample, &chosen);
        assert!(shown.contains("h2c3 -") && shown.contains("no network interface"), "{shown}");
        let narrow = |line: &str| line.chars().count() <= 60 && line.replace("µs", "us").is_ascii();
        assert!(text(&sample, 60, OutputStyle::default()).lines().all(narrow));
    }
}
