//! Labels of single points, placed clear of curves, markers and other labels.

use super::layout::{NOTE_SIZE, PlacedPanel, Rect, named};
use super::text::width;
use crate::statistics::count;

/// Step between the distances that are tried, in units.
const STEP: f64 = 3.0;
/// Maximum distance of a label without a line to its point.
pub(super) const NEAR: f64 = 14.0;

/// Label: text, middle of its left end, and the point that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Label {
    pub(super) text: String,
    pub(super) at: (f64, f64),
    pub(super) of: (f64, f64),
    pub(super) area: Rect,
}

impl Label {
    /// End of the line to its point, and whether a line is needed.
    pub(super) fn end(&self) -> ((f64, f64), bool) {
        let (x, y) = self.of;
        let nearest = (x.clamp(self.area.left, self.area.right), y.clamp(self.area.top, self.area.bottom));
        (nearest, (nearest.0 - x).hypot(nearest.1 - y) > NEAR)
    }
}

/// Labels of a panel's marks. `markers` are the positions of the curves' markers.
pub(super) fn labels(placed: &PlacedPanel<'_>, markers: &[Vec<(f64, f64)>], radius: f64) -> Vec<Label> {
    let around = |(x, y): (f64, f64)| Rect { left: x, right: x, top: y, bottom: y }.grown(radius + 1.0);
    let mut taken: Vec<Rect> = markers.iter().flatten().map(|at| around(*at)).collect();
    taken.extend(placed.panel.marks.iter().map(|mark| around(placed.at(mark.x, mark.y)).grown(1.0)));
    let lines: Vec<Vec<(f64, f64)>> = placed
        .panel
        .drawn()
        .map(|curve| curve.points.iter().map(|[x, y, ..]| placed.at(*x, *y)).collect())
        .collect();
    let crossed = |area: &Rect| {
        lines.iter().any(|line| {
            line.windows(2).any(|pair| matches!(pair, [from, to] if area.is_crossed(*from, *to)))
                || matches!(line.as_slice(), [at] if area.is_crossed(*at, *at))
        })
    };
    let mut found = Vec::new();
    for mark in named(placed.panel) {
        let of = placed.at(mark.x, mark.y);
        let (wide, high) = (width(&mark.name, NOTE_SIZE), NOTE_SIZE);
        let plot = placed.plot.grown(-2.0);
        let area =
            |x: f64, y: f64| Rect { left: x, right: x + wide, top: y - high / 2.0, bottom: y + high / 2.0 };
        let across = steps(plot.left, plot.right - wide);
        let down = steps(plot.top + high / 2.0, plot.bottom - high / 2.0);
        let free = across.flat_map(|x| down.clone().map(move |y| (x, y))).filter(|(x, y)| {
            let area = area(*x, *y);
            !taken.iter().any(|other| other.meets(&area)) && !crossed(&area.grown(1.0))
        });
        let distance = |(x, y): &(f64, f64)| {
            let area = area(*x, *y);
            let nearest = (of.0.clamp(area.left, area.right), of.1.clamp(area.top, area.bottom));
            (nearest.0 - of.0).hypot(nearest.1 - of.1)
        };
        // If no position is free, the upper right corner is used and may cover something.
        let at = free.min_by(|one, other| distance(one).total_cmp(&distance(other)));
        let at = at.unwrap_or((plot.right - wide, plot.top + high / 2.0));
        let area = area(at.0, at.1);
        taken.push(area.grown(2.0));
        found.push(Label { text: mark.name.clone(), at, of, area });
    }
    found
}

/// Numbers from `first` to `last`.
fn steps(first: f64, last: f64) -> impl Iterator<Item = f64> + Clone {
    (0_usize..400).map(move |number| STEP.mul_add(count(number), first)).take_while(move |at| *at <= last)
}
