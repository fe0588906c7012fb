//! Drawing of a picture as an SVG document: panels in rows, then one legend for all of them, then the caption.

use std::fmt::Write as _;

use super::{Curve, CurveKind, Extent, Panel, Picture, Scale};
use crate::statistics::count;

/// Width of a picture in units: four per millimetre of a paper's column.
pub const WIDTH: f64 = 340.0;
const MARGIN: f64 = 8.0;
/// Font size: six points.
const SIZE: f64 = 8.5;
/// Line spacing.
const LINE: f64 = 11.0;
/// Space left of a plot, for numbers and the label of the axis.
const LEFT: f64 = 48.0;
/// Half the size of a marker.
const RADIUS: f64 = 2.4;
/// Length of a curve's sample in the legend.
const SAMPLE: f64 = 26.0;
const MARK: &str = "#b00000";

/// Colours that people with any colour vision can distinguish (Okabe and Ito), without the yellow that is invisible on white paper.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00", "#7f7f7f"];
/// Lengths of strokes and gaps.
const DASHES: [&str; 8] =
    ["none", "6 2", "1.5 1.7", "7 2 1.5 2", "3.2 1.6", "10 3", "5 1.6 1.5 1.6 1.5 1.6", "2 4"];
/// Outlines of markers of radius 1, and whether they are filled. With the dash patterns, the first 64 curves differ without colour.
const MARKERS: [(&[(f64, f64)], bool); 8] = [
    (&[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)], true),
    (&[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)], false),
    (&[(0.0, -1.15), (1.05, 0.75), (-1.05, 0.75)], true),
    (&[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)], false),
    (&[(-0.9, -0.9), (0.9, 0.9), (0.0, 0.0), (-0.9, 0.9), (0.9, -0.9), (0.0, 0.0)], false),
    (&[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)], true),
    (&[(0.0, 1.15), (1.05, -0.75), (-1.05, -0.75)], false),
    (&[(-1.2, 0.0), (1.2, 0.0), (0.0, 0.0), (0.0, -1.2), (0.0, 1.2), (0.0, 0.0)], false),
];

/// Line of text.
#[derive(Clone, Debug)]
pub(super) struct Words<'a> {
    pub(super) text: &'a str,
    pub(super) x: f64,
    pub(super) y: f64,
    /// `start`, `middle` or `end`.
    pub(super) anchor: &'static str,
    pub(super) bold: bool,
    pub(super) size: f64,
    /// Counter-clockwise, around its position.
    pub(super) degrees: f64,
    pub(super) fill: &'static str,
}

impl<'a> Words<'a> {
    fn at(text: &'a str, (x, y): (f64, f64), anchor: &'static str) -> Self {
        Words { text, x, y, anchor, bold: false, size: SIZE, degrees: 0.0, fill: "#000000" }
    }

    /// Attributes of either form of the text.
    pub(super) fn transform(&self) -> String {
        format!("fill=\"{}\" transform=\"rotate({} {:.2} {:.2})\"", self.fill, -self.degrees, self.x, self.y)
    }
}

