//! Rendering of a picture as an SVG document. Each curve is a group of class `series` with its name as title; each entry of a legend a
//! group of class `legend`. The document has a title and a description for screen readers.

use std::fmt::Write as _;

use svg::node::element::Element;
use svg::node::{Node, Text};

use super::curve_style::{CurveStyle, Marker};
use super::label::{Label, labels};
use super::layout::{
    AXIS_SIZE, CAPTION_SIZE, Entry, HEADING_SIZE, LEGEND_SIZE, Layout, NOTE_SIZE, PlacedPanel, SAMPLE,
    Sample, TICK_SIZE, TITLE_SIZE, WIDTH, named,
};
use super::text::number;
use super::{Curve, CurveKind, Panel, Picture, Scale};
use crate::statistics::count;

/// Half the size of a marker.
const RADIUS: f64 = 2.6;
/// Half the length of the stroke across the end of an error bar.
const CAP: f64 = 1.8;
const FONT: &str = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";
const GREY: &str = "#555555";
const GRID: &str = "#dddddd";
const MARK: &str = "#b00000";

/// Element with these attributes.
macro_rules! node {
    ($name:expr $(, $key:literal: $value:expr)*) => {{
        let mut node = Element::new($name);
        $(node.assign($key, $value);)*
        node
    }};
}

fn group(class: &str) -> Element {
    node!("g", "class": class)
}

/// Element that contains only text.
fn words(name: &str, text: &str) -> Element {
    let mut element = Element::new(name);
    element.append(Text::new(text));
    element
}

/// A line of text; `anchor` is `start`, `middle` or `end`.
fn text(text: &str, (x, y): (f64, f64), size: f64, anchor: &str) -> Element {
    let mut element = words("text", text);
    for (name, value) in
        [("x", number(x)), ("y", number(y)), ("font-size", number(size)), ("text-anchor", anchor.to_owned())]
    {
        element.assign(name, value);
    }
    element
}

/// Distance of the baseline below the middle of a line of text, as a fraction of the font size.
const BASELINE: f64 = 0.35;

fn line(points: &[(f64, f64)], colour: &str, thick: f64, dash: &str) -> Element {
    let mut path = String::new();
    for (place, (x, y)) in points.iter().enumerate() {
        let _ = write!(path, "{}{},{}", if place == 0 { "M" } else { "L" }, number(*x), number(*y));
    }
    let mut element = node!("path", "d": path, "fill": "none", "stroke": colour,
        "stroke-width": number(thick), "stroke-linejoin": "round");
    if !dash.is_empty() {
        element.assign("stroke-dasharray", dash);
    }
    element
}

fn marker(shape: Marker, (x, y): (f64, f64), colour: &str) -> Element {
    let (path, filled) = shape.path(x, y, RADIUS);
    let fill = if filled { colour } else { "#ffffff" };
    node!("path", "class": "marker", "d": path, "fill": fill, "stroke": colour, "stroke-width": "1")
}

/// Marked point: an asterisk, which no curve uses.
fn asterisk((x, y): (f64, f64)) -> Element {
    let mut path = String::new();
    for (dx, dy) in [(0.0, 1.0), (0.87, 0.5), (0.87, -0.5)] {
        let (dx, dy): (f64, f64) = (dx * RADIUS * 1.6, dy * RADIUS * 1.6);
        let _ = write!(path, "M{},{}L{},{}", number(x - dx), number(y - dy), number(x + dx), number(y + dy));
    }
    node!("path", "d": path, "fill": "none", "stroke": MARK, "stroke-width": "1.3")
}

