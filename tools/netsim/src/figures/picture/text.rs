//! Formatting of numbers, and an estimate of text widths without a font, which tends to be too wide for the fonts that SVG viewers use for `sans-serif`.

/// Formats a coordinate with at most two decimal places.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

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

/// Splits a word into parts that fit, of at least three letters each: between two syllables if possible.
fn hyphenated(word: &str, size: f64, most: f64) -> Vec<String> {
    let trimmed = word.trim_end();
    let letters: Vec<char> = trimmed.chars().collect();
    // A hyphen at the end belongs to the last part and does not count as a letter.
    let count = trimmed.trim_end_matches('-').chars().count();
    if width(trimmed, size) <= most || count < 6 {
        return vec![word.to_owned()];
    }
    let with_hyphen = |letters: &[char]| letters.iter().collect::<String>() + "-";
    let fit: Vec<usize> = (3..=count - 3)
        .rev()
        .filter(|end| letters.get(..*end).is_some_and(|start| width(&with_hyphen(start), size) <= most))
        .collect();
    let is_vowel = |index: usize| letters.get(index).is_some_and(|letter| "aeiouy".contains(*letter));
    // The next syllable begins with a consonant before a vowel. The break is after a vowel, or after a consonant that follows a vowel.
    let is_break = |end: &&usize| {
        !is_vowel(**end) && is_vowel(**end + 1) && (is_vowel(**end - 1) || is_vowel(**end - 2))
    };
    let Some(end) = fit.iter().find(is_break).or(fit.first()) else { return vec![word.to_owned()] };
    let (start, rest) = letters.split_at(*end);
    let mut all = vec![with_hyphen(start)];
    all.extend(hyphenated(&rest.iter().collect::<String>(), size, most));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_label_splits_between_syllables() {
        let most = width("adaptive", 6.0);
        assert_eq!(broken("adaptive-window", 6.0, most), ["adap-", "tive-", "window"]);
        assert_eq!(broken("receiver-window", 6.0, width("receiver-", 6.0)), ["receiver-", "window"]);
    }

    #[test]
    fn broken_label_has_no_part_below_three_letters() {
        for most in 8..60 {
            for name in ["adaptive-window", "receiver-counter", "sender-window", "selective", "registry"] {
                for line in broken(name, 6.0, f64::from(most)) {
                    assert!(line.trim_end_matches('-').len() >= 3, "{name} at {most}: {line}");
                }
            }
        }
    }
}
