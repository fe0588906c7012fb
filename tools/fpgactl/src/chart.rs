//! Pictures as text: the panels and curves of the SVG pictures in the characters of a terminal.
//!
//! Axes and points are drawn with `ratatui`'s chart into a buffer. Each curve has a letter, which stands at its points. A cell where
//! several curves have points gets a digit instead, and the legend lists the curves of each digit. With colours and Braille, lines join the
//! points.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use fpga_netsim::figures::picture::{Curve, CurveKind as CurveStyle, Extent, Panel, Picture, Scale};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

use crate::settings::Settings;
use crate::style::{self, OutputStyle};

/// Minimum and maximum width of a chart, in columns. A narrower chart shows nothing useful.
const MIN_WIDTH: u16 = 40;
const MAX_WIDTH: u16 = 110;
/// Columns of a bar that means all.
const BAR_COLUMNS: u16 = 40;
/// Height of a panel, in lines.
const PANEL_ROWS: u16 = 18;
/// Colours in the order of the SVG's, as close as a terminal has them.
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
/// Maximum number of labels along each axis.
const MAX_LABELS: (u16, u16) = (9, 6);

/// Returns `picture` as text of at most `width` columns, with a line feed at the end. Empty if `width` is too small for a chart.
#[must_use]
pub fn text(picture: &Picture, width: u16, manner: OutputStyle) -> String {
    if width < MIN_WIDTH {
        return String::new();
    }
    let width = width.min(MAX_WIDTH);
    let mut text = format!("\n{}\n", picture.title);
    for panel in &picture.panels {
        text += &panel_text(panel, width, manner);
    }
    text
}

/// Returns `picture` as text if the report is for people, and a chart was requested or the output is a terminal; otherwise empty.
#[must_use]
pub fn text_beside_report(picture: &Picture, asked: bool, settings: &Settings) -> String {
    if settings.json || !(asked || std::io::stdout().is_terminal()) {
        return String::new();
    }
    text(picture, style::width(80), settings.style)
}

/// Returns a bar of at most 40 columns for a `share` of 0 to 1. A share above 0 has at least half a column.
#[must_use]
pub fn bar(share: f64, manner: OutputStyle) -> String {
    let halves = (0..2 * BAR_COLUMNS)
        .filter(|half| (f64::from(*half) + 0.5) / f64::from(2 * BAR_COLUMNS) < share)
        .count();
    let halves = halves.max(usize::from(share > 0.0));
    let (whole, half) = if manner.unicode { ("━", "╸") } else { ("#", "+") };
    whole.repeat(halves / 2) + if halves % 2 == 1 { half } else { "" }
}

fn panel_text(panel: &Panel, width: u16, manner: OutputStyle) -> String {
    // Bands are drawn only in the SVG: a character is wider than most of them.
    let curves: Vec<&Curve> = panel
        .curves
        .iter()
        .filter(|curve| curve.style != CurveStyle::Band && !curve.points.is_empty())
        .collect();
    let mut text = String::new();
    if !panel.title.is_empty() {
        text += &format!("\n{}\n", panel.title);
    }
    let Some(axes) = Axes::of(panel, &curves, width) else {
        return text + "nothing to draw\n" + &notes(panel, width);
    };
    let area = Rect::new(0, 0, width, PANEL_ROWS);
    let lines = manner.colours && manner.unicode;
    let mut buffer = Buffer::empty(area);
    let drawn: &[&Curve] = if lines { &curves } else { &[] };
    axes.draw(panel, drawn, Marker::Braille, GraphType::Line, &mut buffer);
    let together = letter(panel, &axes, &curves, lines, &mut buffer);
    text += &cells(&buffer, manner);
    for (curve, letter) in curves.iter().zip(letters()) {
        let mark = letter.to_string();
        let mark = if manner.colours { painted(&mark, colour(curve)) } else { mark };
        text += &format!("  {mark} {}\n", curve.name);
    }
    let mut marks: Vec<&str> = panel.marks.iter().map(|mark| mark.name.as_str()).collect();
    marks.dedup();
    for name in marks {
        let mark = if manner.colours { painted("@", Color::Red) } else { MARK.to_string() };
        text += &format!("  {mark} {name}\n");
    }
    for (mark, letters) in together {
        text += &format!("  {mark} {letters} in one place\n");
    }
    text + &notes(panel, width)
}

