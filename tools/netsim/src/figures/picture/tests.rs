//! Tests properties of every figure's drawing, read from the SVG itself, and of drawings made for one property.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use svg::node::Attributes;
use svg::parser::Event;

use super::layout::{Layout, Rect};
use super::*;
use crate::figures::Figure;
use crate::figures::tests::{make, rendered};

/// Content of a document, as far as the tests need it.
#[derive(Debug, Default)]
struct Document {
    /// Title of the root.
    title: String,
    description: String,
    size: (f64, f64),
    texts: Vec<Words>,
    /// Curves by the number of their panel.
    series: Vec<Series>,
    /// Names in legends.
    legend: Vec<String>,
    panels: usize,
}

/// Line of text and its position.
#[derive(Clone, Debug)]
struct Words {
    text: String,
    area: Rect,
    /// Whether it is the label of a marked point.
    is_label: bool,
    panel: usize,
}

#[derive(Clone, Debug, Default)]
struct Series {
    panel: usize,
    name: String,
    dash: Option<String>,
    width: String,
    marker: String,
    path: Vec<(f64, f64)>,
}

fn number_of(attributes: &Attributes, name: &str) -> f64 {
    attributes.get(name).and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

fn plain(text: &str) -> String {
    text.trim().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

fn area_of(attributes: &Attributes, text: &str) -> Rect {
    let (x, y, size) =
        (number_of(attributes, "x"), number_of(attributes, "y"), number_of(attributes, "font-size"));
    let wide = super::text::width(text, size) * 0.93;
    let left = match attributes.get("text-anchor").map(|anchor| &**anchor) {
        Some("middle") => x - wide / 2.0,
        Some("end") => x - wide,
        _ => x,
    };
    let area = Rect { left, right: left + wide, top: y - size * 0.75, bottom: y + size * 0.2 };
    let Some(transform) = attributes.get("transform") else { return area };
    // A quarter turn to the left around a point: the label of a y axis.
    let place = transform.split(['(', ')']).nth(1).unwrap();
    let place: Vec<f64> = place.split(' ').map(|number| number.parse().unwrap()).collect();
    Rect {
        left: place[0] + area.top,
        right: place[0] + area.bottom,
        top: place[1] - area.right,
        bottom: place[1] - area.left,
    }
}

fn read(svg: &str) -> Document {
    let mut document = Document::default();
    let mut open: Vec<(String, Attributes)> = Vec::new();
    for event in svg::read(svg).unwrap() {
        let class = |at: usize| {
            let group = open.iter().rev().filter(|(name, _)| name == "g").nth(at);
            group.and_then(|(_, attributes)| attributes.get("class")).map(|class| class.to_string())
        };
        match event {
            Event::Tag(name, kind, attributes) => {
                if name == "svg" && attributes.contains_key("viewBox") {
                    let parts: Vec<f64> =
                        attributes["viewBox"].split(' ').map(|part| part.parse().unwrap()).collect();
                    document.size = (parts[2], parts[3]);
                }
                if name == "g" && attributes.get("class").is_some_and(|class| **class == *"panel") {
                    document.panels += 1;
                }
                if name == "g" && attributes.get("class").is_some_and(|class| **class == *"series") {
                    document.series.push(Series {
                        panel: document.panels,
                        marker: attributes.get("data-marker").map(ToString::to_string).unwrap_or_default(),
                        ..Series::default()
                    });
                }
                let in_series = class(0).as_deref() == Some("series");
                if in_series && matches!(name, "path" | "polygon") {
                    let series = document.series.last_mut().unwrap();
                    series.dash =
                        Some(attributes.get("stroke-dasharray").map(ToString::to_string).unwrap_or_default());
                    series.width =
                        attributes.get("stroke-width").map(ToString::to_string).unwrap_or_default();
                    let path = attributes.get("d").map(ToString::to_string).unwrap_or_default();
                    let points = path.split(['M', 'L']).filter_map(|point| point.split_once(','));
                    series.path = points.map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).collect();
                }
                match kind {
                    svg::node::element::tag::Type::Start => open.push((name.to_owned(), attributes)),
                    svg::node::element::tag::Type::End => drop(open.pop()),
                    svg::node::element::tag::Type::Empty => {}
                }
            }
            Event::Text(text) => {
                let text = plain(text);
                let Some((name, attributes)) = open.last() else { continue };
                match (name.as_str(), class(0).as_deref()) {
                    ("title", None) => document.title = text,
                    ("desc", None) => document.description = text,
                    ("title", Some("series")) => document.series.last_mut().unwrap().name = text,
                    // The margin of a label lies below its text.
                    ("text", _) if attributes.get("aria-hidden").is_some() => {}
                    ("text", class) => {
                        assert!(attributes.get("stroke").is_none(), "{text}: a stroke covers the letters");
                        if class == Some("legend") {
                            document.legend.push(text.clone());
                        }
                        document.texts.push(Words {
                            area: area_of(attributes, &text),
                            text,
                            is_label: class == Some("label"),
                            panel: document.panels,
                        });
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    document
}

/// Every figure of the everyday tests with its document, and a picture with every feature of figures.
fn all() -> impl Iterator<Item = &'static (String, Picture, Document)> {
    static ALL: LazyLock<Vec<(String, Picture, Document)>> = LazyLock::new(|| {
        let mut pictures: Vec<(String, Picture)> = rendered()
            .iter()
            .map(|(figure, made)| (figure.name().to_owned(), made.picture.clone()))
            .collect();
        pictures.push(("crowded".to_owned(), crowded()));
        pictures.into_iter().map(|(name, picture)| (name, picture.clone(), read(&picture.svg()))).collect()
    });
    ALL.iter()
}

/// Picture of one figure.
fn drawn(figure: Figure) -> &'static Picture {
    all().find(|(name, ..)| name == figure.name()).map(|(_, picture, _)| picture).unwrap()
}

/// Nine curves, three of which coincide, one of which is empty, and marks with long names on top of them.
fn crowded() -> Picture {
    let curve = |number: usize| {
        let slope = f64::from(u32::try_from(number / 3).unwrap()) + 1.0;
        let points = (0_u32..6).map(move |x| (f64::from(x), slope * f64::from(x * x), 0.5));
        Curve::new(format!("curve {number} < & >"), number).points(points)
    };
    let mut panel = Panel { x_label: "x".to_owned(), y_label: "y".to_owned(), ..Panel::default() };
    panel.curves = (0..9).map(curve).collect();
    panel.curves.push(Curve::new("without points", 9));
    panel.marks = (1_u32..5)
        .map(|x| Mark::new(f64::from(x), f64::from(x * x), format!("a name of some length, {x}")))
        .collect();
    Picture {
        title: "Crowded".to_owned(),
        caption: vec!["A caption.".to_owned()],
        columns: 1,
        panels: vec![panel],
    }
}

#[test]
fn svg_has_title_and_description_of_every_curve() {
    all().for_each(|(name, picture, document)| check_descriptions(name, picture, document));
}

fn check_descriptions(name: &str, picture: &Picture, document: &Document) {
    assert_eq!(document.title, picture.title, "{name}");
    for panel in &picture.panels {
        assert!(document.description.contains(&panel.x_label), "{name}: {}", document.description);
        for curve in panel.drawn() {
            assert!(document.description.contains(&curve.name), "{name}: {}", document.description);
        }
    }
    for line in &picture.caption {
        assert!(document.description.contains(line), "{name}: {line}");
    }
}

#[test]
fn svg_draws_and_explains_each_curve_once_per_panel() {
    all().for_each(|(name, picture, document)| check_curves(name, picture, document));
}

fn check_curves(name: &str, picture: &Picture, document: &Document) {
    assert_eq!(document.panels, picture.panels.len(), "{name}");
    let mut explained: BTreeSet<String> = BTreeSet::new();
    for (number, panel) in (1..).zip(&picture.panels) {
        let names: Vec<&str> = panel.drawn().map(|curve| curve.name.as_str()).collect();
        let drawn: Vec<&Series> = document.series.iter().filter(|series| series.panel == number).collect();
        assert_eq!(drawn.len(), names.len(), "{name}, panel {number}: {drawn:?}");
        for curve in &names {
            assert_eq!(drawn.iter().filter(|series| series.name == *curve).count(), 1, "{name}: {curve}");
        }
        explained.extend(names.iter().map(|name| (*name).to_owned()));
        // A name of several marks stands in the legend, too.
        let marks = panel.marks.iter();
        let shared =
            marks.filter(|mark| panel.marks.iter().filter(|other| other.name == mark.name).count() > 1);
        explained.extend(shared.map(|mark| mark.name.clone()));
    }
    let legend: BTreeSet<String> = document.legend.iter().cloned().collect();
    assert_eq!(legend, explained, "{name}");
}

/// In grey: distinct by dash pattern, width and marker alone.
#[test]
fn svg_series_of_panel_differ_without_colour() {
    all().for_each(|(name, picture, document)| check_styles(name, picture, document));
}

fn check_styles(name: &str, picture: &Picture, document: &Document) {
    for (number, panel) in (1..).zip(&picture.panels) {
        let mut known: BTreeMap<(Option<String>, String, String), String> = BTreeMap::new();
        for series in document.series.iter().filter(|series| series.panel == number) {
            let style = (series.dash.clone(), series.width.clone(), series.marker.clone());
            if let Some(other) = known.insert(style, series.name.clone()) {
                panic!("{name}, {}: {other} and {} have the same style", panel.title, series.name);
            }
        }
    }
}

#[test]
fn first_64_curve_styles_differ_without_colour() {
    let styles: BTreeSet<String> = (0..64)
        .map(|number| {
            let style = CurveStyle::of(number, CurveKind::Line);
            format!("{:?} {:?}", style.dash, style.marker)
        })
        .collect();
    assert_eq!(styles.len(), 64);
}

#[test]
fn svg_texts_do_not_overlap_and_stay_inside() {
    all().for_each(|(name, _, document)| check_texts(name, document));
}

fn check_texts(name: &str, document: &Document) {
    let (wide, high) = document.size;
    for (number, words) in document.texts.iter().enumerate() {
        let area = words.area;
        assert!(
            area.left >= 0.0 && area.top >= 0.0 && area.right <= wide && area.bottom <= high,
            "{name}: {words:?} is outside of {wide} x {high}"
        );
        for other in document.texts.iter().skip(number + 1) {
            assert!(!area.meets(&other.area), "{name}: {words:?} and {other:?}");
        }
    }
}

/// Labels of points cover neither a line nor a marker.
#[test]
fn svg_labels_cover_no_curve() {
    let labels: usize = all().map(|(name, picture, document)| check_labels(name, picture, document)).sum();
    assert!(labels > 8, "{labels} labels");
}

/// Returns the number of labels.
fn check_labels(name: &str, picture: &Picture, document: &Document) -> usize {
    let mut labels = 0;
    let layout = Layout::of(picture);
    for words in document.texts.iter().filter(|words| words.is_label) {
        labels += 1;
        for series in document.series.iter().filter(|series| series.panel == words.panel) {
            for pair in series.path.windows(2) {
                assert!(!words.area.is_crossed(pair[0], pair[1]), "{name}: {words:?} on {}", series.name);
            }
        }
        for (x, y) in layout.panels[words.panel - 1].markers(2.6).iter().flatten() {
            let at = Rect { left: *x, right: *x, top: *y, bottom: *y };
            assert!(!words.area.meets(&at.grown(2.0)), "{name}: {words:?} on a marker");
        }
    }
    labels
}

/// The figures that the everyday tests do not make.
#[test]
#[ignore = "long: 5 s: every figure of a torus"]
fn svg_torus_figures_are_drawn_like_others() {
    let torus = [Figure::TorusLossFree, Figure::TorusLossy, Figure::TorusLossSweep, Figure::TorusReorder];
    for figure in torus {
        let picture = make(figure, 2, 7, 3).picture;
        let (name, document) = (figure.name(), read(&picture.svg()));
        check_descriptions(name, &picture, &document);
        check_curves(name, &picture, &document);
        check_styles(name, &picture, &document);
        check_texts(name, &document);
        check_labels(name, &picture, &document);
    }
}

#[test]
fn coinciding_markers_are_drawn_apart() {
    for (name, picture, _) in all().filter(|(name, ..)| matches!(name.as_str(), "crowded" | "loss-free")) {
        for placed in &Layout::of(picture).panels {
            let all: Vec<(f64, f64)> = placed.markers(2.6).into_iter().flatten().collect();
            for (number, one) in all.iter().enumerate() {
                for other in all.iter().skip(number + 1) {
                    let distance = (one.0 - other.0).hypot(one.1 - other.1);
                    assert!(distance > 2.0, "{name}: {one:?} {other:?}");
                }
            }
        }
    }
}

#[test]
fn curve_without_points_leaves_note() {
    let document = read(&crowded().svg());
    assert!(document.texts.iter().any(|words| words.text.starts_with("without points: not shown")));
    assert!(!document.legend.contains(&"without points".to_owned()));
}

/// The axis starts at the data, not at zero.
#[test]
fn fairness_axis_starts_at_data() {
    let picture = drawn(Figure::Adaptive);
    let panels: Vec<&Panel> =
        picture.panels.iter().filter(|panel| panel.title.contains("fairness")).collect();
    assert_eq!(panels.len(), 2);
    for panel in panels {
        let values: Vec<f64> =
            panel.curves.iter().flat_map(|curve| &curve.points).map(|[_, _, low, _]| *low).collect();
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let lowest = super::layout::ranges(panel)[1].0;
        assert!(
            lowest <= least && least - lowest < 0.1 * (1.05 - lowest),
            "{}: {lowest} {least}",
            panel.title
        );
    }
}

/// The caption explains every symbol that a picture uses: "W: ...", "K = 3: ..." or "T and d: ...".
#[test]
fn caption_defines_every_symbol() {
    let mut found = BTreeSet::new();
    for (figure, made) in rendered() {
        let picture = &made.picture;
        let caption = picture.caption.join(" ");
        let curves = picture.panels.iter().flat_map(|panel| &panel.curves).map(|curve| curve.name.clone());
        let panels =
            picture.panels.iter().flat_map(|panel| [&panel.title, &panel.x_label, &panel.y_label]).cloned();
        let marks = picture.panels.iter().flat_map(|panel| &panel.marks).map(|mark| mark.name.clone());
        let all: Vec<String> =
            curves.chain(panels).chain(marks).chain([picture.title.clone(), caption.clone()]).collect();
        for symbol in ["W", "K", "T", "d", "n", "k", "o", "RTT"] {
            let is_used = all.iter().any(|text| {
                text.split(|letter: char| !letter.is_ascii_alphabetic() && letter != '\'')
                    .any(|word| word == symbol)
            });
            let forms = [format!("{symbol}: "), format!("{symbol} and "), format!("and {symbol}: ")];
            let value = caption
                .split(&format!("{symbol} = "))
                .skip(1)
                .any(|rest| rest.split_once(':').is_some_and(|(value, _)| value.len() < 10));
            if is_used {
                found.insert(symbol);
                let is_defined = value || forms.iter().any(|form| caption.contains(form));
                assert!(is_defined, "{}: {symbol} in {caption}", figure.name());
            }
        }
    }
    assert_eq!(found.len(), 8, "{found:?}");
}

#[test]
fn size_labels_use_largest_binary_unit() {
    for (size, text) in [(512, "512 B"), (32 << 10, "32 KiB"), (16 << 20, "16 MiB"), (1 << 30, "1 GiB")] {
        assert_eq!(binary(size), text);
    }
    for (name, _, document) in all() {
        for words in &document.texts {
            let is_large = |word: &str| word.parse::<u64>().is_ok_and(|number| number >= 1024);
            let mut pairs = words.text.split(' ').zip(words.text.split(' ').skip(1));
            assert!(!pairs.any(|(size, unit)| is_large(size) && unit == "KiB"), "{name}: {}", words.text);
        }
    }
}