/// Text element, for the fonts of the viewer.
pub(super) fn element(words: &Words<'_>) -> String {
    let weight = if words.bold { "bold" } else { "normal" };
    format!(
        "<text x=\"{:.2}\" y=\"{:.2}\" font-size=\"{}\" font-weight=\"{weight}\" text-anchor=\"{}\" {}>{}</text>\n",
        words.x,
        words.y,
        words.size,
        words.anchor,
        words.transform(),
        escaped(words.text)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Breaks text at spaces into lines that fit in every sans-serif font.
fn wrapped(text: &str, width: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(last) = lines.last_mut() else { break };
        if last.is_empty() || length(last) + length(word) + SIZE * 0.3 <= width {
            last.push_str(if last.is_empty() { "" } else { " " });
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Width of a text, tending to too wide.
fn length(text: &str) -> f64 {
    count(text.chars().count()) * SIZE * 0.52
}

/// Document under construction.
struct Drawing<'a> {
    body: String,
    letters: &'a dyn Fn(&Words<'_>) -> String,
}

/// Returns a picture as SVG document, with texts as `letters` makes them.
pub(super) fn document(picture: &Picture, letters: &dyn Fn(&Words<'_>) -> String) -> String {
    let mut drawing = Drawing { body: String::new(), letters };
    let mut y = drawing.paragraph(&picture.title, MARGIN, MARGIN, true);
    let columns = picture.columns.clamp(1, 2);
    let tall = [190.0, 118.0, 96.0][if picture.panels.len() < 2 { 0 } else { columns }];
    let names = mark_names(picture);
    let across = 2.0_f64.mul_add(-MARGIN, WIDTH) / count(columns);
    for row in picture.panels.chunks(columns) {
        let top = y;
        for (column, panel) in row.iter().enumerate() {
            let left = across.mul_add(count(column), MARGIN);
            y = y.max(drawing.panel(panel, &names, [left, top, left + across, top + LINE * 1.5 + tall]));
        }
    }
    y = drawing.legend(picture, y);
    for text in &picture.caption {
        y = drawing.paragraph(text, MARGIN, y, false);
    }
    let height = (y + MARGIN).ceil();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{}\" height=\"{}\" role=\"img\" \
         font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\">\n<title>{}</title>\n<desc>{}</desc>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n{}</svg>\n",
        WIDTH * 2.0,
        height * 2.0,
        escaped(&picture.title),
        escaped(&picture.caption.join(" ")),
        drawing.body
    )
}

impl Drawing<'_> {
    fn text(&mut self, text: &str, at: (f64, f64), anchor: &'static str) {
        self.words(&Words::at(text, at, anchor));
    }

    fn words(&mut self, words: &Words<'_>) {
        self.body += &(self.letters)(words);
    }

    /// Text in lines from `top`; returns their end.
    fn paragraph(&mut self, text: &str, left: f64, top: f64, bold: bool) -> f64 {
        let mut y = top;
        for text in wrapped(text, WIDTH - MARGIN - left) {
            y += LINE;
            let size = if bold { SIZE * 1.2 } else { SIZE };
            self.words(&Words { bold, size, ..Words::at(&text, (left, y), "start") });
        }
        y + 4.0
    }

    fn path(&mut self, points: &[(f64, f64)], end: &str, attributes: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.2},{y:.2}")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "<path d=\"M{}{end}\" {attributes}/>", points.join("L"));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        self.path(&[from, to], "", &format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\""));
    }

    /// Line of a curve, unless it has none.
    fn curve(&mut self, curve: &Curve, points: &[(f64, f64)]) {
        let (colour, dash) = (COLOURS[curve.colour % 8], DASHES[curve.colour % 8]);
        let width = match curve.style {
            CurveKind::Line => 1.3,
            CurveKind::Thin => 0.8,
            CurveKind::Band | CurveKind::Dots => return,
        };
        let line =
            format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-dasharray=\"{dash}\"");
        self.path(points, "", &line);
    }

    /// Marker of a curve, unless it has none.
    fn marker(&mut self, curve: &Curve, (x, y): (f64, f64)) {
        if !matches!(curve.style, CurveKind::Line | CurveKind::Dots) {
            return;
        }
        let colour = COLOURS[curve.colour % 8];
        let (shape, filled) = MARKERS[(curve.colour % 8 + curve.colour / 8) % 8];
        let points: Vec<_> =
            shape.iter().map(|(dx, dy)| (RADIUS.mul_add(*dx, x), RADIUS.mul_add(*dy, y))).collect();
        self.path(
            &points,
            "Z",
            &format!("fill=\"{}\" stroke=\"{colour}\"", if filled { colour } else { "#ffffff" }),
        );
    }

    /// Marked point: a star and the number of its name in the legend.
    fn mark(&mut self, number: usize, (x, y): (f64, f64)) {
        for (dx, dy) in [(0.0, 4.0), (3.5, 2.0), (3.5, -2.0)] {
            self.line((x - dx, y - dy), (x + dx, y + dy), MARK, 1.2);
        }
        let text = number.to_string();
        self.words(&Words { bold: true, fill: MARK, ..Words::at(&text, (x + 5.0, y - 3.0), "start") });
    }

    /// Draws a panel, and returns its end.
    fn panel(&mut self, panel: &Panel, names: &[&str], [left, top, right, bottom]: [f64; 4]) -> f64 {
        let (plot_left, plot_right, plot_top) = (left + LEFT, right - 4.0, LINE.mul_add(1.5, top));
        let middle = ((plot_left + plot_right) / 2.0, (plot_top + bottom) / 2.0);
        let [(x_low, x_high), (y_low, y_high)] = ranges(panel);
        let x_at = |place: f64| (place - x_low) / (x_high - x_low) * (plot_right - plot_left) + plot_left;
        let y_at = |place: f64| ((place - y_low) / (y_high - y_low)).mul_add(plot_top - bottom, bottom);
        let at = |x: f64, y: f64| {
            (x_at(panel.x_scale.place(x)), y_at(panel.y_scale.place(y)).clamp(plot_top, bottom))
        };
        self.words(&Words { bold: true, ..Words::at(&panel.title, (middle.0, plot_top - 4.0), "middle") });
        for tick in panel.y_scale.ticks(y_low, y_high, (bottom - plot_top) / 20.0) {
            let y = y_at(tick);
            self.line((plot_left, y), (plot_right, y), "#dddddd", 0.5);
            self.text(&panel.y_scale.label(tick), (plot_left - 4.0, y + 3.0), "end");
        }
        let mut y = bottom + LINE;
        for tick in panel.x_scale.ticks(x_low, x_high, (plot_right - plot_left) / 45.0) {
            let (x, text) = (x_at(tick), panel.x_scale.label(tick));
            self.line((x, plot_top), (x, bottom), "#dddddd", 0.5);
            // Names are longer than numbers.
            if let Scale::Names(_) = panel.x_scale {
                self.words(&Words { degrees: 30.0, ..Words::at(&text, (x + 3.0, y - 3.0), "end") });
                continue;
            }
            self.text(&text, (x, y), "middle");
        }
        if let Scale::Names(names) = panel.x_scale {
            y += names.iter().map(|name| length(name)).fold(0.0, f64::max) / 2.0;
        }
        y += LINE;
        self.text(&panel.x_label, (middle.0, y), "middle");
        self.words(&Words { degrees: 90.0, ..Words::at(&panel.y_label, (left + SIZE, middle.1), "middle") });
        let frame =
            [(plot_left, plot_top), (plot_right, plot_top), (plot_right, bottom), (plot_left, bottom)];
        self.path(&frame, "Z", "fill=\"none\" stroke=\"#000000\" stroke-width=\"0.7\"");
        let curves: Vec<&Curve> = panel.drawn().collect();
        for curve in &curves {
            let upper = curve.points.iter().map(|[x, _, _, high]| at(*x, *high));
            let lower = curve.points.iter().rev().map(|[x, _, low, _]| at(*x, *low));
            if matches!(curve.style, CurveKind::Line | CurveKind::Band) {
                let band = format!("fill=\"{}\" fill-opacity=\"0.2\"", COLOURS[curve.colour % 8]);
                self.path(&upper.chain(lower).collect::<Vec<_>>(), "Z", &band);
            }
            self.curve(curve, &curve.points.iter().map(|[x, y, ..]| at(*x, *y)).collect::<Vec<_>>());
        }
        for (number, curve) in curves.iter().enumerate() {
            // Side by side, so that coinciding curves can be counted.
            let aside = (count(number) - count(curves.len() - 1) / 2.0) * RADIUS;
            for [x, value, low, high] in &curve.points {
                let (x, y) = at(*x, *value);
                let (x, low, high) =
                    ((x + aside).clamp(plot_left, plot_right), at(0.0, *low).1, at(0.0, *high).1);
                if matches!(curve.style, CurveKind::Line | CurveKind::Dots) && high < low {
                    self.line((x, low), (x, high), COLOURS[curve.colour % 8], 0.7);
                }
                self.marker(curve, (x, y));
            }
        }
        for mark in &panel.marks {
            let number = names.iter().position(|name| *name == mark.name).unwrap_or(0);
            self.mark(number + 1, at(mark.x, mark.y));
        }
        for note in panel.all_notes() {
            for line in wrapped(&note, right - left) {
                y += LINE;
                self.text(&line, (left, y), "start");
            }
        }
        y + 6.0
    }

    /// Draws the legend of all panels below `top`, and returns its end.
    fn legend(&mut self, picture: &Picture, top: f64) -> f64 {
        let mut curves: Vec<&Curve> = Vec::new();
        for curve in picture.panels.iter().flat_map(Panel::drawn).filter(|curve| !curve.name.is_empty()) {
            if !curves.iter().any(|known| {
                (&known.name, known.colour, known.style) == (&curve.name, curve.colour, curve.style)
            }) {
                curves.push(curve);
            }
        }
        let marks = mark_names(picture);
        let names = curves.iter().map(|curve| curve.name.as_str()).chain(marks.iter().copied());
        let widest = names.clone().map(length).fold(0.0, f64::max) + SAMPLE + 14.0;
        let columns = (1..4).rev().find(|columns| widest * count(*columns) <= WIDTH - MARGIN).unwrap_or(1);
        let mut y = top + LINE;
        for (number, name) in names.enumerate() {
            let x = widest.mul_add(count(number % columns), MARGIN);
            y += if number > 0 && number % columns == 0 { LINE } else { 0.0 };
            let (from, to, middle) = ((x, y - 3.0), (x + SAMPLE, y - 3.0), (x + SAMPLE / 2.0, y - 3.0));
            match curves.get(number) {
                Some(curve) if curve.style == CurveKind::Band => {
                    self.line(from, to, &format!("{}33", COLOURS[curve.colour % 8]), 7.0);
                }
                Some(curve) => {
                    self.curve(curve, &[from, to]);
                    self.marker(curve, middle);
                }
                None => self.mark(number - curves.len() + 1, middle),
            }
            self.text(name, (x + SAMPLE + 5.0, y), "start");
        }
        y + 6.0
    }
}

