//! Pictures of curves as SVG: panels with axes, confidence bands, marked points, a legend and a caption.
//!
//! A picture is [`WIDTH`] units wide: one column of a paper (85 mm, 4 units per millimetre), with text of 6 points and more at that width. It
//! is shown at twice that size. Curves differ in colour, dash pattern and marker, so that they can be told apart in grey; coinciding
//! markers are drawn side by side, and names of single points are placed where no curve passes.

mod curve_style;
mod draw;
mod label;
mod layout;
mod scale;

mod text;

pub use curve_style::{CurveStyle, Marker};
pub use layout::WIDTH;
pub use scale::binary;

/// A picture: panels in rows of `columns`, a title above, a legend and the caption below.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Picture {
    /// What it shows.
    pub title: String,
    /// Parameters and definitions of all symbols, one paragraph each.
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
    /// Which part of the y axis is shown.
    pub y_extent: Extent,
    /// Curves, in the legend's order.
    pub curves: Vec<Curve>,
    /// Single points with a name.
    pub marks: Vec<Mark>,
    /// Sentences about this panel, below it: for example why a curve is missing.
    pub notes: Vec<String>,
}

/// Which part of an axis is shown.
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
    /// Number of its look: colour, dash pattern and marker ([`CurveStyle`]); curves of one number belong together and differ in style.
    pub colour: usize,
    /// How it is drawn.
    pub style: CurveKind,
    /// x, y, and the lower and upper end of y's band.
    pub points: Vec<[f64; 4]>,
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CurveKind {
    /// A line with a marker at each point, and its band.
    #[default]
    Line,
    /// A thin line without markers: arithmetic, or too many points for markers.
    Thin,
    /// The band alone.
    Band,
    /// Markers alone, with their bands as bars.
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
    /// What. A name that several marks of a panel have stands in the legend, once.
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
    pub fn style(mut self, style: CurveKind) -> Self {
        self.style = style;
        self
    }

    /// Its points with half the widths of their intervals.
    #[must_use]
    pub fn points(mut self, points: impl IntoIterator<Item = (f64, f64, f64)>) -> Self {
        let points =
            points.into_iter().filter(|(x, y, half)| x.is_finite() && y.is_finite() && half.is_finite());
        self.points = points.map(|(x, y, half)| [x, y, y - half, y + half]).collect();
        self
    }

    /// Its colour, dash pattern and marker.
    #[must_use]
    pub const fn look(&self) -> CurveStyle {
        CurveStyle::of(self.colour, self.style)
    }
}

impl Mark {
    /// At a place.
    #[must_use]
    pub fn new(x: f64, y: f64, name: impl Into<String>) -> Self {
        Self { x, y, name: name.into() }
    }
}

impl Panel {
    /// Curves that have points.
    pub fn drawn(&self) -> impl Iterator<Item = &Curve> {
        self.curves.iter().filter(|curve| !curve.points.is_empty())
    }

    /// The panel's notes, and one for each curve that has no points.
    #[must_use]
    pub fn all_notes(&self) -> Vec<String> {
        let empty = self.curves.iter().filter(|curve| curve.points.is_empty());
        let empty = empty.map(|curve| format!("{}: not shown, no value was measured.", curve.name));
        self.notes.iter().cloned().chain(empty).collect()
    }
}

impl Picture {
    /// As an SVG document.
    #[must_use]
    pub fn svg(&self) -> String {
        draw::document(self)
    }
}

#[cfg(test)]
mod tests;
