//! Messages of parsers in terms of the text's author: a parser names types of the program.

use std::borrow::Cow;

/// Beginnings of a parser's messages, and what stands for them here.
const KINDS: [(&str, &str); 7] = [
    ("invalid type: ", "found "),
    ("invalid value: ", "found "),
    ("invalid length ", "found a list of length "),
    ("unknown field ", "unknown key "),
    ("unknown variant ", "unknown value "),
    ("missing field ", "missing key "),
    ("duplicate field ", "duplicate key "),
];

/// Maximum number of characters of a file's value in a message.
const MAX_SHOWN: usize = 60;

/// Returns a message of `serde_yaml` or `serde_json` without the position at its end, which readers print before it, and without type
/// names; quoted values are shortened to 60 characters: "found the text "x", expected a whole number from 0 to 255".
#[must_use]
pub fn plain_message(message: &str) -> String {
    shorten_quoted(&plain(without_position(message)))
}

/// Returns `text` if it has at most 60 characters, else its beginning and the total length. For values of files in messages.
#[must_use]
pub fn shortened(text: &str) -> Cow<'_, str> {
    let Some((end, _)) = text.char_indices().nth(MAX_SHOWN) else { return Cow::Borrowed(text) };
    let start = text.get(..end).unwrap_or_default();
    Cow::Owned(format!("{start}... ({} characters)", text.chars().count()))
}

/// Shortens the quoted values of a message.
fn shorten_quoted(message: &str) -> String {
    let (mut shown, mut rest) = (String::new(), message);
    while let Some(start) = rest.find(['"', '`']) {
        let (before, quoted) = rest.split_at(start);
        let quote = quoted.chars().next().unwrap_or('"');
        let value = quoted.get(1..).unwrap_or_default();
        // A long value may contain the quote: it ends at the last one before the parser's own words.
        let own = value.rfind(", expected ").unwrap_or(value.len());
        let words = value.get(..own).unwrap_or_default();
        let end = closing(value, quote)
            .and_then(|end| if end > MAX_SHOWN { words.rfind(quote) } else { Some(end) });
        let end = end.unwrap_or(value.len());
        let (value, after) = (value.get(..end).unwrap_or_default(), value.get(end..).unwrap_or_default());
        let after = after.strip_prefix(quote).unwrap_or(after);
        shown += before;
        shown.push(quote);
        match shortened(value) {
            Cow::Borrowed(value) => {
                shown += value;
                shown.push(quote);
            }
            Cow::Owned(value) => {
                let (start, total) = value.split_at(value.rfind(" (").unwrap_or(value.len()));
                shown += start;
                shown.push(quote);
                shown += total;
            }
        }
        rest = after;
    }
    shown + rest
}

/// Position of the quote that ends a value; a backslash protects the next character.
fn closing(value: &str, quote: char) -> Option<usize> {
    let mut protected = false;
    value.char_indices().find_map(|(at, each)| {
        let is_end = each == quote && !protected;
        protected = each == '\\' && !protected;
        is_end.then_some(at)
    })
}

/// The message in the author's terms.
fn plain(message: &str) -> String {
    let first = KINDS.iter().filter_map(|(kind, plain)| Some((message.find(kind)?, kind, plain)));
    let Some((at, kind, plain)) = first.min_by_key(|(at, ..)| *at) else { return message.to_owned() };
    // The path of the key may stand before it.
    let (path, rest) =
        (message.get(..at).unwrap_or_default(), message.get(at + kind.len()..).unwrap_or_default());
    // The value that was found may contain the word.
    match rest.rsplit_once(", expected ") {
        Some((given, expected)) if *plain == "found " => {
            format!("{path}{plain}{}, expected {}", found(given), wanted(expected))
        }
        Some((given, expected)) if kind.starts_with("invalid") => {
            format!("{path}{plain}{given}, expected {}", wanted(expected))
        }
        _ => format!("{path}{plain}{rest}"),
    }
}

/// The message without " at line N column M".
fn without_position(message: &str) -> &str {
    let Some((before, position)) = message.rsplit_once(" at line ") else { return message };
    let is_position = position.split_once(" column ").is_some_and(|(line, column)| {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number(line) && is_number(column)
    });
    if is_position { before } else { message }
}