/// Names of marked points, each once.
fn mark_names(picture: &Picture) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for mark in picture.panels.iter().flat_map(|panel| &panel.marks) {
        if !names.contains(&mark.name.as_str()) {
            names.push(&mark.name);
        }
    }
    names
}

/// Ranges of the axes, in positions.
fn ranges(panel: &Panel) -> [(f64, f64); 2] {
    let points = || panel.drawn().flat_map(|curve| &curve.points);
    let span = |scale: Scale, values: &mut dyn Iterator<Item = f64>, from_zero: bool, margin: f64| {
        let range = (f64::INFINITY, f64::NEG_INFINITY);
        let places = values.filter(|value| value.is_finite()).map(|value| scale.place(value));
        let (low, high) = places.fold(range, |(low, high), place| (low.min(place), high.max(place)));
        if low > high {
            return (0.0, 1.0);
        }
        let is_zero = from_zero && scale == Scale::Linear && low >= 0.0;
        let (low, high) = scale.widened(if is_zero { 0.0 } else { low }, high);
        let margin = ((high - low) * margin).max(1e-6);
        (if is_zero { 0.0 } else { low - margin }, high + margin)
    };
    let marks = &panel.marks;
    let mut xs = points().map(|[x, ..]| *x).chain(marks.iter().map(|mark| mark.x));
    let ys = points().flat_map(|[_, y, low, high]| [*y, *low, *high]);
    let mut ys = ys.chain(marks.iter().map(|mark| mark.y));
    let x = match panel.x_scale {
        Scale::Names(names) => (-0.5, count(names.len()) - 0.5),
        scale => span(scale, &mut xs, false, 0.08),
    };
    let y = match panel.y_extent {
        Extent::Between(low, high) => (panel.y_scale.place(low), panel.y_scale.place(high)),
        Extent::FromZero => span(panel.y_scale, &mut ys, true, 0.05),
        Extent::Data => span(panel.y_scale, &mut ys, false, 0.05),
    };
    [x, y].map(|(low, high)| if high > low { (low, high) } else { (low - 0.5, low + 0.5) })
}
