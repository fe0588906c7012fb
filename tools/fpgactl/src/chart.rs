//! Pictures as text: the same panels and curves that are drawn as SVG, in the characters of a terminal.
//!
//! Axes and points are `ratatui`'s chart in a buffer. Where there are colours and Braille, curves are lines that differ in colour;
//! else each curve is drawn by a letter, so that they can be told apart on paper too.

use std::io::IsTerminal;

use fpga_netsim::figures::picture::{Curve, Panel, Picture, Scale, Style as CurveStyle};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

use crate::settings::Settings;
use crate::style::{self, Manner};

/// Narrower than this nothing of a chart can be seen.
const LEAST: u16 = 40;
const WIDEST: u16 = 110;
/// Of a panel's lines.
const HEIGHT: u16 = 18;
/// Colours in the order of the SVG's, as near as a terminal has them.
const COLOURS: [Color; 8] = [
    Color::Blue,
    Color::Red,
    Color::Green,
    Color::Magenta,
    Color::White,
    Color::Cyan,
    Color::Yellow,
    Color::DarkGray,
];
/// Labels along an axis, at most.
const LABELS: (u16, u16) = (9, 6);

/// `picture` as text of at most `width` columns, with a line feed at the end; nothing where that is too narrow for a chart.
#[must_use]
pub fn text(picture: &Picture, width: u16, manner: Manner) -> String {
    if width < LEAST {
        return String::new();
    }
    let width = width.min(WIDEST);
    let mut text = format!("\n{}\n", picture.title);
    for panel in &picture.panels {
        text += &panel_text(panel, width, manner);
    }
    text
}

/// `picture` as text, where a report is for people and they have asked for it or sit at a terminal; else nothing.
#[must_use]
pub fn beside_report(picture: &Picture, asked: bool, settings: &Settings) -> String {
    if settings.json || !(asked || std::io::stdout().is_terminal()) {
        return String::new();
    }
    text(picture, style::width(80), settings.manner)
}

fn panel_text(panel: &Panel, width: u16, manner: Manner) -> String {
    // Bands are the SVG's: a character is wider than most of them.
    let curves: Vec<&Curve> = panel
        .curves
        .iter()
        .filter(|curve| curve.style != CurveStyle::Band && !curve.points.is_empty())
        .collect();
    let mut text = String::new();
    if !panel.title.is_empty() {
        text += &format!("\n{}\n", panel.title);
    }
    let Some(axes) = Axes::of(panel, &curves, width) else { return text + "nothing to draw\n" };
    let area = Rect::new(0, 0, width, HEIGHT);
    let lines = manner.colours && manner.unicode;
    let mut buffer = Buffer::empty(area);
    if lines {
        axes.draw(panel, &curves, Marker::Braille, GraphType::Line, &mut buffer);
    } else {
        axes.draw(panel, &[], Marker::Dot, GraphType::Scatter, &mut buffer);
        for (curve, letter) in curves.iter().zip(letters()) {
            let mut alone = Buffer::empty(area);
            axes.draw(panel, &[curve], Marker::Dot, GraphType::Scatter, &mut alone);
            for (cell, drawn) in buffer.content.iter_mut().zip(&alone.content) {
                if drawn.symbol() == ratatui::symbols::DOT {
                    cell.set_char(letter);
                    cell.fg = colour(curve);
                }
            }
        }
    }
    text += &cells(&buffer, manner);
    for (curve, letter) in curves.iter().zip(letters()) {
        let mark = if lines { '\u{2501}' } else { letter };
        let mark = if manner.colours { painted(&mark.to_string(), colour(curve)) } else { mark.to_string() };
        text += &format!("  {mark} {}\n", curve.name);
    }
    text
}

fn letters() -> impl Iterator<Item = char> {
    ('a'..='z').chain('A'..='Z').cycle()
}

fn colour(curve: &Curve) -> Color {
    COLOURS.get(curve.colour % COLOURS.len()).copied().unwrap_or(Color::Reset)
}

/// What the axes show, in places, and what is written along them.
struct Axes {
    x: ([f64; 2], Vec<String>),
    y: ([f64; 2], Vec<String>),
    title: String,
}

