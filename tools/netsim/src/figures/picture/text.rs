//! Estimate of text widths without a font. It tends to be too wide for the fonts that SVG viewers use for `sans-serif`.

/// Width of `text` at a font size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(share).sum::<f64>() * size
}

/// Width of a letter as a fraction of the font size.
fn share(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ';' | ':' | '\'' | '|' | '!' | '(' | ')' | '/' | ' ' => 0.37,
        'f' | 't' | 'r' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '\u{2030}' | '@' => 0.95,
        'A'..='Z' | '+' | '=' | '<' | '>' | '\u{b1}' => 0.72,
        _ => 0.61,
    }
}

/// Breaks `text` at spaces into lines of at most `most`.
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

/// Breaks the label of a category into lines: at spaces and after hyphens where it is wider than `most`, and within a word that is wider.
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

/// Splits a word into parts that fit, of at least three letters each.
fn hyphenated(word: &str, size: f64, most: f64) -> Vec<String> {
    let letters: Vec<char> = word.trim_end().chars().collect();
    if width(word.trim_end(), size) <= most || letters.len() < 7 {
        return vec![word.to_owned()];
    }
    let with_hyphen = |letters: &[char]| letters.iter().collect::<String>() + "-";
    let fit = (3..=letters.len() - 3).rev();
    let fit: Vec<&[char]> = fit
        .filter_map(|end| letters.get(..end))
        .filter(|start| width(&with_hyphen(start), size) <= most)
        .collect();
    // Before a consonant that a vowel follows, if there is one.
    let is_vowel = |letter: Option<&char>| letter.is_some_and(|letter| "aeiouy".contains(*letter));
    let begins = |start: &&&[char]| {
        !is_vowel(letters.get(start.len()))
            && is_vowel(letters.get(start.len() + 1))
            && is_vowel(start.last())
    };
    let Some(start) = fit.iter().find(begins).or(fit.first()) else { return vec![word.to_owned()] };
    let rest: String = letters.iter().skip(start.len()).collect();
    let mut all = vec![with_hyphen(start)];
    all.extend(hyphenated(&rest, size, most));
    all
}
