//! Pictures as PNG. Text is drawn as outlines of a built-in font, so that no font has to be installed, and the bytes depend on none.

use std::fmt::Write as _;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};
use ttf_parser::{Face, OutlineBuilder};

use super::Picture;
use super::draw::{self, Words};

/// Pixels per unit of a picture.
pub const PIXELS_PER_UNIT: f32 = 4.0;

/// Reasons why a picture cannot be converted to PNG.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PngError(String);

pub(super) fn png(picture: &Picture) -> Result<Vec<u8>, PngError> {
    // The condensed form, because its letters are about as wide as those that the layout assumes.
    let face = |data| Face::parse(data, 0).map_err(|error| PngError(format!("built-in font: {error}")));
    let (regular, bold) = (face(dejavu::sans_condensed::regular())?, face(dejavu::sans_condensed::bold())?);
    let letters = |words: &Words<'_>| outlined(words, if words.bold { &bold } else { &regular });
    let svg = draw::document(picture, &letters);
    let failed = |reason: &dyn std::fmt::Display| PngError(reason.to_string());
    let tree = Tree::from_str(&svg, &Options::default()).map_err(|error| failed(&error))?;
    // The document is shown at twice the size of its units.
    let zoom = PIXELS_PER_UNIT / 2.0;
    let size = tree.size().to_int_size().scale_by(zoom);
    let image = size.and_then(|size| Pixmap::new(size.width(), size.height()));
    let mut image = image.ok_or_else(|| failed(&"the image is empty or too large"))?;
    resvg::render(&tree, Transform::from_scale(zoom, zoom), &mut image.as_mut());
    image.encode_png().map_err(|error| failed(&error))
}

/// Path of a line of text.
fn outlined(words: &Words<'_>, face: &Face<'_>) -> String {
    let scale = words.size / f64::from(face.units_per_em());
    let glyphs: Vec<_> =
        words.text.chars().map(|letter| face.glyph_index(letter).unwrap_or_default()).collect();
    let advance = |glyph| f64::from(face.glyph_hor_advance(glyph).unwrap_or(0)) * scale;
    let width: f64 = glyphs.iter().map(|glyph| advance(*glyph)).sum();
    let left = match words.anchor {
        "middle" => width / 2.0,
        "end" => width,
        _ => 0.0,
    };
    let mut outline = Outline { path: String::new(), x: words.x - left, y: words.y, scale };
    for glyph in glyphs {
        // A letter without outline is a space.
        let _ = face.outline_glyph(glyph, &mut outline);
        outline.x += advance(glyph);
    }
    format!("<path d=\"{}\" {}/>\n", outline.path, words.transform())
}

/// Outline of letters as path data. Coordinates of a font point upwards.
struct Outline {
    path: String,
    x: f64,
    y: f64,
    scale: f64,
}

impl Outline {
    fn command(&mut self, letter: char, points: &[(f32, f32)]) {
        self.path.push(letter);
        for (x, y) in points {
            let x = f64::from(*x).mul_add(self.scale, self.x);
            let y = f64::from(*y).mul_add(-self.scale, self.y);
            // Writing to a string cannot fail.
            let _ = write!(self.path, "{x:.2},{y:.2} ");
        }
    }
}

impl OutlineBuilder for Outline {
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

    #[test]
    fn png_has_stated_size_and_same_bytes() {
        let picture = Picture { title: "a <title>, 1 ‰ µs".to_owned(), ..Picture::default() };
        let image = picture.png().unwrap();
        assert_eq!(image, picture.png().unwrap());
        let read = Pixmap::decode_png(&image).unwrap();
        assert!((super::super::WIDTH * f64::from(PIXELS_PER_UNIT) - f64::from(read.width())).abs() < 1.0);
        assert!(read.pixels().iter().any(|pixel| pixel.red() == 0), "letters without system fonts");
    }
}