pub(super) fn document(picture: &Picture) -> String {
    let layout = Layout::of(picture);
    let mut root = node!("svg", "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": format!("0 0 {} {}", number(WIDTH), number(layout.height)),
        "width": number(WIDTH * 2.0), "height": number(layout.height * 2.0),
        "role": "img", "aria-labelledby": "title description", "font-family": FONT);
    let mut title = words("title", &picture.title);
    title.assign("id", "title");
    root.append(title);
    let mut description = words("desc", &description(picture));
    description.assign("id", "description");
    root.append(description);
    root.append(node!("rect", "width": number(WIDTH), "height": number(layout.height), "fill": "#ffffff"));
    for (y, line) in &layout.title {
        let mut title = text(line, (WIDTH / 2.0, *y), TITLE_SIZE, "middle");
        title.assign("font-weight", "bold");
        root.append(title);
    }
    for placed in &layout.panels {
        root.append(panel(placed));
    }
    for entry in &layout.legend {
        root.append(legend(entry));
    }
    for (y, line) in &layout.caption {
        let mut caption = text(line, (8.0, *y), CAPTION_SIZE, "start");
        caption.assign("fill", GREY);
        root.append(caption);
    }
    format!("{root}\n")
}

fn panel(placed: &PlacedPanel<'_>) -> Element {
    let mut all = group("panel");
    let plot = placed.plot;
    axes(placed, &mut all);
    let markers = placed.markers(RADIUS);
    let curves: Vec<(&Curve, &Vec<(f64, f64)>)> = placed.panel.drawn().zip(&markers).collect();
    // Bands first, then lines, then markers. Solid lines are below the broken ones and visible through their gaps.
    let mut bands = group("bands");
    for (curve, _) in &curves {
        if let Some(band) = band(placed, curve) {
            bands.append(band);
        }
    }
    all.append(bands);
    let lines = curves.iter().filter(|(curve, _)| curve.style != CurveKind::Band);
    let mut series: Vec<(bool, Element)> = lines.map(|(curve, at)| self::series(placed, curve, at)).collect();
    series.sort_by_key(|(is_broken, _)| *is_broken);
    series.into_iter().for_each(|(_, series)| all.append(series));
    for (curve, at) in &curves {
        let style = curve.look();
        let Some(shape) = style.marker else { continue };
        let mut group = group("markers");
        for ((x, _), [value, _, low, high]) in at.iter().zip(&curve.points) {
            if high > low {
                let [low, high] = [low, high].map(|end| placed.at(*value, *end).1);
                group.append(error_bar(*x, low, high, style.colour));
            }
        }
        at.iter().for_each(|at| group.append(marker(shape, *at, style.colour)));
        all.append(group);
    }
    for mark in named(placed.panel) {
        all.append(asterisk(placed.at(mark.x, mark.y)));
    }
    // Marks whose name is in the legend follow the curves' markers.
    for at in markers.iter().skip(curves.len()).flatten() {
        all.append(asterisk(*at));
    }
    for label in labels(placed, &markers, RADIUS) {
        all.append(name(&label));
    }
    all.append(node!("rect",
        "x": number(plot.left), "y": number(plot.top),
        "width": number(plot.right - plot.left), "height": number(plot.bottom - plot.top),
        "fill": "none", "stroke": "#000000", "stroke-width": "0.7"));
    all
}

fn axes(placed: &PlacedPanel<'_>, all: &mut Element) {
    let plot = placed.plot;
    let panel = placed.panel;
    if !panel.title.is_empty() {
        let mut title =
            text(&panel.title, ((plot.left + plot.right) / 2.0, plot.top - 5.0), HEADING_SIZE, "middle");
        title.assign("font-weight", "bold");
        all.append(title);
    }
    for tick in &placed.x_ticks {
        all.append(line(&[(tick.at, plot.top), (tick.at, plot.bottom)], GRID, 0.5, ""));
        for (row, words) in tick.lines.iter().enumerate() {
            let y = (TICK_SIZE * 1.25).mul_add(count(row), plot.bottom + 3.0 + TICK_SIZE);
            all.append(text(words, (tick.at, y), TICK_SIZE, "middle"));
        }
    }
    for tick in &placed.y_ticks {
        all.append(line(&[(plot.left, tick.at), (plot.right, tick.at)], GRID, 0.5, ""));
        for words in &tick.lines {
            let at = (plot.left - 4.0, TICK_SIZE.mul_add(BASELINE, tick.at));
            all.append(text(words, at, TICK_SIZE, "end"));
        }
    }
    let middle = ((plot.left + plot.right) / 2.0, (plot.top + plot.bottom) / 2.0);
    all.append(text(&panel.x_label, (middle.0, placed.x_label), AXIS_SIZE, "middle"));
    let mut label = text(&panel.y_label, (0.0, AXIS_SIZE * BASELINE), AXIS_SIZE, "middle");
    label.assign(
        "transform",
        format!("translate({} {}) rotate(-90)", number(placed.y_label), number(middle.1)),
    );
    all.append(label);
    for (y, words) in &placed.notes {
        let mut note = text(words, (placed.cell.left + 3.0, *y), NOTE_SIZE, "start");
        note.assign("font-style", "italic");
        all.append(note);
    }
}