impl Axes {
    /// `None`: there is no point.
    fn of(panel: &Panel, curves: &[&Curve], width: u16) -> Option<Self> {
        let places = |scale: Scale, at: usize| {
            let values = curves.iter().flat_map(|curve| &curve.points).filter_map(move |point| point.get(at));
            values.map(move |value| scale.place(*value)).fold(None, |range: Option<(f64, f64)>, place| {
                let (low, high) = range.unwrap_or((place, place));
                Some((low.min(place), high.max(place)))
            })
        };
        let x = places(panel.x_scale, 0)?;
        let mut y = places(panel.y_scale, 1)?;
        if let Some((low, high)) = panel.y_range {
            y = (y.0.min(panel.y_scale.place(low)), y.1.max(panel.y_scale.place(high)));
        }
        let labels = (width / 12).clamp(2, LABELS.0);
        Some(Self {
            x: axis(panel.x_scale, x, labels, false),
            y: axis(panel.y_scale, y, LABELS.1, true),
            title: format!("{} over {}", panel.y_label, panel.x_label),
        })
    }

    fn draw(&self, panel: &Panel, curves: &[&Curve], marker: Marker, kind: GraphType, buffer: &mut Buffer) {
        let points: Vec<(Vec<(f64, f64)>, Color)> = curves
            .iter()
            .map(|curve| {
                let place = |[x, y, ..]: &[f64; 4]| (panel.x_scale.place(*x), panel.y_scale.place(*y));
                (curve.points.iter().map(place).collect(), colour(curve))
            })
            .collect();
        let datasets = points
            .iter()
            .map(|(points, colour)| {
                Dataset::default()
                    .data(points)
                    .marker(marker)
                    .graph_type(kind)
                    .style(Style::new().fg(*colour))
            })
            .collect();
        let axis = |(bounds, labels): &([f64; 2], Vec<String>)| {
            Axis::default().bounds(*bounds).labels(labels.iter().map(|label| Line::from(label.clone())))
        };
        let area = buffer.area;
        let [title, chart] = ratatui::layout::Layout::vertical([
            ratatui::layout::Constraint::Length(1),
            ratatui::layout::Constraint::Min(1),
        ])
        .areas(area);
        Line::from(self.title.clone()).render(title, buffer);
        Chart::new(datasets)
            .x_axis(axis(&self.x))
            .y_axis(axis(&self.y))
            .legend_position(None)
            .render(chart, buffer);
    }
}

/// Ends of an axis and labels at equal distances along it: a chart of characters has no others.
fn axis(scale: Scale, (low, high): (f64, f64), most: u16, from_zero: bool) -> ([f64; 2], Vec<String>) {
    let most = f64::from(most.max(2)) - 1.0;
    let (low, high) = if from_zero && scale == Scale::Linear { (low.min(0.0), high) } else { (low, high) };
    let (low, high) = scale.widened(low, high);
    let step = match scale {
        // Whole powers, or whole places.
        Scale::Decades | Scale::Bytes | Scale::Names(_) => {
            ((high.ceil() - low.floor()) / most).ceil().max(1.0)
        }
        Scale::Linear => {
            let least = ((high - low) / (most - 1.0).max(1.0)).max(f64::MIN_POSITIVE);
            let power = 10_f64.powf(least.log10().floor());
            let steps = [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power);
            steps.into_iter().find(|step| *step >= least * 0.999).unwrap_or(least)
        }
    };
    let first = (low / step).floor() * step;
    let mut labels = vec![scale.label(first)];
    let mut last = first;
    while last < high - step * 1e-6 || labels.len() < 2 {
        last += step;
        labels.push(scale.label(last));
        // Whatever the numbers are, this ends.
        if labels.len() > 64 {
            break;
        }
    }
    ([first, last], labels)
}

/// A buffer as lines.
fn cells(buffer: &Buffer, manner: Manner) -> String {
    let mut text = String::new();
    for row in buffer.content.chunks(usize::from(buffer.area.width.max(1))) {
        let end = row.iter().rposition(|cell| cell.symbol() != " ").map_or(0, |at| at + 1);
        for cell in row.iter().take(end) {
            text += &cell_text(cell, manner);
        }
        text.push('\n');
    }
    text
}

fn cell_text(cell: &Cell, manner: Manner) -> String {
    let symbol = if manner.unicode { cell.symbol() } else { ascii(cell.symbol()) };
    if manner.colours && symbol != " " { painted(symbol, cell.fg) } else { symbol.to_owned() }
}

/// The nearest of ASCII.
fn ascii(symbol: &str) -> &str {
    match symbol {
        "│" | "┤" => "|",
        "─" | "┬" => "-",
        "└" | "┘" | "┌" | "┐" | "┼" => "+",
        "µ" => "u",
        other if other.is_ascii() => other,
        _ => "*",
    }
}

fn painted(text: &str, colour: Color) -> String {
    let code = match colour {
        Color::Red => 31,
        Color::Green => 32,
        Color::Yellow => 33,
        Color::Blue => 34,
        Color::Magenta => 35,
        Color::Cyan => 36,
        Color::DarkGray => 90,
        _ => return text.to_owned(),
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}
