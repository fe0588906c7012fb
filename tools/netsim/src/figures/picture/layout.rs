//! Layout of a picture: panels in rows, space for their labels, legends, notes and caption.

use super::text::{broken, width, wrapped};
use super::{Curve, CurveKind, Extent, Mark, Panel, Picture, Scale};
use crate::statistics::count;

/// Width of a picture in units: four per millimetre of a paper's column.
pub const WIDTH: f64 = 340.0;

pub(super) const TITLE_SIZE: f64 = 11.0;
pub(super) const HEADING_SIZE: f64 = 9.5;
pub(super) const AXIS_SIZE: f64 = 9.0;
pub(super) const TICK_SIZE: f64 = 8.5;
pub(super) const LEGEND_SIZE: f64 = 8.5;
pub(super) const NOTE_SIZE: f64 = 8.0;
pub(super) const CAPTION_SIZE: f64 = 8.0;
/// Line spacing, as a multiple of the font size.
const LINE: f64 = 1.25;
const MARGIN: f64 = 8.0;
/// Width of a curve's sample in the legend.
pub(super) const SAMPLE: f64 = 26.0;
const GAP: f64 = 5.0;
/// Heights of plots: a single one, one of several below each other, one beside others.
const SINGLE_PLOT_HEIGHT: f64 = 190.0;
const STACKED_PLOT_HEIGHT: f64 = 118.0;
const SIDE_BY_SIDE_PLOT_HEIGHT: f64 = 96.0;

/// Rectangle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rect {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Rect {
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// Returns whether the straight line between two points crosses the rectangle.
    pub(super) fn is_crossed(&self, (x0, y0): (f64, f64), (x1, y1): (f64, f64)) -> bool {
        // Liang and Barsky: the part of the line that is inside all four sides.
        let (dx, dy) = (x1 - x0, y1 - y0);
        let (mut from, mut to) = (0.0_f64, 1.0_f64);
        for (step, distance) in
            [(-dx, x0 - self.left), (dx, self.right - x0), (-dy, y0 - self.top), (dy, self.bottom - y0)]
        {
            if step == 0.0 {
                if distance < 0.0 {
                    return false;
                }
            } else if step < 0.0 {
                from = from.max(distance / step);
            } else {
                to = to.min(distance / step);
            }
        }
        from <= to
    }

    pub(super) fn grown(&self, by: f64) -> Self {
        Self { left: self.left - by, top: self.top - by, right: self.right + by, bottom: self.bottom + by }
    }
}

/// Label at a tick: its position along the axis and its lines.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) lines: Vec<String>,
}

/// Panel with its position.
#[derive(Clone, Debug)]
pub(super) struct PlacedPanel<'a> {
    pub(super) panel: &'a Panel,
    /// Area inside the axes.
    pub(super) plot: Rect,
    /// Area of the whole panel.
    pub(super) cell: Rect,
    pub(super) x_ticks: Vec<Tick>,
    pub(super) y_ticks: Vec<Tick>,
    /// Baseline of the x axis label.
    pub(super) x_label: f64,
    /// Middle line of the y axis label.
    pub(super) y_label: f64,
    pub(super) notes: Vec<(f64, String)>,
    x: (f64, f64),
    y: (f64, f64),
}

/// Entry of a legend, with the left end and middle line of its sample.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) what: Sample<'a>,
    pub(super) x: f64,
    pub(super) y: f64,
}

/// Object that a legend entry explains.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sample<'a> {
    Curve(&'a Curve),
    /// Name of several marks.
    Mark(&'a str),
}

impl<'a> Sample<'a> {
    /// Key by which equal entries are recognised.
    fn key(&self) -> (&'a str, Option<(usize, CurveKind)>) {
        match self {
            Self::Curve(curve) => (&curve.name, Some((curve.colour, curve.style))),
            Self::Mark(name) => (name, None),
        }
    }

    pub(super) fn name(&self) -> &'a str {
        match self {
            Self::Curve(curve) => &curve.name,
            Self::Mark(name) => name,
        }
    }
}