/// Confidence band, if the curve has one.
fn band(placed: &PlacedPanel<'_>, curve: &Curve) -> Option<Element> {
    if !matches!(curve.style, CurveKind::Line | CurveKind::Band) {
        return None;
    }
    let upper = curve.points.iter().map(|[x, _, _, high]| placed.at(*x, *high));
    let lower = curve.points.iter().rev().map(|[x, _, low, _]| placed.at(*x, *low));
    let corners: Vec<String> =
        upper.chain(lower).map(|(x, y)| format!("{},{}", number(x), number(y))).collect();
    let shade = if curve.style == CurveKind::Band { "0.16" } else { "0.25" };
    let mut band =
        node!("polygon", "points": corners.join(" "), "fill": curve.look().colour, "fill-opacity": shade);
    if curve.style == CurveKind::Band {
        let mut series = group("series");
        // With an outline, because shades alone are the same in grey.
        band.assign("stroke", curve.look().colour);
        band.assign("stroke-width", "0.4");
        band.assign("stroke-dasharray", OUTLINES.get(curve.colour % OUTLINES.len()).copied().unwrap_or(""));
        series.append(words("title", &curve.name));
        series.append(band);
        return Some(series);
    }
    Some(band)
}

/// Interval of a point: a bar with a stroke across each end.
fn error_bar(x: f64, low: f64, high: f64, colour: &str) -> Element {
    let mut path = format!("M{},{}L{},{}", number(x), number(low), number(x), number(high));
    for end in [low, high] {
        let _ = write!(path, "M{},{}L{},{}", number(x - CAP), number(end), number(x + CAP), number(end));
    }
    node!("path", "class": "interval", "d": path, "fill": "none", "stroke": colour, "stroke-width": "0.7")
}

/// Dash patterns of bands' outlines.
const OUTLINES: [&str; 4] = ["1 1", "4 1", "2 3", "4 1 1 1"];

/// Line of a curve, and whether it has gaps.
fn series(placed: &PlacedPanel<'_>, curve: &Curve, markers: &[(f64, f64)]) -> (bool, Element) {
    let mut series = group("series");
    let style = curve.look();
    series.append(words("title", &curve.name));
    if let Some(dash) = style.dash {
        let points: Vec<(f64, f64)> = curve.points.iter().map(|[x, y, ..]| placed.at(*x, *y)).collect();
        series.append(line(&points, style.colour, thick(&style), dash));
    }
    let shape = style.marker.map_or_else(String::new, |marker| format!("{marker:?}"));
    series.assign("data-marker", shape);
    series.assign(
        "data-points",
        if markers.is_empty() { curve.points.len() } else { markers.len() }.to_string(),
    );
    (style.dash.is_some_and(|dash| !dash.is_empty()), series)
}

const fn thick(style: &CurveStyle) -> f64 {
    if style.thin { 0.9 } else { 1.3 }
}

