//! Data and picture of a grid.

use std::fmt::Write as _;

use super::{GUESS, GridCell, GridPoint, Options};
use crate::figures::picture::{Curve, Extent, Panel, Picture, Scale};
use crate::numbers::float;

/// Colours of the cells of a point, in their order; those of the other figures.
const COLOURS: [usize; 6] = [4, 0, 1, 3, 2, 7];

/// Returns one line per point: the axes, the default's ratio to the best scheme, and the median of each scheme in microseconds.
#[must_use]
pub fn csv(points: &[GridPoint]) -> String {
    let mut text = "destinations,disorder,loss,size_bytes,runs,ratio,best".to_owned();
    for cell in points.first().map(|point| &point.cells).into_iter().flatten() {
        let _ = write!(text, ",{}_us,{}_packets", cell.scheme, cell.scheme);
    }
    text.push('\n');
    for point in points {
        let GridPoint { size, loss, disorder, destinations, runs, .. } = point;
        let ratio = point.ratio().map_or_else(String::new, |ratio| format!("{ratio:.3}"));
        let best = point.best().map_or("", |cell| cell.scheme);
        let _ = write!(text, "{destinations},{disorder},{loss},{size},{runs},{ratio},{best}");
        for cell in &point.cells {
            let median = cell.median_us.map_or_else(String::new, |median| format!("{median:.3}"));
            let _ = write!(text, ",{median},{:.3}", cell.packets_ratio);
        }
        text.push('\n');
    }
    text
}

/// Returns one panel per disorder and number of destinations: by size, the largest ratio of each scheme's time to the best scheme's time
/// over all losses.
#[must_use]
pub fn picture(points: &[GridPoint], options: &Options) -> Picture {
    let mut groups: Vec<(u32, u32)> =
        points.iter().map(|point| (point.disorder, point.destinations)).collect();
    groups.sort_unstable();
    groups.dedup();
    let panels = groups.into_iter().map(|group| panel(points, group)).collect();
    let losses = points.iter().map(|point| point.loss).fold(0.0, f64::max);
    Picture {
        title: "Each scheme's time, divided by the best scheme's".to_owned(),
        caption: vec![
            format!(
                "Largest ratio over losses of 0 to {} % of data and control packets; 1: the best scheme at each loss. Medians of {} runs \
                 of 16 MiB, more of shorter transfers; seed {}.",
                losses * 100.0,
                options.runs,
                options.seed
            ),
            format!(
                "80 Gbit/s, 800 ns one way, packets of 512 bytes, exponential delay of the given disorder, configured round trip {} µs. \
                 registry is the default scheme, registry-literal its form without evidence by order (source 001).",
                GUESS.get() / 1000
            ),
        ],
        columns: 2,
        panels,
    }
}

fn panel(points: &[GridPoint], (disorder, destinations): (u32, u32)) -> Panel {
    let here: Vec<&GridPoint> = points
        .iter()
        .filter(|point| (point.disorder, point.destinations) == (disorder, destinations))
        .collect();
    let mut sizes: Vec<u64> = here.iter().map(|point| point.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let names = here.first().map(|point| &point.cells).into_iter().flatten().map(|cell| cell.scheme);
    let curves = names.zip(COLOURS).enumerate().map(|(at, (name, colour))| {
        let worst = |size: u64| {
            let same = here.iter().filter(move |point| point.size == size);
            same.map(|point| slowness(point, at)).fold(0.0, f64::max)
        };
        Curve::new(name, colour).points(sizes.iter().map(|size| (float(*size), worst(*size), 0.0)))
    });
    let plural = if destinations == 1 { "" } else { "s" };
    Panel {
        title: format!("disorder {disorder}, {destinations} destination{plural}"),
        x_label: "size of a transfer".to_owned(),
        y_label: "time / best time".to_owned(),
        x_scale: Scale::Bytes,
        y_scale: Scale::Decades,
        y_extent: Extent::Between(0.9, 30.0),
        curves: curves.collect(),
        ..Panel::default()
    }
}

/// Median of the cell at this position, divided by the best one; infinite if the scheme failed.
fn slowness(point: &GridPoint, at: usize) -> f64 {
    let median = |cell: Option<&GridCell>| cell.and_then(|cell| cell.median_us).unwrap_or(f64::INFINITY);
    median(point.cells.get(at)) / median(point.best())
}
