//! Pictures of curves as SVG: panels with axes, confidence bands, marked points, a legend and a caption.
//!
//! A picture is [`WIDTH`] units wide: one column of a paper (85 mm, 4 units per millimetre), with text of 6 points at that width. It is shown
//! at twice that size. Curves differ in colour, dash pattern and marker, so that they are distinct in grey. The markers of the curves of a
//! panel are side by side, so that coinciding curves can be counted.

mod draw;
#[cfg(feature = "png")]
mod raster;
mod scale;

pub use draw::WIDTH;
#[cfg(feature = "png")]
pub use raster::{PIXELS_PER_UNIT, PngError};
pub use scale::binary;

/// Picture: panels in rows of `columns`, a title above, a legend and the caption below.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Picture {
    /// Title.
    pub title: String,
    /// Parameters and definitions of all symbols, one paragraph each.
    pub caption: Vec<String>,
    /// Number of panels per row.
    pub columns: usize,
    /// Panels in reading order.
    pub panels: Vec<Panel>,
}

/// Panel with one pair of axes.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Panel {
    /// Title: the difference from the other panels.
    pub title: String,
    /// Label of the x axis, with unit.
    pub x_label: String,
    /// Label of the y axis, with unit.
    pub y_label: String,
    /// Scale of the x axis.
    pub x_scale: Scale,
    /// Scale of the y axis.
    pub y_scale: Scale,
    /// Shown part of the y axis.
    pub y_extent: Extent,
    /// Curves, in the legend's order.
    pub curves: Vec<Curve>,
    /// Single points with a name.
    pub marks: Vec<Mark>,
    /// Sentences about this panel, below it: for example why a curve is missing.
    pub notes: Vec<String>,
}

/// Shown part of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Extent {
    /// From zero (linear scales) to the largest value.
    #[default]
    FromZero,
    /// From the smallest value to the largest.
    Data,
    /// From one value to another.
    Between(f64, f64),
}

/// Scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Linear.
    #[default]
    Linear,
    /// Logarithmic, by powers of ten.
    Decades,
    /// Logarithmic, by powers of two, with binary units of bytes.
    Bytes,
    /// Categories: one position per value, in the order of these names.
    Names(&'static [&'static str]),
}

/// Curve.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// Number of its colour, dash pattern and marker. Curves with the same number belong together and differ in `style`.
    pub colour: usize,
    /// Kind of drawing.
    pub style: CurveKind,
    /// x, y, and the lower and upper end of y's band.
    pub points: Vec<[f64; 4]>,
}

/// Kind of drawing of a curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CurveKind {
    /// A line with a marker and an error bar at each point, and its band.
    #[default]
    Line,
    /// A thin line without markers: for computed curves, or too many points for markers.
    Thin,
    /// Only the band.
    Band,
    /// Only markers, with their bands as bars.
    Dots,
}

/// Point with a name.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Mark {
    /// x coordinate.
    pub x: f64,
    /// y coordinate.
    pub y: f64,
    /// Name: beside the point stands its number in the legend.
    pub name: String,
}

impl Curve {
    /// Creates a curve without points.
    #[must_use]
    pub fn new(name: impl Into<String>, colour: usize) -> Self {
        Self { name: name.into(), colour, ..Self::default() }
    }

    /// Sets the kind of drawing.
    #[must_use]
    pub fn style(mut self, style: CurveKind) -> Self {
        self.style = style;
        self
    }

    /// Sets the points, with half the widths of their intervals.
    #[must_use]
    pub fn points(mut self, points: impl IntoIterator<Item = (f64, f64, f64)>) -> Self {
        let points =
            points.into_iter().filter(|(x, y, half)| x.is_finite() && y.is_finite() && half.is_finite());
        self.points = points.map(|(x, y, half)| [x, y, y - half, y + half]).collect();
        self
    }

    /// Limits the upper ends of the intervals: for a quantity that has a maximum.
    #[must_use]
    pub fn at_most(mut self, limit: f64) -> Self {
        for [_, y, _, high] in &mut self.points {
            *high = high.min(limit).max(*y);
        }
        self
    }
}

