//! Pictures of curves: panels with axes, bands and marked points, as SVG.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// A picture: panels side by side in rows, a title above and what they were made with below.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Picture {
    /// What it shows.
    pub title: String,
    /// Parameters, one line each.
    pub caption: Vec<String>,
    /// Panels of one row.
    pub columns: usize,
    /// In reading order.
    pub panels: Vec<Panel>,
}

/// One pair of axes.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Panel {
    /// What is special about this one.
    pub title: String,
    /// With unit.
    pub x_label: String,
    /// With unit.
    pub y_label: String,
    /// How x is drawn.
    pub x_scale: Scale,
    /// How y is drawn.
    pub y_scale: Scale,
    /// Shown at the least, in y.
    pub y_range: Option<(f64, f64)>,
    /// Curves, in the legend's order.
    pub curves: Vec<Curve>,
    /// Single points with a name.
    pub marks: Vec<Mark>,
}

/// How an axis is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// As it is.
    #[default]
    Linear,
    /// By powers of ten.
    Decades,
    /// By powers of two, with binary units of bytes.
    Bytes,
    /// One place per value, in the order of these names.
    Names(&'static [&'static str]),
}

/// A curve.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Curve {
    /// In the legend.
    pub name: String,
    /// Which colour; curves of one colour belong together.
    pub colour: usize,
    /// How it is drawn.
    pub style: Style,
    /// x, y, and the lower and upper end of y's band.
    pub points: Vec<[f64; 4]>,
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// A line with a dot at each point, and its band.
    #[default]
    Line,
    /// A thin line without dots: what arithmetic says.
    Thin,
    /// The band alone.
    Band,
    /// Dots alone, with their bands as bars.
    Dots,
}

/// A point with a name.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Mark {
    /// Where.
    pub x: f64,
    /// Where.
    pub y: f64,
    /// What.
    pub name: String,
}

impl Curve {
    /// Without points.
    #[must_use]
    pub fn new(name: impl Into<String>, colour: usize) -> Self {
        Self { name: name.into(), colour, ..Self::default() }
    }

    fn rgb(&self) -> RGBColor {
        COLOURS.get(self.colour % COLOURS.len()).copied().unwrap_or(BLACK)
    }

    /// How it is drawn.
    #[must_use]
    pub fn style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    /// Its points with half the widths of their intervals.
    #[must_use]
    pub fn points(mut self, points: impl IntoIterator<Item = (f64, f64, f64)>) -> Self {
        let points = points.into_iter().filter(|(x, y, _)| x.is_finite() && y.is_finite());
        self.points = points.map(|(x, y, half)| [x, y, y - half, y + half]).collect();
        self
    }
}

impl Mark {
    /// At a place.
    #[must_use]
    pub fn new(x: f64, y: f64, name: impl Into<String>) -> Self {
        Self { x, y, name: name.into() }
    }
}

/// Colours that people of any colour vision tell apart (Okabe and Ito), without the yellow that white paper swallows.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(127, 127, 127),
];
/// Of a panel: alone, and beside others.
const ALONE: (u32, u32) = (860, 520);
const PANEL: (u32, u32) = (560, 400);
/// Width of a character of the caption, on average and rounded up, in half pixels.
const HALF_CHARACTER: u32 = 14;
const TITLE: u32 = 44;
const CAPTION_LINE: u32 = 17;
const LEGEND_LINE: u32 = 18;
/// Left of the first name, and the width of a curve's sample with its gap.
const LEGEND_MARGIN: u32 = 24;
const LEGEND_KEY: u32 = 28;
/// More labels than any axis has: which ones is decided elsewhere.
const TICKS: usize = 64;
const FONT: &str = "sans-serif";

/// A picture that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the picture cannot be drawn: {0}")]
pub struct PictureError(String);