/// Writes each curve's letter at its points, and digits where several curves have points. Returns the meaning of the digits.
fn letter(
    panel: &Panel,
    axes: &Axes,
    curves: &[&Curve],
    lines: bool,
    buffer: &mut Buffer,
) -> Vec<(char, String)> {
    let mut places: BTreeMap<usize, Vec<(char, Color)>> = BTreeMap::new();
    for (curve, letter) in curves.iter().zip(letters()) {
        // A line without markers has too many points for a letter at each of them.
        let one = Curve::new("", 0)
            .points(curve.points.get(curve.points.len() / 2).map(|[x, y, ..]| (*x, *y, 0.0)));
        let curve_points = if lines && curve.style == CurveStyle::Thin { &one } else { *curve };
        let mut alone = Buffer::empty(buffer.area);
        axes.draw(panel, &[curve_points], Marker::Dot, GraphType::Scatter, &mut alone);
        let drawn = alone.content.iter().enumerate();
        for (place, _) in drawn.filter(|(_, cell)| cell.symbol() == ratatui::symbols::DOT) {
            places.entry(place).or_default().push((letter, colour(curve)));
        }
    }
    // Marked points are drawn on their own: their curve has no name.
    for mark in &panel.marks {
        let point = Curve::new("", 0).points([(mark.x, mark.y, 0.0)]);
        let mut alone = Buffer::empty(buffer.area);
        axes.draw(panel, &[&point], Marker::Dot, GraphType::Scatter, &mut alone);
        let place = alone.content.iter().position(|cell| cell.symbol() == ratatui::symbols::DOT);
        let Some(place) = place else { continue };
        places.entry(place).or_default().push((MARK, Color::Red));
    }
    let mut together: Vec<(char, String)> = Vec::new();
    for (place, marks) in places {
        let Some(cell) = buffer.content.get_mut(place) else { continue };
        if let [(letter, colour)] = marks.as_slice() {
            cell.set_char(*letter);
            cell.fg = *colour;
            continue;
        }
        let names = marks.iter().map(|(letter, _)| letter.to_string()).collect::<Vec<_>>().join(", ");
        let known = together.iter().find(|(_, other)| *other == names).map(|(mark, _)| *mark);
        let mark = known.unwrap_or_else(|| {
            let mark = DIGITS.chars().nth(together.len()).unwrap_or('*');
            together.push((mark, names));
            mark
        });
        cell.set_char(mark);
        cell.fg = Color::Reset;
    }
    together
}

/// Character of marked points.
const MARK: char = '@';
/// Characters of cells that several curves share. Further combinations share an asterisk.
const DIGITS: &str = "123456789";

/// Notes of the panel, wrapped to `width`.
fn notes(panel: &Panel, width: u16) -> String {
    let mut text = String::new();
    let bands = panel.curves.iter().filter(|curve| curve.style == CurveStyle::Band);
    let bands = bands.map(|curve| format!("{}: a band, drawn in the SVG file only.", curve.name));
    for note in panel.all_notes().into_iter().chain(bands) {
        let mut column = usize::from(width);
        for word in note.split_whitespace() {
            let length = word.chars().count() + 1;
            if column + length >= usize::from(width) {
                text += if text.is_empty() { " " } else { "\n " };
                column = 1;
            }
            text += " ";
            text += word;
            column += length;
        }
    }
    if text.is_empty() { text } else { text + "\n" }
}

fn letters() -> impl Iterator<Item = char> {
    ('a'..='z').chain('A'..='Z').cycle()
}

fn colour(curve: &Curve) -> Color {
    COLOURS.get(curve.colour % COLOURS.len()).copied().unwrap_or(Color::Reset)
}

/// Range of the axes in chart coordinates, and their labels.
struct Axes {
    x: ([f64; 2], Vec<String>),
    y: ([f64; 2], Vec<String>),
    title: String,
}

