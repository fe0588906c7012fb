//! Styles of curves: colour, dash pattern and marker. The combination is unique for the first 64 curves.

use super::CurveKind;

/// Colours that people with any colour vision can distinguish (Okabe and Ito), without the yellow that is invisible on white paper.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00", "#7f7f7f"];

/// Lengths of strokes and gaps.
const DASHES: [&str; 8] =
    ["", "6 2", "1.5 1.7", "7 2 1.5 2", "3.2 1.6", "10 3", "5 1.6 1.5 1.6 1.5 1.6", "2 4"];

/// Marker of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names of shapes")]
pub enum Marker {
    Disc,
    Square,
    Triangle,
    Diamond,
    Cross,
    Circle,
    Gradient,
    Plus,
}

const MARKERS: [Marker; 8] = [
    Marker::Disc,
    Marker::Square,
    Marker::Triangle,
    Marker::Diamond,
    Marker::Cross,
    Marker::Circle,
    Marker::Gradient,
    Marker::Plus,
];

/// Style of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct CurveStyle {
    /// SVG colour.
    pub colour: &'static str,
    /// The line's `stroke-dasharray`: empty for a solid line, `None` without a line.
    pub dash: Option<&'static str>,
    /// Marker at each point, if any.
    pub marker: Option<Marker>,
    /// Whether the line is thin.
    pub thin: bool,
}

impl CurveStyle {
    /// Style of curve `number`, of the given kind.
    #[must_use]
    pub const fn of(number: usize, style: CurveKind) -> Self {
        let column = number % 8;
        let marker = MARKERS[(column + number / 8) % 8];
        let (line, marked) = match style {
            CurveKind::Line => (true, true),
            CurveKind::Thin => (true, false),
            CurveKind::Band => (false, false),
            CurveKind::Dots => (false, true),
        };
        Self {
            colour: COLOURS[column],
            dash: if line { Some(DASHES[column]) } else { None },
            marker: if marked { Some(marker) } else { None },
            thin: matches!(style, CurveKind::Thin),
        }
    }
}

impl Marker {
    /// Outline around a point as an SVG path, and whether it is filled with the colour; otherwise it is filled with white.
    pub(super) fn path(self, x: f64, y: f64, radius: f64) -> (String, bool) {
        use super::text::number as n;
        let at = |dx: f64, dy: f64| format!("{},{}", n(x + dx * radius), n(y + dy * radius));
        let outline = |corners: &[(f64, f64)]| {
            let corners: Vec<String> = corners.iter().map(|(dx, dy)| at(*dx, *dy)).collect();
            format!("M{}Z", corners.join("L"))
        };
        let round = || {
            let r = n(radius);
            format!("M{}A{r},{r} 0 1 0 {}A{r},{r} 0 1 0 {}Z", at(-1.0, 0.0), at(1.0, 0.0), at(-1.0, 0.0))
        };
        match self {
            Self::Disc => (round(), true),
            Self::Circle => (round(), false),
            Self::Square => (outline(&[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]), false),
            Self::Triangle => (outline(&[(0.0, -1.15), (1.05, 0.75), (-1.05, 0.75)]), true),
            Self::Gradient => (outline(&[(0.0, 1.15), (1.05, -0.75), (-1.05, -0.75)]), false),
            Self::Diamond => (outline(&[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)]), false),
            Self::Cross => {
                (format!("M{}L{}M{}L{}", at(-0.9, -0.9), at(0.9, 0.9), at(-0.9, 0.9), at(0.9, -0.9)), false)
            }
            Self::Plus => {
                (format!("M{}L{}M{}L{}", at(-1.15, 0.0), at(1.15, 0.0), at(0.0, -1.15), at(0.0, 1.15)), false)
            }
        }
    }
}
