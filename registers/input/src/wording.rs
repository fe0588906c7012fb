//! Messages of parsers in terms of the text's author: a parser names types of the program.

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

/// Returns a message of `serde_yaml` or `serde_json` without the position at its end, which readers print before it, and without type
/// names: "found the text "x", expected a whole number from 0 to 255".
#[must_use]
pub fn plain_message(message: &str) -> String {
    let message = without_position(message);
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
