//! Pictures as PNG. Text is converted to outlines of a built-in font, so that no font has to be installed.

use std::fmt::Write as _;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};
use svg::node::Attributes;
use svg::parser::Event;
use ttf_parser::{Face, OutlineBuilder};

use super::text::number;

/// Pixels per unit of a picture.
pub const PIXELS_PER_UNIT: f32 = 4.0;

/// Reasons why a picture cannot be converted to PNG.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PngError {
    /// The built-in font is unusable.
    #[error("built-in font: {0}")]
    Font(String),
    /// The SVG document of the picture is unusable.
    #[error("SVG document: {0}")]
    Document(String),
    /// The image would be empty or too large.
    #[error("an image of {width} x {height} pixels")]
    Size {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// The image cannot be encoded.
    #[error("encoding: {0}")]
    Encoding(String),
}

pub(super) fn png(svg: &str) -> Result<Vec<u8>, PngError> {
    let outlined = Fonts::new()?.outline(svg)?;
    let tree = Tree::from_str(&outlined, &Options::default())
        .map_err(|error| PngError::Document(error.to_string()))?;
    // The document is shown at twice the size of its units.
    let zoom = PIXELS_PER_UNIT / 2.0;
    let size = tree.size().to_int_size().scale_by(zoom);
    let (width, height) = size.map_or((0, 0), |size| (size.width(), size.height()));
    let mut image = Pixmap::new(width, height).ok_or(PngError::Size { width, height })?;
    resvg::render(&tree, Transform::from_scale(zoom, zoom), &mut image.as_mut());
    image.encode_png().map_err(|error| PngError::Encoding(error.to_string()))
}

/// Fonts of a picture: the condensed form, because its letters are about as wide as those that the layout assumes.
struct Fonts {
    regular: Face<'static>,
    bold: Face<'static>,
    italic: Face<'static>,
}

impl Fonts {
    fn new() -> Result<Self, PngError> {
        let face = |data| Face::parse(data, 0).map_err(|error| PngError::Font(error.to_string()));
        Ok(Self {
            regular: face(dejavu::sans_condensed::regular())?,
            bold: face(dejavu::sans_condensed::bold())?,
            italic: face(dejavu::sans_condensed::oblique())?,
        })
    }

    /// Replaces every `text` element of a document of [`super::Picture::svg`] by a `path`: there, `text` contains only characters.
    fn outline(&self, svg: &str) -> Result<String, PngError> {
        let mut result = String::with_capacity(4 * svg.len());
        let mut rest = svg;
        while let Some(start) = rest.find("<text ") {
            let (before, from) = rest.split_at(start);
            let end = from.find(END).ok_or_else(|| PngError::Document("text without end".to_owned()))?;
            let (element, after) = from.split_at(end);
            result.push_str(before);
            self.path(element, &mut result)?;
            rest = after.strip_prefix(END).unwrap_or(after);
        }
        result.push_str(rest);
        Ok(result)
    }

    /// Writes the `path` of a `text` element without its end tag.
    fn path(&self, element: &str, result: &mut String) -> Result<(), PngError> {
        let events = svg::read(element).map_err(|error| PngError::Document(error.to_string()))?;
        let (mut attributes, mut words) = (Attributes::new(), String::new());
        for event in events {
            match event {
                Event::Tag(_, _, found) => attributes = found,
                Event::Text(text) => words.push_str(&unescaped(text.trim())),
                _ => {}
            }
        }
        let value = |name: &str| attributes.get(name).map(|value| value.to_string()).unwrap_or_default();
        let place = |name: &str| value(name).parse::<f64>().unwrap_or(0.0);
        let face = match (value("font-weight").as_str(), value("font-style").as_str()) {
            ("bold", _) => &self.bold,
            (_, "italic") => &self.italic,
            _ => &self.regular,
        };
        let scale = place("font-size") / f64::from(face.units_per_em());
        let glyphs: Vec<_> =
            words.chars().map(|letter| face.glyph_index(letter).unwrap_or_default()).collect();
        let advance = |glyph| f64::from(face.glyph_hor_advance(glyph).unwrap_or(0)) * scale;
        let width: f64 = glyphs.iter().map(|glyph| advance(*glyph)).sum();
        let mut x = place("x")
            - match value("text-anchor").as_str() {
                "middle" => width / 2.0,
                "end" => width,
                _ => 0.0,
            };
        let mut path = String::new();
        for glyph in glyphs {
            let mut outline = Outline { path: &mut path, x, y: place("y"), scale };
            let _ = face.outline_glyph(glyph, &mut outline);
            x += advance(glyph);
        }
        result.push_str("<path");
        for name in ["fill", "stroke", "stroke-width", "transform"] {
            if let Some(value) = attributes.get(name) {
                let _ = write!(result, " {name}=\"{value}\"");
            }
        }
        let _ = write!(result, " d=\"{path}\"/>");
        Ok(())
    }
}

