//! Pictures of curves as SVG: panels with axes, confidence bands, marked points, a legend and a caption.
//!
//! A picture is [`WIDTH`] units wide: one column of a paper (85 mm, 4 units per millimetre), with text of at least 6 points at that width.
//! It is shown at twice that size. Curves differ in colour, dash pattern and marker, so that they are distinct in grey. Coinciding markers
//! are drawn side by side, and labels of single points are placed clear of the curves.

mod curve_style;
mod draw;
mod label;
mod layout;
#[cfg(feature = "png")]
mod raster;
mod scale;

mod text;

pub use curve_style::{CurveStyle, Marker};
pub use layout::WIDTH;
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
    /// Number of its colour, dash pattern and marker ([`CurveStyle`]). Curves with the same number belong together and differ in `style`.
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
    /// Name. If several marks of a panel share it, it stands once in the legend.
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

    /// Its colour, dash pattern and marker.
    #[must_use]
    pub const fn look(&self) -> CurveStyle {
        CurveStyle::of(self.colour, self.style)
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
        draw::document(self)
    }

    /// Returns the picture as a PNG image of [`PIXELS_PER_UNIT`] pixels per unit: 406 dots per inch in a paper's column. Its font is built in,
    /// so the bytes do not depend on the fonts of the machine.
    ///
    /// # Errors
    /// [`PngError`].
    #[cfg(feature = "png")]
    pub fn png(&self) -> Result<Vec<u8>, PngError> {
        raster::png(&self.svg())
    }
}

#[cfg(test)]
mod tests;