/// Picture with all positions.
#[derive(Clone, Debug)]
pub(super) struct Layout<'a> {
    pub(super) height: f64,
    /// Baselines and text lines.
    pub(super) title: Vec<(f64, String)>,
    pub(super) panels: Vec<PlacedPanel<'a>>,
    pub(super) legend: Vec<Entry<'a>>,
    pub(super) caption: Vec<(f64, String)>,
}

/// Marks whose name stands beside them.
pub(super) fn named(panel: &Panel) -> impl Iterator<Item = &Mark> {
    panel.marks.iter().filter(|mark| !mark.name.is_empty() && !is_shared(panel, mark))
}

fn is_shared(panel: &Panel, mark: &Mark) -> bool {
    panel.marks.iter().filter(|other| other.name == mark.name).count() > 1
}

/// Everything that the legend of a panel explains.
fn samples(panel: &Panel) -> Vec<Sample<'_>> {
    let mut all: Vec<_> = panel.drawn().filter(|curve| !curve.name.is_empty()).map(Sample::Curve).collect();
    let mut shared: Vec<&str> = Vec::new();
    for mark in panel.marks.iter().filter(|mark| is_shared(panel, mark)) {
        if !shared.contains(&mark.name.as_str()) {
            shared.push(&mark.name);
        }
    }
    all.extend(shared.into_iter().map(Sample::Mark));
    all
}

/// Common legend of several panels, if one of them has all entries of the others; otherwise `None`.
fn shared<'a>(panels: &[&'a Panel]) -> Option<Vec<Sample<'a>>> {
    let all: Vec<Vec<Sample<'a>>> = panels.iter().map(|panel| samples(panel)).collect();
    let longest = all.iter().max_by_key(|samples| samples.len())?;
    let has = |sample: &Sample<'_>| longest.iter().any(|other| other.key() == sample.key());
    all.iter().flatten().all(has).then(|| longest.clone())
}

impl<'a> Layout<'a> {
    pub(super) fn of(picture: &'a Picture) -> Self {
        let columns = picture.columns.clamp(1, 2).min(picture.panels.len().max(1));
        let across = (2.0f64.mul_add(-MARGIN, WIDTH)) / count(columns);
        let tall = match (picture.panels.len(), columns) {
            (..=1, _) => SINGLE_PLOT_HEIGHT,
            (_, 1) => STACKED_PLOT_HEIGHT,
            _ => SIDE_BY_SIDE_PLOT_HEIGHT,
        };
        let mut y = MARGIN;
        let line = |y: &mut f64, size: f64| {
            *y += size * LINE;
            *y - size * 0.3
        };
        let title = wrapped(&picture.title, TITLE_SIZE * 1.06, 2.0f64.mul_add(-MARGIN, WIDTH));
        let title = title.into_iter().map(|text| (line(&mut y, TITLE_SIZE), text)).collect();
        y += 4.0;
        let (mut panels, mut legend) = (Vec::new(), Vec::new());
        let left = |column: usize| across.mul_add(count(column), MARGIN);
        let rows: Vec<&'a [Panel]> = picture.panels.chunks(columns).collect();
        // Plots above each other are left-aligned.
        let widest = |column: usize| {
            let panels = rows.iter().filter_map(|row| row.get(column));
            panels.map(|panel| widest_number(panel, tall)).fold(10.0_f64, f64::max)
        };
        // Rows whose panels share a legend, which stands below the last one.
        let mut group: Vec<&'a Panel> = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            let headed = row.iter().any(|panel| !panel.title.is_empty());
            let top = y;
            for (column, panel) in row.iter().enumerate() {
                let cell = Rect { left: left(column), top, right: left(column) + across, bottom: top };
                let placed = PlacedPanel::of(panel, cell, tall, headed, widest(column));
                y = y.max(placed.cell.bottom);
                panels.push(placed);
            }
            group.extend(row.iter());
            let next = rows.get(number + 1).copied().unwrap_or_default();
            let longer: Vec<&'a Panel> = group.iter().copied().chain(next).collect();
            if !next.is_empty() && shared(&longer).is_some() {
                y += 6.0;
                continue;
            }
            let below = y;
            if let Some(samples) = shared(&group) {
                let (entries, end) = entries(&samples, MARGIN, WIDTH - MARGIN, below);
                legend.extend(entries);
                y = end;
            } else {
                // Possible only with a single row.
                for (column, panel) in row.iter().enumerate() {
                    let (entries, end) = entries(&samples(panel), left(column), left(column) + across, below);
                    legend.extend(entries);
                    y = y.max(end);
                }
            }
            group.clear();
            y += 6.0;
        }
        let lines = picture
            .caption
            .iter()
            .flat_map(|text| wrapped(text, CAPTION_SIZE, 2.0f64.mul_add(-MARGIN, WIDTH)));
        let caption = lines.map(|text| (line(&mut y, CAPTION_SIZE), text)).collect();
        Self { height: (y + MARGIN).ceil(), title, panels, legend, caption }
    }
}

