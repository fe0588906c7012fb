//! How wide text is, without a font at hand: an estimate that is rather too wide for the fonts that SVG viewers take for `sans-serif`.

/// Width of `text` at a font size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(share).sum::<f64>() * size
}

/// Of the font size.
fn share(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ';' | ':' | '\'' | '|' | '!' | '(' | ')' | '/' | ' ' => 0.37,
        'f' | 't' | 'r' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '\u{2030}' | '@' => 0.95,
        'A'..='Z' | '+' | '=' | '<' | '>' | '\u{b1}' => 0.72,
        _ => 0.61,
    }
}

/// `text` in lines of at most `most`, broken at spaces.
pub(super) fn wrapped(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(last) if width(last, size) + width(word, size) + width(" ", size) <= most => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The label of a category in lines: broken at spaces and behind hyphens where it is wider than `most`, and within a word that is wider.
pub(super) fn broken(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in text.split_inclusive(['-', ' ']) {
        match lines.last_mut() {
            Some(last) if width(last, size) + width(part.trim_end(), size) <= most => last.push_str(part),
            _ => lines.extend(hyphenated(part, size, most)),
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

/// A word in pieces that fit, none of them shorter than three letters.
fn hyphenated(word: &str, size: f64, most: f64) -> Vec<String> {
    let letters: Vec<char> = word.trim_end().chars().collect();
    if width(word.trim_end(), size) <= most || letters.len() < 7 {
        return vec![word.to_owned()];
    }
    let piece = |letters: &[char]| letters.iter().collect::<String>() + "-";
    let fit = (3..=letters.len() - 3).rev();
    let fit: Vec<&[char]> =
        fit.filter_map(|end| letters.get(..end)).filter(|start| width(&piece(start), size) <= most).collect();
    // Before a consonant with a vowel behind it, where there is one.
    let is_vowel = |letter: Option<&char>| letter.is_some_and(|letter| "aeiouy".contains(*letter));
    let begins = |start: &&&[char]| {
        !is_vowel(letters.get(start.len()))
            && is_vowel(letters.get(start.len() + 1))
            && is_vowel(start.last())
    };
    let Some(start) = fit.iter().find(begins).or(fit.first()) else { return vec![word.to_owned()] };
    let rest: String = letters.iter().skip(start.len()).collect();
    let mut all = vec![piece(start)];
    all.extend(hyphenated(&rest, size, most));
    all
}
