//! Texts of the project that name functions and options: messages, help, comments and documents.

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::lexer::{Part, parts};

/// Reader of a text, which decides what it may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A string literal, or a doc comment that is a help text.
    Message,
    /// A comment of a source.
    Comment,
    /// A document for users.
    Guide,
    /// A document for people who change the project.
    Internal,
    /// A line of a code block of a document, or of a script or sample.
    Code,
}

/// A paragraph, literal or line.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

impl Text {
    /// Parts of the text that are code: all of a message or line of code, else the words in backticks.
    pub(crate) fn spans(&self) -> Vec<&str> {
        match self.kind {
            Kind::Message | Kind::Code => vec![&self.text],
            _ => self.text.split('`').skip(1).step_by(2).collect(),
        }
    }
}

/// Files of the project.
pub(crate) fn files(root: &Path) -> Vec<String> {
    let patterns = ["ls-files", "*.rs", "*.md", "*.yaml", "*.toml"];
    let listed = Command::new("git").arg("-C").arg(root).args(patterns).output();
    let listed = listed.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&listed).lines().map(str::to_owned).collect()
}

/// Files whose texts name things that do not exist on purpose, or that no longer exist.
fn is_excluded(file: &str) -> bool {
    // Figures name the benchmarks of the measured commit.
    ["docs/dev/words.yaml", "docs/benchmarks/building-blocks.md", "BENCHMARKS.md"].contains(&file)
}

fn is_test(file: &str) -> bool {
    let name = Path::new(file).file_name().unwrap_or_default();
    file.starts_with("tests/")
        || file.contains("/tests/")
        || ["tests.rs", "testing.rs", "fake.rs"].iter().any(|test| name == *test)
}

/// All texts of the project.
pub(crate) fn texts(root: &Path, files: &[String]) -> Vec<Text> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !is_excluded(file)) {
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        match file.rsplit('.').next() {
            Some("rs") if !is_test(file) => of_source(file, &text, &mut found),
            Some("md") => of_document(file, &current(file, &text), &mut found),
            Some("yaml") => of_yaml(file, &text, &mut found),
            _ => {}
        }
    }
    found
}

/// The text of a document. Of the changelog: the section that is not released, where lines about changes are empty, because they name
/// what there was before.
fn current<'a>(file: &str, text: &'a str) -> Cow<'a, str> {
    if file != "CHANGELOG.md" {
        return text.into();
    }
    let released = text.match_indices("\n## ").nth(1).map_or(text.len(), |(at, _)| at);
    let (mut section, mut kept) = ("", String::new());
    for line in text[..released].lines() {
        section = line.strip_prefix("### ").unwrap_or(section);
        kept += if ["Added", "Fixed"].contains(&section) { line } else { "" };
        kept.push('\n');
    }
    kept.into()
}

/// Literals and comments of a source, without the tests at its end.
pub(crate) fn of_source(file: &str, source: &str, found: &mut Vec<Text>) {
    let source = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let is_help = file.starts_with("tools/fpgactl/src/cli") || file == "tools/fpgactl/src/impair.rs";
    // The code of the line so far: attributes name functions for the compiler.
    let (mut line, mut code) = (1, String::new());
    // The comment so far: kind, line, text; whether code came since.
    let mut comment: Option<(Kind, usize, String)> = None;
    let mut fenced = false;
    let mut push = |kind, line, text| found.push(Text { file: file.to_owned(), line, kind, text });
    for part in parts(source) {
        match part {
            Part::Comment(text) => {
                let content = text.trim_start_matches(['/', '!']).trim();
                // Examples are compiled.
                fenced ^= content.starts_with("```");
                let content = if fenced || content.starts_with("```") { "" } else { content };
                let kind = if is_help && text.starts_with("///") { Kind::Message } else { Kind::Comment };
                match &mut comment {
                    Some((of, _, joined)) if *of == kind && !content.is_empty() => {
                        joined.push(' ');
                        joined.push_str(content);
                    }
                    _ => {
                        if let Some((kind, line, text)) = comment.take() {
                            push(kind, line, text);
                        }
                        comment = Some((kind, line, content.to_owned()));
                    }
                }
            }
            Part::Literal(_) if ["#[serde(", "#[schemars(", "with = "].iter().any(|it| code.contains(it)) => {
            }
            Part::Literal(text) => {
                let joined = text.split("\\\n").map(str::trim_start).collect::<Vec<_>>().join("");
                push(Kind::Message, line, joined.replace("\\n", "\n"));
            }
            Part::Code(text) if text.trim().is_empty() => {}
            Part::Code(_) => {
                if let Some((kind, line, text)) = comment.take() {
                    push(kind, line, text);
                }
            }
        }
        let (Part::Comment(text) | Part::Literal(text) | Part::Code(text)) = part;
        match part {
            Part::Code("\n") => code.clear(),
            Part::Code(text) => code.push_str(text),
            _ => {}
        }
        line += text.matches('\n').count();
    }
    if let Some((kind, line, text)) = comment {
        push(kind, line, text);
    }
}

fn of_document(file: &str, text: &str, found: &mut Vec<Text>) {
    let internal = ["docs/dev/", "docs/adr/", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/glossary.md"];
    let kind =
        if internal.iter().any(|start| file.starts_with(start)) { Kind::Internal } else { Kind::Guide };
    let (mut fenced, mut paragraph, mut start) = (false, String::new(), 1);
    let mut push = |kind, line, text: String| found.push(Text { file: file.to_owned(), line, kind, text });
    for (line, number) in text.lines().zip(1..) {
        let fence = line.trim_start().starts_with("```");
        if fence || fenced || line.trim().is_empty() || line.starts_with("    ") || line.starts_with('|') {
            push(kind, start, std::mem::take(&mut paragraph));
        }
        if fence {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            push(Kind::Code, number, line.to_owned());
        } else if line.starts_with('|') {
            push(kind, number, line.to_owned());
        } else {
            if paragraph.is_empty() {
                start = number;
            }
            paragraph.push(' ');
            paragraph.push_str(line.trim());
        }
    }
    push(kind, start, paragraph);
}

/// Comments of samples with their commands, and all lines of other files.
fn of_yaml(file: &str, text: &str, found: &mut Vec<Text>) {
    for (line, number) in text.lines().zip(1..) {
        found.push(Text { file: file.to_owned(), line: number, kind: Kind::Code, text: line.to_owned() });
    }
}
