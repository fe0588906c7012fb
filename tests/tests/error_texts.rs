//! Texts of errors: one short statement of the problem, with its cause, which is then not the `source()` as well.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::names::lexer::{Part, parts};

/// Maximum number of characters of one sentence.
const MAX_SENTENCE: usize = 160;

/// Packages whose texts are free of the words of one front end, with their sources.
const LIBRARIES: [&str; 12] = [
    "driver/diag/src",
    "driver/rdma/frames/src",
    "driver/rdma/src",
    "driver/host/src",
    "driver/pci/src",
    "driver/ring/src",
    "driver/sim",
    "driver/src",
    "driver/vfio-user/src",
    "firmware-bindings",
    "registers",
    "tools/netsim/src",
];

/// The front end, whose texts name its commands.
const FRONT_END: &str = "tools/fpgactl/src";

/// An `#[error(...)]` attribute: its string literals, its code, and the code up to the next attribute.
#[derive(Default)]
struct ErrorText {
    literals: Vec<String>,
    arguments: String,
    item: String,
}

impl ErrorText {
    /// Whether the text contains the field that `source()` returns.
    fn repeats_source(&self) -> bool {
        let text = self.literals.concat();
        let named = |name: &str| {
            text.contains(&format!("{{{name}}}")) || text.contains(&format!("{{{name}:")) || {
                let words: Vec<&str> =
                    self.arguments.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
                words.contains(&name)
            }
        };
        let body = self.item.split_once(['{', '(']).map_or("", |(_, body)| body);
        let has_source = body.match_indices("source:").any(|(at, _)| {
            let before = body.get(..at).unwrap_or_default();
            !before.ends_with("r#") && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
        });
        (has_source && named("source"))
            || (self.item.contains("#[from]") && (text.contains("{0") || named("_0")))
    }
}

/// All attributes of a source file, without those of its comments.
fn error_texts(source: &str) -> Vec<ErrorText> {
    let mut found: Vec<ErrorText> = Vec::new();
    let (mut code, mut depth) = (String::new(), 0_usize);
    for part in parts(source) {
        match part {
            Part::Comment(_) => {}
            Part::Literal(text) => {
                if let Some(last) = found.last_mut().filter(|_| depth > 0) {
                    last.literals.push(text.trim_matches('"').to_owned());
                }
            }
            Part::Code(text) => {
                code += text;
                match text {
                    "(" if depth == 0 && code.ends_with("#[error(") => {
                        found.push(ErrorText::default());
                        depth = 1;
                        continue;
                    }
                    "(" if depth > 0 => depth += 1,
                    ")" if depth > 0 => depth -= 1,
                    _ => {}
                }
                if let Some(last) = found.last_mut() {
                    if depth > 0 { last.arguments += text } else { last.item += text }
                }
            }
        }
    }
    for text in &mut found {
        // The variant or struct ends before the next one.
        let end = text.item.find("},").or_else(|| text.item.find("),")).unwrap_or(text.item.len());
        text.item.truncate(end);
    }
    found
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn error_text_is_short_and_does_not_repeat_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut count, mut wrong) = (0, Vec::new());
    for folder in LIBRARIES.into_iter().chain([FRONT_END]) {
        let mut files = Vec::new();
        sources(&root.join(folder), &mut files);
        for file in files {
            for text in error_texts(&fs::read_to_string(&file).unwrap()) {
                count += 1;
                let shown = format!("{}: {:?}", file.display(), text.literals);
                if text.repeats_source() {
                    wrong.push(format!("contains its source(): {shown}"));
                }
                for literal in &text.literals {
                    let line = literal.split("\\\n").map(str::trim_start).collect::<String>();
                    if line.contains("\\nhelp:") {
                        wrong.push(format!("contains its advice, which is help() or advice(): {shown}"));
                    }
                    if line.split(". ").any(|sentence| sentence.chars().count() > MAX_SENTENCE) {
                        wrong.push(format!("longer than {MAX_SENTENCE} characters: {shown}"));
                    }
                    if folder != FRONT_END && line.contains("fpgactl") {
                        wrong.push(format!("names a front end: {shown}"));
                    }
                }
            }
        }
    }
    assert!(count > 300, "{count} texts found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn error_text_with_source_is_found() {
    let repeats = |source: &str| error_texts(source).iter().filter(|text| text.repeats_source()).count();
    assert_eq!(repeats("enum E { #[error(\"a: {source}\")] A { source: X }, }"), 1);
    assert_eq!(repeats("enum E { #[error(\"{}\", f(source))] A { source: X }, }"), 1);
    assert_eq!(repeats("enum E { #[error(\"a: {0}\")] A(#[from] X), }"), 1);
    assert_eq!(
        repeats("enum E { #[error(\"a: {source}\")] A { r#source: X }, #[error(\"b\")] B { source: X }, }"),
        0
    );
    assert_eq!(repeats("enum E { #[error(transparent)] A(#[from] X), #[error(\"b: {0}\")] B(X), }"), 0);
}