/// Entries of a legend in columns of equal width, and the end of the legend.
fn entries<'a>(samples: &[Sample<'a>], left: f64, right: f64, top: f64) -> (Vec<Entry<'a>>, f64) {
    if samples.is_empty() {
        return (Vec::new(), top);
    }
    let widths = samples.iter().map(|sample| SAMPLE + GAP + width(sample.name(), LEGEND_SIZE) + 8.0);
    let widest = widths.fold(1.0_f64, f64::max);
    let fit = (1..=samples.len()).rev().find(|fit| widest * count(*fit) <= right - left).unwrap_or(1);
    // The minimum number of rows, with rows of equal length.
    let rows = samples.len().div_ceil(fit);
    let columns = samples.len().div_ceil(rows);
    let each = ((right - left) / count(columns)).min(widest + 14.0);
    let begin = left + (right - left - each * count(columns)) / 2.0;
    let height = LEGEND_SIZE * 1.4;
    let place = |(number, what): (usize, &Sample<'a>)| Entry {
        what: *what,
        x: each.mul_add(count(number % columns), begin),
        y: height.mul_add(count(number / columns) + 0.5, top + 3.0),
    };
    (samples.iter().enumerate().map(place).collect(), height.mul_add(count(rows), top + 4.0))
}

impl<'a> PlacedPanel<'a> {
    /// Places a panel in a cell whose bottom is not yet known; `widest` is the width of the y axis numbers.
    fn of(panel: &'a Panel, cell: Rect, tall: f64, headed: bool, widest: f64) -> Self {
        let [x, y] = ranges(panel);
        let top = cell.top + if headed { HEADING_SIZE * LINE + 3.0 } else { 3.0 };
        let mut plot = Rect { left: 0.0, top, right: cell.right - 9.0, bottom: top + tall };
        let along_y = |place: f64| (y.1 - place) / (y.1 - y.0) * tall + top;
        let y_ticks: Vec<Tick> = y_ticks(panel, tall)
            .into_iter()
            .map(|tick| Tick { at: along_y(tick), lines: vec![panel.y_scale.label(tick)] })
            .collect();
        let y_label = cell.left + AXIS_SIZE * 0.6;
        plot.left = cell.left + AXIS_SIZE * LINE + 3.0 + widest + 5.0;
        let along_x = |place: f64| (place - x.0) / (x.1 - x.0) * (plot.right - plot.left) + plot.left;
        let each = (plot.right - plot.left) / count(names(panel.x_scale).max(1));
        let lines = |tick: f64| {
            let label = panel.x_scale.label(tick);
            if names(panel.x_scale) > 0 { broken(&label, TICK_SIZE, each - 3.0) } else { vec![label] }
        };
        let x_ticks = fitting(panel.x_scale, x, 9.0, |ticks| {
            let ends = ticks.iter().map(|tick| {
                let wide = lines(*tick).iter().map(|line| width(line, TICK_SIZE)).fold(0.0, f64::max);
                (along_x(*tick) - wide / 2.0, along_x(*tick) + wide / 2.0)
            });
            let ends: Vec<(f64, f64)> = ends.collect();
            ends.windows(2).all(|pair| matches!(pair, [one, other] if one.1 + 5.0 <= other.0))
                && ends.last().is_none_or(|last| last.1 <= cell.right + 2.0)
        });
        let x_ticks: Vec<Tick> =
            x_ticks.into_iter().map(|tick| Tick { at: along_x(tick), lines: lines(tick) }).collect();
        let deepest = x_ticks.iter().map(|tick| tick.lines.len()).max().unwrap_or(1);
        let labels = plot.bottom + 4.0 + TICK_SIZE * LINE * count(deepest);
        let x_label = labels + AXIS_SIZE;
        let mut below = labels + AXIS_SIZE * LINE + 2.0;
        let notes = panel.all_notes();
        let notes = notes.iter().flat_map(|note| wrapped(note, NOTE_SIZE, cell.right - cell.left - 6.0));
        let notes: Vec<(f64, String)> = notes
            .map(|text| {
                below += NOTE_SIZE * LINE;
                (below - NOTE_SIZE * 0.3, text)
            })
            .collect();
        let cell = Rect { bottom: below + 3.0, ..cell };
        Self { panel, plot, cell, x_ticks, y_ticks, x_label, y_label, notes, x, y }
    }