impl Scale {
    /// Where a value is along the axis.
    #[must_use]
    pub fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear | Self::Names(_) => value,
            Self::Decades => value.max(1e-12).log10(),
            Self::Bytes => value.max(1.0).log2(),
        }
    }

    /// What is written at a place.
    #[must_use]
    pub fn label(self, place: f64) -> String {
        match self {
            Self::Linear => short(place),
            Self::Decades => short(10_f64.powf(place)),
            Self::Bytes => bytes(place.exp2()),
            Self::Names(names) => {
                let whole = (place - place.round()).abs() < 1e-6;
                let name = names
                    .iter()
                    .enumerate()
                    .find(|(number, _)| whole && (crate::statistics::count(*number) - place).abs() < 0.5);
                name.map(|(_, name)| (*name).to_owned()).unwrap_or_default()
            }
        }
    }

    /// Ends of an axis that shows from `low` to `high`, far enough from each other for labels that differ: what does not spread is a point
    /// in the middle.
    #[must_use]
    pub fn widened(self, low: f64, high: f64) -> (f64, f64) {
        let most = low.abs().max(high.abs());
        match self {
            Self::Linear if most == 0.0 => (0.0, 1.0),
            Self::Linear => {
                // Numbers are written with three digits.
                let missing = (0.05 * most - (high - low)).max(0.0) / 2.0;
                (low - missing, high + missing)
            }
            Self::Decades | Self::Bytes | Self::Names(_) => (low, high),
        }
    }

    /// Places that get a label along an axis that shows from `low` to `high`.
    fn ticks(self, low: f64, high: f64) -> Vec<f64> {
        match self {
            Self::Linear => round_numbers(low, high, 9.0),
            Self::Decades => {
                // Powers of ten, and what lies between them where there are few.
                let steps: &[f64] = match high - low {
                    span if span > 3.2 => &[1.0],
                    span if span > 1.6 => &[1.0, 3.0],
                    span if span > 0.6 => &[1.0, 2.0, 5.0],
                    _ => &[],
                };
                if steps.is_empty() {
                    let numbers = round_numbers(10_f64.powf(low), 10_f64.powf(high), 7.0);
                    return numbers.into_iter().map(|number| self.place(number)).collect();
                }
                let decades = whole_numbers(low.floor(), high, 1.0);
                let all = decades.flat_map(|decade| steps.iter().map(move |step| decade + step.log10()));
                all.filter(|place| (low..=high).contains(place)).collect()
            }
            Self::Bytes => {
                let step = ((high - low) / 8.0).ceil().max(1.0);
                whole_numbers(low.ceil(), high, step).collect()
            }
            Self::Names(names) => (0..names.len()).map(crate::statistics::count).collect(),
        }
    }
}

/// From `first` to at most `last`, so far apart.
fn whole_numbers(first: f64, last: f64, step: f64) -> impl Iterator<Item = f64> {
    (0_u32..200).map(move |number| f64::from(number).mul_add(step, first)).take_while(move |at| *at <= last)
}

/// Numbers 1, 2 or 5 times a power of ten apart from `low` to `high`, at most about `most` of them.
fn round_numbers(low: f64, high: f64, most: f64) -> Vec<f64> {
    let least = ((high - low) / most).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|times| times * power).find(|step| *step >= least);
    let step = step.unwrap_or(10.0 * power);
    // By whole multiples, so that nothing adds up.
    whole_numbers((low / step).ceil(), high / step + 1e-9, 1.0).map(|times| times * step).collect()
}

/// A number with as many digits as it takes.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 100.0 || value == 0.0 => 0,
        value if value >= 1.0 => 1,
        value if value >= 0.01 => 3,
        _ => 5,
    };
    let text = format!("{value:.digits$}");
    if digits > 0 { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Bytes in binary units.
fn bytes(value: f64) -> String {
    let units = [(1024.0 * 1024.0, "MiB"), (1024.0, "KiB")];
    match units.iter().find(|(size, _)| value >= *size - 0.5) {
        Some((size, unit)) => format!("{} {unit}", short(value / size)),
        None => format!("{} B", short(value)),
    }
}

impl Picture {
    /// As an SVG document.
    ///
    /// # Errors
    /// [`PictureError`]: numbers beyond all measure.
    pub fn svg(&self) -> Result<String, PictureError> {
        let columns = self.columns.max(1);
        let rows = self.panels.len().div_ceil(columns).max(1);
        let panel = if self.panels.len() > 1 { PANEL } else { ALONE };
        let side = |count: usize, length: u32| u32::try_from(count).unwrap_or(1).saturating_mul(length);
        let width = side(columns, panel.0);
        let legends = Legends::of(&self.panels, panel.0, width);
        let height = side(rows, panel.1 + legends.below_each);
        let caption: Vec<String> = self.caption.iter().flat_map(|line| wrapped(line, width)).collect();
        let lines = u32::try_from(caption.len()).unwrap_or(0);
        let size = (width, height + TITLE + legends.below_all + lines * CAPTION_LINE + 12);
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
            draw(self, &caption, &legends, &root, (columns, rows))
                .map_err(|error| PictureError(error.to_string()))?;
            root.present().map_err(|error| PictureError(error.to_string()))?;
        }
        Ok(text)
    }
}

/// Where names of curves stand: outside of the axes, so that they hide nothing.
struct Legends {
    /// Pixels below each panel, and below all of them together.
    below_each: u32,
    below_all: u32,
}