impl Axes {
    /// Returns `None` if there is no point.
    fn of(panel: &Panel, curves: &[&Curve], width: u16) -> Option<Self> {
        let places = |scale: Scale, at: usize| {
            let values = curves.iter().flat_map(|curve| &curve.points).filter_map(move |point| point.get(at));
            let marks = panel.marks.iter().map(move |mark| if at == 0 { mark.x } else { mark.y });
            values.copied().chain(marks).map(move |value| scale.place(value)).fold(
                None,
                |range: Option<(f64, f64)>, place| {
                    let (low, high) = range.unwrap_or((place, place));
                    Some((low.min(place), high.max(place)))
                },
            )
        };
        let x = places(panel.x_scale, 0)?;
        let mut y = places(panel.y_scale, 1)?;
        if let Extent::Between(low, high) = panel.y_extent {
            y = (y.0.min(panel.y_scale.place(low)), y.1.max(panel.y_scale.place(high)));
        }
        let labels = (width / 12).clamp(2, MAX_LABELS.0);
        Some(Self {
            x: axis(panel.x_scale, x, labels, false),
            y: axis(panel.y_scale, y, MAX_LABELS.1, panel.y_extent != Extent::Data),
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

/// Returns the ends of an axis and its labels. The labels are equidistant, as a text chart requires.
fn axis(scale: Scale, (low, high): (f64, f64), most: u16, from_zero: bool) -> ([f64; 2], Vec<String>) {
    let most = f64::from(most.max(2)) - 1.0;
    let (low, high) = if from_zero && scale == Scale::Linear { (low.min(0.0), high) } else { (low, high) };
    let (low, high) = scale.widened(low, high);
    let step = match scale {
        // Whole powers or whole positions.
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
        // Bounds the loop for every input.
        if labels.len() > 64 {
            break;
        }
    }
    ([first, last], labels)
}

/// Converts a buffer to lines.
fn cells(buffer: &Buffer, manner: OutputStyle) -> String {
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

fn cell_text(cell: &Cell, manner: OutputStyle) -> String {
    let symbol = if manner.unicode { cell.symbol() } else { ascii(cell.symbol()) };
    if manner.colours && symbol != " " { painted(symbol, cell.fg) } else { symbol.to_owned() }
}

/// Closest ASCII character.
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

#[cfg(test)]
mod tests {
    use fpga_netsim::figures::picture::Mark;

    use super::*;

    fn picture(curves: Vec<Curve>) -> Picture {
        let mut panel = Panel::default();
        panel.curves = curves;
        let mut picture = Picture::default();
        picture.panels = vec![panel];
        picture
    }

    fn curve(name: &str, number: usize, height: f64) -> Curve {
        Curve::new(name, number).points((0_u32..5).map(|x| (f64::from(x), height * f64::from(x + 1), 0.0)))
    }

    const PLAIN: OutputStyle = OutputStyle { colours: false, unicode: false };
    const UNICODE_COLOUR: OutputStyle = OutputStyle { colours: true, unicode: true };

    /// Splits a chart into its cells and the lines of the legend.
    fn parts(text: &str) -> (String, Vec<String>) {
        // Removes the colours.
        let mut parts = text.split('\u{1b}');
        let first = parts.next().unwrap().to_owned();
        let text = parts.fold(first, |text, part| text + part.split_once('m').unwrap().1);
        let lines: Vec<&str> = text.lines().collect();
        let axis = lines.iter().rposition(|line| line.contains("---") || line.contains("───")).unwrap();
        let inside = lines[..axis].iter().filter_map(|line| line.split_once(['|', '│']));
        let chart = inside.map(|(_, cells)| cells).collect::<Vec<_>>().join("\n");
        // The line below the axis has its labels.
        (chart, lines[axis + 2..].iter().map(|line| line.trim().to_owned()).collect())
    }

    #[test]
    fn chart_coinciding_curves_get_explained_digit() {
        let both = picture(vec![curve("one", 0, 1.0), curve("two", 1, 1.0), curve("three", 2, 5.0)]);
        let (chart, legend) = parts(&text(&both, 80, PLAIN));
        assert_eq!(legend, ["a one", "b two", "c three", "1 a, b in one place"], "{chart}");
        assert_eq!(chart.matches('1').count(), 5, "{chart}");
        assert!(!chart.contains('a') && !chart.contains('b') && chart.matches('c').count() == 5, "{chart}");
    }

    #[test]
    fn chart_separate_curves_keep_letters() {
        let (chart, legend) =
            parts(&text(&picture(vec![curve("one", 0, 1.0), curve("two", 1, 9.0)]), 80, PLAIN));
        assert_eq!(legend, ["a one", "b two"], "{chart}");
        assert_eq!((chart.matches('a').count(), chart.matches('b').count()), (5, 5), "{chart}");
    }

    /// Letters also stand in the lines: colours alone do not distinguish curves.
    #[test]
    fn chart_coloured_lines_have_letters_and_digits() {
        let (chart, legend) =
            parts(&text(&picture(vec![curve("one", 0, 1.0), curve("two", 1, 1.0)]), 80, UNICODE_COLOUR));
        assert!(legend[2].ends_with("1 a, b in one place"), "{legend:?}");
        assert!(chart.matches('1').count() >= 5, "{chart}");
    }

    #[test]
    fn chart_missing_curves_marks_and_bands_are_named() {
        let band = Curve::new("band", 3).style(CurveStyle::Band).points([(0.0, 1.0, 1.0)]);
        let mut all = picture(vec![curve("one", 0, 1.0), Curve::new("empty", 1), band]);
        all.panels[0].marks.push(Mark::new(2.0, 4.0, "a paper's value"));
        all.panels[0].notes.push("A note.".to_owned());
        let (chart, legend) = parts(&text(&all, 80, PLAIN));
        assert!(chart.contains('@'), "{chart}");
        assert_eq!(legend[..2], ["a one", "@ a paper's value"]);
        let rest = legend[2..].join(" ");
        for part in ["A note.", "empty: not shown", "band: a band, drawn in the SVG file only"] {
            assert!(rest.contains(part), "{part}: {rest}");
        }
    }
}