/// Description of the value that was found.
fn found(given: &str) -> String {
    let quoted = |kind: &str| given.strip_prefix(kind)?.strip_prefix('`')?.strip_suffix('`');
    let number = ["integer ", "floating point ", "boolean ", "character "].into_iter().find_map(quoted);
    match (number, given) {
        (Some(value), _) => value.to_owned(),
        (_, "sequence") => "a list".to_owned(),
        (_, "map") => "keys with values".to_owned(),
        (_, "unit value" | "null") => "no value".to_owned(),
        _ => {
            given.strip_prefix("string ").map_or_else(|| given.to_owned(), |text| format!("the text {text}"))
        }
    }
}

/// Description of the expected value.
fn wanted(expected: &str) -> String {
    let range = |most: u64| format!("a whole number from 0 to {most}");
    match expected {
        "u8" => range(u8::MAX.into()),
        "u16" => range(u16::MAX.into()),
        "u32" => range(u32::MAX.into()),
        "u64" | "usize" => range(u64::MAX),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" => "text".to_owned(),
        "a sequence" => "a list, such as [a, b]".to_owned(),
        "a YAML tag starting with '!'" | "string or map" => "one word".to_owned(),
        map if map == "a map" || map.starts_with("struct ") => {
            "keys with values, such as {key: value}".to_owned()
        }
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_shortened() {
        let long = "x".repeat(200_000);
        let start = "x".repeat(MAX_SHOWN);
        for quote in ['"', '`'] {
            for (before, after) in [
                ("invalid type: string ", ", expected u16"),
                ("unknown field ", ", expected `a` or `b`"),
                ("", " is not a size"),
                ("no end: ", ""),
            ] {
                let message = plain_message(&format!("{before}{quote}{long}{quote}{after}"));
                assert!(message.len() < 200, "{}", message.len());
                let part = format!("{quote}{start}...{quote} (200000 characters)");
                assert!(message.contains(&part), "{message}");
            }
        }
        // Quotes inside of the value.
        let message = plain_message(&format!("unknown field `{0}`{0}`, expected `a`", "y".repeat(100)));
        assert!(message.len() < 200 && message.ends_with(", expected `a`"), "{message}");
        assert_eq!(shortened("short"), "short");
    }

    #[test]
    fn parser_messages_become_plain() {
        for (message, plain) in [
            (
                "pci.vendor: invalid type: string \"x\", expected u16 at line 2 column 15",
                "pci.vendor: found the text \"x\", expected a whole number from 0 to 65535",
            ),
            ("invalid value: integer `300`, expected u8", "found 300, expected a whole number from 0 to 255"),
            (
                "a.b: invalid type: floating point `1.5`, expected u64",
                "a.b: found 1.5, expected a whole number from 0 to 18446744073709551615",
            ),
            (
                "invalid type: sequence, expected struct Pci",
                "found a list, expected keys with values, such as {key: value}",
            ),
            (
                "invalid type: map, expected a sequence",
                "found keys with values, expected a list, such as [a, b]",
            ),
            ("invalid type: unit value, expected a boolean", "found no value, expected true or false"),
            (
                "invalid type: string \"a, expected u8\", expected f64",
                "found the text \"a, expected u8\", expected a number",
            ),
            (
                "unknown field `x`, expected `a` or `b` at line 1 column 1",
                "unknown key `x`, expected `a` or `b`",
            ),
            (
                "rate: unknown variant `x`, expected one of `a`, `b`",
                "rate: unknown value `x`, expected one of `a`, `b`",
            ),
            ("missing field `x`", "missing key `x`"),
            (
                "invalid length 3, expected fewer elements in sequence",
                "found a list of length 3, expected fewer elements in sequence",
            ),
            (
                "mapping values are not allowed in this context at line 1 column 5",
                "mapping values are not allowed in this context",
            ),
            ("look at line 5", "look at line 5"),
            ("x at line  column 5", "x at line  column 5"),
            ("give 1 to 5", "give 1 to 5"),
        ] {
            assert_eq!(plain_message(message), plain);
        }
    }
}
