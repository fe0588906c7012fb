//! Parts of a Rust source: comments, string literals, code.

/// A part of a source, with its delimiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Comment(&'a str),
    /// A string or byte string; raw ones included.
    Literal(&'a str),
    /// One character of code, or a character literal that is a quotation mark.
    Code(&'a str),
}

/// Splits a source into its parts; their concatenation is the source.
pub(crate) fn parts(source: &str) -> impl Iterator<Item = Part<'_>> {
    let (mut rest, mut after_word) = (source, false);
    std::iter::from_fn(move || {
        let part = next_part(rest, after_word)?;
        let (Part::Comment(text) | Part::Literal(text) | Part::Code(text)) = part;
        after_word = matches!(part, Part::Code(text) if text.ends_with(is_word));
        rest = &rest[text.len()..];
        Some(part)
    })
}

fn next_part(rest: &str, after_word: bool) -> Option<Part<'_>> {
    let first = rest.chars().next()?;
    let raw = || raw_string_end(rest).filter(|_| !after_word);
    Some(match first {
        '/' if rest.starts_with("//") => Part::Comment(&rest[..rest.find('\n').unwrap_or(rest.len())]),
        '"' => Part::Literal(&rest[..string_end(rest)]),
        'r' | 'b' if raw().is_some() => Part::Literal(&rest[..raw().unwrap_or(1)]),
        // A character literal, which may be a quotation mark; a lifetime has no closing quotation mark.
        '\'' if rest.starts_with("'\"'") => Part::Code(&rest[..3]),
        '\'' if rest.starts_with("'\\\"'") => Part::Code(&rest[..4]),
        other => Part::Code(&rest[..other.len_utf8()]),
    })
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of the string literal at the start of `text`, with its quotation marks.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of the raw string literal at the start of `text`, if there is one.
fn raw_string_end(text: &str) -> Option<usize> {
    let body = text.strip_prefix('b').unwrap_or(text).strip_prefix('r')?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inner = body[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = inner.find(&close)?;
    Some(text.len() - inner.len() + end + close.len())
}