impl Legends {
    /// Panels with the same curves share one.
    fn of(panels: &[Panel], each: u32, all: u32) -> Self {
        let height = |panel: &Panel, width: u32| {
            let rows = u32::try_from(panel.legend(width).len()).unwrap_or(0);
            rows * LEGEND_LINE + if rows > 0 { 6 } else { 0 }
        };
        let names = |panel: &Panel| {
            let entries = panel.curves.iter().map(|curve| (curve.name.clone(), curve.colour, curve.style));
            entries.collect::<Vec<_>>()
        };
        match panels {
            [first, others @ ..]
                if !others.is_empty() && others.iter().all(|other| names(other) == names(first)) =>
            {
                Self { below_each: 0, below_all: height(first, all) }
            }
            panels => {
                let below_each = panels.iter().map(|panel| height(panel, each)).max().unwrap_or(0);
                Self { below_each, below_all: 0 }
            }
        }
    }
}

/// An axis that has its labels where they belong, not where places are round.
struct Axis {
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.from..self.to).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Lines between labels would only be in the way.
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        short(*value)
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A line of the caption in as many as fit the width.
fn wrapped(line: &str, width: u32) -> Vec<String> {
    let most = width.saturating_mul(2) / HALF_CHARACTER;
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let length = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        let Some(last) = lines.last_mut() else { continue };
        if last.is_empty() {
            last.push_str(word);
        } else if length(last).saturating_add(length(word)) < most {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn draw(
    picture: &Picture,
    caption: &[String],
    legends: &Legends,
    root: &Area<'_>,
    (columns, rows): (usize, usize),
) -> Drawn {
    root.fill(&WHITE)?;
    let middle = Pos::new(HPos::Center, VPos::Top);
    let (width, height) = root.dim_in_pixel();
    let place = |pixels: u32| i32::try_from(pixels).unwrap_or(0);
    let style = (FONT, 20).into_font().color(&BLACK).pos(middle);
    root.draw(&Text::new(picture.title.clone(), (place(width / 2), 12), style))?;
    let lines = u32::try_from(caption.len()).unwrap_or(0);
    let below = height.saturating_sub(lines * CAPTION_LINE + 8);
    for (number, line) in (0..).zip(caption) {
        let style = (FONT, 12).into_font().color(&RGBColor(70, 70, 70)).pos(middle);
        root.draw(&Text::new(line.clone(), (place(width / 2), place(below + number * CAPTION_LINE)), style))?;
    }
    let (_, rest) = root.split_vertically(TITLE);
    let (middle, _) = rest.split_vertically(below.saturating_sub(TITLE));
    let (middle, names) = middle.split_vertically(below.saturating_sub(TITLE + legends.below_all));
    for (panel, area) in picture.panels.iter().zip(middle.split_evenly((rows, columns))) {
        let (_, height) = area.dim_in_pixel();
        let (axes, names) = area.split_vertically(height.saturating_sub(legends.below_each));
        panel.draw(&axes)?;
        if legends.below_each > 0 {
            panel.draw_legend(&names)?;
        }
    }
    match picture.panels.first() {
        Some(panel) if legends.below_all > 0 => panel.draw_legend(&names),
        _ => Ok(()),
    }
}

impl Panel {
    /// What the axes show, in places.
    fn ranges(&self) -> [(f64, f64); 2] {
        let all = || self.curves.iter().flat_map(|curve| &curve.points);
        let marks = || self.marks.iter();
        let span = |scale: Scale, values: &mut dyn Iterator<Item = f64>, from_zero: bool| {
            let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
            for value in values {
                let place = scale.place(value);
                (low, high) = (low.min(place), high.max(place));
            }
            if low > high {
                return (0.0, 1.0);
            }
            if from_zero && scale == Scale::Linear {
                low = low.min(0.0);
            }
            (low, high) = scale.widened(low, high);
            let room = ((high - low) * 0.05).max(1e-6);
            (if low == 0.0 && from_zero { 0.0 } else { low - room }, high + room)
        };
        let mut xs = all().map(|[x, ..]| *x).chain(marks().map(|mark| mark.x));
        let mut ys = all().flat_map(|[_, y, low, high]| [*y, *low, *high]).chain(marks().map(|mark| mark.y));
        let x = match self.x_scale {
            Scale::Names(names) => (-0.5, crate::statistics::count(names.len()) - 0.5),
            scale => span(scale, &mut xs, false),
        };
        let y = match self.y_range {
            Some((low, high)) => (self.y_scale.place(low), self.y_scale.place(high)),
            None => span(self.y_scale, &mut ys, true),
        };
        [x, y]
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let [(left, right), (low, high)] = self.ranges();
        let (x, y) = (self.x_scale, self.y_scale);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 15))
            .margin(10)
            .margin_right(18)
            .x_label_area_size(46)
            .y_label_area_size(62)
            .build_cartesian_2d(
                Axis { from: left, to: right, ticks: x.ticks(left, right) },
                Axis { from: low, to: high, ticks: y.ticks(low, high) },
            )?;
        chart
            .configure_mesh()
            .x_labels(TICKS)
            .y_labels(TICKS)
            .x_label_formatter(&|place| x.label(*place))
            .y_label_formatter(&|place| y.label(*place))
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .axis_desc_style((FONT, 13))
            .label_style((FONT, 12))
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .draw()?;
        for curve in &self.curves {
            let colour = curve.rgb();
            let at = |value_x: f64, value_y: f64| (x.place(value_x), y.place(value_y).clamp(low, high));
            let line: Vec<_> = curve.points.iter().map(|[x, y, ..]| at(*x, *y)).collect();
            let upper = curve.points.iter().map(|[x, _, _, high]| at(*x, *high));
            let lower = curve.points.iter().rev().map(|[x, _, low, _]| at(*x, *low));
            let thick = u32::from(curve.style != Style::Thin) + 1;
            if matches!(curve.style, Style::Line | Style::Band) {
                let shade = if curve.style == Style::Band { 0.13 } else { 0.25 };
                let band: Vec<_> = upper.chain(lower).collect();
                chart.draw_series([Polygon::new(band, colour.mix(shade).filled())])?;
            }
            if matches!(curve.style, Style::Line | Style::Thin) {
                chart.draw_series([PathElement::new(line.clone(), colour.stroke_width(thick))])?;
            }
            if curve.style == Style::Dots {
                let bars = curve.points.iter().map(|[x, _, low, high]| {
                    PathElement::new([at(*x, *low), at(*x, *high)], colour.stroke_width(1))
                });
                chart.draw_series(bars)?;
            }
            if matches!(curve.style, Style::Line | Style::Dots) {
                chart.draw_series(line.iter().map(|at| Circle::new(*at, 3, colour.filled())))?;
            }
        }
        for mark in &self.marks {
            let at = (x.place(mark.x), y.place(mark.y));
            let red = RGBColor(200, 0, 0);
            // Written towards the middle of the panel.
            let (along, side): (i32, _) =
                if at.0 > f64::midpoint(left, right) { (-9, HPos::Right) } else { (9, HPos::Left) };
            let style = (FONT, 12).into_font().color(&red).pos(Pos::new(side, VPos::Center));
            // On paper of its own, so that it can be read where a curve passes.
            let letters = i32::try_from(mark.name.chars().count()).unwrap_or(0);
            let end = along + along.signum() * letters * i32::try_from(HALF_CHARACTER / 2).unwrap_or(0);
            let paper = Rectangle::new([(along, -17), (end, -2)], WHITE.mix(0.75).filled());
            let drawn = EmptyElement::at(at)
                + paper
                + Cross::new((0, 0), 5, red.stroke_width(2))
                + Text::new(mark.name.clone(), (along, -9), style);
            chart.draw_series([drawn])?;
        }
        Ok(())
    }

    /// Names of curves in rows of `width` pixels, and how far to the right each begins.
    fn legend(&self, width: u32) -> Vec<Vec<(u32, &Curve)>> {
        let mut rows: Vec<Vec<(u32, &Curve)>> = Vec::new();
        let mut right = u32::MAX;
        for curve in self.curves.iter().filter(|curve| !curve.name.is_empty()) {
            let letters = u32::try_from(curve.name.chars().count()).unwrap_or(0);
            let span = LEGEND_KEY + letters * HALF_CHARACTER / 2 + 12;
            if right.saturating_add(span) > width {
                rows.push(Vec::new());
                right = LEGEND_MARGIN;
            }
            if let Some(row) = rows.last_mut() {
                row.push((right, curve));
            }
            right += span;
        }
        rows
    }

    fn draw_legend(&self, area: &Area<'_>) -> Drawn {
        let (width, _) = area.dim_in_pixel();
        let place = |pixels: u32| i32::try_from(pixels).unwrap_or(0);
        for (row, entries) in (0_u32..).zip(self.legend(width)) {
            let y = place(row * LEGEND_LINE + LEGEND_LINE / 2);
            for (x, curve) in entries {
                let colour = curve.rgb();
                let (x, end) = (place(x), place(x + LEGEND_KEY - 6));
                match curve.style {
                    Style::Band => {
                        area.draw(&Rectangle::new([(x, y - 5), (end, y + 5)], colour.mix(0.25).filled()))?;
                    }
                    Style::Line | Style::Thin => {
                        let thick = u32::from(curve.style == Style::Line) + 1;
                        area.draw(&PathElement::new([(x, y), (end, y)], colour.stroke_width(thick)))?;
                    }
                    Style::Dots => {}
                }
                if matches!(curve.style, Style::Line | Style::Dots) {
                    area.draw(&Circle::new((i32::midpoint(x, end), y), 3, colour.filled()))?;
                }
                let style = (FONT, 12).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
                area.draw(&Text::new(curve.name.clone(), (end + 6, y), style))?;
            }
        }
        Ok(())
    }
}