impl Mark {
    /// Creates a mark at a point.
    #[must_use]
    pub fn new(x: f64, y: f64, name: impl Into<String>) -> Self {
        Self { x, y, name: name.into() }
    }
}

impl Panel {
    /// Curves with at least one point.
    pub fn drawn(&self) -> impl Iterator<Item = &Curve> {
        self.curves.iter().filter(|curve| !curve.points.is_empty())
    }

    /// Notes of the panel, and one for each curve without points.
    #[must_use]
    pub fn all_notes(&self) -> Vec<String> {
        let empty = self.curves.iter().filter(|curve| curve.points.is_empty());
        let empty = empty.map(|curve| format!("{}: not shown, no value was measured.", curve.name));
        self.notes.iter().cloned().chain(empty).collect()
    }
}

impl Picture {
    /// Returns the picture as an SVG document.
    #[must_use]
    pub fn svg(&self) -> String {
        draw::document(self, &draw::element)
    }

    /// Returns the picture as a PNG image of [`PIXELS_PER_UNIT`] pixels per unit: 406 dots per inch in a paper's column. Its font is built in,
    /// so the bytes do not depend on the fonts of the machine.
    ///
    /// # Errors
    /// [`PngError`].
    #[cfg(feature = "png")]
    pub fn png(&self) -> Result<Vec<u8>, PngError> {
        raster::png(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Curves that coincide, one of which is empty, and a mark.
    fn crowded() -> Picture {
        let curve = |number: usize| {
            let points = (0_u32..6).map(|x| (f64::from(x), f64::from(x * x), 0.5));
            Curve::new(format!("curve {number} < &"), number).points(points)
        };
        let mut panel = Panel { x_label: "x".to_owned(), y_label: "y".to_owned(), ..Panel::default() };
        panel.curves = (0..3).map(curve).chain([Curve::new("without points", 9)]).collect();
        panel.marks = vec![Mark::new(2.0, 4.0, "published")];
        Picture {
            title: "Crowded".to_owned(),
            caption: vec!["A caption.".to_owned()],
            columns: 1,
            panels: vec![panel],
        }
    }

    #[test]
    fn svg_explains_each_curve_and_mark_once() {
        let svg = crowded().svg();
        for words in
            ["curve 0 &lt; &amp;", "curve 2 &lt; &amp;", "published", "without points: not shown, no"]
        {
            assert_eq!(svg.matches(&format!(">{words}")).count(), 1, "{words}: {svg}");
        }
        assert_eq!(svg.matches("stroke-width=\"1.3\"").count(), 6, "three curves and their samples");
        let xs: Vec<&str> =
            svg.lines().filter(|line| line.contains("stroke-width=\"0.7\"") && line.contains('L')).collect();
        assert_eq!(
            xs.iter().collect::<std::collections::BTreeSet<_>>().len(),
            xs.len(),
            "intervals are side by side"
        );
    }

    #[test]
    fn svg_axis_starts_at_zero_or_data() {
        let mut picture = crowded();
        let points = (0_u32..3).map(|x| (f64::from(x), 100.0 + f64::from(x), 0.0));
        picture.panels[0].curves = vec![Curve::new("high", 0).points(points)];
        picture.panels[0].marks.clear();
        assert!(picture.svg().contains(">0</text>"));
        picture.panels[0].x_scale = Scale::Names(&["a", "b", "c"]);
        picture.panels[0].y_extent = Extent::Data;
        let svg = picture.svg();
        assert!(
            !svg.contains(">0</text>") && svg.contains(">102</text>") && svg.contains(">b</text>"),
            "{svg}"
        );
    }

    #[test]
    fn size_labels_use_largest_binary_unit() {
        for (size, text) in [(512, "512 B"), (32 << 10, "32 KiB"), (16 << 20, "16 MiB"), (1 << 30, "1 GiB")] {
            assert_eq!(binary(size), text);
        }
    }
}