    /// Position of a value of the curves: never outside the axes.
    pub(super) fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let share = |(low, high): (f64, f64), place: f64| ((place - low) / (high - low)).clamp(0.0, 1.0);
        let Rect { left, top, right, bottom } = self.plot;
        (
            share(self.x, self.panel.x_scale.place(x)).mul_add(right - left, left),
            share(self.y, self.panel.y_scale.place(y)).mul_add(top - bottom, bottom),
        )
    }

    /// Positions of the markers of each curve, followed by those of the marks whose name is in the legend. Markers that would cover each
    /// other are placed side by side.
    pub(super) fn markers(&self, radius: f64) -> Vec<Vec<(f64, f64)>> {
        let mut all: Vec<Vec<(f64, f64)>> = self
            .panel
            .drawn()
            .map(|curve| {
                let marked = matches!(curve.style, CurveKind::Line | CurveKind::Dots);
                curve.points.iter().filter(|_| marked).map(|[x, y, ..]| self.at(*x, *y)).collect()
            })
            .collect();
        let marks = self.panel.marks.iter().filter(|mark| is_shared(self.panel, mark));
        all.push(marks.map(|mark| self.at(mark.x, mark.y)).collect());
        let mut flat: Vec<(usize, usize, f64, f64)> = Vec::new();
        for (curve, points) in all.iter().enumerate() {
            flat.extend(points.iter().enumerate().map(|(point, (x, y))| (curve, point, *x, *y)));
        }
        // From left to right, from top to bottom: related markers are neighbours then.
        flat.sort_by(|one, other| one.2.total_cmp(&other.2).then(one.3.total_cmp(&other.3)));
        let columns: Vec<&[(usize, usize, f64, f64)]> =
            flat.chunk_by(|one, other| other.2 - one.2 < 0.5).collect();
        for (number, column) in columns.iter().enumerate() {
            let x = column.first().map_or(0.0, |first| first.2);
            let beside = |other: Option<&&[(usize, usize, f64, f64)]>, else_at: f64| {
                other.and_then(|other| other.first()).map_or(else_at, |first| first.2)
            };
            // This column extends half the way to its neighbours.
            let before = number.checked_sub(1).and_then(|before| columns.get(before));
            let (low, high) = (
                beside(before, self.plot.left - radius),
                beside(columns.get(number + 1), self.plot.right + radius),
            );
            for group in column.chunk_by(|one, other| other.3 - one.3 < radius * 1.9) {
                let space = ((x - low).min(high - x) * 2.0 - 2.0 * radius).max(0.0);
                let members = count(group.len());
                let step = (radius * 2.1).min(space * 0.9 / members);
                let mut group: Vec<_> = group.to_vec();
                group.sort_by_key(|(curve, point, ..)| (*curve, *point));
                for (place, (curve, point, x, y)) in group.into_iter().enumerate() {
                    let x = step.mul_add(count(place) - (members - 1.0) / 2.0, x);
                    if let Some(at) = all.get_mut(curve).and_then(|points| points.get_mut(point)) {
                        *at = (x, y);
                    }
                }
            }
        }
        all
    }
}

