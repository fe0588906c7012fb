//! Pictures of curves: panels with axes, bands and marked points, as SVG.

use plotters::coord::Shift;
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
const FONT: &str = "sans-serif";

/// A picture that could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the picture cannot be drawn: {0}")]
pub struct PictureError(String);

impl Scale {
    /// Where a value is along the axis.
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear | Self::Names(_) => value,
            Self::Decades => value.max(1e-12).log10(),
            Self::Bytes => value.max(1.0).log2(),
        }
    }

    /// What is written at a place.
    fn label(self, place: f64) -> String {
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

    /// Labels along an axis that shows from `low` to `high`.
    fn ticks(self, low: f64, high: f64) -> usize {
        let span = match self {
            Self::Linear => return 9,
            Self::Decades => high - low,
            Self::Bytes => (high - low) / 2.0,
            Self::Names(names) => return names.len() + 2,
        };
        if span < 2.0 {
            6
        } else {
            (2..20_u8).find(|count| f64::from(*count) > span + 1.0).map_or(10, usize::from)
        }
    }
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
        let (width, height) = (side(columns, panel.0), side(rows, panel.1));
        let caption: Vec<String> = self.caption.iter().flat_map(|line| wrapped(line, width)).collect();
        let lines = u32::try_from(caption.len()).unwrap_or(0);
        let size = (width, height + TITLE + lines * CAPTION_LINE + 12);
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
            draw(self, &caption, &root, (columns, rows)).map_err(|error| PictureError(error.to_string()))?;
            root.present().map_err(|error| PictureError(error.to_string()))?;
        }
        Ok(text)
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

fn draw(picture: &Picture, caption: &[String], root: &Area<'_>, (columns, rows): (usize, usize)) -> Drawn {
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
    for (panel, area) in picture.panels.iter().zip(middle.split_evenly((rows, columns))) {
        panel.draw(&area)?;
    }
    Ok(())
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
            .build_cartesian_2d(left..right, low..high)?;
        chart
            .configure_mesh()
            .x_labels(x.ticks(left, right))
            .y_labels(y.ticks(low, high))
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
            let colour = COLOURS.get(curve.colour % COLOURS.len()).copied().unwrap_or(BLACK);
            let at = |value_x: f64, value_y: f64| (x.place(value_x), y.place(value_y).clamp(low, high));
            let line: Vec<_> = curve.points.iter().map(|[x, y, ..]| at(*x, *y)).collect();
            let upper = curve.points.iter().map(|[x, _, _, high]| at(*x, *high));
            let lower = curve.points.iter().rev().map(|[x, _, low, _]| at(*x, *low));
            let thick = u32::from(curve.style != Style::Thin) + 1;
            if matches!(curve.style, Style::Line | Style::Band) {
                let shade = if curve.style == Style::Band { 0.13 } else { 0.25 };
                let band: Vec<_> = upper.chain(lower).collect();
                let drawn = chart.draw_series([Polygon::new(band, colour.mix(shade).filled())])?;
                if curve.style == Style::Band {
                    drawn.label(curve.name.clone()).legend(move |(x, y)| {
                        Rectangle::new([(x, y - 5), (x + 20, y + 5)], colour.mix(0.25).filled())
                    });
                }
            }
            if matches!(curve.style, Style::Line | Style::Thin) {
                chart
                    .draw_series([PathElement::new(line.clone(), colour.stroke_width(thick))])?
                    .label(curve.name.clone())
                    .legend(move |(x, y)| {
                        PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(thick))
                    });
            }
            if curve.style == Style::Dots {
                let bars = curve.points.iter().map(|[x, _, low, high]| {
                    PathElement::new([at(*x, *low), at(*x, *high)], colour.stroke_width(1))
                });
                chart.draw_series(bars)?;
            }
            if matches!(curve.style, Style::Line | Style::Dots) {
                let dots = chart.draw_series(line.iter().map(|at| Circle::new(*at, 3, colour.filled())))?;
                if curve.style == Style::Dots {
                    dots.label(curve.name.clone())
                        .legend(move |(x, y)| Circle::new((x + 10, y), 3, colour.filled()));
                }
            }
        }
        for mark in &self.marks {
            let at = (x.place(mark.x), y.place(mark.y));
            let red = RGBColor(200, 0, 0);
            // Written towards the middle of the panel.
            let (along, side) =
                if at.0 > f64::midpoint(left, right) { (-9, HPos::Right) } else { (9, HPos::Left) };
            let style = (FONT, 12).into_font().color(&red).pos(Pos::new(side, VPos::Center));
            let drawn = EmptyElement::at(at)
                + Cross::new((0, 0), 5, red.stroke_width(2))
                + Text::new(mark.name.clone(), (along, -9), style);
            chart.draw_series([drawn])?;
        }
        if self.curves.iter().any(|curve| !curve.name.is_empty()) {
            chart
                .configure_series_labels()
                .position(self.legend_place(low, high))
                .background_style(WHITE.mix(0.8))
                .border_style(RGBColor(200, 200, 200))
                .label_font((FONT, 12))
                .draw()?;
        }
        Ok(())
    }

    /// The corner with the fewest points.
    fn legend_place(&self, low: f64, high: f64) -> SeriesLabelPosition {
        let [(left, right), _] = self.ranges();
        let corners = [
            (SeriesLabelPosition::UpperRight, true, true),
            (SeriesLabelPosition::UpperLeft, false, true),
            (SeriesLabelPosition::LowerLeft, false, false),
            (SeriesLabelPosition::LowerRight, true, false),
        ];
        let (x, y) = (self.x_scale, self.y_scale);
        let taken = |to_right: bool, up: bool| {
            let points = self.curves.iter().flat_map(|curve| &curve.points);
            let within = points.filter(|[at_x, at_y, ..]| {
                let across = (x.place(*at_x) - left) / (right - left);
                let above = (y.place(*at_y) - low) / (high - low);
                (across > 0.5) == to_right && (above > 0.5) == up
            });
            within.count()
        };
        let best = corners.into_iter().min_by_key(|(_, to_right, up)| taken(*to_right, *up));
        best.map_or(SeriesLabelPosition::UpperRight, |(place, ..)| place)
    }
}