/// Name of a marked point.
fn name(label: &Label) -> Element {
    let mut all = group("label");
    let (end, is_far) = label.end();
    if is_far {
        all.append(line(&[label.of, end], MARK, 0.5, "1 1"));
    }
    let at = (label.at.0, NOTE_SIZE.mul_add(BASELINE, label.at.1));
    // White margin around the letters, to separate them from the grid lines: an element of its own below the text, because not every
    // renderer supports `paint-order`.
    let mut margin = text(&label.text, at, NOTE_SIZE, "start");
    for (name, value) in
        [("fill", "#ffffff"), ("stroke", "#ffffff"), ("stroke-width", "2"), ("aria-hidden", "true")]
    {
        margin.assign(name, value);
    }
    all.append(margin);
    let mut words = text(&label.text, at, NOTE_SIZE, "start");
    words.assign("fill", MARK);
    all.append(words);
    all
}

fn legend(entry: &Entry<'_>) -> Element {
    let mut all = group("legend");
    let (from, to) = ((entry.x, entry.y), (entry.x + SAMPLE, entry.y));
    let middle = (entry.x + SAMPLE / 2.0, entry.y);
    match entry.what {
        Sample::Curve(curve) => {
            let style = curve.look();
            if curve.style == CurveKind::Band {
                let mut sample = node!("rect",
                    "x": number(from.0), "y": number(from.1 - 3.5), "width": number(SAMPLE), "height": "7",
                    "fill": style.colour, "fill-opacity": "0.16", "stroke": style.colour, "stroke-width": "0.4");
                let outline = OUTLINES.get(curve.colour % OUTLINES.len()).copied().unwrap_or("");
                sample.assign("stroke-dasharray", outline);
                all.append(sample);
            }
            if let Some(dash) = style.dash {
                all.append(line(&[from, to], style.colour, thick(&style), dash));
            }
            if let Some(shape) = style.marker {
                all.append(marker(shape, middle, style.colour));
            }
        }
        Sample::Mark(_) => all.append(asterisk(middle)),
    }
    let at = (to.0 + 5.0, LEGEND_SIZE.mul_add(BASELINE, entry.y));
    all.append(text(entry.what.name(), at, LEGEND_SIZE, "start"));
    all
}

/// Description of the picture in words: the quantities on the axes, the ends of each curve, and the caption.
fn description(picture: &Picture) -> String {
    let mut words = String::new();
    for panel in &picture.panels {
        if !panel.title.is_empty() {
            let _ = write!(words, "{}: ", panel.title);
        }
        let _ = write!(words, "{} over {}{}.", panel.y_label, panel.x_label, logarithmic(panel));
        for curve in panel.drawn() {
            let _ = write!(words, " {}: {}.", curve.name, ends(panel, curve));
        }
        for mark in &panel.marks {
            let (x, y) = spoken(panel, mark.x, mark.y);
            let _ = write!(words, " Marked: {} ({y} at {x}).", mark.name);
        }
        for note in panel.all_notes() {
            let _ = write!(words, " {note}");
        }
        words.push(' ');
    }
    words.push_str(&picture.caption.join(" "));
    words.trim_end().to_owned()
}

fn logarithmic(panel: &Panel) -> &'static str {
    if panel.y_scale == Scale::Decades { " (logarithmic scale)" } else { "" }
}

fn spoken(panel: &Panel, x: f64, y: f64) -> (String, String) {
    // Points of a category may be drawn beside its position.
    let x = if let Scale::Names(_) = panel.x_scale { x.round() } else { x };
    (panel.x_scale.label(panel.x_scale.place(x)), panel.y_scale.label(panel.y_scale.place(y)))
}

fn ends(panel: &Panel, curve: &Curve) -> String {
    let spoken = |[x, y, ..]: &[f64; 4]| spoken(panel, *x, *y);
    if let Scale::Names(_) = panel.x_scale {
        let all: Vec<String> = curve.points.iter().map(spoken).map(|(x, y)| format!("{y} for {x}")).collect();
        return all.join(", ");
    }
    match (curve.points.first().map(spoken), curve.points.last().map(spoken)) {
        (Some((x, y)), Some((to_x, to_y))) if x != to_x => format!("from {y} at {x} to {to_y} at {to_x}"),
        (Some((x, y)), _) => format!("{y} at {x}"),
        (None, _) => "no points".to_owned(),
    }
}