/// Positions of the y axis that get a number in a plot of height `tall`.
fn y_ticks(panel: &Panel, tall: f64) -> Vec<f64> {
    let [_, (low, high)] = ranges(panel);
    fitting(panel.y_scale, (low, high), tall / 17.0, |ticks| {
        let places: Vec<f64> = ticks.iter().map(|tick| (tick - low) / (high - low) * tall).collect();
        apart(&places) > TICK_SIZE * 1.2
    })
}

fn widest_number(panel: &Panel, tall: f64) -> f64 {
    let labels = y_ticks(panel, tall).into_iter().map(|tick| panel.y_scale.label(tick));
    labels.map(|label| width(&label, TICK_SIZE)).fold(0.0, f64::max)
}

const fn names(scale: Scale) -> usize {
    match scale {
        Scale::Names(names) => names.len(),
        _ => 0,
    }
}

/// Smallest distance between neighbours.
fn apart(places: &[f64]) -> f64 {
    let mut sorted = places.to_vec();
    sorted.sort_by(f64::total_cmp);
    let pairs = sorted.windows(2).map(|pair| pair.iter().fold(0.0, |last, at| at - last));
    pairs.fold(f64::INFINITY, f64::min)
}

/// As many ticks as fit; for categories, all of them.
fn fitting(scale: Scale, (low, high): (f64, f64), most: f64, fit: impl Fn(&[f64]) -> bool) -> Vec<f64> {
    if names(scale) > 0 {
        return scale.ticks(low, high, most);
    }
    let numbers = (2..=9_u32).rev().map(f64::from).filter(|number| *number <= most.max(2.0));
    let mut last = Vec::new();
    for number in numbers {
        let ticks = scale.ticks(low, high, number);
        if ticks.len() < 2 {
            continue;
        }
        if fit(&ticks) {
            return ticks;
        }
        last = ticks;
    }
    // The first and the last position.
    let ends = [last.first().copied(), last.last().copied()];
    ends.into_iter().flatten().collect()
}

/// Ranges of the axes, in positions.
pub(super) fn ranges(panel: &Panel) -> [(f64, f64); 2] {
    let all = || panel.drawn().flat_map(|curve| &curve.points);
    let span = |scale: Scale, values: &mut dyn Iterator<Item = f64>, from_zero: bool, margin: f64| {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
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
        let margin = ((high - low) * margin).max(1e-6);
        (if low == 0.0 && from_zero { 0.0 } else { low - margin }, high + margin)
    };
    let mut xs = all().map(|[x, ..]| *x).chain(panel.marks.iter().map(|mark| mark.x));
    let mut ys =
        all().flat_map(|[_, y, low, high]| [*y, *low, *high]).chain(panel.marks.iter().map(|mark| mark.y));
    let x = match panel.x_scale {
        Scale::Names(names) => (-0.5, count(names.len()) - 0.5),
        // Markers that are drawn side by side need some space at both ends.
        scale => span(scale, &mut xs, false, 0.08),
    };
    let y = match panel.y_extent {
        Extent::Between(low, high) => (panel.y_scale.place(low), panel.y_scale.place(high)),
        Extent::FromZero => span(panel.y_scale, &mut ys, true, 0.05),
        Extent::Data => span(panel.y_scale, &mut ys, false, 0.05),
    };
    [x, y].map(|(low, high)| if high > low { (low, high) } else { (low - 0.5, low + 0.5) })
}