const END: &str = "</text>";

fn unescaped(text: &str) -> String {
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")]
        .iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

/// Outline of a letter as path data. Coordinates of a font point upwards.
struct Outline<'a> {
    path: &'a mut String,
    x: f64,
    y: f64,
    scale: f64,
}

impl Outline<'_> {
    fn command(&mut self, letter: char, points: &[(f32, f32)]) {
        self.path.push(letter);
        for (x, y) in points {
            let x = f64::from(*x).mul_add(self.scale, self.x);
            let y = f64::from(*y).mul_add(-self.scale, self.y);
            let _ = write!(self.path, "{},{} ", number(x), number(y));
        }
    }
}

impl OutlineBuilder for Outline<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        self.command('M', &[(x, y)]);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.command('L', &[(x, y)]);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.command('Q', &[(x1, y1), (x, y)]);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.command('C', &[(x1, y1), (x2, y2), (x, y)]);
    }

    fn close(&mut self) {
        self.command('Z', &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::picture::{Curve, Panel, Picture};

    fn picture(name: &str) -> Picture {
        let panel = Panel {
            x_label: "x < y & z (‰)".to_owned(),
            y_label: "time (µs)".to_owned(),
            curves: vec![Curve::new(name, 0).points([(0.0, 1.0, 0.1), (1.0, 2.0, 0.1)])],
            ..Panel::default()
        };
        Picture { title: "Title".to_owned(), columns: 1, panels: vec![panel], ..Picture::default() }
    }

    #[test]
    fn png_has_stated_size_and_same_bytes() {
        let picture = picture("curve");
        let image = picture.png().unwrap();
        // Two renderings, each of about 0.5 s in this profile.
        assert_eq!(image, picture.png().unwrap());
        let read = Pixmap::decode_png(&image).unwrap();
        assert!((super::super::WIDTH * f64::from(PIXELS_PER_UNIT) - f64::from(read.width())).abs() < 1.0);
        // The background is white and opaque.
        assert_eq!(image_corner(&read), [255; 4]);
    }

    fn image_corner(image: &Pixmap) -> [u8; 4] {
        let pixel = image.pixel(0, 0).unwrap();
        [pixel.red(), pixel.green(), pixel.blue(), pixel.alpha()]
    }

    #[test]
    fn png_text_is_drawn_without_system_fonts() {
        let fonts = Fonts::new().unwrap();
        let [outlined, other] = ["curve", "other"].map(|name| fonts.outline(&picture(name).svg()).unwrap());
        assert_ne!(outlined, other);
        assert!(!outlined.contains("<text") && outlined.contains("<path"));
        // Every letter that figures use.
        for letter in "aZ0 ‰µ±×(),.;:%=/<>&'".chars() {
            for face in [&fonts.regular, &fonts.bold, &fonts.italic] {
                assert!(face.glyph_index(letter).is_some(), "{letter}");
            }
        }
        assert!(fonts.outline("<svg><text x='1'>a").is_err());
    }
}
